import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import PAMIR
from visterm.learners.draws import stream
from visterm.learners.rows import as_rows
from visterm.plugins.annotators import pamir
from visterm.plugins.annotators.pamir import draw_comparisons, pamir_pass


def learn(x, W, comparison, C):
    """Update W by one comparison; loss before it, as the kernel found it."""
    rows = as_rows(sp.csr_array(np.array([x], np.float32)))
    losses, _ = pamir_pass(rows, np.array([(0, *comparison)], np.int32), C, W)
    return losses


class TestHandWorkedUpdate:
    """One image x = (2, 0, 1) with label 1, against label 2; three labels."""

    x = np.array([2.0, 0.0, 1.0])
    # w_0 = (5, 5, 5), w_1 = (0.1, 3, 0.2), w_2 = (0.3, 7, 0.4), as columns
    W = np.array([[5, 0.1, 0.3], [5, 3, 7], [5, 0.2, 0.4]], np.float32)
    # f_1 = 2 * 0.1 + 0.2 = 0.4;  f_2 = 2 * 0.3 + 0.4 = 1;  loss = 1 - 0.4 + 1;  |x|^2 = 4 + 1
    loss = 1 - 0.4 + 1
    tau = (1 - 0.4 + 1) / (2 * (4 + 1))  # = 0.16

    def test_unclipped_clipped_or_satisfied(self):
        W = self.W.copy()
        assert learn(self.x, W, (1, 2), 10.0) == pytest.approx(self.loss)
        expected = [[5, 0.1 + 0.16 * 2, 0.3 - 0.16 * 2], [5, 3, 7], [5, 0.2 + 0.16, 0.4 - 0.16]]
        np.testing.assert_allclose(W, expected, rtol=1e-6)
        # The comparison just seen holds with the margin asked for, and not more.
        scores = self.x @ W
        assert scores[1] - scores[2] == pytest.approx(1.0)
        W = self.W.copy()
        learn(self.x, W, (1, 2), 0.05)
        expected = [[5, 0.1 + 0.05 * 2, 0.3 - 0.05 * 2], [5, 3, 7], [5, 0.2 + 0.05, 0.4 - 0.05]]
        np.testing.assert_allclose(W, expected, rtol=1e-6)
        W = self.W.copy()
        assert learn(self.x, W, (0, 2), 10.0) == 0  # f_0 = 15 > f_2 + 1
        assert learn(0 * self.x, W, (1, 2), 10.0) == 1
        np.testing.assert_array_equal(W, self.W)


@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("kind", ["problem", "dense_problem"])
def test_kernels_equal_slow_reference(kind, C, request):
    """The same comparisons, learned in double precision by the formulas of the module's first lines."""
    X, labels = request.getfixturevalue(kind)
    n_steps = 500
    learner = PAMIR(C=C, n_steps=n_steps, pass_steps=n_steps, random_state=7).fit(X, sp.csr_array(labels))

    sampler = learner._sampler(sp.csr_array(labels), None)
    W = np.zeros((30, 6))
    losses = []
    for image, own, other in draw_comparisons(*sampler, 6, n_steps, stream(7, 0, 0)):
        x = X[image].astype(float)
        loss = max(0.0, 1 - x @ W[:, own] + x @ W[:, other])
        losses.append(loss)
        if loss > 0 and x @ x > 0:
            tau = min(C, loss / (2 * x @ x))
            W[:, own] += tau * x
            W[:, other] -= tau * x
    np.testing.assert_allclose(learner.W_, W, rtol=1e-4, atol=1e-5)
    assert learner.history_[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert learner.history_[0]["violating"] == pytest.approx(np.mean(np.array(losses) > 0), abs=2 / n_steps)


def test_kernel_is_chosen_by_the_number_of_zeros(problem, dense_problem, monkeypatch):
    seen = []
    kernel = pamir.dense_pamir_pass
    monkeypatch.setattr(pamir, "dense_pamir_pass", lambda *args: seen.append(args[0]) or kernel(*args))
    learner = PAMIR(n_steps=200, pass_steps=100, random_state=0)
    learner.fit(problem[0], sp.csr_array(problem[1]))
    assert not seen
    learner.fit(dense_problem[0], sp.csr_array(dense_problem[1]))
    assert len(seen) == 2


def test_comparisons_are_uniform_and_scores_sum_to_zero(problem):
    """Images; of each its labels; of each the labels that it lacks."""
    _, labels = problem
    labels[3] = [True, True, False, True, True, True]  # one left to draw
    labels[5] = False
    sampler = PAMIR().fit(problem[0], sp.csr_array(labels))._sampler(sp.csr_array(labels), None)
    drawn = draw_comparisons(*sampler, 6, 200_000, stream(1))
    counts = np.zeros((40, 6, 6))
    np.add.at(counts, tuple(drawn.T), 1)
    expected = labels[:, :, None] * ~labels[:, None, :] / np.maximum(labels.sum(1) * (~labels).sum(1), 1)[:, None, None]
    expected *= len(drawn) / 39
    assert not counts[expected == 0].any()
    # Five standard deviations of a count.
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected)).all()
    # What one label gains another loses, and so the mean taken from the scores for the similarity is none.
    X, labels = problem
    scores = PAMIR(n_steps=500, random_state=0).fit(X, sp.csr_array(labels)).label_scores(X)
    np.testing.assert_allclose(scores.sum(axis=1), 0, atol=1e-4)


def test_aggressiveness_follows_the_zeros_of_the_images(problem, dense_problem):
    for (X, labels), C in ((problem, 0.01), (dense_problem, 0.1)):
        one, other = (PAMIR(C=c, n_steps=200, random_state=0).fit(X, sp.csr_array(labels)) for c in (None, C))
        assert (one.W_ == other.W_).all()
