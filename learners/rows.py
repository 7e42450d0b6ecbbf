"""Images as the kernels read them: rows of sorted entries, or dense."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from visterm import sparse as sp

# What kernels may do with sums: reassociation and contraction speed them up; NaN and infinity keep their meaning.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

# Images as kernels take them, read-only: indptr (n + 1,) int64, indices (nnz,) uint32 and data (nnz,) float32 of a CSR
# array with sorted columns, and the rows' squared norms (n,) float32. For images that are read by rows `indices` is
# empty: `dense_rows` has all that kernels need. A plain tuple: triplets.py says why.
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Arrays = tuple[np.ndarray, ...]  # others that belong together

# A number in a kernel, of any width: what Python hands in, or what an array of NumPy gives.
Int = int | np.integer[Any]
Float = float | np.floating[Any]

_ROWS_AT_ONCE = 100_000
_DENSE_AT_ONCE = 4096  # 21 MB at d = 1,280


class RowsOf:
    """Dense images (n, d) that `made` gives for others, (m, d) for (m, d), each for itself, when rows are read."""

    def __init__(self, X: Any, made: Callable[[np.ndarray], np.ndarray]) -> None:
        self._X, self._made, self.shape = X, made, X.shape
        self.by_rows, self.folder = is_mapped(X), getattr(X, "folder", None)

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self._made(read(self._X, rows))


def is_mapped(X: Any) -> bool:
    """Whether dense images lie in files, of which rows are read when they are needed.

    Those of a memory-mapped array do, and those of an object that says so by `by_rows`. It has a `shape`, and indexed
    by a slice or an array of numbers it gives an array of these rows; files that are made of it go to its `folder`.
    """
    return isinstance(X, np.memmap) or bool(getattr(X, "by_rows", False))


def read(X: Any, rows: Any) -> np.ndarray:
    """Some rows of dense images: C-contiguous float32 array."""
    return np.ascontiguousarray(X[rows], np.float32)


def blocks(X: Any, rows: np.ndarray | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """All rows of dense images, or those named, some at a time, with their places."""
    n = X.shape[0] if rows is None else len(rows)
    for start in range(0, n, _DENSE_AT_ONCE):
        part = slice(start, min(start + _DENSE_AT_ONCE, n))
        yield part, read(X, part if rows is None else rows[part])


def writable(array: np.ndarray) -> np.ndarray:
    """The array itself, or a copy in memory of one that is mapped or read-only."""
    return array if type(array) is np.ndarray and array.flags.writeable else np.array(array)


def canonical(X: Any) -> Any:
    """CSR itself, or a copy where columns of a row are not sorted, or stand there twice: with sums in their place."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """``X[rows]`` of sorted rows; where these follow each other and are most of X, mapped CSR arrays are not copied."""
    if not sp.issparse(X):
        return read(X, rows)
    if not len(rows) or rows[-1] + 1 - rows[0] != len(rows):
        return X[rows]
    first, last = rows[0], rows[-1] + 1
    start, stop = X.indptr[first], X.indptr[last]
    arrays = X.data[start:stop], X.indices[start:stop], X.indptr[first : last + 1] - start
    return sp.csr_array(arrays, shape=(len(rows), X.shape[1]))


def as_rows(X: Any, rows: np.ndarray | None = None) -> Rows:
    """Arrays for the kernels, of all images or of those named; copied only where their types or the order ask for it.

    Sparse vectors of which a quarter of the entries or more are not zero are stored with their zeros: `dense_rows` has
    them as one array. Dense images that lie in files are copied to a nameless file, which vanishes with the arrays.
    """
    if not sp.issparse(X):
        return _as_dense_rows(X, rows)
    if rows is not None:
        X = take_rows(X, rows)
    X = canonical(X)
    if X.nnz < X.shape[0] * X.shape[1] and is_dense(X):
        X = _with_zeros(X)
    norms = np.empty(X.shape[0], np.float32)
    for start in range(0, X.shape[0], _ROWS_AT_ONCE):  # squares of all at once would take as much memory as X
        part = take_rows(X, np.arange(start, min(start + _ROWS_AT_ONCE, X.shape[0])))
        norms[start : start + part.shape[0]] = part.multiply(part).sum(axis=1)
    return (
        readonly(X.indptr.astype(np.int64, copy=False)),
        # Unsigned: a kernel need not ask whether an index counts from the end, which is 7 % of its time.
        readonly(X.indices.astype(np.int32, copy=False).view(np.uint32)),
        readonly(X.data),
        readonly(norms),
    )


def _as_dense_rows(X: Any, rows: np.ndarray | None) -> Rows:
    if rows is not None or not isinstance(X, np.ndarray) or X.dtype != np.float32 or not X.flags.c_contiguous:
        X = _copy(X, rows)
    norms = np.empty(len(X), np.float32)
    for part, block in blocks(X):
        norms[part] = sp.csr_array(block * block).sum(axis=1)  # in the order of sums of sparse rows
    n, d = X.shape
    return readonly(np.arange(n + 1) * d), readonly(np.empty(0, np.uint32)), readonly(X.reshape(-1)), readonly(norms)


def _copy(X: Any, rows: np.ndarray | None) -> np.ndarray:
    """Rows of dense images one after the other: in memory, or of images that lie in files in a nameless file."""
    shape = X.shape[0] if rows is None else len(rows), X.shape[1]
    if not is_mapped(X):
        copied = np.empty(shape, np.float32)
        for part, block in blocks(X, rows):
            copied[part] = block
        return copied
    # Written, not mapped for writing: a full disk is an error then, and not the end of the process.
    with tempfile.TemporaryFile(dir=getattr(X, "folder", None)) as file:
        for _, block in blocks(X, rows):
            block.tofile(file)
        return np.memmap(file, np.float32, "r", shape=shape)


def is_dense(X: Any) -> bool:
    """Whether a quarter of the entries or more are not zero: kernels for dense vectors are then as fast or faster."""
    return not sp.issparse(X) or X.shape[0] * X.shape[1] <= 4 * X.nnz


def _with_zeros(X: sp.csr_array) -> sp.csr_array:
    """The same array with all of its entries stored."""
    columns = np.tile(np.arange(X.shape[1], dtype=np.int32), X.shape[0])
    return sp.csr_array((X.toarray().ravel(), columns, np.arange(X.shape[0] + 1) * X.shape[1]), X.shape)


def mean_entries(rows: Rows) -> float:
    """Non-zero entries per image."""
    indptr, _, data, _ = rows
    return len(data) / (len(indptr) - 1)


def entry_cost(rows: Rows, n_features: int) -> float:
    """Nanoseconds, as for `_step_cost`, to read and update an entry of a matrix of which images name the columns.

    Where they name most columns, entries are read in the order that memory has them.
    """
    return 1.0 if 2 * mean_entries(rows) >= n_features else 8.0


def dense_rows(rows: Rows, n_features: int) -> np.ndarray | None:
    """The images as a C-contiguous float32 array of shape (n, n_features), where all entries are stored; no copy."""
    indptr, _, data, _ = rows
    shape = len(indptr) - 1, n_features
    return data.reshape(shape) if len(data) == shape[0] * shape[1] else None


def csr_of(rows: Rows, n_features: int) -> sp.csr_array:
    """The images as a CSR array; no copy."""
    indptr, indices, data, _ = rows
    return sp.csr_array((data, indices.view(np.int32), indptr), (len(indptr) - 1, n_features))


def matrix_of(rows: Rows, n_features: int) -> Any:
    """The images as `dense_rows` has them, or else as a CSR array; no copy."""
    X = dense_rows(rows, n_features)
    return csr_of(rows, n_features) if X is None else X


def readonly(array: np.ndarray) -> np.ndarray:
    """Contiguous read-only view (or copy): kernels see one array type, whatever the caller's flags were."""
    array = np.ascontiguousarray(array).view(np.ndarray)
    array.flags.writeable = False
    return array
