"""Whether the intervals of a report hold the mAP of other classes.

The classes of a set are divided into halves, again and again: the images of one half query each other, which gives a
mAP and its interval (`Evaluation.map_interval`), by class as in reports, and by query; and the images of the other half
do. Counted is how often its mAP lies in the interval: 95 % is promised. By cosine, and by an OASIS that half of the
images of each class trained, on the other half.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.photos import ALL_LABELS as SETS
from benchmarks.photos import images_of, of_each_class
from benchmarks.records import compared, record
from visterm.learners import Cosine
from visterm.learners.blend import effective
from visterm.retrieval import evaluate_test_test

from .open import fitted

PHOTOS = ("flowers", "textures", "caltech101")
KINDS = ("deep", "visterms")
SYSTEMS = ("cosine", "oasis")
HALVES = 200


def covered(learner: Any, X: Any, y: np.ndarray, n_halves: int) -> np.ndarray:
    """Share of halves whose mAP the interval of the other half holds: by class, and by query."""
    rng, classes = np.random.default_rng(0), np.unique(y)
    held = []
    for _ in range(n_halves):
        halves = np.split(rng.permutation(classes)[: len(classes) // 2 * 2], 2)  # as many classes in each
        parts = (np.isin(y, half) for half in halves)
        of_half, of_other = (evaluate_test_test(learner, X[rows], y[rows], max_k=1) for rows in parts)
        intervals = of_half.map_interval(of_classes=True), of_half.map_interval(n_resamples=200)
        held.append([low <= of_other.mean_average_precision <= high for low, high in intervals])
    return np.mean(held, axis=0)


def measure(name: str, kind: str, n_halves: int) -> list[dict]:
    config, X, y, names = images_of(name, kind)
    n_trained = np.unique(y, return_counts=True)[1].min() // 2
    training, test = of_each_class(y, np.random.default_rng(0), n_trained, None)
    oasis, _ = fitted("oasis", config, X[training], y[training], names)
    records = []
    for system, learner in zip(SYSTEMS, (Cosine().fit(X), effective(oasis)), strict=True):
        by_class, by_query = covered(learner, X[test], y[test], n_halves)
        records.append(
            record(
                f"intervals-{name}-{kind}-{system}",
                f"share of halves of the classes whose mAP is in the interval of the other half, {SETS[name]}, {kind}, "
                f"{system}",
                "0.95, promised",
                "0.9 to 0.97 asked",
                compared(float(by_class), 0.95, "of halves", n_halves, higher=True),
                measured=f"{n_halves} divisions; of intervals by query {by_query:.2f}",
            )
        )
    return records


def run(quick: bool = False) -> list[dict]:
    keys = [("flowers", "deep")] if quick else itertools.product(PHOTOS, KINDS)
    return [one for key in keys for one in measure(*key, 20 if quick else HALVES)]
