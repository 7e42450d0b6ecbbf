"""Haar-like filters on the blocks of an image: the tests in the nodes of a forest codebook.

    response = n_dark * sum(light cells) - n_light * sum(dark cells)

Each block consists of 16 x 16 cells, and a filter of boxes of cells of one channel: CIE-LUV colours, or gradient
magnitudes in 8 orientations. A summed-area table of the cells' means gives a box's sum in four look-ups. All of it is
whole numbers, so nothing is ever rounded differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visterm.compiled import njit
from visterm.features.descriptors import _nearest_pixels
from visterm.features.parameters import check_random_state

CELLS = 16  # along a side of a block
N_COLORS = 3  # channels 0 ... 2: L, u, v
N_ORIENTATIONS = 8  # channels 3 ... 10: gradients of 0 ... 22.5 degrees, 22.5 ... 45, ...
N_CHANNELS = N_COLORS + N_ORIENTATIONS
BRIGHTEST = 1023  # largest mean of a cell, in quarters of a grey level: all responses are below 2**24, exact in float32
LAYOUTS = ((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (2, 2))  # rows and columns of rectangles in a filter

# ---------------------------------------------------------------------------------------------------------------
# Channels


@njit(cache=True, nogil=True, error_model="numpy")
def _gradients(above: np.ndarray, row: np.ndarray, below: np.ndarray, bins: np.ndarray, magnitudes: np.ndarray) -> None:
    """Fill the orientation bins and the magnitudes, in quarters of a grey level, of a row of pixels.

    The edge pixel is repeated beyond the edge. tan(22.5) = sqrt(2) - 1 and tan(67.5) = sqrt(2) + 1 turn the comparison
    of angles into one of squares, of whole numbers below 2**24, which single precision holds exactly.
    """
    last = row.size - 1
    _gradients_between(above, row[:1], row[min(1, last) :], below, bins[:1], magnitudes[:1])
    if last > 0:
        _gradients_between(above[1:], row, row[2:], below[1:], bins[1:last], magnitudes[1:last])
        _gradients_between(above[last:], row[last - 1 :], row[last:], below[last:], bins[last:], magnitudes[last:])


@njit(cache=True, nogil=True, error_model="numpy")
def _gradients_between(
    above: np.ndarray, left: np.ndarray, right: np.ndarray, below: np.ndarray, bins: np.ndarray, magnitudes: np.ndarray
) -> None:
    """As `_gradients`, with one array per neighbour, so that the compiler can vectorise the loop."""
    zero, one = np.float32(0), np.float32(1)
    for x in range(bins.size):
        dx = np.float32(right[x]) - np.float32(left[x])
        dy = np.float32(below[x]) - np.float32(above[x])
        a, b = abs(dx), abs(dy)
        twice = np.float32(2) * a * a
        sector = one if (a + b) * (a + b) > twice else zero
        if b > a:
            sector += one if (b - a) * (b - a) <= twice else np.float32(2)
        bins[x] = np.float32(7) - sector if dx * dy < zero else sector
        magnitudes[x] = np.float32(4) * np.sqrt(a * a + b * b) + np.float32(0.5)


@njit(cache=True, nogil=True, error_model="numpy")
def sum_cells(luv: np.ndarray, gray: np.ndarray, block_size: int, table: np.ndarray) -> None:
    """Fill the summed-area table of the cells of a level, (n_y + 1, n_x + 1, 11) of int32.

    luv : (H, W, 3) of the finest level, whose nearest pixel is taken, gray : (h, w) of this level. Cell i goes from
    pixel i * block_size // 16 to the next one's, and has one pixel at least.
    """
    n_y, n_x = table.shape[0] - 1, table.shape[1] - 1
    height, width = gray.shape
    ys, xs = _nearest_pixels(height, luv.shape[0]), _nearest_pixels(width, luv.shape[1])
    bins, magnitudes = np.empty(width, dtype=np.int32), np.empty(width, dtype=np.int32)
    sums = np.empty((n_x, N_CHANNELS), dtype=np.int32)
    table[0] = 0
    for i in range(n_y):
        top = i * block_size // CELLS
        bottom = max((i + 1) * block_size // CELLS, top + 1)
        sums[:] = 0
        for y in range(top, bottom):
            _gradients(gray[max(y - 1, 0)], gray[y], gray[min(y + 1, height - 1)], bins, magnitudes)
            colors = luv[ys[y]]
            for j in range(n_x):
                left = j * block_size // CELLS
                into = sums[j]
                for x in range(left, max((j + 1) * block_size // CELLS, left + 1)):
                    color = colors[xs[x]]
                    into[0] += color[0]
                    into[1] += color[1]
                    into[2] += color[2]
                    into[N_COLORS + bins[x]] += magnitudes[x]
        table[i + 1, 0] = 0
        running = np.zeros(N_CHANNELS, dtype=np.int32)
        for j in range(n_x):
            left = j * block_size // CELLS
            n = np.uint32((bottom - top) * (max((j + 1) * block_size // CELLS, left + 1) - left))
            for c in range(N_CHANNELS):
                quarters = np.uint32(4 if c < N_COLORS else 1) * np.uint32(sums[j, c])
                running[c] += min(np.uint32(quarters + n // np.uint32(2)) // n, np.uint32(BRIGHTEST))
                table[i + 1, j + 1, c] = table[i, j + 1, c] + running[c]


# ---------------------------------------------------------------------------------------------------------------
# Filters


def haar_filters(n: int, channels: Any, random_state: Any = None) -> np.ndarray:
    """Draw n random Haar-like filters, uint8 (n, 13).

    Columns are the channel, of `channels`: 0 ... 2 are L, u and v, 3 ... 10 gradients by orientation; the whole filter;
    its light box; the second light box, which may be empty. A box is the top, left, bottom and right border, in cells
    of the block: 0 ... 16. Place and size are drawn evenly, and so is the layout: two rectangles side by side or one
    above the other, the middle one of three, two opposite ones of four, or a single one, which compares a channel's
    mean itself.
    """
    rng = check_random_state(random_state)
    filters = np.zeros((n, 13), dtype=np.uint8)
    for row in filters:
        n_y, n_x = LAYOUTS[rng.randint(len(LAYOUTS))]
        h, w = rng.randint(1, CELLS // n_y + 1), rng.randint(1, CELLS // n_x + 1)
        y, x = rng.randint(CELLS - n_y * h + 1), rng.randint(CELLS - n_x * w + 1)
        light_y, light_x = y + h * (n_y == 3), x + w * (n_x == 3)
        row[0] = channels[rng.randint(len(channels))]
        row[1:5] = y, x, y + n_y * h, x + n_x * w
        row[5:9] = light_y, light_x, light_y + h, light_x + w
        if n_y == n_x == 2:
            row[9:] = y + h, x + w, y + 2 * h, x + 2 * w
    return filters


@njit(cache=True, nogil=True, error_model="numpy")
def box_sum(table: np.ndarray, y: int, x: int, c: int, top: int, left: int, bottom: int, right: int) -> np.int32:
    """Sum the cells of a box of the block whose first cell is (y, x); right even where the table has wrapped around."""
    return np.int32(
        table[y + bottom, x + right, c] - table[y + top, x + right, c]
        - table[y + bottom, x + left, c] + table[y + top, x + left, c]
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def response(table: np.ndarray, y: int, x: int, f: np.ndarray) -> np.int32:
    """Return the response of a filter to the block whose first cell is (y, x)."""
    c = f[0]
    light = np.int32(box_sum(table, y, x, c, f[5], f[6], f[7], f[8]))
    n_light = (np.int32(f[7]) - f[5]) * (np.int32(f[8]) - f[6])
    if f[11] > 0:
        light += box_sum(table, y, x, c, f[9], f[10], f[11], f[12])
        n_light += (np.int32(f[11]) - f[9]) * (np.int32(f[12]) - f[10])
    n_dark = (np.int32(f[3]) - f[1]) * (np.int32(f[4]) - f[2]) - n_light
    if n_dark == 0:
        return np.int32(light)
    dark = box_sum(table, y, x, c, f[1], f[2], f[3], f[4]) - light
    return np.int32(n_dark * light - n_light * dark)


@njit(cache=True, nogil=True, error_model="numpy")
def respond(table: np.ndarray, ys: np.ndarray, xs: np.ndarray, filters: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (n_blocks, n_filters) of float32 with the responses of all blocks of a level."""
    for i in range(ys.size):
        for j in range(xs.size):
            block = out[i * xs.size + j]
            for f in range(filters.shape[0]):
                block[f] = response(table, ys[i], xs[j], filters[f])
