"""AROMA and OASIS on vectors like the AROMA paper's, made in the ways that the paper leaves open."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from sklearn.base import clone

from benchmarks.vectors import DATA, N_TEST, N_TRAIN, choose_images, enlarged
from visterm.learners import AROMA, OASIS, Cosine

from .grids import Grid
from .protocol import ONE_PAIR, choose, chosen_settings, extracted, figures, load_fold

SMALLEST = 64  # pixels of a longest side
INNER_FOLDS = 2


class Size(NamedTuple):
    """How photos are scaled."""

    factor: float  # median of the factors
    spread: float  # standard deviation of their logarithms; 0: all alike
    most: int  # longest side in pixels that a photo has then


class Condition(NamedTuple):
    """Labels, and what the vectors are made from."""

    labels: int  # 38 categories of Caltech-101, or 50 CDs of Corel
    normalization: str  # of block descriptors: "hellinger" or "l1"
    size: Size | None = None  # photos are scaled


# Sizes are settled by the numbers of non-zeros; no label and no figure of a system had a part in it.
CONDITIONS = {
    "38 classes, Hellinger": Condition(38, "hellinger"),
    "38 classes, Hellinger, scaled": Condition(38, "hellinger", Size(1.17, 0.0, 560)),
    "38 classes, l1, scaled": Condition(38, "l1", Size(1.0, 0.0, 500)),
    "50 CDs, Hellinger, scaled": Condition(50, "hellinger", Size(1.78, 0.25, 900)),
    "50 CDs, l1, scaled": Condition(50, "l1", Size(1.6, 0.23, 900)),
}
ONLINE: dict[str, Any] = {"n_steps": 200_000, "pass_steps": 20_000, "random_state": 0} | ONE_PAIR
GRIDS = {
    "OASIS": Grid(OASIS(**ONLINE), {"C": (0.01, 0.03, 0.1)}),
    "AROMA": Grid(AROMA(**ONLINE), {"r": (10.0, 100.0, 1000.0)}),
}
STARTS = {"OASIS": ("identity", "zero"), "AROMA": ("zero", "identity")}  # the paper's first
OF_PAPER = {"OASIS": OASIS(C=0.1, **ONLINE), "AROMA": AROMA(r=0.01, **ONLINE)}  # for all steps, nothing chosen


def measure(condition: str, system: str, start: str, chosen: bool, fold: int, quick: bool) -> dict[str, Any]:
    """Figures of test images that query each other; settings, and those at the edge; non-zeros of all images."""
    X, y, test, test_y = vectors(CONDITIONS[condition], fold)
    taken: dict[str, Any] = {"settings": {}, "edges": []}
    if system == "Euclidean":
        learner = Cosine()
    elif chosen:
        grid = GRIDS[system]
        grid = Grid(clone(grid.learner).set_params(init=start), grid.axes)
        learner, edges = choose(grid, X, y, n_folds=INNER_FOLDS, quick=quick)
        taken = chosen_settings(learner, grid, edges)
    else:
        learner = clone(OF_PAPER[system])
    found = figures(learner.fit(X, y), test, test_y)
    entries = np.concatenate([np.diff(part.indptr) for part in (X, test)])
    return {
        "p1": found["precision"][0],
        "p10": found["precision"][9],
        "map": found["map"],
        **taken,
        "entries": [float(np.median(entries)), int(entries.max())],
    }


def vectors(condition: Condition, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """X, y of the training images and X, y of the test images; 1,000 visterms that the training images define."""
    if condition == Condition(38, "hellinger"):
        return load_fold(38, 1000, fold)
    paths, y, train = choose_images("caltech101-38", fold=fold) if condition.labels == 38 else corel_cds(fold)
    if condition.size is not None:
        paths = [enlarged(path, longest_side(path, condition.size)) for path in paths]
    stem = f"lead-{condition.labels}"
    X = extracted(stem, paths, train, fold, normalization=condition.normalization, n_visterms=1000, max_side=None)
    return X[train], y[train], X[~train], y[~train]


def corel_cds(fold: int) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """As many labels as the paper has: photos of Corel-5K, the CD that each comes from as its label."""
    rng = np.random.default_rng(fold)
    folders = sorted((DATA / "corel5k" / "train").iterdir())
    drawn = [rng.permutation(sorted(folder.iterdir()))[: N_TRAIN + N_TEST] for folder in folders]
    y = np.repeat([folder.name for folder in folders], [len(photos) for photos in drawn])
    train = np.concatenate([np.arange(len(photos)) < N_TRAIN for photos in drawn])
    return [path for photos in drawn for path in photos], y, train


def longest_side(path: Path, size: Size) -> int:
    """Pixels; a photo has the same in every fold."""
    with Image.open(path) as photo:
        own = max(photo.size)
    rng = np.random.default_rng(zlib.crc32(f"{path.parent.name}/{path.name}".encode()))
    return round(float(np.clip(own * size.factor * rng.lognormal(0, size.spread), SMALLEST, size.most)))
