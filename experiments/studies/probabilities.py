"""How right the probabilities beside scores are.

Half of the images of a set train OASIS, a quarter calibrates its scores as ``visterm train`` does
(`visterm.pipeline.evaluation.calibration`), and the last quarter is measured: pairs of two of its images, once in both
directions. The expected calibration error is the mean difference of probability and share of pairs with a common label,
in 15 bins, weighted by pairs. Most pairs share none, so the error of the pairs that are at least as likely as not is
given beside it. A cut-off of 0.9 promises at most 10 % wrong; where no pair is so certain, there is no such record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.photos import images_of
from benchmarks.records import compared, record
from visterm.learners import OASIS
from visterm.learners.triplets import related_images
from visterm.pipeline.evaluation.calibration import Calibration, calibrate
from visterm.pipeline.evaluation.held_out import MAX_QUERIES, TEST_IMAGES, HeldOutSet

SETS = ("flowers", "textures", "caltech101")
KINDS = ("deep", "visterms")
FOLDS = 10
BINS = 15
CUT_OFF = 0.9


def error(probabilities: np.ndarray, relevant: np.ndarray) -> float:
    """Return the expected calibration error of some pairs."""
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    differences = np.bincount(bins, probabilities, BINS) - np.bincount(bins, relevant, BINS)
    return float(np.abs(differences).sum() / len(relevant))


def held_out(X: Any, y: Any, rows: np.ndarray, n_queries: int) -> HeldOutSet:
    """Return some images as the pipeline holds them out."""
    own = np.arange(min(len(rows), n_queries))
    relevant = related_images(y[rows], own, np.arange(len(rows)))
    return HeldOutSet(sp.csr_matrix(X[rows]), own, relevant, np.ones(len(rows), bool), TEST_IMAGES)


def fold(X: Any, y: Any, seed: int) -> dict[str, float]:
    """Train, calibrate and measure once."""
    rows = np.random.default_rng(seed).permutation(y.shape[0])
    training, calibrating, measured = np.split(rows, [len(rows) // 2, 3 * len(rows) // 4])
    learner = OASIS(validation_fraction=0.2, random_state=seed).fit(X[training], y[training], world="open")
    some = held_out(X, y, calibrating, MAX_QUERIES)
    known = Calibration(**calibrate(some, some.scores(learner)))
    others = held_out(X, y, measured, len(measured))
    pairs = ~np.eye(len(measured), dtype=bool)
    probabilities, relevant = known.of(others.scores(learner)[pairs]), others.relevant[pairs]
    likely, certain = probabilities >= 0.5, probabilities >= CUT_OFF
    return {
        "error": error(probabilities, relevant),
        "likely": error(probabilities[likely], relevant[likely]) if likely.any() else np.nan,
        "wrong": float(1 - relevant[certain].mean()) if certain.any() else np.nan,
        "found": float(relevant[certain].sum() / relevant.sum()),
        "base": float(relevant.mean()),
    }


def against(asked: float, ours: float, unit: str, n: int) -> dict[str, Any]:
    """Return the figures of a share that may be 0."""
    return compared(ours, asked, unit, n, ratio=asked / max(ours, 0.001))


def measure(name: str, kind: str, n_folds: int) -> list[dict]:
    _, X, y, _ = images_of(name, kind)
    folds = [fold(X, y, seed) for seed in range(n_folds)]
    known = {key: [one[key] for one in folds if not np.isnan(one[key])] for key in folds[0]}
    means = {key: float(np.mean(values)) if values else np.nan for key, values in known.items()}
    what, how = f"{name}, {kind}", f"mean of {n_folds} folds"
    records = [
        record(
            f"probabilities-error-{name}-{kind}",
            f"expected calibration error of pairs of test images, {what}",
            "0.05, asked for",
            "0: each probability is the share of pairs",
            against(0.05, means["error"], "probability", n_folds),
            measured=f"{how}; {means['likely']:.3f} of the pairs that are likely at all, base rate {means['base']:.3f}",
        )
    ]
    if known["wrong"]:  # else no pair of any fold is so certain: nothing is promised
        records.append(
            record(
                f"probabilities-cut-off-{name}-{kind}",
                f"share of pairs without a common label among those with a probability of {CUT_OFF} and more, {what}",
                "0.12, asked for; 0.1 is promised",
                "0: none is wrong",
                against(0.12, means["wrong"], "of these pairs", n_folds),
                measured=f"{how}; {means['found']:.0%} of all pairs with a common label are among these",
            )
        )
    return records


def run(quick: bool = False) -> list[dict]:
    n_folds = 2 if quick else FOLDS
    sets = SETS[:1] if quick else SETS
    return [one for name in sets for kind in KINDS for one in measure(name, kind, n_folds)]
