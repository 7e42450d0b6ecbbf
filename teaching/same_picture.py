"""Whether two pictures are the same one: compared in every place at the size at which both can be seen.

Pictures of different things on one ground, or two pages of one form, agree in most places; copies agree in all of
them. The pictures are aligned, to a fraction of a pixel, and the grey levels and colours of 16 x 16 blocks compared. A
crop lies within its picture. Pictures of another brightness share keypoints, too: any two smooth pictures, such as of
the sky, agree by some brightness and contrast.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from visterm.features.resizing import resize

WORKING_SIDE = 400  # pixels of the longer side at which pictures are compared
CORRELATION = 0.9  # smallest one of two copies
DIFFERENCE = 4.5  # grey levels: largest root mean square difference of a smooth block; what follows is of the same:
_OF_CONTRAST = 0.25  # of a block with details, a share of its standard deviation
_OF_PICTURE, _NOISE = 0.3, 3.0  # of dim pictures, a share of that of the whole, but no less than JPEG's noise
_COLOR_DIFFERENCE = 12.0  # levels: of the mean Cr and Cb of a block
_BLOCKS = 16  # per side
_SIGMA = 1.6  # pixels: what is smaller differs by how a picture was scaled, sharpened and encoded
_LEVELS = 8  # that have one tone
_STEPS, _FEW_STEPS = 50, 5  # of an alignment: from a guess, and of pictures of one frame, whose sides were rounded
_LEAST_SCALE, _MOST_SHEAR, _BEYOND = 0.89, 0.01, 0.005  # of a crop: its sides, its shear, what lies outside
_KEYPOINTS = 10  # that lie in one place of two pictures of different brightness, with descriptors so near:
_KEYPOINT_SHIFT, _KEYPOINT_DISTANCE = 3.0, 250.0


def same_picture(one: np.ndarray, other: np.ndarray, warp: np.ndarray | None = None) -> float:
    """Correlation of the grey levels of two pictures if they show the same one, or one a crop of the other; else 0.

    They are RGB, of at most `WORKING_SIDE` pixels per side. `warp`, (2, 3), is a guess of where places of `one` lie in
    `other`, each from 0 to 1 along its sides; None: they show the same frame.
    """
    same_frame = np.eye(2, 3)
    if warp is None:
        if value := _agreement(*_laid_over(one, other, same_frame, 0)):
            return value
        return _agreement(*_laid_over(one, other, same_frame, _FEW_STEPS))
    if warp[0, 0] * warp[1, 1] > 1:  # `one` is to be the crop
        inverse = np.linalg.inv(warp[:, :2])
        one, other, warp = other, one, np.column_stack([inverse, -inverse @ warp[:, 2]])
    return _agreement(*_laid_over(one, other, warp, _STEPS))


def _laid_over(
    one: np.ndarray, other: np.ndarray, warp: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Scale the larger picture down, and lay `other` over `one`; None if it is no crop, or cannot be aligned."""
    (height, width), (old_height, old_width) = one.shape[:2], other.shape[:2]
    scale = np.abs(warp.diagonal())
    ratio = min(old_width * scale[0] / width, old_height * scale[1] / height)  # pixels of the other for one of this
    if ratio < 1:
        one = resize(one, *(max(1, round(side * ratio)) for side in (height, width)))
    elif ratio > 1:
        other = resize(other, *(max(1, round(side / ratio)) for side in (old_height, old_width)))
    sides, others = (np.array(picture.shape[1::-1], float) for picture in (one, other))
    linear = others[:, None] * warp[:, :2] / sides
    matrix = np.column_stack([linear, others * warp[:, 2] + (linear - np.eye(2)).sum(axis=1) / 2]).astype(np.float32)
    if steps:
        greys = [cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY).astype(np.float32) for picture in (one, other)]
        if (aligned := align(greys[0], greys[1], matrix, steps, 1e-5, 1)) is None:
            return one, None
        matrix = aligned[1]
        if not _is_crop(matrix, sides, others):
            return one, None
    elif (sides == others).all():
        return one, other
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (one.shape[1], one.shape[0])
    return one, cv2.warpAffine(other, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)


def align(
    one: np.ndarray, other: np.ndarray, start: np.ndarray, steps: int, precision: float, blur: int
) -> tuple[float, np.ndarray] | None:
    """Align two grey pictures, float32, by an affine map (ECC): their correlation, and where pixels of one lie.

    None if it does not converge: they show different things. `blur` is an odd number of pixels, 1 for none: it makes
    the start matter less, but blurs each picture to its own edges, by which a crop seems larger.
    """
    until = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, steps, precision)
    everywhere: Any = None
    try:
        value, warp = cv2.findTransformECC(one, other, start, cv2.MOTION_AFFINE, until, everywhere, blur)
    except cv2.error:
        return None
    return float(value), np.asarray(warp)


def _is_crop(matrix: np.ndarray, sides: np.ndarray, others: np.ndarray) -> bool:
    """Whether places of one picture, moved, fill nearly all of another one, and lie within it."""
    moved = matrix[:, :2] * sides / others[:, None]
    corners = (np.array([(0, 0), (1, 0), (0, 1), (1, 1)]) * sides - 0.5) @ matrix[:, :2].T + matrix[:, 2] + 0.5
    beyond = np.maximum(-corners, corners - others).max(axis=0)
    return bool(
        (moved.diagonal() >= _LEAST_SCALE).all()
        and np.abs(moved[[0, 1], [1, 0]]).max() <= _MOST_SHEAR
        and (beyond <= np.maximum(1, _BEYOND * others)).all()
    )


def _agreement(one: np.ndarray, other: np.ndarray | None) -> float:
    """Correlation of two pictures of one size that agree in every block; else 0."""
    if other is None:
        return 0.0
    smooth, target = _smooth(one), _smooth(other)
    grey = target[..., 0]
    value = correlation(smooth[..., 0], grey)
    if value < CORRELATION:
        return 0.0
    contrast = np.sqrt(np.maximum(_of_blocks(grey**2) - _of_blocks(grey) ** 2, 0))
    smooth_limit = max(_NOISE, min(DIFFERENCE, _OF_PICTURE * float(grey.std())))
    limit = np.maximum(smooth_limit, _OF_CONTRAST * contrast)

    def agree(off: np.ndarray) -> bool:
        colors = (np.abs(_of_blocks(off[..., i])).max() <= _COLOR_DIFFERENCE for i in (1, 2))
        return bool((np.sqrt(_of_blocks(off[..., 0] ** 2)) <= limit).all()) and all(colors)

    if agree(smooth - target):
        return value
    for low, high, seen in ((one, other, target), (other, one, smooth)):  # what is overexposed is made of the other
        toned = tone(low, high)
        if np.abs(toned - low).max() > _NOISE and agree(_smooth(toned) - seen):
            return value if _n_shared_keypoints(one, other) >= _KEYPOINTS else 0.0
    return 0.0


def _smooth(pixels: np.ndarray) -> np.ndarray:
    """Grey levels and colours, Y, Cr and Cb, of RGB, without the finest details; float32."""
    smooth = cv2.GaussianBlur(pixels.astype(np.float32) / 255, (0, 0), _SIGMA)
    return 255 * cv2.cvtColor(smooth, cv2.COLOR_RGB2YCrCb)


def tone(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Give a picture the brightness of another one, by the mean level there of each of its levels; float32."""
    levels = low.ravel().astype(np.intp) // _LEVELS
    counts = np.bincount(levels, minlength=256 // _LEVELS)
    present = counts > 0
    means, sources = (
        np.bincount(levels, values.ravel(), len(counts))[present] / counts[present] for values in (high, low)
    )
    return np.interp(low, sources, means).astype(np.float32)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Correlation of two arrays; 0 if one of them is flat."""
    a, b = one - one.mean(), other - other.mean()
    return min(float((a * b).sum()) / max(float(np.sqrt((a * a).sum() * (b * b).sum())), 1e-9), 1.0)


def _of_blocks(values: np.ndarray) -> np.ndarray:
    """Means of the blocks of an array, of at least four pixels per side."""
    edges = [np.linspace(0, side, max(1, min(_BLOCKS, side // 4)) + 1).astype(int) for side in values.shape]
    sums = values.astype(np.float64)
    for axis, ends in enumerate(edges):
        sums = np.add.reduceat(sums, ends[:-1], axis)
    return sums / np.outer(*(np.diff(ends) for ends in edges))


def _n_shared_keypoints(one: np.ndarray, other: np.ndarray) -> int:
    """Number of keypoints that lie in one place of two pictures and have similar descriptors."""
    sides = [cv2.SIFT.create().detectAndCompute(part, None) for part in (one, other)]
    if not all(points for points, _ in sides):
        return 0
    (places, descriptors), (others, of_others) = (
        (np.array([point.pt for point in points]), rows) for points, rows in sides
    )
    from scipy.spatial import cKDTree  # a third of a second, which a service need not wait for

    near = cKDTree(others).query_ball_point(places, _KEYPOINT_SHIFT)
    return sum(
        bool(close) and bool((np.linalg.norm(of_others[close] - row, axis=1) < _KEYPOINT_DISTANCE).any())
        for close, row in zip(near, descriptors, strict=True)
    )
