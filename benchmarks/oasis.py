"""Speed, memory and quality of OASIS on visterm vectors: ``python -m benchmarks oasis [--quick]``.

Vectors: 20 classes of Caltech-101 in $VISTERM_DATA (default ../shared/data), 40 images a class to learn from and up to
25 to rank, extracted once and kept under build/bench. Without that folder: synthetic vectors of the same sparsity.

Times are processor time of the one thread that learns, medians of repetitions taken in turns with the peer's.
"""

import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import yaml
from numba import njit

from visterm.learners import OASIS, Cosine, TripletSampler
from visterm.learners.oasis import oasis_pass
from visterm.learners.online import as_rows
from visterm.learners.triplets import stream
from visterm.learners.validation import mean_average_precision

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("VISTERM_DATA", ROOT.parent / "shared" / "data"))
CACHE = ROOT / "build" / "bench"
COMMAND = "python -m benchmarks oasis"
N_TRAIN, N_TEST = 40, 25
PAIRS = 32
# Chosen by cross-validation on the training images: docs/oasis.md.
SETTINGS = {1000: {"C": 0.03, "n_steps": 150_000}, 10_000: {"C": 0.3, "n_steps": 200_000}}


@njit(cache=True, nogil=True)
def plain_pass(rows, data, triplets, C, W):
    """The paper's figure 1 as one would write it down: double precision, p+ and p- one after the other."""
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


def caltech_vectors(d: int):
    """X, y and which images are for training; kept under the name of what they were made from."""
    from visterm import features

    classes = yaml.safe_load((DATA / "sets.yaml").read_text())["caltech101-20"]
    rng = np.random.default_rng(0)
    paths, y, train = [], [], []
    for name in classes:
        images = sorted((DATA / "caltech101" / name).iterdir())
        chosen = [images[i] for i in rng.permutation(len(images))[: N_TRAIN + N_TEST]]
        paths += chosen
        y += [name] * len(chosen)
        train += [i < N_TRAIN for i in range(len(chosen))]
    sources = sorted(Path(features.__file__).parent.glob("*.py"))
    made_from = b"".join(path.read_bytes() for path in sources) + "".join(map(str, paths)).encode()
    cached = CACHE / f"vectors-{d}-{zlib.crc32(made_from):08x}.npz"
    train = np.array(train)
    if not cached.exists():
        extractor = features.VistermExtractor(n_visterms=d, random_state=0)
        extractor.fit([path for path, learned in zip(paths, train, strict=True) if learned])
        cached.parent.mkdir(parents=True, exist_ok=True)
        sp.save_npz(cached, sp.csr_matrix(extractor.transform(paths)))
    return sp.csr_array(sp.load_npz(cached)), np.array(y), train


def synthetic_vectors(d: int):
    """Twenty classes whose images take most of their visterms from neighbourhoods that the class prefers."""
    rng = np.random.default_rng(0)
    n_classes, entries = 20, 24 if d <= 1000 else 40
    y = np.repeat(np.arange(n_classes), N_TRAIN + N_TEST)
    centres = rng.integers(0, d, (n_classes, 6))
    X = sp.lil_array((len(y), d), dtype=np.float32)
    for i, c in enumerate(y):
        near = rng.choice(centres[c], entries) + rng.normal(0, d / 60, entries)
        columns = np.where(rng.random(entries) < 0.6, near, rng.integers(0, d, entries)).astype(int) % d
        X[i, columns] = rng.random(entries) + 0.2
    X = sp.csr_array(X)
    X = sp.csr_array(sp.diags_array(1 / np.sqrt(X.multiply(X).sum(axis=1))) @ X).astype(np.float32)
    return X, y, np.tile(np.arange(N_TRAIN + N_TEST) < N_TRAIN, n_classes)


def load_vectors(d: int):
    if (DATA / "caltech101").is_dir():
        return caltech_vectors(d)
    print(f"no {DATA / 'caltech101'}: synthetic vectors, figures will differ", file=sys.stderr)
    return synthetic_vectors(d)


def cpu_time(function, *arguments) -> float:
    start = time.thread_time()
    function(*arguments)
    return time.thread_time() - start


def time_triplets(d: int, quick: bool) -> list[dict]:
    X, y, train = load_vectors(d)
    rows, sampler = as_rows(X[train]), TripletSampler(y[train])
    data = rows[2].astype(np.float64)
    n_steps, repeats = (5_000, 3) if quick else (20_000, 9)
    W, plain_W = np.eye(d, dtype=np.float32), np.eye(d)
    passes = {
        "ours": lambda k: oasis_pass(rows, sampler.draw(stream(k), n_steps), 0.1, False, W),
        "pairs": lambda k: oasis_pass(rows, sampler.draw(stream(k), n_steps, pairs_per_query=PAIRS), 0.1, False, W),
        "peer": lambda k: plain_pass(rows, data, sampler.draw(stream(k), n_steps), 0.1, plain_W),
    }
    # The first round compiles and touches W; later ones go on from there, as a long run does.
    times = np.array([[cpu_time(run, k) for run in passes.values()] for k in range(repeats + 1)])[1:]
    ours, pairs, peer = 1e6 * np.median(times, axis=0) / n_steps
    lines = cache_lines(X[train], y[train])
    limit = (
        f"memory: {lines:.0f} cache lines of W a triplet, fetched and, after an update, written back"
        if d > 1000
        else "arithmetic: two loads and a store an entry of q p', all in the processor's cache"
    )
    common = {"unit": "us per triplet", "n": n_steps * repeats, "command": COMMAND, "limit": limit}
    names = {"peer": peer, "peer_name": "plain double-precision loop of the paper, Numba"}
    return [
        {"name": f"oasis-{d}", "ours": ours, **names, "ratio": peer / ours, **common},
        {"name": f"oasis-{d}-pairs", "pairs_per_query": PAIRS, "ours": pairs, **names, "ratio": peer / pairs, **common},
    ]


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
    params = SETTINGS[d] | ({"n_steps": 20_000} if quick else {})
    found = {
        pairs: np.mean(
            [
                quality(OASIS(pairs_per_query=pairs, random_state=seed, **params).fit(X[train], y[train]), test, test_y)
                for seed in seeds
            ]
        )
        for pairs in (1, PAIRS)
    }
    cosine = quality(Cosine().fit(X), test, test_y)
    common = {"unit": "mAP", "n": len(test_y), "command": COMMAND}
    records = [
        {
            "name": f"oasis-map-{d}",
            "ours": found[1],
            "peer": cosine,
            "peer_name": "cosine",
            "ratio": found[1] / cosine,
            "limit": "1.0: every image of the query's class first",
            **common,
        }
    ]
    if d == 10_000:
        records.append(
            {
                "name": "oasis-pairs-map",
                "ours": found[PAIRS],
                "peer": found[1],
                "peer_name": f"1 pair a query, at equal triplets (ours: {PAIRS})",
                "ratio": found[PAIRS] / found[1],
                "limit": "about 1: the same number of triplets, of fewer queries",
                **common,
            }
        )
    return records


MEMORY_PROGRAM = """
import resource, sys
from pathlib import Path
import numpy as np
from benchmarks.oasis import load_vectors
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
OASIS(n_steps=n_steps, validation_fraction=0.2, random_state=0).fit(X[train], y[train])
print((peak() - before) / (4 * d * d))
"""


def measure_memory(d: int, quick: bool) -> dict:
    """Peak of a process that learns with early stopping, in copies of W."""
    n_steps = 10_000 if quick else 100_000
    command = [sys.executable, "-c", MEMORY_PROGRAM, str(d), str(n_steps)]
    copies = float(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    return {
        "name": "oasis-memory",
        "ours": copies,
        "peer": 4.0,
        "peer_name": "W and the best W in double precision",
        "ratio": 4.0 / copies,
        "limit": "2: W and the best W, float32",
        "unit": "copies of W",
        "n": n_steps,
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    records = [*time_triplets(1000, quick), *time_triplets(10_000, quick)]
    records += [*compare_quality(1000, quick), *compare_quality(10_000, quick)]
    return [*records, measure_memory(10_000, quick)]
