"""A run opened for searching: its images as they were at one moment, and what has changed since."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from visterm.pipeline.console import Console, told_of_compiling
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.images import Images, RowOfId
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.records import fingerprint
from visterm.pipeline.store.run import Run, run_at
from visterm.pipeline.store.splits import as_ranked
from visterm.pipeline.store.vectors import text_version

from .gallery import Gallery
from .labels import ranking_labels
from .queries import Queries, read_queries
from .state import OnceCache, RecentCache, disk_state, learner_inputs

if TYPE_CHECKING:
    import numpy as np

RETRY_SECONDS = 10.0  # exact search replaces an index in Milvus that cannot be updated, before the next try
_VECTORS = 256  # of uploads and regions, for the next page, another learner and explanations
_log = logging.getLogger("visterm.pipeline.search.searcher")


class SearchableRun:
    """The images of a run and the names of its learners, as they were when it was opened; see `Searcher`."""

    def __init__(
        self, run: Run | str | os.PathLike[str], *, console: Console | None = None, like: Self | None = None
    ) -> None:
        self.run = run if isinstance(run, Run) else run_at(run)
        self._console: Any = console or _Log
        while True:
            self._state = disk_state(self.run)
            self._once = OnceCache()
            self.recent = RecentCache(_VECTORS)
            self._exact_since: dict[str, float] = {}  # learners whose index in Milvus could not be updated, and when
            try:
                if like is None:
                    self.gallery = Gallery(self.run, self._console.warn)
                elif like._state.collection != self._state.collection:
                    # No warning for every segment of a run that grows: the first searcher warned.
                    self.gallery = Gallery(self.run, self._console.say, like.gallery)
                else:
                    self.gallery = like.gallery
                self._open_learners(like)
                break
            except UserError:
                if self.is_as_on_disk():
                    raise  # otherwise the run changed while it was read: read it again
        gallery = self.gallery
        self.filtered = RecentCache(len(gallery.images))  # indexes of images that pass filters, with their rows
        self.root: Path = gallery.root
        self.images: Images = gallery.images
        self.X: Any = gallery.X
        self.place: RowOfId = gallery.place
        self.pending: set[int] = gallery.pending

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle where the run lies, as for joblib: another process opens it as it is on the disk by then."""
        return type(self), (Run(self.run.folder.absolute()),)

    def _open_learners(self, like: Self | None) -> None:
        run, content = self.run, self.gallery.content
        self.config = as_ranked(run.configure(None, []), self.gallery.split_by)
        self._trained = {name: inputs for name in TRAINED if (inputs := learner_inputs(run, name, content))}
        self.learners: list[str] = [*self._trained, "cosine"]
        self.annotators: list[str] = ranking_labels(self._trained)
        self._text_version = text_version(run)
        of_texts = [self._text_version] if self._text_version else []
        self.version: str = fingerprint(content, self.gallery.fingerprint, self._trained, *of_texts)
        if like is not None and like.gallery is self.gallery:
            same = {name for name in self.learners if self._trained.get(name) == like._trained.get(name)}
            self._once.copy_from(like._once, same)
            for name in list(like._exact_since):
                for kind in ("index", "sides", "sides with look"):
                    self._once.drop((kind, name))

    @property
    def extractor(self) -> Any:
        """What makes vectors of images, loaded when it is first needed; None if the vectors were imported."""
        return self.gallery.extractor

    @property
    def has_text_model(self) -> bool:
        """Whether the run has a model that makes vectors of texts."""
        return bool(self._text_version)

    def is_current(self) -> bool:
        """Whether this searcher is up to date: `is_as_on_disk`, and no index in Milvus waits for another try.

        Exact search replaces an index in Milvus that cannot be updated while another process writes to the run; a
        searcher that is opened `RETRY_SECONDS` later tries the update again.
        """
        now = time.monotonic()
        return self.is_as_on_disk() and all(now < since + RETRY_SECONDS for since in list(self._exact_since.values()))

    def is_as_on_disk(self) -> bool:
        """Whether collection, extractor and learners on disk are unchanged; takes some 0.1 ms."""
        return disk_state(self.run) == self._state

    def deleted(self, rows: Iterable[int]) -> set[int]:
        """Return the rows whose file is gone since it was extracted; say once how to remove them.

        The set is empty if the run has no image files, or if their whole directory is missing.
        """
        if self.config.collection.vectors.file is not None:
            return set()
        root = str(self.root)
        gone = {row for row in rows if not os.path.lexists(os.path.join(root, self.images.path(row)))}
        if not gone or not self.root.is_dir():
            return set()
        update = f"visterm features {self.run.option}"
        self._once(
            ("deleted", ""), lambda: self._console.say(f"deleted photos are no results; '{update}' removes them")
        )
        return gone

    def _first_there(self, rows: np.ndarray, n: int) -> list[int]:
        """Places of the first n of these rows whose files are not deleted."""
        there: list[int] = []
        for start in range(0, len(rows), n):
            part = rows[start : start + n].tolist()
            gone = self.deleted(part)
            there += [start + i for i, row in enumerate(part) if row not in gone]
            if len(there) >= n:
                break
        return there[:n]

    def shares_images(self, searcher: Self) -> bool:
        """Whether both hold the same images and vectors in memory, not just equal ones."""
        return self.gallery is searcher.gallery

    def same_learner(self, searcher: Self, name: str) -> bool:
        """Whether a learner is the same in both, over vectors made in the same way."""
        same_vectors = self.gallery.content == searcher.gallery.content
        return same_vectors and self._trained.get(name) == searcher._trained.get(name)

    def queries(self, images: Any) -> Queries:
        """Turn images, folders, ids and files of vectors into query vectors.

        Parameters
        ----------
        images : one or several of str, path, int, ndarray, PIL.Image.Image and bytes
            Image files, from anywhere; folders: all images below them; ``12`` or ``"id:12"``: an image of the
            collection by its id, or by its path as search prints it, if there is no such file; RGB uint8 arrays
            (H, W, 3); images of Pillow; contents of image files. For a run with imported vectors: its images, and files
            of vectors (.npy, .npz, .safetensors, .parquet, .arrow).

        Returns
        -------
        Queries
            A query that cannot be read raises no error here: it is listed with the reason.
        """
        if isinstance(images, Queries):
            return images
        with told_of_compiling(self._console, lazily=True) if self._extracts(images) else contextlib.nullcontext():
            return read_queries(images, self.gallery, self.config)

    def _extracts(self, images: Any) -> bool:
        """Whether a file is among the queries whose visterms are extracted, by kernels that may not be compiled yet."""
        if self.config.features.kind != "visterms" or self.config.collection.vectors.file is not None:
            return False
        names = [images] if isinstance(images, str) else images if isinstance(images, list | tuple) else ()
        return any(isinstance(name, str) and self.row_named(name) is None for name in names)

    def row_named(self, name: str) -> int | None:
        """Row of the image that a query names by id (``"id:12"``) or path; None if it names another file."""
        return self.gallery.row_named(name)


class _Log:
    """A Console that writes to the log."""

    say = staticmethod(_log.info)
    warn = staticmethod(_log.warning)

    @staticmethod
    @contextlib.contextmanager
    def phase(title: str) -> Iterator[None]:
        _log.info(title)
        yield
