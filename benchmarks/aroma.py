"""Speed, memory and quality of AROMA on visterm vectors: ``python -m benchmarks aroma [--quick]``.

Vectors: 20 and 38 classes of Caltech-101, see benchmarks/vectors.py; and synthetic dense ones. Times are processor time
of the one thread that learns, or elapsed time where two do; medians of repetitions taken in turns with the peer's.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from numba import njit
from threadpoolctl import threadpool_limits

from visterm.learners import AROMA, OASIS, TripletSampler
from visterm.learners.aroma import _PENDING, diagonal_pass, factored_pass, fold
from visterm.learners.draws import stream
from visterm.learners.oasis import oasis_pass
from visterm.learners.rows import as_rows

from . import machine
from .photos import quality
from .processes import in_own_process, peak_memory
from .records import ELAPSED, THREAD, compared, fit_seconds, in_turns, record, seconds, timed
from .vectors import load_vectors

R = 1.0
# OASIS's C with the best mAP after 100,000 triplets: cross-validation of experiments/studies/aroma.py.
TUNED_C = 1.0


@njit(cache=True, nogil=True)
def direct_pass(indptr, indices, data, triplets, r, W, Lambda, Omega):
    """The paper's figure 2 as a plain loop: three dense rank-1 updates for each violating triplet."""
    d = len(W)
    p, s, t = np.zeros(d, W.dtype), np.zeros(d, W.dtype), np.zeros(d, W.dtype)
    steps = np.empty(3, W.dtype)  # of W, Omega and Lambda; in an array, which keeps their precision
    violating = 0
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        p[:] = 0
        for j in range(indptr[positive], indptr[positive + 1]):
            p[indices[j]] += data[j]
        for j in range(indptr[negative], indptr[negative + 1]):
            p[indices[j]] -= data[j]
        columns = np.flatnonzero(p)
        loss = 1.0
        for i in range(indptr[query], indptr[query + 1]):
            for j in columns:
                loss -= data[i] * W[indices[i], j] * p[j]
        if loss <= 0:
            continue
        violating += 1
        s[:], t[:] = 0, 0
        for i in range(indptr[query], indptr[query + 1]):
            for j in range(d):
                s[j] += data[i] * Lambda[indices[i], j]
        for i in columns:
            for j in range(d):
                t[j] += p[i] * Omega[i, j]
        a, b = 0.0, 0.0
        for i in range(indptr[query], indptr[query + 1]):
            a += data[i] * s[indices[i]]
        for i in columns:
            b += p[i] * t[i]
        steps[0], steps[1], steps[2] = loss / (r + a * b), a / (d * r + a * b), b / (d * r + a * b)
        for i in range(d):
            for j in range(d):
                W[i, j] += steps[0] * s[i] * t[j]
        for i in range(d):
            for j in range(d):
                Omega[i, j] -= steps[1] * t[i] * t[j]
        for i in range(d):
            for j in range(d):
                Lambda[i, j] -= steps[2] * s[i] * s[j]
    return violating


# -- speed -------------------------------------------------------------------------------------------------------------


def time_diagonal(d: int, quick: bool) -> dict:
    """Microseconds per triplet, against OASIS on the same triplets."""
    X, y, train = load_vectors(d)
    rows, sampler = as_rows(X[train]), TripletSampler(y[train])
    n_steps, repeats = (5_000, 3) if quick else (20_000, 9)
    W = np.eye(d, dtype=np.float32)
    model = np.zeros((d, d, 2), np.float32)
    model[..., 1] = 1
    model = model.reshape(d, 2 * d)
    triplets = [sampler.draw(stream(k), n_steps) for k in range(repeats + 1)]
    runs = (  # later rounds continue from the W of the first, as a long run does
        lambda k: diagonal_pass(rows, triplets[k], R, model),
        lambda k: oasis_pass(rows, triplets[k], 0.1, False, W, np.zeros(n_steps, np.float32)),
    )
    mine, oasis = 1e6 * np.median(in_turns(*runs, rounds=repeats), axis=0) / n_steps
    return record(
        f"aroma-diagonal-{d}",
        f"a triplet of AROMA, diagonal, {d} visterms",
        f"2.5 times OASIS's time, {oasis:.2f} us",
        f"OASIS's own time, W and Sigma being twice its memory: {mine / oasis:.2f} times",
        compared(mine, 2.5 * oasis, "us per triplet", n_steps * repeats),
        measured=f"{n_steps} triplets, median of {repeats} in turns, {THREAD.title}",
    )


class Factored:
    """The factored form's passes on n_threads; and what the direct updates take, on one."""

    def __init__(self, d: int):
        X, y, train = load_vectors(d)
        self.rows, self.sampler = as_rows(X[train]), TripletSampler(y[train])
        self.d = d
        self.updates = *np.empty((2, _PENDING, d), np.float32), np.empty(_PENDING, np.float32)
        self.state = self.start(np.float32)

    def start(self, dtype: type) -> tuple[np.ndarray, ...]:
        eye = np.eye(self.d, dtype=dtype)
        return np.zeros_like(eye), eye, eye.copy()

    def learn(self, k: int, n_steps: int, n_threads: int) -> int:
        """Number of updates."""
        triplets, updates = self.sampler.draw(stream(k), n_steps), 0
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
            while len(triplets):
                seen, n, _, violating = factored_pass(self.rows, triplets, R, self.state, self.updates)
                made = tuple(array[:n] for array in self.updates)
                fold(self.state, made, map if n_threads == 1 else pool.map)
                triplets, updates = triplets[seen:], updates + violating
        return updates

    def direct(self, k: int, n_steps: int, state: tuple[np.ndarray, ...]) -> int:
        indptr, indices, data, _ = self.rows
        return direct_pass(
            indptr, indices, data.astype(state[0].dtype), self.sampler.draw(stream(k), n_steps), R, *state
        )

    def product_time(self) -> float:
        """Seconds that the matrix products alone of one update take, on one thread: 4 d^2 operations."""
        with threadpool_limits(1, user_api="blas"):
            U, V, _ = self.updates
            times = [seconds(np.matmul, U.T, V) for _ in range(5)]
        return 2 * float(np.median(times)) / _PENDING


PEER = "three dense rank-1 updates, plain {}-precision loop, Numba, one core"


def update_times(runs, repeats: int) -> np.ndarray:
    """Median seconds per update of each (clock, run), in turns; a run gives the number of its updates."""
    times = []
    for k in range(repeats + 1):  # the first round compiles
        timings = [timed(run, k, clock=clock) for clock, run in runs]
        times.append([spent / updates for updates, spent in timings])
    return np.median(times[1:], axis=0)


def time_factored(quick: bool) -> list[dict]:
    """Microseconds per update at d = 1,000, against the direct rank-1 updates on one core."""
    learning = Factored(1000)
    double, single = learning.start(np.float64), learning.start(np.float32)
    n_steps, repeats = (1000, 3) if quick else (4000, 7)
    runs = (
        (THREAD, lambda k: learning.learn(k, n_steps, 1)),
        (ELAPSED, lambda k: learning.learn(k, n_steps, 2)),
        (THREAD, lambda k: learning.direct(k, n_steps // 8, double)),
        (THREAD, lambda k: learning.direct(k, n_steps // 8, single)),
    )
    one, two, of_double, of_single = 1e6 * update_times(runs, repeats)
    product = learning.product_time()
    return [
        record(
            f"aroma-factored-1000{end}",
            f"an update of AROMA, factored, 1000 visterms, {threads}",
            PEER.format(precision),
            f": 4 d^2 operations at the speed of matrix products, {threads}",
            compared(ours, peer, "us per update", n_steps * repeats),
            measured=f"{n_steps} triplets (peer {n_steps // 8}), median of {repeats} in turns, {clock}",
            bound=least,
        )
        for end, ours, peer, precision, threads, least, clock in (
            ("", one, of_double, "double", "1 thread", product, "processor time"),
            ("-2cores", two, of_double, "double", "2 threads", product / 2, "elapsed time, the peer's processor time"),
            ("-single", one, of_single, "single", "1 thread", product, "processor time"),
        )
    ]


def time_factored_large(quick: bool) -> dict:
    """Milliseconds per update at d = 10,000 on two cores, elapsed."""
    learning, n_steps, repeats = Factored(10_000), 2 * _PENDING, 1 if quick else 4
    single = learning.start(np.float32)  # in double precision the two together would take more than most machines have
    runs = (ELAPSED, lambda k: learning.learn(k, n_steps, 2)), (THREAD, lambda k: learning.direct(k, 10, single))
    ours, peer = 1e3 * update_times(runs, repeats)
    return record(
        "aroma-factored-10000",
        "an update of AROMA, factored, 10000 visterms, 2 threads",
        PEER.format("single"),
        ": 4 d^2 operations at the speed of matrix products, 2 threads",
        compared(ours, peer, "ms per update", n_steps * repeats),
        measured=f"{n_steps} triplets (peer 10), median of {repeats} in turns, elapsed time, the peer's processor time",
        bound=learning.product_time() / 2,
    )


# -- speed on dense vectors --------------------------------------------------------------------------------------------


def dense_classes(d: int = 1280, n_classes: int = 68, per_class: int = 50):
    """X (unit rows without zeros, as embeddings are) and y: classes of points about centres, behind a soft rectifier.

    The cosine of two rows ranks them with a mean average precision of 0.6.
    """
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), per_class)
    points = rng.standard_normal((n_classes, 64))[y] + 1.4 * rng.standard_normal((len(y), 64))
    hidden = points @ rng.standard_normal((64, d)) / 8 + 0.3 * rng.standard_normal((len(y), d))
    X = np.log1p(np.exp(2 * hidden))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


@njit(cache=True, nogil=True)
def plain_diagonal_pass(X, triplets, r, W, Sigma):
    """The paper's figure 1 as a plain loop, on dense vectors."""
    d = len(W)
    p = np.empty(d, W.dtype)
    for step in range(len(triplets)):
        query, positive, negative = triplets[step]
        q = X[query]
        for j in range(d):
            p[j] = X[positive, j] - X[negative, j]
        loss = 1.0
        for i in range(d):
            for j in range(d):
                loss -= q[i] * W[i, j] * p[j]
        if loss <= 0:
            continue
        v = 0.0
        for i in range(d):
            for j in range(d):
                v += Sigma[i, j] * (q[i] * p[j]) ** 2
        for i in range(d):
            for j in range(d):
                change = Sigma[i, j] * q[i] * p[j]
                W[i, j] += loss / (v + r) * change
                Sigma[i, j] -= change * change / (v + r)


def plain_pass(X: np.ndarray, triplets: np.ndarray, learner: AROMA) -> float:
    """Seconds of processor time that a plain double-precision loop takes from the learner's state on."""
    covariance = learner.covariance_ if learner.covariance == "factored" else [learner.covariance_]
    state = [np.array(matrix, np.float64) for matrix in (learner.W_, *covariance)]
    if learner.covariance == "diagonal":
        return seconds(plain_diagonal_pass, X.astype(np.float64), triplets, R, *state)
    indptr, indices, data, _ = as_rows(sp.csr_array(X))
    return seconds(direct_pass, indptr, indices, data.astype(np.float64), triplets, R, *state)


def time_dense(name: str, covariance: str, pairs: int, quick: bool) -> dict:
    """Seconds of 150,000 steps on two cores; the peer learns a few triplets from each of some states on the way."""
    X, y = dense_classes()
    d, sampler = X.shape[1], TripletSampler(y)
    n_steps, n_states, few = (10_000, 2, 20) if quick else (150_000, 6, 100)
    learner = AROMA(
        covariance=covariance, pairs_per_query=pairs, n_steps=300, init="zero", whiten=False, random_state=0, n_jobs=2
    )
    learner.fit(X, y)  # compiles
    plain_pass(X, sampler.draw(stream(0), 2), learner)
    peer = []

    def look(learner: AROMA, _) -> None:
        if learner.n_steps_ % (n_steps // n_states) == 0:
            triplets = sampler.draw_pass((1,), learner.n_steps_, few, pairs_per_query=pairs)
            peer.append(plain_pass(X, triplets, learner) / few)

    ours = fit_seconds(learner.set_params(n_steps=n_steps), X, y, look, ELAPSED)
    peer_time = n_steps * float(np.mean(peer))
    violating = float(np.mean([entry["violating"] for entry in learner.history_]))
    if covariance == "factored":
        operations = (2 + 4 / pairs + 4 * violating) * d**2
        bound, reason = n_steps * operations / machine.flops(2), "matrix products, of 2 d^2 operations each"
    else:
        sweeps = n_steps * min(violating, 1 / pairs)
        bound = sweeps * 16 * d**2 / (2 * machine.cache_bandwidth(8 * d**2))
        reason = "W and Sigma read and written once per query with a violating pair"
    per_query = "" if pairs == 1 else f"{pairs} pairs per query, "
    return record(
        name,
        f"{n_steps:,} triplets of AROMA, {covariance}, {len(y):,} dense vectors of {d} numbers, {per_query}2 threads",
        "the paper's figure as a plain double-precision loop, Numba, one core",
        f": {reason}; {violating:.0%} of the triplets violate",
        compared(ours, peer_time, "s", n_steps),
        measured=f"once, elapsed time; the peer's processor time of {few} triplets from each of {n_states} states "
        "on the way, times all triplets",
        bound=bound,
    )


DENSE = (
    ("aroma-dense-1280", "factored", 1),
    ("aroma-dense-1280-pairs", "factored", 8),
    ("aroma-dense-1280-diagonal", "diagonal", 1),
    ("aroma-dense-1280-diagonal-pairs", "diagonal", 32),
)


# -- quality -----------------------------------------------------------------------------------------------------------


def triplets_to_reach(goal: float, X, y, test, test_y, seed: int, step: int) -> int:
    """Triplets after which the mAP of the test images among each other is `goal`, to the next `step`."""
    learner = AROMA(r=R, n_steps=step, pass_steps=step, random_state=seed)
    for seen in range(step, 200_001, step):
        learner.partial_fit(X, y)
        if seen >= 10_000 and quality(learner, test, test_y) >= goal:
            return seen
    return seen


def compare_quality(quick: bool) -> list[dict]:
    """Triplets that AROMA needs for the mAP that OASIS has after 100,000; means over seeds."""
    X, y, train = load_vectors(10_000, "caltech101-38")
    X, y, test, test_y = X[train], y[train], X[~train], y[~train]
    seeds, step = ((0,), 5000) if quick else ((0, 1, 2), 1000)
    records = []
    for name, C in (("aroma-quality", 0.1), ("aroma-quality-tuned", TUNED_C)):
        goals, needed = [], []
        for seed in seeds:
            goals.append(quality(OASIS(C=C, n_steps=100_000, random_state=seed).fit(X, y), test, test_y))
            needed.append(triplets_to_reach(goals[-1], X, y, test, test_y, seed, step))
        records.append(
            record(
                name,
                f"triplets until AROMA has the mAP of OASIS with C = {C:g} after 100,000",
                f"OASIS with C = {C:g}, which then has mAP {np.mean(goals):.4f}",
                "a third of OASIS's triplets, as asked, is a ratio of 3",
                compared(float(np.mean(needed)), 100_000, "triplets", len(seeds)),
                measured=f"38 classes, 10000 visterms, to the next {step}, mean of {len(seeds)} seeds",
            )
        )
    return records


# -- memory ------------------------------------------------------------------------------------------------------------


def learning_memory(covariance: str, n_steps: int, fraction: float) -> float:
    """What learning at d = 10,000 adds to the peak of this process, in copies of W."""
    d = 10_000
    X, y, train = load_vectors(d)
    early = {"validation_fraction": fraction or None, "refit": False}
    learner = AROMA(covariance=covariance, random_state=0, n_jobs=2, **early)
    learner.set_params(n_steps=10).fit(X[train][:, :100], y[train])
    before = peak_memory()
    learner.set_params(n_steps=n_steps).fit(X[train], y[train])
    return (peak_memory() - before) / (4 * d * d)


def measure_memory(covariance: str, stated: int, n_steps: int, fraction: float) -> dict:
    """Peak of a process that learns, beside what the docstring states."""
    return record(
        "aroma-memory" if covariance == "diagonal" else "aroma-factored-memory",
        f"AROMA, {covariance}, 10000 visterms",
        f"stated in the docstring: {'state and best state' if fraction else 'no validation'}",
        f"{stated}: what is learned, in float32",
        compared(in_own_process(learning_memory, covariance, n_steps, fraction), float(stated), "copies of W", n_steps),
        measured=f"peak of a process, {n_steps} triplets",
    )


def run(quick: bool = False) -> list[dict]:
    records = [time_diagonal(1000, quick), time_diagonal(10_000, quick)]
    records += [*time_factored(quick), time_factored_large(quick)]
    records += [time_dense(*settings, quick) for settings in DENSE]
    records += compare_quality(quick)
    records.append(measure_memory("diagonal", 4, 10_000 if quick else 50_000, 0.2))
    return [*records, measure_memory("factored", 3, 300, 0.0)]
