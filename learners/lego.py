"""LEGO: a Mahalanobis distance learned online, kept close to the present one by the LogDet divergence.

Jain, Kulis, Dhillon, Grauman: Online Metric Learning and Fast Similarity Search, NIPS 21, 2008. Each step solves

    A <- argmin  D(A, A_t) + eta/2 loss(A)^2,    D(A, A_t) = tr(A A_t^-1) - log det(A A_t^-1) - d

exactly, so that A stays positive definite whatever eta is. The paper's loss is d_A(z) - y, where d_A(z) = z' A z is to
be y; then A_t+1 = A_t - s/(1 + s d) A_t z z' A_t with d = z' A_t z, s = eta (ybar - y), and ybar = d / (1 + s d) the
new distance, the root of a quadratic equation. Here the loss is of relative distances, as Chechik, Sharma, Shalit and
Bengio (JMLR 11, 2010, section 5.3.1) used LEGO: with u = q - p+ and v = q - p-,

    loss(A) = max(0, margin + u' A u - v' A v)

The same problem's solution is A^-1 = A_t^-1 + t (u u' - v v') with t = eta loss(A): where p- = q it is the paper's step
for z = u and y = -margin. With a = u' A_t u, b = v' A_t v, c = u' A_t v,

    loss(A) = margin + (a - b - 2 t D) / det,    det = 1 + t (a - b) - t^2 D,    D = a b - c^2

falls with t, so that t = eta loss(A) has one root with det > 0, and A is two of the paper's rank-one steps:

    A_u = A_t - t/(1 + t a) (A_t u)(A_t u)',    A = A_u + t (1 + t a)/det (A_u v)(A_u v)'
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np
import scipy.linalg
from numba import njit

from .mahalanobis import MahalanobisMixin
from .oasis import difference, widest_row
from .online import FASTMATH, OnlineLearner, Rows, mean_entries
from .triplets import TripletSampler, stream

_COLUMNS = 512  # columns of a large Cholesky decomposition that are computed at a time: half a second at d = 10,000
_BISECTIONS = 60  # takes an interval to the last bits of a double


@njit(cache=True, nogil=True, error_model="numpy")
def lego_step(a, b, c, eta, margin):
    """Step t and det from a = u' A u, b = v' A v and c = u' A v, for a triplet with a loss."""
    D = max(a * b - c * c, 0.0)
    low, high = 0.0, eta * (margin + a - b)
    for _ in range(_BISECTIONS):
        t = (low + high) / 2
        det = 1 + t * (a - b) - t * t * D
        if det <= 0.0 or t > eta * (margin + (a - b - 2 * t * D) / det):
            high = t
        else:
            low = t
    # The lower end: there A is positive definite for sure.
    return low, 1 + low * (a - b) - low * low * D


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _product(A, columns, values, n, out):
    """Out = A x of a sparse x, for a symmetric A; x' A x."""
    out[:] = 0.0
    for i in range(n):
        row, value = A[columns[i]], values[i]
        for k in range(len(out)):
            out[k] += value * row[k]
    return _inner(columns, values, n, out)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _inner(columns, values, n, dense):
    """Inner product of a sparse vector and a dense one."""
    total = 0.0
    for i in range(n):
        total += values[i] * dense[columns[i]]
    return total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def lego_pass(rows, triplets, eta, margin, A):
    """Learn from the triplets in turn; sum of the losses and number of violating triplets."""
    indptr, indices, data, _ = rows
    width, d = 2 * widest_row(indptr), len(A)
    u_columns, v_columns = np.empty(width, np.uint32), np.empty(width, np.uint32)
    u, v = np.empty(width, np.float32), np.empty(width, np.float32)
    Au, Av = np.empty(d, np.float32), np.empty(d, np.float32)
    losses, violating = 0.0, 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        n_u = difference(query, positive, indptr, indices, data, u_columns, u)
        n_v = difference(query, negative, indptr, indices, data, v_columns, v)
        # Rounding may leave a little less than nothing.
        a = max(_product(A, u_columns, u, n_u, Au), 0.0)
        b = max(_product(A, v_columns, v, n_v, Av), 0.0)
        loss = margin + a - b
        if loss <= 0.0:
            continue
        losses += loss
        violating += 1

        c = _inner(u_columns, u, n_u, Av)
        t, det = lego_step(a, b, c, eta, margin)
        # Both rank-one steps at once, as A - g g' + h h': A stays symmetric to the last bit.
        down = np.float32(np.sqrt(t / (1 + t * a)))
        up = np.float32(np.sqrt(t * (1 + t * a) / det))
        back = np.float32(t * c / (1 + t * a))
        for k in range(d):
            Av[k] = up * (Av[k] - back * Au[k])
            Au[k] *= down
        for i in range(d):
            row, g, h = A[i], Au[i], Av[i]
            for k in range(d):
                row[k] += h * Av[k] - g * Au[k]
    return losses, violating


class LEGO(MahalanobisMixin, OnlineLearner):
    """LogDet Exact Gradient Online metric learning, from relative distances.

    Parameters
    ----------
    eta : float, default=0.02
        Weight of a triplet's loss against staying near the present A.
    margin : float, default=1.0
        By how much p- is to be farther from the query than p+, in squared distances; unit rows begin at 0 to 2.
    n_steps : int, default=20_000
        Triplets.
    validation_fraction : float, optional
        Share of each class held out for early stopping: A with the best mean average precision is kept.
    patience : int, optional
        Stop after this many validations without a better one; None runs all steps.
    refit : bool, default=False
        After early stopping, train again on all images for the best number of steps.
    pass_steps : int, default=1000
        Triplets per pass: the interval of history and callback, and of validation at first; see `OnlineLearner`.
    click_cutoff : float, optional
        `y` holds clicks (images x queries); see `TripletSampler`.
    check_negatives : bool, default=True
        See `TripletSampler`.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.

    Attributes
    ----------
    A_ : float32 array of shape (d, d)
        Symmetric, positive definite; the identity before the first triplet.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range or data that cannot be learned from.

    Notes
    -----
    A triplet with a loss takes d^2 operations, one without takes d for each entry of its images: the learner is for d
    of a few thousand at most. At d = 10,000 a triplet reads and writes the 400 MB of A.

    Peak memory, in units of the 4 d^2 bytes of A: 2; 3 with `validation_fraction` unless `refit`. One is a copy that is
    factored after each pass: where eta is so large that eigenvalues of A fall below the rounding of float32, they are
    lifted to it, which takes 9 more for that moment.

    Departures from the paper: the loss of relative distances in place of that of a distance and its target, solved as
    the module's first lines show, and its step t found by bisection. A triplet without a loss changes nothing. A is
    float32. The similarity leaves out -q' A q, which is the same for all images of a query's ranking.

    References
    ----------
    P. Jain, B. Kulis, I. S. Dhillon, K. Grauman: Online Metric Learning and Fast Similarity Search. Advances in Neural
    Information Processing Systems 21, 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import LEGO
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = LEGO(n_steps=1000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> ranks = learner.similarity(X[:1], X[1:]).argmax()
    >>> int(ranks)
    0
    """

    _learned = ("A_",)
    _state = (*OnlineLearner._state, "A_", "best_A_")
    A_: np.ndarray  # (d, d)

    def __init__(
        self,
        *,
        eta: float = 0.02,
        margin: float = 1.0,
        n_steps: int = 20_000,
        validation_fraction: float | None = None,
        patience: int | None = None,
        refit: bool = False,
        pass_steps: int = 1000,
        click_cutoff: float | None = None,
        check_negatives: bool = True,
        random_state: Any = None,
    ) -> None:
        self.eta = eta
        self.margin = margin
        self.n_steps = n_steps
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.refit = refit
        self.pass_steps = pass_steps
        self.click_cutoff = click_cutoff
        self.check_negatives = check_negatives
        self.random_state = random_state

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self) -> None:
        for name, value in (("eta", self.eta), ("margin", self.margin)):
            if not isinstance(value, Real) or not 0 < float(value) < np.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}")

    def _start(self) -> None:
        self.A_ = np.eye(self.n_features_in_, dtype=np.float32)

    def _pass(self, rows: Rows, sampler: TripletSampler, n_steps: int) -> tuple[float, float]:
        triplets = sampler.draw(stream(self.seed_, 0, self.n_steps_), n_steps)
        return lego_pass(rows, triplets, float(self.eta), float(self.margin), self.A_)

    def _step_cost(self, rows: Rows) -> float:
        d = self.n_features_in_
        return d * (0.5 * d + min(2 * mean_entries(rows), d))

    def _end_pass(self) -> None:
        _lift(self.A_, self._report_progress)


def _lift(A: np.ndarray, pause: Callable[[], None]) -> None:
    """Lift eigenvalues that rounding hides or makes negative to the size of rounding, in place.

    `pause` is called several times a second while they are looked for, when A is as it was.
    """
    floor = np.finfo(np.float32).eps * np.trace(A)
    lower = A.copy()
    np.fill_diagonal(lower, lower.diagonal() - floor)
    if not _is_positive_definite(lower, pause):
        values, vectors = scipy.linalg.eigh(A.astype(np.float64), check_finite=False)
        root = vectors * np.sqrt(np.maximum(values, 2 * floor))
        lifted = root @ root.T
        A[:] = (lifted + lifted.T) / 2


def _is_positive_definite(lower: np.ndarray, pause: Callable[[], None]) -> bool:
    """Whether there is a Cholesky decomposition of a symmetric matrix, which is overwritten."""
    size = _COLUMNS if len(lower) > 8 * _COLUMNS else len(lower)
    for start in range(0, len(lower), size):
        columns, below = slice(start, start + size), slice(start + size, None)
        lower[start:, columns] -= lower[start:, :start] @ lower[columns, :start].T
        try:
            corner = scipy.linalg.cholesky(lower[columns, columns], lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return False
        solved = scipy.linalg.solve_triangular(corner, lower[below, columns].T, lower=True, check_finite=False)
        lower[below, columns] = solved.T
        pause()
    return True
