"""Atomic writes of files and folders, and locks: a kill leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from visterm.pipeline.errors import UserError, explain_system_error


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file in one step: an error or a kill leaves the old one or the new one.

    Of two threads or processes that write the same file, the last one wins.
    """
    temporary = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, file)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_text(file: Path, text: str) -> None:
    """Write a text file as `write_bytes` does, and make its folder if there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, text.encode("utf-8", "surrogateescape"))


@contextlib.contextmanager
def locked(file: Path, *, wait: bool, advice: str = "") -> Iterator[bool]:
    """Hold an exclusive lock among threads and processes; the system releases it when the process dies.

    Without ``wait``, yield False at once if the lock is held. The file is made if it does not exist, and stays. If it
    cannot be written, UserError ends with ``advice``.
    """
    from filelock import FileLock, Timeout  # imported late: `visterm --help` does not need it

    lock = FileLock(file, blocking=wait)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
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
def publish(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """Yield a temporary folder to fill, then replace ``folder`` with it.

    The record, to which the caller may add meanwhile, is written last, as record.json with the size of each file. An
    exception or a kill leaves the old artifact or the new one: a kill between the two renames is undone by `recover`,
    the next time that the run is locked.
    """
    temporary, old = folder.with_name(f"{folder.name}.tmp"), folder.with_name(f"{folder.name}.old")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        record["sizes"] = {os.fspath(path.relative_to(temporary)): path.stat().st_size for path in files}
        write_text(temporary / "record.json", json.dumps(record, indent=1))
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def recover(place: Path) -> None:
    """Restore artifacts that a kill left between two renames, and remove half-written ones."""
    for old in place.glob("*.old"):
        if old.with_suffix("").exists():
            shutil.rmtree(old)
        else:
            old.rename(old.with_suffix(""))
    for temporary in place.glob("*.tmp"):
        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()


def file_sha256(path: str | Path) -> str | None:
    """SHA-256 of a file's bytes in hexadecimal, or None where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
