"""OASIS: a bilinear similarity learned online from triplets, by passive-aggressive updates.

Chechik, Sharma, Shalit, Bengio: Large Scale Online Learning of Image Similarity through Ranking, JMLR 11, 2010.

    S(a, b) = a' W b,    loss = max(0, 1 - S(q, p+) + S(q, p-)) = max(0, 1 - q' W p),    p = p+ - p-
    tau = min(C, loss / (|q|^2 |p|^2)),    W <- W + tau q p'                                      (section 2.1)

With "dissim" (section 6.1), u = q - p+ and v = q - p-,

    S(a, b) = -(a - b)' W (a - b),    loss = max(0, 1 + u' W u - v' W v)
    W <- W + tau V,    V = v v' - u u',    |V|^2 = |u|^4 + |v|^4 - 2 (u' v)^2

since `loss = 1 - <W, V>`: an unclipped step makes it `1 - <W, V> - tau |V|^2 = 0`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.utils.validation import check_is_fitted

from .blocks import Run, block_size, learn_blocks
from .checks import check_choice, check_integer, check_positive
from .given_triplets import FitsTriplets
from .loop import StepCost, Training
from .mahalanobis import mahalanobis
from .metric import positive_part
from .online import OnlineLearner
from .row_sums import difference, row_dot, squared_norm, widest_row
from .rows import FASTMATH, Float, Int, Rows, dense_rows, entry_cost, mean_entries, readonly, writable
from .sides import Sides, bilinear
from .sums import one_thread, product, tasks_at_once
from .teachers import with_steps
from .triplets import TripletSampler
from .whitening import WhiteningMixin, check_whiten

Settings = tuple[float, str | None, int]  # C, variant, and queries of a block: 0 for one by one


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def add_to_row(W: np.ndarray, row: Int, weight: Float, columns: np.ndarray, values: np.ndarray, n: Int) -> None:
    """Add weight times a sparse vector to a row of W."""
    for j in range(n):
        W[row, columns[j]] += weight * values[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def oasis_pass(
    rows: Rows, triplets: np.ndarray, C: Float, symmetrise: bool, W: np.ndarray, taus: np.ndarray
) -> tuple[float, int]:
    """Learn from the triplets in turn (section 2.1); sum of the losses and number of violating triplets.

    With `symmetrise`, W <- (W + W') / 2 after every update: a symmetric W takes tau / 2 (q p' + p q'). `taus` (n,)
    receives the step of each triplet that took one.
    """
    indptr, indices, data, norms = rows
    width = 2 * widest_row(indptr)
    columns, delta = np.empty(width, np.uint32), np.empty(width, np.float32)
    losses, violating = 0.0, 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        start, end = indptr[query], indptr[query + 1]
        n = difference(positive, negative, indptr, indices, data, columns, delta)
        margin = np.float32(0.0)  # q' W p
        for i in range(start, end):
            margin += data[i] * row_dot(W, indices[i], columns, delta, n)
        loss = np.float32(1.0) - margin
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1
        norm = norms[query] * squared_norm(delta, n)
        if norm == 0.0:
            continue
        tau = np.float32(min(C, loss / norm))
        taus[step] = tau
        if symmetrise:
            tau *= np.float32(0.5)
            for j in range(n):
                add_to_row(W, columns[j], tau * delta[j], indices[start:end], data[start:end], end - start)
        for i in range(start, end):
            add_to_row(W, indices[i], tau * data[i], columns, delta, n)
    return losses, violating


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _quadratic(columns: np.ndarray, values: np.ndarray, n: Int, W: np.ndarray) -> Float:
    """Quadratic form x' W x of a sparse x."""
    total = np.float32(0.0)
    for i in range(n):
        total += values[i] * row_dot(W, columns[i], columns, values, n)
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _inner(
    columns_a: np.ndarray, values_a: np.ndarray, n_a: Int, columns_b: np.ndarray, values_b: np.ndarray, n_b: Int
) -> Float:
    """Inner product of two sparse vectors."""
    i, j = 0, 0
    total = np.float32(0.0)
    while i < n_a and j < n_b:
        if columns_a[i] < columns_b[j]:
            i += 1
        elif columns_a[i] > columns_b[j]:
            j += 1
        else:
            total += values_a[i] * values_b[j]
            i += 1
            j += 1
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def dissim_pass(rows: Rows, triplets: np.ndarray, C: Float, W: np.ndarray) -> tuple[float, int]:
    """Learn from the triplets in turn, as dissimilarities; sum of the losses and number of violating triplets."""
    indptr, indices, data, _ = rows
    width = 2 * widest_row(indptr)
    u_columns, v_columns = np.empty(width, np.uint32), np.empty(width, np.uint32)
    u, v = np.empty(width, np.float32), np.empty(width, np.float32)
    losses, violating = 0.0, 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        n_u = difference(query, positive, indptr, indices, data, u_columns, u)
        n_v = difference(query, negative, indptr, indices, data, v_columns, v)

        loss = np.float32(1.0) + _quadratic(u_columns, u, n_u, W) - _quadratic(v_columns, v, n_v, W)
        if loss <= 0.0:
            continue
        losses += float(loss)
        violating += 1

        u_norm, v_norm = squared_norm(u, n_u), squared_norm(v, n_v)
        both = _inner(u_columns, u, n_u, v_columns, v, n_v)
        norm = u_norm * u_norm + v_norm * v_norm - np.float32(2.0) * both * both
        # Equal or opposite u and v leave nothing to learn from; rounding may leave a little less than nothing.
        if norm <= np.float32(1e-6) * (u_norm + v_norm) * (u_norm + v_norm):
            continue
        tau = np.float32(min(C, loss / norm))
        for i in range(n_u):
            add_to_row(W, u_columns[i], -tau * u[i], u_columns, u, n_u)
        for i in range(n_v):
            add_to_row(W, v_columns[i], tau * v[i], v_columns, v, n_v)
    return losses, violating


@dataclass(kw_only=True, repr=False, eq=False)
class OASIS(FitsTriplets, WhiteningMixin, OnlineLearner):
    """Online Algorithm for Scalable Image Similarity learning.

    Parameters
    ----------
    C : float, default=0.1
        Aggressiveness: the largest step tau.
    n_steps : int or None, default=None
        Triplets. None: 4,000,000, or 1,000 per image if that is more.
    init : {"identity", "zero"}, default="identity"
        W before the first triplet. "identity" starts at the inner product of the vectors (with "dissim" at the squared
        Euclidean distance, which on unit rows ranks alike with margins twice as large).
    whiten : bool or "auto", default="auto"
        Learn in vectors whitened by the scatter within classes (`visterm.learners.whitening`): a better start than the
        vectors themselves where they are dense. The gallery side stays X. "auto": where a quarter of the entries or
        more are not zero, up to 4,096 numbers per vector, unless `variant` is "dissim".
    variant : {None, "symmetric", "online-symmetric", "dissim", "psd"}, default=None
        "symmetric" projects W on the symmetric matrices after learning (Proj-OASIS), "online-symmetric" after every
        triplet, "dissim" learns S(a, b) = -(a - b)' W (a - b), "psd" projects on the positive semi-definite matrices
        after learning.
    pairs_per_query : int, default=256
        Pairs (p+, p-) drawn per query drawn. W is read and written once for all of them, so that more pairs cost less
        each; the precision of as many triplets is a little lower, that of as many seconds higher. The paper draws one.
        The images then take turns at being the query, instead of being drawn independently.
    n_rankers : int, default=1
        Models trained on triplet streams of their own; W is their mean (section 5.4). Each sees `n_steps` triplets.
    mix_every : int, optional
        Iterative parameter mixing: each ranker draws its queries from a shard of its own, and every so many triplets (a
        multiple of `pass_steps`) all continue from their mean.
    lock_free : bool, default=False
        `n_jobs` threads learn into one W at the same time, each from triplets of its own, without waiting for each
        other (Hogwild). The model then depends on how they happen to run.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.
    psd_every : int, optional
        With "psd", project also while learning, every so many triplets: a multiple of `pass_steps`.
    click_cutoff, check_negatives, balance : see `TripletSampler`
        How triplets are drawn; `click_cutoff` is `cutoff` there.
    record_teachers : bool, default=False
        Record which images taught what, in `teachers_`: 8 bytes for each pair of images that a step joined.
    n_jobs : int, optional
        Threads that learn one model together, or among which the rankers are shared out, or that are `lock_free`. Only
        then does the model depend on it.

    Attributes
    ----------
    W_ : float32 array of shape (d, d)
        Of whitened vectors, where they are whitened.
    mean_, whitening_ : float32 arrays of shape (d,) and (d, d)
        Of the whitening, where there is one.
    teachers_ : CSR array of float32, shape (n_images, n_images)
        With `record_teachers`, what the steps joined: at (a, b) the sum of tau over the steps in which image a was the
        query and b the relevant image, less those in which b was the irrelevant one. With X the images that it was
        fitted on, W is its start plus X' teachers X; see `Teachers`. Images of each `partial_fit` follow those before.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Notes
    -----
    The query side is Q W and the gallery side X itself, or with "dissim" [Q (W + W'), 1] and [X, -x' W x].

    Triplets are learned in blocks of queries, which gives the model of the steps one by one up to rounding: `blocks`
    has the derivation. A triplet takes time in proportion to nnz(p+) + nnz(p-), and a query, with all of its pairs, to
    nnz(q) d. With few pairs a query and few non-zeros, and with "online-symmetric" and "dissim", each triplet is
    learned by itself, in proportion to nnz(q) (nnz(p+) + nnz(p-)) and on one thread: a step of "online-symmetric"
    changes the columns of W at the query too, and "dissim" has no vector that all pairs of a query share.

    With `distribute`, rankers learn elsewhere, in place of `n_jobs` threads here; the model is the same. A pass sends
    a ranker its W and the images of its triplets, and gets W back.

    Peak memory, in units of the 4 d^2 bytes of W: 1; 2 with `validation_fraction` unless `refit`; one more for each
    ranker with `n_rankers` > 1; 3 while "psd" projects. Blocks take up to 2 kB a dimension beside it. "identity" and
    "zero" are pages that the system hands out when they are first written, so that a W of which few rows were learned
    takes less. W larger than 32 MB is kept on huge pages where the system grants them (NumPy asks).

    `teachers_` is that of W: after early stopping that of the refit or of the best pass, of several rankers the mean,
    and of "symmetric" and "online-symmetric" symmetric as well. It is absent with "psd", as a projection is no sum over
    images; with "dissim", whose steps join differences of images; and with `lock_free`, where threads overwrite some of
    each other's steps. A learner that was fitted without it does not record what it learns later.

    Departures from the paper: W is float32. `whiten` is ours, as are `pairs_per_query` > 1, with queries in turn,
    `mix_every` and `lock_free`: `OASIS(whiten=False, pairs_per_query=1)` learns as the paper does. The similarity of
    "dissim" leaves out -q' W q, which is the same for all images of a query's ranking. Early stopping measures the W
    that is learned, before "symmetric" and "psd" project it.

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large Scale Online Learning of Image Similarity through Ranking.
    Journal of Machine Learning Research 11, 1109-1135, 2010.

    K. Hall, S. Gilpin, G. Mann: MapReduce/Bigtable for Distributed Optimization. NIPS Workshop on Learning on Cores,
    Clusters and Clouds, 2010 (`mix_every`).

    F. Niu, B. Recht, C. Re, S. Wright: Hogwild! A Lock-Free Approach to Parallelizing Stochastic Gradient Descent.
    NIPS 24, 2011 (`lock_free`).

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import OASIS
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = OASIS(n_steps=5000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> ranks = learner.similarity(X[:1], X[1:]).argmax()
    >>> int(ranks)
    0
    """

    linear = True
    distributes = True
    _learned = ("W_", "teachers_")
    _steps = (4_000_000, 1_000)
    W_: np.ndarray = field(init=False)  # (d, d)
    ranker_W_: np.ndarray = field(init=False)  # (n_rankers, d, d), while they learn
    teachers_: Any = field(init=False)  # CSR (n_images, n_images)

    C: float = 0.1
    n_steps: int | None = None
    init: str = "identity"
    whiten: bool | str = "auto"
    variant: str | None = None
    pairs_per_query: int = 256
    n_rankers: int = 1
    mix_every: int | None = None
    lock_free: bool = False
    validation_fraction: float | None = None
    patience: int | None = 5
    refit: bool = True
    pass_steps: int = 250_000
    psd_every: int | None = None
    click_cutoff: float | str | None = None
    check_negatives: bool = True
    balance: str = "image"
    record_teachers: bool = False
    random_state: Any = None
    n_jobs: int | None = None

    # -- the two sides -------------------------------------------------------------------------------------------------

    @property
    def reads_rows(self) -> bool:  # type: ignore[override]  # read only, as the base class uses it
        """Whether `fit` reads dense images by rows: where they are learned in blocks of queries."""
        return self.variant not in ("dissim", "online-symmetric")

    @property
    def whitens(self) -> bool:  # type: ignore[override]  # read only, as the base class uses it
        """Whether it may learn in whitened vectors: not with "dissim", whose gallery side would change with them."""
        return self.variant != "dissim"

    @property
    def begins_at(self) -> str:  # type: ignore[override]  # read only, as the base class uses it
        """Start of learning; see `SimilarityLearner`."""
        if self.init == "zero":
            return "nothing"
        return "model" if self.variant == "dissim" else "vectors"

    def _sides(self) -> Sides:
        """Q W and X, or with "dissim" [Q (W + W'), 1] and [X, -x' W x]; labels are not read."""
        if self.variant == "dissim":  # W is symmetric up to rounding: every update is
            return mahalanobis(self._matrix)
        return bilinear(lambda Z: product(Z, self._matrix()), self._matrix, self._whitening)

    def _matrix(self) -> np.ndarray:
        return np.asarray(self.W_)

    def symmetry_index(self) -> float:
        """rho(W) = |sym(W)|^2 / |W|^2 of section 6.1: 1 if W is symmetric, 0 if antisymmetric."""
        check_is_fitted(self)
        total, crossed = 0.0, 0.0
        for rows, columns in _blocks(len(self.W_)):
            a, b = np.asarray(self.W_[rows, columns], float), np.asarray(self.W_[columns, rows], float).T
            times = 1 if rows == columns else 2
            total += times * (np.vdot(a, a) + np.vdot(b, b)) / 2
            crossed += times * np.vdot(a, b)
        return float((total + crossed) / (2 * total)) if total else 1.0

    def embedding(self) -> np.ndarray:
        """A of shape (rank, d) with A' A the positive semi-definite part of sym(W); all of W for "psd".

        Then x' W y = (A x)' (A y): an embedding for plots and for other indexes. With `whiten`, W is what vectors less
        their mean are compared by. Takes O(d^3) time.
        """
        check_is_fitted(self)
        W = np.array(self.W_, np.float32)
        _symmetrise(W)
        embedding = positive_part(W).T
        return embedding if self._whitening is None else self._whitening.back(embedding)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self, *, fitted: bool) -> None:
        check_positive("C", self.C)
        check_choice("init", self.init, ("identity", "zero"))
        check_whiten(self.whiten)
        if self.whiten is True and self.variant == "dissim":
            raise ValueError("whiten=True does not go with variant='dissim', whose gallery side would change with it")
        check_choice("variant", self.variant, (None, "symmetric", "online-symmetric", "dissim", "psd"))
        if fitted and self.variant == "dissim" and self.is_whitened():
            raise ValueError("fitted in whitened vectors, which variant='dissim' does not compare; use fit")
        check_integer("pairs_per_query", self.pairs_per_query, minimum=1)
        check_integer("n_rankers", self.n_rankers, minimum=1)
        if self.lock_free and self.n_rankers > 1:
            raise ValueError("lock_free is for threads that share one W; n_rankers must be 1")
        if self.mix_every is not None:
            check_integer("mix_every", self.mix_every, minimum=1)
            if self.n_rankers == 1 or self.mix_every % self.pass_steps:
                raise ValueError(
                    f"mix_every goes with n_rankers > 1 and is a multiple of pass_steps={self.pass_steps},"
                    f" got {self.mix_every} and n_rankers={self.n_rankers}"
                )
        if self.psd_every is not None:
            check_integer("psd_every", self.psd_every, minimum=1)
            if self.variant != "psd" or self.psd_every % self.pass_steps:
                raise ValueError(
                    f"psd_every goes with variant='psd' and is a multiple of pass_steps={self.pass_steps},"
                    f" got {self.psd_every} and {self.variant!r}"
                )

    def _start(self) -> None:
        W = self._zeros("W_", (self.n_features_in_, self.n_features_in_))
        if self.init == "identity":
            np.fill_diagonal(W, 1.0)
        self.W_ = W
        if self.n_rankers > 1:
            self.ranker_W_ = np.repeat(W[None], self.n_rankers, axis=0)
        self.__dict__.pop("teachers_", None)
        searches = self.phase_ == "search" and self._refits()  # what the search learns is not the model
        if self.record_teachers and not searches and self.variant not in ("psd", "dissim") and not self.lock_free:
            self.teachers_ = sp.csr_array((self.n_images_, self.n_images_), dtype=np.float32)

    def _step_cost(self, rows: Rows) -> StepCost:
        pairs = self.pairs_per_query
        if self.n_rankers > 1:  # their passes are as long as the transfers to a cluster ask for
            return StepCost(together=pairs)
        d, n, entry = self.n_features_in_, mean_entries(rows), entry_cost(rows, self.n_features_in_)
        if self.variant == "dissim":
            return StepCost(entry * 2 * min(2 * n, d) ** 2, pairs)
        if self.variant == "online-symmetric" or not block_size(rows, d, pairs):
            return StepCost(entry * 2 * n**2, pairs)
        products = 0.1 if dense_rows(rows, d) is not None else 0.4  # of a query with W, shared among its pairs
        return StepCost(entry * 2 * n + products * n * d / pairs, pairs)

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        rows, sampler = training.rows, training.sampler
        if self.n_rankers > 1 and "ranker_W_" not in vars(self):  # more is learned
            self.ranker_W_ = np.repeat(self.W_[None], self.n_rankers, axis=0)
        n_threads = joblib.effective_n_jobs(self.n_jobs)
        if self.lock_free:
            shares = np.diff(np.linspace(0, n_steps, n_threads + 1).astype(int))
            ahead = np.cumsum(shares) - shares
            works = [(n, 0, first, self.W_) for n, first in zip(shares.tolist(), ahead.tolist(), strict=True) if n]
        elif self.n_rankers == 1:
            works = [(n_steps, 0, 0, self.W_)]
        else:
            works = [(n_steps, k, 0, W) for k, W in enumerate(self.ranker_W_)]
        settings: Settings = float(self.C), self.variant, block_size(rows, self.n_features_in_, self.pairs_per_query)
        if training.distribute is not None and self.n_rankers > 1:
            drawn = [self._draw(sampler, *which) for *which, _ in works]
            tasks = ((*_needed(rows, triplets), settings, W) for triplets, W in zip(drawn, self.ranker_W_, strict=True))
            outcomes = []
            for W, triplets, (learned, taus, *figures) in zip(
                self.ranker_W_, drawn, training.distribute(_learn_there, tasks), strict=True
            ):
                W[:] = learned
                self._record_steps(training, triplets, taus)
                outcomes.append(figures)
        else:
            with tasks_at_once(self.n_jobs) as run:

                def learn(work: Any, inner_run: Run = map) -> Any:
                    triplets = self._draw(sampler, *work[:-1])
                    return triplets, *_learn(rows, triplets, settings, work[-1], inner_run)[1:]

                outcomes = []
                for triplets, taus, *figures in [learn(works[0], run)] if len(works) == 1 else run(learn, works):
                    self._record_steps(training, triplets, taus)
                    outcomes.append(figures)
        self._mix(n_steps)
        if self.psd_every is not None and (self.n_steps_ + n_steps) % self.psd_every == 0:
            for W in [self.W_] if self.n_rankers == 1 else self.ranker_W_:
                _project_psd(W)
            if self.n_rankers > 1:
                np.mean(self.ranker_W_, axis=0, out=self.W_)
        losses, violating = np.sum(outcomes, axis=0) / (1 if self.lock_free else self.n_rankers)
        return losses, violating

    def _mix(self, n_steps: int) -> None:
        """Set W to the mean of the rankers; with `mix_every`, the rankers continue from it."""
        if self.n_rankers > 1:
            np.mean(self.ranker_W_, axis=0, out=self.W_)
            if self.mix_every is not None and (self.n_steps_ + n_steps) % self.mix_every == 0:
                self.ranker_W_[:] = self.W_

    def _draw(self, sampler: TripletSampler, n_steps: int, ranker: int = 0, ahead: int = 0) -> np.ndarray:
        """Triplets of a ranker, after those learned and `ahead` more."""
        shard = None if self.mix_every is None else (ranker, self.n_rankers)
        first, pairs = self.n_steps_ + ahead, self.pairs_per_query
        return sampler.draw_pass((self.seed_, ranker), first, n_steps, pairs_per_query=pairs, shard=shard)

    def _record_steps(self, training: Training, triplets: np.ndarray, taus: np.ndarray) -> None:
        """Add steps of a ranker to the table; W is the mean of the rankers."""
        if self.has_teachers:
            first = self.teachers_.shape[0] - self.n_images_  # images of fits before this one
            images = first + training.images.astype(np.int32)
            self.teachers_ = with_steps(self.teachers_, images[triplets], taus / np.float32(self.n_rankers))

    def _settle(self, moment: str, training: Training | None) -> None:
        if moment != "end":
            return
        self.__dict__.pop("ranker_W_", None)
        if self.has_teachers and self.variant in ("symmetric", "online-symmetric"):
            self.teachers_ = sp.csr_array(self.teachers_ + self.teachers_.T)
            self.teachers_.data *= np.float32(0.5)
        if self.variant == "symmetric":
            _symmetrise(self.W_)
        elif self.variant == "psd":
            _project_psd(self.W_)


def _learn(rows: Rows, triplets: np.ndarray, settings: Settings, W: np.ndarray, run: Run = map) -> Any:
    """Learn from triplets, in blocks of queries or one by one; W, the taus, the sum of losses, how many violated."""
    C, variant, size = settings
    taus = np.zeros(len(triplets), np.float32)
    if variant == "dissim":
        return W, taus, *dissim_pass(rows, triplets, C, W)
    if variant == "online-symmetric" or not size:
        return W, taus, *oasis_pass(rows, triplets, C, variant == "online-symmetric", W, taus)
    return W, taus, *learn_blocks(rows, triplets, C, W, size, run, taus=taus)


def _learn_there(rows: Rows, triplets: np.ndarray, settings: Settings, W: np.ndarray) -> Any:
    """`_learn` on another machine, where W may have arrived as read-only."""
    with one_thread():
        return _learn(rows, triplets, settings, writable(W))


def _needed(rows: Rows, triplets: np.ndarray) -> tuple[Rows, np.ndarray]:
    """The images of some triplets alone, and the triplets by their numbers among these."""
    indptr, indices, data, norms = rows
    images, places = np.unique(triplets, return_inverse=True)
    lengths = indptr[images + 1] - indptr[images]
    starts = np.concatenate([[0], np.cumsum(lengths)])
    entries = np.repeat(indptr[images] - starts[:-1], lengths) + np.arange(starts[-1])
    columns = indices[entries] if len(indices) else indices
    needed = readonly(starts), readonly(columns), readonly(data[entries]), readonly(norms[images])
    return needed, places.reshape(triplets.shape).astype(triplets.dtype)


def _blocks(d: int, size: int = 1024) -> Any:
    """Pairs of slices that cover the upper triangle of a (d, d) matrix: no copy of W is made."""
    slices = [slice(start, min(start + size, d)) for start in range(0, d, size)]
    return [(rows, columns) for i, rows in enumerate(slices) for columns in slices[i:]]


def _symmetrise(W: np.ndarray) -> None:
    """W <- (W + W') / 2, in place."""
    for rows, columns in _blocks(len(W)):
        mean = (W[rows, columns] + W[columns, rows].T) / 2
        W[rows, columns], W[columns, rows] = mean, mean.T


def _project_psd(W: np.ndarray) -> None:
    """W <- the nearest positive semi-definite matrix, in place."""
    _symmetrise(W)
    root = positive_part(W)
    np.matmul(root, root.T, out=W)
