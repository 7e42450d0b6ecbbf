"""Visterms of a few photos in NumPy, while Numba is not loaded: see `visterm.compiled`.

Names, arguments and bytes are those of the kernels. All numbers are whole but the distances, which are summed in the
order of the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST_PIXELS = 4_000_000
_MOST_CELLS = 64  # along a block
_MOST_PRODUCTS = 400_000_000
_SLACK = 1e-6  # of the squared lengths: more than the rounding of squares in single precision adds to two distances


def color_rows(image: np.ndarray, table: np.ndarray, out: np.ndarray) -> Any:
    """Fill `out` with the table's entry for every pixel."""
    if out.size > _MOST_PIXELS:
        return NotImplemented
    r, g, b = ((image[:, :, channel] >> 3).astype(np.uint16) for channel in range(3))
    np.take(table, r << 10 | g << 5 | b, out=out)
    return None


def count_blocks(
    colors: np.ndarray,
    gray: np.ndarray,
    shapes: np.ndarray,
    uniform_patterns: np.ndarray,
    grid: tuple[int, int, int],
    out: np.ndarray,
) -> Any:
    """Fill `out` with the counts of all levels."""
    block_size, stride, cell = grid
    if gray.size > _MOST_PIXELS or block_size > _MOST_CELLS * cell:
        return NotImplemented
    n_colors = out.shape[1] - uniform_patterns.size - 1
    row = 0
    for level, (height, width) in enumerate(shapes.tolist()):
        gray = _shrunk(gray, height, width) if level > 0 else gray
        ys, xs = _nearest_pixels(height, colors.shape[0]), _nearest_pixels(width, colors.shape[1])
        cells = np.concatenate([
            _count_cells(colors[np.ix_(ys, xs)], cell, n_colors, np.arange(n_colors - 1)),
            _count_cells(_patterns(gray), cell, 256, uniform_patterns),
        ], axis=2)  # fmt: skip
        blocks = _sum_blocks(cells, block_size // cell, stride // cell)
        out[row : row + len(blocks)] = blocks
        row += len(blocks)
    return None


def _nearest_pixels(n: int, size: int) -> np.ndarray:
    return (2 * np.arange(n) + 1) * size // (2 * n)


def _taps(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    places = np.maximum((np.arange(n) + 0.5) * size / n - 0.5, 0.0)
    left = np.minimum(places.astype(np.int64), max(size - 2, 0))
    weights = np.floor((places - left) * 256 + 0.5) if size > 1 else np.zeros(n)
    return left, weights.astype(np.float32)


def _shrunk(gray: np.ndarray, height: int, width: int) -> np.ndarray:
    tops, down = _taps(height, gray.shape[0])
    lefts, right = _taps(width, gray.shape[1])
    bottoms, rights = np.minimum(tops + 1, gray.shape[0] - 1), np.minimum(lefts + 1, gray.shape[1] - 1)
    levels = gray.astype(np.float32)
    mixed = levels[tops] * (256 - down)[:, None] + levels[bottoms] * down[:, None]
    value = mixed[:, lefts] * (256 - right) + mixed[:, rights] * right
    return ((value + 32768) * np.float32(1 / 65536)).astype(np.uint8)


def _patterns(gray: np.ndarray) -> np.ndarray:
    height, width = gray.shape
    padded = np.pad(gray, 2, mode="edge").astype(np.float32)

    def at(y: int, x: int) -> np.ndarray:
        return padded[2 + y : 2 + y + height, 2 + x : 2 + x + width]

    patterns = np.zeros(gray.shape, np.uint8)
    for bit, (y, x) in enumerate(((0, 2), (-1, 1), (-2, 0), (-1, -1), (0, -2), (1, -1), (2, 0), (1, 1))):
        if x and y:
            between = at(y, x) * 816 + (at(y, 2 * x) + at(2 * y, x)) * 577 + at(2 * y, 2 * x) * 408
            set_here = between >= at(0, 0) * 2378
        else:
            set_here = at(y, x) >= at(0, 0)
        patterns |= set_here.view(np.uint8) << bit
    return patterns


def _count_cells(values: np.ndarray, cell: int, n_values: int, listed: np.ndarray) -> np.ndarray:
    n_y, n_x = values.shape[0] // cell, values.shape[1] // cell
    numbers = np.repeat(np.arange(n_y), cell)[:, None] * n_x + np.repeat(np.arange(n_x), cell)
    keys = numbers * n_values + values[: n_y * cell, : n_x * cell]
    counts = np.bincount(keys.ravel(), minlength=n_y * n_x * n_values).reshape(n_y, n_x, n_values)[:, :, listed]
    return np.concatenate([counts, cell * cell - counts.sum(axis=2, keepdims=True)], axis=2)


def _sum_blocks(cells: np.ndarray, cells_per_block: int, cells_per_stride: int) -> np.ndarray:
    for axis in (0, 1):
        sums = np.cumsum(cells, axis=axis)
        sums = np.insert(sums, 0, 0, axis=axis)
        n = cells.shape[axis] - cells_per_block + 1
        first, last = (np.arange(start, start + n, cells_per_stride) for start in (0, cells_per_block))
        cells = sums.take(last, axis=axis) - sums.take(first, axis=axis)
    return cells.reshape(-1, cells.shape[2])


def nearest(centers: np.ndarray, points: np.ndarray) -> Any:
    """Numbers of the nearest centres (k, d) of points (n, d): int32 (n,), the lowest of equally near ones."""
    if centers.size * len(points) > _MOST_PRODUCTS or not len(points):
        return NotImplemented
    wide, at = centers.astype(np.float64), points.astype(np.float64)
    halves = np.einsum("ij,ij->i", wide, wide) / 2
    rough = halves - at @ wide.T  # half the squared distance, less what is equal for all centres
    slack = _SLACK * (halves.max() + np.einsum("ij,ij->i", at, at).max())
    rows, numbers = np.nonzero(rough <= rough.min(axis=1, keepdims=True) + slack)
    squares = np.pad(np.square(points[rows] - centers[numbers]), ((0, 0), (0, -centers.shape[1] % 4)))
    lanes = squares.reshape(len(rows), -1, 4)
    s0, s1, s2, s3 = np.add.accumulate(lanes, axis=1, dtype=np.float64)[:, -1].T
    order = np.lexsort([numbers, (s0 + s1) + (s2 + s3), rows])
    return numbers[order[np.unique(rows[order], return_index=True)[1]]].astype(np.int32)
