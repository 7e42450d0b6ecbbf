"""How time and memory grow with the number of images: ``python -m benchmarks growth [--quick]``.

From a thousand images to a million: a triplet of OASIS, and a query of exact search in batches, with vectors of 1,000
and of 10,000 visterms; those of benchmarks/search.py, in classes of 50 images drawn at random, so that nearly every
triplet is an update. Each point is a process of its own; memory is its peak less what it took before it had images.
Peers in the same process, after the peak was read: the paper's loop in double precision, and scipy's sparse product.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from visterm.learners import TripletSampler
from visterm.learners.draws import stream
from visterm.learners.oasis import oasis_pass
from visterm.learners.rows import as_rows
from visterm.retrieval import ExactIndex

from .oasis import plain_pass
from .search import ENTRIES, InnerProduct, gallery, queries, scipy_search
from .vectors import ROOT

COMMAND = "python -m benchmarks growth"
SIZES = (1_000, 10_000, 100_000, 1_000_000)
PER_CLASS = 50
N_STEPS = 20_000
N_QUERIES = 64
K = 10


# -- one point, in a process of its own --------------------------------------------------------------------------------


def memory(key: str) -> float:
    """MB of this process: VmRSS, now, or VmHWM, the peak since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key))) * 1024 / 1e6


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def seconds(function, k: int) -> float:
    """Processor time of all threads; the peer has its own."""
    start = time.process_time()
    function(k)
    return time.process_time() - start


def median_in_turns(first, second, repeats: int) -> tuple[float, float]:
    times = [(seconds(first, k), seconds(second, k)) for k in range(repeats + 1)]
    ours, peer = np.median(times[1:], axis=0)  # the first round compiles and touches all memory
    return float(ours), float(peer)


def triplet(d: int, n_images: int, repeats: int) -> dict:
    """Microseconds per triplet of OASIS and of the plain loop, and MB of learning."""
    start = memory("VmRSS")
    X = gallery(n_images, d, np.random.default_rng(0))
    X.sum_duplicates()
    y = np.random.default_rng(1).permutation(np.arange(n_images) // PER_CLASS)
    rows, sampler = as_rows(X), TripletSampler(y)
    W = np.eye(d, dtype=np.float32)

    def ours(k):
        oasis_pass(rows, sampler.draw(stream(k), N_STEPS), 0.1, False, W)

    forget_peak()
    for k in range(3):
        ours(k)
    used = memory("VmHWM") - start
    plain_W, data = np.eye(d), rows[2].astype(float)
    own, peer = median_in_turns(
        ours, lambda k: plain_pass(rows, data, sampler.draw(stream(k), N_STEPS), 0.1, plain_W), repeats
    )
    return {"ours": 1e6 * own / N_STEPS, "peer": 1e6 * peer / N_STEPS, "memory": used}


def query(d: int, n_images: int, repeats: int) -> dict:
    """Milliseconds per query of ours and of scipy's, and MB of searching."""
    start = memory("VmRSS")
    rng = np.random.default_rng(0)
    X, Q = gallery(n_images, d, rng), queries(N_QUERIES, d, rng)
    index = ExactIndex(InnerProduct(), X)
    forget_peak()
    index.search(Q, K)
    used = memory("VmHWM") - start
    own, peer = median_in_turns(lambda k: index.search(Q, K), lambda k: scipy_search(X, Q, K, 1), repeats)
    return {"ours": 1e3 * own / N_QUERIES, "peer": 1e3 * peer / N_QUERIES, "memory": used}


POINTS = {"triplet": triplet, "query": query}


def measure(kind: str, d: int, n_images: int, repeats: int) -> dict:
    arguments = [sys.executable, "-m", "benchmarks.growth", kind, *map(str, (d, n_images, repeats))]
    return json.loads(subprocess.run(arguments, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout)


# -- records and figure ------------------------------------------------------------------------------------------------


def record(kind: str, d: int, n_images: int, repeats: int) -> dict:
    found = measure(kind, d, n_images, repeats)
    own = 8 * ENTRIES[d] * n_images / 1e6 + (4 * d * d / 1e6 if kind == "triplet" else 0)
    learning = kind == "triplet"
    return {
        "name": f"growth-{kind}-{d}-{n_images}",
        "what": f"a {kind}, {n_images:,} images, {d} visterms; {found['memory']:.3g} MB",
        "images": n_images,
        "d": d,
        "ours": found["ours"],
        "peer": found["peer"],
        "memory_mb": found["memory"],
        "peer_name": "plain double-precision loop of the paper, Numba" if learning else "scipy's sparse product",
        "ratio": found["peer"] / found["ours"],
        "limit": f"memory: {own:,.0f} MB of " + ("W and images" if learning else "images"),
        "unit": "us per triplet" if learning else "ms per query",
        "n": N_STEPS if learning else N_QUERIES,
        "measured": f"{N_STEPS if learning else N_QUERIES} at once, median of {repeats} in turns, 1 thread each, "
        "processor time; memory: peak of a process",
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    sizes, repeats = (SIZES[:2], 1) if quick else (SIZES, 3)
    return [record(kind, d, n, repeats) for kind in POINTS for d in ENTRIES for n in sizes]


def draw(records: list[dict], path: Path) -> None:
    """Four panels: time and memory of learning and of searching, against the number of images."""
    from .plots import legend, new_figure, save, series

    figure, panels = new_figure(4, n_rows=2, width=10, height=7)
    titles = {
        "triplet": ("time a triplet of OASIS (µs)", "memory of learning (MB)"),
        "query": ("time a query (ms)", "memory of searching (MB)"),
    }
    for (kind, labels), (times, memory) in zip(titles.items(), (panels[:2], panels[2:]), strict=True):
        for place, d in enumerate(ENTRIES):
            points = [r for r in records if r["name"].startswith(f"growth-{kind}-{d}-")]
            images = [r["images"] for r in points]
            for axes, key in ((times, "ours"), (memory, "memory_mb")):
                series(axes, 2 * place, images, [r[key] for r in points], label=f"d = {d:,}")
            series(times, 2 * place + 1, images, [r["peer"] for r in points], label=f"d = {d:,}, peer")
        for axes, label in zip((times, memory), labels, strict=True):
            axes.set(xscale="log", yscale="log", xlabel="number of images", ylabel=label)
            low, high = np.log10(axes.get_ylim())
            axes.set_ylim(10 ** np.floor(low), 10 ** np.ceil(high))  # whole decades
            axes.minorticks_off()
    legend(figure, panels[0])
    save(figure, path)


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:]
    POINTS[kind](1000, 1000, 1)  # compiles; not counted
    print(json.dumps(POINTS[kind](*map(int, numbers))))
