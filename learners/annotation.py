"""Base of the learners that rank labels for an image: WSABIE, PAMIR-IA, one-vs-rest passive-aggressive and k-NN.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010.
The score of annotation i for image x is f_i(x); the annotations of an image are the labels of the largest scores.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from . import validation
from .checks import plain_labels, plain_supervision, refuse_none
from .online import OnlineLearner
from .options import Callback
from .rows import FASTMATH, Int
from .sums import product

_log = logging.getLogger(__name__)

# Scores held at a time by `annotate`: with what sorts them, 24 MB.
_N_SCORES = 1 << 20
_N_IMAGES = 4096  # and images, whose embeddings are held too

_N_BEST = 10  # labels of an image, or near a label, where nothing else is asked for
_FEW = 64  # up to so many are found by insertion, more by sorting

_ONE, _TWO, _THREE, _FOUR = (np.uint64(k) for k in (1, 2, 3, 4))  # of the same type as what they are added to


# Inlined by force: compiled apart it would round a little otherwise than the copies in kernels, and the linker would
# take the one or the other, as this process compiles kernels or finds them in the cache.
@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def combine_rows(
    indices: np.ndarray, data: np.ndarray, start: Int, end: Int, M: np.ndarray, width: Int, size: Int, out: np.ndarray
) -> None:
    """Out = the sum of data[i] times row indices[i] of M, for i of start to end - 1.

    M has one dimension; row j begins at j * width, and its first `size` numbers are read. All whole numbers are uint64.
    Four rows at a time, so that the sums are read and written a quarter as often.
    """
    for k in range(size):
        out[k] = np.float32(0.0)
    i = start
    while i + _THREE < end:
        a, b = np.uint64(indices[i]) * width, np.uint64(indices[i + _ONE]) * width
        c, d = np.uint64(indices[i + _TWO]) * width, np.uint64(indices[i + _THREE]) * width
        at_a, at_b, at_c, at_d = data[i], data[i + _ONE], data[i + _TWO], data[i + _THREE]
        for k in range(size):
            out[k] += (at_a * M[a + k] + at_b * M[b + k]) + (at_c * M[c + k] + at_d * M[d + k])
        i += _FOUR
    while i < end:
        a, at_a = np.uint64(indices[i]) * width, data[i]
        for k in range(size):
            out[k] += at_a * M[a + k]
        i += _ONE


class AnnotatorMixin:
    """Ranks labels for an image.

    A subclass notes the labels with `_note_labels` in `fit`, saves `classes_`, and has `label_scores`; its `_sides`
    have `labels` where labels have vectors.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
        The labels in the order of their numbers: sorted, or 0..n_labels-1 where y was a matrix.
    labels_per_image_ : int or None
        Mean number of labels of a labelled image of the fit, rounded; None where y had one label per image.
    """

    ranks_labels = True
    classes_: np.ndarray
    labels_per_image_: int | None = None  # of learners saved before there was `predict`
    _first_classes: Any = None  # during a first `partial_fit` that names all labels

    @abstractmethod
    def label_scores(self, X: Any) -> np.ndarray:
        """Score of every label for every image, larger is better: float32 of shape (n, n_labels)."""

    def label_vectors(self) -> np.ndarray:
        """Vectors of the labels, whose inner products tell which labels are near: float32 of shape (n_labels, D).

        WSABIE's are embeddings, as `transform` has them of images; those of learners with a vector of weights per label
        are these less their mean over labels, scaled to unit norm.
        """
        check_is_fitted(self)
        vectors = self._sides().labels  # type: ignore[attr-defined]  # of the learner that this is mixed into
        if vectors is None:
            raise NotImplementedError(f"{type(self).__name__} has no vectors of labels")
        return vectors()

    def annotate(self, X: Any, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Best labels of every image.

        Parameters
        ----------
        X : CSR or dense of shape (n, n_features_in_)
        k : int, optional
            1 to n_labels; None: 10, or all where there are fewer.

        Returns
        -------
        indices : int32 array of shape (n, k)
            Places in `classes_`, the best first; of equal scores the smaller place first.
        scores : float32 array of shape (n, k)
        """
        check_is_fitted(self)
        X = self._check_images(X)  # type: ignore[attr-defined]  # of the learner that this is mixed into
        k = self._check_k(k, len(self.classes_))
        n = min(max(1, _N_SCORES // len(self.classes_)), _N_IMAGES)
        parts = [_best(self.label_scores(X[i : i + n]), k) for i in range(0, X.shape[0], n)]
        return np.concatenate([indices for indices, _ in parts]), np.concatenate([scores for _, scores in parts])

    @contextlib.contextmanager
    def _naming(self, classes: Any) -> Iterator[None]:
        """Let `_note_labels` take these labels, if any, in place of those that y names."""
        self._first_classes = classes
        try:
            yield
        finally:
            del self._first_classes

    def predict(self, X: Any) -> np.ndarray:
        """Best label of every image, or best labels where the fit had several per image.

        Parameters
        ----------
        X : CSR or dense of shape (n, n_features_in_)

        Returns
        -------
        array of shape (n,), of `classes_`; or int array of shape (n, n_labels)
            Where y was a matrix: ones for the `labels_per_image_` best labels of each image, zeros for the others.
        """
        check_is_fitted(self)
        if self.labels_per_image_ is None:
            return self.classes_[self.annotate(X, 1)[0][:, 0]]
        best = self.annotate(X, self.labels_per_image_)[0]
        predicted = np.zeros((len(best), len(self.classes_)), int)
        np.put_along_axis(predicted, best, 1, axis=1)
        return predicted

    def similar_labels(self, labels: Any, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Labels nearest to labels, by the inner product of their vectors, without the labels themselves.

        Parameters
        ----------
        labels : array of int of shape (n,)
            Places in `classes_`.
        k : int, optional
            1 to n_labels - 1; None: 10, or all others where there are fewer.

        Returns
        -------
        indices, scores : as `annotate` returns them
        """
        check_is_fitted(self)
        labels, n_labels = np.asarray(labels), len(self.classes_)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels < 0).any() or (labels >= n_labels).any():
            raise ValueError(f"labels must be places in classes_, integers of 0 to {n_labels - 1} in an array")
        k = self._check_k(k, n_labels - 1)
        vectors = self.label_vectors()
        scores = product(vectors[labels], vectors.T)
        scores[np.arange(len(labels)), labels] = -np.inf
        return _best(scores, k)

    @staticmethod
    def _check_k(k: int | None, most: int) -> int:
        if k is None:
            return min(_N_BEST, most)
        if not isinstance(k, Integral) or not 1 <= k <= most:
            raise ValueError(f"k must lie between 1 and the number of labels to rank, {most}, got {k!r}")
        return int(k)

    def score(self, X: Any, y: Any) -> float:
        """Precision at 1: the share of the images whose best label is one of theirs, for model selection.

        Images without a label are skipped; labels that were not in the fit count, as errors.

        Parameters
        ----------
        X : CSR or dense of shape (n, n_features_in_)
        y : array of shape (n,), or CSR or dense zeros and ones of shape (n, n_labels)
        """
        check_consistent_length(X, y)
        y = plain_supervision(y)
        best = self.annotate(X, 1)[0][:, 0]
        if not sp.issparse(y):
            return float(np.mean(self.classes_[best] == plain_labels(y)))
        if y.shape[1] != len(self.classes_):
            raise ValueError(f"y must have {len(self.classes_)} columns as in the fit, got {y.shape[1]}")
        labels = self._labels(y)
        labelled = np.flatnonzero(np.diff(labels.indptr))
        return float(labels[labelled, best[labelled]].mean()) if len(labelled) else 0.0

    def _note_labels(self, y: Any, *, reset: bool) -> None:
        """Store the labels, or refuse labels that were not in the first fit."""
        classes, has_none = _distinct(y)
        if reset:
            if self._first_classes is not None:
                known = np.unique(plain_labels(self._first_classes))
                if len(new := np.setdiff1d(classes, known)):
                    raise ValueError(f"{len(new)} labels are not in classes, such as {new[0].item()!r}")
                classes = known
            self.classes_ = classes
            self.labels_per_image_ = None
            if sp.issparse(y):
                per_image = np.diff(self._labels(y).indptr)
                self.labels_per_image_ = max(1, round(float(per_image[per_image > 0].mean()))) if per_image.any() else 1
            if len(classes) < 2:
                raise ValueError(f"labels must name at least two classes, got {len(classes)} class")
            if has_none:
                _log.warning("%d of %d labels have no image", has_none, len(classes))
        elif sp.issparse(y):
            if len(classes) != len(self.classes_):
                raise ValueError(f"y must have {len(self.classes_)} columns as in the first fit, got {len(classes)}")
        else:
            new = np.setdiff1d(classes, self.classes_)
            if len(new):
                raise ValueError(f"{len(new)} labels were not in the first fit, such as {new[0].item()!r}; use fit")

    def _labels(self, y: Any) -> sp.csr_array:
        """Which image has which label: bool CSR of shape (n, n_labels), sorted columns."""
        if sp.issparse(y):
            labels = sp.csr_array(y, copy=True)
            labels.sum_duplicates()
            labels.eliminate_zeros()
            return labels.astype(bool)
        places = np.searchsorted(self.classes_, plain_labels(y)).astype(np.int32)
        n = len(places)
        return sp.csr_array((np.ones(n, bool), places, np.arange(n + 1)), shape=(n, len(self.classes_)))


class OnlineAnnotator(AnnotatorMixin, OnlineLearner):
    """Base of annotators that learn from one image and one of its labels at a time.

    As `OnlineLearner`, with `Labels` in place of a TripletSampler. The measure of early stopping on the held-out images
    is precision at 1, the share of them whose best label is one of theirs; of images with several labels it is the mean
    average precision of their labels, as the best label alone is soon one of a few frequent ones, and says little of
    the others. Labels of held-out images that no training image has still count, as errors. The weights or vectors
    before the first pass rank no label, and are never chosen.
    """

    begins_at = "nothing"
    draws = "labels"
    _noted_from_input = OnlineLearner._noted_from_input | {"classes_", "labels_per_image_"}

    @property
    def validation_measure(self) -> str:  # type: ignore[override]  # read only, as the base class uses it
        """Name of the measure of early stopping: "p@1", or "label mAP" of images with several labels.

        "mAP" where only whole classes were held out, whose labels cannot be ranked.
        """
        if self.held_out_ is not None and not len(self._held_out_of_known()):
            return "mAP"
        return "p@1" if self.labels_per_image_ is None else "label mAP"

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, *, callback: Callback | None = None, progress: Callback | None = None
    ) -> Self:
        """As `OnlineLearner.partial_fit`; `classes` names all labels in the first call, if y lacks some of them."""
        with self._naming(classes):
            return super().partial_fit(X, y, callback=callback, progress=progress)

    def _validator(self, X: sp.csr_array, y: Any, held_out: np.ndarray) -> Callable[[], float]:
        labels = self._labels(y)[held_out]
        labelled = np.flatnonzero(np.diff(labels.indptr))
        if not len(labelled):
            raise ValueError("no image held out for validation has a label")
        images, labels = X[held_out][labelled], labels[labelled]

        def precision_at_1() -> float:
            best, _ = self.annotate(images, 1)
            return float(labels[np.arange(len(best)), best[:, 0]].sum() / len(best))

        def label_map() -> float:
            n = min(max(1, _N_SCORES // len(self.classes_)), _N_IMAGES)
            parts = []
            for start in range(0, images.shape[0], n):
                scores, present = self.label_scores(images[start : start + n]), labels[start : start + n].toarray()
                parts.append(validation.average_precisions(scores, present, np.full(len(present), -1)))
            return validation.mean_of(np.concatenate(parts))

        return precision_at_1 if self.labels_per_image_ is None else label_map


@njit(cache=True, nogil=True)
def _insert_best(scores: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    """Keep the best of every row in `places` and `values`, (n, k): sorted, by insertion."""
    k = places.shape[1]
    for row in range(len(scores)):
        best, place = values[row], places[row]
        for j in range(scores.shape[1]):
            score = scores[row, j]
            if j >= k and not score > best[k - 1]:
                continue
            i = min(j, k - 1)
            while i > 0 and score > best[i - 1]:
                best[i], place[i] = best[i - 1], place[i - 1]
                i -= 1
            best[i], place[i] = score, j


def _best(scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of the k largest of every row, largest first, of equal ones the smaller place first."""
    if k == 1:  # as early stopping asks after every pass
        order = scores.argmax(axis=1)[:, None]
    elif k <= _FEW:  # 2 µs for ten of 1,452; sorting all takes 60
        places = np.empty((len(scores), k), np.int32)
        values = np.empty((len(scores), k), scores.dtype)
        _insert_best(np.ascontiguousarray(scores), places, values)
        return places, values.astype(np.float32, copy=False)
    else:
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order.astype(np.int32), np.take_along_axis(scores, order, axis=1).astype(np.float32)


def _distinct(y: Any) -> tuple[np.ndarray, int]:
    """The labels that y names, and how many of them no image has."""
    if sp.issparse(y):
        if not np.isfinite(y.data).all() or (y.data < 0).any():
            raise ValueError("y must not hold negative, infinite or missing entries")
        sums = np.asarray(y.sum(axis=0)).ravel()
        return np.arange(y.shape[1]), int((sums == 0).sum())
    refuse_none(y)
    classes = np.unique(plain_labels(y))
    if 2 * len(classes) > len(y):  # fractions may be labels, but not if hardly any occurs twice
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # classes of one or two images are usual
            check_classification_targets(y)
    return classes, 0
