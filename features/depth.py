"""Images of more than 8 bits: which level is white, and how they become 8 bits. One rule for integers and floats."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

_WHITES = (1, 255, 1023, 4095, 16383, 65535)  # of masks and fractions, and of 8, 10, 12, 14 and 16 bits
_OLD_WHITES = 1, 255, 65535
MAX_WHITE = _WHITES[-1]
_ROWS = 256  # that are converted at a time
# Tags of TIFF.
BITS_PER_SAMPLE, PHOTOMETRIC, _MAX_SAMPLE, _S_MAX_SAMPLE = 258, 262, 281, 341
_PLANES, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 284, 338, 339


class Rules(NamedTuple):
    """How a file becomes pixels; a fitted extractor keeps those that it was fitted with."""

    # 1: before version 0.4; of 16 bits the high ones count, `max_side` is that of any picture, and white on transparent
    # lies on white. 2: the brightest level of a file says nothing beside the white of the collection.
    version: int = 3
    white: int = 0  # the least level that is white in a collection, of files that declare none; see `common_white`
    longest: float = 0.0  # ratio of the sides up to which `max_side` limits the longer one, then the area; 0: any ratio


RULES = Rules()
LONGEST = 2.5  # of extractors: frames of films are up to 2.4 times as long as high, so that only panoramas differ


def white_of(peak: float, declared: float, rules: Rules) -> float:
    """Return the level that is white: the smallest usual one that holds all pixels, and what the file declares.

    Files of 16 bits hold the 10, 12 or 14 of a sensor as they are, and mostly do not say so. In a collection where most
    files need more than this one, as of a dim exposure, it is the white of the collection; but a file whose brightest
    level is that of 8, 10, 12 or 14 bits to the unit holds these, as overexposed parts do and a dim one hardly ever.
    """
    level = max(peak, declared)
    white = next((white for white in _WHITES if level <= white), level)
    return white if declared or has_evident_white(peak, rules) else max(white, rules.white)


def has_evident_white(peak: float, rules: Rules = RULES) -> bool:
    """Whether the brightest level of a file tells its white by itself."""
    return peak <= 1 or (rules.version > 2 and peak in _WHITES)


def declared_white(image: Image.Image, data: bytes) -> float:
    """Return the level of white that the header of a file of more than 8 bits declares; 0 if it does not."""
    if image.format == "PPM":  # whose levels Pillow has scaled
        return MAX_WHITE
    if image.format == "JPEG2000":  # the same, of fewer bits; they stand 40 bytes after the marker SIZ
        bits = (data[data.find(b"\xff\x4f\xff\x51") + 42] & 0x7F) + 1
        return MAX_WHITE if bits < 16 else 0
    if image.format == "PNG":
        place = data.find(b"sBIT", 0, max(0, data.find(b"IDAT")))
        return (1 << data[place + 4]) - 1 if place > 0 and 8 < data[place + 4] <= 16 else 0
    tags = getattr(image, "tag_v2", {})
    bits = tags.get(BITS_PER_SAMPLE, (8,))[0]
    if 8 < bits < 16:
        return (1 << bits) - 1
    levels = [tags.get(tag, 0) for tag in (_MAX_SAMPLE, _S_MAX_SAMPLE)]
    levels = [max(level, default=0) if isinstance(level, tuple) else level for level in levels]
    return max(0, *(float(level) for level in levels if isinstance(level, int | float) and math.isfinite(level)), 0)


def is_deep(image: Image.Image) -> bool:
    """Whether an image of Pillow's is grey of more than 8 bits."""
    return image.mode == "F" or image.mode.startswith("I")


def peak_of(image: Image.Image, rules: Rules) -> float:
    """Return the largest grey level."""
    return max(float(_levels(part).max()) for _, part in _parts(image, rules))


def eight_bits(image: Image.Image, declared: float, rules: Rules) -> npt.NDArray[np.uint8]:
    """Convert grey levels of more than 8 bits to uint8 (height, width), some rows at a time."""
    out = np.empty(image.size[::-1], np.uint8)
    tags = getattr(image, "tag_v2", {})
    unsigned = np.asarray(image.crop((0, 0, 1, 1))).dtype.kind == "u"
    if rules.version > 1:
        white = white_of(peak_of(image, rules), declared, rules)
    elif not unsigned:
        white = next((white for white in _OLD_WHITES if peak_of(image, rules) <= white), peak_of(image, rules))
    for rows, part in _parts(image, rules):
        if rules.version == 1 and unsigned:
            out[rows] = part >> (tags.get(BITS_PER_SAMPLE, (16,))[0] - 8)
        else:
            out[rows] = _levels(part) * np.float32(255 / white) + np.float32(0.5)
    if unsigned and tags.get(PHOTOMETRIC) == 0:  # white is zero: Pillow turns that round for 8 bits only
        np.invert(out, out=out)
    return out


def _parts(image: Image.Image, rules: Rules) -> Iterator[tuple[slice, npt.NDArray[np.generic]]]:
    width, height = image.size
    tags = getattr(image, "tag_v2", {})
    unsigned = image.mode == "I" and (tags.get(BITS_PER_SAMPLE), tags.get(_SAMPLE_FORMAT, (1,))) == ((32,), (1,))
    for top in range(0, height, _ROWS):
        bottom = min(top + _ROWS, height)
        part = np.asarray(image.crop((0, top, width, bottom)))
        # Pillow has signed numbers alone, in which levels from 2^31 on are negative.
        yield slice(top, bottom), part.view(np.uint32) if unsigned and rules.version > 2 else part


def _levels(part: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Return grey levels without negative ones, NaN and infinity, which are black."""
    return cast("npt.NDArray[np.float32]", np.maximum(np.nan_to_num(part.astype(np.float32), posinf=0), 0))


def opencv_decode(data: bytes, flags: int) -> npt.NDArray[Any] | None:
    """Return pixels, or None if OpenCV cannot decode the data; the flags decide whether EXIF turns them."""
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error:
        return None


def deep_colors(image: Image.Image, data: bytes, max_bytes: int) -> npt.NDArray[np.uint16] | None:
    """Return colours of 16 bits, RGB or RGBA, of which Pillow keeps the high bytes alone; None of other images."""
    if image.format == "PNG":
        deep = data[24] == 16 and data[25] != 0  # IHDR's depth; 0: grey
    else:
        tags = getattr(image, "tag_v2", {})
        deep = tags.get(BITS_PER_SAMPLE, (8,))[0] == 16 and image.mode in ("RGB", "RGBA", "LA")
        deep = deep and 1 not in tags.get(_EXTRA_SAMPLES, ())  # which has multiplied the colours: Pillow divides them
        deep = deep and tags.get(_PLANES) != 2  # each colour in a plane of its own: OpenCV mixes them up
    if not deep or image.width * image.height * 8 > max_bytes:
        return None
    pixels = opencv_decode(data, cv2.IMREAD_UNCHANGED)
    if pixels is None or pixels.dtype != np.uint16 or pixels.ndim != 3 or pixels.shape[2] not in (3, 4):
        return None
    return cast("npt.NDArray[np.uint16]", pixels[..., [2, 1, 0, 3][: pixels.shape[2]]])


def eight_bit_colors(pixels: npt.NDArray[np.uint16], declared: float, rules: Rules) -> npt.NDArray[np.uint8]:
    """Convert RGB or RGBA of 16 bits to 8 bits; opacity has a white of its own."""
    whites = [white_of(float(pixels[..., :3].max()), declared, rules)] * 3
    whites += [white_of(float(pixels[..., 3:].max(initial=0)), 0, RULES)] * (pixels.shape[2] - 3)
    levels = np.arange(MAX_WHITE + 1, dtype=np.float32)
    tables = [np.minimum(levels * np.float32(255 / white) + np.float32(0.5), 255).astype(np.uint8) for white in whites]
    return np.stack([table[pixels[..., i]] for i, table in enumerate(tables)], axis=-1)
