"""Speed, memory and quality of OASIS on visterm vectors: ``python -m benchmarks oasis [--quick]``.

Vectors: 20 classes of Caltech-101, see benchmarks/vectors.py.

Times are processor time of the single learning thread, medians of repetitions taken in turns with the peer's.
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from numba import njit
from threadpoolctl import threadpool_limits

from visterm.learners import OASIS, Cosine, TripletSampler
from visterm.learners.blocks import block_size
from visterm.learners.draws import stream
from visterm.learners.oasis import _learn, oasis_pass
from visterm.learners.rows import as_rows, dense_rows
from visterm.learners.validation import mean_average_precision

from . import machine
from .vectors import ROOT, dense_vectors, load_vectors

COMMAND = "python -m benchmarks oasis"
PAIRS = OASIS().pairs_per_query
# Chosen by cross-validation on the training images: docs/learners.md.
SETTINGS = {1000: {"C": 0.03, "n_steps": 240_000}, 10_000: {"C": 0.1, "n_steps": 1_000_000}}
ONE_PAIR = {1000: {"C": 0.03, "n_steps": 150_000}, 10_000: {"C": 0.3, "n_steps": 200_000}}  # the same, one pair a query


@njit(cache=True, nogil=True)
def plain_pass(rows, data, triplets, C, W):
    """The paper's figure 1 as a plain loop: double precision, p+ and p- separately."""
    indptr, indices, _, norms = rows
    violating = 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        loss = 1.0
        for i in range(indptr[query], indptr[query + 1]):
            for j in range(indptr[positive], indptr[positive + 1]):
                loss -= data[i] * W[indices[i], indices[j]] * data[j]
        for i in range(indptr[query], indptr[query + 1]):
            for j in range(indptr[negative], indptr[negative + 1]):
                loss += data[i] * W[indices[i], indices[j]] * data[j]
        if loss <= 0.0:
            continue
        violating += 1
        # |p+ - p-|^2 = |p+|^2 + |p-|^2 - 2 p+' p-
        norm = 0.0
        for j in range(indptr[positive], indptr[positive + 1]):
            norm += data[j] ** 2
        for j in range(indptr[negative], indptr[negative + 1]):
            norm += data[j] ** 2
        i, j = indptr[positive], indptr[negative]
        while i < indptr[positive + 1] and j < indptr[negative + 1]:
            if indices[i] < indices[j]:
                i += 1
            elif indices[i] > indices[j]:
                j += 1
            else:
                norm -= 2 * data[i] * data[j]
                i += 1
                j += 1
        norm *= norms[query]
        if norm <= 0.0:
            continue
        tau = min(C, loss / norm)
        for i in range(indptr[query], indptr[query + 1]):
            for j in range(indptr[positive], indptr[positive + 1]):
                W[indices[i], indices[j]] += tau * data[i] * data[j]
        for i in range(indptr[query], indptr[query + 1]):
            for j in range(indptr[negative], indptr[negative + 1]):
                W[indices[i], indices[j]] -= tau * data[i] * data[j]
    return violating


def cpu_time(function, *arguments) -> float:
    start = time.thread_time()
    function(*arguments)
    return time.thread_time() - start


def elapsed(function, *arguments) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def time_order(quick: bool) -> dict:
    """What neighbouring columns for visterms that occur together save, in cache misses of W."""
    X, y, train = load_vectors(10_000)
    shuffled = X[:, np.random.default_rng(0).permutation(X.shape[1])]
    shuffled.sort_indices()
    rows, mixed, sampler = as_rows(X[train]), as_rows(shuffled[train]), TripletSampler(y[train])
    n_steps, repeats = (5_000, 3) if quick else (20_000, 9)
    W, mixed_W = (np.eye(X.shape[1], dtype=np.float32) for _ in range(2))
    oasis_pass(rows, sampler.draw(stream(0), 10), 0.1, False, W)
    times = []
    for k in range(repeats + 1):
        triplets = sampler.draw(stream(k), n_steps)
        times.append(
            [
                cpu_time(oasis_pass, rows, triplets, 0.1, False, W),
                cpu_time(oasis_pass, mixed, triplets, 0.1, False, mixed_W),
            ]
        )
    ours, peer = 1e6 * np.median(times[1:], axis=0) / n_steps
    lines = [cache_lines(vectors[train], y[train]) for vectors in (X, shuffled)]
    return {
        "name": "oasis-10000-order",
        "what": "OASIS, 10000 visterms: visterms that occur together are neighbours; learning alone",
        "ours": ours,
        "peer": peer,
        "peer_name": "visterms in any order",
        "ratio": peer / ours,
        "limit": f"a ratio of {lines[1] / lines[0]:.2f}: {lines[1]:.0f} lines of W a triplet become {lines[0]:.0f}",
        "unit": "us per triplet",
        "n": n_steps * repeats,
        "measured": f"{n_steps} triplets, median of {repeats} in turns, 1 thread each, processor time",
        "command": COMMAND,
    }


def time_triplets(name: str, what: str, X, y, quick: bool) -> list[dict]:
    """A triplet at the default number of pairs, at one pair, and of the plain loop; on two threads beside one."""
    rows, sampler, d = as_rows(sp.csr_array(X)), TripletSampler(y), X.shape[1]
    data = rows[2].astype(np.float64)
    few = 1_000 if d * len(rows[2]) / len(y) > 1e6 else 20_000  # of what is slow here
    n_steps, few, repeats = (6_400, few // 10, 3) if quick else (128_000, few, 7)
    W, one_W, plain_W = np.eye(d, dtype=np.float32), np.eye(d, dtype=np.float32), np.eye(d)

    def learn(k: int, pairs: int, n: int, W: np.ndarray, run=map) -> None:
        size = block_size(rows, d, pairs)
        _learn(rows, sampler.draw_pass((k,), 0, n, pairs_per_query=pairs), (0.1, None, size), W, run)

    passes = {
        "ours": (n_steps, lambda k: learn(k, PAIRS, n_steps, W)),
        "one": (few, lambda k: learn(k, 1, few, one_W)),
        "plain": (few, lambda k: plain_pass(rows, data, sampler.draw(stream(k), few), 0.1, plain_W)),
    }
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(2) as pool:
        # The first round compiles and touches W; later ones continue from its W, as a long run does.
        times = np.array([[cpu_time(run, k) / n for n, run in passes.values()] for k in range(repeats + 1)])[1:]
        turns = [[elapsed(learn, k, PAIRS, n_steps, W, run) for run in (pool.map, map)] for k in range(repeats)]
    ours, one, plain = 1e6 * np.median(times, axis=0)
    two, alone = 1e6 * np.median(turns, axis=0) / n_steps
    entries = len(rows[2]) / len(y)
    if dense_rows(rows, d) is None:
        moved = 3 * 4 * entries * d / PAIRS
        speed = machine.memory_bandwidth(1) if d > 1000 else machine.cache_bandwidth(4 << 20)
        bound, why = 1e6 * moved / speed, f"{moved / 1e3:.3g} kB of rows of W, read, and read and written"
    else:
        bound, why = (
            1e6 * 4 * d * d / PAIRS / machine.flops(1),
            f"4 d^2 operations of matrix products for {PAIRS} pairs",
        )
    common = {"unit": "us per triplet", "command": COMMAND, "entries": entries, "pairs_per_query": PAIRS}
    peer = {"peer": plain, "peer_name": "plain double-precision loop of the paper, Numba"}
    measured = f"{n_steps:,} triplets, {few:,} of the peer, median of {repeats} in turns, 1 thread, processor time"
    return [
        {
            "name": name,
            "what": f"a triplet of OASIS, {what}, {entries:.0f} non-zeros, {PAIRS} pairs a query",
            "ours": ours,
            "ratio": plain / ours,
            "limit": f"{bound:.2g} us: {why}",
            "bound": bound,
            "n": n_steps * repeats,
            "measured": measured,
            **peer,
            **common,
        },
        {
            "name": f"{name}-one-pair",
            "what": f"the same, {what}, one pair a query",
            "ours": one,
            "ratio": plain / one,
            "limit": "lines of W in random order, or its whole for a block of queries",
            "n": few * repeats,
            "measured": measured,
            **peer,
            **common,
            "pairs_per_query": 1,
        },
        {
            "name": f"{name}-2cores",
            "what": f"the same on two threads, {what}, {PAIRS} pairs a query",
            "ours": two,
            "peer": alone,
            "peer_name": "one thread",
            "ratio": alone / two,
            "limit": f"{bound / 2:.2g} us: half",
            "n": n_steps * repeats,
            "measured": f"{n_steps:,} triplets, median of {repeats} in turns, elapsed time",
            **common,
        },
    ]


def time_fit(quick: bool) -> dict:
    """`fit` from the start, which touches W for the first time."""
    X, y, train = load_vectors(10_000)
    X, y = X[train], y[train]
    rows, sampler = as_rows(X), TripletSampler(y)
    data, n_steps, repeats = rows[2].astype(np.float64), 10_000 if quick else 100_000, 2 if quick else 5

    def plain() -> None:
        plain_pass(rows, data, sampler.draw(stream(0), n_steps), 0.1, np.eye(X.shape[1]))

    learner = OASIS(n_steps=n_steps, random_state=0)
    times = [[cpu_time(learner.fit, X, y), cpu_time(plain)] for _ in range(repeats + 1)][1:]
    ours, peer = np.median(times, axis=0)
    return {
        "name": "oasis-10000-fit",
        "what": f"fit of {n_steps:,} triplets from the start, 10000 visterms",
        "ours": ours,
        "peer": peer,
        "peer_name": "plain double-precision loop of the paper, Numba, from its start",
        "ratio": peer / ours,
        "limit": "the triplets, and the first touch of 400 MB",
        "unit": "s",
        "n": repeats,
        "measured": f"median of {repeats} in turns, 1 thread each, processor time",
        "command": COMMAND,
    }


def cache_lines(X, y, n: int = 300) -> float:
    """Mean number of 64-byte lines of a row-major float32 W that one triplet touches."""
    columns = [X.indices[start:end] for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    triplets = zip(*TripletSampler(y).sample(n), strict=True)
    return np.mean([len(columns[q]) * len(np.unique(np.r_[columns[a], columns[b]] // 16)) for q, a, b in triplets])


def quality(learner, X, y) -> float:
    return mean_average_precision(learner.similarity(X, X), y[:, None] == y, np.arange(len(y)))


def compare_quality(d: int, quick: bool) -> list[dict]:
    """Mean average precision of test images among each other; means over seeds."""
    X, y, train = load_vectors(d)
    test, test_y = X[~train], y[~train]
    seeds = range(1 if quick else 3)
    found = {}
    for pairs, settings in ((1, ONE_PAIR[d]), (PAIRS, SETTINGS[d])):
        params = settings | {"pairs_per_query": pairs} | ({"n_steps": 20_000} if quick else {})
        learners = [OASIS(random_state=seed, **params).fit(X[train], y[train]) for seed in seeds]
        found[pairs] = np.mean([quality(learner, test, test_y) for learner in learners])
    cosine = quality(Cosine().fit(X), test, test_y)
    measured = f"20 classes, {train.sum()} images learned from, {len(test_y)} queries, mean of {len(seeds)} seeds"
    common = {"unit": "mAP", "n": len(test_y), "measured": measured, "command": COMMAND}
    records = [
        {
            "name": f"oasis-map-{d}",
            "what": f"OASIS, {d} visterms",
            "ours": found[PAIRS],
            "peer": cosine,
            "peer_name": "cosine",
            "ratio": found[PAIRS] / cosine,
            "limit": "1.0: every image of the query's class first",
            **common,
        }
    ]
    if d == 10_000:
        records.append(
            {
                "name": "oasis-pairs-map",
                "what": f"OASIS, {d} visterms, {PAIRS} pairs a query",
                "ours": found[PAIRS],
                "peer": found[1],
                "peer_name": f"1 pair a query, {ONE_PAIR[d]['n_steps']:,} triplets (ours: {SETTINGS[d]['n_steps']:,})",
                "ratio": found[PAIRS] / found[1],
                "limit": "1: more triplets, of fewer queries, in less time",
                **common,
            }
        )
    return records


MEMORY_PROGRAM = """
import resource, sys
from pathlib import Path
import numpy as np
from benchmarks.vectors import load_vectors
from visterm.learners import OASIS
d, n_steps = int(sys.argv[1]), int(sys.argv[2])
X, y, train = load_vectors(d)
OASIS(n_steps=10, validation_fraction=0.2, random_state=0).fit(X[train][:, :100], y[train])
def peak():
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts the parent's memory in ru_maxrss
        return 1024 * int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
OASIS(n_steps=n_steps, validation_fraction=0.2, patience=None, refit=False, random_state=0).fit(X[train], y[train])
print((peak() - before) / (4 * d * d))
"""


def measure_memory(d: int, quick: bool) -> dict:
    """Peak of a process that learns with early stopping, in copies of W."""
    n_steps = 10_000 if quick else 100_000
    command = [sys.executable, "-c", MEMORY_PROGRAM, str(d), str(n_steps)]
    copies = float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return {
        "name": "oasis-memory",
        "what": f"OASIS with early stopping, {d} visterms",
        "ours": copies,
        "peer": 4.0,
        "peer_name": "W and the best W in double precision",
        "ratio": 4.0 / copies,
        "limit": "2: W and the best W, float32",
        "unit": "copies of W",
        "n": n_steps,
        "measured": f"peak of a process, {n_steps} triplets",
        "copy_mb": 4 * d * d / 1e6,
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    records = []
    for name, what, (X, y, train) in (
        ("oasis-1000", "d = 1,000", load_vectors(1000)),
        ("oasis-10000", "d = 10,000", load_vectors(10_000)),
        ("oasis-10000-large", "d = 10,000, photos of 500 pixels", load_vectors(10_000, "caltech101-38", longest=500)),
        ("oasis-dense", "dense vectors, d = 1,280", dense_vectors()),
    ):
        records += time_triplets(name, what, X[train], y[train], quick)
    records += [time_fit(quick), time_order(quick)]
    records += [*compare_quality(1000, quick), *compare_quality(10_000, quick)]
    return [*records, measure_memory(10_000, quick)]
