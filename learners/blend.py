"""Cosine and a learner, in one similarity.

    S_a(q, x) = (1 - a) q'x + a c S(q, x)

with a the weight of the learner, S the similarity of a learner and c its scale. a = 0 is the inner product of the
vectors, a = 1 the learner. For OASIS, c = 1 and S_a(q, x) = q' (I + a (W - I)) x. An inner product again: with the
sides h and t of the learner

    query side  (1 - a) q + a h(q),         gallery side  x             where t(x) = x
    query side  [(1 - a) q, a c h(q)],      gallery side  [x, t(x)]     otherwise

Where a learner whitens vectors, q stands for the query side of the whitened ones.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from visterm import sparse as sp

from .checks import check_share
from .maps import Map, SideBySide, scaled
from .sides import dense, scores_of
from .similarity import Similarity, inner_products, ratio_of_spreads

_SAMPLE = 300  # images whose similarities tell the scale


class Blend:
    """A fitted learner of which only a share counts, beside the inner product of the vectors.

    On images of classes that a learner was not trained on, it is often worse than the vectors alone; a share between
    0.1 and 0.5 keeps most of what was learned, and most of what the vectors tell about everything else.

    Parameters
    ----------
    learner : Similarity
        Fitted.
    learned_weight : float, optional
        From 0 (how images look: cosine, or that of whitened vectors) to 1 (the learner alone); by default
        `learned_weight_` of the learner, which is 1 unless it was chosen on held-out images.
    scale : float, optional
        c; by default `scale_` of the learner, else 1. See `scale_of`.

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
    >>> learner = OASIS(n_steps=5000, whiten=False, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> bool(Blend(learner, 0.2).similarity(X[:1], X[1:2])[0, 0] < learner.similarity(X[:1], X[1:2])[0, 0])
    True
    >>> Blend(learner, 0.0).similarity(X[2:3], X[3:4]).round(2)
    array([[0.8]], dtype=float32)
    """

    def __init__(self, learner: Similarity, learned_weight: float | None = None, *, scale: float | None = None) -> None:
        self.learner = learner
        self.learned_weight = check_share(learner.learned_weight_ if learned_weight is None else learned_weight)
        self.scale = _check_scale((learner.scale_ or 1.0) if scale is None else scale)
        self.linear = learner.linear
        self.shares_gallery = learner.gallery_is_vectors

    @property
    def n_features_in_(self) -> int:
        """Length of the vectors."""
        return self.learner.n_features_in_

    def transform(self, X: Any, y: Any = None) -> Any:
        """Gallery side; arguments as of `SimilarityLearner.transform`."""
        side = self.learner._gallery_side(X, y)
        return side if self.shares_gallery else _side_by_side(self.learner._check_images(X), side)

    def transform_query(self, Q: Any) -> Any:
        """Query side: dense float32."""
        if self.shares_gallery:
            return self.learner._mixed(*self._weights()).of(Q)
        return self._query(self.learner._cosine_side(Q), self.learner.transform_query(Q))

    def query_map(self) -> Map:
        """`transform_query` as a few steps; see `SimilarityLearner.query_map`."""
        cosine, learned = self._weights()
        if self.shares_gallery:
            return self.learner._mixed(cosine, learned).steps()
        steps = self.learner._sides().cosine.steps(), self.learner.query_map()
        return (SideBySide(scaled(steps[0], float(cosine)), scaled(steps[1], float(learned))),)

    def gallery_map(self) -> Map:
        """`transform` as a few steps."""
        side = self.learner.gallery_map()
        return side if self.shares_gallery else (SideBySide((), side),)

    def linear_query(self, P: Any) -> np.ndarray:
        """Query sides of differences of vectors; where `shares_gallery`."""
        return self.learner._mixed(*self._weights(), differences=True).of(P)

    def center(self) -> np.ndarray | None:
        """As of the learner."""
        return self.learner.center()

    def transform_parts(self, parts: Any, whole: Any) -> Any:
        """Contributions of parts of an image to its gallery side; for learners that are `linear`."""
        side = self.learner.transform_parts(parts, whole)
        return side if self.shares_gallery else _side_by_side(self.learner._check_images(parts), side)

    def transform_query_parts(self, parts: Any, whole: Any) -> Any:
        """Contributions of parts of an image to its query side."""
        return self._query(self.learner._cosine_parts(parts, whole), self.learner.transform_query_parts(parts, whole))

    def similarity(self, Q: Any, X: Any, y: Any = None) -> np.ndarray:
        """Similarity of every query to every gallery image: float32 (n_queries, n_images)."""
        return inner_products(self.transform_query, self.learner._check_images(Q), self.transform(X, y))

    def _weights(self) -> tuple[np.float32, np.float32]:
        return np.float32(1 - self.learned_weight), np.float32(self.learned_weight * self.scale)

    def _query(self, Q: Any, side: Any) -> np.ndarray:
        Q, side = dense(Q), dense(side)
        cosine, learned = self._weights()
        if self.shares_gallery:
            return cosine * Q + learned * side
        return np.hstack([cosine * Q, learned * side])


def _check_scale(scale: Any) -> float:
    if not isinstance(scale, Real) or isinstance(scale, bool) or not 0 < float(scale) < np.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    return float(scale)


def _side_by_side(X: Any, side: Any) -> Any:
    if sp.issparse(X) or sp.issparse(side):
        return sp.hstack([sp.csr_array(X), sp.csr_array(side)], format="csr")
    return np.hstack([X, side])


def scale_of(learner: Similarity, X: Any, y: Any = None) -> float:
    """How many times the similarities of some images vary more by their vectors than by a learner.

    Multiplied by it, the learner weighs as much as cosine. 1 for a learner that started at the inner product of the
    vectors, and so has its scale. Of the images X, 300 in even steps are compared; y is as in
    `SimilarityLearner.transform`.
    """
    if learner.begins_at == "vectors":
        return 1.0
    rows = np.unique(np.linspace(0, X.shape[0] - 1, min(_SAMPLE, X.shape[0])).astype(int))
    images = X[rows]
    others = ~np.eye(len(rows), dtype=bool)
    learned = learner.similarity(images, images, None if y is None else y[rows])
    return ratio_of_spreads(scores_of(learner._cosine_side(images), images)[others], learned[others])


def effective(learner: Similarity, learned_weight: float | None = None, scale: float | None = None) -> Any:
    """The learner where all of it counts, else a `Blend`; arguments as there."""
    share = learner.learned_weight_ if learned_weight is None else learned_weight
    return learner if share == 1 else Blend(learner, share, scale=scale)
