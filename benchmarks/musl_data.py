"""Images of MuSL's trials as vectors, extracted once and kept under build/bench.

Categories: merged-20 of $VISTERM_DATA/sets.yaml, which come from three sources, and merged-novel. Each trial draws 30
training and 20 test images per category and grows a ForestCodebook on the training images of merged-20. An image's
vector holds the share of its blocks at each node. Settings are chosen on 30 images per category that no trial tests
with, 20 of them to learn from and to grow the forest, 10 held out. Without that folder: synthetic categories of three
kinds.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

import numpy as np

from visterm.features import ForestCodebook, read_image

from .vectors import CACHE, DATA, ROOT, choose_images, keep

N_TRAIN, N_TEST = 30, 20
N_SHOWN, N_HELD_OUT = 20, 10  # of the images that choose settings
# Files that decide the vectors.
FEATURE_FILES = (
    *(ROOT / "plugins/forest" / name for name in ("forest.py", "haar.py")),
    *(ROOT / "features" / name for name in ("descriptors.py", "blocks.py", "images.py", "decoding.py")),
)


def draw(name: str, trial: int, *, choosing: bool = False) -> tuple[list[Path], np.ndarray, np.ndarray]:
    """Paths, labels and the training mask of a trial's images, or of those that choose settings."""
    paths, y, _ = choose_images(name, fold=trial, n_train=sys.maxsize, n_test=0)  # all, in an order of the trial
    rows, train = [], []
    for category in np.unique(y):
        own = np.flatnonzero(y == category)
        # The same in every trial and set: the first of the names in an order of the category.
        names = sorted(paths[i] for i in own)
        order = np.random.default_rng(zlib.crc32(str(category).encode())).permutation(len(names))
        chooses = {names[i] for i in order[: N_SHOWN + N_HELD_OUT]}
        if choosing:
            kept = [i for i in own if paths[i] in chooses]
            rows += kept
            train += [place < N_SHOWN for place in range(len(kept))]
        else:
            tests = [i for i in own if paths[i] not in chooses][:N_TEST]
            learns = [i for i in own if i not in tests][:N_TRAIN]
            rows += learns + tests
            train += [True] * len(learns) + [False] * len(tests)
    return [paths[i] for i in rows], y[rows], np.array(train)


def load_trial(
    trial: int, known: str = "merged-20", new: str | None = "merged-novel", *, choosing: bool = False
) -> dict[str, np.ndarray]:
    """A trial's images: vectors X (n, d), labels y, source, novel (of the set `new`), train, and path below the data.

    With `choosing`, of the images that choose settings.
    """
    if not (DATA / "caltech101").is_dir():
        print(f"no {DATA / 'caltech101'}: synthetic categories, figures will differ", file=sys.stderr)
        return synthetic_trial(trial)
    parts = [draw(name, trial, choosing=choosing) for name in (known, new) if name]
    paths = [path for found in parts for path in found[0]]
    y, train = (np.concatenate([found[place] for found in parts]) for place in (1, 2))
    novel = np.arange(len(paths)) >= len(parts[0][0])
    sources = [file.read_bytes() for file in FEATURE_FILES]
    made_from = b"".join(sources) + "".join(map(str, paths)).encode() + train.tobytes()
    cached = CACHE / f"{known}-{trial}-{zlib.crc32(made_from):08x}.npz"

    def write(path: Path) -> None:
        images = [read_image(image) for image in paths]
        learned = np.flatnonzero(train & ~novel)
        forest = ForestCodebook(n_visterms=2000, random_state=trial).fit([images[i] for i in learned], y[learned])
        counts = np.array([forest.count(image) for image in images])
        np.savez_compressed(path, X=(counts / counts[:, forest.roots_[:1]]).astype(np.float32))

    source = np.array([path.parent.parent.name for path in paths])
    names = np.array([path.relative_to(DATA).as_posix() for path in paths])
    X = np.load(keep(cached, write))["X"]
    return {"X": X, "y": y, "source": source, "novel": novel, "train": train, "path": names}


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
        "path": np.full(len(number), ""),
    }
