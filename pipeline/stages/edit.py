"""Changing a collection by hand: add, remove, compact. What stands - codebook, idf, learners - stays as it is.

`stages.features` finds by itself what is new, changed or gone below the root. Here single images, of wherever, come and
go without a look at the others.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError, system_errors_explained
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content, extractor_of

from .dask_cluster import connected
from .extraction import extract, report_skipped

READ = "JPEG, PNG, WebP, BMP and TIFF files are read"


def add(
    run: Run, config: Config, paths: Iterable[str | Path], console: Console, *, labels: Sequence[str] = ()
) -> dict[str, Any]:
    """Add images to a collection; they can be found at once, with the learners that stand.

    Parameters
    ----------
    run : Run
    config : Config
        The run's own, but for the cluster.
    paths : iterable of path
        Image files, and folders, of which all images are taken; from here, or else from the root. Those below the root
        are entered as a scan would do it, others by their absolute paths, until their files are gone.
    console : Console
    labels : sequence of str
        Of all of them, in place of what folders and tables say.

    Returns
    -------
    dict
        Numbers of images: ``added``, ``changed``, ``present`` (already there), ``relabelled``, ``extracted``,
        ``skipped`` (could not be read), ``n_images`` (now in the collection); ``ids``: those of the images given that
        can be found; ``refused``: ``{"path", "reason"}`` of each that could not be read or taken; ``seconds``.

    Raises
    ------
    UserError
        A path does not exist or is no image, a folder has none, another process is at work in the run, there are no
        visterms yet, or the cluster that the images need cannot be used: then nothing has changed. Or the disk is full,
        or the cluster goes in the middle: what is finished is kept, and the same call goes on from there.
    """
    if "" in labels:
        raise UserError("--label: the name of a label is empty")
    started = time.perf_counter()
    with _at_work(run) as collection:
        root = collection.root
        if root is None or collection["extractor"] != extractor_content(run):
            raise UserError(
                f"run {run.name}: the features are not finished; run 'visterm features --run {run.name}' first"
            )
        if extractor_of(run) is None:
            raise UserError(
                f"run {run.name} has vectors that were made elsewhere: add them to "
                f"{config.collection.vectors.file} and run 'visterm features --run {run.name}'"
            )
        files, found = _look_up(paths, root)
        named, names = set(collection.names(files)), list(dict.fromkeys(collection.names([*files, *found])))
        unfit = collection.unfit(names, config)
        for path in names:
            if path in unfit and (path in named or len(unfit) == len(names)):
                raise UserError(f"{path}: cannot be added: {unfit[path]}")
        names = [path for path in names if path not in unfit]
        among = set(names)
        collection.clean()
        if len(names) - len(collection.ids(names)) > config.compute.segment_size:
            with connected(config, run, root / names[0]):  # images that no worker extracts would wait in the catalogue
                pass
        changes = collection.add(names, labels, config)
        waiting = [(id_, path) for id_, path in collection.pending() if path in among]
        extracted = extract(run, config, collection, root, waiting, console)
        skipped = [(path, reason) for path, reason in collection.skipped() if path in among]
        if extracted:
            report_skipped(collection.skipped(), run, console, among)
        copies = collection.copies(id_ for id_, _ in waiting)
        if copies:
            console.warn(
                f"{count(len(copies), 'image')} added again: {copies[0][0]} is a copy of {copies[0][1]}, which is there"
            )
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


def _look_up(paths: Iterable[str | Path], root: Path) -> tuple[list[str], list[Path]]:
    """Files that were named, and images of folders that were."""
    from visterm.features import find_images
    from visterm.features.images import EXTENSIONS

    files: list[str] = []
    found: list[Path] = []
    for given in paths:
        path = os.fspath(given)
        if path and not os.path.lexists(path) and os.path.lexists(root / path):
            path = os.path.join(root, path)  # as search and remove print it
        if os.path.isdir(path):
            try:
                images = find_images(path)
            except OSError as error:
                raise UserError(str(error)) from None
            if not images:
                raise UserError(f"{given}: no images in this folder; {READ}")
            found += images
        elif not os.path.isfile(path):
            raise UserError(f"{given or '(empty name)'}: no such file or folder")
        elif os.path.splitext(path)[1].lower() not in EXTENSIONS:
            raise UserError(f"{given}: not the name of an image; {READ}")
        else:
            files.append(path)
    if not files and not found:
        raise UserError("which images? give their files or folders")
    return files, found


def remove(
    run: Run,
    given: Iterable[str | Path],
    console: Console,
    *,
    labels: Sequence[str] = (),
    dry_run: bool = False,
) -> dict[str, Any]:
    """Take images out of a collection; their files stay, and no scan brings them back: `add` does.

    Parameters
    ----------
    run : Run
    given : iterable of str or path
        ``id:12``, files, and folders, of which all images are meant; from here, or as search prints them. Their files
        may be gone.
    console : Console
    labels : sequence of str
        The images with one of these labels, too.
    dry_run : bool
        Only tell what would be removed.

    Returns
    -------
    dict
        ``removed``, ``already`` (were removed before), ``n_images`` (that are left), as numbers of images; ``images``:
        ``{"id", "path"}`` of each that was removed; ``dry_run``.

    Raises
    ------
    UserError
        An id, path or label that no image has, another process is at work in the run, or the disk is full. Then nothing
        is removed.
    """
    with _at_work(run) as collection:
        if collection.root is None:
            raise UserError(f"run {run.name} has no images yet; run 'visterm features IMAGES --run {run.name}' first")
        rows: dict[int, tuple[str, str]] = {}
        for image in given:
            found = collection.find(text := os.fspath(image))
            if not found:
                raise UserError(f"run {run.name} has no image {text or '(empty name)'}; nothing was removed")
            rows |= {id_: (path, status) for id_, path, status in found}
        for label in labels:
            found = collection.labelled(label)
            if not found:
                raise UserError(f"run {run.name} has no images with the label {label!r}; nothing was removed")
            rows |= {id_: (path, status) for id_, path, status in found}
        if not rows:
            raise UserError("which images? give files, folders, id:N, or --label NAME")
        there = {id_: path for id_, (path, status) in rows.items() if status != "excluded"}
        n_images = collection.counts_by("status")["ok"]
        if dry_run:
            n_images -= sum(status == "ok" for _, status in rows.values())
        else:
            collection.exclude(there)
            n_images = collection.counts_by("status")["ok"]
        if not n_images:
            console.warn(f"no image {'would be' if dry_run else 'is'} left in run {run.name}")
        return {
            "removed": len(there),
            "already": len(rows) - len(there),
            "n_images": n_images,
            "images": [{"id": id_, "path": path} for id_, path in there.items()],
            "dry_run": dry_run,
        }


def compact(run: Run, console: Console) -> dict[str, Any]:
    """Merge small segments and those with many dead rows; drop what was left of images that changed or went.

    Parameters
    ----------
    run : Run
    console : Console

    Returns
    -------
    dict
        ``segments_before``, ``segments``, ``dropped_rows`` (of counts), ``tombstones`` (rows of the catalogue),
        ``seconds``.

    Raises
    ------
    UserError
        Another process is at work in the run, or the disk is full: what is compacted by then stays so.
    """
    started = time.perf_counter()
    with _at_work(run) as collection, console.phase("compacting"):
        done = collection.compact()
    return done | {"seconds": round(time.perf_counter() - started, 3)}


@contextlib.contextmanager
def _at_work(run: Run) -> Iterator[Collection]:
    """Lock a run and open its collection; turn a full disk, and the like, into one line."""
    with (
        system_errors_explained(run.folder),
        run.locked(),
        contextlib.closing(Collection(run.collection)) as collection,
    ):
        yield collection
