"""Image annotation, the experiments of the WSABIE paper.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6: tables 2 and 4 to 7, figures 1 and 2. Photos of 38 categories, by the protocol of measured/protocol.py:
settings by cross-validation on the training images, precision at 1 chooses. configs/caltech101-is-a.csv says which
labels are siblings.

38 labels are few, and WSABIE was made for many. So all systems also learn which words stand in the subject line of a
post of 20 Newsgroups, from the post's text: of the 100, the 300 and all 1,452 most frequent words. What the paper says
of many labels is judged there, with all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .measured.annotation import (
    CLASSES,
    ENSEMBLE,
    ENSEMBLE_NAME,
    EQUAL,
    EQUAL_NAME,
    LEAVES,
    SIZES,
    TRACED,
    measure,
)
from .measured.grids import saturation
from .measured.words import (
    BODY_TERMS,
    EARLY_LOOKS,
    EIGHTH,
    LONGER,
    MIN_POSTS,
    MOST_LABELS,
    N_WORDS,
    PAPER_LEAF,
    SIZE,
    WIDE,
    WORD_GRIDS,
    WORD_NORM,
)
from .pages import Panel, Plot, Results, draw, open_text, select, set_ticks, settings_by_fold
from .statistics import TEST_PER_TRAIN, clearly_above, difference, plus_minus

__all__ = ["facts", "jobs", "measure"]

FOLDS = 5
N_LOSS_REPEATS = 2  # of the losses step by step, where no lead is tested
TEST_PER_POST = 20 / 80  # test posts per post to learn from
LOSSES = ("warp", "auc", "owpc")
TREE = "k-NN, leaf of 190"
WORD_SYSTEMS = ("k-NN, exact", EIGHTH, PAPER_LEAF, "one-vs-rest", "PAMIR-IA", "linear WARP")
WORD_SYSTEMS += ("WSABIE, AUC", "WSABIE, WARP")
MAIN = ("k-NN, exact", TREE, "one-vs-rest", "PAMIR-IA", "linear WARP", "WSABIE, AUC", "WSABIE, WARP")
# Names of WSABIE by the size of its space.
OF_SIZE = {size: "WSABIE, WARP" if size == SIZE else f"WSABIE, D = {size}" for size in sorted([SIZE, *SIZES])}
WORD_FIGURES = ("p@1", "p@10", "map")
FIGURES = {"p@1": ("precision", 1), "p@10": ("precision", 10), "sib@10": ("siblings", 10)}

Systems = dict[tuple[int, str], list[dict[str, Any]]]  # by d or number of words, and name: figures fold by fold
Losses = dict[str, list[dict[str, Any]]]  # by loss: a trace a repeat


def jobs(quick: bool) -> list[dict[str, Any]]:
    """Jobs, the long ones first."""
    if quick:
        parts, dimensions, folds, sizes = ["auc", "warp", "linear", "neighbors", "same"], (1000,), 1, N_WORDS[:1]
        wanted = [{"part": "losses", "losses": ["warp", "auc"], "fold": 0, "small": True}]
    else:
        parts, dimensions, folds, sizes = ["warp", "auc", "linear", "neighbors"], (10_000, 1000), FOLDS, N_WORDS
        wanted = [
            {"part": "losses", "losses": [loss], "fold": repeat}
            for loss in ("owpc", "warp", "auc")
            for repeat in range(N_LOSS_REPEATS)
        ]
        wanted += [{"part": "same", "d": 1000, "fold": fold} for fold in range(folds)]
    of_words = [
        {"part": "words", "system": name, "n_words": size, "small": quick}
        for size in reversed(sizes)
        for name in reversed(WORD_GRIDS)
    ]
    wanted = of_words + wanted
    wanted.append({"part": "examples", "d": 1000, "fold": 0})
    return wanted + [
        {"part": part, "d": d, "fold": fold, "small": quick}
        for d in dimensions
        for part in parts
        for fold in range(folds)
    ]


def facts(results: Results) -> dict[str, Any]:
    systems: Systems = {}
    words: Systems = {}
    losses: Losses = {}
    posts: dict[int, list[int]] = {}  # to learn from, and to test on, by number of words
    for one in results:
        for name, own in one.get("systems", {}).items():
            if one["part"] == "words":
                words[one["n_labels"], name] = own
                posts[one["n_labels"]] = one["n_posts"]
            else:
                systems.setdefault((one["d"], name), []).append(own)
        for loss, curves in one.get("curves", {}).items():
            losses.setdefault(loss, []).append(best_trace(curves) | {"n_labels": one["n_labels"]})
    n_words = sorted(posts)
    same = {loss: [one["trace"][loss] for one in select(results, part="same")] for loss in LOSSES}
    ds = sorted({d for d, _ in systems})
    full = (1000, ENSEMBLE_NAME) in systems
    leaves = ["k-NN, exact", *(f"k-NN, leaf of {size}" for size in LEAVES)]
    (examples,) = (one["examples"] for one in select(results, part="examples"))
    seconds, tests = (
        {loss: np.mean([one[key] for one in own], axis=0) for loss, own in losses.items()}
        for key in ("seconds", "test")
    )
    means = {key: np.mean(values(own, "p@1")) for key, own in systems.items()}
    return {
        "n_folds": len(systems[1000, "PAMIR-IA"]),
        "n_labels": losses["warp"][0]["n_labels"],
        "n_words": n_words,
        "posts": posts,
        "n_word_repeats": len(words[n_words[0], EIGHTH]),
        "n_loss_repeats": len(losses["warp"]),
        "word_protocol": {"least": MIN_POSTS, "terms": BODY_TERMS, "norm": WORD_NORM, "longer": LONGER["WSABIE, WARP"]},
        "early_step": EARLY_LOOKS[-1],
        "ds": ds,
        "full": full,
        "most_steps": {loss: own[0]["steps"][-1] for loss, own in losses.items()},
        "same": {loss: np.mean(own, axis=0)[TRACED.index(20_000)] for loss, own in same.items()},
        "early": {loss: np.mean([one["early"] for one in own]) for loss, own in losses.items()},
        "early_edges": open_text(
            {loss.upper(): [{"edges": one["early_edges"]} for one in losses[loss]] for loss in ("warp", "auc")}
        ),
        "rate_edges": open_text(
            {loss.upper(): [{"edges": one["rate_edges"]} for one in own] for loss, own in losses.items()}
        ),
        "times": trained(seconds, tests) if "owpc" in losses else None,
        "step_us": {loss: 1e6 * seconds[loss][-1] / own[0]["steps"][-1] for loss, own in losses.items()},
        "above": lambda first, second, figure="p@1": above(systems, ds, first, second, figure),
        "above_on_words": lambda first, second: above(
            words, n_words, first, second, unit="{:,} words", per=TEST_PER_POST
        ),
        "word_means": {key: np.mean(values(own, "p@1")) for key, own in words.items()},
        "word_edges": lambda *names: edges_behind(words, n_words[-1], names),
        "wide": above(words, n_words[-1:], WIDE, "one-vs-rest", unit="D = 300, {:,} words", per=TEST_PER_POST)
        if full
        else None,
        "word_costs": {
            key: {"query_us": np.median([one["query_us"] for one in own]), "mb": own[0]["bytes"] / 1e6}
            for key, own in words.items()
        },
        "means": means,
        "edges": lambda *names: open_text({f"{s}, d = {d:,}": systems[d, s] for d in ds for s in names}),
        "megabytes": {
            key: np.mean([one["bytes"] for one in own]) / 1e6 for key, own in systems.items() if key[0] == ds[-1]
        },
        "query_us": {key: np.median([one["query_us"] for one in own]) for key, own in systems.items()},
        **(sizes(systems) if full else {}),
        "columns": ["", "p@1", "p@10", "sib@10", "MAP", "training (s)", "a query (µs)", "model (MB)"],
        "rows": {d: [row(name, systems[d, name]) for name in MAIN if (d, name) in systems] for d in ds},
        "word_columns": ["", "p@1", "p@10", "MAP", "training (s)", "a query (µs)", "model (MB)"],
        "word_rows": {
            n: [row(name, words[n, name], WORD_FIGURES) for name in (*WORD_SYSTEMS, WIDE) if (n, name) in words]
            for n in n_words
        },
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
        "settings_rows": settings_rows(systems, words, losses),
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
        "words_plot": draw_words(words, n_words),
        "losses_plot": draw_losses(same, losses),
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


def above(
    systems: Systems,
    places: Sequence[int],
    first: str,
    second: str,
    figure: str = "p@1",
    *,
    unit: str = "d = {:,}",
    per: float = TEST_PER_TRAIN,
) -> dict[str, Any]:
    """The first system's lead in each place, whether it meets the rule of the page, the least lead and the last."""
    pairs = {place: [values(systems[place, name], figure) for name in (first, second)] for place in places}
    leads = [float(np.mean(one) - np.mean(other)) for one, other in pairs.values()]
    return {
        "text": "; ".join(f"{difference(*pair)} at {unit.format(place)}" for place, pair in pairs.items()),
        "agrees": min(leads) > 0 and clearly_above(*pairs[places[-1]], per),
        "pairs": [pairs[places[-1]]],
        "least": min(leads),
        "last": leads[-1],
    }


def back(lead: dict[str, Any]) -> dict[str, Any]:
    """The same lead, of the other system."""
    (ahead, behind), *_ = lead["pairs"]
    return {"pairs": [(behind, ahead)], "agrees": lead["last"] < 0 and clearly_above(behind, ahead, TEST_PER_POST)}


def edges_behind(words: Systems, n: int, names: Sequence[str]) -> str:
    """Why a verdict over these systems is open: settings at the edge of the one that is behind, which may catch up."""
    behind = min(names, key=lambda name: np.mean(values(words[n, name], "p@1")))
    return open_text({f"{behind}, {n:,} words": words[n, behind]})


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
        # The best size over D = 100, fold by fold.
        "widest": np.divide(max((own for size, own in by_size.items() if size >= SIZE), key=np.mean), by_size[SIZE]),
        "ensemble": values(systems[1000, ENSEMBLE_NAME], "p@1"),
        "single": max((by_size[size] for size in ENSEMBLE), key=np.mean),
        "equal_size": EQUAL[0],
        "equal": values(systems[1000, EQUAL_NAME], "p@1"),
        "size_edges": open_text({f"D = {size}": systems[1000, name] for size, name in OF_SIZE.items()}),
    }


def row(
    name: str, of_folds: list[dict[str, Any]], wanted: Sequence[str] = ("p@1", "p@10", "sib@10", "map")
) -> list[str]:
    train_seconds, query_us, size = (
        np.median([one[key] for one in of_folds]) for key in ("train_seconds", "query_us", "bytes")
    )
    return [
        name,
        *(plus_minus(values(of_folds, f), 4 if f == "p@10" else 3) for f in wanted),
        f"{train_seconds:.3f}",
        f"{query_us:.1f}",
        f"{size / 1e6:.2f}",
    ]


def settings_rows(systems: Systems, words: Systems, losses: Losses) -> list[list[str]]:
    """Chosen settings by fold."""
    rows = []
    for (d, name), own in sorted(systems.items()):
        if "settings" in own[0]:
            rows.append([f"photos, d = {d:,}", name, settings_by_fold(own)])
        elif "weights" in own[0]:
            weights = [" : ".join(f"{weight:g}" for weight in one["weights"]) for one in own]
            rows.append([f"photos, d = {d:,}", name, f"weights {', '.join(weights)}"])
    # Once for all repeats.
    rows += [[f"{n:,} words", name, settings_by_fold(words[n, name][:1])] for n, name in sorted(words)]
    return rows + [["step by step", f"WSABIE, {loss.upper()}", settings_by_fold(own)] for loss, own in losses.items()]


def draw_words(words: Systems, sizes: Sequence[int]) -> Plot:
    """What systems reach and cost, against the number of labels."""
    panels = []
    for title, key in (
        ("precision at 1", "p@1"),
        ("a query (µs)", "query_us"),
        ("model (MB)", "bytes"),
    ):
        of_size = {
            name: [values(words[n, name], key) if key == "p@1" else [one[key] for one in words[n, name]] for n in sizes]
            for name in WORD_SYSTEMS
        }
        unit = 1e6 if key == "bytes" else 1
        log = {} if key == "p@1" else {"yscale": "log"}
        panels.append(
            Panel(
                {name: (sizes, np.transpose(own) / unit) for name, own in of_size.items()},
                {"xlabel": "number of labels", "ylabel": title, "xscale": "log"} | log,
                {"panel": title},
                set_ticks(sizes),
            )
        )
    return draw("annotation-words", panels, width=12, order=WORD_SYSTEMS)


def draw_losses(same: dict[str, list], losses: Losses) -> Plot:
    """Figure 2 of the paper: precision against steps, and against processor time."""
    n_labels = losses["warp"][0]["n_labels"]
    tests = {loss: [one["test"] for one in own] for loss, own in losses.items()}
    panels = []
    for title, label, curves in (
        (f"{CLASSES} labels, rate 0.01", "steps", {loss: (TRACED, own) for loss, own in same.items()}),
        (
            f"{n_labels:,} labels, best rates",
            "steps",
            {loss: (losses[loss][0]["steps"], tests[loss]) for loss in LOSSES if loss in losses},
        ),
        (
            f"{n_labels:,} labels, best rates",
            "training time (s)",
            {
                loss: (np.mean([one["seconds"] for one in losses[loss]], axis=0), tests[loss])
                for loss in LOSSES
                if loss in losses
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
