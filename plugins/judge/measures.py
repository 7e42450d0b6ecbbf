"""Precision and coherence of judges.

Decisions are float (n_judges, n_queries, n_images): 1 relevant, 0 not, NaN for "cannot say" and for images that were
not judged. NaN counts neither as relevant nor in the number of images that a share is of.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def nan_mean(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Return `numpy.nanmean`, and NaN of nothing without a warning: silencing one is not thread-safe."""
    with np.errstate(invalid="ignore"):
        return np.divide(np.nansum(values, axis=axis), np.count_nonzero(~np.isnan(values), axis=axis))


def nan_std(values: np.ndarray, axis: int) -> np.ndarray:
    """As `numpy.nanstd` with ``ddof=1``, but NaN of fewer than two without a warning."""
    n = np.count_nonzero(~np.isnan(values), axis=axis)
    squares = (values - np.expand_dims(nan_mean(values, axis), axis)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(nan_mean(squares, axis) * np.divide(n, n - 1))


def standard_error(values: np.ndarray, axis: int) -> np.ndarray:
    """Standard error of `nan_mean`; NaN of fewer than two."""
    return nan_std(values, axis) / np.sqrt(np.maximum(np.count_nonzero(~np.isnan(values), axis=axis), 1))


def precision_curves(decisions: np.ndarray) -> np.ndarray:
    """Precision at k per judge and query, given decisions on ranked images; NaN while none is decided.

    >>> precision_curves(np.array([[[1, 0, np.nan, 1]]])).tolist() == [[[1 / 1, 1 / 2, 1 / 2, 2 / 3]]]
    True
    """
    with np.errstate(invalid="ignore"):
        return np.nancumsum(decisions, axis=-1) / np.cumsum(~np.isnan(decisions), axis=-1)


def average_precisions(decisions: np.ndarray) -> np.ndarray:
    """Average precision per judge and query, of the ranked images: (n_judges, n_queries).

    Mean over the images found relevant of the precision at their rank; 0 where none is, NaN where none is decided.

    >>> average_precisions(np.array([[[1, 0, np.nan, 1], [0, 0, 0, 0]]])).tolist() == [[(1 / 1 + 2 / 3) / 2, 0.0]]
    True
    """
    relevant = decisions == 1
    total = np.where(relevant, precision_curves(decisions), 0).sum(axis=-1)
    means = total / np.maximum(relevant.sum(axis=-1), 1)
    return np.where(np.isnan(decisions).all(axis=-1), np.nan, means)


def spread(decisions: np.ndarray) -> tuple[float, float]:
    """How much queries and judges differ, by the average precision of each judge and query.

    Standard deviation over queries (mean over judges), and over judges (mean over queries); NaN of fewer than two.
    """
    figures = average_precisions(decisions)  # (n_judges, n_queries)
    return float(nan_mean(nan_std(figures, axis=1))), float(nan_mean(nan_std(figures, axis=0)))


def judge_coherence(decisions: np.ndarray) -> np.ndarray:
    """Precision of each judge with the decisions of the others as ground truth: (n_judges, n_queries).

    Mean over the images that the judge found relevant of the share of other judges who did; NaN where there are none.
    """
    decided = ~np.isnan(decisions)
    relevant = np.where(decided, decisions, 0.0)
    with np.errstate(invalid="ignore"):  # the share of the other judges who decided that the image is relevant
        share = (relevant.sum(axis=0) - relevant) / (decided.sum(axis=0) - decided)
    return nan_mean(np.where(relevant == 1.0, share, np.nan), axis=2)


def ranking_coherence(decisions: np.ndarray) -> np.ndarray:
    """Precision of a ranking with the decisions of all judges on its images as ground truth: (n_queries,).

    Comparable with `judge_coherence`, whose ground truth is one judge short: the mean over leaving out one judge after
    the other is the same where everybody judged everything.
    """
    return nan_mean(nan_mean(decisions, axis=0), axis=1)


def by_k(values: np.ndarray) -> dict[str, float]:
    """Return the values by k, as JSON keys."""
    return {str(k): float(value) for k, value in enumerate(values, start=1)}


def nan_to_none(value: Any) -> Any:
    """Replace NaN in nested dicts and lists by None, for JSON."""
    if isinstance(value, dict):
        return {key: nan_to_none(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [nan_to_none(inner) for inner in value]
    return None if isinstance(value, float) and np.isnan(value) else value
