"""Visterm vectors of a category set of $VISTERM_DATA/sets.yaml, extracted once and kept under build/bench.

40 training and up to 25 test images per category, drawn with the fold as the seed. Without that folder: synthetic
vectors of the same sparsity.
"""

import fcntl
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("VISTERM_DATA", ROOT.parent / "shared" / "data"))
CACHE = ROOT / "build" / "bench"
N_TRAIN, N_TEST = 40, 25


def choose_images(name: str, *, fold: int = 0, n_train: int = N_TRAIN, n_test: int = N_TEST):
    """Paths, labels and the training mask of a category set's images."""
    chosen = yaml.safe_load((DATA / "sets.yaml").read_text())[name]
    if chosen == "all":
        chosen = sorted(path.name for path in (DATA / "caltech101").iterdir())
    folders = {"caltech101": chosen} if isinstance(chosen, list) else chosen
    rng = np.random.default_rng(fold)
    paths, y, train = [], [], []
    for folder, categories in folders.items():
        for category in categories:
            images = sorted((DATA / folder / category).iterdir())
            picked = [images[i] for i in rng.permutation(len(images))[: n_train + n_test]]
            paths += picked
            y += [category] * len(picked)
            train += [i < n_train for i in range(len(picked))]
    return paths, np.array(y), np.array(train)


USED: set[Path] = set()  # files that `keep` gave since this was last cleared


def keep(path: Path, write: Callable[[Path], None]) -> Path:
    """Path of the file; `write` creates it if missing: under a temporary name, then renamed, one process at a time."""
    USED.add(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            temporary = path.with_suffix(f".{os.getpid()}{path.suffix}")
            write(temporary)
            temporary.replace(path)
    return path


def used_checksums() -> dict[str, list[str]]:
    """Checksums of the arrays in the files of vectors in `USED`, by set: the same on every machine."""
    found: dict[str, set[str]] = {}
    for path in USED:
        if path.suffix not in (".npz", ".npy"):
            continue
        loaded = np.load(path, allow_pickle=False)
        arrays = loaded if path.suffix == ".npz" else {"": loaded}
        crc32 = 0
        for name in sorted(arrays):
            crc32 = zlib.crc32(np.ascontiguousarray(arrays[name]).tobytes(), crc32)
        found.setdefault(path.stem.rpartition("-")[0], set()).add(f"{crc32:08x}")
    return {name: sorted(some) for name, some in sorted(found.items())}


def enlarged(path: Path, longest: int) -> Path:
    """Path of the photo at that longest side, as a PNG that is made once.

    Scaled by Pillow, in whole numbers, and kept without loss: the same pixels on every processor. Not compressed, since
    it is read several times.
    """
    from PIL import Image

    from visterm.features import read_image

    def write(target: Path) -> None:
        photo = Image.fromarray(read_image(path))
        size = [max(1, round(side * longest / max(photo.size))) for side in photo.size]
        photo.resize(size, Image.Resampling.BICUBIC).save(target, compress_level=0)

    return keep(CACHE / f"longest-{longest}" / path.relative_to(DATA).with_suffix(".png"), write)


def fit_transform(extractor: Any, paths: list[Path], train: np.ndarray) -> sp.csr_matrix:
    """Vectors of photos with the extractor fitted on the training photos, whose counts `fit` has already."""
    rows = [np.flatnonzero(train), np.flatnonzero(~train)]
    learned, others = ([paths[row] for row in part] for part in rows)
    vectors = sp.vstack([extractor.fit_transform(learned), extractor.transform(others)])
    return sp.csr_matrix(sp.csr_array(vectors)[np.argsort(np.concatenate(rows))])


def caltech_vectors(
    d: int, name: str = "caltech101-20", *, fold: int = 0, longest: int | None = None, **parameters: Any
):
    """X (unit rows), y and the training mask; cached under a digest of code, images and parameters.

    With `longest` of photos of that longest side.
    """
    from visterm import features

    paths, y, train = choose_images(name, fold=fold)
    if longest is not None:
        paths = [enlarged(path, longest) for path in paths]
    sources = sorted(
        set(Path(features.__file__).parent.glob("*.py")) - {Path(features.__file__).with_name("forest.py")}
    )
    made_from = b"".join(path.read_bytes() for path in sources) + "".join([*map(str, paths), str(parameters)]).encode()
    cached = CACHE / f"{name}-{d}-{zlib.crc32(made_from):08x}.npz"

    def write(path: Path) -> None:
        # Photos as they come, as in the papers.
        extractor = features.VistermExtractor(n_visterms=d, random_state=fold, **{"max_side": None} | parameters)
        sp.save_npz(path, fit_transform(extractor, paths, train))

    return sp.csr_array(sp.load_npz(keep(cached, write))), y, train


def synthetic_vectors(d: int, n_classes: int = 20):
    """Synthetic classes: most visterms of an image come from ranges of columns that its class prefers."""
    rng = np.random.default_rng(0)
    entries = 24 if d <= 1000 else 40
    y = np.repeat(np.arange(n_classes), N_TRAIN + N_TEST)
    centres = rng.integers(0, d, (n_classes, 6))
    X = sp.lil_array((len(y), d), dtype=np.float32)
    for i, c in enumerate(y):
        near = rng.choice(centres[c], entries) + rng.normal(0, d / 60, entries)
        columns = np.where(rng.random(entries) < 0.6, near, rng.integers(0, d, entries)).astype(int) % d
        X[i, columns] = rng.random(entries) + 0.2
    X = sp.csr_array(X)
    X = sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X).astype(np.float32)
    return X, y, np.tile(np.arange(N_TRAIN + N_TEST) < N_TRAIN, n_classes)


def dense_vectors(name: str = "caltech101-38", *, fold: int = 0):
    """Dense vectors of photos, 1,280 numbers: histograms of oriented gradients; X (unit rows), y, training mask."""
    import cv2
    from skimage.feature import hog

    paths, y, train = choose_images(name, fold=fold)

    def describe(path: Path) -> np.ndarray:
        grey = cv2.resize(cv2.imread(str(path), cv2.IMREAD_GRAYSCALE), (126, 126), interpolation=cv2.INTER_AREA)
        return hog(grey, orientations=5, pixels_per_cell=(14, 14), cells_per_block=(2, 2))

    def write(target: Path) -> None:
        X = np.array([describe(path) for path in paths], np.float32)
        np.save(target, X / np.linalg.norm(X, axis=1, keepdims=True))

    cached = CACHE / f"{name}-hog-{zlib.crc32(repr([str(path) for path in paths]).encode()):08x}.npy"
    return np.load(keep(cached, write)), y, train


def load_vectors(d: int, name: str = "caltech101-20", **options: Any):
    """X, y and the training mask: of Caltech-101, or synthetic if the photos are missing."""
    if (DATA / "caltech101").is_dir():
        return caltech_vectors(d, name, **options)
    print(f"no {DATA / 'caltech101'}: synthetic vectors, figures will differ", file=sys.stderr)
    return synthetic_vectors(d, 38 if name == "caltech101-38" else 20)
