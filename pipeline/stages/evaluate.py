"""The stage evaluate: rankings, figures and the report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.files import file_sha256, publish
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.models import (
    TRAINED,
    check_learners,
    check_trained,
    how_to_train,
    load_trained,
    trained_record,
    warn_if_stale,
)
from visterm.pipeline.store.records import fingerprint, is_fresh, make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content, identity, mapped_vectors, supervision

from .dask_cluster import connected
from .train import check_features, train_record

if TYPE_CHECKING:
    from visterm.pipeline.evaluation.measure import Task


def evaluate(
    run: Run,
    config: Config,
    learners: str | Sequence[str],
    console: Console,
    *,
    force: bool = False,
    command: str = "",
) -> Path:
    """Rank the test images with learners and with cosine; write figures, curves and the report.

    Parameters
    ----------
    run : Run
    config : Config
    learners : str or sequence of str
        Of RANKERS, in the order that they are shown; "all": every learner of the run that is fresh.
    console : Console
    force : bool
        Rank again, whatever is fresh.
    command : str
        What the report says that it was made with.

    Returns
    -------
    Path
        Folder of ``report.html``, ``metrics.json``, ``curves.csv``, ``precision_curve.png`` and ``neighbours.csv``.

    Raises
    ------
    UserError
        No labelled test images, nothing trained, or an is-a table that does not fit.
    """
    wanted = [learners] if isinstance(learners, str) else list(learners)
    check_learners([name for name in wanted if name != "all"])
    with run.locked():
        collection = Collection(run.collection)
        check_features(run, config, collection)
        learnt_from = collection.images("train", "validation", labelled=True)
        _test_images(run, config, collection)  # without any, no learner would help
        if "all" in wanted:
            wanted = _all_fresh(run, config, learnt_from, console)
        names = [name for name in dict.fromkeys(wanted) if name != "cosine"] or ["cosine"]
        for name in names:
            check_trained(run, name)
        folder = run.evaluation("+".join(names))
        record = evaluation_record(run, config, collection, names)
        for name in names:
            warn_if_stale(run, name, learnt_from, console)
            _warn_of_settings(run, config, name, console)
        if force or not is_fresh(folder, record):
            with publish(folder, record) as target:
                _evaluate(run, config, collection, names, target, console, command)
            run.save_config(config)
        collection.close()
    return folder


def _all_fresh(run: Run, config: Config, learnt_from: Sequence[Image], console: Console) -> list[str]:
    """Names of the learners of a run that are fresh; say which are not."""
    found: list[str] = []
    stale: list[str] = []
    for name in TRAINED:
        if name in run.learners():
            fresh = is_fresh(run.learner(name), train_record(run, config, name, learnt_from))
            (found if fresh else stale).append(name)
    if not found:
        why = f"its {', '.join(stale)} must be trained again" if stale else "nothing is trained"
        raise UserError(f"run {run.name}: {why}; run 'visterm train --run {run.name}' first")
    if stale:
        console.warn(f"left out, as they must be trained again first: {', '.join(stale)}")
    return found


def _warn_of_settings(run: Run, config: Config, name: str, console: Console) -> None:
    trained = trained_record(run, name)
    if trained["inputs"] and trained["config"] != {name: getattr(config, name).model_dump(), "seed": config.seed}:
        console.warn(
            f"{name} was trained with other settings than these; '{how_to_train(run, name)}' with them renews it"
        )


def _test_images(run: Run, config: Config, collection: Collection) -> tuple[list[Image], list[Image]]:
    """Queries and gallery; the same list if the test images query each other."""
    queries = collection.images("test", labelled=True)
    if not queries:
        has_labels = bool(collection.images(labelled=True))
        raise UserError(
            f"run {run.name} has no labelled test images: "
            + ("raise split.test, or add a folder test/<class>" if has_labels else WAYS_TO_LABEL)
        )
    own = config.evaluate.protocol == "test-test"
    gallery = queries if own else collection.images("train", labelled=True)
    if len(gallery) - own < 1:
        raise UserError(f"run {run.name}: {count(len(gallery), 'image')} cannot be ranked; more images are needed")
    return queries, gallery


def evaluation_record(run: Run, config: Config, collection: Collection, names: Sequence[str]) -> dict[str, Any]:
    """What an evaluation of these learners would be made from."""
    queries, gallery = _test_images(run, config, collection)
    is_a = config.evaluate.is_a
    trained = [trained_record(run, name) for name in names]
    return make_record(
        "evaluate",
        {"evaluate": config.evaluate.model_dump()},
        {
            "extractor": extractor_content(run),
            "learners": fingerprint([[n, t["inputs"], t.get("created")] for n, t in zip(names, trained, strict=True)]),
            "queries": identity(queries),
            "gallery": identity(gallery),
            "train": identity(collection.images("train", labelled=True)),
            "is_a": None if is_a is None else file_sha256(is_a),
        },
    )


def _evaluate(run, config, collection, names, folder, console, command) -> None:
    """Measure, and write every file of an evaluation but its record."""
    from visterm.features import silence_decoders
    from visterm.pipeline.evaluation.measure import SystemResult, measure
    from visterm.pipeline.evaluation.results import write_results

    silence_decoders()
    started = time.perf_counter()
    task, warnings = _measured_on(run, config, collection, names)
    systems = {}
    n_queries, n_gallery = count(len(task.queries), "query"), count(len(task.gallery), "image")
    names = list(dict.fromkeys((*names, "cosine")))
    with (
        connected(config, run) as cluster,
        console.phase(f"ranking {n_gallery} for {n_queries}", len(names), "systems") as phase,
    ):
        if cluster is None:
            found = (measure(load_trained(run, name), trained_record(run, name), task, config) for name in names)
        else:
            place = Run(run.folder.absolute())
            there = cluster.map(_measure_there, ((place, config, names, name) for name in names))
            found = (SystemResult(load_trained(run, name), *rest) for rest, name in zip(there, names, strict=True))
        for name, measured in zip(names, found, strict=True):
            systems[name] = measured
            phase.advance_to(len(systems), note=name)
    with console.phase("writing the report"):
        write_results(
            folder,
            run,
            config,
            systems,
            task,
            root=collection.root,
            warnings=warnings,
            seconds=time.perf_counter() - started,
            command=command or f"visterm evaluate --run {run.name}",
        )


def _measure_there(run: Run, config: Config, names: Sequence[str], name: str) -> tuple:
    """Measure one learner in a worker of a cluster; return all of `SystemResult` but the learner."""
    from visterm.pipeline.evaluation.measure import measure

    with contextlib.closing(Collection(run.collection)) as collection:
        task, _ = _measured_on(run, config, collection, names)
    alone = config.model_copy(update={"compute": config.compute.model_copy(update={"n_jobs": 1})})
    return measure(load_trained(run, name), trained_record(run, name), task, alone)[1:]


def _measured_on(run, config, collection, names) -> tuple[Task, list[str]]:
    """The images that learners are measured on, and what a reader of the figures should know about them."""
    import numpy as np

    from visterm.pipeline.evaluation.is_a import siblings_of
    from visterm.pipeline.evaluation.measure import Task
    from visterm.retrieval import relevance_from_labels

    queries, gallery = _test_images(run, config, collection)
    own = queries is gallery
    clicks = config.collection.clicks is not None
    Q = mapped_vectors(run, collection, queries)
    X = Q if own else mapped_vectors(run, collection, gallery)
    # Together, so that both sides number several labels alike.
    labels, _ = supervision([*queries, *gallery], clicks=clicks)
    exclude = np.arange(len(queries)) if own else np.full(len(queries), -1)
    relevance = relevance_from_labels(labels[: len(queries)], labels[len(queries) :], exclude=exclude)
    if not relevance.nnz:
        raise UserError(f"run {run.name}: no test image has another of its class to find; test on more images a class")
    warnings = _warnings(collection, queries, gallery, Q, X)
    train = collection.images("train", labelled=True)
    classes = X_train = None
    if train:
        labels, _ = supervision([*queries, *train], clicks=clicks)
        if isinstance(labels, np.ndarray):
            classes = labels[: len(queries)], labels[len(queries) :]
            X_train = mapped_vectors(run, collection, train) if own else X
    known = {name for image in train for name in image.labels}
    new = sorted({name for image in queries for name in image.labels} - known)
    if new and not clicks:
        n_new = sum(known.isdisjoint(image.labels) for image in queries)
        warnings.append(
            f"{count(len(new), 'label')} of test images, such as {new[0]}, no training image has: "
            f"{count(n_new, 'test image')} cannot be given the right label (k-NN accuracy, precision of labels)"
        )
    siblings = None
    if config.evaluate.is_a is not None:
        # Of the learners, too: they may know labels of validation images, or of images that are gone.
        labels = {label for image in (*queries, *train) for label in image.labels}
        labels.update(*(trained_record(run, name).get("labels", ()) for name in names))
        siblings, warning = siblings_of(sorted(labels), Path(config.evaluate.is_a))
        warnings += [warning] if warning else []
    return Task(queries, gallery, train, Q, X, X_train, relevance, classes, siblings), warnings


def _warnings(collection: Collection, queries, gallery, Q, X) -> list[str]:
    """What a reader of the figures should know about the images."""
    import numpy as np

    found = []
    train = {image.sha256 for image in collection.images("train", "validation")}
    copies = sum(image.sha256 in train for image in queries)
    again = len(queries) - len({image.sha256 for image in queries})
    if copies:
        found.append(
            f"{count(copies, 'test image')} of {len(queries):,} are exact duplicates of training images: "
            "the figures flatter the learner"
        )
    if again:
        found.append(f"{count(again, 'test image')} of {len(queries):,} are exact duplicates of other test images")
    n_empty = sum(int((np.asarray((part != 0).sum(axis=1)) == 0).sum()) for part in ([Q] if X is Q else [Q, X]))
    if n_empty:
        found.append(
            f"{count(n_empty, 'image')} with vectors of zeros only (visterms that every training image has count as "
            "nothing): nothing is near them"
        )
    if n_skipped := len(collection.skipped()):
        found.append(f"{count(n_skipped, 'file')} could not be read and took no part (visterm info --skipped)")
    return found
