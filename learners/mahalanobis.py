"""Mahalanobis: the two sides of S(a, b) = -(a - b)' A (a - b) = 2 a' A b - b' A b - a' A a, for a symmetric A.

    query side of a: [2 A a, 1],    gallery side of b: [b, -b' A b]

-a' A a is left out: it is the same for all images of a query's ranking, and the gallery stays sparse.

Parts that sum to a and to b have sides that sum to theirs:

    part p of a: [2 A p, p' a / a' a],    part p of b: [p, -p' A b]
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from .base import SimilarityLearner
from .maps import Affine, Map, Squares
from .sides import Side, Sides
from .sums import inner_products, product

# Images whose products with A are held at a time: 40 MB at d = 10,000.
_ROWS = 1024


def query_side(Q: Any, A: np.ndarray) -> np.ndarray:
    """[Q 2A, 1]: dense float32 of shape (n, d + 1)."""
    return np.hstack([2 * product(Q, A), np.ones((Q.shape[0], 1), np.float32)])


def query_steps(A: np.ndarray) -> Map:
    """`query_side` as a step."""
    doubled = np.hstack([2 * A, np.zeros((len(A), 1), np.float32)])
    return (Affine(doubled, np.append(np.zeros(len(A), np.float32), np.float32(1))),)


def gallery_side(X: Any, A: np.ndarray) -> Any:
    """[X, -x' A x]: CSR or dense float32 of shape (n, d + 1), as X is."""
    squares_of = np.empty((X.shape[0], 1), np.float32)
    for start in range(0, X.shape[0], _ROWS):
        part = X[start : start + _ROWS]
        XA = product(part, A)
        squares = part.multiply(XA).sum(axis=1) if sp.issparse(part) else inner_products(part, XA)
        squares_of[start : start + _ROWS, 0] = -np.asarray(squares).ravel()
    return sp.hstack([X, squares_of], format="csr") if sp.issparse(X) else np.hstack([X, squares_of])


def query_parts(parts: Any, whole: Any, A: np.ndarray) -> np.ndarray:
    """[P 2A, p' a / a' a] of parts of a, (1, d): dense float32 of shape (n_parts, d + 1)."""
    a = _vector(whole)
    sides = query_side(parts, A)
    sides[:, -1] = product(parts, a[:, None])[:, 0] / (a @ a)
    return sides


def gallery_parts(parts: Any, whole: Any, A: np.ndarray) -> Any:
    """[P, -p' A b] of parts of b, (1, d): CSR or dense float32 of shape (n_parts, d + 1), as the parts are."""
    squares_of = -product(parts, product(whole, A).T)
    return sp.hstack([parts, squares_of], format="csr") if sp.issparse(parts) else np.hstack([parts, squares_of])


def _vector(row: Any) -> np.ndarray:
    return np.asarray(row.toarray() if sp.issparse(row) else row).ravel()


def check_shrinkage(shrinkage: Any) -> None:
    """Refuse anything but a number above 0, up to 1."""
    if not isinstance(shrinkage, Real) or not 0 < float(shrinkage) <= 1:
        raise ValueError(f"shrinkage must lie above 0, and at 1 at most, got {shrinkage!r}")


def shrunken(C: np.ndarray, shrinkage: float) -> np.ndarray:
    """(1 - shrinkage) C + shrinkage tr(C) / d I; the identity where C is zero."""
    scale = np.trace(C) / len(C)
    return (1 - shrinkage) * C + shrinkage * scale * np.eye(len(C)) if scale > 0 else np.eye(len(C))


def mahalanobis(A: Callable[[], np.ndarray]) -> Sides:
    """Both sides for a symmetric A; that of queries is dense, that of the gallery CSR or dense as the images are."""
    return Sides(
        Side(
            lambda Q: query_side(Q, A()), lambda: query_steps(A()), lambda parts, whole: query_parts(parts, whole, A())
        ),
        Side(
            lambda X: gallery_side(X, A()),
            lambda: (Squares(A()),),
            lambda parts, whole: gallery_parts(parts, whole, A()),
        ),
        space=lambda X: X,
        matrix=A,
    )


class MahalanobisMixin(SimilarityLearner):
    """A learner whose similarity is -(a - b)' A (a - b), for a symmetric `A_`; goes before `OnlineLearner`.

    The query side is [2 A q, 1], dense; the gallery side [x, -x' A x], CSR or dense. Labels are not read.
    """

    linear = True
    A_: np.ndarray  # (d, d)

    def _sides(self) -> Sides:
        return mahalanobis(lambda: np.asarray(self.A_))
