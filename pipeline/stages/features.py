"""The stage features: a directory of images, or a table of vectors, to a collection."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from visterm.pipeline.config.idle import idle_settings, set_settings
from visterm.pipeline.console import Console, count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import discard, write_record
from visterm.pipeline.store.opened import OpenedRun, opened
from visterm.pipeline.store.records import make_record, versions
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.scan import Changes
from visterm.pipeline.store.segments import check_ahead
from visterm.pipeline.store.splits import drawn_here, split_key
from visterm.pipeline.store.vectors import checksums

from .edit import READ
from .extraction import check_cluster, extract, report_skipped
from .vector_kinds import changed_settings, flat, needs_directory, vector_kind

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

_PACKED = {  # what images may lie in, and what to do
    ".tar": "unpack them: tar -xf FILE",
    ".zip": "unpack them: unzip FILE",
    ".parquet": "write them as files (img2dataset --output_format files)",
    ".arrow": "write them as files",
}


class FeaturesSummary(TypedDict):
    """Numbers of images of a run, and of those that the stage features changed."""

    n_images: int
    added: int
    changed: int
    removed: int
    relabelled: int
    labelled: int
    extracted: int
    skipped: int
    seconds: float


def features(run: Run, config: Config, root: Path | None, console: Console, *, force: bool = False) -> FeaturesSummary:
    """Bring the collection of a run up to date with its directory of images.

    `root` is that directory; None: the one that the run was made from. If the configuration names a table of vectors,
    these are imported, and the directory, if given, holds their images. `force` learns palette and codebook and
    extracts every image even if up to date.

    UserError if there are no images, or a configuration does not fit them.
    """
    if root is None and needs_directory(run, config):
        raise UserError("no images given; run 'visterm features IMAGES' (make features IMAGES=dir)")
    with opened(run, config, create=True) as run:
        kind, collection = vector_kind(run), run.catalogue
        started = time.perf_counter()
        check_ahead(collection.segments)
        root, changes = kind.scan(root, force=force)
        for number, n_images in collection.forget_damaged():
            console.warn(f"segment {number} is damaged: its {count(n_images, 'image')} must be extracted again")
        collection.clean()
        _say_scanned(collection, root, changes, console)
        idle = idle_settings(config, "collection", "split", "features")
        if not drawn_here(collection["split"]) and (names := set_settings(config, "split")):
            idle.append(f"{', '.join(names)}: no effect, as folders or a table name the splits")
        for line in idle:
            console.warn(line)
        pending, extracted = list[tuple[int, str]](), 0
        if kind.any_readable(root):
            extractor = kind.fit(root, console, force=force)
            if config.features.text_model is None:
                discard(run.text_model)
            else:
                load("a text model")(run, console)
            if force:
                collection.use_extractor("")  # forget what was extracted
            collection.use_extractor(extractor)
            source, pending = kind.source(root), collection.pending()
            check_cluster(run, config, source, len(pending))
            run.save_config(config)  # not before: settings that cannot be used must not be kept
            extracted = extract(run, source, pending, console)
            kind.finish()
        if changes or pending:
            _say_split(run, console)
        load("dates")(collection, root, console)
        if pending:
            collection.follow_moved(config)
        return _report(run, changes, len(pending), extracted, started, console)


def _say_scanned(collection: Collection, root: Path, changes: Changes, console: Console) -> None:
    """Tell how the directory differs from the collection."""
    status = collection.counts_by("status")
    console.say(
        f"{root}: {count(status['ok'] + status['pending'], 'image')} "
        f"({changes.added:,} new, {changes.changed:,} changed, {changes.removed:,} removed"
        + (f", {changes.relabelled:,} with other labels" if changes.relabelled else "")
        + (f", {changes.retagged:,} with other tags in the file)" if changes.retagged else ")")
        + "".join(f"; {text}" for text in changes.not_used())
    )
    if changes.tables:
        console.say(one_line(changes.tables))
    sizes, (source, _) = collection.label_sizes(), collection.label_source()
    if source and (sizes or changes.warnings):
        names = ", ".join(map(one_line, sorted(sizes)[:5])) + ", ..." * (len(sizes) > 5)
        console.say(f"{count(len(sizes), 'label') if sizes else 'no label'} from {source}" + f": {names}" * bool(sizes))
    for warning in changes.warnings:
        console.warn(warning)


def _say_split(run: OpenedRun, console: Console) -> None:
    """Say how many clicked images are trained on, where visterm draws the split; and where it draws whole classes."""
    splits = run.catalogue.counts_by("split")
    if run.catalogue["split_by"]:
        console.say(
            f"whole classes are trained on ({count(splits['train'], 'image')}) or tested ({splits['test']:,}), as most "
            "have too few images to be split; --set split.by=image splits each class"
        )
    clicked = splits["train"] + splits["test"]
    if not run.clicks or not drawn_here(run.catalogue["split"]) or not clicked:
        return
    if splits["test"]:
        rest = f"{splits['test']:,} are kept as test images; --set split.train=1.0 --set split.test=0.0 trains on all"
    else:
        rest = "as they are few; --set split.train=0.7 --set split.test=0.3 keeps test images"
    console.say(f"{splits['train']:,} of {count(clicked, 'clicked image')} are trained on, {rest}")


def _report(
    run: OpenedRun, changes: Changes, n_tried: int, extracted: int, started: float, console: Console
) -> FeaturesSummary:
    """Record and return what the stage did; warn of skipped files."""
    collection = run.catalogue
    status = collection.counts_by("status")
    summary: FeaturesSummary = {
        "n_images": status["ok"],
        "added": changes.added,
        "changed": changes.changed,
        "removed": changes.removed,
        "relabelled": changes.relabelled,
        "labelled": sum(n for labels, n in collection.counts_by("labels").items() if labels),
        "extracted": extracted,
        "skipped": status["skipped"],
        "seconds": round(time.perf_counter() - started, 3),
    }
    if changes or n_tried or _is_damaged(run):
        record = make_record("features", {}, {"extractor": collection["extractor"]})
        record |= {"result": summary, "root": os.fspath(collection.root or "")}  # the root for a lost catalogue
        record["versions"] = versions()
        if summary["n_images"]:
            record["checksums"] = checksums(run, collection)
        file = run.collection / "record.json"
        if file.is_dir():
            discard(file)  # no file can take the place of a folder
        write_record(file, record)
    collection.clean()
    report_skipped(collection.skipped(), run, console)
    if not summary["n_images"]:
        which = "no training image" if status["pending"] else "no image"
        packed = next((ending for ending in _PACKED if any((collection.root or Path()).glob(f"*{ending}"))), None)
        hint = f"; those inside {packed} files are not: {_PACKED[packed]}" if packed else ""
        raise UserError(f"{collection.root}: {which} could be read; {READ}{hint}")
    return summary


def _is_damaged(run: Run) -> bool:
    try:
        return run.record(run.collection) is None
    except UserError:
        return True


def check_features(run: OpenedRun) -> None:
    """Raise unless the collection is complete and was made with this configuration."""
    config, collection = run.config, run.catalogue
    first = f"run 'visterm features {run.option}' first"
    record = run.record(run.extractor)
    finished = record is not None and record["content"] == collection["extractor"]
    if record is None or not finished or record["inputs"].get("split", collection["split"]) != collection["split"]:
        raise UserError(f"run {run.name}: the features are not finished; {first}")
    changes = changed_settings(run)
    options = _changed_here(run, config)
    if changes or options or not collection["split"].startswith(split_key(config)):
        changes = changes and f" ({changes})"
        first = f"run 'visterm features {run.option}{options}' first"
        raise UserError(f"run {run.name}: the features were made with another configuration{changes}; {first}")
    if collection.counts_by("status")["pending"]:
        raise UserError(f"run {run.name}: some images are not extracted yet; {first}")


def _changed_here(run: Run, config: Config) -> str:
    """Return what --set must give to features, of the settings that the run does not have yet."""
    saved, asked = (
        flat(
            {
                # Only learners depend on triplets, and on which of their rows are skipped.
                "collection": configuration.collection.model_dump(exclude={"triplets", "skip_bad_rows"}),
                "split": configuration.split.model_dump(),
                "features": configuration.features.model_dump(),
            }
        )
        for configuration in (run.configure(None, []), config)
    )
    changed = {key: value for key, value in asked.items() if saved[key] != value}
    texts = (value if isinstance(value, str) else json.dumps(value) for value in changed.values())
    return "".join(f" --set {shlex.quote(f'{key}={text}')}" for key, text in zip(changed, texts, strict=True))
