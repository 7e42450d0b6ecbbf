"""Dense vectors that stay on disk: rows are read on access, as float32.

A million vectors of 1,280 numbers are 5 GB as float32. As float16 in files they are half of that and belong to the page
cache, which processes share and the system reclaims when memory is short. Such a gallery is read in blocks of rows; the
numbers equal those of a float32 copy, so that no result depends on where vectors lie.
"""

from __future__ import annotations

import copy
import errno
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from visterm import sparse as sp
from visterm.compiled import njit

from . import plain

ROWS = 8192  # per block where all are read: 42 MB as float32 at d = 1,280
_AT_ONCE = 100  # rows read before they are widened, so that the processor's cache holds them
NARROW = 0.25  # gallery sides of at most this share of the vectors' length are held in memory

_WIDENED = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)  # of each float16, by its bits


@njit(cache=True, nogil=True, plain=plain.widen)
def _widen(halves: np.ndarray, widened: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """``out[places[i]] = halves[i]`` as float32, of the bits of float16: in a quarter of NumPy's time."""
    for i in range(len(places)):
        row, target = halves[i], out[places[i]]
        for j in range(len(target)):
            target[j] = widened[row[j]]


class RowFile:
    """Rows of a two-dimensional .npy file, read when they are indexed by an array of row numbers.

    A memory map of a file that is cut short ends the process; here it is an OSError.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        header = np.load(file, mmap_mode="r", allow_pickle=False)  # its numbers are not read
        if not header.flags.c_contiguous or header.ndim != 2:
            raise ValueError(f"{os.fspath(file)}: not rows in order, but {header.shape}")
        self.file, self.shape, self.dtype, self._start = file, header.shape, header.dtype, header.offset
        self._number = os.open(file, os.O_RDONLY)
        weakref.finalize(self, os.close, self._number)

    def __reduce__(self) -> tuple[Any, ...]:
        return RowFile, (self.file,)  # the number of an open file is that of another one elsewhere

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        rows = np.asarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"{self.file} has {len(self)} rows")
        out = np.empty((len(rows), self.shape[1]), self.dtype)
        ends = (np.flatnonzero(np.diff(rows) != 1) + 1).tolist()
        width: int = out.shape[1] * out.itemsize
        data: Any = out.reshape(-1).view(np.uint8)
        for first, last in zip([0, *ends], [*ends, len(rows)], strict=True) if len(rows) else ():
            place, end, offset = first * width, last * width, self._start + int(rows[first]) * width
            while place < end:  # a call reads at most 2 GB
                if not (n := os.preadv(self._number, [data[place:end]], offset)):
                    raise OSError(errno.EIO, "cut short while it was in use", os.fspath(self.file))
                place, offset = place + n, offset + n
        return out


class StoredVectors:
    """Dense vectors in arrays on disk.

    Indexed by an integer, a slice, or an array of rows or of bools, it gives float32 arrays, as an array would; it has
    the ``shape``, ``ndim``, ``dtype`` and ``size`` of one, and products with arrays.

    Parameters
    ----------
    arrays : sequence of ndarray of shape (any, d), or of RowFile
        Of float16 or float32.
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
        self._arrays = list(arrays)
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
            for start in range(0, len(rows), _AT_ONCE):
                part = slice(start, start + _AT_ONCE)
                block = array[rows[part]]
                if block.dtype == np.float16:
                    _widen(block.view(np.uint16), _WIDENED, places[part], out)
                else:
                    out[places[part]] = block
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
