"""An SQLite file that rows are only added to."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from visterm.pipeline.errors import UserError


class AppendOnlyStore:
    """An SQLite file that is only added to.

    What was written is on disk when the call returns, and stays there when the process is killed. Any number of
    threads and processes may write: each call has a connection of its own. Nothing is made before the first write.

    Parameters
    ----------
    file : Path
    """

    schema = ""
    what = "what was to be written"  # for messages

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """Yield a connection, or None where nothing was written yet."""
        if not self.file.exists():
            yield None
            return
        with self._explained("cannot be read"), contextlib.closing(self._connect()) as db:
            has_tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            yield db if has_tables else None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in a transaction: all of it is written, or nothing."""
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
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:  # a full disk, no permission
            raise UserError(f"{self.file}: {what} ({error}); mend this, then try again") from None
        except sqlite3.DatabaseError as error:
            raise UserError(f"{self.file}: damaged ({error}); move it away to begin a new one") from None
        except OSError as error:
            raise UserError(f"{self.file}: {what} ({error.strerror}); mend this, then try again") from None
