"""Queries made of several images, or of a part of one.

Query vectors add up: this one plus that one minus a third. A region of an image is the sum over the blocks in it, as
the whole image is the sum over all of its blocks.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.queries import KnownImage, Queries
from visterm.pipeline.search.request import InvalidQuery, Rectangle, SearchRequest
from visterm.pipeline.store.segments import stacked
from visterm.pipeline.store.vectors import embed

_SMALLEST = 1e-6  # length of a sum of examples below which they cancel each other out


def combine(vectors: Iterable[Any], weights: Iterable[float]) -> Any:
    """Add query vectors, CSR or dense (1, n_features), with weights to one of length 1; negative weights subtract.

    InvalidQuery if the vectors cancel each other out.
    """
    total: Any = None
    for vector, weight in zip(vectors, weights, strict=True):
        part = vector * float(weight)
        total = part if total is None else total + part
    return _unit(total, "the examples cancel each other out; change a weight or remove one")


def region_vector(searcher: Any, image: Any, region: Rectangle) -> Any:
    """Make the query vector of a part of an image: the sum over the blocks whose centres lie in it.

    The image is a path, or RGB uint8 pixels (H, W, 3); the vector is CSR or dense float32, (1, n_features).
    InvalidQuery if the run has imported vectors, or the region shows nothing to search with; ImageError if the file
    cannot be read.
    """
    import numpy as np
    from scipy import sparse

    _check_regions(searcher)
    extractor = searcher.extractor
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
    if parts is None:  # describe the region as an image of its own
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


def refined(
    searcher: Any, queries: Queries, request: SearchRequest, *, strict: bool = False
) -> tuple[Queries, frozenset[int]]:
    """Restrict queries to the region of a request, and add its examples to each; see `Searcher.search`.

    Returns the queries, and the rows of the examples in the collection. The errors of queries whose region shows
    nothing, or whose sum cancels out, are among those of the queries; if `strict`, they are raised.
    """
    from visterm.features import ImageError

    vectors, weights, rows = [], [request.weight], set()
    for image, weight in request.example:
        read = searcher.queries(image)
        if read.errors or len(read.place) != 1:
            name = image if isinstance(image, str) else read.names[0]
            raise InvalidQuery(f"example {name}: {read.errors.get(0, 'give one image per example')}")
        vectors.append(read.Q)
        weights.append(weight)
        rows.add(read.rows[0])
    if request.region is not None:
        _check_regions(searcher)
    sums, answerable, errors = [], [], dict(queries.errors)
    for row, i in enumerate(queries.place):
        try:
            if request.region is not None:
                Q = _region_of(searcher, queries.images[i], request.region)
            else:
                Q = queries.Q if len(queries.place) == 1 else queries.Q[row : row + 1]
            sums.append(Q if not vectors and request.weight == 1 else combine([Q, *vectors], weights))
            answerable.append(row)
        except (UserError, ImageError) as error:
            if strict:
                raise
            errors[i] = error.reason if isinstance(error, ImageError) else str(error)
    place, itself = ([values[row] for row in answerable] for values in (queries.place, queries.rows))
    Q = stacked(sums) if sums else queries.Q[:0]
    return replace(queries, Q=Q, place=place, rows=itself, errors=errors), frozenset(rows - {-1})


def _region_of(searcher: Any, image: Any, region: Rectangle) -> Any:
    if isinstance(image, KnownImage):
        return searcher.recent(f"{image.sha256} {region}", lambda: region_vector(searcher, image.fetch(), region))
    return region_vector(searcher, image, region)


def _check_regions(searcher: Any) -> None:
    if searcher.extractor is None:
        raise InvalidQuery("this run has imported vectors, which have no regions: search with whole images")


def _unit(vector: Any, refusal: str) -> Any:
    """Scale a vector to length 1, float32; InvalidQuery if it is too short for that."""
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
        raise InvalidQuery(refusal)
    return (vector / length).astype(np.float32)
