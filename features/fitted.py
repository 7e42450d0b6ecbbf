"""Refusing what is not fitted, without scikit-learn where nothing is wrong."""

from __future__ import annotations

from typing import Any


def check_fitted(estimator: Any, attribute: str) -> None:
    """Raise NotFittedError of scikit-learn for an estimator without an attribute that `fit` sets."""
    if not hasattr(estimator, attribute):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"{type(estimator).__name__} is not fitted yet: call fit first")
