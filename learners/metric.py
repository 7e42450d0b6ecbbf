"""A distance of images by what a learner has learned, for algorithms that want one: k-means, trees, DBSCAN.

A similarity q' W x is no distance: it has a query side and an image side. The symmetric positive semi-definite part
of W, B B', has a root, and |B' (a - b)| is a distance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp


def positive_part(W: np.ndarray) -> np.ndarray:
    """B of shape (d, rank) with B B' the positive semi-definite part of W, which is symmetric and is overwritten."""
    # The transpose is the same matrix in the order that LAPACK works in, so that it makes no copy.
    values, vectors = scipy.linalg.eigh(W.T, overwrite_a=True, check_finite=False)
    # What rounding makes of a zero is not an eigenvalue.
    positive = values > max(values[-1], 0.0) * len(values) * np.finfo(np.float32).eps
    root = vectors[:, positive]
    root *= np.sqrt(values[positive])
    return root


class Metric:
    """Euclidean distance in the space of a learner; made by `SimilarityLearner.metric`.

    Parameters
    ----------
    side : callable
        Vectors (n, n_features) -> float32 (n, d).
    root : float32 array of shape (d, rank), optional
        B.

    Notes
    -----
    A call for two vectors maps both. For many images, map them once with `embed`, and take Euclidean distances of the
    results: `Embedding` does so in a pipeline.
    """

    def __init__(self, side: Any, root: np.ndarray | None) -> None:
        self._side = side
        self._root = root

    def embed(self, X: Any) -> np.ndarray:
        """Images as points of the space: dense float32 of shape (n, size of the space)."""
        side = self._side(X)
        side = side if self._root is None else side @ self._root
        return side.toarray() if sp.issparse(side) else np.asarray(side)

    def __call__(self, a: Any, b: Any) -> float:
        """Distance of two vectors of shape (n_features,)."""
        first, second = self.embed(np.stack([a, b]))
        return float(np.linalg.norm(first - second))
