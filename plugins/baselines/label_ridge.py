"""Ridge regression of one-hot labels as a similarity, in closed form: what comparisons are to be better than.

With Z the whitened vectors of dense images (see `visterm.learners.whitening`), or unit vectors, and Y one-hot labels,

    S(a, b) = a' B B' b,    B = argmin |Z B - Y|^2 + alpha |B|^2

B'a are the labels that the regression gives an image, nearly 0 of an image that is like no class: beside the vectors at
half weight, ``fit(learned_weight=0.5)``, it changes little there. Several labels of an image share its one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from visterm.learners.base import SimilarityLearner
from visterm.learners.checks import check_positive
from visterm.learners.options import FitOptions
from visterm.learners.sides import Sides, bilinear
from visterm.learners.sums import one_thread, product, unit_rows
from visterm.learners.whitening import WhiteningMixin, _groups, asks_for_whitening, check_whiten, whitening_of


@dataclass(kw_only=True, repr=False, eq=False)
class LabelRidge(WhiteningMixin, SimilarityLearner):
    """Ridge regression of one-hot labels.

    Parameters
    ----------
    alpha : float, default=1.0
        Weight of |B|^2.
    whiten : {"auto", True, False}, default="auto"
        As of `OASIS`.

    Attributes
    ----------
    W_ : float32 array of shape (d, d)
        B B'.

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range or fewer than two classes.

    Notes
    -----
    Memory: 4 d^2 bytes, and 16 times the square of the smaller of the numbers of images and of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import LabelRidge
    >>> X = np.array([[3, 1, 0], [3, 0, 1], [0, 1, 0], [0, 0, 1.0]])  # the first column tells the class
    >>> W = LabelRidge(whiten=False).fit(X, ["a", "a", "b", "b"]).W_
    >>> bool(W[0, 0] > W[1, 1])
    True
    """

    linear = True
    W_: np.ndarray = field(init=False)

    alpha: float = 1.0
    whiten: bool | str = "auto"

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        check_whiten(self.whiten)
        check_positive("alpha", self.alpha)
        X, y = self._check_supervised(X, y, reset=True)
        for name in ("mean_", "whitening_", "_whitening_learned"):
            self.__dict__.pop(name, None)
        Y = _groups(y).toarray()
        if Y.shape[1] < 2:
            raise ValueError(f"labels must name at least two classes, got {Y.shape[1]} class")
        Y /= np.maximum(Y.sum(axis=1, keepdims=True), 1)
        whitened = asks_for_whitening(self.whiten, X)
        if whitened:
            self.mean_, self.whitening_ = whitening_of(X, y, np.arange(X.shape[0]))
        Z: Any = (self._whitening_learned.of(X) if whitened else unit_rows(X)).astype(np.float64)
        with one_thread():
            G = Z @ Z.T if Z.shape[0] < Z.shape[1] else Z.T @ Z
            G = G.toarray() if sp.issparse(G) else G
            G[np.diag_indices_from(G)] += self.alpha
            factor = scipy.linalg.cho_factor(G)
            inverse = scipy.linalg.cho_solve
            B = Z.T @ inverse(factor, Y) if Z.shape[0] < Z.shape[1] else inverse(factor, Z.T @ Y)
            W = B @ B.T
        self.W_ = ((W + W.T) / 2).astype(np.float32)
        return self

    @property
    def partial_fit(self) -> Any:
        """Not there: one system of equations has all images."""
        raise AttributeError("LabelRidge learns from all images at once; use fit")

    def _sides(self) -> Sides:
        return bilinear(lambda Z: product(Z, np.asarray(self.W_)), lambda: np.asarray(self.W_), self._whitening)
