"""Errors of the system in one line."""

import errno
import sqlite3
from concurrent.futures.process import BrokenProcessPool

import pytest

from visterm.pipeline.errors import (
    FEWER_WORKERS,
    FIX_AND_RESUME,
    MORE_MEMORY,
    UserError,
    explain_system_error,
    is_disk_full,
    system_errors_explained,
)

FULL = OSError(errno.ENOSPC, "No space left on device", "a.npy")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FULL, "a.npy: No space left on device"),
        (OSError(errno.EIO, "Input/output error", b"b.npy"), "b.npy: Input/output error"),
        (OSError("no reason"), "no reason"),
        (sqlite3.OperationalError("disk I/O error"), "catalogue.sqlite: disk I/O error"),
        (sqlite3.DatabaseError("malformed"), "catalogue.sqlite: malformed"),
    ],
)
def test_the_system_in_one_line(error, line):
    assert explain_system_error(error) == f"{line}; {FIX_AND_RESUME}"


def test_a_file_that_sqlite_cannot_open_is_explained(tmp_path):
    """Of a run on a read-only disk, it was "unable to open database file" alone."""
    with pytest.raises(sqlite3.OperationalError) as caught:
        sqlite3.connect(tmp_path / "none/marks.sqlite")
    line = explain_system_error(caught.value, "marks.sqlite", advice="")
    assert line == "marks.sqlite: unable to open database file: a folder that cannot be written, or too many open files"


def test_faults_of_the_program_are_not_explained_unless_the_caller_says_where():
    for error in (ValueError("x"), sqlite3.IntegrityError("x"), sqlite3.ProgrammingError("x")):
        assert explain_system_error(error) is None
        with pytest.raises(type(error)), system_errors_explained("runs/a"):
            raise error
    with (
        pytest.raises(UserError, match=r"^runs/a: the mark was not kept \(No space left on device\)$"),
        system_errors_explained("runs/a", "the mark was not kept", ""),
    ):
        raise FULL


def test_full_disks_and_broken_installations():
    assert is_disk_full(FULL)
    assert is_disk_full(sqlite3.OperationalError("database or disk is full"))
    assert not is_disk_full(OSError(errno.EIO, "Input/output error"))
    assert explain_system_error(ImportError("x.so: undefined symbol: y")) is None
    assert explain_system_error(ImportError("x.so: cannot allocate memory in static TLS block")) is None
    killed = "a worker process was killed, probably by the system for want of memory"
    for text, reason in (
        ("A process in the process pool was terminated abruptly", killed),
        ("... The exit codes of the workers are {SIGKILL(-9), SIGTERM(-15)} Detailed tracebacks", killed),
        ("The exit codes of the workers are {SIGSEGV(-11)}", "a worker process ended unexpectedly (SIGSEGV(-11))"),
    ):
        assert explain_system_error(BrokenProcessPool(text)) == f"{reason}; {FEWER_WORKERS}"
    assert explain_system_error(BrokenProcessPool("A task has failed to un-serialize.")) is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out of memory"),
        (MemoryError("Unable to allocate 8.00 GiB"), "out of memory (Unable to allocate 8.00 GiB)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory (Cannot allocate memory)"),
        (ImportError("Read this!\n x.so: failed to map segment"), "out of memory (x.so: failed to map segment)"),
        (RuntimeError("can't start new thread"), "out of memory (can't start new thread)"),
        (RuntimeError("std::bad_alloc"), "out of memory (std::bad_alloc)"),
    ],
)
def test_want_of_memory(error, reason):
    assert explain_system_error(error) == f"{reason}; {MORE_MEMORY}"
    later = OSError("Could not find libllvmlite.so")  # as llvmlite says it
    later.__cause__ = error
    assert explain_system_error(later) == f"{reason}; {MORE_MEMORY}"
