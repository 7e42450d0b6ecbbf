"""Spatial pyramids: cells of an image, so that vectors encode roughly where a visterm lies.

Each grid of g x g cells counts the visterms of each of its cells separately (Lazebnik, Schmid & Ponce, CVPR 2006):

    column of a block in a grid = number of its cell * visterms per cell + visterm

Cells are numbered grid after grid, row by row. All cells share one codebook, and the columns of the vectors evenly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

WHOLE = (1,)  # one cell: the image


def check_cells(cells: Sequence[int], n_visterms: int, least: int = 2) -> None:
    """Raise ``ValueError`` for invalid grids, or too few visterms per cell."""
    if (
        isinstance(cells, str)
        or not isinstance(cells, Sequence)
        or not cells
        or any(isinstance(g, bool) or not isinstance(g, int | np.integer) or g < 1 for g in cells)
        or len(set(cells)) < len(cells)
    ):
        raise ValueError(f"cells must list the sides of different grids, such as [3] or [1, 3], not {cells!r}")
    n = n_cells(cells)
    if n > 1 and n_visterms < least * n:
        raise ValueError(
            f"cells {list(cells)} make {n} cells, and n_visterms {n_visterms} leaves {n_visterms // n} for each: "
            f"raise n_visterms to at least {least * n}"
        )


def n_cells(cells: Sequence[int]) -> int:
    """Return the number of cells of all grids together."""
    return sum(g * g for g in cells)


def block_cells(boxes: np.ndarray, height: int, width: int, cells: Sequence[int]) -> np.ndarray:
    """Return the cells that the centres of blocks lie in, int32 of shape (n_blocks, n_grids).

    `boxes`, (n_blocks, 4), are as of `block_grid`, in pixels of an image of `height` and `width`; `cells` are the sides
    of the grids: 3 divides the image into 3 x 3 cells. The numbers of a grid follow those of the grid before it. As S.
    Lazebnik, C. Schmid, J. Ponce: Beyond bags of features: spatial pyramid matching for recognizing natural scene
    categories. CVPR 2006.

    >>> block_cells(np.array([[0.0, 0, 64, 64], [64, 32, 64, 64]]), 96, 128, [1, 2])
    array([[0, 1],
           [0, 4]], dtype=int32)
    """
    centres = (boxes[:, :2] + boxes[:, 2:] / 2) / (width, height)  # x and y, from 0 to 1
    numbers, first = [], 0
    for g in cells:
        x, y = np.minimum(centres * g, g - 1).astype(np.int32).T
        numbers.append(first + y * g + x)
        first += g * g
    return np.column_stack(numbers).astype(np.int32)
