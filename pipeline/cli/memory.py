"""Memory that must be there before NumPy and SciPy are imported."""

from __future__ import annotations

import mmap
import os
import sys

ADDRESS_SPACE = 1 << 30  # the imports and first steps of most commands map that much, and touch a third of it
_PER_CORE = 1 << 30


def check_memory() -> None:
    """Raise MemoryError where NumPy and SciPy cannot be loaded for want of address space (ulimit -v).

    OpenBLAS, which they bring, raises no error without memory: it tries again for ever, or ends the process. Each copy
    starts a thread per core at once, with a stack of its own; under a small limit it may start none.
    """
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _PER_CORE * (os.cpu_count() or 1):
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        mmap.mmap(-1, ADDRESS_SPACE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()  # reserved, not used
    except OSError:
        raise MemoryError(f"{ADDRESS_SPACE >> 20} MB of address space are not free") from None
