"""Images that query images: the systems, their settings, and the figures of one fold.

LMNN, ITML and NCA are those of the metric-learn package, learned from principal components and for few iterations:
`PEERS` and `PEER_POINTS` say how many.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.metric_learn_peer import Linear, learn_metric
from benchmarks.peers import PeerError
from visterm.learners import AROMA, HIER, LEGO, MCML, OASIS, RCA, WSABIE, Cosine, Xing
from visterm.learners.online import OnlineLearner
from visterm.plugins.figures.is_a import parents_of

from .grids import Curve, Grid, Limits, Point, search
from .protocol import ONE_PAIR, ROOT, choose, figures, load_fold, settings_of

IS_A = ROOT / "configs" / "caltech101-is-a.csv"
FILES = (IS_A,)


class RankingHIER(HIER):
    """HIER validated as the other systems are, by images that query images, not by label ranking."""

    validation_measure = OnlineLearner.validation_measure

    _validator = OnlineLearner._validator
    _calibrate_quickly = sys.maxsize  # by all images


class EmbeddingWSABIE(WSABIE):
    """WSABIE validated as the other systems are, by images that query images, not by label ranking."""

    validation_measure = OnlineLearner.validation_measure
    _validator = OnlineLearner._validator


class Projected:
    """The positive semi-definite part of a learned W."""

    def __init__(self, learned: OASIS):
        self.A = learned.embedding()

    def transform(self, X: Any) -> np.ndarray:
        return np.ascontiguousarray(X @ self.A.T)

    transform_query = transform


# Settings tried first, and the most steps: validation chooses, and grids grow.
ONLINE: dict[str, Any] = {"n_steps": 200_000, "pass_steps": 20_000, "random_state": 0} | ONE_PAIR
CANDIDATES: dict[str, Grid] = {
    "OASIS": Grid(OASIS(**ONLINE), {"C": (0.01, 0.03, 0.1)}),
    "AROMA diagonal": Grid(AROMA(**ONLINE), {"r": (10.0, 100.0, 1000.0)}),
    "AROMA factored": Grid(AROMA(covariance="factored", **ONLINE), {"r": (10.0, 100.0, 1000.0)}),
    "WSABIE": Grid(
        EmbeddingWSABIE(n_steps=30_000, pass_steps=2_500, random_state=0),
        {"max_norm": (0.6, 1.0, 1.7), "learning_rate": (0.02, 0.08, 0.32)},
    ),
    "MCML": Grid(MCML(n_steps=6, pass_steps=1), {"trace_penalty": (0.001, 0.002)}),
    # The paper's three values of eta. It does not give the distances: with `far` below the 2 at which unit rows begin,
    # no pair of two classes would be pushed at first, and `near` is to be below `far`.
    "LEGO": Grid(
        LEGO(loss="pairs", n_steps=20_000, pass_steps=4_000, random_state=0),
        {"eta": (0.02, 0.08, 0.32), "near": (1.0, 1.5), "far": (2.0, 3.0)},
        {"near": (0.0, 1.9), "far": (2.0, np.inf)},
    ),
    "LEGO, triplets": Grid(LEGO(n_steps=28_000, pass_steps=4_000, random_state=0), {"eta": (0.005, 0.02, 0.08)}),
    "HIER": Grid(RankingHIER(n_steps=30_000, pass_steps=3_000, random_state=0), {"C": (0.01, 0.03, 0.1, 0.3)}),
    "RCA": Grid(RCA(), {"shrinkage": (0.3, 0.9, 1.0)}, {"shrinkage": (0.0, 1.0)}),
    "Xing": Grid(Xing(n_steps=6, pass_steps=1), {"shrinkage": (3e-5, 3e-3)}, {"shrinkage": (0.0, 1.0)}),
}
INNER_FOLDS = 3
# Of factored AROMA, whose updates take a tenth of a millisecond, of LEGO, whose grid has the most points, and of Xing's
# method.
FEW_INNER_FOLDS = 2
FEW_INNER = ("AROMA factored", "LEGO", "LEGO, triplets", "Xing")


# Of the methods of metric-learn: what keeps their time in bounds, and what of it is chosen on a fifth of the training
# images of each fold. LMNN's margin is 1: among longer vectors fewer images lie within it, and iterations are faster.
PEERS: dict[str, dict[str, Any]] = {
    "NCA": {"n_components": 200},
    "ITML": {"n_components": 100, "random_state": 0},
    "LMNN": {"n_components": 100, "max_iter": 30, "learn_rate": 0.01},
}
PEER_POINTS: dict[str, list[Point]] = {
    "NCA": [{"max_iter": n} for n in (5, 10, 20)],
    "ITML": [{"max_iter": n} for n in (1, 2, 5)],
    # The paper's three weights of the push term.
    "LMNN": [{"scale": scale, "regularization": push} for scale in (0.07, 0.2, 1.0) for push in (0.125, 0.25, 0.5)],
}
PEER_LIMITS: dict[str, Limits] = {"LMNN": {"regularization": (0.125, 0.5)}}
# Of growth. LMNN's scale grows where the best is the least or the largest; more iterations of the others take too long.
PEER_ROUNDS = {"LMNN": 2}
PEER_SECONDS = 300


def measure(system: str, classes: int, fold: int, quick: bool) -> dict[str, Any]:
    """Figures of a system on the test images of a fold, its chosen settings, and which of them are at the edge."""
    X, y, test, test_y = load_fold(classes, 1000, fold)
    if system in PEERS:
        try:
            return measure_peer(system, X, y, test, test_y)
        except PeerError as error:
            return {"failed": str(error)}
    edges: list[str] = []
    if system == "Euclidean":  # ranks unit rows as the inner product does
        learner = Cosine()
    else:
        grid = CANDIDATES[system]
        if system == "HIER":
            is_a = parents_of(sorted(set(y.tolist())), IS_A, numbered=False)
            grid = replace(grid, learner=clone(grid.learner).set_params(is_a=is_a))
        few = quick or system in FEW_INNER
        learner, edges = choose(grid, X, y, n_folds=FEW_INNER_FOLDS if few else INNER_FOLDS, quick=quick)
    learner.fit(X, y)
    found = figures(learner, test, test_y) | {"settings": settings_of(learner), "edges": edges}
    found["settings"].pop("is_a", None)
    if system == "OASIS":  # what it is as a metric
        found["metric_map"] = figures(Projected(learner), test, test_y)["map"]
    if system == "AROMA diagonal":
        found["least_variance"] = float(learner.covariance_.min())
    return found


def measure_peer(system: str, X: Any, y: np.ndarray, test: Any, test_y: np.ndarray) -> dict[str, Any]:
    """A method of metric-learn; its limits by the mean average precision of a fifth of the training images."""
    ((shown, held_out),) = StratifiedShuffleSplit(1, test_size=0.2, random_state=0).split(X, y)

    def learned(rows: np.ndarray, point: Point) -> Linear:
        options = PEERS[system] | point | {"timeout": PEER_SECONDS, "threads": 1, "rewritten": True}
        return Linear(learn_metric(system.lower(), X[rows], y[rows], **options)[0])

    def measure(points: Sequence[Point]) -> list[Curve]:
        return [[(None, figures(learned(shown, p), X[held_out], y[held_out])["map"])] for p in points]

    rounds = PEER_ROUNDS.get(system, 0)
    chosen = search(PEER_POINTS[system], measure, limits=PEER_LIMITS.get(system), rounds=rounds)
    found = figures(learned(np.arange(len(y)), chosen.point), test, test_y)
    return found | {"settings": PEERS[system] | chosen.point, "edges": chosen.edges}
