"""Two pictures compared in every place."""

import cv2
import numpy as np
import pytest
import skimage.data

from visterm.teaching.same_picture import same_picture

CROP = np.array([[0.9, 0, 0.05], [0, 0.9, 0.05]])  # where places of a crop lie in its picture


@pytest.fixture(scope="module")
def coffee():
    return cv2.resize(skimage.data.coffee(), (390, 260), interpolation=cv2.INTER_AREA)


def jpeg(pixels, quality):
    return cv2.imdecode(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1], cv2.IMREAD_COLOR)


def test_copies_of_any_size_and_quality_agree(coffee):
    small = cv2.resize(coffee, (131, 87), interpolation=cv2.INTER_AREA)
    overexposed, brighter = np.clip(1.3 * coffee + 10.0, 0, 255), 255 * (coffee / 255) ** 0.8
    for copy in (jpeg(coffee, 40), jpeg(small, 80), overexposed.astype(np.uint8), brighter.astype(np.uint8)):
        assert same_picture(coffee, copy) > 0.97
        assert same_picture(copy, coffee) > 0.97
    assert same_picture(coffee, coffee) == pytest.approx(1)


def test_one_crop_lies_within_its_picture_and_another_colour_makes_another(coffee):
    crop = coffee[13:247, 19:371]
    assert same_picture(crop, coffee, CROP) > 0.99
    whole = np.linalg.inv(np.vstack([CROP, [0, 0, 1]]))[:2]
    assert same_picture(coffee, jpeg(crop, 60), whole) > 0.98
    assert same_picture(coffee[:, :380], coffee[:, 10:], np.array([[1, 0, -0.025], [0, 1, 0]])) == 0  # of a pan
    assert same_picture(coffee[:, :380], coffee[:, 10:]) == 0
    framed = cv2.copyMakeBorder(coffee[60:200, 60:300], 60, 60, 75, 75, cv2.BORDER_CONSTANT, value=(250, 250, 250))
    moved = np.roll(framed, 12, axis=1)  # what lies beyond is white as well
    assert same_picture(framed, moved, np.array([[1, 0, 12 / 390], [0, 1, 0]])) == 0
    small = np.array([[0.69, 0, 0.154], [0, 0.69, 0.154]])
    assert same_picture(coffee[40:220, 60:330], coffee, small) == 0
    turned = cv2.warpAffine(coffee, cv2.getRotationMatrix2D((195, 130), 2, 1.1), (390, 260))
    assert same_picture(turned, coffee, CROP) == 0
    # Its grey levels are the same.
    ycc = cv2.cvtColor(coffee, cv2.COLOR_RGB2YCrCb)
    ycc[60:120, 100:180, 1] += 30
    other = cv2.cvtColor(ycc, cv2.COLOR_YCrCb2RGB)
    assert same_picture(coffee, other) == 0
    grey = np.repeat(ycc[..., :1], 3, axis=2)
    assert same_picture(coffee, grey) == 0


@pytest.mark.parametrize("brightness", [1.0, 0.8])
def test_one_small_thing_makes_another_picture(coffee, brightness):
    other = (brightness * coffee).astype(np.uint8)
    assert same_picture(coffee, other) > 0.97
    other[100:112, 200:212] = 255 - other[100:112, 200:212]
    assert same_picture(coffee, other) == 0


def test_smooth_pictures_of_another_brightness_share_no_keypoints():
    down, across = np.linspace(60, 200, 180)[:, None, None], np.linspace(-15, 15, 240)[None, :, None]
    sky = np.clip(down + across + np.zeros(3), 0, 255).astype(np.uint8)
    assert same_picture(sky, jpeg(sky, 50)) > 0.99
    assert same_picture(sky, (0.5 * sky + 60).astype(np.uint8)) == 0


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 300, 3), (3, 2, 3), (40, 40, 3)])
def test_tiny_thin_and_flat_pictures_are_compared(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    flat = np.full(shape, 90, np.uint8)
    assert same_picture(flat, flat) == 0
    assert same_picture(flat, noise) == 0
    assert same_picture(noise, noise) == (pytest.approx(1) if np.prod(shape) > 3 else 0)
    assert same_picture(noise, 255 - noise) == 0
    same_picture(noise, flat, CROP)
