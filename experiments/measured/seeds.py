"""One set of photos, one split, one codebook seed: what the vectors are worth to systems with fixed settings."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from benchmarks.musl_data import FEATURE_FILES, draw
from benchmarks.vectors import CACHE, choose_images, keep
from visterm.features import ForestCodebook, read_image
from visterm.learners import OASIS, Cosine, MuSL

from . import corel
from .musl import NEIGHBORS, accuracy
from .protocol import ONE_PAIR, extracted, figures


class Photos(NamedTuple):
    """A set of photos."""

    name: str  # of a category set; or "corel5k"
    d: int  # number of visterms
    # Palette, codebook and idf come from as many photos of Corel-5K, not from the training images.
    of_corel: bool = False


PHOTOS = {
    "10 classes": Photos("caltech101-10", 1000),
    "20 classes": Photos("caltech101-20", 1000),
    "38 classes": Photos("caltech101-38", 1000),
    "38 classes, d = 10,000": Photos("caltech101-38", 10_000),
    "38 classes, codebook of Corel-5K": Photos("caltech101-38", 1000, of_corel=True),
    "38 classes, d = 10,000, codebook of Corel-5K": Photos("caltech101-38", 10_000, of_corel=True),
    "Corel-5K": Photos("corel5k", 9000),
    "merged-20": Photos("merged-20", 2000),
}
VOTERS = 10
# Near what validation chooses on the pages; the same for every seed, so that the codebook alone differs.
CLASSES_OASIS = OASIS(C=0.03, n_steps=100_000, pass_steps=20_000, random_state=0, **ONE_PAIR)
WORDS_OASIS = OASIS(C=0.1, n_steps=500_000, random_state=0)
ONE_METRIC = MuSL(n_metrics=1, midpoint="running", alpha=2.0, balanced=True, random_state=0)


def measure(photos: str, seed: int) -> dict[str, Any]:
    """`figures`: mAP of test images that query each other, by system; of merged-20 the accuracy of one metric in %."""
    if photos == "merged-20":
        return {"figures": {"one metric": forest_accuracy(seed)}}
    if photos == "Corel-5K":
        return {"figures": corel_maps(seed)}
    name, d, of_corel = PHOTOS[photos]
    paths, y, train = choose_images(name)
    if of_corel:
        others = [corel.COREL / path for path in corel.read_labels()[0]]
        fitted = [others[i] for i in np.random.default_rng(0).permutation(len(others))[: train.sum()]]
        mask = np.arange(len(fitted) + len(paths)) < len(fitted)
        X = extracted(f"seeds-{name}-{d}-corel", [*fitted, *paths], mask, seed, n_visterms=d, max_side=None)[~mask]
    else:
        X = extracted(f"seeds-{name}-{d}", paths, train, seed, n_visterms=d, max_side=None)
    systems = {"Euclidean": Cosine(), "OASIS": CLASSES_OASIS}
    return {
        "figures": {
            system: figures(learner.fit(X[train], y[train]), X[~train], y[~train])["map"]
            for system, learner in systems.items()
        }
    }


def corel_maps(seed: int) -> dict[str, float]:
    """Photos for photos, relevant with a shared word."""
    paths, words, train = corel.read_labels()
    files = [corel.COREL / path for path in paths]
    X = extracted("seeds-corel5k", files, train, seed, **corel.VISTERMS)
    y = sp.csr_array(words.astype(float))
    systems = {"cosine": Cosine(), "OASIS": WORDS_OASIS}
    return {
        system: corel.image_figures(learner.fit(X[train], y[train]), X[~train], words[~train])["map"]
        for system, learner in systems.items()
    }


def forest_accuracy(seed: int) -> float:
    """Of one metric on the images of the first trial, which do not change with the seed of the forest."""
    paths, y, train = draw("merged-20", 0)

    def write(path: Path) -> None:
        images = [read_image(image) for image in paths]
        learned = np.flatnonzero(train)
        forest = ForestCodebook(n_visterms=PHOTOS["merged-20"].d, random_state=seed)
        forest.fit([images[i] for i in learned], y[learned])
        counts = np.array([forest.count(image) for image in images])
        np.save(path, (counts / counts[:, forest.roots_[:1]]).astype(np.float32))

    sources = [file.read_bytes() for file in FEATURE_FILES]
    made_from = zlib.crc32(b"".join(sources) + repr((list(map(str, paths)), train.tolist())).encode())
    X = np.load(keep(CACHE / f"seeds-merged-20-{seed}-{made_from:08x}.npy", write))
    return accuracy(ONE_METRIC.fit(X[train], y[train]), X, y, ~train, train)[NEIGHBORS.index(VOTERS)]
