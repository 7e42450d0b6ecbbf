"""Averaged rankers and symmetric variants of OASIS, and how symmetric W becomes.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, sections 5.4 and 6.1, figures 7 and 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .measured.variants import measure
from .pages import Panel, Plot, Results, draw, open_text, select
from .statistics import clearly_above, plus_minus

__all__ = ["facts", "jobs", "measure"]

FOLDS = 10
RANKERS = (1, 5, 10)
VARIANTS = {
    None: "OASIS",
    "symmetric": "Proj-OASIS",
    "online-symmetric": "Online-Proj-OASIS",
    "dissim": "Dissim-OASIS",
}
X = {"xlabel": "steps of each ranker (thousands)"}


def jobs(quick: bool) -> list[dict[str, Any]]:
    if quick:
        classes, rankers, n_steps = (20,), (1, 10), 100_000
    else:
        classes, rankers, n_steps = (20, 10), RANKERS[::-1], 200_000
    wanted: list[dict[str, Any]] = [
        {"kind": "symmetric", "classes": c, "variant": v} for c in classes for v in reversed(list(VARIANTS))
    ]
    wanted += [{"kind": "rankers", "n_rankers": n, "n_steps": n_steps} for n in rankers]
    return [job | {"fold": fold, "quick": quick} for job in wanted for fold in range(1 if quick else FOLDS)]


def facts(results: Results) -> dict[str, Any]:
    classes = sorted({one["classes"] for one in select(results, kind="symmetric")})
    variants = {(c, v): select(results, kind="symmetric", classes=c, variant=v) for c in classes for v in VARIANTS}
    maps = {key: np.array([one["map"] for one in folds]) for key, folds in variants.items()}
    # mAP of a variant and of OASIS.
    pairs = {key: (values, maps[key[0], None]) for key, values in maps.items() if key[1]}
    # Steps, and each figure as (folds, steps), by the number of rankers.
    rankers = {
        n: curves([one["curve"] for one in select(results, kind="rankers", n_rankers=n)])
        for n in sorted({one["n_rankers"] for one in select(results, kind="rankers")})
    }
    return {
        "n_folds": 1 + max(one["fold"] for one in results),
        "rankers": {n: (steps, figures["map"]) for n, (steps, figures) in rankers.items()},
        "averaging": all(
            clearly_above(rankers[n][1]["map"].mean(axis=1), rankers[1][1]["map"].mean(axis=1))
            for n in rankers
            if n > 1
        ),
        "ranker_pairs": [
            (rankers[n][1]["map"].mean(axis=1), rankers[1][1]["map"].mean(axis=1)) for n in rankers if n > 1
        ],
        "plain": [values for (_, v), values in maps.items() if v is None],
        "pairs": pairs,
        "ratios": lambda name: np.array(
            [above.mean() / plain.mean() for (_, v), (above, plain) in pairs.items() if v == name]
        ),
        "none_above": not any(
            clearly_above(above, plain) or above.mean() > 1.03 * plain.mean() for above, plain in pairs.values()
        ),
        "lowest": min(above.mean() / plain.mean() for above, plain in pairs.values()),
        "edges": lambda *names: open_text(
            {f"{VARIANTS[v]}, {c} classes": variants[c, v] for c in classes for v in (None, *names)}
        ),
        "rho": rankers[1][1]["rho"][:, -1],
        "rho_added": rankers[1][1]["rho_added"][:, -1],
        "rho_where_stopped": [one["rho"] for one in variants[20, None]],
        "ranker_steps": rankers[1][0][-1],
        "symmetric_rows": [symmetric_row(c, v, folds) for (c, v), folds in variants.items()],
        "rankers_plot": draw(
            "variants-rankers",
            [Panel(along(rankers, {ranker_name(n): (n, "map") for n in rankers}), {"ylabel": "mAP, test images", **X})],
        ),
        "symmetry_plot": draw(
            "variants-symmetry",
            [
                Panel(
                    along(
                        rankers,
                        {
                            f"{of}, {ranker_name(n).removesuffix(' rankers')}": (n, figure)
                            for n in (1, max(rankers))
                            for figure, of in (("rho", "W"), ("rho_added", "W - I"))
                        },
                    ),
                    {"ylabel": "symmetry index rho", "ylim": (0.5, 1.01), **X},
                )
            ],
        ),
        "symmetric_plot": draw_symmetric(classes, variants),
    }


def curves(of_folds: list[list[dict[str, float]]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Steps, and each figure as (folds, steps)."""
    steps = np.array([point["step"] for point in of_folds[0]])
    names = [name for name in of_folds[0][0] if name != "step"]
    return steps, {name: np.array([[point[name] for point in curve] for curve in of_folds]) for name in names}


def symmetric_row(classes: int, variant: str | None, folds: Results) -> list[Any]:
    figures = [[one["map"] for one in folds], *([one["precision"][k] for one in folds] for k in (0, 9))]
    tried = [
        ", ".join(f"{one[key] / unit:g}{'*' * (key in one['edges'])}" for one in folds)
        for key, unit in (("C", 1), ("n_steps", 1000))
    ]
    return [classes, VARIANTS[variant], *map(plus_minus, figures), *tried]


def ranker_name(n: int) -> str:
    return "one ranker" if n == 1 else f"mean of {n} rankers"


def along(rankers: dict, wanted: dict[str, tuple[int, str]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Curves of so many rankers and a figure, by the curve's name."""
    return {name: (rankers[n][0] / 1000, rankers[n][1][figure]) for name, (n, figure) in wanted.items()}


def draw_symmetric(classes: list[int], variants: dict) -> Plot:
    panels = []
    for c in classes:
        values = {name: [one["precision"] for one in variants[c, v]] for v, name in VARIANTS.items()}
        curves = {name: (range(1, len(folds[0]) + 1), folds) for name, folds in values.items()}
        axes = {"title": f"{c} classes", "xlabel": "number of neighbours k", "ylabel": "precision at k"}
        panels.append(Panel(curves, axes, {"classes": c}, lambda axes: axes.set_ylim(bottom=0)))
    return draw("variants-symmetric", panels)
