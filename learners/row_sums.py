"""Kernels of sums over the entries of images, as `rows` has them."""

from __future__ import annotations

import numpy as np
from numba import njit

from .rows import FASTMATH, Float, Int


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def widest_row(indptr: np.ndarray) -> Int:
    """Largest number of entries of an image."""
    widest = 0
    for i in range(len(indptr) - 1):
        widest = max(widest, indptr[i + 1] - indptr[i])
    return widest


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def squared_norm(values: np.ndarray, n: Int) -> Float:
    """Sum of squares of values[:n]."""
    total = np.float32(0.0)
    for i in range(n):
        total += values[i] * values[i]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def row_dot(W: np.ndarray, row: Int, columns: np.ndarray, values: np.ndarray, n: Int) -> Float:
    """Inner product of a row of W with a sparse vector."""
    dot = np.float32(0.0)
    for j in range(n):
        dot += W[row, columns[j]] * values[j]
    return dot


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def difference(
    a: Int, b: Int, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, columns: np.ndarray, values: np.ndarray
) -> Int:
    """Write row a - row b, without its zeros; number of entries. The buffers hold both rows' entries."""
    i, j = indptr[a], indptr[b]
    end_i, end_j = indptr[a + 1], indptr[b + 1]
    n, zero = 0, np.float32(0.0)
    # No branch in the loop: which row comes next cannot be foretold, and a wrong guess costs more than the work.
    while i < end_i and j < end_j:
        left, right = indices[i], indices[j]
        columns[n] = min(left, right)
        values[n] = (data[i] if left <= right else zero) - (data[j] if right <= left else zero)
        n += values[n] != zero
        i += left <= right
        j += right <= left
    while i < end_i:
        columns[n], values[n] = indices[i], data[i]
        i += 1
        n += 1
    while j < end_j:
        columns[n], values[n] = indices[j], -data[j]
        j += 1
        n += 1
    return n
