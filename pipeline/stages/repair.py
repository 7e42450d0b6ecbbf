"""The stage repair: finds what is damaged in a run, and rebuilds what can be rebuilt."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.feedback.marks import RelevanceMarks
from visterm.pipeline.feedback.update import FeedbackTrainer
from visterm.pipeline.store.append_only import AppendOnlyStore
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.rebuild import KnownImage, damage_of, rebuild_catalogue
from visterm.pipeline.store.records import damage, heals, read_metrics, read_record
from visterm.pipeline.store.run import Run

from .features import features


def repair(
    run: Run, config: Config, root: Path | None, console: Console, stores: dict[str, AppendOnlyStore]
) -> dict[str, Any]:
    """Check every file of a run; rebuild a damaged catalogue, and extract the images of damaged segments again.

    Parameters
    ----------
    run : Run
    config : Config
    root : Path or None
        The directory of images, if the catalogue no longer tells it, or if it has moved.
    console : Console
    stores : dict of AppendOnlyStore
        Files of people's work by what they hold, such as "relevance marks": of a damaged one the rows that can be read
        are kept.

    Returns
    -------
    dict
        ``catalogue``: whether it was rebuilt; ``kept``, ``lost`` and ``doubtful``: lines that say so; ``damaged``: what
        another command must make again, with the command; and the summary of `features` under ``features``.

    Raises
    ------
    UserError
        There is no collection, its images are gone, or another process writes to the run.
    """
    started = time.perf_counter()
    kept: list[str] = []
    lost: list[str] = []
    doubtful: list[str] = []
    with run.locked(), system_errors_explained(run.folder):
        for what, store in stores.items():
            if (problem := store.damage()) is not None:
                n_rows, n_lost = store.rebuild()
                console.say(problem)
                kept.append(f"{what}: {count(n_rows, 'row')}")
                if n_lost or not n_rows:
                    lost.append(f"{what}: {count(n_lost, 'row') if n_lost else 'the file was gone or unreadable'}")
        if (problem := damage_of(run.collection)) is not None:
            console.say(problem)
            rebuilt = rebuild_catalogue(run, root, _marked(stores))
            sources = {
                "the damaged catalogue": rebuilt.from_catalogue,
                "the segments": rebuilt.from_segments,
                "relevance marks": rebuilt.from_marks,
            }
            from_each = ", ".join(f"{n:,} from {source}" for source, n in sources.items() if n)
            kept.append(f"ids of images: {from_each or 'none'}")
            lost += rebuilt.lost
            if rebuilt.by_hand:
                doubtful.append(
                    f"{count(rebuilt.by_hand, 'image')} added, removed or labelled by hand: as the damaged catalogue "
                    "has them, which may be wrong"
                )
            if rebuilt.unreadable or rebuilt.from_segments or rebuilt.from_marks:
                n = rebuilt.unreadable + rebuilt.from_segments + rebuilt.from_marks
                lost.append(
                    f"{count(n, 'row')} of the catalogue: labels given and removals made by hand, if there were any"
                )
    summary = features(run, config, root, console)
    damaged = damaged_artifacts(run)
    return {
        "catalogue": problem is not None,
        "kept": kept,
        "lost": lost,
        "doubtful": doubtful,
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


def _marked(stores: dict[str, AppendOnlyStore]) -> list[KnownImage]:
    """The images that relevance marks name, each by its last mark."""
    images = {}
    for store in stores.values():
        if isinstance(store, RelevanceMarks):
            with contextlib.suppress(UserError):
                images = {row["image"]: KnownImage(row["image"], row["path"], row["sha256"]) for row in store.export()}
    return list(images.values())


def damaged_artifacts(run: Run) -> list[str]:
    """Tell which artifacts other than catalogue and segments are damaged, and the command that rebuilds each.

    A line each, which names the damaged file.
    """
    lines = []
    folders = sorted(folder for pattern in _ARTIFACTS for folder in run.folder.glob(pattern))
    for folder in (folder for folder in folders if folder.suffix in ("", ".checkpoint")):  # not half-written ones
        try:
            record = read_record(folder)
            if record is not None:
                problem = damage(folder, record)
            else:  # `features` writes that of the collection at its end
                problem = None if folder == run.collection else "record.json: no such file or directory"
            if problem is not None:
                lines.append(f"{folder}: damaged ({problem}); {heals(folder)}")
            elif folder.parent.name == "evaluations":
                read_metrics(folder)  # those of earlier versions have no checksum
        except UserError as error:
            lines.append(str(error))
    try:
        FeedbackTrainer(run).status()
    except UserError as error:
        lines.append(str(error))
    return list(dict.fromkeys(lines))  # a damaged learner is named by its updates, too


_ARTIFACTS = ("collection", "extractor", "learners/*", "tuning/*", "index/*", "evaluations/*", "feedback/*/[0-9]*")
