"""Speed, quality and memory of WSABIE beside LightFM and LinearSVC: ``python -m benchmarks wsabie [--quick]``.

Vectors: 38 classes of Caltech-101, 40 images a class to learn from, see benchmarks/vectors.py. LightFM runs in an
environment of its own (benchmarks/peers.py), on the same vectors as the features of users; items are the labels and
have no other feature.

Times are processor time of the one thread that learns, medians of repetitions taken in turns with the peer's. For
quality, each system takes the settings that were best in a five-fold cross-validation on the training images of each
split; ``python -m experiments.studies wsabie`` prints what it chose.
"""

import sys

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from visterm.learners import WSABIE

from . import machine
from .annotators import dense_vectors
from .peers import PeerError, attempt, run_in
from .processes import in_own_process, peak_memory
from .records import RIGHT_LABEL, THREAD, compared, record, seconds
from .vectors import load_vectors

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
precisions = np.zeros((len(inputs["rates"]), len(inputs["learned"]), len(inputs["seeds"]), len(inputs["epochs"])))
for i, rate in enumerate(inputs["rates"]):
    for j, (learned, asked) in enumerate(zip(inputs["learned"], inputs["asked"])):
        for k, seed in enumerate(inputs["seeds"]):
            model, done = make(rate, seed), 0
            for m, epochs in enumerate(inputs["epochs"]):
                learn(model, np.flatnonzero(learned), epochs - done)
                done = epochs
                precisions[i, j, k, m] = precision_at_1(model, np.flatnonzero(asked))
outputs["found"] = precisions
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


def time_learning(name: str, what: str, learner, X, y, train, given: dict, epochs: int, repeats: int, peer_name: str):
    """The record of a step, from the first one on, and precisions at 1: ours and the peer's, of each repetition.

    A step is one image and one of its labels. `given` is for the peer's script.
    """
    n_steps = epochs * int(train.sum())
    WSABIE(n_components=N_COMPONENTS, n_steps=1, random_state=0).fit(X[train], y[train])  # compiles
    learner.set_params(n_components=N_COMPONENTS, n_steps=n_steps, pass_steps=n_steps)
    times, precisions = [], []
    for seed in range(repeats):
        ours = seconds(learner.set_params(random_state=seed).fit, X[train], y[train])
        peer = run_in("lightfm", LIGHTFM, LIGHTFM_TIME, arrays(X, y, train, epochs=epochs, seed=seed, **given))
        times.append((ours, float(peer["seconds"])))
        precisions.append((precision_at_1(learner, X[~train], y[~train]), float(peer["precision"])))
    ours, peer = 1e6 * np.median(times, axis=0) / n_steps
    entries = X[train].nnz / train.sum()
    step = record(
        name,
        f"a step of WSABIE's WARP, {N_COMPONENTS} components, {what}",
        peer_name,
        f": {entries:.0f} x {N_COMPONENTS} numbers of V, at the bandwidth of the cache",
        compared(ours, peer, "us per step", n_steps * repeats),
        measured=f"{n_steps} steps from the start, median of {repeats} in turns, {THREAD.title}",
        bound=4 * entries * N_COMPONENTS / machine.cache_bandwidth(learner.visterm_vectors_.nbytes),
    )
    return step, precisions


def time_steps(d: int, quick: bool, defaults: bool = False) -> list[dict]:
    """Microseconds per step.

    Either each with the settings most often chosen for it, and the peer draws labels as often as WSABIE does; or each
    with its own `defaults` but for the size, which for the peer are a larger learning rate and ten draws. It then soon
    has few violating labels, and most of its steps change nothing.
    """
    epochs, repeats = (10, 1) if quick else (TIMED_EPOCHS, 5)
    step, precisions = time_learning(
        f"warp-default-{d}" if defaults else f"warp-{d}",
        f"{d} visterms, each with its defaults" if defaults else f"{d} visterms",
        WSABIE(**({} if defaults else TIMED[d])),
        *load_vectors(d, SET),
        LIGHTFM_DEFAULTS if defaults else {"rate": LIGHTFM_RATE},
        epochs,
        repeats,
        "LightFM's WARP (lightfm-next 1.19.0)",
    )
    if not defaults:
        return [step]
    ours, peer = np.mean(precisions, axis=0)
    learned = record(
        f"warp-default-p1-{d}",
        f"WSABIE after these steps with its defaults, {N_COMPONENTS} components, {d} visterms",
        "LightFM with its defaults",
        RIGHT_LABEL,
        compared(ours, peer, "p@1", repeats, higher=True),
        measured=f"38 classes, mean of {repeats} seeds; the standard error of 950 test images is 0.015",
    )
    return [step, learned]


def time_dense_steps(quick: bool) -> dict:
    """The same on dense vectors; LightFM with its own limit of draws."""
    X, y = dense_vectors(38)
    train, peer_name = np.arange(len(y)) < 1520, "LightFM's WARP with its defaults (lightfm-next 1.19.0)"
    what, repeats = f"dense vectors of {X.shape[1]} numbers", 1 if quick else 3
    step, _ = time_learning("warp-dense", what, WSABIE(), X, y, train, LIGHTFM_DEFAULTS, 2, repeats, peer_name)
    return step


# -- quality -----------------------------------------------------------------------------------------------------------


def precision_at_1(learner, X, y) -> float:
    return float(np.mean(learner.classes_[learner.annotate(X, 1)[0][:, 0]] == y))


def wsabie_after(X, y, learned, asked, steps, **params):
    """Precision at 1 after each of these numbers of steps."""
    precisions = []

    def look(learner):
        if learner.n_steps_ in steps:
            precisions.append(precision_at_1(learner, X[asked], y[asked]))

    every = int(np.gcd.reduce(steps))
    learner = WSABIE(**params | {"n_steps": max(steps), "pass_steps": every})
    learner.fit(X[learned], y[learned], callback=look)
    return precisions


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
    precisions, chosen = {}, {}

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
    for name, (params, best) in (("single", single), ("WSABIE", max(single, ensemble, key=lambda pair: pair[1]))):
        chosen[name] = params | {"cross-validation": round(best, 4)}
        precisions[name] = test(params)

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
        precisions["LightFM"] = run_in("lightfm", LIGHTFM, LIGHTFM_QUALITY, given)["found"].mean()
    except PeerError as error:
        print(f"    LightFM is left out: {error}", file=sys.stderr)

    images = sp.csr_matrix(X)
    svc = GridSearchCV(LinearSVC(max_iter=10_000), {"C": SVC_C}, cv=rounds).fit(images[rows], y[rows])
    chosen["LinearSVC"] = svc.best_params_ | {"cross-validation": round(svc.best_score_, 4)}
    precisions["LinearSVC"] = svc.score(images[~train], y[~train])
    return precisions, chosen


def compare_quality(d: int, quick: bool, show=None) -> list[dict]:
    """Means over three splits, and over three seeds of what is random in a split."""
    folds, seeds = ([0], [0]) if quick else ([0, 1, 2], [0, 1, 2])
    table = []
    for fold in folds:
        precisions, chosen = compare(d, fold, seeds, quick)
        if show:
            show(d, fold, precisions, chosen)
        table.append(precisions)
    mean = {name: float(np.mean([row[name] for row in table])) for name in set.intersection(*map(set, table))}
    measured = (
        f"38 classes, means of {len(folds)} splits and {len(seeds)} seeds; the standard error of 2,850 test images is "
        "0.009"
    )
    names = {"lightfm": "LightFM", "linearsvc": "LinearSVC"}
    titles = {"quality": "WSABIE, sizes chosen too", "single": f"WSABIE, {N_COMPONENTS} components"}
    return [
        record(
            f"wsabie-{what}-{key}-{d}",
            f"{titles[what]}, {d} visterms",
            f"{peer}, settings by cross-validation as ours",
            RIGHT_LABEL,
            compared(mean[ours], mean[peer], "p@1", len(folds) * len(seeds), higher=True),
            measured=measured,
        )
        # All settings chosen, the sizes too; and a single model of as many components as LightFM has.
        for what, ours in (("quality", "WSABIE"), ("single", "single"))
        for key, peer in names.items()
        if peer in mean
    ]


# -- memory ------------------------------------------------------------------------------------------------------------


def learning_memory(size: int, n_steps: int) -> float:
    """What learning with early stopping adds to the peak of this process, in copies of the vectors."""
    X, y, train = load_vectors(10_000, SET)
    early = {"validation_fraction": 0.2, "patience": None, "refit": False, "random_state": 0}
    WSABIE(n_components=10, n_steps=10, **early).fit(X[train], y[train])
    before = peak_memory()
    learner = WSABIE(n_components=size, n_steps=n_steps, **early).fit(X[train], y[train])
    return (peak_memory() - before) / (learner.visterm_vectors_.nbytes + learner.label_vectors_.nbytes)


def measure_memory(quick: bool) -> dict:
    size, n_steps = 2000, 5_000 if quick else 20_000
    return record(
        "wsabie-memory",
        f"WSABIE with early stopping, {size} components",
        "the vectors and the best vectors in double precision",
        "2: the vectors and the best vectors, float32",
        compared(in_own_process(learning_memory, size, n_steps), 4.0, "copies of V and W", n_steps),
        measured=f"peak of a process, {n_steps} steps",
    )


def run(quick: bool = False) -> list[dict]:
    timed = [attempt(time_steps, d, quick, defaults) for defaults in (False, True) for d in (1000, 10_000)]
    records = [one for attempted in timed for group in attempted for one in group]
    records += attempt(time_dense_steps, quick)
    return [*records, *compare_quality(1000, quick), *compare_quality(10_000, quick), measure_memory(quick)]
