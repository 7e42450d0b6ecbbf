"""Thumbnails."""

import cv2
import numpy as np
import pytest

from visterm.pipeline.report.thumbnail import make_thumbnail


@pytest.mark.parametrize(
    ("shape", "size"), [((300, 400), (120, 160)), ((1000, 2), (160, 1)), ((160, 160), (160, 160)), ((3, 5), (3, 5))]
)
def test_thumbnail(shape, size):
    made = make_thumbnail(np.full((*shape, 3), (200, 100, 10), np.uint8), 160)
    assert (made.height, made.width) == size
    assert made.color == "#c8640a"
    pixels = cv2.imdecode(np.frombuffer(made.webp, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert pixels.shape == (*size, 3)
    assert np.abs(pixels.astype(int) - (200, 100, 10)).max() < 6
