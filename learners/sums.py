"""Sums in a fixed order: what a row gives does not depend on the rows beside it.

BLAS rounds a row of a product differently in a batch of one and of a hundred, and even by where the row lies in memory.
A score would then depend on the other queries of its batch: ties would break, and pages and caches disagree. Here every
entry of a product is summed in the order of the inner dimension, and each number is rounded after every operation, so
the result is determined by the row and the column alone. SciPy's sparse products have a fixed order already; that of
sparse rows with a dense matrix is here once more, in the same order, since four rows at a time take half as long.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from visterm import sparse as sp

from .rows import readonly

_ROWS = 10_000  # scaled at a time
_FEW = 8_000_000  # multiply-adds, some 10 ms in NumPy: without Numba in memory, loading it takes longer


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
    if _is_few(A.nnz * B.shape[1]):
        out = np.zeros((A.shape[0], B.shape[1]), B.dtype)
        for row, first, last in zip(out, A.indptr[:-1], A.indptr[1:], strict=True):
            _add_rows(A.data[first:last], B, A.indices[first:last].tolist(), row)
        return out
    from .sum_kernels import multiply_sparse

    out = np.empty((A.shape[0], B.shape[1]), B.dtype)
    indices = readonly(A.indices)
    multiply_sparse(readonly(A.indptr.astype(np.int64, copy=False)), indices, readonly(A.data), readonly(B), out)
    return out


def _dense_product(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    out = np.zeros((A.shape[0], B.shape[1]), np.result_type(A, B))
    if A.shape[1] == len(B) and _is_few(A.size * B.shape[1]):
        for row, weights in zip(out, A, strict=True):
            _add_rows(weights, B, range(len(B)), row)
        return out
    from .sum_kernels import multiply

    multiply(readonly(A), readonly(B), out)
    return out


def _is_few(work: int) -> bool:
    """Whether NumPy, which gives the same bytes, is to do the work, as loading Numba takes longer."""
    return work <= _FEW and "numba" not in sys.modules


def _add_rows(weights: np.ndarray, B: np.ndarray, rows: Iterable[int], out: np.ndarray) -> None:
    """Add rows of B times their weights, one after the other."""
    added = np.empty_like(out)
    for weight, row in zip(weights, rows, strict=True):
        np.multiply(B[row], weight, out=added)
        out += added


def inner_products(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Inner product of each row of A with the same row of B: float32 (n,), summed in double precision."""
    if A.size > 0 and _is_few(A.size):
        products = np.multiply(A, B, dtype=np.float64)
        return (np.add.accumulate(products, axis=1, out=products)[:, -1] + 0.0).astype(np.float32)
    from .sum_kernels import inner_products_of

    out = np.empty(len(A), np.float32)
    inner_products_of(readonly(A), readonly(B), out)
    return out


@functools.cache
def _blas(with_scipy: bool) -> Any:
    """The controller of BLAS, made once with the library of NumPy, and once SciPy has loaded its own with both."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> AbstractContextManager:
    """Context in which BLAS takes one thread, since its sums depend on how many there are."""
    return _blas("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas")


@contextmanager
def tasks_at_once(n_jobs: int | None) -> Iterator[Callable[..., Iterable[Any]]]:
    """Context with a `map` over so many threads of ours, while BLAS takes one.

    Tiles then give the same sums whatever the number of threads, which BLAS does not promise.
    """
    import joblib

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
        return _sparse_unit_rows(X.tocsr(copy=True))
    lengths = row_lengths(X)
    lengths[lengths == 0] = 1
    return X / lengths[:, None]


def _sparse_unit_rows(X: Any) -> Any:
    """As `sklearn.preprocessing.normalize` rounds: squares are summed, and lengths divide, in double precision."""
    for start in range(0, X.shape[0], _ROWS):
        indptr = X.indptr[start : start + _ROWS + 1]
        part = X.data[indptr[0] : indptr[-1]]
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        lengths = np.sqrt(np.bincount(rows, part * part, len(indptr) - 1))
        lengths[lengths == 0] = 1
        part[:] = part / lengths[rows]
    return X
