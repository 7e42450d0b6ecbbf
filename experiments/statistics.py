"""Means over folds, their standard errors, and paired comparisons.

Folds that are drawn again and again share images: their figures depend on each other, and a plain paired t test is too
sure. The corrected resampled t test of Nadeau and Bengio (Inference for the Generalization Error, Machine Learning 52,
2003) takes (1 / n + n_test / n_train) times the variance of the differences in place of 1 / n times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

TEST_PER_TRAIN = 25 / 40  # test images per training image: experiments/measured/protocol.py


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, which is 0 for a single value."""
    values = np.asarray(values, float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(error)


def difference(first: Sequence[float], second: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error of the fold-by-fold differences, as text; one fold has no error."""
    mean, error = mean_and_error(np.subtract(first, second))
    return f"{mean:+.{digits}f} ± {error:.{digits}f}" if len(first) > 1 else f"{mean:+.{digits}f}"


def ratio_and_error(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """Ratio of two means over the same folds, and its standard error by the delta method, which is 0 for one fold."""
    above, below = np.asarray(above, float), np.asarray(below, float)
    ratio = float(above.mean() / below.mean())
    return ratio, mean_and_error((above - ratio * below) / below.mean())[1]


def ratio_text(above: Sequence[float], below: Sequence[float]) -> str:
    """Ratio of two means over the same folds and its standard error, as text; one fold has no error."""
    ratio, error = ratio_and_error(above, below)
    return f"{ratio:.2f} ± {error:.2f}" if len(above) > 1 else f"{ratio:.2f}"


def equal(differences: np.ndarray) -> bool:
    """Whether they are all the same but for rounding."""
    return bool(np.ptp(differences) <= 1e-9 * np.abs(differences).max())


def p_above(first: Sequence[float], second: Sequence[float], test_per_train: float = TEST_PER_TRAIN) -> float:
    """One-sided p-value of the corrected resampled t test that the first is above the second, over the same folds.

    1 where all differences are equal: by chance, as of figures that are counts, and nothing is known of their spread.
    """
    differences = np.subtract(first, second).astype(float)
    n, mean, variance = len(differences), differences.mean(), differences.var(ddof=1)
    if equal(differences):
        return 1.0
    return float(student.sf(mean / np.sqrt((1 / n + test_per_train) * variance), n - 1))


def interval(
    first: Sequence[float], second: Sequence[float], test_per_train: float = TEST_PER_TRAIN
) -> tuple[float, float, float, int]:
    """Mean difference over the same folds, both ends of its 95 % interval by the corrected t test, number of folds.

    Fewer than two folds have no interval, nor have differences that are all equal.
    """
    differences = np.subtract(first, second).astype(float)
    n, mean = len(differences), float(differences.mean())
    if n < 2 or equal(differences):
        return mean, float("nan"), float("nan"), n
    half = student.ppf(0.975, n - 1) * np.sqrt((1 / n + test_per_train) * differences.var(ddof=1))
    return mean, float(mean - half), float(mean + half), n


def clearly_above(first: Sequence[float], second: Sequence[float], test_per_train: float = TEST_PER_TRAIN) -> bool:
    """Whether the first is above the second by the corrected resampled t test over the folds (one-sided, p < 0.025).

    False for fewer than three folds.
    """
    return len(first) > 2 and p_above(first, second, test_per_train) < 0.025


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error as text."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"
