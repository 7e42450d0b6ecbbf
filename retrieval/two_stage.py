"""Search of large galleries in two stages: candidates chosen by a part of the score, then their exact scores.

A score is s(q, x) = h(q)' t(x) = sum_j h_j t_j, of the query side h and the gallery side t. Both stages stand on these
two sides alone, so they serve every learner, and the identity that W started from is in h like the rest of W.

**Sparse galleries** (visterms): an inverted file. For each visterm j it lists the n_j images x that have it, and their
t_j. Leaving j out of a query's sums costs, with m_j the mean of t_j over all images,

    h_j^2 sum_x (t_j - m_j)^2

in squared differences between scores; taking it costs n_j additions. The `COLUMNS` visterms that save most for each
addition are summed; candidates are the images with the largest sums. Once W has been learned a query side has an entry
for every visterm, but some hundred of them decide who comes first.

**Dense galleries** (WSABIE's embedding, label scores, vectors of a network): lists around the centres of k-means.
Candidates are the images of the lists whose centres score best with the query, list after list.

A low-rank embedding of the score in an approximate index is what FAISS would be given for sparse galleries. It loses
what makes two visterm vectors alike beyond their category: the identity in W has no rank to speak of
(``python -m benchmarks two_stage``).
"""

import copy
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numba import njit
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from . import index as exact
from .index import ExactIndex, SupportsSimilarity

FORMAT = 1
COLUMNS = 128  # visterms summed for a query; fewer find as much at d = 10,000, but not at d = 1,000
IMAGES_PER_LIST = 64  # that the centres are learned from; more hardly move them
ROUNDS = 10  # of k-means
ROWS = 16_384  # compared with all centres, or hashed, at once
MANY_IMAGES = 100_000  # below, a query is done sooner than a thread is started
CANDIDATES_PER_RESULT = 10  # at least so many for each of the k results
_FILE = "two_stage.npz"


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
        exact._sift_down(top, rows, hole)
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
                exact._sift_down(top, rows, 0)
    rows.sort()
    return rows


@njit(cache=True, nogil=True)
def _score_rows_sparse(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray, query: np.ndarray
) -> np.ndarray:
    """Scores (n, 1) of some rows of a CSR gallery, as `ExactIndex` has them."""
    scores = np.empty((len(rows), 1), np.float32)
    for i in range(len(rows)):
        exact._score_sparse_one(indptr, indices, data, rows[i], query, scores[i : i + 1])
    return scores


@njit(cache=True, nogil=True)
def _hash_rows(indptr: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """A 64-bit number for the entries (uint64) of each row: FNV-1a over whole entries, mixed after each."""
    hashes = np.empty(len(indptr) - 1, np.uint64)
    for r in range(len(hashes)):
        value = np.uint64(0xCBF29CE484222325)
        for p in range(indptr[r], indptr[r + 1]):
            value = (value ^ entries[p]) * np.uint64(0x100000001B3)
            value ^= value >> np.uint64(29)
            value *= np.uint64(0xBF58476D1CE4E5B9)
            value ^= value >> np.uint64(32)
        hashes[r] = value
    return hashes


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

    def state(self) -> dict[str, np.ndarray]:
        """Nothing: rebuilding is as fast as reading from disk."""
        return {}


class _Lists:
    """Lists of a dense gallery; candidates are the images of the lists whose centres score best."""

    n_candidates = 5_000  # by default

    def __init__(self, centres: np.ndarray, lists: np.ndarray) -> None:
        self.centres, self.lists = centres, lists  # (n_lists, d), (n_gallery,)
        self.members = np.argsort(lists, kind="stable")  # image after image, list after list
        self.bounds = np.searchsorted(lists[self.members], np.arange(len(centres) + 1))

    @classmethod
    def fit(cls, gallery: np.ndarray, seed: int) -> "_Lists":
        """Lists of k-means, four times the root of the number of images."""
        n = len(gallery)
        n_lists = min(n, round(4 * n**0.5))
        sample = np.sort(np.random.default_rng(seed).permutation(n)[: IMAGES_PER_LIST * n_lists])
        means = KMeans(n_lists, init="random", n_init=1, max_iter=ROUNDS, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different images than lists: some stay empty
            centres = means.fit(gallery[sample]).cluster_centers_.astype(np.float32, copy=False)
        return cls(centres, _nearest(gallery, centres))

    def choose(self, query: np.ndarray, n: int) -> np.ndarray:
        """At least n rows of the gallery: whole lists."""
        # Not by BLAS, which rounds by where the query lies in memory: a query finds the same alone and in a batch.
        scores = exact.score_rows(self.centres, np.arange(len(self.centres)), query)
        order = np.argsort(-scores, kind="stable")
        sizes = np.cumsum(np.diff(self.bounds)[order])
        chosen = order[: np.searchsorted(sizes, n) + 1]
        return np.concatenate([self.members[self.bounds[i] : self.bounds[i + 1]] for i in chosen])

    def state(self) -> dict[str, np.ndarray]:
        """Arrays that `load` needs."""
        return {"centres": self.centres, "lists": self.lists}


def _nearest(X: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Nearest centre of each row: int32 (n,)."""
    lists = np.empty(len(X), np.int32)
    half_squares = (centres**2).sum(axis=1) / 2
    for start in range(0, len(X), ROWS):
        # |x - c|^2 = |x|^2 - 2 (x'c - |c|^2 / 2)
        near = X[start : start + ROWS] @ centres.T
        near -= half_squares
        lists[start : start + ROWS] = near.argmax(axis=1)
    return lists


# ----------------------------------------------------------------------------------------------------
# Public


class TwoStageIndex(ExactIndex):
    """Nearest neighbours of a large gallery, nearly always those of `ExactIndex`, without scoring every image.

    Scores are exact, and ties go to the smaller index, as in `ExactIndex`. What can be missed are images that the first
    stage did not choose: `recall` tells how many. With `n_candidates` images or fewer in the gallery nothing is missed.

    Parameters
    ----------
    learner : object with ``transform(X)`` and ``transform_query(Q)``
        As in `ExactIndex`.
    X : CSR matrix or ndarray, shape (n_gallery, n_features)
        The gallery. Of a sparse gallery side, a transposed copy is kept beside it.
    y : array of shape (n_gallery,), optional
        Labels, for learners that read them.
    n_candidates : int or None, default=None
        Images scored exactly for a query, or ten times k where that is more. More finds more and takes longer. None is
        1,000 of a sparse gallery, 5,000 of a dense one, whose first stage is coarser.
    random_state : int, default=0
        Draws the images that the lists of a dense gallery are learned from.
    n_jobs : int or None, default=None
        Threads that the queries of a batch are spread over. Results do not depend on it.

    Raises
    ------
    ValueError
        As `ExactIndex`, and where n_candidates is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> class InnerProduct:
    ...     def transform(self, X):
    ...         return X
    ...     def transform_query(self, Q):
    ...         return Q
    >>> X = np.random.default_rng(0).standard_normal((2000, 16)).astype(np.float32)
    >>> X /= np.linalg.norm(X, axis=1, keepdims=True)
    >>> index = TwoStageIndex(InnerProduct(), X, n_candidates=400)
    >>> index.search(X[:2], k=1).indices
    array([[0],
           [1]], dtype=int32)
    >>> index.recall(X[:100], k=10) > 0.9
    True
    """

    def __init__(
        self,
        learner: SupportsSimilarity,
        X: Any,
        y: Any = None,
        *,
        n_candidates: int | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(learner, X, y, n_jobs=n_jobs)
        gallery = self.gallery_
        self._first_stage: _Postings | _Lists
        self._first_stage = _Postings(gallery) if sp.issparse(gallery) else _Lists.fit(gallery, random_state)
        self.n_candidates = self._first_stage.n_candidates if n_candidates is None else n_candidates
        if self.n_candidates < 1:
            raise ValueError(f"n_candidates must be at least 1, got {n_candidates}")

    def recall(self, Q: Any, k: int = 10, *, exclude: Any = None) -> float:
        """Share of the exact k best images of each query that `search` finds, on average; arguments as there."""
        whole = copy.copy(self)
        whole.n_candidates = self.n_gallery
        results, wanted = (index.search(Q, k, exclude=exclude).indices for index in (self, whole))
        if not wanted.size:
            raise ValueError("recall needs at least one query")
        return sum(len(np.intersect1d(*both)) for both in zip(results, wanted, strict=True)) / wanted.size

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a folder, in one step: not the gallery, only a fingerprint of each of its images."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            "format": np.array(FORMAT),
            "n_candidates": np.array(self.n_candidates),
            "fingerprints": _fingerprints(self.gallery_),
            **self._first_stage.state(),
        }
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]  # it takes any name
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, folder / _FILE)
        except BaseException:
            os.unlink(temporary)
            raise

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        learner: SupportsSimilarity,
        X: Any,
        y: Any = None,
        *,
        n_jobs: int | None = None,
    ) -> Self:
        """Index that `save` wrote, for the gallery as it is now.

        Images are recognised by their fingerprints: some may have been added, removed or moved since.

        Parameters
        ----------
        folder : path
        learner, X, y, n_jobs
            As in the constructor.

        Raises
        ------
        ValueError
            No saved index, another format, a damaged file, or another gallery: less than half of the images known.
        """
        path = Path(folder) / _FILE
        saved = _read(path)
        index = cls.__new__(cls)
        ExactIndex.__init__(index, learner, X, y, n_jobs=n_jobs)
        gallery, fingerprints = index.gallery_, saved["fingerprints"]
        own, order = _fingerprints(gallery), np.argsort(fingerprints)
        places = order[np.minimum(np.searchsorted(fingerprints, own, sorter=order), len(order) - 1)]
        known = fingerprints[places] == own
        if known.mean() < 0.5 or sp.issparse(gallery) == ("centres" in saved):
            raise ValueError(f"{path}: made for another gallery; build the index again")
        index.n_candidates = int(saved["n_candidates"])
        if sp.issparse(gallery):
            index._first_stage = _Postings(gallery)
        else:
            lists = saved["lists"][places]
            lists[~known] = _nearest(gallery[~known], saved["centres"])
            index._first_stage = _Lists(saved["centres"], lists)
        return index

    def _search_block(
        self, queries: np.ndarray, exclude: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray
    ) -> None:
        """Search dense queries (n_queries, d); fills top_*, (n_queries, k)."""
        n_queries, k = top_scores.shape
        gallery, first_stage = self.gallery_, self._first_stage
        # One more, as one may be excluded.
        n_candidates = max(self.n_candidates, CANDIDATES_PER_RESULT * k) + 1
        if n_candidates >= self.n_gallery:
            super()._search_block(queries, exclude, top_scores, top_indices)
            return

        def search_one(query: np.ndarray, excluded: int, scores: np.ndarray, indices: np.ndarray) -> None:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found in the exact scores
                rows = first_stage.choose(query, n_candidates)
            if sp.issparse(gallery):
                exact_scores = _score_rows_sparse(gallery.indptr, gallery.indices, gallery.data, rows, query)[:, 0]
            else:
                exact_scores = exact.score_rows(gallery, rows, query)
            if np.isnan(exact_scores).any():
                raise ValueError("a similarity is not a number (NaN): check the vectors and the learner's matrix")
            ranked = (rows != excluded) & (exact_scores > -np.inf)
            exact_scores, rows = exact._best_first(exact_scores[ranked][None], rows[ranked][None].astype(np.int32))
            size = min(k, rows.shape[1])
            scores[:size], indices[:size] = exact_scores[0, :size], rows[0, :size]

        n_threads = effective_n_jobs(self.n_jobs) if n_queries > 1 and self.n_gallery > MANY_IMAGES else 1
        exact.in_threads(search_one, zip(queries, exclude, top_scores, top_indices, strict=True), n_threads)


def _read(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a saved index that fit together."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            saved = {name: arrays[name] for name in arrays.files}
        file_format = int(saved["format"])
        whole = saved["fingerprints"].ndim == 1 and len(saved["fingerprints"]) > 0 and saved["n_candidates"] > 0
        if "centres" in saved:
            centres, lists = saved["centres"], saved["lists"]
            whole &= centres.ndim == 2 and lists.shape == saved["fingerprints"].shape
            whole &= lists.min() >= 0 and lists.max() < len(centres)
    except FileNotFoundError:
        raise ValueError(f"{path}: no index is saved here; build the index") from None
    except Exception:  # a damaged file raises errors of many kinds in NumPy and zipfile
        file_format, whole = FORMAT, False
    if file_format != FORMAT:
        raise ValueError(f"{path}: saved in format {file_format}, this version reads {FORMAT}; build the index again")
    if not whole:
        raise ValueError(f"{path}: damaged; build the index again")
    return saved


def _fingerprints(sides: Any) -> np.ndarray:
    """A 64-bit number for the content of each gallery side: uint64 (n,)."""
    hashes = []
    for start in range(0, sides.shape[0], ROWS):
        part = sides[start : start + ROWS]
        if sp.issparse(part):
            entries = part.indices.astype(np.uint64) << np.uint64(32) | part.data.view(np.uint32)
            indptr = part.indptr
        else:
            entries = part.view(np.uint32).ravel().astype(np.uint64)
            indptr = np.arange(len(part) + 1) * part.shape[1]
        hashes.append(_hash_rows(indptr, entries))
    return np.concatenate(hashes)
