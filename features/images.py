"""Image files: find them below a folder, read each as RGB pixels, and keep the decoders quiet.

A file is judged by its content, never by its name, and is either read or refused with a reason: there is no
third outcome. Two decoders do all the work: OpenCV reads JPEG, because it is fastest where the time goes, and
Pillow reads everything else, because it knows the odd corners of those formats best.
"""

import contextlib
import errno
import heapq
import io
import logging
import math
import operator
import os
import pathlib
import re
import stat
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

MAX_PIXELS = 100_000_000  # 300 MB as RGB uint8; a decoder may need four times that for a moment
MAX_SIDE = 1_000_000  # width or height; a decoder pays for each row, however short
MAX_FILE_BYTES = 1 << 30  # no image of MAX_PIXELS needs more, and the whole file is held in memory
EXTENSIONS = frozenset(
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff")  # lower case
)

StrPath = str | os.PathLike[str]
_FILE_SYSTEM = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


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


# ---------------------------------------------------------------------------------------------------- finding


def find_images(root: StrPath, *, on_skip: Callable[[pathlib.Path, str], object] | None = None) -> list[pathlib.Path]:
    """List every image file below a folder, by name.

    Parameters
    ----------
    root : str or PathLike
        The folder; it may be a symlink.
    on_skip : callable, optional
        Called as ``on_skip(path, reason)`` for every file or folder that is not taken, in the order of the
        paths, after the walk.

    Returns
    -------
    list of pathlib.Path
        ``root / relative path`` of each, in the order of the relative paths' bytes.

    Raises
    ------
    FileNotFoundError, NotADirectoryError, PermissionError
        When root does not exist, is not a folder or cannot be read. The message is one line.

    Notes
    -----
    A file is taken by its extension (`EXTENSIONS`, in any case) and not opened. Hidden files and folders (dot
    names, ``Thumbs.db``, ``desktop.ini``, ``__MACOSX``) are passed over without a word.

    Symlinks are followed. Each folder is listed once: where it lies if that is below root, otherwise through
    the first link to it; the other links are skipped, which also cuts loops. A file with two names counts
    twice.
    """
    skip = None if on_skip is None else lambda path, reason: on_skip(pathlib.Path(path), reason)
    return [pathlib.Path(path) for path in list_images(root, on_skip=skip)]


def list_images(root: StrPath, *, on_skip: Callable[[str, str], object] | None = None) -> list[str]:
    """Do what `find_images` does with plain strings: a million of them take half the time and memory of paths."""
    top = os.fsdecode(root)
    images: list[str] = []
    skipped: list[tuple[str, str]] = []
    seen: dict[tuple[int, int], str] = {}  # (device, inode) of each folder -> the path it is listed under
    folders = [top]
    links: list[str] = []  # to folders; a heap, so that the order does not depend on the file system's

    while folders or links:
        folder = folders.pop() if folders else heapq.heappop(links)
        try:
            status = os.stat(folder)
            first = seen.setdefault((status.st_dev, status.st_ino), folder)
            if first is not folder:
                loop = folder.startswith(os.path.join(first, ""))
                skipped.append((folder, "symlink loop" if loop else f"same folder as {printable(first)}"))
                continue
            with os.scandir(folder) as entries:
                for entry in entries:
                    dot = entry.name.rfind(".")
                    extension = entry.name[dot:] if dot > 0 else ""
                    if extension in EXTENSIONS and entry.is_file(follow_symlinks=False) and entry.name[0] != ".":
                        images.append(entry.path)  # as nearly all are, and there may be millions
                        continue
                    if _is_hidden(entry.name):
                        continue
                    try:
                        mode = _mode(entry)
                    except OSError as error:
                        skipped.append((entry.path, _why_no_status(entry, error)))
                        continue
                    if stat.S_ISDIR(mode):
                        if entry.is_symlink():
                            heapq.heappush(links, entry.path)
                        else:
                            folders.append(entry.path)
                    elif not stat.S_ISREG(mode):
                        skipped.append((entry.path, _not_regular(mode)))
                    elif extension.lower() in EXTENSIONS:
                        images.append(entry.path)
                    else:
                        kind = printable(extension) or "no extension"
                        skipped.append((entry.path, f"not a supported image name ({kind})"))
        except OSError as error:
            if folder is top:
                raise _root_error(top, error) from None
            skipped.append((folder, f"folder cannot be read ({_strerror(error)})"))

    if on_skip is not None:
        for path, reason in sorted(skipped, key=lambda skip: os.fsencode(skip[0])):
            on_skip(path, reason)
    return sorted(images, key=operator.methodcaller("encode", *_FILE_SYSTEM))


def _is_hidden(name: str) -> bool:
    return name[0] == "." or name.lower() in ("thumbs.db", "desktop.ini", "__macosx")


def _mode(entry: os.DirEntry[str]) -> int:
    """Type bits of a file or of what a link leads to; a system call only for what scandir did not tell."""
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    return entry.stat().st_mode


def _why_no_status(entry: os.DirEntry[str], error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and entry.is_symlink():
        return "broken symlink"
    return "symlink loop" if error.errno == errno.ELOOP else f"cannot be read ({_strerror(error)})"


def _not_regular(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
    return f"not a file ({kinds.get(stat.S_IFMT(mode), 'a device')})"


def _strerror(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _root_error(root: str, error: OSError) -> OSError:
    advice = {
        FileNotFoundError: "no such folder; give the folder that holds the images",
        NotADirectoryError: "not a folder; give the folder that holds the images",
        PermissionError: "permission denied; give yourself the right to read this folder",
    }
    return type(error)(f"{printable(root)}: {advice.get(type(error), _strerror(error))}")


# ---------------------------------------------------------------------------------------------------- reading


def read_image(path: StrPath, *, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """Read an image file as upright RGB pixels.

    Parameters
    ----------
    path : str or PathLike
        A JPEG, PNG, WebP, BMP or TIFF file, whatever its extension says. GIF and binary PPM, PGM and PBM are
        read too, though `find_images` does not look for them.
    max_pixels : int
        Refuse larger images. Their size is read from the header, before any pixel is decoded. Above
        178 million Pillow's own limit (``PIL.Image.MAX_IMAGE_PIXELS``) holds for TIFF, WebP and GIF.

    Returns
    -------
    ndarray of shape (height, width, 3), uint8
        RGB, C-contiguous and writable.

    Raises
    ------
    ImageError
        The file cannot be read, is not an image, is truncated, damaged, too large or of an unsupported kind.

    Notes
    -----
    - Orientation: EXIF's in JPEG, PNG, WebP and TIFF; XMP's where Pillow reads it (not in JPEG).
    - Transparent parts lie on white, as in most product photos.
    - 16 bits become 8 by dropping the low byte; 10 to 14 bits likewise, by the bits that the file declares.
      For 32-bit and floating-point pixels nobody says what white is: it is the smallest of 1, 255 and 65535
      that no pixel exceeds, or else the largest pixel; what is negative or not a number is black.
    - CMYK by the plain formula (JPEGs always hold it inverted, as Adobe's do), Lab as sRGB; embedded colour
      profiles are not applied.
    - Animations and documents of many pages: the first picture.
    - A file cut short is refused, even where a decoder would fill up the rest with grey. Bytes that were
      damaged in the middle of a JPEG go unnoticed.
    """
    return decode_image(_read_bytes(path), path, max_pixels=max_pixels)


def decode_image(data: bytes, name: StrPath, *, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """Decode the content of an image file, as `read_image` does.

    Parameters
    ----------
    data : bytes
        The whole file.
    name : str or PathLike
        What to call it in an error.
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
    if not data:
        raise ImageError(name, "empty file")
    if data.startswith(b"\xff\xd8\xff"):
        _check_jpeg(data, max_pixels, name)
        pixels = _opencv_decode(data)
        if pixels is not None:
            return pixels
    for signature, plugin in _PLUGINS:
        if signature.match(data):
            return _pillow_decode(data, plugin, max_pixels, name)
    for signature, kind in _UNSUPPORTED:
        if signature.match(data):
            raise ImageError(name, f"unsupported kind ({kind})")
    raise ImageError(name, "not an image")


def _signature(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)


# The classes themselves rather than Image.open: that one guesses from more formats, has a pixel limit of its
# own that is global to the process, and does not tell the size of what it refuses.
_PLUGINS: list[tuple[re.Pattern[bytes], type[ImageFile.ImageFile]]] = [
    (_signature(rb"\xff\xd8\xff"), JpegImagePlugin.JpegImageFile),  # what OpenCV gives up on
    (_signature(rb"\x89PNG\r\n\x1a\n"), PngImagePlugin.PngImageFile),
    (_signature(rb"RIFF....WEBP"), WebPImagePlugin.WebPImageFile),
    (_signature(rb"BM.{12}[\x0c-\x7f]\0\0\0"), BmpImagePlugin.BmpImageFile),  # so that "BMW" is not one
    (_signature(rb"[\x28\x34\x38\x6c\x7c]\0\0\0.{8}\x01\0"), BmpImagePlugin.DibImageFile),
    (_signature(rb"II[*+]\0|MM\0[*+]"), TiffImagePlugin.TiffImageFile),
    (_signature(rb"GIF8[79]a"), GifImagePlugin.GifImageFile),
    (_signature(rb"P[456]\s"), PpmImagePlugin.PpmImageFile),
]

# What people do have among their images, told by name.
_UNSUPPORTED = [
    (_signature(rb"....ftyp(avi|hei|hev|mif|msf)"), "HEIC or AVIF"),
    (_signature(rb"....ftyp|RIFF....(AVI |WAVE)"), "a video or a sound"),
    (_signature(rb"\xff\x0a|\0\0\0\x0cJXL"), "JPEG XL"),
    (_signature(rb"\0\0\0\x0cjP|\xff\x4f\xff\x51"), "JPEG 2000"),
    (_signature(rb"8BPS"), "Photoshop"),
    (_signature(rb"%PDF"), "PDF"),
]


def _read_bytes(path: StrPath) -> bytes:
    try:
        status = os.stat(path)
        regular = stat.S_ISREG(status.st_mode)  # opening a pipe would wait for its other end
        if regular and status.st_size <= MAX_FILE_BYTES:
            with open(path, "rb", buffering=0) as file:
                return file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise ImageError(path, f"cannot be read ({_strerror(error)})") from None
    if not regular:
        raise ImageError(path, _not_regular(status.st_mode))
    raise ImageError(path, f"too large: {status.st_size:,} bytes is over the limit of {MAX_FILE_BYTES:,}")


def _check_size(width: int, height: int, max_pixels: int, name: StrPath) -> None:
    if width == 0 or height == 0:
        raise ImageError(name, _NO_SIZE)
    if max(width, height) > MAX_SIDE:
        raise ImageError(name, f"too large: {width} x {height} pixels; no side may be over {MAX_SIDE:,}")
    if width * height > max_pixels:
        raise ImageError(name, f"too large: {width} x {height} pixels is over the limit of {max_pixels:,}")


_NO_SIZE = "zero width or height"

# ------------------------------------------------------------------------------------------------------- JPEG

_JPEG_MARKER = _signature(rb"\xff([^\0\xff])")
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # those three are tables
_JPEG_SEQUENTIAL = frozenset((0xC0, 0xC1))
_JPEG_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a segment
_JPEG_START_OF_SCAN, _JPEG_END = 0xDA, 0xD9
_MAX_JPEG_SEGMENTS = 10_000  # before the picture; real files have tens
_MAX_JPEG_SCANS = 100  # a scan of a few bytes costs a pass over the whole picture; real files have about ten


def _check_jpeg(data: bytes, max_pixels: int, name: StrPath) -> None:
    """Walk a JPEG's markers as far as its picture; refuse it if it is too large or ends too early.

    The decoder fills up a picture that was cut short, and says so only on stderr. But a whole one ends with a
    marker that cannot occur inside compressed pixels, and nothing follows in a file that was cut there.
    """
    frame = channels = 0
    position = 2
    for _ in range(_MAX_JPEG_SEGMENTS):
        match = _JPEG_MARKER.search(data, position)
        if match is None:
            raise ImageError(name, "truncated")
        marker, position = match[1][0], match.end()
        if marker in _JPEG_ALONE:
            continue
        if marker in (_JPEG_START_OF_SCAN, _JPEG_END):
            break
        if marker in _JPEG_FRAMES and not frame:
            frame = marker
            # length (2 bytes), bits a sample (1), height (2), width (2), channels (1)
            segment = data[position : position + 8]
            if len(segment) < 8:
                raise ImageError(name, "truncated")
            height, width, channels = int.from_bytes(segment[3:5]), int.from_bytes(segment[5:7]), segment[7]
            _check_size(width, height, max_pixels, name)
        position += max(2, int.from_bytes(data[position : position + 2]))
    else:
        raise ImageError(name, f"damaged (more than {_MAX_JPEG_SEGMENTS:,} segments before the picture)")
    if not frame or marker == _JPEG_END:
        raise ImageError(name, "damaged (no picture in it)")
    if data.rfind(b"\xff\xd9", position) < 0:
        raise ImageError(name, "truncated")
    in_first_scan = int.from_bytes(data[position + 2 : position + 3])  # channels
    single = frame in _JPEG_SEQUENTIAL and in_first_scan == channels  # spares most files the count
    if not single and data.count(b"\xff\xda", position) > _MAX_JPEG_SCANS:
        raise ImageError(name, f"damaged (more than {_MAX_JPEG_SCANS} scans)")


def _opencv_decode(data: bytes) -> npt.NDArray[np.uint8] | None:
    """Pixels with EXIF orientation applied, or None if OpenCV cannot make anything of the data."""
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
    except cv2.error:
        return None
    return cast("npt.NDArray[np.uint8] | None", pixels)


# ---------------------------------------------------------------------------------------------- other formats


def _pillow_decode(
    data: bytes, plugin: type[ImageFile.ImageFile], max_pixels: int, name: StrPath
) -> npt.NDArray[np.uint8]:
    if plugin is WebPImagePlugin.WebPImageFile and int.from_bytes(data[4:8], "little") + 8 > len(data):
        raise ImageError(name, "truncated")  # the decoder would only say that it could not be created
    try:
        with warnings.catch_warnings():  # of the process, so that threads may let a warning slip: no harm
            warnings.filterwarnings("ignore", module="PIL")
            with plugin(io.BytesIO(data)) as image:  # reads the header
                _check_size(*image.size, max_pixels, name)
                if isinstance(image, TiffImagePlugin.TiffImageFile):
                    _check_tiff(image.tag_v2, max_pixels, name)
                image.load()
                return np.array(_rgb(_upright(image)))
    except ImageError:
        raise
    except Exception as error:  # damaged files make the decoders raise nearly everything
        raise ImageError(name, _pillow_reason(error)) from error


def _check_tiff(tags: Mapping[int, Any], max_pixels: int, name: StrPath) -> None:
    """Refuse huge tiles, and files that lack some of their strips or tiles: those would be read as black."""
    width, height = tags[256], tags[257]
    planes = tags.get(277, 1) if tags.get(284) == 2 else 1  # samples a pixel, each in strips of its own
    if 324 in tags:
        tile_width, tile_height, given = tags[322], tags[323], len(tags[324])
        _check_size(tile_width, tile_height, max_pixels, name)
        needed = math.ceil(width / tile_width) * math.ceil(height / tile_height) * planes
    else:
        rows = tags.get(278, height)
        given, needed = len(tags[273]), math.ceil(height / rows) * planes
    if given < needed:
        raise ImageError(name, f"damaged (has {given:,} of {needed:,} strips or tiles)")


def _upright(image: Image.Image) -> Image.Image:
    """Apply the orientation, after load: PNG may tell it last, and TIFF has been turned by then."""
    try:
        turn = _TURNS.get(image.getexif().get(0x0112, 1))
    except Exception:  # broken EXIF does not spoil the pixels
        return image
    return image if turn is None else image.transpose(turn)


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def _rgb(image: Image.Image) -> Image.Image:
    """Any mode of Pillow's as RGB."""
    if image.mode == "F" or image.mode.startswith("I"):
        image = Image.fromarray(_eight_bits(image))
    elif image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        if image.mode != "RGBA":
            image = image.convert("RGBA")
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=image)
        return white
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Grey levels of more than 8 bits as uint8 (height, width)."""
    grey = np.asarray(image)
    tags = getattr(image, "tag_v2", {})  # TIFF's
    if grey.dtype.kind == "u":
        bits = tags.get(_BITS_PER_SAMPLE, (16,))[0]
        grey = (grey >> (bits - 8)).astype(np.uint8)
        if tags.get(_PHOTOMETRIC) == 0:  # white is zero: Pillow turns that round for 8 bits only
            grey = ~grey
        return grey
    grey = np.maximum(np.nan_to_num(grey.astype(np.float32), posinf=0), 0)
    peak = grey.max()
    white = next((white for white in (1, 255, 65535) if peak <= white), peak)
    return (grey * np.float32(255 / white) + np.float32(0.5)).astype(np.uint8)


_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262


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
    ("not supported", "unsupported kind ({})"),
)

# ---------------------------------------------------------------------------------------------------- silence

_silenced = False


def silence_decoders() -> contextlib.ExitStack:
    """Keep the decoders' own messages from the terminal, for the whole process.

    The C libraries (libjpeg, libtiff, OpenCV) write to file descriptor 2, which from now on leads to the null
    device. Python's ``sys.stderr`` goes on to lead where it led, through a duplicate of the descriptor, so
    that tracebacks and progress bars still show. OpenCV's and Pillow's logs are turned off.

    Returns
    -------
    contextlib.ExitStack
        Undoes it all when used as a context manager or closed. Ignore it to stay silent.

    Notes
    -----
    Call it once in a process, early: a stream or a logging handler that has taken hold of the old
    ``sys.stderr`` before writes into the void. Another call does nothing, and its result undoes nothing. A
    ``sys.stderr`` that does not lead to descriptor 2 (None, or replaced, as pytest does) is left alone.
    Processes that are started later inherit the silent descriptor 2.
    """
    global _silenced
    undo = contextlib.ExitStack()
    if _silenced:
        return undo

    opencv_log = cv2.utils.logging
    undo.callback(opencv_log.setLogLevel, opencv_log.setLogLevel(opencv_log.LOG_LEVEL_SILENT))
    pillow_log = logging.getLogger("PIL")
    undo.callback(pillow_log.setLevel, pillow_log.level)
    pillow_log.setLevel(logging.CRITICAL)

    try:
        terminal = os.dup(2)
    except OSError:  # closed: the null device must take its place all the same, before a file of ours does
        undo.callback(os.close, 2)
    else:
        undo.callback(os.close, terminal)
        undo.callback(os.dup2, terminal, 2)
        undo.callback(_move_stderr(terminal))
    null = os.open(os.devnull, os.O_WRONLY)
    if null != 2:
        os.dup2(null, 2)
        os.close(null)

    _silenced = True
    undo.callback(_forget_silence)
    return undo


def _forget_silence() -> None:
    global _silenced
    _silenced = False


def _move_stderr(descriptor: int) -> Callable[[], None]:
    """Let sys.stderr write to another descriptor, if it wrote to 2; return what undoes it."""
    old = sys.stderr
    try:
        old.flush()
        moves = old.fileno() == 2
    except (AttributeError, OSError, ValueError):  # None, no descriptor, closed
        moves = False
    if not moves:
        return lambda: None
    new = open(  # noqa: SIM115 - stays open as long as the process
        descriptor, "w", buffering=1, encoding=old.encoding, errors=old.errors, closefd=False
    )
    sys.stderr = new

    def undo() -> None:
        new.flush()
        if sys.stderr is new:
            sys.stderr = old

    return undo
