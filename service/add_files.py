"""Add the photos that were given to the service, which lie in runs/<run>/added, in a process of low priority.

``python -m visterm.service.add_files runs/<run>`` prints a line of JSON per step. SIGTERM ends it after the
photos that it is at; the others wait for the next time. Files that turn out not to be images are deleted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from visterm.pipeline.console import Console
from visterm.pipeline.errors import system_errors_explained
from visterm.pipeline.stages.edit import add
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import discard
from visterm.pipeline.store.run import Run
from visterm.pipeline.workers import work_for_service

AT_ONCE = 16  # photos between two reports; a cancelled process ends after them


def waiting_files(run: Run) -> dict[Path, int | None]:
    """Return the photos given to the service that are not added yet, in order of name.

    Of one that was removed, and given again since, with the time of the file that was removed.
    """
    with contextlib.suppress(FileNotFoundError):
        times = {file: file.stat().st_mtime_ns for file in sorted(run.added.iterdir()) if file.suffix != ".tmp"}
        with system_errors_explained(run.folder), Collection(run.collection) as collection:
            if collection.root is None:
                return dict.fromkeys(times)
            query = "SELECT path, status, mtime_ns FROM images WHERE status IN ('ok', 'excluded')"
            there = {os.fsdecode(path): known for path, *known in collection.execute(query)}
            known = [there.get(name, ("", None)) for name in collection.names(times)]
        return {
            file: removed
            for (file, now), (status, removed) in zip(times.items(), known, strict=True)
            if status != "ok" and removed != now
        }
    return {}


def discard_waiting(run: Run, names: Iterable[str] | None = None) -> int:
    """Delete photos given to the service that were never added, of these names or all; return how many waited."""
    files, some = waiting_files(run), None if names is None else set(names)
    files = {file: removed for file, removed in files.items() if some is None or file.name in some}
    for file, removed in files.items():
        if removed is None:
            discard(file)
        else:  # its removal may be undone
            os.utime(file, ns=(removed, removed))
    return len(files)


class RefusedPhoto(TypedDict):
    """A photo that could not be added."""

    name: str
    reason: str


class AddedPhotos(TypedDict):
    """The number of photos that were added, and those that could not be."""

    added: int
    refused: list[RefusedPhoto]


def add_waiting(
    run: Run, tell: Callable[[int, int], None], is_cancelled: Callable[[], bool] = lambda: False
) -> AddedPhotos:
    """Add the photos given to the service, some at a time; UserError as of `add`: the photos wait for the next time.

    `tell` is called with the number of photos that are done, and of all. `is_cancelled` is asked before each part; once
    it returns True, the other photos wait.
    """
    config, console = run.configure(None, []), Console(quiet=True)
    files = list(waiting_files(run))
    n_added = 0
    refused: list[RefusedPhoto] = []
    for start in range(0, len(files), AT_ONCE):
        if is_cancelled():
            break
        tell(start, len(files))
        done = add(run, config, files[start : start + AT_ONCE], console)
        n_added += done["added"] + done["changed"] - done["skipped"]
        for one in done["refused"]:
            name = os.path.basename(one["path"])
            refused.append({"name": name, "reason": one["reason"]})
            discard(run.added / name)
    return {"added": n_added, "refused": refused}


def _main(folder: str) -> int:
    cancelled = False

    def cancel(number: int, frame: Any) -> None:
        nonlocal cancelled
        cancelled = True

    def work(tell: Callable[[Any], None]) -> AddedPhotos:
        run = Run(Path(folder))
        return add_waiting(run, lambda done, total: tell({"done": done, "total": total}), lambda: cancelled)

    signal.signal(signal.SIGTERM, cancel)
    return work_for_service(work, niceness=5)  # searches come first, but somebody waits for it


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
