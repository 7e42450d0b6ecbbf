"""Search of large galleries in two stages: candidates by a part of the score, then their exact scores.

A score is s(q, x) = h(q)' t(x) = sum_j h_j t_j, of the query side h and the gallery side t. Both stages stand on these
two sides alone, so they serve every learner, and the identity that W started from is in h like the rest of W.

**Sparse galleries** (visterms): an inverted file. For each visterm j it lists the n_j images x that have it, and their
t_j. Leaving j out of a query's sums costs, with m_j the mean of t_j over all images,

    h_j^2 sum_x (t_j - m_j)^2

in squared differences between scores; taking it costs n_j additions. The `COLUMNS` visterms that save most for each
addition are summed; candidates are the images with the largest sums. Once W has been learned a query side has an entry
for every visterm, but some hundred of them decide which images rank first.

**Dense galleries** (WSABIE's embedding, label scores, vectors of a network): a graph of neighbours, see `graph.py`.

For sparse galleries, FAISS would index a low-rank embedding of the score, which loses the similarity of two visterm
vectors beyond their category: the identity in W has full rank
(``python -m benchmarks two_stage``).
"""

import copy
import os
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from visterm.compiled import njit

from . import index as exact
from .graph import Graph
from .index import ExactIndex, SupportsSimilarity, _sift_down, effective_n_jobs

COLUMNS = 128  # visterms summed for a query; fewer find as much at d = 10,000, but not at d = 1,000
MANY_IMAGES = 100_000  # below, a query is done sooner than a thread is started
CANDIDATES_PER_RESULT = 10  # at least so many for each of the k results


# ----------------------------------------------------------------------------------------------------
# Kernels


@njit(cache=True, nogil=True)
def _sum_postings(
    indptr: np.ndarray, rows: np.ndarray, values: np.ndarray, query: np.ndarray, columns: np.ndarray, sums: np.ndarray
) -> None:
    """``sums[x] = sum_j query[j] * t_j(x)`` over j in ``columns``, from a CSC gallery."""
    sums[:] = 0
    for j in columns:
        weight = query[j]
        for p in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            sums[np.uint64(rows[p])] += weight * values[p]


@njit(cache=True, nogil=True)
def _largest(sums: np.ndarray, n: int) -> np.ndarray:
    """Rows of the n largest of ``sums`` (n_gallery,), ascending; of equal ones those that come first."""
    top, rows = sums[:n].copy(), np.arange(n, dtype=np.int32)
    for hole in range(n // 2 - 1, -1, -1):
        _sift_down(top, rows, hole)
    for start in range(n, len(sums), exact.ROWS_AT_ONCE):
        stop = min(start + exact.ROWS_AT_ONCE, len(sums))
        over = 0  # of all rows at once, by vector units: most hold none of the largest
        for row in range(start, stop):
            over += sums[row] > top[0]
        if over == 0:
            continue
        for row in range(start, stop):
            if sums[row] > top[0]:
                top[0], rows[0] = sums[row], row
                _sift_down(top, rows, 0)
    rows.sort()
    return rows


# ----------------------------------------------------------------------------------------------------
# First stages


class _Postings:
    """Inverted file of a CSR gallery; candidates are the images with the largest sums over the strongest visterms."""

    n_candidates = 1_000  # by default

    def __init__(self, gallery: Any) -> None:
        columns = gallery.tocsc()
        self.n_gallery = gallery.shape[0]
        self.arrays = columns.indptr, columns.indices, columns.data
        data = gallery.data.astype(np.float64)
        sums, squares = (np.bincount(gallery.indices, of, minlength=gallery.shape[1]) for of in (data, data**2))
        spread = np.maximum(squares - sums**2 / self.n_gallery, 0)  # sum_x (t_j - m_j)^2
        self.strengths = np.sqrt(spread / np.maximum(np.diff(columns.indptr), 1)).astype(np.float32)

    def choose(self, query: np.ndarray, n: int) -> np.ndarray:
        """Rows of the n images that may score best, ascending."""
        strengths = np.abs(query) * self.strengths
        columns = np.argsort(-strengths)[: min(COLUMNS, np.count_nonzero(strengths))]
        sums = np.empty(self.n_gallery, np.float32)
        _sum_postings(*self.arrays, query, columns, sums)
        return _largest(sums, n)


# ----------------------------------------------------------------------------------------------------
# Public


class TwoStageIndex(ExactIndex):
    """Nearest neighbours of a large gallery, nearly always those of `ExactIndex`, without scoring every image.

    Scores are exact, and ties go to the smaller index, as in `ExactIndex`. Images that the first stage does not choose
    are missed: `recall` measures them. With at most `n_candidates` images in the gallery none is missed.

    Parameters
    ----------
    learner : object with ``transform(X)`` and ``transform_query(Q)``
        As in `ExactIndex`.
    X : CSR matrix, ndarray or StoredVectors, shape (n_gallery, n_features)
        The gallery. A transposed copy of a sparse gallery side is kept beside it.
    y : array of shape (n_gallery,), optional
        Labels, for learners that read them.
    ids : int array of shape (n_gallery,), optional
        A different number for each image, by which `load` identifies it; by default its row. For dense galleries.
    n_candidates : int or None, default=None
        Images scored exactly per query, but at least ten times k. More raise recall and time. None: 1,000 for a sparse
        gallery, 128 for a dense one.
    n_jobs : int or None, default=None
        Threads that build the index and share the queries of a batch. Several threads build a different graph of a
        dense gallery each time; otherwise, results do not depend on it.

    Raises
    ------
    ValueError
        As `ExactIndex`, where n_candidates is not positive, and where ids are not one per image, or not different.
    ImportError
        The gallery is dense and FAISS is not installed (the extra ann).

    Examples
    --------
    >>> import numpy as np
    >>> class InnerProduct:
    ...     def transform(self, X):
    ...         return X
    ...     def transform_query(self, Q):
    ...         return Q
    >>> import scipy.sparse as sp
    >>> X = sp.random(2000, 300, density=0.1, format="csr", dtype=np.float32, random_state=0)
    >>> index = TwoStageIndex(InnerProduct(), X, n_candidates=400)
    >>> index.search(X[:2], k=1).indices
    array([[0],
           [1]], dtype=int32)
    >>> index.recall(X[:100], k=10) > 0.9
    True
    """

    scores_all = False

    def __init__(
        self,
        learner: SupportsSimilarity,
        X: Any,
        y: Any = None,
        *,
        ids: Any = None,
        n_candidates: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(learner, X, y, n_jobs=n_jobs)
        gallery = self.gallery_
        if sp.issparse(gallery):
            self._first_stage: _Postings | Graph = _Postings(gallery)
        else:
            self._first_stage = Graph.build(gallery, _check_ids(ids, self.n_gallery), effective_n_jobs(n_jobs))
        self._set_candidates(n_candidates)

    def _set_candidates(self, n_candidates: int | None) -> None:
        self.n_candidates = self._first_stage.n_candidates if n_candidates is None else n_candidates
        if self.n_candidates < 1:
            raise ValueError(f"n_candidates must be at least 1, got {n_candidates}")

    def recall(self, Q: Any, k: int = 10, *, exclude: Any = None) -> float:
        """Share of the exact k best images of each query that `search` finds, on average; arguments as there."""
        whole = copy.copy(self)
        whole.n_candidates = self.n_gallery
        results, exact_results = (index.search(Q, k, exclude=exclude).indices for index in (self, whole))
        if not exact_results.size:
            raise ValueError("recall needs at least one query")
        return sum(len(np.intersect1d(*both)) for both in zip(results, exact_results, strict=True)) / exact_results.size

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph of a dense gallery to a folder, in one step; the vectors and the learner are not in it.

        Raises
        ------
        ValueError
            The gallery is sparse: its index takes no longer to build than to read.
        OSError
            The folder cannot be written; an earlier graph in it stays.
        """
        self._graph().save(folder)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        learner: SupportsSimilarity,
        X: Any,
        y: Any = None,
        *,
        ids: Any = None,
        n_candidates: int | None = None,
        n_jobs: int | None = None,
    ) -> Self:
        """Load the index that `save` wrote, for the current dense gallery.

        Images removed since are skipped; images added since are compared with each query until `update` adds them to
        the graph. The learner may differ if its gallery sides are the same.

        Parameters
        ----------
        folder : path
        learner, X, y, ids, n_candidates, n_jobs
            As in the constructor.

        Raises
        ------
        ValueError
            The index is missing, damaged, of another version or gallery, or lacks more than a fifth of its images.
        """
        index = cls.__new__(cls)
        ExactIndex.__init__(index, learner, X, y, n_jobs=n_jobs)
        if sp.issparse(index.gallery_):
            raise ValueError(f"{folder}: an index of sparse vectors is not saved; build it")
        index._first_stage = Graph.read(folder, index.gallery_, _check_ids(ids, index.n_gallery))
        index._set_candidates(n_candidates)
        return index

    @property
    def n_new(self) -> int:
        """Number of images missing in a loaded graph: each query is compared with all of them."""
        return len(self._first_stage.new) if isinstance(self._first_stage, Graph) else 0

    def update(self) -> None:
        """Add the new images to the graph of a loaded index."""
        self._graph().add_new(effective_n_jobs(self.n_jobs))

    def _graph(self) -> Graph:
        if not isinstance(self._first_stage, Graph):
            raise ValueError("only an index of dense vectors is saved: this one takes no longer to build than to read")
        return self._first_stage

    def _search_block(
        self, queries: np.ndarray, exclude: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray
    ) -> None:
        """Search dense queries (n_queries, d); fills top_*, (n_queries, k)."""
        n_queries, k = top_scores.shape
        first_stage = self._first_stage
        # One more, as one may be excluded.
        n_candidates = max(self.n_candidates, CANDIDATES_PER_RESULT * k) + 1
        if n_candidates >= self.n_gallery:
            super()._search_block(queries, exclude, top_scores, top_indices)
            return

        def search_one(query: np.ndarray, excluded: int, scores: np.ndarray, indices: np.ndarray) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # the exact scores reveal overflow
                rows = first_stage.choose(query, n_candidates)
            if len(rows) <= k:  # too few are reachable in the graph; one may be excluded
                super(TwoStageIndex, self)._search_block(query[None], np.array([excluded]), scores[None], indices[None])
                return
            exact_scores = self.score(query, rows)
            if np.isnan(exact_scores).any():
                raise ValueError("a similarity is not a number (NaN): check the vectors and the learner's matrix")
            ranked = (rows != excluded) & (exact_scores > -np.inf)
            exact_scores, rows = exact.best_first(exact_scores[ranked][None], rows[ranked][None].astype(np.int32))
            size = min(k, rows.shape[1])
            scores[:size], indices[:size] = exact_scores[0, :size], rows[0, :size]

        n_threads = effective_n_jobs(self.n_jobs) if n_queries > 1 and self.n_gallery > MANY_IMAGES else 1
        exact.in_threads(search_one, zip(queries, exclude, top_scores, top_indices, strict=True), n_threads)


def _check_ids(ids: Any, n_gallery: int) -> np.ndarray:
    """int64 (n_gallery,), all different."""
    ids = np.arange(n_gallery) if ids is None else np.asarray(ids)
    if ids.shape != (n_gallery,) or ids.dtype.kind not in "iu" or (np.diff(np.sort(ids)) == 0).any():
        raise ValueError(f"ids needs a different integer for each of the {n_gallery} images of the gallery")
    return ids.astype(np.int64)
