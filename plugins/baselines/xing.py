"""Xing's method: images of a class near each other, in the sum, while images of different classes stay apart.

Xing, Ng, Jordan, Russell: Distance Metric Learning, with Application to Clustering with Side-Information, NIPS 15,
2002. With S the pairs of images of a class, D the other pairs, and d_ij = (x_i - x_j)' A (x_i - x_j),

    maximise g(A) = sum over D of sqrt(d_ij)   subject to   f(A) = sum over S of d_ij <= 1,   A positive semi-definite

f is tr(A M) for a matrix M, and g(c A) = sqrt(c) g(A): f(A) = 1 at the maximum, and any A can be scaled to it. A step
climbs along the part of g's gradient that is orthogonal to M, as the paper's, cuts negative eigenvalues off, and
scales:

    A <- P(A + alpha G / |G|),    A <- A / f(A),    G = G0 - <G0, M> / <M, M> M,    G0 = dg/dA

alpha, in units of |A|, grows by a fifth where g has risen; else it is halved, and the step is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg

from visterm.learners.loop import Training
from visterm.learners.mahalanobis import MahalanobisMixin, check_shrinkage, shrunken
from visterm.learners.online import OnlineLearner
from visterm.learners.rows import matrix_of
from visterm.learners.sides import dense
from visterm.learners.sums import one_thread

_FIRST_STEP, _LEAST_STEP = 0.3, 1e-6


def spread_between(A: np.ndarray, X: np.ndarray, classes: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean of sqrt(d_ij) over pairs of different classes, and its gradient, float64 (d, d)."""
    differ = classes[:, None] != classes
    XA = X @ A
    squares = np.einsum("ij,ij->i", XA, X)
    distances = np.sqrt(np.maximum(squares[:, None] + squares - 2 * XA @ X.T, 0))
    n_pairs = np.count_nonzero(differ)
    weights = np.where(differ & (distances > 1e-9), 0.5 / np.maximum(distances, 1e-9), 0) / n_pairs
    gradient = 2 * (X.T @ (weights.sum(axis=1)[:, None] * X) - X.T @ (weights @ X))
    return float(distances[differ].sum() / n_pairs), (gradient + gradient.T) / 2


def spread_within(X: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """M, with the mean over pairs of a class in place of the sum: float64 (d, d)."""
    M, n_pairs = np.zeros((X.shape[1], X.shape[1])), 0
    for c in np.unique(classes):
        members = X[classes == c]
        centred = members - members.mean(axis=0)
        M += len(members) * centred.T @ centred
        n_pairs += len(members) * (len(members) - 1) // 2
    return M / max(n_pairs, 1)


@dataclass(kw_only=True, repr=False, eq=False)
class Xing(MahalanobisMixin, OnlineLearner):
    """Xing's distance metric from pairs of the same class and pairs of different classes.

    Parameters
    ----------
    shrinkage : float, default=0.1
        How far M is drawn towards a multiple of the identity, above 0, up to 1: in a direction in which images of a
        class do not differ, the problem has no maximum.
    n_steps : int, default=50
        Steps, taken or not.
    validation_fraction, patience, refit, pass_steps, random_state : see `OnlineLearner`
        Early stopping, the length of a pass, and the seed.

    Attributes
    ----------
    A_ : float32 array of shape (d, d)
        Symmetric, positive semi-definite; a multiple of the identity before the first step.
    step_size_ : float
        alpha.

    Others are listed in `OnlineLearner`: history_, n_steps_, best_step_, best_validation_, phase_, seed_, ...; `loss`
    in the history is -g at the end of the pass, the mean in place of the sum, and `violating` the share of its steps
    that were not taken.

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range or data that cannot be learned from; several labels per image.

    Notes
    -----
    A step takes an eigendecomposition of (d, d), and products of (n, n) and (n, d): the learner is for d of about a
    thousand and some thousand images. Memory: 80 d^2 + 40 n^2 bytes. `partial_fit` climbs from the present metric to
    that of the images given, and so forgets others.

    Departures from the paper: A is scaled to the constraint in place of a projection on it, which has the same maximum;
    `shrinkage`. The state is float32, the optimisation float64.

    References
    ----------
    E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell: Distance Metric Learning, with Application to Clustering with
    Side-Information. Advances in Neural Information Processing Systems 15, 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import Xing
    >>> X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])  # the second column says nothing of the class
    >>> learner = Xing().fit(X, ["a", "a", "b", "b"])
    >>> bool(learner.A_[0, 0] > learner.A_[1, 1])
    True
    """

    _learned = ("A_",)
    one_label = True
    draws = "classes"
    A_: np.ndarray = field(init=False)  # (d, d)
    step_size_: float = field(init=False)

    shrinkage: float = 0.1
    n_steps: int = 50
    validation_fraction: float | None = None
    patience: int | None = None
    refit: bool = False
    pass_steps: int = 5
    random_state: Any = None

    def _check_params(self, *, fitted: bool) -> None:
        check_shrinkage(self.shrinkage)

    def estimate(self, n_images: int, n_features: int, n_entries: int) -> tuple[float, float]:
        """Bytes and seconds of `fit`: see `OnlineLearner`, and Notes."""
        n, d = float(n_images), float(n_features)
        return 80 * d**2 + 40 * n**2, self.steps_for(n_images) * (10 * d**3 + 4 * n**2 * d + 2 * n * d**2) / 1e10

    def _start(self) -> None:
        self.A_ = np.eye(self.n_features_in_, dtype=np.float32)
        self.step_size_ = _FIRST_STEP

    def _pass(self, training: Training, n_steps: int) -> tuple[float, float]:
        X = dense(matrix_of(training.rows, self.n_features_in_)).astype(np.float64)
        with one_thread():
            return self._climb(X, training, n_steps)

    def _climb(self, X: np.ndarray, training: Training, n_steps: int) -> tuple[float, float]:
        classes = training.sampler
        M = shrunken(spread_within(X, classes), float(self.shrinkage))
        A = self.A_.astype(np.float64)
        A /= np.vdot(A, M)
        value, gradient = spread_between(A, X, classes)
        failed, alpha = 0, self.step_size_
        for _ in range(n_steps):
            uphill = gradient - np.vdot(gradient, M) / np.vdot(M, M) * M
            length = alpha * np.linalg.norm(A) / max(float(np.linalg.norm(uphill)), 1e-300)
            eigenvalues, vectors = scipy.linalg.eigh(A + length * uphill, check_finite=False)
            root = vectors * np.sqrt(np.maximum(eigenvalues, 0))
            new = root @ root.T
            new /= np.vdot(new, M)
            new_value, new_gradient = spread_between(new, X, classes)
            if new_value > value:
                A, value, gradient = new, new_value, new_gradient
                alpha *= 1.2
            else:
                failed += 1
                alpha = max(alpha / 2, _LEAST_STEP)
            training.report()  # a checkpoint then is of the end of the last pass
        self.step_size_ = alpha
        A = (A * (len(A) / np.trace(A))).astype(np.float32)
        self.A_[:] = (A + A.T) / 2
        return -value * n_steps, float(failed)
