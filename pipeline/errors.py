"""Errors that the user can fix, and the one place that turns errors of the system into one line."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator

FIX_AND_RESUME = "fix this, then re-run the same command to resume"
MORE_MEMORY = "free some memory or raise the limit (ulimit -v), then re-run the same command to resume"
FEWER_WORKERS = "set compute.n_jobs to 1 (--set or config.yaml), or free some memory; re-run the same command to resume"


class UserError(Exception):
    """An error the user can fix: one line, exit code 2."""


class NothingToSearch(UserError):
    """A run has no images yet."""


class RunChanged(UserError):
    """Files of a run are no longer those of the run as it was opened; one that is opened again has them."""


def system_reason(error: BaseException) -> str | None:
    """Return the reason that the system or SQLite gives, such as "No space left on device" or "out of memory".

    None if the error is neither of the operating system, nor of an SQLite file, nor a lack of memory, nor the end of a
    worker process.
    """
    import sqlite3
    from concurrent.futures import BrokenExecutor

    if (shortage := _want_of_memory(error)) is not None:
        return "out of memory" + _in_brackets(shortage)
    if isinstance(error, OSError):
        if (numbers := _SHORT_WRITE.match(str(error))) is not None:  # of NumPy, which does not say why
            return f"{_FULL}: {int(numbers[2]):,} of {int(numbers[1]):,} numbers of an array were written"
        return error.strerror or str(error)
    if isinstance(error, BrokenExecutor):
        return _end_of_worker(str(error))
    # Other subclasses of DatabaseError are faults of a statement; the class itself means a damaged file.
    if isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError:
        if is_disk_full(error):
            return f"disk full: {os.strerror(errno.ENOSPC)}"
        code = getattr(error, "sqlite_errorcode", 0)
        why = _FULL if code in _FAILED_WRITES else _UNWRITABLE if code & 0xFF == sqlite3.SQLITE_CANTOPEN else ""
        return f"{error}: {why}" if why else str(error)
    return None


def _want_of_memory(error: BaseException | None) -> BaseException | None:
    """Return the error, or the one that led to it, that is a lack of memory: of an array, a thread or an import."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return error
        if _NO_MEMORY.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


# What the loader of shared objects, threads, NumPy, OpenCV and C++ say; the static TLS block is another shortage.
_NO_MEMORY = re.compile(
    "failed to map segment|cannot allocate memory(?! in static TLS)|can't start new thread|(unable|failed) to allocate|"
    r"insufficient memory|bad_alloc|\bMemoryError\b",
    re.IGNORECASE,
)


def _in_brackets(error: BaseException) -> str:
    """Return the line of an error's text that tells which memory, in brackets; nothing if it has no text."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f" ({next((line for line in lines if _NO_MEMORY.search(line)), lines[0])})" if lines else ""


def _end_of_worker(text: str) -> str | None:
    """Tell why a worker process ended, from the message of joblib or of the standard library."""
    if "serialize" in text:  # a task that could not be sent: a fault of the program
        return None
    codes = re.search(r"exit codes of the workers are \{(.*?)\}", text)  # the standard library does not tell them
    if codes is None or "SIGKILL" in codes[1]:
        return "a worker process was killed, probably by the system for want of memory"
    return f"a worker process ended unexpectedly ({codes[1]})"


_FULL = "a full disk, a quota or a limit of file sizes"
_UNWRITABLE = "a folder that cannot be written, or too many open files"
# SQLite says no more of a write that failed, unless the disk itself is full: SQLITE_IOERR with WRITE, FSYNC, TRUNCATE,
# SHMSIZE and SHMMAP.
_FAILED_WRITES = {10 | kind << 8 for kind in (3, 4, 6, 19, 21)}


def explain_system_error(
    error: BaseException, where: str | os.PathLike[str] | None = None, problem: str = "", advice: str | None = None
) -> str | None:
    """Turn an error of the system into one line, "where: problem (reason); advice"; None as for `system_reason`.

    By default ``where`` is the file that the error names. ``problem`` is the failed operation, such as "cannot be
    read"; ``advice`` says what to do, or what still works. Both may be empty; None is the advice for this error.
    """
    import sqlite3
    from concurrent.futures import BrokenExecutor

    reason = system_reason(error)
    if reason is None:
        return None
    if where is None and isinstance(error, OSError):
        where = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else None
    elif where is None and isinstance(error, sqlite3.Error):
        where = "catalogue.sqlite"  # SQLite does not tell
    if advice is None:
        if _want_of_memory(error) is not None:
            advice = MORE_MEMORY
        else:
            advice = FEWER_WORKERS if isinstance(error, BrokenExecutor) else FIX_AND_RESUME
    line = f"{problem} ({reason})" if problem else reason
    return (f"{os.fspath(where)}: " if where is not None else "") + line + (f"; {advice}" if advice else "")


@contextlib.contextmanager
def naming(where: str | os.PathLike[str], n_bytes: int | None = None) -> Iterator[None]:
    """Name a file or folder in errors of writing that name none, and how much it needs, if that is known."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        reason = system_reason(error) or str(error)
        if n_bytes is not None and is_disk_full(error):
            reason += f"; it needs {n_bytes / 1e6:,.1f} MB"
        code = error.errno or (errno.ENOSPC if is_disk_full(error) else errno.EIO)
        raise OSError(code, reason, os.fspath(where)) from error


@contextlib.contextmanager
def system_errors_explained(
    where: str | os.PathLike[str] | None = None, problem: str = "", advice: str | None = None
) -> Iterator[None]:
    """Raise errors of the system as `UserError`, in the words of `explain_system_error`."""
    try:
        yield
    except Exception as error:
        if (line := explain_system_error(error, where, problem, advice)) is None:
            raise
        raise UserError(line) from error


def is_disk_full(error: BaseException | None) -> bool:
    """Whether the system, SQLite or NumPy refused to write because a disk or a quota is full."""
    text = str(error)
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in text
    return full or (isinstance(error, OSError) and _SHORT_WRITE.match(text) is not None)


_SHORT_WRITE = re.compile("([0-9]+) requested and ([0-9]+) written")
