"""Extraction: pending images become segments, on all cores or on a cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.files import file_sha256, write_text
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import write_segment
from visterm.pipeline.store.vectors import embed, load_extractor

from .dask_cluster import connected

if TYPE_CHECKING:
    import numpy as np


def read_outcome(id_: int, path: Path, max_pixels: int) -> tuple[Outcome, np.ndarray | None]:
    """Read an image for a segment; the row in the outcome is set by the caller."""
    from visterm.features import ImageError, read_image

    sha256 = file_sha256(path) or ""
    try:
        pixels = read_image(path, max_pixels=max_pixels)
    except ImageError as error:
        return Outcome(id_, sha256, None, None, None, error.reason), None
    return Outcome(id_, sha256, pixels.shape[1], pixels.shape[0], None, None), pixels


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
            outcome, pixels = read_outcome(id_, root / path, max_pixels)
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
