"""Deep vectors in float16 and float32: mAP of cosine and OASIS.

Vectors of all photos of a set, as float32; their float16 is what a run stores with ``features.precision: float16``. Of
each class 60 % of the photos are trained on (Corel-5K, with several labels: of all photos), and the others query each
other. OASIS learns from the same triplets either way, all of what it learned counts, and nothing stops early, so that
only the rounding differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.photos import images_of, quality
from benchmarks.records import FIRST, compared, record
from visterm.learners import OASIS, Cosine

SETS = {"flowers": "flowers", "textures": "textures", "caltech101": "Caltech-101, 38 classes", "corel5k": "Corel-5K"}
FOLDS, TRAIN, STEPS = 3, 0.6, 1_000_000


def split(y: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on, and the others, in a random order."""
    rng = np.random.default_rng(seed)
    if sp.issparse(y):
        order = rng.permutation(y.shape[0])
        return np.split(order, [round(TRAIN * len(order))])
    sizes = {label: round(TRAIN * np.count_nonzero(y == label)) for label in np.unique(y)}
    training = np.concatenate([rng.permutation(np.flatnonzero(y == label))[:n] for label, n in sizes.items()])
    return training, rng.permutation(np.setdiff1d(np.arange(len(y)), training))


def of_set(name: str, n_folds: int, n_steps: int) -> dict[str, np.ndarray]:
    """MAP of cosine and OASIS in float16 and float32: (n_folds, 2)."""
    _, X, y, _ = images_of(name, "deep", "features.precision=float32")
    both = X.astype(np.float16).astype(np.float32), X
    figures: dict[str, list[list[float]]] = {"cosine": [], "oasis": []}
    for fold in range(n_folds):
        training, test = split(y, fold)
        for title in figures:
            measured = []
            for vectors_ in both:
                learner = Cosine() if title == "cosine" else OASIS(n_steps=n_steps, random_state=fold)
                learner.fit(vectors_[training], y[training])
                measured.append(quality(learner, vectors_[test], y[test]))
            figures[title].append(measured)
    return {title: np.array(measured) for title, measured in figures.items()}


def run(quick: bool = False) -> list[dict]:
    records, n_folds, n_steps = [], 1 if quick else FOLDS, 50_000 if quick else STEPS
    for name, title in SETS.items():
        for learner, measured in of_set(name, n_folds, n_steps).items():
            float16, float32 = measured.mean(axis=0)
            widest = float(np.abs(measured[:, 0] - measured[:, 1]).max())
            records.append(
                record(
                    f"precision-{name}-{learner}",
                    f"{title}: mAP of {learner} on deep vectors in float16; "
                    f"the largest difference of a fold {widest:.5f}",
                    "the same vectors in float32",
                    FIRST,
                    compared(float(float16), float(float32), "mAP", n_folds, higher=True),
                    measured=f"{n_folds} random splits, 60 % trained on"
                    + (f", {n_steps:,} triplets" if learner == "oasis" else ""),
                )
            )
            print(records[-1]["name"], float16, float32, widest, flush=True)
    return records
