"""The stage train: vectors and labels to a similarity."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count, duration, told_of_compiling
from visterm.pipeline.errors import UserError, explain_system_error
from visterm.pipeline.evaluation.calibration import measure_calibration
from visterm.pipeline.evaluation.is_a import parents_of
from visterm.pipeline.store.as_new import measure_as_new
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import TRAINED, check_learners
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import MOST_IMAGES, TaughtImages, save_teachers
from visterm.pipeline.store.vectors import extractor_content, identity, mapped_vectors, supervision, vectors_by_rows
from visterm.pipeline.store.versions import LearnerVersions
from visterm.pipeline.workers import connected

from .features import check_features
from .supervision import TrainingData, check_training_data, read_training_data, with_uploads

_MOST_SECONDS = 900.0  # estimated, of a training without a time limit
_PAPERS = {"world": "seen", "learned": 1.0}  # protocol of the papers: no class is held out, all that is learned counts
_HARDLY_BETTER = 0.05  # gain on held-out images, of cosine's mAP there, or of what that lacks to 1


class LearnerRefused(UserError):
    """One learner cannot be trained; others can."""


Accept = Callable[[Any, dict[str, Any]], None]


def train(
    run: Run,
    config: Config,
    learner_name: str,
    console: Console,
    *,
    force: bool = False,
    time_limit: float | None = None,
    accept: Accept | None = None,
) -> dict[str, Any]:
    """Learn a similarity from the training images, or from triplets; see `read_training_data`.

    Parameters
    ----------
    run : Run
    config : Config
    learner_name : str
        One of LEARNER_NAMES.
    console : Console
    force : bool
        Train again even if up to date; ignore checkpoints.
    time_limit : float, optional
        Seconds of training, those before an interruption included, after which the best state so far is kept.
    accept : callable, optional
        Called with the learner and its record, to which it may add, before they take the place of those on disk. The
        latter stay if it raises LearnerRefused.

    Returns
    -------
    dict
        ``learner``, ``up_to_date`` (not trained again), ``n_images``, ``n_validation``, ``steps``, ``seconds``; of one
        that learned from triplets ``n_triplets``; of one that validates also ``validation_measure``, ``validation``,
        and ``validation_map``, ``cosine_map``, ``validation_p1`` and ``cosine_p1``, on the held-out images; where a
        share of what was learned counts ``learned``, and ``worlds`` if it was chosen.

    Raises
    ------
    UserError
        No features yet, no labels or triplets, too few classes; LearnerRefused if other learners could be trained.
    """
    check_learners([learner_name])
    with run.locked(), Collection(run.collection) as collection:
        check_features(run, config, collection)
        training = read_training_data(run, config, collection)
        check_training_data(run, training)
        if learner_name == "cosine":
            return {
                "learner": "cosine",
                "up_to_date": True,
                "n_images": len(training.images),
                "steps": 0,
                "seconds": 0.0,
            }
        folder = run.learner(learner_name)
        record = train_record(run, config, learner_name, training)
        # An equal checkpoint beside an up-to-date model is of an interrupted --force, which is resumed.
        if (
            not force
            and is_up_to_date(folder, record)
            and not is_up_to_date(checkpoint_path(run, learner_name), record)
        ):
            trained = read_record(folder) or {}
            return {"learner": learner_name, "up_to_date": True} | trained["result"]
        result = _train(run, config, learner_name, collection, training, record, console, force, time_limit, accept)
        run.save_config(config)
    return {"learner": learner_name, "up_to_date": False} | result


def checkpoint_path(run: Run, learner_name: str) -> Path:
    """Return the folder of a learner's checkpoint."""
    return run.learner(learner_name).with_name(f"{learner_name}.checkpoint")


def train_record(run: Run, config: Config, learner_name: str, training: TrainingData) -> dict[str, Any]:
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
    if training.triplets is None or getattr(getattr(config, learner_name), "validation_fraction", None) is None:
        return config
    return with_settings(config, {f"{learner_name}.validation_fraction": None})


def world_settings(config: Config, learner_name: str) -> dict[str, Any]:
    """Return the settings of the section train as far as they change this learner."""
    asked = config.train.model_dump()
    if getattr(getattr(config, learner_name), "validation_fraction", None) is None:  # nothing chooses
        return _PAPERS | {"learned": 1.0 if asked["learned"] is None else asked["learned"]}
    return asked


def _train(
    run: Run,
    config: Config,
    learner_name: str,
    collection: Collection,
    training: TrainingData,
    record: dict[str, Any],
    console: Console,
    force: bool,
    time_limit: float | None,
    accept: Accept | None,
) -> dict[str, Any]:
    """Fit or resume, with checkpoints if the learner resumes; publish the model."""
    from visterm.learners import LEARNERS, load_learner
    from visterm.learners.blend import scale_of
    from visterm.learners.given_triplets import GivenTriplets

    kind: Any = LEARNERS[TRAINED[learner_name]]
    images, triplets = training.images, training.triplets
    if triplets is not None and not kind.learns_triplets:
        able = " or ".join(name for name, of in TRAINED.items() if LEARNERS[of].learns_triplets)
        raise LearnerRefused(f"{learner_name} learns from labels, not from triplets ({training.source}); use {able}")
    config = _of_triplets(config, learner_name, training)
    if not kind.validates:
        images = [image for image in images if image.split == "train"]
    checkpoint = checkpoint_path(run, learner_name)
    if not force:
        _check_checkpoint(checkpoint, record, learner_name)
    resumes = not force and is_up_to_date(checkpoint, _with_steps_of(checkpoint, record, learner_name))
    resumes = resumes and (checkpoint / "files").is_dir()  # otherwise it was interrupted before the first checkpoint
    seconds_before = (read_record(checkpoint) or {}).get("seconds", 0.0) if resumes else 0.0
    started = time.perf_counter() - seconds_before
    clicks = config.collection.clicks is not None
    if kind.one_label:
        check_one_label(learner_name, images, clicks)
    n_rows = len(images) + len(training.uploads)
    y, names = supervision(images, clicks=clicks) if triplets is None else (GivenTriplets(triplets, n_rows), [])
    for name in names if len(names) > 1 and not clicks else ():
        if all(name in image.labels for image in images):
            console.warn(f"every training image has the label {name}, by which all are similar: leave this label out")
    learner: Any = kind(**constructor_parameters(kind, config, learner_name, len(images), y, names))
    X = with_uploads(vectors_for(learner, run, collection, images), training)
    if triplets is not None:
        learner.set_params(n_steps=getattr(config, learner_name).n_steps)  # by default several times through them
        for line in training.warnings:
            console.warn(line)
        console.say(f"{learner_name} learns from {count(len(triplets), 'triplet')} of {training.source}")
    if "record_teachers" in learner.get_params():
        learner.set_params(record_teachers=len(images) <= MOST_IMAGES)
    _check_feasible(learner_name, learner, config, X, y, time_limit)
    if time_limit is not None and not learner.validates:
        console.warn(f"--time-limit does not end the training of {learner_name}, which cannot stop early")
    if force:  # if this is interrupted, the old model is not up to date: it was to be replaced
        with publish(checkpoint, dict(record)):
            pass
    title = f"training {learner_name} on {count(len(images), 'image')}"
    distributed = kind.distributes and learner.n_rankers > 1
    with (
        connected(config, run) if distributed else contextlib.nullcontext() as cluster,
        told_of_compiling(console),
        console.phase(title, unit="steps") as phase,
        publish(run.learner(learner_name), record) as target,
    ):
        watch = _CheckpointCallback(
            phase, console, checkpoint, record, started, config.compute.checkpoint_seconds, time_limit
        )
        measure_as_new(run, learner, images)
        options: dict[str, Any] = {"progress": watch, "distribute": None if cluster is None else cluster.map}
        # On a cluster a pass may take minutes: there a signal ends the training at once, with the checkpoint before.
        signals_wait = kind.resumes and cluster is None
        try:
            with watch if signals_wait else contextlib.nullcontext():
                if resumes:
                    console.say("resuming from the checkpoint of an interrupted training")
                    steps = getattr(learner, "n_steps", None)
                    learner = load_learner(checkpoint / "files")
                    measure_as_new(run, learner, images)
                    if steps is not None and steps != learner.n_steps:
                        learner.set_params(n_steps=steps).end_after(steps)
                    phase.start_at(learner.steps_done_)
                    learner.resume(X, y, **options)
                else:
                    rows = held_out_rows(run, learner, images)
                    learner.fit(X, y, validation_rows=rows, **world_settings(config, learner_name), **options)
                watch.end_if_told(learner)
        except ValueError as error:
            if force:
                shutil.rmtree(checkpoint, ignore_errors=True)
            raise LearnerRefused(_refusal(learner_name, error)) from None
        if learner.learned_ != 1 and learner.scale_ is None:  # what measures and searches is to have one scale
            learner.scale_ = scale_of(learner, X, y if learner.by_category else None)
        learner.save(target / "files")
        if learner.has_teachers:
            rows = [{"id": image.id} for image in images]
            rows += [{"sha256": key, "mark": None} for key in training.uploads]
            save_teachers(target, TaughtImages(X, rows))
        if learner.ranks_labels or learner.by_category:
            record["labels"] = names
        if training.marks:
            record["marks"] = training.marks
        record["result"] = {
            "n_images": len(images),
            **({} if triplets is None else {"n_triplets": len(triplets)}),
            "n_validation": 0 if learner.held_out_ is None else len(learner.held_out_),
            "steps": int(learner.n_steps_),
            "seconds": round(time.perf_counter() - started, 3),
        }
        if learner.validation_map_ is not None:
            record["result"] |= {
                "validation_measure": learner.validation_measure,
                "validation": float(learner.best_validation_),
                "validation_map": float(learner.validation_map_),
                "cosine_map": float(learner.cosine_map_),
            }
            if learner.validation_p1_ is not None and learner.cosine_p1_ is not None:  # else resumed from before them
                first = {"validation_p1": float(learner.validation_p1_), "cosine_p1": float(learner.cosine_p1_)}
                record["result"] |= first
        record["calibration"] = measure_calibration(run, learner_name, learner, collection, collection.images())
        if learner.learned_ != 1:
            record["result"]["learned"] = learner.learned_
        if learner.worlds_ is not None:
            record["result"]["worlds"] = {"for": learner.world_} | learner.worlds_
        if accept is not None:
            try:
                accept(learner, record)
            except LearnerRefused:  # the end of a training, not an interruption
                shutil.rmtree(checkpoint, ignore_errors=True)
                raise
    _report_training(learner_name, learner, y, watch.timed_out, config, console)
    with contextlib.suppress(UserError):
        if LearnerVersions(run).in_force(learner_name).void:
            console.warn(
                f"the new model of {learner_name} has not learned from the relevance marks yet; "
                f"'visterm feedback update --run {run.name}' teaches it"
            )
    shutil.rmtree(checkpoint, ignore_errors=True)
    return record["result"]


def vectors_for(learner: Any, run: Run, collection: Collection, images: Sequence[Image]) -> Any:
    """Return the vectors that a learner is to be fitted on: on disk, if there are many and it reads them by rows."""
    return (vectors_by_rows if learner.reads_rows else mapped_vectors)(run, collection, images)


def held_out_rows(run: Run, learner: Any, images: Sequence[Image]) -> Any:
    """Return the numbers of the images that are held out; None where the learner is to draw them itself, if any.

    These are the images of a folder validation/, else those that `features` chose, whose vectors are known as those of
    new photos. Where less than three quarters as many of these are left as the learner holds out, because labels came
    later or many photos were added, it draws.
    """
    import numpy as np

    from visterm.learners.validation import MAX_IMAGES

    rows = np.flatnonzero([image.split == "validation" for image in images])
    fraction = learner.get_params().get("validation_fraction")
    if not len(rows) and fraction is not None:
        kept = set((read_record(run.extractor) or {}).get("held_out", ()))
        rows = np.flatnonzero([image.path in kept for image in images])
        if 4 * len(rows) < 3 * min(fraction * len(images), MAX_IMAGES):
            return None
    return rows if len(rows) else None


class _CheckpointCallback:
    """Callback that shows a learner's progress and saves a checkpoint every so many seconds.

    As a context, it ends the training on Ctrl-C or SIGTERM: when the learner calls next, which is within a second, a
    checkpoint is saved, and only then is the signal let through. A second signal is let through at once, and so is the
    first before the learner has called, when there is nothing to save.
    """

    def __init__(
        self,
        phase: Any,
        console: Console,
        checkpoint: Path,
        record: dict[str, Any],
        started: float,
        every: float,
        time_limit: float | None = None,
    ):
        self._phase, self._console = phase, console
        self._checkpoint, self._record = checkpoint, record
        self._started, self._every = started, every
        self._time_limit = time_limit
        self.timed_out = False
        self._saved = time.perf_counter()
        self._handlers: dict[int, Any] = {}  # that were there before, by signal
        self._called = False
        self._signal: int | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():  # no other can set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # jobs in the background ignore Ctrl-C
                    self._handlers[number] = signal.signal(number, self._hold)

    def __exit__(self, *error: object) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _hold(self, number: int, frame: Any) -> None:
        self.__exit__()
        if self._called:
            self._signal = number
        else:
            signal.raise_signal(number)

    def __call__(self, learner: Any) -> None:
        self._called = True
        checks = (entry["validation"] for entry in reversed(learner.history_) if learner.phase_ == "search")
        last = next((figure for figure in checks if figure is not None), None)
        note = "" if last is None else f"validation {learner.validation_measure} {last:.3f}"
        self._end_in_time(learner)
        self._phase.advance_to(learner.steps_done_, learner.steps_total_, note)
        self.end_if_told(learner)
        if time.perf_counter() - self._saved > self._every:
            self._save(learner, "training continues")

    def _end_in_time(self, learner: Any) -> None:
        """End the search where a refit for the best number of steps still keeps within the time limit."""
        if self._time_limit is None or self.timed_out or not learner.validates:
            return
        if learner.phase_ not in ("search", "train"):
            return
        share = getattr(learner, "best_step_", 0) / max(learner.n_steps_, 1) if learner.refit else 0
        if (time.perf_counter() - self._started) * (1 + share) >= self._time_limit:
            learner.end_after(0)
            self.timed_out = True

    def end_if_told(self, learner: Any) -> None:
        """Save a checkpoint and let the signal through, if there was one."""
        if self._signal is None:
            return
        self._console.say("saving the checkpoint ...")
        saved = self._save(learner, "the one before is kept")
        number, self._signal = self._signal, None
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as interrupt:
            if saved:
                interrupt.args = (f"checkpoint saved at {learner.steps_done_:,} of {learner.steps_total_:,} steps",)
            raise

    def _save(self, learner: Any, advice: str) -> bool:
        seconds = {"seconds": round(time.perf_counter() - self._started, 3)}
        try:
            with publish(self._checkpoint, self._record | seconds) as folder:
                learner.save(folder / "files")
        except OSError as error:  # the previous one stays; hours of training are not lost to a full disk
            problem = "the checkpoint could not be written"
            self._console.warn(explain_system_error(error, self._checkpoint, problem, advice) or str(error))
            return False
        finally:
            self._saved = time.perf_counter()
        return True


def _check_checkpoint(checkpoint: Path, record: dict[str, Any], learner_name: str) -> None:
    """Raise if the checkpoint is of another training, which starting again would overwrite."""
    other = read_record(checkpoint)
    if other is None or (other["config"], other["inputs"]) == (record["config"], record["inputs"]):
        return
    if is_up_to_date(checkpoint, _with_steps_of(checkpoint, record, learner_name)):
        return
    old, new = (
        {**made["config"][learner_name], "seed": made["config"]["seed"], **made["config"].get("train", _PAPERS)}
        for made in (other, record)
    )
    differences = [f"{key}={old.get(key)}, now {new.get(key)}" for key in old | new if old.get(key) != new.get(key)]
    words = {"extractor": "other visterms", "images": "other images or labels", "clicks": "other clicks"}
    words["is_a"] = "another is-a table"
    differences += [text for key, text in words.items() if other["inputs"].get(key) != record["inputs"].get(key)]
    raise UserError(
        f"{checkpoint} is of an interrupted training with {'; '.join(differences)}: train with those settings to "
        "resume it, or with --force to start again"
    )


def _with_steps_of(checkpoint: Path, record: dict[str, Any], learner_name: str) -> dict[str, Any]:
    """Return the record with the checkpoint's number of steps: another number of them is no other training."""
    other = read_record(checkpoint)
    if other is None or "n_steps" not in other["config"].get(learner_name, {}):
        return record
    section = record["config"][learner_name] | {"n_steps": other["config"][learner_name]["n_steps"]}
    return record | {"config": record["config"] | {learner_name: section}}


def _check_feasible(learner_name: str, learner: Any, config: Config, X: Any, y: Any, time_limit: float | None) -> None:
    """Refuse training that needs too much memory or time, or vectors that suit the learner badly."""
    n_images, n_features = X.shape
    n_entries = X.nnz if hasattr(X, "nnz") else n_images * n_features
    visterms = config.features.kind == "visterms" and config.collection.vectors.file is None
    try:
        vectors = "deep" if config.features.kind == "deep" else config.features.codebook.kind if visterms else None
        learner.check(X, y, vectors=vectors)
    except ValueError as error:
        raise LearnerRefused(_refusal(learner_name, error, visterms=visterms)) from None
    n_bytes, seconds = learner.estimate(n_images, n_features, n_entries)
    fewer = "extract fewer visterms, such as visterm features IMAGES --set features.n_visterms=1000"
    fewer = fewer if visterms else "use shorter vectors"
    if n_bytes > (room := available_memory()):
        needs = f"{n_bytes / 1e9:.0f} GB of memory, and {room / 1e9:.0f} GB are free"
        raise LearnerRefused(f"{learner_name}: vectors of {n_features:,} numbers take {needs}; {fewer}")
    if time_limit is None and seconds > _MOST_SECONDS:
        raise LearnerRefused(
            f"{learner_name}: vectors of {n_features:,} numbers take about {duration(seconds)} on one core; {fewer}, "
            "or train with --time-limit"
        )


def _refusal(learner_name: str, error: ValueError, *, visterms: bool = True) -> str:
    """Return what a learner refuses, with the commands for the parameters and vectors that it says to use."""
    text = re.sub(r"; use (\w+=)", rf"; use --set {learner_name}.\1", str(error))
    if text.endswith(" forest codebook"):
        kind = "" if visterms else "--set features.kind=visterms "
        text += f": visterm features IMAGES {kind}--set features.codebook.kind=forest"
    return f"{learner_name}: {text}"


def available_memory() -> float:
    """Return the bytes of memory that can be used without swapping."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as lines:
        return 1024 * float(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))  # not on Linux: all there is


def _report_training(
    learner_name: str, learner: Any, y: Any, timed_out: bool, config: Config, console: Console
) -> None:
    """Say what the figures on held-out images advise, one line each."""
    if learner.validation_map_ is None:
        return
    if learner.is_improving():
        measure, steps = learner.validation_measure, max(entry["step"] for entry in learner.history_)
        advice = "a longer --time-limit" if timed_out else f"--set {learner_name}.n_steps={2 * learner.n_steps}"
        console.say(
            f"{learner_name}: validation {measure} was still improving when the steps ended, after {steps:,}: {advice}"
        )
    if learner.worlds_ is not None:
        _say_worlds(learner_name, learner, y, console)
    cosine = learner.cosine_map_
    if learner.validation_map_ - cosine < _HARDLY_BETTER * min(cosine, 1 - cosine):
        figures = f"mAP {learner.validation_map_:.3f}, cosine {cosine:.3f}"
        visterms = config.features.kind == "visterms" and config.collection.vectors.file is None
        network = "vectors of a network (visterm features IMAGES --deep), or " if visterms else ""
        console.say(
            f"{learner_name} is hardly better than cosine on held-out images ({figures}): try {network}other settings "
            "(visterm tune)"
        )


def _say_worlds(learner_name: str, learner: Any, y: Any, console: Console) -> None:
    """Say how much of what was learned counts, and what it does for classes that are trained on and for others."""
    worlds = learner.worlds_
    names = ("classes that it was trained on", "other classes", "both in one gallery")
    figures = [
        f"{figure:.3f} ({cosine:.3f}) for {name}"
        for name, figure, cosine in zip(names, worlds["learner"], worlds["cosine"], strict=False)
    ]
    share = "all" if learner.learned_ == 1 else f"{learner.learned_:.0%}"
    beside = "" if learner.learned_ == 1 else ", beside how images look"
    if len(worlds["shares"]) > 1 and learner.world_ != "seen" and len(worlds["learner"]) == 1:
        beside += f", the cautious share, as no class could be held out ({_why_no_class(y)})"
    console.say(
        f"{learner_name}: {share} of what was learned counts{beside}; mAP on held-out images (cosine): "
        f"{', '.join(figures)}"
    )
    for name, figure, cosine in zip(names, worlds["learner"], worlds["cosine"], strict=False):
        if round(figure, 3) < round(cosine, 3):
            console.warn(
                f"{learner_name} is below cosine on held-out images for {name}: mAP {figure:.3f}, cosine {cosine:.3f}; "
                "a smaller --set train.learned, or --learner cosine, is better for these"
            )


def _why_no_class(y: Any) -> str:
    """Say why no class could be held out to validate."""
    import numpy as np

    from visterm.learners.validation import FEWEST_CLASSES

    if hasattr(y, "indptr"):
        return "too few labels are those of two images and more, and of a fifth of the images at most"
    n_classes = int((np.unique(y, return_counts=True)[1] >= 2).sum())
    if n_classes >= FEWEST_CLASSES:
        return "too few images would be left"
    return f"{count(n_classes, 'class')} with two training images or more, and {FEWEST_CLASSES} are needed"


def check_one_label(learner_name: str, images: Sequence[Image], clicks: bool) -> None:
    """Raise on clicks, and on images with several labels."""
    from visterm.learners import LEARNERS

    several = [image.path for image in images if len(image.labels) != 1]
    if not clicks and not several:
        return
    *others, last = [name for name, kind in TRAINED.items() if not LEARNERS[kind].one_label]
    what = f", and {len(several)} of {count(len(images), 'image')} have several (first: {several[0]})"
    raise LearnerRefused(
        f"{learner_name} learns from one label per image{', not from clicks' if clicks else what}; "
        f"use {', '.join(others)} or {last}"
    )


def constructor_parameters(
    kind: Any, config: Config, learner_name: str, n_images: int, y: Any, names: Sequence[str]
) -> dict[str, Any]:
    """Return the constructor's arguments: the learner's section, and the shared settings that its class takes.

    ``y`` and ``names`` are what `supervision` returns, for a learner that takes a hierarchy of the labels.
    """
    parameters = getattr(config, learner_name).model_dump()
    if parameters.get("is_a") is not None:
        parameters["is_a"] = parents_of(names, Path(parameters["is_a"]), numbered=y.ndim == 2)
    if parameters.get("n_steps", 0) is None:
        parameters["n_steps"] = kind().steps_for(n_images)
    accepted = kind().get_params()
    if "click_cutoff" in accepted and config.collection.clicks is None:
        parameters["click_cutoff"] = None
    shared = {"random_state": config.seed, "n_jobs": config.compute.n_jobs}
    return parameters | {name: value for name, value in shared.items() if name in accepted}
