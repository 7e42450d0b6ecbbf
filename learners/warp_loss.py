"""The loss of WARP, which WSABIE and LinearWARP share: weights by rank, rates, and the draws of labels.

Weston, Bengio, Usunier, IJCAI 2011, section 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numba import njit

from .checks import check_integer
from .draws import draw_below, draw_uniform
from .rows import Float, Int

_LEAST_DECAY, _DECAY_PER_PAIR = 10_000, 6  # of "auto"; chosen on Caltech-101 and Corel-5K, by validation
_SHARE_DRAWN = 16  # of the labels, one in so many is drawn before all are scored


@njit(cache=True, nogil=True, error_model="numpy")
def draw_pairs(
    label_start: np.ndarray, labels: np.ndarray, usable: np.ndarray, state: np.ndarray, pairs: np.ndarray
) -> None:
    """Draw images, and of each one of its labels: pairs (n_steps, 2) int32."""
    for step in range(len(pairs)):
        image = usable[draw_below(len(usable), state)]
        start = label_start[image]
        pairs[step, 0] = image
        pairs[step, 1] = labels[start + draw_below(label_start[image + 1] - start, state)]


def steps_to_half(decay_steps: Any, y: Any) -> int | None:
    """`decay_steps`, with "auto" put into numbers: of all images, so that a search and its refit slow down alike."""
    n_pairs = y.nnz if sp.issparse(y) else len(y)
    return max(_LEAST_DECAY, _DECAY_PER_PAIR * n_pairs) if decay_steps == "auto" else decay_steps


def learning_rates(first: float, half: int | None, start: int, n: int) -> np.ndarray:
    """Learning rates of the steps `start` to `start + n` - 1: float32 (n,)."""
    rates = np.float32(first) * np.ones(n, np.float32)
    if half is not None:
        rates /= (1 + (start + np.arange(n)) / half).astype(np.float32)
    return rates


def harmonic_numbers(n: int) -> np.ndarray:
    """L(0), L(1), ..., L(n): float32 (n + 1,)."""
    return np.concatenate([[0], np.cumsum(1 / np.arange(1, n + 1))]).astype(np.float32)


def warp_weights(n_others: int) -> np.ndarray:
    """L of the rank that is estimated where the N-th draw is the first to violate: float32 (n_others + 1,)."""
    weights = np.zeros(n_others + 1, np.float32)
    weights[1:] = harmonic_numbers(n_others)[n_others // np.arange(1, n_others + 1)]
    return weights


def check_decay_steps(decay_steps: Any) -> None:
    """Refuse anything but a positive integer, "auto" and None."""
    if isinstance(decay_steps, str) and decay_steps != "auto":
        raise ValueError(f"decay_steps must be an integer, 'auto' or None, got {decay_steps!r}")
    if decay_steps is not None and decay_steps != "auto":
        check_integer("decay_steps", decay_steps, minimum=1)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_other(own: np.ndarray, n_labels: Int, state: np.ndarray) -> Int:
    """Label that is not one of `own`, which are sorted; uniform over the others."""
    label = draw_below(n_labels - len(own), state)
    for other in own:
        label += label >= other
    return label


@njit(cache=True, nogil=True, error_model="numpy")
def draws_one_by_one(n_labels: Int, most: Int) -> Int:
    """Number of labels to draw and score one by one before all are scored, of the `most` that may be drawn."""
    return min(most, max(1, n_labels // _SHARE_DRAWN))


@njit(cache=True, nogil=True, error_model="numpy")
def draws_until(n_violating: Int, n_others: Int, state: np.ndarray) -> Int:
    """Number of the draw that is the first to violate, where so many of the other labels do: geometric, 1 or more."""
    return 1 + np.int64(np.log1p(-draw_uniform(state)) / np.log1p(-n_violating / n_others))


@njit(cache=True, nogil=True, error_model="numpy")
def violating_labels(own: np.ndarray, scores: np.ndarray, threshold: Float, wrong: np.ndarray) -> Int:
    """Write the labels whose scores are above the threshold, but for those of `own`; return their number."""
    for label in own:
        scores[label] = threshold
    n = 0
    for label in range(len(scores)):
        if scores[label] > threshold:
            wrong[n] = label
            n += 1
    return n
