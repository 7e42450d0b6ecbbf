"""Choose settings by five-fold cross-validation on the training images of a configuration; test images are never read.

    python -m benchmarks.cross_validation --config configs/caltech101-20-10000.yaml --set features.stride=32

In each fold palette, codebook, idf and OASIS are learned from four fifths of each class, and the images of the last
fifth query each other. The mean mAP over the folds is printed beside cosine's, with the standard error of their
difference.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from visterm.features import VistermExtractor
from visterm.learners import OASIS, Cosine
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.store.catalogue import Collection
from visterm.retrieval import evaluate_test_test

DATA = Path(os.environ.get("VISTERM_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
N_FOLDS = 5


def training_images(images: Path, config) -> tuple[list[Path], np.ndarray]:
    """Paths and labels of the training images, as `visterm features` would draw them."""
    with tempfile.TemporaryDirectory() as folder:
        collection = Collection(Path(folder), create=True)
        collection.scan(images, config)
        paths = [images / path for path in collection.training_paths()]
        collection.close()
    return paths, np.array([path.parent.name for path in paths])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cross_validation", description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, default=DATA / "caltech101")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    arguments = parser.parse_args()
    config = load_config(arguments.config, arguments.set)
    paths, y = training_images(arguments.images, config)

    rng = np.random.default_rng(config.split.seed)
    fold = np.empty(len(y), dtype=int)
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))
        fold[members] = np.arange(len(members)) % N_FOLDS

    found = []
    for i in range(N_FOLDS):
        inner, outer = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
        extractor = VistermExtractor(**config.features.of_extractor(), random_state=config.seed, n_jobs=-1)
        X = extractor.fit_transform([paths[j] for j in inner])
        held_out = extractor.transform([paths[j] for j in outer])
        learner = OASIS(**config.oasis.model_dump() | {"click_cutoff": None}, random_state=config.seed, n_jobs=-1)
        systems = learner.fit(X, y[inner]), Cosine().fit(X)
        found.append([evaluate_test_test(system, held_out, y[outer]).mean_average_precision for system in systems])
        print(f"fold {i}: OASIS {found[-1][0]:.4f}  cosine {found[-1][1]:.4f}", flush=True)
    oasis, cosine = np.mean(found, axis=0)
    error = np.std(np.subtract(*np.transpose(found)), ddof=1) / np.sqrt(N_FOLDS)
    print(f"mean:   OASIS {oasis:.4f}  cosine {cosine:.4f}  difference {oasis - cosine:.4f} +- {error:.4f}")


if __name__ == "__main__":
    main()
