"""Linear WARP: one vector of weights per label, learned by WSABIE's loss, without an embedding.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
table 5, lower half: f_i(x) = w_i' x, trained by the WARP loss. For an image x and one of its labels y, labels i that
are not of the image are drawn with replacement until one violates the margin, 1 + f_i(x) > f_y(x). If the N-th draw is
the first that does, one gradient step lowers L(floor((Y - 1) / N)) |1 - f_y(x) + f_i(x)|_+ (section 3):

    w_y <- w_y + g L x,    w_i <- w_i - g L x,    |w_i| <= C

with a learning rate g; vectors that have become longer than C are scaled back to C. The weights start at zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from visterm.learners.checks import check_positive
from visterm.learners.draws import draw_below, stream
from visterm.learners.loop import StepCost, Training
from visterm.learners.rows import FASTMATH, Float, Int, Rows, dense_rows, mean_entries
from visterm.learners.samplers import Labels
from visterm.learners.warp_loss import (
    check_decay_steps,
    draw_other,
    draw_pairs,
    draws_one_by_one,
    draws_until,
    learning_rates,
    steps_to_half,
    violating_labels,
    warp_weights,
)

from .linear import LinearAnnotator

_LEAST_SCALE = np.float32(1e-9)  # of the weights of a label: of smaller ones W, and steps divided by them, overflow


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _score(indices: np.ndarray, x: np.ndarray, W: np.ndarray, label: Int, contiguous: bool) -> Float:
    """w_i' x; of images without zeros a loop over neighbouring numbers."""
    dot = np.float32(0.0)
    if contiguous:
        for k in range(len(x)):
            dot += x[k] * W[label, k]
    else:
        for k in range(len(x)):
            dot += x[k] * W[label, indices[k]]
    return dot


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _score_all(
    indices: np.ndarray, x: np.ndarray, W: np.ndarray, contiguous: bool, scale: np.ndarray, scores: np.ndarray
) -> None:
    """Write w_i' x of all labels; of images with zeros the weights of a visterm are the neighbours."""
    if contiguous:
        for label in range(len(scores)):
            scores[label] = scale[label] * _score(indices, x, W, label, contiguous)
    else:
        scores[:] = np.float32(0.0)
        for k in range(len(x)):
            column = indices[k]
            for label in range(len(scores)):
                scores[label] += x[k] * W[label, column]
        for label in range(len(scores)):
            scores[label] *= scale[label]


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _move(
    indices: np.ndarray,
    x: np.ndarray,
    norm: Float,
    W: np.ndarray,
    label: Int,
    score: Float,
    step: Float,
    max_norm: Float,
    scale: np.ndarray,
    squared: np.ndarray,
) -> None:
    """w_i <- w_i + step x, and back to `max_norm` where it has become longer.

    w_i is scale[i] times row i of W, so that scaling back takes one operation; squared[i] is |w_i|^2.
    """
    amount = step / scale[label]
    for k in range(len(x)):
        W[label, indices[k]] += amount * x[k]
    squared[label] += 2.0 * step * score + step * step * norm
    if squared[label] > max_norm * max_norm:
        scale[label] *= np.float32(max_norm / np.sqrt(squared[label]))
        squared[label] = max_norm * max_norm
        if scale[label] < _LEAST_SCALE:
            for k in range(W.shape[1]):
                W[label, k] *= scale[label]
            scale[label] = np.float32(1.0)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def linear_warp_pass(
    rows: Rows,
    labels: tuple[np.ndarray, ...],
    pairs: np.ndarray,
    state: np.ndarray,
    weights: np.ndarray,
    rates: np.ndarray,
    max_norm: Float,
    contiguous: bool,
    W: np.ndarray,
) -> tuple[float, int]:
    """Learn from (image, one of its labels) in turn; sum of the losses and number of violating pairs.

    W is (n_labels, d); `weights[N]` is L where the N-th draw is the first to violate, and its length bounds the draws.
    `contiguous` says that images have all entries, in the order of W's columns. Where the first few draws do not
    violate, all labels are scored, see `wsabie.warp_pass`.
    """
    indptr, indices, data, norms = rows
    label_start, label_numbers, _ = labels
    n_labels = len(W)
    scale = np.ones(n_labels, np.float32)
    squared = np.zeros(n_labels, np.float64)
    for i in range(n_labels):
        for k in range(W.shape[1]):
            squared[i] += np.float64(W[i, k]) * np.float64(W[i, k])
    scores, all_wrong = np.empty(n_labels, np.float32), np.empty(n_labels, np.int64)
    most = len(weights) - 1
    few = draws_one_by_one(n_labels, most)
    losses, violating = 0.0, 0
    for step in range(len(pairs)):
        image, right = pairs[step]
        start, end = indptr[image], indptr[image + 1]
        columns, x = indices[start:end], data[start:end]
        own = label_numbers[label_start[image] : label_start[image + 1]]
        best = scale[right] * _score(columns, x, W, right, contiguous)
        threshold = best - np.float32(1.0)
        n, wrong, score = 0, np.int64(right), threshold
        while score <= threshold and n < few:
            n += 1
            wrong = draw_other(own, n_labels, state)  # type: ignore[assignment]  # mypy: of other precision; Numba infers one type
            score = scale[wrong] * _score(columns, x, W, wrong, contiguous)
        if score <= threshold and few < most:
            _score_all(columns, x, W, contiguous, scale, scores)
            n_wrong = violating_labels(own, scores, threshold, all_wrong)
            if n_wrong:
                n += draws_until(n_wrong, n_labels - len(own), state)
                wrong = all_wrong[draw_below(n_wrong, state)]
                score = scores[wrong]
        if score <= threshold or n > most:
            continue
        losses += float(weights[n] * (score - threshold))
        violating += 1
        amount, norm = rates[step] * weights[n], norms[image]
        _move(columns, x, norm, W, right, best, amount, max_norm, scale, squared)
        _move(columns, x, norm, W, wrong, score, -amount, max_norm, scale, squared)
    for i in range(n_labels):
        if scale[i] != np.float32(1.0):
            for k in range(W.shape[1]):
                W[i, k] *= scale[i]
    return losses, violating


@dataclass(kw_only=True, repr=False, eq=False)
class LinearWARP(LinearAnnotator):
    """One vector of weights per label, trained by WSABIE's WARP loss: the linear model of WSABIE's table 5.

    Parameters
    ----------
    max_norm : float, default=10.0
        C: how long the weights of a label may become. Smaller is smoother.
    learning_rate : float, default=0.1
        Length of the first gradient step.
    decay_steps : int, "auto" or None, default="auto"
        The step at which the learning rate has fallen to a half; see `WSABIE`.
    n_steps : int or None, default=None
        Draws of an image and one of its labels. None: 500,000, or 200 per image if that is more.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.

    Attributes
    ----------
    W_ : float32 array of shape (d, n_labels)
        Column i is w_i.
    classes_ : array of shape (n_labels,)

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Notes
    -----
    A step costs nnz(x) operations for its label, for each label drawn, and twice as much where one violates; where a
    sixteenth of all labels is drawn in vain, nnz(x) n_labels for all scores (see `WSABIE`). A pass costs d n_labels
    more, for the lengths of the weights.

    Peak memory, in units of the 4 d n_labels bytes of W: 1; 2 with `validation_fraction` unless `refit`. Beside it, up
    to 24 MB while labels are ranked for the held-out images. Where half of the entries of the images or more are not
    zero, W is learned transposed, one W more, and zeros are stored.

    Departures from the paper, which says little of this system: the learning rate falls with the steps; an image may
    have several labels (see `WSABIE`); the limit on the length of w_i is that which WSABIE puts on W_i. W is float32.
    The similarity of images, the correlation of their label scores (with two labels their product), is ours. So is that
    of labels, the cosine of their weights less the mean over labels.

    References
    ----------
    J. Weston, S. Bengio, N. Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings.
    European Conference on Machine Learning, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import LinearWARP
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = LinearWARP(n_steps=2000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> best, scores = learner.annotate(X, k=1)
    >>> [str(learner.classes_[i]) for i in best[:, 0]]
    ['a', 'a', 'b', 'b']
    """

    _steps = (500_000, 200)

    max_norm: float = 10.0
    learning_rate: float = 0.1
    decay_steps: int | str | None = "auto"
    n_steps: int | None = None
    validation_fraction: float | None = None
    patience: int | None = 10
    refit: bool = True
    pass_steps: int = 10_000
    random_state: Any = None

    def _check_params(self, *, fitted: bool) -> None:
        for name in ("max_norm", "learning_rate"):
            check_positive(name, getattr(self, name))
        check_decay_steps(self.decay_steps)

    def _step_cost(self, rows: Rows) -> StepCost:
        return StepCost(mean_entries(rows) * (4 + 0.5 * len(self.classes_)))  # at worst all labels are scored

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        rows: Rows = training.rows
        sampler: Labels = training.sampler
        half = steps_to_half(self.decay_steps, training.y)
        rates = learning_rates(self.learning_rate, half, self.n_steps_, n_steps)
        state = stream(self.seed_, 0, self.n_steps_)
        pairs = np.empty((n_steps, 2), np.int32)
        draw_pairs(*sampler, state, pairs)
        settings = rows, sampler, pairs, state, warp_weights(len(self.classes_) - 1), rates, float(self.max_norm)
        if dense_rows(rows, self.n_features_in_) is None:
            return linear_warp_pass(*settings, False, self.W_.T)
        W = np.ascontiguousarray(self.W_.T)  # (n_labels, d): the weights of a label as neighbours
        figures = linear_warp_pass(*settings, True, W)
        self.W_[:] = W.T
        return figures
