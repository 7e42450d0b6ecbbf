"""Extraction: pending images become segments, on all cores or on a cluster."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import FIX_AND_RESUME, UserError
from visterm.pipeline.store.files import image_sha256, write_text
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.pictures import Outcome, pixels_hash
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import in_precision, row_of, write_segment
from visterm.pipeline.store.vectors import embed, load_extractor
from visterm.pipeline.workers import connected

if TYPE_CHECKING:
    import numpy as np

    from visterm.features import OnnxEmbedder
    from visterm.features.decoding import Picture
    from visterm.pipeline.config.models import Config

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>
_IMAGES_PER_THREAD = 32  # at a time, of one segment


class Source(Protocol):
    """Inputs of the vectors of a segment."""

    title: ClassVar[str]  # of the progress bar
    noun: ClassVar[str]
    parallel: ClassVar[bool]  # whether segments may be extracted in other processes

    @property
    def precision(self) -> str:
        """Type of the numbers of dense vectors in a segment."""

    @property
    def segment_size(self) -> int:
        """Images per segment."""

    def vectors(self, images: Sequence[tuple[int, str]], parent: int) -> tuple[list[Outcome], Any]:
        """Return an outcome per image (id, path), and a matrix with a row per image that could be read."""


@dataclass(frozen=True)
class ImageSource:
    """Image files, and the saved extractor of a run."""

    title: ClassVar[str] = "extracting"
    noun: ClassVar[str] = "images"
    parallel: ClassVar[bool] = True

    files: Path  # the saved extractor
    version: str  # its fingerprint: a worker that outlives an extractor must not keep using the old one
    root: Path
    max_pixels: int
    segment_size: int
    precision: str

    @classmethod
    def of(cls, run: OpenedRun, root: Path) -> ImageSource:
        """Return the source for the images of a run."""
        files, config = (run.extractor / "files").absolute(), run.config  # workers may run in another directory
        limits = config.collection.max_pixels, config.compute.segment_size
        return cls(files, run.catalogue["extractor"], root, *limits, config.features.precision)

    def vectors(self, images: Sequence[tuple[int, str]], parent: int) -> tuple[list[Outcome], Any]:
        """Read images; count their visterms, or embed them."""
        from visterm.features import silence_decoders

        silence_decoders()
        extractor: Any = load_extractor(self.files, self.version)
        outcomes: list[Outcome] = []
        if hasattr(extractor, "count"):
            vectors = extractor.count(self._readable(extractor, images, outcomes))
        else:
            vectors = self._embed(extractor, images, outcomes, parent or os.getppid())
        rows = itertools.count()
        return [outcome if outcome.reason else outcome._replace(row=next(rows)) for outcome in outcomes], vectors

    def _readable(
        self, extractor: Any, images: Sequence[tuple[int, str]], outcomes: list[Outcome]
    ) -> Iterator[np.ndarray]:
        """Yield the pixels of each image that can be read; append an outcome per image, without its row."""
        for id_, path in images:
            outcome, pixels = try_read(id_, self.root / path, self.max_pixels, extractor.read)
            outcomes.append(outcome)
            if pixels is not None:
                yield pixels

    def _embed(
        self, embedder: OnnxEmbedder, images: Sequence[tuple[int, str]], outcomes: list[Outcome], parent: int
    ) -> np.ndarray:
        """Embed images; where no other process does, on threads, so that some decode while the network runs."""
        from concurrent.futures import ThreadPoolExecutor

        import numpy as np
        from joblib import effective_n_jobs

        def part(some: Sequence[tuple[int, str]]) -> tuple[np.ndarray, list[Outcome]]:
            done: list[Outcome] = []
            return embed(embedder, self._readable(embedder, some, done), parent), done

        n_threads = 1 if os.getppid() == parent else effective_n_jobs(-1)
        size = max(1, min(_IMAGES_PER_THREAD, -(-len(images) // n_threads)))
        with ThreadPoolExecutor(n_threads) as pool:
            parts = list(pool.map(part, [images[i : i + size] for i in range(0, len(images), size)]))
        for _, done in parts:
            outcomes += done
        return np.concatenate([rows for rows, _ in parts])


def try_read(
    id_: int, path: Path, max_pixels: int, read: Callable[..., Picture] | None = None
) -> tuple[Outcome, np.ndarray | None]:
    """Read an image; return its outcome, without a row yet, and its pixels, None if the image must be skipped.

    `read` is that of an extractor, and may scale a large image down; the outcome has the size of the original.
    """
    from visterm.features import ImageError
    from visterm.features.decoding import decode_picture
    from visterm.features.images import read_file

    sha256 = ""
    try:
        data = read_file(path)
        sha256 = hashlib.sha256(data).hexdigest()
        if read is None:
            pixels, height, width = decode_picture(data, path, max_pixels=max_pixels)
        else:
            pixels, height, width = read(path, max_pixels=max_pixels, data=data)
    except ImageError as error:
        return Outcome(id_, sha256, None, None, None, error.reason), None
    return Outcome(id_, sha256, width, height, None, None, pixels_hash(pixels)), pixels


def check_cluster(run: Run, config: Config, source: Source, n_images: int, image: Path | None = None) -> None:
    """Raise if `extract` would need the cluster and cannot use it: images that wait for it must not be entered."""
    if source.parallel and n_images > source.segment_size:
        with connected(config, run, image):
            pass


def extract(run: OpenedRun, source: Source, pending: Sequence[tuple[int, str]], console: Console) -> int:
    """Extract pending images, one segment at a time, and return the number of those that could be read.

    A segment exists once it is in the catalogue.
    """
    if not pending:
        return 0
    from visterm.features import silence_decoders

    silence_decoders()  # before the progress bar takes over standard error
    config, collection, size = run.config, run.catalogue, source.segment_size
    chunks = [pending[i : i + size] for i in range(0, len(pending), size)]
    first = collection.reserve_segments(len(chunks))
    segments = collection.segments.absolute()  # workers may run in another directory
    root = collection.root
    assert root is not None
    n_skipped = done = 0
    with contextlib.ExitStack() as stack:
        cluster = None
        if source.parallel and len(chunks) > 1:  # for one segment, starting processes or asking a cluster is slow
            cluster = stack.enter_context(connected(config, run, root / pending[0][1]))
        parent = os.getpid() if cluster is None else 0
        origin = collection.origin()
        tasks = ((source, chunk, segments / str(first + i), parent, origin) for i, chunk in enumerate(chunks))
        phase = stack.enter_context(console.phase(source.title, len(pending), source.noun))
        if cluster is not None:
            results: Iterable[list[Outcome]] = cluster.map(extract_segment, tasks)
        elif source.parallel:
            results = _in_processes(config, tasks, len(chunks), stack)
        else:
            results = (extract_segment(*task) for task in tasks)
        for i, outcomes in enumerate(results):
            if cluster is not None:
                _check_shared(root, chunks[i], outcomes)
            collection.enter_segment(first + i, outcomes)
            done += len(outcomes)
            n_skipped += sum(o.row is None for o in outcomes)
            phase.advance_to(done, note=f"{n_skipped} skipped" if n_skipped else "")
    return done - n_skipped


def _in_processes(
    config: Config, tasks: Iterable[tuple[Any, ...]], n_tasks: int, stack: contextlib.ExitStack
) -> Iterable[list[Outcome]]:
    """Extract segments in processes of this machine, in order."""
    from joblib import Parallel, delayed, effective_n_jobs, parallel_config

    n_jobs = min(effective_n_jobs(config.compute.n_jobs), n_tasks)
    backend = config.compute.backend if n_jobs > 1 else "sequential"
    options = {"initializer": _begin_worker, "initargs": (os.getpid(),)} if backend == "loky" else {}
    stack.enter_context(parallel_config(backend=backend, n_jobs=n_jobs, **options))
    return Parallel(return_as="generator")(delayed(extract_segment)(*task) for task in tasks)


def _check_shared(root: Path, images: Sequence[tuple[int, str]], outcomes: Sequence[Outcome]) -> None:
    """Raise if a worker could not open a file that this machine can: it would be skipped as damaged."""
    paths = dict(images)
    for outcome in outcomes:
        file = root / paths[outcome.id]
        if outcome.sha256 == "" and image_sha256(file) is not None:
            raise UserError(
                f"{file}: a worker cannot open it ({outcome.reason}), but this machine can; the images must lie on "
                f"storage that all workers share; {FIX_AND_RESUME}"
            )


def extract_segment(
    source: Source, images: Sequence[tuple[int, str]], target: Path, parent: int, origin: Mapping[str, str]
) -> list[Outcome]:
    """Extract and write one segment, the unit of work; return an outcome per image, in the order given.

    It runs in any process. ``target`` is not written if no image could be read. ``parent`` is the process that this one
    must not outlive; 0: a worker of a cluster. ``origin`` is noted in the segment.
    """
    _exit_with(parent)
    outcomes, vectors = source.vectors(images, parent)
    if vectors.shape[0]:
        paths = dict(images)
        read = [outcome for outcome in outcomes if outcome.row is not None]
        rows = [row_of(o.id, paths[o.id], o.sha256, o.width, o.height, o.pixels) for o in read]
        vectors = in_precision(vectors, source.precision, [path for _, path, *_ in rows])
        write_segment(target, vectors, rows, **origin)
    return outcomes


def _begin_worker(parent: int) -> None:
    if os.getppid() != parent:  # killed while this worker began
        os._exit(1)
    _exit_with(parent)


@functools.cache
def _exit_with(parent: int) -> None:
    """Make this worker end with the process that started it, which may be killed without notice.

    An orphaned worker would keep its memory and its pipes for minutes.
    """
    if os.getppid() != parent or parent == 0:  # the process itself, or a worker of a cluster
        return
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:  # elsewhere, and for a parent that was killed just before
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def report_skipped(
    skipped: list[tuple[str, str]], run: Run, console: Console, among: Container[str] | None = None
) -> None:
    """List all skipped files in skipped.txt; warn of them, or only of those among some paths."""
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
