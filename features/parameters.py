"""What scikit-learn expects of an estimator, without importing it: that takes longer than a search.

The classes of this room are estimators by what they have, as scikit-learn allows: constructors only store, and
`get_params`, `set_params` and tags are here. So they can be cloned, and be steps of a pipeline.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

from visterm import sparse


class Parameters:
    """Parameters of the constructor, by name."""

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the parameters by name; none of them has parameters of its own."""
        return {name: getattr(self, name) for name in sorted(inspect.signature(type(self)).parameters)}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters; ValueError for one that the constructor does not have."""
        for name in parameters:
            if name not in inspect.signature(type(self)).parameters:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}")
        vars(self).update(parameters)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = {
            name: value for name, value in self.get_params().items() if repr(value) != repr(defaults[name].default)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator

        return BaseEstimator.__sklearn_tags__(self)


class Transformer(Parameters):
    """An estimator whose `transform` gives vectors."""

    def fit_transform(self, X: Any, /, y: Any = None) -> Any:
        """`fit`, and `transform` of the same."""
        estimator: Any = self
        return estimator.fit(X, y).transform(X)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import TransformerTags

        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags()
        return tags


def check_fitted(estimator: Any, attribute: str) -> None:
    """Raise NotFittedError of scikit-learn for an estimator without an attribute that `fit` sets."""
    if not hasattr(estimator, attribute):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"{type(estimator).__name__} is not fitted yet: call fit first")


def check_random_state(random_state: Any) -> Any:
    """Return the RandomState of scikit-learn for a seed, None or a RandomState."""
    from sklearn.utils import check_random_state

    return check_random_state(random_state)


def effective_n_jobs(n_jobs: int | None) -> int:
    """Number of threads that `n_jobs` stands for, as in joblib."""
    if n_jobs == 1:
        return 1
    import joblib  # a tenth of a second

    return joblib.effective_n_jobs(n_jobs)


def check_labels(y: Any, n_images: int) -> Any:
    """Return one label per image as an array, (n_images,), or raise ``ValueError``."""
    if y is None:
        raise ValueError("the forest codebook learns from labels: give one for each training image, fit(images, y)")
    if sparse.issparse(y):
        raise ValueError("the forest codebook learns from one label an image; with several, use the k-means codebook")
    from sklearn.utils.validation import column_or_1d

    y = column_or_1d(y)
    if len(y) != n_images:
        raise ValueError(f"{len(y)} labels do not fit {n_images} images: the forest codebook needs one for each")
    return y
