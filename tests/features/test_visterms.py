import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from visterm.features import VistermWeighting, count_visterms, weights
from visterm.features.visterms import co_occurrence_order

COUNTS = hnp.arrays(np.int32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=8), elements=st.integers(0, 3))


@given(st.lists(st.lists(st.integers(0, 6), max_size=12), max_size=6))
@settings(max_examples=40)
def test_counts_are_those_of_bincount(images):
    counts = count_visterms([i for image in images for i in image], [len(image) for image in images], 7)
    assert counts.shape == (len(images), 7)
    assert counts.dtype == counts.indices.dtype == np.int32
    assert counts.has_sorted_indices
    assert (counts.data > 0).all()
    for row, image in zip(counts.toarray(), images, strict=True):
        np.testing.assert_array_equal(row, np.bincount(np.array(image, dtype=int), minlength=7))


def test_ids_and_numbers_of_blocks_must_fit_together():
    with pytest.raises(ValueError, match="3 ids cannot be the blocks of images with 4 blocks"):
        count_visterms([1, 2, 3], [2, 2], 5)
    with pytest.raises(ValueError, match=r"within 0 \.\.\. 4"):
        count_visterms([1, 5], [2], 5)
    with pytest.raises(ValueError, match=r"within 0 \.\.\. 4"):
        count_visterms([-1], [1], 5)


def test_weights_are_those_of_the_formula():
    counts = sp.csr_matrix(np.array([[3, 1, 0, 1], [1, 0, 0, 0], [0, 2, 0, 1], [1, 0, 0, 1]], dtype=np.int32))
    # Three of four images contain visterm 0 and visterm 3, two visterm 1, none visterm 2.
    weighting = VistermWeighting().fit(counts)
    common, half, none = np.log(4 / 3), np.log(4 / 2), np.log(4 / 1)
    np.testing.assert_allclose(weighting.idf_, [common, half, none, common])
    expected = np.array([3 * common, half, 0, common])
    expected /= np.sqrt((3 * common) ** 2 + half**2 + common**2)
    weights = weighting.transform(counts)
    np.testing.assert_allclose(weights.toarray()[0], expected, rtol=1e-6)
    assert weights.dtype == np.float32
    counts = sp.csr_matrix(np.array([[1, 2], [4, 0]], dtype=np.int32))
    weights = VistermWeighting().fit_transform(counts)
    np.testing.assert_array_equal(weights.toarray(), [[0, 1], [0, 0]])
    assert weights.nnz == 1
    rng = np.random.default_rng(0)
    train, other = (sp.random(20, 30, 0.2, "csr", np.float64, rng).astype(bool).astype(np.int32) for _ in range(2))
    weighting = VistermWeighting().fit(train)
    before = weighting.idf_.copy()
    weighting.transform(other)
    np.testing.assert_array_equal(weighting.idf_, before)


@given(COUNTS, COUNTS)
@settings(max_examples=40)
def test_rows_are_zero_or_of_unit_length(train, other):
    columns = min(train.shape[1], other.shape[1])
    weighting = VistermWeighting().fit(sp.csr_matrix(train[:, :columns]))
    assert np.isfinite(weighting.idf_).all()
    assert (weighting.idf_ >= 0).all()
    weights = weighting.transform(sp.csr_matrix(other[:, :columns])).toarray()
    lengths = np.linalg.norm(weights, axis=1)
    assert ((lengths == 0) | (np.abs(lengths - 1) < 1e-5)).all()
    np.testing.assert_array_equal(weights > 0, (other[:, :columns] > 0) & (weighting.idf_ > 0))


def test_counts_are_left_alone_and_errors_are_said():
    unsorted_doubled = (np.array([1, 2, 1]), np.array([1, 0, 1]), np.array([0, 3]))
    counts = sp.csr_matrix(unsorted_doubled, shape=(1, 2))
    before = counts.data.copy(), counts.indices.copy()
    VistermWeighting().fit_transform(counts)
    np.testing.assert_array_equal(counts.data, before[0])
    np.testing.assert_array_equal(counts.indices, before[1])
    weighting = VistermWeighting()
    with pytest.raises(ValueError, match="tf must be 'count' or 'sqrt', not 'log'"):
        VistermWeighting(tf="log").fit(sp.csr_matrix((1, 2)))
    with pytest.raises(NotFittedError):
        weighting.transform(sp.csr_matrix((1, 2)))
    with pytest.raises(ValueError, match="at least one training image"):
        weighting.fit(sp.csr_matrix((0, 2)))
    weighting.fit(sp.csr_matrix((1, 2)))
    with pytest.raises(ValueError, match="3 visterms, the weights 2"):
        weighting.transform(sp.csr_matrix((1, 3)))
    clone(weighting)


def lines(counts, order):
    """Mean number of groups of 16 neighbours that an image's visterms lie in."""
    place = np.argsort(order)
    rows = np.split(place[counts.indices] // 16, counts.indptr[1:-1])
    return np.mean([len(np.unique(row)) for row in rows])


def test_visterms_that_occur_together_or_look_alike_become_neighbours():
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(320)
    ids = [shuffled[topic * 16 + rng.choice(16, 8, replace=False)] for topic in rng.integers(0, 20, 400)]
    counts = count_visterms(np.concatenate(ids), [8] * 400, 320)
    order = co_occurrence_order(counts, rng.normal(size=(320, 79)))
    np.testing.assert_array_equal(np.sort(order), np.arange(320))
    assert lines(counts, np.arange(320)) > 6
    assert lines(counts, order) < 4
    centers = np.repeat(np.eye(4), 16, axis=0)
    shuffled = np.random.default_rng(0).permutation(64)
    order = co_occurrence_order(sp.csr_matrix((3, 64), dtype=np.int32), centers[shuffled])
    kinds = centers[shuffled][order].argmax(axis=1).reshape(4, 16)
    assert (kinds == kinds[:, :1]).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (2, 3)])
def test_an_order_of_few_visterms_or_images(shape):
    order = co_occurrence_order(sp.csr_matrix(np.ones(shape, dtype=np.int32)), np.zeros((shape[1], 2)))
    np.testing.assert_array_equal(np.sort(order), np.arange(shape[1]))


def test_square_roots_of_counts():
    counts = sp.csr_matrix(np.array([[4, 9, 0], [0, 1, 2], [0, 0, 1]], dtype=np.int32))
    weighting = VistermWeighting(tf="sqrt").fit(counts)
    plain = VistermWeighting().fit(counts)
    np.testing.assert_array_equal(weighting.idf_, plain.idf_)
    expected = np.sqrt(counts.toarray()) * weighting.idf_
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(weighting.transform(counts).toarray(), expected, rtol=1e-6)
    parts = sp.csr_matrix(np.array([[1, 0, 0], [3, 2, 0], [0, 7, 0]], dtype=np.int32))  # of the first image
    np.testing.assert_allclose(weighting.transform_parts(parts).sum(axis=0).A1, expected[0], rtol=1e-6)


def test_weights_do_not_depend_on_how_many_rows_are_taken_at_once(monkeypatch):
    counts = sp.random_array((50, 20), density=0.3, format="csr", random_state=0)
    counts = (5 * counts).ceil().astype(np.int32)
    weighting = VistermWeighting().fit(counts)
    whole = weighting.transform(counts)
    monkeypatch.setattr(weights, "ROWS_AT_ONCE", 7)
    parts = weighting.transform(counts)
    np.testing.assert_array_equal(parts.toarray(), whole.toarray())
