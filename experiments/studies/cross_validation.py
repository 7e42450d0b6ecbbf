"""Choose settings by cross-validation on the training images of a configuration; test images are never read.

    python -m experiments.studies cross_validation --config configs/caltech101-20-10000.yaml --set features.stride=32

In each of five folds palette, codebook, idf and OASIS are learned from four fifths of each class, and the images of the
last fifth query each other. The mean mAP over the folds is printed beside cosine's, with the standard error of their
difference.
"""

from __future__ import annotations

import argparse
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.photos import folds_of
from benchmarks.records import kept_in
from benchmarks.vectors import CACHE, DATA, ROOT
from experiments.statistics import mean_and_error
from visterm.features import VistermExtractor
from visterm.learners import OASIS, Cosine
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.store.catalogue import Collection
from visterm.retrieval import evaluate_test_test

N_FOLDS = 5
# For choosing among many settings: as many triplets as held-out images of such sets ask for, so that no time goes into
# validation.
TRAINING = ["oasis.n_steps=500000", "oasis.validation_fraction=null", "oasis.patience=null", "oasis.refit=false"]


def training_images(images: Path, config) -> tuple[list[Path], np.ndarray]:
    """Paths and labels of the training images, as `visterm features` would draw them."""
    with tempfile.TemporaryDirectory() as folder:
        collection = Collection(Path(folder), create=True)
        collection.scan(images, config)
        paths = [images / path for path in collection.training_paths()]
        collection.close()
    return paths, np.array([path.parent.name for path in paths])


def vectors_of_folds(
    paths: list[Path], y: np.ndarray, config, n_folds: int = N_FOLDS
) -> Iterator[tuple[sp.csr_matrix, np.ndarray, sp.csr_matrix, np.ndarray]]:
    """Yield X and y of the other folds, from which palette, codebook and idf are learned, and X and y of each fold."""
    folds = folds_of(y, n_folds, config.split.seed)
    for fold in range(n_folds):
        inner, outer = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        extractor = VistermExtractor(**config.features.of_extractor(), random_state=config.seed, n_jobs=-1)
        X = extractor.fit_transform([paths[i] for i in inner])
        yield X, y[inner], extractor.transform([paths[i] for i in outer]), y[outer]


def oasis_of(config) -> OASIS:
    """Return OASIS with the settings that `visterm train` would use."""
    return OASIS(**config.oasis.model_dump() | {"click_cutoff": None}, random_state=config.seed, n_jobs=-1)


def scores_of(paths: list[Path], y: np.ndarray, settings: list[str], steps: Sequence[float], n_folds: int) -> dict:
    """Return the mAP of OASIS by fold and `oasis.C`, and the non-zeros per image.

    They are kept under build/bench: an interrupted command resumes.
    """

    def measure() -> dict:
        config = load_config(None, [*settings, *TRAINING])
        scores, nonzeros = [], []
        for X, labels, held_out, truth in vectors_of_folds(paths, y, config, n_folds):
            nonzeros.append(X.nnz / X.shape[0])
            scores.append([])
            for C in steps:
                learner = oasis_of(config).set_params(C=C)
                learner.fit(X, labels)
                scores[-1].append(evaluate_test_test(learner, held_out, truth).mean_average_precision)
        return {"map": scores, "nonzeros": float(np.mean(nonzeros))}

    images = [str(path) for path in paths]
    return measured_once((images, settings, TRAINING, steps, n_folds), measure)


def measured_once(settings: tuple, measure: Callable[[], Any], rooms: Sequence[str] = ("features", "learners")) -> Any:
    """Return the JSON value of `measure`, kept under build/bench for the settings and the code of the rooms."""
    code = [path.read_bytes() for room in rooms for path in sorted((ROOT / room).glob("**/*.py"))]
    digest = zlib.crc32(b"".join(code) + repr(settings).encode())
    return kept_in(CACHE / f"scores-{digest:08x}.json", measure)


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.studies cross_validation", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--images", type=Path, default=DATA / "caltech101")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--folds", type=int, default=N_FOLDS, help="at least 2; fewer are faster")
    arguments = parser.parse_args(options)
    config = load_config(arguments.config, arguments.set)
    paths, y = training_images(arguments.images, config)

    scores = []
    for fold, (X, labels, held_out, truth) in enumerate(vectors_of_folds(paths, y, config, arguments.folds)):
        systems = oasis_of(config).fit(X, labels), Cosine().fit(X)
        scores.append([evaluate_test_test(system, held_out, truth).mean_average_precision for system in systems])
        print(f"fold {fold}: OASIS {scores[-1][0]:.4f}  cosine {scores[-1][1]:.4f}", flush=True)
    oasis, cosine = np.mean(scores, axis=0)
    difference, error = mean_and_error(np.subtract(*np.transpose(scores)))
    print(f"mean:   OASIS {oasis:.4f}  cosine {cosine:.4f}  difference {difference:.4f} +- {error:.4f}")
