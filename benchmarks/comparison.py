"""The systems that the papers compared OASIS with: ``python -m benchmarks comparison [--quick]``.

The protocol of Chechik et al. (JMLR 11, 2010, figure 2 and table 4) on 20 classes of Caltech-101, 1,000 visterms, 40
images a class to learn from and 25 to query each other; benchmarks/vectors.py. Settings and the number of steps of our
learners are chosen by cross-validation on the training images, those of the peers are at the package's defaults but for
what `PEERS` says. Each record holds the figures of all systems; OASIS is ours, the other system is the peer.

Then speed, processor time of one thread, medians of repetitions in turns: a LEGO update against the same in NumPy, and
MCML against projected gradient until both reach the same loss.
"""

import sys
import time

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from visterm.learners import LEGO, MCML, OASIS, Cosine, TripletSampler
from visterm.learners.lego import lego_pass, lego_step
from visterm.learners.mcml import collapse_loss
from visterm.learners.online import as_rows
from visterm.learners.triplets import stream
from visterm.retrieval import evaluate_test_test

from .metric_learn_peer import learn_metric
from .oasis import cpu_time
from .peers import PeerError
from .vectors import load_vectors

COMMAND = "python -m benchmarks comparison"
D = 1000
N_FOLDS = 3

# Settings to choose among, and the most steps; the best number of steps comes out of the validation figures.
CANDIDATES = {
    "OASIS": [OASIS(C=C, n_steps=200_000, pass_steps=20_000, random_state=0) for C in (0.01, 0.03, 0.1)],
    "LEGO": [LEGO(eta=eta, n_steps=40_000, pass_steps=5_000, random_state=0) for eta in (0.02, 0.08, 0.32)],
    "MCML": [MCML(trace_penalty=penalty, n_steps=20, pass_steps=10) for penalty in (0.001, 0.002, 0.004, 0.008)],
}
# metric-learn's LMNN takes seconds for an iteration at d = 1,000, and more the more images lie within its margin of 1:
# unscaled, nearly all do. Its ITML takes seconds for a hundred constraints there; 200 principal components leave time
# for ten sweeps.
PEERS = {
    "LMNN": {"max_iter": 15, "learn_rate": 2.5e-7, "scale": 10},
    "ITML": {"max_iter": 10, "n_components": 200, "random_state": 0},
    "NCA": {"max_iter": 20},
}
PEER_SECONDS = 300


class Linear:
    """Images mapped by a matrix, ranked by Euclidean distance."""

    def __init__(self, components: np.ndarray) -> None:
        self.components = components.astype(np.float32)

    def transform_query(self, Q):
        Z = np.asarray(Q @ self.components.T)
        return np.hstack([2 * Z, np.ones((len(Z), 1), np.float32)])

    def transform(self, X, y=None):
        Z = np.asarray(X @ self.components.T)
        return np.hstack([Z, -(Z * Z).sum(axis=1, keepdims=True)])


def choose(candidates: list, X: sp.csr_array, y: np.ndarray):
    """The candidate and number of steps with the best validation figure in the mean of the folds."""
    found = []
    for candidate in candidates:
        splits = StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y)
        histories = [clone(candidate).fit(X, y, validation_rows=held_out).history_ for _, held_out in splits]
        curve = np.mean([[entry["validation"] for entry in history] for history in histories], axis=0)
        best = 1 + curve[1:].argmax()
        found.append((curve[best], histories[0][best]["step"], candidate))
    _, n_steps, candidate = max(found, key=lambda entry: entry[0])
    return clone(candidate).set_params(n_steps=n_steps)


def figures(system, X, y, seconds: float, settings: dict) -> dict:
    found = evaluate_test_test(system, X, y)
    return {
        "map": found.mean_average_precision,
        "precision_at": {k: found.precision_at(k) for k in (1, 10)},
        "train_seconds": seconds,
        "settings": settings,
    }


def compare_quality(quick: bool) -> list[dict]:
    X, y, train = load_vectors(D)
    test, test_y = X[~train], y[~train]
    systems = {"cosine": figures(Cosine().fit(X), test, test_y, 0.0, {})}
    for name, candidates in CANDIDATES.items():
        learner = choose(candidates[1:2] if quick else candidates, X[train], y[train])
        start = time.perf_counter()
        learner.fit(X[train], y[train])
        seconds = time.perf_counter() - start
        defaults = type(learner)().get_params()
        settings = {key: value for key, value in learner.get_params().items() if value != defaults[key]}
        systems[name] = figures(learner, test, test_y, seconds, settings)
    for name, parameters in PEERS.items():
        if quick and name != "NCA":
            continue
        try:
            components, seconds = learn_metric(name.lower(), X[train], y[train], timeout=PEER_SECONDS, **parameters)
        except PeerError as error:
            print(f"{name} is left out: {error}", file=sys.stderr)
            continue
        systems[name] = figures(Linear(components), test, test_y, seconds, parameters)
    ours = systems["OASIS"]["map"]
    return [
        {
            "name": f"oasis-vs-{name.lower()}",
            "ours": ours,
            "peer": found["map"],
            "peer_name": name,
            "ratio": ours / found["map"],
            "limit": "1.0: every image of the query's class first",
            "unit": "mAP",
            "n": len(test_y),
            "command": COMMAND,
            "systems": {"OASIS": systems["OASIS"], name: found},
        }
        for name, found in systems.items()
        if name != "OASIS"
    ]


def numpy_pass(X: np.ndarray, triplets: np.ndarray, eta: float, A: np.ndarray) -> None:
    """LEGO as one would write it down in NumPy: dense vectors, one rank-one step after the other."""
    for query, positive, negative in triplets:
        u, v = X[query] - X[positive], X[query] - X[negative]
        Au, Av = A @ u, A @ v
        a, b, c = u @ Au, v @ Av, u @ Av
        if 1 + a - b <= 0:
            continue
        t, det = lego_step(a, b, c, eta, 1.0)
        A -= np.outer(t / (1 + t * a) * Au, Au)
        Av -= t * c / (1 + t * a) * Au
        A += np.outer(t * (1 + t * a) / det * Av, Av)


def time_lego(quick: bool) -> dict:
    """From the identity on, where nearly every triplet is an update."""
    X, y, train = load_vectors(D)
    rows, dense = as_rows(X[train]), X[train].toarray()
    sampler, eta = TripletSampler(y[train]), 0.02
    n_steps, repeats = (100, 2) if quick else (300, 7)
    passes = {
        "ours": lambda k, A: lego_pass(rows, sampler.draw(stream(k), n_steps), eta, 1.0, A),
        "peer": lambda k, A: numpy_pass(dense, sampler.draw(stream(k), n_steps), eta, A),
    }
    with threadpool_limits(1):
        times = [[cpu_time(run, k, np.eye(D, dtype=np.float32)) for run in passes.values()] for k in range(repeats + 1)]
    ours, peer = 1e6 * np.median(times[1:], axis=0) / n_steps  # the first round compiles
    return {
        "name": "lego-1000",
        "ours": ours,
        "peer": peer,
        "peer_name": "the same steps in NumPy, single precision",
        "ratio": peer / ours,
        "limit": "arithmetic and cache: d^2 entries of A read and written once",
        "unit": "us per triplet",
        "n": n_steps * repeats,
        "command": COMMAND,
    }


def projected_gradient(X, y, penalty: float, target: float, seconds: float) -> tuple[float, float]:
    """The paper's MCML: steps in A, projected on the cone, each halved until it lowers f. Seconds, and f reached."""
    same = y[:, None] == y
    np.fill_diagonal(same, False)
    p0 = same / same.sum(axis=1, keepdims=True)
    constant = np.log(same.sum(axis=1)).mean()

    def f(A):
        XA = X @ A
        own = np.einsum("ij,ij->i", XA, X)
        distances = own[:, None] + own - 2 * XA @ X.T
        np.fill_diagonal(distances, np.inf)
        nearest = distances.min(axis=1, keepdims=True)
        p = np.exp(nearest - distances)
        total = p.sum(axis=1, keepdims=True)
        np.fill_diagonal(distances, 0)
        loss = ((p0 * distances).sum(axis=1, keepdims=True) + np.log(total) - nearest).mean() - constant
        W = (p0 - p / total) / len(X)
        S = W + W.T
        gradient = X.T @ (S.sum(axis=1)[:, None] * X - S @ X)
        return loss + penalty * np.trace(A), gradient + penalty * np.eye(len(A))

    start = time.thread_time()
    A, step = np.eye(X.shape[1]), 1.0
    value, gradient = f(A)
    while value > target and time.thread_time() - start < seconds:
        values, vectors = scipy.linalg.eigh(A - step * gradient)
        kept = values > 0
        proposal = (vectors[:, kept] * values[kept]) @ vectors[:, kept].T
        found, slope = f(proposal)
        if found < value:
            A, value, gradient, step = proposal, found, slope, 1.5 * step
        else:
            step /= 2
    return time.thread_time() - start, value


def time_mcml(quick: bool) -> dict:
    X, y, train = load_vectors(D)
    X, y, penalty = X[train], y[train], 0.003
    # How low it goes, and then how long both take to come within 1e-3 of that.
    lowest = MCML(trace_penalty=penalty, n_steps=60).fit(X, y).history_[-1]["loss"]
    target, limit = lowest + 1e-3, 10 if quick else 120
    classes = np.unique(y, return_inverse=True)[1]

    def ours() -> None:
        reached = []

        def look(learner) -> None:
            reached.append(learner.history_[-1]["loss"])
            if reached[-1] <= target:
                raise StopIteration

        try:
            MCML(trace_penalty=penalty, n_steps=60, pass_steps=5).fit(X, y, callback=look)
        except StopIteration:
            return
        raise RuntimeError(f"MCML stopped at {reached[-1]}, short of {target}")

    with threadpool_limits(1):
        seconds = np.median([cpu_time(ours) for _ in range(1 if quick else 3)])
        peer, value = projected_gradient(X.toarray().astype(float), classes, penalty, target, limit)
    note = "" if value <= target else f", stopped {value - target:.2g} short of it"
    evaluation = cpu_time(collapse_loss, np.eye(D), sp.csr_array(X, dtype=float), classes, penalty)
    return {
        "name": "mcml-1000",
        "ours": seconds,
        "peer": peer,
        "peer_name": f"projected gradient in NumPy to the same loss{note}",
        "ratio": peer / seconds,
        "limit": f"arithmetic: matrix products, {evaluation:.2g} s an evaluation",
        "unit": "s",
        "n": len(y),
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    return [time_lego(quick), time_mcml(quick), *compare_quality(quick)]
