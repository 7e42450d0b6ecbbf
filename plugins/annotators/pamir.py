"""PAMIR-IA: one vector of weights per label, learned to rank the labels of an image, by passive-aggressive updates.

Grangier, Bengio: A Discriminative Kernel-Based Approach to Rank Images from Text Queries, IEEE Transactions on Pattern
Analysis and Machine Intelligence 30(8), 2008, is PAMIR: images ranked for a query. Weston, Bengio, Usunier, ECML 2010,
section 6.3, turn it round: labels ranked for an image. For an image x, one of its labels y and a label j it lacks,

    f_i(x) = w_i' x,    loss = max(0, 1 - f_y(x) + f_j(x))
    tau = min(C, loss / (2 |x|^2)),    w_y <- w_y + tau x,    w_j <- w_j - tau x

since the change of f_y(x) - f_j(x) is tau 2 |x|^2. The weights start at zero.
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

from .linear import LinearAnnotator

# Two images share a few visterms, and most entries of dense vectors, whose steps have to be larger.
_SPARSE_C, _DENSE_C = 0.01, 0.1


@njit(cache=True, nogil=True, error_model="numpy")
def draw_comparisons(
    label_start: np.ndarray, labels: np.ndarray, usable: np.ndarray, n_labels: Int, n: Int, state: np.ndarray
) -> np.ndarray:
    """Draw images, one of the labels of each, and one that it lacks, all uniform: int32 (n, 3)."""
    drawn = np.empty((n, 3), np.int32)
    for step in range(n):
        image = usable[draw_below(len(usable), state)]
        start, end = label_start[image], label_start[image + 1]
        drawn[step, 0] = image
        drawn[step, 1] = labels[start + draw_below(end - start, state)]
        # Among the labels that it lacks, counted without those that it has.
        other = draw_below(n_labels - (end - start), state)
        for k in range(start, end):
            other += labels[k] <= other
        drawn[step, 2] = other
    return drawn


# Sums in the order written: reordered they become vectors of scattered numbers, which is a fifth slower.
@njit(cache=True, nogil=True, error_model="numpy")
def pamir_pass(rows: Rows, comparisons: np.ndarray, C: Float, W: np.ndarray) -> tuple[float, int]:
    """Learn from (image, its label, other label) in turn; sum of the losses and number of violating ones."""
    indptr, indices, data, norms = rows
    losses, violating = 0.0, 0
    for step in range(len(comparisons)):
        image, own, other = comparisons[step]
        start, end = indptr[image], indptr[image + 1]
        margin = np.float32(0.0)
        for k in range(start, end):
            margin += data[k] * (W[indices[k], own] - W[indices[k], other])
        loss = np.float32(1.0) - margin
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1
        tau = np.float32(min(C, loss / (np.float32(2.0) * norms[image])))
        for k in range(start, end):
            W[indices[k], own] += tau * data[k]
            W[indices[k], other] -= tau * data[k]
    return losses, violating


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def dense_pamir_pass(
    X: np.ndarray, norms: np.ndarray, comparisons: np.ndarray, C: Float, W: np.ndarray
) -> tuple[float, int]:
    """The same for images of few zeros, X (n, d), with W transposed, (n_labels, d): loops over neighbouring numbers."""
    losses, violating = 0.0, 0
    for step in range(len(comparisons)):
        image, own, other = comparisons[step]
        x, own_weights, other_weights = X[image], W[own], W[other]
        margin = np.float32(0.0)
        for k in range(len(x)):
            margin += x[k] * (own_weights[k] - other_weights[k])
        loss = np.float32(1.0) - margin
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1
        tau = np.float32(min(C, loss / (np.float32(2.0) * norms[image])))
        for k in range(len(x)):
            own_weights[k] += tau * x[k]
            other_weights[k] -= tau * x[k]
    return losses, violating


@dataclass(kw_only=True, repr=False, eq=False)
class PAMIR(LinearAnnotator):
    """Passive-Aggressive Model for Image Retrieval, ranking labels for an image (PAMIR-IA).

    Parameters
    ----------
    C : float, optional
        Aggressiveness: the largest step tau. None: 0.01, or 0.1 for images of which a quarter of the entries or more
        are not zero.
    n_steps : int, default=1_000_000
        Comparisons of a label that an image has with one that it lacks.
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
    Time per step is proportional to nnz(x), whatever the number of labels is; the scores of all labels take
    nnz(x) n_labels.

    Peak memory, in units of the 4 d n_labels bytes of W: 1; 2 with `validation_fraction` unless `refit`. Beside it, up
    to 24 MB while labels are ranked for the held-out images. Where a quarter of the entries of the images or more are
    not zero, W is learned transposed, one W more, and zeros are stored.

    The papers leave open how comparisons are drawn. Here the image is uniform over those that have a label and lack
    another, then the label over its own, then the other over those that it lacks. Images with no label, or with all,
    are skipped, and counted in a warning.

    Departures: W is float32. The papers rank labels only; the similarity of images, the correlation of their label
    scores (with two labels their product, as a correlation would be 1 or -1), is ours. So is that of labels, the cosine
    of their weights less the mean over labels.

    References
    ----------
    D. Grangier, S. Bengio: A Discriminative Kernel-Based Approach to Rank Images from Text Queries. IEEE Transactions
    on Pattern Analysis and Machine Intelligence 30(8), 1371-1384, 2008.

    J. Weston, S. Bengio, N. Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings.
    ECML 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import PAMIR
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = PAMIR(n_steps=1000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> best, scores = learner.annotate(X, k=1)
    >>> [str(learner.classes_[i]) for i in best[:, 0]]
    ['a', 'a', 'b', 'b']
    """

    C: float | None = None
    n_steps: int = 1_000_000
    validation_fraction: float | None = None
    patience: int | None = 10
    refit: bool = True
    pass_steps: int = 20_000
    random_state: Any = None

    def _check_params(self, *, fitted: bool) -> None:
        if self.C is not None:
            check_positive("C", self.C)

    def _step_cost(self, rows: Rows) -> StepCost:
        return StepCost(5 * mean_entries(rows))

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        rows: Rows = training.rows
        sampler: Labels = training.sampler
        comparisons = draw_comparisons(*sampler, len(self.classes_), n_steps, stream(self.seed_, 0, self.n_steps_))
        X = dense_rows(rows, self.n_features_in_)
        C = float(self.C or (_SPARSE_C if X is None else _DENSE_C))
        if X is None:
            return pamir_pass(rows, comparisons, C, self.W_)
        W = np.ascontiguousarray(self.W_.T)  # (n_labels, d): the weights of a label as neighbours
        figures = dense_pamir_pass(X, rows[3], comparisons, C, W)
        self.W_[:] = W.T
        return figures
