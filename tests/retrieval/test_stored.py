"""Vectors that stay on disk: rows as an array gives them, and the same results as of a float32 copy, bit for bit."""

import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from visterm.learners import OASIS, Blend, Cosine
from visterm.retrieval import ExactIndex, StoredVectors, TwoStageIndex, index, stored

D = 24


@pytest.fixture(scope="module", params=[np.float16, np.float32])
def both(request, tmp_path_factory):
    """Unit rows in files, in an order of their own, and the same in memory as float32; their classes."""
    folder, rng = tmp_path_factory.mktemp("stored"), np.random.default_rng(0)
    arrays = []
    for number, n in enumerate((700, 1, 300, 999)):
        np.save(folder / f"{number}.npy", normalize(rng.standard_normal((n, D))).astype(request.param))
        file = folder / f"{number}.npy"
        arrays.append(stored.RowFile(file) if number % 2 else np.load(file))
    array_of = np.repeat(np.arange(4), [len(array) for array in arrays])
    row_of = np.concatenate([np.arange(len(array)) for array in arrays])
    order = rng.permutation(len(row_of))
    whole = np.concatenate([array[np.arange(len(array))] for array in arrays])[order].astype(np.float32)
    return StoredVectors(arrays, array_of[order], row_of[order]), whole, whole.argmax(axis=1)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch):
    for module in (stored, index):
        monkeypatch.setattr(module, "ROWS", 128)


def test_rows_are_those_of_an_array(both):
    X, whole, _ = both
    assert (X.shape, X.size, X.ndim, X.dtype, len(X)) == (whole.shape, whole.size, 2, np.float32, len(whole))
    chosen = np.array([5, 3, 3, -1])
    for rows in (0, -1, slice(None), slice(7, 300), slice(9, 2), [], chosen, whole[:, 0] > 0):
        np.testing.assert_array_equal(X[rows], whole[rows])
        assert X[rows].dtype == np.float32
    np.testing.assert_array_equal(np.asarray(X), whole)
    np.testing.assert_array_equal(X.part(chosen)[1:], whole[chosen][1:])
    np.testing.assert_allclose(X @ whole[:3].T, whole @ whole[:3].T, rtol=1e-5, atol=1e-6)
    for outside in (len(whole), [0, len(whole)]):
        with pytest.raises(IndexError):
            X[outside]


def test_every_number_of_float16_is_read_as_numpy_reads_it():
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = numbers[np.isfinite(numbers)].reshape(-1, 2)
    X = StoredVectors([numbers], np.zeros(len(numbers)), np.arange(len(numbers)))
    assert X[:].tobytes() == numbers.astype(np.float32).tobytes()  # signs of zeros too


@pytest.mark.parametrize("learner", ["cosine", "oasis", "share"])
@pytest.mark.parametrize("k", [1, 10, 900, None])  # few are chosen by BLAS, many are all summed in order
def test_exact_search_gives_the_same_bits(both, learner, k):
    X, whole, y = both
    oasis = OASIS(n_steps=3_000, random_state=0).fit(whole, y)
    chosen = {"cosine": Cosine().fit(whole), "oasis": oasis, "share": Blend(oasis, 0.3)}[learner]
    own = np.arange(5) - 1
    for Q in (whole[:5], whole[:1]):
        wanted = ExactIndex(chosen, whole, n_jobs=2).search(Q, k, exclude=own[: len(Q)])
        ranking = ExactIndex(chosen, X, n_jobs=2).search(Q, k, exclude=own[: len(Q)])
        np.testing.assert_array_equal(ranking.indices, wanted.indices)
        np.testing.assert_array_equal(ranking.scores, wanted.scores)


def test_near_ties_are_scored_in_order(both):
    """All rows equal: BLAS cannot tell which are the best, and smaller rows come first."""
    _, whole, _ = both
    same = StoredVectors([np.tile(whole[:1], (500, 1)).astype(np.float16)], np.zeros(500), np.arange(500))
    ranking = ExactIndex(Cosine().fit(whole), same).search(whole[:2], 4)
    np.testing.assert_array_equal(ranking.indices, [[0, 1, 2, 3]] * 2)


def test_some_ties_need_more_candidates_not_all_products(both, monkeypatch):
    _, whole, _ = both
    vectors = np.tile(whole[1:2], (2000, 1)) * np.linspace(0.1, 0.5, 2000)[:, None].astype(np.float32)
    vectors[::33] = whole[0]  # 61 equal ones, more than are spare
    monkeypatch.setattr(StoredVectors, "__matmul__", lambda *_: pytest.fail("all rows are read for one query"))
    stored = StoredVectors([vectors.astype(np.float16)], np.zeros(2000), np.arange(2000))
    ranking = ExactIndex(Cosine().fit(whole), stored, n_jobs=2).search(whole[:1], 4)
    np.testing.assert_array_equal(ranking.indices, [[0, 33, 66, 99]])


class Sides:
    """Gallery sides of a given width, dense or sparse, which depend on labels where there are some."""

    def __init__(self, width, *, sparse=False):
        self.width, self.sparse = width, sparse

    def transform(self, X, y=None):
        sides = X[:, : self.width] if self.width <= X.shape[1] else np.hstack([X, X])
        sides = sides if y is None else sides * y[:, None].astype(np.float32)
        return sp.csr_matrix(sides) if self.sparse else np.ascontiguousarray(sides)

    transform_query = transform


@pytest.mark.parametrize(("width", "sparse"), [(4, False), (D, False), (2 * D, False), (D, True)])
@pytest.mark.parametrize("labelled", [False, True])
def test_gallery_sides_of_any_width_and_by_label(both, width, sparse, labelled):
    X, whole, y = both
    labels, learner = y if labelled else None, Sides(width, sparse=sparse)
    wanted = ExactIndex(learner, whole, labels).search(whole[:3], 10)
    for gallery in (X, X.part(np.arange(len(X)))):
        on_disk = ExactIndex(learner, gallery, labels)
        assert isinstance(on_disk.gallery_, StoredVectors) == (width >= D and not sparse)
        ranking = on_disk.search(whole[:3], 10)
        np.testing.assert_array_equal(ranking.indices, wanted.indices)
        np.testing.assert_array_equal(ranking.scores, wanted.scores)
    rows = np.flatnonzero(y > 2)[::-1]
    some = ExactIndex(learner, X.part(rows), None if labels is None else labels[rows]).search(whole[:3], 10)
    few = ExactIndex(learner, whole[rows], None if labels is None else labels[rows]).search(whole[:3], 10)
    np.testing.assert_array_equal(some.indices, few.indices)


def test_two_stages_build_save_and_open(both, tmp_path):
    pytest.importorskip("faiss")
    X, whole, y = both
    learner = OASIS(n_steps=3_000, random_state=0).fit(whole, y)
    built = TwoStageIndex(learner, X)
    assert built.recall(whole[:50]) > 0.95
    built.save(tmp_path)
    opened, in_memory = (TwoStageIndex.load(tmp_path, learner, gallery) for gallery in (X, whole))
    ranking, wanted = (index.search(whole[:50], 10) for index in (opened, in_memory))
    np.testing.assert_array_equal(ranking.indices, wanted.indices)
    np.testing.assert_array_equal(ranking.scores, wanted.scores)
    stay = np.r_[5 : len(X)]
    grown = TwoStageIndex.load(tmp_path, learner, X.part(stay), ids=stay)
    assert set(grown.search(whole[:9], 20).indices.ravel() + 5) & set(range(5)) == set()


def test_rows_of_a_file_that_is_cut_short_are_an_error(tmp_path):
    """Of a memory map, reading beyond the end of the file would end the process."""
    numbers = np.arange(100 * D, dtype=np.float32).reshape(100, D)
    np.save(tmp_path / "1.npy", numbers)
    np.save(tmp_path / "2.npy", np.asfortranarray(numbers))
    rows = stored.RowFile(tmp_path / "1.npy")
    chosen = np.array([7, 8, 9, 3, 3, 99, 0])
    np.testing.assert_array_equal(rows[chosen], numbers[chosen])
    again = pickle.loads(pickle.dumps(rows))
    assert again._number != rows._number
    np.testing.assert_array_equal(again[chosen], numbers[chosen])
    assert rows[np.array([], int)].shape == (0, D)
    for outside in ([100], [-1]):
        with pytest.raises(IndexError, match="has 100 rows"):
            rows[outside]
    with pytest.raises(ValueError, match="order"):
        stored.RowFile(tmp_path / "2.npy")
    X = StoredVectors([numbers, rows], np.repeat([0, 1], 100), np.tile(np.arange(100), 2))
    os.truncate(tmp_path / "1.npy", 2000)
    np.testing.assert_array_equal(X[:115], numbers[np.r_[:100, :15]])  # what is still there
    for part in (X, X.part(np.arange(50, 150))):
        with pytest.raises(OSError, match=r"cut short while it was in use.*1\.npy"):
            part[:]
