"""Block descriptors: a colour histogram and a texture histogram, side by side.

For each block of the grid the palette colours and the local binary patterns of its pixels are counted; each
histogram is divided by the number of pixels, and the square root of each bin is taken (Hellinger):

    descriptor = sqrt([colours (n_colors), patterns (59)] / block_size**2)

(Chechik et al., OASIS, JMLR 2010, §3). Counts are taken once for each cell of the grid that stride and block size
have in common, and four cells are summed to a block, rather than touching each pixel four times.
"""

from __future__ import annotations

import math

import cv2
import numba
import numpy as np

from .blocks import blocks_in, check_grid, pyramid
from .color import color_rows
from .texture import N_PATTERNS, PATTERN_CODES, lbp_rows

NORMALIZATIONS = {"l1": lambda shares: shares, "hellinger": np.sqrt}


@numba.njit(cache=True, nogil=True)
def _count_cells(codes, cell, first, n_bins, cells):
    """Add up histograms of square cells: cells[i, j, first + c] is the number of c in cell (i, j).

    Each cell is counted in four histograms by turns, because neighbouring pixels are often equal and an increment
    that waits for the one before it is four times as slow.
    """
    lanes = np.empty((4, n_bins), dtype=np.int32)
    l0, l1, l2, l3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            lanes[:] = 0
            for y in range(i * cell, (i + 1) * cell):
                row = codes[y, j * cell : (j + 1) * cell]
                for x in range(0, cell - 3, 4):
                    l0[row[x]] += 1
                    l1[row[x + 1]] += 1
                    l2[row[x + 2]] += 1
                    l3[row[x + 3]] += 1
                for x in range(cell - cell % 4, cell):
                    l0[row[x]] += 1
            for c in range(n_bins):
                cells[i, j, first + c] = l0[c] + l1[c] + l2[c] + l3[c]


@numba.njit(cache=True, nogil=True)
def _sum_blocks(cells, cells_per_block, cells_per_stride, out):
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


@numba.njit(cache=True, nogil=True)
def _describe_level(image, gray, table, patterns, n_colors, cell, cells_per_block, cells_per_stride, out):
    """Fill `out` (n_blocks, n_colors + 59) with the counts of one level of the pyramid."""
    codes = np.empty(gray.shape, dtype=np.uint8)
    cells = np.empty((gray.shape[0] // cell, gray.shape[1] // cell, out.shape[1]), dtype=np.int32)
    color_rows(image, table, codes)
    _count_cells(codes, cell, 0, n_colors, cells)
    lbp_rows(gray, patterns, codes)
    _count_cells(codes, cell, n_colors, N_PATTERNS, cells)
    _sum_blocks(cells, cells_per_block, cells_per_stride, out)


def as_rgb(image: np.ndarray) -> np.ndarray:
    """Return an image as contiguous RGB, a grey one with three equal channels.

    Parameters
    ----------
    image : ndarray of uint8, (H, W) or (H, W, 3)

    Returns
    -------
    ndarray of uint8, (H, W, 3)

    Raises
    ------
    ValueError
        Another shape or type.
    """
    image = np.asarray(image)
    if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise ValueError(
            f"an image must be a uint8 array of shape (H, W, 3) or (H, W), not {image.dtype} {image.shape}"
        )
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    return np.ascontiguousarray(image)


def describe(
    image: np.ndarray,
    palette,
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
    The paper does not say how histograms are normalised, nor what becomes of images smaller than a block: they are
    continued by reflection (see `pad_to_block`).

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large scale online learning of image similarity through ranking.
    JMLR 11, 2010, §3.
    """
    check_grid(block_size, stride, scale, min_blocks)
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {sorted(NORMALIZATIONS)}, not {normalization!r}")
    levels = pyramid(
        as_rgb(image), block_size=block_size, stride=stride, scale=scale, min_blocks=min_blocks
    )
    n_blocks = [blocks_in(*level.shape[:2], block_size, stride) for level in levels]
    n_colors = len(palette.colors_)
    counts = np.empty((sum(n_blocks), n_colors + N_PATTERNS), dtype=np.int32)
    cell = math.gcd(block_size, stride)
    row = 0
    for level, n in zip(levels, n_blocks, strict=True):
        gray = cv2.cvtColor(level, cv2.COLOR_RGB2GRAY)
        _describe_level(
            level, gray, palette.table_, PATTERN_CODES, n_colors, cell, block_size // cell, stride // cell,
            counts[row : row + n],
        )  # fmt: skip
        row += n
    shares = counts.astype(np.float32) / np.float32(block_size**2)
    return NORMALIZATIONS[normalization](shares)
