"""Search in two stages of a million images: ``python -m benchmarks two_stage [--quick]``.

The gallery repeats the vectors of Caltech-101's 38 categories with noise. A copy of an image has each of its entries
replaced, with probability 1/2, by an entry drawn from all images, multiplies every weight by a number drawn from 0.5 to
1.5, and is scaled to unit length again; queries are further such copies. So no two images are alike, and what a query
shares with the copies of its own image is a quarter of its entries. The similarity is OASIS's, trained on the images.

Peers: exact search; and what a low-rank embedding of the same score finds in FAISS, in an environment of its own. Its
128 directions are the best for the gallery: with H the query sides and T the gallery sides of a sample of s images,

    T H' ~ Z S U',    a(q) = sqrt(s) S^-1 Z' T h(q),    g(x) = U' H t(x) / sqrt(s),    a(q)' g(x) ~ s(q, x)

Largest inner products become smallest distances by the further coordinate sqrt(max |g|^2 - |g(x)|^2), 0 for queries.
Recall is the share of the exact 10 best among the candidates, which is what exact scores of the candidates leave.
"""

from statistics import median

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize
from sklearn.utils.extmath import randomized_svd

from visterm.learners import OASIS
from visterm.retrieval import ExactIndex, TwoStageIndex

from . import machine
from .peers import attempt, run_in
from .records import ELAPSED, compared, record, seconds, timed
from .search import FAISS, recall
from .vectors import load_vectors

SET = "caltech101-38"
D = 10_000
K = 10
N_QUERIES = 200
N_COMPONENTS = 128
SAMPLE = 4096
REPLACED = 0.5
INDEXES = {"hnsw": "HNSW of 32 links", "ivf": "IVF, four times the root of the images as lists, 64 of them searched"}
FAISS_SCRIPT = """
import time
import faiss
import numpy as np

faiss.omp_set_num_threads(int(inputs["threads"]))
G, A, n = inputs["gallery"], inputs["queries"], int(inputs["candidates"])
if inputs["kind"] == "hnsw":
    index = faiss.IndexHNSWFlat(G.shape[1], 32)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, n
else:
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(G.shape[1]), G.shape[1], round(4 * len(G) ** 0.5))
    index.nprobe = 64
    index.train(G)
index.add(G)
faiss.omp_set_num_threads(1)
times, indices = [], []
for query in A:
    start = time.perf_counter()
    indices.append(index.search(query[None], n)[1][0])
    times.append(time.perf_counter() - start)
outputs["seconds"], outputs["found"] = np.median(times), indices
"""


def repeated(X: sp.csr_matrix, n: int, rng: np.random.Generator) -> sp.csr_matrix:
    """N noisy copies of images drawn at random; see the head of the file."""
    copies = sp.csr_matrix(X[rng.integers(0, X.shape[0], n)])
    swapped = np.flatnonzero(rng.random(copies.nnz, np.float32) < REPLACED)
    others = rng.integers(0, X.nnz, len(swapped))
    copies.indices[swapped], copies.data[swapped] = X.indices[others], X.data[others]
    copies.data *= rng.random(copies.nnz, np.float32) + np.float32(0.5)
    copies.has_sorted_indices = copies.has_canonical_format = False
    copies.sum_duplicates()
    return normalize(copies, copy=False)


def alone(index: ExactIndex, Q: sp.csr_matrix) -> float:
    """Median seconds of a single query."""
    index.search(Q[:1], K)
    return median(seconds(index.search, Q[row], K, clock=ELAPSED) for row in range(Q.shape[0]))


def embed(learner: OASIS, T: sp.csr_matrix, Q: sp.csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """g of the gallery and a of the queries, with the further coordinate."""
    sample = T[np.random.default_rng(0).permutation(T.shape[0])[:SAMPLE]]
    H, s = learner.transform_query(sample), sample.shape[0]
    Z, S, Ut = randomized_svd(sample @ H.T, N_COMPONENTS, random_state=0)
    A = learner.transform_query(Q) @ ((sample.T @ Z) / S * s**0.5)
    G = T @ (H.T @ Ut.T / s**0.5)
    squares = (G**2).sum(axis=1)
    gallery = np.c_[G, np.sqrt(squares.max() - squares)].astype(np.float32)
    return gallery, np.c_[A, np.zeros(len(A))].astype(np.float32)


def against_faiss(kind: str, learner: OASIS, T: sp.csr_matrix, Q: sp.csr_matrix) -> list[dict]:
    index = TwoStageIndex(learner, T)
    gallery, queries = embed(learner, T, Q)
    n = index.n_candidates
    given = {"gallery": gallery, "queries": queries, "candidates": n, "kind": kind, "threads": 2}
    peer = run_in("faiss", FAISS, FAISS_SCRIPT, given, timeout=1800, threads=2)
    theirs = recall(ExactIndex(learner, T).search(Q, K).indices, peer["found"])
    name, what = f"search-two-stage-{kind}", f"{n} candidates of {T.shape[0]} images, {D} visterms, OASIS"
    peer_name = f"FAISS {INDEXES[kind]}, of {N_COMPONENTS} directions"
    measured = f"{Q.shape[0]} queries, one after the other, 1 thread"
    shares = compared(index.recall(Q, K), theirs, f"recall at {K}", T.shape[0], higher=True)
    times = compared(1000 * alone(index, Q), 1000 * float(peer["seconds"]), "ms per query", T.shape[0])
    limit = "ours with W's product and exact scores, the peer without"
    return [
        record(f"{name}-recall", what, peer_name, "1", shares, measured=measured),
        record(name, what, peer_name, limit, times, measured=measured),
    ]


def against_exact(learner: OASIS, T: sp.csr_matrix, Q: sp.csr_matrix) -> dict:
    index, built = timed(TwoStageIndex, learner, T, clock=ELAPSED)
    exact = ExactIndex(learner, T, n_jobs=2)
    recall_at_k = index.recall(Q, K)
    return record(
        "search-two-stage-1m",
        f"a query alone, {T.shape[0]} images, {D} visterms, OASIS; recall at {K} of {recall_at_k:.4f}",
        "exact search, 2 threads",
        ": W's rows of the query's visterms read, at the bandwidth of the memory",
        compared(1000 * alone(index, Q), 1000 * alone(exact, Q[:50]), "ms per query", T.shape[0]),
        measured=f"median of {Q.shape[0]} queries, 1 thread; built in {built:.1f} s",
        bound=4 * T.nnz / T.shape[0] * D / machine.memory_bandwidth(1),
        recall=recall_at_k,
    )


def run(quick: bool = False) -> list[dict]:
    X, y, train = load_vectors(D, SET)
    X = sp.csr_matrix(X)
    learner = OASIS(n_steps=2_000_000, random_state=0).fit(X[train], y[train])
    rng = np.random.default_rng(0)
    n = 20_000 if quick else 1_000_000
    T, Q = repeated(X, n, rng), repeated(X, N_QUERIES, rng)
    records = [against_exact(learner, T, Q)]
    for kind in INDEXES:
        records += sum(attempt(against_faiss, kind, learner, T[: n // 5], Q), [])
    return records
