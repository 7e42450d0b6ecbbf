import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import LinearWARP
from visterm.learners.draws import draw_below, stream
from visterm.learners.rows import as_rows, readonly
from visterm.learners.warp_loss import draw_other, draw_pairs, draws_until, warp_weights
from visterm.plugins.annotators import warp


def learn(x, own, W, rate, max_norm):
    """Update W, (n_labels, d), by one image of the labels `own`; loss before it, as the kernel found it."""
    rows = as_rows(sp.csr_array(np.array([x], np.float32)))
    labels = (readonly(np.array([0, len(own)])), readonly(np.array(own, np.int32)), readonly(np.zeros(1, np.int32)))
    pairs, rates = np.array([[0, own[0]]], np.int32), np.full(1, rate, np.float32)
    weights = warp_weights(len(W) - 1)
    return warp.linear_warp_pass(rows, labels, pairs, stream(0), weights, rates, max_norm, False, W)


class TestHandWorkedUpdate:
    """One image x = (2, 0, 1) with the label 0 of two: the only other label is drawn at once, L(1) = 1."""

    x = np.array([2.0, 0.0, 1.0])
    # f = (0.5, 0.4): loss = 1 - 0.5 + 0.4
    W = np.array([[0.2, 5, 0.1], [0.1, 3, 0.2]], np.float32)

    def test_a_step(self):
        W = self.W.copy()
        losses, violating = learn(self.x, [0], W, 0.1, 100.0)
        assert losses == pytest.approx(0.9)
        assert violating == 1
        np.testing.assert_allclose(W, [[0.2 + 0.2, 5, 0.1 + 0.1], [0.1 - 0.2, 3, 0.2 - 0.1]], rtol=1e-6)
        W = self.W.copy()
        learn(self.x, [0], W, 0.1, 4.0)
        moved = np.array([0.4, 5, 0.2])
        np.testing.assert_allclose(W, [4 * moved / np.linalg.norm(moved), [-0.1, 3, 0.1]], rtol=1e-6)
        W = np.array([[1, 0, 0], [0, 0, 0]], np.float32)
        before = W.copy()
        assert learn(self.x, [0], W, 0.1, 100.0) == (0, 0)  # f = (2, 0)
        np.testing.assert_array_equal(W, before)


@pytest.mark.parametrize("max_norm", [0.8, 100.0])
@pytest.mark.parametrize("kind", ["problem", "dense_problem"])
def test_kernel_equals_slow_reference(kind, max_norm, request):
    """The same draws, learned in double precision by the formulas of the module's first lines."""
    X, labels = request.getfixturevalue(kind)
    n_steps, rate, half = 300, 0.1, 50
    learner = LinearWARP(max_norm=max_norm, learning_rate=rate, decay_steps=half, n_steps=n_steps, pass_steps=n_steps)
    learner.set_params(random_state=7).fit(X, sp.csr_array(labels))
    own = sp.csr_array(labels)
    usable = np.flatnonzero(labels.any(axis=1) & ~labels.all(axis=1)).astype(np.int32)
    state, pairs = stream(7, 0, 0), np.empty((n_steps, 2), np.int32)
    draw_pairs(own.indptr.astype(np.int64), own.indices.astype(np.int32), usable, state, pairs)
    W, losses, violating = np.zeros((6, 30)), 0.0, 0
    for step, (image, right) in enumerate(pairs):
        x = X[image].astype(float)
        others = np.flatnonzero(labels[image]).astype(np.int32)
        f = W @ x
        n, wrong = 1, draw_other(others, 6, state)
        if 1 - f[right] + f[wrong] <= 0:  # all labels are scored after the first draw
            above = [i for i in range(6) if 1 - f[right] + f[i] > 0 and i not in others]
            if above:
                n += draws_until(len(above), 6 - len(others), state)
                wrong = above[draw_below(len(above), state)]
        loss = 1 - f[right] + f[wrong]
        if loss <= 0 or n > 5:
            continue
        weight = np.sum(1 / np.arange(1, 5 // n + 1))
        losses, violating = losses + weight * loss, violating + 1
        amount = rate / (1 + step / half) * weight
        W[right] += amount * x
        W[wrong] -= amount * x
        for i in (right, wrong):
            W[i] *= min(1, max_norm / max(np.linalg.norm(W[i]), 1e-12))
    np.testing.assert_allclose(learner.W_.T, W, rtol=2e-3, atol=2e-4)
    assert learner.history_[0]["loss"] == pytest.approx(losses / n_steps, rel=1e-3)
    assert learner.history_[0]["violating"] == pytest.approx(violating / n_steps, abs=2 / n_steps)
    assert (np.linalg.norm(learner.W_, axis=0) <= max_norm * (1 + 1e-5)).all()


@pytest.mark.parametrize(("length", "settings"), [(1000.0, {}), (1.0, {"learning_rate": 100.0, "pass_steps": 50_000})])
def test_weights_that_are_shortened_at_every_step_stay_numbers(length, settings, dense_problem):
    """Of long vectors, and where many steps follow each other, the scale of a label's weights falls to nothing."""
    X, labels = dense_problem
    learner = LinearWARP(n_steps=50_000, decay_steps=None, random_state=0, **settings).fit(length * X, labels)
    assert np.isfinite(learner.history_[-1]["loss"])
    lengths = np.linalg.norm(learner.W_, axis=0)
    assert 0 < lengths.min() <= lengths.max() < 10.001
