"""One-vs-rest passive-aggressive annotation: one large-margin classifier per label, each on its own.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6.3: "one-versus-rest large margin classifiers of the form f_i(x) = w_i' x trained using the Passive Aggressive
algorithm" of Crammer, Dekel, Keshet, Shalev-Shwartz, Singer: Online Passive-Aggressive Algorithms, JMLR 7, 2006 (PA-I).
For an image x and every label i, with s_i = 1 if the image has the label and -1 if not,

    loss_i = max(0, 1 - s_i w_i' x),    tau_i = min(C, loss_i / |x|^2),    w_i <- w_i + tau_i s_i x

The weights start at zero. All labels of an image are learned in one step, as rows of a matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .annotation import Labels
from .linear import LinearAnnotator
from .online import FASTMATH, Rows, mean_entries
from .triplets import draw_below, stream


@njit(cache=True, nogil=True, error_model="numpy")
def draw_images(usable, n, state):
    """Draw images, uniform over the usable ones: int32 (n,)."""
    drawn = np.empty(n, np.int32)
    for step in range(n):
        drawn[step] = usable[draw_below(len(usable), state)]
    return drawn


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def one_vs_rest_pass(rows, label_start, labels, images, C, W):
    """Learn all labels from the images in turn; sum of the losses and number of violations, over images and labels."""
    indptr, indices, data, norms = rows
    n_labels = W.shape[1]
    one, zero, largest = np.float32(1.0), np.float32(0.0), np.float32(C)
    scores, steps = np.empty(n_labels, np.float32), np.empty(n_labels, np.float32)
    signs = np.full(n_labels, -one)
    losses, violating = 0.0, 0
    for step in range(len(images)):
        image = images[step]
        start, end = indptr[image], indptr[image + 1]
        scores[:] = zero
        for k in range(start, end):
            for i in range(n_labels):
                scores[i] += data[k] * W[indices[k], i]

        own = labels[label_start[image] : label_start[image + 1]]
        signs[own] = one
        scale = one / norms[image] if norms[image] > zero else zero
        total, n_violating = zero, 0
        for i in range(n_labels):
            loss = max(zero, one - signs[i] * scores[i])
            total += loss
            n_violating += loss > zero
            steps[i] = signs[i] * min(largest, loss * scale)
        signs[own] = -one
        losses += float(total)
        violating += n_violating
        if n_violating:
            for k in range(start, end):
                for i in range(n_labels):
                    W[indices[k], i] += data[k] * steps[i]
    return losses, violating


class OneVsRestPA(LinearAnnotator):
    """One passive-aggressive classifier (PA-I) per label; labels are ranked by their classifiers' scores.

    Parameters
    ----------
    C : float, default=0.03
        Aggressiveness: the largest step tau.
    n_steps : int, default=30_000
        Images drawn; each is one step of every label's classifier.
    validation_fraction : float, optional
        Share of each class held out for early stopping: the weights with the best precision at 1 are kept.
    patience : int, optional
        Stop after this many validations without a better one; None runs all steps.
    refit : bool, default=False
        After early stopping, train again on all images for the best number of steps.
    pass_steps : int, default=1000
        Images per pass: the interval of history and callback, and of validation at first; see `OnlineLearner`.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.

    Attributes
    ----------
    W_ : float32 array of shape (d, n_labels)
        Column i is w_i.
    classes_ : array of shape (n_labels,)

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ... In the
    history, `loss` is the mean over images and labels, and `violating` the share of these that violate.

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range, fewer than two labels, or images of which none can be learned from.

    Notes
    -----
    Time per image is proportional to nnz(x) n_labels, in loops over neighbouring memory.

    Peak memory, in units of the 4 d n_labels bytes of W: 1; 2 with `validation_fraction` unless `refit`. Beside it, up
    to 24 MB while labels are ranked for the held-out images.

    Images are drawn uniformly, with replacement, from those that have a label and lack another; the rest are skipped,
    and counted in a warning. Every label an image lacks is learned as a negative, none are sampled.

    Departures: W is float32. The paper ranks labels only; the similarity of images, the correlation of their label
    scores, is ours: with two labels it tells only on which side an image lies. So is that of labels, the cosine of
    their weights less the mean over labels.

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

    def __init__(
        self,
        *,
        C: float = 0.03,
        n_steps: int = 30_000,
        validation_fraction: float | None = None,
        patience: int | None = None,
        refit: bool = False,
        pass_steps: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.n_steps = n_steps
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.pass_steps = pass_steps
        self.random_state = random_state

    def _step_cost(self, rows: Rows) -> float:
        return mean_entries(rows) * len(self.classes_)

    def _pass(self, rows: Rows, sampler: Labels, n_steps: int) -> tuple[float, float]:
        label_start, labels, usable = sampler
        images = draw_images(usable, n_steps, stream(self.seed_, 0, self.n_steps_))
        losses, violating = one_vs_rest_pass(rows, label_start, labels, images, float(self.C), self.W_)
        return losses / len(self.classes_), violating / len(self.classes_)
