"""Duplicates: images whose files are equal, and copies of one picture, re-encoded, resized or mirrored.

Equal files have one SHA-256. A copy is known by two small versions of each picture: one of 8 x 8 coloured cells, by
which candidates are searched, and a grey one of 32 x 32 pixels, in which fine textures of one mean colour differ. A
brighter or darker copy is known by cells of one mean and contrast, a crop by grey versions that agree once aligned.

Pictures of one scene are not copies: another shot of the same things, or a larger part cut off. They are known by SIFT
keypoints, many of which lie where one shift, turn and scale puts them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.store.images import Image

if TYPE_CHECKING:
    import numpy as np

GRID = 8  # cells per side
TOLERANCE = 4.0  # levels: largest root mean square difference of the cells of two copies
EVENED_TOLERANCE = 6.0  # the same, of evened cells
_CONTRAST = 40.0  # levels: standard deviation of evened cells
_LEAST_CONTRAST = 8.0  # of cells that can be evened: else noise decides
FINE = 32  # pixels per side of the grey version
CORRELATION = 0.9  # smallest one of the grey versions of two copies
_FLAT = 2.0  # grey levels: standard deviation below which a correlation says nothing
CROP_TOLERANCE = 20.0  # levels: the same, of a picture and its crop
_CROP_NEIGHBORS = 10  # of each picture, by their cells, that may be crops of it
ALIGNED = 64  # pixels per side of the grey versions that are aligned
ALIGNED_CORRELATION = 0.95  # smallest one of a picture and its crop, once aligned
_MOST_SCALE, _MOST_SHEAR, _MOST_SHIFT = 0.15, 0.03, 0.08  # of an alignment: a crop of a tenth of each side at most
_DIMENSIONS = 8  # of the projection in which candidates are searched
SCENE_KEYPOINTS = 50  # that agree on one shift, turn and scale; fewest of two pictures of one scene
_SCENE_SIDE = 400  # pixels of the longer side of the pictures in which keypoints are searched
_RATIO = 0.75  # of the distances to the nearest keypoint and the next one, where the nearest one is taken
_SCENE_SCALE = 4.0  # largest one between two pictures: else all keypoints of one may fall on a few of the other
_KEPT_KEYPOINTS = 500  # pictures whose keypoints are kept: at most 1 MB each


class SmallVersions(NamedTuple):
    """Two small versions of a picture, as bytes: `cells` RGB (GRID, GRID, 3), `fine` grey (FINE, FINE)."""

    cells: bytes
    fine: bytes


def small_versions(pixels: np.ndarray) -> SmallVersions:
    """Scale a picture down to what tells whether another one is a copy; RGB uint8 (height, width, 3)."""
    import cv2

    cells = cv2.resize(pixels, (GRID, GRID), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return SmallVersions(cells.tobytes(), cv2.resize(gray, (FINE, FINE), interpolation=cv2.INTER_AREA).tobytes())


def group_copies(
    cells: Sequence[bytes], ratios: np.ndarray, fine_of: Callable[[set[int]], dict[int, bytes]]
) -> list[int]:
    """Number pictures so that copies of one picture have one number.

    `cells` of each picture are as of `small_versions`, `ratios` its width by its height. `fine_of` returns the grey
    versions of some places, few of which are asked for; one that it has not differs from all others.
    """
    import numpy as np
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    n = len(cells)
    pairs = find_pairs(_as_rows(cells), ratios)
    same = _agreeing(pairs, fine_of({place for pair in pairs for place in pair[:2]}))
    a, b = np.array(list(same), np.intp).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(a)), (a, b)), shape=(n, n))
    return connected_components(graph, directed=False)[1].tolist()


def find_same_pictures(root: Path, images: Sequence[Image], max_pixels: int) -> dict[tuple[int, int], float]:
    """Find pairs of images whose files show one picture, of whatever brightness, or one of them a crop of the other.

    A crop has at least nine tenths of each side. Images that cannot be read, or are larger than `max_pixels`, are in no
    pair. Returns by pairs of places the correlation of the pixels; one of equal files stands for all of them.
    """
    import cv2
    import numpy as np

    from visterm.features import ImageError, read_picture

    firsts = sorted({image.sha256: place for place, image in reversed(list(enumerate(images)))}.values())

    def small(place: int) -> tuple[SmallVersions, float] | None:
        with contextlib.suppress(ImageError):
            read = read_picture(os.path.join(root, images[place].path), max_side=64, max_pixels=max_pixels)
            return small_versions(read.pixels), read.width / read.height
        return None

    with ThreadPoolExecutor(4) as pool:
        seen = [(place, *of) for place, of in zip(firsts, pool.map(small, firsts), strict=True) if of is not None]
    if not seen:
        return {}
    places, versions, shapes = zip(*seen, strict=True)
    cells, ratios = _as_rows([version.cells for version in versions]), np.array(shapes)
    pairs = find_pairs(cells, ratios)
    able = np.flatnonzero(cells.std(axis=1) >= _LEAST_CONTRAST)
    evened = find_pairs(_evened(cells[able]), ratios[able], EVENED_TOLERANCE)
    pairs += [(int(able[i]), int(able[j]), turned) for i, j, turned in evened]
    fine = {place: versions[place].fine for pair in pairs for place in pair[:2]}

    def grey(place: int) -> tuple[int, np.ndarray] | None:
        with contextlib.suppress(ImageError):
            path = os.path.join(root, images[places[place]].path)
            pixels = read_picture(path, max_side=4 * ALIGNED, max_pixels=max_pixels).pixels
            scaled = cv2.resize(pixels, (ALIGNED, ALIGNED), interpolation=cv2.INTER_AREA)
            return place, cv2.cvtColor(scaled, cv2.COLOR_RGB2GRAY).astype(np.float32)
        return None

    def grey_of(some: set[int]) -> dict[int, np.ndarray]:
        with ThreadPoolExecutor(4) as pool:
            return dict(one for one in pool.map(grey, sorted(some)) if one is not None)

    same = _crops(cells, ratios, grey_of) | _agreeing(pairs, fine)
    return {(places[i], places[j]): correlation for (i, j), correlation in same.items()}


def find_same_scenes(
    root: Path, images: Sequence[Image], pairs: Sequence[tuple[int, int]], max_pixels: int
) -> list[tuple[int, int]]:
    """Return those of some pairs of images, by their places, that show one scene; others are not compared.

    Images that cannot be read, or are larger than `max_pixels`, are of no scene.
    """
    import cv2
    import numpy as np

    from visterm.features import ImageError, read_picture

    @lru_cache(_KEPT_KEYPOINTS)
    def keypoints(place: int) -> tuple[np.ndarray, np.ndarray] | None:
        with contextlib.suppress(ImageError):
            path = os.path.join(root, images[place].path)
            pixels = read_picture(path, max_side=_SCENE_SIDE, max_pixels=max_pixels).pixels
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
    import cv2
    import numpy as np

    nearest = cv2.BFMatcher(cv2.NORM_L2).knnMatch(one[1], other[1], k=2)
    matched = [(best.queryIdx, best.trainIdx) for best, second in nearest if best.distance < _RATIO * second.distance]
    if len(matched) < SCENE_KEYPOINTS:
        return 0
    i, j = np.array(matched).T
    warp, inliers = cv2.estimateAffinePartial2D(one[0][i], other[0][j], method=cv2.RANSAC)
    if warp is None or not 1 / _SCENE_SCALE <= np.hypot(*warp[:, 0]) <= _SCENE_SCALE:
        return 0
    return int(inliers.sum())


def _crops(
    cells: np.ndarray, ratios: np.ndarray, grey_of: Callable[[set[int]], dict[int, np.ndarray]]
) -> dict[tuple[int, int], float]:
    """Pairs of pictures of which one is the other without up to a tenth of each side, with their correlations.

    `grey_of` returns the grey versions of some places, float32 (ALIGNED, ALIGNED).
    """
    candidates = _nearest_pairs(cells, ratios)
    greys = grey_of({place for pair in candidates for place in pair})
    agreeing = (((i, j), _aligned_correlation(greys[i], greys[j])) for i, j in candidates if i in greys and j in greys)
    return {pair: correlation for pair, correlation in agreeing if correlation >= ALIGNED_CORRELATION}


def _nearest_pairs(cells: np.ndarray, ratios: np.ndarray) -> list[tuple[int, int]]:
    """Pairs whose cells are nearly equal, of each picture with the nearest ones by their projections."""
    import numpy as np
    from scipy.spatial import cKDTree

    if len(cells) < 2:
        return []
    points = cells.astype(np.float32)
    projected = points @ _main_directions(points)
    near_by = cKDTree(projected).query(projected, min(_CROP_NEIGHBORS + 1, len(cells)))[1]
    i, j = np.repeat(np.arange(len(cells)), near_by.shape[1]), near_by.ravel()
    i, j = np.unique(np.sort(np.column_stack([i, j])[i != j], axis=1), axis=0).T
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(i), 100_000):  # bounded memory
        a, b = i[start : start + 100_000], j[start : start + 100_000]
        near = ((points[a] - points[b]) ** 2).mean(axis=1) <= CROP_TOLERANCE**2
        near &= np.abs(np.log(ratios[a] / ratios[b])) < 0.12
        pairs += zip(a[near].tolist(), b[near].tolist(), strict=True)
    return pairs


def _aligned_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of two grey versions after the alignment that makes it largest (ECC); 0 where that is no crop."""
    import cv2
    import numpy as np

    until = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 100, 1e-4)
    best, middle = 0.0, np.full(2, (ALIGNED - 1) / 2)
    for scale in (1.0, 0.95, 1 / 0.95):  # of fine textures, an alignment is found from nearby alone
        start: Any = np.column_stack([scale * np.eye(2), (1 - scale) * middle]).astype(np.float32)
        try:
            correlation, warp = cv2.findTransformECC(one, other, start, cv2.MOTION_AFFINE, until)
        except cv2.error:  # it does not converge: they show different things
            continue
        linear = np.asarray(warp)[:, :2]
        off = np.abs(linear - np.eye(2))
        shift = np.abs(linear @ middle + np.asarray(warp)[:, 2] - middle).max() / ALIGNED
        if off.diagonal().max() < _MOST_SCALE and off[[0, 1], [1, 0]].max() < _MOST_SHEAR and shift < _MOST_SHIFT:
            best = max(best, float(correlation))
        if best >= ALIGNED_CORRELATION:
            break
    return min(best, 1.0)


def _main_directions(points: np.ndarray) -> np.ndarray:
    """An orthonormal basis, (d, _DIMENSIONS): no distance is larger in it."""
    import numpy as np

    centred = points - points.mean(axis=0)
    return np.linalg.eigh(centred.T @ centred)[1][:, -_DIMENSIONS:]


def _as_rows(cells: Sequence[bytes]) -> np.ndarray:
    import numpy as np

    return np.frombuffer(b"".join(cells), np.uint8).reshape(len(cells), GRID * GRID * 3)


def _evened(cells: np.ndarray) -> np.ndarray:
    """Give all cells of a picture one mean and one standard deviation."""
    import numpy as np

    values = cells.astype(np.float32)
    values -= values.mean(axis=1, keepdims=True)
    values *= _CONTRAST / values.std(axis=1, keepdims=True)
    return np.clip(np.round(values + 128), 0, 255).astype(np.uint8)


def _agreeing(pairs: Iterable[tuple[int, int, bool]], versions: dict[int, bytes]) -> dict[tuple[int, int], float]:
    """Return the correlations of the pairs whose grey versions, which are there, show the same."""
    import numpy as np

    fine = {
        place: np.frombuffer(version, np.uint8).reshape(FINE, FINE).astype(np.float32)
        for place, version in versions.items()
    }
    of_pairs = (((i, j), _correlation(fine[i], fine[j], turned)) for i, j, turned in pairs if i in fine and j in fine)
    return {pair: correlation for pair, correlation in of_pairs if correlation >= CORRELATION}


def find_pairs(cells: np.ndarray, ratios: np.ndarray, tolerance: float = TOLERANCE) -> list[tuple[int, int, bool]]:
    """Find pairs of pictures that may be copies: two places, the smaller one first, and whether one is mirrored.

    The `cells` are uint8 (n, GRID * GRID * 3), each picture scaled down to GRID x GRID RGB pixels; they differ by a
    root mean square of at most `tolerance`. The `ratios` of width by height agree to 3 %. Distances in a projection are
    never larger than those of the cells, so no pair is missed.
    """
    import numpy as np
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
    for other, vectors, turned in ((tree, points, False), (cKDTree(mirrored @ basis), mirrored, True)):
        near_by = tree.sparse_distance_matrix(other, radius, output_type="coo_matrix")
        i, j = near_by.row, near_by.col
        for start in range(0, len(i), 100_000):  # bounded memory
            a, b = i[start : start + 100_000], j[start : start + 100_000]
            near = (a < b) & (((points[a] - vectors[b]) ** 2).sum(axis=1) <= radius**2)
            near &= np.abs(np.log(ratios[a] / ratios[b])) < 0.03
            pairs += zip(a[near].tolist(), b[near].tolist(), [turned] * int(near.sum()), strict=True)
    return pairs


def _correlation(one: np.ndarray, other: np.ndarray, turned: bool) -> float:
    """Correlation of two grey versions; 1 if both are flat."""
    import numpy as np

    other = other[:, ::-1] if turned else other
    if one.std() < _FLAT and other.std() < _FLAT:
        return 1.0
    a, b = one - one.mean(), other - other.mean()
    return float((a * b).sum()) / max(float(np.sqrt((a * a).sum() * (b * b).sum())), 1e-9)
