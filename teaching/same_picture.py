"""Whether two pictures are the same one: compared in every place at sizes at which both can be seen.

Pictures of different things on one ground, or two pages of one form, agree in most places; copies agree in all of
them. The pictures are aligned, to a fraction of a pixel, and the grey levels and colours of 16 x 16 blocks compared,
then those of every pixel: lines and letters are a small part of a block. A crop lies within its picture. Pictures of
another brightness share keypoints, too: any two smooth pictures, such as of the sky, agree by some brightness and
contrast. Drawings whose brightness differs by much have other colours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np

from visterm.features.resizing import resize

WORKING_SIDE, DETAIL_SIDE = 400, 1200  # pixels of the longer side at which pictures are compared: first, and last
CORRELATION = 0.9  # smallest one of two copies
DIFFERENCE = 4.5  # grey levels: largest root mean square difference of a smooth block; what follows is of the same:
_OF_CONTRAST = 0.25  # of a block with details, a share of its standard deviation
_OF_PICTURE, _NOISE = 0.3, 3.0  # of dim pictures, a share of that of the whole, but no less than JPEG's noise
_COLOR_DIFFERENCE = 12.0  # levels: of the mean Cr and Cb of a block
_BLOCKS = 16  # per side
_SIGMA = 1.6  # pixels: what is smaller differs by how a picture was scaled, sharpened and encoded
_DETAIL, _COLOR_DETAIL = 16.0, 12.0  # levels: largest difference of one pixel, of Y, and of Cr and Cb,
_OF_RANGE, _OF_COLOR_RANGE = 0.3, 0.4  # or a share of the range of levels around it,
_NEAR = 17  # in a square of so many pixels, in which JPEG leaves traces of an edge
_COLOR_SIGMA = 3.0  # pixels: JPEG stores colours at half the size
_LINE_SIGMA, _OF_LOSSLESS = 0.8, 0.1  # of drawings, in place of _SIGMA; of those of one size without traces of JPEG
_FEW_TONES, _OF_PIXELS = 8, 0.5  # a drawing: so few of 256 grey levels have this share of the pixels
_TRACES, _OF_GROUND = 6, 0.004  # levels by which more than a share of the pixels of its ground differ, if it has traces
_LEVELS = 8  # that have one tone
_DRAWN_TONE = 30.0  # levels by which drawings are brighter or darker: more is another colour
_STEPS, _FEW_STEPS = 50, 5  # of an alignment: from a guess, and of pictures of one frame, whose sides were rounded
_LEAST_SCALE, _MOST_SHEAR, _BEYOND = 0.89, 0.01, 0.005  # of a crop: its sides, its shear, what lies outside
_ROUNDED = 1.0  # pixels by which corners of pictures of one frame are moved
_KEYPOINTS = 10  # that lie in one place of two pictures of different brightness, with descriptors so near:
_KEYPOINT_SHIFT, _KEYPOINT_DISTANCE = 3.0, 250.0


def same_at_all_sizes(
    read: Callable[[int], tuple[np.ndarray, np.ndarray] | None], warp: np.ndarray | None = None
) -> float:
    """Compare two pictures as `same_picture` does: first at `WORKING_SIDE`, then, if one is larger, at `DETAIL_SIDE`.

    `read` returns them for a number of pixels of the longer side, which is not exceeded; None: they cannot be read.
    """
    value = 0.0
    for side in (WORKING_SIDE, DETAIL_SIDE):
        if (pictures := read(side)) is None:
            return 0.0
        is_last = side == DETAIL_SIDE or max(max(picture.shape) for picture in pictures) < side
        value, warp = _compared(*pictures, warp, _STEPS if side == WORKING_SIDE else _FEW_STEPS, is_last)
        if is_last or not value:
            break
    return value


def same_picture(one: np.ndarray, other: np.ndarray, warp: np.ndarray | None = None) -> float:
    """Correlation of the grey levels of two pictures if they show the same one, or one a crop of the other; else 0.

    They are RGB, of at most `DETAIL_SIDE` pixels per side. `warp`, (2, 3), is a guess of where places of `one` lie in
    `other`, each from 0 to 1 along its sides; None: they show the same frame.
    """
    return _compared(one, other, warp, _STEPS, True)[0]


def _compared(
    one: np.ndarray, other: np.ndarray, warp: np.ndarray | None, steps: int, lines: bool
) -> tuple[float, np.ndarray | None]:
    """As `same_picture`, and the warp, better than the guess; `lines`: compare those of drawings."""
    same_frame = np.eye(2, 3)
    share = _OF_RANGE if lines else None
    if warp is None:
        unscaled = one.shape == other.shape and max(one.shape) not in (WORKING_SIDE, DETAIL_SIDE)
        if lines and unscaled and not _has_traces(one) and not _has_traces(other):
            share = _OF_LOSSLESS
        value = _agreement(*_laid_over(one, other, same_frame, 0)[:2], share)
        if not value and not unscaled:  # sides were rounded
            value = _agreement(*_laid_over(one, other, same_frame, _FEW_STEPS)[:2], share)
        return value, None
    if is_crop := warp[0, 0] * warp[1, 1] <= 1:
        one, aligned, warp = _laid_over(one, other, warp, steps)
    else:  # `one` is to be the crop
        one, aligned, warp = _laid_over(other, one, _inverse(warp), steps)
    return _agreement(one, aligned, share), warp if is_crop else _inverse(warp)


def _inverse(warp: np.ndarray) -> np.ndarray:
    inverse = np.linalg.inv(warp[:, :2])
    return np.column_stack([inverse, -inverse @ warp[:, 2]])


def _laid_over(
    one: np.ndarray, other: np.ndarray, warp: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
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
            return one, None, warp
        matrix = aligned[1]
        if not _is_crop(matrix, sides, others, _ROUNDED if (warp == np.eye(2, 3)).all() else np.inf):
            return one, None, warp
        linear = matrix[:, :2].astype(float)
        shift = (matrix[:, 2] - (linear - np.eye(2)).sum(axis=1) / 2) / others
        warp = np.column_stack([linear * sides / others[:, None], shift])
    elif (sides == others).all():
        return one, other, warp
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    size = (one.shape[1], one.shape[0])
    return one, cv2.warpAffine(other, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE), warp


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


def _is_crop(matrix: np.ndarray, sides: np.ndarray, others: np.ndarray, within: float) -> bool:
    """Whether places of one picture, moved, fill nearly all of another one, and lie within it; corners by pixels."""
    moved = matrix[:, :2] * sides / others[:, None]
    corners = (np.array([(0, 0), (1, 0), (0, 1), (1, 1)]) * sides - 0.5) @ matrix[:, :2].T + matrix[:, 2] + 0.5
    beyond = np.maximum(-corners, corners - others).max(axis=0)
    inside = np.minimum(np.abs(corners), np.abs(corners - others)).max()
    return bool(
        inside <= within
        and (moved.diagonal() >= _LEAST_SCALE).all()
        and np.abs(moved[[0, 1], [1, 0]]).max() <= _MOST_SHEAR
        and (beyond <= np.maximum(1, _BEYOND * others)).all()
    )


def _agreement(one: np.ndarray, other: np.ndarray | None, lines: float | None) -> float:
    """Correlation of two pictures of one size that agree in every block and every detail; else 0.

    Lines of drawings differ by a share of at most `lines` of the levels around; None: they are not compared.
    """
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
    drawn = is_drawing(one) or is_drawing(other)

    def agree(low: np.ndarray, high: np.ndarray, seen: np.ndarray, expected: np.ndarray) -> bool:
        off = seen - expected
        colors = (np.abs(_of_blocks(off[..., i])).max() <= _COLOR_DIFFERENCE for i in (1, 2))
        in_blocks = bool((np.sqrt(_of_blocks(off[..., 0] ** 2)) <= limit).all()) and all(colors)
        if not in_blocks or not _details_agree(seen, expected, _OF_RANGE):
            return False
        if not drawn or lines is None:
            return True
        return _details_agree(_smooth(low, _LINE_SIGMA), _smooth(high, _LINE_SIGMA), lines)

    if agree(one, other, smooth, target):
        return value
    for low, high, expected in ((one, other, target), (other, one, smooth)):  # what is overexposed is made of the other
        toned = tone(low, high)
        change = float(np.abs(toned - low).max())
        if _NOISE < change <= (_DRAWN_TONE if drawn else 255) and agree(toned, high, _smooth(toned), expected):
            return value if _n_shared_keypoints(one, other) >= _KEYPOINTS else 0.0
    return 0.0


def _details_agree(one: np.ndarray, other: np.ndarray, share: float) -> bool:
    """Whether two smooth pictures differ nowhere by more than noise, and a share of the range of levels around."""
    around = np.ones((_NEAR, _NEAR), np.uint8)
    for channel, most in enumerate((_DETAIL, _COLOR_DETAIL, _COLOR_DETAIL)):
        pair = [part[..., channel] for part in (one, other)]
        if channel:
            pair = [cv2.GaussianBlur(part, (0, 0), _COLOR_SIGMA) for part in pair]
        else:
            most = min(most, share * max(float(np.ptp(part)) for part in pair))  # of faint lines, noise is faint
        spread = np.maximum(*(cv2.dilate(part, around) - cv2.erode(part, around) for part in pair))
        of_range = _OF_COLOR_RANGE if channel else share
        if (np.abs(pair[0] - pair[1]) > np.maximum(most, of_range * spread)).any():
            return False
    return True


def is_drawing(pixels: np.ndarray) -> bool:
    """Whether most pixels have one of a few grey levels, as in drawings, and of text."""
    counts = np.bincount(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY).ravel(), minlength=256)
    return bool(np.sort(counts)[-_FEW_TONES:].sum() > _OF_PIXELS * counts.sum())


def _has_traces(pixels: np.ndarray) -> bool:
    """Whether the ground, of the most frequent level, is not of one level even away from lines, as JPEG leaves it."""
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    off = cv2.absdiff(grey, np.full_like(grey, np.bincount(grey.ravel()).argmax()))
    ground = cv2.dilate(off, np.ones((3, 3), np.uint8)) <= _TRACES
    return bool((off[ground] > 0).mean() > _OF_GROUND) if ground.any() else True


def _smooth(pixels: np.ndarray, sigma: float = _SIGMA) -> np.ndarray:
    """Grey levels and colours, Y, Cr and Cb, of RGB, without the finest details; float32."""
    smooth = cv2.GaussianBlur(pixels.astype(np.float32) / 255, (0, 0), sigma)
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
