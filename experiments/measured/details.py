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
# So many that the bound is below their number: of 2,000, it could not fail.
THEOREM_STEPS, THEOREM_C = 200_000, 0.1
THEOREM_PASS = 10_000  # short enough for its triplets to be drawn at once


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
    C, n, size = THEOREM_C, THEOREM_STEPS, THEOREM_PASS
    learner = OASIS(C=C, n_steps=n, pass_steps=size, random_state=fold, **ONE_PAIR).fit(X, y)
    sampler, seed = learner._sampler(y, None), (learner.seed_, 0)
    triplets = np.concatenate([sampler.draw_pass(seed, i, min(size, n - i)) for i in range(0, n, size)])
    images, products = X.toarray().astype(float), (X @ X.T).toarray().astype(float)
    query, positive, negative = triplets.T
    lengths = np.diag(products)
    R2 = lengths[query] * (lengths[positive] - 2 * products[positive, negative] + lengths[negative])

    def suffered(U: np.ndarray) -> float:
        scores = images @ U @ images.T
        return float(np.maximum(0, 1 - scores[query, positive] + scores[query, negative]).sum())

    def bound(U: np.ndarray) -> float:
        far = (U**2).sum() - 2 * np.trace(U) + len(U)
        return float(max(R2.max(), 1 / C) * (far + 2 * C * suffered(U)))

    W, losses = replay(images, triplets, C)
    return {
        "mistakes": int(np.sum(losses >= 1)),
        "triplets": n,
        "astray": float(np.abs(W - learner.W_).max()),
        "identity": bound(np.eye(X.shape[1])),
        "learned": bound(W),
    }


def replay(images: np.ndarray, triplets: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray]:
    """W of OASIS after these triplets, in double precision, and the loss of each before its step."""
    W, losses = np.eye(images.shape[1]), np.zeros(len(triplets))
    entries = [np.flatnonzero(image) for image in images]
    for step, (query, positive, negative) in enumerate(triplets):
        rows, columns = entries[query], np.union1d(entries[positive], entries[negative])
        q, difference = images[query, rows], (images[positive] - images[negative])[columns]
        own = np.ix_(rows, columns)
        losses[step] = max(0.0, 1 - q @ W[own] @ difference)
        if losses[step]:
            W[own] += min(C, losses[step] / ((q @ q) * (difference @ difference))) * np.outer(q, difference)
    return W, losses
