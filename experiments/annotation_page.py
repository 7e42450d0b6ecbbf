"""Image annotation: the page's findings, tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.plots import legend, mean_series, new_figure
from benchmarks.statistics import clearly_above, difference, plus_minus
from visterm.pipeline.console import count

from .annotation_systems import (
    BODY_TERMS,
    CLASSES,
    EARLY_LOOKS,
    ENSEMBLE,
    ENSEMBLE_NAME,
    EQUAL,
    EQUAL_NAME,
    INNER_FOLDS,
    LEAVES,
    MIN_POSTS,
    MOST_LABELS,
    QUICK_FOLDS,
    SIZE,
    SIZES,
    TRACED,
    WORD_NORM,
)
from .grids import RULE, open_text, saturation
from .newsgroups import page_chosen
from .pages import Finding, Page, Plot, Table

PAGE_TREE = "k-NN, leaf of 190"
PAGE_MAIN = ("k-NN, exact", PAGE_TREE, "one-vs-rest", "PAMIR-IA", "linear WARP", "WSABIE, AUC", "WSABIE, WARP")
PAGE_WORDS = 0.15  # least lead of WARP over AUC on words


def page_collect(results: list[dict[str, Any]]) -> tuple[dict, dict, dict]:
    """Systems by d and name, traces at the same settings and on words by loss: lists over folds.

    Of a trace on words that with the rate and the number of steps that are best on validation posts.
    """
    systems, same, words = {}, {}, {}
    for result in results:
        if result["part"] == "words":
            for loss, curves in result["curves"].items():
                words.setdefault(loss, []).append(page_best(curves) | {"n_labels": result["n_labels"]})
        elif result["part"] == "examples":
            continue
        elif result["part"] == "same":
            for loss, found in result["trace"].items():
                same.setdefault(loss, []).append(found)
        else:
            for name, found in result["systems"].items():
                systems.setdefault((result["d"], name), []).append(found)
    return systems, same, words


def page_best(curves: list[dict[str, Any]]) -> dict[str, Any]:
    """The trace with the best rate; precision at 1 after the best number of steps, and early with the rate best then.

    Both are best on validation posts; `settings` says what they are for the former, `edges` and `early_edges` what is
    at the edge of those tried.
    """
    early = len(EARLY_LOOKS) - 1
    soonest = max(curves, key=lambda curve: curve["validation"][early])
    curve = max(curves, key=lambda curve: max(curve["validation"]))
    n_steps, _ = saturation([*zip(curve["steps"], curve["validation"], strict=True)])
    best = curve["steps"].index(n_steps)
    outside = [one["rate"] for one in (curves[0], curves[-1])]
    return curve | {
        "p@1": curve["test"][best],
        "early": soonest["test"][early],
        "settings": {"learning_rate": curve["rate"], "n_steps": n_steps},
        "edges": ["learning_rate"] * (curve["rate"] in outside) + ["n_steps"] * (n_steps == curve["steps"][-1]),
        "early_edges": ["learning_rate"] * (soonest["rate"] in outside),
    }


def page_values(found: list[dict[str, Any]], measure: str) -> list[float]:
    """One measure of a system, fold by fold."""
    if measure == "map":
        return [one["map"] for one in found]
    key, k = {"p@1": ("precision", 1), "p@10": ("precision", 10), "sib@10": ("siblings", 10)}[measure]
    return [one[key][k - 1] for one in found]


def page_dimensions(systems: dict) -> list[int]:
    return sorted({d for d, _ in systems})


def page_above(systems: dict, first: str, second: str, measure: str = "p@1") -> tuple[str, bool, float]:
    """The first system's lead at each d, whether it meets the rule of the page, and the smallest lead."""
    texts, leads = [], []
    for d in page_dimensions(systems):
        values = [page_values(systems[d, name], measure) for name in (first, second)]
        texts.append(f"{difference(*values)} at d = {d:,}")
        leads.append(np.mean(values[0]) - np.mean(values[1]))
    return "; ".join(texts), min(leads) > 0 and clearly_above(*values), min(leads)


def page_losses(systems: dict, same: dict, words: dict) -> list[Finding]:
    """WARP beside AUC and OWPC."""
    at = TRACED.index(20_000)
    warp, auc, owpc = (np.mean(same[loss], axis=0)[at] for loss in ("warp", "auc", "owpc"))
    early = {loss: np.mean([one["early"] for one in found]) for loss, found in words.items()}
    n_labels = words["warp"][0]["n_labels"]
    photos, agrees, _ = page_above(systems, "WSABIE, WARP", "WSABIE, AUC")
    return [
        Finding(
            "The rank that WARP estimates by drawing does what the rank of OWPC does (section 3; here: the two to 0.02 "
            "alike, and above AUC by 0.03, on photos at the same learning rate).",
            f"p@1 after 20,000 steps at learning rate 0.01: WARP {warp:.3f}, OWPC {owpc:.3f}, AUC {auc:.3f}",
            abs(warp - owpc) < 0.02 and warp - auc > 0.03,
            must=True,
            kind="threshold",
        ),
        Finding(
            f"WARP learns faster than AUC where labels are many (figure 2; here: by {PAGE_WORDS} in p@1 after "
            f"{EARLY_LOOKS[-1]:,} steps, each with its best learning rate).",
            f"{n_labels:,} words of subject lines: WARP {early['warp']:.3f}, AUC {early['auc']:.3f}",
            early["warp"] - early["auc"] > PAGE_WORDS,
            must=True,
            kind="threshold",
            edges=open_text(
                {loss.upper(): [{"edges": one["early_edges"]} for one in words[loss]] for loss in ("warp", "auc")}
            ),
        ),
        *(page_times(words) if "owpc" in words else []),
        Finding(
            "On the photos, with the best learning rate of each, WARP is above AUC (consistently, table 5).",
            f"p@1, WARP less AUC: {photos}",
            agrees,
            why=f"With {CLASSES} labels a label drawn at random violates often, and what WARP's weights add may be no "
            "more than longer steps, which AUC gets from a larger learning rate: on the photos WARP leads by "
            f"{warp - auc:.3f} at the same rate and as above at the best rate of each, on {n_labels:,} words, after "
            f"{EARLY_LOOKS[-1]:,} steps, by {early['warp'] - early['auc']:.3f} at the best rate of each.",
            edges=page_edges(systems, "WSABIE, WARP", "WSABIE, AUC"),
        ),
    ]


def page_times(words: dict) -> list[Finding]:
    """The losses on words at their best, and against processor time; only of the full experiment."""
    best = {loss: [one["p@1"] for one in found] for loss, found in words.items()}
    seconds, curves = (
        {loss: np.mean([one[key] for one in found], axis=0) for loss, found in words.items()}
        for key in ("seconds", "test")
    )
    goal = 0.9 * curves["warp"][-1]
    trained = float(np.interp(goal, curves["warp"], seconds["warp"]))
    then = {loss: float(np.interp(trained, seconds[loss], curves[loss])) for loss in curves}
    return [
        Finding(
            "Learned long enough (here: for the most steps tried), with the best learning rate of each, WARP is above "
            "AUC (15,952 labels: 4.03 against 1.65 %, table 5).",
            f"{words['warp'][0]['n_labels']:,} words, p@1: WARP {plus_minus(best['warp'])} (up to "
            f"{words['warp'][0]['steps'][-1]:,} steps), AUC {plus_minus(best['auc'])} (up to "
            f"{words['auc'][0]['steps'][-1]:,})",
            clearly_above(best["warp"], best["auc"], 20 / 60),
            edges=open_text({loss.upper(): words[loss] for loss in ("warp", "auc")}),
        ),
        Finding(
            "When WARP is well trained, AUC performs less well, and OWPC, which computes all scores, has hardly got "
            "anywhere (figure 2, 36 hours; here: when WARP is at nine tenths of its last p@1, OWPC is below half of "
            "that).",
            f"after {trained:.1f} s of one core p@1 is {goal:.3f} with WARP, {then['auc']:.3f} with AUC, "
            f"{then['owpc']:.3f} with OWPC; a step takes "
            + ", ".join(
                f"{1e6 * seconds[loss][-1] / words[loss][0]['steps'][-1]:.0f} µs ({loss.upper()})" for loss in curves
            ),
            then["auc"] < goal and then["owpc"] < goal / 2,
            why=f"The scores of {words['warp'][0]['n_labels']:,} labels cost less than those of 15,952, and OWPC "
            "learns from all labels that violate at once, of which there may be few after its first steps; WARP draws "
            "the more labels, the fewer violate.",
            kind="threshold",
        ),
    ]


def page_edges(systems: dict, *names: str) -> str:
    """Why a verdict over these systems is open; empty if it is not."""
    return open_text({f"{name}, d = {d:,}": systems[d, name] for d in page_dimensions(systems) for name in names})


def page_systems(systems: dict) -> list[Finding]:
    """WSABIE beside its competitors."""
    findings, ds = [], page_dimensions(systems)
    linear = [np.mean(page_values(systems[1000, name], "p@1")) for name in ("one-vs-rest", "PAMIR-IA", "WSABIE, WARP")]
    for other, paper in (
        (PAGE_TREE, "approximate k-NN (p@1 4.03 against 1.55 %; here: by 0.05)"),
        ("one-vs-rest", "one-vs-rest (4.03 against 2.27 %)"),
        ("PAMIR-IA", "PAMIR-IA (4.03 against 3.14 %)"),
    ):
        text, agrees, least = page_above(systems, "WSABIE, WARP", other)
        findings.append(
            Finding(
                f"WSABIE is above {paper}.",
                f"p@1, WSABIE less {other}: {text}",
                least > 0.05 if other == PAGE_TREE else agrees,
                must=other == PAGE_TREE,
                edges=page_edges(systems, "WSABIE, WARP", "k-NN, exact" if other == PAGE_TREE else other),
                kind="threshold" if other == PAGE_TREE else "paper",
                why=f"One-vs-rest, PAMIR-IA and WSABIE lie between {min(linear):.3f} and {max(linear):.3f}: "
                f"{CLASSES} labels with 40 images each may be too few labels, and too many images of each, for what an "
                "embedding shares between labels to count.",
            )
        )
    text, agrees, _ = page_above(systems, "linear WARP", "WSABIE, WARP")
    findings.append(
        Finding(
            "A linear model trained by WARP is above WSABIE itself (table 5: 4.25 against 4.03 %).",
            f"p@1, linear WARP less WSABIE: {text}",
            agrees,
            why=f"{CLASSES} labels with 40 images each may be too few labels for the two to differ.",
            edges=page_edges(systems, "linear WARP", "WSABIE, WARP"),
        )
    )
    exact, tree = (
        {d: np.mean(page_values(systems[d, name], "p@1")) for d in ds} for name in ("k-NN, exact", PAGE_TREE)
    )
    findings.append(
        Finding(
            "Approximate k-NN loses most of what exact k-NN has (1.55 against 4.5 %; here: half).",
            "p@1 exact and in a leaf of an eighth of the images: "
            + "; ".join(f"{exact[d]:.3f} and {tree[d]:.3f} at d = {d:,}" for d in ds),
            all(tree[d] < 0.5 * exact[d] for d in ds),
            edges=page_edges(systems, "k-NN, exact"),
            why=f"Its leaf holds an eighth of {40 * CLASSES:,} images, the paper's 20,000 of 2.5 million. The table of "
            "smaller leaves shows how the loss grows.",
            kind="threshold",
        )
    )
    text, agrees, _ = page_above(systems, "WSABIE, WARP", "PAMIR-IA", "sib@10")
    findings.append(
        Finding(
            "WSABIE's lead is there in sibling precision at 10, too (5.18 against 4.39 % of PAMIR-IA).",
            f"sib@10, WSABIE less PAMIR-IA: {text}",
            agrees,
            why="What looks alike may be seldom what the table calls alike.",
            edges=page_edges(systems, "WSABIE, WARP", "PAMIR-IA"),
        )
    )
    size = {name: np.mean([one["bytes"] for one in systems[ds[-1], name]]) for name in ("WSABIE, WARP", "PAMIR-IA")}
    findings.append(
        Finding(
            "WSABIE needs far less memory than a vector of weights a label (12 MB against 1.2 GB; here: a tenth).",
            f"{size['WSABIE, WARP'] / 1e6:.2f} against {size['PAMIR-IA'] / 1e6:.2f} MB at d = {ds[-1]:,}",
            size["WSABIE, WARP"] < 0.1 * size["PAMIR-IA"],
            why=f"(d + Y) D numbers are fewer than d Y where labels outnumber components: Y is {CLASSES}, D {SIZE}.",
            kind="construction",
        )
    )
    return findings


def page_sizes(systems: dict) -> list[Finding]:
    """Sizes of the space, and an ensemble; only of the full experiment."""
    found = {size: page_values(systems[1000, page_size(size)], "p@1") for size in sorted([SIZE, *SIZES])}
    means = {size: np.mean(values) for size, values in found.items()}
    wide = [mean for size, mean in means.items() if size >= SIZE]
    ensemble, equal = (page_values(systems[1000, name], "p@1") for name in (ENSEMBLE_NAME, EQUAL_NAME))
    single = max((found[size] for size in ENSEMBLE), key=np.mean)
    return [
        Finding(
            "The size of the space matters little from D = 100 on (3.48 to 4.03 %, table 4: by 14 %; here: by 15 %).",
            "p@1: " + ", ".join(f"{mean:.3f} at D = {size}" for size, mean in means.items()),
            (max(wide) - min(wide)) / max(wide) < 0.15,
            kind="threshold",
            edges=page_edges_of_sizes(systems),
        ),
        Finding(
            "Ensembles of three sizes give an impressive boost (4.03 to 6.14 %, half as much again, table 7; here: "
            "clearly above, by a tenth).",
            f"p@1, three sizes together less the best of the three alone: {difference(ensemble, single)}",
            clearly_above(ensemble, single) and np.mean(ensemble) > 1.1 * np.mean(single),
            edges=page_edges_of_sizes(systems),
            kind="threshold",
            why="On these images a single model may be as good as linear models get, which leaves little to average "
            "out, and a fifth of the training images, 304, is little to choose weights from.",
        ),
        Finding(
            "Ensembles of three models of equal size are above one of them (table 7).",
            f"p@1, three of D = {EQUAL[0]} less one: {difference(equal, found[EQUAL[0]])}",
            clearly_above(equal, found[EQUAL[0]]),
            why="On these images a single model may be as good as linear models get.",
            edges=page_edges_of_sizes(systems),
        ),
    ]


def page_edges_of_sizes(systems: dict) -> str:
    """Why a verdict over sizes is open; empty if it is not."""
    return open_text({f"D = {size}": systems[1000, page_size(size)] for size in sorted([SIZE, *SIZES])})


def page_examples(results: list[dict[str, Any]]) -> list[Table]:
    """Tables 3 and 8 of the paper: labels near labels, and the best labels of images."""
    found = next(result["examples"] for result in results if result["part"] == "examples")
    systems = list(next(iter(found["labels"].values())))
    captions = {
        "neighbours": "Labels nearest to a label (table 3); systems with their default settings",
        "labels": "Best labels of a test image of each of these labels (table 8), its own in bold; systems with their "
        "default settings",
    }
    tables = []
    for kind, caption in captions.items():
        rows = [
            [label, *(", ".join(f"**{n}**" if n == label else n for n in best[system]) for system in systems)]
            for label, best in found[kind].items()
        ]
        tables.append(Table(caption, ["", *systems], rows))
    return tables


def page_size(size: int) -> str:
    return "WSABIE, WARP" if size == SIZE else f"WSABIE, D = {size}"


def page_table(systems: dict, d: int, names: Sequence[str], caption: str) -> Table:
    rows = []
    for name in names:
        if (d, name) not in systems:
            continue
        found = systems[d, name]
        middle = {key: np.median([one[key] for one in found]) for key in ("train_seconds", "query_us", "bytes")}
        rows.append(
            [
                f"WSABIE, D = {SIZE}" if name == "WSABIE, WARP" and caption.startswith("Sizes") else name,
                *(plus_minus(page_values(found, measure), 3 + measure.endswith("10")) for measure in ("p@1", "p@10")),
                *(plus_minus(page_values(found, measure)) for measure in ("sib@10", "map")),
                f"{middle['train_seconds']:.3f}",
                f"{middle['query_us']:.1f}",
                f"{middle['bytes'] / 1e6:.2f}",
            ]
        )
    columns = ["", "p@1", "p@10", "sib@10", "MAP", "training (s)", "a query (µs)", "model (MB)"]
    return Table(caption, columns, rows)


def page_settings(systems: dict, words: dict) -> Table:
    """Chosen settings by fold."""
    rows = []
    for (d, name), found in sorted(systems.items()):
        if "settings" in found[0]:
            rows.append([f"photos, d = {d:,}", name, page_chosen(found)])
        elif "weights" in found[0]:
            weights = [" : ".join(f"{weight:g}" for weight in one["weights"]) for one in found]
            rows.append([f"photos, d = {d:,}", name, f"weights {', '.join(weights)}"])
    rows += [["words", f"WSABIE, {loss.upper()}", page_chosen(found)] for loss, found in words.items()]
    return Table("Settings chosen, fold by fold (* at the edge of those tried)", ["", "", ""], rows)


def page_curves(systems: dict) -> Plot:
    """Figure 1 of the paper: precision and sibling precision at k."""
    figure, panels = new_figure(2)
    ks, rows = range(1, MOST_LABELS + 1), []
    for axes, key, label in zip(panels, ("precision", "siblings"), ("precision", "sibling precision"), strict=True):
        for place, name in enumerate(PAGE_MAIN):
            curves = mean_series(axes, place, ks, [one[key] for one in systems[1000, name]], name)
            rows += [{"measure": label, **row} for row in curves]
        axes.set(xlabel="number of labels, k", ylabel=f"{label} at k", ylim=(0, None))
    legend(figure, panels[0])
    return Plot("annotation-precision", "Precision and sibling precision of the labels, d = 1,000.", figure, rows)


def page_traces(same: dict, words: dict) -> Plot:
    """Figure 2 of the paper: precision against steps, and against processor time."""
    figure, panels = new_figure(3, width=12)
    n_labels, rows = words["warp"][0]["n_labels"], []
    titles = f"{CLASSES} labels, rate 0.01", f"{n_labels:,} labels, best rates", f"{n_labels:,} labels, best rates"
    for place, loss in enumerate(loss for loss in ("warp", "auc", "owpc") if loss in same):
        drawn = [(TRACED, same[loss])]
        if loss in words:
            tests = [one["test"] for one in words[loss]]
            drawn.append((words[loss][0]["steps"], tests))
            drawn.append((np.mean([one["seconds"] for one in words[loss]], axis=0), tests))
        labels = "steps", "steps", "training time (s)"
        for axes, (x, values), title, label in zip(panels, drawn, titles, labels, strict=False):
            curves = mean_series(axes, place, x, values, loss.upper())
            rows += [{"panel": f"{title}, {label}", **row} for row in curves]
            axes.set(xlabel=label, ylabel="precision at 1", title=title, ylim=(0, None), xscale="log")
            axes.tick_params(axis="x", which="minor", labelbottom=False)
    legend(figure, panels[0])
    return Plot("annotation-losses", "WSABIE's losses: precision at 1 on test images or posts.", figure, rows)


def page(results: list[dict[str, Any]]) -> Page:
    systems, same, words = page_collect(results)
    full = (1000, ENSEMBLE_NAME) in systems
    leaves = [f"k-NN, leaf of {size}" for size in LEAVES]
    sizes = [page_size(size) for size in sorted([SIZE, *SIZES])]
    parts: list[str | Table | Plot] = [
        page_table(systems, d, PAGE_MAIN, f"Labels ranked for test images, d = {d:,}") for d in page_dimensions(systems)
    ]
    parts += [page_curves(systems), page_traces(same, words)]
    parts.append(page_table(systems, 1000, ["k-NN, exact", *leaves], "k-NN in smaller and smaller leaves, d = 1,000"))
    if full:
        caption = "Sizes of the space (table 4), three of them and three equal ones together (table 7), WARP, d = 1,000"
        parts.append(page_table(systems, 1000, [*sizes, ENSEMBLE_NAME, EQUAL_NAME], caption))
    parts += page_examples(results)
    parts.append(page_settings(systems, words))
    findings = [*page_losses(systems, same, words), *page_systems(systems), *(page_sizes(systems) if full else [])]
    return Page(
        title="Labels for images: WSABIE and what it was compared with",
        source="J. Weston, S. Bengio, N. Usunier: *Large Scale Image Annotation: Learning to Rank with Joint "
        "Word-Image Embeddings*, ECML 2010, section 6. The paper's figures are on ImageNet: 2.5 million images, "
        "15,952 labels.",
        protocol=f"Photos of {CLASSES} categories of Caltech-101, "
        f"{count(len(systems[1000, 'PAMIR-IA']), 'fold')} of 40 training and 25 test "
        "images a category; settings and numbers of steps by cross-validation on the training images, in "
        f"{INNER_FOLDS} folds ({QUICK_FOLDS} of a quick run), precision at 1 chooses. {RULE} "
        "Sizes and the ensemble take the longest vector and the learning rate "
        "chosen for D = 100, the ensemble its weights and steps from a fifth of the training images before it learns "
        "from all.\n\nAn image has one label: precision at 10 is 0.1 at most, and MAP the mean of one over the rank of "
        "the label. Siblings share a parent in configs/caltech101-is-a.csv. Means and standard errors over folds. One "
        "system is above another where it is in the mean at every d, and at the largest by a t test over the "
        "folds (one-sided, p < 0.025), unless another margin is named.\n\nTimes are processor time of one thread, "
        "taken beside another job on the second core, medians over folds: of one fit with the settings chosen (with "
        "the search of its weights for an ensemble), and of the ten best labels of a test image, in a batch of all. "
        "The model is what is kept to answer; k-NN keeps the training images.\n\nThe second data set are the words of "
        f"subject lines of 20 Newsgroups that stand in at least {MIN_POSTS} of them, learned from the {BODY_TERMS:,} "
        f"most frequent terms of the body, vectors up to {WORD_NORM:g} long: learning rates and numbers of steps (the "
        "most: "
        + ", ".join(f"{words[loss][0]['steps'][-1]:,} of {loss.upper()}" for loss in words)
        + ") chosen on a fifth of the posts.",
        findings=findings,
        parts=parts,
    )
