"""Memory that must be there before something large is imported."""

from __future__ import annotations

import mmap
import os
import sys

START = 64 << 20  # three times what the command line needs until a command begins
COMMAND = 1 << 30  # the imports and first steps of most commands map that much, and touch a third of it
_PER_CORE = 1 << 30


def check_memory(n_bytes: int) -> None:
    """Raise MemoryError where ``n_bytes`` of address space (ulimit -v) are not free.

    Some libraries raise no error without memory: Pydantic's and OpenBLAS, which NumPy and SciPy bring, end the process
    or try again for ever, and Python raises errors of any kind. Each copy of OpenBLAS starts a thread per core at once,
    with a stack of its own; under a small limit it may start none.
    """
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _PER_CORE * (os.cpu_count() or 1):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()  # reserved, not used
    except OSError:
        raise MemoryError(f"{n_bytes >> 20} MB of address space are not free") from None
