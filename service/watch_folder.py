"""Watch the directory of images of a run, and add what appears in it, in a process of low priority.

``python -m visterm.service.watch_folder runs/<run>`` prints lines of JSON until it is ended. A file that is still being
written, or a directory that is not there, is tried again; what was removed from the collection stays removed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from visterm.features.images import list_images
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.stages.edit import add
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.pipeline.workers import work_for_service

from .add_files import AT_ONCE

SETTLED = 1.0  # seconds since the last change of a file that is taken as written
AGAIN = 2.0  # seconds until what could not be added is tried again


class FolderWatch:
    """Adds new and changed images below the root of a run; `pending`: something has to be tried again soon."""

    def __init__(self, run: Run, tell: Callable[[dict[str, Any]], None]):
        self.run, self._tell = run, tell
        self.pending = False

    def add(self) -> None:
        """Add what is there and settled."""
        problem = None
        try:
            files, self.pending = unknown_files(self.run)
            for start in range(0, len(files), AT_ONCE):
                self._tell({"done": start, "total": len(files), "problem": None})
                part = files[start : start + AT_ONCE]
                add(self.run, self.run.configure(None, []), part, Console(quiet=True))
        except (UserError, OSError) as error:  # another process writes to the run, or the directory is not there
            problem, self.pending = str(error), True
        self._tell({"done": 0, "total": 0, "problem": problem})

    def follow(self) -> None:
        """Add what is there, and then what appears, for good."""
        import watchfiles

        while True:
            self.add()
            root = _root(self.run)
            if root is None or not root.is_dir():
                time.sleep(AGAIN)
                continue
            self.pending = True  # a file may have appeared before the watch begins
            with contextlib.suppress(OSError):  # it has just disappeared
                for changes in watchfiles.watch(root, rust_timeout=int(1000 * AGAIN), yield_on_timeout=True):
                    if not root.is_dir():
                        break
                    if changes or self.pending:
                        self.add()


def unknown_files(run: Run) -> tuple[list[Path], bool]:
    """Return images below the root that the catalogue has not, or not as they are, and whether others are not settled.

    Those that were removed stay so, and files that could not be read are tried again once they change.
    """
    config = run.configure(None, [])
    with system_errors_explained(run.folder):
        root = _root(run)
    if root is None:
        return [], False
    there = {os.path.relpath(file, root): Path(file) for file in list_images(root)}
    with system_errors_explained(run.folder), Collection(run.collection) as collection:
        query = "SELECT path, size, mtime_ns, status FROM images WHERE status != 'removed'"
        known = {os.fsdecode(path): tuple(row) for path, *row in collection.execute(query)}
        unfit = collection.unfit(there, config)
    files, waiting = [], False
    for name, file in there.items():
        size, mtime_ns, status = known.get(name, (None, None, None))
        if name in unfit or status == "excluded":
            continue
        with contextlib.suppress(OSError):  # gone again
            at = file.stat()
            if (at.st_size, at.st_mtime_ns) == (size, mtime_ns):
                continue
            # A camera whose clock is wrong, or a copy that keeps times, dates files into the future.
            if abs(time.time() - min(at.st_mtime, at.st_ctime)) < SETTLED:
                waiting = True
            else:
                files.append(file)
    return files, waiting


def _root(run: Run) -> Path | None:
    with Collection(run.collection) as collection:
        return collection.root


def _main(folder: str) -> int:
    return work_for_service(lambda tell: FolderWatch(Run(Path(folder)), tell).follow())


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
