"""Atomic writes of files and folders, and locks: a kill leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from visterm.files import exchanged, replaced
from visterm.pipeline.errors import UserError, explain_system_error, naming

from .checksums import Record, files_crc32, sealed
from .records import versions


def discard_leftovers(file: Path) -> None:
    """Remove what processes that were killed have left of writing a file: see `replaced`."""
    for path in file.parent.glob(f"{glob.escape(file.name)}.*-*.tmp"):
        pid = path.name.removeprefix(f"{file.name}.").partition("-")[0]
        if pid.isdecimal() and not _is_alive(int(pid)):
            discard(path)


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine runs."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # of another user
        return True
    return True


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file in one step: see `replaced`."""
    with naming(file), replaced(file) as stream:
        stream.write(data)


def sync(path: Path) -> None:
    """Wait until the bytes of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_record(file: Path, record: Mapping[str, Any]) -> None:
    """Write a record as JSON, with its own checksum."""
    write_text(file, json.dumps(sealed(record), indent=1))


def write_text(file: Path, text: str) -> None:
    """Write a text file in one step, and make its folder, but no folder above, if there is none."""
    file.parent.mkdir(exist_ok=True)
    write_bytes(file, text.encode("utf-8", "surrogateescape"))


def check_locks(folder: Path) -> None:
    """Raise UserError if files in a folder cannot be locked: without locks SQLite and others wait for them in vain."""
    if problem := _lock_problem(os.stat(folder).st_dev, folder):
        raise UserError(
            f"{folder}: this file system has no locks ({problem}), which keep two commands from writing at once; put "
            "the runs on another one (VISTERM_RUNS), or mount this one with locks"
        )


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_known_devices: dict[int, str | None] = {}  # what is wrong with the locks of a file system


def _lock_problem(device: int, folder: Path) -> str | None:
    if device not in _known_devices:
        problem = None
        try:
            import fcntl

            with tempfile.TemporaryFile(dir=folder) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows
            pass
        except OSError as error:  # or the folder cannot be written
            problem = error.strerror if error.errno in _NO_LOCKS else None
        _known_devices[device] = problem
    return _known_devices[device]


@contextlib.contextmanager
def locked(file: Path, *, wait: float | None, advice: str = "") -> Iterator[bool]:
    """Hold an exclusive lock among threads and processes; the system releases it when the process dies.

    Yield False if the lock is still held after ``wait`` seconds; None waits until it is free. The file is made if it
    does not exist, and stays. If it cannot be written, UserError ends with ``advice``.
    """
    from filelock import FileLock, Timeout  # imported late: `visterm --help` does not need it

    lock = FileLock(file, timeout=-1 if wait is None else wait)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        check_locks(file.parent)
        lock.acquire(poll_interval=0.02)
    except Timeout:
        yield False
        return
    except OSError as error:
        raise UserError(explain_system_error(error, file.parent, "cannot be written", advice)) from None
    try:
        yield True
    finally:
        lock.release()


@contextlib.contextmanager
def publish(folder: Path, record: Record) -> Iterator[Path]:
    """Yield a temporary folder to fill, then replace ``folder`` with it.

    The record, to which the caller may add meanwhile, is written last, as record.json with versions and the size and
    the checksum of each file. An exception, a kill or a power loss leaves the old artifact or the new one: where two
    folders cannot be exchanged in one step, a kill between two renames is undone by `recover`, the next time that the
    run is locked. The folder above is made if there is none, but no other: the run may have been renamed meanwhile.
    """
    temporary, old = folder.with_name(f"{folder.name}.tmp"), folder.with_name(f"{folder.name}.old")
    discard(temporary)
    temporary.parent.mkdir(exist_ok=True)
    temporary.mkdir()
    try:
        with naming(folder):
            yield temporary
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        record.setdefault("versions", versions())
        record["sizes"] = {os.fspath(path.relative_to(temporary)): path.stat().st_size for path in files}
        record["crc32"] = files_crc32(temporary, record["sizes"])
        for file in files:
            sync(file)
        write_record(temporary / "record.json", record)
        for inner in (*(path for path in temporary.rglob("*") if path.is_dir()), temporary):
            sync(inner)
        discard(old)
        if not (os.path.lexists(folder) and exchanged(temporary, folder)):
            if os.path.lexists(folder):
                folder.rename(old)
            temporary.rename(folder)
        sync(folder.parent)  # the new name must be on the disk before the old files go
        discard(old)
    finally:
        discard(temporary)


def recover(place: Path, *, unlocked: tuple[str, ...] = ()) -> None:
    """Restore artifacts that a kill left between two renames, and remove half-written ones.

    What matches a pattern of `unlocked` is written without the lock of the place: what is younger than an hour stays.
    """
    for path in (*place.glob("*.old"), *place.glob("*.tmp")):
        if any(path.match(pattern) for pattern in unlocked) and _is_young(path):
            continue
        if path.suffix == ".old" and not path.with_suffix("").exists():
            path.rename(path.with_suffix(""))
        else:
            discard(path)


def _is_young(path: Path) -> bool:
    """Whether a file was written, or a folder got its last file, within the hour."""
    try:
        return time.time() - path.lstat().st_mtime < 3600
    except FileNotFoundError:  # just now renamed
        return True


def discard(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def image_sha256(path: str | Path) -> str | None:
    """SHA-256 of an image file's bytes in hexadecimal, or None where `read_file` refuses it."""
    from visterm.features.images import ImageError, read_file

    try:
        return hashlib.sha256(read_file(path)).hexdigest()
    except ImageError:
        return None


def file_sha256(path: str | Path) -> str | None:
    """SHA-256 of a file's bytes in hexadecimal, or None where it cannot be read; see `image_sha256`."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
