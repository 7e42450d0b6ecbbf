"""A run that is opened once for a command; and the images of a run as arrays, for work in Python."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .catalogue import Collection
from .checksums import Record
from .images import Image
from .run import Run, run_at
from .splits import as_ranked
from .supervision import TrainingData, read_training_data
from .vectors import extractor_content, mapped_vectors, supervision, vectors_by_rows

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse

    from visterm.pipeline.config.models import Config


class OpenedRun(Run):
    """A run with its configuration and its catalogue, whose records, images and training data are each read once.

    For one command. A record is read again if its file was replaced, as by the command itself.
    """

    def __init__(self, run: Run, config: Config, catalogue: Collection):
        super().__init__(run.folder)
        self.config, self.catalogue = as_ranked(config, catalogue["split_by"]), catalogue
        self.clicks = config.collection.clicks is not None
        self._records: dict[Path, tuple[tuple[int, ...] | None, Record | None]] = {}
        self.images = functools.cache(catalogue.images)

    def record(self, folder: Path) -> Record | None:
        """Read the record of an artifact, None if there is none; UserError if it is damaged."""
        try:
            status = os.stat(folder / "record.json")
            stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        except OSError:
            stamp = None
        if folder not in self._records or self._records[folder][0] != stamp:
            self._records[folder] = stamp, super().record(folder)
        return self._records[folder][1]

    @functools.cached_property
    def training(self) -> TrainingData:
        """The images or triplets that learners learn from."""
        return read_training_data(self, self.config, self.catalogue)

    def supervision(self, images: Sequence[Image]) -> tuple[np.ndarray | sparse.csr_matrix, list[str]]:
        """Return the labels of images, and the sorted names of the labels."""
        return supervision(images, clicks=self.clicks)

    def vectors(self, images: Sequence[Image]) -> Any:
        """Read the vectors of images; many dense ones stay on disk."""
        return vectors_by_rows(self, self.catalogue, images)


@contextlib.contextmanager
def opened(run: Run, config: Config, *, lock: bool = True, create: bool = False) -> Iterator[OpenedRun]:
    """Open a run for a command; with ``lock`` nothing else writes to it meanwhile. ``create`` makes a new one."""
    with (
        run.locked(create=create) if lock else contextlib.nullcontext(),
        Collection(run.collection, create=create) as catalogue,
    ):
        yield OpenedRun(run, config, catalogue)


class RunArrays(NamedTuple):
    """Vectors, labels, paths and splits of a run's images, in the order of their paths."""

    X: sparse.csr_matrix | np.ndarray  # (n, d) float32, unit rows
    y: np.ndarray | sparse.csr_matrix  # (n,) labels if each image has one; else (n, n_labels), see `labels`
    paths: list[str]  # relative to the directory of images
    splits: np.ndarray  # (n,) "train", "test", "validation", or "" without a label
    labels: list[str]  # sorted names of the labels: the columns of a y with several per image


def open_run(name: str | Path) -> RunArrays:
    """Read the vectors, labels, paths and splits of a run, for scikit-learn and for the learners.

    Parameters
    ----------
    name : str or Path
        A run in the folder of runs (``runs/``, or the environment variable VISTERM_RUNS), or the path of one.

    Returns
    -------
    RunArrays
        Of all readable images; images without a label have no entry in a y of several labels per image.

    Raises
    ------
    UserError
        No such run, or no features yet.

    Examples
    --------
    >>> from visterm.pipeline import open_run
    >>> X, y, paths, splits, labels = open_run("photos")  # doctest: +SKIP
    >>> OASIS().fit(X[splits == "train"], y[splits == "train"])  # doctest: +SKIP
    """
    import numpy as np

    run = run_at(name)
    extractor_content(run)  # UserError without features
    with opened(run, run.configure(None, []), lock=False) as it:
        images = it.images()
        y, labels = it.supervision(images)
        X = mapped_vectors(it, it.catalogue, images)
    splits = np.array([image.split or "" for image in images])
    return RunArrays(X, y, [image.path for image in images], splits, labels)
