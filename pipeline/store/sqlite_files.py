"""Reading the bytes of a file that SQLite has open.

A process that closes any descriptor of a file loses all locks that it has on it, SQLite's included: another process
may then write at the same time, which damages the file (https://www.sqlite.org/howtocorrupt.html, section 2.2). So
descriptors stay open.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 1 << 20  # bytes read at a time
_MOST = 128  # descriptors; the oldest is of a file that nobody uses any more
_kept: dict[tuple[int, int], int] = {}  # by device and inode
_lock = threading.Lock()


def read_blocks(file: str | os.PathLike[str], n: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of a file, or the first n, in blocks; OSError as of `open`."""
    descriptor, place = _descriptor(Path(file)), 0
    while block := os.pread(descriptor, _BLOCK if n is None else n - place, place):
        yield block
        place += len(block)


def _descriptor(file: Path) -> int:
    with _lock:
        status = os.stat(file)
        key = status.st_dev, status.st_ino
        if key not in _kept:
            descriptor = os.open(file, os.O_RDONLY)
            status = os.fstat(descriptor)
            key = status.st_dev, status.st_ino
            _kept[key] = descriptor
            if len(_kept) > _MOST:
                os.close(_kept.pop(next(iter(_kept))))
        return _kept[key]
