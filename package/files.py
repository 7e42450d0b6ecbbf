"""Files that are written in one step: a kill leaves the old file or the new one."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replaced(file: Path) -> Iterator[IO[bytes]]:
    """Yield a stream, and put what was written to it in the place of a file in one step.

    An error or a kill leaves the old file or the new one. Of two threads or processes that write the same file, the
    last one wins. A link stays, and leads to the new file; devices and pipes are written as they are.
    """
    if os.fspath(file).startswith(("/dev/std", "/dev/fd/", "/proc/")) or _is_device(file):
        with open(file, "ab") as stream:
            yield stream
        return
    name, file = file, Path(os.path.realpath(file))
    temporary = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a power loss could leave the new name with no bytes
        os.replace(temporary, file)
    except OSError as error:
        if error.filename == os.fspath(temporary):
            error.filename = os.fspath(name)
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _is_device(file: Path) -> bool:
    """Whether there is something else than a file or a folder."""
    return file.exists() and not file.is_file() and not file.is_dir()


def exchanged(one: Path, other: Path) -> bool:
    """Exchange two files or folders in one step; False where the system, or the file system, cannot.

    Linux can, on most of its file systems, but not on NFS.
    """
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another system, or an old libc
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    return renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
