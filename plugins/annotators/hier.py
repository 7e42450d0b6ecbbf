"""HIER: images compared by what classes they probably show, and by how near these are in a hierarchy.

Deng, Berg, Fei-Fei: Hierarchical Semantic Indexing for Large Scale Image Retrieval, CVPR 2011; a compared system of
Crammer, Chechik: Adaptive Regularization for Weight Matrices, ICML 2012, section 5.1. With p_i(a) the probability that
image a is of class i,

    S(a, b) = sum_ij p_i(a) S_ij p_j(b),    S_ij = 1 - h(lowest shared ancestor of i and j) / h(root)

where h(q) is the height of a node of the is-a hierarchy, the longest way down to a leaf: 0 for a leaf. Without a
hierarchy S is the identity. The probabilities are those of one-vs-rest classifiers w_i (see `one_vs_rest`), calibrated
by Platt's method:

    p_i(x) = 1 / (1 + exp(-(a_i w_i' x + b_i)))

with a_i and b_i of the largest likelihood, the targets being (n+ + 1) / (n+ + 2) for the n+ images of the class and
1 / (n- + 2) for the n- others. Scores of images that the classifiers have learned from are too good to calibrate by:
three more models learn without a third of the images each, and give the scores of that third.
"""

from __future__ import annotations

import graphlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from visterm.learners.draws import stream
from visterm.learners.loop import StepCost, Training
from visterm.learners.maps import Affine, Logistic, Map
from visterm.learners.rows import Rows, csr_of, readonly
from visterm.learners.sides import Side, Sides
from visterm.learners.sums import product, row_means

from .one_vs_rest import OneVsRestPA

_log = logging.getLogger(__name__)

_FOLDS = 3  # models of which each leaves a share of the images out
_CALIBRATE, _CALIBRATE_QUICKLY = 20_000, 2_000  # images, at the end and for a validation check
_NEWTON_STEPS, _HALVINGS = 30, 20
_LABELS_AT_ONCE = 256


def class_similarity(labels: Any, is_a: Mapping[str, Sequence[str]] | None) -> np.ndarray:
    """S of the module's first lines, float32 (n_labels, n_labels); ValueError for a loop in the table.

    Labels are found in the table by their text, ``str(label)``; one that names none of them is a ValueError, too.
    `is_a` are the parents of labels and of parents. A node may have several: the lowest of all shared ancestors counts.
    Several nodes without a parent are joined below one root, as are labels that the table does not name; a warning
    counts these.
    """
    names = [str(label) for label in labels]
    S = np.eye(len(names), dtype=np.float32)
    if is_a is None:
        return S
    parents = {str(child): [str(parent) for parent in above] for child, above in is_a.items()}
    try:
        upwards = list(graphlib.TopologicalSorter(parents).static_order())  # parents first
    except graphlib.CycleError as error:
        raise ValueError(f"is_a runs in a loop: {' is a '.join(error.args[1][::-1])}") from None
    height = dict.fromkeys(upwards, 0)
    unknown = [name for name in names if name not in height]
    if len(unknown) == len(names):
        raise ValueError(f"is_a names none of the {len(names)} labels, such as {names[0]!r}")
    if unknown:
        _log.warning("is_a names %d of %d labels not, such as %s", len(unknown), len(names), unknown[0])

    for child in reversed(upwards):
        for parent in parents.get(child, ()):
            height[parent] = max(height[parent], height[child] + 1)
    above: dict[str, set[str]] = {}  # a node and all its ancestors
    for node in upwards:
        above[node] = {node}.union(*(above[parent] for parent in parents.get(node, ())))
    roots = [node for node in upwards if not parents.get(node)]
    joined = len(roots) > 1 or bool(unknown)
    top = max(height[root] for root in roots) + joined
    for i, first in enumerate(names):
        for j, second in enumerate(names[:i]):
            shared = above.get(first, set()) & above.get(second, set())
            if shared:
                S[i, j] = S[j, i] = 1 - min(height[node] for node in shared) / top
    return S


def calibrate(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope a_i and intercept b_i of every label, (n_labels,), by Newton's method; both inputs are (n, n_labels)."""
    f = np.asarray(scores, np.float64)
    n_positive = labels.sum(axis=0)
    n_negative = len(labels) - n_positive
    targets = np.where(labels, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))

    def loss(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        z = a * f + b
        return (np.logaddexp(0, z) - targets * z).sum(axis=0)

    a, b = np.zeros(f.shape[1]), np.log((n_positive + 1) / (n_negative + 1))
    now = loss(a, b)
    for _ in range(_NEWTON_STEPS):
        p = expit(a * f + b)
        error, weight = p - targets, p * (1 - p)
        gradient = (error * f).sum(axis=0), error.sum(axis=0)
        aa, ab, bb = (weight * f * f).sum(axis=0), (weight * f).sum(axis=0), weight.sum(axis=0)
        aa, bb = aa + 1e-9, bb + 1e-9  # where all scores are alike
        det = aa * bb - ab * ab
        step_a = (bb * gradient[0] - ab * gradient[1]) / det
        step_b = (aa * gradient[1] - ab * gradient[0]) / det
        length, rounding = np.ones_like(a), 1e-10 * np.abs(now)
        for _ in range(_HALVINGS):
            new = loss(a - length * step_a, b - length * step_b)
            if (worse := new > now + rounding).any():
                length[worse] /= 2
            else:
                break
        length[new > now + rounding] = 0
        a, b = a - length * step_a, b - length * step_b
        ended = np.abs(now - new) <= rounding
        now = np.minimum(now, new)
        if ended.all():
            break
    return a, b


@dataclass(kw_only=True, repr=False, eq=False)
class HIER(OneVsRestPA):
    """Hierarchical semantic indexing: class probabilities, compared by the similarity of classes in a hierarchy.

    Parameters
    ----------
    is_a : mapping of text to list of text, optional
        Parents of each label, and of parents; see `class_similarity`. None: classes are only similar to themselves.
    C : float, default=0.03
        Aggressiveness of the classifiers: the largest step tau.
    n_steps : int, default=200_000
        Images drawn for each model; each is one step of every label's classifier.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.

    Attributes
    ----------
    W_ : float32 array of shape (d, n_labels)
        Column i is w_i.
    fold_weights_ : float32 array of shape (3, d, n_labels)
        Of the models that calibrate: image i of the training images is left out by model i mod 3.
    slopes_, intercepts_ : float32 arrays of shape (n_labels,)
        a and b.
    class_similarity_ : float32 array of shape (n_labels, n_labels)
        S.
    classes_ : array of shape (n_labels,)

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range, a hierarchy with a loop or that names no label, fewer than two labels,
        or images of which none can be learned from.

    Notes
    -----
    Time is four times that of `OneVsRestPA`, as four models learn; memory is five times, in units of W, and nine times
    with `validation_fraction` unless `refit`.

    The gallery side is the probabilities p, the query side S p. `label_scores` are the probabilities. With one label
    per image they are scaled to sum to one; with several each stands for itself. A label that no training image has
    keeps the slope 1 and the intercept 0 of the beginning; `partial_fit` calibrates by the images that it is given, but
    for labels that none of them has.

    Departures from the paper: the classifiers are passive-aggressive ones, as in WSABIE's comparison, in place of
    support vector machines; there is no hashing. Calibration uses at most 20,000 images, evenly spaced.

    References
    ----------
    J. Deng, A. C. Berg, L. Fei-Fei: Hierarchical Semantic Indexing for Large Scale Image Retrieval. CVPR 2011.

    J. Platt: Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods. 1999.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import HIER
    >>> X = np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    >>> y = ["toad", "toad", "frog", "frog", "lamp", "lamp"]
    >>> is_a = {"toad": ["amphibian"], "frog": ["amphibian"], "amphibian": ["thing"], "lamp": ["thing"]}
    >>> learner = HIER(is_a=is_a, n_steps=2000, random_state=0).fit(X, y)
    >>> toad, frog, lamp = learner.similarity(X[:1], X[::2])[0]  # of a toad
    >>> bool(toad > frog > lamp)
    True
    """

    linear = False
    _calibrate_quickly = _CALIBRATE_QUICKLY
    _learned = ("W_", "fold_weights_")
    # An image of another class is certain to be of one that is known, and few held-out classes do not show what that
    # costs among many: with a quarter, mAP on other classes fell by 0.09 (deep vectors of Caltech-101).
    most_open = 0.05
    _noted_from_input = OneVsRestPA._noted_from_input | {"class_similarity_"}
    fold_weights_: np.ndarray = field(init=False)  # (3, d, n_labels)
    slopes_: np.ndarray = field(init=False)  # (n_labels,)
    intercepts_: np.ndarray = field(init=False)  # (n_labels,)
    class_similarity_: np.ndarray = field(init=False)  # (n_labels, n_labels)

    is_a: Mapping[str, Sequence[str]] | None = None

    # -- sides ---------------------------------------------------------------------------------------------------------

    def label_scores(self, X: Any) -> np.ndarray:
        """Probability of every label for every image: float32 of shape (n, n_labels)."""
        scores = super().label_scores(X)
        probabilities = expit(scores * np.asarray(self.slopes_) + np.asarray(self.intercepts_))
        if self.labels_per_image_ is not None:
            return probabilities
        sums = row_means(probabilities) * np.float32(probabilities.shape[1])
        return probabilities / np.where(sums > 0, sums, np.float32(1))[:, None]

    def _sides(self) -> Sides:
        """S p and the probabilities p, both float32 of shape (n, n_labels). Labels of the gallery are not read."""

        def steps() -> Map:
            scores = Affine(np.asarray(self.W_) * np.asarray(self.slopes_), np.asarray(self.intercepts_))
            return (scores, Logistic(to_sum_one=self.labels_per_image_ is None))

        S = np.asarray(self.class_similarity_)
        query = Side(lambda Q: product(self.label_scores(Q), S), lambda: (*steps(), Affine(S.astype(np.float32))))
        return Sides(query, Side(self.label_scores, steps), labels=self._label_vectors)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self, *, fitted: bool) -> None:
        super()._check_params(fitted=fitted)
        is_a = {} if self.is_a is None else self.is_a
        # A text would be read as a list of its letters.
        if not isinstance(is_a, Mapping) or any(isinstance(parents, str) for parents in is_a.values()):
            raise ValueError(f"is_a must name the parents of each label, as a dictionary of lists, got {self.is_a!r}")
        self.class_similarity_ = class_similarity(self.classes_, self.is_a)

    def _start(self) -> None:
        super()._start()
        self.fold_weights_ = np.zeros((_FOLDS, *self.W_.shape), np.float32)
        n_labels = len(self.classes_)
        self.slopes_, self.intercepts_ = np.ones(n_labels, np.float32), np.zeros(n_labels, np.float32)

    def _step_cost(self, rows: Rows) -> StepCost:
        return StepCost((1 + _FOLDS) * super()._step_cost(rows).nanoseconds)

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        figures = super()._pass(training, n_steps)
        label_start, labels, usable = training.sampler
        for fold in range(_FOLDS):
            others = readonly(usable[usable % _FOLDS != fold])
            if len(others):
                state = stream(self.seed_, 1 + fold, self.n_steps_)
                sampler = label_start, labels, others
                self._learn_labels(training.rows, sampler, n_steps, state, self.fold_weights_[fold])
        return figures

    def _settle(self, moment: str, training: Training | None) -> None:
        if moment != "pass" and training is not None:
            self._calibrate(training, self._calibrate_quickly if moment == "validation" else _CALIBRATE)

    def _calibrate(self, training: Training, most: int) -> None:
        """Calibrate by scores of images that the models have not learned from, of labels that some of these have."""
        X, n_images = csr_of(training.rows, self.n_features_in_), len(training.rows[3])
        places = np.arange(0, n_images, -(-n_images // most))
        label_start, labels, _ = training.sampler
        shape = n_images, len(self.classes_)
        present = sp.csr_array((np.ones(len(labels), bool), labels, label_start), shape)[places].toarray()
        has_both = present.any(axis=0) & ~present.all(axis=0)
        for part in _parts(np.flatnonzero(has_both)):
            scores = np.empty((len(places), len(part)), np.float32)
            for fold in range(_FOLDS):
                of_fold = np.flatnonzero(places % _FOLDS == fold)
                W = np.ascontiguousarray(self.fold_weights_[fold][:, part])
                scores[of_fold] = product(X[places[of_fold]], W)
            self.slopes_[part], self.intercepts_[part] = calibrate(scores, present[:, part])


def _parts(labels: np.ndarray) -> Iterable[np.ndarray]:
    return (labels[start : start + _LABELS_AT_ONCE] for start in range(0, len(labels), _LABELS_AT_ONCE))
