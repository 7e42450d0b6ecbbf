"""LEGO: a Mahalanobis distance learned online, kept close to the present one by the LogDet divergence.

Jain, Kulis, Dhillon, Grauman: Online Metric Learning and Fast Similarity Search, NIPS 21, 2008. Each step solves

    A <- argmin  D(A, A_t) + eta/2 loss(A)^2,    D(A, A_t) = tr(A A_t^-1) - log det(A A_t^-1) - d

exactly, so that A stays positive definite whatever eta is. The paper's loss is d_A(z) - y, where d_A(z) = z' A z is to
be y; then A_t+1 = A_t - s/(1 + s d) A_t z z' A_t with d = z' A_t z, s = eta (ybar - y), and ybar = d / (1 + s d) the
new distance, the root of eta d ybar^2 + (1 - eta y d) ybar - d = 0.

Chechik, Sharma, Shalit and Bengio (JMLR 11, 2010, section 5.3.1) compare OASIS with a LEGO whose loss is incurred by
images of one class that are farther apart than one distance, and by images of two classes that are nearer than another.
This is loss="pairs": with u = q - p+ and v = q - p-,

    loss(A) = max(0, u' A u - near), the paper's step with y = near;    then max(0, far - v' A v), with y = far

They also speak of learning from relative distances. This is loss="triplet":

    loss(A) = max(0, margin + u' A u - v' A v)

The same problem's solution is then A^-1 = A_t^-1 + t (u u' - v v') with t = eta loss(A): where p- = q it is the paper's
step for z = u and y = -margin. With a = u' A_t u, b = v' A_t v, c = u' A_t v,

    loss(A) = margin + (a - b - 2 t D) / det,    det = 1 + t (a - b) - t^2 D,    D = a b - c^2

falls with t, so that t = eta loss(A) has one root with det > 0, and A is two of the paper's rank-one steps:

    A_u = A_t - t/(1 + t a) (A_t u)(A_t u)',    A = A_u + t (1 + t a)/det (A_u v)(A_u v)'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from numba import njit

from visterm.learners.checks import check_choice, check_positive
from visterm.learners.draws import stream
from visterm.learners.loop import StepCost, Training
from visterm.learners.mahalanobis import MahalanobisMixin
from visterm.learners.online import OnlineLearner
from visterm.learners.rows import FASTMATH, Rows, matrix_of, mean_entries
from visterm.learners.sums import one_thread

_COLUMNS = 512  # columns of a large Cholesky decomposition that are computed at a time: half a second at d = 10,000
_BISECTIONS = 60  # takes an interval to the last bits of a double
_BLOCK = 128  # triplets that share their matrix products
_TILE = 256  # rows and columns of A that are added to at once


@njit(cache=True, nogil=True, error_model="numpy")
def lego_step(a: float, b: float, c: float, eta: float, margin: float) -> tuple[float, float]:
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


# A step needs nothing but inner products, so that a block of triplets shares its matrix products: with Z the vectors u
# and v of all of them, Y = Z A and Z A Z' are computed once. A step is A <- A - g g' + h h', g and h combinations of
# A u and A v, and so of rows of Y: it changes the inner products by what Z g and Z h say, and A with the others' steps.
# Sums within a block are in double precision: large steps, one after the other, would amplify their rounding.


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def _add_steps(
    G: np.ndarray,
    H: np.ndarray,
    of_G: np.ndarray,
    of_H: np.ndarray,
    k: int,
    z: int,
    out: np.ndarray,
    coefficients: np.ndarray,
) -> None:
    """Update row z of Z A Z' in `out`, and its coefficients over the rows of Y, to the current A."""
    coefficients[:] = 0.0
    coefficients[z] = 1.0
    for i in range(k):
        g, h = G[i, z], H[i, z]
        for j in range(len(out)):
            out[j] += h * H[i, j] - g * G[i, j]
            coefficients[j] += h * of_H[i, j] - g * of_G[i, j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def lego_block(
    products: np.ndarray, eta: float, margin: float, of_G: np.ndarray, of_H: np.ndarray
) -> tuple[int, float]:
    """Learn from n triplets in turn, in inner products; return the number of steps and the sum of the losses.

    `products` is Z A Z', (2 n, 2 n), with all u before all v. The steps are A <- A - g g' + h h' with the first rows of
    of_G Y and of_H Y, of shape (n, 2 n), as g and h.
    """
    n = len(products) // 2
    G, H = np.empty((n, 2 * n)), np.empty((n, 2 * n))  # Z g and Z h of each step
    lengths = np.empty(2 * n)  # z' A z
    for j in range(2 * n):
        lengths[j] = products[j, j]
    k, losses = 0, 0.0
    for step in range(n):
        # Rounding may leave a little less than nothing.
        a, b = max(float(lengths[step]), 0.0), max(float(lengths[n + step]), 0.0)
        loss = margin + a - b
        if loss <= 0.0:
            continue
        losses += loss

        g, h, of_g, of_h = G[k], H[k], of_G[k], of_H[k]
        g[:], h[:] = products[step], products[n + step]  # Z A u and Z A v
        _add_steps(G, H, of_G, of_H, k, step, g, of_g)
        _add_steps(G, H, of_G, of_H, k, n + step, h, of_h)
        c = float(g[n + step])
        t, det = lego_step(a, b, c, eta, margin)
        # Both rank-one steps at once, as A - g g' + h h': A stays symmetric to the last bit.
        down = np.sqrt(t / (1 + t * a))
        up = np.sqrt(t * (1 + t * a) / det)
        back = t * c / (1 + t * a)
        for j in range(2 * n):
            h[j] = up * (h[j] - back * g[j])
            g[j] *= down
            of_h[j] = up * (of_h[j] - back * of_g[j])
            of_g[j] *= down
            lengths[j] += h[j] * h[j] - g[j] * g[j]
        k += 1
    return k, losses


@njit(cache=True, nogil=True, error_model="numpy")
def pair_step(d: float, y: float, eta: float) -> float:
    """Step s of the paper for a distance d > 0 that is to be y."""
    b = 1.0 - eta * y * d
    root = np.sqrt(b * b + 4.0 * eta * d * d)
    # The root of the quadratic equation, in the form that subtracts no numbers of nearly the same size.
    new = 2.0 * d / (b + root) if b > 0.0 else (root - b) / (2.0 * eta * d)
    return eta * (new - y)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def lego_pairs_block(
    products: np.ndarray, eta: float, near: float, far: float, of_F: np.ndarray, signs: np.ndarray
) -> tuple[int, float]:
    """As `lego_block`, from the pairs (q, p+) and (q, p-) of each triplet in turn.

    The steps are A <- A + sign f f' with the first rows of of_F Y, of shape (2 n, 2 n), as f.
    """
    n = len(products) // 2
    F = np.empty((2 * n, 2 * n), np.float32)  # Z f of each step
    lengths = np.empty(2 * n, np.float32)  # z' A z
    for j in range(2 * n):
        lengths[j] = products[j, j]
    k, losses = 0, 0.0
    for pair in range(2 * n):
        z = pair // 2 + n * (pair % 2)
        d, y = max(float(lengths[z]), 0.0), far if pair % 2 else near
        loss = far - d if pair % 2 else d - near
        if loss <= 0.0:
            continue
        losses += loss
        if d == 0.0:  # equal images stay so under every A
            signs[k], of_F[k, :] = 1, 0.0
            F[k, :] = 0.0
            k += 1
            continue
        f, of_f = F[k], of_F[k]
        f[:], of_f[:] = products[z], np.float32(0.0)
        of_f[z] = np.float32(1.0)
        for i in range(k):
            amount = np.float32(signs[i]) * F[i, z]
            for j in range(2 * n):
                f[j] += amount * F[i, j]
                of_f[j] += amount * of_F[i, j]
        s = pair_step(d, y, eta)
        signs[k] = -1 if s > 0.0 else 1
        scale = np.float32(np.sqrt(abs(s) / (1.0 + s * d)))
        for j in range(2 * n):
            f[j] *= scale
            of_f[j] *= scale
            lengths[j] += np.float32(signs[k]) * f[j] * f[j]
        k += 1
    return k, losses


def lego_pass(X: Any, triplets: np.ndarray, eta: float, margin: float, A: np.ndarray) -> tuple[float, int]:
    """Learn from the triplets in turn, X sparse or dense; sum of the losses and number of violating triplets."""
    of_G, of_H = np.empty((2, _BLOCK, 2 * _BLOCK))

    def learn(products: np.ndarray, Y: np.ndarray) -> tuple[int, float]:
        width = len(Y)
        k, loss = lego_block(products, eta, margin, of_G[:, :width], of_H[:, :width])
        G, H = ((steps[:k, :width] @ Y).astype(np.float32) for steps in (of_G, of_H))
        _add_squares(A, G, H)
        return k, loss

    return _learn_blocks(X, triplets, A, learn)


def lego_pairs_pass(
    X: Any, triplets: np.ndarray, eta: float, near: float, far: float, A: np.ndarray
) -> tuple[float, int]:
    """Learn from both pairs of the triplets in turn; sum of the losses and number of violating pairs."""
    of_F, signs = np.empty((2 * _BLOCK, 2 * _BLOCK), np.float32), np.empty(2 * _BLOCK, np.int8)

    def learn(products: np.ndarray, Y: np.ndarray) -> tuple[int, float]:
        width = len(Y)
        k, loss = lego_pairs_block(products, eta, near, far, of_F[:, :width], signs)
        steps, away = of_F[:k, :width], signs[:k] < 0
        _add_squares(A, steps[away] @ Y, steps[~away] @ Y)
        return k, loss

    return _learn_blocks(X, triplets, A, learn)


def _learn_blocks(X: Any, triplets: np.ndarray, A: np.ndarray, learn: Callable) -> tuple[float, int]:
    """Call `learn(Z A Z', Z A)` for each block of triplets; sum of the losses and of the violations it returns."""
    losses, violating = 0.0, 0
    with one_thread():
        for start in range(0, len(triplets), _BLOCK):
            query, positive, negative = triplets[start : start + _BLOCK].T
            Z = X[np.tile(query, 2)] - X[np.concatenate([positive, negative])]
            Y = Z @ A
            products = np.ascontiguousarray((Z @ Y.T).T)
            if products.diagonal().min() < 0.0:  # rounding has made A indefinite
                _lift(A, lambda: None)
                Y = Z @ A
                products = np.ascontiguousarray((Z @ Y.T).T)
            k, loss = learn(products, Y)
            losses, violating = losses + loss, violating + k
    return losses, violating


def _add_squares(A: np.ndarray, G: np.ndarray, H: np.ndarray) -> None:
    """A <- A - G' G + H' H, in place: tiles below the diagonal, which are mirrored so that A stays symmetric."""
    slices = [slice(start, start + _TILE) for start in range(0, len(A), _TILE)]
    for i, rows in enumerate(slices):
        for columns in slices[: i + 1]:
            A[rows, columns] += H[:, rows].T @ H[:, columns] - G[:, rows].T @ G[:, columns]
            if rows != columns:
                A[columns, rows] = A[rows, columns].T


@dataclass(kw_only=True, repr=False, eq=False)
class LEGO(MahalanobisMixin, OnlineLearner):
    """LogDet Exact Gradient Online metric learning, from pairs of images or from relative distances.

    Parameters
    ----------
    loss : {"triplet", "pairs"}, default="triplet"
        "triplet" asks that p- is farther from the query than p+, by `margin`; "pairs" that images of one class are at
        most `near` apart and images of two classes at least `far`, as in the comparison with OASIS.
    eta : float, default=0.02
        Weight of a loss against staying near the present A.
    margin : float, default=1.0
        By how much p- is to be farther from the query than p+, in squared distances; unit rows begin at 0 to 2. Of
        "triplet" alone.
    near, far : float, default=1.0 and 2.0
        Squared distances of "pairs" alone. Unit rows that share no visterm begin at 2.
    n_steps : int, default=50_000
        Triplets; with "pairs" each gives the pairs (q, p+) and (q, p-).
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.
    click_cutoff, check_negatives : see `TripletSampler`
        How triplets are drawn; `click_cutoff` is `cutoff` there.

    Attributes
    ----------
    A_ : float32 array of shape (d, d)
        Symmetric, positive definite; the identity before the first triplet.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...

    Notes
    -----
    A triplet takes d operations for each entry of u and v, one with a loss 2 d^2 more: the learner is for d of a few
    thousand. The steps of a block of 128 triplets are added as matrix products, so that A is read and written once per
    block. That changes results by rounding only.

    Peak memory, in units of the 4 d^2 bytes of A: 2; 3 with `validation_fraction` unless `refit`; beside it 3 kB per
    dimension. One is a copy that is factored after each pass: where eta is so large that eigenvalues of A fall below
    the rounding of float32, they are lifted to it, which takes 9 more for that moment.

    Departures from the paper: with "triplet" the loss of relative distances in place of that of a distance and its
    target, solved as the module's first lines show, and its step t found by bisection. A triplet or pair without a loss
    changes nothing. With "pairs" as many pairs of one class as of two are drawn; JMLR 11 does not give the two
    distances. In `history_`, `loss` and `violating` are then means over pairs. A is float32; where rounding
    makes it indefinite, its eigenvalues are lifted. The similarity leaves out
    -q' A q, which is the same for all images of a query's ranking.

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
    A_: np.ndarray = field(init=False)  # (d, d)

    loss: str = "triplet"
    eta: float = 0.02
    margin: float = 1.0
    near: float = 1.0
    far: float = 2.0
    n_steps: int = 50_000
    validation_fraction: float | None = None
    patience: int | None = 3
    refit: bool = True
    pass_steps: int = 5000
    click_cutoff: float | str | None = None
    check_negatives: bool = True
    random_state: Any = None

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self, *, fitted: bool) -> None:
        check_choice("loss", self.loss, ("triplet", "pairs"))
        for name in ("eta", "margin", "near", "far"):
            check_positive(name, getattr(self, name))
        if self.near >= self.far:
            raise ValueError(f"near must be smaller than far, got {self.near!r} and {self.far!r}")

    def _start(self) -> None:
        self.A_ = np.eye(self.n_features_in_, dtype=np.float32)

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        triplets = training.sampler.draw(stream(self.seed_, 0, self.n_steps_), n_steps)
        X = matrix_of(training.rows, self.n_features_in_)
        if self.loss == "triplet":
            return lego_pass(X, triplets, float(self.eta), float(self.margin), self.A_)
        losses, violating = lego_pairs_pass(X, triplets, float(self.eta), float(self.near), float(self.far), self.A_)
        return losses / 2, violating / 2  # of a pair, as the loop divides by triplets

    def _step_cost(self, rows: Rows) -> StepCost:
        return StepCost(_step_nanoseconds(self.n_features_in_, mean_entries(rows)))

    def estimate(self, n_images: int, n_features: int, n_entries: int) -> tuple[float, float]:
        """Bytes and seconds of `fit`: see `OnlineLearner`, and Notes."""
        d = n_features
        steps = self.steps_for(n_images) * (2 if self.refit and self.validation_fraction else 1)
        factors = steps / self.pass_steps * d**3 / 3e10  # one Cholesky decomposition per pass
        return 12.0 * d**2, steps * _step_nanoseconds(d, n_entries / n_images) / 1e9 + factors

    def _settle(self, moment: str, training: Training | None) -> None:
        if moment == "pass" and training is not None:
            _lift(self.A_, training.report)


def _step_nanoseconds(d: int, entries: float) -> float:
    return d * (0.05 * d + 0.2 * min(2 * entries, d))


def _lift(A: np.ndarray, pause: Callable[[], None]) -> None:
    """Lift eigenvalues that rounding hides or makes negative to the size of rounding, in place.

    `pause` is called several times a second while they are looked for, when A is as it was.
    """
    floor = np.finfo(np.float32).eps * np.abs(A.diagonal()).sum()  # rounding may make it negative, too
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
