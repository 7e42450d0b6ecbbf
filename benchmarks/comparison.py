"""Time of the systems that the papers compared OASIS with: ``python -m benchmarks comparison [--quick]``.

20 classes of Caltech-101, 1,000 visterms, 40 training and 25 test images per class; see benchmarks/vectors.py; for LEGO
also synthetic dense vectors. Processor time of one thread, medians of repetitions: a LEGO update against the same steps
with BLAS, MCML against projected gradient until both reach the same loss; and how long OASIS and metric-learn's LMNN,
ITML and NCA learn from the same images, with the mAP that they reach. `experiments` compares their quality with
settings chosen for each.
"""

import time

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from visterm.learners import MCML, OASIS, TripletSampler
from visterm.learners.draws import stream
from visterm.plugins.baselines.lego import lego_pass, lego_step
from visterm.plugins.baselines.mcml import collapse_loss
from visterm.retrieval import evaluate_test_test

from . import machine
from .aroma import dense_classes
from .metric_learn_peer import REQUIREMENTS, Linear, learn_metric
from .oasis import SETTINGS
from .peers import PeerTimeout, attempt, environment
from .records import THREAD, compared, in_turns, race, record, seconds
from .vectors import load_vectors

D = 1000

# Of metric-learn, at its defaults but for these. It gets 200 principal components: its LMNN takes seconds an iteration
# at d = 1,000, its ITML seconds for a hundred constraints.
PEERS = {"lmnn": {}, "itml": {"random_state": 0}, "nca": {}}
PEER_COMPONENTS = 200
PEER_SECONDS = 150


def time_metric_learn(method: str, quick: bool) -> dict:
    """Seconds to learn of OASIS, with the settings of its page, and of a method of metric-learn; mAP of both."""
    X, y, train = load_vectors(D)
    limit, repeats = (20, 1) if quick else (PEER_SECONDS, 5)
    oasis = OASIS(random_state=0, **SETTINGS[D]).set_params(pass_steps=SETTINGS[D]["n_steps"])
    ours = float(np.median(in_turns(lambda _: oasis.fit(X[train], y[train]), rounds=repeats)))

    def map_of(system):
        return evaluate_test_test(system, X[~train], y[~train]).mean_average_precision

    environment("metric-learn", REQUIREMENTS)  # not on the peer's time
    fields = {"ours_map": map_of(oasis)}
    try:
        given = {"n_components": PEER_COMPONENTS, "timeout": limit, "threads": 1}
        components, peer = learn_metric(method, X[train], y[train], **given, **PEERS[method])
        fields["peer_map"] = map_of(Linear(components))
        quality = f"mAP {fields['peer_map']:.3f}"
    except PeerTimeout:
        peer, fields["at_least"], quality = float(limit), True, f"stopped at the limit of {limit} s"
    return record(
        f"oasis-time-{method}",
        f"learning a similarity of {train.sum()} images, {D} visterms: OASIS, mAP {fields['ours_map']:.3f}",
        f"{method.upper()} of metric-learn, {PEER_COMPONENTS} principal components, {quality}",
        f"OASIS: {SETTINGS[D]['n_steps']:,} triplets, see oasis-1000",
        compared(ours, peer, "s", int(train.sum())),
        measured=f"median of {repeats} (peer: once), {THREAD.title}",
        **fields,
    )


def blas_pass(X: np.ndarray, triplets: np.ndarray, eta: float, A: np.ndarray) -> None:
    """LEGO as one would write it with BLAS: dense vectors, one rank-one step in place after the other."""
    for query, positive, negative in triplets:
        u, v = X[query] - X[positive], X[query] - X[negative]
        Au, Av = A @ u, A @ v
        a, b, c = u @ Au, v @ Av, u @ Av
        if 1 + a - b <= 0:
            continue
        t, det = lego_step(a, b, c, eta, 1.0)
        # A is symmetric, so that its transpose is A in the order of columns that BLAS works on in place.
        scipy.linalg.blas.sger(-t / (1 + t * a), Au, Au, a=A.T, overwrite_a=True)
        Av -= t * c / (1 + t * a) * Au
        scipy.linalg.blas.sger(t * (1 + t * a) / det, Av, Av, a=A.T, overwrite_a=True)


def time_lego(name: str, what: str, X, y, quick: bool) -> dict:
    """From the identity on, where nearly every triplet is an update."""
    dense, d = X.toarray() if sp.issparse(X) else X, X.shape[1]
    sampler, eta = TripletSampler(y), 0.02
    n_steps, repeats = (128, 2) if quick else (384, 7)
    # Products of u and v with A, where they are dense, and the sums of g g' and h h', which are symmetric.
    operations = (2 if sp.issparse(X) else 6) * d**2
    matrices = [[np.eye(d, dtype=np.float32) for _ in range(repeats + 1)] for _ in range(2)]
    with threadpool_limits(1):
        times = race(
            lambda k: lego_pass(X, sampler.draw(stream(k), n_steps), eta, 1.0, matrices[0][k]),
            lambda k: blas_pass(dense, sampler.draw(stream(k), n_steps), eta, matrices[1][k]),
            repeats,
            unit="us per triplet",
            things=n_steps,
            of=f"{n_steps} triplets from the identity on",
        )
    return record(
        name,
        f"a triplet of LEGO, {what}",
        "the same steps with BLAS (gemv, ger in place), single precision",
        f": {operations // d**2} d^2 operations at the speed of matrix products",
        times,
        bound=operations / machine.flops(1),
    )


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
        new_value, slope = f(proposal)
        if new_value < value:
            A, value, gradient, step = proposal, new_value, slope, 1.5 * step
        else:
            step /= 2
    return time.thread_time() - start, value


def time_mcml(quick: bool) -> dict:
    X, y, train = load_vectors(D)
    X, y, penalty = X[train], y[train], 0.003
    # How low it goes, and then how long both take to come within 1e-3 of that.
    lowest = MCML(trace_penalty=penalty, n_steps=60, pass_steps=20).fit(X, y).history_[-1]["loss"]
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
        repeats = 1 if quick else 3
        spent = float(np.median([seconds(ours) for _ in range(repeats)]))
        peer, value = projected_gradient(X.toarray().astype(float), classes, penalty, target, limit)
    note = "" if value <= target else f", stopped {value - target:.2g} short of it"
    evaluation = seconds(collapse_loss, np.eye(D), sp.csr_array(X, dtype=float), classes, penalty)
    return record(
        "mcml-1000",
        f"MCML of {len(y)} images, {D} visterms, to within 0.001 of its least loss",
        f"projected gradient in NumPy to the same loss{note}",
        f"arithmetic: {evaluation:.2g} s an evaluation of the loss, which takes "
        f"{2 * 2 * len(y) ** 2 * D / machine.flops(1):.2g} s at the speed of matrix products",
        compared(spent, peer, "s", len(y)),
        measured=f"median of {repeats} (peer: once), {THREAD.title}",
    )


def run(quick: bool = False) -> list[dict]:
    peers = [one for method in PEERS for one in attempt(time_metric_learn, method, quick)]
    X, y, train = load_vectors(D)
    lego = [
        time_lego("lego-1000", f"{D} visterms", X[train], y[train], quick),
        time_lego("lego-dense-1280", "dense vectors of 1280 numbers", *dense_classes(), quick),
    ]
    return [*lego, time_mcml(quick), *peers]
