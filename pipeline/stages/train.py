"""The stage train: vectors and labels to a similarity."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.models import TRAINED, check_learners
from visterm.pipeline.store.records import is_fresh, make_record, read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.splits import split_key
from visterm.pipeline.store.vectors import extractor_content, identity, mapped_vectors, supervision

from .dask_cluster import connected
from .vector_kinds import extractor_config

if TYPE_CHECKING:
    pass


ONE_LABEL = ("musl", "mcml")  # they learn categories: an image is of one


class LearnerRefused(UserError):
    """What keeps one learner from being trained, and no other."""


def train(run: Run, config: Config, learner_name: str, console: Console, *, force: bool = False) -> dict[str, Any]:
    """Learn a similarity from the training images.

    Parameters
    ----------
    run : Run
    config : Config
    learner_name : str
        One of RANKERS.
    console : Console
    force : bool
        Learn again, whatever is fresh.

    Returns
    -------
    dict
        ``learner``, ``fresh`` (nothing had to be done), ``n_images``, ``n_validation``, ``steps``, ``seconds``.

    Raises
    ------
    UserError
        No features yet, no labels, too few classes; LearnerRefused where other learners could be trained.
    """
    check_learners([learner_name])
    with run.locked():
        collection = Collection(run.collection)
        check_features(run, config, collection)
        images = collection.images("train", "validation", labelled=True)
        if not any(image.split == "train" for image in images):
            raise UserError(f"run {run.name} has no labelled training images: {WAYS_TO_LABEL}")
        if learner_name == "cosine":
            return {"learner": "cosine", "fresh": True, "n_images": len(images), "steps": 0, "seconds": 0.0}
        folder = run.learner(learner_name)
        record = train_record(run, config, learner_name, images)
        # A checkpoint of just this beside a fresh model: of a --force that was interrupted. It goes on.
        if not force and is_fresh(folder, record) and not is_fresh(checkpoint_folder(run, learner_name), record):
            found = read_record(folder) or {}
            return {"learner": learner_name, "fresh": True} | found["result"]
        result = _train(run, config, learner_name, collection, images, record, console, force)
        run.save_config(config)
        collection.close()
    return {"learner": learner_name, "fresh": False} | result


def checkpoint_folder(run: Run, name: str) -> Path:
    """Return the folder of the checkpoint of a learner."""
    return run.learner(name).with_name(f"{name}.checkpoint")


def train_record(run: Run, config: Config, learner_name: str, images: Sequence[Image]) -> dict[str, Any]:
    """What a model of these images would be made from."""
    return make_record(
        "train",
        {learner_name: getattr(config, learner_name).model_dump(), "seed": config.seed},
        {
            "extractor": extractor_content(run),
            "images": identity(images),
            "clicks": config.collection.clicks is not None,
        },
    )


def _train(run, config, learner_name, collection, images, record, console, force) -> dict[str, Any]:
    """Fit or resume, with checkpoints between passes where the learner has any; publish the model."""
    import numpy as np

    from visterm.learners import LEARNERS, load_learner

    kind: Any = LEARNERS[TRAINED[learner_name]]
    fit = inspect.signature(kind.fit).parameters
    if "validation_rows" not in fit:
        images = [image for image in images if image.split == "train"]
    folder = run.learner(learner_name)
    checkpoint = checkpoint_folder(run, learner_name)
    if not force:
        _check_checkpoint(checkpoint, record, learner_name)
    goes_on = not force and is_fresh(checkpoint, record)
    spent = (read_record(checkpoint) or {}).get("seconds", 0.0) if goes_on else 0.0
    started = time.perf_counter() - spent
    clicks = config.collection.clicks is not None
    if learner_name in ONE_LABEL:
        _check_one_label(learner_name, images, clicks)
    X, (y, names) = mapped_vectors(run, collection, images), supervision(images, clicks=clicks)
    title = f"training {learner_name} on {count(len(images), 'image')}"
    rankers = "distribute" in fit and getattr(config, learner_name).n_rankers > 1
    with (
        connected(config, run) if rankers else contextlib.nullcontext() as cluster,
        console.phase(title, unit="steps") as phase,
        publish(folder, record) as target,
    ):
        state = {"saved": time.perf_counter()}

        def between_passes(learner: Any) -> None:
            if (done := getattr(learner, "steps_done_", None)) is not None:
                history = getattr(learner, "history_", None) or [{}]
                found = history[-1].get("validation")
                note = "" if found is None else f"validation {learner.validation_measure} {found:.3f}"
                phase.advance_to(done, learner.steps_total_, note)
            if hasattr(kind, "resume") and time.perf_counter() - state["saved"] > config.compute.checkpoint_seconds:
                seconds = {"seconds": round(time.perf_counter() - started, 3)}
                try:
                    with publish(checkpoint, record | seconds) as files:
                        learner.save(files / "files")
                except OSError as error:  # the one before stays, and hours of training are not given up for it
                    console.warn(
                        f"{checkpoint}: no checkpoint could be written ({error.strerror or error}); training goes on"
                    )
                state["saved"] = time.perf_counter()

        options: dict[str, Any] = {"callback": between_passes} if "callback" in fit else {}
        if cluster is not None:
            options["distribute"] = cluster.map
        try:
            if goes_on:
                console.say("going on from the checkpoint of an interrupted training")
                learner: Any = load_learner(checkpoint / "files")
                learner.resume(X, y, **options)
            else:
                # Images of a folder validation/ are watched in place of a share of the training images.
                rows = np.flatnonzero([image.split == "validation" for image in images])
                if len(rows):
                    options["validation_rows"] = rows
                learner = kind(**_parameters(kind, config, learner_name)).fit(X, y, **options)
        except ValueError as error:
            hint = f"; use --set {learner_name}.n_metrics={len(names)}" if str(error).startswith("n_metrics=") else ""
            raise LearnerRefused(f"{learner_name}: {error}{hint}") from None
        learner.save(target / "files")
        held_out = getattr(learner, "held_out_", None)
        if hasattr(learner, "classes_"):
            record["labels"] = names
        record["result"] = {
            "n_images": len(images),
            "n_validation": 0 if held_out is None else len(held_out),
            "steps": int(getattr(learner, "n_steps_", 0)),
            "seconds": round(time.perf_counter() - started, 3),
        }
    shutil.rmtree(checkpoint, ignore_errors=True)
    return record["result"]


def _check_checkpoint(checkpoint: Path, record: dict[str, Any], name: str) -> None:
    """Refuse to begin again over what another training has learned so far."""
    found = read_record(checkpoint)
    if found is None or (found["config"], found["inputs"]) == (record["config"], record["inputs"]):
        return
    old, new = ({**made["config"][name], "seed": made["config"]["seed"]} for made in (found, record))
    other = [f"{key}={old.get(key)}, now {new.get(key)}" for key in old | new if old.get(key) != new.get(key)]
    what = {"extractor": "other visterms", "images": "other images or labels", "clicks": "other clicks"}
    other += [words for key, words in what.items() if found["inputs"].get(key) != record["inputs"].get(key)]
    raise UserError(
        f"{checkpoint} is of an interrupted training with {'; '.join(other)}: train as then to go on from it, or with "
        "--force to begin again"
    )


def _check_one_label(name: str, images: Sequence[Image], clicks: bool) -> None:
    """Refuse clicks, and images with several labels, for a learner that takes one."""
    several = [image.path for image in images if len(image.labels) != 1]
    if not clicks and not several:
        return
    *others, last = [other for other in TRAINED if other not in ONE_LABEL]
    what = f", and {len(several)} of {count(len(images), 'image')} have several (first: {several[0]})"
    raise LearnerRefused(
        f"{name} learns from one label an image{', not from clicks' if clicks else what}; "
        f"take {', '.join(others)} or {last}"
    )


def _parameters(kind: Any, config: Config, learner_name: str) -> dict[str, Any]:
    """The section of a learner, and what else its class wants to be told."""
    found = getattr(config, learner_name).model_dump()
    has = inspect.signature(kind).parameters
    if "click_cutoff" in has and config.collection.clicks is None:
        found["click_cutoff"] = None
    others = {"random_state": config.seed, "n_jobs": config.compute.n_jobs}
    return found | {name: value for name, value in others.items() if name in has}


def check_features(run: Run, config: Config, collection: Collection) -> None:
    """The collection must be complete and made with this configuration."""
    again = f"run 'visterm features --run {run.name}' first"
    record = read_record(run.extractor)
    learnt_alike = record and record["inputs"].get("split", collection["split"]) == collection["split"]
    made = record and learnt_alike and record["content"] == collection["extractor"]
    if record is None or not made:
        raise UserError(f"run {run.name}: the features are not finished; {again}")
    same = record["config"] == extractor_config(config)
    if not same or not collection["split"].startswith(split_key(config)):
        raise UserError(f"run {run.name}: the features were made with another configuration; {again}")
    if collection.counts_by("status")["pending"]:
        raise UserError(f"run {run.name}: some images are not extracted yet; {again}")
