"""Writing files and folders so that a kill leaves the old one or the new one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def write_text(file: Path, text: str) -> None:
    """Write a text file so that a kill leaves the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    os.replace(temporary, file)


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file that a user named so that an error or a kill leaves the old one or the new one."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def publish(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """Give a temporary folder to fill, then put it in the place of ``folder``, with its record.

    Parameters
    ----------
    folder : Path
        Replaced if it exists.
    record : dict
        Written last, as record.json; may still be added to while the folder is filled.

    Yields
    ------
    Path
        The temporary folder. The sizes of what is in it at the end are noted in the record.

    Notes
    -----
    A kill leaves the old artifact or the new one: the next run that locks the folder undoes the one moment in between,
    and sweeps up. An exception leaves the old one.
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
    """Put back what a kill left between two renames, and remove what it left half-written."""
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
