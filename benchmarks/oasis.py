"""Speed, memory and quality of OASIS on visterm vectors: ``python -m benchmarks oasis [--quick]``.

Vectors: 20 classes of Caltech-101, see benchmarks/vectors.py.

Times are processor time of the single learning thread, medians of repetitions taken in turns with the peer's.
"""

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

from . import machine
from .photos import quality
from .processes import in_own_process, peak_memory
from .records import ELAPSED, FIRST, compared, in_turns, race, record
from .vectors import dense_vectors, load_vectors

PLAIN = "plain double-precision loop of the paper, Numba"  # plain_pass
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


def plain_learning(rows, sampler: TripletSampler, n_steps: int, d: int):
    """A run of `in_turns`: so many triplets of the plain loop, which continues from its W."""
    data, W = rows[2].astype(np.float64), np.eye(d)
    return lambda k: plain_pass(rows, data, sampler.draw(stream(k), n_steps), 0.1, W)


def time_order(quick: bool) -> dict:
    """What neighbouring columns for visterms that occur together save, in cache misses of W."""
    X, y, train = load_vectors(10_000)
    shuffled = X[:, np.random.default_rng(0).permutation(X.shape[1])]
    shuffled.sort_indices()
    sampler = TripletSampler(y[train])
    n_steps, repeats = (5_000, 3) if quick else (20_000, 9)

    triplets = [sampler.draw(stream(k), n_steps) for k in range(repeats + 1)]

    def learning(X):
        rows, W = as_rows(X[train]), np.eye(X.shape[1], dtype=np.float32)
        return lambda k: oasis_pass(rows, triplets[k], 0.1, False, W, np.zeros(n_steps, np.float32))

    lines = [cache_lines(vectors[train], y[train]) for vectors in (X, shuffled)]
    times = {"unit": "us per triplet", "things": n_steps, "of": f"{n_steps} triplets"}
    return record(
        "oasis-10000-order",
        "OASIS, 10000 visterms: visterms that occur together are neighbours; learning alone",
        "visterms in any order",
        f"a ratio of {lines[1] / lines[0]:.2f}: {lines[1]:.0f} lines of W a triplet become {lines[0]:.0f}",
        race(learning(X), learning(shuffled), repeats, **times),
    )


def time_triplets(name: str, what: str, X, y, quick: bool) -> list[dict]:
    """A triplet at the default number of pairs, at one pair, and of the plain loop; on two threads beside one."""
    rows, sampler, d = as_rows(sp.csr_array(X)), TripletSampler(y), X.shape[1]
    few = 1_000 if d * len(rows[2]) / len(y) > 1e6 else 20_000  # of what is slow here
    n_steps, few, repeats = (6_400, few // 10, 3) if quick else (128_000, few, 7)
    W = np.eye(d, dtype=np.float32)

    def learning(pairs: int, n: int, W: np.ndarray, run=map):
        """Later rounds continue from the W of the first, as a long run does."""
        size = block_size(rows, d, pairs)
        return lambda k: _learn(rows, sampler.draw_pass((k,), 0, n, pairs_per_query=pairs), (0.1, None, size), W, run)

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(2) as pool:
        one_pair, plain = learning(1, few, np.eye(d, dtype=np.float32)), plain_learning(rows, sampler, few, d)
        times = in_turns(learning(PAIRS, n_steps, W), one_pair, plain, rounds=repeats)
        two_and_one = [learning(PAIRS, n_steps, W, run) for run in (pool.map, map)]
        of = {"unit": "us per triplet", "things": n_steps, "of": f"{n_steps:,} triplets"}
        turns = race(*two_and_one, repeats, ELAPSED, **of)
    ours, one, plain_time = 1e6 * np.median(times, axis=0) / (n_steps, few, few)
    entries = len(rows[2]) / len(y)
    if dense_rows(rows, d) is None:
        moved = 3 * 4 * entries * d / PAIRS
        speed = machine.memory_bandwidth(1) if d > 1000 else machine.cache_bandwidth(4 << 20)
        bound, why = moved / speed, f"{moved / 1e3:.3g} kB of rows of W, read, and read and written"
    else:
        bound, why = 4 * d * d / PAIRS / machine.flops(1), f"4 d^2 operations of matrix products for {PAIRS} pairs"
    measured = f"{n_steps:,} triplets, {few:,} of the peer, median of {repeats} in turns, 1 thread, processor time"
    unit, more = "us per triplet", {"entries": entries, "pairs_per_query": PAIRS}
    return [
        record(
            name,
            f"a triplet of OASIS, {what}, {entries:.0f} non-zeros, {PAIRS} pairs a query",
            PLAIN,
            f": {why}",
            compared(ours, plain_time, unit, n_steps * repeats),
            measured=measured,
            bound=bound,
            **more,
        ),
        record(
            f"{name}-one-pair",
            f"the same, {what}, one pair a query",
            PLAIN,
            "lines of W in random order, or its whole for a block of queries",
            compared(one, plain_time, unit, few * repeats),
            measured=measured,
            **more | {"pairs_per_query": 1},
        ),
        record(
            f"{name}-2cores",
            f"the same on two threads, {what}, {PAIRS} pairs a query",
            "one thread",
            f"{1e6 * bound / 2:.2g} us: half",
            turns,
            **more,
        ),
    ]


def time_fit(quick: bool) -> dict:
    """`fit` from the start, which touches W for the first time."""
    X, y, train = load_vectors(10_000)
    X, y = X[train], y[train]
    rows, sampler = as_rows(X), TripletSampler(y)
    data, n_steps, repeats = rows[2].astype(np.float64), 10_000 if quick else 100_000, 2 if quick else 5
    learner = OASIS(n_steps=n_steps, random_state=0)

    def plain(_) -> None:
        plain_pass(rows, data, sampler.draw(stream(0), n_steps), 0.1, np.eye(X.shape[1]))

    return record(
        "oasis-10000-fit",
        f"fit of {n_steps:,} triplets from the start, 10000 visterms",
        f"{PLAIN}, from its start",
        "the triplets, and the first touch of 400 MB",
        race(lambda _: learner.fit(X, y), plain, repeats, unit="s"),
    )


def cache_lines(X, y, n: int = 300) -> float:
    """Mean number of 64-byte lines of a row-major float32 W that one triplet touches."""
    columns = [X.indices[start:end] for start, end in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    triplets = zip(*TripletSampler(y).sample(n), strict=True)
    return np.mean([len(columns[q]) * len(np.unique(np.r_[columns[a], columns[b]] // 16)) for q, a, b in triplets])


def compare_quality(d: int, quick: bool) -> list[dict]:
    """Mean average precision of test images among each other; means over seeds."""
    X, y, train = load_vectors(d)
    test, test_y = X[~train], y[~train]
    seeds = range(1 if quick else 3)
    maps = {}
    for pairs, settings in ((1, ONE_PAIR[d]), (PAIRS, SETTINGS[d])):
        params = settings | {"pairs_per_query": pairs} | ({"n_steps": 20_000} if quick else {})
        learners = [OASIS(random_state=seed, **params).fit(X[train], y[train]) for seed in seeds]
        maps[pairs] = np.mean([quality(learner, test, test_y) for learner in learners])
    cosine = quality(Cosine().fit(X), test, test_y)
    measured = f"20 classes, {train.sum()} images learned from, {len(test_y)} queries, mean of {len(seeds)} seeds"

    def against(name: str, what: str, peer: float, peer_name: str, limit: str) -> dict:
        figures = compared(maps[PAIRS], peer, "mAP", len(test_y), higher=True)
        return record(name, f"OASIS, {d} visterms{what}", peer_name, limit, figures, measured=measured)

    records = [against(f"oasis-map-{d}", "", cosine, "cosine", FIRST)]
    if d == 10_000:
        peer_name = f"1 pair a query, {ONE_PAIR[d]['n_steps']:,} triplets (ours: {SETTINGS[d]['n_steps']:,})"
        limit = "1: more triplets, of fewer queries, in less time"
        records.append(against("oasis-pairs-map", f", {PAIRS} pairs a query", maps[1], peer_name, limit))
    return records


def learning_memory(d: int, n_steps: int) -> float:
    """Bytes that learning with early stopping adds to the peak of this process."""
    X, y, train = load_vectors(d)
    OASIS(n_steps=10, validation_fraction=0.2, random_state=0).fit(X[train][:, :100], y[train])
    before = peak_memory()
    early = {"validation_fraction": 0.2, "patience": None, "refit": False}
    OASIS(n_steps=n_steps, random_state=0, **early).fit(X[train], y[train])
    return peak_memory() - before


def measure_memory(d: int, quick: bool) -> dict:
    """Peak of a process, in copies of W."""
    n_steps = 10_000 if quick else 100_000
    return record(
        "oasis-memory",
        f"OASIS with early stopping, {d} visterms",
        "W and the best W in double precision",
        "2: W and the best W, float32",
        compared(in_own_process(learning_memory, d, n_steps) / (4 * d * d), 4.0, "copies of W", n_steps),
        measured=f"peak of a process, {n_steps} triplets",
        copy_mb=4 * d * d / 1e6,
    )


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
