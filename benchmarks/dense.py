"""Exact search of dense vectors, beside FAISS: ``python -m benchmarks dense [--quick]``.

100,000 unit vectors of 1,280 numbers, cosine, the best 10. They are the deep vectors of the photos of Corel-5K, drawn
with repetition, each with normal noise of a third of the mean magnitude, and scaled to unit length again. FAISS flat
has the same arrays, threads and processor; runs take turns.
"""

from __future__ import annotations

import numpy as np

from visterm.learners import Cosine
from visterm.retrieval import ExactIndex

from . import machine
from .open import images_of
from .records import ELAPSED, race, record

N_IMAGES, N_QUERIES, K = 100_000, 200, 10
NOISE = 0.3


def gallery(n: int) -> np.ndarray:
    """Unit vectors near those of photos: float32 (n, 1280)."""
    _, photos, _, _ = images_of("corel5k", "deep")
    rng = np.random.default_rng(0)
    X = np.asarray(photos, np.float32)[rng.integers(photos.shape[0], size=n)]
    X += NOISE * float(np.abs(X).mean()) * rng.standard_normal(X.shape, np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


def run(quick: bool = False) -> list[dict]:
    import faiss  # milvus-lite brings it

    X = gallery(5_000 if quick else N_IMAGES)
    n, d = X.shape
    Q = X[np.random.default_rng(1).permutation(n)[:N_QUERIES]]
    flat = faiss.IndexFlatIP(d)
    flat.add(X)
    learner, records = Cosine().fit(X), []
    for threads in (1, 2):
        index = ExactIndex(learner, X, n_jobs=threads)
        faiss.omp_set_num_threads(threads)
        wanted, ranking = flat.search(Q, K)[1], index.search(Q, K)
        same = float(np.mean([len(np.intersect1d(*both)) / K for both in zip(ranking.indices, wanted, strict=True)]))
        read = X.nbytes / machine.memory_bandwidth(threads)
        for name, size, limit in (
            ("alone", 1, f"{1e3 * read:.3g} ms: the gallery is read once"),
            ("batch", N_QUERIES, "the rate of the vector units: a multiplication and an addition for each number"),
        ):

            def rows(k: int, size: int = size) -> np.ndarray:
                first = 0 if size == len(Q) else k
                return Q[first : first + size]

            records.append(
                record(
                    f"search-dense-{name}-{threads}",
                    f"exact search, {n:,} deep vectors of {d:,} numbers, the best {K}, "
                    + (f"{size} queries at once" if size > 1 else "a query alone")
                    + f"; {same:.1%} of the results are those of FAISS",
                    "FAISS, flat",
                    limit,
                    race(
                        lambda k, index=index, rows=rows: index.search(rows(k), K),
                        lambda k, rows=rows: flat.search(rows(k), K),
                        9 if size > 1 else 31,
                        ELAPSED,
                        unit="ms per query",
                        things=size,
                        of=f"{threads} thread{'s'[: threads > 1]}",
                        paired=True,
                    ),
                )
            )
    return records
