"""Row norms: OASIS and AROMA with the papers' C and r on longer and shorter rows.

Crammer, Chechik, ICML 2012, section 5.1: precision at 1 of 0.33 against 0.22. The paper says neither how long its rows
are nor, beyond doubt, which images are ranked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .lead import PAPER_AROMA, PAPER_OASIS
from .measured.scales import LEARNED, N_TEST, OF_PAPER, measure
from .pages import Panel, Results, draw, select
from .statistics import clearly_above, plus_minus, ratio_text

__all__ = ["facts", "jobs", "measure"]

SCALES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
# Folds by system and number of visterms: a W of 10,000 x 10,000 takes five times as long, factored AROMA twenty.
FOLDS = {
    ("AROMA factored", 1000): 3,
    ("AROMA diagonal", 10_000): 5,
    ("OASIS", 10_000): 5,
    ("Euclidean", 10_000): 5,
    ("AROMA diagonal", 1000): 10,
    ("OASIS", 1000): 10,
    ("Euclidean", 1000): 10,
}
SWEPT = ("OASIS", "AROMA diagonal")  # the others on unit rows only
STILL = 0.005  # differences in precision at 1 that count as none

P1 = Mapping[tuple[str, int, float], np.ndarray]  # system, d, scale: (folds, len(LEARNED))
Pair = tuple[np.ndarray, np.ndarray]  # of AROMA and of OASIS, fold by fold


def jobs(quick: bool) -> list[dict[str, Any]]:
    return [
        {"system": system, "d": d, "scale": scale, "fold": fold}
        for (system, d), n_folds in ({} if quick else FOLDS).items()
        for fold in range(n_folds)
        for scale in (SCALES if system in SWEPT else (1.0,))
    ]


def facts(results: Results) -> dict[str, Any]:
    results = sorted(results, key=lambda one: one["fold"])
    sizes = sorted({d for _, d in FOLDS})
    p1 = {
        (system, d, scale): np.array([one["p1"] for one in select(results, system=system, d=d, scale=scale)])
        for system, d in FOLDS
        for scale in SCALES
    }
    pairs = {
        (d, scale, n): (p1["AROMA diagonal", d, scale][:, place], p1["OASIS", d, scale][:, place])
        for d in sizes
        for scale in SCALES
        for place, n in enumerate(LEARNED)
    }
    euclidean = {d: p1["Euclidean", d, 1.0][:, 0] for d in sizes}
    nearest = {d: nearest_to_paper(pairs, d, (0,)) for d in sizes}
    mixed = nearest_to_paper(pairs, sizes[0], LEARNED)
    factored = p1["AROMA factored", sizes[0], 1.0][:, -1]
    still = {d: p1["OASIS", d, SCALES[0]][:, 0] for d in sizes}
    return {
        "sizes": sizes,
        "pairs": pairs,
        "euclidean": euclidean,
        "nearest": nearest,
        "mixed": mixed,
        "leads": {key: leads(*pairs[key]) for key in [*nearest.values(), mixed]},
        "edges": {key: edge(pairs, key) for key in [*nearest.values(), mixed]},
        "still": still,
        "does_not_learn": all(abs((still[d] - euclidean[d]).mean()) <= STILL for d in sizes),
        "highest": {
            (system, d): max(float(p1[system, d, scale][:, 0].mean()) for scale in SCALES)
            for system, d in FOLDS
            if system in SWEPT
        },
        "factored": (factored, p1["OASIS", sizes[0], 1.0][: len(factored), -1]),
        "rows": {
            d: [
                [
                    f"{scale:g}",
                    f"{OF_PAPER['OASIS'].C * scale**4:.2g}",
                    f"{OF_PAPER['AROMA diagonal'].r / scale**4:.2g}",
                    *(plus_minus(p1[system, d, scale][:, 0]) for system in SWEPT),
                    ratio_text(*pairs[d, scale, 0]),
                ]
                for scale in SCALES
            ]
            for d in sizes
        },
        "mixture_rows": {
            d: [
                [f"{scale:g}", *("{1:.3f} : {0:.3f}".format(*map(np.mean, pairs[d, scale, n])) for n in LEARNED)]
                for scale in SCALES
            ]
            for d in sizes
        },
        "notes": notes(pairs, nearest, euclidean, mixed),
        "length_plot": draw("scales", [length_panel(p1, d, float(euclidean[d].mean())) for d in sizes]),
        "mixture_plot": draw(
            "scales-mixtures", [mixture_panel(pairs, d) for d in sizes], title=f"learned from, of {N_TEST}"
        ),
    }


def nearest_to_paper(pairs: Mapping[Any, Pair], d: int, mixtures: Iterable[int]) -> tuple[int, float, int]:
    """Of the lengths and mixtures of d visterms, those whose two precisions are nearest to the paper's."""

    def distance(key: tuple[int, float, int]) -> float:
        aroma, oasis = pairs[key]
        return abs(aroma.mean() - PAPER_AROMA) + abs(oasis.mean() - PAPER_OASIS)

    return min(((d, scale, n) for scale in SCALES for n in mixtures), key=distance)


def notes(
    pairs: Mapping[Any, Pair],
    nearest: Mapping[int, tuple[int, float, int]],
    euclidean: Mapping[int, np.ndarray],
    mixed: tuple[int, float, int],
) -> dict[str, str]:
    """What other pages say of AROMA's lead."""
    texts = []
    for d, (_, scale, _) in sorted(nearest.items(), reverse=True):
        aroma, oasis = pairs[nearest[d]]
        texts.append(
            f"d = {d:,}, rows of length {scale:g}: {plus_minus(aroma)} against {plus_minus(oasis)}, the Euclidean "
            f"distance {plus_minus(euclidean[d])}"
        )
    text = (
        f"**How long the rows are** decides AROMA's lead with the paper's C = 0.1 and r = 0.01 ([scales](scales.md)). "
        f"Precision at 1 of test images that is nearest to the paper's {PAPER_AROMA} against {PAPER_OASIS}: "
        f"{'; '.join(texts)}; at d = {mixed[0]:,}, length {mixed[1]:g}, if {mixed[2]} of {N_TEST} images of a class "
        f"were learned from, {' against '.join(map(plus_minus, pairs[mixed]))}."
    )
    return {"lead": text, "retrieval": text}


def leads(aroma: np.ndarray, oasis: np.ndarray) -> bool:
    """By a quarter, clearly: the rule of the page on AROMA's lead."""
    return clearly_above(aroma, oasis) and aroma.mean() >= 1.25 * oasis.mean()


def edge(pairs: Mapping[Any, Pair], key: tuple[int, float, int]) -> str:
    """Why a verdict at this length is open; empty if it is not, or if figures no longer change at the end.

    Mixtures go from none to all: they have no edge.
    """
    d, scale, n = key
    before = {SCALES[0]: SCALES[1], SCALES[-1]: SCALES[-2]}.get(scale)
    if before is None:
        return ""
    changes = [abs(np.mean(end) - np.mean(own)) for end, own in zip(pairs[key], pairs[d, before, n], strict=True)]
    return f"At the edge of the lengths tried: {scale:g}, d = {d:,}." if max(changes) > STILL else ""


def length_panel(p1: P1, d: int, euclidean: float) -> Panel:
    def finish(axes: Any) -> None:
        mark_lengths(axes)
        axes.axhline(euclidean, color="#808080", linestyle=":", label="Euclidean")
        for level in (PAPER_AROMA, PAPER_OASIS):
            axes.axhline(level, color="#000000", linestyle="--", linewidth=0.8, label="the paper")

    curves = {system: (SCALES, np.transpose([p1[system, d, scale][:, 0] for scale in SCALES])) for system in SWEPT}
    axes = {"xscale": "log", "title": f"d = {d:,}", "xlabel": "length of the rows", "ylim": (0.15, 0.35)}
    return Panel(curves, axes | {"ylabel": "precision at 1, test images"}, {"d": d}, finish)


def mark_lengths(axes: Any) -> None:
    axes.set_xticks(SCALES, [f"{scale:g}" for scale in SCALES])
    axes.set_xticks([], minor=True)


def mixture_panel(pairs: Mapping[Any, Pair], d: int) -> Panel:
    def finish(axes: Any) -> None:
        mark_lengths(axes)
        axes.axhline(PAPER_AROMA / PAPER_OASIS, color="#000000", linestyle="--", linewidth=0.8, label="the paper")

    curves = {f"{n}": (SCALES, np.transpose([np.divide(*pairs[d, scale, n]) for scale in SCALES])) for n in LEARNED}
    axes = {"xscale": "log", "title": f"d = {d:,}", "xlabel": "length of the rows"}
    return Panel(curves, axes | {"ylabel": "precision at 1, AROMA / OASIS"}, {"d": d}, finish)
