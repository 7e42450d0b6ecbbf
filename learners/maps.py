"""A side of a similarity as a few steps from an image's vector, for programs that do not have visterm.

`SimilarityLearner.query_map` and `gallery_map` give the steps; `to_onnx` and `visterm export` write them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Affine(NamedTuple):
    """X M + b."""

    matrix: np.ndarray  # (size before, size after)
    offset: np.ndarray | None = None  # (size after,)


class Unit(NamedTuple):
    """Rows scaled to unit length; all-zero rows stay zero."""


class Scale(NamedTuple):
    """All numbers times a factor."""

    factor: float


class Squares(NamedTuple):
    """[x, -x' A x]."""

    matrix: np.ndarray  # (size before, size before)


class Logistic(NamedTuple):
    """1 / (1 + exp(-x)) of each number; with `to_sum_one` then divided by the sum of the row."""

    to_sum_one: bool


class SideBySide(NamedTuple):
    """Two maps of the same rows, one after the other."""

    first: tuple[Any, ...]
    second: tuple[Any, ...]


Map = tuple[Affine | Unit | Scale | Squares | Logistic | SideBySide, ...]  # no step: the vectors themselves


class Chain(NamedTuple):
    """The steps that an index can take, each of them optional: product, unit length, product."""

    first: Affine | None
    unit: bool
    second: Affine | None


def scaled(steps: Map, factor: float) -> Map:
    """The map with all numbers of its result times a factor."""
    if steps and isinstance(steps[-1], Affine):
        matrix, offset = steps[-1]
        times = np.float32(factor)
        return (*steps[:-1], Affine(matrix * times, None if offset is None else offset * times))
    return (*steps, Scale(factor))


def as_chain(steps: Map, n_features: int) -> Chain | None:
    """The map of vectors of `n_features` as products and a scaling to unit length; None where it needs other steps."""
    steps = _flat(steps, n_features)
    first = second = None
    if steps and isinstance(steps[0], Affine):
        first, steps = steps[0], steps[1:]
    unit = bool(steps) and isinstance(steps[0], Unit)
    steps = steps[unit:]
    if unit and steps and isinstance(steps[0], Affine):
        second, steps = steps[0], steps[1:]
    return None if steps else Chain(first, unit, second)


def _flat(steps: Map, n_features: int) -> Map:
    """Join maps side by side into one, where both are products after the same steps."""
    if len(steps) != 1 or not isinstance(steps[0], SideBySide):
        return steps
    first, second = steps[0]
    n_shared = 0
    while n_shared < min(len(first), len(second)) and _same(first[n_shared], second[n_shared]):
        n_shared += 1
    shared, rests = first[:n_shared], (first[n_shared:], second[n_shared:])
    products = [step for step in shared if isinstance(step, Affine)]
    width = products[-1].matrix.shape[1] if products else n_features
    pair = [step for rest in rests if (step := _product(rest, width)) is not None]
    if len(pair) < 2:
        return steps
    offsets = [np.zeros(step.matrix.shape[1], np.float32) if step.offset is None else step.offset for step in pair]
    return (*shared, Affine(np.hstack([step.matrix for step in pair]), np.concatenate(offsets)))


def _product(steps: Map, width: int) -> Affine | None:
    """A map of at most one step as a product; None for other steps."""
    if not steps:
        return Affine(np.eye(width, dtype=np.float32))
    if len(steps) == 1 and isinstance(steps[0], Scale):
        return Affine(np.float32(steps[0].factor) * np.eye(width, dtype=np.float32))
    if len(steps) == 1 and isinstance(steps[0], Affine):
        return steps[0]
    return None


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and all(map(np.array_equal, first, second))
