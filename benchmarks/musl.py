"""Speed, memory and quality of MuSL: ``python -m benchmarks musl [--quick]``, ``python -m benchmarks.musl --study``.

Data: the categories merged-20 of $VISTERM_DATA/sets.yaml, of three sources; in each trial 30 images a category to learn
from and 20 to test, drawn anew, and a ForestCodebook grown on those 30. An image is the share of its blocks at each
node. Accuracy: the test images among the training images, k-NN with the labels of the latter, mean of the diagonal of
the confusion matrix. ``--study`` prints every table of docs/musl.md.

Without that folder: two kinds of made-up categories, whose figures say nothing about photos.
"""

import argparse
import itertools
import os
import sys
import time
import tracemalloc
import zlib
from pathlib import Path

import joblib
import numpy as np
from scipy.optimize import linear_sum_assignment

from visterm.learners import MuSL

from .vectors import CACHE, DATA, choose_images

COMMAND = "python -m benchmarks musl"
N_TRAIN, N_TEST = 30, 20
N_TRIALS = 10
NEIGHBORS = (1, 5, 10, 20)
VOTERS = 10  # of the records
# Chosen on the first three trials: docs/musl.md. Everything else is the paper's.
SETTINGS = {"alpha": 1.0, "midpoint": "running"}
CURVE = (1, 2, 3, 5, 7, 10, 20)
# Starts of K = 3, of which the one with the least loss counts; each draws other negative pairs.
STARTS = {"negatives_per_example": 300}
N_STARTS = 5


# -- data --------------------------------------------------------------------------------------------------------------


def load_trial(trial: int) -> dict[str, np.ndarray]:
    """Shares X (n, d), labels y, source, novel (of merged-novel) and train of a trial's images; kept under CACHE."""
    if not (DATA / "caltech101").is_dir():
        print(f"no {DATA / 'caltech101'}: made-up categories, figures will differ", file=sys.stderr)
        return synthetic_trial(trial)
    from visterm import features
    from visterm.features import ForestCodebook, read_image

    parts = [choose_images(name, fold=trial, n_train=N_TRAIN, n_test=N_TEST) for name in ("merged-20", "merged-novel")]
    paths = [path for found in parts for path in found[0]]
    y, train = (np.concatenate([found[place] for found in parts]) for place in (1, 2))
    novel = np.arange(len(paths)) >= len(parts[0][0])
    sources = [Path(features.__file__).with_name(name) for name in ("forest.py", "blocks.py", "images.py")]
    made_from = b"".join(source.read_bytes() for source in sources) + "".join(map(str, paths)).encode()
    cached = CACHE / f"merged-{trial}-{zlib.crc32(made_from):08x}.npz"
    if not cached.exists():
        images = [read_image(path) for path in paths]
        learned = np.flatnonzero(train & ~novel)
        forest = ForestCodebook(n_visterms=2000, random_state=trial).fit([images[i] for i in learned], y[learned])
        counts = np.array([forest.count(image) for image in images])
        shares = (counts / counts[:, forest.roots_[:1]]).astype(np.float32)
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}.npz")
        np.savez_compressed(temporary, X=shares)
        temporary.replace(cached)
    source = np.array([path.parent.parent.name for path in paths])
    return {"X": np.load(cached)["X"], "y": y, "source": source, "novel": novel, "train": train}


def synthetic_trial(trial: int) -> dict[str, np.ndarray]:
    """Categories of three kinds, each kind with features of its own that tell them apart."""
    rng = np.random.default_rng(trial)
    n_classes, per_class, d = 29, N_TRAIN + N_TEST, 300
    number = np.repeat(np.arange(n_classes), per_class)
    kind = number % 3
    X = rng.random((len(number), d))
    centres = np.random.default_rng(0).random((n_classes, d // 3))
    for k in range(3):
        own = kind == k
        X[own, k * d // 3 : (k + 1) * d // 3] = centres[number[own]] + 0.3 * rng.normal(size=(own.sum(), d // 3))
    return {
        "X": np.maximum(X, 0).astype(np.float32),
        "y": np.array([f"category-{i:02}" for i in number]),
        "source": np.array([f"kind-{k}" for k in kind]),
        "novel": number >= 20,
        "train": np.tile(np.arange(per_class) < N_TRAIN, n_classes),
    }


# -- what is measured --------------------------------------------------------------------------------------------------


def accuracy(learner: MuSL, trial: dict, asked: np.ndarray, answered: np.ndarray) -> list[float]:
    """Mean of the diagonal of the confusion matrix for each number of NEIGHBORS."""
    X, y = trial["X"], trial["y"]
    truth = y[asked]
    found = [learner.categorize(X[asked], X[answered], y[answered], n_neighbors=k) for k in NEIGHBORS]
    return [float(np.mean([(votes[truth == c] == c).mean() for c in np.unique(truth)])) for votes in found]


def measure(number: int, params: dict, *, novel: bool = False) -> dict:
    """One learner on one trial: accuracies, grouping, loss; with `novel` accuracies with categories it never saw."""
    trial = load_trial(number)
    known, train = ~trial["novel"], trial["train"]
    learner = MuSL(**({"random_state": number} | params)).fit(trial["X"][known & train], trial["y"][known & train])
    found = {
        "accuracy": accuracy(learner, trial, known & ~train, known & train),
        "grouping": learner.metric_of_category_.tolist(),
        "loss": learner.history_[-1]["loss"],
    }
    if novel:
        learner.assign_categories(trial["X"][train], trial["y"][train])
        found["novel"] = accuracy(learner, trial, ~known & ~train, ~known & train)
        found["all"] = accuracy(learner, trial, ~train, train)
    return found


def measure_all(jobs: list[tuple[int, dict]], **options) -> list[dict]:
    """`measure` of every (trial, parameters), on all cores."""
    return joblib.Parallel(n_jobs=-1)(joblib.delayed(measure)(number, params, **options) for number, params in jobs)


def sources_of(number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Categories of merged-20, sorted, and the number of each one's source."""
    trial = load_trial(number)
    categories, first = np.unique(trial["y"][~trial["novel"]], return_index=True)
    return categories, np.unique(trial["source"][first], return_inverse=True)[1]


def match(grouping, other) -> tuple[int, np.ndarray]:
    """Categories on which two groupings agree, their groups paired off as well as can be, and which disagree."""
    grouping, other = np.asarray(grouping), np.asarray(other)
    size = 1 + max(grouping.max(), other.max())
    table = np.zeros((size, size), int)
    np.add.at(table, (grouping, other), 1)
    _, partner = linear_sum_assignment(-table)
    return int(table[np.arange(size), partner].sum()), np.flatnonzero(partner[grouping] != other)


def stability(groupings: list) -> float:
    """Mean share of categories on which the groupings of two trials agree."""
    return float(np.mean([match(a, b)[0] / len(a) for a, b in itertools.combinations(groupings, 2)]))


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
            "ours": ours,
            "two_threads_wall": float(np.median(walls)),
            "peer": peer,
            "peer_name": "NumPy, each feature sorted and A summed in its order; 100 features of one stump, scaled up",
            "ratio": peer / ours,
            "limit": f"arithmetic: {additions / 1e9:.0f} G additions of rows in the cache, at most 16 a cycle",
            "unit": "s",
            "n": len(y),
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
        "ours": peak / 1e6,
        "stated": stated / 1e6,
        "peer": pairs * (8 + 8 + 8 + 8 * 5) / 1e6,
        "peer_name": "a list of all pairs: two int64, a weight and K distances in double precision",
        "ratio": pairs * (8 + 8 + 8 + 8 * 5) / peak,
        "limit": f"stated: n^2 (5 + K) + 24 nnz bytes = {stated / 1e6:.0f} MB",
        "unit": "MB",
        "n": len(y),
        "command": COMMAND,
    }


# -- quality -----------------------------------------------------------------------------------------------------------

SYSTEMS = {
    "k1": {"n_metrics": 1},
    "k5": {"n_metrics": 5},
    "kmeans": {"n_metrics": 5, "grouping": "kmeans"},
    "random": {"n_metrics": 5, "grouping": "random"},
}


def find_sources(trials: range) -> dict[str, list]:
    """Groupings of K = 3: of one start, of the best of several, and k-means."""
    one = measure_all([(t, SETTINGS | {"n_metrics": 3}) for t in trials])
    seeds = [STARTS | SETTINGS | {"n_metrics": 3, "random_state": seed} for seed in range(N_STARTS)]
    starts = measure_all([(t, params) for t in trials for params in seeds])
    best = [min(starts[i : i + N_STARTS], key=lambda found: found["loss"]) for i in range(0, len(starts), N_STARTS)]
    means = measure_all([(t, SETTINGS | {"n_metrics": 3, "grouping": "kmeans"}) for t in trials])
    return {"one": one, "best": best, "kmeans": means, "starts": starts}


def compare_quality(quick: bool) -> list[dict]:
    trials = range(1 if quick else N_TRIALS)
    found = {name: measure_all([(t, SETTINGS | params) for t in trials]) for name, params in SYSTEMS.items()}
    mean = {
        name: 100 * np.mean([m["accuracy"][NEIGHBORS.index(VOTERS)] for m in results])
        for name, results in found.items()
    }
    common = {"unit": f"% right, {VOTERS}-NN", "n": len(trials), "command": COMMAND, "limit": "100"}
    names = {"k1": "one metric", "kmeans": "k-means grouping", "random": "random grouping"}
    records = [
        {
            "name": f"musl-k5-{other}",
            "ours": mean["k5"],
            "peer": mean[other],
            "points": mean["k5"] - mean[other],
            "peer_name": f"{peer}; ours: joint grouping, K = 5",
            "ratio": mean["k5"] / mean[other],
            **common,
        }
        for other, peer in names.items()
    ]
    _, sources = sources_of()
    groupings = find_sources(trials)
    agreed = {name: [match(m["grouping"], sources)[0] for m in results] for name, results in groupings.items()}
    ours, peer = (sum(n >= len(sources) - 2 for n in agreed[name]) for name in ("best", "kmeans"))
    records.append(
        {
            "name": "musl-k3-sources",
            "ours": ours,
            "peer": peer,
            "peer_name": "k-means grouping",
            "exactly": sum(n == len(sources) for n in agreed["best"]),
            "one_start": sum(n >= len(sources) - 2 for n in agreed["one"]),
            "ratio": ours / max(peer, 1),
            "limit": f"all {len(trials)} trials",
            "unit": "trials whose 3 groups are the 3 sources but for at most 2 categories",
            "n": len(trials),
            "command": COMMAND,
        }
    )
    return records


def run(quick: bool = False) -> list[dict]:
    return [*time_training(quick), *compare_quality(quick), measure_memory(quick)]


# -- the study ---------------------------------------------------------------------------------------------------------


def print_row(name: str, results: list[dict], *, key: str = "accuracy") -> None:
    values = 100 * np.array([found[key] for found in results])  # (trials, len(NEIGHBORS))
    late = values[3:].mean(axis=0) if len(values) > 3 else []
    spread = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(len(NEIGHBORS))
    print(
        f"{name:34}",
        " ".join(f"{m:5.1f} +- {s:3.1f}" for m, s in zip(values.mean(axis=0), spread, strict=True)),
        ("   trials 3-: " + " ".join(f"{m:5.1f}" for m in late)) if len(late) else "",
        flush=True,
    )


def study_settings(n_trials: int) -> None:
    print(f"\nSettings, means of trials 0-{n_trials - 1}; accuracy in % with {NEIGHBORS} neighbours")
    systems = SYSTEMS | {"k20": {"n_metrics": 20}}
    for midpoint, alpha, balanced in itertools.product(("final", "running"), (0.1, 0.5, 1.0, 2.0), (False, True)):
        if midpoint == "final" and alpha in (0.5, 2.0):
            continue
        params = {"midpoint": midpoint, "alpha": alpha, "balanced": balanced}
        for name, system in systems.items():
            results = measure_all([(t, params | system) for t in range(n_trials)])
            print_row(f"{midpoint} {alpha} {'balanced' if balanced else ''} {name}", results)


def study_sharpness(n_trials: int) -> None:
    print("\nr of K = 3: categories of 20 grouped with their source, by trial, and the mean loss")
    _, sources = sources_of()
    for alpha, r in itertools.product((0.1, 1.0), (100.0, 500.0, 1000.0, 2500.0, 10_000.0, 50_000.0)):
        params = SETTINGS | {"n_metrics": 3, "r": r, "alpha": alpha}
        results = measure_all([(t, params) for t in range(n_trials)])
        agreed = [match(found["grouping"], sources)[0] for found in results]
        print(f"alpha={alpha} r={r:<8g}", agreed, f"{np.mean([found['loss'] for found in results]):.3f}", flush=True)


def study_curve(n_trials: int) -> None:
    print(f"\nAccuracy in % with {NEIGHBORS} neighbours: 20 categories, 9 never seen (novel), all 29")
    for grouping, n_metrics in [("joint", k) for k in CURVE] + [
        (g, k) for g in ("kmeans", "random") for k in (3, 5, 10)
    ]:
        params = SETTINGS | {"grouping": grouping, "n_metrics": n_metrics}
        results = measure_all([(t, params) for t in range(n_trials)], novel=True)
        for key in ("accuracy", "novel", "all"):
            print_row(f"{grouping} K={n_metrics} {key if key != 'accuracy' else ''}", results, key=key)
        if 1 < n_metrics < 20:
            print(f"  groupings of two trials agree on {100 * stability([m['grouping'] for m in results]):.0f} %")


def study_sources(n_trials: int) -> None:
    print("\nK = 3: categories of 20 grouped with their source, by trial")
    categories, sources = sources_of()
    groupings = find_sources(range(n_trials))
    for name in ("one", "best", "kmeans"):
        matches = [match(found["grouping"], sources) for found in groupings[name]]
        print(
            f"{name:8}",
            [n for n, _ in matches],
            f"stable {100 * stability([m['grouping'] for m in groupings[name]]):.0f} %",
        )
        astray = np.concatenate([np.asarray(rest) for _, rest in matches]).astype(int)
        print("   elsewhere:", {str(categories[c]): int(n) for c, n in enumerate(np.bincount(astray)) if n}, flush=True)
    print_row("K=3, best of starts", groupings["best"])
    loss = np.array([found["loss"] for found in groupings["starts"]]).reshape(n_trials, -1)
    agreed = np.array([match(found["grouping"], sources)[0] for found in groupings["starts"]]).reshape(n_trials, -1)
    rank = [np.corrcoef(a, b)[0, 1] for a, b in zip(loss, agreed, strict=True) if a.std() and b.std()]
    print(f"correlation of loss and agreement over the starts of a trial: {np.mean(rank):.2f}")
    by_loss = agreed[np.arange(n_trials)[:, None], loss.argsort(axis=1)]
    print("agreement by place in the order of loss:", np.round(by_loss.mean(axis=0), 1))


STUDIES = {"settings": study_settings, "sharpness": study_sharpness, "curve": study_curve, "sources": study_sources}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.musl", description=__doc__.splitlines()[0])
    parser.add_argument("--study", nargs="*", choices=STUDIES, required=True, help="tables to print; none named: all")
    parser.add_argument("--trials", type=int, help=f"default: {N_TRIALS}, for settings and sharpness 3")
    arguments = parser.parse_args()
    for name in arguments.study or STUDIES:
        STUDIES[name](arguments.trials or (3 if name in ("settings", "sharpness") else N_TRIALS))


if __name__ == "__main__":
    main()
