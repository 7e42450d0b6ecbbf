"""Equal files, and copies of one picture, among others."""

import cv2
import numpy as np
import pytest
import skimage.data

from visterm.pipeline.search.rank import without_duplicates
from visterm.pipeline.store.images import Image
from visterm.teaching.duplicates import (
    GRID,
    _n_agreeing,
    find_pairs,
    find_same_pictures,
    find_same_scenes,
    group_copies,
    small_versions,
)


def cells(pixels):
    return cv2.resize(pixels, (GRID, GRID), interpolation=cv2.INTER_AREA).ravel()


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 9, 12, 3)).astype(np.uint8)
    return [cv2.resize(one, (240, 180), interpolation=cv2.INTER_CUBIC) for one in coarse]


def test_copies_are_found_in_spite_of_size_code_and_mirror(images):
    encoded = cv2.imdecode(cv2.imencode(".jpg", images[1], [cv2.IMWRITE_JPEG_QUALITY, 40])[1], cv2.IMREAD_COLOR)
    copies = [cv2.resize(images[0], (480, 360)), encoded, images[2][:, ::-1]]
    all_cells = np.array([cells(one) for one in [*images, *copies]])
    pairs = find_pairs(all_cells, np.full(9, 4 / 3))
    assert sorted(pairs) == [(0, 6, False), (1, 7, False), (2, 8, True)]


def test_images_of_another_shape_are_no_copies(images):
    all_cells = np.array([cells(images[0]), cells(images[0])])
    assert find_pairs(all_cells, np.array([1.33, 1.5])) == []
    assert find_pairs(all_cells[:1], np.ones(1)) == []


def test_copies_have_one_number_where_their_grey_versions_agree(images):
    """Fine textures of one mean colour are no copies, and an image without a grey version is a copy of none."""
    rng = np.random.default_rng(0)
    textures = [np.repeat(rng.integers(0, 2, (96, 96, 1), np.uint8) * np.uint8(255), 3, axis=2) for _ in range(2)]
    pictures = [images[0], images[0][:, ::-1], images[1], *textures, cv2.resize(images[1], (120, 90))]
    versions = [small_versions(picture) for picture in pictures]
    ratios = np.array([4 / 3, 4 / 3, 4 / 3, 1, 1, 4 / 3])
    asked = []

    def fine_of(places, lacking=()):
        asked.append(places)
        return {place: versions[place].fine for place in places if place not in lacking}

    numbers = group_copies([version.cells for version in versions], ratios, fine_of)
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[5]
    assert len(set(numbers)) == 4
    assert {0, 1, 2, 5} <= asked[0]
    alone = group_copies([version.cells for version in versions], ratios, lambda places: fine_of(places, {1}))
    assert alone[0] != alone[1]
    assert alone[2] == alone[5]
    assert group_copies([], np.zeros(0), fine_of) == []


def test_of_equal_files_the_first_is_kept_and_none_of_the_query():
    images = [Image(i, f"{i}.jpg", sha256, {}, None, 0, i) for i, sha256 in enumerate("aabbc")]
    results = [(1, 0.9), (0, 0.9), (3, 0.8), (4, 0.7), (2, 0.6)]
    assert without_duplicates(results, images, "") == [(1, 0.9), (3, 0.8), (4, 0.7)]
    assert without_duplicates(results, images, "a") == [(3, 0.8), (4, 0.7)]


def test_pictures_of_another_brightness_are_the_same_and_flat_ones_are_not(images, tmp_path):
    bright, dark = np.clip(images[0] * 1.2 + 15.0, 0, 255), images[1] * 0.7
    written = {
        "0.png": images[0],
        "1.png": images[1],
        "2.png": images[2],
        "bright.jpg": bright,
        "dark.jpg": dark[:, ::-1],
        "half.png": images[2][::2, ::2],
        "white.png": np.full((180, 240, 3), 250.0),
        "grey.png": np.full((180, 240, 3), 100.0),
    }
    for name, pixels in written.items():
        cv2.imwrite(str(tmp_path / name), pixels.astype(np.uint8))
    names = [*written, "gone.png", "0.png"]
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(names)]
    found = find_same_pictures(tmp_path, listed, 10_000_000)
    assert [(names[i], names[j]) for i, j in sorted(found)] == [
        ("0.png", "bright.jpg"),
        ("1.png", "dark.jpg"),
        ("2.png", "half.png"),
    ]
    assert find_same_pictures(tmp_path, listed[8:9], 10_000_000) == {}
    assert min(found.values()) > 0.98


def test_a_picture_without_its_margins_is_the_same_and_a_part_of_it_is_not(tmp_path):
    coffee, cat = skimage.data.coffee(), skimage.data.chelsea()
    written = {
        "coffee.png": coffee,
        "crop.jpg": coffee[12:388, 18:582],
        "corner.png": coffee[30:],
        "part.png": coffee[:300, :450],
        "turned.png": np.rot90(coffee, 2),
        "cat.png": cat,
        "flat.png": np.full((180, 240, 3), 100, np.uint8),
    }
    for name, pixels in written.items():
        cv2.imwrite(str(tmp_path / name), pixels)
    names = [*written, "gone.png"]
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(names)]
    crops = {(names[i], names[j]) for i, j in find_same_pictures(tmp_path, listed, 10_000_000)}
    assert crops == {("coffee.png", "crop.jpg"), ("coffee.png", "corner.png"), ("crop.jpg", "corner.png")}


def test_another_shot_of_a_scene_is_told_from_other_scenes(tmp_path):
    """Of a shot in perspective, without a fifth, in another light, it is no copy; only pairs that are given count."""
    coffee = skimage.data.coffee()
    height, width = coffee.shape[:2]
    corners = np.float32([[70, 40], [width - 20, 60], [width - 40, height - 10], [50, height - 30]])
    frame = np.float32([[0, 0], [480, 0], [480, 320], [0, 320]])
    seen = cv2.warpPerspective(coffee, cv2.getPerspectiveTransform(corners, frame), (480, 320))
    noise = np.random.default_rng(0).normal(0, 4, seen.shape)
    rng = np.random.default_rng(0)
    written = {
        "coffee.png": coffee,
        "shot.png": np.clip(0.8 * seen + 20 + noise, 0, 255).astype(np.uint8),
        "cat.png": skimage.data.chelsea(),
        "rocket.png": skimage.data.rocket(),
        "noise.png": rng.integers(0, 256, (200, 300, 3), np.uint8),
        "other noise.png": rng.integers(0, 256, (200, 300, 3), np.uint8),
        "flat.png": np.full((180, 240, 3), 100, np.uint8),
    }
    for name, pixels in written.items():
        cv2.imwrite(str(tmp_path / name), pixels)
    names = [*written, "gone.png"]
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(names)]
    every = [(i, j) for j in range(len(names)) for i in range(j)]
    assert find_same_scenes(tmp_path, listed, every, 10_000_000) == [(0, 1)]
    assert find_same_scenes(tmp_path, listed, every[1:], 10_000_000) == []
    assert find_same_scenes(tmp_path, listed, every, 1000) == []  # all are too large to be read
    assert (0, 1) not in find_same_pictures(tmp_path, listed, 10_000_000)


def test_keypoints_that_fall_on_few_of_another_picture_are_no_scene():
    """All in one place: a scale of nearly 0 agrees with it, however many there are."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 400, (200, 2)).astype(np.float32)
    descriptors = rng.uniform(0, 100, (200, 128)).astype(np.float32)
    one, spot = (points, descriptors), (200 + points / 400, descriptors)
    assert _n_agreeing(one, (points / 2 + 10, descriptors)) >= 150
    assert _n_agreeing(one, spot) == 0
    assert _n_agreeing(one, (rng.permutation(points), descriptors)) < 50
