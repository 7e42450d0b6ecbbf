"""Measures of ranked lists: precision, recall and nDCG at k, average and R-precision, MAP@R, and chance.

A ranked list is given as booleans, best first: is the image at this rank relevant? Every function takes one
list ``(n_ranked,)`` and returns a float, or a batch ``(n_queries, n_ranked)`` and returns an array
``(n_queries,)``.
"""

from typing import Any

import numpy as np


def precision_at(relevant: Any, k: int) -> Any:
    """Compute the fraction of the top k that is relevant.

    Parameters
    ----------
    relevant : array of bool, shape (n_ranked,) or (n_queries, n_ranked)
        Relevance by rank, best first.
    k : int
        1 to n_ranked.

    Returns
    -------
    float or ndarray of float64, shape (n_queries,)

    Raises
    ------
    ValueError
        If the lists are shorter than k.

    Examples
    --------
    >>> precision_at([True, False, True, False], k=3) == 2 / 3
    True
    """
    relevant = _as_lists(relevant)
    if not 1 <= k <= relevant.shape[-1]:
        raise ValueError(f"precision at {k} needs 1 <= k <= the number of ranked images, {relevant.shape[-1]}")
    return _plain(relevant[..., :k].sum(axis=-1) / k)


def average_precision(relevant: Any, n_relevant: Any) -> Any:
    """Average the precision at the ranks of all relevant gallery images of a query.

    ``AP = 1 / n_relevant * sum_r [image r is relevant] * precision_at(relevant, r)``

    A relevant image that is not in the list counts as precision 0, so the value of a list that was cut at k
    is a lower bound of the value of the full ranking.

    Parameters
    ----------
    relevant : array of bool, shape (n_ranked,) or (n_queries, n_ranked)
        Relevance by rank, best first.
    n_relevant : int or array of int, shape (n_queries,)
        Relevant images in the gallery, found or not, without the query itself.

    Returns
    -------
    float or ndarray of float64, shape (n_queries,)
        NaN where n_relevant is 0: undefined, and `evaluate` skips such a query.

    Raises
    ------
    ValueError
        If a list holds more relevant images than n_relevant.

    Examples
    --------
    >>> average_precision([True, False, True], n_relevant=2) == (1 / 1 + 2 / 3) / 2
    True
    """
    relevant = _as_lists(relevant)
    n_relevant = np.asarray(n_relevant)
    if (relevant.sum(axis=-1) > n_relevant).any():
        raise ValueError("a list holds more relevant images than n_relevant")
    ranks = np.arange(1, relevant.shape[-1] + 1)
    precisions = np.cumsum(relevant, axis=-1) / ranks  # (..., n_ranked)
    total = np.where(relevant, precisions, 0.0).sum(axis=-1)
    return _plain(np.where(n_relevant > 0, total / np.maximum(n_relevant, 1), np.nan))


def recall_at(relevant: Any, n_relevant: Any, k: int) -> Any:
    """Compute the fraction of a query's relevant gallery images that are among the top k.

    Parameters
    ----------
    relevant : array of bool, shape (n_ranked,) or (n_queries, n_ranked)
        Relevance by rank, best first.
    n_relevant : int or array of int, shape (n_queries,)
        As in `average_precision`.
    k : int
        1 to n_ranked.

    Returns
    -------
    float or ndarray of float64, shape (n_queries,)
        NaN where n_relevant is 0.

    Raises
    ------
    ValueError
        If the lists are shorter than k.

    Examples
    --------
    >>> recall_at([True, False, True, False], n_relevant=4, k=3) == 2 / 4
    True
    """
    return _plain(_share(precision_at(relevant, k) * k, n_relevant))


def ndcg_at(relevant: Any, n_relevant: Any, k: int) -> Any:
    """Compute the normalized discounted cumulative gain of the top k.

    ``nDCG@k = sum_{r <= k} [image r is relevant] / log2(r + 1) / sum_{r <= min(k, n_relevant)} 1 / log2(r + 1)``

    Parameters, returned values and errors are those of `recall_at`.

    References
    ----------
    K. Järvelin, J. Kekäläinen: Cumulated gain-based evaluation of IR techniques. ACM TOIS 20, 2002. An image is
    relevant or not: all gains are 0 or 1.

    Examples
    --------
    >>> round(ndcg_at([False, True], n_relevant=1, k=2), 4)  # 1 / log2(3)
    0.6309
    """
    relevant = _as_lists(relevant)
    if not 1 <= k <= relevant.shape[-1]:
        raise ValueError(f"nDCG at {k} needs 1 <= k <= the number of ranked images, {relevant.shape[-1]}")
    return _plain(ndcg_curve(relevant[..., :k], n_relevant)[..., -1])


def ndcg_curve(relevant: Any, n_relevant: Any) -> np.ndarray:
    """Compute nDCG at every k: float64 (n_ranked,) or (n_queries, n_ranked); arguments as of `recall_at`."""
    relevant = _as_lists(relevant)
    discounts = 1 / np.log2(np.arange(2, relevant.shape[-1] + 2))
    ideal = np.arange(relevant.shape[-1]) < np.asarray(n_relevant)[..., None]
    best = np.cumsum(ideal * discounts, axis=-1)
    gains = np.cumsum(relevant * discounts, axis=-1)
    return np.where(best > 0, gains / np.where(best > 0, best, 1), np.nan)


def r_precision(relevant: Any, n_relevant: Any) -> Any:
    """Compute the precision at rank R, the number of a query's relevant gallery images.

    Parameters
    ----------
    relevant : array of bool, shape (n_ranked,) or (n_queries, n_ranked)
        Relevance by rank, best first; images beyond the list count as not relevant.
    n_relevant : int or array of int, shape (n_queries,)
        R.

    Returns
    -------
    float or ndarray of float64, shape (n_queries,)
        NaN where n_relevant is 0.

    Examples
    --------
    >>> r_precision([True, False, True], n_relevant=2) == 1 / 2
    True
    """
    return _plain(_share(_first_r(relevant, n_relevant).sum(axis=-1), n_relevant))


def map_at_r(relevant: Any, n_relevant: Any) -> Any:
    """Average the precision at the ranks of the relevant images among the first R.

    ``MAP@R = 1 / R * sum_{r <= R} [image r is relevant] * precision_at(relevant, r)``

    Parameters and returned values are those of `r_precision`.

    References
    ----------
    K. Musgrave, S. Belongie, S.-N. Lim: A Metric Learning Reality Check. ECCV 2020.

    Examples
    --------
    >>> map_at_r([True, False, True], n_relevant=2) == (1 / 1) / 2
    True
    """
    return average_precision(_first_r(relevant, n_relevant), n_relevant)


def _first_r(relevant: Any, n_relevant: Any) -> np.ndarray:
    """Relevance by rank, without that of images after the first R."""
    relevant = _as_lists(relevant)
    return relevant & (np.arange(relevant.shape[-1]) < np.asarray(n_relevant)[..., None])


def _share(numbers: Any, n_relevant: Any) -> np.ndarray:
    n_relevant = np.asarray(n_relevant)
    return np.where(n_relevant > 0, numbers / np.maximum(n_relevant, 1), np.nan)


def chance_precision(n_relevant: Any, n_gallery: Any) -> Any:
    """Compute the expected precision of a random order, at every k: ``n_relevant / n_gallery``.

    Parameters
    ----------
    n_relevant, n_gallery : int or array of int, shape (n_queries,)
        Relevant images, and all images that are ranked, without the query itself.

    Returns
    -------
    float or ndarray of float64, shape (n_queries,)
        NaN where the gallery is empty.
    """
    n_relevant, n_gallery = _check_counts(n_relevant, n_gallery)
    return _plain(np.where(n_gallery > 0, n_relevant / np.maximum(n_gallery, 1), np.nan))


def chance_average_precision(n_relevant: Any, n_gallery: Any) -> Any:
    """Compute the expected average precision of a random order, exactly.

    With R relevant images of N and the harmonic number H_N = 1 + 1/2 + ... + 1/N,

    ``E[AP] = (H_N + (R - 1) / (N - 1) * (N - H_N)) / N``

    Parameters
    ----------
    n_relevant, n_gallery : int or array of int, shape (n_queries,)
        As in `chance_precision`.

    Returns
    -------
    float or ndarray of float64, shape (n_queries,)
        NaN where n_relevant is 0.

    Notes
    -----
    ``AP = 1/R sum_i x_i / i (x_i + sum_{j<i} x_j)``, where x_i says that rank i is relevant. In a random
    order ``E[x_i] = R/N`` and ``E[x_i x_j] = R (R - 1) / (N (N - 1))``; sum over i. It lies a little above
    R/N, as the precision at a relevant image's rank counts that image itself.

    Examples
    --------
    >>> chance_average_precision(1, 2) == (1 / 1 + 1 / 2) / 2
    True
    """
    n_relevant, n_gallery = _check_counts(n_relevant, n_gallery)
    harmonic_numbers = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, n_gallery.max(initial=0) + 1))])
    harmonic = harmonic_numbers[n_gallery]
    share = (n_relevant - 1) / np.maximum(n_gallery - 1, 1)
    expected = (harmonic + share * (n_gallery - harmonic)) / np.maximum(n_gallery, 1)
    return _plain(np.where(n_relevant > 0, expected, np.nan))


def _as_lists(relevant: Any) -> np.ndarray:
    relevant = np.asarray(relevant)
    if relevant.ndim not in (1, 2):
        raise ValueError(f"relevance by rank must be (n_ranked,) or (n_queries, n_ranked), got {relevant.shape}")
    return relevant.astype(bool, copy=False)


def _check_counts(n_relevant: Any, n_gallery: Any) -> tuple[np.ndarray, np.ndarray]:
    n_relevant, n_gallery = np.broadcast_arrays(n_relevant, n_gallery)
    if (n_relevant < 0).any() or (n_relevant > n_gallery).any():
        raise ValueError("n_relevant must be between 0 and n_gallery")
    return n_relevant, n_gallery


def _plain(values: np.ndarray) -> Any:
    """Return a Python float for one list, the array for a batch."""
    return float(values) if values.ndim == 0 else values
