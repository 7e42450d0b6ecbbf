"""The SQLite file of a collection: opening it, transactions, and the rows that scanning and editing share."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from visterm.files import replaced
from visterm.pipeline.errors import NothingToSearch, UserError, explain_system_error

from .checksums import DamagedFile, check_files, check_seal, note_checked, sealed
from .files import check_locks, discard, write_bytes
from .paths import decoded
from .records import FORMAT, other_version, repair_hint
from .segments import has_segments
from .sqlite_files import read_blocks

_log = logging.getLogger(__name__)
CATALOGUE, COPY, CHECKSUM = "catalogue.sqlite", "catalogue.copy.sqlite", "catalogue.checksum.json"
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
CREATE TABLE given (            -- labels given by hand, which neither folders nor tables know
    path BLOB PRIMARY KEY,
    labels TEXT NOT NULL
);
CREATE TABLE fields (
    id INTEGER PRIMARY KEY,
    taken TEXT,                 -- JSON of what EXIF says; of older versions the date; null: not read yet
    given TEXT                  -- JSON of the columns of a manifest
);
CREATE TABLE changes (          -- the images that changed last: a process that has read all reads only these again
    number INTEGER PRIMARY KEY,
    image INTEGER NOT NULL,
    mark INTEGER NOT NULL       -- random: after a restore from an older copy, change numbers repeat and marks do not
);
INSERT INTO changes (image, mark) VALUES (0, random());
"""
_KEPT_CHANGES = 100_000
_NOTE = f"""BEGIN
    INSERT INTO changes (image, mark) VALUES (%s.id, random());
    DELETE FROM changes WHERE number = last_insert_rowid() - {_KEPT_CHANGES};
END"""
_TRIGGERS = (
    f"CREATE TRIGGER note_added AFTER INSERT ON images {_NOTE % 'new'}",
    f"CREATE TRIGGER note_changed AFTER UPDATE ON images {_NOTE % 'new'}",
    f"CREATE TRIGGER note_renumbered AFTER UPDATE OF id ON images {_NOTE % 'old'}",
    f"CREATE TRIGGER note_deleted AFTER DELETE ON images {_NOTE % 'old'}",
)


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
        self.file, self.copy = folder / CATALOGUE, folder / COPY
        try:
            if self.file.is_dir():
                raise self.damaged("it is a folder")
            empty = not os.stat(self.file).st_size
        except FileNotFoundError:
            empty = True
        except OSError as error:
            raise self.damaged(error.strerror or error) from None
        if empty:
            if has_segments(self.segments) or os.path.lexists(self.copy):
                raise self.damaged("it is empty" if self.file.exists() else "it is gone")
            if not create and not os.path.lexists(self.file):
                raise NothingToSearch(f"{folder}: no collection here yet; run 'visterm features IMAGES' first")
        self.segments.mkdir(parents=True, exist_ok=True)
        check_locks(folder)
        try:
            self._db = sqlite3.connect(self.file, isolation_level=None, timeout=BUSY_SECONDS)
        except sqlite3.Error as error:
            raise self.explained(error) from None
        self.execute, self.executemany = self._db.execute, self._db.executemany
        try:
            if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                if not empty and has_segments(self.segments):
                    raise self.damaged("it has no tables")
                self._db.execute("BEGIN IMMEDIATE")
                for statement in (*_SCHEMA.split(";\n"), *_TRIGGERS):
                    self._db.execute(statement)
                self["format"] = str(FORMAT)
                self._db.execute("COMMIT")
            self._counter, self._was_sealed = self._check_seal()
            version = self["format"]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._db.close()
            raise self.explained(error) from None
        except BaseException:
            self._db.close()
            raise
        if version != str(FORMAT):
            self._db.close()
            if not isinstance(version, str) or not version.isdecimal():
                raise self.damaged("it has no format")
            raise other_version(folder, version)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Close the catalogue; if a statement failed, or its rows could not be used, say what is wrong with it."""
        damage = isinstance(error, LookupError | TypeError | ValueError | OverflowError) and self.damage()
        if damage or isinstance(error, sqlite3.Error):
            self._db.close()  # without a copy: the last one is better
        else:
            self.close()
        if isinstance(error, sqlite3.Error):
            raise self.explained(error) from None
        if damage:
            raise self.damaged(damage) from None

    def damaged(self, reason: object) -> UserError:
        """Return the error that says that the catalogue is damaged."""
        return UserError(f"{self.file}: damaged catalogue ({reason}); {repair_hint(self.file)}")

    def explained(self, error: Exception) -> UserError:
        """Return an error of SQLite as one line: a full disk, another process, or damage."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM):
            return UserError(explain_system_error(error, self.file) or str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return UserError(
                f"{self.file}: cannot be opened ({error}); if another visterm is at work in it, try again later"
            )
        return self.damaged(error)

    def damage(self) -> str | None:
        """Look through the whole catalogue; return what is wrong with it, None if nothing is."""
        try:
            for check in ("PRAGMA quick_check(1)", "PRAGMA integrity_check(1)"):
                (verdict,) = self._db.execute(check).fetchone()
                if verdict != "ok":
                    return " ".join(verdict.split())
            self._check_rows()
        except (sqlite3.Error, UnicodeDecodeError, DamagedFile) as error:
            return str(error)
        return None

    def _check_rows(self) -> None:
        """Raise DamagedFile for rows that no command writes."""
        query = (
            "SELECT id FROM images WHERE typeof(id) != 'integer' OR typeof(path) != 'blob' OR (status = 'ok' AND ("
            "typeof(segment) != 'integer' OR typeof(row) != 'integer' OR row < 0 OR typeof(sha256) != 'text')) OR "
            "status NOT IN ('pending', 'ok', 'skipped', 'excluded', 'removed') OR (labels IS NOT NULL AND "
            "json_valid(labels) != 1) OR split NOT IN ('train', 'test', 'validation') LIMIT 1"
        )
        if (row := self._db.execute(query).fetchone()) is not None:
            raise DamagedFile(f"the row of image {row[0]}")

    # SQLite does not notice a changed byte inside a row. So a file beside the catalogue holds its checksum and the
    # change counter in its header, which each transaction raises: after a kill between the two there is no checksum of
    # that state, and none is checked. It is looked through before it gets one again. The copy has the same bytes, so
    # that the checksum is its own, too.

    def _check_seal(self) -> tuple[bytes | None, bool]:
        """Compare the file with its checksum; return its change counter, and whether there was a checksum."""
        with self._unchanging():
            counter = change_counter(self.file)
            try:
                seal = json.loads((self.folder / CHECKSUM).read_text())
                check_seal(seal)
                expected = seal["crc32"] if bytes.fromhex(seal["counter"]) == counter else None
            except (OSError, ValueError, KeyError, TypeError):
                expected = None
            if expected is not None:
                try:
                    check_files(self.folder, {self.file.name: expected})
                except DamagedFile:
                    raise self.damaged("it does not have the checksum it was written with") from None
        return counter, expected is not None

    def renew_copy(self) -> None:
        """Copy the catalogue as it is now, and write the checksum of both."""
        for name in (COPY, CHECKSUM):
            if (self.folder / name).is_dir():
                discard(self.folder / name)  # no file can take the place of a folder
        try:
            with self._unchanging():
                counter, crc32 = change_counter(self.file) or b"", 0
                with replaced(self.copy) as target:
                    for block in read_blocks(self.file):
                        crc32 = zlib.crc32(block, crc32)
                        target.write(block)
                seal = json.dumps(sealed({"counter": counter.hex(), "crc32": crc32}))
                write_bytes(self.folder / CHECKSUM, seal.encode())
                note_checked(self.file, crc32)
        except OSError as error:
            advice = "the next command that changes the catalogue copies it"
            _log.warning("%s", explain_system_error(error, self.copy, "cannot be written", advice))
        except sqlite3.Error:  # another process holds the catalogue, and copies it after its change
            pass

    @contextlib.contextmanager
    def _unchanging(self) -> Iterator[None]:
        """Hold SQLite's shared lock: nobody writes to the file meanwhile."""
        self._db.execute("BEGIN")
        try:
            self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield
        finally:
            self._end("ROLLBACK")

    def _end(self, how: str) -> None:
        """End a transaction, unless a full disk has ended it already."""
        with contextlib.suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute(how)

    @property
    def root(self) -> Path | None:
        """The directory of images, as last scanned."""
        root = self["root"]
        return None if root is None else Path(os.fsdecode(root))

    def close(self) -> None:
        """Close the catalogue; if it has changed, leave a copy of it, and its checksum.

        A copy per command, not per transaction: `features` enters a segment of 256 images in each, and a copy of 50,000
        images takes 40 ms.
        """
        changed = self._db.total_changes and change_counter(self.file) != self._counter
        if changed and (self._was_sealed or self.damage() is None):
            self.renew_copy()
        self._db.close()

    def __getitem__(self, key: str) -> Any:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row and row[0]

    def __setitem__(self, key: str, value: Any) -> None:
        if self[key] != value:  # an unchanged catalogue needs no new copy
            self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements inside together; roll them back if anything is raised."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._end("ROLLBACK")
            raise

    @property
    def last_id(self) -> int:
        """The last id given to an image; 0 if there is none."""
        return self.execute("SELECT max(id) FROM images").fetchone()[0] or 0

    def last_change(self) -> tuple[int, int]:
        """The number and the mark of the last change of an image."""
        return self.execute("SELECT number, mark FROM changes ORDER BY number DESC LIMIT 1").fetchone()

    def changed_since(self, change: tuple[int, int]) -> list[int] | None:
        """Ids of the images that changed after a change; None if the catalogue does not have it (any more)."""
        if not self.execute("SELECT 1 FROM changes WHERE number = ? AND mark = ?", change).fetchone():
            return None
        return [id_ for (id_,) in self.execute("SELECT DISTINCT image FROM changes WHERE number > ?", change[:1])]

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


def change_counter(file: Path) -> bytes | None:
    """Return SQLite's counter of the transactions that changed a file; None if it is no file of SQLite."""
    with contextlib.suppress(OSError):
        header = b"".join(read_blocks(file, 28))
        if len(header) == 28 and header.startswith(b"SQLite format 3\0"):
            return header[24:]
    return None


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
