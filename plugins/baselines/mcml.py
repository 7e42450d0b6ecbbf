"""MCML: the Mahalanobis distance under which the images of a class come nearest to falling into one point.

Globerson, Roweis: Metric Learning by Collapsing Classes, NIPS 18, 2005. With d_ij = (x_i - x_j)' A (x_i - x_j),

    p(j | i) = exp(-d_ij) / sum_{k != i} exp(-d_ik),    p0(j | i) = 1 / (n_i - 1) for j != i of the class of i, else 0
    minimise  f(A) = mean_i KL(p0(. | i) || p(. | i)) + trace_penalty tr(A)    over positive semi-definite A,

n_i being the images of the class of i. f is convex. With S = W + W' and W[i, j] = (p0(j | i) - p(j | i)) / n,

    df/dA = sum_ij W[i, j] (x_i - x_j)(x_i - x_j)' + trace_penalty I = X' (diag(S 1) - S) X + trace_penalty I

L-BFGS knows no cone of matrices. It runs over a square L with A = L' L, where df/dL = 2 L df/dA and A is never left
indefinite. No minimum is lost or gained: where f(L' L) has a local minimum, either L has full rank and df/dA = 0, or it
has not, and df/dA is positive semi-definite with L df/dA = 0; both are the conditions of the convex problem's minimum.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from visterm.learners.loop import Training
from visterm.learners.mahalanobis import MahalanobisMixin
from visterm.learners.online import OnlineLearner
from visterm.learners.rows import matrix_of

_log = logging.getLogger(__name__)

_MEMORY = 10  # pairs of steps and gradients that L-BFGS keeps
_MUCH_WORK = 2e9  # multiplications of a product that are done at once: a fraction of a second
_MUCH_MEMORY = 4e9  # bytes that are worth a word before they are taken


def _product(a: np.ndarray, b: np.ndarray, pause: Callable[[], None]) -> np.ndarray:
    """``a @ b``, a large product some rows at a time with `pause` called after each."""
    n_rows = max(1, int(_MUCH_WORK / b.size))
    if n_rows >= len(a):
        return a @ b
    out = np.empty((len(a), b.shape[1]))
    for start in range(0, len(a), n_rows):
        np.matmul(a[start : start + n_rows], b, out=out[start : start + n_rows])
        pause()
    return out


def collapse_loss(
    L: np.ndarray, X: Any, classes: np.ndarray, trace_penalty: float, pause: Callable[[], None] = lambda: None
) -> Any:
    """f(L' L), its gradient (d, d), and how many images have one of another class nearest to them.

    X is float64, CSR or dense; `pause` is called several times a second.
    """
    same = classes[:, None] == classes  # (n, n)
    np.fill_diagonal(same, False)
    related = same.sum(axis=1)
    asks = related > 0  # images alone in their class have no p0
    n = np.count_nonzero(asks)

    Z = X @ L.T if sp.issparse(X) else _product(X, L.T, pause)  # (n, d)
    squares = np.einsum("ij,ij->i", Z, Z)
    logits = 2 * _product(Z, Z.T, pause)
    logits -= squares
    logits -= squares[:, None]  # -d_ij
    mean_distance = -np.where(same, logits, 0).sum(axis=1)[asks] / related[asks]
    np.fill_diagonal(logits, -np.inf)
    nearest = logits.argmax(axis=1)
    top = logits[np.arange(len(logits)), nearest]
    pause()
    p = np.exp(logits - top[:, None], out=logits)
    total = p.sum(axis=1)
    # KL = -sum_j p0 log(n_i - 1) - sum_j p0 log p
    divergence = mean_distance + (top + np.log(total))[asks] - np.log(related[asks])

    W = p
    W /= -total[:, None]
    W += same / np.maximum(related, 1)[:, None]
    W[~asks] = 0
    S = W + W.T
    pulls = S.sum(axis=1)[:, None] * Z - _product(S, Z, pause)  # (n, d)
    gradient = (X.T @ pulls if sp.issparse(X) else _product(X.T, pulls, pause)).T * (2 / n)  # (d, d)
    gradient += 2 * trace_penalty * L
    loss = divergence.mean() + trace_penalty * np.vdot(L, L)
    return float(loss), gradient, int(np.count_nonzero(~same[np.arange(len(same)), nearest] & asks))


@dataclass(kw_only=True, repr=False, eq=False)
class MCML(MahalanobisMixin, OnlineLearner):
    """Maximally Collapsing Metric Learning, by L-BFGS.

    A step is an iteration of L-BFGS over all images. Passes of `pass_steps` iterations each start from the present
    metric alone, so that a checkpoint between them loses nothing. Images that are alone in their class attract no
    image but still repel others; a warning counts them.

    Parameters
    ----------
    trace_penalty : float, default=0.003
        Weight of tr(A). Where a metric separates the classes of the training images, as it mostly does for d >= n, f
        has no minimum without a penalty, only ever longer distances. The default suits unit rows.
    n_steps : int, default=60
        Iterations, at most: a pass that can go no lower ends early, and later ones change nothing.
    tol : float, default=1e-6
        A pass ends where an iteration lowers f, or the largest entry of the gradient falls, by no more than this.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.

    Attributes
    ----------
    A_ : float32 array of shape (d, d)
        A = L' L, positive semi-definite; the identity before the first step.
    components_ : float32 array of shape (d, d)
        L: x -> L x takes squared distances of A to Euclidean ones, as for plots.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...; `loss`
    in the history is f at the end of the pass, `violating` the share of images whose nearest image is of another class.

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range or data that cannot be learned from; several labels per image.

    Notes
    -----
    With `trace_penalty` f has one minimum, and `partial_fit` goes to that of the images it is given.

    An evaluation of f takes 2 n^2 d multiplications and additions, and 2 d for each entry of X; an iteration takes a
    little more than one. L-BFGS takes 40 d^2 more.

    Peak memory: 320 d^2 bytes, most of it what L-BFGS keeps in double precision, 18 n^2 bytes and 16 n d bytes. That is
    1.3 GB at d = 2,000 and 32 GB at d = 10,000: the learner is for d up to about 2,000 and a few thousand images.

    Departures from the paper: L-BFGS over L in place of a gradient step in A and a projection; the mean over images in
    place of the sum; `trace_penalty`, which is 0 there: that overfits; starting at the identity. The state is float32,
    the optimisation float64. The similarity leaves out -q' A q, which is the same for all images of a query's ranking.

    References
    ----------
    A. Globerson, S. Roweis: Metric Learning by Collapsing Classes. Advances in Neural Information Processing Systems
    18, 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import MCML
    >>> X = np.array([[1, 0, 0, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]], dtype=np.float32)
    >>> learner = MCML().fit(X, ["a", "a", "b", "b"])
    >>> ranks = learner.similarity(X[:1], X[1:]).argmax()
    >>> int(ranks)
    0
    """

    _learned = ("components_",)
    one_label = True
    draws = "classes"
    A_: np.ndarray = field(init=False)  # (d, d)
    components_: np.ndarray = field(init=False)  # (d, d)

    trace_penalty: float = 0.003
    n_steps: int = 60
    tol: float = 1e-6
    validation_fraction: float | None = None
    patience: int | None = None
    refit: bool = True
    pass_steps: int = 10
    random_state: Any = None

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_params(self, *, fitted: bool) -> None:
        for name, value in (("trace_penalty", self.trace_penalty), ("tol", self.tol)):
            if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
                raise ValueError(f"{name} must be a number of at least 0, got {value!r}")

    def estimate(self, n_images: int, n_features: int, n_entries: int) -> tuple[float, float]:
        """Bytes and seconds of `fit`: see `OnlineLearner`, and Notes."""
        n, d = float(n_images), float(n_features)
        steps = self.steps_for(n_images) * (2 if self.refit and self.validation_fraction else 1)
        # 1e10 multiplications and additions of matrix products, or 2e9 numbers read and written, per second.
        return 320 * d**2 + 18 * n**2 + 16 * n * d, steps * (
            (2 * n**2 * d + 2 * d * n_entries) / 1e10 + 40 * d**2 / 2e9
        )

    def _start(self) -> None:
        n, d = self.n_images_, self.n_features_in_
        needed, _ = self.estimate(n, d, 0)
        if needed > _MUCH_MEMORY:
            _log.warning("MCML takes %.0f GB of memory for %d images of %d visterms", needed / 1e9, n, d)
        self._set_components(np.eye(self.n_features_in_, dtype=np.float32))

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        d, X, classes = self.n_features_in_, matrix_of(training.rows, self.n_features_in_), training.sampler
        X = X.astype(np.float64)

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            training.report()  # a checkpoint then is of the end of the last pass
            L = flat.reshape(d, d)
            value, gradient, _ = collapse_loss(L, X, classes, self.trace_penalty, training.report)
            return value, gradient.ravel()

        optimum = scipy.optimize.minimize(
            loss,
            np.asarray(self.components_, np.float64).ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": n_steps, "maxcor": _MEMORY, "ftol": self.tol, "gtol": self.tol},
        )
        self._set_components(optimum.x.reshape(d, d).astype(np.float32))
        _, _, wrong = collapse_loss(optimum.x.reshape(d, d), X, classes, self.trace_penalty)
        # The loop divides what a pass returns by its steps.
        return optimum.fun * n_steps, wrong / len(classes) * n_steps

    def _set_components(self, components: np.ndarray) -> None:
        self.components_, self.A_ = components, components.T @ components

    def _settle(self, moment: str, training: Training | None) -> None:
        if moment == "end":  # the best components may have come back
            self._set_components(np.asarray(self.components_))
