"""An append-only SQLite file: the base of relevance marks and judgements."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visterm.pipeline.errors import UserError, system_errors_explained


class AppendOnlyStore:
    """An append-only SQLite file, made by the first write.

    Rows are on disk when a write returns. Each call opens its own connection, so any number of threads and processes
    may write.
    """

    schema = ""
    what = "the row"  # for messages

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection, or None before the first write."""
        if not self.file.exists():
            yield None
            return
        with self._explained("cannot be read"), contextlib.closing(self._connect()) as db:
            has_tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            yield db if has_tables else None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction."""
        with self._explained(f"{self.what} was not kept"):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._connect()) as db:
                db.execute("BEGIN IMMEDIATE")
                try:
                    if not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                        for statement in self.schema.split(";\n\n"):
                            db.execute(statement)
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:  # a full disk has ended it already
                        db.execute("ROLLBACK")
                    raise

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

    @contextlib.contextmanager
    def _explained(self, problem: str) -> Iterator[None]:
        with system_errors_explained(self.file, problem, "fix this, then try again"):
            try:
                yield
            except sqlite3.OperationalError:  # a full disk, no permission
                raise
            except sqlite3.DatabaseError as error:
                raise UserError(f"{self.file}: damaged ({error}); move it away to start a new one") from None


def append_row(db: sqlite3.Connection, table: str, row: dict[str, Any]) -> int:
    """Add a row with its time (UTC, ISO 8601); return its number."""
    row = {"time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"), **row}
    cursor = db.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid
