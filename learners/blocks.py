"""Passive-aggressive learning of a bilinear similarity in blocks of queries: exact, and W is touched once a block.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 2.1, with triplets of one query following each other:

    loss = max(0, 1 - q' W p),    tau = min(C, loss / (|q|^2 |p|^2)),    W <- W + tau q p',    p = p+ - p-

Every step of a query changes v = W' q by tau |q|^2 p, so its triplets need v alone, and W takes their sum afterwards:

    margin = v' p,    v <- v + tau |q|^2 p,    g <- g + tau p;        in the end  W <- W + q g'

A query b that comes after others whose g is not yet in W sees them through

    v_b = W' q_b + sum over a of (q_a' q_b) g_a

so that W is read and written once for a whole block of queries, as two products: V = Q W and W <- W + Q' G. The model
is that of the steps one by one, up to rounding.

While the queries of block k learn, W takes the G of block k - 1 and gives the V of block k + 1, by columns: the two
have no data in common. So a second thread has something to do, and the model does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from .row_sums import difference
from .rows import FASTMATH, Arrays, Float, Int, Rows, dense_rows

Run = Callable[..., Iterable[Any]]  # `map`, or that of a pool of threads

# Queries of a block: more make larger tasks, and add more g to each v, which is little in products of dense vectors.
_SPARSE_BLOCK, _DENSE_BLOCK = 16, 128
_SPARSE_TILES = 3  # parts of the columns of W, with the steps of a block four tasks for two threads
_DENSE_TILE = 256  # columns
_ONE_BY_ONE = 16  # a number of W that is read by itself takes as long as so many in a row
_FEW_NUMBERS = 1_000_000  # of W that a block reads: with fewer, threads would wait for each other most of the time


def block_size(rows: Rows, n_features: int, pairs: int) -> int:
    """Queries of a block; 0 where steps one by one are faster: few pairs a query, and few entries a row of W."""
    entries = len(rows[2]) / max(1, len(rows[3]))
    if 2 * entries >= n_features:
        return _DENSE_BLOCK
    if _ONE_BY_ONE * pairs * entries < n_features:
        return 0
    return _SPARSE_BLOCK


class Block(NamedTuple):
    """Queries that follow each other, and what they learn; kernels take it as a plain tuple: triplets.py says why."""

    triplets: np.ndarray  # (n, 3) int32
    starts: np.ndarray  # (B + 1,) int64, where the triplets of each query begin
    vectors: np.ndarray  # of the queries: dense (B, d); of sparse images their numbers (B,) int32
    V: np.ndarray  # (B, d) float32, W' q
    G: np.ndarray  # (B, d) float32, g
    moved: np.ndarray  # (B,) bool, whether g is not zero
    taus: np.ndarray  # (n,) float32, the step of each triplet; 0 where none was taken


def learn_blocks(
    rows: Rows,
    triplets: np.ndarray,
    C: float,
    W: np.ndarray,
    size: int,
    run: Run = map,
    *,
    taus: np.ndarray | None = None,
) -> Any:
    """Learn from triplets into W, `size` queries at a time; sum of the losses and number of violating triplets.

    Triplets, int32 (n, 3), of query, positive and negative, that follow each other with the same query share its v; W,
    float32 (d, d), is changed in place; `size` comes from `block_size`. `run` is ``map``, or a pool's: then tasks of a
    block run at the same time, and the result does not depend on it. `taus`, float32 zeros of shape (n,), receives the
    step of each triplet that took one.
    """
    if not len(triplets):
        return 0.0, 0
    taus = np.zeros(len(triplets), np.float32) if taus is None else taus
    images = (_Dense if dense_rows(rows, len(W)) is not None else _Sparse)(rows, C, W)
    if size * len(rows[2]) / len(rows[3]) * len(W) < _FEW_NUMBERS:
        run = map
    starts = np.concatenate([[0], np.flatnonzero(np.diff(triplets[:, 0])) + 1, [len(triplets)]])
    buffers = [np.empty((2, size, len(W)), np.float32) for _ in range(2)]
    losses, violating = 0.0, 0
    before, block = None, None
    for k in range(-1, -(-(len(starts) - 1) // size) + 1):
        following = None
        bounds = starts[(k + 1) * size : (k + 2) * size + 1]
        if len(bounds) > 1:
            part = slice(bounds[0], bounds[-1])
            V, G = buffers[k % 2]
            following = images.block(triplets[part], bounds - bounds[0], V, G, taus[part])
        tiles = range(0, len(W), images.tile_columns)
        tasks: list[Callable[[], Any]] = [
            partial(images.tile, slice(left, left + images.tile_columns), before, following) for left in tiles
        ]
        if block is not None:  # first: it takes longest
            tasks.insert(0, partial(images.steps, before, block))
        outcomes = list(run(lambda task: task(), tasks))
        if block is not None:
            losses, violating = losses + outcomes[0][0], violating + outcomes[0][1]
        before, block = block, following
    return losses, violating


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def inner(a: Int, b: Int, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray) -> Float:
    """Inner product of rows a and b."""
    i, j = indptr[a], indptr[b]
    end_i, end_j = indptr[a + 1], indptr[b + 1]
    total, zero = np.float32(0.0), np.float32(0.0)
    while i < end_i and j < end_j:
        left, right = indices[i], indices[j]
        total += data[i] * data[j] if left == right else zero
        i += left <= right
        j += right <= left
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _add(out: np.ndarray, weight: Float, x: np.ndarray) -> None:
    for c in range(len(out)):
        out[c] += weight * x[c]


# -- sparse vectors ----------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sparse_steps(rows: Rows, C: Float, before: tuple[Any, ...], block: tuple[Any, ...]) -> tuple[float, int]:
    """Learn the triplets of a block; sum of the losses and number of violating triplets."""
    indptr, indices, data, norms = rows
    _, _, earlier, _, earlier_G, earlier_moved, _ = before
    triplets, starts, _, V, G, moved, taus = block
    d = V.shape[1]
    columns, delta = np.empty(d, np.uint32), np.empty(d, np.float32)
    one, zero = np.float32(1.0), np.float32(0.0)
    losses, violating = 0.0, 0
    for b in range(len(starts) - 1):
        query = triplets[starts[b], 0]
        v, g = V[b], G[b]
        for a in range(len(earlier)):
            if earlier_moved[a]:
                both = inner(earlier[a], query, indptr, indices, data)
                if both != zero:
                    _add(v, both, earlier_G[a])
        for a in range(b):
            if moved[a]:
                both = inner(triplets[starts[a], 0], query, indptr, indices, data)
                if both != zero:
                    _add(v, both, G[a])
        g[:] = zero
        moved[b] = False
        norm = norms[query]
        for step in range(starts[b], starts[b + 1]):
            positive, negative = triplets[step, 1], triplets[step, 2]
            margin = zero
            for i in range(indptr[positive], indptr[positive + 1]):
                margin += v[indices[i]] * data[i]
            for i in range(indptr[negative], indptr[negative + 1]):
                margin -= v[indices[i]] * data[i]
            loss = one - margin
            if loss <= zero:
                continue
            losses += float(loss)
            violating += 1
            n = difference(positive, negative, indptr, indices, data, columns, delta)
            square = zero
            for j in range(n):
                square += delta[j] * delta[j]
            if norm * square == zero:
                continue
            tau = np.float32(min(C, loss / (norm * square)))
            moved[b] = True
            taus[step] = tau
            change = tau * norm
            for j in range(n):
                v[columns[j]] += change * delta[j]
                g[columns[j]] += tau * delta[j]
    return losses, violating


# Rows of W are read from memory, four at a time: as many requests wait at once, and sums are loaded a quarter as often.
@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _add_four(out: np.ndarray, x: tuple[Float, ...], rows: Arrays) -> None:
    (x0, x1, x2, x3), (w0, w1, w2, w3) = x, rows
    for c in range(len(out)):
        out[c] += (x0 * w0[c] + x1 * w1[c]) + (x2 * w2[c] + x3 * w3[c])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _add_to_four(rows: Arrays, x: tuple[Float, ...], g: np.ndarray) -> None:
    (x0, x1, x2, x3), (w0, w1, w2, w3) = x, rows
    for c in range(len(g)):
        w0[c] += x0 * g[c]
        w1[c] += x1 * g[c]
        w2[c] += x2 * g[c]
        w3[c] += x3 * g[c]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sparse_tile(
    rows: Rows, W: np.ndarray, left: Int, right: Int, before: tuple[Any, ...], following: tuple[Any, ...]
) -> None:
    """W <- W + Q' G of the block before, then V = Q W of the following one, in the columns from left to right."""
    indptr, indices, data, _ = rows
    _, _, old, _, G, moved, _ = before
    _, _, new, V, _, _, _ = following
    for a in range(len(old)):
        if not moved[a]:
            continue
        g, i, end = G[a, left:right], indptr[old[a]], indptr[old[a] + 1]
        while i + 3 < end:
            w0, w1 = W[indices[i], left:right], W[indices[i + 1], left:right]
            w2, w3 = W[indices[i + 2], left:right], W[indices[i + 3], left:right]
            _add_to_four((w0, w1, w2, w3), (data[i], data[i + 1], data[i + 2], data[i + 3]), g)
            i += 4
        while i < end:
            _add(W[indices[i], left:right], data[i], g)
            i += 1
    for b in range(len(new)):
        v, i, end = V[b, left:right], indptr[new[b]], indptr[new[b] + 1]
        v[:] = np.float32(0.0)
        while i + 3 < end:
            w0, w1 = W[indices[i], left:right], W[indices[i + 1], left:right]
            w2, w3 = W[indices[i + 2], left:right], W[indices[i + 3], left:right]
            _add_four(v, (data[i], data[i + 1], data[i + 2], data[i + 3]), (w0, w1, w2, w3))
            i += 4
        while i < end:
            _add(v, data[i], W[indices[i], left:right])
            i += 1


class _Sparse:
    """Images as rows of entries."""

    def __init__(self, rows: Rows, C: float, W: np.ndarray) -> None:
        self._rows, self._C, self._W = rows, C, W
        self.tile_columns = -(-len(W) // (16 * _SPARSE_TILES)) * 16  # whole lines of the cache

    def block(self, triplets: np.ndarray, starts: np.ndarray, V: np.ndarray, G: np.ndarray, taus: np.ndarray) -> Block:
        n = len(starts) - 1
        return Block(triplets, starts, triplets[starts[:-1], 0], V[:n], G[:n], np.zeros(n, bool), taus)

    def steps(self, before: Block | None, block: Block) -> tuple[float, int]:
        return _sparse_steps(self._rows, self._C, tuple(before or self._nothing()), tuple(block))

    def tile(self, columns: slice, before: Block | None, following: Block | None) -> None:
        blocks = tuple(before or self._nothing()), tuple(following or self._nothing())
        _sparse_tile(self._rows, self._W, columns.start, min(columns.stop, len(self._W)), *blocks)

    def _nothing(self) -> Block:
        none = np.zeros((0, len(self._W)), np.float32)
        return self.block(np.zeros((0, 3), np.int32), np.zeros(1, np.int64), none, none, np.zeros(0, np.float32))


# -- dense vectors -----------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _dense_steps(
    X: np.ndarray, norms: np.ndarray, C: Float, block: tuple[Any, ...], products: np.ndarray
) -> tuple[float, int]:
    """Learn the triplets of a block; `products` (B, B) are the queries' inner products."""
    triplets, starts, _, V, G, moved, taus = block
    one, zero = np.float32(1.0), np.float32(0.0)
    losses, violating = 0.0, 0
    for b in range(len(starts) - 1):
        query = triplets[starts[b], 0]
        v, g = V[b], G[b]
        for a in range(b):
            if moved[a]:
                _add(v, products[b, a], G[a])
        g[:] = zero
        moved[b] = False
        norm = norms[query]
        for step in range(starts[b], starts[b + 1]):
            positive, negative = X[triplets[step, 1]], X[triplets[step, 2]]
            margin, square = zero, zero
            # Nothing is stored in this loop. Else it is compiled twice, for vector units and without, and which of both
            # sums is taken depends on how near short arrays happen to lie to each other in memory.
            for c in range(len(v)):
                p = positive[c] - negative[c]
                margin += v[c] * p
                square += p * p
            loss = one - margin
            if loss <= zero:
                continue
            losses += float(loss)
            violating += 1
            if norm * square == zero:
                continue
            tau = np.float32(min(C, loss / (norm * square)))
            moved[b] = True
            taus[step] = tau
            change = tau * norm
            for c in range(len(v)):
                p = positive[c] - negative[c]
                v[c] += change * p
                g[c] += tau * p
    return losses, violating


class _Dense:
    """Images as rows of a dense array."""

    tile_columns = _DENSE_TILE

    def __init__(self, rows: Rows, C: float, W: np.ndarray) -> None:
        X = dense_rows(rows, len(W))
        assert X is not None
        self._X, self._norms, self._C, self._W = X, rows[3], C, W

    def block(self, triplets: np.ndarray, starts: np.ndarray, V: np.ndarray, G: np.ndarray, taus: np.ndarray) -> Block:
        n = len(starts) - 1
        return Block(triplets, starts, self._X[triplets[starts[:-1], 0]], V[:n], G[:n], np.zeros(n, bool), taus)

    def steps(self, before: Block | None, block: Block) -> tuple[float, int]:
        if before is not None:
            block.V[:] += (block.vectors @ before.vectors.T) @ before.G
        products = block.vectors @ block.vectors.T
        return _dense_steps(self._X, self._norms, self._C, tuple(block), products)

    def tile(self, columns: slice, before: Block | None, following: Block | None) -> None:
        W = self._W[:, columns]
        if before is not None:
            W += before.vectors.T @ before.G[:, columns]
        if following is not None:
            np.matmul(following.vectors, W, out=following.V[:, columns])
