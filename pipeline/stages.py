"""The stages: one function each. They read and write a run folder; what is fresh is not made again.

``features``: images to visterm counts. ``train``: counts and labels to a similarity. ``evaluate``: rankings, figures
and the report. ``search``: an image from anywhere to the most similar ones of the collection.

Heavy libraries are imported where they are used: finding out that nothing has to be done must not cost seconds.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .collection import WAYS_TO_LABEL, Collection, Image, Outcome, file_sha256, split_key, write_segment
from .config import Config, UserError
from .console import Console, count
from .run import Run, fingerprint, is_fresh, make_record, publish, read_record, write_text

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.features import VistermExtractor
    from visterm.learners import SimilarityLearner

TRAINED = {"oasis": "OASIS"}  # learners by the name of their section -> of their class
RANKERS = (*TRAINED, "cosine")  # cosine needs no training

# ------------------------------------------------------------------------------------------------------------- features


def features(run: Run, config: Config, root: Path | None, console: Console, *, force: bool = False) -> dict[str, Any]:
    """Bring the collection of a run up to date with its directory of images.

    Parameters
    ----------
    run : Run
    config : Config
    root : Path or None
        The directory of images; None: the one that the run was made of.
    console : Console
    force : bool
        Learn palette and codebook again, and extract every image again, whatever is fresh.

    Returns
    -------
    dict
        Numbers of images: ``n_images``, ``added``, ``changed``, ``removed``, ``extracted``, ``skipped``.

    Raises
    ------
    UserError
        No images, or a configuration that does not fit them.
    """
    if root is None and not (run.collection / "catalogue.sqlite").exists():
        raise UserError("which images? give their directory: visterm features IMAGES (make features IMAGES=dir)")
    with run.locked():
        collection = Collection(run.collection, create=True)
        root = root.absolute() if root is not None else collection.root
        if root is None:
            raise UserError(f"run {run.name} has no images yet; give their directory: visterm features IMAGES")
        started = time.perf_counter()
        changes = collection.scan(root, config, replace=force)
        collection.clean()
        found = collection.counts_by("status")
        console.say(
            f"{root}: {count(found['ok'] + found['pending'], 'image')} "
            f"({changes.added:,} new, {changes.changed:,} changed, {changes.removed:,} removed)"
            + (f"; {count(changes.left_out, 'image')} of other classes left out" if changes.left_out else "")
        )
        extracted = 0
        if found["ok"] or _anything_readable(config, collection, root):
            extractor = _fit_extractor(run, config, collection, root, console, force)
            if force:
                collection.use_extractor("")
            collection.use_extractor(extractor)
            run.save_config(config)  # not before: settings that cannot be used must not stay
            extracted = _extract(run, config, collection, root, console)
        found = collection.counts_by("status")
        summary = {
            "n_images": found["ok"],
            "added": changes.added,
            "changed": changes.changed,
            "removed": changes.removed,
            "extracted": extracted,
            "skipped": found["skipped"],
            "seconds": round(time.perf_counter() - started, 3),
        }
        if changes or extracted:
            record = make_record("features", {}, {"extractor": collection["extractor"]}) | {"result": summary}
            write_text(run.collection / "record.json", json.dumps(record, indent=1))
        collection.clean()
        _report_skipped(collection.skipped(), run, console)
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
        {"features": config.features.model_dump(), "seed": config.seed},
        {"split": collection["split"]},  # the section, and what labels came from: which images may be learned from
    )
    if not force and is_fresh(run.extractor, record):
        return _content(run)
    paths = collection.training_paths()
    if not paths:
        raise UserError(
            f"{root}: no training images to learn visterms from; see the split section of the configuration"
        )
    if len(paths) > config.features.max_training_images:
        from numpy.random import default_rng

        chosen = default_rng(config.seed).choice(len(paths), config.features.max_training_images, replace=False)
        paths = [paths[i] for i in sorted(chosen)]

    from visterm.features import VistermExtractor, silence_decoders

    silence_decoders()
    parameters = config.features.model_dump(exclude={"max_training_images"})
    extractor = VistermExtractor(
        **parameters,
        max_pixels=config.collection.max_pixels,
        random_state=config.seed,
        n_jobs=config.compute.n_jobs,
        on_error="skip",
    )
    title = f"learning {count(config.features.n_visterms, 'visterm')} from {count(len(paths), 'training image')}"
    with console.phase(title, unit="images") as phase, publish(run.extractor, record) as folder:
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # unreadable: listed at the end
                extractor.fit([root / path for path in paths], callback=phase.advance_to)
        except ValueError as error:
            raise UserError(f"{root}: {error}") from None
        extractor.save(folder / "files")
        record["training_images"] = len(paths)
        arrays = [[path.name, file_sha256(path)] for path in sorted((folder / "files").glob("*.npy"))]
        record["content"] = fingerprint(record["config"], arrays)
    return _content(run)


def _content(run: Run) -> str:
    record = read_record(run.extractor)
    if record is None:
        raise UserError(f"{run.folder}: no visterms yet; run 'visterm features IMAGES --run {run.name}' first")
    return record["content"]


def _extract(run: Run, config: Config, collection: Collection, root: Path, console: Console) -> int:
    """Extract what is pending, a segment at a time; each counts from the moment it is in the catalogue."""
    pending = collection.pending()
    if not pending:
        return 0
    from joblib import Parallel, delayed, effective_n_jobs, parallel_config

    from visterm.features import silence_decoders

    silence_decoders()  # before the bar takes hold of standard error
    size = config.compute.segment_size
    chunks = [pending[i : i + size] for i in range(0, len(pending), size)]
    n_jobs = min(effective_n_jobs(config.compute.n_jobs), len(chunks))  # starting processes for a few images is slow
    first = collection.reserve_segments(len(chunks))
    version = collection["extractor"]  # read here: joblib draws the tasks in a thread of its own
    tasks = (
        delayed(extract_segment)(
            run.extractor / "files",
            version,
            root,
            chunk,
            collection.segments / str(first + i),
            config.collection.max_pixels,
        )
        for i, chunk in enumerate(chunks)
    )
    n_skipped = done = 0
    with (
        console.phase("extracting", len(pending), "images") as phase,
        parallel_config(backend=config.compute.backend if n_jobs > 1 else "sequential", n_jobs=n_jobs),
    ):
        for i, outcomes in enumerate(Parallel(return_as="generator")(tasks)):
            collection.enter_segment(first + i, outcomes)
            done += len(outcomes)
            n_skipped += sum(o.row is None for o in outcomes)
            phase.advance_to(done, note=f"{n_skipped} skipped" if n_skipped else "")
    return done


def extract_segment(
    files: Path, version: str, root: Path, images: Sequence[tuple[int, str]], target: Path, max_pixels: int
) -> list[Outcome]:
    """Read images, count their visterms and write one segment. The unit of work: it runs in any process.

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

    Returns
    -------
    list of Outcome
        One an image, in the order given.
    """
    from visterm.features import silence_decoders

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

    counts = _load_extractor(files, version).count(readable())
    if counts.shape[0]:
        write_segment(target, counts)
    return outcomes


@functools.lru_cache(maxsize=1)
def _load_extractor(files: Path, version: str) -> VistermExtractor:
    from visterm.features import VistermExtractor

    try:
        return VistermExtractor.load(files).set_params(n_jobs=1)  # the segments are what runs in parallel
    except (OSError, ValueError) as error:
        raise UserError(f"{error}; run 'visterm features --force' to learn it again") from None


def _report_skipped(skipped: list[tuple[str, str]], run: Run, console: Console) -> None:
    from visterm.features import printable

    file = run.folder / "skipped.txt"
    if not skipped:
        file.unlink(missing_ok=True)
        return
    write_text(file, "".join(f"{printable(path)}: {reason}\n" for path, reason in skipped))
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
        No features yet, no labels, too few classes.
    """
    _check_learner(learner_name)
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
        if not force and is_fresh(folder, record):
            found = read_record(folder) or {}
            return {"learner": learner_name, "fresh": True} | found["result"]
        result = _train(run, config, learner_name, collection, images, record, console, force)
        run.save_config(config)
        collection.close()
    return {"learner": learner_name, "fresh": False} | result


def _train_record(run: Run, config: Config, learner_name: str, images: Sequence[Image]) -> dict[str, Any]:
    """What a model of these images would be made from."""
    return make_record(
        "train",
        {learner_name: getattr(config, learner_name).model_dump(), "seed": config.seed},
        {"extractor": _content(run), "images": _identity(images), "clicks": config.collection.clicks is not None},
    )


def _train(run, config, learner_name, collection, images, record, console, force) -> dict[str, Any]:
    """Fit or resume, with checkpoints between passes; publish the model."""
    import numpy as np

    from visterm.learners import LEARNERS, load_learner

    folder = run.learner(learner_name)
    checkpoint = folder.with_name(f"{learner_name}.checkpoint")
    goes_on = not force and is_fresh(checkpoint, record)
    spent = (read_record(checkpoint) or {}).get("seconds", 0.0) if goes_on else 0.0
    started = time.perf_counter() - spent
    X, y = vectors(run, collection, images), supervision(images, clicks=config.collection.clicks is not None)
    # Images of a folder validation/ are watched in place of a share of the training images.
    rows = np.flatnonzero([image.split == "validation" for image in images])
    title = f"training {learner_name} on {count(len(images), 'image')}"
    with console.phase(title, unit="steps") as phase, publish(folder, record) as target:
        state = {"saved": time.perf_counter()}

        def between_passes(learner: SimilarityLearner) -> None:
            found = learner.history_[-1]["validation_map"]
            note = "" if found is None else f"validation mAP {found:.3f}"
            phase.advance_to(learner.steps_done_, learner.steps_total_, note)
            if time.perf_counter() - state["saved"] > config.compute.checkpoint_seconds:
                seconds = {"seconds": round(time.perf_counter() - started, 3)}
                with publish(checkpoint, record | seconds) as files:
                    learner.save(files / "files")
                state["saved"] = time.perf_counter()

        try:
            if goes_on:
                console.say("going on from the checkpoint of an interrupted training")
                learner = load_learner(checkpoint / "files")
                learner.resume(X, y, callback=between_passes)
            else:
                parameters = getattr(config, learner_name).model_dump()
                if config.collection.clicks is None:
                    parameters["click_cutoff"] = None
                kind: Any = LEARNERS[TRAINED[learner_name]]
                learner = kind(**parameters, random_state=config.seed, n_jobs=config.compute.n_jobs)
                learner.fit(X, y, validation_rows=rows if len(rows) else None, callback=between_passes)
        except ValueError as error:
            raise UserError(f"{learner_name}: {error}") from None
        learner.save(target / "files")
        record["result"] = {
            "n_images": len(images),
            "n_validation": 0 if learner.held_out_ is None else len(learner.held_out_),
            "steps": int(learner.n_steps_),
            "seconds": round(time.perf_counter() - started, 3),
        }
    shutil.rmtree(checkpoint, ignore_errors=True)
    return record["result"]


def _identity(images: Sequence[Image]) -> str:
    """One fingerprint of images and what is known about them."""
    return fingerprint([[image.path, image.sha256, image.labels, image.split] for image in images])


def _check_learner(name: str) -> None:
    if name not in RANKERS:
        import difflib

        near = difflib.get_close_matches(name, RANKERS, n=1)
        raise UserError(
            f"unknown learner {name}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(RANKERS)}")
        )


def _check_features(run: Run, config: Config, collection: Collection) -> None:
    """The collection must be complete and made with this configuration."""
    again = f"run 'visterm features --run {run.name}' first"
    record = read_record(run.extractor)
    made = record and record["inputs"]["split"] == collection["split"] and record["content"] == collection["extractor"]
    if record is None or not made:
        raise UserError(f"run {run.name}: the features are not finished; {again}")
    same = record["config"] == {"features": config.features.model_dump(), "seed": config.seed}
    if not same or not collection["split"].startswith(split_key(config)):
        raise UserError(f"run {run.name}: the features were made with another configuration; {again}")
    if collection.counts_by("status")["pending"]:
        raise UserError(f"run {run.name}: some images are not extracted yet; {again}")


def vectors(run: Run, collection: Collection, images: Sequence[Image]) -> sparse.csr_matrix:
    """Weighted visterm vectors of some images, CSR float32 (n, n_visterms) with unit rows."""
    return _load_extractor((run.extractor / "files").absolute(), _content(run)).weighting_.transform(
        collection.counts(images)
    )


def supervision(images: Sequence[Image], *, clicks: bool = False) -> np.ndarray | sparse.csr_matrix:
    """Labels of some images: (n,) strings if each has just one, else, and for clicks, CSR (n, n_labels) of weights."""
    import numpy as np
    from scipy import sparse

    if not clicks and all(len(image.labels) == 1 for image in images):
        return np.array([next(iter(image.labels)) for image in images])
    names = {name: i for i, name in enumerate(sorted({name for image in images for name in image.labels}))}
    rows = [row for row, image in enumerate(images) for _ in image.labels]
    columns = [names[name] for image in images for name in image.labels]
    weights = [weight for image in images for weight in image.labels.values()]
    return sparse.csr_matrix((weights, (rows, columns)), shape=(len(images), len(names)), dtype=np.float32)


# ----------------------------------------------------------------------------------------------------------- evaluate


def evaluate(run: Run, config: Config, learner_name: str, console: Console, *, force: bool = False) -> Path:
    """Rank the test images with a learner and with cosine; write figures, curves and the report.

    Parameters
    ----------
    run : Run
    config : Config
    learner_name : str
        One of RANKERS.
    console : Console
    force : bool
        Rank again, whatever is fresh.

    Returns
    -------
    Path
        Folder of ``report.html``, ``metrics.json``, ``curves.csv``, ``precision_curve.png`` and ``neighbours.csv``.

    Raises
    ------
    UserError
        No labelled test images, or nothing trained.
    """
    _check_learner(learner_name)
    with run.locked():
        collection = Collection(run.collection)
        _check_features(run, config, collection)
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
        learner = _load_learner(run, learner_name)
        trained = read_record(run.learner(learner_name)) or {"inputs": {}, "config": {}, "result": {}}
        folder = run.evaluation(learner_name)
        record = make_record(
            "evaluate",
            {"evaluate": config.evaluate.model_dump()},
            {
                "extractor": _content(run),
                "learner": fingerprint(learner_name, trained["inputs"], trained["config"]),
                "queries": _identity(queries),
                "gallery": _identity(gallery),
            },
        )
        if trained["inputs"] and trained["inputs"]["images"] != _identity(
            collection.images("train", "validation", labelled=True)
        ):
            console.warn(f"{learner_name} was trained before the training images changed; 'visterm train' renews it")
        section = {learner_name: getattr(config, learner_name).model_dump()} if learner_name in TRAINED else {}
        if trained["config"] not in ({}, section | {"seed": config.seed}):
            console.warn(f"{learner_name} was trained with other settings than these; 'visterm train' renews it")
        if force or not is_fresh(folder, record):
            with publish(folder, record) as target:
                _evaluate(run, config, collection, learner_name, learner, queries, gallery, trained, target, console)
            run.save_config(config)
        collection.close()
    return folder


def _evaluate(run, config, collection, learner_name, learner, queries, gallery, trained, folder, console) -> None:
    """Measure, and write every file of an evaluation but its record."""
    import numpy as np

    from visterm.features import silence_decoders
    from visterm.retrieval import ExactIndex, evaluate_index, relevance_from_labels

    from .results import Measured, write_results

    silence_decoders()
    started = time.perf_counter()
    own = queries is gallery
    Q = vectors(run, collection, queries)
    X = Q if own else vectors(run, collection, gallery)
    labels = supervision(
        [*queries, *gallery], clicks=config.collection.clicks is not None
    )  # together, so that both sides number several labels alike
    exclude = np.arange(len(queries)) if own else np.full(len(queries), -1)
    relevance = relevance_from_labels(labels[: len(queries)], labels[len(queries) :], exclude=exclude)
    if not relevance.nnz:
        raise UserError(f"run {run.name}: no test image has another of its class to find; test on more images a class")
    k = min(config.evaluate.neighbours, len(gallery) - own)
    systems = {}
    with console.phase(f"ranking {count(len(gallery), 'image')} for {count(len(queries), 'query')}"):
        for name in dict.fromkeys((learner_name, "cosine")):
            index = ExactIndex(learner if name == learner_name else _cosine(run), X, n_jobs=config.compute.n_jobs)
            evaluation = evaluate_index(index, Q, relevance, exclude=exclude, max_k=config.evaluate.max_k)
            systems[name] = Measured(evaluation, index.search(Q, k=k, exclude=exclude))
    with console.phase("writing the report"):
        write_results(
            folder,
            run,
            config,
            systems,
            queries,
            gallery,
            relevance,
            learner,
            trained,
            root=collection.root,
            warnings=_warnings(collection, queries, gallery, Q, X),
            seconds=time.perf_counter() - started,
        )


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
    n_empty = sum(int((np.diff(part.indptr) == 0).sum()) for part in ([Q] if X is Q else [Q, X]))
    if n_empty:
        found.append(
            f"{count(n_empty, 'image')} consist only of visterms that every training image has: their vectors are all "
            "zero, and nothing is near them"
        )
    if n_skipped := len(collection.skipped()):
        found.append(f"{count(n_skipped, 'file')} could not be read and took no part (visterm info --skipped)")
    return found


# ------------------------------------------------------------------------------------------------------------- search


def search(
    run: Run, config: Config, queries: Sequence[Path], learner_name: str, k: int, console: Console
) -> list[dict[str, Any]]:
    """Find the k images of the collection that are most similar to each query image.

    A query that is itself an image of the collection (the same file) is left out of its own results. k is cut to the
    size of the collection.

    Parameters
    ----------
    run : Run
    config : Config
    queries : sequence of Path
        Image files, from anywhere.
    learner_name : str
        One of RANKERS.
    k : int
        Results for each query.
    console : Console

    Returns
    -------
    list of dict
        ``{"query": path, "results": [{"rank", "path", "score", "labels"}, ...]}``, one a query.

    Raises
    ------
    UserError
        A query cannot be read, or nothing has been extracted or trained.
    """
    from visterm.features import ImageError, read_image, silence_decoders
    from visterm.retrieval import ExactIndex

    _check_learner(learner_name)
    collection = Collection(run.collection)
    root = collection.root
    images = collection.images()
    if root is None or not images:
        raise UserError(f"run {run.name}: nothing to search yet; run 'visterm features IMAGES --run {run.name}' first")
    if collection["extractor"] != _content(run):
        raise UserError(f"run {run.name}: the features are not finished; run 'visterm features --run {run.name}' first")
    if n_pending := collection.counts_by("status")["pending"]:
        console.warn(f"{count(n_pending, 'image')} are not extracted yet and cannot be found")
    silence_decoders()
    extractor = _load_extractor((run.extractor / "files").absolute(), _content(run))
    try:
        pixels = [read_image(path, max_pixels=config.collection.max_pixels) for path in queries]
    except ImageError as error:
        raise UserError(str(error)) from None
    learner = _load_learner(run, learner_name)
    gallery = extractor.weighting_.transform(collection.counts(images))
    index = ExactIndex(learner, gallery, n_jobs=config.compute.n_jobs)
    place = {os.path.realpath(root / image.path): i for i, image in enumerate(images)}
    own = [place.get(os.path.realpath(path), -1) for path in queries]
    if k > len(images):
        console.warn(f"-k {k}: the collection holds {count(len(images), 'image')}, all of them are ranked")
    ranking = index.search(extractor.transform(pixels), k=min(k, len(images)), exclude=own)
    collection.close()
    return [
        {
            "query": os.fspath(query),
            "results": [
                {
                    "rank": rank,
                    "path": images[i].path,
                    "score": round(float(score), 6),
                    "labels": sorted(images[i].labels),
                }
                for rank, (i, score) in enumerate(zip(indices, scores, strict=True), start=1)
                if i >= 0
            ],
        }
        for query, indices, scores in zip(queries, ranking.indices, ranking.scores, strict=True)
    ]


def _load_learner(run: Run, name: str) -> SimilarityLearner:
    """Load the trained learner of a run; cosine needs no training."""
    from visterm.learners import load_learner

    if name == "cosine":
        return _cosine(run)
    record = read_record(run.learner(name))
    if record is None:
        hint = f"run 'visterm train --run {run.name}' first; --learner cosine needs no training"
        raise UserError(f"run {run.name} has no trained {name}: {hint}")
    if record["inputs"]["extractor"] != _content(run):
        raise UserError(
            f"run {run.name}: {name} was trained on other features; run 'visterm train --run {run.name}' again"
        )
    try:
        return load_learner(run.learner(name) / "files", mmap_mode="r", verify=False)
    except ValueError as error:
        raise UserError(f"{error}; run 'visterm train --force --run {run.name}'") from None


def _cosine(run: Run) -> SimilarityLearner:
    """The untrained similarity, for vectors of this run."""
    import numpy as np

    from visterm.learners import Cosine

    record = read_record(run.extractor)
    assert record is not None
    return Cosine().fit(np.zeros((1, record["config"]["features"]["n_visterms"]), dtype=np.float32))


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
        "visterms": extractor["config"]["features"]["n_visterms"] if extractor else 0,
        "learned from": count(extractor["training_images"], "training image") if extractor else "nothing yet",
        "learners": {},
        "mAP": {},
        "skipped_files": collection.skipped(),
    }
    learnt_from = collection.images("train", "validation", labelled=True)
    for name in run.learners():
        record = read_record(run.learner(name))
        assert record is not None
        fresh = extractor is not None and is_fresh(run.learner(name), _train_record(run, config, name, learnt_from))
        steps = f"{record['result']['steps']:,} steps"
        found["learners"][name] = steps if fresh else f"{steps} (stale: train again)"
    for file in sorted(run.folder.glob("evaluations/*/metrics.json")):
        for name, figures in json.loads(file.read_text())["systems"].items():
            found["mAP"][name] = round(figures["map"], 4)
    collection.close()
    return found
