"""Search with Milvus as the first stage, 200,000 images: ``python -m benchmarks milvus [--quick]``.

Gallery, queries and similarity are those of two_stage: noisy copies of the vectors of Caltech-101, under OASIS trained
on them. Milvus is milvus-lite, in this process, and looks at all embeddings (FLAT); its indexes are in milvus_dense.
Recall is the share of the exact 10 best that are found, or, where embeddings are compared, that are among the
candidates, all inner products of embeddings being computed.

The peer of the random directions are the best ones, of which Z, S and U come as in two_stage.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import randomized_svd

from visterm.learners import OASIS
from visterm.plugins.milvus.milvus import CANDIDATES, DIRECTIONS, MilvusIndex, signs
from visterm.retrieval import ExactIndex

from .processes import peak_memory
from .records import ELAPSED, compared, record, seconds
from .search import recall
from .two_stage import N_QUERIES, SAMPLE, SET, D, K, alone, repeated
from .vectors import load_vectors

N_ALONE = 20
N_CHANGED = 1_000
ALL_DIRECTIONS = (128, 256, 512, 1024)
AT_ONCE = 20  # queries whose scores of all images are held


def among_candidates(gallery: np.ndarray, queries: np.ndarray, wanted: np.ndarray) -> float:
    """Share of the wanted images (n_queries, K) whose embeddings score among the best `CANDIDATES`."""
    shares = []
    for start in range(0, len(queries), AT_ONCE):
        for scores, rows in zip(queries[start : start + AT_ONCE] @ gallery.T, wanted[start:], strict=False):
            best = np.argpartition(-scores, CANDIDATES)[:CANDIDATES]
            shares.append(np.isin(rows, best).mean())
    return float(np.mean(shares))


def directions(learner: OASIS, T: sp.csr_matrix, Q: sp.csr_matrix, wanted: np.ndarray) -> list[dict]:
    """Random directions beside the best ones, the same number of each."""
    queries = learner.transform_query(Q)
    sample = T[np.random.default_rng(0).permutation(T.shape[0])[:SAMPLE]]
    H = learner.transform_query(sample)
    Z, S, Ut = randomized_svd(sample @ H.T, max(ALL_DIRECTIONS), random_state=0)
    records = []
    for n in ALL_DIRECTIONS:
        R = signs(D, n)
        ours = among_candidates(T @ R, queries @ R, wanted)
        best = (T @ (H.T @ Ut[:n].T)).astype(np.float32)
        peer = among_candidates(best, queries @ ((sample.T @ Z[:, :n]) / S[:n]), wanted)
        records.append(
            record(
                f"milvus-directions-{n}",
                f"{CANDIDATES} candidates of {T.shape[0]} images by embeddings of {n} random directions, OASIS",
                f"the {n} directions that err least on average",
                "1",
                compared(ours, peer, f"recall at {K}", T.shape[0], higher=True),
                measured=f"{len(wanted)} queries",
            )
        )
    return records


def check(index: MilvusIndex) -> None:
    """Assert that Milvus holds the rows that the index reports."""
    held = index.held()
    assert np.array_equal(held.ids, index.entries.ids)
    assert np.array_equal(held.fingerprints, index.entries.fingerprints)
    assert index.is_synchronized()


def in_milvus(learner: OASIS, T: sp.csr_matrix, Q: sp.csr_matrix, wanted: np.ndarray, more: sp.csr_matrix) -> list:
    """Create a collection, query it, add some images and remove as many."""
    n = T.shape[0]
    ids = np.arange(n + N_CHANGED)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "milvus.db")

        def opened(gallery: sp.csr_matrix, names: np.ndarray) -> MilvusIndex:
            return MilvusIndex(learner, gallery, ids=names, uri=file, collection="visterm_benchmark_oasis", kind="flat")

        index, exact = opened(T, ids[:n]), ExactIndex(learner, T, n_jobs=2)
        filling = seconds(index.synchronize, clock=ELAPSED)
        share = recall(wanted, index.search(Q, K).indices)
        ours, peer = alone(index, Q[:N_ALONE]), alone(exact, Q[:N_ALONE])
        together = seconds(index.search, Q, K, clock=ELAPSED) / Q.shape[0]

        grown = opened(sp.vstack([T, more], format="csr"), ids)
        adding = seconds(grown.synchronize, index.entries, clock=ELAPSED)
        check(grown)
        assert (grown.search(more[:100], 1).indices[:, 0] == n + np.arange(100)).all()  # new images are found

        stay = np.sort(np.random.default_rng(1).permutation(n + N_CHANGED)[:n])
        shrunk = opened(grown.gallery_[stay], ids[stay])
        removing = seconds(shrunk.synchronize, grown.entries, clock=ELAPSED)
        check(shrunk)
    gigabytes = peak_memory() / 1e9
    made = f"milvus-lite, {DIRECTIONS} directions, {CANDIDATES} candidates, {n} images, {D} visterms, OASIS"
    writing, once = f"writing all {n} images", "once, elapsed time"
    return [
        record(
            "milvus-recall",
            made,
            "exact search",
            "1",
            compared(share, 1.0, f"recall at {K}", n, higher=True),
            measured=f"{Q.shape[0]} queries; at most {gigabytes:.1f} GB of memory, all of the benchmark included",
        ),
        record(
            "milvus-query",
            f"a query alone, {made}",
            "exact search, 2 threads",
            "milvus-lite looks at every image in Python for a request, and makes a list of each candidate",
            compared(1000 * ours, 1000 * peer, "ms per query", n),
            measured=f"median of {N_ALONE} queries; {1000 * together:.0f} ms in a batch of {Q.shape[0]}",
        ),
        record(
            "milvus-add-1000",
            f"{N_CHANGED} images added to {n} in milvus-lite",
            writing,
            "the images that came, and none of the others",
            compared(adding, filling, "s", n),
            measured=once,
        ),
        record(
            "milvus-remove-1000",
            f"{N_CHANGED} images removed from {n + N_CHANGED} in milvus-lite",
            writing,
            "their ids",
            compared(removing, filling, "s", n),
            measured=once,
        ),
    ]


def run(quick: bool = False) -> list[dict]:
    X, y, train = load_vectors(D, SET)
    X = sp.csr_matrix(X)
    learner = OASIS(n_steps=2_000_000, random_state=0).fit(X[train], y[train])
    rng = np.random.default_rng(0)
    n = 10_000 if quick else 200_000
    T, Q, more = repeated(X, n, rng), repeated(X, N_QUERIES, rng), repeated(X, N_CHANGED, rng)
    wanted = ExactIndex(learner, T, n_jobs=2).search(Q, K).indices
    print(f"    {n} images, {T.nnz / n:.0f} visterms each", file=sys.stderr, flush=True)
    return in_milvus(learner, T, Q, wanted, more) + directions(learner, T, Q, wanted)
