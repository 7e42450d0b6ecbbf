"""The snapshot in use, replaced when the run changes."""

from __future__ import annotations

import contextlib
import gc
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator

from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.run import Run

from .snapshot import Snapshot

_log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
TIDY_SECONDS = 3600
_SHARE = 5  # so many times as long as the last look took, the next one waits


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Hold back the collection of cyclic garbage, and leave out of it for good what is made meanwhile.

    One full collection looks at every object of 100,000 images, and all requests wait for it: 0.2 s. A state goes
    all the same with its last request, as nothing in it refers back to it.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class SnapshotReloader:
    """The newest state of a run that can be searched.

    Parameters
    ----------
    run : Run

    Attributes
    ----------
    snapshot : Snapshot
        Exchanged in one step; whoever has taken the old one goes on with it.
    problem : str or None
        Why the run on disk cannot be searched just now, so that answers are of an older state.

    Raises
    ------
    UserError
        It cannot be searched at all yet.
    """

    def __init__(self, run: Run):
        self.run = run
        self.problem: str | None = None
        with _no_collections():
            self.snapshot = self._opened(None)
            self.snapshot.warm(self.snapshot.used)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def refresh(self) -> Snapshot:
        """Exchange the state if the run has changed on disk; return the one in force."""
        with self._lock:
            old = self.snapshot
            if old.searcher.is_current():
                self.problem = None
                return old
            try:
                with _no_collections():
                    new = self._opened(old)
                    new.warm(old.used)
            except (UserError, OSError, ValueError, sqlite3.Error) as error:  # in the middle of a change
                if self.problem is None:  # once: /health says how it goes on
                    _log.warning("%s; answers are of the state before", error)
                self.problem = str(error)
                return old
            self.snapshot, self.problem = new, None
            return new

    def _opened(self, old: Snapshot | None) -> Snapshot:
        """What is on disk, with its learners; once more if these changed while they were loaded."""
        like = old
        for _ in range(3):
            searcher = Searcher(self.run, like=None if like is None else like.searcher)
            if old is not None and (again := searcher.pending & old.searcher.place.keys()):
                raise UserError(f"{count(len(again), 'image')} not extracted again yet")
            like = new = Snapshot(searcher, like)
            new.load()
            if searcher.is_current():
                break
        return new

    def start(self, tidy: Callable[[Snapshot], None]) -> None:
        """Look for changes in the background, twice a second; tidy up when images came or went, and once an hour."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, args=(tidy,), name="visterm-current", daemon=True)
        self._thread.start()

    def _watch(self, tidy: Callable[[Snapshot], None]) -> None:
        wait, tidied, at = POLL_SECONDS, None, 0.0
        while not self._stop.wait(wait):
            started = time.monotonic()
            try:
                snapshot = self.refresh()
                if snapshot.searcher.images is not tidied or started > at + TIDY_SECONDS:
                    tidied, at = snapshot.searcher.images, started
                    tidy(snapshot)
            except Exception:  # of one look; the next may succeed
                _log.exception("looking for a newer state of %s", self.run.folder)
            # Where a run grows by a segment every few seconds, opening it takes no more than a sixth of a core.
            wait = max(POLL_SECONDS, _SHARE * (time.monotonic() - started))

    def stop(self) -> None:
        """End the looking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
