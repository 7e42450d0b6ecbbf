"""How time and memory grow with the number of images: ``python -m benchmarks growth [--quick]``.

From a thousand images to a million: a triplet of OASIS, and a query of exact search in batches, with vectors of 1,000
and of 10,000 visterms; those of benchmarks/search.py, in classes of 50 images drawn at random, so that nearly every
triplet is an update. Each point is a process of its own; memory is its peak less what it took before it had images.
Peers in the same process, after the peak was read: the paper's loop in double precision, and scipy's sparse product.
"""

from pathlib import Path

import numpy as np

from visterm.learners import TripletSampler
from visterm.learners.draws import stream
from visterm.learners.oasis import oasis_pass
from visterm.learners.rows import as_rows
from visterm.retrieval import ExactIndex

from .oasis import PLAIN, plain_learning
from .processes import forget_peak, in_own_process, peak_memory
from .records import PROCESS, Clock, race, record
from .search import ENTRIES, InnerProduct, gallery, queries, scipy_search

SIZES = (1_000, 10_000, 100_000, 1_000_000)
PER_CLASS = 50
N_STEPS = 20_000
N_QUERIES = 64
K = 10
# Of all threads: the peer has its own.
CLOCK = Clock(PROCESS.read, "1 thread each, processor time; memory: peak of a process")


# -- one point, in a process of its own --------------------------------------------------------------------------------


def start() -> int:
    """Bytes of this process now."""
    forget_peak()
    return peak_memory()


def triplet(d: int, n_images: int, repeats: int) -> dict:
    """Microseconds per triplet of OASIS and of the plain loop, and MB of learning."""
    before = start()
    X = gallery(n_images, d, np.random.default_rng(0))
    X.sum_duplicates()
    y = np.random.default_rng(1).permutation(np.arange(n_images) // PER_CLASS)
    rows, sampler = as_rows(X), TripletSampler(y)
    W = np.eye(d, dtype=np.float32)

    def ours(k):
        oasis_pass(rows, sampler.draw(stream(k), N_STEPS), 0.1, False, W, np.zeros(N_STEPS, np.float32))

    forget_peak()
    for k in range(3):
        ours(k)
    used = peak_memory() - before
    plain, given = plain_learning(rows, sampler, N_STEPS, d), {"things": N_STEPS, "of": f"{N_STEPS} at once"}
    return race(ours, plain, repeats, CLOCK, unit="us per triplet", n=N_STEPS, **given) | {"memory_mb": used / 1e6}


def query(d: int, n_images: int, repeats: int) -> dict:
    """Milliseconds per query of ours and of scipy's, and MB of searching."""
    before = start()
    rng = np.random.default_rng(0)
    X, Q = gallery(n_images, d, rng), queries(N_QUERIES, d, rng)
    index = ExactIndex(InnerProduct(), X)
    forget_peak()
    index.search(Q, K)
    used = peak_memory() - before
    runs = lambda _: index.search(Q, K), lambda _: scipy_search(X, Q, K, 1)
    given = {"unit": "ms per query", "things": N_QUERIES, "of": f"{N_QUERIES} at once", "n": N_QUERIES}
    return race(*runs, repeats, CLOCK, **given) | {"memory_mb": used / 1e6}


POINTS = {"triplet": (triplet, PLAIN), "query": (query, "scipy's sparse product")}


def measure(kind: str, d: int, n_images: int, repeats: int) -> dict:
    """Figures of one point, after one that compiles."""
    point, _ = POINTS[kind]
    point(1000, 1000, 1)
    return point(d, n_images, repeats)


# -- records and figure ------------------------------------------------------------------------------------------------


def compare(kind: str, d: int, n_images: int, repeats: int) -> dict:
    figures = in_own_process(measure, kind, d, n_images, repeats)
    own = 8 * ENTRIES[d] * n_images / 1e6 + (4 * d * d / 1e6 if kind == "triplet" else 0)
    return record(
        f"growth-{kind}-{d}-{n_images}",
        f"a {kind}, {n_images:,} images, {d} visterms; {figures['memory_mb']:.3g} MB",
        POINTS[kind][1],
        f"memory: {own:,.0f} MB of " + ("W and images" if kind == "triplet" else "images"),
        figures,
        images=n_images,
        d=d,
    )


def run(quick: bool = False) -> list[dict]:
    sizes, repeats = (SIZES[:2], 1) if quick else (SIZES, 3)
    return [compare(kind, d, n, repeats) for kind in POINTS for d in ENTRIES for n in sizes]


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
