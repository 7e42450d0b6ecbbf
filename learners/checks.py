"""Checks of arguments that several learners share."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from visterm import sparse as sp


def check_integer(name: str, value: Any, *, minimum: int) -> None:
    """Refuse anything but an integer of at least `minimum`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be an integer of at least {minimum}, got {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse anything but a positive, finite number."""
    if not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} must be a positive number, got {value!r}")


def check_choice(name: str, value: Any, known: Sequence[Any]) -> None:
    """Refuse anything but one of some values."""
    if value not in known:
        *names, last = map(repr, known)
        raise ValueError(f"{name} must be {', '.join(names)} or {last}, got {value!r}")


def refuse_none(y: Any) -> None:
    """Refuse labels that are missing, which as text would be a class of their own."""
    y = np.asarray(y)
    for label in y.ravel() if y.dtype == object else ():
        if label is None or type(label).__name__ == "NAType":  # of pandas
            raise ValueError(f"y holds {label} in place of a label; remove these images")


def plain_supervision(y: Any) -> Any:
    """Labels (n,) as they are; several labels per image as a CSR array, also from a dense array of zeros and ones.

    ValueError for None or pandas' NA in place of a label, and a dense array of more dimensions, or of other values.
    """
    if sp.issparse(y):
        return y
    y = np.asarray(y)
    refuse_none(y)
    if y.ndim < 2:
        return y
    if y.ndim == 2 and y.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d

        return column_or_1d(y, warn=True)
    if y.ndim > 2 or y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise ValueError(
            f"y of shape {y.shape} must be labels of shape (n,), or zeros and ones of shape (n, n_labels) as "
            "MultiLabelBinarizer makes them, dense or sparse"
        )
    return sp.csr_array(y)


def plain_labels(y: Any) -> np.ndarray:
    """Labels of a type that is saved without pickle: of objects numbers, or else texts."""
    y = np.asarray(y)
    if y.dtype != object:
        return y
    return np.array(y.tolist()) if all(isinstance(label, Real | np.bool_) for label in y.flat) else y.astype(str)


def check_share(learned_weight: Any) -> float:
    """Refuse anything but a number from 0 to 1."""
    if not isinstance(learned_weight, Real) or isinstance(learned_weight, bool) or not 0 <= float(learned_weight) <= 1:
        raise ValueError(f"learned_weight must be a number from 0 to 1, got {learned_weight!r}")
    return float(learned_weight)
