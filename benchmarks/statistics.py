"""Means over folds, their standard errors, and paired comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import ttest_rel


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error, which is 0 for a single value."""
    values = np.asarray(values, float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(error)


def difference(first: Sequence[float], second: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error of the fold-by-fold differences, as text."""
    mean, error = mean_and_error(np.subtract(first, second))
    return f"{mean:+.{digits}f} ± {error:.{digits}f}"


def clearly_above(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether the first is above the second by a paired t test over the folds (one-sided, p < 0.025).

    False for fewer than three folds.
    """
    return len(first) > 2 and bool(ttest_rel(first, second, alternative="greater").pvalue < 0.025)


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard error as text."""
    mean, error = mean_and_error(values)
    return f"{mean:.{digits}f} ± {error:.{digits}f}" if len(values) > 1 else f"{mean:.{digits}f}"
