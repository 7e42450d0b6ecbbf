"""Images of MuSL's trials as vectors, extracted once and kept under build/bench.

Categories: merged-20 of $VISTERM_DATA/sets.yaml, which come from three sources, and merged-novel. Each trial draws 30
training and 20 test images per category and grows a ForestCodebook on the training images of merged-20. An image's
vector holds the share of its blocks at each node. Without that folder: synthetic categories of three kinds.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np

from visterm import features
from visterm.features import ForestCodebook, read_image

from .vectors import CACHE, DATA, choose_images, keep

N_TRAIN, N_TEST = 30, 20
# Files of `features` that decide the vectors.
FEATURE_FILES = ("forest.py", "haar.py", "descriptors.py", "blocks.py", "images.py", "decoding.py")


def load_trial(trial: int, known: str = "merged-20", new: str | None = "merged-novel") -> dict[str, np.ndarray]:
    """A trial's images: vectors X (n, d), labels y, source, novel (of the set `new`) and train."""
    if not (DATA / "caltech101").is_dir():
        print(f"no {DATA / 'caltech101'}: synthetic categories, figures will differ", file=sys.stderr)
        return synthetic_trial(trial)
    parts = [choose_images(name, fold=trial, n_train=N_TRAIN, n_test=N_TEST) for name in (known, new) if name]
    paths = [path for found in parts for path in found[0]]
    y, train = (np.concatenate([found[place] for found in parts]) for place in (1, 2))
    novel = np.arange(len(paths)) >= len(parts[0][0])
    sources = [Path(features.__file__).with_name(name).read_bytes() for name in FEATURE_FILES]
    made_from = b"".join(sources) + "".join(map(str, paths)).encode()
    cached = CACHE / f"{known}-{trial}-{zlib.crc32(made_from):08x}.npz"

    def write(path: Path) -> None:
        images = [read_image(image) for image in paths]
        learned = np.flatnonzero(train & ~novel)
        forest = ForestCodebook(n_visterms=2000, random_state=trial).fit([images[i] for i in learned], y[learned])
        counts = np.array([forest.count(image) for image in images])
        np.savez_compressed(path, X=(counts / counts[:, forest.roots_[:1]]).astype(np.float32))

    source = np.array([path.parent.parent.name for path in paths])
    return {"X": np.load(keep(cached, write))["X"], "y": y, "source": source, "novel": novel, "train": train}


def synthetic_trial(trial: int) -> dict[str, np.ndarray]:
    """Categories of three kinds; each kind is told apart by its own third of the features."""
    rng = np.random.default_rng(trial)
    n_classes, per_class, d = 29, N_TRAIN + N_TEST, 300
    number = np.repeat(np.arange(n_classes), per_class)
    kind = number % 3
    X = rng.random((len(number), d))
    centres = np.random.default_rng(0).random((n_classes, d // 3))
    for k in range(3):
        own = kind == k
        X[own, k * d // 3 : (k + 1) * d // 3] = centres[number[own]] + 0.3 * rng.normal(size=(own.sum(), d // 3))
    return {
        "X": np.maximum(X, 0).astype(np.float32),
        "y": np.array([f"category-{i:02}" for i in number]),
        "source": np.array([f"kind-{k}" for k in kind]),
        "novel": number >= 20,
        "train": np.tile(np.arange(per_class) < N_TRAIN, n_classes),
    }
