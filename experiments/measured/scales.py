"""AROMA and OASIS with the papers' settings on rows of other lengths than one, whichever images are ranked.

Rows s times as long are unit rows with r / s^4 and C s^4, and a start at s^2 times the matrix: what an update adds is
s^2 times as large, and so is the margin of every triplet, of which 1 is asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from benchmarks.vectors import N_TEST
from visterm.learners import AROMA, OASIS, Cosine

from .learning import precision_at_1
from .protocol import ONE_PAIR, load_fold

CLASSES = 38
STEPS: dict[str, Any] = {"n_steps": 200_000, "pass_steps": 20_000} | ONE_PAIR
OF_PAPER = {
    "OASIS": OASIS(C=0.1, **STEPS),
    "AROMA diagonal": AROMA(r=0.01, **STEPS),
    "AROMA factored": AROMA(r=0.01, covariance="factored", **STEPS),
    "Euclidean": Cosine(),  # ranks rows of one length as the distance does
}
LEARNED = (0, 5, 10, 15, 20, N_TEST)  # of the images of a class that are ranked, so many were learned from


def measure(system: str, d: int, scale: float, fold: int) -> dict[str, Any]:
    """Precision at 1 among `N_TEST` images of each class that query each other, for each number of `LEARNED`."""
    X, y, test, test_y = load_fold(CLASSES, d, fold)
    X, test = (sp.csr_array(scale * part, dtype=np.float32) for part in (X, test))
    learner = clone(OF_PAPER[system])
    if system != "Euclidean":
        learner.set_params(random_state=fold)
    learner.fit(X, y)
    images, labels = sp.csr_array(sp.vstack([X, test])), np.concatenate([y, test_y])
    scores = learner.similarity(images, images)
    np.fill_diagonal(scores, -np.inf)
    return {
        "p1": [precision_at_1(scores[np.ix_(own, own)], labels[own], labels[own]) for own in mixtures(y, test_y, fold)]
    }


def mixtures(y: np.ndarray, test_y: np.ndarray, fold: int) -> list[np.ndarray]:
    """Rows of the images, test images after training images, for each number of `LEARNED`.

    Both kinds are drawn, the same for every system of a fold. Rows are in random order: of images of the same score the
    first is the result, and rows sorted by class would favour one of them.
    """
    rng = np.random.default_rng(fold)
    learned, new = (
        rng.permuted([first + np.flatnonzero(own == label) for label in np.unique(own)], axis=1)
        for own, first in ((y, 0), (test_y, len(y)))
    )
    return [rng.permutation(np.hstack([learned[:, :n], new[:, : N_TEST - n]]).ravel()) for n in LEARNED]
