"""Pictures that the service shows: images of the collection, their thumbnails, and what was uploaded.

Bytes leave the machine only if they are an image that the catalogue names, bit for bit, or an upload of this service.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from visterm.features import decode_image
from visterm.pipeline.store.catalogue import Image

_log = logging.getLogger(__name__)
SIZES = (128, 256, 512, 1024)  # longest side of a thumbnail; few, so that they can be kept
QUALITY = 70
MAX_ORIGINAL_BYTES = 200 * 2**20
MAX_THUMBNAIL_BYTES = 8 * 2**30
_SCHEMA = """
CREATE TABLE IF NOT EXISTS thumbnails (
    sha256 TEXT NOT NULL, size INTEGER NOT NULL, color TEXT NOT NULL, webp BLOB NOT NULL, PRIMARY KEY (sha256, size)
) WITHOUT ROWID
"""
# The first bytes of a file -> its type; a browser is told no other.
_TYPES = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG", "image/png"),
    (b"RIFF", "image/webp"),
    (b"BM", "image/bmp"),
    (b"II", "image/tiff"),
    (b"MM", "image/tiff"),
)


class PictureGone(Exception):
    """An image of the catalogue whose file is not there any more, or is another one."""


def read_original(root: Path, image: Image) -> bytes:
    """Read an image of the collection.

    Parameters
    ----------
    root : Path
    image : Image

    Returns
    -------
    bytes
        Of just the file that the catalogue describes, wherever links lead to.

    Raises
    ------
    PictureGone
        There is no such file any more.
    """
    again = "is gone or has changed; 'visterm features' brings the run up to date"
    try:
        # Without waiting: the place of an image may have been taken by a pipe.
        descriptor = os.open(os.path.join(root, image.path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_ORIGINAL_BYTES:
                raise PictureGone(f"the file of image {image.id} {again}")
            data = stream.read(MAX_ORIGINAL_BYTES)
    except (OSError, ValueError):
        raise PictureGone(f"the file of image {image.id} {again}") from None
    if hashlib.sha256(data).hexdigest() != image.sha256:
        raise PictureGone(f"the file of image {image.id} {again}")
    return data


def media_type(data: bytes) -> str:
    """The type of an image file by its first bytes."""
    return next((kind for sign, kind in _TYPES if data.startswith(sign)), "application/octet-stream")


class Thumbnail(NamedTuple):
    """WebP, and the mean colour of the picture as ``#rrggbb``."""

    webp: bytes
    color: str


def make_thumbnail(pixels: np.ndarray, size: int) -> Thumbnail:
    """Shrink a picture; it is never enlarged.

    Parameters
    ----------
    pixels : uint8 array, (height, width, 3)
        RGB.
    size : int
        Longest side in pixels.
    """
    height, width = pixels.shape[:2]
    scale = min(1.0, size / max(height, width))
    small = cv2.resize(
        pixels, (max(1, round(width * scale)), max(1, round(height * scale))), interpolation=cv2.INTER_AREA
    )
    red, green, blue = (int(value) for value in small.reshape(-1, 3).mean(axis=0).round())
    webp = cv2.imencode(".webp", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1]
    return Thumbnail(webp.tobytes(), f"#{red:02x}{green:02x}{blue:02x}")


class Thumbnails:
    """Thumbnails by the SHA-256 of their image, kept in one SQLite file.

    Parameters
    ----------
    file : Path
        Made where it is missing. If it cannot be written, thumbnails are made anew each time.
    """

    def __init__(self, file: Path):
        self.colors: dict[str, str] = {}  # by SHA-256, of images that were shown once
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(_SCHEMA)
            self.colors.update(self._db.execute("SELECT sha256, color FROM thumbnails"))
        except (OSError, sqlite3.Error) as error:
            self.close()
            _log.warning("%s: %s; thumbnails are not kept", file, error)

    def get(self, root: Path, image: Image, size: int, max_pixels: int) -> bytes:
        """Return the thumbnail of an image, of the next of SIZES.

        Raises
        ------
        PictureGone
            Its file is not there any more.
        """
        size = next((s for s in SIZES if s >= size), SIZES[-1])
        with self._lock, contextlib.suppress(sqlite3.Error):  # damaged: made anew each time
            if self._db is not None:
                query = "SELECT webp FROM thumbnails WHERE sha256 = ? AND size = ?"
                found = self._db.execute(query, (image.sha256, size)).fetchone()
                if found:
                    return found[0]
        pixels = decode_image(read_original(root, image), image.path, max_pixels=max_pixels)
        webp, color = make_thumbnail(pixels, size)
        self.colors[image.sha256] = color
        with self._lock, contextlib.suppress(sqlite3.Error):  # a full disk costs only time
            if self._db is not None:
                row = (image.sha256, size, color, webp)
                self._db.execute("INSERT OR IGNORE INTO thumbnails VALUES (?, ?, ?, ?)", row)
        return webp

    def sweep(self, images: Iterable[Image]) -> None:
        """Remove thumbnails of all but these images, and all of them if they take more than MAX_THUMBNAIL_BYTES."""
        living = {image.sha256 for image in images}
        for sha256 in list(self.colors):
            if sha256 not in living:
                self.colors.pop(sha256, None)
        with self._lock, contextlib.suppress(sqlite3.Error):
            if self._db is None:
                return
            pages, size = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            free = self._db.execute("PRAGMA freelist_count").fetchone()[0]
            if (pages - free) * size > MAX_THUMBNAIL_BYTES:
                self._db.execute("DELETE FROM thumbnails")
            kept = {row[0] for row in self._db.execute("SELECT DISTINCT sha256 FROM thumbnails")}
            gone = kept - living
            self._db.executemany("DELETE FROM thumbnails WHERE sha256 = ?", ((sha256,) for sha256 in gone))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
            self._db = None
