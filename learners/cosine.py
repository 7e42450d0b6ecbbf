"""Cosine similarity: the baseline, nothing learned."""

from __future__ import annotations

from typing import Any, Self

from .base import SimilarityLearner
from .options import FitOptions
from .sides import UNIT_ROWS, Sides


class Cosine(SimilarityLearner):
    """Inner product of the images' vectors scaled to unit L2 norm.

    Rows are scaled to unit norm, both sides alike; all-zero rows stay zero. Labels are not read.

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
    needs_labels = False

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        self._check_images(X, reset=True)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Same as `fit`, but the number of columns must stay."""
        self._check_images(X, reset="n_features_in_" not in vars(self))
        return self

    def _sides(self) -> Sides:
        return Sides(gallery=UNIT_ROWS)
