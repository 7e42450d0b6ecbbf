"""Speed and memory of exact search: ``python -m benchmarks search [--quick]``.

Peers: a sparse product and argpartition by SciPy and NumPy on the same arrays and as many threads; and FAISS flat, in a
separate environment (benchmarks/peers.py), with the same gallery as dense vectors. Vectors are synthetic, with as many
non-zeros as photographs have. Queries are dense, as a learner's W makes them. Elapsed time.

A million images (`search-1m`): 35 entries each, the best 100, ours on two threads; the peer is SciPy's product alone,
`X @ Q.T`, which runs on one thread and leaves the scores unsorted, and that product with argpartition.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp

from visterm.retrieval import ExactIndex

from . import machine
from .peers import attempt, run_in
from .records import ELAPSED, compared, in_turns, race, record

ENTRIES = {1000: 25, 10_000: 45}  # non-zeros of an image, by the number of visterms
N_QUERIES = 256
K = 10
N_THREADS = 2
PEER_BLOCK = 64  # queries of one sparse product; the fastest size
FAISS = ("faiss-cpu==1.12.0", "numpy==2.4.6", "scipy==1.17.1")
FAISS_SCRIPT = """
import time
import faiss
import numpy as np
import scipy.sparse as sp

X = sp.csr_matrix((inputs["data"], inputs["indices"], inputs["indptr"]), shape=inputs["shape"])
faiss.omp_set_num_threads(int(inputs["threads"]))
index = faiss.IndexFlatIP(X.shape[1])
for start in range(0, X.shape[0], 10_000):  # never twice in memory
    index.add(X[start : start + 10_000].toarray())
times = []
for _ in range(int(inputs["repeats"]) + 1):
    start = time.perf_counter()
    indices = index.search(inputs["Q"], int(inputs["k"]))[1]
    times.append(time.perf_counter() - start)
outputs["seconds"] = np.median(times[1:])
outputs["found"] = indices
"""


class InnerProduct:
    def transform(self, X):
        return X

    def transform_query(self, Q):
        return Q


def gallery(n_images: int, d: int, rng: np.random.Generator, entries: int | None = None) -> sp.csr_matrix:
    """Unit rows; some visterms are frequent, most are rare, as in photographs."""
    entries = entries or ENTRIES[d]
    columns = (d * rng.random((n_images, entries), np.float32) ** 2).astype(np.int32)
    columns.sort(axis=1)
    values = rng.random((n_images, entries), np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    indptr = np.arange(n_images + 1, dtype=np.int64) * entries
    return sp.csr_matrix((values.ravel(), columns.ravel(), indptr), shape=(n_images, d))


def queries(n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((n, d), np.float32)


def scipy_search(X: sp.csr_matrix, Q: np.ndarray, k: int, threads: int) -> np.ndarray:
    """The usual way: sparse product, argpartition, sort of the k; blocks of queries on threads."""

    def block(start: int) -> np.ndarray:
        scores = np.ascontiguousarray((X @ np.ascontiguousarray(Q[start : start + PEER_BLOCK].T)).T)
        best = np.argpartition(-scores, k, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        return np.take_along_axis(best, order, axis=1)

    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(block, range(0, len(Q), PEER_BLOCK))))


def recall(wanted: np.ndarray, retrieved: np.ndarray) -> float:
    """Mean share of the wanted images of each query that are among those found."""
    return float(np.mean([np.isin(*both).mean() for both in zip(wanted, retrieved, strict=True)]))


def bound(X: sp.csr_matrix, n_queries: int, threads: int) -> float:
    """Least seconds per query: one number of the query is read from the cache per entry of the gallery.

    For a single query, reading the entries themselves from memory, 8 bytes each, is the limit.
    """
    if n_queries == 1:
        return 8 * X.nnz / machine.memory_bandwidth(threads)
    return 4 * X.nnz / machine.cache_bandwidth(4 * PEER_BLOCK * X.shape[1]) / threads


def against_scipy(name: str, X: sp.csr_matrix, n_queries: int, threads: int, repeats: int) -> dict:
    Q = queries(n_queries, X.shape[1], np.random.default_rng(1))
    index = ExactIndex(InnerProduct(), X, n_jobs=threads)
    # Rankings agree except where sums differ in their last bits.
    assert (index.search(Q, K).indices == scipy_search(X, Q, K, threads)).mean() > 0.99
    batch = f"in batches of {n_queries}" if n_queries > 1 else "alone"
    limit = "the query's number for each entry read" if n_queries > 1 else "8 bytes an entry of the gallery read"
    many = f"{threads} thread{'s'[: threads > 1]}"
    runs = lambda _: index.search(Q, K), lambda _: scipy_search(X, Q, K, threads)
    return record(
        name,
        f"a query {batch}, {X.shape[0]} images, {X.shape[1]} visterms, {many}",
        f"scipy's sparse product and argpartition, {many}",
        f": {limit}, at the bandwidth of the {'cache' if n_queries > 1 else 'memory'}",
        race(*runs, repeats, ELAPSED, unit="ms per query", things=n_queries, n=X.shape[0]),
        bound=bound(X, n_queries, threads),
    )


def of_a_million(n_images: int, repeats: int) -> list[dict]:
    """Single queries and batches of 100, against a plain call of SciPy."""
    d, k = 10_000, 100
    X = gallery(n_images, d, np.random.default_rng(0), entries=35)
    index = ExactIndex(InnerProduct(), X, n_jobs=N_THREADS)
    records = []
    for name, n_queries in (("", 1), ("-batch", 100)):
        Q = queries(n_queries, d, np.random.default_rng(1))
        runs = (
            lambda _, Q=Q: index.search(Q, k),
            lambda _, Q=Q: X @ Q.T,
            lambda _, Q=Q: np.argpartition(-(X @ Q.T), k, axis=0)[:k],
        )
        ours, *peers = 1000 * np.median(in_turns(*runs, rounds=repeats, clock=ELAPSED), axis=0) / n_queries
        for end, peer, what in zip(("", "-selection"), peers, ("product", "product and argpartition"), strict=True):
            records.append(
                record(
                    f"search-1m{name}{end}",
                    f"the best {k} of {n_images} images, {d} visterms, 35 entries, "
                    + (f"in batches of {n_queries}" if n_queries > 1 else "a query alone"),
                    f"scipy's sparse {what}, 1 thread",
                    ", as above",
                    compared(ours, peer, "ms per query", n_images),
                    measured=f"median of {repeats} in turns, ours {N_THREADS} threads, elapsed time",
                    bound=bound(X, n_queries, N_THREADS),
                )
            )
    return records


def against_faiss(d: int, n_images: int, repeats: int) -> dict:
    rng = np.random.default_rng(0)
    X, Q = gallery(n_images, d, rng), queries(N_QUERIES, d, rng)
    X.sum_duplicates()
    index = ExactIndex(InnerProduct(), X, n_jobs=N_THREADS)
    indices = index.search(Q, K).indices
    ours = float(np.median(in_turns(lambda _: index.search(Q, K), rounds=repeats, clock=ELAPSED)))
    csr = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    given = csr | {"Q": Q, "k": K, "threads": N_THREADS, "repeats": repeats}
    peer = run_in("faiss", FAISS, FAISS_SCRIPT, given, threads=N_THREADS)
    assert (indices == peer["found"]).mean() > 0.99
    sparse, dense = 8 * X.nnz / 1e6, 4 * n_images * d / 1e6
    arithmetic = 1000 * 2 * n_images * d / machine.flops(N_THREADS)
    return record(
        f"search-faiss-{d}",
        f"a query in batches of {N_QUERIES}, {n_images} images, {d} visterms; gallery of {sparse:.0f} MB",
        f"FAISS IndexFlatIP, dense gallery of {dense:.0f} MB, {N_THREADS} threads",
        f", as above; dense: {arithmetic:.2g} ms at the speed of matrix products",
        compared(1000 * ours / N_QUERIES, 1000 * float(peer["seconds"]) / N_QUERIES, "ms per query", n_images),
        measured=f"median of {repeats}, {N_THREADS} threads each, elapsed time",
        bound=bound(X, N_QUERIES, N_THREADS),
        ours_mb=sparse,
        peer_mb=dense,
    )


def run(quick: bool = False) -> list[dict]:
    n_images, repeats = (20_000, 3) if quick else (200_000, 7)
    X = gallery(n_images, 10_000, np.random.default_rng(0))
    records = [
        against_scipy("search-exact", X, N_QUERIES, N_THREADS, repeats),
        against_scipy("search-exact-1core", X, N_QUERIES, 1, repeats),
        against_scipy("search-one-query", X, 1, 1, repeats),
        *of_a_million(5 * n_images, repeats),
    ]
    # Sizes at which FAISS's dense vectors take at most 2 GB.
    for d, n in ((1000, n_images), (10_000, n_images // 4)):
        records += attempt(against_faiss, d, n, repeats)
    return records
