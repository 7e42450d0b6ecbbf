"""Learn again after labels or marks changed; the new model is used if held-out images are ranked no worse by it.

Old and new model rank the same held-out images, by the labels of now. The old one is kept beside the new one, so that
it can be brought back:

    runs/<run>/learners/<name>.before/    the model that the last training of this kind replaced

`visterm serve` runs it in a process of low priority: ``python -m visterm.teaching.retrain runs/<run>``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.held_out import draw_held_out
from visterm.pipeline.stages.fitting import LearnerRefused
from visterm.pipeline.stages.train import checkpoint_path, train, train_record
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import discard, publish
from visterm.pipeline.store.models import AGAIN, TRAINED, load_trained, trained_record
from visterm.pipeline.store.opened import opened
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.supervision import TrainingData
from visterm.pipeline.store.versions import LearnerVersions
from visterm.pipeline.workers import work_for_service

from .batches import UPDATABLE
from .feedback import FeedbackTrainer
from .first import FIRST

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

TOLERANCE = 0.02  # of held-out mAP below that of the old model: a new model that loses more is not taken
_TOLD_EVERY = 0.2  # seconds


def stale_learners(run: Run, config: Config, training: TrainingData) -> list[str]:
    """Return the trained learners that have not learned the labels, or the marks, of now; see `read_training_data`.

    Where none is trained, but there is something to learn from, that is the one that `visterm train` would train. One
    label alone tells no image from another.
    """
    if training.triplets is None:
        labels: set[str] = set()
        for image in training.images:
            if image.split == "train":
                labels |= image.labels.keys()
            if len(labels) > 1:
                break
        else:
            return []
    trained = [name for name in TRAINED if name in run.learners()]
    return [name for name in trained if _is_stale(run, config, name, training)] if trained else [FIRST]


def _is_stale(run: Run, config: Config, name: str, training: TrainingData) -> bool:
    try:
        if training.marks and FeedbackTrainer(run).settled().get(name, set()).issuperset(training.marks):
            return False
        return trained_record(run, name)["inputs"] != train_record(run, config, name, training)["inputs"]
    except UserError:  # damaged: `visterm repair` is for that
        return False


class TrainResult(TypedDict):
    """The outcome of the training of a learner."""

    learner: str
    taken: bool
    reason: Annotated[str | None, Field(description="Why the old model stays in use")]
    before: Annotated[float | None, Field(description="Mean average precision on held-out images, of the old model")]
    after: Annotated[float | None, Field(description="That of the new model, on the same images")]
    measured_on: str | None
    created: str


def train_again(run: Run, console: Console | None = None) -> list[TrainResult]:
    """Train the learners that have not learned the labels of now; keep each old model that ranks better.

    The figures are None without held-out images, and those before the first training are of the cosine. UserError if
    another command is at work in the run, or nothing can be trained.

    A model is taken unless mean average precision falls by more than `TOLERANCE`. Two trainings that differ in nothing
    but the seed may differ by as much, so a smaller fall says nothing of the labels. Each training starts from scratch,
    so random losses do not accumulate; losses from bad labels do. Where a learner had learned relevance marks on top of
    its training, the new model learns them, too.
    """
    console = console or Console(quiet=True)
    config = run.configure(None, [])
    with opened(run, config) as it:
        names = stale_learners(it, config, it.training)
        for name in names:
            kept, record = it.record(checkpoint_path(it, name)), train_record(it, config, name, it.training)
            # A training that differs in the labels alone: nobody can resume it.
            if kept is not None and kept["config"] == record["config"] and kept["inputs"] != record["inputs"]:
                discard(checkpoint_path(it, name))
    return [_train_one(run, config, name, console) for name in names]


def undoable(run: Run) -> list[TrainResult]:
    """Return the results of the trainings, as of `train_again`, whose old models can be brought back."""
    trainings = []
    for name in TRAINED:
        with contextlib.suppress(UserError):
            before, record = run.record(_before(run, name)), run.record(run.learner(name))
            # Without the note a command trained it since; a kill may have left the same model twice.
            if before and record and AGAIN in record and before["created"] != record["created"]:
                trainings.append(record[AGAIN])
    return trainings


def undo_training(run: Run) -> list[str]:
    """Bring back the models that the last `train_again` replaced; return the names of their learners.

    UserError if there is none, or another command is at work in the run.
    """
    with run.locked():
        names = [training["learner"] for training in undoable(run)]
        if not names:
            raise UserError(f"run {run.name}: no training to undo")
        for name in names:
            _copy(run, _before(run, name), run.learner(name))
            discard(_before(run, name))
    for name in names:
        _learn_marks(run, name)
    return names


def _before(run: Run, name: str) -> Path:
    """Return the folder of the model that the last training replaced."""
    return run.learner(name).with_name(f"{name}.before")


def _train_one(run: Run, config: Config, name: str, console: Console) -> TrainResult:
    """Train a learner, and measure it before its model takes the place of the old one."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    result: TrainResult = {
        "learner": name,
        "taken": False,
        "created": created,
        "reason": None,
        "before": None,
        "after": None,
        "measured_on": None,
    }

    def accept(learner: Any, record: Record) -> None:
        _measure(run, name, learner, result)
        before, after = result["before"], result["after"]
        if before is not None and after is not None and before - after > TOLERANCE:
            raise LearnerRefused(
                f"held-out mAP would fall from {before:.3f} to {after:.3f} "
                f"({result['measured_on']}): the old model stays in use"
            )
        record[AGAIN] = result | {"taken": True}
        if run.record(run.learner(name)) is None:
            discard(_before(run, name))
        else:
            _copy(run, run.learner(name), _before(run, name))

    try:
        train(run, config, name, console, accept=accept)
    except LearnerRefused as error:  # others can be trained
        return result | {"reason": str(error)}
    _learn_marks(run, name)
    return result | {"taken": True}


def _measure(run: Run, name: str, learner: Any, result: TrainResult) -> None:
    """Enter the figures of the old model and the new one on held-out images, if there are such images."""
    try:
        old = load_trained(run, name if name in run.learners() else "cosine")
        with Collection(run.collection) as collection:
            held_out = draw_held_out(run, name, collection, collection.images(), set())
    except UserError:  # no image is labelled; or the old model is damaged, or of other features
        return
    before, after = (held_out.precisions(held_out.scores(model), held_out.unmarked) for model in (old, learner))
    result["before"], result["after"] = round(float(before.mean()), 4), round(float(after.mean()), 4)
    result["measured_on"] = f"{len(before)} {held_out.what}"


def _copy(run: Run, source: Path, target: Path) -> None:
    """Publish a model at another place; its files are shared, as they are never written to."""
    record = run.record(source)
    assert record is not None
    with publish(target, record) as folder:  # writes the record
        ignored = shutil.ignore_patterns("record.json")
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=ignored, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def _learn_marks(run: Run, name: str) -> None:
    """Let a model that took another one's place learn the marks that the other had learned."""
    if name in UPDATABLE:
        with contextlib.suppress(UserError):  # the marks are kept, and the next update learns them
            if LearnerVersions(run).in_force(name).void:
                FeedbackTrainer(run).update(name)


class _Telling(Console):
    """Progress for a program: tells the share of the work that is done, and the seconds left."""

    def __init__(self, tell: Callable[[dict[str, Any]], None]):
        super().__init__(quiet=True, progress=False)
        self._tell = tell

    @contextlib.contextmanager
    def phase(self, title: str, total: int | None = None, unit: str = "it") -> Iterator[Any]:
        """Tell of a piece of work."""
        yield _ToldPhase(title, self._tell)


class _ToldPhase:
    """One piece of work under way; as of `Console.phase`."""

    def __init__(self, title: str, tell: Callable[[dict[str, Any]], None]):
        self._title, self._tell = title, tell
        self._started, self._told, self._first = time.perf_counter(), 0.0, 0
        tell({"phase": title, "share": 0.0, "seconds_left": None})

    def start_at(self, done: int) -> None:
        """Say how much an interrupted training has done."""
        self._first = done

    def advance_to(self, done: int, total: int | None = None, note: str = "") -> None:
        """Say how much is done."""
        now = time.perf_counter()
        if not total or done <= self._first or now < self._told + _TOLD_EVERY:
            return
        self._told = now
        share = min(done / total, 1.0)
        seconds_left = (now - self._started) * max(total - done, 0) / (done - self._first)
        # The first steps may have been compiled meanwhile.
        self._tell(
            {"phase": self._title, "share": share, "seconds_left": round(seconds_left, 1) if share > 0.1 else None}
        )


def _main(folder: str) -> int:
    """Train for the service; SIGTERM ends it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return work_for_service(lambda tell: train_again(Run(Path(folder)), _Telling(tell)))


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1]))
