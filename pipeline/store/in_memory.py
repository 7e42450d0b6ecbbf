"""Reading an SQLite file where nothing can be written: on a full disk or a read-only one.

In WAL mode SQLite writes to read: it makes the files -wal and -shm beside the database. A copy in memory needs neither.
Rows that are only in the -wal file, such as those of a killed process, are in the copy, too.

https://www.sqlite.org/fileformat2.html, section 4
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

from .sqlite_files import read_blocks

_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}  # of a -wal file: byte order of the numbers that checksums are made of
_WAL_HEADER, _FRAME_HEADER = struct.Struct(">8I"), struct.Struct(">6I")
_TRIES = 10  # to read both files while nothing writes to them


def opened_in_memory(file: Path) -> sqlite3.Connection:
    """Open a copy of an SQLite file and its -wal file, in memory; raise OSError if they cannot be read."""
    data, wal = _read(file)
    for number, page, n_pages in _committed(wal):
        start = (number - 1) * len(page)
        data.extend(bytes(max(0, start - len(data))))
        data[start : start + len(page)] = page
        if n_pages:
            del data[n_pages * len(page) :]
    data[18:20] = b"\1\1"  # no WAL mode, which memory does not have
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.deserialize(bytes(data))
    return db


def _read(file: Path) -> tuple[bytearray, bytes]:
    """Read both files in one state: a checkpoint moves rows from one to the other."""
    log = Path(f"{file}-wal")
    for _ in range(_TRIES):
        before = _stamps(file, log)
        data, wal = bytearray(b"".join(read_blocks(file))), b""
        with contextlib.suppress(FileNotFoundError):
            wal = log.read_bytes()
        if _stamps(file, log) == before:
            break
    return data, wal


def _stamps(*files: Path) -> list[tuple[int, int]]:
    stamps = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(file)
            stamps.append((status.st_size, status.st_mtime_ns))
    return stamps


def _committed(wal: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Yield the pages of complete transactions: number from 1, content, and at the end of each the number of pages."""
    if len(wal) < _WAL_HEADER.size:
        return
    magic, _, size, _, *salts, first, second = _WAL_HEADER.unpack_from(wal)
    order = _MAGIC.get(magic)
    if order is None or _checksum(order, wal[:24], (0, 0)) != (first, second):
        return
    checksum, pages = (first, second), []
    for start in range(_WAL_HEADER.size, len(wal) - size - _FRAME_HEADER.size + 1, size + _FRAME_HEADER.size):
        number, n_pages, *part, first, second = _FRAME_HEADER.unpack_from(wal, start)
        page = wal[start + _FRAME_HEADER.size : start + _FRAME_HEADER.size + size]
        checksum = _checksum(order, wal[start : start + 8] + page, checksum)
        if part != salts or checksum != (first, second):
            return  # half a transaction, or what an earlier one left
        pages.append((number, page, n_pages))
        if n_pages:
            yield from pages
            pages = []


def _checksum(order: str, data: bytes, before: tuple[int, int]) -> tuple[int, int]:
    first, second = before
    for even, odd in struct.iter_unpack(f"{order}2I", data):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
