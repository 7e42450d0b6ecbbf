"""Image annotation, the experiments of the WSABIE paper.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6: tables 2 and 4 to 7, figures 1 and 2. Photos of 38 categories, by the protocol of measured/protocol.py:
settings by cross-validation on the training images, precision at 1 chooses. configs/caltech101-is-a.csv says which
labels are siblings.

38 labels are few, and the WARP loss was made for many. So the losses also learn which of 1,400 words stand in the
subject line of a post of 20 Newsgroups, from the post's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.statistics import clearly_above, difference, plus_minus

from .measured.annotation import (
    CLASSES,
    EARLY_LOOKS,
    ENSEMBLE,
    ENSEMBLE_NAME,
    EQUAL,
    EQUAL_NAME,
    LEAVES,
    MOST_LABELS,
    SIZE,
    SIZES,
    TRACED,
    measure,
)
from .measured.grids import saturation
from .pages import Panel, Plot, Results, draw, open_text, select, settings_by_fold

__all__ = ["ALONE", "facts", "jobs", "measure"]

ALONE = False
FOLDS = 5
N_WORD_REPEATS = {"warp": 5, "auc": 5, "owpc": 2}  # OWPC, of which times are read alone, takes longest
LOSSES = ("warp", "auc", "owpc")
TREE = "k-NN, leaf of 190"
MAIN = ("k-NN, exact", TREE, "one-vs-rest", "PAMIR-IA", "linear WARP", "WSABIE, AUC", "WSABIE, WARP")
# Names of WSABIE by the size of its space.
OF_SIZE = {size: "WSABIE, WARP" if size == SIZE else f"WSABIE, D = {size}" for size in sorted([SIZE, *SIZES])}
FIGURES = {"p@1": ("precision", 1), "p@10": ("precision", 10), "sib@10": ("siblings", 10)}

Systems = dict[tuple[int, str], list[dict[str, Any]]]  # by d and name: a figure a fold
Words = dict[str, list[dict[str, Any]]]  # by loss: a trace a repeat


def jobs(quick: bool) -> list[dict[str, Any]]:
    """Jobs, the long ones first."""
    if quick:
        parts, dimensions, folds = ["auc", "warp", "linear", "neighbors", "same"], (1000,), 1
        wanted = [{"part": "words", "losses": ["warp", "auc"], "fold": 0, "small": True}]
    else:
        parts, dimensions, folds = ["warp", "auc", "linear", "neighbors"], (10_000, 1000), FOLDS
        wanted = [
            {"part": "words", "losses": [loss], "fold": repeat}
            for loss in ("owpc", "warp", "auc")
            for repeat in range(N_WORD_REPEATS[loss])
        ]
        wanted += [{"part": "same", "d": 1000, "fold": fold} for fold in range(folds)]
    wanted.append({"part": "examples", "d": 1000, "fold": 0})
    return wanted + [
        {"part": part, "d": d, "fold": fold, "small": quick}
        for d in dimensions
        for part in parts
        for fold in range(folds)
    ]


def facts(results: Results) -> dict[str, Any]:
    systems: Systems = {}
    words: Words = {}
    for one in results:
        for name, own in one.get("systems", {}).items():
            systems.setdefault((one["d"], name), []).append(own)
        for loss, curves in one.get("curves", {}).items():
            words.setdefault(loss, []).append(best_trace(curves) | {"n_labels": one["n_labels"]})
    same = {loss: [one["trace"][loss] for one in select(results, part="same")] for loss in LOSSES}
    ds = sorted({d for d, _ in systems})
    full = (1000, ENSEMBLE_NAME) in systems
    leaves = ["k-NN, exact", *(f"k-NN, leaf of {size}" for size in LEAVES)]
    (examples,) = (one["examples"] for one in select(results, part="examples"))
    seconds, tests = (
        {loss: np.mean([one[key] for one in own], axis=0) for loss, own in words.items()} for key in ("seconds", "test")
    )
    means = {key: np.mean(values(own, "p@1")) for key, own in systems.items()}
    return {
        "n_folds": len(systems[1000, "PAMIR-IA"]),
        "n_labels": words["warp"][0]["n_labels"],
        "early_step": EARLY_LOOKS[-1],
        "ds": ds,
        "full": full,
        "most_steps": {loss: own[0]["steps"][-1] for loss, own in words.items()},
        "same": {loss: np.mean(own, axis=0)[TRACED.index(20_000)] for loss, own in same.items()},
        "early": {loss: np.mean([one["early"] for one in own]) for loss, own in words.items()},
        "early_edges": open_text(
            {loss.upper(): [{"edges": one["early_edges"]} for one in words[loss]] for loss in ("warp", "auc")}
        ),
        "best": {loss: [one["p@1"] for one in own] for loss, own in words.items()},
        "rate_edges": open_text(
            {loss.upper(): [{"edges": one["rate_edges"]} for one in own] for loss, own in words.items()}
        ),
        "word_edges": open_text({loss.upper(): words[loss] for loss in ("warp", "auc")}),
        "times": trained(seconds, tests) if "owpc" in words else None,
        "step_us": {loss: 1e6 * seconds[loss][-1] / own[0]["steps"][-1] for loss, own in words.items()},
        "above": lambda first, second, figure="p@1": above(systems, ds, first, second, figure),
        "means": means,
        "tree_below_half": all(means[d, TREE] < 0.5 * means[d, "k-NN, exact"] for d in ds),
        "edges": lambda *names: open_text({f"{s}, d = {d:,}": systems[d, s] for d in ds for s in names}),
        "megabytes": {
            key: np.mean([one["bytes"] for one in own]) / 1e6 for key, own in systems.items() if key[0] == ds[-1]
        },
        "query_us": {key: np.median([one["query_us"] for one in own]) for key, own in systems.items()},
        **(sizes(systems) if full else {}),
        "columns": ["", "p@1", "p@10", "sib@10", "MAP", "training (s)", "a query (µs)", "model (MB)"],
        "rows": {d: [row(name, systems[d, name]) for name in MAIN if (d, name) in systems] for d in ds},
        "leaf_rows": [row(name, systems[1000, name]) for name in leaves if (1000, name) in systems],
        "size_rows": [
            row(title, systems[1000, name])
            for title, name in [
                *((f"WSABIE, D = {size}", name) for size, name in OF_SIZE.items()),
                (ENSEMBLE_NAME, ENSEMBLE_NAME),
                (EQUAL_NAME, EQUAL_NAME),
            ]
            if full
        ],
        "example_columns": ["", *next(iter(examples["labels"].values()))],
        "example_rows": {
            kind: [
                [label, *(", ".join(f"**{n}**" if n == label else n for n in best) for best in of.values())]
                for label, of in by_label.items()
            ]
            for kind, by_label in examples.items()
        },
        "settings_rows": settings_rows(systems, words),
        "precision_plot": draw(
            "annotation-precision",
            [
                Panel(
                    {s: (range(1, MOST_LABELS + 1), [one[key] for one in systems[1000, s]]) for s in MAIN},
                    {"xlabel": "number of labels, k", "ylabel": f"{title} at k", "ylim": (0, None)},
                    {"measure": title},
                )
                for key, title in (("precision", "precision"), ("siblings", "sibling precision"))
            ],
        ),
        "losses_plot": draw_losses(same, words),
    }


def best_trace(curves: list[dict[str, Any]]) -> dict[str, Any]:
    """The trace with the best rate; precision at 1 after the best number of steps, and early with the rate best then.

    Both are best on validation posts; `settings` says what they are for the former, `edges` and `early_edges` what is
    at the edge of those tried.
    """
    early = len(EARLY_LOOKS) - 1
    soonest = max(curves, key=lambda curve: curve["validation"][early])
    curve = max(curves, key=lambda curve: max(curve["validation"]))
    n_steps, _ = saturation([*zip(curve["steps"], curve["validation"], strict=True)])
    outside = [one["rate"] for one in (curves[0], curves[-1])]
    return curve | {
        "p@1": curve["test"][curve["steps"].index(n_steps)],
        "early": soonest["test"][early],
        "settings": {"learning_rate": curve["rate"], "n_steps": n_steps},
        "rate_edges": ["learning_rate"] * (curve["rate"] in outside),
        "edges": ["learning_rate"] * (curve["rate"] in outside) + ["n_steps"] * (n_steps == curve["steps"][-1]),
        "early_edges": ["learning_rate"] * (soonest["rate"] in outside),
    }


def values(of_folds: list[dict[str, Any]], figure: str) -> list[float]:
    """One figure of a system, fold by fold."""
    if figure == "map":
        return [one["map"] for one in of_folds]
    key, k = FIGURES[figure]
    return [one[key][k - 1] for one in of_folds]


def above(systems: Systems, ds: Sequence[int], first: str, second: str, figure: str) -> dict[str, Any]:
    """The first system's lead at each d, whether it meets the rule of the page, and the smallest lead."""
    pairs = {d: [values(systems[d, name], figure) for name in (first, second)] for d in ds}
    least = min(np.mean(one) - np.mean(other) for one, other in pairs.values())
    return {
        "text": "; ".join(f"{difference(*pair)} at d = {d:,}" for d, pair in pairs.items()),
        "agrees": least > 0 and clearly_above(*pairs[ds[-1]]),
        "pairs": [pairs[ds[-1]]],
        "least": least,
    }


def trained(seconds: dict[str, np.ndarray], tests: dict[str, np.ndarray]) -> dict[str, Any]:
    """When WARP is at nine tenths of its last precision at 1, and where the other losses are then."""
    goal = 0.9 * tests["warp"][-1]
    when = float(np.interp(goal, tests["warp"], seconds["warp"]))
    return {"goal": goal, "when": when} | {
        loss: float(np.interp(when, seconds[loss], tests[loss])) for loss in ("auc", "owpc")
    }


def sizes(systems: Systems) -> dict[str, Any]:
    """Sizes of the space, and ensembles; only of the full experiment."""
    by_size = {size: values(systems[1000, name], "p@1") for size, name in OF_SIZE.items()}
    wide = [np.mean(own) for size, own in by_size.items() if size >= SIZE]
    return {
        "of_size": by_size,
        "range": (max(wide) - min(wide)) / max(wide),
        "ensemble": values(systems[1000, ENSEMBLE_NAME], "p@1"),
        "single": max((by_size[size] for size in ENSEMBLE), key=np.mean),
        "equal_size": EQUAL[0],
        "equal": values(systems[1000, EQUAL_NAME], "p@1"),
        "size_edges": open_text({f"D = {size}": systems[1000, name] for size, name in OF_SIZE.items()}),
    }


def row(name: str, of_folds: list[dict[str, Any]]) -> list[str]:
    train_seconds, query_us, size = (
        np.median([one[key] for one in of_folds]) for key in ("train_seconds", "query_us", "bytes")
    )
    return [
        name,
        *(plus_minus(values(of_folds, f), 4 if f == "p@10" else 3) for f in ("p@1", "p@10", "sib@10", "map")),
        f"{train_seconds:.3f}",
        f"{query_us:.1f}",
        f"{size / 1e6:.2f}",
    ]


def settings_rows(systems: Systems, words: Words) -> list[list[str]]:
    """Chosen settings by fold."""
    rows = []
    for (d, name), own in sorted(systems.items()):
        if "settings" in own[0]:
            rows.append([f"photos, d = {d:,}", name, settings_by_fold(own)])
        elif "weights" in own[0]:
            weights = [" : ".join(f"{weight:g}" for weight in one["weights"]) for one in own]
            rows.append([f"photos, d = {d:,}", name, f"weights {', '.join(weights)}"])
    return rows + [["words", f"WSABIE, {loss.upper()}", settings_by_fold(own)] for loss, own in words.items()]


def draw_losses(same: dict[str, list], words: Words) -> Plot:
    """Figure 2 of the paper: precision against steps, and against processor time."""
    n_labels = words["warp"][0]["n_labels"]
    tests = {loss: [one["test"] for one in own] for loss, own in words.items()}
    panels = []
    for title, label, curves in (
        (f"{CLASSES} labels, rate 0.01", "steps", {loss: (TRACED, own) for loss, own in same.items()}),
        (
            f"{n_labels:,} labels, best rates",
            "steps",
            {loss: (words[loss][0]["steps"], tests[loss]) for loss in LOSSES if loss in words},
        ),
        (
            f"{n_labels:,} labels, best rates",
            "training time (s)",
            {
                loss: (np.mean([one["seconds"] for one in words[loss]], axis=0), tests[loss])
                for loss in LOSSES
                if loss in words
            },
        ),
    ):
        axes = {"xlabel": label, "ylabel": "precision at 1", "title": title, "ylim": (0, None), "xscale": "log"}
        panels.append(
            Panel(
                {loss.upper(): curve for loss, curve in curves.items()},
                axes,
                {"panel": f"{title}, {label}"},
                lambda axes: axes.tick_params(axis="x", which="minor", labelbottom=False),
            )
        )
    plot = draw("annotation-losses", panels, width=12)
    by_loss = sorted(plot.data, key=lambda row: LOSSES.index(row["series"].lower()))
    return plot._replace(data=by_loss)
