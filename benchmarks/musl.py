"""Speed, memory and quality of MuSL: ``python -m benchmarks musl [--quick]``.

Data: as in experiments/musl.py; quality is what that experiment finds in its first ten trials, with its settings, which
are chosen on training images for each system. Without the photos: three kinds of made-up categories.
"""

import time
import tracemalloc

import numpy as np

from experiments.jobs import run_jobs
from experiments.musl import STARTS, jobs_chosen, jobs_grid, load_trial, page_found
from visterm.learners import MuSL

COMMAND = "python -m benchmarks musl"

# -- speed and memory --------------------------------------------------------------------------------------------------


def plain_least_cut(X: np.ndarray, A: np.ndarray) -> float:
    """Least cut of all stumps, feature by feature: sort, reorder A, sum it up."""
    degree, least = A.sum(axis=1), np.inf
    for column in X.T:
        order = np.argsort(column)
        inside = np.tril(A[np.ix_(order, order)], -1).sum(axis=1)
        cuts = np.cumsum(degree[order] - 2 * inside)[:-1][np.diff(column[order]) > 0]
        least = min(least, cuts.min(initial=np.inf))
    return least


def time_training(quick: bool) -> list[dict]:
    """K = 5, T = 32, all positive pairs, 1,000 negatives an example: trained and re-trained."""
    trial = load_trial(0)
    chosen = ~trial["novel"] & trial["train"]
    X, y = trial["X"][chosen], trial["y"][chosen]
    n_metrics, n_bits = 5, 8 if quick else 32
    MuSL(n_metrics=2, n_bits=1).fit(X, y)  # compiles
    A = np.random.default_rng(0).normal(size=(len(y), len(y))).astype(np.float32)
    A += A.T
    some = X[:, :: max(1, X.shape[1] // 100)]
    times, peers, walls = [], [], []
    for _ in range(1 if quick else 3):
        start = time.thread_time()
        MuSL(n_metrics=n_metrics, n_bits=n_bits, random_state=0).fit(X, y)
        times.append(time.thread_time() - start)
        start = time.thread_time()
        plain_least_cut(some, A)
        peers.append((time.thread_time() - start) * X.shape[1] / some.shape[1] * 2 * n_metrics * n_bits)
        start = time.perf_counter()
        MuSL(n_metrics=n_metrics, n_bits=n_bits, random_state=0, n_jobs=2).fit(X, y)
        walls.append(time.perf_counter() - start)
    ours, peer = float(np.median(times)), float(np.median(peers))
    additions = 2 * n_metrics * n_bits * np.count_nonzero(X) * len(y)
    return [
        {
            "name": "musl-merged20",
            "what": "MuSL trained and re-trained, 5 metrics of 32 stumps, 600 images of merged-20",
            "ours": ours,
            "two_threads_wall": float(np.median(walls)),
            "peer": peer,
            "peer_name": "NumPy, each feature sorted and A summed in its order; 100 features of one stump, scaled up",
            "ratio": peer / ours,
            "limit": f"arithmetic: {additions / 1e9:.0f} G additions of rows in the cache, at most 16 a cycle",
            "unit": "s",
            "n": len(y),
            "measured": f"median of {len(times)}, time of one thread",
            "command": COMMAND,
        }
    ]


def measure_memory(quick: bool) -> dict:
    trial = load_trial(0)
    chosen = np.flatnonzero(trial["train"])
    X, y = np.tile(trial["X"][chosen], (1 if quick else 3, 1)), np.tile(trial["y"][chosen], 1 if quick else 3)
    MuSL(n_metrics=2, n_bits=1).fit(X[:60], y[:60])
    stated = len(y) ** 2 * (5 + 5) + 24 * np.count_nonzero(X)
    tracemalloc.start()
    MuSL(n_bits=2, random_state=0).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    pairs = len(y) ** 2
    return {
        "name": "musl-memory",
        "what": "peak memory of MuSL",
        "ours": peak / 1e6,
        "stated": stated / 1e6,
        "peer": pairs * (8 + 8 + 8 + 8 * 5) / 1e6,
        "peer_name": "a list of all pairs: two int64, a weight and K distances in double precision",
        "ratio": pairs * (8 + 8 + 8 + 8 * 5) / peak,
        "limit": f"stated: n^2 (5 + K) + 24 nnz bytes = {stated / 1e6:.0f} MB",
        "unit": "MB",
        "n": len(y),
        "measured": f"tracemalloc, {len(y)} images",
        "command": COMMAND,
    }


# -- quality -----------------------------------------------------------------------------------------------------------


def compare_quality(quick: bool) -> list[dict]:
    grid = run_jobs("musl", jobs_grid(quick))
    settings, voters = jobs_chosen(grid)
    asked = [("one metric", 1), *((system, k) for k in (5, 3) for system in ("joint", "k-means")), ("random", 5)]
    n_trials = 1 if quick else 10
    trials = [
        {"trial": trial, "system": system, "n_metrics": k, "settings": settings[system]}
        for system, k in [*asked, (STARTS, 3)]
        for trial in range(n_trials)
    ]
    found = page_found(run_jobs("musl", trials), settings, voters)
    common = {"n": n_trials, "measured": f"{n_trials} trials", "command": COMMAND}
    ours = float(np.mean(found["joint", 5]["accuracy"]))
    records = []
    for name, system, k in (("k1", "one metric", 1), ("kmeans", "k-means", 5), ("random", "random", 5)):
        peer = float(np.mean(found[system, k]["accuracy"]))
        records.append(
            {
                "name": f"musl-k5-{name}",
                "what": "accuracy of 5 metrics with joint grouping, merged-20",
                "ours": ours,
                "peer": peer,
                "points": ours - peer,
                "peer_name": "one metric" if k == 1 else f"{system} grouping, 5 metrics",
                "ratio": ours / peer,
                "unit": f"% right, {voters}-NN",
                "limit": "100",
                **common,
            }
        )
    best, one, means = (np.array(found[system, 3]["sourced"]) for system in (STARTS, "joint", "k-means"))
    records.append(
        {
            "name": "musl-k3-sources",
            "what": "trials whose 3 groups are the 3 sources but for at most 2 of 20 categories, best of 5 starts",
            "ours": int((best >= 18).sum()),
            "peer": int((means >= 18).sum()),
            "peer_name": "k-means grouping",
            "exactly": int((best == 20).sum()),
            "one_start": int((one >= 18).sum()),
            "ratio": float((best >= 18).sum() / max((means >= 18).sum(), 1)),
            "unit": "trials",
            "limit": f"all {n_trials} trials",
            **common,
        }
    )
    return records


def run(quick: bool = False) -> list[dict]:
    return [*time_training(quick), measure_memory(quick), *compare_quality(quick)]
