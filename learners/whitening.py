"""Whitening by the scatter within classes: a better start than the vectors themselves, for dense vectors.

Images of one class differ by what does not matter. With m the mean of the images, and C the mean over classes of how
far their images lie from the mean m_c of the class,

    C = 1/n sum over classes c, images i of c of (x_i - m_c)(x_i - m_c)',    A = (C + s tr(C) I)^(-1/2)
    whitened x = A (x - m) / |A (x - m)|

directions in which images of a class differ count less. A learner learns in whitened vectors. For a W learned there,
the similarity of a whitened query z and an image x is z' W A x: whitening stands on the query side, and a gallery, its
indexes and its files stay as they are. z' W A m is left out, which is the same for all images of a query's ranking, and
so is the length of A (x - m), which is nearly the same for all images: with it the mAP was at most 0.003 higher.

An image with several labels, or clicked for several queries, is one of each of these classes. C is that of RCA
(Bar-Hillel et al., ICML 2003), and the whitening is the one that image retrieval learns for its descriptors
(Mikolajczyk, Matas, ICCV 2007).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, wraps
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .base import SimilarityLearner, scores_of
from .given_triplets import GivenTriplets
from .maps import Affine, Map, Unit
from .rows import RowsOf, blocks, is_dense
from .sums import one_thread, product, unit_rows

MAX_FEATURES = 4096  # the root of a matrix of so many dimensions takes a minute, and 500 MB beside it
_SHRINKAGE = 0.01  # s: 0.003 to 0.03 are as good on vectors of photos
_ROWS = 4096  # images that are whitened at a time


def _sums(X: Any, groups: sp.csr_array, rows: np.ndarray) -> np.ndarray:
    """Sum of the images of each group, float64 (n_groups, d): the same numbers whatever is read at a time."""
    sums = np.zeros((groups.shape[1], X.shape[1]))
    for some, part in blocks(X, rows):
        present = np.unique(groups[some].indices)
        # One image after the other is added to what there is.
        added = sp.hstack([sp.eye_array(len(present)), groups[some][:, present].T], format="csc")
        sums[present] = added @ np.vstack([sums[present], part])
    return sums


def within_scatter(X: Any, groups: sp.csr_array, rows: np.ndarray | None = None) -> tuple[np.ndarray, int]:
    """Mean scatter of the images of a group around their mean, and its degrees of freedom.

    Parameters
    ----------
    X : dense images of shape (n, d)
        An array, or another that gives arrays of rows when it is indexed.
    groups : CSR array of shape (n_rows, n_groups)
        Which image is in which groups: ones.
    rows : int array of shape (n_rows,), optional
        The images, as rows of X; by default all.

    Returns
    -------
    float64 array of shape (d, d), int
        Zeros and 0 where no group has two images.
    """
    rows = np.arange(X.shape[0]) if rows is None else rows
    sizes = np.asarray(groups.sum(axis=0)).ravel()
    groups = groups[:, sizes >= 2].astype(np.float64)
    sizes = sizes[sizes >= 2]
    free = int(sizes.sum()) - len(sizes)
    d = X.shape[1]
    if free < 1:
        return np.zeros((d, d)), 0
    times = np.asarray(groups.sum(axis=1)).ravel()  # an image counts in each of its groups
    sums = _sums(X, groups, rows) / np.sqrt(sizes)[:, None]
    C = -(sums.T @ sums)
    for some, part in blocks(X, rows):
        part = part.astype(np.float64) * np.sqrt(times[some, None])
        C += part.T @ part
    return C / sizes.sum(), free


def whitening(X: Any, groups: sp.csr_array, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and matrix A of images: float32 (d,) and (d, d), symmetric; arguments as of `within_scatter`.

    A is scaled so that A (x - mean) has the length 1 in the root mean square.

    With few images the shrinkage s is one over the degrees of freedom; without two images of a group, A is the
    identity.
    """
    rows, A = np.arange(X.shape[0]) if rows is None else rows, np.eye(X.shape[1])
    mean = _sums(X, sp.csr_array(np.ones((len(rows), 1))), rows)[0] / len(rows)
    with one_thread():
        C, free = within_scatter(X, groups, rows)
        if np.trace(C) > 0:
            values, vectors = scipy.linalg.eigh(C, overwrite_a=True, check_finite=False)
            shrinkage = max(_SHRINKAGE, 1 / free) * values.sum()
            A = (vectors / np.sqrt(np.maximum(values, 0) + shrinkage)) @ vectors.T
        square = sum(float(np.square((part - mean) @ A).sum()) for _, part in blocks(X, rows)) / len(rows)
    A /= np.sqrt(square) if square > 0 else 1.0
    return mean.astype(np.float32), ((A + A.T) / 2).astype(np.float32)


def check_whiten(whiten: Any) -> None:
    """Refuse anything but True, False and "auto"."""
    if not isinstance(whiten, bool | np.bool_) and whiten != "auto":
        raise ValueError(f"whiten must be True, False or 'auto', got {whiten!r}")


class WhiteningMixin(SimilarityLearner):
    """A learner that may learn in whitened vectors; goes before `OnlineLearner`.

    The learner has the parameter `whiten`. The whitening is learned from the images of each phase of a fit: with early
    stopping, that of the search knows no held-out image.

    Attributes
    ----------
    mean_ : float32 array of shape (d,)
    whitening_ : float32 array of shape (d, d)
        A: symmetric, positive definite. Both are there only where the vectors are whitened.
    """

    _whitening_state = ("mean_", "whitening_")
    whiten: bool | str
    n_steps_: int
    phase_: str
    history_: list[dict[str, Any]]
    mean_: np.ndarray
    whitening_: np.ndarray
    _has_whitened = False  # while a fit measures its state: vectors come whitened

    def is_whitened(self) -> bool:
        """Whether the fitted learner has learned in whitened vectors."""
        return hasattr(self, "whitening_")

    def whitened(self, X: Any) -> Any:
        """Whitened vectors of images, of unit length: dense float32 (n, d); X itself where nothing is whitened."""
        X = self._check_images(X)
        return self._whiten(X) if self.is_whitened() and not self._has_whitened else X

    def _whiten(self, X: Any) -> np.ndarray:
        parts = [product(X[i : i + _ROWS], self.whitening_) for i in range(0, X.shape[0], _ROWS)]
        return unit_rows(np.concatenate(parts) - self._shift)

    def whitened_parts(self, parts: Any, whole: Any) -> Any:
        """What parts of an image add to its whitened vector; arguments as of `transform_parts`.

        The mean is shared out by the parts' shares of the image's squared length.
        """
        parts = self._check_images(parts)
        if not self.is_whitened():
            return parts
        x = self._check_images(whole)
        x = (x.toarray() if sp.issparse(x) else np.asarray(x)).ravel()
        shift = self._shift
        length = np.linalg.norm(product(x[None], self.whitening_)[0] - shift) or np.float32(1)
        shares = product(parts, np.ascontiguousarray(x[:, None] / (x @ x)))
        return (product(parts, self.whitening_) - shares * shift) / length

    @cached_property
    def _shift(self) -> np.ndarray:
        return product(np.asarray(self.mean_)[None], self.whitening_)[0]

    def _back(self, sides: Any) -> Any:
        """Query sides for images as they are, from those for images times A."""
        return product(sides, self.whitening_) if self.is_whitened() else sides

    def _look_side(self, Q: Any) -> Any:
        return self._back(self.whitened(Q))

    def _look_parts(self, parts: Any, whole: Any) -> Any:
        return self._back(self.whitened_parts(parts, whole))

    def _whitening_map(self) -> Map:
        """`whitened` as a few steps; none where nothing is whitened."""
        return (Affine(np.asarray(self.whitening_), -self._shift), Unit()) if self.is_whitened() else ()

    def _look_map(self) -> Map:
        return (*self._whitening_map(), Affine(np.asarray(self.whitening_))) if self.is_whitened() else ()

    def query_map(self) -> Map:
        """Whitening, where there is one, and a product with the matrix that was learned."""
        return self._mixed_map(0.0, 1.0)

    def _mixed_map(self, look: float, learned: float) -> Map:
        W = np.float32(learned) * np.asarray(self._learned_matrix())
        W[np.diag_indices_from(W)] += np.float32(look)
        return (*self._whitening_map(), Affine(W @ self.whitening_ if self.is_whitened() else W))

    def _metric_parts(self) -> tuple[Callable[[Any], Any], np.ndarray | None]:
        return self.whitened, np.asarray(self._learned_matrix())

    def _learned_matrix(self) -> np.ndarray:
        """W of `_learned_side`: (d, d), where the gallery side is the vectors."""
        raise NotImplementedError(f"{type(self).__name__} has no map that can be exported")

    def _learned_side(self, Z: Any) -> Any:
        """`transform_query` of whitened vectors, without the product with A; where the gallery side is the vectors."""
        raise NotImplementedError  # WSABIE compares in a space of its own, where there is no such side

    def _mixed_side(self, Q: Any, look: np.float32, learned: np.float32, *, differences: bool = False) -> np.ndarray:
        if not self.is_whitened():
            return super()._mixed_side(Q, look, learned)
        Z = product(Q, self.whitening_) if differences else self.whitened(Q)
        return self._back(look * Z + learned * self._learned_side(Z))

    def center(self) -> np.ndarray | None:
        """Vector that is subtracted from images; None where nothing is whitened."""
        return np.asarray(self.mean_) if self.is_whitened() else None

    def _scorer(self, queries: Any, gallery: Any) -> Callable[[], np.ndarray]:
        if not (self.is_whitened() and self.gallery_is_vectors):
            return super()._scorer(queries, gallery)
        Z, sides = self.whitened(queries), product(gallery, self.whitening_)
        return lambda: scores_of(self._learned_side(Z), sides)

    # -- in a fit ------------------------------------------------------------------------------------------------------

    def _whitens(self, X: Any) -> bool:
        d = X.shape[1]
        if self.whiten == "auto":
            return d <= MAX_FEATURES and is_dense(X)
        if self.whiten and d > MAX_FEATURES:
            raise ValueError(f"whiten=True takes vectors of {MAX_FEATURES:,} numbers at most, got {d:,}")
        return bool(self.whiten)

    def _prepare(self, X: Any, y: Any, training: np.ndarray) -> Any:
        X = super()._prepare(X, y, training)
        begins = self.n_steps_ == 0 and (self.phase_ == "refit" or not self.history_)  # not where more is learned
        if begins and not self.is_whitened() and self._whitens(X):
            self.__dict__.pop("_shift", None)
            if sp.issparse(X):
                self.mean_, self.whitening_ = whitening(X[training].toarray(), _groups(y)[training])
            else:
                self.mean_, self.whitening_ = whitening(X, _groups(y)[training], training)
            self._start_whitened()
        if not self.is_whitened():
            return X
        return sp.csr_array(self._whiten(X)) if sp.issparse(X) else RowsOf(X, self._whiten)

    def _start_whitened(self) -> None:
        """Change the state before the first triplet where vectors are whitened; nothing by default."""

    def _forget_preparation(self) -> None:
        super()._forget_preparation()
        for name in (*self._whitening_state, "_shift"):
            self.__dict__.pop(name, None)

    def _measures_on_vectors(self) -> bool:
        return self.is_whitened() and self.gallery_is_vectors

    def _measuring(self, measure: Callable[[], float]) -> Callable[[], float]:
        @wraps(measure)
        def of_whitened() -> float:
            self._has_whitened = True
            try:
                return measure()
            finally:
                del self._has_whitened

        return of_whitened


def _groups(y: Any) -> sp.csr_array:
    """Which image is in which class, or has which label: ones, CSR of shape (n, n_groups)."""
    if isinstance(y, GivenTriplets):
        y = y.groups
    if sp.issparse(y):
        return sp.csr_array(y > 0).astype(np.float64)
    _, places = np.unique(y, return_inverse=True)
    return sp.csr_array((np.ones(len(places)), places, np.arange(len(places) + 1)))
