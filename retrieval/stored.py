"""Dense vectors that stay on disk: rows are read on access, as float32.

A million vectors of 1,280 numbers are 5 GB as float32. As float16, memory-mapped, they are half of that and belong to
the page cache, which processes share and the system reclaims when memory is short. Such a gallery is read in blocks of
rows; the numbers equal those of a float32 copy, so that no result depends on where vectors lie.
"""

from __future__ import annotations

import copy
import errno
import mmap
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from visterm import sparse as sp
from visterm.compiled import njit

from . import plain

ROWS = 8192  # per block where all are read: 42 MB as float32 at d = 1,280
NARROW = 0.25  # gallery sides of at most this share of the vectors' length are held in memory

_WIDENED = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)  # of each float16, by its bits


@njit(cache=True, nogil=True, plain=plain.gather)
def _gather(halves: np.ndarray, rows: np.ndarray, widened: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """``out[places[i]] = halves[rows[i]]`` as float32, of the bits of float16: in a quarter of NumPy's time."""
    for i in range(len(rows)):
        row, target = halves[rows[i]], out[places[i]]
        for j in range(len(target)):
            target[j] = widened[row[j]]


class StoredVectors:
    """Dense vectors in arrays on disk.

    Indexed by an integer, a slice, or an array of rows or of bools, it gives float32 arrays, as an array would; it has
    the ``shape``, ``ndim``, ``dtype`` and ``size`` of one, and products with arrays.

    Parameters
    ----------
    arrays : sequence of ndarray of shape (any, d)
        Memory-mapped, of float16 or float32.
    array_of, row_of : int array of shape (n,)
        The array that holds each vector, and its row there.
    folder : path, optional
        Where readers by rows may write derived files.

    Examples
    --------
    >>> import numpy as np
    >>> arrays = np.eye(3, dtype=np.float16), np.ones((1, 3), np.float16)
    >>> X = StoredVectors(arrays, [1, 0, 0], [0, 2, 0])
    >>> X.shape, X[1]
    ((3, 3), array([0., 0., 1.], dtype=float32))
    """

    ndim = 2
    dtype = np.dtype(np.float32)
    by_rows = True  # learners fit them in blocks of rows

    def __init__(self, arrays: Sequence[np.ndarray], array_of: Any, row_of: Any, folder: Any = None) -> None:
        self.folder = folder
        self._files = list(arrays)
        self._arrays = [
            np.asarray(array).view(np.uint16) if array.dtype == np.float16 else np.asarray(array) for array in arrays
        ]
        self._array_of, self._row_of = np.asarray(array_of, np.int32), np.asarray(row_of, np.int64)
        self._side: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None  # of vectors and their rows
        self._rows: np.ndarray | None = None  # their numbers in the side; None: as numbered here
        self.shape: tuple[int, int] = (len(self._array_of), arrays[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, int | np.integer):
            return self[np.array([rows])][0]
        vectors = self._read(self._array_of[rows], self._row_of[rows])
        if self._side is None:
            return vectors
        numbers = np.arange(len(self)) if self._rows is None else self._rows
        return self._side(vectors, numbers[rows])

    def _read(self, array_of: np.ndarray, row_of: np.ndarray) -> np.ndarray:
        out = np.empty((len(row_of), self._arrays[0].shape[1]), np.float32)
        order = np.argsort(array_of, kind="stable")
        ends = np.flatnonzero(np.diff(array_of[order])) + 1
        for places in np.split(order, ends) if len(order) else ():
            array, rows = self._arrays[array_of[places[0]]], row_of[places]
            check_whole(self._files[array_of[places[0]]])
            if array.dtype == np.uint16:
                _gather(array, rows, _WIDENED, places, out)
            else:
                out[places] = array[rows]
        return out

    def part(self, rows: np.ndarray) -> Self:
        """Return a subset of the rows, which stays on disk."""
        part = copy.copy(self)
        part._array_of, part._row_of = self._array_of[rows], self._row_of[rows]
        if self._side is not None:
            part._rows = rows if self._rows is None else self._rows[rows]
        part.shape = (len(part._array_of), self.shape[1])
        return part

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield all rows in order, in blocks."""
        for start in range(0, len(self), ROWS):
            rows = slice(start, min(start + ROWS, len(self)))
            yield rows, self[rows]

    def __matmul__(self, matrix: np.ndarray) -> np.ndarray:
        return np.concatenate([block @ matrix for _, block in self.blocks()])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)


def check_whole(array: Any) -> None:
    """Raise OSError if the file of a memory-mapped array was cut short since: reading beyond its end ends the process.

    It takes a microsecond; other arrays pass.
    """
    while isinstance(array, np.ndarray):
        file = array.base  # of the array that maps it; others are views
        if isinstance(array, np.memmap) and isinstance(file, mmap.mmap):
            if file.size() < array.offset + array.nbytes:
                raise OSError(errno.EIO, "cut short while it was in use", array.filename and str(array.filename))
            return
        array = file


def gallery_sides(learner: Any, X: Any, y: Any = None) -> Any:
    """Return the gallery sides of vectors; learner, X and y as of `ExactIndex`.

    Sparse and much shorter sides of stored vectors are held in memory. Others are computed when they are read: a side
    does not depend on the others.
    """

    def side(vectors: Any, rows: Any = slice(None)) -> Any:
        return learner.transform(vectors) if y is None else learner.transform(vectors, y[rows])

    if not isinstance(X, StoredVectors):
        return side(X)
    first = side(X[:1], slice(0, 1))
    if sp.issparse(first):
        return sp.vstack([side(block, rows) for rows, block in X.blocks()], format="csr")
    if first.shape[1] <= NARROW * X.shape[1]:
        return np.concatenate([side(block, rows) for rows, block in X.blocks()])
    sides = copy.copy(X)
    if not (getattr(learner, "gallery_is_vectors", False) or getattr(learner, "shares_gallery", False)):
        sides._side, sides.shape = side, (len(X), first.shape[1])
    return sides


def part(X: Any, rows: np.ndarray) -> Any:
    """Return a subset of the rows; stored vectors stay on disk."""
    return X.part(rows) if isinstance(X, StoredVectors) else X[rows]
