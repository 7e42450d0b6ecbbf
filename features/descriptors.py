"""Block descriptors: a colour histogram and a texture histogram, side by side.

For each block of the grid the palette colours and the local binary patterns of its pixels are counted; each
histogram is divided by the number of pixels, and the square root of each bin is taken (Hellinger):

    descriptor = sqrt([colours (n_colors), patterns (59)] / block_size**2)

(Chechik et al., OASIS, JMLR 2010, §3). Counts are taken once for each cell of the grid that stride and block size
have in common, and four cells are summed to a block, rather than touching each pixel four times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import cv2
import numpy as np

from visterm.compiled import njit

from . import plain
from .blocks import blocks_in, check_grid, level_shapes, pad_to_block, shrink
from .decoding import as_rgb
from .texture import N_PATTERNS, UNIFORM_PATTERNS, lbp_patterns

if TYPE_CHECKING:
    from .color import Palette

NORMALIZATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"l1": lambda shares: shares, "hellinger": np.sqrt}


@njit(cache=True, nogil=True)
def _count_cells(
    values: np.ndarray,
    ys: np.ndarray,
    xs: np.ndarray,
    cell: int,
    n_values: int,
    listed: np.ndarray,
    first: int,
    cells: np.ndarray,
) -> None:
    """Count the values of the pixels of square cells.

    cells[i, j, first + b] becomes the number of pixels of cell (i, j) with the value listed[b], and one more bin that
    of the pixels with any other value. Pixel (y, x) of the level has the value values[ys[y], xs[x]], below `n_values`.
    Each cell is counted in four histograms by turns, because neighbouring pixels are often equal, and an increment that
    waits for the one before it is slow.
    """
    lanes = np.zeros((4, n_values), dtype=np.int32)
    l0, l1, l2, l3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            for y in range(i * cell, (i + 1) * cell):
                row = values[ys[y]]
                for x in range(j * cell, (j + 1) * cell - 3, 4):
                    l0[row[xs[x]]] += 1
                    l1[row[xs[x + 1]]] += 1
                    l2[row[xs[x + 2]]] += 1
                    l3[row[xs[x + 3]]] += 1
                for x in range((j + 1) * cell - cell % 4, (j + 1) * cell):
                    l0[row[xs[x]]] += 1
            rest = cell * cell
            for b in range(listed.size):
                v = listed[b]
                n = l0[v] + l1[v] + l2[v] + l3[v]
                cells[i, j, first + b] = n
                rest -= n
            cells[i, j, first + listed.size] = rest
            lanes[:] = 0


@njit(cache=True, nogil=True)
def _sum_blocks(cells: np.ndarray, cells_per_block: int, cells_per_stride: int, out: np.ndarray) -> None:
    """Sum the cells of every block into a row of `out`, (n_blocks, n_bins) of int32."""
    n_y = (cells.shape[0] - cells_per_block) // cells_per_stride + 1
    n_x = (cells.shape[1] - cells_per_block) // cells_per_stride + 1
    for i in range(n_y):
        for j in range(n_x):
            block = out[i * n_x + j]
            block[:] = 0
            for y in range(i * cells_per_stride, i * cells_per_stride + cells_per_block):
                for x in range(j * cells_per_stride, j * cells_per_stride + cells_per_block):
                    for c in range(block.size):
                        block[c] += cells[y, x, c]


@njit(cache=True, nogil=True)
def _nearest_pixels(n: int, size: int) -> np.ndarray:
    """Pixel of an axis of `size` that lies nearest to the middle of each of the `n` pixels it is scaled down to."""
    return ((2 * np.arange(n) + 1) * size // (2 * n)).astype(np.uint32)


@njit(cache=True, nogil=True, plain=plain.count_blocks)
def _count_blocks(
    colors: np.ndarray,
    gray: np.ndarray,
    shapes: np.ndarray,
    uniform_patterns: np.ndarray,
    grid: tuple[int, int, int],
    out: np.ndarray,
) -> None:
    """Fill `out` (n_blocks, n_colors + 59) with the counts of all levels.

    colors : palette colours (H, W) and gray : grey levels (H, W) of the finest level, shapes : (n_levels, 2),
    grid : block size, stride, and their greatest common divisor.
    """
    block_size, stride, cell = grid
    n_colors = out.shape[1] - uniform_patterns.size - 1
    all_but_last = np.arange(n_colors - 1)
    row = 0
    for level in range(shapes.shape[0]):
        height, width = shapes[level]
        if level > 0:
            finer = gray
            gray = np.empty((height, width), dtype=np.uint8)
            shrink(finer, gray)
        patterns = np.empty((height, width), dtype=np.uint8)
        lbp_patterns(gray, patterns)
        cells = np.empty((height // cell, width // cell, out.shape[1]), dtype=np.int32)
        ys, xs = _nearest_pixels(height, colors.shape[0]), _nearest_pixels(width, colors.shape[1])
        _count_cells(colors, ys, xs, cell, n_colors, all_but_last, 0, cells)
        ys, xs = _nearest_pixels(height, height), _nearest_pixels(width, width)
        _count_cells(patterns, ys, xs, cell, 256, uniform_patterns, n_colors, cells)
        n = ((height - block_size) // stride + 1) * ((width - block_size) // stride + 1)
        _sum_blocks(cells, block_size // cell, stride // cell, out[row : row + n])
        row += n


def describe(
    image: np.ndarray,
    palette: Palette,
    *,
    block_size: int = 64,
    stride: int = 32,
    scale: float = 1.25,
    min_blocks: int = 10,
    normalization: str = "hellinger",
) -> np.ndarray:
    """Return the descriptors of all blocks of an image.

    Parameters
    ----------
    image : ndarray of uint8, (H, W, 3) or (H, W)
        RGB or grey.
    palette : Palette
        A fitted one.
    block_size, stride, scale, min_blocks
        The block grid, see `level_shapes`.
    normalization : {"hellinger", "l1"}
        "l1": each histogram sums to 1. "hellinger": the square roots of that, so that Euclidean distances between
        descriptors are Hellinger distances between histograms.

    Returns
    -------
    ndarray of float32, (n_blocks, n_colors + 59)
        Colours first, then texture. The rows are in the order of `block_grid`.

    Raises
    ------
    ValueError
        The image has no pixels or is not 8-bit RGB or grey, or a setting is out of range.

    Notes
    -----
    - The paper does not say how histograms are normalised, nor what becomes of images smaller than a block: they are
      continued by reflection (see `pad_to_block`).
    - Grey levels are scaled down bilinearly, colours by taking the nearest pixel of the finest level, so that each
      pixel's palette colour is looked up once. On Caltech-101 that ranks as well as scaling RGB bilinearly.

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large scale online learning of image similarity through ranking.
    JMLR 11, 2010, §3.
    """
    check_grid(block_size, stride, scale, min_blocks)
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {sorted(NORMALIZATIONS)}, not {normalization!r}")
    image = np.ascontiguousarray(pad_to_block(as_rgb(image), block_size))
    shapes = level_shapes(*image.shape[:2], block_size=block_size, stride=stride, scale=scale, min_blocks=min_blocks)
    n_blocks = sum(blocks_in(height, width, block_size, stride) for height, width in shapes)
    n_colors = len(palette.colors_)
    counts = np.empty((n_blocks, n_colors + N_PATTERNS), dtype=np.int32)
    grid = block_size, stride, math.gcd(block_size, stride)
    gray = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    _count_blocks(palette.predict(image), gray, np.array(shapes), UNIFORM_PATTERNS, grid, counts)
    shares = counts.astype(np.float32) / np.float32(block_size**2)
    return NORMALIZATIONS[normalization](shares)
