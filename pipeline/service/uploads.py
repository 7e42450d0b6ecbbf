"""Uploaded pictures, kept for a while."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from pathlib import Path

import cv2
import numpy as np

from visterm.pipeline.store.files import write_bytes

_log = logging.getLogger(__name__)
UPLOAD_SECONDS = 7 * 24 * 3600
MAX_UPLOADS = 1000
MAX_UPLOAD_BYTES = 2 * 2**30  # of all uploads together, as they are kept


class Uploads:
    """Uploaded pictures by the SHA-256 of what was sent: a link to a search works until they expire.

    Parameters
    ----------
    folder : Path
        Made where it is missing.
    seconds : float
        How long after its last use a picture is kept.
    most, most_bytes : int
        Beyond either, those that were not used for longest go.

    Notes
    -----
    What is kept is a PNG of the decoded pixels. So nothing else of the file stays (place, camera, what was cut off),
    and the same question has the same answer later.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float = UPLOAD_SECONDS,
        most: int = MAX_UPLOADS,
        most_bytes: int = MAX_UPLOAD_BYTES,
    ):
        self._folder, self.seconds, self._most, self._most_bytes = folder, seconds, most, most_bytes
        self._lock = threading.Lock()
        self.sweep()

    def _file(self, key: str) -> Path:
        return self._folder / f"{key}.png"  # of hexadecimal digits, as the service checks

    def add(self, key: str, pixels: np.ndarray) -> bool:
        """Keep a picture, RGB uint8 (height, width, 3), or keep it for longer; False: it could not be written."""
        file = self._file(key)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.utime(file)
                return True
            self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # of nobody else on this machine
            self._folder.mkdir(mode=0o700, exist_ok=True)
            options = [cv2.IMWRITE_PNG_COMPRESSION, 1]  # quick
            png = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)[1]
            write_bytes(file, png.tobytes())
        except OSError as error:
            _log.warning("%s: %s; the upload is not kept", self._folder, error.strerror)
            return False
        self.sweep()
        return True

    def read(self, key: str) -> bytes | None:
        """Return the PNG of a picture, which counts as used; None: it expired, or never was."""
        file = self._file(key)
        try:
            if file.stat().st_mtime < time.time() - self.seconds:
                return None
            data = file.read_bytes()
            with contextlib.suppress(OSError):  # a disk that may only be read
                os.utime(file)
        except OSError:
            return None
        return data

    def sweep(self) -> None:
        """Remove what expired, what is too much, and what a kill left half-written."""
        with self._lock, contextlib.suppress(OSError):
            now, found = time.time(), []
            for file in self._folder.iterdir():
                with contextlib.suppress(OSError):
                    status = file.stat()
                    found.append((status.st_mtime, status.st_size, file))
            n = size = 0
            for used, n_bytes, file in sorted(found, reverse=True):
                half = file.suffix == ".tmp"
                n, size = n + (not half), size + n_bytes
                if used < now - (3600 if half else self.seconds) or n > self._most or size > self._most_bytes:
                    with contextlib.suppress(OSError):
                        file.unlink()
