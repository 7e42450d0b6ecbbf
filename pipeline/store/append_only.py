"""An append-only SQLite file: the base of label edits, relevance marks and judgements."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from visterm.pipeline.errors import UserError, system_errors_explained

from .checksums import DamagedFile, check_seal, file_crc32, sealed
from .files import discard, sync
from .in_memory import opened_in_memory
from .records import repair_hint

_CHECKSUM = "checksum"  # a column of each table
_MAY_PASS = tuple(
    getattr(sqlite3, f"SQLITE_{name}")
    for name in ("BUSY", "LOCKED", "CANTOPEN", "PERM", "FULL", "IOERR", "READONLY", "NOMEM")
)
_CANNOT_WRITE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_checked: dict[tuple[str, int], dict[str, int]] = {}  # last row of each table that was compared with its checksum


class AppendOnlyStore:
    """An append-only SQLite file, made by the first write in a folder that exists.

    Rows are on disk when a write returns. Each call opens its own connection, so any number of threads and processes
    may write. Each row has a checksum. Only its owner can read the file.

    A second file, ``copy``, gets every row, too: of a damaged file `rebuild` takes the rows from both.
    """

    schema = ""
    what = "the row"  # for messages

    def __init__(self, file: Path) -> None:
        self.file = file
        self.copy = file.with_name(f"{file.stem}.copy{file.suffix}")
        self.seal = file.with_name(f"{file.stem}.checksum.json")

    @contextlib.contextmanager
    def _reading(self, *, thorough: bool = False) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection, or None before the first write; `thorough` is as of `_check`."""
        problem = "cannot be read"
        if not self._exists(problem):
            yield None
            return
        with self._explained(problem), contextlib.closing(self._connect_to_read()) as db:
            is_new = self._check(db, thorough=thorough)
            yield db
        if is_new:
            self._write_seal()

    def is_expected(self) -> bool:
        """Whether something beside the copy shows that the file was there."""
        return False

    def _exists(self, problem: str) -> bool:
        """Return whether there is a file; UserError if there was one."""
        with self._explained(problem):
            os.stat(self.file.parent)  # a run that was renamed is no run without rows
            if self.file.is_file():
                return True
        is_there = os.path.lexists(self.file)
        if not (is_there or os.path.lexists(self.copy) or self.is_expected()):
            return False
        if self.file.is_file():  # another process has just made it
            return True
        raise self._damaged("it is no file" if is_there else "it is gone")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction."""
        problem = f"{self.what} was not kept"
        with self._explained(problem):
            if not self._exists(problem):
                self.create_empty()
            with contextlib.closing(self._connect()) as db:
                self._check(db)  # before the transaction, in which no copy can be compared with
                db.execute("BEGIN IMMEDIATE")
                try:
                    self._check(db)
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):  # a full disk has ended it already
                        if db.in_transaction:
                            db.execute("ROLLBACK")
                    raise
                self._copy_rows(db)
            self._write_seal()

    def _copy_rows(self, db: sqlite3.Connection) -> None:
        """Give the copy the rows that it lacks; where that fails, or a power loss undoes it, the next write does.

        The copy is not synced, as the file is: with that, a mark took 67 ms instead of 32 on a busy machine.
        """
        try:
            if not self.copy.is_file():
                self._discard_copy()
                os.close(os.open(self.copy, os.O_CREAT | os.O_EXCL, 0o600))
                with contextlib.closing(sqlite3.connect(self.copy)) as copy:
                    db.backup(copy)  # page by page: a tenth of the time of its rows
                    copy.execute("PRAGMA journal_mode = DELETE")
                return
            db.execute("ATTACH ? AS copy", (os.fspath(self.copy),))
            db.execute("PRAGMA copy.synchronous = OFF")
            for table in _tables(db):
                columns = ", ".join(("rowid", *_columns(db, table)))
                db.execute(
                    f"INSERT INTO copy.{table} ({columns}) SELECT {columns} FROM main.{table} "
                    f"WHERE rowid > (SELECT coalesce(max(rowid), 0) FROM copy.{table})"
                )
        except sqlite3.Error as error:
            if not _may_pass(error):
                self._discard_copy()
        except OSError:
            pass

    def _discard_copy(self) -> None:
        for suffix in ("", "-journal"):
            discard(self.copy.with_name(self.copy.name + suffix))

    def create_empty(self) -> None:
        """Make the file with its tables in one step: one without them is damaged."""
        temporary = self.file.with_name(f"{self.file.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o600))
            with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as db:
                for statement in self.schema.split(";\n\n"):
                    db.execute(statement)
                for table in _tables(db):
                    db.execute(f"ALTER TABLE {table} ADD COLUMN {_CHECKSUM} INTEGER")
            sync(temporary)
            with contextlib.suppress(FileExistsError):  # another process was first
                os.link(temporary, self.file)
            sync(self.file.parent)
        finally:
            temporary.unlink(missing_ok=True)

    def damage(self) -> str | None:
        """Look through the file; return what is wrong with it, in one line, or None."""
        try:
            with self._reading(thorough=True):
                pass
        except UserError as error:
            return str(error)
        return None

    def renew_copy(self) -> None:
        """Write the copy again from the file, if there is one."""
        if os.path.lexists(self.file):
            self._discard_copy()
            with self._writing():
                pass

    def rebuild(self) -> tuple[int, int]:
        """Make the file again from its copy and what can be read of itself; return how many rows it has, and lacks.

        The damaged file is kept, as ``.damaged``.
        """
        kept = self.file.with_name(f"{self.file.name}.damaged")
        new = type(self)(self.file.with_name(f"{self.file.name}.tmp"))
        discard(new.file)
        new.create_empty()
        n_rows = n_lost = 0
        with contextlib.closing(sqlite3.connect(new.file)) as db:
            for table in _tables(db):
                columns = _columns(db, table)
                rows = _whole_rows(self.file, table, columns) | _whole_rows(self.copy, table, columns)
                numbers = []
                for number in sorted(rows):
                    with contextlib.suppress(sqlite3.Error):  # it breaks a rule: file and copy went different ways
                        insert_row(db, table, rows[number])
                        numbers.append(number)
                n_rows += len(numbers)
                n_lost += max(numbers, default=0) - len(numbers)
            db.commit()
        sync(new.file)
        if os.path.lexists(self.file):
            discard(kept)
            self.file.rename(kept)
        for suffix in ("-wal", "-shm"):
            discard(self.file.with_name(self.file.name + suffix))
        new.file.rename(self.file)
        sync(self.file.parent)
        return n_rows, n_lost

    def _check(self, db: sqlite3.Connection, *, thorough: bool = False) -> bool:
        """Compare rows with their checksums, each once per process; return whether all were, or raise DamagedFile.

        Where the file has the checksum that the last write left it with, only a `thorough` check compares rows that
        were there before, with those of the copy; otherwise also indexes with their tables, which takes longer.
        """
        key = os.path.abspath(self.file), os.stat(self.file).st_ino
        if not (tables := _tables(db)):
            raise DamagedFile("it is empty")
        if thorough:
            _checked.pop(key, None)
        done = _checked.get(key, {})
        has_seal = not done and self._has_seal()
        if has_seal and not thorough:
            done = {table: db.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0 for table in tables}
        if is_new := not done:
            (verdict,) = ("ok",) if has_seal else db.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise DamagedFile(" ".join(verdict.split()))
            done = self._same_as_copy(db, tables)
        for table in tables:
            names = sorted(name for name in _columns(db, table) if name != _CHECKSUM)
            text = _row_format(names)
            query = f"SELECT rowid, {_CHECKSUM}, {', '.join(names)} FROM {table} WHERE rowid > ? ORDER BY rowid"
            last = done.get(table, 0)
            for rowid, checksum, *values in db.execute(query, (last,)):
                if checksum != _crc32_of(text, values):
                    raise DamagedFile(f"row {rowid} of {table} does not have the checksum it was written with")
                last = rowid
            done = done | {table: last}
        _checked[key] = done
        return is_new

    def _same_as_copy(self, db: sqlite3.Connection, tables: Sequence[str]) -> dict[str, int]:
        """Return the row of each table up to which the copy has the same ones, checksums and all: these are whole.

        SQLite compares 100,000 rows in a tenth of the time that their checksums take.
        """
        if db.in_transaction or not self.copy.is_file():
            return {}
        last = {}
        try:
            db.execute("ATTACH ? AS copy", (os.fspath(self.copy),))
            for table in tables:
                same = " AND ".join(f"other.{name} IS own.{name}" for name in ("rowid", *_columns(db, table)))
                unlike = f"NOT EXISTS (SELECT 1 FROM copy.{table} AS other WHERE {same})"
                query = f"SELECT coalesce(max(rowid), 0), min(rowid) FILTER (WHERE {unlike}) FROM main.{table} AS own"
                n_rows, first = db.execute(query).fetchone()
                last[table] = n_rows if first is None else first - 1
        except sqlite3.Error:  # of the copy, or of the file, which is looked through then
            return {}
        finally:
            with contextlib.suppress(sqlite3.Error):
                db.execute("DETACH copy")
        return last

    # Comparing each of 100,000 rows takes a second, and reading their file 20 ms. So a file beside it holds its
    # checksum, as the last write or comparison left it: where that fits, rows are not compared.

    def _write_seal(self) -> None:
        with contextlib.suppress(OSError):  # without it, the next process compares the rows
            if not self._has_log():
                self.seal.write_text(json.dumps(sealed({"crc32": file_crc32(self.file)})))

    def _has_seal(self) -> bool:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            seal = json.loads(self.seal.read_text())
            check_seal(seal)
            return not self._has_log() and file_crc32(self.file) == seal["crc32"]
        return False

    def _has_log(self) -> bool:
        """Whether another connection keeps rows that are not in the file yet."""
        log = self.file.with_name(f"{self.file.name}-wal")
        return log.exists() and log.stat().st_size > 0

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.file, isolation_level=None, timeout=30)
        try:
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")  # on disk, not only out of the process
        except BaseException:
            db.close()
            raise
        return db

    def _connect_to_read(self) -> sqlite3.Connection:
        """Return a connection, or a copy in memory where SQLite cannot write the files that it needs to read."""
        try:
            return self._connect()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _CANNOT_WRITE:
                raise
            return opened_in_memory(self.file)

    @contextlib.contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        with system_errors_explained(self.file, problem, "fix this, then try again"):
            try:
                yield
            except sqlite3.Error as error:
                if _may_pass(error):
                    raise
                raise self._damaged(error) from None
            except (DamagedFile, UnicodeDecodeError) as error:
                raise self._damaged(error) from None

    def _damaged(self, error: Exception | str) -> UserError:
        return UserError(f"{self.file}: damaged ({error}); {repair_hint(self.file)}")


def _may_pass(error: sqlite3.Error) -> bool:
    """Whether an error is of the system or of another process, and not damage."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _MAY_PASS


def _whole_rows(file: Path, table: str, columns: list[str]) -> dict[int, dict[str, Any]]:
    """The rows of a table that can be read, from both ends, and have the checksum they were written with, by number."""
    rows = {}
    for order in ("", " DESC"):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True)) as db,
        ):
            db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            known = [name for name in columns if name in _columns(db, table)]
            query = f"SELECT rowid, {', '.join(known)} FROM {table} ORDER BY rowid{order}"
            for number, *values in db.execute(query):
                row = dict(zip(known, values, strict=True))
                if row.pop(_CHECKSUM, None) == _row_crc32(row):
                    rows[number] = row
    return rows


def append_row(db: sqlite3.Connection, table: str, row: dict[str, Any]) -> int:
    """Add a row with its time (UTC, ISO 8601); return its number."""
    (last,) = db.execute(f"SELECT max(number) FROM {table}").fetchone()
    number = 1 + (last or 0)
    time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    insert_row(db, table, {"number": number, "time": time, **row})
    return number


def append_step(db: sqlite3.Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows that are undone as a whole: with one time, and the number of the first as their step."""
    step = 1 + (db.execute(f"SELECT max(number) FROM {table}").fetchone()[0] or 0)
    first = append_row(db, table, {"step": step} | rows[0])
    (time,) = db.execute(f"SELECT time FROM {table} WHERE number = ?", (first,)).fetchone()
    for number, row in enumerate(rows[1:], start=first + 1):
        insert_row(db, table, {"number": number, "time": time, "step": step} | row)


def insert_row(db: sqlite3.Connection, table: str, row: dict[str, Any], *, unless_known: bool = False) -> None:
    """Add a row with its checksum."""
    row = row | dict.fromkeys(set(_columns(db, table)) - row.keys())
    row[_CHECKSUM] = _row_crc32({name: value for name, value in row.items() if name != _CHECKSUM})
    how = "OR IGNORE " if unless_known else ""
    query = f"INSERT {how}INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    db.execute(query, tuple(row.values()))


def _row_crc32(row: dict[str, Any]) -> int:
    """The checksum of a row; a number counts as it is read, which may be another type than was written."""
    names = sorted(row)
    return _crc32_of(_row_format(names), [row[name] for name in names])


def _row_format(names: list[str]) -> str:
    """The text of a row that its checksum is of, as of a list of pairs."""
    return f"[{', '.join(f'({name!r}, %r)' for name in names)}]"


def _crc32_of(text: str, values: Sequence[Any]) -> int:
    cells = tuple(float(value) if isinstance(value, int) else value for value in values)
    return zlib.crc32((text % cells).encode("utf-8", "backslashreplace"))


def _tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
