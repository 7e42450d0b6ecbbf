"""Duplicates: images whose files are equal, and copies of one picture, re-encoded, resized, mirrored or cropped.

Equal files have one SHA-256. Candidates for copies are near each other by a small version of 8 x 8 coloured cells, as
they are or with one mean and contrast, which brighter and darker copies share, and agree by their grey versions of
32 x 32 pixels, a crop once it is aligned. Whether they are copies, `same_picture` says, at up to 1,200 pixels. A
picture of one colour is blank, and a copy of none.

Pictures of one scene are not copies: another shot of the same things, or a larger part cut off. They are known by SIFT
keypoints, many of which lie where one shift, turn and scale puts them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from visterm.features import ImageError, read_picture
from visterm.features.resizing import resize
from visterm.pipeline.store.images import Image

from .same_picture import CORRELATION, WORKING_SIDE, align, correlation, is_drawing, same_at_all_sizes, tone

GRID = 8  # cells per side
TOLERANCE = 4.0  # levels: largest root mean square difference of the cells of two candidates
EVENED_TOLERANCE = 6.0  # the same, of evened cells
_CONTRAST = 40.0  # levels: standard deviation of evened cells
_LEAST_CONTRAST = 8.0  # of cells that can be evened: else noise decides
_PROJECTED, _NEAREST = 400, 20  # candidates of each picture: the nearest ones by their projections, of these by cells
FINE = 32  # pixels per side of the grey version
_FINE_DIFFERENCE = 24.0  # grey levels: largest one anywhere in two grey versions of one brightness and contrast,
_OF_EDGE = 0.35  # and a share of the range of the pixels around, since a rounded size moves edges
CROP_TOLERANCE = 20.0  # levels: the same, of a picture and its crop
_CROP_NEIGHBORS = 10  # of each picture, by their cells, that may be crops of it
ALIGNED = 64  # pixels per side of the grey versions that are aligned
ALIGNED_CORRELATION = 0.95  # smallest one of a picture and its crop, once aligned
_MOST_SCALE, _MOST_SHEAR, _MOST_SHIFT = 0.15, 0.03, 0.08  # of an alignment: a crop of a tenth of each side at most
_DIMENSIONS = 8  # of the projection in which candidates are searched
SCENE_KEYPOINTS = 50  # that agree on one shift, turn and scale; fewest of two pictures of one scene
_RATIO = 0.75  # of the distances to the nearest keypoint and the next one, where the nearest one is taken
_SCENE_SCALE = 4.0  # largest one between two pictures: else all keypoints of one may fall on a few of the other
_KEPT_KEYPOINTS = 500  # pictures whose keypoints are kept: at most 1 MB each
_KEPT_PICTURES = 200  # pictures of the working size that are kept: at most 0.5 MB each
_KEPT_DETAILED = 20  # pictures of the larger size: at most 4 MB each
_FLAT = 12  # levels: a picture of which no pixel of 64 is farther from the median is blank


class SmallVersions(NamedTuple):
    """Two small versions of a picture, as bytes: `cells` RGB (GRID, GRID, 3), `fine` grey (FINE, FINE)."""

    cells: bytes
    fine: bytes


def small_versions(pixels: np.ndarray) -> SmallVersions:
    """Scale a picture down to what tells whether another one is a copy; RGB uint8 (height, width, 3)."""
    return SmallVersions(resize(pixels, GRID, GRID).tobytes(), resize(_gray(pixels), FINE, FINE).tobytes())


def _gray(pixels: np.ndarray) -> Any:
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)


def is_blank(pixels: np.ndarray) -> bool:
    """Whether a picture, of at most 64 pixels per side, is of one colour; uint8 (height, width, 3)."""
    return bool(np.abs(pixels - np.median(pixels, axis=(0, 1))).max() <= _FLAT)


def small_copies(
    cells: Sequence[bytes], ratios: np.ndarray, fine_of: Callable[[set[int]], dict[int, bytes]]
) -> dict[tuple[int, int], float]:
    """Find pairs of pictures that are copies as far as small versions tell, with the correlations of these.

    `cells` of each picture are as of `small_versions`, `ratios` its width by its height. `fine_of` returns the grey
    versions of some places, few of which are asked for; one that it has not differs from all others.
    """
    pairs = find_pairs(_as_rows(cells), ratios)
    agreeing = _agreeing(pairs, fine_of({place for pair in pairs for place in pair[:2]}))
    return {(i, j): value for (i, j, _), value in agreeing.items()}


class SamePictures(NamedTuple):
    """Copies among images, by their places."""

    pairs: dict[tuple[int, int], float]  # with the correlation of their pixels
    blank: list[int]  # images of one colour, which are copies of none
    mirrored: set[tuple[int, int]]  # pairs of drawings, such as of arrows: one may be meant to be the other's reverse


def find_same_pictures(root: Path, images: Sequence[Image], max_pixels: int) -> SamePictures:
    """Find pairs of images whose files show one picture, of whatever brightness, or one of them a crop of the other.

    A crop has at least nine tenths of each side. Images that cannot be read, or are larger than `max_pixels`, are in no
    pair. The first of equal files stands for all of them.
    """
    firsts = sorted({image.sha256: place for place, image in reversed(list(enumerate(images)))}.values())

    def read(place: int, side: int) -> Any:
        with contextlib.suppress(ImageError):
            return read_picture(os.path.join(root, images[place].path), max_side=side, max_pixels=max_pixels)
        return None

    def small(place: int) -> tuple[SmallVersions | None, bytes, float] | None:
        # A JPEG that is read at an eighth of its size lacks up to an eighth of its last pixels: its mirror image has
        # them at the other side.
        if (picture := read(place, 4 * FINE)) is None:
            return None
        pixels = picture.pixels
        blank = is_blank(resize(pixels, *(max(1, side // 2) for side in pixels.shape[:2])))
        return None if blank else small_versions(pixels), _inner_cells(pixels), picture.width / picture.height

    def grey(place: int) -> tuple[np.ndarray, tuple[int, int] | None] | None:
        if (picture := read(place, 4 * ALIGNED)) is None:
            return None
        size = (picture.height, picture.width) if is_drawing(picture.pixels) else None
        return _gray(resize(picture.pixels, ALIGNED, ALIGNED)).astype(np.float32), size

    def within(place: int, side: int) -> np.ndarray | None:
        return None if (picture := read(place, side)) is None else picture.pixels

    working, detailed = lru_cache(_KEPT_PICTURES)(within), lru_cache(_KEPT_DETAILED)(within)

    def compare(i: int, j: int, turned: bool, warp: np.ndarray | None = None) -> float:
        def both(side: int) -> tuple[np.ndarray, np.ndarray] | None:
            one, other = ((working if side == WORKING_SIDE else detailed)(place, side) for place in (i, j))
            if one is None or other is None:
                return None
            return one, np.ascontiguousarray(other[:, ::-1]) if turned else other

        return same_at_all_sizes(both, warp)

    def is_drawn(place: int) -> bool:
        return (drawn := working(place, WORKING_SIDE)) is not None and is_drawing(drawn)

    with ThreadPoolExecutor(4) as pool:
        seen = {place: of for place, of in zip(firsts, pool.map(small, firsts), strict=True) if of is not None}
        empty = {images[place].sha256 for place, (versions, *_) in seen.items() if versions is None}
        blank = [place for place, image in enumerate(images) if image.sha256 in empty]
        of_place = {place: of for place, of in seen.items() if of[0] is not None}
        if not of_place:
            return SamePictures({}, blank, set())
        places = np.array(list(of_place))
        versions, inner, shapes = zip(*of_place.values(), strict=True)
        cells, ratios = _as_rows([version.cells for version in versions]), np.array(shapes)
        candidates = set(find_pairs(cells, ratios))
        able = np.flatnonzero(cells.std(axis=1) >= _LEAST_CONTRAST)
        evened = find_pairs(_evened(cells[able]), ratios[able], EVENED_TOLERANCE)
        candidates |= {(int(able[i]), int(able[j]), turned) for i, j, turned in evened}
        framed = sorted(_agreeing(candidates, {place: version.fine for place, version in enumerate(versions)}))
        calls = [(int(places[i]), int(places[j]), turned) for i, j, turned in framed]
        of_calls = dict(zip(calls, pool.map(lambda call: compare(*call), calls), strict=True))
        same = {(i, j): value for (i, j, _), value in of_calls.items() if value}
        mirrored = {pair for pair in same if not of_calls.get((*pair, False)) and is_drawn(pair[0])}
        near = [(int(places[i]), int(places[j])) for i, j in _nearest_pairs(cells, _as_rows(inner), ratios)]
        near = [pair for pair in near if pair not in same]
        of_near = sorted({place for pair in near for place in pair})
        greys = dict(zip(of_near, pool.map(grey, of_near), strict=True))

        def crop(pair: tuple[int, int]) -> float:
            one, other = (greys[place] for place in pair)
            # On one plain ground, a drawing is aligned with the same one, larger or smaller: a crop has another size.
            if one is None or other is None or (one[1] is not None and one[1] == other[1]):
                return 0.0
            for (i, first), (j, second) in itertools.permutations(zip(pair, (one[0], other[0]), strict=True)):
                warp = _aligned(first, second)  # it may succeed one way alone
                if warp is not None and (value := compare(i, j, False, warp)):
                    return value
            return 0.0

        same |= {pair: value for pair, value in zip(near, pool.map(crop, near), strict=True) if value}
    return SamePictures(same, blank, mirrored)


def find_same_scenes(
    root: Path, images: Sequence[Image], pairs: Sequence[tuple[int, int]], max_pixels: int
) -> list[tuple[int, int]]:
    """Return those of some pairs of images, by their places, that show one scene; others are not compared.

    Images that cannot be read, or are larger than `max_pixels`, are of no scene.
    """

    @lru_cache(_KEPT_KEYPOINTS)
    def keypoints(place: int) -> tuple[np.ndarray, np.ndarray] | None:
        with contextlib.suppress(ImageError):
            path = os.path.join(root, images[place].path)
            pixels = read_picture(path, max_side=WORKING_SIDE, max_pixels=max_pixels).pixels
            gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
            points, descriptors = cv2.SIFT.create().detectAndCompute(gray, None)
            if len(points) >= SCENE_KEYPOINTS:
                return np.array([point.pt for point in points], np.float32), descriptors
        return None

    def one_scene(pair: tuple[int, int]) -> bool:
        one, other = (keypoints(place) for place in pair)
        return one is not None and other is not None and _n_agreeing(one, other) >= SCENE_KEYPOINTS

    ordered = sorted(pairs)  # so that most keypoints are still there
    with ThreadPoolExecutor(4) as pool:
        return [pair for pair, same in zip(ordered, pool.map(one_scene, ordered), strict=True) if same]


def _n_agreeing(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> int:
    """Number of keypoints, each with its descriptor, that one shift, turn and scale puts where the other's are."""
    nearest = cv2.BFMatcher(cv2.NORM_L2).knnMatch(one[1], other[1], k=2)
    matched = [(best.queryIdx, best.trainIdx) for best, second in nearest if best.distance < _RATIO * second.distance]
    if len(matched) < SCENE_KEYPOINTS:
        return 0
    i, j = np.array(matched).T
    warp, inliers = cv2.estimateAffinePartial2D(one[0][i], other[0][j], method=cv2.RANSAC)
    if warp is None or not 1 / _SCENE_SCALE <= np.hypot(*warp[:, 0]) <= _SCENE_SCALE:
        return 0
    return int(inliers.sum())


def _inner_cells(pixels: np.ndarray) -> bytes:
    """Cells of a picture without a fortieth of each side, which those of a crop resemble more than its own."""
    y, x = (round(side / 40) for side in pixels.shape[:2])
    return resize(pixels[y : pixels.shape[0] - y, x : pixels.shape[1] - x], GRID, GRID).tobytes()


def _nearest_pairs(cells: np.ndarray, inner: np.ndarray, ratios: np.ndarray) -> list[tuple[int, int]]:
    """Pairs whose cells are nearly equal, of each picture with the nearest ones by their projections.

    It, or what is within its margins (`inner`), is near them.
    """
    from scipy.spatial import cKDTree

    if len(cells) < 2:
        return []
    points = cells.astype(np.float32)
    basis = _main_directions(points)
    tree, k = cKDTree(points @ basis), min(_CROP_NEIGHBORS + 1, len(cells))
    (apart, near_by), (inner_apart, inner_near_by) = (tree.query(own @ basis, k) for own in (points, inner))
    order = np.argsort(np.hstack([apart, inner_apart]), axis=1)[:, : k + 1]  # itself twice
    near_by = np.take_along_axis(np.hstack([near_by, inner_near_by]), order, axis=1)
    i, j = np.repeat(np.arange(len(cells)), near_by.shape[1]), near_by.ravel()
    i, j = np.unique(np.sort(np.column_stack([i, j])[i != j], axis=1), axis=0).T
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(i), 100_000):  # bounded memory
        a, b = i[start : start + 100_000], j[start : start + 100_000]
        near = ((points[a] - points[b]) ** 2).mean(axis=1) <= CROP_TOLERANCE**2
        near &= np.abs(np.log(ratios[a] / ratios[b])) < 0.12
        pairs += zip(a[near].tolist(), b[near].tolist(), strict=True)
    return pairs


def _aligned(one: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    """Align two grey versions (ECC): where places of one lie in the other, each from 0 to 1; None if it is no crop."""
    middle = np.full(2, (ALIGNED - 1) / 2)
    for scale in (1.0, 0.95, 1 / 0.95):  # of fine textures, an alignment is found from nearby alone
        start = np.column_stack([scale * np.eye(2), (1 - scale) * middle]).astype(np.float32)
        if (aligned := align(one, other, start, 100, 1e-4, 3)) is None:
            continue
        value, warp = aligned[0], aligned[1].astype(float)
        linear = warp[:, :2]
        off = np.abs(linear - np.eye(2))
        shift = np.abs(linear @ middle + warp[:, 2] - middle).max() / ALIGNED
        is_crop = off.diagonal().max() < _MOST_SCALE and off[[0, 1], [1, 0]].max() < _MOST_SHEAR and shift < _MOST_SHIFT
        if is_crop and value >= ALIGNED_CORRELATION:
            laid = cv2.warpAffine(other, warp, one.shape, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
            inner = slice(7, -7)  # without a tenth, which may lie beyond the other
            if _agree_everywhere(one[inner, inner], laid[inner, inner], 2 * _FINE_DIFFERENCE):
                warp[:, 2] = (warp[:, 2] + (linear - np.eye(2)).sum(axis=1) / 2) / ALIGNED
                return warp
    return None


def _main_directions(points: np.ndarray) -> np.ndarray:
    """An orthonormal basis, (d, _DIMENSIONS): no distance is larger in it."""
    centred = points - points.mean(axis=0)
    return np.linalg.eigh(centred.T @ centred)[1][:, -_DIMENSIONS:]


def _as_rows(cells: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(cells), np.uint8).reshape(len(cells), GRID * GRID * 3)


def _evened(cells: np.ndarray) -> np.ndarray:
    """Give all cells of a picture one mean and one standard deviation."""
    values = cells.astype(np.float32)
    values -= values.mean(axis=1, keepdims=True)
    values *= _CONTRAST / values.std(axis=1, keepdims=True)
    return np.clip(np.round(values + 128), 0, 255).astype(np.uint8)


def _agreeing(pairs: Iterable[tuple[int, int, bool]], versions: dict[int, bytes]) -> dict[tuple[int, int, bool], float]:
    """Return the correlations of the pairs whose grey versions, which are there, show the same in every place."""
    fine = {
        place: np.frombuffer(version, np.uint8).reshape(FINE, FINE).astype(np.float32)
        for place, version in versions.items()
    }
    agreeing = {}
    for i, j, turned in pairs:
        if i in fine and j in fine:
            one, other = fine[i], fine[j][:, ::-1] if turned else fine[j]
            value = correlation(one, other)
            if value >= CORRELATION and _agree_everywhere(one, other):
                agreeing[i, j, turned] = value
    return agreeing


def _agree_everywhere(one: np.ndarray, other: np.ndarray, tolerance: float = _FINE_DIFFERENCE) -> bool:
    """Whether two grey versions nowhere differ, once they have one brightness; a bit at edges, which may be moved."""
    low, high = sorted((one, other), key=np.std)
    around = np.ones((3, 3), np.uint8)
    limit = tolerance + _OF_EDGE * (cv2.dilate(high, around) - cv2.erode(high, around))
    return any((np.abs(part - high) <= limit).all() for part in (low, tone(low, high)))


def find_pairs(cells: np.ndarray, ratios: np.ndarray, tolerance: float = TOLERANCE) -> list[tuple[int, int, bool]]:
    """Find pairs of pictures that may be copies: two places, the smaller one first, and whether one is mirrored.

    The `cells` are uint8 (n, GRID * GRID * 3), each picture scaled down to GRID x GRID RGB pixels; they differ by a
    root mean square of at most `tolerance`. The `ratios` of width by height agree to 3 %. Of each picture, the nearest
    ones in a projection are candidates, in which distances are never larger than those of the cells.
    """
    from scipy.spatial import cKDTree

    n = len(cells)
    if n < 2:
        return []
    points = cells.astype(np.float32)
    mirrored = points.reshape(n, GRID, GRID, 3)[:, :, ::-1].reshape(n, -1)
    basis = _main_directions(points)
    radius = tolerance * np.sqrt(points.shape[1])
    tree = cKDTree(points @ basis)
    pairs: list[tuple[int, int, bool]] = []
    for vectors, turned in ((points, False), (mirrored, True)):
        for start in range(0, n, 1000):  # bounded memory
            some = np.arange(start, min(start + 1000, n))
            j = tree.query(vectors[some] @ basis, min(_PROJECTED, n), distance_upper_bound=1.001 * radius + 1e-3)[1]
            i, j = np.repeat(some, j.shape[1]), j.ravel()
            i, j = i[(j < n) & (i != j)], j[(j < n) & (i != j)]
            parts = range(0, len(i), 100_000)
            each = [((vectors[i[k : k + 100_000]] - points[j[k : k + 100_000]]) ** 2).sum(axis=1) for k in parts]
            squares = np.concatenate([np.zeros(0, np.float32), *each])
            near = (squares <= radius**2) & (np.abs(np.log(ratios[i] / ratios[j])) < 0.03)
            i, j, squares = i[near], j[near], squares[near]
            order = np.lexsort((squares, i))
            i, j = i[order], j[order]
            kept = np.arange(len(i)) - np.searchsorted(i, i) < _NEAREST
            ordered = np.sort(np.column_stack([i[kept], j[kept]]), axis=1)
            pairs += [(one, two, turned) for one, two in ordered.tolist()]
    return sorted(set(pairs))
