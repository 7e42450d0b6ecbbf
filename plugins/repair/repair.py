"""The stage repair: finds what is damaged in a run, and rebuilds what can be rebuilt."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.plugins import STORES, find
from visterm.pipeline.stages.features import FeaturesSummary, features
from visterm.pipeline.store.append_only import AppendOnlyStore
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.records import damage, read_metrics, repair_hint
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.versions import LearnerVersions
from visterm.teaching.marks import RelevanceMarks

from .restore import damage_of, restore_catalogue

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config


class Repaired(TypedDict):
    """Findings and results of `repair`, as lines."""

    catalogue: bool  # whether it was damaged
    kept: list[str]
    lost: list[str]
    damaged: list[str]  # what another command must make again, with the command
    features: FeaturesSummary
    seconds: float


def repair(run: Run, config: Config, root: Path | None, console: Console) -> Repaired:
    """Check every file of a run; restore a damaged catalogue, and extract the images of damaged segments again.

    A damaged file of people's work (`visterm.pipeline.plugins.STORES`) is made again from its copy and the rows that
    can be read. `root` is the directory of images, if the catalogue no longer tells it, or if it has moved.

    UserError if there is no collection, its images are gone, or another process writes to the run.
    """
    started = time.perf_counter()
    kept: list[str] = []
    lost: list[str] = []
    with run.locked(), system_errors_explained(run.folder):
        for what, (place, path) in STORES.items():
            if (kind := find(place)) is None:
                continue
            store: AppendOnlyStore = kind(getattr(run, path))
            if (problem := store.damage()) is not None:
                n_rows, n_lost = store.rebuild()
                console.say(problem)
                kept.append(f"{what}: {count(n_rows, 'row')}")
                if n_lost or not n_rows:
                    lost.append(f"{what}: {count(n_lost, 'row') if n_lost else 'the file was gone or unreadable'}")
            store.renew_copy()
        if (problem := damage_of(run.collection)) is not None:
            console.say(problem)
            lines = restore_catalogue(run, root)
            kept, lost = [*kept, *lines[0]], [*lost, *lines[1]]
        with Collection(run.collection) as collection:
            collection.renew_copy()
    summary = features(run, config, root, console)
    damaged = damaged_artifacts(run)
    return {
        "catalogue": problem is not None,
        "kept": kept,
        "lost": lost,
        "damaged": damaged,
        "features": summary,
        "seconds": round(time.perf_counter() - started, 3),
    }


def first_damage(run: Run) -> str | None:
    """Look through the files of a run; return the first line that says what is damaged, or None."""
    if (problem := damage_of(run.collection)) is not None:
        return problem
    with Collection(run.collection) as collection:
        collection.check_segments()
    return next(iter(damaged_artifacts(run)), None)


def damaged_artifacts(run: Run, *, large: bool = True) -> list[str]:
    """Tell which artifacts other than catalogue and segments are damaged, and the command that rebuilds each.

    A line each, which names the damaged file. ``large`` as of `damage`.
    """
    lines = []
    folders = sorted(folder for pattern in _ARTIFACTS for folder in run.folder.glob(pattern))
    for folder in (folder for folder in folders if folder.suffix in ("", ".checkpoint")):  # not half-written ones
        try:
            if (problem := _problem(run, folder, large=large)) is not None:
                lines.append(f"{folder}: damaged ({problem}); {repair_hint(folder)}")
        except UserError as error:
            lines.append(str(error))
    try:
        RelevanceMarks(run.marks).standing()
        LearnerVersions(run).check()
    except UserError as error:
        lines.append(str(error))
    return list(dict.fromkeys(lines))  # a damaged learner is named by its updates, too


def _problem(run: Run, folder: Path, *, large: bool) -> str | None:
    """Return what is damaged in an artifact, or None; read it again if it was replaced while it was read."""
    while True:
        record, problem = run.record(folder), None
        if record is not None:
            problem = damage(folder, record, large=large)
        elif folder != run.collection and os.path.lexists(folder):  # `features` writes that of the collection last
            problem = "record.json: no such file or directory"
        if problem is None and record is not None and folder.parent.name == "evaluations":
            read_metrics(folder)
        if problem is None or run.record(folder) == record:
            return problem


_ARTIFACTS = (
    "collection",
    "extractor",
    "text_model",
    "learners/*",
    "tuning/*",
    "index/*",
    "evaluations/*",
    "feedback/*/[0-9]*",
)
