"""Neighbours of a gallery, made, kept up to date and ranked by: ``python -m benchmarks neighbours [--quick]``.

Galleries repeat the deep vectors, or the visterms, of Caltech-101's 38 categories with noise, as in ``dense`` and
``two_stage``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visterm.learners import Cosine
from visterm.retrieval import ExactIndex, NeighbourIndex, Neighbours, StoredVectors, TwoStageIndex

from .dense import gallery
from .photos import images_of
from .records import ELAPSED, PROCESS, compared, race, record, timed
from .search import recall
from .two_stage import SET, D, repeated
from .vectors import load_vectors

MILLION = 1_000_000
ASKED = {4_000: 2.0, 100_000: 90.0, MILLION: 20 * 60.0}  # seconds to find the neighbours of so many photos
BLOCK = 10_000  # vectors made at once
ADDED, QUERIES = 1_000, 301
LIMIT = "the products of all pairs of vectors"
HOW = "once, two threads, elapsed time"


def timed_graph(X: Any, what: str, index: ExactIndex) -> tuple[Neighbours, dict]:
    """Seconds of a graph, and the share of the neighbours that it has."""
    n = X.shape[0]
    graph, spent = timed(lambda: Neighbours.of(index, X), clock=ELAPSED)
    rows = np.linspace(0, n - 1, 200).astype(int)
    same = recall(index.search(X[rows], graph.near.shape[1], exclude=rows).indices, graph.near[rows])
    figures = compared(spent, ASKED.get(n, spent), "s", n)
    title = f"neighbours of {n:,} photos, {what}"
    return graph, record(f"neighbours-{what}-{n}", title, "the target", LIMIT, figures, measured=HOW, same=same)


def million(photos: np.ndarray) -> list[dict]:
    """Seconds of a graph of a million vectors of float16, and what it adds to a query of an index in two stages."""
    halves = np.concatenate(
        [gallery(photos, BLOCK, seed).astype(np.float16) for seed in range(2, 2 + MILLION // BLOCK)]
    )
    X = StoredVectors([halves], np.zeros(MILLION), np.arange(MILLION))
    index = ExactIndex(Cosine().fit(X[:2]), X, n_jobs=2)
    graph, of_time = timed_graph(X, "deep", index)
    staged = TwoStageIndex(index.learner, X, n_jobs=2)
    return [of_time, searched(X, gallery(photos, 200, seed=1), "deep", staged, graph)]


def made(X: Any, what: str, index: ExactIndex) -> tuple[Neighbours, list[dict]]:
    """Seconds and bytes of a graph, and of one that photos are added to and removed from."""
    n = X.shape[0]
    graph, of_time = timed_graph(X, what, index)
    size = sum(array.nbytes for array in graph.arrays().values()) / n
    records = [of_time]
    few = ExactIndex(index.learner, X[: n - ADDED], n_jobs=2)
    before = Neighbours(graph.near[: n - ADDED] % (n - ADDED), graph.scores[: n - ADDED], graph.level, graph.scale)
    if n <= 20_000:
        before = Neighbours.of(few, X[: n - ADDED])
    after, added = timed(lambda: before.updated(index, X, np.arange(n - ADDED)), clock=ELAPSED)
    same = np.mean([len(np.intersect1d(a, b)) for a, b in zip(after.near[::97], graph.near[::97], strict=True)])
    kept = np.delete(np.arange(n), np.arange(0, n, n // 100))
    rows = np.full(n, -1)
    rows[kept] = np.arange(len(kept))
    left = X[kept]
    rest = ExactIndex(index.learner, left, n_jobs=2)
    _, removed = timed(lambda: graph.updated(rest, left, rows), clock=ELAPSED)
    of_change = f"{what}, {n:,} photos"
    records += [
        record(
            f"neighbours-{what}-{n}-added",
            f"adding {ADDED:,} photos to the neighbours of {of_change}",
            "the target",
            LIMIT,
            compared(added, 3.0, "s", ADDED),
            measured=HOW,
            same=float(same / graph.near.shape[1]),
        ),
        record(
            f"neighbours-{what}-{n}-removed",
            f"removing 100 photos, {of_change}",
            "the target",
            LIMIT,
            compared(removed, 1.0, "s", 100),
            measured=HOW,
        ),
        record(
            f"neighbours-{what}-{n}-bytes",
            f"disk of the neighbours of {of_change}",
            "the target",
            "ids, scores and shares of 21 neighbours and 32 entries",
            compared(size, 400.0, "bytes a photo", n),
            measured="of the arrays",
        ),
    ]
    return graph, records


def searched(X: Any, Q: Any, what: str, index: ExactIndex, graph: Neighbours) -> dict:
    """Milliseconds of a query with neighbours, beside the same index alone."""
    n, by = X.shape[0], NeighbourIndex(index, graph, X)
    runs = (lambda i, one=one: one.search(Q[[i % Q.shape[0]]], 10) for one in (by, index))
    times = race(*runs, QUERIES, PROCESS, unit="ms", n=n)
    return record(
        f"neighbours-{what}-{n}-query",
        f"a query of {n:,} photos by neighbours, {what}",
        "the same index alone",
        "what the index alone takes",
        times,
        more=times["ours"] - times["peer"],
    )


def run(quick: bool = False) -> list[dict]:
    records = []
    photos = images_of("caltech101", "deep")[1]
    counted = load_vectors(D, SET)[0].astype(np.float32)
    for n in (4_000,) if quick else (4_000, 100_000):
        galleries = {
            "deep": (gallery(photos, n), gallery(photos, 200, seed=1)),
            "visterms": (
                repeated(counted, n, np.random.default_rng(0)),
                repeated(counted, 200, np.random.default_rng(1)),
            ),
        }
        for what, (X, Q) in galleries.items():
            index = ExactIndex(Cosine().fit(X[:2]), X, n_jobs=2)
            graph, of_graph = made(X, what, index)
            records += [*of_graph, searched(X, Q, what, index, graph)]
    return records if quick else records + million(photos)
