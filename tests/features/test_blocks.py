import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from visterm.features.blocks import block_grid, blocks_in, check_grid, level_shapes, pad_to_block, pyramid, shrink

SIDES = st.integers(1, 400)


def test_levels_end_with_the_first_of_few_blocks_or_smaller_than_one():
    assert level_shapes(240, 300) == [(240, 300), (192, 240), (154, 192), (123, 154)]
    assert [blocks_in(h, w, 64, 32) for h, w in level_shapes(240, 300)] == [6 * 8, 5 * 6, 3 * 5, 2 * 3]
    assert len(block_grid(240, 300)) == 48 + 30 + 15 + 6
    assert level_shapes(160, 160) == [(160, 160), (128, 128)]
    assert level_shapes(160, 160, min_blocks=17) == [(160, 160)]
    assert level_shapes(160, 160, min_blocks=9) == [(160, 160), (128, 128), (102, 102)]
    assert blocks_in(64, 400, 64, 32) == 11
    assert level_shapes(64, 400) == [(64, 400)]
    assert level_shapes(79, 400) == [(79, 400)]  # 79 / 1.25 is 63 pixels
    assert level_shapes(80, 400)[1] == (64, 320)
    boxes = block_grid(160, 160)
    np.testing.assert_array_equal(
        boxes[:5], [[0, 0, 64, 64], [32, 0, 64, 64], [64, 0, 64, 64], [96, 0, 64, 64], [0, 32, 64, 64]]
    )
    np.testing.assert_allclose(boxes[16:], [[40 * j, 40 * i, 80, 80] for i in range(3) for j in range(3)])


@given(SIDES, SIDES)
@settings(max_examples=40)
def test_every_image_has_a_block_and_no_box_leaves_the_image(height, width):
    boxes = block_grid(height, width)
    assert len(boxes) >= 1
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 0] + boxes[:, 2] <= width + 1e-9).all()
    assert (boxes[:, 1] + boxes[:, 3] <= height + 1e-9).all()
    assert (boxes[:, 2:] > 0).all()


@given(SIDES, SIDES)
@settings(max_examples=40)
def test_the_pyramid_has_the_shapes_it_says(height, width):
    levels = pyramid(np.zeros((height, width), dtype=np.uint8))
    assert [level.shape for level in levels] == level_shapes(height, width)


@given(st.integers(2, 60), st.integers(2, 60), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_levels_are_scaled_bilinearly(height, width, seed):
    rng = np.random.default_rng(seed)
    gray = rng.integers(0, 256, (height, width), dtype=np.uint8)
    out = np.empty((rng.integers(1, height + 1), rng.integers(1, width + 1)), dtype=np.uint8)
    shrink(gray, out)
    expected = cv2.resize(gray.astype(np.float32), out.shape[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.abs(out - expected).max() <= 1.5  # weights are rounded to 1/256 in y and in x, and the result


@pytest.mark.parametrize("level", [0, 1, 127, 254, 255])
def test_flat_levels_stay_flat(level):
    out = np.empty((77, 81), dtype=np.uint8)
    shrink(np.full((100, 101), level, dtype=np.uint8), out)
    assert (out == level).all()


def test_small_images_are_continued_by_reflection():
    padded = pad_to_block(np.array([[1, 2, 3]], dtype=np.uint8), 8)
    assert padded.shape == (8, 8)
    np.testing.assert_array_equal(padded, np.tile([1, 2, 3, 2, 1, 2, 3, 2], (8, 1)))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (5, 80), (63, 64), (7, 7)])
def test_reflection_is_that_of_numpy(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    missing = [(0, max(64 - n, 0)) for n in shape]
    np.testing.assert_array_equal(pad_to_block(image, 64), np.pad(image, [*missing, (0, 0)], mode="reflect"))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
def test_an_image_without_pixels_is_an_error(shape):
    with pytest.raises(ValueError, match="nothing to describe"):
        pad_to_block(np.zeros(shape, dtype=np.uint8), 64)


@pytest.mark.parametrize(
    "settings", [{"block_size": 0}, {"stride": 0}, {"stride": 1.5}, {"scale": 1.0}, {"min_blocks": 0}]
)
def test_settings_out_of_range_are_named(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        check_grid(**{"block_size": 64, "stride": 32, "scale": 1.25, "min_blocks": 10} | settings)
