"""Image annotation: the systems, their settings, and what is measured of them on photos and on words."""

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

from visterm.learners import PAMIR, WSABIE, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.pipeline.evaluation.is_a import siblings_of
from visterm.retrieval import average_precision, label_precision_at, sibling_precision_at

from .grids import Curve, Grid, Point, search
from .posts import TERM, read_posts
from .protocol import ROOT, choose, chosen_settings, load_fold

CLASSES = 38
IS_A = ROOT / "configs" / "caltech101-is-a.csv"
FILES = (IS_A,)
MOST_LABELS = 10  # of an image that are ranked for the curves

LEAVES = (760, 380, 190, 95)  # 1,520 training images halved once to four times
N_TRAINED = 1216  # of an inner fold: more neighbours there are not
COMMON = {"random_state": 0}
N_PASSES = 12
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
    chosen, edges = choose(grid, *split[:2], n_folds=QUICK_FOLDS if small else INNER_FOLDS, quick=small)
    return chosen, fit_and_measure(clone(chosen), *split) | chosen_settings(chosen, grid, edges)


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
    """Neighbours of some labels, and labels of some test images, by three systems with settings nobody tuned.

    The labels are evenly spaced in the alphabet, the images one of each; nobody has chosen them.
    """
    X, y, Q, y_query = split
    systems = {
        "WSABIE": WSABIE(n_steps=100_000, pass_steps=5000, random_state=0),
        "PAMIR-IA": PAMIR(n_steps=300_000, pass_steps=10_000, random_state=0),
        "one-vs-rest": OneVsRestPA(n_steps=30_000, pass_steps=1000, random_state=0),
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
            stopping = {"validation_fraction": 0.2, "patience": None, "refit": True}
            ensemble = clone(chosen).set_params(n_components=list(members), **stopping)
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


# -- one job -----------------------------------------------------------------------------------------------------------


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
