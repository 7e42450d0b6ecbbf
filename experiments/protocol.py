"""The protocol that the experiments on photos share: folds, settings chosen on training images, figures.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.2: 40 training and 25 test images per class, five folds;
hyper-parameters and the number of steps by cross-validation on the training images; test images query each
other. Palette, codebook and idf use all 40 training images of a class, validation images included, but no labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from benchmarks.vectors import load_vectors
from visterm.retrieval import evaluate_test_test

N_FOLDS = 5
N_INNER_FOLDS = 5
ONE_PAIR = {"pairs_per_query": 1}  # as in the papers: a query is drawn for each triplet
CURVE = 50  # precision at k is measured for k up to this


def load_fold(classes: int, d: int, fold: int) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """X, y of the training images and X, y of the test images: CSR float32 unit rows of d visterms."""
    X, y, train = load_vectors(d, f"caltech101-{classes}", fold=fold)
    return X[train], y[train], X[~train], y[~train]


def choose(candidates: list, X: sp.csr_array, y: np.ndarray, *, n_folds: int = N_INNER_FOLDS) -> Any:
    """The candidate and number of steps with the best validation figure in the mean of the inner folds, unfitted.

    Parameters
    ----------
    candidates : list of learners
        That keep a `history_`; `n_steps` is the most that may be chosen, `pass_steps` how finely.
    X, y : training images of the outer fold
    """
    found: list[tuple[float, int | None, Any]] = []
    for candidate in candidates:
        splits = StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, y)
        if not hasattr(candidate, "n_steps"):  # it learns at once
            scores = [clone(candidate).fit(X[a], y[a]).score(X[b], y[b]) for a, b in splits]
            found.append((float(np.mean(scores)), None, candidate))
            continue
        histories = [clone(candidate).fit(X, y, validation_rows=held_out).history_ for _, held_out in splits]
        looks = [[entry for entry in history if entry["validation"] is not None] for history in histories]
        curve = np.mean([[look["validation"] for look in some] for some in looks], axis=0)
        best = 1 + curve[1:].argmax()
        found.append((curve[best], looks[0][best]["step"], candidate))
    _, n_steps, candidate = max(found, key=lambda entry: entry[0])
    return clone(candidate) if n_steps is None else clone(candidate).set_params(n_steps=n_steps)


def figures(system: Any, X: Any, y: np.ndarray) -> dict[str, Any]:
    """Test images query test images: `map`, and `precision` at 1 to `CURVE`."""
    found = evaluate_test_test(system, X, y)
    return {"map": found.mean_average_precision, "precision": found.precision_curve[:CURVE].tolist()}


def settings_of(learner: Any) -> dict[str, Any]:
    """Parameters that differ from the defaults, as JSON."""
    defaults = type(learner)().get_params()
    return {key: value for key, value in learner.get_params().items() if value != defaults[key]}
