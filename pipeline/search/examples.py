"""Queries made of several images, or of a part of one.

Query vectors add up: this one plus that one minus a third. A region of an image is the sum over the blocks in it, as
the whole image is the sum over all of its blocks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.vectors import embed

_SMALLEST = 1e-6  # length of a sum of examples below which they cancel each other out


class Region(NamedTuple):
    """A rectangle of an image, in shares of its width and height: 0 to 1."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, given: Sequence[float]) -> Region:
        """Check four numbers; raise UserError unless they are a rectangle within the image."""
        region = cls(*(float(value) for value in given)) if len(given) == 4 else None
        inside = region is not None and min(region) >= 0 and min(region.width, region.height) > 0
        if region is None or not inside or region.x + region.width > 1.001 or region.y + region.height > 1.001:
            raise UserError("region: give x, y, width and height in shares of the image, each from 0 to 1")
        return region


def combine(vectors: Iterable[Any], weights: Iterable[float]) -> Any:
    """Add query vectors with weights.

    Parameters
    ----------
    vectors : iterable of CSR or ndarray, each (1, n_features)
    weights : iterable of float
        Negative ones subtract.

    Returns
    -------
    CSR or ndarray of float32, (1, n_features)
        Of length 1, as the vector of an image.

    Raises
    ------
    UserError
        The vectors cancel each other out.
    """
    total: Any = None
    for vector, weight in zip(vectors, weights, strict=True):
        part = vector * float(weight)
        total = part if total is None else total + part
    return _unit(total, "the examples cancel each other out; change a weight or remove one")


def region_vector(searcher: Any, image: Any, region: Region) -> Any:
    """Make the query vector of a part of an image: the sum over the blocks whose centres lie in it.

    Parameters
    ----------
    searcher : Searcher
    image : path, or ndarray of uint8 (H, W, 3)
    region : Region

    Returns
    -------
    CSR or ndarray of float32, (1, n_features)

    Raises
    ------
    UserError
        The run has imported vectors, or the region shows nothing to search with.
    ImageError
        The file cannot be read.
    """
    import numpy as np
    from scipy import sparse

    extractor = searcher.extractor
    if extractor is None:
        raise UserError("this run has imported vectors, which have no regions: search with whole images")
    picture = image
    if not isinstance(image, np.ndarray):
        picture = extractor.read(image, max_pixels=searcher.config.collection.max_pixels)
        pixels, size = picture.pixels, np.array([picture.width, picture.height])
    else:
        pixels, size = image, np.array(image.shape[1::-1])
    corner, opposite = np.array(region[:2]), np.minimum(np.array(region[:2]) + region[2:], 1)
    empty = "this region shows nothing to search with; draw a larger one"
    parts = None
    if hasattr(extractor, "block_vectors"):
        with contextlib.suppress(ValueError, ImportError):  # a network whose vector is not made of cells
            parts = extractor.block_vectors(picture)
    if parts is None:  # what the network sees of the region alone
        shape = np.array(pixels.shape[1::-1])
        left, top = (corner * shape).astype(int)
        right, bottom = np.maximum(np.ceil(opposite * shape).astype(int), (left + 1, top + 1))
        return _unit(embed(extractor, [np.ascontiguousarray(pixels[top:bottom, left:right])]), empty)
    boxes, vectors = parts
    centres = (boxes[:, :2] + boxes[:, 2:] / 2) / size
    inside = np.flatnonzero(((centres >= corner) & (centres <= opposite)).all(axis=1))
    if not len(inside):  # a region smaller than the blocks: the nearest ones
        distances = ((centres - (corner + opposite) / 2) ** 2).sum(axis=1)
        inside = np.flatnonzero(distances <= distances.min() + 1e-9)
    total = vectors[inside].sum(axis=0)
    return _unit(sparse.csr_matrix(total) if sparse.issparse(vectors) else total[None], empty)


def search_examples(
    searcher: Any,
    examples: Sequence[tuple[Any, float]],
    k: int,
    learner: str | None = None,
    *,
    region: Sequence[float] | None = None,
    learned: float | None = None,
) -> dict[str, Any]:
    """Search with a sum of images; see `Searcher.search_examples`."""
    name = learner or searcher.default_learner()
    searcher.blend(name, learned)
    if not examples:
        raise UserError("no examples given; give pairs of an image and a weight")
    vectors, own, names = [], set(), []
    for i, (image, weight) in enumerate(examples):
        queries = searcher.queries([image])
        if queries.errors or len(queries.place) != 1:
            raise UserError(f"{queries.names[0]}: {queries.errors.get(0, 'give one image per example')}")
        row = queries.own[0]
        Q = queries.Q
        if i == 0 and region is not None:
            part = searcher.root / searcher.images[row].path if row >= 0 else image
            Q = region_vector(searcher, part, Region.of(region))
        vectors.append(Q)
        own.add(row)
        names.append(f"{'-' if weight < 0 else '+'} {queries.names[0]}")
    Q = combine(vectors, [weight for _, weight in examples])
    ranking = searcher.index(name, learned).search(Q, k=min(k + len(own), len(searcher.images)))
    kept: list[tuple[int, float]] = [
        (row, score)
        for row, score in zip(ranking.indices[0].tolist(), ranking.scores[0].tolist(), strict=True)
        if row not in own
    ]
    rows, scores = [row for row, _ in kept[:k]], [score for _, score in kept[:k]]
    return {"query": " ".join(names).removeprefix("+ "), "results": searcher.results(rows, scores)}


def _unit(vector: Any, refusal: str) -> Any:
    """Scale a vector to length 1, float32; UserError if it is too short for that."""
    import numpy as np
    from scipy import sparse

    if sparse.issparse(vector):
        vector = sparse.csr_matrix(vector)
        vector.eliminate_zeros()
        length = math.sqrt(float(vector.multiply(vector).sum()))
    else:
        vector = np.asarray(vector)
        length = float(np.linalg.norm(vector))
    if not length > _SMALLEST:
        raise UserError(refusal)
    return (vector / length).astype(np.float32)
