"""Sets of photos, and the settings with which the commands read them.

A set is a folder of $VISTERM_DATA, or some classes of one; see benchmarks/vectors.py.
"""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import yaml

from .processes import set_options, visterm
from .vectors import CACHE, DATA, N_TEST, N_TRAIN, ROOT

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.store.run import Run

PIXELS = 12_000_000
NOISE = 6  # grey levels, as of a phone's camera in a room
SHIPPED = ("astronaut", "chelsea", "coffee", "rocket", "camera", "brick", "grass", "gravel")  # with scikit-image
SETS = {"caltech101-20": "Caltech-101, 20 classes", "flowers": "flowers, 9 classes", "textures": "textures, 9 classes"}
ALL_LABELS = {
    "caltech101": "Caltech-101, 38 classes",
    "flowers": "flowers, 9 classes",
    "textures": "textures, 9 classes",
    "corel5k": "Corel-5K, 260 words",
}


def folder_of(name: str) -> Path:
    return DATA / name.partition("-")[0]


def settings_of(name: str) -> list[str]:
    """Return the settings of the commands for a set: its classes and the size of its split, or its table of labels."""
    if "-" in name:
        classes = yaml.safe_load((DATA / "sets.yaml").read_text())[name]
        return [f"collection.classes={json.dumps(classes)}", f"split.train={N_TRAIN}", f"split.test={N_TEST}"]
    labels = DATA / name / "labels.csv"
    return [f"collection.labels={labels}"] if labels.exists() else []


def labelled(name: str) -> tuple[list[Path], np.ndarray]:
    """Paths and labels of a set whose classes are folders."""
    folder = folder_of(name)
    if "-" in name:
        classes = yaml.safe_load((DATA / "sets.yaml").read_text())[name]
    else:
        classes = sorted(path.name for path in folder.iterdir())
    paths = [path for c in classes for path in sorted((folder / c).iterdir())]
    return paths, np.array([path.parent.name for path in paths])


def of_each_class(y: np.ndarray, rng: np.random.Generator, *sizes: int | None) -> list[np.ndarray]:
    """Divide the rows into parts: of each class, in random order, as many as `sizes` say; None takes the rest."""
    parts: list[list[np.ndarray]] = [[] for _ in sizes]
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        for part, size in zip(parts, sizes, strict=True):
            part.append(rows[:size])
            rows = rows[len(part[-1]) :]
    return [np.concatenate(part) for part in parts]


def folds_of(y: np.ndarray, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each image; each class is spread evenly over all folds."""
    rng = np.random.default_rng(seed)
    folds = np.empty(len(y), dtype=int)
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        folds[members] = np.arange(len(members)) % n_folds
    return folds


def files_of(*names: str) -> list[Path]:
    """Paths of the photos of some folders, in the order of the names."""
    return [path for name in names for path in sorted((DATA / name).glob("*/*.jpg"))]


def some_photos(n_train: int, n_test: int, folder: Path) -> tuple[list[Path], list[Path]]:
    """Return paths of training and test photos: of Caltech-101, or else crops of photos, written into `folder`."""
    if paths := files_of("caltech101"):
        chosen = np.random.default_rng(0).permutation(len(paths))
        return [paths[i] for i in chosen[:n_train]], [paths[i] for i in chosen[n_train : n_train + n_test]]
    import cv2
    import skimage

    rng = np.random.default_rng(0)
    sources = [getattr(skimage.data, name)() for name in SHIPPED]
    for i in range(n_train + n_test):
        photo = sources[i % len(sources)]
        y, x = rng.integers(0, photo.shape[0] - 240), rng.integers(0, photo.shape[1] - 300)
        crop = photo[y : y + 240, x : x + 300]
        paths.append(folder / f"{i:05}.jpg")
        cv2.imwrite(str(paths[-1]), crop if crop.ndim == 2 else crop[..., ::-1])
    return paths[:n_train], paths[n_train:]


def caltech_or_demo(folder: Path, quick: bool) -> Path:
    """Return the folder of Caltech-101; with `quick`, or where it is missing, write demo images into `folder`."""
    if not quick and (DATA / "caltech101").is_dir():
        return DATA / "caltech101"
    from visterm.plugins.demo.demo_images import write_demo_images

    write_demo_images(folder)
    return folder


def evaluated(images: Path, *options: str, settings: list[str]) -> dict:
    """Run features, train and evaluate as a user does; return the figures of OASIS and cosine."""
    given = [*options, *set_options(settings)]
    with tempfile.TemporaryDirectory() as runs:
        visterm(runs, "features", images, *given)
        visterm(runs, "train", *given)
        return json.loads(visterm(runs, "evaluate", "--json", *given))["systems"]


def extracted(name: str, kind: str, *settings: str) -> tuple[Run, Config]:
    """The run of a set with one kind of vectors and the defaults, its features up to date; kept in build/bench."""
    from visterm.pipeline.config.loading import load_config
    from visterm.pipeline.console import Console
    from visterm.pipeline.stages.features import features
    from visterm.pipeline.store.run import Run

    run = Run(CACHE / "choosing" / "-".join([name, kind, *settings]))
    settings = ("compute.n_jobs=2", *settings, *settings_of(name), *(["features.kind=deep"] if kind == "deep" else []))
    config = load_config(ROOT / "configs" / "spatial.yaml" if kind == "spatial" else None, list(settings))
    features(run, config, DATA / name, Console(quiet=True))
    return run, config


@functools.lru_cache(maxsize=1)  # for the splits of a set
def images_of(name: str, kind: str, *settings: str) -> tuple[Config, Any, Any, list[str]]:
    """Configuration, vectors and labels of all labelled images of a set, and the names of the labels."""
    from visterm.pipeline.store.catalogue import Collection
    from visterm.pipeline.store.vectors import supervision, vectors

    run, config = extracted(name, kind, *settings)
    with Collection(run.collection) as collection:
        images = collection.images("train", "validation", "test", labelled=True)
        y, names = supervision(images, clicks=False)
        return config, vectors(run, collection, images), y, names


def relevance_of(y: Any) -> np.ndarray:
    """Which images have a common label: bool (n, n)."""
    return (y @ y.T).toarray() > 0 if sp.issparse(y) else y[:, None] == y


def quality(learner: Any, X: Any, y: Any) -> float:
    """Mean average precision of images among each other."""
    from visterm.learners.validation import mean_average_precision

    return mean_average_precision(to_dense(learner.similarity(X, X)), relevance_of(y), np.arange(y.shape[0]))


def to_dense(scores: Any) -> np.ndarray:
    return scores.toarray() if sp.issparse(scores) else scores


def enlarged(path: Path) -> np.ndarray:
    """A photo at 12 megapixels with a camera's noise: BGR uint8."""
    import cv2

    small = cv2.imread(str(path))
    scale = (PIXELS / (small.shape[0] * small.shape[1])) ** 0.5
    photo = cv2.resize(small, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
    noise = np.empty(photo.shape, np.int8)
    cv2.setRNGSeed(1)
    cv2.randn(noise, 0, NOISE)
    return cv2.add(photo, noise, dtype=cv2.CV_8U)


def encode(photo: np.ndarray, quality: int = 90) -> bytes:
    """A photo as a JPEG."""
    import cv2

    return cv2.imencode(".jpg", photo, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
