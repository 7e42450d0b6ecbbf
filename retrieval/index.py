"""Exact search: every gallery image is scored, the best k are kept.

A similarity is an inner product of a query side and a gallery side. Visterm vectors are sparse on the
gallery side (some 45 of 10,000 entries) and, once a learner has multiplied them by W, dense on the query
side. So the kernel keeps a block of dense queries in cache, streams the gallery past it once, and offers
every score to one bounded heap per query: no array of n_queries x n_gallery scores ever exists.

Dense galleries are multiplied by BLAS, which takes a third of the time, and rounds a score differently in a
batch of one and of a hundred. So its products only choose candidates: somewhat more than k. These are scored
again in a fixed order, and they hold the best k if the last of them lies further behind the k-th than both
ways of rounding can be off, which is checked.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from visterm import sparse as sp
from visterm.compiled import Imported, njit

from . import plain
from .ranking import Ranking, best_first
from .stored import ROWS, StoredVectors, gallery_sides

LANES = 16  # float32 numbers per cache line, and per widest vector register
LINES = 2  # cache lines of queries that one pass over a sparse gallery serves; their sums stay in registers
QUERIES_PER_TRANSFORM = 256  # dense queries held at once: 10 MB at d = 10,000
QUERIES_PER_BLOCK = 64  # queries that one pass over a dense gallery serves; beyond that the block leaves the cache
ROWS_AT_ONCE = 64  # gallery rows scored before the best are picked: 16 KB of scores, in the first-level cache
ONE_BY_ONE = 2  # up to so many queries are faster alone than in a block so narrow
SPARE = 32  # candidates beyond k that BLAS chooses
MORE_CANDIDATES = 8  # times as many, where these may not hold the best
CANDIDATES_SHARE = 0.25  # of the gallery; where k asks for more of it, all rows are scored in a fixed order
BLOCK_BYTES = 4 << 20  # of scores that BLAS computes before the best are picked
WORK_FOR_THREADS = 10_000_000  # multiply-adds, some 7 ms, below which threads cost more than they gain

sum_row: Any = Imported("visterm.retrieval.intrinsics", "sum_row")


class SupportsSimilarity(Protocol):
    """The two sides of an inner product, which an index needs from a learner."""

    def transform(self, X: Any, y: Any = None, /) -> Any:
        """Gallery side: dense or CSR (n_gallery, d). Labels y are passed only if the index has them."""

    def transform_query(self, Q: Any) -> Any:
        """Query side: dense or CSR (n_queries, d)."""


# ----------------------------------------------------------------------------------------------------
# Kernels
#
# Every score is summed in the storage order of its gallery row, one float32 operation after the other (no
# fastmath), and the vector units work across queries. So a score does not depend on the queries beside it, on
# the blocks or on the threads, and equal gallery rows tie exactly.


@njit(cache=True, nogil=True)
def _score_sparse_one(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, first: int, query: np.ndarray, scores: np.ndarray
) -> None:
    """``scores[r, 0] = sum_p data[p] * query[indices[p]]`` over the entries p of row first + r."""
    for r in range(scores.shape[0]):
        total = np.float32(0)
        # Unsigned, as a signed index makes Numba test for Python's negative indices.
        for p in range(np.uint64(indptr[first + r]), np.uint64(indptr[first + r + 1])):
            total += data[p] * query[np.uint64(indices[p])]
        scores[r, 0] = total


@njit(cache=True, nogil=True)
def _score_sparse(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, first: int, queries: np.ndarray, scores: np.ndarray
) -> None:
    """``scores[r, q] = sum_p data[p] * queries[indices[p], q]`` over the entries p of row first + r."""
    for r in range(scores.shape[0]):
        start, stop = np.int64(indptr[first + r]), np.int64(indptr[first + r + 1])
        sum_row(indices, data, start, stop, queries, scores, r)


@njit(cache=True, nogil=True)
def _score_dense(X: np.ndarray, first: int, queries: np.ndarray, scores: np.ndarray) -> None:
    """``scores[r, q] = sum_j X[first + r, j] * queries[j, q]``."""
    n_queries = scores.shape[1]
    for r in range(scores.shape[0]):
        x, total = X[first + r], scores[r]
        for q in range(n_queries):
            total[q] = np.float32(0)
        j = 0
        while j + 3 < x.shape[0]:  # four entries a turn, for the same reason as above
            a, b, c, d = x[j], x[j + 1], x[j + 2], x[j + 3]
            row_a, row_b, row_c, row_d = queries[j], queries[j + 1], queries[j + 2], queries[j + 3]
            for q in range(n_queries):
                total[q] = (((total[q] + a * row_a[q]) + b * row_b[q]) + c * row_c[q]) + d * row_d[q]
            j += 4
        while j < x.shape[0]:
            a, row_a = x[j], queries[j]
            for q in range(n_queries):
                total[q] += a * row_a[q]
            j += 1


@njit(cache=True, nogil=True)
def _worse(score_a: float, index_a: int, score_b: float, index_b: int) -> bool:
    """Whether a ranks behind b: smaller score or, of equal scores, larger index."""
    return score_a < score_b or (score_a == score_b and index_a > index_b)


@njit(cache=True, nogil=True)
def _sift_down(scores: np.ndarray, indices: np.ndarray, hole: int) -> None:
    """Move the entry at ``hole`` down to its place. Every parent of the heap ranks behind its children."""
    score, index = scores[hole], indices[hole]
    while True:
        child = 2 * hole + 1
        if child >= scores.shape[0]:
            break
        if child + 1 < scores.shape[0] and _worse(scores[child + 1], indices[child + 1], scores[child], indices[child]):
            child += 1
        if not _worse(scores[child], indices[child], score, index):
            break
        scores[hole], indices[hole] = scores[child], indices[child]
        hole = child
    scores[hole], indices[hole] = score, index


@njit(cache=True, nogil=True)
def _keep_best(
    scores: np.ndarray,
    first: int,
    exclude: np.ndarray,
    n_kept: np.ndarray,
    bar: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> bool:
    """Keep the gallery rows first, first + 1, ... where they are among the best k of a query so far.

    ``scores`` is (n_rows, at least n_queries). The first k of a query are just stored; then they become a heap,
    and ``bar`` (n_queries,), until then -inf, holds the worst of them. Rows come in ascending order, so a score
    equal to the bar loses by its index. Returns False at a NaN score.
    """
    n_queries, k = top_scores.shape
    for r in range(scores.shape[0]):
        row = first + r
        over = 0  # of all queries at once, by vector units: most rows are among the best of none
        for q in range(n_queries):
            over += not scores[r, q] <= bar[q]
        if over == 0:
            continue
        for q in range(n_queries):
            score = scores[r, q]
            if score <= bar[q] or row == exclude[q]:
                continue
            if np.isnan(score):
                return False
            kept_scores, kept_indices = top_scores[q], top_indices[q]
            if n_kept[q] < k:
                kept_scores[n_kept[q]], kept_indices[n_kept[q]] = score, row
                n_kept[q] += 1
                if n_kept[q] == k:
                    for hole in range(k // 2 - 1, -1, -1):
                        _sift_down(kept_scores, kept_indices, hole)
                    bar[q] = kept_scores[0]
            else:
                kept_scores[0], kept_indices[0] = score, row
                _sift_down(kept_scores, kept_indices, 0)
                bar[q] = kept_scores[0]
    return True


@njit(cache=True, nogil=True, plain=plain.search_sparse)
def _search_sparse(
    gallery: tuple[np.ndarray, np.ndarray, np.ndarray],
    first: int,
    last: int,
    queries: np.ndarray,
    exclude: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> bool:
    """Find the best of rows [first, last) of a CSR gallery for queries (d, 1) or (d, LINES * LANES).

    Fills top_scores and top_indices, (n_queries, k), in no order; columns beyond n_queries are filling. Returns
    False at a NaN score.
    """
    n_queries = len(top_scores)
    query = queries.reshape(-1)  # of one alone; contiguous, which queries[:, 0] is not to the compiler
    buffer = np.empty((ROWS_AT_ONCE, queries.shape[1]), np.float32)
    n_kept = np.zeros(n_queries, np.int64)
    bar = np.full(n_queries, -np.inf, np.float32)
    for start in range(first, last, ROWS_AT_ONCE):
        scores = buffer[: min(ROWS_AT_ONCE, last - start)]
        if queries.shape[1] == 1:
            _score_sparse_one(*gallery, start, query, scores)
        else:
            _score_sparse(*gallery, start, queries, scores)
        if not _keep_best(scores, start, exclude, n_kept, bar, top_scores, top_indices):
            return False
    return True


@njit(cache=True, nogil=True, plain=plain.search_dense)
def _search_dense(
    X: np.ndarray,
    first: int,
    last: int,
    queries: np.ndarray,
    exclude: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> bool:
    """Find the best of rows [first, last) of a dense gallery; the rest as in ``_search_sparse``."""
    n_queries = queries.shape[1]
    buffer = np.empty((ROWS_AT_ONCE, n_queries), np.float32)
    n_kept = np.zeros(n_queries, np.int64)
    bar = np.full(n_queries, -np.inf, np.float32)
    for start in range(first, last, ROWS_AT_ONCE):
        scores = buffer[: min(ROWS_AT_ONCE, last - start)]
        _score_dense(X, start, queries, scores)
        if not _keep_best(scores, start, exclude, n_kept, bar, top_scores, top_indices):
            return False
    return True


@njit(cache=True, nogil=True, plain=plain.keep_candidates)
def keep_candidates(
    block: np.ndarray,
    first: int,
    exclude: np.ndarray,
    n_kept: np.ndarray,
    bar: np.ndarray,
    top_scores: np.ndarray,
    top_indices: np.ndarray,
) -> None:
    """As ``_keep_best``, of scores (n_queries, n_rows). All are finite."""
    n_queries, k = top_scores.shape
    for q in range(n_queries):
        scores, kept_scores, kept_indices = block[q], top_scores[q], top_indices[q]
        for start in range(0, len(scores), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(scores))
            least, over = bar[q], 0
            for r in range(start, stop):  # by vector units: most rows are among the best of none
                over += scores[r] > least
            if over == 0:
                continue
            for r in range(start, stop):
                score, row = scores[r], first + r
                if score <= bar[q] or row == exclude[q]:
                    continue
                hole = n_kept[q] if n_kept[q] < k else 0
                kept_scores[hole], kept_indices[hole] = score, row
                if n_kept[q] < k:
                    n_kept[q] += 1
                    if n_kept[q] < k:
                        continue
                    for parent in range(k // 2 - 1, 0, -1):
                        _sift_down(kept_scores, kept_indices, parent)
                _sift_down(kept_scores, kept_indices, 0)
                bar[q] = kept_scores[0]


@njit(cache=True, nogil=True, plain=plain.score_rows)
def score_rows(X: np.ndarray, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Scores (n,) of some rows of a dense gallery for a query (d,), the same bits as of ``_score_dense``."""
    scores = np.empty(len(rows), np.float32)
    last = max(len(rows) - 1, 0)
    for i in range(0, len(rows), 4):  # four rows at once, as each sum waits for itself; the last may be one row again
        a, b, c, d = X[rows[i]], X[rows[min(i + 1, last)]], X[rows[min(i + 2, last)]], X[rows[min(i + 3, last)]]
        total_a = total_b = total_c = total_d = np.float32(0)
        for j in range(len(query)):
            total_a += a[j] * query[j]
            total_b += b[j] * query[j]
            total_c += c[j] * query[j]
            total_d += d[j] * query[j]
        scores[min(i + 3, last)], scores[min(i + 2, last)] = total_d, total_c
        scores[min(i + 1, last)], scores[i] = total_b, total_a
    return scores


@njit(cache=True, nogil=True, plain=plain.score_rows_sparse)
def score_rows_sparse(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray, query: np.ndarray
) -> np.ndarray:
    """Scores (n, 1) of some rows of a CSR gallery."""
    scores = np.empty((len(rows), 1), np.float32)
    for i in range(len(rows)):
        _score_sparse_one(indptr, indices, data, rows[i], query, scores[i : i + 1])
    return scores


@njit(cache=True, nogil=True, plain=plain.score_pairs)
def _score_pairs(X: np.ndarray, rows: np.ndarray, queries: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Scores (n,) of ``X[rows[i]]`` for ``queries[of[i]]``, the same bits as of ``_score_dense``."""
    scores = np.zeros(len(rows), np.float32)
    for i in range(len(rows)):
        x, query = X[rows[i]], queries[of[i]]
        for j in range(len(query)):
            scores[i] += x[j] * query[j]
    return scores


@njit(cache=True, nogil=True, plain=plain.score_pairs_sparse)
def _score_pairs_sparse(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray, queries: np.ndarray, of: np.ndarray
) -> np.ndarray:
    """`_score_pairs` of a CSR gallery: (n, 1)."""
    scores = np.empty((len(rows), 1), np.float32)
    for i in range(len(rows)):
        _score_sparse_one(indptr, indices, data, rows[i], queries[of[i]], scores[i : i + 1])
    return scores


def score_chosen(gallery: Any, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """`score_rows` of a dense gallery, which may be a stored one."""
    if isinstance(gallery, StoredVectors):
        return score_rows(gallery[rows], np.arange(len(rows)), query)
    return score_rows(gallery, rows, query)


def in_threads(function: Callable[..., Any], tasks: Iterable[Sequence[Any]], n_threads: int) -> list[Any]:
    """``function(*task)`` for each task, in order; not by joblib, which takes 10 ms to begin."""
    if n_threads == 1:
        return [function(*task) for task in tasks]
    with ThreadPoolExecutor(n_threads) as threads:
        return list(threads.map(lambda task: function(*task), tasks))


# ----------------------------------------------------------------------------------------------------
# Public


class ExactIndex:
    """Exact nearest neighbours under a learner's similarity.

    Parameters
    ----------
    learner : object with ``transform(X)`` and ``transform_query(Q)``
        The similarity of query q and gallery image x is ``transform_query(q) @ transform(x)``.
    X : CSR matrix, ndarray or StoredVectors, shape (n_gallery, n_features)
        The gallery. CSR stays CSR; float32 data is not copied, so memory-mapped arrays stay on disk, as do stored ones.
    y : array of shape (n_gallery,), optional
        Labels of the gallery, handed to ``learner.transform(X, y)``; for learners that read them (MuSL).
    n_jobs : int or None, default=None
        Threads of a search, as in joblib: None is one, -1 all cores. Results do not depend on it.

    Raises
    ------
    ValueError
        If the gallery is empty, is not two-dimensional, or holds NaN or infinity.

    Notes
    -----
    Each score is a float32 sum in the storage order of the gallery row, whatever the blocks and threads:
    equal rows tie exactly, and ties go to the smaller index.

    Examples
    --------
    >>> import numpy as np
    >>> class InnerProduct:
    ...     def transform(self, X):
    ...         return X
    ...     def transform_query(self, Q):
    ...         return Q
    >>> gallery = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> ranking = ExactIndex(InnerProduct(), gallery).search(np.array([[2.0, 1.0]]), k=2)
    >>> ranking.indices, ranking.scores
    (array([[2, 0]], dtype=int32), array([[3., 2.]], dtype=float32))
    """

    scores_all = True  # images of the gallery, for each query

    def __init__(self, learner: SupportsSimilarity, X: Any, y: Any = None, *, n_jobs: int | None = None) -> None:
        self.learner = learner
        self.n_jobs = n_jobs
        self.gallery_ = _check_gallery(gallery_sides(learner, X, y))
        self._longest: float | None = None  # row of the gallery, computed when needed

    @property
    def n_gallery(self) -> int:
        """Number of gallery images."""
        return self.gallery_.shape[0]

    def search(self, Q: Any, k: int | None = None, *, exclude: Any = None) -> Ranking:
        """Rank the gallery for each query.

        Parameters
        ----------
        Q : CSR matrix, ndarray or StoredVectors, shape (n_queries, n_features)
            Queries, before the learner's ``transform_query``.
        k : int or None, default=None
            Length of the lists. None ranks everything that some query may rank: all of the gallery, or one
            image less where every query excludes one.
        exclude : array of int, shape (n_queries,), optional
            A gallery row to skip for each query, -1 for none: removes a query that is itself in the gallery, by
            identity and not by its score.

        Returns
        -------
        Ranking
            Exactly k columns. Where exclusion leaves a query fewer than k images, its row ends with index -1
            and score -inf.

        Raises
        ------
        ValueError
            If k is not in 1..n_gallery, if a query is not finite or has another number of features than the
            gallery, if ``exclude`` has the wrong shape or names no gallery row, or if a score is not finite.
        """
        if not sp.issparse(Q) and not isinstance(Q, StoredVectors):
            Q = np.asarray(Q)
        if Q.ndim != 2:
            raise ValueError(f"queries must have the shape (n_queries, n_features), got {Q.shape}")
        n_queries = Q.shape[0]
        exclude = _check_exclude(exclude, n_queries, self.n_gallery)
        k = self._check_k(k, exclude)
        top_scores = np.full((n_queries, k), -np.inf, np.float32)
        top_indices = np.full((n_queries, k), -1, np.int32)
        for start in range(0, n_queries, QUERIES_PER_TRANSFORM):
            rows = slice(start, start + QUERIES_PER_TRANSFORM)
            queries = self.queries(Q[rows])
            self._search_block(queries, exclude[rows], top_scores[rows], top_indices[rows])
        # Every finite score ranks before the filling (-inf, -1), so filling is left only where rows ran out.
        n_candidates = self.n_gallery - (exclude >= 0)
        if ((top_indices >= 0).sum(axis=1) < np.minimum(n_candidates, k)).any():
            raise ValueError("some similarities overflow float32: scale the vectors or the learner's matrix down")
        return Ranking(top_indices, top_scores)

    def _search_block(
        self, queries: np.ndarray, exclude: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray
    ) -> None:
        """Search dense queries (n_queries, d) with all threads; fills top_*, (n_queries, k)."""
        n_queries, k = top_scores.shape
        gallery = self.gallery_
        work = n_queries * (gallery.nnz if sp.issparse(gallery) else gallery.size)
        n_threads = effective_n_jobs(self.n_jobs) if work > WORK_FOR_THREADS else 1
        if not sp.issparse(gallery) and k + SPARE <= CANDIDATES_SHARE * self.n_gallery:
            reach = self._rounding(queries)
            if np.isfinite(reach).all():
                self._search_candidates(queries, exclude, reach, n_threads, k + SPARE, top_scores, top_indices)
                return
        if n_queries <= ONE_BY_ONE:
            n_blocks = n_queries
        else:
            n_blocks = -(-n_queries // (LINES * LANES if sp.issparse(gallery) else QUERIES_PER_BLOCK))
        n_parts = n_threads if n_blocks < n_threads else 1  # of the gallery, where there are fewer blocks than threads
        if isinstance(gallery, StoredVectors):
            n_parts = -(-self.n_gallery // ROWS)
        bounds = np.linspace(0, self.n_gallery, n_parts + 1).astype(np.int64)

        def search_part(columns: np.ndarray, skip: np.ndarray, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
            size = min(k, last - first)
            scores = np.full((len(skip), size), -np.inf, np.float32)
            indices = np.full((len(skip), size), -1, np.int32)
            if sp.issparse(gallery):
                arrays = gallery.indptr, gallery.indices, gallery.data
                ok = _search_sparse(arrays, first, last, columns, skip, scores, indices)
            elif isinstance(gallery, StoredVectors):
                shifted = np.where(skip < first, -1, skip - first)
                ok = _search_dense(gallery[first:last], 0, last - first, columns, shifted, scores, indices)
                indices[indices >= 0] += first
            else:
                ok = _search_dense(gallery, first, last, columns, skip, scores, indices)
            if not ok:
                raise ValueError("a similarity is not a number (NaN): check the vectors and the learner's matrix")
            return best_first(scores, indices)

        blocks = np.array_split(np.arange(n_queries), n_blocks)
        tasks = []
        for block in blocks:
            columns = _side_by_side(queries[block], pad=sp.issparse(gallery) and len(block) > 1)
            for first, last in pairwise(bounds):
                tasks.append((columns, exclude[block], first, last))
        partial_results = in_threads(search_part, tasks, n_threads)
        for i, block in enumerate(blocks):
            parts = partial_results[i * n_parts : (i + 1) * n_parts]
            scores, indices = parts[0]
            if n_parts > 1:
                scores, indices = best_first(*(np.concatenate(side, axis=1) for side in zip(*parts, strict=True)))
            top_scores[block], top_indices[block] = scores[:, :k], indices[:, :k]

    def _rounding(self, queries: np.ndarray) -> np.ndarray:
        """Bound the difference of two float32 sums of a score in any orders: (n_queries,); infinite on overflow.

        Each is off by d u / (1 - d u) |q| |x| at most, u = 2^-24 (Higham, Accuracy and Stability of Numerical
        Algorithms, section 3.1, and the inequality of Cauchy and Schwarz).
        """
        if self._longest is None:
            self._longest = max(_length(self.gallery_[i : i + 1024]).max() for i in range(0, self.n_gallery, 1024))
        products = _length(queries) * self._longest
        share = (self.gallery_.shape[1] + 1) * 2.0**-24
        reach = 2 * share / (1 - share) * products * (1 + 1e-6) if share < 1 else np.full(len(queries), np.inf)
        return np.where(products < np.finfo(np.float32).max, reach, np.inf)

    def _search_candidates(
        self,
        queries: np.ndarray,
        exclude: np.ndarray,
        reach: np.ndarray,
        n_threads: int,
        size: int,
        top_scores: np.ndarray,
        top_indices: np.ndarray,
    ) -> None:
        """Search a dense gallery: BLAS chooses `size` candidates, which are scored in a fixed order.

        Each thread takes a part of many queries, or else of the gallery. Its BLAS has one thread: two would wait for
        each other by turning, also while one scores the candidates.
        """
        (n_queries, k), many = top_scores.shape, len(queries) >= n_threads * QUERIES_PER_BLOCK
        ends = pairwise(np.linspace(0, n_queries if many else self.n_gallery, n_threads + 1).astype(int))
        parts = [(slice(*of), 0, self.n_gallery) if many else (slice(n_queries), *of) for of in ends]

        def choose(part: slice, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
            return self._best_by_blas(queries[part], exclude[part], size, first, last)

        def score(part: slice, *_: int) -> None:
            pairs = zip(rows[part], queries[part], strict=True)
            best, indices = best_first(np.stack([score_chosen(self.gallery_, *pair) for pair in pairs]), rows[part])
            top_scores[part], top_indices[part] = best[:, :k], indices[:, :k]

        with blas().limit(limits=1, user_api="blas"):
            of_parts = zip(*in_threads(choose, parts, n_threads), strict=True)
            kept, rows = (np.concatenate(side, axis=int(not many)) for side in of_parts)
            if not many:
                kept, rows = (best[:, :size] for best in best_first(kept, rows))
            in_threads(score, parts if many else parts[:1], n_threads if many else 1)
        # The k-th best has at least the k-th score of these less the reach; all others, the last plus it at most.
        unsure = np.flatnonzero(kept[:, -1] >= kept[:, k - 1] - 2 * reach)  # many near ties
        more = size * MORE_CANDIDATES
        if len(unsure) and more <= CANDIDATES_SHARE * self.n_gallery:
            some, found = (queries[unsure], exclude[unsure], reach[unsure]), (top_scores[unsure], top_indices[unsure])
            self._search_candidates(*some, n_threads, more, *found)
            top_scores[unsure], top_indices[unsure] = found
            return
        for q in unsure:
            scores = self.gallery_ @ queries[q]
            scores[exclude[q]] = -np.inf if exclude[q] >= 0 else scores[exclude[q]]
            least = np.partition(scores, -k)[-k] - 2 * reach[q]
            chosen = np.flatnonzero((scores >= least) & (scores > -np.inf)).astype(np.int32)
            best, indices = best_first(score_chosen(self.gallery_, chosen, queries[q])[None], chosen[None])
            top_scores[q], top_indices[q] = best[0, :k], indices[0, :k]

    def _best_by_blas(
        self, queries: np.ndarray, exclude: np.ndarray, size: int, first: int, last: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Scores by BLAS and rows of the best of a part of the gallery, best first: (n_queries, size)."""
        kept = np.full((len(queries), size), -np.inf, np.float32)
        rows = np.full(kept.shape, -1, np.int32)
        n_kept, bar = np.zeros(len(queries), np.int64), np.full(len(queries), -np.inf, np.float32)
        step = max(ROWS_AT_ONCE, BLOCK_BYTES // (4 * len(queries)))
        if isinstance(self.gallery_, StoredVectors):
            step = min(step, ROWS)
        for start in range(first, last, step):
            block = queries @ self.gallery_[start : min(start + step, last)].T
            keep_candidates(block, start, exclude, n_kept, bar, kept, rows)
        return best_first(kept, rows)

    def queries(self, Q: Any) -> np.ndarray:
        """Query sides of vectors: dense float32 (n_queries, d)."""
        return self._check_queries(self.learner.transform_query(Q))

    def score(self, side: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Scores (n,) of some rows for one query side (d,), the same bits as `search` gives."""
        if sp.issparse(self.gallery_):
            arrays = self.gallery_.indptr, self.gallery_.indices, self.gallery_.data
            return score_rows_sparse(*arrays, rows, side)[:, 0]
        return score_chosen(self.gallery_, rows, side)

    def score_pairs(self, sides: np.ndarray, rows: np.ndarray, of: np.ndarray) -> np.ndarray:
        """Scores (n,) of the row ``rows[i]`` for the query side ``sides[of[i]]``, the same bits as `score` gives."""
        gallery = self.gallery_
        if sp.issparse(gallery):
            return _score_pairs_sparse(gallery.indptr, gallery.indices, gallery.data, rows, sides, of)[:, 0]
        if isinstance(gallery, StoredVectors):
            photos, rows = np.unique(rows, return_inverse=True)
            gallery = gallery[photos]
        return _score_pairs(gallery, rows, sides, of)

    def _check_k(self, k: int | None, exclude: np.ndarray) -> int:
        if k is None:
            # One less for all queries only if each of them excludes something.
            return self.n_gallery - int(len(exclude) > 0 and (exclude >= 0).all())
        if not isinstance(k, Integral) or not 1 <= k <= self.n_gallery:
            raise ValueError(f"k must be between 1 and the {self.n_gallery} images of the gallery, got {k!r}")
        return int(k)

    def _check_queries(self, queries: Any) -> np.ndarray:
        """Dense float32 (n_queries, d), finite, as wide as the gallery."""
        queries = queries.toarray() if sp.issparse(queries) else np.asarray(queries)
        if queries.ndim != 2 or queries.shape[1] != self.gallery_.shape[1]:
            raise ValueError(
                f"queries become vectors of {queries.shape[-1]} columns, the gallery has "
                f"{self.gallery_.shape[1]} columns: both must come from the same features and learner"
            )
        queries = queries.astype(np.float32, copy=False)
        if not np.isfinite(queries).all():
            raise ValueError("the queries hold NaN or infinity")
        return queries


@functools.cache
def blas() -> Any:
    """The controller of BLAS, made once: it searches all libraries of the process."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def effective_n_jobs(n_jobs: int | None) -> int:
    """Number of threads that `n_jobs` stands for, as in joblib."""
    if n_jobs == 1:
        return 1
    import joblib  # a tenth of a second

    return joblib.effective_n_jobs(n_jobs)


def _length(X: np.ndarray) -> np.ndarray:
    """Euclidean length of each row, float64 (n,)."""
    return np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def _side_by_side(queries: np.ndarray, pad: bool) -> np.ndarray:
    """Return (d, n_queries), or padded with zeros (d, LINES * LANES), aligned to cache lines."""
    if not pad:
        return np.ascontiguousarray(queries.T)
    n_queries, d = queries.shape
    space = np.zeros(d * LINES * LANES + LANES, np.float32)
    start = -space.ctypes.data // space.itemsize % LANES
    columns = space[start : start + d * LINES * LANES].reshape(d, LINES * LANES)
    columns[:, :n_queries] = queries.T
    return columns


def _check_gallery(X: Any) -> Any:
    """CSR, C-ordered ndarray or stored vectors, float32, finite, not empty."""
    if sp.issparse(X):
        X = sp.csr_matrix(X, dtype=np.float32)  # no copy if it fits already
        # The kernel trusts these indices: a damaged file must not become a read outside the arrays.
        X.check_format(full_check=True)
        values = X.data
    elif isinstance(X, StoredVectors):  # checked when they were written
        values = X[:1]
    else:
        X = values = np.ascontiguousarray(X, dtype=np.float32)
        if X.ndim != 2:
            raise ValueError(f"a gallery must have the shape (n_gallery, n_features), got {X.shape}")
    if X.shape[0] == 0:
        raise ValueError("the gallery is empty")
    # Finite float32 numbers cannot overflow a float64 sum, so the sum suffices, without an array of booleans.
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(values.sum(dtype=np.float64))
    if not finite:
        raise ValueError("the gallery holds NaN or infinity")
    return X


def _check_exclude(exclude: Any, n_queries: int, n_gallery: int) -> np.ndarray:
    """int64 (n_queries,), -1 for none."""
    if exclude is None:
        return np.full(n_queries, -1, np.int64)
    exclude = np.asarray(exclude)
    if exclude.shape != (n_queries,) or exclude.dtype.kind not in "iu":
        raise ValueError(f"exclude needs one integer for each of the {n_queries} queries (-1 for none)")
    exclude = exclude.astype(np.int64)
    if n_queries and (exclude.min() < -1 or exclude.max() >= n_gallery):
        raise ValueError(f"exclude must name rows of the gallery, 0 to {n_gallery - 1}, or be -1 for none")
    return exclude
