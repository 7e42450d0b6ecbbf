"""Whether the images named as teachers of a pair are.

For pairs of a test query and a result of its class that is trained on, OASIS is trained again without the 20 images
that taught most about the pair, and without 20 random ones of the same classes: how far what was learned about the pair
falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.photos import images_of
from benchmarks.records import compared, kept_in, record
from benchmarks.vectors import CACHE
from visterm.learners import OASIS, Teachers

SETS = (("caltech101", "deep"), ("caltech101", "visterms"), ("flowers", "deep"))
N_PAIRS, N_STRONGEST = 50, 20
STEPS = 100_000  # of each training of a pair


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
    return [truth(name, kind, quick) for name, kind in SETS[: 1 if quick else None]]
