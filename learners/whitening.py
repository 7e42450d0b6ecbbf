"""Whitening by the scatter within classes: a better start than the vectors themselves, for dense vectors.

Images of one class differ by what does not matter. With m the mean of the images, and C the mean over classes of how
far their images lie from the mean m_c of the class,

    C = 1/n sum over classes c, images i of c of (x_i - m_c)(x_i - m_c)',    A = (C + s tr(C) I)^(-1/2)
    whitened x = A (x - m) / |A (x - m)|

directions in which images of a class differ count less. A learner learns in whitened vectors. For a W learned there,
the similarity of a whitened query z and an image x is z' W A x: whitening stands on the query side, and a gallery, its
indexes and its files stay as they are. z' W A m is left out, which is the same for all images of a query's ranking, and
so is the length of A (x - m), which is nearly the same for all images: with it the mAP of the whitening alone is up to
0.010 higher, and that of OASIS at the default weight up to 0.006 (docs/open-world.md).

An image with several labels, or clicked for several queries, is one of each of these classes. Where no class has two
images, each image and its five nearest neighbours are a class: the gallery says in what alike images differ. C is that
of RCA
(Bar-Hillel et al., ICML 2003), and the whitening is the one that image retrieval learns for its descriptors
(Mikolajczyk, Matas, ICCV 2007).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from .given_triplets import GivenTriplets
from .rows import RowsOf, blocks, is_dense
from .sides import Whitening
from .sums import one_thread, product, unit_rows

MAX_FEATURES = 4096  # the root of a matrix of so many dimensions takes a minute, and 500 MB beside it
_SHRINKAGE = 0.01  # s: 0.003 to 0.03 are as good on vectors of photos
# Of classes of two or three images, such as products: what tells these apart lies in directions of little scatter.
_SHRINKAGE_OF_SMALL, _SMALL = 0.001, 4
_NEIGHBOURS, _MOST_COMPARED = 5, 5_000  # of an image, among so many images at most
WHITENING_STATE = ("mean_", "whitening_")  # of a learner that has whitened vectors
_ROWS = 4096  # images that are compared at a time


def _sums(X: Any, groups: sp.csr_array, rows: np.ndarray) -> np.ndarray:
    """Sum of the images of each group, float64 (n_groups, d): the same numbers whatever is read at a time."""
    sums = np.zeros((groups.shape[1], X.shape[1]))
    for places, part in blocks(X, rows):
        present = np.unique(groups[places].indices)
        # One image after the other is added to what there is.
        added = sp.hstack([sp.eye_array(len(present)), groups[places][:, present].T], format="csc")
        sums[present] = added @ np.vstack([sums[present], part])
    return sums


def within_scatter(X: Any, groups: sp.csr_array, rows: np.ndarray | None = None) -> tuple[np.ndarray, int]:
    """Mean scatter (d, d), float64, of the images of a group around their mean, and its degrees of freedom.

    Zeros and 0 where no group has two images. X is an array, or another that gives arrays of rows when it is indexed;
    `groups`, CSR (n_rows, n_groups), has ones where an image is in a group; `rows` are the images, by default all.
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
    for places, part in blocks(X, rows):
        part = part.astype(np.float64) * np.sqrt(times[places, None])
        C += part.T @ part
    return C / sizes.sum(), free


def whitening(
    X: Any, groups: sp.csr_array, rows: np.ndarray | None = None, *, shrinkage: float = _SHRINKAGE
) -> tuple[np.ndarray, np.ndarray]:
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
            added = max(shrinkage, 1 / free) * values.sum()
            A = (vectors / np.sqrt(np.maximum(values, 0) + added)) @ vectors.T
        square = sum(float(np.square((part - mean) @ A).sum()) for _, part in blocks(X, rows)) / len(rows)
    A /= np.sqrt(square) if square > 0 else 1.0
    return mean.astype(np.float32), ((A + A.T) / 2).astype(np.float32)


def check_whiten(whiten: Any) -> None:
    """Refuse anything but True, False and "auto"."""
    if not isinstance(whiten, bool | np.bool_) and whiten != "auto":
        raise ValueError(f"whiten must be True, False or 'auto', got {whiten!r}")


def asks_for_whitening(whiten: bool | str, X: Any) -> bool:
    """Whether vectors are to be whitened: with "auto" dense ones that are not too wide."""
    d = X.shape[1]
    if whiten == "auto":
        return d <= MAX_FEATURES and is_dense(X)
    if whiten and d > MAX_FEATURES:
        raise ValueError(f"whiten=True takes vectors of {MAX_FEATURES:,} numbers at most, got {d:,}")
    return bool(whiten)


def whitening_of(X: Any, y: Any, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and A of the images `rows`, sparse or dense, by their labels or the triplets that join them."""
    groups = _groups(y)[rows]
    sizes = np.asarray(groups.sum(axis=0)).ravel()
    sizes, shrinkage = sizes[sizes >= 2], _SHRINKAGE
    if not len(sizes):
        rows, groups = _neighbourhoods(X, rows)
    elif np.ndim(y) == 1 and sizes.mean() < _SMALL:
        shrinkage = _SHRINKAGE_OF_SMALL
    if sp.issparse(X):
        return whitening(X[rows].toarray(), groups, shrinkage=shrinkage)
    return whitening(X, groups, rows, shrinkage=shrinkage)


def _neighbourhoods(X: Any, rows: np.ndarray) -> tuple[np.ndarray, sp.csr_array]:
    """Images, of many some in even steps, and groups of each with its nearest neighbours."""
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_COMPARED)).astype(int))]
    images = unit_rows(X[rows])
    images = images.toarray() if sp.issparse(images) else images
    k = min(_NEIGHBOURS, len(rows) - 1)
    nearest = np.empty((len(rows), k + 1), np.int64)
    for start in range(0, len(rows), _ROWS):
        scores = product(images[start : start + _ROWS], np.ascontiguousarray(images.T))
        own = np.arange(start, start + len(scores))
        scores[np.arange(len(scores)), own] = np.inf  # copies of it come after
        nearest[own] = np.argsort(-scores, axis=1, kind="stable")[:, : k + 1]
    ends = np.arange(0, nearest.size + 1, k + 1)
    return rows, sp.csr_array(sp.csr_array((np.ones(nearest.size), nearest.ravel(), ends)).T)


def whitened_images(X: Any, whitening: Whitening) -> Any:
    """Whitened vectors, of images as a learner reads them: CSR, or made when rows are read."""
    return sp.csr_array(whitening.of(X)) if sp.issparse(X) else RowsOf(X, whitening.of)


def _groups(y: Any) -> sp.csr_array:
    """Which image is in which class, or has which label: ones, CSR of shape (n, n_groups)."""
    if isinstance(y, GivenTriplets):
        y = y.groups
    if sp.issparse(y):
        return sp.csr_array(y > 0).astype(np.float64)
    _, places = np.unique(y, return_inverse=True)
    return sp.csr_array((np.ones(len(places)), places, np.arange(len(places) + 1)))


class WhiteningMixin:
    """A learner that may learn in whitened vectors; goes before `OnlineLearner`.

    The learner has the parameter `whiten`. The whitening is learned from the images of each phase of a fit: with early
    stopping, that of the search knows no held-out image.

    Attributes
    ----------
    mean_ : float32 array of shape (d,)
    whitening_ : float32 array of shape (d, d)
        A: symmetric, positive definite. Both are there only where the vectors are whitened.
    """

    whitens = True
    mean_: np.ndarray
    whitening_: np.ndarray
