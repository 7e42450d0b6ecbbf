"""Similarities of posts: AROMA, OASIS, ITML and the cosine, and what is measured of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import train_test_split

from benchmarks.metric_learn_peer import Linear, learn_metric
from benchmarks.peers import PeerError
from visterm.learners import AROMA, OASIS, Cosine
from visterm.retrieval import ExactIndex, evaluate_index, relevance_from_labels

from .grids import Curve, Grid, Point, search
from .posts import load_split
from .protocol import CURVE, ONE_PAIR, choose, chosen_settings

N_QUERIES = 1000  # test posts that ask; all test posts are ranked
N_INNER_FOLDS = 2
PASS_STEPS = 100_000
# Settings tried first: validation chooses, and grids grow.
AXES = {"OASIS": (0.3, 1.0, 3.0), "AROMA diagonal": (0.1, 1.0, 10.0), "AROMA factored": (0.1, 1.0, 10.0)}
MOST_STEPS = {"OASIS": 500_000, "AROMA diagonal": 500_000, "AROMA factored": 200_000}  # a step of it takes 0.1 ms
# metric-learn's ITML takes seconds for a hundred constraints at d = 1,000: it learns from principal components (of
# 100 and 200 a fifth of the posts chose 200 each time), and for few sweeps. A fifth of the posts says how many.
ITML = {"random_state": 0}
ITML_POINTS: list[Point] = [{"n_components": 200, "max_iter": sweeps} for sweeps in (3, 10)]
ITML_QUERIES = 500  # of these posts
TRACED = (2000, 4000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000)
NO_LIMIT = 1e9  # OASIS from zero without a limit to its steps is AROMA that learns no covariance
SENSITIVITY_STEPS = 100_000


def figures(system: Any, X: sp.csr_array, y: np.ndarray, n_queries: int = N_QUERIES) -> dict[str, Any]:
    """`map`, and `precision` at 1 to `CURVE`, of test posts drawn at random that query all other test posts."""
    queries = np.random.default_rng(0).choice(len(y), n_queries, replace=False)
    relevance = relevance_from_labels(y[queries], y, exclude=queries)
    found = evaluate_index(ExactIndex(system, X), X[queries], relevance, exclude=queries, max_k=CURVE)
    return {"map": found.mean_average_precision, "precision": found.precision_curve.tolist()}


def make(system: str, value: float, **parameters: Any) -> Any:
    """A learner by the name it has on the page; its C or r is `value`."""
    parameters |= ONE_PAIR
    if system.startswith("OASIS"):
        return OASIS(C=value, init="zero" if system.endswith("zero") else "identity", random_state=0, **parameters)
    return AROMA(covariance=system.removeprefix("AROMA "), r=value, random_state=0, **parameters)


def grid_of(system: str) -> Grid:
    """Values of C or r, and the learner."""
    learner = make(system, AXES[system][0], n_steps=MOST_STEPS[system], pass_steps=PASS_STEPS)
    return Grid(learner, {"r" if system.startswith("AROMA") else "C": AXES[system]})


def measure(part: str, system: str, repeat: int, value: float = 0.0, small: bool = False) -> dict[str, Any]:
    X, y, Q, y_query = load_split(repeat)
    if part == "trace":
        trace: dict[str, list[float]] = {"p@1": [], "p@10": [], "mAP": []}

        def look(learner: Any) -> None:
            if learner.n_steps_ in TRACED:
                found = figures(learner, Q, y_query, N_QUERIES // 2)
                for name, figure in zip(
                    trace, (found["precision"][0], found["precision"][9], found["map"]), strict=True
                ):
                    trace[name].append(figure)

        make(system, value, n_steps=TRACED[-1], pass_steps=TRACED[0]).fit(X, y, callback=look)
        return {"trace": trace}
    if part == "sensitivity":
        learner = make(system, value, n_steps=SENSITIVITY_STEPS, pass_steps=5000).fit(X, y)
        return {"precision_at_10": figures(learner, Q, y_query, N_QUERIES // 2)["precision"][9]}
    if system == "cosine":
        return figures(Cosine().fit(X), Q, y_query)
    if system == "ITML":
        try:
            return measure_itml(X, y, Q, y_query)
        except PeerError as error:
            return {"failed": str(error)}
    grid = grid_of(system)
    if small:
        grid = replace(grid.small(), learner=clone(grid.learner).set_params(n_steps=2 * PASS_STEPS))
    grows = not small and system != "AROMA factored"
    chosen, edges = choose(grid, X, y, n_folds=N_INNER_FOLDS, grows=grows)
    return figures(chosen.fit(X, y), Q, y_query) | chosen_settings(chosen, grid, edges)


def measure_itml(X: Any, y: np.ndarray, Q: Any, y_query: np.ndarray) -> dict[str, Any]:
    """ITML; sweeps by the mean average precision of a fifth of the posts to learn from."""
    shown, held_out = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=0)

    def learned(rows: np.ndarray, point: Point) -> Linear:
        return Linear(learn_metric("itml", X[rows], y[rows], threads=1, **ITML, **point)[0])

    def measure(points: list[Point]) -> list[Curve]:
        systems = [learned(shown, point) for point in points]
        return [[(None, figures(system, X[held_out], y[held_out], ITML_QUERIES)["map"])] for system in systems]

    chosen = search(ITML_POINTS, measure, rounds=0)
    found = figures(learned(np.arange(len(y)), chosen.point), Q, y_query)
    return found | {"settings": chosen.point, "edges": chosen.edges}
