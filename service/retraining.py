"""Learn again from labels that people changed, in a process of low priority."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from typing import Any

from starlette.exceptions import HTTPException

from visterm.pipeline.console import one_line
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.supervision import TrainingData, read_training_data
from visterm.teaching.retrain import stale_learners, undo_training, undoable

from .child_process import end_child, problem_of, said_by, start_child
from .reloader import SnapshotReloader
from .snapshot import Snapshot

_log = logging.getLogger(__name__)
COMMAND = (sys.executable, "-m", "visterm.teaching.retrain")
_END_SECONDS = 10.0  # a training ends within a second, where it does not compile
_IDLE: dict[str, Any] = {"phase": None, "share": 0.0, "seconds_left": None}


class Retraining:
    """The training of a run's learners, in one child process at a time, and its result."""

    def __init__(self, run: Run, reloader: SnapshotReloader):
        self._run, self._reloader = run, reloader
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False
        self._progress = _IDLE
        self._results: list[dict[str, Any]] = []
        self._problem: str | None = None
        self._stale: tuple[Any, list[str]] = None, []  # by the state of the run
        self._refused: tuple[Any, set[str]] = None, set()  # learners, by the labels that did not make them better

    def state(self) -> dict[str, Any]:
        """Make `schemas.TrainState`."""
        with self._lock:
            state: dict[str, Any] = {"running": self._process is not None} | self._progress
            state |= {"results": self._results, "problem": self._problem, "cancelled": self._cancelled}
        return state | {
            "stale": [] if state["running"] else self._offered(self._reloader.snapshot),
            "undo": undoable(self._run),
        }

    def start(self) -> None:
        """Start a training; HTTPException or UserError if there is nothing to learn, or the run is at work."""
        if not self._offered(self._reloader.refresh()):
            raise HTTPException(409, "nothing to learn: the learners of this run have learned its labels")
        with self._lock:
            if self._process is not None:
                raise HTTPException(409, "a training is running; wait for it to end, or cancel it")
            with self._run.locked():  # else refused here, not in the process
                pass
            self._progress, self._results, self._problem = _IDLE | {"phase": "starting"}, [], None
            self._cancelled = False
            self._process = process = start_child(COMMAND, self._run)
        labels = self._labels(self._reloader.snapshot)
        threading.Thread(target=self._follow, args=(process, labels), name="visterm-training", daemon=True).start()

    def cancel(self) -> None:
        """End the training; the models stay as they are. It is resumed by the next one of the same labels."""
        with self._lock:
            if self._process is None:
                raise HTTPException(409, "no training is running")
            self._cancelled = True
            self._process.terminate()

    def undo(self) -> None:
        """Bring back the models that the last training replaced, and return once searches use them."""
        undo_training(self._run)
        with self._lock:
            self._results = []
        self._reloader.refresh()

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            process = self._process
        if process is not None:
            end_child(process, _END_SECONDS)

    def _follow(self, process: subprocess.Popen[str], labels: Any) -> None:
        results: list[dict[str, Any]] = []
        problem: str | None = None
        for said in said_by(process):
            results, problem = said.get("results", results), said.get("error", problem)
            if "share" in said:
                with self._lock:
                    self._progress = said
        if process.returncode and not self._cancelled:
            problem = problem_of(process, "the training", problem)
            _log.warning("%s", one_line(problem))
        if any(result["taken"] for result in results):
            self._reloader.refresh()
        with self._lock:
            self._process, self._progress = None, _IDLE
            self._results, self._problem = results, problem and one_line(problem)
            self._refused = labels, {result["learner"] for result in results if not result["taken"]}

    def _offered(self, snapshot: Snapshot) -> list[str]:
        """Return the learners that have labels to learn which the last training did not refuse."""
        labels = self._labels(snapshot)
        key = snapshot.searcher.version, labels
        if self._stale[0] != key:
            self._stale = key, stale_learners(self._run, snapshot.searcher.config, self._training_data(snapshot))
        refused = self._refused[1] if self._refused[0] == labels else set()
        return [name for name in self._stale[1] if name not in refused]

    def _training_data(self, snapshot: Snapshot) -> TrainingData:
        """Return what learners would be trained on; labelled images are in memory already."""
        config, images = snapshot.searcher.config, snapshot.searcher.gallery.training_images
        if images and config.collection.triplets is None:
            return TrainingData(images)
        with Collection(self._run.collection) as collection:
            return read_training_data(self._run, config, collection)

    def _labels(self, snapshot: Snapshot) -> Any:
        """Return what changes with labels and marks."""
        stamps = [snapshot.searcher.gallery.fingerprint]
        for file in (self._run.marks, self._run.marks.with_name(f"{self._run.marks.name}-wal")):
            with contextlib.suppress(OSError):
                stamps.append(str(os.stat(file).st_mtime_ns))
        return stamps
