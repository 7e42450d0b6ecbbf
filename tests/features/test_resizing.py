"""Resizing: the mean of each band stays, whichever side shrinks."""

import cv2
import numpy as np
import pytest

from visterm.features.resizing import resize

RNG = np.random.default_rng(0)


def area_mean(values, n):
    """The means of n equal parts of the rows, exact: rows count by the share that lies in a part."""
    edges = np.arange(n + 1) * len(values) / n
    sums = np.concatenate([[0], np.cumsum(values, axis=0)])
    whole = np.minimum(edges.astype(int), len(values) - 1)
    at = sums[whole] + (edges - whole) * values[whole]
    return np.diff(at) / (len(values) / n)


@pytest.mark.parametrize(("height", "width"), [(20, 640), (640, 20), (8, 3001), (1, 500), (500, 1), (31, 33)])
def test_each_band_keeps_its_mean(height, width):
    columns = RNG.integers(0, 256, width).astype(np.uint8)
    columns[:: max(2, width // 128)] = 255  # narrow stripes, which interpolation misses or takes for all
    small = resize(np.tile(columns[None, :, None], (height, 1, 3)), 64, 64)
    assert small.shape == (64, 64, 3)
    if width >= 64:
        np.testing.assert_allclose(small.mean(axis=(0, 2)), area_mean(columns.astype(float), 64), atol=1)
    rows = RNG.integers(0, 256, height).astype(np.uint8)
    tall = resize(np.tile(rows[:, None], (1, width)), 64, 64)
    if height >= 64:
        np.testing.assert_allclose(tall.mean(axis=1), area_mean(rows.astype(float), 64), atol=1)


def test_other_pixels_are_those_of_opencv():
    pixels = RNG.integers(0, 256, (50, 90, 3), dtype=np.uint8)
    kinds = {(20, 40): cv2.INTER_AREA, (50, 40): cv2.INTER_AREA, (60, 90): cv2.INTER_LINEAR_EXACT}
    kinds[70, 99] = cv2.INTER_LINEAR_EXACT
    for size, interpolation in kinds.items():
        np.testing.assert_array_equal(
            resize(pixels, *size), cv2.resize(pixels, size[::-1], interpolation=interpolation)
        )
    assert resize(pixels, 50, 90) is pixels
