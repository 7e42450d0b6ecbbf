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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from numbers import Real
from typing import Any

import joblib
import numpy as np
from numba import njit
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from .oasis import difference, row_dot, squared_norm, widest_row
from .online import FASTMATH, OnlineLearner, Rows, check_integer, entry_cost, mean_entries
from .sums import product
from .triplets import TripletSampler, stream

# Share of its squared norm that a vector's variance keeps at least; below it, single precision holds only rounding.
_ROUNDING = 1e-6

# Updates of the factored form that wait until they are added as one matrix product, and the rows and columns of W that
# one task adds them to: a product of (1024, 192) and (192, 1024).
_PENDING = 192
_TILE = 1024


# -- diagonal ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def diagonal_pass(rows, triplets, r, model):
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


# -- factored ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _add_rows(matrix, rows, weights, n, out):
    """Add a weighted sum of n rows of a matrix."""
    for i in range(n):
        row, weight = matrix[rows[i]], weights[i]
        for j in range(len(out)):
            out[j] += weight * row[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _sparse_dot(dense, columns, values, n):
    """Inner product of a dense and a sparse vector."""
    dot = np.float32(0.0)
    for j in range(n):
        dot += dense[columns[j]] * values[j]
    return dot


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def factored_pass(rows, triplets, r, W, Lambda, Omega, U, V, weights):
    """Learn from the triplets in turn (figure 2) until U and V are full.

    W, Lambda and Omega are only read; U and V, (n_pending, d), and `weights` receive what is to be added to them: in
    truth they are W + U' diag(weights) V, Lambda - U' U and Omega - V' V.

    Returns
    -------
    tuple
        Number of triplets seen, number of rows pending, sum of the losses, number of violating triplets.
    """
    indptr, indices, data, norms = rows
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


def fold(
    W: np.ndarray,
    Lambda: np.ndarray,
    Omega: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    weights: np.ndarray,
    run: Callable[..., Iterable],
) -> None:
    """Add the pending updates: W += U' diag(weights) V, Lambda -= U' U, Omega -= V' V, in place.

    `run` maps a function over the tiles of the three matrices, in any order or at once: none depends on another.
    """
    if not len(U):
        return
    weighted = U * weights[:, None]

    def add(rows: slice, columns: slice) -> None:
        W[rows, columns] += weighted[:, rows].T @ V[:, columns]

    def subtract(covariance: np.ndarray, pending: np.ndarray, rows: slice, columns: slice) -> None:
        covariance[rows, columns] -= pending[:, rows].T @ pending[:, columns]
        if rows != columns:  # only the lower triangle is computed
            covariance[columns, rows] = covariance[rows, columns].T

    slices = [slice(start, min(start + _TILE, len(W))) for start in range(0, len(W), _TILE)]
    tiles = [partial(add, rows, columns) for rows in slices for columns in slices]
    for covariance, pending in ((Lambda, U), (Omega, V)):
        for i, rows in enumerate(slices):
            tiles += [partial(subtract, covariance, pending, rows, columns) for columns in slices[: i + 1]]
    for _ in run(lambda tile: tile(), tiles):
        pass


# -- the learner -------------------------------------------------------------------------------------------------------


class AROMA(OnlineLearner):
    """Adaptive Regularization Of MAtrix models: OASIS with a step size for every entry of W.

    Parameters
    ----------
    covariance : {"diagonal", "factored"}, default="diagonal"
        "diagonal" keeps a variance for each entry of W, and costs little more than OASIS; "factored" keeps correlations
        between features, in two (d, d) matrices, at O(d^2) time a violating triplet.
    r : float, default=1.0
        Regulariser: larger makes smaller steps, and is surer of an entry later.
    n_steps : int, default=100_000
        Triplets.
    init : {"zero", "identity"}, default="zero"
        W before the first triplet. "identity" starts at the inner product of the vectors.
    pairs_per_query : int, default=1
        Pairs (p+, p-) drawn for each query drawn; see `OASIS`.
    validation_fraction : float, optional
        Share of each class held out for early stopping: the state with the best mean average precision is kept.
    patience : int, optional
        Stop after this many validations without a better one; None runs all steps.
    refit : bool, default=False
        After early stopping, train again on all images for the best number of steps.
    pass_steps : int, default=5000
        Triplets per pass: the interval of history and callback, and of validation at first; see `OnlineLearner`.
    click_cutoff : float, optional
        `y` holds clicks (images x queries); see `TripletSampler`.
    check_negatives : bool, default=True
        See `TripletSampler`.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    n_jobs : int, optional
        Threads that add up the updates of the factored form. The model does not depend on it.

    Attributes
    ----------
    W_ : float32 array of shape (d, d)
        Mean of the distribution, which is the similarity; a view of `distribution_`.
    covariance_ : float32 array of shape (d, d), or tuple of two
        Sigma, or Lambda (of the query's features) and Omega (of the images' features); views of `distribution_`.
    distribution_ : float32 array
        What is learned and saved. Diagonal: (d, d, 2), W and Sigma entry beside entry; factored: (3, d, d), W, Lambda
        and Omega.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range or data that cannot be learned from.

    Notes
    -----
    Time per triplet: diagonal, proportional to nnz(q) (nnz(p+) + nnz(p-)), whatever d is; factored, the same, and 4 d^2
    operations of matrix products for a triplet that violates.

    Peak memory, in units of the 4 d^2 bytes of W: 2 for the diagonal and 3 for the factored form; twice as much with
    `validation_fraction` unless `refit`. Beside it the factored form takes 2.3 kB a dimension for pending updates and 4
    MB a thread for a tile of their product.

    The rank-1 updates of the factored form wait in U and V until 192 are pending, or the pass ends, and are then added
    as matrix products. That changes results by rounding only.

    Departures from the paper: W and the covariance are float32. `init="identity"` and `pairs_per_query` are ours. The
    state that early stopping returns to is W with the covariance of that moment, so that `partial_fit` continues as if
    nothing had been learned since. The factored form skips a triplet where a or b is 1e-6 of the squared norm or less:
    that is rounding.

    References
    ----------
    K. Crammer, G. Chechik: Adaptive Regularization for Weight Matrices. Proceedings of the 29th International
    Conference on Machine Learning, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import AROMA
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = AROMA(n_steps=1000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> int(learner.similarity(X[:1], X[1:]).argmax())
    0
    >>> bool(learner.covariance_[0, 1] < learner.covariance_[0, 0] == 1)
    True
    """

    linear = True
    _learned = ("distribution_",)
    _state = (*OnlineLearner._state, "distribution_", "best_distribution_")
    distribution_: np.ndarray  # (d, d, 2) or (3, d, d)

    def __init__(
        self,
        *,
        covariance: str = "diagonal",
        r: float = 1.0,
        n_steps: int = 100_000,
        init: str = "zero",
        pairs_per_query: int = 1,
        validation_fraction: float | None = None,
        patience: int | None = None,
        refit: bool = False,
        pass_steps: int = 5000,
        click_cutoff: float | None = None,
        check_negatives: bool = True,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.covariance = covariance
        self.r = r
        self.n_steps = n_steps
        self.init = init
        self.pairs_per_query = pairs_per_query
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.pass_steps = pass_steps
        self.click_cutoff = click_cutoff
        self.check_negatives = check_negatives
        self.random_state = random_state
        self.n_jobs = n_jobs

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

    def transform_query(self, Q: Any) -> np.ndarray:
        """Query side: Q W; dense float32 of shape (n, d)."""
        check_is_fitted(self)
        Q = self._check_images(Q)
        if self._is_factored():
            return product(Q, self.W_)
        # Products with W alone would copy it whole, as every other entry; this reads only the rows that Q touches.
        d = self.n_features_in_
        return np.ascontiguousarray(product(Q, np.asarray(self.distribution_).reshape(d, 2 * d))[:, ::2])

    def transform_query_parts(self, parts: Any, whole: Any) -> np.ndarray:
        """What parts of an image add to its query side: P W."""
        return self.transform_query(parts)

    def _is_factored(self) -> bool:
        """Which form was learned; `covariance` is the one that the next `fit` learns."""
        return self.distribution_.shape == (3, self.n_features_in_, self.n_features_in_)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self) -> None:
        if self.covariance not in ("diagonal", "factored"):
            raise ValueError(f"covariance must be 'diagonal' or 'factored', got {self.covariance!r}")
        if not isinstance(self.r, Real) or not 1e-30 <= self.r <= 1e30:  # what single precision can take
            raise ValueError(f"r must be a positive number, from 1e-30 to 1e30, got {self.r!r}")
        if self.init not in ("identity", "zero"):
            raise ValueError(f"init must be 'identity' or 'zero', got {self.init!r}")
        check_integer("pairs_per_query", self.pairs_per_query, minimum=1)

    def _start(self) -> None:
        d = self.n_features_in_
        factored = self.covariance == "factored"
        self.distribution_ = np.zeros((3, d, d) if factored else (d, d, 2), np.float32)
        if factored:
            for covariance in self.distribution_[1:]:
                np.fill_diagonal(covariance, 1.0)
        else:
            self.distribution_[..., 1] = 1.0
        if self.init == "identity":
            np.fill_diagonal(self.W_, 1.0)

    def _continue(self) -> None:
        if self._is_factored() != (self.covariance == "factored"):
            raise ValueError(f"the fitted covariance is not {self.covariance!r}; use fit to learn from scratch")
        super()._continue()

    def _step_cost(self, rows: Rows) -> float:
        d, n = self.n_features_in_, mean_entries(rows)
        n_p = min(2 * n, d)
        if self._is_factored():  # a share of reading and writing all: few pending updates take as long as many
            return 0.3 * d * (n + n_p + _PENDING) + 0.01 * d**2
        return 2 * entry_cost(rows, d) * n * n_p

    def _pass(self, rows: Rows, sampler: TripletSampler, n_steps: int) -> tuple[float, float]:
        triplets = sampler.draw(stream(self.seed_, 0, self.n_steps_), n_steps, pairs_per_query=self.pairs_per_query)
        if self._is_factored():
            return self._factored_pass(rows, triplets)
        d = self.n_features_in_
        return diagonal_pass(rows, triplets, float(self.r), self.distribution_.reshape(d, 2 * d))

    def _factored_pass(self, rows: Rows, triplets: np.ndarray) -> tuple[float, float]:
        W, Lambda, Omega = self.distribution_
        U, V = np.empty((2, _PENDING, self.n_features_in_), np.float32)
        weights = np.empty(_PENDING, np.float32)
        losses, violating = 0.0, 0.0
        n_threads = joblib.effective_n_jobs(self.n_jobs)
        # The threads are ours: tiles give the same sums whatever their number, which BLAS does not promise.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
            while len(triplets):
                seen, k, loss, n = factored_pass(rows, triplets, float(self.r), W, Lambda, Omega, U, V, weights)
                fold(W, Lambda, Omega, U[:k], V[:k], weights[:k], map if n_threads == 1 else pool.map)
                triplets, losses, violating = triplets[seen:], losses + loss, violating + n
        return losses, violating
