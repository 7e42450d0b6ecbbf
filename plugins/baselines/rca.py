"""RCA: the Mahalanobis distance that shrinks the directions in which images of a class differ.

Bar-Hillel, Hertz, Shental, Weinshall: Learning Distance Functions using Equivalence Relations, ICML 2003. With the
chunklets being the classes, and m_c the mean of class c,

    A = C^-1,    C = 1/n sum over classes c, images i of c of (x_i - m_c)(x_i - m_c)'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from visterm.learners.checks import plain_labels
from visterm.learners.mahalanobis import MahalanobisMixin, check_shrinkage, shrunken
from visterm.learners.options import FitOptions


@dataclass(kw_only=True, repr=False, eq=False)
class RCA(MahalanobisMixin):
    """Relevant Component Analysis: the inverse of the covariance within classes.

    Parameters
    ----------
    shrinkage : float, default=0.1
        How far the covariance is drawn towards a multiple of the identity, above 0, up to 1: with fewer images than
        dimensions it has no inverse.

    Attributes
    ----------
    A_ : float32 array of shape (d, d)
        Symmetric, positive definite; scaled to the trace d.
    classes_ : array of shape (n_classes,)
    counts_ : int64 array of shape (n_classes,)
        Images of each class.
    sums_ : float64 array of shape (n_classes, d)
        And their sums.
    products_ : float64 array of shape (d, d)
        Sum of x x' over all images.

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range, fewer than two classes, several labels per image.

    Notes
    -----
    Memory: 12 d^2 bytes, and 24 d^2 more in `fit`; time: that of a Cholesky decomposition of (d, d). `partial_fit`
    gives the model of `fit` with all images, as only sums over images are kept.

    Departures from the paper: `shrinkage` in place of its reduction of dimensions; classes in place of chunklets.

    References
    ----------
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall: Learning Distance Functions using Equivalence Relations. ICML
    2003.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import RCA
    >>> X = np.array([[0, 0], [0, 9], [1, 0], [1, 9]])  # the second column says nothing of the class
    >>> learner = RCA().fit(X, ["a", "a", "b", "b"])
    >>> bool(learner.A_[0, 0] > learner.A_[1, 1])
    True
    """

    one_label = True

    classes_: np.ndarray = field(init=False)
    counts_: np.ndarray = field(init=False)
    sums_: np.ndarray = field(init=False)
    products_: np.ndarray = field(init=False)

    shrinkage: float = 0.1

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        X, y = self._check_one_label(X, y, reset=True)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(f"labels must name at least two classes, got {len(self.classes_)} class")
        d = self.n_features_in_
        self.counts_ = np.zeros(len(self.classes_), np.int64)
        self.sums_, self.products_ = np.zeros((len(self.classes_), d)), np.zeros((d, d))
        return self._add(X, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Add images, also of new classes."""
        if "counts_" not in vars(self):
            return self.fit(X, y)
        X, y = self._check_one_label(X, y, reset=False)
        classes = np.union1d(self.classes_, y)
        places = np.searchsorted(classes, self.classes_)
        counts, sums = np.zeros(len(classes), np.int64), np.zeros((len(classes), self.n_features_in_))
        counts[places], sums[places] = self.counts_, self.sums_
        self.classes_, self.counts_, self.sums_ = classes, counts, sums
        self.products_ = np.array(self.products_)
        return self._add(X, y)

    def _add(self, X: sp.csr_array, y: np.ndarray) -> Self:
        X = X.astype(np.float64)
        members = sp.csr_array((np.ones(len(y)), np.searchsorted(self.classes_, y), np.arange(len(y) + 1)))
        members.resize(len(y), len(self.classes_))
        self.counts_ += np.bincount(members.indices, minlength=len(self.classes_))
        self.sums_ += (members.T @ X).toarray()
        self.products_ += (X.T @ X).toarray()
        self.A_ = inverse(shrunken(self._within(), self.shrinkage))
        return self

    def _within(self) -> np.ndarray:
        """C: float64 (d, d)."""
        means = self.sums_ / np.sqrt(np.maximum(self.counts_, 1))[:, None]
        C = self.products_ - means.T @ means
        no_more_than_rounding = np.trace(C) <= 1e-13 * np.trace(self.products_)
        return np.zeros_like(C) if no_more_than_rounding else C / self.counts_.sum()

    def _check_one_label(self, X: Any, y: Any, *, reset: bool) -> tuple[sp.csr_array, np.ndarray]:
        check_shrinkage(self.shrinkage)
        X, y = self._check_supervised(X, y, reset=reset)
        return X, plain_labels(y)


def inverse(C: np.ndarray) -> np.ndarray:
    """Inverse of a positive definite matrix, scaled to the trace d: float32, symmetric to the last bit."""
    A = scipy.linalg.cho_solve(scipy.linalg.cho_factor(C), np.eye(len(C)))
    A *= len(A) / np.trace(A)
    return ((A + A.T) / 2).astype(np.float32)
