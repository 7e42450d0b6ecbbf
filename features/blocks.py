"""The scale pyramid and the grid of overlapping blocks on each of its levels.

Blocks of ``block_size`` pixels are taken every ``stride`` pixels in x and y; the image is scaled down by ``scale``
and blocks are taken again, until a level has fewer than ``min_blocks`` blocks (Chechik et al., OASIS, JMLR 2010, §3).
"""

from __future__ import annotations

import numpy as np

from visterm.compiled import njit

# ---------------------------------------------------------------------------------------------------------------
# Geometry


def check_grid(block_size: int, stride: int, scale: float, min_blocks: int) -> None:
    """Raise ``ValueError`` for invalid settings of the block grid."""
    for name, value in (("block_size", block_size), ("stride", stride), ("min_blocks", min_blocks)):
        if int(value) != value or value < 1:
            raise ValueError(f"{name} must be a whole number, at least 1, not {value!r}")
    if not scale > 1:
        raise ValueError(f"scale must be above 1 (the image shrinks by it from level to level), not {scale!r}")


def level_shapes(
    height: int, width: int, *, block_size: int = 64, stride: int = 32, scale: float = 1.25, min_blocks: int = 10
) -> list[tuple[int, int]]:
    """Return the (height, width) in pixels of every level of the pyramid, finest first.

    Parameters
    ----------
    height, width : int
        Size of the image in pixels.
    block_size, stride : int
        Side of a block and distance between neighbouring blocks, in pixels of the level.
    scale : float
        Factor between one level and the next.
    min_blocks : int
        The first level with fewer blocks is the last one.

    Returns
    -------
    list of (int, int)
        At least one level. The first is the image, padded to ``block_size`` where it is smaller.

    Notes
    -----
    The paper does not say what becomes of small images. Here the first level is padded to one block, so that every
    image has at least one block; a later level that is smaller than a block ends the pyramid.

    Examples
    --------
    >>> level_shapes(240, 300)
    [(240, 300), (192, 240), (154, 192), (123, 154)]
    """
    height, width = max(height, block_size), max(width, block_size)
    shapes = [(height, width)]
    while blocks_in(*shapes[-1], block_size, stride) >= min_blocks:
        factor = scale ** len(shapes)
        shape = (round(height / factor), round(width / factor))
        if min(shape) < block_size:
            break
        shapes.append(shape)
    return shapes


def blocks_in(height: int, width: int, block_size: int, stride: int) -> int:
    """Return how many whole blocks lie in a level; partial blocks at the border are dropped."""
    return ((height - block_size) // stride + 1) * ((width - block_size) // stride + 1)


def block_grid(
    height: int, width: int, *, block_size: int = 64, stride: int = 32, scale: float = 1.25, min_blocks: int = 10
) -> np.ndarray:
    """Return where every block lies in the original image, in the order of the rows of `describe`.

    Parameters
    ----------
    height, width : int
        Size of the original image in pixels.
    block_size, stride, scale, min_blocks
        As in `level_shapes`.

    Returns
    -------
    ndarray of float64, (n_blocks, 4)
        x and y of the upper left corner, width and height, all in pixels of the original image and clipped to it
        (blocks reach beyond an image that had to be padded). Level by level, finest first; in a level row by row.

    Examples
    --------
    >>> block_grid(64, 96)
    array([[ 0.,  0., 64., 64.],
           [32.,  0., 64., 64.]])
    """
    shapes = level_shapes(height, width, block_size=block_size, stride=stride, scale=scale, min_blocks=min_blocks)
    boxes = []
    for shape in shapes:
        to_y, to_x = shapes[0][0] / shape[0], shapes[0][1] / shape[1]
        ends = [side - block_size + 1 for side in shape]
        y, x = np.mgrid[0 : ends[0] : stride, 0 : ends[1] : stride].reshape(2, -1)
        x0, y0 = x * to_x, y * to_y
        x1, y1 = (x + block_size) * to_x, (y + block_size) * to_y
        # clipping keeps a block that lies wholly in the padding as an empty box at the image's edge
        x0, x1 = np.minimum(x0, width), np.minimum(x1, width)
        y0, y1 = np.minimum(y0, height), np.minimum(y1, height)
        boxes.append(np.column_stack([x0, y0, x1 - x0, y1 - y0]))
    return np.concatenate(boxes)


# ---------------------------------------------------------------------------------------------------------------
# Pixels


def _reflected(size: int, length: int) -> np.ndarray:
    """Indices 0, 1, ..., size-1, size-2, ..., 1, 0, 1, ...: reflection that does not repeat the edge."""
    period = max(2 * (size - 1), 1)  # one pixel can only repeat itself
    i = np.arange(length) % period
    return np.minimum(i, period - i) if size > 1 else np.zeros(length, dtype=np.intp)


def pad_to_block(image: np.ndarray, block_size: int) -> np.ndarray:
    """Continue an image by reflection, to the right and downwards, where it is smaller than a block.

    The image itself if it is large enough; ValueError if it has no pixels.
    """
    height, width = image.shape[:2]
    if height == 0 or width == 0:
        raise ValueError(f"an image of {height}x{width} pixels has nothing to describe")
    if height < block_size:
        image = image[_reflected(height, block_size)]
    if width < block_size:
        image = image[:, _reflected(width, block_size)]
    return image


@njit(cache=True, nogil=True)
def _taps(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the `n` pixels of a shortened axis of `size` pixels lie: left neighbours, and right ones' weights / 256."""
    left = np.empty(n, dtype=np.uint32)
    weights = np.empty(n, dtype=np.float32)
    for i in range(n):
        place = max((i + 0.5) * size / n - 0.5, 0.0)
        left[i] = min(int(place), max(size - 2, 0))
        weights[i] = np.floor((place - left[i]) * 256 + 0.5) if size > 1 else 0
    return left, weights


@njit(cache=True, nogil=True)
def shrink(gray: np.ndarray, out: np.ndarray) -> None:
    """Scale `gray` (H, W) down to the size of `out`, both uint8, bilinearly with weights of 1/256.

    In single precision, where all numbers are whole and below 2**24, so nothing is rounded before the end.
    """
    (height, width), (n_y, n_x) = gray.shape, out.shape
    tops, y_weights = _taps(n_y, height)
    lefts, x_weights = _taps(n_x, width)
    mixed = np.zeros(width + 1, dtype=np.float32)  # a row between two rows; the last element has weight 0
    for y in range(n_y):
        top = gray[tops[y]]
        bottom = gray[min(tops[y] + 1, height - 1)]
        down = y_weights[y]
        up = np.float32(256) - down
        for x in range(width):
            mixed[x] = np.float32(top[x]) * up + np.float32(bottom[x]) * down
        row = out[y]
        for x in range(n_x):
            left = lefts[x]
            right = x_weights[x]
            value = mixed[left] * (np.float32(256) - right) + mixed[left + np.uint32(1)] * right
            row[x] = np.uint8((value + np.float32(32768)) * np.float32(1 / 65536))


def pyramid(
    gray: np.ndarray, *, block_size: int = 64, stride: int = 32, scale: float = 1.25, min_blocks: int = 10
) -> list[np.ndarray]:
    """Return the levels of the scale pyramid of a grey image, finest first.

    Parameters
    ----------
    gray : ndarray of uint8, (H, W)
    block_size, stride, scale, min_blocks
        As in `level_shapes`.

    Returns
    -------
    list of ndarray of uint8
        The shapes are those of `level_shapes`. Each level is scaled down from the one before it, bilinearly.
    """
    levels = [np.ascontiguousarray(pad_to_block(gray, block_size))]
    shapes = level_shapes(*gray.shape, block_size=block_size, stride=stride, scale=scale, min_blocks=min_blocks)
    for shape in shapes[1:]:
        level = np.empty(shape, dtype=np.uint8)
        shrink(levels[-1], level)
        levels.append(level)
    return levels
