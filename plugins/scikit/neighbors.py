"""Learners in pipelines of scikit-learn: as points of a space, or as a graph of nearest neighbours.

Alone in a pipeline, a learner hands on its gallery side, which for OASIS and AROMA is the vectors as they came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from visterm.learners.base import SimilarityLearner
from visterm.learners.blend import effective
from visterm.learners.checks import check_integer
from visterm.learners.oasis import OASIS

_QUERY_ROWS = 1024  # images whose similarities to all others are held at a time


def _digests(X: Any) -> list[bytes]:
    """What tells equal images: a digest of each row."""
    if not sp.issparse(X):
        rows: Iterator[bytes] = (row.tobytes() for row in X)
    else:
        X = X.copy()
        X.sum_duplicates()  # sorted, too
        X.eliminate_zeros()
        ends = zip(X.indptr[:-1], X.indptr[1:], strict=True)
        rows = (X.indices[i:j].astype(np.int64).tobytes() + X.data[i:j].tobytes() for i, j in ends)
    return [hashlib.blake2b(row, digest_size=16).digest() for row in rows]


class _AroundLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of transformers that fit a learner of their own."""

    learner: Any
    learner_: SimilarityLearner

    def _fit_learner(self, X: Any, y: Any) -> Any:
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32)
        self.learner_ = self._learner().fit(X, y)
        return X

    def _learner(self) -> SimilarityLearner:
        return OASIS() if self.learner is None else clone(self.learner)

    def _check_images(self, X: Any) -> Any:
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = self._learner().__sklearn_tags__().target_tags.required
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


class Embedding(_AroundLearner):
    """Images as points whose Euclidean distances are those of `SimilarityLearner.metric`.

    For a step of a pipeline that takes vectors: k-means, logistic regression, nearest neighbours.

    Parameters
    ----------
    learner : SimilarityLearner, optional
        Not fitted: a copy is. `FrozenEstimator(learner)` takes a fitted one. None: `OASIS()`.

    Attributes
    ----------
    learner_ : SimilarityLearner
        Fitted.
    metric_ : Metric

    Notes
    -----
    For OASIS, AROMA and Mahalanobis learners a fit takes O(d^3) time beside that of the learner: a second for d =
    1,280, some minutes for 10,000. `SimilarityNeighbors` does without, and ranks as the learner itself.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from visterm.learners import OASIS, Embedding
    >>> pipeline = make_pipeline(Embedding(OASIS(n_steps=5000, random_state=0)), KNeighborsClassifier(n_neighbors=1))
    >>> pipeline.fit([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], ["a", "a", "b", "b"]).predict(
    ...     [[0.9, 0, 0, 1]]
    ... ).tolist()
    ['a']
    """

    def __init__(self, learner: Any = None) -> None:
        self.learner = learner

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the learner, and make its space; y as of the learner."""
        X = self._fit_learner(X, y)
        self.metric_ = self.learner_.metric()
        self._n_features_out = self.metric_.embed(X[:1]).shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Images as points: float32 of shape (n, size of the space)."""
        X = self._check_images(X)
        return self.metric_.embed(X)


class SimilarityNeighbors(_AroundLearner):
    """Graph of the images that a learner finds most similar, as `KNeighborsTransformer` makes it of distances.

    For a step of a pipeline that takes precomputed distances: `KNeighborsClassifier`, `DBSCAN`, `TSNE`, `Isomap`,
    `UMAP`.

    Parameters
    ----------
    learner : SimilarityLearner, optional
        Not fitted: a copy is. `FrozenEstimator(learner)` takes a fitted one. None: `OASIS()`.
    n_neighbors : int, default=5
        Beside the image itself: rows hold one more, as those of `KNeighborsTransformer`. An image of the fit comes
        first in its own row, at distance 0, even where the learner finds others more similar: `kneighbors()` and `TSNE`
        drop it.
    mode : {"distance", "connectivity"}, default="distance"
        Distances, or ones.

    Attributes
    ----------
    learner_ : SimilarityLearner
        Fitted.
    n_samples_fit_ : int
    largest_ : float
        The largest similarity among the images of the fit. The distance of a query and an image is the difference of
        their similarity from it, and zero for any that is larger.

    Notes
    -----
    Exact: a query is compared with all images of the fit, which are kept. A share of what was learned, where the
    learner chose one, counts. MuSL compares without labels. The distances rank as the learner does; they are no metric.

    Examples
    --------
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from visterm.learners import OASIS, SimilarityNeighbors
    >>> pipeline = make_pipeline(
    ...     SimilarityNeighbors(OASIS(n_steps=5000, random_state=0), n_neighbors=1),
    ...     KNeighborsClassifier(n_neighbors=1, metric="precomputed"),
    ... )
    >>> pipeline.fit([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], ["a", "a", "b", "b"]).predict(
    ...     [[0.9, 0, 0, 1]]
    ... ).tolist()
    ['a']
    """

    def __init__(self, learner: Any = None, *, n_neighbors: int = 5, mode: str = "distance") -> None:
        self.learner = learner
        self.n_neighbors = n_neighbors
        self.mode = mode

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the learner, and keep the images; y as of the learner."""
        check_integer("n_neighbors", self.n_neighbors, minimum=1)
        if self.mode not in ("distance", "connectivity"):
            raise ValueError(f"mode must be 'distance' or 'connectivity', got {self.mode!r}")
        X = self._fit_learner(X, y)
        fitted: Any = self.learner_
        self._similarity = effective(fitted.estimator if isinstance(fitted, FrozenEstimator) else fitted)
        self._gallery = X
        self._known = _digests(X)
        self.n_samples_fit_ = self._n_features_out = X.shape[0]
        parts = (X[start : start + _QUERY_ROWS] for start in range(0, X.shape[0], _QUERY_ROWS))
        self.largest_ = max(float(self._similarity.similarity(part, X).max()) for part in parts)
        return self

    def transform(self, X: Any) -> sp.csr_matrix:
        """Nearest images of the fit: float32 CSR of shape (n, n_samples_fit_), each row from near to far.

        Equally similar ones are in the order of the fit, after the image itself, or the first copy of it.
        """
        X = self._check_images(X)
        own = self._own(X)
        k = min(self.n_neighbors + 1, self.n_samples_fit_)
        nearest = np.empty((X.shape[0], k), np.int32)
        distances = np.empty((X.shape[0], k), np.float32)
        for start in range(0, X.shape[0], _QUERY_ROWS):
            rows = slice(start, start + _QUERY_ROWS)
            scores = self._similarity.similarity(X[rows], self._gallery)
            known = np.flatnonzero(own[rows] >= 0)
            scores[known, own[rows][known]] = np.inf
            nearest[rows] = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            distances[rows] = np.take_along_axis(scores, nearest[rows], axis=1)
        distances = np.maximum(np.float32(self.largest_) - distances, np.float32(0))
        data = np.ones_like(distances) if self.mode == "connectivity" else distances
        ends = np.arange(0, X.shape[0] * k + 1, k, dtype=np.int32)
        return sp.csr_matrix((data.ravel(), nearest.ravel(), ends), shape=(X.shape[0], self.n_samples_fit_))

    def _own(self, X: Any) -> np.ndarray:
        """Place of each image among those of the fit, -1 for others."""
        rows = _digests(X)
        if rows == self._known:
            return np.arange(len(rows))
        places = dict(zip(reversed(self._known), reversed(range(len(self._known))), strict=True))
        return np.array([places.get(row, -1) for row in rows])
