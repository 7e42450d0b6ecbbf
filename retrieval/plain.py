"""Kernels of a search in NumPy, for small work: see `compiled`. Their names and arguments are those of the kernels.

Every sum is taken in the order of the kernel, one float32 operation after the other: `np.add.accumulate` and
`np.add.at` do so, `sum` does not.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .ranking import best_first

_MOST = 4_000_000  # multiply-adds; a kernel is then loaded in the time that it saves


def _summed(products: np.ndarray) -> np.ndarray:
    """Sum of each row, in order; like a sum that begins at 0, never -0."""
    return np.add.accumulate(products, axis=1)[:, -1] + np.float32(0)


def _sparse_scores(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, query: np.ndarray) -> np.ndarray:
    scores = np.zeros(len(indptr) - 1, np.float32)
    part = slice(indptr[0], indptr[-1])
    np.add.at(scores, np.repeat(np.arange(len(scores)), np.diff(indptr)), data[part] * query[indices[part]])
    return scores


def _keep(scores: np.ndarray, rows: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray) -> int:
    """Write the best of some scores to the first places, the last of them first; returns their number."""
    ranked, indices = best_first(scores[None], rows[None].astype(np.int32))
    n = min(len(scores), len(top_scores))
    top_scores[:n], top_indices[:n] = ranked[0, :n][::-1], indices[0, :n][::-1]
    return n


def search_sparse(
    gallery: Any,
    first: int,
    last: int,
    queries: np.ndarray,
    exclude: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> Any:
    """Find the best rows of a CSR gallery."""
    indptr, indices, data = gallery
    if len(top_scores) * int(indptr[last] - indptr[first]) > _MOST:
        return NotImplemented
    arrays = indptr[first : last + 1], indices, data
    scores = (_sparse_scores(*arrays, queries[:, q]) for q in range(len(top_scores)))
    return _keep_best(scores, first, last, exclude, top_scores, top_indices)


def search_dense(
    X: np.ndarray,
    first: int,
    last: int,
    queries: np.ndarray,
    exclude: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> Any:
    """Find the best rows of a dense gallery."""
    if queries.size * (last - first) > _MOST:
        return NotImplemented
    scores = (_summed(X[first:last] * queries[:, q]) for q in range(queries.shape[1]))
    return _keep_best(scores, first, last, exclude, top_scores, top_indices)


def _keep_best(
    scores_of: Any, first: int, last: int, exclude: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray
) -> bool:
    rows = np.arange(first, last)
    for q, scores in enumerate(scores_of):
        candidate = (rows != exclude[q]) & (scores != -np.inf)
        if np.isnan(scores[candidate]).any():
            return False
        _keep(scores[candidate], rows[candidate], top_scores[q], top_indices[q])
    return True


def keep_candidates(
    block: np.ndarray,
    first: int,
    exclude: np.ndarray,
    n_kept: np.ndarray,
    bar: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> Any:
    """Keep the best of a block of scores."""
    if block.size > _MOST:
        return NotImplemented
    for q, scores in enumerate(block):
        rows = first + np.flatnonzero((scores > bar[q]) & (np.arange(first, first + len(scores)) != exclude[q]))
        scores = np.concatenate([top_scores[q, : n_kept[q]], scores[rows - first]])
        rows = np.concatenate([top_indices[q, : n_kept[q]], rows])
        n_kept[q] = _keep(scores, rows, top_scores[q], top_indices[q])  # the last first: a heap, as kernels keep it
        if n_kept[q] == len(top_scores[q]):
            bar[q] = top_scores[q, 0]
    return None


def score_rows(X: np.ndarray, rows: np.ndarray, query: np.ndarray) -> Any:
    """Score rows of a dense gallery."""
    if len(rows) * len(query) > _MOST or not len(rows):
        return NotImplemented
    return _summed(X[rows] * query)


def score_pairs(X: np.ndarray, rows: np.ndarray, queries: np.ndarray, of: np.ndarray) -> Any:
    """Score rows of a dense gallery, each for a query."""
    if len(rows) * queries.shape[1] > _MOST or not len(rows):
        return NotImplemented
    return _summed(X[rows] * queries[of])


def score_rows_sparse(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray, query: np.ndarray
) -> Any:
    """Score rows of a CSR gallery."""
    return score_pairs_sparse(indptr, indices, data, rows, query[None], np.zeros(len(rows), int))


def score_pairs_sparse(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray, queries: np.ndarray, of: np.ndarray
) -> Any:
    """Score rows of a CSR gallery, each for a query."""
    if len(rows) > 1000:
        return NotImplemented
    scores = [_sparse_scores(indptr[row : row + 2], indices, data, queries[q]) for row, q in zip(rows, of, strict=True)]
    return np.concatenate(scores)[:, None] if scores else np.empty((0, 1), np.float32)


def widen(halves: np.ndarray, widened: np.ndarray, places: np.ndarray, out: np.ndarray) -> Any:
    """Widen rows of float16."""
    out[places] = widened[halves]
    return None


def link(near: np.ndarray, k: int) -> Any:
    """Say which neighbours are mutual."""
    width = min(k, near.shape[1])
    if near.shape[0] * width * width > _MOST:
        return NotImplemented
    near = near[:, :width]
    places = np.arange(width)
    links = np.zeros(near.shape, np.uint8)
    for j in range(width):  # of the j-th neighbour, which photos it lists
        n = near[:, j]
        listed = near[n] == np.arange(len(near))[:, None]
        first = listed.argmax(axis=1)
        mutual = (n >= 0) & listed.any(axis=1)
        links[:, j] = np.where(mutual, np.where(np.maximum(first, places[j]) < k // 2, 2, 1), 0)
    return links


def keep_largest(
    n_kept: int, columns: np.ndarray, weights: np.ndarray, entries: np.ndarray, shares: np.ndarray
) -> None:
    """Write the largest of some weights as one v."""
    kept = columns[np.argsort(-weights[columns], kind="stable")[:n_kept]]
    entries[:] = -1
    entries[: len(kept)], shares[: len(kept)] = kept, weights[kept] / np.add.accumulate(weights[kept])[-1:]
    weights[columns] = 0


def averaged(
    n_times: int,
    rows: np.ndarray,
    scores: np.ndarray,
    near: np.ndarray,
    links: np.ndarray,
    own: int,
    values: np.ndarray,
) -> Any:
    """Average the scores of photos with those of their reciprocal neighbours."""
    others = near[rows, : links.shape[1]]
    counted = (links[rows] > 0) & (others != own)
    for _ in range(n_times):
        values[rows] = scores
        every = np.column_stack([scores, np.where(counted, values[others], np.float32(0))])
        sums = np.add.accumulate(every, axis=1, dtype=float)[:, -1]
        scores = (sums / (1 + np.count_nonzero(counted, axis=1))).astype(np.float32)
    values[rows] = 0
    return scores


def encode(
    rule: tuple[Any, ...], near: Any, links: Any, rows: np.ndarray, entries: Any, shares: Any, scratch: Any, own: int
) -> Any:
    """Make v of the photos nearest to a query; each R is made once."""
    scales, shared, keep = rule
    if len(rows) > scales[-1]:
        return NotImplemented
    stamp, weights, _ = scratch

    @functools.cache
    def group(x: int, s: int) -> np.ndarray:
        half = links[s][:, : scales[s] // 2]
        first = np.append(np.int32(x), near[x, : links[s].shape[1]][links[s][x] > 0])
        stamp[first] = 1
        listed, mutual = near[first, : half.shape[1]], half[first] == 2
        inside = 1 + np.count_nonzero(mutual & (stamp[listed] == 1), axis=1)
        brings = inside > shared * (1 + np.count_nonzero(mutual, axis=1))
        stamp[first] = 0
        members = np.concatenate([first, listed[brings][mutual[brings]]])
        return np.array([member for member in dict.fromkeys(members.tolist()) if member != own], np.int32)

    for i, row in enumerate(rows.tolist()):
        nearest = [row, *near[row].tolist()]
        groups = [(group(x, s), k // 3) for s, k in enumerate(scales) for x in nearest[: k // 3] if x >= 0]
        parts = [np.full(len(R), 1.0 / n_groups / max(len(R), 1), np.float32) for R, n_groups in groups]
        columns = np.concatenate([R for R, _ in groups])
        np.add.at(weights, columns, np.concatenate(parts))
        keep(np.array(list(dict.fromkeys(columns.tolist())), np.int32), weights, entries[i], shares[i])
    return None
