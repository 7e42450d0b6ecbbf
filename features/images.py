"""Image files: find them below a folder, read each as RGB pixels, and silence the decoders."""

import contextlib
import errno
import heapq
import itertools
import logging
import math
import operator
import os
import pathlib
import queue
import re
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cv2
import numpy as np
import numpy.typing as npt

from .decoding import (
    MAX_PIXELS,
    ImageError,
    Picture,
    StrPath,
    decode_image,
    decode_picture,
    may_be_deep,
    printable,
    undeclared_peak,
)
from .depth import MAX_WHITE, RULES, Rules, has_evident_white, white_of
from .raw import RAW_EXTENSIONS

MAX_FILE_BYTES = 1 << 30  # no image of MAX_PIXELS needs more, and the whole file is held in memory
READ_SECONDS = 30  # per file; a sleeping disk needs 10 to 15, a server that does not answer never ends
EXTENSIONS = frozenset(  # lower case
    (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".avif")
    + (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx")
    + tuple(RAW_EXTENSIONS)  # as is that of these, without rawpy
    + (".heic", ".heif")  # a reason to skip them, without pi-heif, is more use than silence
)
VECTOR_SUFFIXES = ".npy", ".npz", ".safetensors", ".parquet", ".arrow", ".feather"  # see vector_files.VECTORS
NO_IMAGE_NAME = "not a supported image name"  # why files that are not meant as images are skipped
BESIDE_ITS_PHOTO = "raw file of a photo"  # of one shot, which is one image
HIDDEN = "hidden by its name"
SYSTEM_FOLDER = "folder of previews or deleted files"  # made by a storage system or a photo manager, not by people
_FILE_SYSTEM = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


# ---------------------------------------------------------------------------------------------------- finding


def find_images(root: StrPath, *, on_skip: Callable[[pathlib.Path, str], object] | None = None) -> list[pathlib.Path]:
    """List every image file below a folder, by name.

    Parameters
    ----------
    root : str or PathLike
        The folder; it may be a symlink.
    on_skip : callable, optional
        Called as ``on_skip(path, reason)`` for every skipped file or folder, in the order of the paths, after
        the walk.

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
    A file is chosen by its extension (`EXTENSIONS`, in any case) and not opened. Hidden files and folders (dot
    names, ``Thumbs.db``, ``desktop.ini``, ``__MACOSX``) are skipped, files of other extensions silently. So are folders
    in which systems keep previews or deleted files (see `is_system_folder`), and raw files beside a photo of the same
    name.

    Symlinks are followed. Each folder is listed once: at its own path if that is below root, otherwise through
    the first link to it; other links are skipped, which also breaks loops. A file with two names is listed
    twice.
    """
    skip = None if on_skip is None else lambda path, reason: on_skip(pathlib.Path(path), reason)
    return [pathlib.Path(path) for path in list_images(root, on_skip=skip)]


def list_images(root: StrPath, *, on_skip: Callable[[str, str], object] | None = None) -> list[str]:
    """Find images as `find_images` does, as plain strings: a million take half the time and memory of paths."""
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
                        if extension.lower() in EXTENSIONS or entry.is_dir(follow_symlinks=False):
                            skipped.append((entry.path, HIDDEN))
                        continue
                    try:
                        mode = _mode(entry)
                    except OSError as error:
                        skipped.append((entry.path, _why_no_status(entry, error)))
                        continue
                    if stat.S_ISDIR(mode):
                        if is_system_folder(entry.name, os.path.basename(folder)):
                            skipped.append((entry.path, SYSTEM_FOLDER))
                        elif entry.is_symlink():
                            heapq.heappush(links, entry.path)
                        else:
                            folders.append(entry.path)
                    elif not stat.S_ISREG(mode):
                        skipped.append((entry.path, _not_regular(mode)))
                    elif extension.lower() in EXTENSIONS:
                        images.append(entry.path)
                    else:
                        kind = printable(extension) or "no extension"
                        skipped.append((entry.path, f"{NO_IMAGE_NAME} ({kind})"))
        except OSError as error:
            if folder is top:
                raise _root_error(top, error) from None
            skipped.append((folder, f"folder cannot be read ({_strerror(error)})"))

    images = _without_raw_of_photos(images, skipped)
    if on_skip is not None:
        for path, reason in sorted(skipped, key=lambda skip: os.fsencode(skip[0])):
            on_skip(path, reason)
    return sorted(images, key=operator.methodcaller("encode", *_FILE_SYSTEM))


def _without_raw_of_photos(images: list[str], skipped: list[tuple[str, str]]) -> list[str]:
    """Leave out raw files beside a photo of the same name, as cameras write both."""
    parts = [os.path.splitext(path) for path in images]
    raw = [extension.lower() in RAW_EXTENSIONS for _, extension in parts]
    if not any(raw):
        return images
    photos = {stem for (stem, _), is_raw in zip(parts, raw, strict=True) if not is_raw}
    paired = [is_raw and stem in photos for (stem, _), is_raw in zip(parts, raw, strict=True)]
    skipped += [(path, BESIDE_ITS_PHOTO) for path in itertools.compress(images, paired)]
    return [path for path, is_paired in zip(images, paired, strict=True) if not is_paired]


def _is_hidden(name: str) -> bool:
    return name[0] == "." or name.lower() in ("thumbs.db", "desktop.ini", "__macosx")


# Dot names, such as .Trash-1000 and .thumbnails, are hidden anyway. No plain words: "trash" is a class of waste.
_SYSTEM_FOLDERS = re.compile(
    r"@eadir|@tmp|@recycle|@recently-snapshot|@__thumb|#recycle|#snapshot"  # of Synology and QNAP
    r"|\$recycle\.bin|recycler|found\.\d{3}|system volume information|lost\+found"  # of Windows and Linux
    r"|~snapshot"  # of NetApp
    r"|.*\.lrdata|.*\.lrcat-data|captureone|ipod photo cache"  # of Lightroom, Capture One, and iPhoto for a device
    r"|appdata_oc.*|files_trashbin|files_versions",  # of Nextcloud
    re.IGNORECASE,
)
_LIBRARY = re.compile(r".*\.(photoslibrary|photolibrary|migratedphotolibrary|aplibrary)", re.IGNORECASE)  # of Apple


def is_system_folder(name: str, parent: str = "") -> bool:
    """Whether a storage system or a photo manager keeps previews or deleted files in a folder of this name.

    Of a library of Apple's Photos, the `parent`, these are all folders but the one of the originals.
    """
    if _LIBRARY.fullmatch(parent):
        return name.lower() not in ("originals", "masters")
    return _SYSTEM_FOLDERS.fullmatch(name) is not None


def _mode(entry: os.DirEntry[str]) -> int:
    """Type bits of a file, or of a link's target; a system call only where scandir left them open."""
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
        A JPEG, PNG, WebP, GIF, BMP or TIFF file, whatever its extension says; AVIF and JPEG 2000 if Pillow was built
        with them, HEIC if pi-heif is installed (the extra heic), a camera's raw file, of which the
        preview is read, if rawpy is (the extra raw). Binary PPM, PGM and PBM are read
        too, though `find_images` does not look for them.
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
        The file cannot be read in `READ_SECONDS`, is not a regular file, not an image, truncated, damaged, too large
        or of an unsupported kind.

    Notes
    -----
    - Orientation: EXIF's in JPEG, PNG, WebP and TIFF, the container's own in HEIC and AVIF; XMP's where Pillow reads it
      (not in JPEG).
    - Transparent parts lie on white, as in most product photos.
    - Of more than 8 bits, integers or floats, white is the smallest of 1, 255, 1023, 4095, 16383 and 65535 that no
      pixel exceeds, or else the largest pixel; or more, if the file declares it (TIFF: fewer than 16 bits,
      MaxSampleValue, SMaxSampleValue; PNG: sBIT). So 10, 12 or 14 bits in 16 are as bright as the same picture of 8
      bits. In a collection, whose white is `common_white`, a file whose brightest pixel is exactly one of these levels
      keeps it, and a dim exposure stays dim. Negative pixels and NaN are black.
    - CMYK by the plain formula (JPEGs always hold it inverted, as Adobe's do), Lab as sRGB; embedded colour
      profiles are not applied.
    - Animations and documents of many pages: the first picture.
    - More than 4 million pixels in a file of less than one byte per 10,000 of them are refused, as no photo has them.
    - A file cut short is refused, even where a decoder would fill up the rest with grey. Bytes that were
      damaged in the middle of a JPEG go unnoticed.
    """
    return decode_image(read_file(path), path, max_pixels=max_pixels)


def read_picture(
    path: StrPath,
    *,
    max_side: int | None = None,
    min_side: int | None = None,
    max_pixels: int = MAX_PIXELS,
    rules: Rules = RULES,
) -> Picture:
    """Read an image file as `read_image` does, and scale a large one down.

    Parameters
    ----------
    path : str or PathLike
    max_side, min_side, max_pixels, rules
        As in `decode_picture`.

    Returns
    -------
    Picture
        The pixels, and the size of the original.

    Raises
    ------
    ImageError
        As `read_image`.
    """
    data = read_file(path)
    return decode_picture(data, path, max_side=max_side, min_side=min_side, max_pixels=max_pixels, rules=rules)


class CommonWhite(NamedTuple):
    """The level of white of the images of more than 8 bits that declare none; see `common_white`."""

    white: int  # 255, 1023, 4095, 16383 or 65535; 0 if there are no such images
    n_images: int = 0  # that were decoded
    dim: tuple[StrPath, ...] = ()  # those of them that need less: dim exposures, or files of fewer bits


def common_white(paths: Sequence[StrPath], *, max_pixels: int = MAX_PIXELS) -> CommonWhite:
    """Find the level of white that half of the images of more than 8 bits need.

    With it, a dim exposure in a collection of 12 bits in 16 stays dim, as it would be in 8 bits. A sample of fewer than
    4,000 images is looked at, and 100 of more than 8 bits that declare no white are decoded. Those of more than
    `max_pixels` are skipped, as are others that cannot be read.
    """
    peaks: dict[StrPath, float] = {}
    for path in paths[:: max(1, len(paths) // 2000)]:
        with contextlib.suppress(ImageError):
            if may_be_deep(read_file(path, first=32)):
                peak = undeclared_peak(read_file(path), path, max_pixels)
                peaks |= {path: peak} if peak is not None and 1 < peak <= MAX_WHITE else {}
        if len(peaks) == 100:
            break
    if not peaks:
        return CommonWhite(0)
    whites = {path: white_of(peak, 0, RULES) for path, peak in peaks.items()}
    white = sorted(whites.values())[(len(whites) - 1) // 2]
    dim = tuple(path for path in peaks if whites[path] < white and not has_evident_white(peaks[path]))
    return CommonWhite(int(white), len(peaks), dim)


def read_file(path: StrPath, *, max_bytes: int = MAX_FILE_BYTES, first: int | None = None) -> bytes:
    """Read the bytes of a regular file, or its `first` ones, in a limited time; links are followed.

    ImageError if it cannot be read, is not a regular file, is larger than `max_bytes`, or takes longer than
    `READ_SECONDS`. A thread reads while the caller waits, as a read from a server that does not answer ends neither
    with a signal nor with the process: the caller must be free to leave it behind.
    """
    try:
        reader = _idle_readers.pop()
    except IndexError:
        reader = _Reader()
    content = reader.read(path, max_bytes, first)
    _idle_readers.append(reader)
    if isinstance(content, bytes):
        return content
    if isinstance(content, (OSError, ValueError)) and not isinstance(content, ImageError):
        raise ImageError(path, f"cannot be read ({_strerror(content)})")  # ValueError: a NUL in the path
    raise content


def stop_reading() -> None:
    """Refuse all reads, including running ones: the process ends, and none of its threads may wait for a file."""
    _stopped.set()


class _Reader:
    """A thread that reads one file at a time."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[StrPath, int, int | None] | None] = queue.SimpleQueue()
        self._read: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="file reader", daemon=True).start()  # daemon: may never return

    def read(self, path: StrPath, max_bytes: int, first: int | None) -> bytes | BaseException:
        self._requests.put((path, max_bytes, first))
        try:
            for _ in range(math.ceil(READ_SECONDS / _WAIT)):
                if _stopped.is_set():
                    raise ImageError(path, "interrupted")
                with contextlib.suppress(queue.Empty):
                    return self._read.get(timeout=_WAIT)
            raise ImageError(path, f"reading it takes longer than {READ_SECONDS} s")
        except BaseException:  # Ctrl-C too
            self._requests.put(None)  # ends the thread, if its read ever ends
            raise

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._read.put(_content(*request))
            except BaseException as error:
                self._read.put(error)


_WAIT = 0.2  # seconds until a waiting thread sees that the process ends
_stopped = threading.Event()
_idle_readers: list[_Reader] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle_readers.clear)  # a child process has none of the threads


def _content(path: StrPath, max_bytes: int, first: int | None) -> bytes:
    _check_file(path, os.stat(path), max_bytes)  # before it is opened: that alone rewinds a tape
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        _check_file(path, status, max_bytes)  # another file may have taken its place
        # Files of /proc have size 0, and some never end.
        return file.read(min(status.st_size, first or status.st_size)) if status.st_size else b""


def _check_file(path: StrPath, status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(path, _not_regular(status.st_mode))
    if status.st_size > max_bytes:
        raise ImageError(path, f"too large: {status.st_size:,} bytes is over the limit of {max_bytes:,}")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # or a pipe waits for its other end


# ---------------------------------------------------------------------------------------------------- silence

_silenced = False


def silence_decoders() -> contextlib.ExitStack:
    """Silence the decoders' own messages, for the whole process.

    The C libraries (libjpeg, libtiff, OpenCV) write to file descriptor 2, which is redirected to the null device.
    Python's ``sys.stderr`` keeps its target through a duplicate of the descriptor, so that tracebacks and
    progress bars still show. OpenCV's and Pillow's logs are turned off.

    Returns
    -------
    contextlib.ExitStack
        Restores everything when used as a context manager or closed. Ignore it to stay silent.

    Notes
    -----
    Call it once per process, early: a stream or logging handler that already holds the old ``sys.stderr`` is
    silenced too. Further calls do nothing. A ``sys.stderr`` that does not write to descriptor 2 (None, or
    replaced, as pytest does) is left alone.
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
