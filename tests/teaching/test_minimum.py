"""The minimum of a function: SciPy's, on its own steps."""

import numpy as np
import pytest
from scipy.optimize import minimize, rosen, rosen_der
from scipy.special import logsumexp

from visterm.teaching.minimum import minimise


def regression(n_labels, seed=0, n=300, d=40):
    """The loss of a multinomial regression of random images."""
    rng = np.random.default_rng(seed)
    X, targets = rng.normal(size=(n, d)) * np.geomspace(0.5, 2, d), np.eye(n_labels)[rng.integers(n_labels, size=n)]

    def loss(variables):
        W = variables.reshape(d, n_labels)
        scores = X @ W
        sums = logsumexp(scores, axis=1, keepdims=True)
        value = (sums.sum() - (targets * scores).sum()) / n + 1e-3 * (W**2).sum()
        return value, (X.T @ (np.exp(scores - sums) - targets) / n + 2e-3 * W).ravel()

    return loss, np.zeros(d * n_labels)


@pytest.mark.parametrize("kept", [3, 10])
@pytest.mark.parametrize(("tolerance", "most_steps"), [(1e-3, 40), (0, 7)])
def test_its_steps_are_those_of_scipy(kept, tolerance, most_steps):
    loss, start = regression(8)
    options = {"maxiter": most_steps, "maxcor": kept, "ftol": tolerance, "gtol": 0}
    expected = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
    assert expected.nit + 1 == expected.nfev > 5  # all of its steps are of length 1
    minimum = minimise(loss, start, kept=kept, tolerance=tolerance, most_steps=most_steps)
    np.testing.assert_allclose(minimum, expected.x, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_steps_that_are_too_long_or_too_short_are_tried_again(scale):
    def loss(x):
        return rosen(x / scale), rosen_der(x / scale) / scale

    start = scale * np.array([1.3, 0.7, 0.8, 1.9])
    minimum = minimise(loss, start, kept=5, tolerance=0, most_steps=500)
    np.testing.assert_allclose(minimum / scale, 1, atol=1e-5)


@pytest.mark.parametrize("slope", [0.0, np.nan])
def test_where_nothing_can_be_gained_the_start_is_returned(slope):
    start = np.ones(3)
    minimum = minimise(lambda x: (1.0, np.full(3, slope)), start, kept=3, tolerance=0, most_steps=5)
    np.testing.assert_array_equal(minimum, start)
