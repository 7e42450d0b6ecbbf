"""A camera's raw files: the JPEG that the camera put into them, or else the sensor's pixels at half size, by LibRaw.

Most are TIFFs whose first picture is a thumbnail, so that they are known by their content before Pillow sees them.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

RAW_EXTENSIONS = frozenset(  # lower case
    (".dng", ".nef", ".nrw", ".arw", ".sr2", ".cr2", ".cr3", ".raf", ".orf", ".rw2", ".pef", ".srw", ".3fr", ".iiq")
    + (".erf", ".kdc", ".mef", ".mos", ".rwl", ".x3f")
)
# Pixels of the longer side; of a smaller one the sensor's pixels are taken, unless it is half as large.
MIN_PREVIEW = 500
_SIGNATURE = re.compile(
    rb"II\*\0.{4}(CR|IIII)|MM\0\*.{4}MMMM|IIU\0|IIR[OS]|MMOR|FUJIFILMCCD-RAW|....ftypcrx|FOVb|\0MRM|II.{4}HEAPCCDR",
    re.DOTALL,
)
_SUBFILE_TYPE, _PHOTOMETRIC, _SUB_IFDS, _DNG_VERSION = 254, 262, 330, 50706
_SENSOR = (32803, 34892)  # photometric interpretations: a mosaic of colours, and linear raw
_TURNS = {3: 2, 5: 1, 6: -1}  # LibRaw's flip -> quarter turns against the clock


def is_raw(data: bytes) -> bool:
    """Whether a file is a camera's raw file, by its content.

    Of a TIFF: it has the tag of DNG, its first picture is the sensor's, or a reduced one with others below it.
    """
    if _SIGNATURE.match(data):
        return True
    if data[:4] not in (b"II*\0", b"MM\0*"):
        return False
    order = "<" if data[:2] == b"II" else ">"
    try:
        (place,) = struct.unpack_from(f"{order}I", data, 4)
        (n,) = struct.unpack_from(f"{order}H", data, place)
        tags = {}
        for entry in range(place + 2, place + 2 + 12 * n, 12):
            tag, kind = struct.unpack_from(f"{order}HH", data, entry)
            tags[tag] = struct.unpack_from(f"{order}{'H' if kind == 3 else 'I'}", data, entry + 8)[0]
    except struct.error:
        return False
    reduced = tags.get(_SUBFILE_TYPE, 0) & 1 and _SUB_IFDS in tags
    return _DNG_VERSION in tags or tags.get(_PHOTOMETRIC) in _SENSOR or bool(reduced)


def read_raw(data: bytes, max_pixels: int) -> tuple[bytes | npt.NDArray[np.uint8], int]:
    """Return the preview in a raw file, JPEG or RGB (height, width, 3), and the quarter turns that make it upright.

    ImportError without rawpy; MemoryError if the sensor has more than `max_pixels`; EOFError if it is cut short; any
    other error if it is damaged.
    """
    import rawpy

    with rawpy.imread(io.BytesIO(data)) as raw:
        height, width = raw.sizes.height, raw.sizes.width
        if height * width > max_pixels:
            raise MemoryError
        preview: Any = None
        with contextlib.suppress(rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
            preview = raw.extract_thumb()
        if preview is not None and preview.format == rawpy.ThumbFormat.JPEG:
            from PIL import JpegImagePlugin

            with JpegImagePlugin.JpegImageFile(io.BytesIO(preview.data)) as image:
                if 2 * max(image.size) >= max(height, width) or max(image.size) >= MIN_PREVIEW:
                    turned = 0x0112 in image.getexif()  # then decoding the preview makes it upright
                    return preview.data, 0 if turned else _TURNS.get(raw.sizes.flip, 0)
        pixels = raw.raw_image_visible
        if pixels is not None and not pixels[-1].any():  # LibRaw takes what the file does not hold for black
            raise EOFError
        return np.ascontiguousarray(raw.postprocess(half_size=True, use_camera_wb=True)), 0
