"""Learning curves: the systems, the vectors they learn from, and what is measured along their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize

from benchmarks.vectors import choose_images
from visterm.learners import AROMA, OASIS, Cosine

from .protocol import N_FOLDS, ONE_PAIR, extracted, figures, load_fold

LEARNERS = {"OASIS": OASIS, "AROMA": AROMA}
# Numbers of steps at which a curve is measured.
POINTS = [
    *(2_500, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 35_000, 50_000, 75_000, 100_000, 150_000, 200_000),
    *(300_000, 400_000, 500_000),
]
PASS = 2_500

UNIT, WIDE = "tf-idf, unit length", "10,000 visterms"


def measure(
    learner: str, parameters: dict[str, Any], n_steps: int, classes: int, setting: str, along: bool, fold: int
) -> dict[str, Any]:
    """Figures after `n_steps` and on the way; the test images serve the plots only and choose nothing."""
    X, y, test_X, test_y = vectors(setting, classes, fold)
    if learner == "Euclidean":
        return {"curve": [{"step": n_steps} | ways_to_rank(Cosine().fit(X, y), X, y, test_X, test_y)]}
    curve = []

    def look(learned: Any) -> None:
        if learned.n_steps_ == n_steps or (along and learned.n_steps_ in POINTS):
            point = {"step": learned.n_steps_} | ways_to_rank(learned, X, y, test_X, test_y)
            if along:
                point["training_map"] = figures(learned, X, y)["map"]
            if learner == "AROMA":
                point["variance"] = mean_variance(learned)
            curve.append(point)

    settings = parameters | ONE_PAIR | {"n_steps": n_steps, "pass_steps": PASS, "random_state": fold}
    LEARNERS[learner](**settings).fit(X, y, callback=look)
    return {"curve": curve}


def ways_to_rank(system: Any, X: Any, y: np.ndarray, test_X: Any, test_y: np.ndarray) -> dict[str, float]:
    """Figures of test images that query each other, and precision at 1 for other queries and galleries."""
    own = figures(system, test_X, test_y)
    among_training = system.similarity(X, X)
    np.fill_diagonal(among_training, -np.inf)
    return {
        "p1": own["precision"][0],
        "p10": own["precision"][9],
        "map": own["map"],
        "kept": precision_at_1(system.similarity(test_X, test_X), test_y, test_y),
        "in_training": precision_at_1(system.similarity(test_X, X), test_y, y),
        "among_training": precision_at_1(among_training, y, y),
    }


def mean_variance(learned: AROMA) -> float:
    """Mean of Sigma, or of the diagonal of Lambda; both start at 1."""
    covariance = learned.covariance_
    return float(np.mean(np.diag(covariance[0]) if isinstance(covariance, tuple) else covariance))


def precision_at_1(scores: np.ndarray, of_queries: np.ndarray, of_gallery: np.ndarray) -> float:
    """Share of the queries whose first result is of their class."""
    return float(np.mean(of_gallery[scores.argmax(axis=1)] == of_queries))


def vectors(setting: str, classes: int, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """As `load_fold`, in another setting."""
    if setting == "5-fold split":
        return five_folds(classes, fold)
    X, y, test_X, test_y = load_fold(classes, 10_000 if setting == WIDE else 1000, fold)
    if setting in (UNIT, WIDE):
        return X, y, test_X, test_y
    idf = -np.log(np.maximum((X != 0).sum(axis=0), 1) / X.shape[0])
    return reweighted(X, idf, setting), y, reweighted(test_X, idf, setting), test_y


def five_folds(classes: int, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """Four fifths of all images to learn from, also palette, codebook and idf."""
    paths, y, _ = choose_images(f"caltech101-{classes}")
    learned, _ = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(y, y))[fold]
    train = np.isin(np.arange(len(y)), learned)
    X = extracted("five-folds", paths, train, fold, n_visterms=1000, max_side=None)
    return X[train], y[train], X[~train], y[~train]


def reweighted(X: Any, idf: np.ndarray, setting: str) -> Any:
    """Rows of unit tf-idf with other weights; their counts are multiples of the least one, which is nearly always 1."""
    counts = sp.csr_array(X, copy=True)
    counts.data /= idf[counts.indices]
    counts.data /= np.repeat(np.minimum.reduceat(counts.data, counts.indptr[:-1]), np.diff(counts.indptr))
    if setting.startswith("presence"):
        counts.data[:] = 1
    if not setting.startswith("tf,"):
        counts.data *= idf[counts.indices]
    return (normalize(counts) if setting.endswith("unit length") else counts).astype(np.float32)
