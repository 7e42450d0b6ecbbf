"""Finding wrong labels by visterms, beside the default: ``python -m experiments.studies wrong_labels_variants``.

- *codebooks*: Corel-5K's codebook by other seeds, made without the images that learners hold out, as is the default,
  and with them, on the draws of ``wrong_labels``.
- *steps*: the regression stopped early in plain coordinates, by draws that ``wrong_labels`` does not use.

Prints the average precision of p (1 + s), which docs/labels.md quotes.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.metrics import average_precision_score

import benchmarks.photos
from visterm.pipeline.stages.vector_kinds import _VistermVectors
from visterm.teaching import wrong_labels as module

from . import wrong_labels
from .wrong_labels import SETS, SHARES, TRAINING_SHARE, planted

SEEDS, OTHER = 3, 100  # codebooks; the first of other draws
STEPS = (8, 10, 12)
WITH = "split.seed=0"  # the default: names the run whose codebook is also made from images that are held out


def precision(X: Any, y: np.ndarray, share: float, seed: int) -> float:
    """Average precision of the default's score among the images that ``wrong_labels`` ranks."""
    rng = np.random.default_rng([seed, round(1000 * share)])
    labels = planted(y, share, rng)
    training = rng.permutation(len(y))[: round(TRAINING_SHARE * len(y))]
    return float(average_precision_score((labels != y)[training], module.judge_labels(X, labels).score[training]))


def show(what: str, X: Any, y: np.ndarray, seeds: range) -> None:
    means = [np.mean([precision(X, y, share, seed) for seed in seeds]) for share in SHARES]
    print(what, *(f"{mean:.3f}" for mean in means), flush=True)


def stopped_early(steps: int) -> Any:
    """The regression of sparse vectors after so many steps in plain coordinates."""

    def regression(X: Any, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        from scipy.optimize import minimize

        given, n = targets / targets.sum(), targets.sum()
        each = given.sum(axis=1, keepdims=True)
        penalty = 1 / (module._INVERSE_REGULARIZATION * n)
        size, n_labels = X.shape[1], targets.shape[1]

        def loss(variables: np.ndarray) -> tuple[float, np.ndarray]:
            W, bias = variables[n_labels:].reshape(size, n_labels), variables[:n_labels]
            scores = X @ W + bias
            scores -= scores.max(axis=1, keepdims=True)
            sums = np.exp(scores).sum(axis=1, keepdims=True)
            value = np.vdot(each, np.log(sums)) - np.vdot(given, scores) + penalty * np.vdot(W, W) / 2
            slope = np.exp(scores) * (each / sums) - given
            return float(value), np.concatenate([slope.sum(axis=0), (X.T @ slope + penalty * W).ravel()])

        start = np.concatenate([np.log(given.sum(axis=0)), np.zeros(size * n_labels)])
        end = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": steps, "maxcor": 3, "gtol": 0}).x
        return end[n_labels:].reshape(size, n_labels), end[:n_labels]

    return regression


def codebooks() -> None:
    def of_seed(seed: int, *more: str) -> None:
        settings = (f"seed={seed}", *more)

        def extracted(name: str, kind: str) -> Any:
            return benchmarks.photos.extracted(name, kind, *settings)

        with patch.object(wrong_labels, "extracted", extracted):
            X, y = wrong_labels.labelled_images("corel5k", "visterms")
        show(f"corel5k, {settings}:", X, y, range(SEEDS))

    for seed in range(SEEDS):
        of_seed(seed)
        with patch.object(_VistermVectors, "_held_out", lambda *_: (set(), set())):
            of_seed(seed, WITH)


def main(options: list[str]) -> None:
    if "--quick" not in options:
        codebooks()
    for name in list(SETS)[: 1 if options else None]:
        X, y = wrong_labels.labelled_images(name, "visterms")
        seeds = range(OTHER, OTHER + (5 if name in ("flowers", "textures") else 2))
        show(f"{name}, now:", X, y, seeds)
        for steps in STEPS:
            with patch.object(module, "_regression", stopped_early(steps)):
                show(f"{name}, {steps} steps:", X, y, seeds)
