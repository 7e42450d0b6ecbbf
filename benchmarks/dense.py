"""Search of dense vectors, exact and in two stages, beside FAISS: ``python -m benchmarks dense [--quick]``.

100,000 unit vectors of 1,280 numbers, the best 10. They are the deep vectors of the photos of Corel-5K, drawn with
repetition, each with normal noise of a third of the mean magnitude, and scaled to unit length again. FAISS flat has the
same arrays, threads and processor; runs take turns.

In two stages, queries are those of cosine, and of OASIS trained on the labels of the photos: with the share of what it
learned that its training chose, and with all of it. Whitening pulls query sides of the latter far away from all images,
and the noise of the gallery, alike in all directions, counts most in those where photos hardly differ; the index then
keeps more images in view. The peer is FAISS's graph of float32 vectors as it comes (HNSW, 16 links, 64 images in view),
given the same query sides: its times are without the product of a query with W.
"""

from __future__ import annotations

import numpy as np

from visterm.learners import OASIS, Blend, Cosine
from visterm.retrieval import ExactIndex, TwoStageIndex

from . import machine
from .photos import images_of
from .records import ELAPSED, PROCESS, compared, race, record, timed
from .search import recall

N_IMAGES, N_QUERIES, K = 100_000, 200, 10
NOISE = 0.3
LINKS, IN_VIEW = 16, 64  # of the peer's graph
THREADS = 2  # that build


def gallery(photos: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
    """Unit vectors near those of photos: float32 (n, 1280)."""
    rng = np.random.default_rng(seed)
    X = np.asarray(photos, np.float32)[rng.integers(photos.shape[0], size=n)]
    X += NOISE * float(np.abs(X).mean()) * rng.standard_normal(X.shape, np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X


def exactly(X: np.ndarray, Q: np.ndarray) -> list[dict]:
    """Exact search beside FAISS flat: a query alone and a batch, one thread and two."""
    import faiss

    n, d = X.shape
    flat = faiss.IndexFlatIP(d)
    flat.add(X)
    learner, records = Cosine().fit(X), []
    for threads in (1, 2):
        index = ExactIndex(learner, X, n_jobs=threads)
        faiss.omp_set_num_threads(threads)
        wanted, ranking = flat.search(Q, K)[1], index.search(Q, K)
        same = recall(wanted, ranking.indices)
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


def in_two_stages(X: np.ndarray, Q: np.ndarray, oasis: OASIS) -> list[dict]:
    """The graph beside FAISS's own: how long it takes to build, a query alone, and how many of the best are found."""
    import faiss

    n, d = X.shape
    cosine = Cosine().fit(X)
    index, ours = timed(lambda: TwoStageIndex(cosine, X, n_jobs=THREADS), clock=PROCESS)
    faiss.omp_set_num_threads(THREADS)
    graph = faiss.IndexHNSWFlat(d, LINKS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efSearch = IN_VIEW
    _, theirs = timed(graph.add, X, clock=PROCESS)
    faiss.omp_set_num_threads(1)
    vectors, peer = f"{n:,} deep vectors of {d:,} numbers", f"FAISS, HNSW of {LINKS} links"
    records = [
        record(
            "search-dense-build",
            f"building the index in two stages, {vectors}",
            peer,
            "a walk through the graph for each image",
            compared(ours, theirs, "s", n),
            measured=f"once each, processor time of {THREADS} threads",
        )
    ]
    exact = ExactIndex(cosine, X, n_jobs=THREADS)
    learned = f"OASIS, {oasis.learned_weight_:g} of what it learned"
    for name, title, learner in (
        ("cosine", "cosine", cosine),
        ("oasis", learned, Blend(oasis)),
        ("oasis-all", "OASIS, all of what it learned", oasis),
    ):
        index.learner = exact.learner = learner
        sides = np.ascontiguousarray(learner.transform_query(Q), np.float32)
        wanted = exact.search(Q, K).indices
        recalls = recall(wanted, index.search(Q, K).indices), recall(wanted, graph.search(sides, K)[1])
        what = f"{title}, a query alone in two stages, {vectors}, the best {K}"
        records += [
            record(
                f"search-dense-two-stage-{name}",
                f"{what}; recall {recalls[0]:.4f}",
                f"{peer}, {IN_VIEW} in view; recall {recalls[1]:.4f}",
                "the images in view, read from memory",
                race(
                    lambda k: index.search(Q[k % len(Q)][None], K),
                    lambda k, sides=sides: graph.search(sides[k % len(Q)][None], K),
                    len(Q) - 1,
                    unit="ms per query",
                    paired=True,
                ),
            ),
            record(
                f"search-dense-recall-{name}",
                f"{what}: recall at {K}",
                f"{peer}, {IN_VIEW} in view",
                "1",
                compared(*recalls, "recall", len(Q), higher=True),
                measured=f"{len(Q)} queries",
            ),
        ]
    return records


def run(quick: bool = False) -> list[dict]:
    _, photos, y, _ = images_of("corel5k", "deep")
    X = gallery(photos, 5_000 if quick else N_IMAGES)
    Q = X[np.random.default_rng(1).permutation(len(X))[:N_QUERIES]]
    oasis = OASIS(n_steps=20_000 if quick else 200_000, validation_fraction=0.2, random_state=0)
    oasis.fit(photos, y, world="open", learned_weight=None)
    return exactly(X, Q) + in_two_stages(X, Q, oasis)
