"""How soon OASIS reaches its precision, by pairs a query: ``python -m benchmarks pairs [--quick]``.

Vectors: 38 classes of Caltech-101 at d = 10,000, of the photos as they are and enlarged to 500 pixels, and dense ones
of 1,280 numbers, histograms of oriented gradients; five draws of 40 training and 25 test images a class. Time is that
of learning alone, one thread. The peer is the plain loop of the paper in double precision with one pair a query. Its
model is that of our kernel with one pair, up to rounding, so that its curve has our precisions at its own time a
triplet, measured here.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.learners import OASIS, TripletSampler
from visterm.learners.draws import stream
from visterm.learners.rows import as_rows

from .oasis import plain_pass
from .photos import of_each_class, quality
from .records import THREAD, compared, fit_seconds, record, seconds
from .vectors import dense_vectors, load_vectors

FOLDS = range(5)
ONE_PAIR_STEPS = 600_000
NEAR = 0.995  # of the precision that one pair a query ends with
VECTORS = {
    "photos": ("photos of 300 pixels, d = 10,000", lambda: load_vectors(10_000, "caltech101-38")),
    "large-photos": ("photos of 500 pixels, d = 10,000", lambda: load_vectors(10_000, "caltech101-38", longest=500)),
    "dense": ("dense, d = 1,280", dense_vectors),
}
LOOKS = 24


def draw(y: np.ndarray, n_train: int, n_test: int, seed: int) -> list[np.ndarray]:
    """Rows to learn from and rows to query, so many of each class."""
    return of_each_class(y, np.random.default_rng(seed), n_train, n_test)


def curve(X: Any, y: np.ndarray, learned: np.ndarray, queries: np.ndarray, **parameters: Any) -> np.ndarray:
    """Seconds of learning, and mAP of the queries among each other, at some steps up to the last: (LOOKS, 2)."""
    points = []
    learner = OASIS(whiten=False, random_state=0, **parameters)
    learner.set_params(pass_steps=-(-learner.n_steps // LOOKS))

    def look(model: OASIS, spent: float) -> None:
        points.append((spent, quality(model, X[queries], y[queries])))

    fit_seconds(learner, X[learned], y[learned], look)
    return np.array(points)


def seconds_to(points: np.ndarray, wanted: float) -> float:
    """Seconds until the curve first reaches a precision, between two looks; infinite if it never does."""
    reached = np.flatnonzero(points[:, 1] >= wanted)
    if not len(reached):
        return np.inf
    i = reached[0]
    if i == 0:
        return points[0, 0]
    (t0, m0), (t1, m1) = points[i - 1], points[i]
    return t0 + (t1 - t0) * (wanted - m0) / (m1 - m0)


def plain_seconds(X: Any, y: np.ndarray, n_steps: int) -> float:
    """Seconds a triplet of the plain loop, after as many triplets to settle."""
    rows, sampler = as_rows(sp.csr_array(X)), TripletSampler(y)
    data, W = rows[2].astype(np.float64), np.eye(X.shape[1])
    triplets = [sampler.draw(stream(turn), n_steps) for turn in range(2)]
    return [seconds(plain_pass, rows, data, some, 0.1, W) for some in triplets][1] / n_steps


@functools.cache
def vectors(name: str) -> tuple:
    X, y, train = VECTORS[name][1]()
    return X, y, train


def compare(name: str, quick: bool) -> dict:
    X, y, _ = vectors(name)
    steps = 20_000 if quick else ONE_PAIR_STEPS
    own = {"n_steps": 100_000 if quick else 2_000_000}
    times, finals = [], []
    for fold in FOLDS[: 1 if quick else None]:
        learned, queries = draw(y, 40, 25, fold)
        one = curve(X, y, learned, queries, pairs_per_query=1, n_steps=steps)
        spent = plain_seconds(X[learned], y[learned], 2_000 if name == "dense" else 20_000)
        one[:, 0] = spent * np.linspace(0, steps, len(one) + 1)[1:]
        ours = curve(X, y, learned, queries, **own)
        wanted = NEAR * one[-1, 1]
        times.append((seconds_to(ours, wanted), seconds_to(one, wanted)))
        finals.append((ours[-1, 1], one[-1, 1]))
    ours, peer = np.median(times, axis=0)
    last, last_peer = np.mean(finals, axis=0)
    defaults = OASIS(**own)
    return record(
        f"oasis-race-{name}",
        f"to {100 * NEAR:g} % of the mAP that one pair a query ends with, {VECTORS[name][0]}: "
        f"{defaults.pairs_per_query} pairs a query; mAP after {defaults.n_steps:,} triplets {last:.4f}, of the "
        f"peer after {steps:,} {last_peer:.4f}",
        "plain double-precision loop, one pair a query",
        "W, read and written once a block of queries",
        compared(ours, peer, "s", len(times), ratio=float(np.median([b / a for a, b in times]))),
        measured=f"{len(times)} draws of 40 and 25 images a class, median, {THREAD.title}",
        ratio_of_folds=[b / a for a, b in times],
        finals=finals,
    )


def run(quick: bool = False) -> list[dict]:
    return [compare(name, quick) for name in VECTORS]
