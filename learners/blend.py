"""How images look and what was learned, in one similarity.

    S_a(q, x) = (1 - a) q'x + a c S(q, x)

with a the share of what was learned, S the similarity of a learner and c its scale. a = 0 is the inner product of the
vectors, a = 1 the learner. For OASIS, c = 1 and S_a(q, x) = q' (I + a (W - I)) x. An inner product again: with the
sides h and t of the learner

    query side  (1 - a) q + a h(q),         gallery side  x             where t(x) = x
    query side  [(1 - a) q, a c h(q)],      gallery side  [x, t(x)]     otherwise
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from .base import SimilarityLearner, inner_products

_SAMPLE = 300  # images whose similarities tell the scale


class Blend:
    """A fitted learner of which only a share counts, beside the inner product of the vectors.

    On images of classes that a learner was not trained on, it is often worse than the vectors alone; a share between
    0.1 and 0.5 keeps most of what was learned, and most of what the vectors tell about everything else.

    Parameters
    ----------
    learner : SimilarityLearner
        Fitted.
    learned : float
        The share of what was learned, from 0 (how images look) to 1 (the learner).
    scale : float, default=1.0
        c: see `scale_of`.

    Attributes
    ----------
    shares_gallery : bool
        Whether the gallery side is the vectors themselves, whatever the share: an index of the learner then serves
        every share.
    linear : bool
        As of the learner: whether the similarity is a sum over pairs of parts.

    Raises
    ------
    ValueError
        The share does not lie between 0 and 1, or the scale is not positive.

    Notes
    -----
    Not in the papers, which rank images of classes that were trained on.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import OASIS, Blend
    >>> X = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.6, 0.8]], dtype=np.float32)
    >>> learner = OASIS(n_steps=5000, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> bool(Blend(learner, 0.2).similarity(X[:1], X[1:2])[0, 0] < learner.similarity(X[:1], X[1:2])[0, 0])
    True
    >>> Blend(learner, 0.0).similarity(X[2:3], X[3:4]).round(2)
    array([[0.8]], dtype=float32)
    """

    def __init__(self, learner: SimilarityLearner, learned: float, *, scale: float = 1.0) -> None:
        if not _is_number(learned) or not 0 <= learned <= 1:
            raise ValueError(f"learned must be a number from 0 to 1, got {learned!r}")
        if not _is_number(scale) or not 0 < scale < np.inf:
            raise ValueError(f"scale must be a positive number, got {scale!r}")
        self.learner = learner
        self.learned = float(learned)
        self.scale = float(scale)
        self.linear = learner.linear
        self.shares_gallery = learner._gallery_is_vectors

    @property
    def n_features_in_(self) -> int:
        """Length of the vectors."""
        return self.learner.n_features_in_

    def transform(self, X: Any, y: Any = None) -> Any:
        """Gallery side; arguments as of `SimilarityLearner.transform`."""
        return self._gallery(self.learner._check_images(X), self.learner._gallery_side(X, y))

    def transform_query(self, Q: Any) -> Any:
        """Query side: dense float32."""
        return self._query(self.learner._check_images(Q), self.learner.transform_query(Q))

    def transform_parts(self, parts: Any, whole: Any) -> Any:
        """What parts of an image add to its gallery side; for learners that are `linear`."""
        return self._gallery(self.learner._check_images(parts), self.learner.transform_parts(parts, whole))

    def transform_query_parts(self, parts: Any, whole: Any) -> Any:
        """What parts of an image add to its query side."""
        return self._query(self.learner._check_images(parts), self.learner.transform_query_parts(parts, whole))

    def similarity(self, Q: Any, X: Any, y: Any = None) -> np.ndarray:
        """Similarity of every query to every gallery image: float32 (n_queries, n_images)."""
        return inner_products(self.transform_query, self.learner._check_images(Q), self.transform(X, y))

    def _gallery(self, X: Any, side: Any) -> Any:
        if self.shares_gallery:
            return X
        if sp.issparse(X) or sp.issparse(side):
            return sp.hstack([sp.csr_array(X), sp.csr_array(side)], format="csr")
        return np.hstack([X, side])

    def _query(self, Q: Any, side: Any) -> np.ndarray:
        Q, side = (part.toarray() if sp.issparse(part) else np.asarray(part) for part in (Q, side))
        look, learned = np.float32(1 - self.learned), np.float32(self.learned * self.scale)
        if self.shares_gallery:
            return look * Q + learned * side
        return np.hstack([look * Q, learned * side])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def scale_of(learner: SimilarityLearner, X: Any, y: Any = None) -> float:
    """How many times the similarities of some images vary more by their vectors than by a learner.

    Multiplied by it, what a learner says of two images weighs as much as how they look. 1 for a learner that started
    at the inner product of the vectors, and so has its scale.

    Parameters
    ----------
    learner : SimilarityLearner
        Fitted.
    X : CSR or dense of shape (n, n_features_in_)
        Images, of which 300 in even steps are compared.
    y : array of shape (n,), optional
        As in `SimilarityLearner.transform`.

    Returns
    -------
    float
    """
    if learner._gallery_is_vectors and getattr(learner, "init", None) != "zero":
        return 1.0
    rows = np.unique(np.linspace(0, X.shape[0] - 1, min(_SAMPLE, X.shape[0])).astype(int))
    some = X[rows]
    others = ~np.eye(len(rows), dtype=bool)
    look = (some @ some.T).toarray() if sp.issparse(some) else np.asarray(some) @ np.asarray(some).T
    learned = learner.similarity(some, some, None if y is None else y[rows])
    spread = float(np.std(learned, where=others)) if others.any() else 0.0
    found = float(np.std(look, where=others)) / spread if spread > 0 else 1.0
    return found if 0 < found < np.inf else 1.0
