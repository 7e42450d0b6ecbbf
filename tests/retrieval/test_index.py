import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from galleries import Bilinear
from hypothesis import given, settings
from hypothesis import strategies as st

from visterm.retrieval import ExactIndex, Ranking
from visterm.retrieval import index as index_module


def slow_ranking(scores, k, exclude=None):
    """Stable argsort of the negated scores: score descending, then index ascending."""
    scores = scores.astype(np.float64)
    indices = np.full((len(scores), k), -1)
    for query, row in enumerate(scores):
        order = np.argsort(-row, kind="stable")
        if exclude is not None:
            order = order[order != exclude[query]]
        indices[query, : min(k, len(order))] = order[:k]
    return indices


def tied_vectors(rng, n, d, density=0.4):
    """Small integers: float32 sums are exact, and many scores are equal."""
    return (rng.integers(-1, 3, size=(n, d)) * (rng.random((n, d)) < density)).astype(np.float32)


@pytest.fixture(autouse=True, scope="module")
def threads_for_little_work():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "WORK_FOR_THREADS", 0)
        patch.setattr(index_module, "SPARE", 2)  # of small galleries, too, BLAS chooses candidates
        patch.setattr(index_module, "CANDIDATES_SHARE", 0.9)
        yield


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    n_queries=st.sampled_from([1, 2, 5, 7, 20, 70, 130]),
    n_gallery=st.integers(1, 60),
    d=st.integers(1, 9),
    sparse=st.booleans(),
    n_jobs=st.sampled_from([1, 2]),
    data=st.data(),
)
def test_equals_brute_force_with_many_ties(seed, n_queries, n_gallery, d, sparse, n_jobs, data):
    rng = np.random.default_rng(seed)
    X, Q = tied_vectors(rng, n_gallery, d), tied_vectors(rng, n_queries, d)
    k = data.draw(st.integers(1, n_gallery))
    exclude = rng.integers(-1, n_gallery, size=n_queries) if data.draw(st.booleans()) else None
    gallery = sp.csr_matrix(X) if sparse else X

    ranking = ExactIndex(Bilinear(), gallery, n_jobs=n_jobs).search(Q, k, exclude=exclude)

    expected = slow_ranking(Q @ X.T, k, exclude)
    np.testing.assert_array_equal(ranking.indices, expected)
    scores = np.where(expected >= 0, np.take_along_axis(Q @ X.T, expected, axis=1), -np.inf)
    np.testing.assert_array_equal(ranking.scores, scores)
    assert ranking.indices.dtype == np.int32
    assert ranking.scores.dtype == np.float32


@pytest.mark.parametrize("sparse", [True, False])
def test_scores_do_not_depend_on_blocks_threads_or_neighbours(sparse):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 157)).astype(np.float32) * (rng.random((300, 157)) < 0.3)
    X[-50:] = X[100]  # equal images tie exactly, and the smaller index comes first
    X = sp.csr_matrix(X) if sparse else X
    Q = rng.standard_normal((600, 157)).astype(np.float32)
    before = X.copy(), Q.copy()
    one = ExactIndex(Bilinear(), X).search(Q)
    rows, places = np.nonzero((one.indices >= 250) | (one.indices == 100))
    np.testing.assert_array_equal(one.indices[rows, places].reshape(600, 51), [[100, *range(250, 300)]] * 600)
    assert (np.ptp(one.scores[rows, places].reshape(600, 51), axis=1) == 0).all()
    two = ExactIndex(Bilinear(), X, n_jobs=2).search(Q)
    np.testing.assert_array_equal(one.indices, two.indices)
    np.testing.assert_array_equal(one.scores, two.scores)  # bit for bit
    index = ExactIndex(Bilinear(), X, n_jobs=2)
    for start, stop in [(0, 1), (0, 3), (5, 12), (100, 165), (599, 600)]:
        part = index.search(Q[start:stop])
        np.testing.assert_array_equal(part.indices, one.indices[start:stop])
        np.testing.assert_array_equal(part.scores, one.scores[start:stop])
    assert (before[0] != X).sum() == 0  # the caller's arrays are as they were
    np.testing.assert_array_equal(Q, before[1])


def in_order(X, q):
    """Scores of all rows, each a float32 sum in the order of the columns."""
    total = np.zeros(len(X), np.float32)
    for x, weight in zip(X.T, q, strict=True):
        total += x * weight
    return total


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    n_queries=st.sampled_from([1, 3, 40, 140]),  # of 140, each thread takes a part
    n_jobs=st.sampled_from([1, 2]),
    excluded=st.booleans(),
    spread=st.sampled_from([0.0, 1e-7, 1e-5, 1.0]),  # of the gallery: equal images, near ties, others
)
def test_candidates_hold_the_best_of_dense_galleries(seed, n_queries, n_jobs, excluded, spread):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal(37) + spread * rng.standard_normal((300, 37))).astype(np.float32)
    X[150:] = X[rng.permutation(150)]  # each image twice
    Q = rng.standard_normal((n_queries, 37)).astype(np.float32)
    exclude = rng.integers(-1, 300, size=n_queries) if excluded else None
    ranking = ExactIndex(Bilinear(), X, n_jobs=n_jobs).search(Q, 9, exclude=exclude)
    scores = np.stack([in_order(X, q) for q in Q])
    expected = slow_ranking(scores, 9, exclude)
    np.testing.assert_array_equal(ranking.indices, expected)
    np.testing.assert_array_equal(ranking.scores, np.take_along_axis(scores, expected, axis=1))


@given(
    values=st.lists(
        st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0]),
        min_size=1,
        max_size=40,
    ),
    seed=st.integers(0, 100),
)
def test_sorting_by_bits(values, seed):
    scores = np.array([*values, -np.inf], np.float32)
    indices = np.append(np.random.default_rng(seed).permutation(len(values)), -1).astype(np.int32)
    sorted_scores, sorted_indices = index_module.best_first(scores[None], indices[None])
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], indices[i]))
    np.testing.assert_array_equal(sorted_indices[0], indices[order])
    np.testing.assert_array_equal(sorted_scores[0], scores[order])


def test_scores_of_all_queries_and_images_are_never_held_at_once():
    n_queries, n_gallery = 800, 20_000
    rng = np.random.default_rng(0)
    index = ExactIndex(Bilinear(), sp.random(n_gallery, 20, density=0.1, dtype=np.float32, rng=rng))
    Q = rng.random((n_queries, 20), np.float32)
    index.search(Q[:100], k=5)  # compiles
    tracemalloc.start()
    try:
        index.search(Q, k=5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * n_queries * n_gallery / 20


def test_sparse_dense_and_every_query_type_agree():
    rng = np.random.default_rng(2)
    X, Q = tied_vectors(rng, 40, 8), tied_vectors(rng, 9, 8)
    W = rng.integers(-2, 3, size=(8, 8)).astype(np.float32)
    expected = slow_ranking(Q @ W @ X.T, 40)
    sparse = sp.csr_matrix(X), sp.csr_array(X), sp.coo_matrix(X)
    for gallery in (X, X.astype(np.float64), np.asfortranarray(X), *sparse):
        for queries in (Q, sp.csr_matrix(Q), Q.tolist()):
            similarity = Bilinear(W) if not isinstance(queries, list) else Bilinear()
            ranking = ExactIndex(similarity, gallery).search(queries)
            want = expected if not isinstance(queries, list) else slow_ranking(Q @ X.T, 40)
            np.testing.assert_array_equal(ranking.indices, want)


@pytest.mark.slow
def test_memory_mapped_read_only_and_long_indices(tmp_path):
    rng = np.random.default_rng(3)
    X, Q = tied_vectors(rng, 40, 8), tied_vectors(rng, 9, 8)
    csr = sp.csr_matrix(X)
    arrays = {"data": csr.data, "indices": csr.indices.astype(np.int64), "indptr": csr.indptr.astype(np.int64)}
    mapped = {}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        mapped[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    gallery = sp.csr_matrix(X.shape, dtype=np.float32)
    gallery.data, gallery.indices, gallery.indptr = mapped["data"], mapped["indices"], mapped["indptr"]
    expected = slow_ranking(Q @ X.T, 40)
    np.testing.assert_array_equal(ExactIndex(Bilinear(), gallery).search(Q).indices, expected)

    np.save(tmp_path / "dense.npy", X)
    dense = np.load(tmp_path / "dense.npy", mmap_mode="r")
    index = ExactIndex(Bilinear(), dense)
    np.testing.assert_array_equal(index.search(Q).indices, expected)
    assert np.shares_memory(index.gallery_, dense)
    Q.setflags(write=False)
    np.testing.assert_array_equal(index.search(Q[:1]).indices, expected[:1])


def test_the_query_is_removed_by_identity_not_by_score():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # rows 0 and 1 are equal
    ranking = ExactIndex(Bilinear(), X).search(X, exclude=np.arange(3))
    np.testing.assert_array_equal(ranking.indices, [[1, 2], [0, 2], [0, 1]])


def test_k_and_the_filling_of_short_lists():
    X = np.array([[3.0], [2.0], [1.0]])
    index = ExactIndex(Bilinear(), X)
    assert index.search([[1.0]]).k == 3
    # Some query may rank everything, so the others are filled.
    ranking = index.search([[1.0], [1.0]], exclude=[-1, 1])
    np.testing.assert_array_equal(ranking.indices, [[0, 1, 2], [0, 2, -1]])
    np.testing.assert_array_equal(ranking.scores, [[3, 2, 1], [3, 1, -np.inf]])
    # No query may rank everything, so there is no filling unless k asks for it.
    assert index.search([[1.0]], exclude=[1]).k == 2
    np.testing.assert_array_equal(index.search([[1.0]], k=3, exclude=[1]).indices, [[0, 2, -1]])
    for k in (0, -1, 4):
        with pytest.raises(ValueError, match="k must be between 1 and the 3 images of the gallery"):
            index.search([[1.0]], k=k)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_few_images_and_queries(sparse, n_jobs):
    X = np.zeros((1, 4), np.float32)
    index = ExactIndex(Bilinear(), sp.csr_matrix(X) if sparse else X, n_jobs=n_jobs)
    ranking = index.search(np.zeros((2, 4)), exclude=[-1, 0])
    np.testing.assert_array_equal(ranking.indices, [[0], [-1]])
    np.testing.assert_array_equal(ranking.scores, [[0.0], [-np.inf]])
    nothing = index.search(np.zeros((0, 4)), k=1)
    assert nothing.indices.shape == (0, 1)
    assert len(nothing) == 0


@pytest.mark.parametrize("n_queries", [1, 20])
def test_scores_that_overflow(n_queries):
    huge = np.full((3, 2), 1e30, np.float32)
    with pytest.raises(ValueError, match="overflow float32"):
        ExactIndex(Bilinear(), huge).search(np.full((n_queries, 2), -1e30))
    with pytest.raises(ValueError, match="not a number"):
        ExactIndex(Bilinear(), huge).search(np.tile([1e30, -1e30], (n_queries, 1)))


def test_bad_input():
    index, damaged = ExactIndex(Bilinear(), sp.eye_array(3, format="csr")), sp.eye_array(3, format="csr")
    damaged.indices[2] = 7  # the kernel would read outside the query
    for call, message in (
        (lambda: index.search(np.ones((1, 4))), "the gallery has 3 columns"),
        (lambda: index.search(np.ones(3)), "queries must have the shape"),
        (lambda: index.search(np.ones((1, 3)), k=1.5), "k must be between 1 and the 3 images of the gallery, got 1.5"),
        (lambda: ExactIndex(Bilinear(), np.ones(3)), "a gallery must have the shape"),
        (lambda: index.search(np.ones((2, 3)), exclude=[1]), "exclude needs one integer for each of the 2 queries"),
        (lambda: index.search(np.ones((2, 3)), exclude=[1.0, 2.0]), "exclude needs one integer"),
        (lambda: index.search(np.ones((2, 3)), exclude=[1, 3]), "exclude must name rows of the gallery, 0 to 2"),
        (lambda: ExactIndex(Bilinear(), np.zeros((0, 3))), "gallery is empty"),
        (lambda: ExactIndex(Bilinear(), sp.csr_matrix((0, 3))), "gallery is empty"),
        (lambda: ExactIndex(Bilinear(), damaged), "indices must be < 3"),
        (lambda: Ranking(np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32)), "one shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for bad in (np.nan, np.inf, -np.inf):
        X = np.diag([1, bad, 1])
        for gallery in (X, sp.csr_matrix(X)):
            with pytest.raises(ValueError, match="the gallery holds NaN or infinity"):
                ExactIndex(Bilinear(), gallery)
        with pytest.raises(ValueError, match="the queries hold NaN or infinity"):
            index.search(X)
