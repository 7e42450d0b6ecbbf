"""Queries made of several images, or of a part of one.

Query vectors add up: this one plus that one minus a third. A region of an image is the sum over the blocks in it, as
the whole image is the sum over all of its blocks.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.segments import stacked
from visterm.pipeline.store.vectors import embed

from .queries import Queries

MAX_WEIGHT = 10  # of an image of a query
_SMALLEST = 1e-6  # length of a sum of examples below which they cancel each other out
_WEIGHTED = re.compile(r"(.+)@(-?[0-9]{1,2}(?:\.[0-9]{1,3})?)", re.DOTALL)


class InvalidQuery(UserError):
    """A region, examples or weights that make no query."""


class Region(NamedTuple):
    """A rectangle of an image, in shares of its width and height: 0 to 1."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, given: str | Sequence[float]) -> Region:
        """Check four numbers, or read ``"x,y,width,height"``.

        Raises
        ------
        InvalidQuery
            They are no rectangle within the image.
        """
        values = given.split(",") if isinstance(given, str) else given
        region = None
        if len(values) == 4:
            with contextlib.suppress(ValueError):
                region = cls(*(float(value) for value in values))
        if (
            region is None
            or not all(value >= 0 for value in region)
            or not min(region.width, region.height) > 0
            or not max(region.x + region.width, region.y + region.height) <= 1.001
        ):
            raise InvalidQuery("region: give x, y, width and height in shares of the image, each from 0 to 1")
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
    InvalidQuery
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
    InvalidQuery
        The run has imported vectors, or the region shows nothing to search with.
    ImageError
        The file cannot be read.
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


def refined(
    searcher: Any,
    queries: Queries,
    *,
    example: str | Sequence[Any] = (),
    weight: float = 1,
    region: Region | None = None,
) -> tuple[Queries, frozenset[int]]:
    """Restrict queries to a region, and add examples to each; see `Searcher.search`.

    Returns the queries, among whose errors are those of regions that show nothing and of sums that cancel out, and the
    rows of the examples in the collection.
    """
    from visterm.features import ImageError

    vectors, weights, rows = [], [weight], set()
    for image, weight_of_image in map(_image_and_weight, [example] if isinstance(example, str) else example):
        read = searcher.queries([image])
        if read.errors or len(read.place) != 1:
            name = image if isinstance(image, str) else read.names[0]
            raise InvalidQuery(f"example {name}: {read.errors.get(0, 'give one image per example')}")
        vectors.append(read.Q)
        weights.append(weight_of_image)
        rows.add(read.own[0])
    for value in weights:
        if not -MAX_WEIGHT <= value <= MAX_WEIGHT:
            raise InvalidQuery(f"weight {value:g}: give a number from {-MAX_WEIGHT} to {MAX_WEIGHT}")
    if region is not None:
        _check_regions(searcher)
    sums, read_ones, errors = [], [], dict(queries.errors)
    for row, i in enumerate(queries.place):
        Q = queries.Q[row : row + 1]
        try:
            if region is not None:
                Q = region_vector(searcher, queries.images[i], region)
            sums.append(Q if not vectors and weight == 1 else combine([Q, *vectors], weights))
            read_ones.append(row)
        except (UserError, ImageError) as error:
            errors[i] = error.reason if isinstance(error, ImageError) else str(error)
    place, own = ([values[row] for row in read_ones] for values in (queries.place, queries.own))
    Q = stacked(sums) if sums else queries.Q[:0]
    return replace(queries, Q=Q, place=place, own=own, errors=errors), frozenset(rows - {-1})


def parse_example(text: str) -> tuple[str, float]:
    """Read an image and its weight, ``id:12@-0.5``; 1 without a weight."""
    weighted = _WEIGHTED.fullmatch(text)
    return (weighted[1], float(weighted[2])) if weighted else (text, 1.0)


def _image_and_weight(example: Any) -> tuple[Any, float]:
    if isinstance(example, str):
        return parse_example(example)
    return example if isinstance(example, tuple) else (example, 1.0)


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
