"""The stages: one function each. They read and write a run folder; what is fresh is not made again.

``features``: images to visterm counts. ``train``: counts and labels to a similarity. ``evaluate``: rankings, figures
and the report. What they leave behind is read by `artifacts`, and searched by `searcher`.

Heavy libraries are imported where they are used: finding out that nothing has to be done must not cost seconds.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import shutil
import threading
import time
import warnings
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .cluster import connected
from .config.models import Config
from .console import Console, count
from .embedding import copy_table, extractor_config, fit_embedder, fit_table, read_table
from .errors import UserError
from .growth import growth
from .store.catalogue import Collection, Image, Outcome
from .store.files import file_sha256, publish, write_text
from .store.labels import WAYS_TO_LABEL
from .store.models import (
    RANKERS,
    TRAINED,
    check_learners,
    check_trained,
    how_to_train,
    load_trained,
    trained_record,
    warn_if_stale,
)
from .store.records import fingerprint, is_fresh, make_record, read_metrics, read_record
from .store.run import Run
from .store.segments import write_segment
from .store.splits import split_key
from .store.vectors import embed, extractor_content, identity, load_extractor, mapped_vectors, supervision

if TYPE_CHECKING:
    import numpy as np

    from .evaluation.measure import Task

ONE_LABEL = ("musl", "mcml")  # they learn categories: an image is of one


class LearnerRefused(UserError):
    """What keeps one learner from being trained, and no other."""


# ------------------------------------------------------------------------------------------------------------- features


def features(run: Run, config: Config, root: Path | None, console: Console, *, force: bool = False) -> dict[str, Any]:
    """Bring the collection of a run up to date with its directory of images.

    Parameters
    ----------
    run : Run
    config : Config
    root : Path or None
        The directory of images; None: the one that the run was made of. Where the configuration names a table of
        vectors, these are taken over, and the directory, if there is any, is that of their images.
    console : Console
    force : bool
        Learn palette and codebook again, and extract every image again, whatever is fresh.

    Returns
    -------
    dict
        Numbers of images: ``n_images``, ``added``, ``changed``, ``removed``, ``relabelled``, ``labelled``,
        ``extracted``, ``skipped``; and ``seconds``.

    Raises
    ------
    UserError
        No images, or a configuration that does not fit them.
    """
    from_table = config.collection.vectors.file is not None
    if root is None and not from_table and not (run.collection / "catalogue.sqlite").exists():
        raise UserError("which images? give their directory: visterm features IMAGES (make features IMAGES=dir)")
    with run.locked():
        collection = Collection(run.collection, create=True)
        root = root.absolute() if root is not None else collection.root
        started = time.perf_counter()
        if from_table:
            table, root = read_table(config, root)
            digests = table.digests()
            changes = collection.take_vectors(root, table.ids, digests, table.labels, config, replace=force)
        elif root is None:
            raise UserError(f"run {run.name} has no images yet; give their directory: visterm features IMAGES")
        else:
            changes = collection.scan(root, config, replace=force)
        collection.clean()
        found = collection.counts_by("status")
        console.say(
            f"{root}: {count(found['ok'] + found['pending'], 'image')} "
            f"({changes.added:,} new, {changes.changed:,} changed, {changes.removed:,} removed"
            + (f", {changes.relabelled:,} with other labels)" if changes.relabelled else ")")
            + (f"; {count(changes.left_out, 'image')} of other classes left out" if changes.left_out else "")
        )
        for warning in changes.warnings:
            console.warn(warning)
        extracted = 0
        if from_table or found["ok"] or _anything_readable(config, collection, root):
            if from_table:
                extractor = fit_table(run, config, table, force=force)
            elif config.features.kind == "onnx":
                extractor = fit_embedder(run, config, console, force=force)
            else:
                extractor = _fit_extractor(run, config, collection, root, console, force)
            if force:
                collection.use_extractor("")
            collection.use_extractor(extractor)
            # Not before: settings that cannot be used must not stay, and a cluster that cannot is one of them.
            several = not from_table and collection.counts_by("status")["pending"] > config.compute.segment_size
            with connected(config, run) if several else contextlib.nullcontext():
                run.save_config(config)
            if from_table:
                extracted = copy_table(config, collection, table, digests, console)
            else:
                extracted = extract(run, config, collection, root, collection.pending(), console)
        found = collection.counts_by("status")
        summary = {
            "n_images": found["ok"],
            "added": changes.added,
            "changed": changes.changed,
            "removed": changes.removed,
            "relabelled": changes.relabelled,
            "labelled": sum(n for labels, n in collection.counts_by("labels").items() if labels),
            "extracted": extracted,
            "skipped": found["skipped"],
            "seconds": round(time.perf_counter() - started, 3),
        }
        if changes or extracted:
            record = make_record("features", {}, {"extractor": collection["extractor"]}) | {"result": summary}
            write_text(run.collection / "record.json", json.dumps(record, indent=1))
        collection.clean()
        report_skipped(collection.skipped(), run, console)
        collection.close()
        if not summary["n_images"]:
            which = "no training image" if found["pending"] else "no image"
            raise UserError(f"{root}: {which} could be read; JPEG, PNG, WebP, BMP and TIFF files are looked for")
    return summary


def _anything_readable(config: Config, collection: Collection, root: Path) -> bool:
    """Whether there is an image to learn visterms from; if not, enter the reason for each."""
    paths = set(collection.training_paths())
    refused = []
    for id_, path in collection.pending():
        if path in paths:
            outcome, pixels = _read(id_, root / path, config.collection.max_pixels)
            if pixels is not None:
                return True
            refused.append(outcome)
    collection.enter_segment(0, refused)
    return False


def _read(id_: int, path: Path, max_pixels: int) -> tuple[Outcome, np.ndarray | None]:
    """Read an image for a segment; the row in the outcome is set by the caller."""
    from visterm.features import ImageError, read_image

    sha256 = file_sha256(path) or ""
    try:
        pixels = read_image(path, max_pixels=max_pixels)
    except ImageError as error:
        return Outcome(id_, sha256, None, None, None, error.reason), None
    return Outcome(id_, sha256, pixels.shape[1], pixels.shape[0], None, None), pixels


def _fit_extractor(run: Run, config: Config, collection: Collection, root: Path, console: Console, force: bool) -> str:
    """Learn palette, codebook and idf if they are not fresh; return the fingerprint of what was learned.

    Images that come or go do not make them stale: the vectors of old images would change with every new one.
    """
    record = make_record(
        "extractor",
        extractor_config(config),
        {"split": collection["split"]},  # the section, and what labels came from: which images may be learned from
    )
    if not force and is_fresh(run.extractor, record):
        return extractor_content(run)
    paths = collection.training_paths()
    if not paths:
        raise UserError(
            f"{root}: no training images to learn visterms from; see the split section of the configuration"
        )
    grows_trees = config.features.codebook.kind == "forest"
    if grows_trees:
        labels = collection.labels()
        paths = [path for path in paths if path in labels]
        if not paths:
            raise UserError(
                f"{root}: a forest codebook learns from labels: sort the images into one folder a class, "
                "or give a table: --set collection.labels=labels.csv (columns path,label)"
            )
        if config.collection.clicks is not None or any(len(labels[path]) > 1 for path in paths):
            raise UserError(
                f"{root}: a forest codebook learns from one label an image; "
                "with several, or with clicks, use features.codebook.kind=kmeans"
            )
    if len(paths) > config.features.max_training_images:
        from numpy.random import default_rng

        chosen = default_rng(config.seed).choice(len(paths), config.features.max_training_images, replace=False)
        paths = [paths[i] for i in sorted(chosen)]
    y = [next(iter(labels[path])) for path in paths] if grows_trees else None

    from visterm.features import VistermExtractor, silence_decoders

    silence_decoders()
    codebook = config.features.codebook.model_dump()
    parameters = config.features.model_dump(exclude={"kind", "onnx", "max_training_images", "codebook"})
    extractor = VistermExtractor(
        **parameters,
        codebook=codebook.pop("kind"),
        **codebook,
        max_pixels=config.collection.max_pixels,
        random_state=config.seed,
        n_jobs=config.compute.n_jobs,
        on_error="skip",
    )
    title = f"learning {count(config.features.n_visterms, 'visterm')} from {count(len(paths), 'training image')}"
    with (
        connected(config, run, root / paths[0]) as cluster,
        console.phase(title, unit="images") as phase,
        publish(run.extractor, record) as folder,
    ):
        distribute = None if cluster is None else cluster.map
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # unreadable: listed at the end
                extractor.fit([root / path for path in paths], y, callback=phase.advance_to, distribute=distribute)
        except ValueError as error:
            raise UserError(f"{root}: {error}") from None
        extractor.save(folder / "files")
        record["training_images"] = len(paths)
        record["last_image"] = collection.last_id  # those after it came since
        arrays = [[path.name, file_sha256(path)] for path in sorted((folder / "files").glob("*.npy"))]
        record["content"] = fingerprint(record["config"], arrays)
    return extractor_content(run)


def extract(
    run: Run, config: Config, collection: Collection, root: Path, pending: Sequence[tuple[int, str]], console: Console
) -> int:
    """Extract pending images, a segment at a time; each counts from the moment it is in the catalogue.

    Returns how many were tried; ``pending`` holds (id, path), as `Collection.pending` gives it.
    """
    if not pending:
        return 0
    from joblib import Parallel, delayed, effective_n_jobs, parallel_config

    from visterm.features import silence_decoders

    silence_decoders()  # before the bar takes hold of standard error
    size = config.compute.segment_size
    chunks = [pending[i : i + size] for i in range(0, len(pending), size)]
    first = collection.reserve_segments(len(chunks))
    version = collection["extractor"]  # read here: joblib draws the tasks in a thread of its own
    files, segments = (run.extractor / "files").absolute(), collection.segments.absolute()  # workers may be elsewhere
    n_skipped = done = 0
    with contextlib.ExitStack() as stack:
        # Of a few images there is one segment: starting processes for it, or asking a cluster, is slow.
        cluster = stack.enter_context(connected(config, run, root / pending[0][1])) if len(chunks) > 1 else None
        parent = os.getpid() if cluster is None else 0
        tasks = (
            (files, version, root, chunk, segments / str(first + i), config.collection.max_pixels, parent)
            for i, chunk in enumerate(chunks)
        )
        phase = stack.enter_context(console.phase("extracting", len(pending), "images"))
        if cluster is not None:
            results = cluster.map(extract_segment, tasks)
        else:
            n_jobs = min(effective_n_jobs(config.compute.n_jobs), len(chunks))
            backend = config.compute.backend if n_jobs > 1 else "sequential"
            stack.enter_context(parallel_config(backend=backend, n_jobs=n_jobs))
            results = Parallel(return_as="generator")(delayed(extract_segment)(*task) for task in tasks)
        for i, outcomes in enumerate(results):
            if cluster is not None:
                _check_seen(root, chunks[i], outcomes)
            collection.enter_segment(first + i, outcomes)
            done += len(outcomes)
            n_skipped += sum(o.row is None for o in outcomes)
            phase.advance_to(done, note=f"{n_skipped} skipped" if n_skipped else "")
    return done


def _check_seen(root: Path, images: Sequence[tuple[int, str]], outcomes: Sequence[Outcome]) -> None:
    """Refuse what a worker of a cluster could not open, and this machine can: it would be taken for damaged."""
    paths = dict(images)
    for outcome in outcomes:
        file = root / paths[outcome.id]
        if outcome.sha256 == "" and file_sha256(file) is not None:
            raise UserError(
                f"{file}: a worker cannot open it ({outcome.reason}), and this machine can; the images must lie on "
                "storage that all workers share; mend this, then the same command goes on from here"
            )


def extract_segment(
    files: Path, version: str, root: Path, images: Sequence[tuple[int, str]], target: Path, max_pixels: int, parent: int
) -> list[Outcome]:
    """Read images, count their visterms or embed them, and write one segment. The unit of work: it runs in any process.

    Parameters
    ----------
    files : Path
        The saved extractor.
    version : str
        Its fingerprint: a worker that outlives an extractor must not go on with the old one.
    root : Path
    images : sequence of (id, path)
        Paths relative to the root.
    target : Path
        Folder of the segment; not written if no image could be read.
    max_pixels : int
    parent : int
        Process that this one must not outlive; 0: a worker that others started, on this machine or another.

    Returns
    -------
    list of Outcome
        One an image, in the order given.
    """
    from visterm.features import silence_decoders

    _end_with(parent)
    silence_decoders()
    outcomes = []

    def readable() -> Iterator[np.ndarray]:
        n = 0
        for id_, path in images:
            outcome, pixels = _read(id_, root / path, max_pixels)
            if pixels is None:
                outcomes.append(outcome)
            else:
                outcomes.append(outcome._replace(row=n))
                n += 1
                yield pixels

    extractor: Any = load_extractor(files, version)
    if hasattr(extractor, "count"):
        counts = extractor.count(readable())
    else:
        counts = embed(extractor, readable(), parent or os.getppid())
    if counts.shape[0]:
        write_segment(target, counts)
    return outcomes


@functools.cache
def _end_with(parent: int) -> None:
    """Have this worker end soon after the process that started it, which may be killed without a word to anyone.

    A worker left behind would wait for minutes, and keep the pipes open that a reader waits for the end of.
    """
    if os.getppid() != parent or parent == 0:  # the process itself, or a worker of a cluster
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def report_skipped(
    skipped: list[tuple[str, str]], run: Run, console: Console, among: Container[str] | None = None
) -> None:
    """Write skipped.txt, of all skipped files, and warn of them, or of those among some paths."""
    from visterm.features import printable

    file = run.folder / "skipped.txt"
    if not skipped:
        file.unlink(missing_ok=True)
        return
    write_text(file, "".join(f"{printable(path)}: {reason}\n" for path, reason in skipped))
    if among is not None:
        skipped = [(path, reason) for path, reason in skipped if path in among]
        if not skipped:
            return
    console.warn(f"{count(len(skipped), 'file')} skipped:")
    for path, reason in skipped[:5]:
        console.warn(f"  {printable(path)}: {reason}")
    if len(skipped) > 5:
        console.warn(f"  and {len(skipped) - 5:,} more, all listed in {file}")


# ---------------------------------------------------------------------------------------------------------------- train


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
        _check_features(run, config, collection)
        images = collection.images("train", "validation", labelled=True)
        if not any(image.split == "train" for image in images):
            raise UserError(f"run {run.name} has no labelled training images: {WAYS_TO_LABEL}")
        if learner_name == "cosine":
            return {"learner": "cosine", "fresh": True, "n_images": len(images), "steps": 0, "seconds": 0.0}
        folder = run.learner(learner_name)
        record = _train_record(run, config, learner_name, images)
        # A checkpoint of just this beside a fresh model: of a --force that was interrupted. It goes on.
        if not force and is_fresh(folder, record) and not is_fresh(_checkpoint(run, learner_name), record):
            found = read_record(folder) or {}
            return {"learner": learner_name, "fresh": True} | found["result"]
        result = _train(run, config, learner_name, collection, images, record, console, force)
        run.save_config(config)
        collection.close()
    return {"learner": learner_name, "fresh": False} | result


def _checkpoint(run: Run, name: str) -> Path:
    return run.learner(name).with_name(f"{name}.checkpoint")


def _train_record(run: Run, config: Config, learner_name: str, images: Sequence[Image]) -> dict[str, Any]:
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
    checkpoint = _checkpoint(run, learner_name)
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


def _check_features(run: Run, config: Config, collection: Collection) -> None:
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


# ----------------------------------------------------------------------------------------------------------- evaluate


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
        _check_features(run, config, collection)
        learnt_from = collection.images("train", "validation", labelled=True)
        _test_images(run, config, collection)  # without any, no learner would help
        if "all" in wanted:
            wanted = _all_fresh(run, config, learnt_from, console)
        names = [name for name in dict.fromkeys(wanted) if name != "cosine"] or ["cosine"]
        for name in names:
            check_trained(run, name)
        folder = run.evaluation("+".join(names))
        record = _evaluation_record(run, config, collection, names)
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
            fresh = is_fresh(run.learner(name), _train_record(run, config, name, learnt_from))
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


def _evaluation_record(run: Run, config: Config, collection: Collection, names: Sequence[str]) -> dict[str, Any]:
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

    from .evaluation.measure import Measured, measure
    from .evaluation.results import write_results

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
            found = (Measured(load_trained(run, name), *rest) for rest, name in zip(there, names, strict=True))
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
    """Measure one of some learners in a worker of a cluster, which reads the run; all of `Measured` but the learner."""
    from .evaluation.measure import measure

    with contextlib.closing(Collection(run.collection)) as collection:
        task, _ = _measured_on(run, config, collection, names)
    alone = config.model_copy(update={"compute": config.compute.model_copy(update={"n_jobs": 1})})
    return measure(load_trained(run, name), trained_record(run, name), task, alone)[1:]


def _measured_on(run, config, collection, names) -> tuple[Task, list[str]]:
    """The images that learners are measured on, and what a reader of the figures should know about them."""
    import numpy as np

    from visterm.retrieval import relevance_from_labels

    from .evaluation.is_a import siblings_of
    from .evaluation.measure import Task

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


# --------------------------------------------------------------------------------------------------------------- info


def describe_run(run: Run, config: Config) -> dict[str, Any]:
    """What a run holds, for ``visterm info``."""
    collection = Collection(run.collection)
    status, splits = collection.counts_by("status"), collection.counts_by("split")
    classes = {label for labels in collection.counts_by("labels") if labels for label in json.loads(labels)}
    extractor = read_record(run.extractor)
    found: dict[str, Any] = {
        "run": run.name,
        "folder": str(run.folder),
        "root": os.fspath(collection.root or ""),
        "images": status["ok"],
        "pending": status["pending"],
        "skipped": status["skipped"],
        "classes": len(classes),
        "splits": {split or "none": n for split, n in splits.items()},
        **_describe_extractor(extractor, config),
        "excluded": status["excluded"],
        **_describe_counts(run, collection),
        "learners": {},
        "evaluations": {},
        "skipped_files": collection.skipped(),
    }
    learnt_from = collection.images("train", "validation", labelled=True)
    for name in (name for name in TRAINED if name in run.learners()):
        try:
            record = read_record(run.learner(name))
        except UserError:
            found["learners"][name] = f"damaged: '{how_to_train(run, name)} --force' makes it again"
            continue
        assert record is not None
        fresh = extractor is not None and is_fresh(run.learner(name), _train_record(run, config, name, learnt_from))
        steps = f"{record['result']['steps']:,} steps" if record["result"]["steps"] else "trained"
        found["learners"][name] = steps if fresh else f"{steps} (stale: train again)"
    if unfinished := [name for name in TRAINED if (_checkpoint(run, name) / "record.json").exists()]:
        found["unfinished"] = {
            name: f"training was interrupted: '{how_to_train(run, name)}' with the same settings goes on"
            for name in unfinished
        }
    if indexes := _describe_indexes(run, extractor):
        found["indexes"] = indexes
    for folder in sorted(run.folder.glob("evaluations/*")):
        if (folder / "record.json").exists() and "." not in folder.name:
            found["evaluations"][folder.name] = _describe_evaluation(run, config, collection, folder)
    collection.close()
    return found


def _describe_counts(run: Run, collection: Collection) -> dict[str, Any]:
    """How the counts lie on disk, and how far they have grown away from what was learned of them."""
    try:
        stored = collection.stored()
        segments = {
            "number": len(stored),
            "dead_rows": sum(segment.rows - segment.living for segment in stored),
            "to_merge": len(collection.mergeable()),
        }
        return {"segments": segments, "growth": growth(run, collection)}
    except UserError as error:  # a damaged segment; the rest is worth knowing
        return {"segments": {"error": str(error)}, "growth": None}


def _describe_indexes(run: Run, extractor: dict[str, Any] | None) -> dict[str, Any]:
    """What two-stage indexes of the vectors of now found of the nearest images, when they were made."""
    found = {}
    for name in RANKERS:
        with contextlib.suppress(UserError):
            record = read_record(run.folder / "index" / name)
            if record and extractor and record["inputs"]["extractor"] == extractor["content"] and "recall" in record:
                found[name] = record["recall"]
    return found


def _describe_extractor(record: dict[str, Any] | None, config: Config) -> dict[str, Any]:
    """How vectors are made."""
    if record is None or "training_images" in record:
        return {
            "visterms": record["config"]["features"]["n_visterms"] if record else 0,
            "learned from": count(record["training_images"], "training image") if record else "nothing yet",
        }
    vectors = config.collection.vectors.file
    source = f"read from {vectors}" if vectors is not None else f"made by {config.features.onnx.model}"
    return {"visterms": 0, "vectors": f"of {record['n_features']:,} numbers, {source}"}


def _describe_evaluation(run: Run, config: Config, collection: Collection, folder: Path) -> dict[str, Any]:
    """Protocol, mean average precisions, and whether they still are what would be found."""
    try:
        metrics = read_metrics(folder)
        fresh = is_fresh(folder, _evaluation_record(run, config, collection, folder.name.split("+")))
    except UserError as error:
        return {"error": str(error)}
    return {
        "protocol": metrics["protocol"],
        "n_queries": metrics["n_queries"],
        "map": {name: round(figures["map"], 4) for name, figures in metrics["systems"].items()},
        "stale": not fresh,
    }
