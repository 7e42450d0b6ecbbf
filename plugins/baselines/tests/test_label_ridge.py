"""Ridge regression of one-hot labels, beside plain NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import LabelRidge
from visterm.learners.whitening import Whitening, whitening_of


@pytest.mark.parametrize("n", [30, 8])  # more images than columns, and fewer
def test_ridge_is_the_regression_of_one_hot_labels(n):
    rng = np.random.default_rng(0)
    X, y = rng.random((n, 12), np.float32), np.arange(n) % 3
    Z = Whitening(*whitening_of(X, y, np.arange(n))).of(X).astype(float)
    B = np.linalg.inv(Z.T @ Z + 0.5 * np.eye(12)) @ Z.T @ np.eye(3)[y]
    learner = LabelRidge(alpha=0.5).fit(X, y)
    np.testing.assert_allclose(learner.W_, B @ B.T, atol=1e-5)
    half = LabelRidge(alpha=0.5).fit(X, y, learned_weight=0.5)
    assert half.learned_weight_ == 0.5
    np.testing.assert_array_equal(half.W_, learner.W_)


def test_several_labels_share_one():
    rng = np.random.default_rng(0)
    X, Y = rng.random((20, 6)), np.eye(3)[np.arange(20) % 3]
    Y[:4, 0] = 1
    learner = LabelRidge(whiten=False).fit(X, sp.csr_array(7 * Y))
    Z = X / np.linalg.norm(X, axis=1, keepdims=True)
    B = np.linalg.solve(Z.T @ Z + np.eye(6), Z.T @ (Y / Y.sum(axis=1, keepdims=True)))
    np.testing.assert_allclose(learner.W_, B @ B.T, atol=1e-5)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (LabelRidge(alpha=0), "alpha must be a positive number"),
        (LabelRidge(whiten="yes"), "whiten must be"),
    ],
)
def test_parameters_that_are_refused(learner, message):
    with pytest.raises(ValueError, match=message):
        learner.fit(np.eye(4), [0, 0, 1, 1])
