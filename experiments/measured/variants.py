"""Averaged rankers and symmetric variants of OASIS, and how symmetric W becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from visterm.learners import OASIS, Cosine

from .grids import Grid
from .protocol import ONE_PAIR, choose, figures, load_fold

C = 0.1  # where nothing else is said, as in the paper's curves
C_TRIED = (0.01, 0.03, 0.1)  # at first
MOST_STEPS = 200_000  # at first
N_INNER = 2  # inner folds; few, to stay within the time of all experiments
PASS = 5_000
POINTS = [5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 75_000, 100_000, 150_000, 200_000]


def measure(kind: str, quick: bool = False, **parameters: Any) -> dict[str, Any]:
    if kind == "symmetric":
        return measure_symmetric(quick=quick, **parameters)
    return measure_rankers(**parameters)


def measure_rankers(n_rankers: int, n_steps: int, fold: int) -> dict[str, Any]:
    """Test figures of the mean of so many rankers, by the steps of each; and how symmetric the mean is."""
    X, y, test_X, test_y = load_fold(20, 1000, fold)
    curve = []

    def look(learned: OASIS) -> None:
        if learned.n_steps_ in POINTS:
            found = figures(learned, test_X, test_y)
            point = {"step": learned.n_steps_, "map": found["map"], "p1": found["precision"][0]}
            curve.append(point | symmetry(learned))

    learner = OASIS(C=C, n_rankers=n_rankers, n_steps=n_steps, pass_steps=PASS, random_state=fold, **ONE_PAIR)
    learner.fit(X, y, callback=look)
    return {"curve": curve, "cosine": figures(Cosine().fit(X, y), test_X, test_y)["map"]}


def symmetry(learned: OASIS) -> dict[str, float]:
    """rho of W, and of what was added to the identity that W started from."""
    added = clone(learned)
    added.n_features_in_, added.W_ = learned.n_features_in_, learned.W_ - np.eye(len(learned.W_), dtype=np.float32)
    return {"rho": learned.symmetry_index(), "rho_added": added.symmetry_index()}


def measure_symmetric(classes: int, variant: str | None, fold: int, quick: bool) -> dict[str, Any]:
    """Test figures of a variant; its C and number of steps by cross-validation on the training images."""
    X, y, test_X, test_y = load_fold(classes, 1000, fold)
    settings = {"n_steps": MOST_STEPS, "pass_steps": 2 * PASS, "random_state": fold} | ONE_PAIR
    grid = Grid(OASIS(variant=variant, **settings), {"C": C_TRIED})
    chosen, edges = choose(grid, X, y, n_folds=N_INNER, quick=quick)
    result = figures(chosen.fit(X, y), test_X, test_y) | {"C": chosen.C, "n_steps": chosen.n_steps, "edges": edges}
    if variant is None:
        result |= symmetry(chosen)
    return result
