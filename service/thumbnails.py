"""Image files of the collection and their thumbnails.

A file is served only if the catalogue names it and its bytes have the hash that the catalogue records.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import threading
import warnings
from pathlib import Path
from typing import Any

import PIL.Image

from visterm.features.decoding import ImageError, decode_picture
from visterm.features.images import read_file
from visterm.pipeline.report.thumbnail import make_thumbnail
from visterm.pipeline.store.images import Image, Images

_log = logging.getLogger(__name__)
SIZES = (128, 256, 384, 512, 768, 1024, 2048)  # longer side of a thumbnail; only a few, so that they can be stored
MAX_ORIGINAL_BYTES = 200 * 2**20
MAX_THUMBNAIL_BYTES = 8 * 2**30
_WITH_SIZE = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
_ORIENTATION, _UPSIDE_DOWN = 0x0112, 4  # a tag of EXIF; its values above this lay the picture on its side
_SCHEMA = """
CREATE TABLE IF NOT EXISTS thumbnails (
    sha256 TEXT NOT NULL, size INTEGER NOT NULL, color TEXT NOT NULL, webp BLOB NOT NULL, PRIMARY KEY (sha256, size)
) WITHOUT ROWID
"""
# First bytes of a file -> its media type.
_TYPES = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG", "image/png"),
    (b"RIFF", "image/webp"),
    (b"BM", "image/bmp"),
    (b"II", "image/tiff"),
    (b"MM", "image/tiff"),
)


class ImageFileGone(Exception):
    """The file of an image in the catalogue is missing or has changed."""


def read_original(root: Path, image: Image) -> bytes:
    """Read the bytes that the catalogue describes, wherever links lead; raise ImageFileGone if they are gone."""
    gone = ImageFileGone(f"the file of image {image.id} is gone or has changed; run 'visterm features' to update")
    try:
        data = read_file(os.path.join(root, image.path), max_bytes=MAX_ORIGINAL_BYTES)
    except ImageError:
        raise gone from None
    if hashlib.sha256(data).hexdigest() != image.sha256:
        raise gone
    return data


class ImportedFiles:
    """Files of images whose vectors were imported: the catalogue has the hashes of the vectors, not of the files.

    A file may change without a new import; it is read again then. What is not an image is not served.
    """

    def __init__(self) -> None:
        # Stamp, SHA-256, width and height of each file.
        self._known: dict[tuple[Path, str], tuple[tuple[int, int, int], str, tuple[int, int]]] = {}

    def read(self, root: Path, image: Image, max_pixels: int) -> tuple[Image, tuple[int, int]]:
        """Return the image with the SHA-256 of its file, and the width and height of the picture.

        Raise ImageFileGone if there is no file, ImageError if it is no picture.
        """
        file = os.path.join(root, image.path)
        try:
            status = os.stat(file)
        except (OSError, ValueError):
            raise ImageFileGone(f"image {image.id} of this run of imported vectors has no file") from None
        stamp = status.st_ino, status.st_size, status.st_mtime_ns
        kept = self._known.get((root, image.path))
        if kept is None or kept[0] != stamp:
            data = read_file(file, max_bytes=MAX_ORIGINAL_BYTES)
            _, height, width = decode_picture(data, image.path, max_side=SIZES[0], max_pixels=max_pixels)
            kept = self._known[root, image.path] = stamp, hashlib.sha256(data).hexdigest(), (width, height)
        return image._replace(sha256=kept[1]), kept[2]


def size_of(file: str) -> tuple[int, int]:
    """Read width and height of a picture, upright, from the head of its file; zeros where that does not tell them."""
    try:
        if not os.path.isfile(file):  # a pipe would block
            return 0, 0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            with PIL.Image.open(file, formats=_WITH_SIZE) as picture:
                # Of a PNG, all of it would be decoded.
                turned = picture.format != "PNG" and picture.getexif().get(_ORIENTATION, 1) > _UPSIDE_DOWN
                return picture.size[::-1] if turned else picture.size
    except Exception:  # damaged files make Pillow raise nearly everything
        return 0, 0


def media_type(data: bytes) -> str:
    """Return the media type of an image file by its first bytes."""
    return next((kind for start, kind in _TYPES if data.startswith(start)), "application/octet-stream")


def open_cache(file: Path, schema: str, query: str, lost: str) -> tuple[sqlite3.Connection | None, list[Any]]:
    """Open or create an SQLite file of what can be made again, and read rows; warn of what is lost if that fails."""
    db = None
    try:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(schema)
        return db, db.execute(query).fetchall()
    except (OSError, sqlite3.Error) as error:
        if db is not None:
            db.close()
        _log.warning("%s: %s; %s are not stored", file, error, lost)
        return None, []


class Thumbnails:
    """Thumbnails by the SHA-256 of their image, in one SQLite file; not stored if the file cannot be written."""

    def __init__(self, file: Path):
        self._lock = threading.Lock()
        self._db, stored = open_cache(file, _SCHEMA, "SELECT sha256, color FROM thumbnails", "thumbnails")
        self.colors: dict[str, str] = dict(stored)  # mean colour by SHA-256

    def get(self, root: Path, image: Image, size: int, max_pixels: int) -> bytes:
        """Return the thumbnail of an image, in the smallest of SIZES that is large enough."""
        size = next((s for s in SIZES if s >= size), SIZES[-1])
        with self._lock, contextlib.suppress(sqlite3.Error):  # damaged: make it again
            if self._db is not None:
                query = "SELECT webp FROM thumbnails WHERE sha256 = ? AND size = ?"
                if row := self._db.execute(query, (image.sha256, size)).fetchone():
                    return row[0]
        data = read_original(root, image)
        pixels = decode_picture(data, image.path, max_side=size, max_pixels=max_pixels).pixels
        thumbnail = make_thumbnail(pixels, size)
        self.colors[image.sha256] = thumbnail.color
        with self._lock, contextlib.suppress(sqlite3.Error):  # a full disk only costs time
            if self._db is not None:
                values = (image.sha256, size, thumbnail.color, thumbnail.webp)
                self._db.execute("INSERT OR IGNORE INTO thumbnails VALUES (?, ?, ?, ?)", values)
        return thumbnail.webp

    def sweep(self, images: Images | None) -> None:
        """Remove thumbnails of other images than these (None: of none), and all if they exceed MAX_THUMBNAIL_BYTES."""
        present = set(self.colors) if images is None else set(images.contents())
        for sha256 in list(self.colors):
            if sha256 not in present:
                self.colors.pop(sha256, None)
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._db is None:
                return
            pages, size = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            free = self._db.execute("PRAGMA freelist_count").fetchone()[0]
            if (pages - free) * size > MAX_THUMBNAIL_BYTES:
                self._db.execute("DELETE FROM thumbnails")
            stored = {row[0] for row in self._db.execute("SELECT DISTINCT sha256 FROM thumbnails")}
            removed = stored - present
            self._db.executemany("DELETE FROM thumbnails WHERE sha256 = ?", ((sha256,) for sha256 in removed))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None
