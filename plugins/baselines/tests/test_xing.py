import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import Xing
from visterm.learners.mahalanobis import shrunken
from visterm.plugins.baselines.xing import spread_between, spread_within


def pairs(X, y):
    for i in range(len(X)):
        for j in range(i):
            yield X[i] - X[j], y[i] == y[j]


def test_sums_equal_slow_reference(images):
    X, y = images[0].astype(float), images[1]
    same = [z for z, alike in pairs(X, y) if alike]
    np.testing.assert_allclose(spread_within(X, y), np.mean([np.outer(z, z) for z in same], axis=0), atol=1e-12)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(25, 25))
    A = root @ root.T
    value, gradient = spread_between(A, X, y)
    assert value == pytest.approx(np.mean([np.sqrt(z @ A @ z) for z, alike in pairs(X, y) if not alike]))
    direction = rng.normal(size=(25, 25))
    direction += direction.T
    above, below = (spread_between(A + h * direction, X, y)[0] for h in (1e-5, -1e-5))
    assert np.vdot(gradient, direction) == pytest.approx((above - below) / 2e-5, rel=1e-5)


def test_finds_the_maximum_of_diagonal_metrics():
    """Four images at the corners of a rectangle, the classes left and right: the best metric by a plain search."""
    X, y = np.array([[0, 0], [0, 1], [2, 0], [2, 1.0]]), np.array([0, 0, 1, 1])
    learner = Xing(shrinkage=0.2, n_steps=200, pass_steps=200).fit(X, y)
    M = shrunken(spread_within(X, y), 0.2)

    def spread(A):
        return spread_between(A / np.vdot(A, M), X, y)[0]

    best = max(spread(np.diag([1 - a, a])) for a in np.linspace(0, 1, 2001))
    assert spread(learner.A_.astype(float)) == pytest.approx(best, rel=1e-4)


def test_every_pass_climbs_stays_positive_and_refuses_bad_input(images):
    X, y = images
    learner = Xing(n_steps=40, pass_steps=5).fit(X, y)
    losses = [entry["loss"] for entry in learner.history_]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    assert np.linalg.eigvalsh(learner.A_.astype(float)).min() > -1e-5
    np.testing.assert_array_equal(learner.A_, learner.A_.T)
    with pytest.raises(ValueError, match="shrinkage must lie above 0"):
        Xing(shrinkage=0).fit(X, y)
    with pytest.raises(ValueError, match="one label per image"):
        Xing().fit(X, sp.csr_array(np.eye(3)[y]))
