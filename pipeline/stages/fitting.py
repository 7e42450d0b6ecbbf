"""From images and settings to a learner and its vectors: for the stages train, tune and evaluate."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.plain import counts_visterms
from visterm.pipeline.console import count, duration
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import mapped_vectors, vectors_by_rows

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config, Settings

FEWEST_GALLERY, _MOST_GALLERY = 100, 5_000  # images without labels that a whitening is learned from
_MOST_SECONDS = 900.0  # estimated, of a training without a time limit


class LearnerRefused(UserError):
    """One learner cannot be trained; others can."""


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


def labels_for(kind: Any, run: OpenedRun, learner_name: str, images: Sequence[Image]) -> tuple[Any, list[str]]:
    """Return the labels of images for a learner, and their names; LearnerRefused if it learns from one per image."""
    if kind.one_label:
        check_one_label(learner_name, images, run.clicks)
    return run.supervision(images)


def new_learner(kind: Any, config: Config, learner_name: str, n_images: int, y: Any, names: Sequence[str]) -> Any:
    """Make a learner with the settings of a configuration: see `constructor_parameters`."""
    return kind(**constructor_parameters(kind, config, learner_name, n_images, y, names))


def constructor_parameters(
    kind: Any, config: Config, learner_name: str, n_images: int, y: Any, names: Sequence[str]
) -> Settings:
    """Return the constructor's arguments: the learner's section, and the shared settings that its class takes.

    ``y`` and ``names`` are what `supervision` returns, for a learner that takes a hierarchy of the labels.
    """
    parameters = getattr(config, learner_name).model_dump()
    if parameters.get("is_a") is not None:
        parameters["is_a"] = load("is-a tables").parents_of(names, Path(parameters["is_a"]), numbered=y.ndim == 2)
    if parameters.get("n_steps", 0) is None:
        parameters["n_steps"] = kind().steps_for(n_images)
    accepted = kind().get_params()
    if "click_cutoff" in accepted and config.collection.clicks is None:
        parameters["click_cutoff"] = None
    shared = {"random_state": config.seed, "n_jobs": config.compute.n_jobs}
    return parameters | {name: value for name, value in shared.items() if name in accepted}


def vectors_for(learner: Any, run: OpenedRun, images: Sequence[Image]) -> Any:
    """Return the vectors that a learner is to be fitted on: on disk, if there are many and it reads them by rows."""
    return (vectors_by_rows if learner.reads_rows else mapped_vectors)(run, run.catalogue, images)


def unlabelled_gallery(run: OpenedRun, learner: Any, images: Sequence[Image]) -> list[Image]:
    """Return images without labels to learn the whitening from, where no class has two labelled ones.

    None for a learner that whitens no vectors, or where there are too few. Of many, some in even steps.
    """
    labels = [tuple(image.labels) for image in images]
    alone = all(len(of_image) == 1 for of_image in labels) and len(set(labels)) == len(labels)
    if not alone or run.clicks or run.config.counts_visterms or not (learner.whitens and learner.whiten):
        return []
    unlabelled = [image for image in run.images() if not image.labels]
    step = -(-len(unlabelled) // _MOST_GALLERY)
    return unlabelled[::step] if len(unlabelled) >= FEWEST_GALLERY else []


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
        kept = set((run.record(run.extractor) or {}).get("held_out", ()))
        rows = np.flatnonzero([image.path in kept for image in images])
        if 4 * len(rows) < 3 * min(fraction * len(images), MAX_IMAGES):
            return None
    return rows if len(rows) else None


def check_feasible(learner_name: str, learner: Any, config: Config, X: Any, y: Any, time_limit: float | None) -> None:
    """Refuse training that needs too much memory or time, or vectors that suit the learner badly."""
    n_images, n_features = X.shape
    n_entries = X.nnz if hasattr(X, "nnz") else n_images * n_features
    visterms = counts_visterms(config)
    try:
        vectors = "deep" if config.features.kind == "deep" else config.features.codebook.kind if visterms else None
        learner.check(X, y, vectors=vectors)
    except ValueError as error:
        raise LearnerRefused(refusal(learner_name, error, visterms=visterms)) from None
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


def refusal(learner_name: str, error: ValueError, *, visterms: bool = True) -> str:
    """Return what a learner refuses, with the commands for the parameters and vectors that it says to use."""
    text = re.sub(r"; use (\w+=)", rf"; use --set {learner_name}.\1", str(error))
    if text.endswith(" forest codebook"):
        kind = "" if visterms else "--set features.kind=visterms "
        text += f": visterm features IMAGES {kind}--set features.codebook.kind=forest"
    if text.endswith("no class has two images"):
        text += (
            f": label a second image of some, or use deep vectors (visterm features IMAGES --deep), of which "
            f"{FEWEST_GALLERY} images without labels teach a little; images for testing (split.test) do not count"
        )
    return f"{learner_name}: {text}"


def available_memory() -> float:
    """Return the bytes of memory that can be used without swapping."""
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as lines:
        return 1024 * float(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))  # not on Linux: all there is
