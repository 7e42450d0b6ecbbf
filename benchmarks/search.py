"""Speed of exact search against what SciPy and NumPy do with the same arrays.

python -m benchmarks search [--quick]
"""

import time
from statistics import median

import numpy as np
import scipy.sparse as sp

from visterm.retrieval import ExactIndex

N_FEATURES = 10_000
ENTRIES_PER_IMAGE = 45
N_QUERIES = 256
K = 10
N_JOBS = 2


class InnerProduct:
    def transform(self, X):
        return X

    def transform_query(self, Q):
        return Q


def gallery(n_images: int, rng: np.random.Generator) -> sp.csr_matrix:
    """Unit rows; some visterms are frequent, most are rare, as in photographs."""
    columns = (N_FEATURES * rng.random((n_images, ENTRIES_PER_IMAGE)) ** 2).astype(np.int32)
    columns.sort(axis=1)
    values = rng.random((n_images, ENTRIES_PER_IMAGE), np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    indptr = np.arange(n_images + 1, dtype=np.int64) * ENTRIES_PER_IMAGE
    return sp.csr_matrix((values.ravel(), columns.ravel(), indptr), shape=(n_images, N_FEATURES))


def scipy_search(X: sp.csr_matrix, Q: np.ndarray, k: int) -> np.ndarray:
    """The usual way: sparse product, argpartition, sort of the k. Blocks of 64 queries, the fastest size."""
    found = []
    for start in range(0, len(Q), 64):
        scores = np.ascontiguousarray((X @ np.ascontiguousarray(Q[start : start + 64].T)).T)
        best = np.argpartition(-scores, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        found.append(np.take_along_axis(best, order, axis=1))
    return np.concatenate(found)


def seconds(functions, repeats: int = 7) -> list[float]:
    """Median time of each, taken in turns, so that a busy moment of the machine meets all of them."""
    times = [[] for _ in functions]
    for _ in range(repeats):
        for function, own in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            own.append(time.perf_counter() - start)
    return [median(own) for own in times]


def run(quick: bool = False) -> list[dict]:
    n_images = 20_000 if quick else 200_000
    rng = np.random.default_rng(0)
    X = gallery(n_images, rng)
    Q = rng.standard_normal((N_QUERIES, N_FEATURES), np.float32)
    index = ExactIndex(InnerProduct(), X, n_jobs=N_JOBS)
    # Both rank alike, but for the last bits of the sums. This also compiles the kernel.
    assert (index.search(Q, K).indices == scipy_search(X, Q, K)).mean() > 0.999
    ours, peer = seconds([lambda: index.search(Q, K), lambda: scipy_search(X, Q, K)])
    return [
        {
            "name": "search-exact",
            "ours": 1000 * ours / N_QUERIES,
            "peer": 1000 * peer / N_QUERIES,
            "peer_name": "scipy sparse product + argpartition",
            "ratio": peer / ours,
            "limit": "each entry of the gallery is read once for every 64 queries, and meets 64 numbers",
            "unit": "ms per query",
            "n": n_images,
            "command": "python -m benchmarks search",
        }
    ]
