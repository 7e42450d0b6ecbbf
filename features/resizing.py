"""Resize pixels: average over areas where a side shrinks, interpolate where it grows."""

from __future__ import annotations

from typing import cast

import cv2
import numpy as np
import numpy.typing as npt

VERSION = 2  # of `resize`: 1 is what `resize_as_before` does


def resize(pixels: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Resize an image: first a side that shrinks, by averaging over areas, then one that grows, linearly.

    OpenCV's INTER_AREA averages only where no side grows. If one shrinks and the other grows, it interpolates between
    two pixels along both: of 640 columns that become 64, 128 count. The result is the same on every processor.
    """
    pixels = np.ascontiguousarray(pixels)
    smaller = min(height, pixels.shape[0]), min(width, pixels.shape[1])
    if smaller != pixels.shape[:2]:
        pixels = cast("npt.NDArray[np.uint8]", cv2.resize(pixels, smaller[::-1], interpolation=cv2.INTER_AREA))
    if smaller != (height, width):
        pixels = cast(
            "npt.NDArray[np.uint8]", cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR_EXACT)
        )
    return pixels


def resize_as_before(pixels: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    """Resize as version 1 did, whose vectors older runs hold: INTER_AREA also where one side grows."""
    shrinks = pixels.shape[0] > height or pixels.shape[1] > width
    interpolation = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR_EXACT
    resized = cv2.resize(np.ascontiguousarray(pixels), (width, height), interpolation=interpolation)
    return cast("npt.NDArray[np.uint8]", resized)
