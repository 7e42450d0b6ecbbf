"""Uploaded images, stored until they expire."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path

import cv2
import numpy as np

from visterm.pipeline.errors import explain_system_error
from visterm.pipeline.store.files import write_bytes

_log = logging.getLogger(__name__)
UPLOAD_SECONDS = 7 * 24 * 3600
MAX_UPLOADS = 1000
MAX_UPLOAD_BYTES = 2 * 2**30  # of all uploads together, as stored


class Uploads:
    """Uploaded images by the SHA-256 of the uploaded bytes, so that links to a search work until the upload expires.

    An upload expires `seconds` after its last use; beyond `max_uploads` or `max_bytes`, the least recently used are
    removed. Only the decoded pixels are stored, as PNG: no other data of the file (location, camera, cropped parts) is
    kept, and a repeated search gives the same results.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float = UPLOAD_SECONDS,
        max_uploads: int = MAX_UPLOADS,
        max_bytes: int = MAX_UPLOAD_BYTES,
    ):
        self._folder, self.seconds = folder, seconds
        self._max_uploads, self._max_bytes = max_uploads, max_bytes
        self._lock = threading.Lock()
        self.sweep()

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.png"  # the routes check that keys are hexadecimal

    def add(self, key: str, pixels: np.ndarray) -> bool:
        """Store an image, RGB uint8 (height, width, 3), or renew its lifetime; return False if it cannot be written."""
        file = self._file(key)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.utime(file)
                return True
            self._folder.parent.mkdir(mode=0o700, exist_ok=True)  # not readable for other users
            self._folder.mkdir(mode=0o700, exist_ok=True)
            options = [cv2.IMWRITE_PNG_COMPRESSION, 1]  # fast
            png = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)[1]
            write_bytes(file, png.tobytes())
        except OSError as error:
            _log.warning("%s", explain_system_error(error, self._folder, advice="the upload is not stored"))
            return False
        self.sweep()
        return True

    def read(self, key: str) -> bytes | None:
        """Return the PNG of an upload and renew its lifetime; None if it expired or does not exist."""
        file = self._file(key)
        try:
            if file.stat().st_mtime < time.time() - self.seconds:
                return None
            data = file.read_bytes()
            with contextlib.suppress(OSError):  # a read-only disk
                os.utime(file)
        except OSError:
            return None
        return data

    def sweep(self) -> None:
        """Remove expired and excess uploads, and temporary files of a killed service."""
        with self._lock, contextlib.suppress(OSError):
            now, files = time.time(), []
            for file in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    status = file.stat()
                    files.append((status.st_mtime, status.st_size, file))
            n = size = 0
            for used, n_bytes, file in sorted(files, reverse=True):
                temporary = file.suffix == ".tmp"
                n, size = n + (not temporary), size + n_bytes
                expired = used < now - (3600 if temporary else self.seconds)
                if expired or n > self._max_uploads or size > self._max_bytes:
                    with contextlib.suppress(OSError):
                        file.unlink()
