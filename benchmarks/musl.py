"""Speed and memory of MuSL: ``python -m benchmarks musl [--quick]``.

Data: benchmarks/musl_data.py. Quality: ``python -m experiments.studies musl``.
"""

import numpy as np

from visterm.learners import MuSL

from .musl_data import load_trial
from .processes import traced_memory
from .records import ELAPSED, compared, in_turns, record


def plain_least_cut(X: np.ndarray, A: np.ndarray) -> float:
    """Least cut of all stumps, feature by feature: sort, reorder A, sum it up."""
    degree, least = A.sum(axis=1), np.inf
    for column in X.T:
        order = np.argsort(column)
        inside = np.tril(A[np.ix_(order, order)], -1).sum(axis=1)
        cuts = np.cumsum(degree[order] - 2 * inside)[:-1][np.diff(column[order]) > 0]
        least = min(least, cuts.min(initial=np.inf))
    return least


def time_training(quick: bool) -> dict:
    """K = 5, T = 32, all positive pairs, 1,000 negatives an example: trained and re-trained."""
    trial = load_trial(0)
    chosen = ~trial["novel"] & trial["train"]
    X, y = trial["X"][chosen], trial["y"][chosen]
    n_metrics, n_bits = 5, 8 if quick else 32
    A = np.random.default_rng(0).normal(size=(len(y), len(y))).astype(np.float32)
    A += A.T
    some = X[:, :: max(1, X.shape[1] // 100)]
    rounds = 1 if quick else 3

    def train(n_jobs=None):
        MuSL(n_metrics=n_metrics, n_bits=n_bits, random_state=0, n_jobs=n_jobs).fit(X, y)

    runs = lambda _: train(), lambda _: plain_least_cut(some, A)
    ours, stump = np.median(in_turns(*runs, rounds=rounds), axis=0)
    wall = float(np.median(in_turns(lambda _: train(2), rounds=rounds, clock=ELAPSED)))
    additions = 2 * n_metrics * n_bits * np.count_nonzero(X) * len(y)
    return record(
        "musl-merged20",
        "MuSL trained and re-trained, 5 metrics of 32 stumps, 600 images of merged-20",
        "NumPy, each feature sorted and A summed in its order; 100 features of one stump, scaled up",
        f"arithmetic: {additions / 1e9:.0f} G additions of rows in the cache at most, 16 a cycle",
        compared(ours, stump * X.shape[1] / some.shape[1] * 2 * n_metrics * n_bits, "s", len(y)),
        measured=f"median of {rounds}, time of one thread",
        two_threads_wall=wall,
    )


def measure_memory(quick: bool) -> dict:
    trial = load_trial(0)
    chosen = np.flatnonzero(trial["train"])
    X, y = np.tile(trial["X"][chosen], (1 if quick else 3, 1)), np.tile(trial["y"][chosen], 1 if quick else 3)
    MuSL(n_metrics=2, n_bits=1).fit(X[:60], y[:60])
    stated = len(y) ** 2 * (5 + 5) + 28 * np.count_nonzero(X)
    _, _, peak = traced_memory(MuSL(n_bits=2, random_state=0).fit, X, y)
    pairs = len(y) ** 2
    return record(
        "musl-memory",
        "peak memory of MuSL",
        "a list of all pairs: two int64, a weight and K distances in double precision",
        f"stated: n^2 (5 + K) + 28 nnz bytes = {stated / 1e6:.0f} MB",
        compared(peak / 1e6, pairs * (8 + 8 + 8 + 8 * 5) / 1e6, "MB", len(y)),
        measured=f"tracemalloc, {len(y)} images",
        stated=stated / 1e6,
    )


def run(quick: bool = False) -> list[dict]:
    return [time_training(quick), measure_memory(quick)]
