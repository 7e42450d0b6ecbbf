"""The stage features: a directory of images to a collection of vectors."""

from __future__ import annotations

import contextlib
import json
import time
import warnings
from pathlib import Path
from typing import Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import file_sha256, publish, write_text
from visterm.pipeline.store.records import fingerprint, is_fresh, make_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content

from .dask_cluster import connected
from .extraction import extract, read_outcome, report_skipped
from .vector_kinds import copy_table, extractor_config, fit_embedder, fit_table, read_table


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
            outcome, pixels = read_outcome(id_, root / path, config.collection.max_pixels)
            if pixels is not None:
                return True
            refused.append(outcome)
    collection.enter_segment(0, refused)
    return False


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
