"""Image annotation: the systems, their settings, and what is measured of them on photos and on words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from visterm.learners import PAMIR, WSABIE, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.plugins.figures.is_a import siblings_of
from visterm.retrieval import average_precision, label_precision_at, sibling_precision_at

from .grids import Grid
from .protocol import ROOT, choose, chosen_settings, load_fold
from .words import COMMON, MOST_LABELS, SIZE, costs, measure_losses, measure_on_words, trace

CLASSES = 38
IS_A = ROOT / "configs" / "caltech101-is-a.csv"
FILES = (IS_A,)

LEAVES = (760, 380, 190, 95)  # 1,520 training images halved once to four times
N_TRAINED = 1216  # of an inner fold: more neighbours there are not
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
SIZES, ENSEMBLE, EQUAL = (50, 200, 300, 500), (100, 200, 300), (300, 300, 300)
ENSEMBLE_NAME, EQUAL_NAME = (f"WSABIE, {' + '.join(map(str, sizes))}" for sizes in (ENSEMBLE, EQUAL))
N_EXAMPLES, N_SHOWN = 8, 3  # labels with their neighbours, and images with their labels; how many of each

# The losses step by step, from the same start with the same learning rate.
SAME = {"max_norm": 1.0, "learning_rate": 0.01}
TRACED = (5000, 10_000, 20_000, 40_000, 80_000, 160_000)


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
    return {
        "precision": [float(label_precision_at(ranked, truth, k).mean()) for k in ks],
        "siblings": [float(sibling_precision_at(ranked, truth, siblings, k).mean()) for k in ks],
        "map": float(average_precision(ranked == truth[:, None], 1).mean()),
    } | costs(learner, X, seconds)


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


# -- one job -----------------------------------------------------------------------------------------------------------


def measure(
    part: str,
    fold: int = 0,
    d: int = 0,
    losses: Sequence[str] = (),
    system: str = "",
    n_words: int | None = None,
    small: bool = False,
) -> dict[str, Any]:
    if part == "losses":
        return measure_losses(fold, losses, small)
    if part == "words":
        return measure_on_words(system, n_words, small)
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
