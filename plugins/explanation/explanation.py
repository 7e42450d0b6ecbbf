"""Why a query and a result match: what each block, or each cell of a network's last map, adds to the score."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.search.queries import contents_of
from visterm.pipeline.store.segments import as_stored
from visterm.pipeline.store.vectors import ALIKE

from .explanation_regions import RegionAnswer, cells_of_grid, cells_of_map, describe_regions, say_where
from .matched_words import words_in_common
from .shared_neighbours import SharedNeighbours, explain_neighbours

if TYPE_CHECKING:
    import numpy as np

    from visterm.pipeline.search.searcher import Searcher
    from visterm.retrieval import Pair


PAIRS = 30  # listed by default
_CANDIDATES = 3000  # strongest pairs that are considered; 7 x 7 cells have 2,401
_SAME_OVERLAP = 0.5  # intersection over union from which two boxes show the same
_ROUNDING = 1e-4  # largest difference of vectors that rounding can make


class ExplainedImage(TypedDict):
    """One of the two images of an explanation."""

    name: str
    id: Annotated[int | None, Field(description="null: not in the collection")]
    path: str | None
    width: int
    height: int
    boxes: Annotated[list[list[float]], Field(description="x, y, width and height of each block, in pixels")]
    heat: Annotated[list[float], Field(description="What each block adds to the score")]
    cells: Annotated[
        list[list[float]],
        Field(
            description="As boxes, of cells that do not overlap: a network's, or a grid that the blocks are spread over"
        ),
    ]
    cell_heat: Annotated[list[float], Field(description="What each cell adds to the score")]
    regions: Annotated[list[RegionAnswer], Field(description="Those of the pairs of regions")]


class RegionPairAnswer(TypedDict):
    """A region of the query and one of the result, and what they add to the score."""

    query_region: Annotated[int, Field(description="Index of a region of the query")]
    result_region: int
    contribution: float
    share: Annotated[float, Field(description="Of the score")]


class ExplainedBit(TypedDict):
    """A visterm that the metric of a result compares."""

    n_query_blocks: Annotated[int, Field(description="Blocks of the query with this visterm")]
    n_result_blocks: int
    contribution: float


class ExplainedPair(ExplainedBit):
    """Two blocks and what they add to the score, together with those of the same visterms."""

    query_block: Annotated[int, Field(description="Index of a block of the query")]
    result_block: int
    share: Annotated[float, Field(description="Of positive - negative")]
    words: Annotated[str, Field(description="Colours and texture that both blocks show")]


class Explanation(TypedDict):
    """Why a query and a result match."""

    learner: str
    score: float
    sentence: Annotated[str, Field(description="Where the score comes from, in words")]
    parts: Annotated[Literal["block", "cell"], Field(description="cell: of a neural network, in place of blocks")]
    positive: Annotated[float, Field(description="Sum over all pairs that raise the score")]
    negative: Annotated[float, Field(description="Sum over all pairs that lower the score")]
    query: ExplainedImage
    result: ExplainedImage
    regions: Annotated[
        list[RegionPairAnswer],
        Field(
            description="Pairs of regions that carry half of the score together, the strongest first; none if it is 0, "
            "or of a learner that compares bits"
        ),
    ]
    neighbours: NotRequired[
        Annotated[SharedNeighbours | None, Field(description="What photos that both are near to add to the ranking")]
    ]
    rest: Annotated[float, Field(description="Of the score, what all other pairs of cells add")]
    pairs: Annotated[list[ExplainedPair], Field(description="Pairs of blocks, the strongest first")]
    bits: NotRequired[
        Annotated[list[ExplainedBit] | None, Field(description="Of a learner that compares bits, such as MuSL")]
    ]


class PairExplanation(NamedTuple):
    """Result of `explain_pair`, and the pixels of both images, uint8 (H, W, 3)."""

    data: Explanation
    query_pixels: np.ndarray
    result_pixels: np.ndarray


class NoPlaces(UserError):
    """Vectors that no part of an image can be told from: imported ones, or of a network without a map."""


class _Image(NamedTuple):
    name: str  # as given, or as search prints it
    id: int | None  # of an image of the collection
    row: int  # of the collection, -1 for none
    pixels: np.ndarray  # (H, W, 3) uint8
    described: Any  # what its blocks are taken from: the pixels, or the file as search reads it, perhaps smaller
    vector: np.ndarray | None  # (n_features,) of an image of the collection


def explain_pair(
    searcher: Searcher,
    query: Any,
    result: Any,
    learner: str | None = None,
    *,
    n_pairs: int = PAIRS,
    learned_weight: float | None = None,
    n_teachers: int = 0,
) -> Explanation:
    """Compute what each block of a query and of a result adds to their score.

    Parameters
    ----------
    searcher : Searcher
    query, result : int, str, path, ndarray, PIL.Image.Image or bytes
        One image each: an id (``12`` or ``"id:12"``), a path as search prints it, a file from anywhere, or RGB uint8
        pixels (H, W, 3).
    learner : str, optional
        One of ``searcher.learners``; by default `Searcher.default_learner`.
    n_pairs : int
        Most pairs of blocks to list.
    learned_weight : float, optional
        Weight of the learned similarity, as for `Searcher.search`.
    n_teachers : int
        With so many of the training images that made the two similar, and as many that made them less so.

    Returns
    -------
    Explanation
        Ready for JSON; with `n_teachers` also ``teachers``, see `explain_teachers`. The ``pairs`` name one block per
        side to show; the contribution is of all blocks with the same visterms. The heat of a block lacks the ``bits``
        whose visterm its image does not have.

    Raises
    ------
    UserError
        An image cannot be found or read, has changed since it was extracted, or has nothing to compare; or the learner
        cannot be used.
    """
    return explain_with_pixels(
        searcher, query, result, learner, n_pairs=n_pairs, learned_weight=learned_weight, n_teachers=n_teachers
    ).data


def explain_with_pixels(
    searcher: Searcher,
    query: Any,
    result: Any,
    learner: str | None = None,
    *,
    n_pairs: int = PAIRS,
    learned_weight: float | None = None,
    n_teachers: int = 0,
) -> PairExplanation:
    """As `explain_pair`, with the pixels of both images, which a picture of it needs."""
    from visterm.retrieval import explain, explain_matrix, find_regions, no_regions

    name = learner or searcher.default_learner()
    if not hasattr(searcher.extractor, "block_vectors"):
        raise NoPlaces(f"run {searcher.run.name}: its vectors are not made of blocks, which explanations need")
    model, cells = searcher.blend(name, learned_weight), not hasattr(searcher.extractor, "count")
    pair = [_image(searcher, query), _image(searcher, result)]
    (query_boxes, query_vectors), (result_boxes, result_vectors) = (_blocks(searcher, image) for image in pair)
    labels = searcher.labels_for(name)
    row = pair[1].row
    label = None if labels is None or row < 0 else labels[row : row + 1]
    try:
        parts = explain(model, query_vectors, result_vectors, label, n_pairs=_CANDIDATES)
    except ValueError as error:
        raise UserError(f"{pair[0].name} and {pair[1].name}, by {name}: {error}") from None
    pair_images = pair[0].pixels, pair[1].pixels
    grids = [
        cells_of_map(boxes) if cells else cells_of_grid(boxes, image.pixels.shape[1], image.pixels.shape[0])
        for boxes, image in zip((query_boxes, result_boxes), pair, strict=True)
    ]
    regions = no_regions(*(len(grid.boxes) for grid in grids))
    if model.linear and round(parts.score, 6):
        spread = (grid.spread @ vectors for grid, vectors in zip(grids, (query_vectors, result_vectors), strict=True))
        regions = find_regions(explain_matrix(model, *spread), grids[0].shape, grids[1].shape)
    size = parts.positive - parts.negative  # not the score: large positive and negative parts may leave a small one
    explanation: Any = {
        "learner": name,
        "score": round(parts.score, 6),
        "parts": "cell" if cells else "block",
        "positive": _rounded(parts.positive),
        "negative": _rounded(parts.negative),
        "regions": [
            {
                "query_region": region.query,
                "result_region": region.result,
                "contribution": _rounded(region.contribution),
                "share": _rounded(region.contribution / parts.score),
            }
            for region in regions.pairs
        ],
        "rest": _rounded(parts.score - sum(region.contribution for region in regions.pairs)),
        "pairs": [
            {
                "query_block": i,
                "result_block": j,
                "contribution": _rounded(pair.contribution),
                "share": _rounded(pair.contribution / size) if size else 0.0,
                "n_query_blocks": len(pair.query_parts),
                "n_result_blocks": len(pair.result_parts),
                "words": words_in_common(_crop(pair_images[0], query_boxes[i]), _crop(pair_images[1], result_boxes[j])),
            }
            for i, j, pair in _distinct(parts.pairs, query_boxes, result_boxes, n_pairs, cells=cells)
        ],
    }
    sides = (
        ("query", query_boxes, parts.query, grids[0], regions.query),
        ("result", result_boxes, parts.result, grids[1], regions.result),
    )
    for image, (side, boxes, heat, grid, own) in zip(pair, sides, strict=True):
        height, width = image.pixels.shape[:2]
        explanation[side] = {
            "name": image.name,
            "id": image.id,
            "path": image.name if image.id is not None else None,
            "width": width,
            "height": height,
            "boxes": boxes.round(2).tolist(),
            "heat": [_rounded(value) for value in heat],
            "cells": grid.boxes.round(2).tolist(),
            "cell_heat": [_rounded(value) for value in grid.spread @ heat],
            "regions": describe_regions(own, grid, width, height),
        }
    if not model.linear:
        explanation["bits"] = [
            {
                "n_query_blocks": len(pair.query_parts),
                "n_result_blocks": len(pair.result_parts),
                "contribution": _rounded(pair.contribution),
            }
            for pair in parts.pairs
        ]
    explanation["sentence"] = say_where(explanation)
    if row >= 0 and (shared := explain_neighbours(searcher, query, result, name, learned_weight=learned_weight)):
        explanation["neighbours"] = shared
    if n_teachers:
        explanation["teachers"] = load("teachers").explain_teachers(
            searcher, query, result, name, learned_weight=learned_weight, n_teachers=n_teachers
        )
    return PairExplanation(explanation, pair[0].pixels, pair[1].pixels)


def explain_without_pixels(
    searcher: Searcher, query: Any, result: Any, learner: str, *, reason: str, learned_weight: float | None = None
) -> Explanation:
    """As `explain_pair`, where there are no places for the `reason`: the score, and what neighbours add."""
    read = [searcher.queries(one) for one in (query, result)]
    for one in read:
        if one.errors:
            raise UserError(f"{one.names[0]}: {one.errors[0]}")
    score = float(searcher.blend(learner, learned_weight).similarity(read[0].Q, read[1].Q)[0, 0])
    explanation: Any = {
        "learner": learner,
        "score": round(score, 6),
        "sentence": f"Where in the photos the score comes from is not known: {reason}.",
        "parts": "cell",
        "positive": _rounded(max(score, 0)),
        "negative": _rounded(min(score, 0)),
        "regions": [],
        "rest": _rounded(score),
        "pairs": [],
    }
    for side, one in zip(("query", "result"), read, strict=True):
        row = one.rows[0]
        image = searcher.images[row] if row >= 0 else None
        path = None if image is None else image.path
        explanation[side] = {"name": path or one.names[0], "id": None if image is None else image.id, "path": path}
        explanation[side] |= {"width": 1, "height": 1} | {name: [] for name in _PLACES}
    if read[1].rows[0] >= 0 and (
        shared := explain_neighbours(searcher, query, result, learner, learned_weight=learned_weight)
    ):
        explanation["neighbours"] = shared
    return explanation


_PLACES = ("boxes", "heat", "cells", "cell_heat", "regions")


def _image(searcher: Searcher, given: Any) -> _Image:
    """Read one image, of the collection or from outside."""
    import numpy as np
    import scipy.sparse as sp
    from PIL.Image import Image

    from visterm.features import ImageError, decode_image, read_image
    from visterm.features.decoding import as_rgb, pillow_pixels

    given = contents_of(given)
    if isinstance(given, np.ndarray | Image | bytes):
        try:
            if isinstance(given, Image | bytes):
                given = decode_image(given, "image") if isinstance(given, bytes) else pillow_pixels(given)
            return _Image("image", None, -1, as_rgb(given), given, None)
        except ValueError as error:
            raise UserError(str(error)) from None
    name = f"id:{given}" if isinstance(given, int | np.integer) else os.fsdecode(given)
    if os.path.isdir(name):
        raise UserError(f"{name} is a folder; give one image")
    read = searcher.queries(name)
    if read.errors:
        raise UserError(f"{name}: {read.errors[0]}")
    row = read.rows[0]
    image = searcher.images[row] if row >= 0 else None
    file = searcher.root / image.path if image else name
    try:
        max_pixels = searcher.config.collection.max_pixels
        picture = searcher.extractor.read(file, max_pixels=max_pixels)
        reduced = picture.pixels.shape[:2] != (picture.height, picture.width)
        pixels = read_image(file, max_pixels=max_pixels) if reduced else picture.pixels
    except ImageError as error:
        imported = image is not None and searcher.config.collection.vectors.file is not None
        kind = NoPlaces if imported else UserError
        raise kind(f"{image.path if image else name}: {error.reason}") from None
    if image is None:
        return _Image(name, None, -1, pixels, picture, None)
    vector = searcher.X[row]
    if sp.issparse(vector):
        vector = vector.toarray().ravel()
    return _Image(image.path, image.id, row, pixels, picture, vector)


def _blocks(searcher: Searcher, image: _Image) -> tuple[np.ndarray, Any]:
    """Boxes and vectors of the blocks of an image, which sum to the vector that is searched with."""
    import numpy as np

    try:
        boxes, vectors = searcher.extractor.block_vectors(image.described)
    except (ValueError, ImportError) as error:  # no pixels; a network without cells
        raise NoPlaces(f"{image.name}: {error}") from None
    whole = np.asarray(vectors.astype(np.float64).sum(axis=0)).ravel()  # in single precision, long sums would drift
    stored, allowed = whole, _ROUNDING
    imported = searcher.config.collection.vectors.file is not None
    if imported and image.vector is not None:
        cosine = whole @ image.vector / max(float(np.linalg.norm(whole) * np.linalg.norm(image.vector)), 1e-12)
        if cosine < ALIKE:
            raise NoPlaces(f"{image.name}: the model makes another vector of it than was imported ({cosine:.2f})")
        vectors = vectors + ((image.vector - whole) / len(vectors)).astype(np.float32)  # cells sum to what was imported
    elif isinstance(vectors, np.ndarray):
        stored = as_stored(whole[None], searcher.config.features.precision)[0]
        allowed += 2 * float(np.abs(stored - whole).max())  # a number next to one that float16 rounds the other way
        vectors = vectors + ((stored - whole) / len(vectors)).astype(np.float32)  # they sum to what is searched with
    if not imported and image.vector is not None and np.abs(stored - image.vector).max() > allowed:
        raise UserError(
            f"{image.name} has changed since it was extracted; run 'visterm features {searcher.run.option}' first"
        )
    return boxes, vectors


def _distinct(
    pairs: Sequence[Pair], query_boxes: np.ndarray, result_boxes: np.ndarray, n_pairs: int, *, cells: bool
) -> Iterator[tuple[int, int, Pair]]:
    """Yield the strongest pairs with the most central block per side; skip those that show the same as a stronger one.

    Two pairs show the same if the blocks overlap by half of their union or more, in both images. Cells do
    not overlap and are few: two pairs are the same if one image has the same cell, or a strong one would fill the list.
    """
    import numpy as np

    combine = np.maximum if cells else np.minimum

    chosen: list[tuple[int, int]] = []
    for pair in pairs:
        if len(chosen) == n_pairs:
            return
        if not len(pair.query_parts) or not len(pair.result_parts):
            continue
        i, j = _central(query_boxes, pair.query_parts), _central(result_boxes, pair.result_parts)
        if chosen:
            before = np.array(chosen)
            same = combine(
                _overlaps(query_boxes[i], query_boxes[before[:, 0]]),
                _overlaps(result_boxes[j], result_boxes[before[:, 1]]),
            )
            if same.max() >= _SAME_OVERLAP:
                continue
        chosen.append((i, j))
        yield i, j, pair


def _crop(pixels: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Cut a box out of an image."""
    x, y, width, height = (round(float(value)) for value in box)
    return pixels[max(0, y) : y + height, max(0, x) : x + width]


def _central(boxes: np.ndarray, some: np.ndarray) -> int:
    """Which of some boxes is nearest to the centre of all of them."""
    centres = boxes[some, :2] + boxes[some, 2:] / 2
    return int(some[((centres - centres.mean(axis=0)) ** 2).sum(axis=1).argmin()])


def _overlaps(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Intersection of a box with others, as a share of their union: (n_boxes,)."""
    import numpy as np

    corner = np.minimum(box[:2] + box[2:], boxes[:, :2] + boxes[:, 2:])
    shared = np.maximum(corner - np.maximum(box[:2], boxes[:, :2]), 0).prod(axis=1)
    return shared / np.maximum(box[2:].prod() + boxes[:, 2:].prod(axis=1) - shared, 1e-9)


def _rounded(value: float) -> float:
    """Six digits: the precision of float32 sums."""
    return float(f"{value:.6g}")
