"""The date, the camera and the place of a photo, from its EXIF."""

import datetime
import warnings
from typing import Any

from PIL import ExifTags, Image

from visterm.features.decoding import StrPath, exif_of, jpeg_segments
from visterm.features.images import read_file

HEAD_BYTES = 1 << 18  # of a JPEG or PNG: EXIF is to come before the pixels
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_DATES = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized)
_LONGEST = 100  # characters of a name
_LARGEST_ISO, _LONGEST_LENS = 10_000_000, 10_000  # mm; larger numbers are mistakes


def exif_fields(path: StrPath) -> dict[str, str]:
    """Read when, with what and where a photo was taken, from its EXIF; ImageError if the file cannot be read.

    Of ``date`` (``2024-05-03T14:22:10``, by the clock of the camera, without a time zone: EXIF's DateTimeOriginal, else
    DateTimeDigitized, else DateTime), ``camera`` and ``lens`` (their models), ``iso``, ``focal_length`` (mm),
    ``latitude`` and ``longitude`` (degrees, south and west negative), those that are there and make sense. A damaged
    image has none. Of JPEG and PNG files only the first `HEAD_BYTES` are read.
    """
    head = read_file(path, first=HEAD_BYTES)
    with warnings.catch_warnings():  # of the process, so that threads may let a warning slip
        warnings.filterwarnings("ignore", module="PIL")
        if head.startswith(_JPEG):
            return _fields_in(_exif_of_jpeg(head))
        if head.startswith(_PNG):
            return _fields_in(_exif_of_png(head))
        return _fields_in(exif_of(head if len(head) < HEAD_BYTES else read_file(path)))


def _exif_of_jpeg(head: bytes) -> Image.Exif | None:
    for marker, start, end in jpeg_segments(head):
        if marker == 0xE1 and head.startswith(b"Exif\0\0", start + 2):
            return _parsed(head[start + 2 : end])
        if marker == 0xDA:  # the pixels
            break
    return None


def _exif_of_png(head: bytes) -> Image.Exif | None:
    position = len(_PNG)
    while position + 8 <= len(head):
        length, kind = int.from_bytes(head[position : position + 4]), head[position + 4 : position + 8]
        if kind == b"eXIf":
            return _parsed(b"Exif\0\0" + head[position + 8 : position + 8 + length])
        position += 12 + length
    return None


def _parsed(data: bytes) -> Image.Exif | None:
    exif = Image.Exif()
    try:
        exif.load(data)
    except Exception:  # broken EXIF makes the parser raise nearly everything
        return None
    return exif


def _fields_in(exif: Image.Exif | None) -> dict[str, str]:
    if exif is None:
        return {}
    try:
        details, place = dict(exif.get_ifd(ExifTags.IFD.Exif)), dict(exif.get_ifd(ExifTags.IFD.GPSInfo))
        main = dict(exif)
    except Exception:  # see above
        return {}
    dates = (*(details.get(tag) for tag in _DATES), main.get(ExifTags.Base.DateTime))
    fields = {
        "date": next((date for text in dates if (date := _date(text))), None),
        "camera": _name(main.get(ExifTags.Base.Model)),
        "lens": _name(details.get(ExifTags.Base.LensModel)),
        "iso": _number(details.get(ExifTags.Base.ISOSpeedRatings), 0, _LARGEST_ISO),
        "focal_length": _number(details.get(ExifTags.Base.FocalLength), 0, _LONGEST_LENS),
        "latitude": _degrees(place, ExifTags.GPS.GPSLatitude, "S", 90),
        "longitude": _degrees(place, ExifTags.GPS.GPSLongitude, "W", 180),
    }
    return {name: text for name, text in fields.items() if text}


def _date(text: Any) -> str | None:
    try:
        return datetime.datetime.strptime(str(text).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S").isoformat()
    except ValueError:  # of a camera whose clock was not set: 0000:00:00 00:00:00
        return None


def _name(value: Any) -> str | None:
    text = value.partition("\0")[0].strip() if isinstance(value, str) else ""
    return text[:_LONGEST] if text.isprintable() else None


def _number(value: Any, least: float, most: float) -> str | None:
    """Return a number above `least` and up to `most` as a text; ISO may be several."""
    try:
        number = float(value[0] if isinstance(value, tuple) else value)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError):
        return None
    return f"{number:.10g}" if least < number <= most else None  # not of NaN


def _degrees(place: dict[int, Any], tag: int, negative: str, most: float) -> str | None:
    """Return an angle of degrees, minutes and seconds in decimal degrees, to a tenth of a metre."""
    try:
        degrees, minutes, seconds = (float(part) for part in place[tag])
        angle = degrees + minutes / 60 + seconds / 3600
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return None
    sign = -1 if str(place.get(tag - 1, "")).strip("\0 ").upper() == negative else 1  # the tag before says the side
    return f"{sign * angle:.6f}" if 0 <= angle <= most else None
