"""What PAMIR and OneVsRestPA share."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import PAMIR, OneVsRestPA


@pytest.fixture(params=[PAMIR, OneVsRestPA])
def annotator(request):
    return request.param(C=0.1, n_steps=10_000, random_state=0)


@pytest.fixture
def several(X, y):
    """The images of `synonyms` with two labels each: their class, and whether its number is odd."""
    labels = np.zeros((len(y), 6))
    labels[np.arange(len(y)), y] = 1
    labels[np.arange(len(y)), 4 + y % 2] = 2.5
    return X, sp.csr_array(labels)


def test_scores_are_inner_products_and_similarity_their_correlation(annotator, X, y):
    annotator.fit(X, y)
    assert annotator.W_.shape == (X.shape[1], 4)
    assert annotator.W_.dtype == np.float32
    expected = X.toarray() @ annotator.W_
    np.testing.assert_allclose(annotator.label_scores(X), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(annotator.label_scores(X.toarray()), expected, rtol=1e-5, atol=1e-6)
    X = sp.vstack([X, sp.csr_array((1, X.shape[1]))], format="csr").astype(np.float32)
    scores = annotator.fit(X[:-1], y).label_scores(X)
    sides = annotator.transform(X)
    assert sides.dtype == np.float32
    np.testing.assert_allclose(sides[:-1] @ sides[:-1].T, np.corrcoef(scores[:-1]), atol=1e-5)
    np.testing.assert_array_equal(sides[-1], 0)


def test_label_vectors_are_centred_and_of_unit_norm(annotator, synonyms):
    before = annotator.fit(*synonyms).W_.copy()
    centred = before.T - before.T.mean(axis=0)
    vectors = annotator.label_vectors()
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, centred / np.linalg.norm(centred, axis=1, keepdims=True), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(annotator.W_, before)


def test_labels_that_share_a_visterm_are_near(annotator):
    """Labels 0 and 1 share a visterm, 2 and 3 another, and so on; every label has its own, and all have common ones.

    What all labels of one-vs-rest have in common, negative weights, would make each nearest to the same few.
    """
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(8), 20)
    X = np.hstack([np.eye(4)[y // 2], np.eye(8)[y], 0.5 * rng.random((len(y), 20))])
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    n_steps = 200 if isinstance(annotator, OneVsRestPA) else 1000
    nearest, scores = annotator.set_params(C=0.003, n_steps=n_steps).fit(X, y).similar_labels(np.arange(8), 2)
    np.testing.assert_array_equal(nearest[:, 0], np.arange(8) ^ 1)
    assert (scores[:, 0] > scores[:, 1] + 0.2).all()
    assert (scores <= 1 + 1e-6).all()


def test_annotates_unseen_images(annotator, synonyms, unseen_synonyms):
    X, y = unseen_synonyms
    words = np.array(["ant", "bee", "cow", "dog"])
    best, scores = annotator.fit(synonyms[0], words[synonyms[1]]).annotate(X, 4)
    assert np.mean(annotator.classes_[best[:, 0]] == words[y]) > 0.9
    assert (np.diff(scores, axis=1) <= 0).all()


def test_several_labels_an_image_whose_weights_do_not_matter(annotator, several):
    X, labels = several
    best, _ = annotator.fit(X, labels).annotate(X, 2)
    np.testing.assert_array_equal(annotator.classes_, np.arange(6))
    np.testing.assert_array_equal(np.sort(best, axis=1), labels.indices.reshape(-1, 2))
    once = annotator.fit(X, labels).W_.copy()
    np.testing.assert_array_equal(annotator.fit(X, labels.astype(bool)).W_, once)


class TestDenseImages:
    """Kernels of their own; what other tests say of sparse images holds of them too."""

    settings = {"C": 0.1, "n_steps": 900, "pass_steps": 150, "random_state": 0}

    @pytest.mark.parametrize("zeros", [False, True])
    def test_checkpoints_go_on_to_the_same_model(self, annotator, dense_problem, zeros, checkpoint):
        X, labels = dense_problem[0] + np.float32(0 if zeros else 0.01), sp.csr_array(dense_problem[1])
        annotator.set_params(validation_fraction=0.3, refit=True, **self.settings).fit(X, labels)
        for stop in range(7):
            np.testing.assert_array_equal(checkpoint(annotator, X, labels, stop).resume(X, labels).W_, annotator.W_)

    def test_fit_leaves_neither_copies_nor_changed_input(self, annotator, dense_problem):
        X, labels = dense_problem
        X.flags.writeable = False
        annotator.set_params(**self.settings).fit(X, sp.csr_array(labels))
        kept = [value for value in vars(annotator).values() if isinstance(value, np.ndarray) and value.size >= X.size]
        assert not kept


def test_images_without_labels_are_left_out_and_counted(annotator, several, caplog):
    X, labels = several
    kept = labels.toarray()
    kept[[0, 7]] = 0
    kept[9] = 1
    with caplog.at_level(logging.WARNING):
        annotator.fit(X, sp.csr_array(kept))
    assert "skipped 3 of 60 images" in caplog.text
    # Neither their visterms nor their labels have any effect.
    other = X.toarray()
    other[[0, 7, 9]] = 0.5
    weights = annotator.W_.copy()
    np.testing.assert_array_equal(annotator.fit(other, sp.csr_array(kept)).W_, weights)


def test_two_labels_rank_by_how_sure_the_scores_are(annotator, X, y):
    annotator.fit(X, y < 2)
    scores = annotator.similarity(X, X)
    assert len(np.unique(scores[0])) > len(y) / 2  # a correlation of two scores would be 1 or -1
    centred = annotator.label_scores(X)[:, 0] - annotator.label_scores(X).mean(axis=1)
    assert scores == pytest.approx(2 * np.outer(centred, centred), abs=1e-6)
