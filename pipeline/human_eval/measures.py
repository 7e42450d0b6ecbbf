"""Precision and coherence of judges."""

from __future__ import annotations

from typing import Any

import numpy as np


#
# Decisions are float (n_judges, n_queries, n_images): 1 relevant, 0 not, NaN for "cannot say" and for what was not
# judged. NaN takes no part: not among the relevant ones, and not among those that they are a share of.
def precision_curves(decisions: np.ndarray) -> np.ndarray:
    """Precision at k for each judge and query.

    Parameters
    ----------
    decisions : float array of shape (n_judges, n_queries, k)
        On the ranked images, best first.

    Returns
    -------
    float64 array of shape (n_judges, n_queries, k)
        Column k - 1 is the share of relevant images among the first k; NaN where the judge said nothing of them.

    Examples
    --------
    >>> precision_curves(np.array([[[1, 0, np.nan, 1]]])).tolist() == [[[1 / 1, 1 / 2, 1 / 2, 2 / 3]]]
    True
    """
    said = ~np.isnan(decisions)
    relevant = np.cumsum(np.where(said, decisions, 0.0), axis=-1)
    return _ratio(relevant, np.cumsum(said, axis=-1))


def spread(curves: np.ndarray) -> tuple[float, float]:
    """How much queries differ, and how much judges do.

    Parameters
    ----------
    curves : float array of shape (n_judges, n_queries, k)
        Of `precision_curves`. The figure of a judge and a query is the mean of its curve.

    Returns
    -------
    float, float
        Standard deviation over queries, mean over judges; standard deviation over judges, mean over queries. NaN where
        there are fewer than two.
    """
    figures = mean_known(curves, axis=2)  # (n_judges, n_queries)
    return float(mean_known(deviation_known(figures, axis=1), axis=0)), float(
        mean_known(deviation_known(figures, axis=0), axis=0)
    )


def judge_coherence(decisions: np.ndarray) -> np.ndarray:
    """Precision of each judge with the decisions of the others as the truth.

    Parameters
    ----------
    decisions : float array of shape (n_judges, n_queries, n_images)
        On all images of a task.

    Returns
    -------
    float64 array of shape (n_judges, n_queries)
        Mean over the images that the judge found relevant of the share of other judges who did; NaN where there are
        none.
    """
    said = ~np.isnan(decisions)
    relevant = np.where(said, decisions, 0.0)
    # (n_judges, n_queries, n_images): of the other judges who said something, how many found it relevant
    share = _ratio(relevant.sum(axis=0) - relevant, said.sum(axis=0) - said)
    return mean_known(np.where(relevant == 1.0, share, np.nan), axis=2)


def ranking_coherence(decisions: np.ndarray) -> np.ndarray:
    """Precision of a ranking with the decisions of all judges as the truth.

    Parameters
    ----------
    decisions : float array of shape (n_judges, n_queries, k)
        On the ranked images.

    Returns
    -------
    float64 array of shape (n_queries,)
        Mean over the images of the share of judges who found them relevant; NaN where nobody said anything.

    Notes
    -----
    Comparable with `judge_coherence`, whose truth is one judge short: leaving out one judge after the other and taking
    the mean gives the same figure where everybody judged everything.
    """
    return mean_known(mean_known(decisions, axis=0), axis=1)


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.divide(a, b, out=np.full(np.shape(a), np.nan), where=b > 0)


def mean_known(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean of what is not NaN; NaN of nothing."""
    said = ~np.isnan(values)
    return _ratio(np.where(said, values, 0.0).sum(axis=axis), said.sum(axis=axis))


def deviation_known(values: np.ndarray, axis: int) -> np.ndarray:
    """Standard deviation (n - 1) of what is not NaN; NaN of fewer than two."""
    mean = np.expand_dims(mean_known(values, axis), axis)
    n = (~np.isnan(values)).sum(axis=axis)
    squares = mean_known((values - mean) ** 2, axis)
    return np.where(n > 1, np.sqrt(squares * n / np.maximum(n - 1, 1)), np.nan)


def by_k(values: np.ndarray) -> dict[str, float]:
    """Return the values by k, as JSON keys."""
    return {str(k): float(value) for k, value in enumerate(values, start=1)}


def without_nan(value: Any) -> Any:
    """Replace NaN by None, which JSON has."""
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and np.isnan(value) else value
