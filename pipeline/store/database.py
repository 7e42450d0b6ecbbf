"""The SQLite file of a collection: opening it, transactions, and the rows that scanning and editing share."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError

from .paths import decoded
from .segments import FORMAT

_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # other errors may pass
BUSY_SECONDS = 30  # to wait for a process that holds the catalogue: a scan of many images writes for some seconds
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL);
CREATE TABLE images (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,         -- relative to the root, or absolute if it lies outside; the file system's bytes
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    sha256 TEXT,
    width INTEGER,
    height INTEGER,
    labels TEXT,                -- JSON {label: weight}; null: unlabelled
    split TEXT,                 -- train, test, validation; null: searchable, but neither trained on nor tested
    segment INTEGER,
    row INTEGER,
    status TEXT NOT NULL,       -- pending, ok, skipped, excluded (removed by hand), removed
    reason TEXT                 -- why it was skipped
);
CREATE UNIQUE INDEX live ON images (path) WHERE status != 'removed';
CREATE INDEX by_status ON images (status);
"""
# Labels given by hand, which neither folders nor tables know. Catalogues of earlier versions lack this table until the
# first write; reading does not need it.
_GIVEN = "CREATE TABLE IF NOT EXISTS given (path BLOB PRIMARY KEY, labels TEXT NOT NULL)"


class Known(NamedTuple):
    """The row of a living path."""

    id: int
    size: int
    mtime_ns: int
    status: str
    reason: str | None
    labels: str | None


class Database:
    """The catalogue's SQLite file in ``runs/<run>/collection``; ``create`` makes an empty one if there is none.

    UserError if there is no catalogue, another version made it, it is damaged, or another process holds it for longer
    than BUSY_SECONDS.
    """

    def __init__(self, folder: Path, *, create: bool = False):
        self.folder = folder
        self.segments = folder / "segments"
        file = folder / "catalogue.sqlite"
        if not file.exists() and not create:
            raise UserError(f"{folder}: no collection here yet; run 'visterm features IMAGES' first")
        self.segments.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(file, isolation_level=None, timeout=BUSY_SECONDS)
        self.execute, self.executemany = self._db.execute, self._db.executemany
        try:
            if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                with self.transaction():
                    for statement in _SCHEMA.split(";\n"):
                        self._db.execute(statement)
                    self["format"] = FORMAT
            version = self["format"]
        except sqlite3.DatabaseError as error:
            self._db.close()
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _DAMAGE:
                raise UserError(
                    f"{file}: cannot be opened ({error}); if another visterm is at work in it, try again later"
                ) from None
            raise UserError(
                f"{file}: damaged catalogue ({error}); remove {folder} and run 'visterm features' again"
            ) from None
        if version != FORMAT:
            self._db.close()
            raise UserError(
                f"{folder}: a run folder of another version (format {version}, this visterm reads {FORMAT}); "
                f"use another --run, or remove it and run 'visterm features' again"
            )

    @property
    def root(self) -> Path | None:
        """The directory of images, as last scanned."""
        root = self["root"]
        return None if root is None else Path(os.fsdecode(root))

    def close(self) -> None:
        """Close the catalogue."""
        self._db.close()

    def __getitem__(self, key: str):
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row and row[0]

    def __setitem__(self, key: str, value) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements inside together; roll them back if anything is raised."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(_GIVEN)
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk ends it
                self._db.execute("ROLLBACK")
            raise

    @property
    def last_id(self) -> int:
        """The last id given to an image; 0 if there is none."""
        return self.execute("SELECT max(id) FROM images").fetchone()[0] or 0

    def rows(self, where: str, values: Sequence[Any] = ()) -> list[tuple[int, str, str]]:
        """Id, path and status of the rows that a condition selects, by path; never of removed ones."""
        query = f"SELECT id, path, status FROM images WHERE status != 'removed' AND {where} ORDER BY path"
        return [(id_, os.fsdecode(path), status) for id_, path, status in self.execute(query, values)]

    def known(self, paths: Iterable[str] | None = None) -> dict[str, Known]:
        """The rows of these paths, or of all."""
        query = "SELECT path, id, size, mtime_ns, status, reason, labels FROM images WHERE status != 'removed'"
        rows: Iterable[tuple]
        if paths is None:
            rows = self.execute(query)
        else:
            rows = [r for p in paths for r in self.execute(f"{query} AND path = ?", (os.fsencode(p),))]
        make = functools.partial(tuple.__new__, Known)  # `_make` without its check of the length
        same: Any = {}.setdefault  # few texts in many rows: one object each
        return {
            decoded(path): make((id_, size, mtime_ns, same(status, status), reason, same(labels, labels)))
            for path, id_, size, mtime_ns, status, reason, labels in rows
        }

    def insert(self, rows: Iterable[tuple[bytes, int, int, str, str | None]]) -> None:
        """Add images: path, size, modification time, status and reason."""
        self.executemany("INSERT INTO images (path, size, mtime_ns, status, reason) VALUES (?, ?, ?, ?, ?)", rows)

    def bury(self, ids: Iterable[int]) -> None:
        """Turn the rows of images into tombstones."""
        self.executemany("UPDATE images SET status = 'removed' WHERE id = ?", [(i,) for i in ids])


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the cyclic GC while loading many rows."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
