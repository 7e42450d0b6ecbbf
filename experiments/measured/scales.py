"""AROMA and OASIS with the papers' settings on rows of other lengths than one."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.learners import AROMA, OASIS, Cosine

from .learning import precision_at_1
from .protocol import ONE_PAIR, figures, load_fold

CLASSES = 38
STEPS: dict[str, Any] = {"n_steps": 200_000, "pass_steps": 200_000} | ONE_PAIR
OF_PAPER = {"AROMA": AROMA(r=0.01, **STEPS), "OASIS": OASIS(C=0.1, **STEPS), "Euclidean": Cosine()}


def measure(system: str, d: int, scale: float, fold: int) -> dict[str, float]:
    """Precision at 1 of test images among each other, of training images likewise, and of all together."""
    X, y, Q, t = load_fold(CLASSES, d, fold)
    X, Q = ((scale * part).astype(np.float32) for part in (X, Q))
    learner = OF_PAPER[system]
    if system != "Euclidean":
        learner = learner.set_params(random_state=fold)
    learner.fit(X, y)
    found = figures(learner, Q, t)
    among = {"training": (X, y), "all": (sp.vstack([X, Q], format="csr"), np.concatenate([y, t]))}
    return {"test": found["precision"][0], "map": found["map"]} | {
        name: alone(learner, *images) for name, images in among.items()
    }


def alone(learner: Any, X: Any, y: np.ndarray) -> float:
    """Precision at 1 of images that query each other."""
    scores = learner.similarity(X, X)
    np.fill_diagonal(scores, -np.inf)
    return precision_at_1(scores, y, y)
