"""Image annotation, the experiments of the WSABIE paper: ``python -m experiments annotation [--quick]``.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6: tables 2 and 4 to 7, figures 1 and 2. Photos of 38 categories, by the protocol of experiments/protocol.py:
settings by cross-validation on the training images, precision at 1 chooses. configs/caltech101-is-a.csv says which
labels are siblings.

38 labels are few, and the WARP loss was made for many. So the losses also learn which of 1,400 words stand in the
subject line of a post of 20 Newsgroups, from the post's text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer

from benchmarks.plots import legend, mean_series, new_figure
from benchmarks.statistics import clearly_above, difference, plus_minus
from visterm.learners import PAMIR, WSABIE, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.pipeline.console import count
from visterm.pipeline.evaluation.is_a import siblings_of
from visterm.retrieval import average_precision, label_precision_at, sibling_precision_at

from .grids import ROUNDS, RULE, Curve, Grid, Point, open_text, saturation, search
from .jobs import ROOT
from .newsgroups import TERM, page_chosen, read_posts, settings_chosen
from .pages import Finding, Page, Plot, Table
from .protocol import choose, load_fold

ALONE = False
SOURCES: tuple[str, ...] = ("experiments/newsgroups.py", "pipeline/evaluation/is_a.py", "configs/caltech101-is-a.csv")

CLASSES = 38
IS_A = ROOT / "configs" / "caltech101-is-a.csv"
MOST_LABELS = 10  # of an image that are ranked for the curves

LEAVES = (760, 380, 190, 95)  # 1,520 training images halved once to four times
N_TRAINED = 1216  # of an inner fold: more neighbours there are not
COMMON = {"random_state": 0}
N_PASSES = 12
FOLDS = 3
INNER_FOLDS, QUICK_FOLDS = 3, 2
MOST_STEPS = {"warp": 120_000, "auc": 240_000}
# Settings tried first: validation chooses, and grids grow.
GRIDS = {
    "k-NN": Grid(KNNAnnotator(), {"n_neighbors": (10, 30, 100, 300)}, {"n_neighbors": (1, N_TRAINED)}),
    "one-vs-rest": Grid(OneVsRestPA(n_steps=200_000, pass_steps=20_000, **COMMON), {"C": (0.001, 0.003, 0.01)}),
    "PAMIR-IA": Grid(PAMIR(n_steps=400_000, pass_steps=40_000, **COMMON), {"C": (0.003, 0.01, 0.03)}),
    "linear WARP": Grid(
        LinearWARP(n_steps=120_000, pass_steps=10_000, **COMMON),
        {"max_norm": (3.0, 10.0, 30.0), "learning_rate": (0.03, 0.1, 0.3)},
    ),
}
# Of WSABIE; AUC, which weighs nothing by its rank, takes longer steps and more of them.
MAX_NORMS = {1000: (0.6, 1.0, 1.5), 10_000: (0.4, 0.6, 1.0)}  # by d
RATES = {"warp": (0.01, 0.03, 0.1), "auc": (0.03, 0.1, 0.3)}
SIZE, SIZES, ENSEMBLE, EQUAL = 100, (50, 200, 300, 500), (100, 200, 300), (300, 300, 300)
ENSEMBLE_NAME, EQUAL_NAME = (f"WSABIE, {' + '.join(map(str, sizes))}" for sizes in (ENSEMBLE, EQUAL))
N_EXAMPLES, N_SHOWN = 8, 3  # labels with their neighbours, and images with their labels; how many of each

# The losses step by step, from the same start with the same learning rate.
SAME = {"max_norm": 1.0, "learning_rate": 0.01}
TRACED = (5000, 10_000, 20_000, 40_000, 80_000, 160_000)

# Words of subject lines: looked at after 12,500 steps, and then each time after twice as many.
MIN_POSTS, BODY_TERMS = 10, 5000
WORD_NORM = 2.0
WORD_RATES = {"warp": (0.003, 0.01, 0.03, 0.1), "auc": (0.03, 0.1, 0.3, 1.0), "owpc": (0.01, 0.03, 0.1)}
WORD_LOOKS = {loss: [12_500 * 2**i for i in range(n)] for loss, n in (("warp", 7), ("auc", 10), ("owpc", 6))}
EARLY_LOOKS = WORD_LOOKS["warp"][:4]
N_WORD_REPEATS = 2


# -- photos ------------------------------------------------------------------------------------------------------------


def figures(learner: Any, X: sp.csr_array, y: np.ndarray, seconds: float) -> dict[str, Any]:
    """Measures of the labels ranked for test images, and what the fitted learner costs.

    An image has one label, so precision at k is 1/k at most, and average precision is one over the rank of the label.
    """
    names, siblings = siblings_of(learner.classes_, IS_A)[0]
    if names != learner.classes_.tolist():
        raise ValueError("siblings are numbered otherwise than labels")
    truth = np.searchsorted(learner.classes_, y)
    ranked = learner.annotate(X, len(learner.classes_))[0]
    ks = range(1, MOST_LABELS + 1)
    arrays = [getattr(learner, name) for name in learner._state if hasattr(learner, name)]
    return {
        "precision": [float(label_precision_at(ranked, truth, k).mean()) for k in ks],
        "siblings": [float(sibling_precision_at(ranked, truth, siblings, k).mean()) for k in ks],
        "map": float(average_precision(ranked == truth[:, None], 1).mean()),
        "train_seconds": seconds,
        "query_us": 1e6 * query_seconds(learner, X) / X.shape[0],
        "bytes": int(sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))),
    }


def query_seconds(learner: Any, X: sp.csr_array) -> float:
    """Processor time of finding the ten best labels of each image: the shortest of several runs."""
    learner.annotate(X[:2], MOST_LABELS)  # compiles
    seconds = []
    for _ in range(7):
        start = time.thread_time()
        learner.annotate(X, MOST_LABELS)
        seconds.append(time.thread_time() - start)
    return min(seconds)


def fit_and_measure(learner: Any, X: Any, y: np.ndarray, Q: Any, y_query: np.ndarray) -> dict[str, Any]:
    """Figures of a learner with chosen settings; training time is processor time of its single thread."""
    start = time.thread_time()
    learner.fit(X, y)
    return figures(learner, Q, y_query, time.thread_time() - start)


def choose_and_measure(grid: Grid, split: Sequence[Any], small: bool) -> tuple[Any, dict[str, Any]]:
    """Choose a learner's settings on training images; return its figures and the settings."""
    tried, n_folds, rounds = (grid.small(), QUICK_FOLDS, 0) if small else (grid, INNER_FOLDS, ROUNDS)
    chosen, edges = choose(tried, *split[:2], n_folds=n_folds, rounds=rounds)
    return chosen, fit_and_measure(clone(chosen), *split) | settings_chosen(chosen, grid, edges)


def measure_neighbors(split: Sequence[Any], small: bool) -> dict[str, Any]:
    """Exact k-NN, and in leaves of a random-projection tree with as many neighbours."""
    chosen, exact = choose_and_measure(GRIDS["k-NN"], split, small)
    found = {"k-NN, exact": exact}
    for leaf_size in LEAVES[::2] if small else LEAVES:
        tree = clone(chosen).set_params(algorithm="tree", leaf_size=leaf_size, random_state=0)
        found[f"k-NN, leaf of {leaf_size}"] = fit_and_measure(tree, *split)
    return found


def measure_linear(split: Sequence[Any], small: bool) -> dict[str, Any]:
    """One vector of weights per label."""
    return {name: choose_and_measure(grid, split, small)[1] for name, grid in GRIDS.items() if name != "k-NN"}


def measure_examples(split: Sequence[Any]) -> dict[str, Any]:
    """Neighbours of some labels, and labels of some test images, by three systems with their defaults.

    The labels are evenly spaced in the alphabet, the images one of each; nobody has chosen them.
    """
    X, y, Q, y_query = split
    systems = {
        "WSABIE": WSABIE(random_state=0),
        "PAMIR-IA": PAMIR(random_state=0),
        "one-vs-rest": OneVsRestPA(random_state=0),
    }
    neighbours, labels = {}, {}
    shown = np.linspace(0, len(np.unique(y)) - 1, N_EXAMPLES).astype(int)
    for name, system in systems.items():
        system.fit(X, y)
        images = [int(np.flatnonzero(y_query == label)[0]) for label in system.classes_[shown]]
        near = system.similar_labels(shown, N_SHOWN)[0]
        best = system.annotate(Q[images], N_SHOWN)[0]
        for i, label in enumerate(system.classes_[shown].tolist()):
            neighbours.setdefault(label, {})[name] = system.classes_[near[i]].tolist()
            labels.setdefault(label, {})[name] = system.classes_[best[i]].tolist()
    return {"neighbours": neighbours, "labels": labels}


def measure_wsabie(split: Sequence[Any], loss: str, norms: Sequence[float], sizes: bool, small: bool) -> dict[str, Any]:
    """WSABIE with one loss; with `sizes` other sizes and an ensemble too.

    These take the longest vector and the learning rate of the single model, and their own number of steps.
    """
    n_steps = MOST_STEPS[loss]
    single = WSABIE(n_components=SIZE, loss=loss, n_steps=n_steps, pass_steps=n_steps // N_PASSES, random_state=0)
    axes = {"max_norm": (1.0,) if small else norms, "learning_rate": RATES[loss]}
    chosen, figures_found = choose_and_measure(Grid(single, axes), split, small)
    found = {f"WSABIE, {loss.upper()}": figures_found}
    if sizes:
        chosen.set_params(n_steps=n_steps)
        for size in SIZES:
            alone = Grid(clone(chosen).set_params(n_components=size), {})
            _, found[f"WSABIE, D = {size}"] = choose_and_measure(alone, split, small)
        # A fifth of the training images chooses the weights and the number of steps; then training uses all of them.
        for name, members in ((ENSEMBLE_NAME, ENSEMBLE), (EQUAL_NAME, EQUAL)):
            ensemble = clone(chosen).set_params(n_components=list(members), validation_fraction=0.2, refit=True)
            found[name] = fit_and_measure(ensemble, *split) | {"weights": ensemble.member_weights_.tolist()}
    return found


def trace(learner: WSABIE, X: Any, y: Any, asked: dict[str, tuple[Any, Any]], steps: Sequence[int]) -> dict[str, Any]:
    """Precision at 1 on each of `asked` after so many steps, and the `seconds` of one core spent on learning."""
    found: dict[str, list[float]] = {name: [] for name in ("seconds", *asked)}
    every = int(np.gcd.reduce(steps))
    clone(learner).set_params(n_steps=1).fit(X, y)  # compiles
    spent, since = 0.0, time.thread_time()

    def look(learner: WSABIE) -> None:
        nonlocal spent, since
        spent += time.thread_time() - since
        if learner.n_steps_ in steps:
            found["seconds"].append(spent)
            for name, (Q, y_query) in asked.items():
                found[name].append(learner.score(Q, y_query))
        since = time.thread_time()

    clone(learner).set_params(n_steps=steps[-1], pass_steps=every).fit(X, y, callback=look)
    return found


# -- words of subject lines --------------------------------------------------------------------------------------------


@cache
def count_words() -> tuple[sp.csr_array, sp.csr_array]:
    """How often each post has each term in its body, and which words stand in its subject line.

    Words that stand in at least `MIN_POSTS` subject lines; posts whose subject line has one.
    """
    subject = re.compile(r"^subject\s*:(.*)", re.IGNORECASE | re.MULTILINE)
    posts = [(found[1], body) for headers, body, _ in read_posts() if (found := subject.search(headers))]
    words = CountVectorizer(stop_words="english", binary=True, min_df=MIN_POSTS, token_pattern=TERM)
    y = sp.csr_array(words.fit_transform([title for title, _ in posts]))
    y = y[:, np.flatnonzero(words.get_feature_names_out() != "re")]  # the mark of an answer
    labelled = np.flatnonzero(np.diff(y.indptr))
    terms = CountVectorizer(stop_words="english", token_pattern=TERM, dtype=np.int32)
    return sp.csr_array(terms.fit_transform([posts[row][1] for row in labelled])), y[labelled]


def load_words(repeat: int) -> list[tuple[sp.csr_array, sp.csr_array]]:
    """X, y of posts to learn from, of those that validate, and of those that test: 60, 20 and 20 %.

    X is tf-idf of the `BODY_TERMS` most frequent terms; these and their idf come from the posts to learn from.
    """
    counts, y = count_words()
    order = np.random.default_rng(repeat).permutation(y.shape[0])
    rows = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    terms = np.sort(np.argsort(-counts[rows[0]].sum(axis=0), kind="stable")[:BODY_TERMS])
    weigh = TfidfTransformer().fit(counts[rows[0]][:, terms])
    return [(sp.csr_array(weigh.transform(counts[part][:, terms])).astype(np.float32), y[part]) for part in rows]


def measure_words(repeat: int, losses: Sequence[str], small: bool) -> dict[str, Any]:
    """Step by step, precision at 1 on validation and test posts with each learning rate; loss by loss."""
    learned, validating, test = load_words(repeat)
    curves = {}
    for loss in losses:
        common = {"n_components": SIZE, "loss": loss, "max_norm": WORD_NORM, "decay_steps": None, "random_state": 0}
        rates, steps = (WORD_RATES[loss][1:3], EARLY_LOOKS) if small else (WORD_RATES[loss], WORD_LOOKS[loss])
        found = curves[loss] = []

        def measure(
            points: list[Point], steps: list[int] = steps, common: dict = common, found: list = found
        ) -> list[Curve]:
            asked = {"validation": validating, "test": test}
            for point in points:
                traced = trace(WSABIE(**point, **common), *learned, asked, steps)
                found.append({"rate": point["learning_rate"], "steps": steps} | traced)
            return [[*zip(steps, one["validation"], strict=True)] for one in found[-len(points) :]]

        search([{"learning_rate": rate} for rate in rates], measure, rounds=0 if small else 1)
        found.sort(key=lambda one: one["rate"])
    return {"curves": curves, "n_labels": learned[1].shape[1]}


# -- jobs --------------------------------------------------------------------------------------------------------------


def jobs(quick: bool) -> list[dict[str, Any]]:
    """Jobs, the long ones first."""
    if quick:
        parts, dimensions, folds = ["auc", "warp", "linear", "neighbors", "same"], (1000,), 1
        found = [{"part": "words", "losses": ["warp", "auc"], "fold": 0, "small": True}]
    else:
        parts, dimensions, folds = ["warp", "auc", "linear", "neighbors"], (10_000, 1000), FOLDS
        found = [
            {"part": "words", "losses": [loss], "fold": repeat}
            for loss in ("owpc", "warp", "auc")
            for repeat in range(N_WORD_REPEATS)
        ]
        found += [{"part": "same", "d": 1000, "fold": fold} for fold in range(folds)]
    found.append({"part": "examples", "d": 1000, "fold": 0})
    return found + [
        {"part": part, "d": d, "fold": fold, "small": quick}
        for d in dimensions
        for part in parts
        for fold in range(folds)
    ]


def measure(part: str, fold: int, d: int = 0, losses: Sequence[str] = (), small: bool = False) -> dict[str, Any]:
    if part == "words":
        return measure_words(fold, losses, small)
    split = load_fold(CLASSES, d, fold)
    if part == "same":
        common = {"n_components": SIZE, "random_state": 0, **SAME}
        learners = {loss: WSABIE(loss=loss, **common) for loss in ("warp", "auc", "owpc")}
        asked = {"test": split[2:]}
        return {"trace": {loss: trace(one, *split[:2], asked, TRACED)["test"] for loss, one in learners.items()}}
    if part == "examples":
        return {"examples": measure_examples(split)}
    if part == "neighbors":
        return {"systems": measure_neighbors(split, small)}
    if part == "linear":
        return {"systems": measure_linear(split, small)}
    return {"systems": measure_wsabie(split, part, MAX_NORMS[d], part == "warp" and d == 1000 and not small, small)}


# -- page --------------------------------------------------------------------------------------------------------------

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
