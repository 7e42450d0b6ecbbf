"""Visterm counts and their weights.

An image is the multiset of its blocks' visterms. With f_i the number of blocks of visterm i and r_i the fraction of
training images that contain it,

    p_i = f_i d_i / sqrt(sum_j (f_j d_j)^2),    d_i = -log r_i

(Chechik et al., OASIS, JMLR 2010, §3). With ``tf="sqrt"`` the square root of f_i takes the place of f_i: the tenth
block of a visterm adds less than the first.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from visterm.compiled import njit

from .weights import TERM_FREQUENCIES, VistermWeights, as_counts

LINE = 16  # float32 numbers in a cache line


def count_visterms(ids: Any, n_blocks: Any, n_visterms: int) -> sp.csr_matrix:
    """Count how often each visterm occurs in each image.

    Parameters
    ----------
    ids : array-like of int, (sum(n_blocks),)
        Visterms of all blocks, image after image.
    n_blocks : array-like of int, (n_images,)
        Number of blocks of each image; 0 gives an empty row.
    n_visterms : int
        Number of columns.

    Returns
    -------
    csr_matrix of int32, (n_images, n_visterms)
        Column indices (int32) are sorted and each occurs once a row.

    Raises
    ------
    ValueError
        `ids` and `n_blocks` do not fit together, or an id is not within 0 ... n_visterms - 1.

    Examples
    --------
    >>> count_visterms([2, 0, 2, 1], [3, 0, 1], 4).toarray()
    array([[1, 0, 2, 0],
           [0, 0, 0, 0],
           [0, 1, 0, 0]], dtype=int32)
    """
    ids = np.asarray(ids, dtype=np.int32)
    n_blocks = np.asarray(n_blocks, dtype=np.int64)
    if ids.ndim != 1 or n_blocks.ndim != 1 or n_blocks.sum() != len(ids):
        raise ValueError(f"{len(ids)} ids cannot be the blocks of images with {n_blocks.sum()} blocks in all")
    if len(ids) and not (ids.min() >= 0 and ids.max() < n_visterms):
        raise ValueError(f"ids must lie within 0 ... {n_visterms - 1}, not {ids.min()} ... {ids.max()}")
    # Sorting (image, visterm) brings equal pairs together; each run of equal pairs is one entry of the matrix.
    keys = np.repeat(np.arange(len(n_blocks)), n_blocks) * n_visterms + ids
    keys, counts = np.unique(keys, return_counts=True)
    rows, columns = np.divmod(keys, n_visterms)
    indptr = np.zeros(len(n_blocks) + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=len(n_blocks)), out=indptr[1:])
    return sp.csr_matrix((counts.astype(np.int32), columns.astype(np.int32), indptr), shape=(len(n_blocks), n_visterms))


# Sums below are written out in a fixed order and double precision: BLAS chooses its order by the processor, and the
# order of the visterms is to be the same on all of them.


@njit(cache=True, nogil=True)
def _along_axis(centred: np.ndarray, axis: np.ndarray) -> np.ndarray:
    """Return the coordinates of points (n, d) along their principal axis, from a first guess that is overwritten."""
    along = np.empty(centred.shape[0])
    for iteration in range(13):  # power iteration: a rough axis will do
        for i in range(centred.shape[0]):
            along[i] = 0.0
            for j in range(centred.shape[1]):
                along[i] += centred[i, j] * axis[j]
        if iteration == 12:
            break
        axis[:] = 0
        for i in range(centred.shape[0]):
            for j in range(centred.shape[1]):
                axis[j] += along[i] * centred[i, j]
        length = 0.0
        for j in range(axis.size):
            length += axis[j] * axis[j]
        axis /= np.sqrt(length) + 1e-30
    return along


@njit(cache=True, nogil=True)
def _orthonormalize(columns: np.ndarray) -> None:
    """Make the rows of `columns` (k, n) orthonormal, by Gram-Schmidt; those that depend on others become zero."""
    for c in range(columns.shape[0]):
        row = columns[c]
        before = 0.0
        for i in range(row.size):
            before += row[i] * row[i]
        for _ in range(2):  # twice is enough
            for earlier in range(c):
                dot = 0.0
                for i in range(row.size):
                    dot += row[i] * columns[earlier, i]
                for i in range(row.size):
                    row[i] -= dot * columns[earlier, i]
        square = 0.0
        for i in range(row.size):
            square += row[i] * row[i]
        if square > 1e-20 * before:
            row /= np.sqrt(square)
        else:
            row[:] = 0


def _co_occurrences(contains: sp.csr_matrix, n_components: int) -> np.ndarray:
    """Return points (n_visterms, n_components) whose inner products are nearly those of the columns.

    By subspace iteration, as in a randomized singular value decomposition.
    """
    images, visterms = contains.tocsr(), contains.T.tocsr()
    basis = np.random.default_rng(0).uniform(-1, 1, (n_components, contains.shape[1]))
    for _ in range(5):
        basis = np.ascontiguousarray((images @ basis.T).T)
        _orthonormalize(basis)
        points = visterms @ basis.T
        basis = np.ascontiguousarray(points.T)
        _orthonormalize(basis)
    return points


def _bisect(points: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Order members so that near points are neighbours: halve along the principal axis, then each half by itself."""
    if len(members) <= LINE // 2:
        return members
    centred = points[members] - points[members].mean(axis=0)
    along = _along_axis(centred, np.random.default_rng(0).uniform(-1, 1, centred.shape[1]))
    members = members[np.argsort(along, kind="stable")]
    half = len(members) // 2
    return np.concatenate([_bisect(points, members[:half]), _bisect(points, members[half:])])


def co_occurrence_order(counts: Any, centers: np.ndarray) -> np.ndarray:
    """Return an order of the visterms, their old numbers, in which those that occur together in images are neighbours.

    Learners keep a d x d matrix of which a pair of images touches as many scattered numbers as it has pairs of
    visterms. What that costs is cache misses: one for 16 numbers, if they are neighbours.

    `counts`, (n_images, n_visterms), are of training images, or of their cells. Each visterm is a point: its
    coordinates in a truncated singular value decomposition of the matrix of which image contains which visterm, scaled
    to unit length, beside its centre, likewise scaled, which places rare visterms. The points are halved along their
    principal axis again and again. On 20 classes of Caltech-101 at d = 10,000, a training image touches 16 lines of 16
    numbers instead of 26, a test image 31 instead of 44.
    """
    contains = sp.csr_matrix(counts, dtype=np.float64)
    contains.data[:] = 1
    by_image = np.maximum(np.diff(contains.indptr), 1)
    by_visterm = np.maximum(np.bincount(contains.indices, minlength=contains.shape[1]), 1)
    contains.data /= np.sqrt(np.repeat(by_image, np.diff(contains.indptr)) * by_visterm[contains.indices])
    centers = np.asarray(centers, dtype=np.float64)
    places = _unit(_co_occurrences(contains, min(64, *contains.shape)))
    points = np.hstack([places, _unit(centers - centers.mean(axis=0))])
    return _bisect(points, np.arange(len(points)))


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)


class VistermWeighting(VistermWeights):
    """tf-idf weights with rows of unit length.

    Parameters
    ----------
    tf : {"count", "sqrt"}
        "count": weights grow with the number of blocks of a visterm, as in the paper. "sqrt": with its square root.

    Attributes
    ----------
    idf_ : ndarray of float64, (n_visterms,)
        d_i = -log r_i.
    n_images_ : int
        Number of training images.

    Notes
    -----
    - A visterm in no training image would have an infinite weight: it counts as one in a single training image.
    - A visterm in every training image has weight 0. An image of which nothing else is left keeps a row of zeros;
      find them by ``np.diff(X.indptr) == 0``.

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large scale online learning of image similarity through ranking.
    JMLR 11, 2010, §3.

    Examples
    --------
    >>> counts = sp.csr_matrix(np.array([[2, 1, 0], [0, 3, 1]], dtype=np.int32))
    >>> VistermWeighting().fit_transform(counts).toarray()
    array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """

    def fit(self, counts: Any, y: Any = None) -> Self:
        """Learn the inverse document frequencies.

        Parameters
        ----------
        counts : sparse matrix of int, (n_train, n_visterms)
            Of training images.
        y : None
            Ignored.

        Returns
        -------
        VistermWeighting
            Itself.

        Raises
        ------
        ValueError
            There are no images, or `tf` is neither "count" nor "sqrt".
        """
        return self.fit_blocks([counts])

    def fit_blocks(self, blocks: Iterable[Any]) -> Self:
        """Learn the inverse document frequencies from training images in blocks, read one at a time.

        Parameters
        ----------
        blocks : iterable of sparse matrix of int, (n, n_visterms)

        Returns
        -------
        VistermWeighting
            Itself; as `fit` with all blocks one below the other.

        Raises
        ------
        ValueError
            As `fit`.
        """
        if self.tf not in TERM_FREQUENCIES:
            raise ValueError(f"tf must be 'count' or 'sqrt', not {self.tf!r}")
        n_images, containing = 0, np.zeros(1, np.int64)
        for counts in map(as_counts, blocks):
            n_images += counts.shape[0]
            containing = containing + np.bincount(counts.indices[counts.data > 0], minlength=counts.shape[1])
        if n_images == 0:
            raise ValueError("the weights need at least one training image")
        self.n_images_ = n_images
        shares, places = np.unique(n_images / np.maximum(containing, 1), return_inverse=True)
        self.idf_ = np.array([_log(share) for share in shares.tolist()])[places]
        return self


def _log(number: float) -> float:
    """Natural logarithm, correctly rounded: those of NumPy and C differ in the last bit between processors."""
    return float(decimal.Decimal(number).ln(_DIGITS))


_DIGITS = decimal.Context(prec=25)
