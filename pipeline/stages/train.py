"""The stage train: vectors and labels to a similarity."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from visterm.pipeline.config.idle import idle_settings
from visterm.pipeline.console import Console, count, told_of_compiling
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.calibration import measure_calibration
from visterm.pipeline.store.as_new import measure_as_new
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import TRAINED, check_learners
from visterm.pipeline.store.opened import OpenedRun, opened
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.supervision import TrainingData, check_training_data, with_uploads
from visterm.pipeline.store.teachers import MOST_IMAGES, TaughtImages, save_teachers
from visterm.pipeline.store.vectors import extractor_content, identity
from visterm.pipeline.store.versions import LearnerVersions
from visterm.pipeline.workers import connected

from .checkpoints import CheckpointCallback
from .estimators import import_estimators
from .features import check_features
from .fitting import (
    LearnerRefused,
    check_feasible,
    held_out_rows,
    labels_for,
    new_learner,
    refusal,
    unlabelled_gallery,
    vectors_for,
)
from .training_report import report_training

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config, Settings

# Protocol of the papers: no class is held out, all that is learned counts.
_PAPERS = {"world": "seen", "learned_weight": 1.0}

Accept = Callable[[Any, Record], None]


class Trained(TypedDict, total=False):
    """A training and its figures, as the record of the learner has them."""

    learner: str
    up_to_date: bool  # not trained again
    n_images: int
    n_triplets: int  # of a learner that learned from triplets
    n_validation: int
    steps: int
    seconds: float
    validation_measure: str  # this and what follows: of one that validates, on the held-out images
    validation: float
    validation_map: float
    cosine_map: float
    validation_p1: float
    cosine_p1: float
    learned_weight: float  # of the learner beside cosine
    worlds: dict[str, Any]  # of one that chose the share


def train(
    run: Run,
    config: Config,
    learner_name: str,
    console: Console,
    *,
    force: bool = False,
    time_limit: float | None = None,
    accept: Accept | None = None,
) -> Trained:
    """Learn a similarity from the training images, or from triplets; see `read_training_data`.

    `force` trains again even if up to date, and ignores checkpoints. `time_limit` are seconds of training, those before
    an interruption included, after which the best state so far is kept. `accept` is called with the learner and its
    record, to which it may add, before they take the place of those on disk; the latter stay if it raises
    LearnerRefused.

    UserError if there are no features yet, no labels or triplets, or too few classes; LearnerRefused if other learners
    could be trained.
    """
    check_learners([learner_name])
    for line in idle_settings(config, learner_name) if learner_name != "cosine" else ():
        console.warn(line)
    with opened(run, config) as it:
        check_features(it)
        check_training_data(run, it.training)
        if learner_name == "cosine":
            n_images = len(it.training.images)
            return {"learner": "cosine", "up_to_date": True, "n_images": n_images, "steps": 0, "seconds": 0.0}
        training = _Training(it, learner_name, console, force=force, time_limit=time_limit)
        if training.is_done():
            for line in it.training.warnings:
                console.warn(line)
            return {"learner": learner_name, "up_to_date": True, **training.before["result"]}
        result = training.run(accept)
        run.save_config(config)
    return {"learner": learner_name, "up_to_date": False, **result}


def checkpoint_path(run: Run, learner_name: str) -> Path:
    """Return the folder of a learner's checkpoint."""
    return run.learner(learner_name).with_name(f"{learner_name}.checkpoint")


def train_record(run: Run, config: Config, learner_name: str, training: TrainingData) -> Record:
    """Return the record that a model trained on these images would have."""
    config = _of_triplets(config, learner_name, training)
    section = getattr(config, learner_name).model_dump()
    inputs = {
        "extractor": extractor_content(run),
        "images": identity(training.images),
        "clicks": config.collection.clicks is not None,
    }
    if "is_a" in section:  # what the table says decides, wherever it lies
        file = section.pop("is_a")
        inputs["is_a"] = None if file is None else file_sha256(file)
    if training.triplets is not None:
        inputs["triplets"] = fingerprint(training.triplets.tolist(), list(training.uploads))
    settings = {learner_name: section, "seed": config.seed}
    if (asked := world_settings(config, learner_name)) != _PAPERS:
        settings["train"] = asked
    return make_record("train", settings, inputs)


def _of_triplets(config: Config, learner_name: str, training: TrainingData) -> Config:
    """Return the configuration of a training: triplets do not say which images to hold out."""
    if training.triplets is None or getattr(config, learner_name).model_dump().get("validation_fraction") is None:
        return config
    from visterm.pipeline.config.loading import with_settings

    return with_settings(config, {f"{learner_name}.validation_fraction": None})


def world_settings(config: Config, learner_name: str) -> Settings:
    """Return the settings of the section train as far as they change this learner."""
    asked = config.train.model_dump()
    if getattr(config, learner_name).model_dump().get("validation_fraction") is None:  # nothing chooses
        return _PAPERS | {"learned_weight": 1.0 if asked["learned_weight"] is None else asked["learned_weight"]}
    return asked


class _Training:
    """One training of a learner: its settings, its record, and its checkpoint."""

    def __init__(self, run: OpenedRun, name: str, console: Console, *, force: bool, time_limit: float | None):
        from visterm.learners import LEARNERS

        import_estimators()
        self.opened, self.name, self.console = run, name, console
        self.force, self.time_limit = force, time_limit
        self.kind: Any = LEARNERS[TRAINED[name]]
        self.data = run.training
        self.config = _of_triplets(run.config, name, self.data)
        self.record = train_record(run, run.config, name, self.data)
        self.folder, self.checkpoint = run.learner(name), checkpoint_path(run, name)

    @property
    def before(self) -> Record:
        """The record of the model on disk."""
        return self.opened.record(self.folder) or {}

    def is_done(self) -> bool:
        """Whether the model is up to date; an equal checkpoint beside it is of an interrupted --force: resume it."""
        if self.force or not is_up_to_date(self.folder, self.record):
            return False
        return not is_up_to_date(self.checkpoint, self.record)

    def run(self, accept: Accept | None) -> Trained:
        """Fit or resume, with checkpoints if the learner resumes; publish the model and return its result."""
        self._check()
        resumes = not self.force and self._is_of_checkpoint() and (self.checkpoint / "files").is_dir()
        seconds = (self.opened.record(self.checkpoint) or {}).get("seconds", 0.0) if resumes else 0.0
        started = time.perf_counter() - seconds
        images = [image for image in self.data.images if self.kind.validates or image.split == "train"]
        y, names = self._supervision(images)
        learner = self._new_learner(images, y, names)
        if self.data.triplets is None and (gallery := unlabelled_gallery(self.opened, learner, images)):
            self.console.say(
                f"{self.name}: no class has two labelled images, so only a whitening is learned, from "
                f"{count(len(gallery), 'image')} without labels and their nearest neighbours; nothing validates it"
            )
            learner.set_params(validation_fraction=None)
            images = [*images, *gallery]
            y, _ = self.opened.supervision(images)
        X = with_uploads(vectors_for(learner, self.opened, images), self.data)
        check_feasible(self.name, learner, self.config, X, y, self.time_limit)
        if self.time_limit is not None and not learner.validates:
            self.console.warn(f"--time-limit does not end the training of {self.name}, which cannot stop early")
        if self.force:  # if this is interrupted, the old model is not up to date: it was to be replaced
            with publish(self.checkpoint, dict(self.record)):
                pass
        distributed = self.kind.distributes and learner.n_rankers > 1
        title = f"training {self.name} on {count(len(images), 'image')}"
        with (
            connected(self.config, self.opened) if distributed else contextlib.nullcontext() as cluster,
            told_of_compiling(self.console),
            self.console.phase(title, unit="steps") as phase,
            publish(self.folder, self.record) as target,
        ):
            every = self.config.compute.checkpoint_seconds
            watch = CheckpointCallback(
                phase, self.console, self.checkpoint, self.record, started, every, self.time_limit
            )
            measure_as_new(self.opened, learner, images)
            options = {"progress": watch, "distribute": None if cluster is None else cluster.map}
            # On a cluster a pass may take minutes: there a signal ends training at once, with the checkpoint before.
            signals_wait = self.kind.resumes and cluster is None
            try:
                with watch if signals_wait else contextlib.nullcontext():
                    if resumes:
                        learner = self._resume(learner, images, X, y, options)
                    else:
                        rows = held_out_rows(self.opened, learner, images)
                        settings = world_settings(self.config, self.name)
                        learner.fit(X, y, validation_rows=rows, **settings, **options)
                    watch.end_if_told(learner)
            except ValueError as error:
                if self.force:
                    shutil.rmtree(self.checkpoint, ignore_errors=True)
                raise LearnerRefused(refusal(self.name, error)) from None
            self._save(target, learner, images, X, y)
            self._note(learner, images, names, time.perf_counter() - started)
            if accept is not None:
                try:
                    accept(learner, self.record)
                except LearnerRefused:  # the end of a training, not an interruption
                    shutil.rmtree(self.checkpoint, ignore_errors=True)
                    raise
        report_training(self.name, learner, y, watch.timed_out, self.config, self.console)
        self._say_unlearned_marks()
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        return self.record["result"]

    def _check(self) -> None:
        """Raise if the learner cannot learn this, or if an interrupted training would be overwritten."""
        from visterm.learners import LEARNERS

        if self.data.triplets is not None and not self.kind.learns_triplets:
            able = " or ".join(name for name, of in TRAINED.items() if LEARNERS[of].learns_triplets)
            raise LearnerRefused(f"{self.name} learns from labels, not from triplets ({self.data.source}); use {able}")
        if self.force:
            return
        kept, record = self.opened.record(self.checkpoint), self.record
        if kept is None or (kept["config"], kept["inputs"]) == (record["config"], record["inputs"]):
            return
        if self._is_of_checkpoint():
            return
        old, new = (
            {**made["config"][self.name], "seed": made["config"]["seed"], **made["config"].get("train", _PAPERS)}
            for made in (kept, record)
        )
        differences = [f"{key}={old.get(key)}, now {new.get(key)}" for key in old | new if old.get(key) != new.get(key)]
        words = {"extractor": "other visterms", "images": "other images or labels", "clicks": "other clicks"}
        words["is_a"] = "another is-a table"
        differences += [text for key, text in words.items() if kept["inputs"].get(key) != record["inputs"].get(key)]
        raise UserError(
            f"{self.checkpoint} is of an interrupted training with {'; '.join(differences)}: train with those settings "
            "to resume it, or with --force to start again"
        )

    def _is_of_checkpoint(self) -> bool:
        """Whether the checkpoint is of this training: another number of steps is no other training."""
        kept, record = self.opened.record(self.checkpoint), self.record
        if kept is not None and "n_steps" in kept["config"].get(self.name, {}):
            section = record["config"][self.name] | {"n_steps": kept["config"][self.name]["n_steps"]}
            record = record | {"config": record["config"] | {self.name: section}}
        return is_up_to_date(self.checkpoint, record)

    def _supervision(self, images: Sequence[Image]) -> tuple[Any, list[str]]:
        """Return what is learned of these images: labels, with their names, or triplets."""
        from visterm.learners.given_triplets import GivenTriplets

        if self.data.triplets is not None:
            return GivenTriplets(self.data.triplets, len(images) + len(self.data.uploads)), []
        y, names = labels_for(self.kind, self.opened, self.name, images)
        for name in names if len(names) > 1 and not self.opened.clicks else ():
            if all(name in image.labels for image in images):
                self.console.warn(
                    f"every training image has the label {name}, by which all are similar: leave this label out"
                )
        return y, names

    def _new_learner(self, images: Sequence[Image], y: Any, names: Sequence[str]) -> Any:
        learner = new_learner(self.kind, self.config, self.name, len(images), y, names)
        if (triplets := self.data.triplets) is not None:
            learner.set_params(n_steps=getattr(self.config, self.name).n_steps)  # by default several times through them
            for line in self.data.warnings:
                self.console.warn(line)
            self.console.say(f"{self.name} learns from {count(len(triplets), 'triplet')} of {self.data.source}")
        if "record_teachers" in learner.get_params():
            learner.set_params(record_teachers=len(images) <= MOST_IMAGES)
        return learner

    def _resume(self, learner: Any, images: Sequence[Image], X: Any, y: Any, options: dict[str, Any]) -> Any:
        """Resume from the checkpoint, with the steps of this training; return the learner of the checkpoint."""
        from visterm.learners import load_learner

        self.console.say("resuming from the checkpoint of an interrupted training")
        steps = getattr(learner, "n_steps", None)
        learner = load_learner(self.checkpoint / "files")
        measure_as_new(self.opened, learner, images)
        if steps is not None and steps != learner.n_steps:
            learner.set_params(n_steps=steps).end_after(steps)
        options["progress"].start_at(learner.steps_done_)
        learner.resume(X, y, **options)
        return learner

    def _save(self, target: Path, learner: Any, images: Sequence[Image], X: Any, y: Any) -> None:
        """Write the files of the model."""
        from visterm.learners.blend import scale_of

        if learner.learned_weight_ != 1 and learner.scale_ is None:  # what measures and searches is to have one scale
            learner.scale_ = scale_of(learner, X, y if learner.by_category else None)
        learner.save(target / "files")
        if learner.has_teachers:
            rows: list[dict[str, Any]] = [{"id": image.id} for image in images]
            rows += [{"sha256": key, "mark": None} for key in self.data.uploads]
            save_teachers(target, TaughtImages(X, rows))

    def _note(self, learner: Any, images: Sequence[Image], names: Sequence[str], seconds: float) -> None:
        """Add to the record the results of the training."""
        record, triplets = self.record, self.data.triplets
        if learner.ranks_labels or learner.by_category:
            record["labels"] = names
        if self.data.marks:
            record["marks"] = self.data.marks
        result: Trained = {"n_images": len(images)}
        if triplets is not None:
            result["n_triplets"] = len(triplets)
        result |= {
            "n_validation": 0 if learner.held_out_ is None else len(learner.held_out_),
            "steps": int(learner.n_steps_),
            "seconds": round(seconds, 3),
        }
        if learner.validation_map_ is not None:
            result |= {
                "validation_measure": learner.validation_measure,
                "validation": float(learner.best_validation_),
                "validation_map": float(learner.validation_map_),
                "cosine_map": float(learner.cosine_map_),
                "validation_p1": float(learner.validation_p1_),
                "cosine_p1": float(learner.cosine_p1_),
            }
        if learner.learned_weight_ != 1:
            result["learned_weight"] = learner.learned_weight_
        if learner.worlds_ is not None:
            result["worlds"] = {"for": learner.world_} | learner.worlds_
        run = self.opened
        calibration = measure_calibration(run, self.name, learner, run.catalogue, run.images())
        record |= {"result": result, "calibration": calibration}

    def _say_unlearned_marks(self) -> None:
        """Warn where the model that was replaced had learned relevance marks."""
        with contextlib.suppress(UserError):
            if LearnerVersions(self.opened).in_force(self.name).void:
                self.console.warn(
                    f"the new model of {self.name} has not learned from the relevance marks yet; "
                    f"'visterm feedback update {self.opened.option}' teaches it"
                )
