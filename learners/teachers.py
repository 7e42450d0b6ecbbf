"""Which training images made two images similar: a learned similarity as a sum over pairs of training images.

Every step of OASIS adds tau q (p+ - p-)' to W (`oasis`), and q, p+ and p- are images that it was trained on. Let these
be the rows of Z, as the learner has them, and T[a, b] the sum of tau over the steps in which a was the query and b the
relevant image, less those in which b was the irrelevant one. Then

    W = W0 + Z' T Z,    S(q, x) = z' W0 g + (Z z)' T (Z g)

with W0 the start: the identity or zero. Without whitening z = q and g = x. Whitening (`whitening`) has unit rows Z,
z = A (q - m) / |A (q - m)| and g = A x = A (x - m) + A m. What A m gives is the same for all images of a query's
ranking, and stands by itself here, so that an image x is compared with teachers as the query is.

With a weight a of the learner beside cosine (`blend`), the terms are z' ((1 - a) I + a W0) g and
a (Z z)' T (Z g).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.utils.validation import check_is_fitted

from .rows import FASTMATH, Float, Int
from .sides import dense
from .similarity import Similarity

_CHECKED = 16  # images whose similarities by the table are compared with those of the learner
_TOLERANCE = 1e-3  # of the largest similarity; rounding stays far below
_NO_TABLE = "there is no table of teachers: fit an OASIS with record_teachers=True"


def with_images(table: sp.csr_array, n_images: int) -> sp.csr_array:
    """Return a table with rows and columns for more images."""
    n = table.shape[0] + n_images
    indptr = np.concatenate([table.indptr, np.full(n_images, table.indptr[-1], table.indptr.dtype)])
    return sp.csr_array((table.data, table.indices, indptr), shape=(n, n))


def without_images(table: sp.csr_array, gone: np.ndarray) -> sp.csr_array:
    """Return a table whose rows and columns are empty for some images, bool (n_images,)."""
    entries = table.tocoo()
    queries, images = entries.coords
    kept = ~(gone[queries] | gone[images])
    return sp.coo_array((entries.data[kept], (queries[kept], images[kept])), shape=table.shape).tocsr()


def with_steps(table: sp.csr_array, triplets: np.ndarray, taus: np.ndarray) -> sp.csr_array:
    """Return a table, CSR (n_images, n_images), with some steps added.

    Triplets are rows of the table: query, relevant and irrelevant image; `taus` are their steps, 0 where none was
    taken.
    """
    taken = np.flatnonzero(taus)
    queries, relevant, irrelevant = triplets[taken].astype(np.int32).T
    entries = np.concatenate([taus[taken], -taus[taken]])
    places = np.tile(queries, 2), np.concatenate([relevant, irrelevant])
    return sp.csr_array(table + sp.coo_array((entries, places), shape=table.shape).tocsr())


class PairTeachers(NamedTuple):
    """Parts of the score of a query and a result: ``unlearned + common + sum(contributions) + rest`` is the score.

    A teacher is an entry of the table: two training images that the steps put together (``weights`` above 0) or kept
    apart. It raises the score where it put together what is like the query and what is like the result.
    """

    score: float
    unlearned: float  # score without learning
    common: float  # learned, and the same for every result of the query; 0 without whitening
    queries: np.ndarray  # int64 (n,), rows of the training images: the strongest that raise the score, then those that
    images: np.ndarray  # lower it, each from the strongest on
    weights: np.ndarray  # float32 (n,), entries of the table
    like_query: np.ndarray  # float32 (n,), cosine of `queries` and the query, in the vectors that were learned in
    like_result: np.ndarray  # float32 (n,), cosine of `images` and the result
    contributions: np.ndarray  # float32 (n,)
    rest: float  # sum of the contributions of all other teachers
    n_rest: int  # those that contribute anything

    @property
    def learned(self) -> float:
        """Sum over all teachers."""
        return float(self.contributions.sum(dtype=np.float64)) + self.rest


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _insert(value: Float, place: Int, values: np.ndarray, places: np.ndarray) -> None:
    """Insert a value into a descending list, whose last one is dropped."""
    i = len(values) - 1
    while i > 0 and values[i - 1] < value:
        values[i], places[i] = values[i - 1], places[i - 1]
        i -= 1
    values[i], places[i] = value, place


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def strongest(
    indptr: np.ndarray,
    indices: np.ndarray,
    data: np.ndarray,
    u: np.ndarray,
    v: np.ndarray,
    values: np.ndarray,
    places: np.ndarray,
) -> tuple[float, int]:
    """Sum u' T v over the entries of T, and find the largest terms; the sum and the number of terms that are not 0.

    `values` (2, n), zeros, and `places` (2, n) receive the terms and their entries: those above 0, and those below with
    the sign turned.
    """
    total, count = 0.0, 0
    for a in range(len(indptr) - 1):
        if u[a] == np.float32(0.0):
            continue
        for k in range(indptr[a], indptr[a + 1]):
            term = u[a] * data[k] * v[indices[k]]
            if term == np.float32(0.0):
                continue
            total += float(term)
            count += 1
            if term > values[0, -1]:
                _insert(term, k, values[0], places[0])
            elif -term > values[1, -1]:
                _insert(-term, k, values[1], places[1])
    return total, count


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def summed_terms(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, u: np.ndarray, v: np.ndarray, terms: np.ndarray
) -> None:
    """Fill in u[a] T[a, b] v[b] for each entry of T, summed over the columns of u and v, (n_images, n) each."""
    for a in range(len(indptr) - 1):
        for k in range(indptr[a], indptr[a + 1]):
            total, b = np.float32(0.0), indices[k]
            for i in range(u.shape[1]):
                total += u[a, i] * v[b, i]
            terms[k] = data[k] * total


class TeacherTable:
    """The table of a learner with the images that it was trained on.

    Parameters
    ----------
    learner : OASIS, or Blend of one
        Fitted with ``record_teachers=True``.
    X : CSR or dense of shape (n_images, d)
        The images of `fit`, followed by those of each `partial_fit`: the rows of ``teachers_``.

    Attributes
    ----------
    table : CSR of float32, shape (n_images, n_images)

    Raises
    ------
    ValueError
        The learner has no table, or table and images do not give the similarities of the learner: the table is damaged,
        or these are other images.

    Notes
    -----
    Not in the papers. AROMA and LEGO have no such table. A step of diagonal AROMA multiplies q p' with the variances,
    entry by entry, which leaves no product of images; in factored AROMA and LEGO, where W stays a sum over pairs of
    training images, each step joins all images of all steps before it: the table would be full, and name no teacher.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import OASIS, Teachers
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = OASIS(n_steps=5000, record_teachers=True, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> teachers = Teachers(learner, X).of_pair(X[:1], X[1:2])
    >>> bool(np.isclose(teachers.unlearned + teachers.common + teachers.learned, teachers.score))
    True
    >>> int(teachers.queries[0]), int(teachers.images[0])
    (0, 1)
    """

    def __init__(self, learner: Any, X: Any) -> None:
        self._learner: Any = learner if isinstance(learner, Similarity) else learner.learner
        check_is_fitted(self._learner)
        table = getattr(self._learner, "teachers_", None)
        if table is None:
            raise ValueError(_NO_TABLE)
        if X.shape[0] != table.shape[0]:
            raise ValueError(f"the table is of {table.shape[0]} images, got {X.shape[0]}")
        try:
            table.check_format(full_check=True)
            if not np.isfinite(table.data).all():
                raise ValueError("it holds no numbers")
        except ValueError as error:
            raise ValueError(f"the table of teachers is damaged ({error})") from None
        self.table: sp.csr_array = table
        self._Z = self._learner.whitened(X)
        self._weigh(learner)
        A_m = None if self._learner._whitening is None else self._learner._whitening.shift[None]
        self._A_m = A_m
        self._of_A_m = None if A_m is None else self.table @ self._likeness(A_m)[:, 0]
        checked = np.unique(np.linspace(0, X.shape[0] - 1, min(_CHECKED, X.shape[0])).astype(int))
        with np.errstate(over="ignore", invalid="ignore"):  # of damaged numbers
            images = X[checked]
            expected, by_table = self._similarity.similarity(images, images), self.similarity(images, images)
        if not np.abs(by_table - expected).max() <= _TOLERANCE * np.abs(expected).max():
            raise ValueError(
                "the table of teachers does not give the similarities of the learner: it is damaged, or these are not "
                "the images of its training"
            )

    def with_share(self, learner: Any) -> TeacherTable:
        """Return the same table for another share of the same learner: a `Blend`, or the learner itself."""
        table = copy.copy(self)
        table._weigh(learner)
        return table

    def _weigh(self, learner: Any) -> None:
        """Set the weights of the two terms to those of a learner, or of a share of it."""
        cosine, learned = (0.0, 1.0) if isinstance(learner, Similarity) else learner._weights()
        self._similarity: Any = learner
        self._learned = float(learned)
        self._unlearned = float(cosine) + (self._learned if self._learner.begins_at == "vectors" else 0.0)

    def similarity(self, Q: Any, X: Any) -> np.ndarray:
        """Similarity by the table alone: float64 (n_queries, n_images); for checks, as W is faster."""
        z, g = self._learner.whitened(Q), self._gallery(X, centred=False)
        by_table = (self.table.T @ self._likeness(z).astype(np.float64)).T @ self._likeness(g)
        return self._unlearned * dense(z @ g.T) + self._learned * by_table

    def of_pair(self, q: Any, x: Any, n: int = 8) -> PairTeachers:
        """Find the teachers of a query and a result.

        Parameters
        ----------
        q, x : CSR or dense of shape (1, d)
        n : int, default=8
            List so many of the teachers that raise the score, and as many that lower it, at most.
        """
        z, g = self._learner.whitened(q), self._gallery(x, centred=True)
        u, v = (self._likeness(side)[:, 0].astype(np.float32) for side in (z, g))
        T = self.table
        values, places = np.zeros((2, n), np.float32), np.zeros((2, n), np.int64)
        total, count = strongest(T.indptr, T.indices, T.data, u, v, values, places)
        at = np.concatenate([of[: np.count_nonzero(amounts)] for of, amounts in zip(places, values, strict=True)])
        queries = np.searchsorted(T.indptr, at, side="right") - 1
        images, weights = T.indices[at].astype(np.int64), T.data[at]
        contributions = (self._learned * (u[queries] * weights * v[images])).astype(np.float32)
        score = float(self._similarity.similarity(q, x)[0, 0])
        unlearned = self._unlearned * float(dense(z @ g.T)[0, 0])
        learned, common = self._learned * total, 0.0
        if self._A_m is not None and self._of_A_m is not None:
            common = self._unlearned * float((z @ self._A_m.T)[0, 0]) + self._learned * float(u @ self._of_A_m)
        length = float(np.linalg.norm(dense(g))) or 1.0
        return PairTeachers(
            score,
            unlearned,
            common,
            queries,
            images,
            weights,
            u[queries],
            v[images] / np.float32(length),
            contributions,
            learned - float(contributions.sum(dtype=np.float64)),
            count - len(at),
        )

    def of_images(self, q: Any, x: Any) -> np.ndarray:
        """Contribution of each training image to the score of a query and a result: float64 (n_images,).

        A teacher counts half for each of its two images.
        """
        u, v = (self._likeness(side)[:, 0] for side in (self._learner.whitened(q), self._gallery(x, centred=True)))
        return self._learned * (u * (self.table @ v) + v * (self.table.T @ u)) / 2

    def of_margins(self, Q: Any, better: Any, worse: Any) -> sp.csr_array:
        """Contribution of each teacher to the margins between better and worse results of some queries.

        Parameters
        ----------
        Q, better, worse : CSR or dense of shape (n_queries, d)
            A query per row, and the mean of its relevant images and of its others, say.

        Returns
        -------
        CSR of float32, shape (n_images, n_images)
            Contributions to the sum of S(q, better) - S(q, worse) over all queries, in the places of `table`.
        """
        u = self._likeness(self._learner.whitened(Q)).astype(np.float32)
        v = self._likeness(self._gallery(better, centred=False)) - self._likeness(self._gallery(worse, centred=False))
        T = self.table
        terms = np.zeros(T.nnz, np.float32)
        summed_terms(T.indptr, T.indices, T.data, np.ascontiguousarray(u), np.ascontiguousarray(v, np.float32), terms)
        return sp.csr_array((np.float32(self._learned) * terms, T.indices, T.indptr), shape=T.shape)

    def parts_of(self, rows: Iterable[int], Q: Any, X: Any) -> Iterator[np.ndarray]:
        """Yield what each of some training images adds to the similarities: float (n_queries, n_results) per image.

        Similarities less this part are those of `without` that image.
        """
        u = self._likeness(self._learner.whitened(Q))
        v = self._likeness(self._gallery(X, centred=False))
        columns = self.table.tocsc()
        for row in rows:
            as_query = (self.table[[row]] @ v)[0] - self.table[row, row] * v[row]  # its own entry is in the column, too
            as_image = (columns[:, [row]].T @ u)[0]
            yield self._learned * (np.outer(u[row], as_query) + np.outer(as_image, v[row]))

    def without(self, rows: Any) -> Any:
        """Return a copy of the learner without all that some training images took part in.

        Parameters
        ----------
        rows : int array
            Rows of the images.

        Returns
        -------
        OASIS
            Rows and columns of its table are empty for these images, and W is less their part, exactly. It is not the
            learner that would have been trained without them: later steps were taken in their presence.
        """
        rows = np.unique(np.asarray(rows))
        T, Z = self.table, self._Z
        gone = np.zeros(T.shape[0], bool)
        gone[rows] = True
        of_rows, of_columns = T[rows], sp.csr_array(T[:, rows].multiply((~gone)[:, None]))
        learner = copy.copy(self._learner)
        W = np.array(learner.W_)
        for first, second in ((Z[rows], of_rows @ Z), (of_columns.T @ Z, Z[rows])):
            if sp.issparse(first):
                part = sp.coo_array(first.T @ second)
                np.subtract.at(W, part.coords, part.data)
            else:
                for a, b in zip(first, second, strict=True):
                    W -= np.outer(a, b)
        learner.W_ = W
        learner.teachers_ = without_images(T, gone)
        return learner

    def _gallery(self, X: Any, *, centred: bool) -> Any:
        """Gallery side g of images, in the vectors that were learned in."""
        learner = self._learner
        X = learner._check_images(X)
        whitening = learner._whitening
        if whitening is None:
            return X
        sides = whitening.back(X)
        return sides - whitening.shift if centred else sides

    def _likeness(self, sides: Any) -> np.ndarray:
        """Inner products of the training images and others: dense (n_images, n)."""
        return dense(self._Z @ sides.T)


Teachers = TeacherTable  # the public name
