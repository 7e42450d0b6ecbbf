"""A problem of learning with a known answer, and small helpers, for the tests of learners in all rooms."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from visterm.learners import load_learner


def make_synonyms(n_classes=4, per_class=15, seed=0):
    """Images whose class shows only through synonyms.

    Each image has one of its class's four own visterms, and three of sixteen that say nothing. The inner product links
    images of a class only where they happen to share a synonym; a similarity that has learned which visterms belong
    together ranks every image of the class first, so its mean average precision is 1.
    """
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    X = np.zeros((len(y), 4 * n_classes + 16), np.float32)
    X[np.arange(len(y)), 4 * y + rng.integers(0, 4, len(y))] = 1.0
    for row in X:
        row[4 * n_classes + rng.choice(16, 3, replace=False)] = 0.7
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return sp.csr_array(X), y


@pytest.fixture(scope="session")
def synonyms():
    return make_synonyms(seed=0)


@pytest.fixture(scope="session")
def X(synonyms):
    """The images of `synonyms`, whose labels are `y`."""
    return synonyms[0]


@pytest.fixture(scope="session")
def y(synonyms):
    return synonyms[1]


@pytest.fixture(scope="session")
def unseen_synonyms():
    return make_synonyms(seed=1)


@pytest.fixture(scope="session")
def several():
    """Six classes of ten images, of which some can be held out."""
    return make_synonyms(n_classes=6, per_class=10, seed=2)


@pytest.fixture
def images():
    """Thirty sparse unit rows of three classes, one of them all zero."""
    rng = np.random.default_rng(0)
    X = rng.random((30, 25)) * (rng.random((30, 25)) < 0.3)
    X[4] = 0
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
    return X.astype(np.float32), np.repeat(np.arange(3), 10)


@pytest.fixture
def problem():
    """Forty sparse rows of six labels, one to four each; one row all zero."""
    rng = np.random.default_rng(0)
    X = rng.random((40, 30)) * (rng.random((40, 30)) < 0.2)
    X[4] = 0
    labels = rng.random((40, 6)) < 0.3
    labels[np.arange(40), rng.integers(0, 6, 40)] = True
    labels[:, 5] &= ~labels.all(axis=1)
    return X.astype(np.float32), labels


@pytest.fixture
def dense_problem(problem):
    """The same rows with one zero in ten, but for the row of zeros, so that kernels of dense images learn them."""
    X, labels = problem
    rng = np.random.default_rng(1)
    X = np.where(X == 0, rng.random(X.shape) * (rng.random(X.shape) < 0.9), X)
    X[4] = 0
    return (X / 3).astype(np.float32), labels


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def checkpoint(tmp_path):
    """Function that ends a fit in one of its calls, and gives the learner saved there, mapped for odd numbers of calls.

    `calls` are those of "callback" or "progress"; `fit` is called in place of that of a copy of the learner.
    """

    def interrupted(learner, X, y, stop, *, calls="callback", fit=None, **options):
        remaining = iter(range(stop, -1, -1))

        def end(fitted):
            if not next(remaining):
                fitted.save(tmp_path / "checkpoint")
                raise Killed

        with pytest.raises(Killed):
            (fit or clone(learner).fit)(X, y, **{calls: end}, **options)
        return load_learner(tmp_path / "checkpoint", mmap_mode="r" if stop % 2 else None)

    return interrupted
