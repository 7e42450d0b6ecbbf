import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.linear_model import SGDClassifier

from visterm.learners import OneVsRestPA
from visterm.learners.draws import stream
from visterm.learners.rows import as_rows, readonly
from visterm.plugins.annotators import one_vs_rest
from visterm.plugins.annotators.one_vs_rest import draw_images, one_vs_rest_pass


def learn(x, own, W, C):
    """Update W by one image with the labels `own`; loss before it and violations, as the kernel found them."""
    rows = as_rows(sp.csr_array(np.array([x], np.float32)))
    label_start, labels = readonly(np.array([0, len(own)])), readonly(np.array(own, np.int32))
    return one_vs_rest_pass(rows, label_start, labels, np.zeros(1, np.int32), C, W)


class TestHandWorkedUpdate:
    """One image x = (2, 0, 1) with the label 1 of three."""

    x = np.array([2.0, 0.0, 1.0])
    # w_0 = (0.2, 5, 0.1), w_1 = (0.1, 3, 0.2), w_2 = (-1, 7, 0.4), as columns
    W = np.array([[0.2, 0.1, -1], [5, 3, 7], [0.1, 0.2, 0.4]], np.float32)
    # f = (0.5, 0.4, -1.6): the losses are 1 + 0.5, 1 - 0.4 and max(0, 1 - 1.6) = 0;  |x|^2 = 4 + 1
    # tau = (1.5 / 5, 0.6 / 5, 0) = (0.3, 0.12, 0)

    def test_unclipped_clipped_or_satisfied(self):
        W = self.W.copy()
        losses, violating = learn(self.x, [1], W, 10.0)
        assert losses == pytest.approx(1.5 + 0.6)
        assert violating == 2
        expected = [[0.2 - 0.3 * 2, 0.1 + 0.12 * 2, -1], [5, 3, 7], [0.1 - 0.3, 0.2 + 0.12, 0.4]]
        np.testing.assert_allclose(W, expected, rtol=1e-6)
        # Both hold now with the margin asked for, and not more; the third was left alone.
        np.testing.assert_allclose(self.x @ W, [-1, 1, -1.6], rtol=1e-6)
        W = self.W.copy()
        learn(self.x, [1], W, 0.2)
        expected = [[0.2 - 0.2 * 2, 0.1 + 0.12 * 2, -1], [5, 3, 7], [0.1 - 0.2, 0.2 + 0.12, 0.4]]
        np.testing.assert_allclose(W, expected, rtol=1e-6)
        W = 10 * np.array([[-1, 1, -1], [0, 0, 0], [0, 0, 0]], np.float32)
        before = W.copy()
        assert learn(self.x, [1], W, 10.0) == (0, 0)
        np.testing.assert_array_equal(W, before)
        W = self.W.copy()
        assert learn(0 * self.x, [1], W, 10.0) == (3, 3)
        np.testing.assert_array_equal(W, self.W)

    def test_few_of_many_labels_violate(self):
        """As above, with forty labels more that hold already: the two that violate move alone."""
        W = np.concatenate([self.W, np.repeat(self.W[:, 2:], 40, axis=1)], axis=1)
        losses, violating = learn(self.x, [1], W, 10.0)
        assert (losses, violating) == (pytest.approx(1.5 + 0.6), 2)
        expected = [[0.2 - 0.3 * 2, 0.1 + 0.12 * 2], [5, 3], [0.1 - 0.3, 0.2 + 0.12]]
        np.testing.assert_allclose(W[:, :2], expected, rtol=1e-6)
        np.testing.assert_array_equal(W[:, 2:], np.repeat(self.W[:, 2:], 41, axis=1))


def drawn_images(labels, n_steps):
    usable = np.flatnonzero(labels.any(axis=1) & ~labels.all(axis=1)).astype(np.int32)
    return draw_images(readonly(usable), n_steps, stream(7, 0, 0))


@pytest.mark.parametrize("C", [0.05, 10.0])
@pytest.mark.parametrize("kind", ["problem", "dense_problem"])
def test_kernels_equal_slow_reference(kind, C, request):
    """The same images, learned in double precision by the formulas of the module's first lines."""
    X, labels = request.getfixturevalue(kind)
    n_steps = 300  # of dense images: four blocks and a part, each with images that it holds several times
    learner = OneVsRestPA(C=C, n_steps=n_steps, pass_steps=n_steps, random_state=7).fit(X, sp.csr_array(labels))
    W = np.zeros((30, 6))
    losses = []
    for image in drawn_images(labels, n_steps):
        x = X[image].astype(float)
        signs = np.where(labels[image], 1, -1)
        loss = np.maximum(0, 1 - signs * (x @ W))
        losses.append(loss)
        if x @ x > 0:
            W += np.outer(x, signs * np.minimum(C, loss / (x @ x)))
    np.testing.assert_allclose(learner.W_, W, rtol=1e-3, atol=1e-4)
    assert learner.history_[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    # A loss that is zero but for rounding may count or not.
    assert np.mean(np.array(losses) > 1e-4) <= learner.history_[0]["violating"] <= np.mean(np.array(losses) > -1e-4)


def test_dense_images_are_learned_in_blocks(problem, dense_problem, monkeypatch):
    """Chosen by the number of zeros. A block of one image is one step after another; models differ by rounding only."""
    seen = []
    kernel = one_vs_rest.dense_one_vs_rest_pass
    monkeypatch.setattr(one_vs_rest, "dense_one_vs_rest_pass", lambda *args: seen.append(args[0]) or kernel(*args))
    learner = OneVsRestPA(C=0.1, n_steps=200, pass_steps=100, random_state=0)
    learner.fit(problem[0], sp.csr_array(problem[1]))
    assert not seen
    X, labels = dense_problem[0], sp.csr_array(dense_problem[1])
    blocks = learner.fit(X, labels).W_.copy()
    assert len(seen) == 2
    monkeypatch.setattr(one_vs_rest, "_BLOCK", 1)
    np.testing.assert_allclose(learner.fit(X, labels).W_, blocks, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8), reason="without learning_rate pa1")
def test_equals_scikit_learn(problem):
    """One PA-I classifier of scikit-learn a label, on the same images in the same order."""
    X, labels = problem
    images = drawn_images(labels, 300)
    learner = OneVsRestPA(C=0.1, n_steps=300, random_state=7).fit(X, sp.csr_array(labels))
    for i in range(6):
        peer = SGDClassifier(
            loss="hinge", penalty=None, learning_rate="pa1", eta0=0.1, fit_intercept=False, shuffle=False
        )
        keep = X[images].any(axis=1)  # it divides by the norm
        peer.partial_fit(X[images][keep].astype(float), labels[images, i][keep], classes=[False, True])
        np.testing.assert_allclose(learner.W_[:, i], peer.coef_[0], rtol=1e-3, atol=1e-4)


def test_images_are_uniform(problem):
    _, labels = problem
    labels[5], labels[6] = False, True
    counts = np.bincount(drawn_images(labels, 100_000), minlength=40)
    assert counts[5] == counts[6] == 0
    # Five standard deviations of a count.
    assert (np.abs(np.delete(counts, [5, 6]) - 100_000 / 38) < 5 * np.sqrt(100_000 / 38)).all()
