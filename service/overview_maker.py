"""Make the overview of the collection in a process of low priority, and read it."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from typing import Any

from visterm.pipeline.store.run import Run
from visterm.teaching.overview import Overview, overview_folder, overview_record, read_overview

from .child_process import end_child, said_by, start_child
from .snapshot import Snapshot

_log = logging.getLogger(__name__)
COMMAND = (sys.executable, "-m", "visterm.teaching.overview")
_END_SECONDS = 5.0
_COMPARED = ("config", "inputs")


class OverviewMaker:
    """The overview of a run: made by one child process at a time, read when its file changes."""

    def __init__(self, run: Run):
        self._run = run
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._wanted: Snapshot | None = None  # what `start` was called with while a process ran
        self._phase: dict[str, Any] = {}
        self._problem: str | None = None
        self._read: tuple[Any, Overview | None] = (None, None)

    def overview(self) -> Overview | None:
        """Return the overview that the run keeps, up to date or not; None if there is none."""
        try:
            status = (overview_folder(self._run) / "record.json").stat()
        except OSError:
            return None
        stamp = (status.st_ino, status.st_mtime_ns)
        with self._lock:
            if self._read[0] != stamp:
                self._read = (stamp, read_overview(self._run))
            return self._read[1]

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether the overview is of the images and the learner of a snapshot."""
        overview = self.overview()
        if overview is None:
            return False
        wanted = overview_record(snapshot.searcher)
        return all(overview.record.get(key) == wanted[key] for key in _COMPARED)

    def state(self, snapshot: Snapshot) -> dict[str, Any]:
        """Make the fields of `schemas.MapState` that say whether there is an overview, and how far a new one is."""
        with self._lock:
            making = self._process is not None
            phase, problem = dict(self._phase), self._problem
        return {
            "ready": self.overview() is not None,
            "current": self.is_current(snapshot),
            "making": making,
            "phase": phase.get("phase"),
            "share": phase.get("share", 0.0),
            "problem": problem,
        }

    def start(self, snapshot: Snapshot) -> None:
        """Start the process unless the overview is up to date; where one is running, after it."""
        with self._lock:
            if self._process is not None:  # it may replace an overview that is up to date by one that is not
                self._wanted = snapshot
                return
        if self.is_current(snapshot):
            return
        with self._lock:
            if self._process is not None:
                self._wanted = snapshot
                return
            self._phase, self._problem = {"phase": "starting", "share": 0.0}, None
            self._process = process = start_child(COMMAND, self._run)
        threading.Thread(target=self._follow, args=(process,), name="visterm-overview", daemon=True).start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        for said in said_by(process):
            with self._lock:
                if "error" in said:
                    self._problem = said["error"]
                else:
                    self._phase = said
        code = process.returncode
        with self._lock:
            self._process = None
            wanted, self._wanted = self._wanted, None
            if code == -signal.SIGKILL:  # `stop` sends SIGTERM
                self._problem = "the map could not be drawn: its process was killed, probably for want of memory"
            elif code > 0 and self._problem is None:
                self._problem = "the map could not be drawn: the process ended with an error"
            if self._problem is not None:
                _log.warning("%s", self._problem)
                return
        if wanted is not None and code == 0:  # the run may have changed after the process had read it
            self.start(wanted)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            process = self._process
        if process is not None:
            end_child(process, _END_SECONDS)
