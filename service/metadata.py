"""Image files without metadata: place, camera, time, comments, previews, and anything behind the image.

The compressed pixels are copied as they are. Kept are the orientation, and what the colours and the size depend on:
each format has a list of the parts that stay, so that an unknown one goes.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable

import cv2
from PIL import Image

from visterm.features import decode_image
from visterm.features.decoding import JPEG_END, JPEG_START_OF_SCAN, jpeg_segments

_ORIENTATION = 0x0112


def without_metadata(data: bytes, name: str, max_pixels: int) -> bytes:
    """Return an image file without metadata; as PNG where the format, or a damage, does not allow to copy the pixels.

    ImageError if it has to be decoded, and cannot be.
    """
    for start, strip in _FORMATS.items():
        if data.startswith(start):
            try:
                return strip(data)
            except (ValueError, LookupError, struct.error, OverflowError, SyntaxError):
                break
    pixels = decode_image(data, name, max_pixels=max_pixels)
    return cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


def _orientation(exif: bytes) -> int | None:
    """Return the orientation in EXIF; None if there is none."""
    tags = Image.Exif()
    try:
        tags.load(exif)
        return int(tags[_ORIENTATION])
    except Exception:  # broken EXIF makes the parser raise nearly everything
        return None


def _orientation_of_xmp(xmp: bytes) -> int | None:
    """As `_orientation`, of XMP, which decoders obey where EXIF has none."""
    match = _XMP_ORIENTATION.search(xmp)
    return int(match[1]) if match else None


_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')


def _only_orientation(orientation: int | None) -> bytes:
    """Return EXIF that holds nothing else; empty if the image is upright."""
    if orientation is None or not 2 <= orientation <= 8:
        return b""
    # A big-endian TIFF header, and a directory of one entry: tag, type (short), number, value.
    return struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, _ORIENTATION, 3, 1, orientation, 0, 0)


# -- JPEG --------------------------------------------------------------------------------------------------------------

_COMMENT = 0xFE


def _strip_jpeg(data: bytes) -> bytes:
    parts, pixels = [b"\xff\xd8"], 0
    for marker, start, end in jpeg_segments(data):
        if pixels:
            parts.append(data[pixels : start - 2])
        pixels = end if marker == JPEG_START_OF_SCAN else 0
        if marker == JPEG_END:
            return b"".join((*parts, b"\xff\xd9"))
        segment = data[start + 2 : end]
        if end > start and len(segment) != end - start - 2:
            raise ValueError("a segment is cut off")
        if end > start and (kept := _kept_segment(marker, segment)) is not None:
            parts.append(struct.pack(">BBH", 0xFF, marker, len(kept) + 2) + kept)
    raise ValueError("no end")


def _kept_segment(marker: int, segment: bytes) -> bytes | None:
    """Return what stays of a segment, or None; of application data: resolution, colour profile and kind of colour."""
    if marker == _COMMENT or not (0xE0 <= marker <= 0xEF or segment):
        return None
    if not 0xE0 <= marker <= 0xEF:
        return segment
    if marker == 0xE0 and segment.startswith(b"JFIF\0"):
        return segment[:12] + b"\0\0"  # without its preview
    if marker == 0xE1 and segment.startswith(b"Exif\0\0"):
        kept = _only_orientation(_orientation(segment))
        return b"Exif\0\0" + kept if kept else None
    if (marker == 0xE2 and segment.startswith(b"ICC_PROFILE\0")) or (marker == 0xEE and segment.startswith(b"Adobe")):
        return segment
    return None


# -- PNG and WebP ------------------------------------------------------------------------------------------------------

_PNG_KEPT = frozenset(
    b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB iCCP cICP mDCV cLLI sBIT bKGD hIST pHYs acTL fcTL fdAT".split()
)
_WEBP_KEPT = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
_WEBP_HAS_EXIF, _WEBP_HAS_XMP = 0x08, 0x04  # bits of VP8X


def _strip_png(data: bytes) -> bytes:
    chunks, position, kind = [], 8, b""
    by_exif = by_xmp = None
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data) or (kind[0] < ord("a") and kind not in _PNG_KEPT):
            raise ValueError("cut off, or a chunk that the image cannot do without")
        if kind in _PNG_KEPT:
            chunks.append((kind, data[position:end]))
        elif kind == b"eXIf":
            by_exif = _orientation(b"Exif\0\0" + data[position + 8 : end - 4])
        elif kind == b"iTXt" and data.startswith(b"XML:com.adobe.xmp\0", position + 8):
            by_xmp = _orientation_of_xmp(data[position + 8 : end - 4])
        position = end
    if exif := _only_orientation(by_xmp if by_exif is None else by_exif):
        body = b"eXIf" + exif
        chunk = struct.pack(">I", len(exif)) + body + struct.pack(">I", zlib.crc32(body))
        chunks.insert([kind for kind, _ in chunks].index(b"IDAT"), (b"eXIf", chunk))
    return data[:8] + b"".join(chunk for _, chunk in chunks)


def _strip_webp(data: bytes) -> bytes:
    if data[8:12] != b"WEBP":
        raise ValueError("not WebP")
    end, position = 8 + struct.unpack_from("<I", data, 4)[0], 12
    chunks = []
    by_exif = by_xmp = None
    while position + 8 <= min(end, len(data)):
        kind, length = struct.unpack_from("<4sI", data, position)
        payload = data[position + 8 : position + 8 + length]
        if len(payload) != length:
            raise ValueError("cut off")
        if kind in _WEBP_KEPT:
            chunks.append((kind, payload))
        elif kind == b"EXIF":
            by_exif = _orientation(payload if payload.startswith(b"Exif\0\0") else b"Exif\0\0" + payload)
        elif kind == b"XMP ":
            by_xmp = _orientation_of_xmp(payload)
        position += 8 + length + length % 2
    exif = _only_orientation(by_xmp if by_exif is None else by_exif)
    if chunks[0][0] == b"VP8X":
        payload = chunks[0][1]
        flags = payload[0] & ~(_WEBP_HAS_EXIF | _WEBP_HAS_XMP) | (_WEBP_HAS_EXIF if exif else 0)
        chunks[0] = b"VP8X", bytes((flags,)) + payload[1:]
        if exif:
            chunks.append((b"EXIF", exif))
    body = b"".join(
        struct.pack("<4sI", kind, len(payload)) + payload + b"\0" * (len(payload) % 2) for kind, payload in chunks
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


_FORMATS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\xff\xd8\xff": _strip_jpeg,
    b"\x89PNG\r\n\x1a\n": _strip_png,
    b"RIFF": _strip_webp,
    b"BM": bytes,  # has no metadata
}
