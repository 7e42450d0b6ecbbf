"""Equal files, and copies of one picture, among others."""

import cv2
import numpy as np
import pytest
import skimage.data

from experiments.studies.one_ground import form
from visterm.pipeline.search.rank import without_duplicates
from visterm.pipeline.store.images import Image
from visterm.teaching.duplicates import (
    GRID,
    _as_rows,
    _inner_cells,
    _n_agreeing,
    _nearest_pairs,
    find_pairs,
    find_same_pictures,
    find_same_scenes,
    is_blank,
    small_copies,
    small_versions,
)


def cells(pixels):
    return cv2.resize(pixels, (GRID, GRID), interpolation=cv2.INTER_AREA).ravel()


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (6, 9, 12, 3)).astype(np.uint8)
    return [cv2.resize(one, (240, 180), interpolation=cv2.INTER_CUBIC) for one in coarse]


def test_pictures_of_another_shape_or_brightness_are_no_copies(images):
    all_cells = np.array([cells(images[0]), cells(images[0])])
    assert find_pairs(all_cells, np.array([1.33, 1.5])) == []
    assert find_pairs(all_cells[:1], np.ones(1)) == []
    encoded = cv2.imdecode(cv2.imencode(".jpg", images[1], [cv2.IMWRITE_JPEG_QUALITY, 40])[1], cv2.IMREAD_COLOR)
    copies = [cv2.resize(images[0], (480, 360)), encoded, images[2][:, ::-1]]
    all_cells = np.array([cells(one) for one in [*images, *copies]])
    pairs = find_pairs(all_cells, np.full(9, 4 / 3))
    assert sorted(pairs) == [(0, 6, False), (1, 7, False), (2, 8, True)]


def test_copies_are_pairs_where_their_grey_versions_agree(images):
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

    assert small_copies([version.cells for version in versions], ratios, fine_of).keys() == {(0, 1), (2, 5)}
    assert {0, 1, 2, 5} <= asked[0]
    alone = small_copies([version.cells for version in versions], ratios, lambda places: fine_of(places, {1}))
    assert alone.keys() == {(2, 5)}
    assert small_copies([], np.zeros(0), fine_of) == {}


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
        "white copy.png": np.full((90, 120, 3), 250.0),
        "grey.png": np.full((180, 240, 3), 100.0),
    }
    for name, pixels in written.items():
        cv2.imwrite(str(tmp_path / name), pixels.astype(np.uint8))
    names = [*written, "gone.png", "0.png"]
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(names)]
    pairs, blank, _ = find_same_pictures(tmp_path, listed, 10_000_000)
    assert [names[i] for i in blank] == ["white.png", "white copy.png", "grey.png"]
    assert [(names[i], names[j]) for i, j in sorted(pairs)] == [
        ("0.png", "bright.jpg"),
        ("1.png", "dark.jpg"),
        ("2.png", "half.png"),
    ]
    assert find_same_pictures(tmp_path, listed[9:10], 10_000_000) == ({}, [], set())
    assert min(pairs.values()) > 0.98


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
    crops = {(names[i], names[j]) for i, j in find_same_pictures(tmp_path, listed, 10_000_000).pairs}
    assert crops == {("coffee.png", "crop.jpg"), ("coffee.png", "corner.png")}  # neither of the two lies in the other


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
    assert (0, 1) not in find_same_pictures(tmp_path, listed, 10_000_000).pairs


def test_keypoints_that_fall_on_few_of_another_picture_are_no_scene():
    """All in one place: a scale of nearly 0 agrees with it, however many there are."""
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 400, (200, 2)).astype(np.float32)
    descriptors = rng.uniform(0, 100, (200, 128)).astype(np.float32)
    one, spot = (points, descriptors), (200 + points / 400, descriptors)
    assert _n_agreeing(one, (points / 2 + 10, descriptors)) >= 150
    assert _n_agreeing(one, spot) == 0
    assert _n_agreeing(one, (rng.permutation(points), descriptors)) < 50


def on_cloth(cloth, thing, rng):
    """A thing in the middle of a cloth, photographed by a camera that hardly moves."""
    photo = np.roll(cloth, rng.integers(-3, 4, 2), axis=(0, 1)).astype(np.float32)
    top, left = 90 + rng.integers(-3, 4), 120 + rng.integers(-3, 4)
    photo[top : top + 120, left : left + 160] = cv2.resize(thing, (160, 120), interpolation=cv2.INTER_AREA)
    return np.clip(photo + rng.normal(0, 2, photo.shape), 0, 255).astype(np.uint8)


def pairs_of(folder, pictures):
    """Write pictures by name; return the names in pairs of one picture."""
    for name, pixels in pictures.items():
        cv2.imwrite(str(folder / name), pixels, [cv2.IMWRITE_JPEG_QUALITY, 90])
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(pictures)]
    pairs = find_same_pictures(folder, listed, 10_000_000).pairs
    return {tuple(list(pictures)[i] for i in pair) for pair in pairs}


def test_different_things_on_one_cloth_are_not_one_picture(tmp_path):
    """The cloth and the shape agree, and most of each picture; copies of them are known all the same."""
    rng = np.random.default_rng(0)
    cloth = cv2.resize(rng.integers(90, 160, (60, 80, 3)).astype(np.uint8), (400, 300), interpolation=cv2.INTER_CUBIC)
    things = [skimage.data.coffee(), skimage.data.chelsea(), skimage.data.rocket(), skimage.data.astronaut()]
    red = np.zeros((120, 160, 3), np.uint8) + np.uint8([40, 40, 160])
    print_ = cv2.putText(red.copy(), "VISTERM", (20, 70), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (200, 200, 200), 2)
    green = red[..., [0, 2, 1]] // 2 + np.uint8([20, 0, 20])
    photos = {f"{i}.jpg": on_cloth(cloth, one, rng) for i, one in enumerate([*things, red, print_, green])}
    copies = {
        f"{i} {name}.jpg": copy
        for i in (0, 4, 5)
        for name, copy in (
            ("small", cv2.resize(photos[f"{i}.jpg"], (200, 150), interpolation=cv2.INTER_AREA)),
            ("turned", photos[f"{i}.jpg"][:, ::-1]),
            ("crop", photos[f"{i}.jpg"][7:293, 10:390]),
        )
    }
    pairs = pairs_of(tmp_path, photos | copies)
    assert {tuple(sorted(name.split()[0].removesuffix(".jpg") for name in pair)) for pair in pairs} == {
        ("0", "0"),
        ("4", "4"),
        ("5", "5"),
    }
    assert {("0.jpg", f"0 {name}.jpg") for name in ("small", "turned", "crop")} <= pairs
    assert {(f"{i}.jpg", f"{i} {name}.jpg") for i in (4, 5) for name in ("small", "turned")} <= pairs


def test_a_form_that_is_filled_in_differently_is_another_picture(tmp_path):
    form = np.full((400, 300, 3), 250, np.uint8)
    for y in range(20, 400, 20):
        cv2.putText(form, "Lorem ipsum dolor sit amet, consectetur", (10, y), cv2.FONT_HERSHEY_SIMPLEX, 0.38, (40,) * 3)
    written = {}
    for word in ("Anna", "Bert", "Carl"):
        page = form.copy()
        page[190:215, 60:200] = 250
        written[f"{word}.png"] = cv2.putText(page, word, (70, 208), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (120, 40, 20), 1)
    written["copy.jpg"] = written["Anna.png"]
    assert pairs_of(tmp_path, written) == {("Anna.png", "copy.jpg")}


def test_frames_of_a_slow_pan_and_smooth_pictures_are_not_one(tmp_path):
    wide = cv2.resize(skimage.data.coffee(), (900, 600), interpolation=cv2.INTER_CUBIC)
    pairs = pairs_of(tmp_path, {f"{i:02}.jpg": wide[50:450, 10 * i : 10 * i + 500] for i in range(12)})
    assert pairs == set()
    # Any two agree by some brightness and contrast; those of one brightness are copies.
    down, across = np.linspace(60, 200, 180)[:, None, None], np.linspace(-15, 15, 240)[None, :, None]
    sky = np.clip(down + across + np.zeros(3), 0, 255).astype(np.uint8)
    other = np.clip(100 + 0.4 * down + 0.2 * across + np.zeros(3), 0, 255).astype(np.uint8)
    assert pairs_of(tmp_path, {"sky.png": sky, "other.png": other, "copy.jpg": sky[::2, ::2]}) == {
        ("sky.png", "copy.jpg")
    }


def test_blank_and_thin_pictures():
    white = np.full((48, 64, 3), 255, np.uint8)
    noisy = np.random.default_rng(0).integers(0, 9, white.shape).astype(np.uint8)
    marked = white.copy()
    marked[20, 30] = 200
    assert [is_blank(one) for one in (white, noisy, marked)] == [True, True, False]
    # Where one side shrinks and the other grows, OpenCV's INTER_AREA takes two of a hundred columns.
    stripes = np.zeros((4, 640, 3), np.uint8)
    stripes[:, ::2] = 200
    cells = np.frombuffer(small_versions(stripes).cells, np.uint8)
    np.testing.assert_allclose(cells.astype(int), 100, atol=1)


def test_of_many_pictures_that_are_nearly_equal_few_are_compared(monkeypatch):
    """Frames of a fixed camera: each with the nearest ones, not with all."""
    rng = np.random.default_rng(0)
    one = rng.integers(0, 250, 192)
    many = (one + rng.integers(0, 3, (700, 192))).astype(np.uint8)
    pairs = find_pairs(many, np.ones(700))
    assert 700 < len(pairs) <= 700 * 20
    assert len({i for pair in pairs for i in pair[:2]}) == 700


def test_a_crop_and_a_mirrored_copy_are_compared_though_many_forms_are_alike(tmp_path):
    """A crop resembles other forms less than its own; JPEGs whose sides are no multiple of 8 are read exactly."""
    rng = np.random.default_rng(0)
    unused = np.zeros(0)
    forms = [form(rng, unused, unused) for _ in range(40)]
    pictures = [*forms, *(one[15:-15, 11:-11] for one in forms[:4])]
    rows = (_as_rows([small_versions(one).cells for one in pictures]), _as_rows(list(map(_inner_cells, pictures))))
    pairs = _nearest_pairs(*rows, np.array([one.shape[1] / one.shape[0] for one in pictures]))
    assert {(number, 40 + number) for number in range(4)} <= set(pairs)
    for name, pixels in {"form.jpg": forms[0], "mirrored.jpg": forms[0][:, ::-1], "other.jpg": forms[1]}.items():
        cv2.imwrite(str(tmp_path / name), pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(("form.jpg", "mirrored.jpg", "other.jpg"))]
    assert find_same_pictures(tmp_path, listed, 10_000_000).pairs.keys() == {(0, 1)}


def star(n, step=2, side=100):
    """A star of thin lines on white: of n points, each joined with the one so many steps on."""
    turns = 2 * np.pi * np.arange(n) / n
    points = np.int32(16 * side * (0.5 + 0.4 * np.column_stack([np.sin(turns), -np.cos(turns)])))
    white = np.full((side, side, 3), 255, np.uint8)
    return cv2.polylines(
        white, [*np.stack([points, np.roll(points, -step, axis=0)], axis=1)], False, (60,) * 3, 1, 16, 4
    )


def page(digit):
    """A page of small letters, on which one digit differs."""
    white = np.full((1100, 800, 3), 255, np.uint8)
    for y in range(60, 1060, 22):
        cv2.putText(white, f"Lorem ipsum dolor sit amet, {y}", (40, y), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (30,) * 3)
    return cv2.putText(white, digit, (600, 500), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (30,) * 3)


def icon(color, side=240):
    """An arrow that points to the right."""
    white = np.full((8 * side, 8 * side, 3), 255, np.uint8)
    points = side * np.array([(1, 3), (4, 3), (4, 1), (7, 4), (4, 7), (4, 5), (1, 5)])
    return cv2.resize(cv2.fillPoly(white, [points], color), (side, side), interpolation=cv2.INTER_AREA)


DRAWINGS = {
    "star 7.png": star(7, 2, 600),
    "star 8.png": star(8, 2, 600),
    "star 30.png": star(30),
    "star 31.png": star(31),
    "page 3.png": page("3"),
    "page 8.png": page("8"),
    "icon black.png": icon((0, 0, 0)),
    "icon grey.png": icon((90, 90, 90)),
    "icon blue.png": icon((200, 60, 20)),
    "icon red.png": icon((20, 60, 200)),
}


def test_drawings_that_differ_by_a_detail_are_not_one_picture(tmp_path):
    """By the number of points of a star of thin lines, a digit, or a colour; copies of each are found all the same."""
    assert pairs_of(tmp_path, DRAWINGS) == set()
    for name in ("star 7.png", "page 3.png", "icon red.png"):
        pixels = DRAWINGS[name]
        height, width = pixels.shape[:2]
        y, x = round(0.015 * height), round(0.015 * width)
        small = [cv2.resize(pixels, (width // n, height // n), interpolation=cv2.INTER_AREA) for n in (2, 3)]
        copies = {"encoded.jpg": pixels, "half.jpg": small[0], "third.png": small[1]}
        copies["crop.png"] = pixels[y : height - y, x : width - x]
        assert {(name, copy) for copy in copies} <= pairs_of(tmp_path, {name: pixels, **copies})


def test_mirrored_drawings_are_known_as_such(tmp_path):
    """An arrow to the left is not one to the right; photos are mirrored copies."""
    right, coffee = icon((0, 0, 0)), skimage.data.coffee()
    written = {"right.png": right, "left.png": right[:, ::-1], "photo.png": coffee, "mirrored.png": coffee[:, ::-1]}
    written["symmetric.png"] = star(12, 5)
    written["copy.jpg"] = star(12, 5)
    for name, pixels in written.items():
        cv2.imwrite(str(tmp_path / name), pixels)
    listed = [Image(i, name, name, {}, None, 0, i) for i, name in enumerate(written)]
    duplicates = find_same_pictures(tmp_path, listed, 10_000_000)
    assert duplicates.pairs.keys() == {(0, 1), (2, 3), (4, 5)}
    assert duplicates.mirrored == {(0, 1)}
