import cv2
import numpy as np
import pytest
import skimage.data
from hypothesis import given, settings
from hypothesis import strategies as st

from visterm.features import Palette, block_grid, describe, lbp_codes, pyramid


@pytest.fixture(scope="module")
def palette():
    return Palette(random_state=0).fit(skimage.data.coffee()[::8, ::8].reshape(-1, 3))


def slow_describe(image, palette, block_size=64, stride=32, normalization="hellinger", **grid):
    """The same, block by block with np.bincount."""
    if image.ndim == 2:
        image = np.stack([image] * 3, axis=-1)
    rows = []
    all_colors = palette.predict(image)
    for gray in pyramid(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), block_size=block_size, stride=stride, **grid):
        (height, width), patterns = gray.shape, lbp_codes(gray)
        y = ((np.arange(height) + 0.5) / height * image.shape[0]).astype(int)
        x = ((np.arange(width) + 0.5) / width * image.shape[1]).astype(int)
        colors = all_colors[y][:, x]
        for y in range(0, height - block_size + 1, stride):
            for x in range(0, width - block_size + 1, stride):
                block = np.s_[y : y + block_size, x : x + block_size]
                counts = np.bincount(colors[block].ravel(), minlength=len(palette.colors_))
                rows.append(np.concatenate([counts, np.bincount(patterns[block].ravel(), minlength=59)]))
    shares = np.array(rows) / block_size**2
    return np.sqrt(shares) if normalization == "hellinger" else shares


@pytest.mark.parametrize("normalization", ["hellinger", "l1"])
@pytest.mark.parametrize(
    ("block_size", "stride", "scale"), [(64, 32, 1.25), (48, 20, 1.25), (30, 30, 1.5), (21, 40, 1.25)]
)
def test_descriptors_are_those_counted_block_by_block(palette, block_size, stride, scale, normalization):
    grid = {"block_size": block_size, "stride": stride, "scale": scale}
    image = skimage.data.chelsea()[:230, :301]
    rows = describe(image, palette, normalization=normalization, **grid)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, slow_describe(image, palette, normalization=normalization, **grid), rtol=1e-6)


@given(st.integers(1, 150), st.integers(1, 150), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_histograms_sum_to_one_and_rows_are_those_of_the_grid(palette, height, width, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    rows = describe(image, palette, normalization="l1")
    assert rows.shape == (len(block_grid(height, width)), 20 + 59)
    np.testing.assert_allclose(rows[:, :20].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(rows[:, 20:].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(describe(image, palette), np.sqrt(rows), rtol=1e-6)


def test_flat_and_grey_images_the_same_bytes_again(palette):
    row = describe(np.full((64, 64, 3), 255, dtype=np.uint8), palette)
    assert row.shape == (1, 79)
    color = palette.predict(np.full((1, 1, 3), 255, dtype=np.uint8))[0, 0]
    assert set(np.flatnonzero(row[0])) == {color, 20 + 57}
    assert row[0, color] == row[0, 77] == 1
    gray = skimage.data.camera()[:200, :150]
    np.testing.assert_array_equal(describe(gray, palette), describe(np.stack([gray] * 3, axis=-1), palette))
    image = skimage.data.astronaut()
    assert describe(image, palette).tobytes() == describe(image[:, ::-1][:, ::-1], palette).tobytes()


def test_bad_input_is_refused(palette):
    for bad, options, message in (
        *((image, {}, "uint8 array of shape") for image in (np.zeros((9, 9, 4), np.uint8), np.zeros((9, 9, 3)))),
        (np.zeros(9, np.uint8), {}, "uint8 array of shape"),
        (np.zeros((0, 4, 3), np.uint8), {}, "nothing to describe"),
        (np.zeros((64, 64, 3), np.uint8), {"normalization": "l2"}, r"one of \['hellinger', 'l1'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            describe(bad, palette, **options)
