"""Cosine similarity: the baseline, nothing learned."""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from .base import Callback, SimilarityLearner
from .maps import Map, Unit
from .sums import row_lengths, unit_rows


class Cosine(SimilarityLearner):
    """Inner product of the images' vectors scaled to unit L2 norm.

    The "Euclidean" of the papers' tables: on unit rows both rank alike, and so does OASIS before its first step. The
    vectors are taken as given: weighting (tf-idf) is done before.

    Attributes
    ----------
    n_features_in_ : int

    Examples
    --------
    >>> from visterm.learners import Cosine
    >>> Cosine().fit([[1.0, 0.0]]).similarity([[3.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]])
    array([[0.6, 0.8]], dtype=float32)
    """

    linear = True

    def fit(self, X: Any, y: Any = None, **options: Any) -> Self:
        """Store the number of columns; `y` is ignored. See `SimilarityLearner.fit`."""
        return super().fit(X, y, **options)

    def _fit(self, X: Any, y: Any, callback: Callback | None, progress: Callback | None) -> Self:
        self._check_images(X, reset=True)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Same as `fit`, but the number of columns must stay."""
        self._check_images(X, reset=not hasattr(self, "n_features_in_"))
        return self

    def transform(self, X: Any, y: Any = None) -> Any:
        """Rows scaled to unit norm, both sides alike; all-zero rows stay zero. Labels are not read."""
        check_is_fitted(self)
        return unit_rows(self._check_images(X))

    def gallery_map(self) -> Map:
        """Scaling to unit length."""
        return (Unit(),)

    def transform_parts(self, parts: Any, whole: Any) -> Any:
        """Parts divided by the length of the image, both sides alike."""
        return self._check_images(parts) / row_lengths(self._check_images(whole))[0]
