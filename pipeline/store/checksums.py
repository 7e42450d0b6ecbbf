"""Checksums of files and records, so that damage is told before it can change a result or reach a kernel.

Every artifact's record holds the CRC-32 of its files, and of itself. A file is read for its checksum once per process,
and again only after it changed.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .sqlite_files import read_blocks

# Content of record.json: what `make_record` returns, what the stage notes, and the sizes and checksums of the files.
Record = dict[str, Any]
OWN = "checksum"  # the key of a record's own checksum
_BLOCK = 1 << 20  # bytes read at a time: they stay in the cache until they are summed
_checked: dict[str, tuple[int, ...]] = {}  # files whose checksum was right, by path, as they were then
_lock = threading.Lock()


class DamagedFile(ValueError):
    """A file does not have the bytes that it was written with."""


def file_crc32(file: str | os.PathLike[str]) -> int:
    """Return the CRC-32 of a file's bytes."""
    if os.fspath(file).endswith(".sqlite"):
        return functools.reduce(lambda crc32, block: zlib.crc32(block, crc32), read_blocks(file), 0)
    crc32, buffer = 0, bytearray(min(_BLOCK, max(1, os.stat(file).st_size)))
    view = memoryview(buffer)
    with open(file, "rb", buffering=0) as stream:
        while n := stream.readinto(buffer):
            crc32 = zlib.crc32(view[:n], crc32)
    return crc32


def files_crc32(folder: Path, names: Iterable[str]) -> dict[str, int]:
    """Return the CRC-32 of files of a folder, by name."""
    return {name: file_crc32(folder / name) for name in names}


def check_files(folder: Path, crc32: Mapping[str, int]) -> None:
    """Raise DamagedFile for a file of a folder that is missing, unreadable or has another checksum than noted."""
    for name, expected in crc32.items():
        try:
            _check_file(folder / name, expected)
        except OSError as error:
            raise DamagedFile(f"{name}: {(error.strerror or str(error)).lower()}") from None


def _check_file(file: Path, expected: int) -> None:
    if _checked.get(os.path.abspath(file)) == _stamp(file, expected):
        return
    with _lock:  # a thread that checks ahead may be reading the same file
        stamp = _stamp(file, expected)
        if _checked.get(os.path.abspath(file)) != stamp:
            if file_crc32(file) != expected:
                raise DamagedFile(f"{file.name} does not have the checksum it was written with")
            _checked[os.path.abspath(file)] = stamp


def note_checked(file: Path, crc32: int) -> None:
    """Note that a file has this checksum now, as this process has just read it."""
    _checked[os.path.abspath(file)] = _stamp(file, crc32)


def _stamp(file: Path, crc32: int) -> tuple[int, ...]:
    status = os.stat(file)
    return crc32, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def sealed(record: Mapping[str, Any]) -> Record:
    """Return a record with its own checksum."""
    content = {key: value for key, value in record.items() if key != OWN}
    return content | {OWN: _record_crc32(content)}


def check_seal(record: Mapping[str, Any]) -> None:
    """Raise DamagedFile for a record whose own checksum differs."""
    if record.get(OWN) != _record_crc32({key: value for key, value in record.items() if key != OWN}):
        raise DamagedFile("it does not have the checksum it was written with")


def _record_crc32(record: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())
