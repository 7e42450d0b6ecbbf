"""The queue of wrong labels on the photos of Corel-5K with its 260 words: ``python -m benchmarks wrong_labels``.

The peer is one of the five regressions that judge the labels, by scikit-learn, times five.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from visterm.teaching import wrong_labels

from .photos import images_of
from .records import PROCESS, compared, record, seconds

AIM = 10.0  # seconds for the photos of a collection of this size


def run(quick: bool = False) -> list[dict]:
    return [compare(kind, quick) for kind in ("visterms", "deep")]


def compare(kind: str, quick: bool) -> dict[str, Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    _, X, y, _ = images_of("corel5k", kind)
    rows = np.arange(X.shape[0])[:: 10 if quick else 1]
    X, y = X[rows], y[rows]
    ours = seconds(wrong_labels.judge_labels, X, y, clock=PROCESS)
    images, labels = (y > 0).nonzero()
    training = images % wrong_labels.N_FOLDS > 0
    regression = LogisticRegression(C=wrong_labels._INVERSE_REGULARIZATION, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        peer = seconds(regression.fit, X[images[training]], labels[training], clock=PROCESS) * wrong_labels.N_FOLDS
    return record(
        f"wrong-labels-{kind}",
        f"judging the labels of {len(rows):,} photos of Corel-5K, {y.shape[1]} words ({kind})",
        "scikit-learn's LogisticRegression, a row for each label, in five folds",
        f"{AIM:g} s were asked",
        compared(ours, peer, "s", len(labels)),
        measured="processor time; the peer's of one fold, times five",
    )
