"""Sums in a fixed order: what a row gives does not depend on the rows beside it.

BLAS rounds a row of a product differently in a batch of one and of a hundred, and even by where the row lies in memory.
A score would then depend on the other queries of its batch: ties would break, and pages and caches disagree. Here every
entry of a product is summed in the order of the inner dimension, and each number is rounded after every operation, so
the result is determined by the row and the column alone. SciPy's sparse products have a fixed order already; that of
sparse rows with a dense matrix is here once more, in the same order, since four rows at a time take half as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.preprocessing import normalize
from threadpoolctl import ThreadpoolController

from .rows import Arrays, Int, readonly

# A tile of B, 128 KB, stays in the cache while all rows of A pass over it.
_COLUMNS = 512
_DEPTH = 64


# No fastmath: sums must keep their order. The vector units work across columns. Rows of a C-contiguous array are
# cut one at a time: of a cut of two dimensions Numba would not know that its rows are contiguous.
@njit(cache=True, nogil=True)
def _add_one_row(a: np.ndarray, B: np.ndarray, top: Int, bottom: Int, left: Int, right: Int, out: np.ndarray) -> None:
    """Out += a[top:bottom] B[top:bottom, left:right] for one row."""
    k = top
    while k + 3 < bottom:  # four at a time: the sums are loaded and stored a quarter as often
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        b0, b1, b2, b3 = B[k, left:right], B[k + 1, left:right], B[k + 2, left:right], B[k + 3, left:right]
        for j in range(right - left):
            out[j] = (((out[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j]
        k += 4
    while k < bottom:
        a0, b0 = a[k], B[k, left:right]
        for j in range(right - left):
            out[j] += a0 * b0[j]
        k += 1


@njit(cache=True, nogil=True)
def _add_four_rows(rows: Arrays, B: np.ndarray, top: Int, bottom: Int, left: Int, right: Int, out: Arrays) -> None:
    """The same for four rows at once, of an even number of entries: what is loaded of B serves all of them."""
    (a, b, c, d), (a_out, b_out, c_out, d_out) = rows, out
    for k in range(top, bottom, 2):
        a0, b0, c0, d0 = a[k], b[k], c[k], d[k]
        a1, b1, c1, d1 = a[k + 1], b[k + 1], c[k + 1], d[k + 1]
        B0, B1 = B[k, left:right], B[k + 1, left:right]
        for j in range(right - left):
            a_out[j] = (a_out[j] + a0 * B0[j]) + a1 * B1[j]
            b_out[j] = (b_out[j] + b0 * B0[j]) + b1 * B1[j]
            c_out[j] = (c_out[j] + c0 * B0[j]) + c1 * B1[j]
            d_out[j] = (d_out[j] + d0 * B0[j]) + d1 * B1[j]


@njit(cache=True, nogil=True)
def _multiply(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """Out = A B for C-contiguous A and B; every entry is summed in the order of A's columns."""
    (n, depth), width = A.shape, B.shape[1]
    out[:] = 0
    if n == 1:  # no row of B is read twice: whole ones are read, as they lie in memory, in two thirds of the time
        _add_one_row(A[0], B, 0, depth, 0, width, out[0])
        return
    for left in range(0, width, _COLUMNS):
        right = min(left + _COLUMNS, width)
        for top in range(0, depth, _DEPTH):
            bottom = min(top + _DEPTH, depth)
            even = bottom - (bottom - top) % 2
            for i in range(0, n - 3, 4):
                a, b, c, d = out[i], out[i + 1], out[i + 2], out[i + 3]
                sums = a[left:right], b[left:right], c[left:right], d[left:right]
                _add_four_rows((A[i], A[i + 1], A[i + 2], A[i + 3]), B, top, even, left, right, sums)
                if even < bottom:
                    for row in range(i, i + 4):
                        _add_one_row(A[row], B, even, bottom, left, right, out[row, left:right])
            for row in range(n - n % 4, n):
                _add_one_row(A[row], B, top, bottom, left, right, out[row, left:right])


@njit(cache=True, nogil=True)
def _multiply_sparse(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """Out = A B for a CSR array A and a C-contiguous B; the rows of B are read four at a time, in the order of A's."""
    out[:] = 0
    for i in range(len(out)):
        sums, k, end = out[i], indptr[i], indptr[i + 1]
        while k + 3 < end:
            a0, a1, a2, a3 = data[k], data[k + 1], data[k + 2], data[k + 3]
            b0, b1, b2, b3 = B[indices[k]], B[indices[k + 1]], B[indices[k + 2]], B[indices[k + 3]]
            for j in range(len(sums)):
                sums[j] = (((sums[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j]
            k += 4
        while k < end:
            a0, b0 = data[k], B[indices[k]]
            for j in range(len(sums)):
                sums[j] += a0 * b0[j]
            k += 1


@njit(cache=True, nogil=True)
def _inner_products(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """out[i] = the inner product of row i of A and row i of B, summed in double precision."""
    for i in range(A.shape[0]):
        total = 0.0
        for k in range(A.shape[1]):
            total += np.float64(A[i, k]) * np.float64(B[i, k])
        out[i] = total


def product(A: Any, B: Any) -> Any:
    """A @ B: sparse where both are, else a dense array; the bytes of a row do not depend on the other rows of A.

    Nor do the bytes of a column depend on the other columns of B.
    """
    A, B = (X if sp.issparse(X) else np.asarray(X) for X in (A, B))  # a mapped array as a plain one
    if sp.issparse(A) and A.format == "csr" and not sp.issparse(B) and B.ndim == 2 and A.dtype == B.dtype:
        return _sparse_product(A, B)
    if sp.issparse(A) or sp.issparse(B):
        return A @ B
    if not B.flags.c_contiguous and B.flags.f_contiguous:  # a transposed gallery: copy the queries instead
        return _dense_product(B.T, A.T).T
    return _dense_product(A, B)


def _sparse_product(A: Any, B: np.ndarray) -> np.ndarray:
    if A.shape[1] != len(B):
        raise ValueError(f"shapes {A.shape} and {B.shape} do not match")
    out = np.empty((A.shape[0], B.shape[1]), B.dtype)
    indices = readonly(A.indices)
    _multiply_sparse(readonly(A.indptr.astype(np.int64, copy=False)), indices, readonly(A.data), readonly(B), out)
    return out


def _dense_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    out = np.empty((A.shape[0], B.shape[1]), np.result_type(A, B))
    _multiply(readonly(A), readonly(B), out)
    return out


def inner_products(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Inner product of each row of A with the same row of B: float32 (n,)."""
    out = np.empty(len(A), np.float32)
    _inner_products(readonly(A), readonly(B), out)
    return out


_blas = functools.cache(ThreadpoolController)  # made once: it looks through all libraries of the process


def one_thread() -> AbstractContextManager:
    """Context in which BLAS takes one thread, since its sums depend on how many there are."""
    return _blas().limit(limits=1, user_api="blas")


@contextmanager
def tasks_at_once(n_jobs: int | None) -> Iterator[Callable[..., Iterable[Any]]]:
    """Context with a `map` over so many threads of ours, while BLAS takes one.

    Tiles then give the same sums whatever the number of threads, which BLAS does not promise.
    """
    n_threads = joblib.effective_n_jobs(n_jobs)
    with one_thread(), ThreadPoolExecutor(n_threads) as pool:
        yield map if n_threads == 1 else pool.map


def row_means(X: np.ndarray) -> np.ndarray:
    """Mean of each row: float32 (n,)."""
    return inner_products(X, np.broadcast_to(np.float32(1), X.shape)) / np.float32(X.shape[1])


def row_lengths(X: Any) -> np.ndarray:
    """Euclidean length of each row: float32 (n,)."""
    X = X.toarray() if sp.issparse(X) else X
    return np.sqrt(inner_products(X, X))


def unit_rows(X: Any) -> Any:
    """Rows scaled to unit length; rows of zeros stay zero."""
    if sp.issparse(X):
        return normalize(X)
    lengths = row_lengths(X)
    lengths[lengths == 0] = 1
    return X / lengths[:, None]
