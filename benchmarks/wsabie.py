"""Speed, quality and memory of WSABIE beside LightFM and LinearSVC: ``python -m benchmarks wsabie [--quick]``.

Vectors: 38 classes of Caltech-101, 40 images a class to learn from, see benchmarks/vectors.py. LightFM runs in an
environment of its own (benchmarks/peers.py), on the same vectors as the features of users; items are the labels and
have no other feature.

Times are processor time of the one thread that learns, medians of repetitions taken in turns with the peer's. For
quality, each system takes the settings that were best in a five-fold cross-validation on the training images of each
split; ``python -m benchmarks.wsabie`` prints what it chose.
"""

import subprocess
import sys
import time

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from visterm.learners import WSABIE

from . import machine
from .annotators import dense_vectors
from .peers import PeerError, attempt, run_in
from .vectors import ROOT, load_vectors

COMMAND = "python -m benchmarks wsabie"
SET = "caltech101-38"
LIGHTFM = ["lightfm-next==1.19.0", "numpy==2.4.6", "scipy==1.17.1", "scikit-learn==1.9.1"]
N_COMPONENTS = 100
ENSEMBLE = [50, 100, 200]  # tried with the settings that were best for a single model

# Of WSABIE: every longest vector with every learning rate, after so many steps. Of LightFM: every rate, after so many
# epochs of 1,520 steps.
MAX_NORMS, RATES, STEPS = (0.6, 0.8, 1.0), (0.01, 0.02, 0.05), (50_000, 100_000, 200_000)
LIGHTFM_RATES, EPOCHS = (0.005, 0.01, 0.02, 0.05, 0.1), (5, 10, 20, 40, 80)
SVC_C = (0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
# Most often chosen: what the steps are timed with, from the first one to as many as LightFM then takes.
TIMED = {1000: {"max_norm": 1.0, "learning_rate": 0.01}, 10_000: {"max_norm": 0.6, "learning_rate": 0.05}}
LIGHTFM_RATE, TIMED_EPOCHS = 0.01, 40
LIGHTFM_DEFAULTS = {"rate": 0.05, "max_sampled": 10}

LIGHTFM_HEAD = """
import time
import numpy as np
import scipy.sparse as sp
from lightfm import LightFM

X = sp.csr_matrix((inputs["data"], inputs["indices"], inputs["indptr"]), shape=inputs["shape"]).astype(np.float32)
y = inputs["y"]
n_labels = int(y.max()) + 1

def make(rate, seed):
    return LightFM(
        no_components=int(inputs["n_components"]), loss="warp", learning_rate=float(rate),
        max_sampled=int(inputs["max_sampled"]), random_state=int(seed),
    )

def learn(model, rows, epochs):
    pairs = sp.coo_matrix((np.ones(len(rows), np.float32), (np.arange(len(rows)), y[rows])), (len(rows), n_labels))
    model.fit_partial(pairs, user_features=X[rows], epochs=int(epochs), num_threads=1)

def precision_at_1(model, rows):
    images = X[rows] @ model.user_embeddings
    # The bias of an image is the same for all labels.
    scores = images @ model.item_embeddings.T + model.item_biases
    return (scores.argmax(axis=1) == y[rows]).mean()
"""

LIGHTFM_TIME = (
    LIGHTFM_HEAD
    + """
rows = np.flatnonzero(inputs["train"])
learn(make(inputs["rate"], 1), rows, 1)
model = make(inputs["rate"], inputs["seed"])
start = time.thread_time()
learn(model, rows, inputs["epochs"])
outputs["seconds"] = time.thread_time() - start
outputs["precision"] = precision_at_1(model, np.flatnonzero(~inputs["train"]))
"""
)

# Rounds of images left out, the last of them the test images; precision after each number of epochs.
LIGHTFM_QUALITY = (
    LIGHTFM_HEAD
    + """
found = np.zeros((len(inputs["rates"]), len(inputs["learned"]), len(inputs["seeds"]), len(inputs["epochs"])))
for i, rate in enumerate(inputs["rates"]):
    for j, (learned, asked) in enumerate(zip(inputs["learned"], inputs["asked"])):
        for k, seed in enumerate(inputs["seeds"]):
            model, done = make(rate, seed), 0
            for m, epochs in enumerate(inputs["epochs"]):
                learn(model, np.flatnonzero(learned), epochs - done)
                done = epochs
                found[i, j, k, m] = precision_at_1(model, np.flatnonzero(asked))
outputs["found"] = found
"""
)


def arrays(X, y, train, **more):
    """A split as the scripts above take it."""
    numbers = np.unique(y, return_inverse=True)[1]
    csr = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    # Unless `more` says otherwise, as many draws as WSABIE: until one violates, at most as there are other labels.
    given = {"y": numbers, "train": train, "n_components": N_COMPONENTS, "max_sampled": numbers.max()}
    return csr | given | more


# -- speed -------------------------------------------------------------------------------------------------------------


def time_steps(d: int, quick: bool, defaults: bool = False) -> list[dict]:
    """Microseconds per step from the first step on; a step is one image and one of its labels.

    Either each with the settings most often chosen for it, and the peer draws labels as often as WSABIE does; or each
    with its own `defaults` but for the size, which for the peer are a larger learning rate and ten draws. It then soon
    has few violating labels, and most of its steps change nothing.
    """
    X, y, train = load_vectors(d, SET)
    epochs, repeats = (10, 1) if quick else (TIMED_EPOCHS, 5)
    n_steps = epochs * int(train.sum())
    settings = {} if defaults else TIMED[d]
    peer_settings = LIGHTFM_DEFAULTS if defaults else {"rate": LIGHTFM_RATE}
    learner = WSABIE(n_components=N_COMPONENTS, n_steps=n_steps, pass_steps=n_steps, **settings)
    WSABIE(n_components=N_COMPONENTS, n_steps=1, random_state=0).fit(X[train], y[train])  # compiles
    ours, peer, found, peer_found = [], [], [], []
    for seed in range(repeats):
        start = time.thread_time()
        learner.set_params(random_state=seed).fit(X[train], y[train])
        ours.append(time.thread_time() - start)
        found.append(precision_at_1(learner, X[~train], y[~train]))
        given = arrays(X, y, train, epochs=epochs, seed=seed, **peer_settings)
        outputs = run_in("lightfm", LIGHTFM, LIGHTFM_TIME, given)
        peer.append(float(outputs["seconds"]))
        peer_found.append(float(outputs["precision"]))
    ours, peer = (1e6 * np.median(seconds) / n_steps for seconds in (ours, peer))
    entries = X[train].nnz / train.sum()
    bound = 1e6 * 4 * entries * N_COMPONENTS / machine.cache_bandwidth(learner.visterm_vectors_.nbytes)
    kind = "default-" if defaults else ""
    how = ", each with its defaults" if defaults else ""
    timed = {
        "name": f"warp-{kind}{d}",
        "what": f"a step of WSABIE's WARP, {N_COMPONENTS} components, {d} visterms{how}",
        "ours": ours,
        "peer": peer,
        "peer_name": "LightFM's WARP (lightfm-next 1.19.0)",
        "ratio": peer / ours,
        "limit": f"{bound:.2g} us: {entries:.0f} x {N_COMPONENTS} numbers of V, at the bandwidth of the cache",
        "bound": bound,
        "unit": "us per step",
        "n": n_steps * repeats,
        "measured": f"{n_steps} steps from the start, median of {repeats} in turns, 1 thread each, processor time",
        "command": COMMAND,
    }
    if not defaults:
        return [timed]
    ours, peer = float(np.mean(found)), float(np.mean(peer_found))
    learned = {
        "name": f"warp-default-p1-{d}",
        "what": f"WSABIE after these steps with its defaults, {N_COMPONENTS} components, {d} visterms",
        "ours": ours,
        "peer": peer,
        "peer_name": "LightFM with its defaults",
        "ratio": ours / peer,
        "limit": "1.0: every image's best label is its own",
        "unit": "p@1",
        "n": repeats,
        "measured": f"38 classes, mean of {repeats} seeds; the standard error of 950 test images is 0.015",
        "command": COMMAND,
    }
    return [timed, learned]


def time_dense_steps(quick: bool) -> dict:
    """The same on dense vectors, after the first epoch; LightFM with its own limit of draws."""
    X, y = dense_vectors(38)
    X, y = X[:1520], y[:1520]
    train, epochs, repeats = np.ones(len(y), bool), 2, 1 if quick else 3
    n_steps = epochs * len(y)
    learner = WSABIE(n_components=N_COMPONENTS, n_steps=n_steps, pass_steps=n_steps, random_state=0)
    ours, peer = [], []
    for _ in range(repeats):
        start = time.thread_time()
        learner.fit(X, y)
        ours.append(time.thread_time() - start)
        given = arrays(X, y, train, epochs=epochs, seed=0, **LIGHTFM_DEFAULTS)
        peer.append(float(run_in("lightfm", LIGHTFM, LIGHTFM_TIME, given)["seconds"]))
    ours, peer = (1e6 * np.median(seconds) / n_steps for seconds in (ours, peer))
    d = X.shape[1]
    bound = 1e6 * 4 * d * N_COMPONENTS / machine.cache_bandwidth(learner.visterm_vectors_.nbytes)
    return {
        "name": "warp-dense",
        "what": f"a step of WSABIE's WARP, {N_COMPONENTS} components, dense vectors of {d} numbers",
        "ours": ours,
        "peer": peer,
        "peer_name": "LightFM's WARP with its defaults (lightfm-next 1.19.0)",
        "ratio": peer / ours,
        "limit": f"{bound:.2g} us: {d} x {N_COMPONENTS} numbers of V, at the bandwidth of the cache",
        "bound": bound,
        "unit": "us per step",
        "n": n_steps * repeats,
        "measured": f"{n_steps} steps from the start, median of {repeats} in turns, 1 thread each, processor time",
        "command": COMMAND,
    }


# -- quality -----------------------------------------------------------------------------------------------------------


def precision_at_1(learner, X, y) -> float:
    return float(np.mean(learner.classes_[learner.annotate(X, 1)[0][:, 0]] == y))


def wsabie_after(X, y, learned, asked, steps, **params):
    """Precision at 1 after each of these numbers of steps."""
    found = []

    def look(learner):
        if learner.n_steps_ in steps:
            found.append(precision_at_1(learner, X[asked], y[asked]))

    every = int(np.gcd.reduce(steps))
    learner = WSABIE(**params | {"n_steps": max(steps), "pass_steps": every})
    learner.fit(X[learned], y[learned], callback=look)
    return found


def choose(grid):
    """Index of the best of a grid whose other axes are rounds and seeds: (settings, rounds, seeds, lengths)."""
    means = grid.mean(axis=(1, 2))
    return np.unravel_index(means.argmax(), means.shape), means.max()


def compare(d: int, fold: int, seeds, quick: bool):
    """Precision at 1 on the test images of WSABIE, LightFM and LinearSVC, and what each of them chose."""
    X, y, train = load_vectors(d, SET, fold=fold)
    rows = np.flatnonzero(train)
    rounds = list(StratifiedKFold(5, shuffle=True, random_state=fold).split(X[rows], y[rows]))
    if quick:
        rounds = rounds[:1]
    learned, asked = np.zeros((2, len(rounds), len(y)), bool)
    for k, (inner, outer) in enumerate(rounds):
        learned[k, rows[inner]] = asked[k, rows[outer]] = True
    found, chosen = {}, {}

    halves = list(zip(learned, asked, strict=True))

    def cross_validate(settings):
        """The best of the settings with the best number of steps, and its precision."""
        grid = [[[wsabie_after(X, y, *half, STEPS, **tried, random_state=0)] for half in halves] for tried in settings]
        (i, j), best = choose(np.array(grid))
        return settings[i] | {"n_steps": STEPS[j]}, best

    def test(params):
        models = [WSABIE(random_state=seed, **params).fit(X[train], y[train]) for seed in seeds]
        return np.mean([precision_at_1(model, X[~train], y[~train]) for model in models])

    common = {"n_components": N_COMPONENTS}
    single = cross_validate([common | {"max_norm": m, "learning_rate": rate} for m in MAX_NORMS for rate in RATES])
    # The sizes are settings like others: an ensemble, where that was better.
    ensemble = cross_validate([single[0] | {"n_components": ENSEMBLE}])
    for name, (params, best) in (("single", single), ("WSABIE", max(single, ensemble, key=lambda found: found[1]))):
        chosen[name] = params | {"cross-validation": round(best, 4)}
        found[name] = test(params)

    given = arrays(X, y, train, rates=LIGHTFM_RATES, learned=learned, asked=asked, seeds=[0], epochs=EPOCHS)
    try:
        (i, j), best = choose(run_in("lightfm", LIGHTFM, LIGHTFM_QUALITY, given)["found"])
        chosen["LightFM"] = {"learning_rate": LIGHTFM_RATES[i], "epochs": EPOCHS[j], "cross-validation": round(best, 4)}
        given |= {
            "rates": [LIGHTFM_RATES[i]],
            "learned": train[None],
            "asked": ~train[None],
            "seeds": seeds,
            "epochs": [EPOCHS[j]],
        }
        found["LightFM"] = run_in("lightfm", LIGHTFM, LIGHTFM_QUALITY, given)["found"].mean()
    except PeerError as error:
        print(f"    LightFM is left out: {error}", file=sys.stderr)

    images = sp.csr_matrix(X)
    svc = GridSearchCV(LinearSVC(max_iter=10_000), {"C": SVC_C}, cv=rounds).fit(images[rows], y[rows])
    chosen["LinearSVC"] = svc.best_params_ | {"cross-validation": round(svc.best_score_, 4)}
    found["LinearSVC"] = svc.score(images[~train], y[~train])
    return found, chosen


def compare_quality(d: int, quick: bool, show=None) -> list[dict]:
    """Means over three splits, and over three seeds of what is random in a split."""
    folds, seeds = ([0], [0]) if quick else ([0, 1, 2], [0, 1, 2])
    table = []
    for fold in folds:
        found, chosen = compare(d, fold, seeds, quick)
        if show:
            show(d, fold, found, chosen)
        table.append(found)
    mean = {name: float(np.mean([found[name] for found in table])) for name in set.intersection(*map(set, table))}
    common = {
        "unit": "p@1",
        "n": len(folds) * len(seeds),
        "command": COMMAND,
        "limit": "1.0: every image's best label is its own",
        "measured": f"38 classes, means of {len(folds)} splits and {len(seeds)} seeds; the standard error of 2,850 "
        "test images is 0.009",
    }
    names = {"lightfm": "LightFM", "linearsvc": "LinearSVC"}
    titles = {"quality": "WSABIE, sizes chosen too", "single": f"WSABIE, {N_COMPONENTS} components"}
    return [
        {
            "name": f"wsabie-{what}-{key}-{d}",
            "what": f"{titles[what]}, {d} visterms",
            "ours": mean[ours],
            "peer": mean[peer],
            "peer_name": f"{peer}, settings by cross-validation as ours",
            "ratio": mean[ours] / mean[peer],
            **common,
        }
        # All settings chosen, the sizes too; and a single model of as many components as LightFM has.
        for what, ours in (("quality", "WSABIE"), ("single", "single"))
        for key, peer in names.items()
        if peer in mean
    ]


# -- memory ------------------------------------------------------------------------------------------------------------

MEMORY_PROGRAM = """
import sys
from pathlib import Path
import resource
from benchmarks.vectors import load_vectors
from visterm.learners import WSABIE
size, n_steps = int(sys.argv[1]), int(sys.argv[2])
X, y, train = load_vectors(10_000, "caltech101-38")
WSABIE(n_components=10, n_steps=10, validation_fraction=0.2, random_state=0).fit(X[train], y[train])
def peak():
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts the parent's memory in ru_maxrss
        return 1024 * int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
early = {"validation_fraction": 0.2, "patience": None, "refit": False}
learner = WSABIE(n_components=size, n_steps=n_steps, random_state=0, **early).fit(X[train], y[train])
print((peak() - before) / (learner.visterm_vectors_.nbytes + learner.label_vectors_.nbytes))
"""


def measure_memory(quick: bool) -> dict:
    """Peak of a process that learns with early stopping, in copies of the vectors."""
    size, n_steps = 2000, 5_000 if quick else 20_000
    command = [sys.executable, "-c", MEMORY_PROGRAM, str(size), str(n_steps)]
    copies = float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return {
        "name": "wsabie-memory",
        "what": f"WSABIE with early stopping, {size} components",
        "ours": copies,
        "peer": 4.0,
        "peer_name": "the vectors and the best vectors in double precision",
        "ratio": 4.0 / copies,
        "limit": "2: the vectors and the best vectors, float32",
        "unit": "copies of V and W",
        "n": n_steps,
        "measured": f"peak of a process, {n_steps} steps",
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    timed = [attempt(time_steps, d, quick, defaults) for defaults in (False, True) for d in (1000, 10_000)]
    records = [record for attempted in timed for found in attempted for record in found]
    records += attempt(time_dense_steps, quick)
    records += [*compare_quality(1000, quick), *compare_quality(10_000, quick)]
    return [*records, measure_memory(quick)]


def show_choice(d, fold, found, chosen) -> None:
    print(f"d = {d}, split {fold}: " + ", ".join(f"{name} {value:.4f}" for name, value in found.items()), flush=True)
    for name, settings in chosen.items():
        print(f"    {name}: " + ", ".join(f"{key} {value}" for key, value in settings.items()), flush=True)


if __name__ == "__main__":
    for size in (1000, 10_000):
        compare_quality(size, quick=False, show=show_choice)
