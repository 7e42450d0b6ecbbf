"""Held-out images of a learner: the split, and the mean average precision that early stopping uses.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.1 (the measure) and section 5.2.1 (the use). Learners know
nothing of `visterm.retrieval`, so the few lines of the measure stand here once more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from .triplets import readonly

# Enough for a standard error of the mean well below 0.01; more would take longer than the training between validation
# checks.
MAX_IMAGES = 5000
MAX_QUERIES = 500


def split(y: Any, fraction: float, seed: int) -> np.ndarray:
    """Images that validate, sorted; the same for the same seed.

    Of each class `fraction` is held out, but at least two images (one alone has no relevant image) and at most all
    but two; classes of fewer than four images stay in training. With several labels per image the split is uniform.
    At most `MAX_IMAGES` are held out.

    Raises
    ------
    ValueError
        Nothing could be held out.
    """
    rng = np.random.default_rng([seed, 1])
    n = y.shape[0]
    held_out = np.zeros(n, bool)
    if sp.issparse(y):
        held_out[rng.permutation(n)[: min(round(fraction * n), n - 2)]] = True
    else:
        classes, class_of = np.unique(y, return_inverse=True)
        for c in range(len(classes)):
            members = rng.permutation(np.flatnonzero(class_of == c))
            if len(members) >= 4:
                held_out[members[: min(max(2, round(fraction * len(members))), len(members) - 2)]] = True
    validation = np.flatnonzero(held_out)
    if len(validation) > MAX_IMAGES:
        held_out[rng.permutation(validation)[MAX_IMAGES:]] = False
    if not held_out.any():
        why = "it is too small a share" if sp.issparse(y) else "no class has four"
        raise ValueError(f"validation_fraction={fraction} holds out no image, as {why}: use None to learn without")
    return np.flatnonzero(held_out)


def choose_queries(n: int, seed: int) -> np.ndarray:
    """At most `MAX_QUERIES` of n validation images, sorted."""
    return np.sort(np.random.default_rng([seed, 2]).permutation(n)[:MAX_QUERIES])


@njit(cache=True, nogil=True, error_model="numpy")
def _average_precisions(scores, relevant, own, precisions):
    """Average precision of each row of scores; NaN without a relevant image.

    The relevant images are sorted, the others only counted between them: no ranking of all images is made.
    """
    for row in range(len(scores)):
        places = np.flatnonzero(relevant[row])
        places = places[places != own[row]]
        if len(places) == 0:
            precisions[row] = np.nan
            continue
        places = places[np.argsort(-scores[row][places], kind="mergesort")]
        values = scores[row][places]
        between = np.zeros(len(places) + 1, np.int64)  # other images after so many relevant ones
        for image in range(scores.shape[1]):
            if relevant[row, image] or image == own[row]:
                continue
            score, low, high = scores[row, image], 0, len(places)
            while low < high:
                middle = (low + high) // 2
                if values[middle] > score or (values[middle] == score and places[middle] < image):
                    low = middle + 1
                else:
                    high = middle
            between[low] += 1
        total, rank = 0.0, 0
        for hit in range(len(places)):
            rank += between[hit] + 1
            total += (hit + 1) / rank
        precisions[row] = total / len(places)


def mean_average_precision(scores: np.ndarray, relevant: np.ndarray, own: np.ndarray) -> float:
    """Mean over queries of the mean precision at the rank of each relevant image.

    Parameters
    ----------
    scores : float array of shape (n_queries, n_images)
        Larger is closer. Ties: the image with the smaller number first.
    relevant : bool array of shape (n_queries, n_images)
    own : int array of shape (n_queries,)
        The query's own column, which is taken out of the ranking.

    Returns
    -------
    float
        Queries without a relevant image are skipped; 0.0 if all are.
    """
    return mean_of(average_precisions(scores, relevant, own))


def average_precisions(scores: np.ndarray, relevant: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Average precision of each query, arguments as above: (n_queries,), NaN where no image is relevant."""
    precisions = np.empty(len(scores))
    _average_precisions(readonly(scores), readonly(relevant), readonly(own), precisions)
    return precisions


def mean_of(precisions: np.ndarray) -> float:
    """Mean over the queries that have a relevant image; 0.0 if none has."""
    found = precisions[~np.isnan(precisions)]
    return float(found.mean()) if len(found) else 0.0
