"""The description of a run that ``visterm info`` prints."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.cli.runs import open_run
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.stages.evaluate import evaluation_record
from visterm.pipeline.stages.train import checkpoint_path, train_record
from visterm.pipeline.stages.vector_kinds import changed_settings
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.models import LEARNER_NAMES, TRAINED
from visterm.pipeline.store.opened import OpenedRun, opened
from visterm.pipeline.store.records import damage, is_up_to_date, read_metrics
from visterm.pipeline.store.run import Run, how_to_train
from visterm.pipeline.store.teachers import is_explaining

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

REFIT_COSINE = 0.995  # idf changes little even if the content of the images changes much
_SAMPLE = 20_000  # images that the cosine is measured on; more would not change it visibly

Description = dict[str, Any]  # parts of a run by the names that 'visterm info' prints


def show_info(run: str | None, *, skipped: bool, as_json: bool) -> None:
    """Print the description of a run."""
    place, configuration = open_run(run, None, None)
    description = describe_run(place, configuration)
    if not skipped:
        description.pop("skipped_files")
    if as_json:
        print(json.dumps(description, indent=1))
        return

    for key, value in description.items():
        if key == "skipped_files":
            for path, reason in value:
                print(f"{one_line(path)}: {reason}")
        elif key == "evaluations":
            for evaluation in value.values():
                if "error" not in evaluation:  # a line of `damaged`
                    print(f"{'evaluated:':12} {_evaluation_in_words(evaluation)}")
        elif key in ("damaged", "not_used"):
            for line in value:
                print(f"{key.replace('_', ' ') + ':':12} {one_line(line)}")
        elif key == "root" and value and not os.path.isdir(value):
            follow = f"'visterm features IMAGES {place.option}' follows images that were moved"
            print(f"{'root:':12} {one_line(value)}, which is gone; {follow}")
        elif key == "segments":
            if "error" not in value:
                print(f"{'segments:':12} {_segments_in_words(value)}")
        elif key == "indexes":
            for name, index in value.items():
                share = f"{index['recall']:.1%} of the {index['k']} nearest of {index['images']:,} images"
                held = f"; {index['held']:,} in Milvus, {index['milvus']}" if "milvus" in index else ""
                print(f"{'index:':12} {name} finds {share} (measured with {index['queries']:,} of them){held}")
        elif key == "drift":
            if value is not None:
                print(f"{'drift:':12} {_drift_in_words(value, place)}")
        elif isinstance(value, dict):
            of = " strength" if key == "neighbours" else ""
            figures = ", ".join(f"{name}{of} {figure}" for name, figure in value.items())
            print(f"{key + ':':12} {figures or 'none'}")
        else:
            print(f"{key + ':':12} {one_line(str(value))}")


def _segments_in_words(segments: dict) -> str:
    dead, merged = segments["dead_rows"], segments["to_merge"]
    compact = f"; 'visterm compact' merges {merged:,}" if merged else ""
    return f"{segments['number']:,} ({dead:,} dead rows{compact})"


def _drift_in_words(drift: dict, place: Run) -> str:
    n, cosine = drift["images"], drift["mean_cosine"]
    change = "" if cosine is None else f"; mean cosine to vectors with today's idf {cosine:.3f}"
    pays = f"out of date: 'visterm features --force {place.option}' learns them again"
    return f"{count(n, 'image')} added since visterms and idf were learned{change}; " + (
        pays if drift["refit"] else "up to date"
    )


def _evaluation_in_words(evaluation: dict) -> str:
    figures = ", ".join(f"{system} {value}" for system, value in evaluation["map"].items())
    stale = " (out of date: evaluate again)" if evaluation["stale"] else ""
    return f"{evaluation['protocol']}, {evaluation['n_queries']:,} queries, mAP: {figures}{stale}"


def describe_run(run: Run, config: Config) -> Description:
    """Describe images, learners and evaluations of a run, what is out of date, and what is damaged.

    ``damaged`` has a line for each damaged part, which names the file and the command that rebuilds it; the other parts
    are described all the same; files of more than 100 MB are compared by their sizes, and are read by `repair`.
    UserError if the catalogue is damaged.
    """
    with opened(run, config, lock=False) as it:
        return _describe(it)


def _describe(run: OpenedRun) -> Description:
    config, collection = run.config, run.catalogue
    status, splits = collection.counts_by("status"), collection.counts_by("split")
    classes = {label for labels in collection.counts_by("labels") if labels for label in json.loads(labels)}
    extractor = _whole_record(run, run.extractor)
    description: Description = {
        "run": run.name,
        "folder": str(run.folder),
        "root": os.fspath(collection.root or ""),
        "images": status["ok"],
        "pending": status["pending"],
        "skipped": status["skipped"],
        "classes": len(classes),
        **({"labels": collection.label_source()[0] or "none"} if collection["label_source"] else {}),
        "splits": {split or "none": n for split, n in splits.items()},
        **_describe_extractor(run, extractor),
        **_describe_checksums(run),
        "excluded": status["excluded"],
        **_describe_segments(run, extractor is not None),
        "not_used": collection.label_source()[1],
        "learners": {},
        "evaluations": {},
        "skipped_files": collection.skipped(),
    }
    training = None  # where it is not known what learners would learn from
    if extractor is not None:
        with contextlib.suppress(UserError):  # of a table of triplets
            training = run.training
    for name in (name for name in TRAINED if name in run.learners()):
        if (record := _whole_record(run, run.learner(name))) is None:
            description["learners"][name] = f"damaged: run '{how_to_train(run, name)} --force'"
            continue
        labelled = training is not None and bool(training.images) and not training.marks
        if record.get("result", {}).get("n_images") == 0 and not labelled:
            description["learners"][name] = "learns from marks alone"
            continue
        try:
            record_now = None if training is None else train_record(run, config, name, training)
            is_current = record_now is not None and is_up_to_date(run.learner(name), record_now, large=False)
        except UserError:  # of a damaged extractor
            is_current = False
        n_steps = record.get("result", {}).get("steps")
        steps = f"{n_steps:,} steps" if n_steps else "trained"
        description["learners"][name] = steps if is_current else f"{steps} (out of date: train again)"
        if size := sum(size for file, size in record.get("sizes", {}).items() if is_explaining(file)):
            description.setdefault("teachers", {})[name] = f"{size / 1e6:.1f} MB"
    if unfinished := [name for name in TRAINED if _whole_record(run, checkpoint_path(run, name)) is not None]:
        description["unfinished"] = {
            name: f"training was interrupted; '{how_to_train(run, name)}' with the same settings resumes it"
            for name in unfinished
        }
    for title, part, figure in (("indexes", "index", "recall"), ("neighbours", "neighbours", "strength")):
        if figures := _describe_figures(run, extractor, part, figure):
            description[title] = figures
    for folder in sorted(run.folder.glob("evaluations/*")):
        if "." not in folder.name:
            description["evaluations"][folder.name] = _describe_evaluation(run, folder)
    segments = collection.damaged_segments() if "error" in description["segments"] else ()
    description["damaged"] = [*segments, *load("repair").damaged_artifacts(run, large=False)]
    return description


def _whole_record(run: Run, folder: Path) -> Record | None:
    """Read the record of an artifact; None if there is none, or if any of its files is seen to be damaged."""
    try:
        record = run.record(folder)
    except UserError:
        return None
    return None if record is None or damage(folder, record, large=False) is not None else record


def _describe_segments(run: OpenedRun, whole_extractor: bool) -> Description:
    """Describe the segments on disk, and the drift since visterms and idf were learned."""
    try:
        stored = run.catalogue.stored()
        segments = {
            "number": len(stored),
            "dead_rows": sum(segment.rows - segment.living for segment in stored),
            "to_merge": len(run.catalogue.mergeable()),
        }
        return {"segments": segments, "drift": measure_drift(run) if whole_extractor else None}
    except UserError as error:  # a damaged segment; the rest can be described
        return {"segments": {"error": str(error)}, "drift": None}


def _describe_figures(run: Run, extractor: Record | None, part: str, figure: str) -> Description:
    """Describe a figure of artifacts of the current vectors, by learner.

    The recall that indexes had when they were built (that of the vectors themselves, ``vectors``, serves several
    learners), or the strength of graphs of neighbours.
    """
    figures = {}
    for name in (*LEARNER_NAMES, "vectors"):
        record = _whole_record(run, run.folder / part / name)
        if (
            record
            and extractor
            and record["inputs"]["extractor"] == extractor["content"]
            and record.get(figure) is not None
        ):
            figures[name] = record[figure]
    return figures


def _describe_extractor(run: OpenedRun, record: Record | None) -> Description:
    """Describe how vectors are made."""
    config = run.config
    if record is None:
        damaged = os.path.lexists(run.extractor)
        return {"learned from": "unknown, the extractor is damaged" if damaged else "nothing yet"}
    if "training_images" in record:
        changes = changed_settings(run)
        return {
            "visterms": record["config"]["features"]["n_visterms"],
            "learned from": count(record["training_images"], "training image")
            + (f" (out of date, {changes}: run features again)" if changes else ""),
        }
    vectors, features = config.collection.vectors.file, config.features
    model = "EfficientNet-Lite0" if features.kind == "deep" else features.onnx.model
    source = f"read from {vectors}" if vectors is not None else f"made by {model}"
    precision = record["config"]["features"]["precision"]
    stored = "" if record["inputs"].get("dense") is False else f" in {precision}"  # sparse imported ones have no choice
    return {"vectors": f"of {record['n_features']:,} numbers{stored}, {source}"}


def _describe_checksums(run: OpenedRun) -> Description:
    """Describe the checksums that `features` recorded; nothing once images were added or removed since."""
    try:
        record = run.record(run.collection) or {}
    except UserError:
        return {}
    if record.get("result", {}).get("n_images") != run.catalogue.counts_by("status")["ok"]:
        return {}
    return {"checksums": record["checksums"]} if "checksums" in record else {}


def _describe_evaluation(run: OpenedRun, folder: Path) -> Description:
    """Describe protocol and mean average precisions of an evaluation, and whether it is up to date."""
    try:
        metrics = read_metrics(folder)
    except UserError as error:
        return {"error": str(error)}
    try:
        expected = evaluation_record(run, folder.name.split("+"))
        is_current = _whole_record(run, folder) is not None and is_up_to_date(folder, expected)
    except UserError:  # a learner is damaged
        is_current = False
    return {
        "protocol": metrics["protocol"],
        "n_queries": metrics["n_queries"],
        "map": {name: round(figures["map"], 4) for name, figures in metrics["systems"].items()},
        "stale": not is_current,
    }


def measure_drift(run: OpenedRun) -> dict[str, Any] | None:
    """Measure the change since visterms and idf were learned, and whether to learn them again; None without idf.

    ``images`` is the number of new or changed ones. ``mean_cosine`` compares the vectors under the idf in use with
    those under the idf of the images that would be learned from now; None if nothing is new. ``refit`` is true if it is
    below REFIT_COSINE, or if more than half of the images are new: the visterms may not tell them apart, which the
    cosine does not show.
    """
    record, collection = run.record(run.extractor), run.catalogue
    file = run.extractor / "files" / "idf.npy"
    if record is None or not file.exists():
        return None
    n_images = collection.counts_by("status")["ok"]
    n_new = collection.n_since(record["last_image"])
    cosine = _mean_cosine(collection, file) if n_new else None
    refit = n_new > n_images - n_new or (cosine is not None and cosine < REFIT_COSINE)
    return {"images": n_new, "mean_cosine": cosine, "refit": refit}


def _mean_cosine(collection: Collection, idf_file: Path) -> float | None:
    """Return the mean cosine of the images' vectors under the idf of a file with those under the images' own idf."""
    import numpy as np

    from visterm.features import VistermWeighting

    images = collection.images()
    if len(images) > _SAMPLE:
        chosen = np.random.default_rng(0).choice(len(images), _SAMPLE, replace=False)
        images = [images[i] for i in np.sort(chosen)]
    if not images:
        return None
    counts = collection.counts(images)
    training = np.array([image.split == "train" for image in images])
    current = VistermWeighting().fit(counts[training] if training.any() else counts)
    in_use = VistermWeighting()
    in_use.idf_ = np.load(idf_file, allow_pickle=False)
    new, old = current.transform(counts), in_use.transform(counts)
    not_empty = (np.diff(new.indptr) > 0) | (np.diff(old.indptr) > 0)
    cosines = np.asarray(new.multiply(old).sum(axis=1)).ravel()[not_empty]
    return round(float(cosines.mean()), 4) if len(cosines) else None
