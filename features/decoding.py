"""Decode the content of image files: JPEG by OpenCV, the fastest, everything else by Pillow, which reads most formats.

A file is judged by its content, never by its name, and is either decoded or refused with a reason.
"""

import io
import math
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)
from PIL import features as pillow_features

from visterm.extras import how_to_install

from .depth import (
    BITS_PER_SAMPLE,
    PHOTOMETRIC,
    RULES,
    Rules,
    declared_white,
    deep_colors,
    eight_bit_colors,
    eight_bits,
    is_deep,
    opencv_decode,
    peak_of,
)
from .raw import is_raw, read_raw

MAX_PIXELS = 100_000_000  # 300 MB as RGB uint8; a decoder may need four times that for a moment
RGB_BYTES = 3  # per pixel; an image of more bytes per pixel may have fewer pixels, as it takes the same memory
MAX_SIDE = 1_000_000  # width or height; a decoder pays for each row, however short
PIXELS_PER_BYTE = 10_000  # of a file; PNG, GIF and JPEG hold at most 8,300, lossless WebP of one colour 3 million
FLAT = 8  # levels between the brightest and the darkest pixel of a picture that shows nothing
SMALL_PIXELS = 4_000_000  # an image of no more pixels may have more of them per byte

StrPath = str | os.PathLike[str]


class ImageError(ValueError):
    """A file that cannot be read as an image.

    Attributes
    ----------
    path : str or PathLike
        The file, as it was given.
    reason : str
        Why, in a few words: ``"truncated"``, ``"empty file"``, ``"not an image"``, ...

    Notes
    -----
    ``str(error)`` is one line, ``PATH: reason``, whatever the path contains. The error can be pickled, so
    that it comes back from worker processes.
    """

    def __init__(self, path: StrPath, reason: str) -> None:
        super().__init__(path, reason)  # both as args: that is what pickle calls the class with
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.reason}"


class Picture(NamedTuple):
    """Pixels of an image within a limit of the longest side, and the size of the original in pixels."""

    pixels: npt.NDArray[np.uint8]  # RGB (h, w, 3), C-contiguous
    height: int
    width: int


def printable(path: StrPath) -> str:
    r"""Show a path on one line, whatever bytes its name holds.

    Parameters
    ----------
    path : str or PathLike
        Undecodable bytes as surrogates, as Python's own file functions give them.

    Returns
    -------
    str
        Newlines, control characters and undecodable bytes escaped (``\n``, ``\x1b``, ``\xff``).
    """
    return "".join(c if c.isprintable() else _escape(c) for c in os.fsdecode(path))


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # Python's stand-in for a byte of a file name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()


def decode_image(data: bytes, name: StrPath, *, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """Decode the content of an image file, as `read_image` does.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : str or PathLike
        Name for errors.
    max_pixels : int
        Refuse larger images.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8
        RGB, C-contiguous and writable.

    Raises
    ------
    ImageError
        As `read_image`.
    """
    return decode_picture(data, name, max_pixels=max_pixels).pixels


def decode_picture(
    data: bytes,
    name: StrPath,
    *,
    max_side: int | None = None,
    min_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    rules: Rules = RULES,
) -> Picture:
    """Decode the content of an image file as `decode_image` does, a large one smaller; ImageError as `read_image`.

    `max_pixels` limits the original. It is scaled down to a longest side of `max_side`; or, with `min_side` alone, only
    as far as the decoder can, with this many pixels on the shorter side. `rules` say how grey levels of more than 8
    bits become 8 bits, and what `max_side` means for a panorama.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if that is no smaller than `max_side` and `min_side`, which takes a
    fraction of the time and memory. To `max_side` the rest, and other formats, are scaled down by `shrink_to_side`.
    """
    if not data:
        raise ImageError(name, "empty file")
    if data.startswith(b"\xff\xd8\xff"):
        height, width = _check_jpeg(data, max_pixels, name)
        side = side_of((height, width), max_side, rules)
        divisor = _jpeg_divisor(height, width, side, min_side)
        pixels = opencv_decode(data, _REDUCED[divisor])
        if pixels is not None:
            # EXIF may turn the image. Where rounding up hides that, the sides differ by fewer than 8 pixels.
            if pixels.shape[:2] != (-(-height // divisor), -(-width // divisor)):
                height, width = width, height
            if side is not None:
                pixels = _resized(pixels, *sides_within(height, width, side))
            return Picture(pixels, height, width)
    if is_raw(data):
        preview, turns = _raw_preview(data, name, max_pixels)
        if isinstance(preview, bytes):
            sides = {"max_side": max_side, "min_side": min_side}
            pixels, *size = decode_picture(preview, name, **sides, max_pixels=max_pixels, rules=rules)
            height, width = size if turns % 2 == 0 else size[::-1]
            return Picture(np.ascontiguousarray(np.rot90(pixels, turns)), height, width)
        pixels = preview
    else:
        pixels = _decode_by_pillow(data, name, max_pixels, rules)
    height, width = pixels.shape[:2]
    return Picture(shrink_to_side(pixels, side_of((height, width), max_side, rules)), height, width)


def side_of(size: Sequence[int], side: int | None, rules: Rules) -> int | None:
    """Return the longer side of a picture of a size in place of `side`, if that limits the area: of a panorama.

    A picture of 16:1 scaled down to a side of 500 has 31 rows, fewer than a block; of the area of 2.5:1 it has 79.
    """
    ratio = max(size) / max(1, min(size))
    if side is None or not rules.longest or ratio <= rules.longest:
        return side
    return round(side * math.sqrt(ratio / rules.longest))


def sides_within(height: int, width: int, max_side: int | None) -> tuple[int, int]:
    """Return height and width of an image that is scaled down, if necessary, to a longest side; at least 1 each."""
    longest = max(height, width)
    if max_side is None or longest <= max_side:
        return height, width
    return max(1, round(height * max_side / longest)), max(1, round(width * max_side / longest))


def shrink_to_side(pixels: npt.NDArray[np.uint8], max_side: int | None) -> npt.NDArray[np.uint8]:
    """Scale an image down to a longest side, by averaging areas; a smaller image is returned as it is."""
    height, width = pixels.shape[:2]
    return _resized(pixels, *sides_within(height, width, max_side))


def enlarge_to_side(pixels: npt.NDArray[np.uint8], side: int | None) -> npt.NDArray[np.uint8]:
    """Enlarge an image to a longest side, by cubic interpolation; a larger image is returned as it is.

    By Pillow, in whole numbers: OpenCV's cubic interpolation gives other pixels on other processors.
    """
    height, width = pixels.shape[:2]
    longest = max(height, width)
    if side is None or longest >= side or not min(height, width):
        return pixels
    size = max(1, round(width * side / longest)), max(1, round(height * side / longest))
    return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC))


def _resized(pixels: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    if pixels.shape[:2] == (height, width):
        return pixels
    return cast("npt.NDArray[np.uint8]", cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA))


def exif_of(data: bytes) -> Image.Exif | None:
    """Return the EXIF of an image file other than JPEG and PNG; None if there is none, or the file is damaged."""
    try:
        plugin = _plugin_for(data, "")
        if plugin is None or plugin in _WITHOUT_EXIF:
            return None
        with plugin(io.BytesIO(data)) as image:
            return image.getexif()
    except Exception:  # damaged files make the decoders raise nearly everything
        return None


def _raw_preview(data: bytes, name: StrPath, max_pixels: int) -> tuple[bytes | npt.NDArray[np.uint8], int]:
    try:
        return read_raw(data, max_pixels)
    except ImportError:
        raise ImageError(name, f"unsupported kind (a camera's raw file; run: {how_to_install('raw')})") from None
    except MemoryError:
        raise ImageError(name, f"too large: its sensor has more pixels than the limit of {max_pixels:,}") from None
    except EOFError:
        raise ImageError(name, "truncated") from None
    except Exception as error:  # damaged files make LibRaw raise nearly everything
        text = printable(str(error).removeprefix("b'").rstrip("'") or type(error).__name__)[:100]
        raise ImageError(name, f"damaged, or of a camera that LibRaw does not know ({text})") from error


def _decode_by_pillow(data: bytes, name: StrPath, max_pixels: int, rules: Rules) -> npt.NDArray[np.uint8]:
    plugin = _plugin_for(data, name)
    if plugin is not None:
        return _pillow_decode(data, plugin, max_pixels, name, rules)
    for signature, kind in _UNSUPPORTED:
        if signature.match(data):
            raise ImageError(name, f"unsupported kind ({kind})")
    raise ImageError(name, "not an image")


def _plugin_for(data: bytes, name: StrPath) -> type[ImageFile.ImageFile] | None:
    """Return the class that reads a file; ImageError if a missing package would."""
    for signature, plugin in _PLUGINS:
        if signature.match(data):
            return plugin
    if _AVIF.match(data):
        if not pillow_features.check("avif"):
            raise ImageError(name, "unsupported kind (AVIF, which this build of Pillow does not read)")
        return AvifImagePlugin.AvifImageFile
    if _HEIC.match(data):
        return _heic_plugin(data, name)
    if _JPEG2000.match(data):
        if not pillow_features.check("jpg_2000"):
            raise ImageError(name, "unsupported kind (JPEG 2000, which this build of Pillow does not read)")
        return Jpeg2KImagePlugin.Jpeg2KImageFile
    return None


def _heic_plugin(data: bytes, name: StrPath) -> type[ImageFile.ImageFile]:
    try:
        from pi_heif.as_plugin import HeifImageFile
    except ImportError:
        raise ImageError(name, f"unsupported kind (HEIC; run: {how_to_install('heic')})") from None
    if not all(_is_text(item) for item in _heic_items(data)):
        raise ImageError(name, "damaged (an item whose kind is no text)")  # pi-heif 1.4 would end the process
    return cast("type[ImageFile.ImageFile]", HeifImageFile)


def _heic_items(data: bytes) -> Iterator[bytes]:
    """The kind and the name of each item of a HEIC file: what follows the ids in its boxes `infe` within `iinf`."""
    for info in re.finditer(rb"(?s)(.{4})iinf", data):
        for item in _ITEM.finditer(data, info.end(), info.start() + int.from_bytes(info[1])):
            start = item.end() + (6 if item[2] == b"\3" else 4)  # ids of 4 or 2 bytes, and 2 of protection
            yield data[start : max(start + 4, item.start() + int.from_bytes(item[1]))]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _signature(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)


class _Tiff(TiffImagePlugin.TiffImageFile):
    """Pillow's class, which fails where channels lie in planes of their own and the last ones are no colours.

    Those are left out. Grey with channels that are not opacity is refused, as nothing says which one is to be seen.
    """

    def _setup(self) -> None:
        tags, n, extra = self.tag_v2, self.tag_v2.get(277, 1), self.tag_v2.get(338, ())
        if 1 < n < 1000 and tags.get(PHOTOMETRIC) in (0, 1) and (n > 2 or extra in ((), (0,))):
            raise ValueError(f"{n} channels that are no colours; save one of them, or RGB")
        planar, bits = tags.get(284) == 2, tags.get(258, (8,))[0]
        if planar and n > 1 and bits > 8 and tags.get(259, 1) == 1:  # Pillow takes each byte for a level
            raise ValueError(f"{bits} bits in separate planes are not supported; save it interleaved, or compressed")
        n_unknown = len(extra) - len(bytes(extra).rstrip(b"\0"))
        if planar and 0 < n_unknown < n:
            kept = n - n_unknown
            for tag in (273, 279, 324, 325):  # places and sizes of strips or tiles, plane by plane
                if tag in tags:
                    tags[tag] = tags[tag][: len(tags[tag]) * kept // n]
            tags[BITS_PER_SAMPLE], tags[277], tags[338] = tags[BITS_PER_SAMPLE][:kept], kept, extra[:-n_unknown]
        super()._setup()


# The classes themselves rather than Image.open, which tries more formats, has a pixel limit that is global to the
# process, and does not report the size of the images that it refuses.
_PLUGINS: list[tuple[re.Pattern[bytes], type[ImageFile.ImageFile]]] = [
    (_signature(rb"\xff\xd8\xff"), JpegImagePlugin.JpegImageFile),  # if OpenCV fails
    (_signature(rb"\x89PNG\r\n\x1a\n"), PngImagePlugin.PngImageFile),
    (_signature(rb"RIFF....WEBP"), WebPImagePlugin.WebPImageFile),
    (_signature(rb"BM.{12}[\x0c-\x7f]\0\0\0"), BmpImagePlugin.BmpImageFile),  # so that "BMW" is not one
    (_signature(rb"[\x28\x34\x38\x6c\x7c]\0\0\0.{8}\x01\0"), BmpImagePlugin.DibImageFile),
    (_signature(rb"II[*+]\0|MM\0[*+]"), _Tiff),
    (_signature(rb"GIF8[79]a"), GifImagePlugin.GifImageFile),
    (_signature(rb"P[456]\s"), PpmImagePlugin.PpmImageFile),
]

# Files of one container: the major brand identifies AVIF, or after a general one the brands that follow.
_AVIF = _signature(rb"....ftyp(avi[fs]|(mif1|msf1).{4}(.{4})*?avi[fs])")
_HEIC = _signature(rb"....ftyp(hei[cxms]|hev[cxms]|mif1|msf1)")
_JPEG2000 = _signature(rb"\0\0\0\x0cjP|\xff\x4f\xff\x51")  # in its container, and bare
_ITEM = _signature(rb"(.{4})infe([\0-\3]).{3}")  # size and version of a box
_WITHOUT_EXIF = (GifImagePlugin.GifImageFile, BmpImagePlugin.BmpImageFile, BmpImagePlugin.DibImageFile)

# Common files that are not supported, named in the error.
_UNSUPPORTED = [
    (_signature(rb"....ftyp|RIFF....(AVI |WAVE)"), "a video or a sound"),
    (_signature(rb"\xff\x0a|\0\0\0\x0cJXL"), "JPEG XL"),
    (_signature(rb"8BPS"), "Photoshop"),
    (_signature(rb"%PDF"), "PDF"),
]


def _check_size(width: int, height: int, max_pixels: int, name: StrPath) -> None:
    if width == 0 or height == 0:
        raise ImageError(name, _NO_SIZE)
    if max(width, height) > MAX_SIDE:
        raise ImageError(name, f"too large: {width} x {height} pixels; no side may be over {MAX_SIDE:,}")
    if width * height > max_pixels:
        raise ImageError(name, f"too large: {width} x {height} pixels is over the limit of {max_pixels:,}")


def _check_density(width: int, height: int, n_bytes: int, name: StrPath) -> None:
    """Refuse a large image in a tiny file: free to send, and seconds and a gigabyte to decode."""
    if width * height > max(SMALL_PIXELS, n_bytes * PIXELS_PER_BYTE):
        raise ImageError(name, f"damaged or a decompression bomb: {width} x {height} pixels in {n_bytes:,} bytes")


_NO_SIZE = "zero width or height"

# ------------------------------------------------------------------------------------------------------- JPEG

_JPEG_MARKER = _signature(rb"\xff([^\0\xff])")
_JPEG_AFTER_SCAN = _signature(rb"\xff([^\0\xd0-\xd7\xff])")  # the next marker but restarts
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # those three are tables
_JPEG_SEQUENTIAL = frozenset((0xC0, 0xC1))
_JPEG_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a segment
JPEG_START_OF_SCAN, JPEG_END = 0xDA, 0xD9
_MAX_JPEG_SEGMENTS = 10_000  # before the picture; real files have tens
_MAX_JPEG_SCANS = 100  # a scan of a few bytes costs a pass over the whole picture; real files have about ten


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the marker of each segment of a JPEG, and where its content begins (with its length, 2 bytes) and ends.

    Markers without content begin where they end. The compressed pixels of a scan lie between the end of its header and
    the two bytes of the next marker.
    """
    position, pattern = 2, _JPEG_MARKER
    while (match := pattern.search(data, position)) is not None:
        marker, start = match[1][0], match.end()
        alone = marker in _JPEG_ALONE or marker == JPEG_END
        position = start if alone else start + max(2, int.from_bytes(data[start : start + 2]))
        yield marker, start, position
        pattern = _JPEG_AFTER_SCAN if marker == JPEG_START_OF_SCAN else _JPEG_MARKER


def _check_jpeg(data: bytes, max_pixels: int, name: StrPath) -> tuple[int, int]:
    """Walk a JPEG's markers as far as its picture; refuse it if it is too large or ends too early.

    Return the height and width that its header gives, before EXIF turns it.

    The decoder fills in missing pixels of a truncated picture, and reports that only on stderr. A complete one ends
    with a marker that cannot occur inside compressed pixels; a truncated file lacks it.
    """
    frame = channels = height = width = 0
    for number, (marker, position, _) in enumerate(jpeg_segments(data)):
        if marker in (JPEG_START_OF_SCAN, JPEG_END):
            break
        if number == _MAX_JPEG_SEGMENTS:
            raise ImageError(name, f"damaged (more than {_MAX_JPEG_SEGMENTS:,} segments before the picture)")
        if marker in _JPEG_FRAMES and not frame:
            frame = marker
            # length (2 bytes), bits a sample (1), height (2), width (2), channels (1)
            segment = data[position : position + 8]
            if len(segment) < 8:
                raise ImageError(name, "truncated")
            height, width, channels = int.from_bytes(segment[3:5]), int.from_bytes(segment[5:7]), segment[7]
            _check_size(width, height, max_pixels, name)
    else:
        raise ImageError(name, "truncated")
    if not frame or marker == JPEG_END:
        raise ImageError(name, "damaged (no picture in it)")
    if data.rfind(b"\xff\xd9", position) < 0:
        raise ImageError(name, "truncated")
    _check_density(width, height, len(data), name)
    in_first_scan = int.from_bytes(data[position + 2 : position + 3])  # channels
    single = frame in _JPEG_SEQUENTIAL and in_first_scan == channels  # spares most files the count
    if not single and data.count(b"\xff\xda", position) > _MAX_JPEG_SCANS:
        raise ImageError(name, f"damaged (more than {_MAX_JPEG_SCANS} scans)")
    return height, width


_REDUCED = {  # OpenCV's flags, by divisor; its own names for reduced colour images are of BGR
    1: cv2.IMREAD_COLOR_RGB,
    2: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_COLOR_RGB | cv2.IMREAD_REDUCED_GRAYSCALE_8,
}


def _jpeg_divisor(height: int, width: int, max_side: int | None, min_side: int | None) -> int:
    """Return the largest divisor that keeps the required pixels; 1 without limits."""
    if max_side is None and min_side is None:
        return 1
    longest, shortest = max(height, width), min(height, width)
    return max(n for n in _REDUCED if n == 1 or (longest >= n * (max_side or 0) and shortest // n >= (min_side or 0)))


# ---------------------------------------------------------------------------------------------- other formats


def _pillow_decode(
    data: bytes, plugin: type[ImageFile.ImageFile], max_pixels: int, name: StrPath, rules: Rules
) -> npt.NDArray[np.uint8]:
    if plugin is WebPImagePlugin.WebPImageFile and int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise ImageError(name, "truncated")  # the decoder reports only that it could not be created
    try:
        with warnings.catch_warnings():  # of the process, so that threads may let a warning slip: no harm
            warnings.filterwarnings("ignore", module="PIL")
            with plugin(io.BytesIO(data)) as image:  # reads the header
                _check_size(*image.size, max_pixels, name)
                _check_depth(image, max_pixels, name)
                if isinstance(image, _Tiff):
                    _check_tiff(image.tag_v2, max_pixels, name)
                _check_density(*image.size, len(data), name)
                if plugin is WebPImagePlugin.WebPImageFile and not _by_canvas(image):
                    # The same pixels as Pillow's, which decodes to a canvas of four bytes per pixel and copies it.
                    pixels = opencv_decode(data, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
                    if pixels is not None and pixels.shape[1::-1] == image.size:
                        turn = _turn(image)
                        return pixels if turn is None else np.array(Image.fromarray(pixels).transpose(turn))
                before = _turn(image) if isinstance(image, _Tiff) else None
                image.load()
                vars(image).pop("_decoder", None)  # of WebP: its canvases have eight bytes per pixel
                if image.format == "PNG" and image.mode == "L" and "transparency" in image.info:
                    image.info["transparency"] *= 255 // ((1 << data[24]) - 1)  # Pillow scales the greys alone
                turn = _turn(image)  # after load: PNG may store it last, and TIFF is already upright
                declared = declared_white(image, data)
                if rules.version > 1 and (deep := deep_colors(image, data, max_pixels * RGB_BYTES)) is not None:
                    upright: Image.Image = Image.fromarray(eight_bit_colors(deep, declared, rules))
                    turn = turn or before
                else:
                    upright = image
                return _pixels(upright if turn is None else upright.transpose(turn), declared, rules)
    except ImageError:
        raise
    except Exception as error:  # damaged files make the decoders raise nearly everything
        raise ImageError(name, _pillow_reason(error)) from error


def _by_canvas(image: ImageFile.ImageFile) -> bool:
    """Whether a WebP has transparent parts or more than one picture, so that Pillow's canvas of RGBA is needed."""
    return image.mode != "RGB" or getattr(image, "n_frames", 1) > 1


def _check_depth(image: ImageFile.ImageFile, max_pixels: int, name: StrPath) -> None:
    """Refuse an image that takes more memory, once decoded, than the largest one of RGB."""
    n_bytes = {"F": 4, "I": 4, "RGBA": 4, "RGBa": 4, "CMYK": 4}.get(image.mode, RGB_BYTES)
    if image.format == "WEBP" and _by_canvas(image):
        n_bytes = 4
    width, height = image.size
    if width * height * n_bytes > max_pixels * RGB_BYTES:
        raise ImageError(
            name,
            f"too large: {width} x {height} pixels of {n_bytes} bytes each are over the limit of "
            f"{max_pixels * RGB_BYTES:,} bytes",
        )


def _check_tiff(tags: Mapping[int, Any], max_pixels: int, name: StrPath) -> None:
    """Refuse huge tiles, and files that lack some of their strips or tiles: those would be read as black."""
    width, height = tags[256], tags[257]
    planes = tags.get(277, 1) if tags.get(284) == 2 else 1  # samples per pixel, each in strips of its own
    if 324 in tags:
        tile_width, tile_height, present = tags[322], tags[323], len(tags[324])
        _check_size(tile_width, tile_height, max_pixels, name)
        needed = math.ceil(width / tile_width) * math.ceil(height / tile_height) * planes
    else:
        rows = tags.get(278, height)
        present, needed = len(tags[273]), math.ceil(height / rows) * planes
    if present < needed:
        raise ImageError(name, f"damaged (has {present:,} of {needed:,} strips or tiles)")


def _turn(image: Image.Image) -> Image.Transpose | None:
    """Return the turn that makes an image upright; None if it is."""
    try:
        return _TURNS.get(image.getexif().get(0x0112, 1))
    except Exception:  # broken EXIF does not spoil the pixels
        return None


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def pillow_pixels(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Return an image of Pillow, of any mode, as `read_image` returns its file: RGB (H, W, 3), upright by its EXIF.

    ImageError if Pillow cannot load or convert it.
    """
    try:
        image.load()
        turn = _turn(image)
        return _pixels(image if turn is None else image.transpose(turn), 0, RULES)
    except Exception as error:
        raise ImageError("", _pillow_reason(error)) from error


def _pixels(image: Image.Image, declared: float, rules: Rules) -> npt.NDArray[np.uint8]:
    """Convert any of Pillow's modes to an array of RGB."""
    if is_deep(image):
        grey = eight_bits(image, declared, rules)
        if "transparency" not in image.info:
            return cast("npt.NDArray[np.uint8]", cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB))
        opaque = np.asarray(image) != image.info["transparency"]
        image = Image.fromarray(np.dstack([grey, opaque * np.uint8(255)]))
    elif image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        if image.mode != "RGBA":
            image = image.convert("RGBA")
        return _on_ground(image, rules)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _on_ground(image: Image.Image, rules: Rules) -> npt.NDArray[np.uint8]:
    """Put an image with transparent parts on white; on black if it cannot be seen on white, and can on black."""
    ground = _laid_on(image, "white")
    if rules.version > 1 and min(low for low, _ in _levels(ground)) >= 255 - FLAT:
        del ground  # one at a time: memory
        ground = _laid_on(image, "black")
        if all(high - low <= FLAT for low, high in _levels(ground)):
            del ground
            ground = _laid_on(image, "white")
    return np.array(ground)


def _laid_on(image: Image.Image, color: str) -> Image.Image:
    ground = Image.new("RGB", image.size, color)
    ground.paste(image, mask=image)
    return ground


def _levels(image: Image.Image) -> list[tuple[int, int]]:
    """The smallest and largest level of each channel."""
    return cast("list[tuple[int, int]]", image.getextrema())


def may_be_deep(head: bytes) -> bool:
    """Whether the first 32 bytes of a file are those of a format of more than 8 bits that may not declare its white."""
    return head[:4] in (b"II*\0", b"MM\0*") or (head.startswith(b"\x89PNG") and head[24:25] == b"\x10")


def undeclared_peak(data: bytes, name: StrPath, max_pixels: int) -> float | None:
    """Return the brightest level of a TIFF or PNG; None of 8 bits, or if the file declares its white."""
    try:
        plugin = _plugin_for(data, name)
        assert plugin is not None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            with plugin(io.BytesIO(data)) as image:
                _check_size(*image.size, max_pixels, name)
                if declared_white(image, data):
                    return None
                deep = deep_colors(image, data, max_pixels * RGB_BYTES)
                if deep is not None:
                    return float(deep[..., :3].max())
                return peak_of(image, RULES) if is_deep(image) else None
    except Exception:  # see _pillow_decode, which says why
        return None


def _pillow_reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "too large: not enough memory to decode it"
    if isinstance(error, Image.DecompressionBombError):  # of a tile, or of WebP before its size is known
        return "too large: its header asks for more memory than any real image"
    word = printable(str(error) or type(error).__name__)[:100]
    if word.isdigit():  # a KeyError of Pillow's
        return f"damaged (tag {word} is missing)"
    for sign, reason in _PILLOW_REASONS:
        if sign in word.lower():
            return reason.format(word)
    return f"damaged ({word})"


# A sign in Pillow's message -> our reason.
_PILLOW_REASONS = (
    ("truncated", "truncated"),
    ("requires a buffer", "truncated"),  # struct's, of a header
    ("eof", "truncated"),
    ("incomplete checksum", "truncated"),
    ("not enough image data", "truncated"),
    ("missing dimensions", "truncated or damaged (no TIFF directory)"),  # often at the end of the file
    ("not identified by this driver", _NO_SIZE),
    ("unsupported", "unsupported kind ({})"),
    ("unknown pixel mode", "unsupported kind ({})"),
    ("unknown raw mode", "unsupported kind ({})"),
    ("no colours", "unsupported kind ({})"),  # see _Tiff
    ("not supported", "unsupported kind ({})"),
)


def as_rgb(image: np.ndarray) -> np.ndarray:
    """Return an image, (H, W) or (H, W, 3), as contiguous RGB, of equal channels if it is grey; else ValueError."""
    image = np.asarray(image)
    if image.dtype != np.uint8 or not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)):
        raise ValueError(
            f"an image must be a uint8 array of shape (H, W, 3) or (H, W), not {image.dtype} {image.shape}"
        )
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    return np.ascontiguousarray(image)
