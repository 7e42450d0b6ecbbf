"""One-vs-rest passive-aggressive annotation: one large-margin classifier per label, each on its own.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6.3: "one-versus-rest large margin classifiers of the form f_i(x) = w_i' x trained using the Passive Aggressive
algorithm" of Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online Passive-Aggressive Algorithms, JMLR 7, 2006 (PA-I).
For an image x and every label i, with s_i = 1 if the image has the label and -1 if not,

    loss_i = max(0, 1 - s_i w_i' x),    tau_i = min(C, loss_i / |x|^2),    w_i <- w_i + tau_i s_i x

The weights start at zero. All labels of an image are learned in one step. Images of few zeros are learned in blocks:
with t_a the steps tau s of image a, the scores of image b after those of the block before it are

    W'x_b + sum over a < b of (x_a'x_b) t_a,    and at its end    W <- W + sum of x_a t_a'

so that all heavy work is products of matrices, and W is read and written once a block. The steps are the same up to
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from visterm.learners.annotation import combine_rows
from visterm.learners.checks import check_positive
from visterm.learners.draws import draw_below, stream
from visterm.learners.loop import StepCost, Training
from visterm.learners.rows import FASTMATH, Float, Int, Rows, dense_rows, mean_entries
from visterm.learners.samplers import Labels
from visterm.learners.sums import one_thread

from .linear import LinearAnnotator

_BLOCK = 64  # images whose steps are one product: twice as many take longer for the products among themselves


@njit(cache=True, nogil=True, error_model="numpy")
def draw_images(usable: np.ndarray, n: Int, state: np.ndarray) -> np.ndarray:
    """Draw images, uniform over the usable ones: int32 (n,)."""
    drawn = np.empty(n, np.int32)
    for step in range(n):
        drawn[step] = usable[draw_below(len(usable), state)]
    return drawn


# Inlined by force, for the reason given in annotation.py.
@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _find_steps(
    scores: np.ndarray, own: np.ndarray, norm: Float, largest: Float, signs: np.ndarray, steps: np.ndarray
) -> tuple[float, int]:
    """Set the step tau_i s_i of every label; sum of the losses and number of violations. `signs` are all -1."""
    one, zero = np.float32(1.0), np.float32(0.0)
    signs[own] = one
    scale = one / norm if norm > zero else zero
    total, violating = zero, 0
    for i in range(len(signs)):  # nothing is stored here: blocks.py says why
        loss = max(zero, one - signs[i] * scores[i])
        total += loss
        violating += loss > zero
    for i in range(len(signs)):
        steps[i] = signs[i] * min(largest, max(zero, one - signs[i] * scores[i]) * scale)
    signs[own] = -one
    return float(total), violating


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def one_vs_rest_pass(
    rows: Rows, label_start: np.ndarray, labels: np.ndarray, images: np.ndarray, C: Float, W: np.ndarray
) -> tuple[float, int]:
    """Learn all labels from the images in turn; sum of the losses and number of violations, over images and labels."""
    indptr, indices, data, norms = rows
    n_labels, largest = W.shape[1], np.float32(C)
    flat, width = W.reshape(W.size), np.uint64(n_labels)
    scores, steps = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32)
    moved = np.empty(n_labels, np.uint64)
    signs = np.full(n_labels, np.float32(-1.0))
    losses, violating = 0.0, 0
    for step in range(len(images)):
        image = images[step]
        start, end = np.uint64(indptr[image]), np.uint64(indptr[image + 1])
        combine_rows(indices, data, start, end, flat, width, width, scores)
        own = labels[label_start[image] : label_start[image + 1]]
        loss, n_violating = _find_steps(scores, own, norms[image], largest, signs, steps)
        losses += loss
        violating += n_violating
        if n_violating > n_labels // 8:
            for k in range(start, end):
                for i in range(n_labels):
                    W[indices[k], i] += data[k] * steps[i]
        elif n_violating:  # a few labels, one after another, take less time than all
            n_moved = 0
            for i in range(n_labels):
                if steps[i] != np.float32(0.0):
                    moved[n_moved] = i
                    n_moved += 1
            for k in range(start, end):
                row, x = np.uint64(indices[k]) * width, data[k]
                for m in range(n_moved):
                    flat[row + moved[m]] += x * steps[moved[m]]
    return losses, violating


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def learn_block(
    gram: np.ndarray,
    norms: np.ndarray,
    label_start: np.ndarray,
    labels: np.ndarray,
    images: np.ndarray,
    C: Float,
    scores: np.ndarray,
) -> tuple[float, int]:
    """Learn from some images in turn, given their scores before the first step; losses and violations as above.

    A step of image b changes the scores of image a by x_a'x_b, which `gram` holds, times the step. `scores`
    (n, n_labels) becomes the steps, whose product with the images is what W changes by.
    """
    n_labels, largest = scores.shape[1], np.float32(C)
    signs = np.full(n_labels, np.float32(-1.0))
    losses, violating = 0.0, 0
    for a in range(len(images)):
        image, present = images[a], scores[a]
        for b in range(a):
            for i in range(n_labels):
                present[i] += gram[a, b] * scores[b, i]
        own = labels[label_start[image] : label_start[image + 1]]
        loss, n_violating = _find_steps(present, own, norms[image], largest, signs, present)
        losses += loss
        violating += n_violating
    return losses, violating


def dense_one_vs_rest_pass(
    X: np.ndarray,
    norms: np.ndarray,
    label_start: np.ndarray,
    labels: np.ndarray,
    images: np.ndarray,
    C: float,
    W: np.ndarray,
) -> tuple[float, int]:
    """The same as `one_vs_rest_pass` for images of few zeros, X (n, d): the steps of a block as matrix products."""
    losses, violating = 0.0, 0
    with one_thread():
        for start in range(0, len(images), _BLOCK):
            block = images[start : start + _BLOCK]
            x = X[block]
            steps = x @ W
            loss, n_violating = learn_block(x @ x.T, norms, label_start, labels, block, C, steps)
            W += x.T @ steps
            losses += loss
            violating += n_violating
    return losses, violating


@dataclass(kw_only=True, repr=False, eq=False)
class OneVsRestPA(LinearAnnotator):
    """One passive-aggressive classifier (PA-I) per label; labels are ranked by their classifiers' scores.

    Parameters
    ----------
    C : float, default=0.03
        Aggressiveness: the largest step tau.
    n_steps : int, default=200_000
        Images drawn; each is one step of every label's classifier.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.

    Attributes
    ----------
    W_ : float32 array of shape (d, n_labels)
        Column i is w_i.
    classes_ : array of shape (n_labels,)

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ... In the
    history, `loss` is the mean over images and labels, and `violating` the share of these that violate.

    Notes
    -----
    Time per image is proportional to nnz(x) n_labels, in loops over neighbouring memory. Where a quarter of the entries
    of the images or more are not zero, blocks of images are learned by matrix products.

    Peak memory, in units of the 4 d n_labels bytes of W: 1; 2 with `validation_fraction` unless `refit`. Beside it, up
    to 24 MB while labels are ranked for the held-out images. Images of few zeros take one W more, and their zeros
    are stored.

    Images are drawn uniformly, with replacement, from those that have a label and lack another; the rest are skipped,
    and counted in a warning. Every label an image lacks is learned as a negative, none are sampled.

    Departures: W is float32. The paper ranks labels only; the similarity of images, the correlation of their label
    scores (with two labels their product, as a correlation would be 1 or -1), is ours. So is that of labels, the cosine
    of their weights less the mean over labels.

    References
    ----------
    K. Crammer, O. Dekel, J. Keshet, S. Shalev-Shwartz, Y. Singer: Online Passive-Aggressive Algorithms. Journal of
    Machine Learning Research 7, 551-585, 2006.

    J. Weston, S. Bengio, N. Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings.
    ECML 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import OneVsRestPA
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = OneVsRestPA(n_steps=1000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> best, scores = learner.annotate(X, k=1)
    >>> [str(learner.classes_[i]) for i in best[:, 0]]
    ['a', 'a', 'b', 'b']
    """

    C: float = 0.03
    n_steps: int = 200_000
    validation_fraction: float | None = None
    patience: int | None = 10
    refit: bool = True
    pass_steps: int = 2000
    random_state: Any = None

    def _check_params(self, *, fitted: bool) -> None:
        check_positive("C", self.C)

    def _step_cost(self, rows: Rows) -> StepCost:
        return StepCost(mean_entries(rows) * len(self.classes_))

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        state = stream(self.seed_, 0, self.n_steps_)
        losses, violating = self._learn_labels(training.rows, training.sampler, n_steps, state, self.W_)
        return losses / len(self.classes_), violating / len(self.classes_)

    def _learn_labels(
        self, rows: Rows, sampler: Labels, n_steps: int, state: np.ndarray, W: np.ndarray
    ) -> tuple[float, int]:
        """Learn W from images drawn from `state`; sum of the losses and number of violations, as the kernels."""
        label_start, labels, usable = sampler
        images = draw_images(usable, n_steps, state)
        X, C = dense_rows(rows, self.n_features_in_), float(self.C)
        if X is None:
            return one_vs_rest_pass(rows, label_start, labels, images, C, W)
        return dense_one_vs_rest_pass(X, rows[3], label_start, labels, images, C, W)
