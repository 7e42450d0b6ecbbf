"""The two sides of a similarity, whose inner product it is, as functions of images that were checked.

A learner says by `Similarity._sides` which ones it has. The functions read its arrays when they are called, so
that they are always of its present state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import numpy as np

from visterm import sparse as sp

from .maps import Affine, Map, Unit
from .sums import product, row_lengths, unit_rows

_ROWS = 4096  # images that are whitened at a time


def no_parts(parts: Any, whole: Any) -> NoReturn:
    """Refuse parts."""
    raise NotImplementedError("a side that is not the sum of what parts of an image add")


class Side(NamedTuple):
    """A side: of images, of parts of an image, and as a map."""

    of: Callable[..., Any]  # images; of the gallery of a learner with `by_category`, and their labels
    steps: Callable[[], Map]
    # Parts of an image, and the image: what each part adds to its side; of learners that are `linear`.
    parts: Callable[[Any, Any], Any] = no_parts


VECTORS = Side(lambda X: X, tuple, lambda parts, whole: parts)
UNIT_ROWS = Side(unit_rows, lambda: (Unit(),), lambda parts, whole: parts / row_lengths(whole)[0])


class Sides(NamedTuple):
    """The sides of a learner, and what else is computed in the vectors that it compares."""

    query: Side | None = None  # None: the gallery's
    gallery: Side = VECTORS
    # Query side, for images as they are, of the similarity before anything was learned: the vectors themselves, or of a
    # learner that whitens vectors the whitened ones.
    cosine: Side = VECTORS
    # Vectors of images, and W of a' W b, by which a distance compares; by default the gallery side and their inner
    # product.
    space: Callable[[Any], Any] | None = None
    matrix: Callable[[], np.ndarray] | None = None
    labels: Callable[[], np.ndarray] | None = None  # vectors of the labels, (n_labels, D)
    # For sides whose gallery is the vectors: the weighted sum of `cosine` and `query` as one side, for the two weights
    # and whether images are differences; see `Similarity.linear_query`.
    mixed: Callable[..., Side] | None = None
    # For queries and a gallery: a function that gives their similarity in the present state, to measure it often.
    scorer: Callable[[Any, Any], Callable[[], np.ndarray]] | None = None


def dense(X: Any) -> np.ndarray:
    """Sides as an array."""
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def scores_of(queries: Any, gallery: Any) -> np.ndarray:
    """Inner products of query sides and gallery sides: dense float32 (n_queries, n_images)."""
    return dense(product(queries, gallery.T))


class Whitening:
    """x -> A (x - m) / |A (x - m)|, and the way back: query sides of whitened vectors as those of images as they are.

    A, the `matrix`, is symmetric and positive definite.
    """

    def __init__(self, mean: np.ndarray, matrix: np.ndarray) -> None:
        self.matrix = matrix
        self.shift: np.ndarray = product(np.asarray(mean)[None], matrix)[0]

    def of(self, X: Any) -> np.ndarray:
        """Whitened vectors, of unit length: dense float32 (n, d)."""
        parts = [product(X[i : i + _ROWS], self.matrix) for i in range(0, X.shape[0], _ROWS)]
        return unit_rows(np.concatenate(parts) - self.shift)

    def parts(self, parts: Any, whole: Any) -> np.ndarray:
        """Contributions of parts of an image to its whitened vector; see `Similarity.transform_parts`.

        The mean is shared out by the parts' shares of the image's squared length.
        """
        x = (whole.toarray() if sp.issparse(whole) else np.asarray(whole)).ravel()
        length = np.linalg.norm(product(x[None], self.matrix)[0] - self.shift) or np.float32(1)
        shares = product(parts, np.ascontiguousarray(x[:, None] / (x @ x)))
        return (product(parts, self.matrix) - shares * self.shift) / length

    def back(self, sides: Any) -> np.ndarray:
        """Query sides for images as they are, from those for images times A."""
        return product(sides, self.matrix)

    def steps(self) -> Map:
        """`of` as a few steps."""
        return (Affine(np.asarray(self.matrix), -self.shift), Unit())


def cosine_of(whitening: Whitening | None) -> Side:
    """`Sides.cosine`."""
    if whitening is None:
        return VECTORS
    return Side(
        lambda Q: whitening.back(whitening.of(Q)),
        lambda: (*whitening.steps(), Affine(np.asarray(whitening.matrix))),
        lambda parts, whole: whitening.back(whitening.parts(parts, whole)),
    )


def space_of(whitening: Whitening | None) -> Side:
    """Vectors that are learned in."""
    return VECTORS if whitening is None else Side(whitening.of, whitening.steps, whitening.parts)


def _weighted_sum(weight: np.float32, Z: Any, weight_of_side: np.float32, side: np.ndarray) -> np.ndarray:
    """Weight times vectors plus another weight times sides, in the place of the sides: these are large, and new."""
    side *= weight_of_side
    if sp.issparse(Z) and Z.format == "csr" and Z.has_canonical_format:
        side[np.repeat(np.arange(Z.shape[0]), np.diff(Z.indptr)), Z.indices] += weight * Z.data
    else:
        side += weight * dense(Z)
    return side


def bilinear(
    times: Callable[[Any], np.ndarray], matrix: Callable[[], np.ndarray], whitening: Whitening | None
) -> Sides:
    """Sides Q W and X, of vectors or of whitened ones; `times` gives Z W for Z, `matrix` gives W."""
    space = space_of(whitening)
    back = (lambda sides: sides) if whitening is None else whitening.back

    def mixed(cosine: np.float32, learned: np.float32, *, differences: bool = False) -> Side:
        def of(Q: Any) -> np.ndarray:
            Z = product(Q, whitening.matrix) if differences and whitening is not None else space.of(Q)
            return back(_weighted_sum(cosine, Z, learned, times(Z)))

        def steps() -> Map:
            W = np.float32(learned) * np.asarray(matrix())
            W[np.diag_indices_from(W)] += np.float32(cosine)
            return (*space.steps(), Affine(W if whitening is None else W @ whitening.matrix))

        return Side(of, steps)

    def scorer(queries: Any, gallery: Any) -> Callable[[], np.ndarray]:
        Z, sides = space.of(queries), back(gallery)
        return lambda: scores_of(times(Z), sides)

    query = Side(
        lambda Q: back(times(space.of(Q))),
        lambda: mixed(np.float32(0), np.float32(1)).steps(),
        lambda parts, whole: back(times(space.parts(parts, whole))),
    )
    return Sides(query, cosine=cosine_of(whitening), space=space.of, matrix=matrix, mixed=mixed, scorer=scorer)
