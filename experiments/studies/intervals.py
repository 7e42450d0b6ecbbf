"""Whether the intervals of a report hold the mAP of other classes.

The classes of a set are divided into halves, again and again: the images of one half query each other, which gives a
mAP and its interval (`Evaluation.map_interval`), by class as in reports, and by query; and the images of the other half
do. Counted is how often its mAP lies in the interval: 95 % is promised. By cosine, and by an OASIS that half of the
images of each class trained, on the other half.

One set says little: its halves are of the same few classes, and where one class is far above all others, no half
without it can know. So the same count of sets that are drawn at random tells what to expect, of classes whose mean
precisions have a normal distribution on the logistic scale, with means and spreads about as those of the photos.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy.special import expit

from benchmarks.photos import ALL_LABELS as SETS
from benchmarks.photos import images_of, of_each_class
from benchmarks.records import compared, record
from visterm.learners import Cosine
from visterm.learners.blend import effective
from visterm.retrieval import Evaluation, evaluate_test_test

from .open import fitted

PHOTOS = ("flowers", "textures", "caltech101")
KINDS = ("deep", "visterms")
SYSTEMS = ("cosine", "oasis")
HALVES = 200
DRAWN, CLASSES = 300, (9, 38)  # sets drawn at random, and their classes, as of the photos
MEANS, SPREADS = (-2.0, 2.5), (0.5, 1.5)  # of the logits of the mean precisions of a set's classes
ASKED = 0.9, 0.97


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


def simulated(n_classes: int, n_sets: int) -> np.ndarray:
    """Share of halves whose mAP the interval by class of the other half holds, of sets drawn at random."""
    rng, n = np.random.default_rng(0), n_classes // 2
    held = np.empty((n_sets, HALVES))
    for of_set in held:
        of_classes = expit(rng.uniform(*MEANS) + rng.uniform(*SPREADS) * rng.standard_normal(n_classes))
        for i in range(HALVES):
            own, other = np.split(rng.permutation(of_classes)[: 2 * n], 2)
            low, high = evaluation_of(own).map_interval(of_classes=True)
            of_set[i] = low <= other.mean() <= high
    return held.mean(axis=1)


def evaluation_of(precisions: np.ndarray) -> Evaluation:
    """That of one query a class, with these average precisions."""
    n = len(precisions)
    without = np.array([precisions.sum() - precisions, np.full(n, n - 1.0)])
    one, nothing = np.ones(n, int), np.zeros((n, 0))
    return Evaluation(precisions, nothing, one, one, n * one, nothing, precisions, precisions, without)


def records_of_simulation(n_sets: int) -> list[dict]:
    records = []
    for n_classes in CLASSES:
        held = simulated(n_classes, n_sets)
        inside = np.mean((held >= ASKED[0]) & (held <= ASKED[1]))
        records.append(
            record(
                f"intervals-simulated-{n_classes}",
                f"share of halves of the classes whose mAP is in the interval of the other half, sets of {n_classes} "
                "classes drawn at random",
                "0.95, promised",
                "0.9 to 0.97 asked of each set",
                compared(float(held.mean()), 0.95, "of halves", n_sets, higher=True),
                measured=f"{n_sets} sets, {HALVES} divisions each; of a set from {held.min():.2f} to {held.max():.2f}, "
                f"{inside:.0%} of the sets are at {ASKED[0]} to {ASKED[1]}",
            )
        )
    return records


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
                f"{ASKED[0]} to {ASKED[1]} asked",
                compared(float(by_class), 0.95, "of halves", n_halves, higher=True),
                measured=f"{n_halves} divisions; of intervals by query {by_query:.2f}",
            )
        )
    return records


def run(quick: bool = False) -> list[dict]:
    keys = [("flowers", "deep")] if quick else itertools.product(PHOTOS, KINDS)
    records = [one for key in keys for one in measure(*key, 20 if quick else HALVES)]
    return records + records_of_simulation(3 if quick else DRAWN)
