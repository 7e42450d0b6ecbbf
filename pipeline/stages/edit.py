"""Updating a collection by hand: add, remove, compact. Codebook, idf and learners stay as they are."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from visterm.pipeline.console import Console, count, one_line
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.plugins import load
from visterm.pipeline.store.catalogue import Collection, Compacted, Excluded
from visterm.pipeline.store.label_edits import check_label
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content, is_imported, reading_of

from .extraction import ImageSource, check_cluster, extract, report_skipped

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

READ = "JPEG, PNG, WebP, GIF, AVIF, BMP, TIFF and JPEG 2000 files are read, HEIC with the extra [heic]"


class Added(TypedDict):
    """Numbers of images that `add` was given, and of the collection; and which these are."""

    added: int
    changed: int
    present: int  # already there
    relabelled: int
    extracted: int
    skipped: int  # could not be read
    n_images: int  # now in the collection
    ids: list[int]  # of the given images that are now in the collection
    refused: list[dict[str, str]]  # path and reason of each that could not be read or added
    seconds: float


class Removed(TypedDict):
    """Numbers of images that `remove` was given, and of the collection; and which were removed."""

    removed: int
    already: int  # removed before
    n_images: int  # that are left
    images: list[dict[str, Any]]  # id and path of each removed one
    dry_run: bool


def add(
    run: Run, config: Config, paths: Iterable[str | Path], console: Console, *, labels: Sequence[str] = ()
) -> Added:
    """Add images to a collection; searches find them at once, with the learners as they are.

    `config` is the run's own, but for the cluster. `paths` are image files, and folders, whose images are all added;
    relative to the working directory, or else to the root. Images below the root are entered as by a scan, others by
    their absolute paths, until their files are removed. `labels` are those of all of them, overriding folders and
    tables.

    UserError if a path does not exist or is not an image, a folder has no images, another process is writing to the
    run, the features are not finished, or the cluster that the images need cannot be used: nothing has changed. Or if
    the disk is full, or the cluster is lost during the work: finished work is kept, and the same call resumes.
    """
    if "" in labels:
        raise UserError("--label: the label is empty")
    started = time.perf_counter()
    with _editing(run) as collection:
        labels = [check_label(label, collection.labelled) for label in labels]
        run, root = OpenedRun(run, config, collection), collection.root
        if root is None or collection["extractor"] != extractor_content(run):
            raise UserError(f"run {run.name}: the features are not finished; run 'visterm features {run.option}' first")
        if is_imported(run):
            return _take_back(collection, run, paths, labels, console)
        files, in_folders, not_images = _find_files(paths, root)
        named, names = set(collection.names(files)), list(dict.fromkeys(collection.names([*files, *in_folders])))
        unfit = collection.unfit(names, config)
        for path in names:
            if path in unfit and (path in named or len(unfit) == len(names)):
                raise UserError(f"{path}: cannot be added: {unfit[path]}")
        names = [path for path in names if path not in unfit]
        added = set(names)
        collection.check_segments()
        collection.clean()
        source = ImageSource.of(run, root)
        if names:
            check_cluster(run, config, source, len(names) - len(collection.ids(names)), root / names[0])
        changes = collection.add(names, labels, config, read_pixels=reading_of(run, config.collection.max_pixels))
        pending = [(id_, path) for id_, path in collection.pending() if path in added]
        extracted = extract(run, source, pending, console)
        load("dates")(collection, root, console, added)
        if pending:
            collection.follow_moved(config)
        skipped = [(path, reason) for path, reason in collection.skipped() if path in added]
        if pending:
            report_skipped(collection.skipped(), run, console, added)
        copies = collection.copies(id_ for id_, _ in pending)
        if copies:
            copy, original = copies[0]
            console.warn(
                f"{count(len(copies), 'added image')} already in the run under another name: {copy} is a copy of "
                f"{original}"
            )
        if not_images:
            file, reason = next(iter(not_images.items()))
            what = count(len(not_images), "other entry")
            console.say(f"{what} of the folders skipped, such as {one_line(os.fspath(file))}: {one_line(reason)}")
        if unfit:
            path, reason = next(iter(unfit.items()))
            console.warn(f"{count(len(unfit), 'image')} not added, such as {path}: {reason}")
        return {
            "added": changes.added,
            "changed": changes.changed,
            "present": changes.unchanged,
            "relabelled": changes.relabelled,
            "extracted": extracted,
            "skipped": len(skipped),
            "n_images": collection.counts_by("status")["ok"],
            "ids": collection.ids(names),
            "refused": [{"path": path, "reason": reason} for path, reason in [*skipped, *unfit.items()]],
            "seconds": round(time.perf_counter() - started, 3),
        }


def _take_back(
    collection: Collection, run: OpenedRun, paths: Iterable[str | Path], labels: Sequence[str], console: Console
) -> Added:
    """Let the next `features` import vectors again that were removed by hand; UserError where none of them was."""
    ids = {id_ for path in paths for id_, _, status in collection.find(os.fspath(path)) if status == "excluded"}
    features = f"'visterm features {run.option}'"
    if not ids or labels:
        file = run.config.collection.vectors.file
        raise UserError(f"run {run.name} has precomputed vectors: add new ones to {file} and run {features}")
    n = collection.restore(Excluded(id_, "pending", None, None, None, None) for id_ in ids)
    console.say(f"run {features} to import the vectors of {count(n, 'removed image')} again")
    return {
        "added": n,
        "changed": 0,
        "present": 0,
        "relabelled": 0,
        "extracted": 0,
        "skipped": 0,
        "n_images": collection.counts_by("status")["ok"],
        "ids": [],  # none is searchable yet
        "refused": [],
        "seconds": 0.0,
    }


def _find_files(paths: Iterable[str | Path], root: Path) -> tuple[list[str], list[Path], dict[Path, str]]:
    """Return the files given, the images in the folders given, and why the other files there are skipped."""
    from visterm.features import find_images
    from visterm.features.images import EXTENSIONS

    files: list[str] = []
    in_folders: list[Path] = []
    refused: dict[Path, str] = {}
    for given in paths:
        path = os.fspath(given)
        if path and not os.path.lexists(path) and os.path.lexists(root / path):
            path = os.path.join(root, path)  # as search and remove print paths
        if os.path.isdir(path):
            try:
                images = find_images(path, on_skip=refused.__setitem__)
            except OSError as error:
                raise UserError(str(error)) from None
            if not images:
                raise UserError(f"{given}: no images in this folder; {READ}")
            in_folders += images
        elif not os.path.isfile(path):
            raise UserError(f"{given or '(empty name)'}: no such file or folder; give images or folders of images")
        elif os.path.splitext(path)[1].lower() not in EXTENSIONS:
            raise UserError(f"{given}: not the name of an image; {READ}")
        else:
            files.append(path)
    if not files and not in_folders:
        raise UserError("no images given; give files or folders")
    return files, in_folders, refused


def remove(
    run: Run, given: Iterable[str | Path], console: Console, *, labels: Sequence[str] = (), dry_run: bool = False
) -> Removed:
    """Remove images from a collection; their files stay. `features` will not re-add them; `add` will.

    Given are ``id:12``, files, and folders, whose images are all removed; relative to the working directory, or as
    search prints them; the files need not exist. Images with one of the `labels` are removed, too. With `dry_run`
    nothing is removed.

    UserError for an id, path or label that no image has, another process that is writing to the run, or a full disk:
    nothing is removed.
    """
    with _editing(run) as collection:
        if collection.root is None:
            raise UserError(f"run {run.name} has no images yet; run 'visterm features IMAGES {run.option}' first")
        rows: dict[int, tuple[str, str]] = {}
        for image in given:
            matches = collection.find(text := os.fspath(image))
            if not matches:
                name = text or "(empty name)"
                raise UserError(
                    f"run {run.name} has no image {name}; nothing was removed: give id:N or a path of the run"
                )
            rows |= {id_: (path, status) for id_, path, status in matches}
        for label in labels:
            matches = collection.labelled(label)
            if not matches:
                why = f"run {run.name} has no images with the label {label!r}"
                raise UserError(f"{why}; nothing was removed: see 'visterm label list'")
            rows |= {id_: (path, status) for id_, path, status in matches}
        if not rows:
            raise UserError("no images given; give files, folders, id:N, or --label NAME")
        removed = {id_: path for id_, (path, status) in rows.items() if status != "excluded"}
        n_images = collection.counts_by("status")["ok"]
        if dry_run:
            n_images -= sum(status == "ok" for _, status in rows.values())
        else:
            collection.exclude(removed)
            n_images = collection.counts_by("status")["ok"]
        if not n_images:
            console.warn(f"no image {'would be' if dry_run else 'is'} left in run {run.name}")
        return {
            "removed": len(removed),
            "already": len(rows) - len(removed),
            "n_images": n_images,
            "images": [{"id": id_, "path": path} for id_, path in removed.items()],
            "dry_run": dry_run,
        }


def exclude(run: Run, ids: Sequence[int]) -> list[Excluded]:
    """Remove images by id, as `remove` does; return what `restore` needs. Ids that no image has are ignored."""
    with _editing(run) as collection:
        return collection.exclude(ids)


def restore(run: Run, before: Iterable[Excluded]) -> int:
    """Undo `exclude`: the images have their vectors and labels again. Return their number."""
    with _editing(run) as collection:
        return collection.restore(before)


def compact(run: Run, console: Console) -> Compacted:
    """Merge small segments and those with many dead rows; drop the rows of changed and removed images.

    UserError if another process is writing to the run, or the disk is full: segments compacted by then stay compacted.
    """
    with _editing(run) as collection, console.phase("compacting"):
        return collection.compact()


@contextlib.contextmanager
def _editing(run: Run) -> Iterator[Collection]:
    """Lock a run and open its collection; turn a full disk and similar errors into one line."""
    with system_errors_explained(run.folder), run.locked(), Collection(run.collection) as collection:
        yield collection
