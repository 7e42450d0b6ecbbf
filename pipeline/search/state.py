"""The on-disk state of a run, and objects made once per state."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.records import read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.sqlite_files import read_blocks
from visterm.pipeline.store.versions import LearnerVersions


class DiskState(NamedTuple):
    """The state of a run's files; two states are equal while nothing changes."""

    collection: list[Any]  # with its extractor
    learners: list[Any]  # with the text model


def disk_state(run: Run) -> DiskState:
    """Read the state of a run from its files' names, times and sizes: some 0.1 ms."""
    catalogue = run.collection / "catalogue.sqlite"
    collection = [catalogue, catalogue.with_name("catalogue.sqlite-wal"), run.extractor / "record.json"]
    learners: list[Path] = [run.text_model / "record.json"]
    with contextlib.suppress(OSError):
        for name in sorted(name for name in os.listdir(run.folder / "learners") if "." not in name):  # no checkpoints
            learners += [run.learner(name) / "record.json", run.feedback(name) / "in_force.json"]
    state = DiskState([], [])
    for files, stamps in zip((collection, learners), state, strict=True):
        for file in files:
            with contextlib.suppress(OSError):
                status = os.stat(file)
                stamps.append((os.fspath(file), status.st_ino, status.st_mtime_ns, status.st_size))
    with contextlib.suppress(OSError):
        header = b"".join(read_blocks(catalogue, 28))
        state.collection.append(header[24:])  # SQLite's change counter: two changes may share one clock tick
    return state


def learner_inputs(run: Run, name: str, content: str) -> list[Any] | None:
    """Inputs, time and feedback version of a learner; None if it is not trained on the features `content`.

    For a damaged learner the error message: the learner stays listed, so that using it raises that error and no other
    learner replaces it.
    """
    try:
        record = read_record(run.learner(name))
        if record is None or record["inputs"]["extractor"] != content:
            return None
        return [record["inputs"], record["created"], LearnerVersions(run).number(name)]
    except UserError as error:
        return [str(error)]


class OnceCache:
    """Objects made once, by the first thread that needs one; other threads wait. Keys are (kind, learner)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Any, threading.Lock] = defaultdict(threading.Lock)
        self._made: dict[Any, Any] = {}

    def copy_from(self, cache: OnceCache, learners: set[str]) -> None:
        """Share the objects that another cache holds for these learners."""
        self._made = {key: made for key, made in list(cache._made.items()) if key[1] in learners}

    def drop(self, key: tuple[str, str]) -> None:
        """Drop an object; the next call makes it again."""
        self._made.pop(key, None)

    def __contains__(self, key: tuple[str, str]) -> bool:
        """Whether the object of a key is made."""
        return key in self._made

    def __call__(self, key: tuple[str, str], make: Callable[[], Any]) -> Any:
        """Return the object of a key, made by `make` unless it was made before."""
        if key in self._made:
            return self._made[key]
        with self._lock:
            lock = self._locks[key]
        with lock:
            if key not in self._made:  # after an error the next thread tries again
                self._made[key] = make()
        return self._made[key]


class RecentCache:
    """The objects used last, by key, as many as together have a size of at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit, self._lock = limit, threading.Lock()
        self._made: dict[Any, tuple[Any, int]] = {}

    def get(self, key: Any) -> Any:
        """Return an object; None if it is not there."""
        with self._lock:
            if key in self._made:
                self._made[key] = self._made.pop(key)  # the last one now
            return self._made.get(key, (None, 0))[0]

    def add(self, key: Any, made: Any, size: int = 1) -> None:
        """Keep an object; forget those that were not used for longest while they are too many."""
        with self._lock:
            self._made[key] = made, size
            while sum(size for _, size in self._made.values()) > self._limit > size:
                del self._made[next(iter(self._made))]

    def __call__(self, key: Any, make: Callable[[], Any], size: int = 1) -> Any:
        """Return the object of a key, made unless it is there; two threads may both make it."""
        made = self.get(key)
        if made is None:
            self.add(key, made := make(), size)
        return made
