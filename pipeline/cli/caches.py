"""Where compiled kernels and fonts are cached if neither the package nor the home can be written.

So it is in a container with a numeric user, and for a service without a home. Numba and Matplotlib then have no place.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

_ROOMS = Path(__file__).parents[2]


def prepare_caches() -> str | None:
    """Give Numba and Matplotlib a folder of this user below TMPDIR, where their own places cannot be written.

    Without such a folder kernels are compiled again in each process. Return a line to say: of a new folder, or of none.
    """
    cache, config = (_of_user(name, place) for name, place in (("CACHE", ".cache"), ("CONFIG", ".config")))
    numba = "NUMBA_CACHE_DIR" in os.environ or _takes_files(_ROOMS / "retrieval/__pycache__", cache / "numba")
    fonts = "MPLCONFIGDIR" in os.environ or all(_takes_files(place / "matplotlib") for place in (cache, config))
    if numba and fonts:
        return None
    advice = "set NUMBA_CACHE_DIR and MPLCONFIGDIR to folders that are kept"
    with contextlib.suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"visterm-{os.getuid()}"
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # Numba's files are code: nobody else may have put any here.
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
            if not numba:
                os.environ["NUMBA_CACHE_DIR"] = os.fspath(folder / "numba")
            if not fonts:
                os.environ["MPLCONFIGDIR"] = os.fspath(folder / "matplotlib")
            why = "as neither the package nor the home can be written"
            return f"{folder}: kernels are compiled into this folder, {why}; {advice}" if is_new else None
    if numba:
        return None
    from numba.core.dispatcher import Dispatcher

    Dispatcher.enable_caching = lambda self: None  # type: ignore[method-assign]  # of Numba: kernels stay in memory
    return f"kernels are compiled anew by each command, as no folder for them can be written; {advice}"


def _of_user(name: str, default: str) -> Path:
    return Path(os.path.expanduser(os.environ.get(f"XDG_{name}_HOME") or f"~/{default}"))


def _takes_files(*folders: Path) -> bool:
    """Whether one of some folders can be written, or made."""
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if folder.is_absolute() and os.access(there, os.W_OK | os.X_OK):
            return True
    return False
