"""The images of a run as arrays, for work in Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visterm.pipeline.errors import UserError

from .catalogue import Collection
from .run import Run, runs_folder
from .vectors import extractor_content, mapped_vectors, supervision

if TYPE_CHECKING:
    import numpy as np
    from scipy import sparse


class OpenedRun(NamedTuple):
    """Vectors, labels, paths and splits of a run's images, in the order of their paths."""

    X: sparse.csr_matrix | np.ndarray  # (n, d) float32, unit rows
    y: np.ndarray | sparse.csr_matrix  # (n,) labels if each image has one; else (n, n_labels), see `labels`
    paths: list[str]  # relative to the directory of images
    splits: np.ndarray  # (n,) "train", "test", "validation", or "" without a label
    labels: list[str]  # sorted names of the labels: the columns of a y with several per image


def open_run(name: str | Path) -> OpenedRun:
    """Read the vectors, labels, paths and splits of a run, for scikit-learn and for the learners.

    Parameters
    ----------
    name : str or Path
        A run in the folder of runs (``runs/``, or the environment variable VISTERM_RUNS), or the path of one.

    Returns
    -------
    OpenedRun
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

    run = Run(Path(name) if (Path(name) / "collection").is_dir() else runs_folder() / name)
    if not run.collection.is_dir():
        raise UserError(f"no run {name} in {runs_folder()}; run 'visterm features IMAGES --run {name}' first")
    extractor_content(run)  # UserError without features
    config = run.configure(None, [])
    with Collection(run.collection) as collection:
        images = collection.images()
        y, labels = supervision(images, clicks=config.collection.clicks is not None)
        X = mapped_vectors(run, collection, images)
    splits = np.array([image.split or "" for image in images])
    return OpenedRun(X, y, [image.path for image in images], splits, labels)
