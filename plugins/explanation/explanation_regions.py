"""Where a match comes from: the regions of two photos that make half of their score, drawn and in a sentence.

Regions are made of cells: those of a network's last map, or of a grid over which the blocks of visterms, which overlap,
are spread by their areas. The cells of a photo sum to its vector, as its blocks do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp

GRID = 8  # cells along the longer side of a photo, over which blocks are spread; about as fine as the smallest blocks
_MIDDLE = 0.12  # of a side: how far from the middle of a photo the middle of a region lies at most
_LARGE = 0.4  # share of the cells above which they are much of a photo: half of an even score needs 0.7
_CANCEL = 0.2  # share of what raises and lowers a score, below which the score is the little that is left


class Cells(NamedTuple):
    """Cells of a photo, row by row."""

    boxes: np.ndarray  # float64 (n_cells, 4): x, y, width, height
    shape: tuple[int, int]  # rows, columns
    spread: sp.csr_matrix  # (n_cells, n_blocks): the share of each block that belongs to each cell


class RegionAnswer(TypedDict):
    """Cells of an image that touch, and that carry much of the score."""

    cells: Annotated[list[int], Field(description="Indexes of cells of the image")]
    place: Annotated[str, Field(description='In words, such as "upper left"')]
    outline: Annotated[list[list[float]], Field(description="Its lines, as x1, y1, x2 and y2, in pixels")]


def cells_of_map(boxes: np.ndarray) -> Cells:
    """The cells of a network's map, which are its blocks."""
    import numpy as np
    import scipy.sparse as sp

    n = len(boxes)
    x, y = boxes[:, 0], boxes[:, 1]
    columns = next(
        k
        for k in range(1, n + 1)
        if n % k == 0 and (x.reshape(-1, k) == x[:k]).all() and (y.reshape(-1, k) == y[::k, None]).all()
    )
    return Cells(boxes, (n // columns, columns), sp.csr_matrix(sp.eye(n, dtype=np.float32)))


def cells_of_grid(boxes: np.ndarray, width: int, height: int) -> Cells:
    """A grid of cells over a photo, and how the area of each block is spread over them."""
    import numpy as np
    import scipy.sparse as sp

    side = max(width, height) / GRID
    shape = (max(1, round(height / side)), max(1, round(width / side)))
    shares = []
    for axis, length, n in ((1, height, shape[0]), (0, width, shape[1])):
        edges = length * np.arange(n + 1) / n
        start = np.minimum(boxes[:, axis], length - 1)[:, None]  # a block of nothing but padding keeps one pixel
        end = np.maximum(start + boxes[:, axis + 2, None], start + 1)
        shared = np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None)
        shares.append(shared / shared.sum(axis=1, keepdims=True))
    spread = shares[0][:, :, None] * shares[1][:, None, :]  # (n_blocks, rows, columns)
    y, x = np.mgrid[: shape[0], : shape[1]].reshape(2, -1)
    sizes = np.array([width / shape[1], height / shape[0]])
    grid = np.column_stack([np.column_stack([x, y]) * sizes, np.broadcast_to(sizes, (len(x), 2))])
    return Cells(grid, shape, sp.csr_matrix(spread.reshape(len(boxes), -1).T, dtype=np.float32))


def describe_regions(labels: np.ndarray, cells: Cells, width: int, height: int) -> list[RegionAnswer]:
    """Describe the regions of a photo."""
    import numpy as np

    regions: list[RegionAnswer] = []
    for number in range(labels.max() + 1):
        own = np.flatnonzero(labels == number)
        regions.append(
            {
                "cells": own.tolist(),
                "place": _place(cells.boxes[own], len(own) / len(labels), width, height),
                "outline": _outline(labels == number, cells),
            }
        )
    return regions


def _outline(inside: np.ndarray, cells: Cells) -> list[list[float]]:
    """Edges of cells of a region that no other cell of it shares."""
    import numpy as np

    padded = np.pad(inside.reshape(cells.shape), 1)
    lines = []
    for i in np.flatnonzero(inside):
        row, column = divmod(int(i), cells.shape[1])
        x, y, w, h = cells.boxes[i].round(2).tolist()
        ends = {
            (row, column + 1): [x, y, x + w, y],
            (row + 2, column + 1): [x, y + h, x + w, y + h],
            (row + 1, column): [x, y, x, y + h],
            (row + 1, column + 2): [x + w, y, x + w, y + h],
        }
        lines += [[round(end, 2) for end in line] for beside, line in ends.items() if not padded[beside]]
    return lines


def _place(boxes: np.ndarray, share: float, width: int, height: int) -> str:
    """Where some cells are in a photo: "upper left", "middle", "large part"."""
    if share == 1:
        return "whole"
    areas = boxes[:, 2] * boxes[:, 3]
    across, down = areas @ (boxes[:, :2] + boxes[:, 2:] / 2) / areas.sum() / (width, height)
    row = "upper" if down < 0.5 - _MIDDLE else "lower" if down > 0.5 + _MIDDLE else ""
    column = "left" if across < 0.5 - _MIDDLE else "right" if across > 0.5 + _MIDDLE else ""
    if row and column:
        return f"{row} {column}"
    return f"{row} part" if row else f"{column} side" if column else "large part" if share > _LARGE else "middle"


def say_where(explanation: Mapping[str, Any]) -> str:
    """One sentence: where the score of an explanation comes from."""
    score, positive, negative = (explanation[name] for name in ("score", "positive", "negative"))
    if "bits" in explanation:
        return _say_bits(explanation["bits"])
    if not positive and not negative:
        return "The score is 0: the two have nothing in common."
    if abs(score) < _CANCEL * (positive - negative):
        return (
            f"The score is the little that is left of {positive:.3g} that raises it and {-negative:.3g} that lowers it."
        )
    query, result = ([region["place"] for region in explanation[side]["regions"]] for side in ("query", "result"))
    some, other = (sum(len(region["cells"]) for region in explanation[side]["regions"]) for side in ("query", "result"))
    n_query, n_result = (len(explanation[side]["cells"]) for side in ("query", "result"))
    share = sum(pair["share"] for pair in explanation["regions"])
    places = (
        f"{_say_places(query, 'query')} ({some} of {n_query} cells) and "
        f"{_say_places(result, 'result')} ({other} of {n_result})"
    )
    percent = f"{100 * share:.0f} % of it"
    if min(some / n_query, other / n_result) > _LARGE:
        return f"The score is spread over both photos: {percent} comes from {places}."
    more = f"; the rest {'lowers' if score > 0 else 'raises'} it" if share > 1 else ""
    subject = "The score" if score > 0 else "That the score is below 0"
    return f"{subject} comes mostly from {places}: {percent}{more}."


def _say_places(places: Sequence[str], name: str) -> str:
    """The places of the regions of a photo: "the upper left and the middle of the query"."""
    if "whole" in places:
        return f"the whole {name}"
    if "large part" in places:
        return f"a large part of the {name}"
    *some, last = (f"the {place}" for place in dict.fromkeys(places))
    return f"{', '.join(some)} and {last} of the {name}" if some else f"{last} of the {name}"


def _say_bits(bits: Sequence[Mapping[str, Any]]) -> str:
    """MuSL compares bits: whether a visterm's share of an image is below a threshold."""
    agree = [bit for bit in bits if bit["contribution"] > 0]
    absent = sum(not bit["n_query_blocks"] and not bit["n_result_blocks"] for bit in agree)
    compared = f"{len(bits)} visterm{'s' if len(bits) != 1 else ''}"
    return (
        f"The metric of this result compares {compared}: {len(agree)} agree ({absent} absent from both images), "
        f"{len(bits) - len(agree)} disagree."
    )
