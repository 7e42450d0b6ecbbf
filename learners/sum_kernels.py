"""Kernels of `sums`."""

from __future__ import annotations

import numpy as np
from numba import njit

from .rows import Arrays, Int

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
def multiply(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
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
def multiply_sparse(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
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
def inner_products_of(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> None:
    """out[i] = the inner product of row i of A and row i of B, summed in double precision."""
    for i in range(A.shape[0]):
        total = 0.0
        for k in range(A.shape[1]):
            total += np.float64(A[i, k]) * np.float64(B[i, k])
        out[i] = total
