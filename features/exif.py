"""The date of a photo, from its EXIF."""

import datetime
import warnings

from PIL import ExifTags, Image

from .decoding import StrPath, exif_of, jpeg_segments
from .images import read_file

HEAD_BYTES = 1 << 18  # of a JPEG or PNG: EXIF is to come before the pixels
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_DATES = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized)


def date_taken(path: StrPath) -> str | None:
    """Read the date of a photo from its EXIF.

    Parameters
    ----------
    path : str or PathLike

    Returns
    -------
    str or None
        ``2024-05-03T14:22:10``, by the clock of the camera, without a time zone: EXIF's DateTimeOriginal, else
        DateTimeDigitized, else DateTime. None if there is none, or none that is a date.

    Raises
    ------
    ImageError
        The file cannot be read; see `read_file`. A damaged image has no date.

    Notes
    -----
    Of JPEG and PNG files only the first `HEAD_BYTES` are read.
    """
    head = read_file(path, first=HEAD_BYTES)
    with warnings.catch_warnings():  # of the process, so that threads may let a warning slip
        warnings.filterwarnings("ignore", module="PIL")
        if head.startswith(_JPEG):
            return _date_in(_exif_of_jpeg(head))
        if head.startswith(_PNG):
            return _date_in(_exif_of_png(head))
        return _date_in(exif_of(head if len(head) < HEAD_BYTES else read_file(path)))


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


def _date_in(exif: Image.Exif | None) -> str | None:
    if exif is None:
        return None
    try:
        details = exif.get_ifd(ExifTags.IFD.Exif)
        texts = [details.get(tag) for tag in _DATES] + [exif.get(ExifTags.Base.DateTime)]
    except Exception:  # see above
        return None
    for text in texts:
        try:
            date = datetime.datetime.strptime(str(text).strip("\0 ")[:19], "%Y:%m:%d %H:%M:%S")
        except ValueError:  # of a camera whose clock was not set: 0000:00:00 00:00:00
            continue
        return date.isoformat()
    return None
