"""From what a network gives for an image, a map or tokens, to one vector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from visterm.features.presets import POOLS


def pooled(rows: npt.NDArray[Any], pool: str | None, size: tuple[int, int], layer: str) -> npt.NDArray[Any]:
    """Return one vector per image: those that a layer gives, or of a map or of tokens as `pool` says.

    Parameters
    ----------
    rows : ndarray of floats, (n, d), (n, c, h, w), (n, h, w, c) or (n, n_tokens, d)
    pool : one of `POOLS` or None
    size : (int, int)
        Height and width of the input, which tell the order of a map's axes, and how many patches there are.
    layer : str
        Its name, for errors.

    Returns
    -------
    ndarray of floats, (n, d)

    Raises
    ------
    ValueError
        `pool` does not fit, or the layer does not give a vector, a map or tokens. The message begins with its name.
    """
    if rows.ndim == 3 and pool is None:
        raise ValueError(
            f"{layer} gives {rows.shape[1]} tokens of {rows.shape[2]} numbers: set pool to {' or '.join(POOLS)}"
        )
    if rows.ndim == 2:
        if pool is not None:
            raise ValueError(f"{layer} gives one vector per image, which pool={pool} does not change: leave it out")
        return rows
    if pool == "cls":
        if rows.ndim != 3:
            raise ValueError(f"{layer} gives a map, which has no class token: set pool to mean")
        return rows[:, 0]
    rows = rows.astype(np.float32) if rows.dtype == np.float16 else rows
    if rows.ndim == 3:
        return rows[:, n_before_patches(rows.shape[1], size) if pool == "mean-patches" else 0 :].mean(axis=1)
    return channels_first(rows, size).mean(axis=(2, 3))


def channels_first(maps: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
    """Return maps of an input of this height and width as (n, c, h, w); those of TensorFlow and Swin are (n, h, w, c).

    The two axes whose ratio is nearer to that of height and width are those of the map.
    """
    _, a, b, c = maps.shape
    if min(a, b, c) and abs(math.log(a / b * size[1] / size[0])) < abs(math.log(b / c * size[1] / size[0])):
        return maps.transpose(0, 3, 1, 2)
    return maps


def patch_grid(n_tokens: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return rows and columns of the patches of an input: of the smallest square ones of which there are so many."""
    height, width = size
    grids = ((height // side, width // side) for side in range(1, min(size) + 1))
    return next((grid for grid in grids if math.prod(grid) <= n_tokens), (1, n_tokens))


def n_before_patches(n_tokens: int, size: tuple[int, int]) -> int:
    """Return how many tokens come before those of patches: the class token, and registers."""
    return n_tokens - math.prod(patch_grid(n_tokens, size))
