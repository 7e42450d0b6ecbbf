"""Random numbers in kernels: splitmix64 (Steele, Lea, Flood 2014), one uint64 of state."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numba import njit
from sklearn.utils import check_random_state

from .rows import Float, Int


def stream(*numbers: int) -> np.ndarray:
    """Random state for the draw functions, a function of `numbers` alone: (1,) uint64."""
    return np.random.SeedSequence(numbers).generate_state(1, np.uint64)


_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)
_U11, _U27, _U30, _U31, _U32 = (np.uint64(k) for k in (11, 27, 30, 31, 32))
_TWO_32 = np.uint64(1 << 32)


@njit(cache=True, nogil=True, error_model="numpy")
def _next(state: np.ndarray) -> Int:
    state[0] += _GAMMA
    z = state[0]
    z = (z ^ (z >> _U30)) * _MIX_1
    z = (z ^ (z >> _U27)) * _MIX_2
    return z ^ (z >> _U31)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_below(n: Int, state: np.ndarray) -> Int:
    """Uniform integer in 0..n-1 for n < 2**32, without bias (Lemire 2019)."""
    bound = np.uint64(n)
    product = (_next(state) >> _U32) * bound
    if (product & _LOW) < bound:
        threshold = (_TWO_32 - bound) % bound
        while (product & _LOW) < threshold:
            product = (_next(state) >> _U32) * bound
    return np.int64(product >> _U32)


@njit(cache=True, nogil=True, error_model="numpy")
def draw_uniform(state: np.ndarray) -> Float:
    """Uniform number in [0, 1), 53 bits."""
    return np.float64(_next(state) >> _U11) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True, error_model="numpy")
def shuffled(n: Int, state: np.ndarray) -> np.ndarray:
    """0..n-1 in random order (Fisher and Yates)."""
    order = np.empty(n, np.int32)
    for i in range(n):  # np.arange would take longer to compile than all else here
        order[i] = i
    for i in range(n - 1, 0, -1):
        j = draw_below(i + 1, state)
        order[i], order[j] = order[j], order[i]
    return order


def draw_seed(random_state: Any) -> int:
    """`random_state` itself if it is a seed, else one drawn from it."""
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise ValueError(f"random_state must not be negative, got {random_state!r}")
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
