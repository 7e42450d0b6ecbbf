"""Processor time of training, on images of Caltech-101 and on synthetic ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from benchmarks.metric_learn_peer import learn_metric
from benchmarks.peers import PeerError
from visterm.learners import AROMA, LEGO, MCML, OASIS, WSABIE

from .protocol import load_fold
from .retrieval import PEER_SECONDS, PEERS

LEARNERS: dict[str, Any] = {
    "OASIS": OASIS,
    "AROMA diagonal": AROMA,
    "AROMA factored": AROMA,
    "WSABIE": WSABIE,
    "MCML": MCML,
    "LEGO": LEGO,
}


MOST_REPEATS, ENOUGH_SECONDS = 3, 3.0


def synthetic_images(n: int, d: int) -> tuple[sp.csr_array, np.ndarray]:
    """Unit rows of about 25 visterms, half of them from those preferred by the row's class of 40 images."""
    rng = np.random.default_rng(0)
    y = np.arange(n) // 40
    preferred = rng.integers(0, d, (y[-1] + 1, 12))
    own = np.take_along_axis(preferred[y], rng.integers(0, 12, (n, 14)), axis=1)
    columns = np.hstack([own, rng.integers(0, d, (n, 14))])
    rows = np.repeat(np.arange(n), columns.shape[1])
    X = sp.csr_array((0.2 + rng.random(columns.size), (rows, columns.ravel())), shape=(n, d))
    return normalize(X).astype(np.float32), y


def measure(
    system: str,
    settings: dict[str, Any],
    classes: int | None = None,
    fold: int | None = None,
    images: int | None = None,
    d: int = 1000,
    stops: bool = False,
    edges: Sequence[str] = (),
) -> dict[str, Any]:
    """Processor seconds of a few calls of `fit`; for LMNN, of one call of the package's `fit`.

    With `stops`, of a fit that early stopping ends, and the step at which it ended. `edges`, settings that were chosen
    at the edge of those tried, go into the results as they are.
    """
    if images is None:
        X, y, _, _ = load_fold(classes, d, fold)
    else:
        X, y = synthetic_images(images, d)
    if system in PEERS:
        try:
            return {"times": [learn_metric(system.lower(), X, y, timeout=PEER_SECONDS, threads=1, **settings)[1]]}
        except PeerError as error:
            return {"times": [], "failed": str(error)}
    learner = LEARNERS[system](**settings)
    # Compiles, unless done already.
    LEARNERS[system](**settings | {"n_steps": 1}).fit(X, y)
    times: list[float] = []
    while len(times) < MOST_REPEATS and sum(times) < ENOUGH_SECONDS:
        start = time.process_time()
        learner.fit(X, y)
        times.append(time.process_time() - start)
    found = {"times": times, "violating": learner.history_[-1]["violating"]}
    return found | {"ended": learner.history_[-1]["step"], "best": learner.best_step_} if stops else found
