"""Reload the snapshot when the run changes on disk."""

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

from .jobs import Job
from .snapshot import Snapshot

_log = logging.getLogger(__name__)
POLL_SECONDS = 0.5
FIRST_SECONDS = 1.0  # after the start nothing is done in the background, so that the page has its photos
CLEAN_UP_SECONDS = 3600
_IDLE_SHARE = 5  # wait this many times as long as the last check took


@contextlib.contextmanager
def _paused_gc() -> Iterator[None]:
    """Pause the cyclic GC, and exclude the objects created meanwhile from it for good.

    A full collection visits every object of 100,000 images while all requests wait: 0.2 s. Snapshots contain no
    reference cycles, so an old one is freed with its last request.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class SnapshotReloader:
    """Holds the newest snapshot of a run that can be searched.

    `snapshot` is replaced in one step; running requests keep the old one. `problem` says why the run on disk cannot be
    searched now, so that an older snapshot is served. Camera and place are fields with `exif_fields` alone.
    """

    def __init__(self, run: Run, *, exif_fields: bool = False):
        self.run, self._exif_fields = run, exif_fields
        run.is_served = True
        self.problem: str | None = None
        with _paused_gc():
            self.snapshot = self._open(None)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def refresh(self) -> Snapshot:
        """Replace the snapshot if the run has changed on disk; return the one in use."""
        with self._lock:
            old = self.snapshot
            if old.searcher.is_current():
                self.problem = None
                return old
            try:
                with _paused_gc():
                    new = self._open(old)
                    old.release()  # or a W of the old snapshot and one of the new are in memory as a whole
                    new.warm({name for name in old.searcher.learners if old.searcher.has_index(name)})
            except (UserError, OSError, ValueError, sqlite3.Error) as error:  # the run is being changed
                if self.problem is None:  # warn once; /health has the details
                    _log.warning("%s; the previous snapshot stays in use", error)
                self.problem = str(error)
                return old
            self.snapshot, self.problem = new, None
            return new

    def _open(self, old: Snapshot | None) -> Snapshot:
        """Open the run on disk, and load its learners in place of those of an old one; retry if they change."""
        like = old
        for _ in range(3):
            searcher = Searcher(self.run, like=None if like is None else like.searcher)
            if old is not None and (missing := searcher.pending & old.searcher.place.keys()):
                raise UserError(f"{count(len(missing), 'image')} not extracted again yet")
            searcher.gallery.exif_fields = self._exif_fields
            like = new = Snapshot(searcher, like)
            _ = searcher.extractor
            if old is not None:
                new.load()
            if searcher.is_current():
                break
        return new

    def start(self, jobs: list[Job], clean_up: Callable[[Snapshot], None]) -> None:
        """Load the learners, then check for changes twice a second, in the background while requests are answered.

        When images change, and once an hour, jobs begin; cleaning up and warming wait while one of them is urgent.
        """
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, args=(jobs, clean_up), name="visterm-reloader", daemon=True)
        self._thread.start()

    def _watch(self, jobs: list[Job], clean_up: Callable[[Snapshot], None]) -> None:
        wait, followed, followed_at, settled = FIRST_SECONDS, None, 0.0, False
        while not self._stop.wait(wait):
            started = time.monotonic()
            try:
                snapshot = self.refresh()
                images = snapshot.searcher.images
                if followed is None:
                    snapshot.load()
                if images is not followed or started > followed_at + CLEAN_UP_SECONDS:
                    followed, followed_at, settled = images, started, False
                    for job in jobs:
                        job.images_changed(snapshot)
                if not settled and not any(job.is_urgent() for job in jobs):
                    settled = True
                    clean_up(snapshot)
                    snapshot.warm({snapshot.default_learner})
            except Exception:  # the next check may succeed
                _log.exception("cannot check %s for changes", self.run.folder)
            # While a run grows by a segment every few seconds, reloading takes at most a sixth of a core.
            wait = max(POLL_SECONDS, _IDLE_SHARE * (time.monotonic() - started))

    def stop(self) -> None:
        """Stop checking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
