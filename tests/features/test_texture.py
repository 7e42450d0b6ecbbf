import cv2
import numpy as np
import pytest
import skimage.data
from hypothesis import given, settings
from hypothesis import strategies as st
from skimage.feature import local_binary_pattern

from visterm.features.texture import PATTERN_CODES, lbp_codes


def oracle(gray):
    """scikit-image's codes, with the edge pixels repeated outside."""
    padded = np.pad(gray, 2, mode="edge")
    return local_binary_pattern(padded, 8, 2, "nri_uniform")[2:-2, 2:-2].astype(np.uint8)


def near_tie(gray, margin=0.01):
    """Where a diagonal neighbour, interpolated in double precision, is within the margin of the centre."""
    padded = np.pad(gray.astype(np.float64), 2, mode="edge")
    height, width = gray.shape
    f = np.sqrt(2) - 1
    near = np.zeros(gray.shape, dtype=bool)
    for sy in (-1, 1):
        for sx in (-1, 1):

            def at(dy, dx, sy=sy, sx=sx):
                return padded[2 + dy * sy : 2 + dy * sy + height, 2 + dx * sx : 2 + dx * sx + width]

            value = (1 - f) ** 2 * at(1, 1) + f * (1 - f) * (at(1, 2) + at(2, 1)) + f**2 * at(2, 2)
            near |= np.abs(value - gray) <= margin
    return near


def assert_agrees(gray):
    differs = lbp_codes(gray) != oracle(gray)
    assert not (differs & ~near_tie(gray)).any()
    return differs.mean()


def test_flat_areas_and_the_59_codes_are_those_of_scikit_image():
    for level in range(256):
        flat = np.full((7, 9), level, dtype=np.uint8)
        assert (lbp_codes(flat) == 57).all(), level
    np.testing.assert_array_equal(lbp_codes(flat), oracle(flat))
    circle = [(0, 2), (-2, 2), (-2, 0), (-2, -2), (0, -2), (2, -2), (2, 0), (2, 2)]  # (y, x), counter-clockwise
    for pattern in range(256):
        image = np.full((5, 5), 100, dtype=np.uint8)
        for bit, (y, x) in enumerate(circle):
            value = 250 if pattern >> bit & 1 else 0
            image[2 + y, 2 + x] = value
            if bit % 2:  # the diagonal neighbours are interpolated from the inner corner as well
                image[2 + y // 2, 2 + x // 2] = value
        expected = local_binary_pattern(image, 8, 2, "nri_uniform")[2, 2]
        assert PATTERN_CODES[pattern] == expected == lbp_codes(image)[2, 2]


@pytest.mark.parametrize("levels", [2, 3, 8, 256])
def test_random_images_agree_with_scikit_image(levels):
    rng = np.random.default_rng(levels)
    assert_agrees(rng.integers(0, levels, (120, 161), dtype=np.uint8))
    assert_agrees((rng.integers(0, levels, (120, 161)) * (255 // (levels - 1))).astype(np.uint8))


@pytest.mark.parametrize("name", ["astronaut", "camera", "chelsea", "coffee", "rocket", "page", "text"])
def test_photos_agree_with_scikit_image(name):
    image = getattr(skimage.data, name)()
    gray = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    assert assert_agrees(gray[:200, :200]) < 0.02


def test_caltech_photos_agree_with_scikit_image(data):
    for path in sorted((data / "caltech101").glob("*/*.jpg"))[::500]:
        assert_agrees(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE))


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (2, 2), (3, 130)])
def test_images_smaller_than_the_circle_agree_with_scikit_image(shape):
    assert_agrees(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8))


def test_no_small_fraction_lies_between_the_convergent_and_the_square_root_of_two():
    # The proof in the module, by exhaustion: A + B 3363/2378 has the sign of A + B sqrt 2 for every |B| <= 1530.
    # For given B the sign can only differ at the whole A next to -B sqrt 2.
    for b in range(-1530, 1531):
        near = -int(np.sqrt(2) * b)
        for a in range(near - 2, near + 3):
            exact = sign_of_a_plus_root_2_b(a, b)
            assert np.sign(2378 * a + 3363 * b) == exact


def sign_of_a_plus_root_2_b(a, b):
    """In whole numbers: the larger square decides."""
    if a >= 0 and b >= 0:
        return int(a > 0 or b > 0)
    if a <= 0 and b <= 0:
        return -1
    return int(np.sign(a) if a * a > 2 * b * b else np.sign(b))


@given(st.lists(st.integers(0, 255), min_size=5, max_size=5))
def test_weights_of_the_pixels_are_those_of_the_formula(values):
    a, b, c, d, p = values
    big_a, big_b = 6 * a - 4 * (b + c) + 3 * d - p, 3 * (b + c) - 4 * a - 2 * d
    assert abs(big_b) <= 1530
    assert 816 * a + 577 * (b + c) + 408 * d - 2378 * p == 2378 * big_a + 3363 * big_b


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
@settings(max_examples=50)
def test_every_bit_is_exact_where_grey_levels_are_few(seed, levels):
    # Few levels make many near ties. All bits at the middle of a 5x5 image, in whole numbers.
    image = np.random.default_rng(seed).integers(0, levels, (5, 5), dtype=np.uint8)
    p = int(image[2, 2])
    pattern = 0
    circle = [(0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1)]
    for bit, (y, x) in enumerate(circle):
        if bit % 2 == 0:
            above = image[2 + 2 * y, 2 + 2 * x] >= p
        else:
            a, d = int(image[2 + y, 2 + x]), int(image[2 + 2 * y, 2 + 2 * x])
            bc = int(image[2 + y, 2 + 2 * x]) + int(image[2 + 2 * y, 2 + x])
            above = sign_of_a_plus_root_2_b(6 * a - 4 * bc + 3 * d - p, 3 * bc - 4 * a - 2 * d) >= 0
        pattern |= int(above) << bit
    assert lbp_codes(image)[2, 2] == PATTERN_CODES[pattern]


def test_views_that_are_not_contiguous_are_taken():
    image = np.random.default_rng(2).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    np.testing.assert_array_equal(lbp_codes(image[::2, ::-1, 1]), lbp_codes(image[::2, ::-1, 1].copy()))


@pytest.mark.parametrize("bad", [np.zeros((3, 3)), np.zeros((3, 3, 3), np.uint8), np.zeros((3, 3), np.int32)])
def test_other_arrays_are_refused(bad):
    with pytest.raises(ValueError, match="2-D uint8"):
        lbp_codes(bad)
