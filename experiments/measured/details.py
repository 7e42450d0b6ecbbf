"""What the OASIS paper says in a sentence: LEGO's eta, the time of Dissim-OASIS, LMNN on training images, theorem 1."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.metric_learn_peer import Linear, learn_metric
from benchmarks.peers import PeerError
from visterm.learners import LEGO, OASIS, Cosine

from .protocol import ONE_PAIR, choose, figures, load_fold
from .retrieval import CANDIDATES, INNER_FOLDS

ETAS = (0.02, 0.08, 0.32)  # the paper's
PUSHES = (0.125, 0.25, 0.5)  # the paper's weights of LMNN's push term
CLASSES = {"eta": 20, "dissim": 20, "fit": 10, "theorem": 10}
LEGO_STEPS = 30_000  # at which the curves of all three are level
TIMED_STEPS = 100_000
LMNN: dict[str, Any] = {"max_iter": 30, "learn_rate": 0.01}  # of retrieval, on all components
PEER_SECONDS = 300
THEOREM_STEPS, THEOREM_C = 2000, 0.1


def measure(part: str, fold: int, **parameters: Any) -> dict[str, Any]:
    split = load_fold(CLASSES[part], 1000, fold)
    return {"eta": measure_eta, "dissim": measure_time, "fit": measure_fit, "theorem": measure_mistakes}[part](
        *split, fold=fold, **parameters
    )


def measure_eta(X: Any, y: np.ndarray, Q: Any, t: np.ndarray, *, fold: int, eta: float) -> dict[str, Any]:
    """LEGO of pairs with this eta."""
    learner = LEGO(loss="pairs", eta=eta, n_steps=LEGO_STEPS, random_state=0).fit(X, y)
    return {"map": figures(learner, Q, t)["map"]}


def measure_time(X: Any, y: np.ndarray, Q: Any, t: np.ndarray, *, fold: int, variant: str | None) -> dict[str, Any]:
    """Processor time of a step, the least of three trainings, and the share of triplets that violated at the end."""
    settings = {"C": 0.1, "variant": variant, "pass_steps": TIMED_STEPS, "random_state": fold} | ONE_PAIR
    OASIS(n_steps=1, **settings | {"pass_steps": 1}).fit(X, y)  # compiles
    seconds = []
    for _ in range(3):
        learner = OASIS(n_steps=TIMED_STEPS, **settings)
        start = time.process_time()
        learner.fit(X, y)
        seconds.append(time.process_time() - start)
    return {"step_us": 1e6 * min(seconds) / TIMED_STEPS, "violating": learner.history_[-1]["violating"]}


def measure_fit(X: Any, y: np.ndarray, Q: Any, t: np.ndarray, *, fold: int, system: str) -> dict[str, Any]:
    """mAP among the training images and among the test images; LMNN with each weight of its push term."""

    def both(learned: Any) -> dict[str, float]:
        return {"train": figures(learned, X, y)["map"], "test": figures(learned, Q, t)["map"]}

    if system == "Euclidean":
        return {"fits": {"": both(Cosine().fit(X, y))}}
    if system == "OASIS":
        chosen, edges = choose(CANDIDATES["OASIS"], X, y, n_folds=INNER_FOLDS)
        return {"fits": {"": both(chosen.fit(X, y))}, "edges": edges}
    options = LMNN | {"n_components": min(X.shape) - 1}  # all principal components
    options |= {"timeout": PEER_SECONDS, "threads": 1, "rewritten": True}
    fits = {}
    for push in PUSHES:
        try:
            fits[f"{push:g}"] = both(Linear(learn_metric("lmnn", X, y, regularization=push, **options)[0]))
        except PeerError as error:
            return {"failed": str(error)}
    return {"fits": fits}


def measure_mistakes(X: Any, y: np.ndarray, Q: Any, t: np.ndarray, *, fold: int) -> dict[str, Any]:
    """Mistakes of OASIS on its triplets, and what theorem 1 bounds them by, for two matrices U.

    The bound holds for any U: the identity, where OASIS starts, and the W that it learned from these triplets.
    """
    C, n = THEOREM_C, THEOREM_STEPS
    learner, losses = OASIS(C=C, n_steps=n, pass_steps=1, random_state=fold, **ONE_PAIR), []
    learner.fit(X, y, callback=lambda learned: losses.append(learned.history_[-1]["loss"]))
    sampler = learner._sampler(y, None)
    drawn = [sampler.draw_pass((learner.seed_, 0), i, 1, pairs_per_query=1, shard=None) for i in range(n)]
    query, positive, negative = (X[rows].toarray().astype(float) for rows in np.concatenate(drawn).T)
    difference = positive - negative
    R2 = float(((query**2).sum(axis=1) * (difference**2).sum(axis=1)).max())  # of the outer product, squared

    def bound(U: np.ndarray) -> float:
        suffered = np.maximum(0, 1 - ((query @ U) * difference).sum(axis=1)).sum()
        far = (U**2).sum() - 2 * np.trace(U) + len(U)
        return float(max(R2, 1 / C) * (far + 2 * C * suffered))

    return {
        "mistakes": int(np.sum(np.array(losses) >= 1)),
        "triplets": n,
        "identity": bound(np.eye(X.shape[1])),
        "learned": bound(learner.W_.astype(float)),
    }
