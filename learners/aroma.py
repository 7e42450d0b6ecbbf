"""AROMA: a distribution over bilinear similarities, learned online from triplets.

Crammer, Chechik: Adaptive Regularization for Weight Matrices, ICML 2012.

    S(a, b) = a' W b,    loss = max(0, 1 - q' W p),    p = p+ - p-                                (equation 2)

W is the mean of a normal distribution; the covariance says how sure its entries are, and steps are large where they
are not. Violating triplets alone change the model. The diagonal form (section 4.1) keeps a variance for each entry,
Sigma of the shape of W, all 1 at first. With G = q p' and products entry by entry,

    v = sum(Sigma G G),    W <- W + loss / (v + r) Sigma G,    Sigma <- Sigma - (Sigma G)^2 / (v + r)

The factored form (section 4.2) has a covariance of the query's features and one of the images', Lambda and Omega, both
(d, d) and I at first. With s = Lambda q, t = Omega p, a = q' s and b = p' t,

    W      <- W      + loss / (r + a b) s t'                                                     (equation 12)
    Omega  <- Omega  - a / (d r + a b) t t'                                                      (equation 13)
    Lambda <- Lambda - b / (d r + a b) s s'                                                      (equation 14)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from numba import njit

from .checks import check_choice, check_integer
from .given_triplets import FitsTriplets
from .loop import StepCost, Training
from .online import OnlineLearner
from .row_sums import difference, row_dot, squared_norm, widest_row
from .rows import FASTMATH, Arrays, Float, Int, Rows, dense_rows, entry_cost, mean_entries
from .sides import Sides, bilinear
from .sums import inner_products, product, tasks_at_once
from .whitening import WhiteningMixin, check_whiten

# Share of its squared norm that a vector's variance keeps at least; below it, single precision holds only rounding.
_ROUNDING = 1e-6

# Updates of the factored form that wait until they are added as one matrix product, and the most rows and columns of W
# that one task adds them to: a product of (1024, 192) and (192, 1024).
_PENDING = 192
_TILE = 1024

# Dense vectors, factored: triplets that share their matrix products.
_BLOCK = 256

# Dense vectors, diagonal: queries for which W and Sigma are read at once, and the parts of rows that tasks take. Of the
# updates of a query, more than one wait only while they take no more than this share of an entry's variance (its cube
# is the error: rounding), and 1 / (v + r) is so small that products of several do not overflow.
_DENSE_PAIRS = 32  # of a query, by default
_AHEAD = 8
_PARTS = 4
_SHARE = 2.0**-8
_STEEP = np.float32(1e6)


# -- diagonal ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def diagonal_pass(rows: Rows, triplets: np.ndarray, r: Float, model: np.ndarray) -> tuple[float, int]:
    """Learn from the triplets in turn (figure 1); sum of the losses and number of violating triplets.

    `model` is float32 (d, 2 d): W in its even and Sigma in its odd columns, so that the two entries that an update
    changes lie in one cache line.
    """
    indptr, indices, data, _ = rows
    width = 2 * widest_row(indptr)
    columns, delta = np.empty(width, np.uint32), np.empty(width, np.float32)
    squares = np.empty(width, np.float32)
    one, two = np.uint32(1), np.uint32(2)
    losses, violating = 0.0, 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        start, end = indptr[query], indptr[query + 1]
        n = difference(positive, negative, indptr, indices, data, columns, delta)
        for j in range(n):
            columns[j] *= two  # the even columns are those of W
        margin = np.float32(0.0)  # q' W p
        for i in range(start, end):
            margin += data[i] * row_dot(model, indices[i], columns, delta, n)

        loss = np.float32(1.0) - margin
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1

        for j in range(n):
            squares[j] = delta[j] * delta[j]
            columns[j] += one  # from here on those of Sigma
        v = np.float32(0.0)
        for i in range(start, end):
            v += data[i] * data[i] * row_dot(model, indices[i], columns, squares, n)
        scale = float(v) + r
        step_size, shrinkage = np.float32(float(loss) / scale), np.float32(1.0 / scale)
        # No entry takes more than its share of v, so that what is left of it is r / (v + r) or more, but for rounding.
        least = np.float32(r / scale)
        for i in range(start, end):
            row = indices[i]
            weight, share = step_size * data[i], shrinkage * data[i] * data[i]
            for j in range(n):
                column = columns[j]
                variance = model[row, column]
                model[row, column - one] += weight * delta[j] * variance
                model[row, column] = variance * max(np.float32(1.0) - share * squares[j] * variance, least)
    return losses, violating


# -- diagonal, dense vectors -------------------------------------------------------------------------------------------

# The pairs of a query q change column j of W and Sigma through a few numbers. With y = q_i^2 Sigma_ij and an update's
# x = p_j^2 / (v + r), y <- y - x y^2. After several updates, up to (sum of x y)^3, which is kept below rounding,
#
#     y <- y - a y^2 + c y^3,    a <- a + x, c <- c + 2 x a                                        for each update
#     W_ij <- W_ij + q_i Sigma_ij (b_0 - b_1 y + b_2 y^2),    b_0, b_1, b_2 the sums of loss / (v + r) p_j (1, a, c)
#
# so that margin and variance need only the sums over i of q_i W_ij, y, y^2 and y^3, once per query.
_A, _C, _B0, _B1, _B2 = range(5)  # rows of `pending`
_W, _Y, _Y2, _Y3, _TOP = range(5)  # rows of `sums`; the last is the largest y


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _update_row(W: np.ndarray, Sigma: np.ndarray, q: Float, pending: np.ndarray, least: Float) -> None:
    """Add the pending updates to a row of W and Sigma."""
    a, c, b0, b1, b2 = pending[_A], pending[_C], pending[_B0], pending[_B1], pending[_B2]
    for j in range(len(W)):
        variance = Sigma[j]
        y = q * q * variance
        W[j] += q * variance * (b0[j] - y * (b1[j] - y * b2[j]))
        Sigma[j] = variance * max(np.float32(1.0) - y * (a[j] - y * c[j]), least)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sum_one(W: Arrays, Sigma: Arrays, q: tuple[Float, ...], sums: np.ndarray) -> None:
    """Add four rows to the sums that a query with one pair needs; one by one, these would be loaded four times."""
    (W0, W1, W2, W3), (S0, S1, S2, S3), (q0, q1, q2, q3) = W, Sigma, q
    w, y = sums[_W], sums[_Y]
    for j in range(len(w)):
        w[j] += q0 * W0[j] + q1 * W1[j] + q2 * W2[j] + q3 * W3[j]
        y[j] += q0 * q0 * S0[j] + q1 * q1 * S1[j] + q2 * q2 * S2[j] + q3 * q3 * S3[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sum_several(W: Arrays, Sigma: Arrays, q: tuple[Float, ...], sums: np.ndarray) -> None:
    """Add four rows to the sums that a query with several pairs needs."""
    (W0, W1, W2, W3), (S0, S1, S2, S3), (q0, q1, q2, q3) = W, Sigma, q
    w, y, y2, y3, top = sums[_W], sums[_Y], sums[_Y2], sums[_Y3], sums[_TOP]
    for j in range(len(w)):
        w[j] += q0 * W0[j] + q1 * W1[j] + q2 * W2[j] + q3 * W3[j]
        s0, s1, s2, s3 = q0 * q0 * S0[j], q1 * q1 * S1[j], q2 * q2 * S2[j], q3 * q3 * S3[j]
        y[j] += s0 + s1 + s2 + s3
        y2[j] += s0 * s0 + s1 * s1 + s2 * s2 + s3 * s3
        y3[j] += s0 * s0 * s0 + s1 * s1 * s1 + s2 * s2 * s2 + s3 * s3 * s3
        top[j] = max(top[j], max(max(s0, s1), max(s2, s3)))


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def sweep(
    W: np.ndarray,
    Sigma: np.ndarray,
    waiting: tuple[bool, np.ndarray, np.ndarray, Float],
    queries: np.ndarray,
    several: np.ndarray,
    first: Int,
    last: Int,
    sums: np.ndarray,
) -> None:
    """Add the pending updates of a query to rows first to last of W and Sigma, and sum these rows for other queries.

    `waiting` tells whether there are any, the query, its pending updates, and the least share of a variance. `queries`
    (n, d), and `several` tells which of them have several pairs; `sums` (n, 5, d) receives the sums.
    """
    updates, q, pending, least = waiting
    sums[:] = np.float32(0.0)
    for i in range(first, last, 4):
        rows = min(i + 4, last) - i
        if updates:
            for k in range(i, i + rows):
                _update_row(W[k], Sigma[k], q[k], pending, least)
        # Fewer than four rows at the end: the last one again, with weights of zero.
        i1, i2, i3 = i + min(1, rows - 1), i + min(2, rows - 1), i + min(3, rows - 1)
        n1, n2, n3 = np.float32(rows > 1), np.float32(rows > 2), np.float32(rows > 3)
        for n in range(len(queries)):
            x = queries[n]
            weights = x[i], n1 * x[i1], n2 * x[i2], n3 * x[i3]
            W_rows, S_rows = (W[i], W[i1], W[i2], W[i3]), (Sigma[i], Sigma[i1], Sigma[i2], Sigma[i3])
            if several[n]:
                _sum_several(W_rows, S_rows, weights, sums[n])
            else:
                _sum_one(W_rows, S_rows, weights, sums[n])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def diagonal_pairs(
    X: np.ndarray, triplets: np.ndarray, r: Float, sums: np.ndarray, n_queries: Int, pending: np.ndarray, most: Float
) -> tuple[int, int, int, Float, float, int]:
    """Learn from the triplets in turn, as far as the sums of their queries reach.

    `sums` (n_parts, n, 5, d) holds those of the next `n_queries`; `pending` (5, d) receives the updates, of one query,
    until a second one would make them take more than the share `most` of an entry's variance. Return the numbers of
    triplets seen, of queries seen, and of updates, the least share of a variance that these leave, the sum of the
    losses, and the number of violating triplets.
    """
    d = X.shape[1]
    known = sums[0]
    for part in range(1, len(sums)):
        for n in range(n_queries):
            for k in range(_TOP):
                for j in range(d):
                    known[n, k, j] += sums[part, n, k, j]
            for j in range(d):
                known[n, _TOP, j] = max(known[n, _TOP, j], sums[part, n, _TOP, j])
    pending[:] = np.float32(0.0)
    a, c, b0, b1, b2 = pending[_A], pending[_C], pending[_B0], pending[_B1], pending[_B2]
    p = np.empty(d, np.float32)
    z = np.empty(d, np.float32)
    k, updates, least, steepest, losses, violating = 0, 0, np.float32(1.0), np.float32(0.0), 0.0, 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        if step and query != triplets[step - 1][0]:
            if updates or k + 1 == n_queries:
                return step, k + 1, updates, least, losses, violating
            k += 1
        w, y, y2, y3, top = known[k, _W], known[k, _Y], known[k, _Y2], known[k, _Y3], known[k, _TOP]
        x_positive, x_negative = X[positive], X[negative]
        margin = np.float32(0.0)
        for j in range(d):  # nothing is stored here: blocks.py says why
            margin += w[j] * (x_positive[j] - x_negative[j])
        loss = np.float32(1.0) - margin
        if loss <= 0.0:
            continue

        for j in range(d):
            p[j] = x_positive[j] - x_negative[j]
        z[:] = y
        if updates:
            for j in range(d):
                z[j] += c[j] * y3[j] - a[j] * y2[j]
        v = np.float32(0.0)
        for j in range(d):
            v += p[j] * p[j] * z[j]
        scale = float(v) + r
        step_size, shrinkage = np.float32(float(loss) / scale), np.float32(1.0 / scale)
        steepest = max(steepest, shrinkage)
        if updates:
            share = np.float32(0.0)
            for j in range(d):
                share = max(share, (a[j] + shrinkage * p[j] * p[j]) * top[j])
            # This triplet then comes again, after the updates before it were added. Of large numbers y3 overflows.
            if share > most or steepest > _STEEP or not v < np.inf:
                return step, k + 1, updates, least, losses, violating
        losses += float(loss)
        violating += 1
        updates += 1
        least *= np.float32(r / scale)
        for j in range(d):
            weight, x = step_size * p[j], shrinkage * p[j] * p[j]
            w[j] += weight * z[j]
            b0[j] += weight
            b1[j] += weight * a[j]
            b2[j] += weight * c[j]
            c[j] += np.float32(2.0) * x * a[j]
            a[j] += x
    return len(triplets), k + 1, updates, least, losses, violating


def dense_diagonal_pass(
    X: np.ndarray, triplets: np.ndarray, r: float, W: np.ndarray, Sigma: np.ndarray, run: Callable[..., Iterable]
) -> tuple[float, int]:
    """Learn from the triplets of dense vectors in turn; sum of the losses and number of violating triplets.

    W and Sigma, (d, d) each, are read and written once for each query with a violating pair; that sweep also prepares
    the queries that follow. `run` maps a function over parts of the rows, in any order or at once.
    """
    d = X.shape[1]
    sums, pending = np.empty((_PARTS, _AHEAD, 5, d), np.float32), np.zeros((5, d), np.float32)
    height = -(-d // (4 * _PARTS)) * 4
    first_rows = range(0, _PARTS * height, height)
    last_rows = [min(row + height, d) for row in first_rows]
    starts = np.flatnonzero(np.diff(triplets[:, 0], prepend=-1))
    several = np.diff(starts, append=len(triplets)) > 1
    q, updates = np.zeros(d, np.float32), 0
    least: Float = 1.0
    seen, ahead, losses, violating = 0, 1, 0.0, 0
    while True:
        first = np.searchsorted(starts, seen, side="right") - 1 if seen < len(triplets) else len(starts)
        queries = X[triplets[starts[first : first + ahead], 0]]
        n_queries = len(queries)
        waiting = updates > 0, q, pending, np.float32(least)
        common = W, Sigma, waiting, queries, several[first : first + n_queries]
        for _ in run(partial(sweep, *common), first_rows, last_rows, sums[:, :n_queries]):
            pass
        if seen == len(triplets):
            return losses, violating
        rest = triplets[seen:]
        new, used, updates, least, loss, n = diagonal_pairs(X, rest, r, sums, n_queries, pending, np.float32(_SHARE))
        q, seen, losses, violating = queries[used - 1], seen + new, losses + loss, violating + n
        # Where many queries in a row have no violating pair, more are prepared at once.
        ahead = used if updates else min(2 * ahead, _AHEAD)


# -- factored ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _add_rows(matrix: np.ndarray, rows: np.ndarray, weights: np.ndarray, n: Int, out: np.ndarray) -> None:
    """Add a weighted sum of n rows of a matrix."""
    for i in range(n):
        row, weight = matrix[rows[i]], weights[i]
        for j in range(len(out)):
            out[j] += weight * row[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sparse_dot(dense: np.ndarray, columns: np.ndarray, values: np.ndarray, n: Int) -> Float:
    """Inner product of a dense and a sparse vector."""
    dot = np.float32(0.0)
    for j in range(n):
        dot += dense[columns[j]] * values[j]
    return dot


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def factored_pass(
    rows: Rows, triplets: np.ndarray, r: Float, state: Arrays, updates: Arrays
) -> tuple[int, int, float, int]:
    """Learn from the triplets in turn (figure 2) until U and V are full.

    `state`, W, Lambda and Omega, is only read; `updates`, U and V, (n_pending, d), and their weights, receive what is
    to be added: in truth the matrices are W + U' diag(weights) V, Lambda - U' U and Omega - V' V. Return the numbers of
    triplets seen and of rows pending, the sum of the losses, and the number of violating triplets.
    """
    indptr, indices, data, norms = rows
    W, Lambda, Omega = state
    U, V, weights = updates
    n_pending, d = U.shape
    width = 2 * widest_row(indptr)
    columns, delta = np.empty(width, np.uint32), np.empty(width, np.float32)
    pending = np.arange(n_pending).astype(np.uint32)
    minus_u, minus_v = np.empty(n_pending, np.float32), np.empty(n_pending, np.float32)  # -U q and -V p
    k, losses, violating = 0, 0.0, 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        start, end = indptr[query], indptr[query + 1]
        q_columns, q, n_q = indices[start:end], data[start:end], end - start
        n = difference(positive, negative, indptr, indices, data, columns, delta)

        margin = np.float32(0.0)
        for i in range(n_q):
            margin += q[i] * row_dot(W, q_columns[i], columns, delta, n)
        for j in range(k):
            minus_u[j] = -_sparse_dot(U[j], q_columns, q, n_q)
            minus_v[j] = -_sparse_dot(V[j], columns, delta, n)
            margin += weights[j] * minus_u[j] * minus_v[j]
        loss = np.float32(1.0) - margin
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1

        # s = Lambda q and t = Omega p, where they wait: the rows of a symmetric matrix are its columns.
        s, t = U[k], V[k]
        s[:], t[:] = np.float32(0.0), np.float32(0.0)
        _add_rows(Lambda, q_columns, q, n_q, s)
        _add_rows(Omega, columns, delta, n, t)
        _add_rows(U, pending, minus_u, k, s)
        _add_rows(V, pending, minus_v, k, t)
        a, b = float(_sparse_dot(s, q_columns, q, n_q)), float(_sparse_dot(t, columns, delta, n))
        # Nothing to learn from a vector of zeros, nor where no variance is left.
        if a <= _ROUNDING * norms[query] or b <= _ROUNDING * squared_norm(delta, n):
            continue
        s_scale, t_scale = np.sqrt(b / (d * r + a * b)), np.sqrt(a / (d * r + a * b))
        weights[k] = np.float32(float(loss) / ((r + a * b) * s_scale * t_scale))
        s *= np.float32(s_scale)
        t *= np.float32(t_scale)
        k += 1
        if k == n_pending:
            return step + 1, k, losses, violating
    return len(triplets), k, losses, violating


def fold(state: Arrays, updates: Arrays, run: Callable[..., Iterable]) -> None:
    """Add the pending updates: W += U' diag(weights) V, Lambda -= U' U, Omega -= V' V, in place.

    `run` maps a function over the tiles of the three matrices, in any order or at once: none depends on another.
    """
    (W, Lambda, Omega), (U, V, weights) = state, updates
    if not len(U):
        return
    weighted = U * weights[:, None]

    def add(rows: slice, columns: slice) -> None:
        W[rows, columns] += weighted[:, rows].T @ V[:, columns]

    def subtract(covariance: np.ndarray, pending: np.ndarray, rows: slice, columns: slice) -> None:
        covariance[rows, columns] -= pending[:, rows].T @ pending[:, columns]
        if rows != columns:  # only the lower triangle is computed
            covariance[columns, rows] = covariance[rows, columns].T

    slices = _slices(len(W))
    tiles = [partial(add, rows, columns) for rows in slices for columns in slices]
    for covariance, pending in ((Lambda, U), (Omega, V)):
        for i, rows in enumerate(slices):
            tiles += [partial(subtract, covariance, pending, rows, columns) for columns in slices[: i + 1]]
    for _ in run(lambda tile: tile(), tiles):
        pass


def _slices(d: int) -> list[slice]:
    """Tiles of d columns: as few as `_TILE` allows, and alike."""
    n = -(-d // _TILE)
    return [slice(k * d // n, (k + 1) * d // n) for k in range(n)]


# -- factored, dense vectors -------------------------------------------------------------------------------------------

# Of a block of triplets with the queries Q and the differences P, (n, d) each, matrix products give Q W, S = Q Lambda,
# T = P Omega and the inner products D = S Q' and E = T P'. An update is then one of (n,) vectors: with c = Q s and
# f = P t, columns of D and E as they are at the time,
#
#     margins <- margins + loss / (r + a b) c f,    D <- D - b / (d r + a b) c c',    E <- E - a / (d r + a b) f f'
#
# and s and t are combinations of rows of S and T.


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _combine(matrix: np.ndarray, weights: np.ndarray, k: Int, out: np.ndarray, start: Int, end: Int) -> None:
    """out[start:end] less a weighted sum of the first k rows of a matrix."""
    for i in range(k):
        row, weight = matrix[i], weights[i]
        for j in range(start, end):
            out[j] -= weight * row[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def factored_block(
    margins: np.ndarray,
    D: np.ndarray,
    E: np.ndarray,
    norms: tuple[np.ndarray, np.ndarray],
    r: Float,
    d: Int,
    updates: Arrays,
) -> tuple[np.ndarray, float, int]:
    """Learn from a block of triplets in turn (figure 2), in inner products.

    `norms` are the squared ones of the queries and of the differences. `updates` receives of_S, of_T and `weights`: the
    k updates are U = of_S[:k, :k] S[chosen] and V = of_T[:k, :k] T[chosen], with the weights, as `fold` takes them.
    Return which triplets are the updates (k,), the sum of the losses, and the number of violating triplets.
    """
    n, (q_norms, p_norms), (of_S, of_T, weights) = len(margins), norms, updates
    C, F = np.empty((n, n), np.float32), np.empty((n, n), np.float32)  # Q U' and P V', transposed
    c_here, f_here = np.empty(n, np.float32), np.empty(n, np.float32)
    chosen = np.empty(n, np.int64)
    of_S[:], of_T[:] = np.float32(0.0), np.float32(0.0)
    k, losses, violating = 0, 0.0, 0
    for step in range(n):
        loss = np.float32(1.0) - margins[step]
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1

        c, f = C[k], F[k]
        for j in range(k):
            c_here[j], f_here[j] = C[j, step], F[j, step]
        c[step:], f[step:] = D[step, step:], E[step, step:]
        _combine(C, c_here, k, c, step, n)
        _combine(F, f_here, k, f, step, n)
        a, b = float(c[step]), float(f[step])
        if a <= _ROUNDING * q_norms[step] or b <= _ROUNDING * p_norms[step]:
            continue
        weight = np.float32(float(loss) / (r + a * b))
        for j in range(step, n):
            margins[j] += weight * c[j] * f[j]
        s_scale, t_scale = np.float32(np.sqrt(b / (d * r + a * b))), np.float32(np.sqrt(a / (d * r + a * b)))
        _combine(of_S, c_here, k, of_S[k], 0, k)
        _combine(of_T, f_here, k, of_T[k], 0, k)
        of_S[k, k] = of_T[k, k] = np.float32(1.0)
        of_S[k] *= s_scale
        of_T[k] *= t_scale
        c[step:] *= s_scale
        f[step:] *= t_scale
        weights[k], chosen[k] = weight / (s_scale * t_scale), step
        k += 1
    return chosen[:k], losses, violating


def _products(pairs: list[tuple[np.ndarray, np.ndarray]], run: Callable[..., Iterable]) -> list[np.ndarray]:
    """A @ B of each pair, tile by tile."""
    out = [np.empty((len(A), B.shape[1]), np.float32) for A, B in pairs]

    def multiply(task: tuple[int, slice]) -> None:
        k, columns = task
        A, B = pairs[k]
        out[k][:, columns] = A @ B[:, columns]

    for _ in run(multiply, [(k, columns) for k in range(len(pairs)) for columns in _slices(out[k].shape[1])]):
        pass
    return out


def dense_factored_pass(
    X: np.ndarray, triplets: np.ndarray, r: float, state: Arrays, run: Callable[..., Iterable]
) -> tuple[float, int]:
    """Learn from the triplets of dense vectors in turn, a block at a time; sum of the losses, violating triplets.

    `run` maps a function over tiles of the matrices, in any order or at once: none depends on another.
    """
    W, Lambda, Omega = state
    of_S, of_T = np.empty((2, _BLOCK, _BLOCK), np.float32)
    weights = np.empty(_BLOCK, np.float32)
    losses, violating = 0.0, 0
    for start in range(0, len(triplets), _BLOCK):
        query, positive, negative = triplets[start : start + _BLOCK].T
        query, place = np.unique(query, return_inverse=True)  # pairs of one query share its products
        Q, P = X[query], X[positive] - X[negative]
        QW, S, T = _products([(Q, W), (Q, Lambda), (P, Omega)], run)
        D, E = (S @ Q.T)[place][:, place], T @ P.T
        margins, norms = inner_products(QW[place], P), (inner_products(Q, Q)[place], inner_products(P, P))
        chosen, loss, n = factored_block(margins, D, E, norms, r, X.shape[1], (of_S, of_T, weights))
        k = len(chosen)
        U, V = _products([(of_S[:k, :k], S[place[chosen]]), (of_T[:k, :k], T[chosen])], run)
        fold(state, (U, V, weights[:k]), run)
        losses, violating = losses + loss, violating + n
    return losses, violating


# -- the learner -------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, repr=False, eq=False)
class AROMA(FitsTriplets, WhiteningMixin, OnlineLearner):
    """Adaptive Regularization Of MAtrix models: OASIS with a step size for every entry of W.

    Parameters
    ----------
    covariance : {"diagonal", "factored"}, default="diagonal"
        "diagonal" keeps a variance for each entry of W, and costs little more than OASIS; "factored" keeps correlations
        between features, in two (d, d) matrices, at O(d^2) time a violating triplet.
    r : float, default=1.0
        Regulariser: larger makes smaller steps, and shrinks variances more slowly.
    n_steps : int, default=300_000
        Triplets.
    init : {"zero", "identity"} or None, default=None
        W before the first triplet. "identity" starts at the inner product of the vectors. None: "identity" where the
        vectors are whitened, else "zero".
    whiten : bool or "auto", default="auto"
        Learn in vectors whitened by the scatter within classes; see `OASIS`.
    pairs_per_query : int, optional
        Pairs (p+, p-) drawn per query drawn; see `OASIS`. On dense vectors they share the cost of reading and writing W
        and Sigma. None: 32 for the diagonal form where a quarter of the entries of the images or more are not zero, and
        else 1.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.
    click_cutoff, check_negatives, balance : see `TripletSampler`
        How triplets are drawn; `click_cutoff` is `cutoff` there.
    n_jobs : int, optional
        Threads for dense vectors, and for adding up the updates of the factored form. The model does not depend on it.

    Attributes
    ----------
    W_ : float32 array of shape (d, d)
        Mean of the distribution, which is the similarity; a view of `distribution_`.
    covariance_ : float32 array of shape (d, d), or tuple of two
        Sigma, or Lambda (of the query's features) and Omega (of the images' features); views of `distribution_`.
    distribution_ : float32 array
        What is learned and saved. Diagonal: (d, d, 2), W and Sigma entry beside entry; factored: (3, d, d), W, Lambda
        and Omega.
    mean_, whitening_ : float32 arrays of shape (d,) and (d, d)
        Of the whitening, where there is one.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Notes
    -----
    The query side is Q W, the gallery side X itself. Time per triplet: diagonal, proportional to nnz(q) (nnz(p+) +
    nnz(p-)), whatever d is; factored, the same, and 4 d^2 operations of matrix products for a triplet that violates.
    Where a quarter of the entries of the images or more are not zero: diagonal, W and Sigma are read and written once
    per query with a violating pair; factored, 6 d^2 operations of matrix products per triplet (2 d^2 with many pairs
    per query), and 4 d^2 for one that violates.

    Peak memory, in units of the 4 d^2 bytes of W: 2 for the diagonal and 3 for the factored form; twice as much with
    `validation_fraction` unless `refit`; on dense vectors the diagonal form takes 2 more. Beside it the factored form
    takes 2.3 kB per dimension for pending updates (dense vectors: 10 kB) and 4 MB per thread for a tile of their
    product.

    The rank-1 updates of the factored form wait in U and V until 192 are pending, or the pass ends, and are then added
    as matrix products; on dense vectors they wait for the end of a block of 256 triplets, and those of the diagonal
    form for the end of a query's pairs. That changes results by rounding only.

    Departures from the paper: W and the covariance are float32. `init="identity"`, `whiten` and `pairs_per_query` are
    ours. W is square: section 2 also has queries and images of different kinds, of p and of q numbers. A learner here
    is fitted to one X and one y, and draws its queries from the same rows as its images; another X for the queries,
    with relevance in place of y, would be another contract for fit, validation, saving and search, for a case that no
    data here has. The state that early stopping returns to is W with the covariance of that moment, so that
    `partial_fit` continues as if nothing had been learned since. The factored form skips a triplet where a or b is 1e-6
    of the squared norm or less: that is rounding.

    References
    ----------
    K. Crammer, G. Chechik: Adaptive Regularization for Weight Matrices. Proceedings of the 29th International
    Conference on Machine Learning, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import AROMA
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = AROMA(n_steps=1000, whiten=False, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> int(learner.similarity(X[:1], X[1:]).argmax())
    0
    >>> bool(learner.covariance_[0, 1] < learner.covariance_[0, 0] == 1)
    True
    """

    linear = True
    reads_rows = True
    cautious_on_sparse = True  # pairs of visterms that no triplet had stay at their start: others rank by their vectors
    _learned = ("distribution_",)
    distribution_: np.ndarray = field(init=False)  # (d, d, 2) or (3, d, d)

    covariance: str = "diagonal"
    r: float = 1.0
    n_steps: int = 300_000
    init: str | None = None
    whiten: bool | str = "auto"
    pairs_per_query: int | None = None
    validation_fraction: float | None = None
    patience: int | None = 5
    refit: bool = True
    pass_steps: int = 10_000
    click_cutoff: float | str | None = None
    check_negatives: bool = True
    balance: str = "image"
    random_state: Any = None
    n_jobs: int | None = None

    # -- the similarity ------------------------------------------------------------------------------------------------

    @property
    def W_(self) -> np.ndarray:
        """Mean of the distribution, the similarity: (d, d)."""
        return self.distribution_[0] if self._is_factored() else self.distribution_[..., 0]

    @property
    def covariance_(self) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Sigma, (d, d); or Lambda and Omega, (d, d) each."""
        if self._is_factored():
            return self.distribution_[1], self.distribution_[2]
        return self.distribution_[..., 1]

    @property
    def begins_at(self) -> str:  # type: ignore[override]  # read only, as the base class uses it
        """Start of learning; see `SimilarityLearner`."""
        return "vectors" if self.init == "identity" or (self.init is None and self.is_whitened()) else "nothing"

    def _sides(self) -> Sides:
        """Q W and X."""
        return bilinear(self._times_W, lambda: self.W_, self._whitening)

    def _times_W(self, Z: Any) -> np.ndarray:
        if self._is_factored():
            return product(Z, self.W_)
        # Products with W alone would copy it whole, as every other entry; this reads only the rows that Q touches.
        d = self.n_features_in_
        return np.ascontiguousarray(product(Z, np.asarray(self.distribution_).reshape(d, 2 * d))[:, ::2])

    def _is_factored(self) -> bool:
        """Which form was learned; `covariance` is the one that the next `fit` learns."""
        return self.distribution_.shape == (3, self.n_features_in_, self.n_features_in_)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self, *, fitted: bool) -> None:
        check_choice("covariance", self.covariance, ("diagonal", "factored"))
        if not isinstance(self.r, Real) or not 1e-30 <= self.r <= 1e30:  # what single precision can take
            raise ValueError(f"r must be a positive number, from 1e-30 to 1e30, got {self.r!r}")
        check_choice("init", self.init, ("zero", "identity", None))
        check_whiten(self.whiten)
        if self.pairs_per_query is not None:
            check_integer("pairs_per_query", self.pairs_per_query, minimum=1)
        if fitted and self._is_factored() != (self.covariance == "factored"):
            raise ValueError(f"the fitted covariance is not {self.covariance!r}; use fit to learn from scratch")

    def _start(self) -> None:
        d = self.n_features_in_
        factored = self.covariance == "factored"
        self.distribution_ = self._zeros("distribution_", (3, d, d) if factored else (d, d, 2))
        if factored:
            for covariance in self.distribution_[1:]:
                np.fill_diagonal(covariance, 1.0)
        else:
            self.distribution_[..., 1] = 1.0
        if self.begins_at == "vectors":
            np.fill_diagonal(self.W_, 1.0)

    def _step_cost(self, rows: Rows) -> StepCost:
        d, n, pairs = self.n_features_in_, mean_entries(rows), self._pairs(rows)
        if dense_rows(rows, d) is not None:
            return StepCost(0.4 * d**2 if self._is_factored() else d**2 / pairs + 20 * d, pairs)
        if self._is_factored():  # products of rows; few pending updates take as long to add as many
            return StepCost(0.3 * d * (3 * n + _PENDING) + 0.01 * d**2, pairs)
        return StepCost(entry_cost(rows, d) * 4 * n**2, pairs)

    def _pairs(self, rows: Rows) -> int:
        """Pairs drawn per query drawn."""
        if self.pairs_per_query is not None:
            return self.pairs_per_query
        sparse = dense_rows(rows, self.n_features_in_) is None
        return 1 if sparse or self._is_factored() else _DENSE_PAIRS

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        rows, sampler = training.rows, training.sampler
        triplets = sampler.draw_pass((self.seed_, 0), self.n_steps_, n_steps, pairs_per_query=self._pairs(rows))
        d, r = self.n_features_in_, float(self.r)
        X = dense_rows(rows, d)
        if X is None and not self._is_factored():
            return diagonal_pass(rows, triplets, r, self.distribution_.reshape(d, 2 * d))
        with tasks_at_once(self.n_jobs) as run:
            if X is None:
                return self._sparse_factored_pass(rows, triplets, run)
            if self._is_factored():
                return dense_factored_pass(X, triplets, r, tuple(self.distribution_), run)
            W, Sigma = (np.ascontiguousarray(self.distribution_[..., k]) for k in (0, 1))
            losses, violating = dense_diagonal_pass(X, triplets, r, W, Sigma, run)
            self.distribution_[..., 0], self.distribution_[..., 1] = W, Sigma
            return losses, violating

    def _sparse_factored_pass(
        self, rows: Rows, triplets: np.ndarray, run: Callable[..., Iterable]
    ) -> tuple[float, float]:
        state = tuple(self.distribution_)
        U, V = np.empty((2, _PENDING, self.n_features_in_), np.float32)
        weights = np.empty(_PENDING, np.float32)
        losses, violating = 0.0, 0.0
        while len(triplets):
            seen, k, loss, n = factored_pass(rows, triplets, float(self.r), state, (U, V, weights))
            fold(state, (U[:k], V[:k], weights[:k]), run)
            triplets, losses, violating = triplets[seen:], losses + loss, violating + n
        return losses, violating
