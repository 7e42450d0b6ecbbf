import numpy as np
import pytest
import scipy.sparse as sp
from galleries import Bilinear, D, assert_same, bilinear, photographs
from sklearn.preprocessing import normalize

from visterm.retrieval import ExactIndex, TwoStageIndex, two_stage


@pytest.fixture(scope="module")
def learner():
    return bilinear()


@pytest.fixture(scope="module")
def sparse():
    return photographs(np.random.default_rng(1), 2000)


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 24))[rng.integers(0, 40, 2000)] + rng.standard_normal((2000, 24))
    return normalize(X).astype(np.float32)


def queries_near(X, rng, n=50):
    """Rows of the gallery that have lost some of their entries, dense unit rows."""
    rows = rng.integers(0, X.shape[0], n)
    Q = X[rows].toarray() if sp.issparse(X) else X[rows]
    return normalize(Q * (rng.random(Q.shape) < 0.7))


def test_finds_what_exact_search_finds_among_few_candidates(learner, sparse):
    Q = queries_near(sparse, np.random.default_rng(3))
    index = TwoStageIndex(learner, sparse, n_candidates=120)
    assert index.recall(Q, k=10) >= 0.98
    ranking, wanted = index.search(Q, 10), ExactIndex(learner, sparse).search(Q, 10)
    same = ranking.indices == wanted.indices
    assert same.mean() >= 0.95
    np.testing.assert_array_equal(ranking.scores[same], wanted.scores[same])  # bit for bit


def test_fewer_visterms_find_less(learner, sparse, monkeypatch):
    Q = queries_near(sparse, np.random.default_rng(3))
    index = TwoStageIndex(learner, sparse, n_candidates=100)
    monkeypatch.setattr(two_stage, "COLUMNS", 1)
    assert index.recall(Q, k=10) < 0.8


def test_a_column_that_all_images_share_takes_no_place(sparse, monkeypatch):
    # As LEGO's gallery side ends: the same large number nearly everywhere.
    monkeypatch.setattr(two_stage, "COLUMNS", 10)
    last = 5 + 1e-4 * np.random.default_rng(0).random((sparse.shape[0], 1))
    X = sp.hstack([sparse, last], format="csr", dtype=np.float32)
    Q = X[:50].copy()
    assert TwoStageIndex(Bilinear(), X, n_candidates=100).recall(Q, k=1) == 1


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_as_many_candidates_as_images_make_it_exact(kind, learner, request):
    X = request.getfixturevalue(kind)
    given = learner if kind == "sparse" else Bilinear()
    Q = queries_near(X, np.random.default_rng(5), 5)
    wanted = ExactIndex(given, X)
    assert_same(TwoStageIndex(given, X, n_candidates=len(Q)).search(Q), wanted.search(Q))  # k of all
    assert_same(TwoStageIndex(given, X, n_candidates=2000).search(Q, 7), wanted.search(Q, 7))


def test_equal_images_tie_exactly_and_the_smaller_index_comes_first(sparse, learner):
    X = sp.vstack([sparse, sparse[:30], sparse[:30]], format="csr")
    ranking = TwoStageIndex(learner, X, n_candidates=60).search(sparse[:30], 3)
    np.testing.assert_array_equal(ranking.indices, np.arange(30)[:, None] + [0, 2000, 2030])
    assert (ranking.scores == ranking.scores[:, :1]).all()


@pytest.mark.parametrize("options", [None, {"n_candidates": 200}], ids=["exact", "two stages"])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_results_do_not_depend_on_the_batch_or_threads(options, kind, request, monkeypatch):
    monkeypatch.setattr(two_stage, "MANY_IMAGES", 0)
    X = request.getfixturevalue(kind)
    index = ExactIndex(Bilinear(), X) if options is None else TwoStageIndex(Bilinear(), X, **options)
    for Q in (queries_near(X, np.random.default_rng(6)), X[:50] * np.float32(0.7)):
        together = index.search(Q, 10)
        for size in (1, 7, 50):
            index.n_jobs = 2 if size == 50 else 1
            parts = [index.search(Q[start : start + size], 10) for start in range(0, 50, size)]
            assert np.concatenate([part.scores for part in parts]).tobytes() == together.scores.tobytes()
            assert np.concatenate([part.indices for part in parts]).tobytes() == together.indices.tobytes()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_the_query_is_removed_by_identity(kind, request):
    X = request.getfixturevalue(kind)
    index = TwoStageIndex(Bilinear(), X, n_candidates=200)
    ranking = index.search(X[:40], 5, exclude=np.arange(40))
    assert not (ranking.indices == np.arange(40)[:, None]).any()
    assert (ranking.indices >= 0).all()
    with pytest.raises(ValueError, match="exclude must name rows of the gallery"):
        index.search(X[:1], 5, exclude=[2000])


def test_many_results_get_more_candidates(sparse, learner):
    index = TwoStageIndex(learner, sparse, n_candidates=1)
    ranking = index.search(sparse[:5], 300)
    assert (ranking.indices >= 0).all()
    assert index.recall(sparse[:5], 300) > 0.9
    nothing = index.search(sp.csr_matrix((1, D), dtype=np.float32), 4)
    np.testing.assert_array_equal(nothing.indices, [[0, 1, 2, 3]])


def test_an_index_of_sparse_vectors_is_not_saved(sparse, dense, tmp_path):
    index = TwoStageIndex(Bilinear(), sparse)
    assert index.n_new == 0
    with pytest.raises(ValueError, match="only an index of dense vectors is saved"):
        index.save(tmp_path)
    TwoStageIndex(Bilinear(), dense).save(tmp_path)
    with pytest.raises(ValueError, match="an index of sparse vectors is not saved"):
        TwoStageIndex.load(tmp_path, Bilinear(), sparse)


def test_wrong_numbers(sparse):
    with pytest.raises(ValueError, match="n_candidates must be at least 1, got 0"):
        TwoStageIndex(Bilinear(), sparse, n_candidates=0)
    index = TwoStageIndex(Bilinear(), sparse, n_candidates=100)
    for k in (0, 6001):
        with pytest.raises(ValueError, match="k must be between 1 and the 2000 images"):
            index.search(sparse[:1], k)
    with pytest.raises(ValueError, match="the gallery has 1500 columns"):
        index.search(np.ones((1, 3)), 2)
    huge = sparse * np.float32(1e20)
    index = TwoStageIndex(Bilinear(), huge, n_candidates=100)
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="overflow float32"):
        index.search(-1e20 * np.ones((1, D)), 5)
    Q = np.zeros((1, D), np.float32)
    Q[0, huge.indices[:2]] = 3e38, -3e38
    with pytest.raises(ValueError, match="overflow float32|not a number"):
        index.search(Q, 5)
