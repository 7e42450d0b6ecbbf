"""Cost of naming the images that taught a similarity: ``python -m benchmarks teachers [--quick]``.

OASIS of 2,000,000 triplets on 3,400 synthetic images of 38 classes, with and without `record_teachers`, in turns;
the size of the table; and the explanation of a pair. ``python -m experiments.studies teachers`` compares the names with
trainings without these images.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.learners import OASIS, Teachers

from .records import THREAD, compared, race, record, seconds

N_IMAGES, N_CLASSES, N_TRIPLETS = 3_400, 38, 2_000_000
VECTORS = {"visterms": (10_000, 60), "deep": (1_280, 1_280)}  # numbers per vector, and those that are not 0


def images(kind: str, n: int) -> tuple[Any, np.ndarray]:
    """Unit vectors of classes that prefer some columns."""
    d, entries = VECTORS[kind]
    rng = np.random.default_rng(0)
    y = np.arange(n) % N_CLASSES
    centres = rng.random((N_CLASSES, d)) ** 4
    X = np.zeros((n, d), np.float32)
    for row, label in zip(X, y, strict=True):
        columns = rng.choice(
            d, entries, replace=False, p=None if entries == d else centres[label] / centres[label].sum()
        )
        row[columns] = rng.random(entries) * (centres[label, columns] + 0.3)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return (X if entries == d else sp.csr_array(X)), y


def cost(kind: str, quick: bool) -> list[dict]:
    """What recording takes of a training, the size of the table, and an explanation."""
    n, steps = (400, 100_000) if quick else (N_IMAGES, N_TRIPLETS)
    X, y = images(kind, n)
    learners: list[Any] = []

    def learn(record_teachers: bool) -> Any:
        def fit(k: int) -> None:
            learners.append(OASIS(n_steps=steps, record_teachers=record_teachers, random_state=k).fit(X, y))

        return fit

    training = race(
        learn(True), learn(False), 2 if quick else 3, THREAD, unit="s", of=f"{steps:,} triplets", paired=True
    )
    learner = next(learner for learner in reversed(learners) if learner.has_teachers)
    with tempfile.TemporaryDirectory() as folder:
        learner.save(folder)
        size = sum(file.stat().st_size for file in Path(folder).glob("teachers_*.npy")) / 1e6
    teachers = Teachers(learner, X)
    pairs = np.random.default_rng(0).integers(0, n, (60, 2))
    times = [1e3 * seconds(teachers.of_pair, X[[a]], X[[b]], clock=THREAD) for a, b in pairs][10:]
    what = f"{n:,} images, {steps:,} triplets, {kind}: {learner.teachers_.nnz:,} entries"
    return [
        record(
            f"teachers-training-{kind}",
            f"training that records its teachers; {what}",
            "the same without recording",
            "1.0: recording takes no time; asked for is 0.95",
            training,
        ),
        record(
            f"teachers-size-{kind}",
            f"table of teachers on disk; {what}",
            "60 MB, asked for",
            "8 bytes per pair of images that a step joined",
            compared(size, 60.0, "MB", learner.teachers_.nnz),
            measured="sum of its files",
        ),
        record(
            f"teachers-pair-{kind}",
            f"teachers of a pair; {what}",
            "20 ms, asked for",
            "every entry of the table is read once",
            compared(float(np.median(times)), 20.0, "ms", len(times)),
            measured=f"median of {len(times)} pairs, {THREAD.title}; the slowest {max(times):.1f} ms",
        ),
    ]


def run(quick: bool = False) -> list[dict]:
    return [one for kind in VECTORS for one in cost(kind, quick)]
