import logging

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp

from visterm.learners import MCML
from visterm.plugins.baselines import mcml
from visterm.plugins.baselines.mcml import collapse_loss


@pytest.fixture
def overlapping():
    """Forty points of three classes that no metric separates, in four dimensions of which the last is noise."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), [18, 12, 10])
    X = rng.standard_normal((40, 4)) * [1, 0.5, 2, 1]
    X[:, :2] += np.array([[0, 0], [1, 0], [0, 1]])[y]
    return sp.csr_array(X.astype(np.float32)), y


def plain_loss(A, X, y):
    """f and df/dA pair by pair, in double precision."""
    X = X.toarray().astype(float)
    f, gradient, asking = 0.0, np.zeros_like(A), 0
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        related = y[others] == y[i]
        if not related.any():
            continue
        differences = X[i] - X[others]
        distances = np.einsum("ij,jk,ik->i", differences, A, differences)
        p = np.exp(distances.min() - distances)
        p /= p.sum()
        p0 = related / related.sum()
        f += (p0[related] * np.log(p0[related] / p[related])).sum()
        gradient += np.einsum("i,ij,ik->jk", p0 - p, differences, differences)
        asking += 1
    return f / asking, gradient / asking


def nearest_cone(A):
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.T


def projected_gradient(X, y, trace_penalty, n_steps=3000):
    """The paper's method: a step in A, projected; the step halved until it lowers f."""

    def f(A):
        value, gradient = plain_loss(A, X, y)
        return value + trace_penalty * np.trace(A), gradient + trace_penalty * np.eye(len(A))

    A, step = np.eye(X.shape[1]), 1.0
    value, gradient = f(A)
    for _ in range(n_steps):
        proposal = nearest_cone(A - step * gradient)
        if np.abs(proposal - A).max() < 1e-6 * step:
            break
        new_value, slope = f(proposal)
        if new_value <= value:
            A, value, gradient, step = proposal, new_value, slope, 1.5 * step
        else:
            step /= 2
    return A, value


class TestLoss:
    def test_by_hand(self):
        # 0 and 1 of one class, 2 alone in its: p(1 | 0) = e^-1 / (e^-1 + e^-4), p(0 | 1) = e^-1 / (e^-1 + e^-1)
        X = sp.csr_array([[0.0], [1.0], [2.0]])
        value, gradient, wrong = collapse_loss(np.eye(1), X, np.array([0, 0, 1]), 0.0)
        assert value == pytest.approx((np.log(1 + np.exp(-3)) + np.log(2)) / 2)
        # df/dA: (d_01 - sum_k p(k | 0) d_0k) / 2 = (1 - (1 + 4 e^-3) / (1 + e^-3)) / 2, and nothing from 1; times 2 L
        assert gradient[0, 0] == pytest.approx(1 - (1 + 4 * np.exp(-3)) / (1 + np.exp(-3)))
        assert wrong == 0
        doubled, _, _ = collapse_loss(np.eye(1), X, np.array([0, 0, 1]), 0.5)
        assert doubled == pytest.approx(value + 0.5)

    def test_equals_slow_reference_also_for_long_distances(self, overlapping):
        X, y = overlapping
        y = y.copy()
        y[0] = 9  # alone in its class
        L = np.random.default_rng(1).standard_normal((4, 4))
        value, gradient, wrong = collapse_loss(L, X.astype(float), y, 0.0)
        expected, slope = plain_loss(L.T @ L, X, y)
        assert value == pytest.approx(expected)
        np.testing.assert_allclose(gradient, 2 * L @ slope, atol=1e-12)
        Z = X @ L.T
        distances = ((Z[:, None] - Z[None]) ** 2).sum(axis=2) + np.diag(np.full(40, np.inf))
        assert wrong == (y[distances.argmin(axis=1)] != y)[1:].sum()
        X, y = overlapping
        value, gradient, _ = collapse_loss(1e3 * np.eye(4), X.astype(float), y, 0.0)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()

    @pytest.mark.parametrize("trace_penalty", [0.0, 0.1])
    def test_gradient_against_finite_differences(self, overlapping, trace_penalty):
        X, y = overlapping
        X = X.astype(float)
        L = np.random.default_rng(1).standard_normal((4, 4)) / 2

        def f(flat):
            return collapse_loss(flat.reshape(4, 4), X, y, trace_penalty)[0]

        expected = scipy.optimize.approx_fprime(L.ravel(), f, 1e-7).reshape(4, 4)
        np.testing.assert_allclose(collapse_loss(L, X, y, trace_penalty)[1], expected, atol=1e-5)


class TestOptimum:
    @pytest.mark.slow
    @pytest.mark.parametrize("trace_penalty", [0.0, 0.1, 0.3])
    def test_is_that_of_projected_gradient(self, overlapping, trace_penalty):
        """It lies on the border of the cone: the metric has less than full rank."""
        X, y = overlapping
        learner = MCML(trace_penalty=trace_penalty, n_steps=300, tol=1e-9).fit(X, y)
        A, expected = projected_gradient(X, y, trace_penalty)
        assert learner.history_[-1]["loss"] == pytest.approx(expected, abs=1e-4)
        np.testing.assert_allclose(learner.A_, A, atol=0.02 * np.abs(A).max())
        assert np.linalg.matrix_rank(learner.A_, tol=1e-3) < 4
        # The conditions of the convex problem: df/dA is positive semi-definite and orthogonal to A.
        gradient = plain_loss(learner.A_.astype(float), X, y)[1] + trace_penalty * np.eye(4)
        assert np.linalg.eigvalsh(gradient).min() > -1e-3
        assert abs(np.vdot(gradient, learner.A_)) < 1e-3

    def test_every_pass_lowers_the_loss(self, overlapping):
        learner = MCML(trace_penalty=0, n_steps=30, pass_steps=5).fit(*overlapping)
        losses = [entry["loss"] for entry in learner.history_]
        assert len(losses) == 6
        assert losses == sorted(losses, reverse=True)
        assert losses[0] < plain_loss(np.eye(4), *overlapping)[0]
        assert losses[-1] == pytest.approx(plain_loss(learner.A_.astype(float), *overlapping)[0], rel=1e-5)


def test_state_and_images_that_are_alone_or_without_pairs(overlapping, caplog):
    learner = MCML().fit(*overlapping)
    assert learner.A_.dtype == learner.components_.dtype == np.float32
    np.testing.assert_allclose(learner.components_.T @ learner.components_, learner.A_, rtol=1e-5, atol=1e-6)
    assert np.linalg.eigvalsh(learner.A_.astype(float)).min() > -1e-6
    X, y = overlapping
    y = y.copy()
    y[:2] = [7, 8]
    with caplog.at_level(logging.WARNING):
        MCML(n_steps=2).fit(X, y)
    assert "2 of 40 images are never a query" in caplog.text
    X, y = overlapping
    for labels, message in (
        (np.arange(40), "no class has two images"),
        (sp.csr_array(np.eye(3)[y]), "one label per image"),
    ):
        with pytest.raises(ValueError, match=message):
            MCML().fit(X, labels)


def test_much_memory_is_said(overlapping, caplog, monkeypatch):
    monkeypatch.setattr("visterm.plugins.baselines.mcml._MUCH_MEMORY", 5000)
    with caplog.at_level(logging.WARNING):
        MCML(n_steps=1).fit(*overlapping)
    assert "GB of memory for 40 images of 4 visterms" in caplog.text


@pytest.mark.parametrize("dense", [False, True])
def test_large_products_pause(overlapping, dense, monkeypatch):
    X, y = overlapping
    X = X.toarray() if dense else X
    L = np.random.default_rng(0).standard_normal((4, 4))
    at_once = collapse_loss(L, X, y, 0.1)
    monkeypatch.setattr(mcml, "_MUCH_WORK", 500)
    pauses = []
    in_parts = collapse_loss(L, X, y, 0.1, lambda: pauses.append(None))
    assert len(pauses) > 10
    for one, other in zip(at_once, in_parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
