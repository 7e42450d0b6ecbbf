"""Thumbnails of images, for the report, the result page and the service."""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

QUALITY = 70


class Thumbnail(NamedTuple):
    """A small WebP, its size in pixels, and the mean colour of the image as ``#rrggbb``."""

    webp: bytes
    width: int
    height: int
    color: str


def shrink(pixels: np.ndarray, longest: int) -> np.ndarray:
    """Shrink an image so that its longer side has at most `longest` pixels; smaller images stay as they are."""
    factor = longest / max(pixels.shape[:2])
    if factor >= 1:
        return pixels
    width, height = (max(1, round(length * factor)) for length in pixels.shape[1::-1])
    return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def make_thumbnail(pixels: np.ndarray, longest: int) -> Thumbnail:
    """Make a thumbnail of an RGB image, with at most `longest` pixels on its longer side."""
    small = shrink(pixels, longest)
    height, width = small.shape[:2]
    red, green, blue = (int(value) for value in small.reshape(-1, 3).mean(axis=0).round())
    webp = cv2.imencode(".webp", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1]
    return Thumbnail(webp.tobytes(), width, height, f"#{red:02x}{green:02x}{blue:02x}")
