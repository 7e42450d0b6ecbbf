"""The stage evaluate: rankings, measures and the report."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.idle import idle_settings
from visterm.pipeline.console import Console, count, told_of_compiling
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.store.checksums import Record
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.models import (
    AGAIN,
    TRAINED,
    check_learners,
    check_trained,
    how_to_train,
    load_trained,
    trained_record,
    warn_if_stale,
)
from visterm.pipeline.store.opened import OpenedRun, opened
from visterm.pipeline.store.records import fingerprint, is_up_to_date, make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.splits import drawn_here
from visterm.pipeline.store.supervision import check_labels
from visterm.pipeline.store.vectors import extractor_content, identity
from visterm.pipeline.workers import connected

from .features import check_features
from .train import train_record

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.evaluation.measure import EvalTask

RUN_FILES = "run_files"  # folder beside the report
_BLOCK = 4096  # images whose vectors are looked at at a time


def evaluate(
    run: Run,
    config: Config,
    learners: str | Sequence[str],
    console: Console,
    *,
    force: bool = False,
    run_files: bool = False,
    command: str = "",
) -> Path:
    """Rank the test images with learners and with cosine; write measures, curves and the report.

    `learners` are of LEARNER_NAMES, in the order of the report; "all": every learner of the run that is up to date.
    `force` evaluates again even if up to date; `run_files` also writes the full rankings for other programs, see
    `write_run_files`; the report shows `command`, the command line. Returns the folder of ``report.html``,
    ``metrics.json``, ``curves.csv``, ``precision_curve.png`` and ``neighbours.csv``.

    UserError if there are no labelled test images, nothing is trained, or an is-a table lacks the labels of the run.
    """
    chosen = [learners] if isinstance(learners, str) else list(learners)
    check_learners([name for name in chosen if name != "all"])
    with opened(run, config) as run:
        check_features(run)
        _queries_and_gallery(run)  # before any learner: without test images none can be evaluated
        if "all" in chosen:
            chosen = _all_up_to_date(run, console)
        names = [name for name in dict.fromkeys(chosen) if name != "cosine"] or ["cosine"]
        for name in names:
            check_trained(run, name)
        if config.evaluate.protocol == "open":
            check_labels(config, "evaluate.protocol=open")
            load("the open protocol").check_classes(run)
        for line in idle_settings(config, "evaluate", "index"):
            console.warn(line)
        folder = run.evaluation("+".join(names))
        record = evaluation_record(run, names)
        for name in names:
            warn_if_stale(run, name, run.training.images, console)
            _warn_of_other_settings(run, name, console)
        if force or not is_up_to_date(folder, record) or (run_files and not (folder / RUN_FILES).is_dir()):
            with publish(folder, record) as target:
                _evaluate(run, names, target, console, command, run_files)
            run.save_config(config)
    return folder


def _all_up_to_date(run: OpenedRun, console: Console) -> list[str]:
    """Return the learners of a run that are up to date; warn of the others."""
    up_to_date: list[str] = []
    stale: list[str] = []
    for name in TRAINED:
        if name in run.learners():
            try:
                is_current = is_up_to_date(run.learner(name), train_record(run, run.config, name, run.training))
            except UserError as error:  # a damaged record
                console.warn(str(error))
                is_current = False
            (up_to_date if is_current else stale).append(name)
    if not up_to_date:
        why = f"{', '.join(stale)} must be trained again" if stale else "nothing is trained"
        command = how_to_train(run, ",".join(stale)) if stale else f"visterm train {run.option}"
        raise UserError(f"run {run.name}: {why}; run '{command}' first")
    if stale:
        console.warn(f"skipped, as they must be trained again: {', '.join(stale)}")
    return up_to_date


def _warn_of_other_settings(run: OpenedRun, name: str, console: Console) -> None:
    trained = trained_record(run, name)
    if not trained["inputs"]:  # cosine
        return
    records = trained, train_record(run, run.config, name, run.training)
    before, now = ((record["config"], record["inputs"].get("is_a")) for record in records)
    if before != now:
        console.warn(f"{name} was trained with other settings; '{how_to_train(run, name)}' trains it with these")


def _queries_and_gallery(run: OpenedRun) -> tuple[list[Image], list[Image]]:
    """Return queries and gallery; the same list if the test images query each other."""
    queries = run.images("test", labelled=True)
    if not queries:
        has_labels = bool(run.images(labelled=True))
        if has_labels and run.clicks and not drawn_here(run.catalogue["split"]):
            raise UserError(
                f"run {run.name}: no test image was clicked, so none is a query: {run.config.collection.clicks} names "
                "training images only; add clicks on test images, or let visterm draw the split, without folders train "
                "and test"
            )
        if has_labels and run.clicks:
            keep = f"visterm features {run.option} --set split.train=0.7 --set split.test=0.3"
            raise UserError(f"run {run.name}: no clicked image is a test image; '{keep}' keeps some")
        fix = "raise split.test, label more images of each class, or add a folder test/<class>"
        raise UserError(f"run {run.name} has no labelled test images: {fix if has_labels else WAYS_TO_LABEL}")
    among_queries = run.config.evaluate.protocol != "query-gallery"
    gallery = queries if among_queries else run.images("train", labelled=True)
    if len(gallery) - among_queries < 1:
        raise UserError(f"run {run.name}: {count(len(gallery), 'image')} cannot be ranked; add images")
    return queries, gallery


def evaluation_record(run: OpenedRun, names: Sequence[str]) -> Record:
    """Return the record that an evaluation of these learners would have."""
    queries, gallery = _queries_and_gallery(run)
    is_a = run.config.evaluate.is_a
    trained = [trained_record(run, name) for name in names]
    settings = run.config.evaluate.model_dump()
    inputs = {}
    if run.config.evaluate.protocol == "open":
        inputs["open"] = load("the open protocol").trainings_of(run, names)
    else:
        del settings["class_splits"]
    return make_record(
        "evaluate",
        {"evaluate": settings, "search": run.config.search.model_dump()},
        inputs
        | {
            "extractor": extractor_content(run),
            "learners": fingerprint([[n, t["inputs"], t.get("created")] for n, t in zip(names, trained, strict=True)]),
            "queries": identity(queries),
            "gallery": identity(gallery),
            "train": identity(run.images("train", labelled=True)),
            "is_a": None if is_a is None else file_sha256(is_a),
        },
    )


def _evaluate(
    run: OpenedRun, names: Sequence[str], folder: Path, console: Console, command: str, run_files: bool
) -> None:
    """Measure the learners and cosine, and write all files of an evaluation but its record."""
    from visterm.features import silence_decoders
    from visterm.pipeline.evaluation.measure import SystemResult, measure
    from visterm.pipeline.evaluation.results import Evaluated, write_results

    silence_decoders()
    started = time.perf_counter()
    config = run.config
    task, warnings = _make_task(run, names)
    systems: dict[str, SystemResult] = {}
    n_queries, n_gallery = count(len(task.queries), "query"), count(len(task.gallery), "image")
    learners, names = names, list(dict.fromkeys((*names, "cosine")))
    with (
        connected(config, run) as cluster,
        told_of_compiling(console),
        console.phase(f"ranking {n_gallery} for {n_queries}", len(names), "systems") as phase,
    ):
        if cluster is None:
            results: Iterable[SystemResult] = (
                measure(load_trained(run, name), trained_record(run, name), task, config) for name in names
            )
        else:
            place = Run(run.folder.absolute())
            measured = cluster.map(_measure_on_worker, ((place, config, names, name) for name in names))
            results = (SystemResult(load_trained(run, name), *rest) for rest, name in zip(measured, names, strict=True))
        for name, result in zip(names, results, strict=True):
            systems[name] = result
            phase.advance_to(len(systems), note=name)
    with console.phase("looking for copies of test images among the training ones"):
        train = run.images("train", "validation")
        vectors = run.vectors(train) if train else task.Q[:0]
        root, most = run.catalogue.root or Path(), config.collection.max_pixels
        copies = load("copies")(root, task.queries, train, task.Q, vectors, most)
    if copies.pairs:
        text = copies.in_words({name: system.evaluation for name, system in systems.items()}, task.queries, train)
        console.warn(text)
        warnings.insert(0, text)
    open_world = None
    if config.evaluate.protocol == "open":
        open_world = load("the open protocol").measure_class_splits(run, learners, console)
    if run_files:
        with console.phase("writing the full rankings"):
            load("run files")(folder / RUN_FILES, {n: s.learner for n, s in systems.items()}, task, config)
    with console.phase("writing the report"):
        seconds, command = time.perf_counter() - started, command or f"visterm evaluate {run.option}"
        write_results(folder, Evaluated(run, systems, task, warnings, seconds, command, open_world, copies))


def _measure_on_worker(run: Run, config: Config, names: Sequence[str], name: str) -> tuple:
    """Measure one learner on a worker of a cluster; return `SystemResult` without the learner."""
    from visterm.pipeline.evaluation.measure import measure

    with opened(run, config, lock=False) as it:
        task, _ = _make_task(it, names)
    alone = config.model_copy(update={"compute": config.compute.model_copy(update={"n_jobs": 1})})
    return measure(load_trained(run, name), trained_record(run, name), task, alone)[1:]


def _make_task(run: OpenedRun, names: Sequence[str]) -> tuple[EvalTask, list[str]]:
    """Return the images that learners are measured on, and warnings for readers of the report."""
    import numpy as np

    from visterm.pipeline.evaluation.measure import EvalTask
    from visterm.retrieval import relevance_from_labels

    queries, gallery = _queries_and_gallery(run)
    among_queries = queries is gallery
    Q = run.vectors(queries)
    X = Q if among_queries else run.vectors(gallery)
    # Together, so that labels have the same numbers on both sides.
    labels, _ = run.supervision([*queries, *gallery])
    exclude = np.arange(len(queries)) if among_queries else np.full(len(queries), -1)
    relevance = relevance_from_labels(labels[: len(queries)], labels[len(queries) :], exclude=exclude)
    if not relevance.nnz:
        why = "no class has two test images" if among_queries else "no test image has a label of the training images"
        fix = "--set split.by=image" if run.catalogue["split_by"] and not among_queries else "raise split.test"
        raise UserError(f"run {run.name}: {why}, so no query has a relevant image; {fix}, or add images")
    warnings = _image_warnings(run, queries, [Q] if among_queries else [Q, X])
    train = run.images("train", labelled=True)
    classes = X_train = None
    warnings += _deciding_warnings(run, names, queries)
    known = {name for image in train for name in image.labels}
    tested = {name for image in queries for name in image.labels}
    if train and not known.isdisjoint(tested):
        labels, _ = run.supervision([*queries, *train])
        if isinstance(labels, np.ndarray):
            classes = labels[: len(queries)], labels[len(queries) :]
            X_train = run.vectors(train) if among_queries else X
    new = sorted(tested - known)
    if train and known.isdisjoint(tested) and not run.clicks:
        warnings.append("test images are of other classes than training images: so are all figures on them")
    elif new and not run.clicks:
        n_new = sum(known.isdisjoint(image.labels) for image in queries)
        warnings.append(
            f"no training image has {count(len(new), 'label')} of the test images, such as {new[0]}: "
            f"{count(n_new, 'test image')} cannot be labelled correctly (k-NN accuracy, precision of labels)"
        )
    siblings = None
    if run.config.evaluate.is_a is not None:
        # Also the labels that learners know from validation images and from removed images.
        all_labels = {label for image in (*queries, *train) for label in image.labels}
        all_labels.update(*(trained_record(run, name).get("labels", ()) for name in names))
        siblings, warning = load("is-a tables").siblings_of(sorted(all_labels), Path(run.config.evaluate.is_a))
        warnings += [warning] if warning else []
    return EvalTask(queries, gallery, train, Q, X, X_train, relevance, classes, siblings), warnings


def _deciding_warnings(run: OpenedRun, names: Sequence[str], queries: Sequence[Image]) -> list[str]:
    """Return a warning of learners that were taken as they rank test images no worse than the model before."""
    from visterm.pipeline.evaluation.held_out import third_part

    taken = [name for name in names if AGAIN in trained_record(run, name)]
    if not taken:
        return []
    which = f"a third of them ({count(len(third), 'image')})" if (third := third_part(queries)) else "all of them"
    return [f"test images, {which}, decided that the model of {', '.join(taken)} was taken: its figures are flattered"]


def _image_warnings(run: OpenedRun, queries: Sequence[Image], vectors: Sequence[Any]) -> list[str]:
    """Return warnings about duplicates, empty vectors, skipped files, and what of tables is not used."""
    import numpy as np

    warnings = []
    n_repeated = len(queries) - len({image.sha256 for image in queries})
    if n_repeated:
        warnings.append(
            f"{count(n_repeated, 'test image')} of {len(queries):,} are exact duplicates of other test images"
        )
    blocks = (X[start : start + _BLOCK] for X in vectors for start in range(0, X.shape[0], _BLOCK))
    n_empty = sum(int((np.asarray((block != 0).sum(axis=1)) == 0).sum()) for block in blocks)
    if n_empty:
        warnings.append(
            f"{count(n_empty, 'image')} with all-zero vectors (visterms that every training image has get no weight): "
            "no image is similar to them"
        )
    if n_skipped := len(run.catalogue.skipped()):
        warnings.append(f"{count(n_skipped, 'file')} could not be read and were skipped (visterm info --skipped)")
    return warnings + run.catalogue.label_source()[1]
