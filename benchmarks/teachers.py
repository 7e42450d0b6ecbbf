"""Naming the images that taught a similarity: ``python -m benchmarks teachers [--quick]``.

Cost: OASIS of 2,000,000 triplets on 3,400 synthetic images of 38 classes, with and without `record_teachers`, in turns;
the size of the table; and the explanation of a pair. Truth: for pairs of a test query and a result of its class that is
trained on, OASIS is trained again without the 20 images that taught most about the pair, and without 20 random ones of
the same classes: how far what was learned about the pair falls. Wrong labels: see benchmarks/wrong_labels.py.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.learners import OASIS, Teachers

from . import wrong_labels
from .open import images_of
from .records import THREAD, compared, kept_in, race, record, seconds
from .vectors import CACHE

N_IMAGES, N_CLASSES, N_TRIPLETS = 3_400, 38, 2_000_000
VECTORS = {"visterms": (10_000, 60), "deep": (1_280, 1_280)}  # numbers per vector, and those that are not 0
SETS = (("caltech101", "deep"), ("caltech101", "visterms"), ("flowers", "deep"))
N_PAIRS, N_STRONGEST = 50, 20
STEPS = 100_000  # of each training of a pair


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


def falls(name: str, kind: str, n_pairs: int) -> dict[str, list[float]]:
    """What the falls of some pairs are, as shares of what was learned, and how many teachers are of the query's class.

    The strongest teachers are left out, or others of the same classes.
    """
    _, X, y, _ = images_of(name, kind)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    training, test = order[: round(0.6 * len(y))], order[round(0.6 * len(y)) :]
    learner = fit(X[training], y[training])
    teachers = Teachers(learner, X[training])
    shares: dict[str, list[float]] = {"strongest": [], "others": [], "of_class": []}
    for q in test[:n_pairs]:
        own = np.flatnonzero(y[training] == y[q])
        result = own[learner.similarity(X[[q]], X[training[own]])[0].argmax()]
        pair = X[[q]], X[[training[result]]]
        learned = teachers.of_pair(*pair).learned
        taught = teachers.of_images(*pair)
        taught[result] = -np.inf  # the result itself stays
        best = np.argsort(-taught)[:N_STRONGEST]
        others = same_classes(y[training], best, result, rng)
        for which, gone in (("strongest", best), ("others", others)):
            shares[which].append(float(learned - without(X, y, training, gone, pair)) / learned)
        shares["of_class"].append(float(np.mean(y[training[best]] == y[q])))
        print(f"    {name} {kind}: " + ", ".join(f"{key} {few[-1]:.2f}" for key, few in shares.items()), flush=True)
    return shares


def truth(name: str, kind: str, quick: bool) -> dict:
    """How far what was learned about a pair falls without its strongest teachers; kept in build/bench/teachers."""
    n_pairs = 4 if quick else N_PAIRS
    shares = kept_in(CACHE / "teachers" / f"{name}-{kind}-{n_pairs}.json", lambda: falls(name, kind, n_pairs))
    medians = [float(np.median(shares[which])) for which in ("strongest", "others")]
    return record(
        f"teachers-left-out-{name}-{kind}",
        f"fall of what was learned about a pair, trained again without its {N_STRONGEST} strongest teachers, "
        f"{name}, {kind}",
        f"without {N_STRONGEST} random images of the same classes",
        "5 times as much, asked for",
        compared(*medians, "of what was learned", n_pairs, higher=True),
        measured=f"medians of {n_pairs} pairs, {STEPS:,} triplets each; {np.mean(shares['of_class']):.0%} of the "
        "strongest are of the query's class",
    )


def fit(X: Any, y: np.ndarray) -> OASIS:
    return OASIS(n_steps=STEPS, pass_steps=50_000, record_teachers=True, random_state=0).fit(X, y)


def same_classes(y: np.ndarray, rows: np.ndarray, result: int, rng: np.random.Generator) -> np.ndarray:
    """Draw images, as many of each class as there are among some."""
    free = np.setdiff1d(np.arange(len(y)), [result])
    drawn: list[int] = []
    for label, n in zip(*np.unique(y[rows], return_counts=True), strict=True):
        of_class = free[y[free] == label]
        drawn += rng.permutation(of_class)[:n].tolist()
    return np.array(drawn)


def without(X: Any, y: np.ndarray, training: np.ndarray, gone: np.ndarray, pair: tuple[Any, Any]) -> float:
    """What is learned about a pair in a training without some images."""
    kept = np.delete(training, gone)
    learner = fit(X[kept], y[kept])
    return Teachers(learner, X[kept]).of_pair(*pair).learned


def run(quick: bool = False) -> list[dict]:
    records = [one for kind in VECTORS for one in cost(kind, quick)]
    records += [truth(name, kind, quick) for name, kind in SETS[: 1 if quick else None]]
    return records + wrong_labels.run(quick)
