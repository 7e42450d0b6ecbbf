"""Reading what can be read of a damaged SQLite file, row by row."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_GUESSED = 10_000  # row numbers that are tried beyond those that are known
# The first bytes of every catalogue of visterm, but for counters: the format of SQLite, and its default page size.
_HEADER = {0: b"SQLite format 3\0\x10\0", 20: b"\0\x40\x20\x20", 44: b"\0\0\0\x04", 56: b"\0\0\0\x01"}


@contextlib.contextmanager
def opened_copy(file: Path) -> Iterator[sqlite3.Connection | None]:
    """Open a copy of a damaged file, with its header as it must be; None if there is nothing to read."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        try:
            shutil.copyfile(file, copy)
            for suffix in ("-wal", "-journal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copyfile(f"{file}{suffix}", f"{copy}{suffix}")
            db = _open(copy)
            if db is None:
                with open(copy, "r+b") as stream:
                    for place, content in _HEADER.items():
                        stream.seek(place)
                        stream.write(content)
                db = _open(copy)
        except OSError:
            db = None
        with contextlib.closing(db) if db is not None else contextlib.nullcontext():
            yield db


def _open(file: Path) -> sqlite3.Connection | None:
    db = sqlite3.connect(file, isolation_level=None)
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        return None
    return db


def rows(db: sqlite3.Connection, table: str, columns: Sequence[str], last: int = 0) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table that can be read, with the row number first.

    From the front as far as that goes, from the end as far as that goes, and between these one by one; ``last`` is a
    row number that is known to have been there.
    """
    wanted = f"SELECT rowid, {', '.join(columns)} FROM {table}"
    first = 0
    try:
        for row in db.execute(f"{wanted} ORDER BY rowid"):
            yield row
            first = row[0]
        return
    except sqlite3.Error:
        pass
    end, tail = last + _GUESSED, []
    with contextlib.suppress(sqlite3.Error):
        for row in db.execute(f"{wanted} WHERE rowid > ? ORDER BY rowid DESC", (first,)):
            tail.append(row)
            end = row[0]
    for number in range(first + 1, end):
        with contextlib.suppress(sqlite3.Error):
            yield from db.execute(f"{wanted} WHERE rowid = ?", (number,)).fetchall()
    yield from reversed(tail)
