"""Learning again from labels that people changed."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated, Any

from pydantic import Field
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.supervision import TrainingData, read_training_data, with_refused
from visterm.service.jobs import Job
from visterm.service.parts import ServiceParts
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, Subjects, delete, get, post
from visterm.teaching.retrain import TrainResult, stale_learners, undo_training, undoable

_IDLE: dict[str, Any] = {"phase": None, "share": 0.0, "seconds_left": None}


class TrainState(TypedDict):
    """Whether there are labels to learn, how far a training is, and what the last one did."""

    stale: Annotated[list[str], Field(description="Learners that have not learned the labels of now")]
    running: bool
    phase: str | None
    share: Annotated[float, Field(description="Share of the work on one learner that is done")]
    seconds_left: float | None
    cancelled: bool
    problem: Annotated[str | None, Field(description="Why the last training ended early")]
    results: Annotated[list[TrainResult], Field(description="Of the last training, of this service")]
    undo: Annotated[list[TrainResult], Field(description="Trainings whose old models can be brought back")]


class Retraining(Job):
    """The training of a run's learners, and its result."""

    command = (sys.executable, "-m", "visterm.teaching.retrain")
    work = "the training"

    def __init__(self, service: ServiceParts):
        super().__init__(service.run)
        self._service = service
        self._stale: tuple[Any, list[str]] = None, []  # by the state of the run
        self._learning: Any = None  # the labels of the training under way
        self._refused: tuple[Any, set[str]] = None, set()  # learners, by the labels that did not make them better

    def state(self) -> TrainState:
        """Return the state of the job."""
        with self.lock:
            running, results, problem, cancelled = self.process is not None, self.result, self.problem, self.cancelled
            progress = self.progress if running else _IDLE
        return {
            "running": running,
            "phase": progress["phase"],
            "share": progress["share"],
            "seconds_left": progress["seconds_left"],
            "results": results or [],
            "problem": problem and self._service.public(problem),
            "cancelled": cancelled,
            "stale": [] if running else self._offered(self._service.snapshot),
            "undo": undoable(self.run),
        }

    def start(self) -> None:
        """Start a training; HTTPException or UserError if there is nothing to learn, or the run is at work."""
        snapshot = self._service.reloader.refresh()
        if not self._offered(snapshot):
            raise HTTPException(
                409,
                "nothing to learn: the learners of this run have learned its labels, or all labels are one; label "
                "photos that show something else, or answer No for some",
            )
        with self.lock:
            if self.process is not None:
                raise HTTPException(409, "a training is running; wait for it to end, or cancel it")
            with self.run.locked():  # else refused here, not in the process
                pass
            self._learning = self._labels(snapshot)
            self.launch(_IDLE | {"phase": "starting"})

    def forget(self) -> None:
        """Drop the results of the last training."""
        with self.lock:
            self.result = None

    def finish(self, result: list[TrainResult] | None) -> list[TrainResult]:
        """Let searches use the new models, and note learners that the labels did not make better."""
        results = result or []
        if any(trained["taken"] for trained in results):
            self._service.reloader.refresh()
        self._refused = self._learning, {trained["learner"] for trained in results if not trained["taken"]}
        return results

    def _offered(self, snapshot: Snapshot) -> list[str]:
        """Return the learners that have labels to learn which the last training did not refuse."""
        labels = self._labels(snapshot)
        key = snapshot.searcher.version, labels
        if self._stale[0] != key:
            self._stale = key, stale_learners(self.run, snapshot.searcher.config, self._training_data(snapshot))
        refused = self._refused[1] if self._refused[0] == labels else set()
        return [name for name in self._stale[1] if name not in refused]

    def _training_data(self, snapshot: Snapshot) -> TrainingData:
        """Return what learners would be trained on; labelled images are in memory already."""
        config, images = snapshot.searcher.config, snapshot.searcher.gallery.training_images
        if images and config.collection.triplets is None:
            return TrainingData(with_refused(self.run, images, lambda: snapshot.searcher.images))
        with Collection(self.run.collection) as collection:
            return read_training_data(self.run, config, collection)

    def _labels(self, snapshot: Snapshot) -> Any:
        """Return what changes with labels and marks."""
        stamps = [snapshot.searcher.gallery.fingerprint]
        for kept in (self.run.marks, self.run.label_edits):
            for file in (kept, kept.with_name(f"{kept.name}-wal")):
                with contextlib.suppress(OSError):
                    stamps.append(str(os.stat(file).st_mtime_ns))
        return stamps


class TrainingSubject(Subject):
    """Trainings in the background."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self.job = service.add_job(Retraining(service))

    @get("/api/train", "labels")
    def train_state(self) -> TrainState:
        """Say whether labels have changed since the learners were trained, and how far a training is."""
        return self.job.state()

    @post("/api/train", "labels")
    def train(self) -> TrainState:
        """Start to train the learners that have not learned the labels of now, in the background.

        A new model is used unless held-out images are ranked worse by it.
        """
        self.job.start()
        return self.job.state()

    @delete("/api/train", "labels")
    def cancel(self) -> TrainState:
        """Cancel the training; all models stay as they are."""
        if not self.job.cancel():  # a cancelled training is resumed by the next one of the same labels
            raise HTTPException(409, "no training is running")
        return self.job.state()

    @post("/api/train/undo", "labels", pool="update_pool")
    def undo(self) -> TrainState:
        """Bring back the models that the last training replaced; searches use them when the response is sent."""
        undo_training(self.service.run)
        self.job.forget()
        self.service.reloader.refresh()
        return self.job.state()
