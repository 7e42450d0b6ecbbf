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
    last one wins.
    """
    temporary = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())  # or a power loss could leave the new name with no bytes
        os.replace(temporary, file)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
