"""A million photos with deep vectors on one machine: ``python -m benchmarks million [--quick]``.

One million unit vectors of 1,280 numbers: the deep vectors of all photos of $VISTERM_DATA (Caltech-101, Corel-5K,
flowers, textures), drawn with repetition, each with normal noise of a third of the mean magnitude, and scaled to unit
length again. They are written as a table of float16, which ``visterm features --vectors`` imports; ``visterm index``
builds the graph, and ``visterm serve`` answers. Memory is that of each process at its peak, with what it has mapped:
the pages of vectors and graph, which processes share and the system takes back, are counted. ``--quick`` is a tenth.

``visterm train`` learns OASIS by its defaults on a second table, of which the split trains on 600,000: photos that
follow each other in the sets share one of 1,000 labels. The memory of a training is its own, without mapped files.

Adding: from 1,000 new vectors in the catalogue until an opened run, opened again as the service does, has found one of
them; removing: from their exclusion until it no longer finds them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np

from visterm.learners import Cosine
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import write_segment
from visterm.retrieval import ExactIndex

from .photos import images_of
from .processes import RUN, command, environment, serving
from .records import ELAPSED, compared, record, seconds
from .search import recall
from .vectors import ROOT

SETS = ("flowers", "textures", "caltech101", "corel5k")
N_IMAGES, QUICK = 1_000_000, 100_000
D = 1_280
NOISE = 0.3
BLOCK = 10_000  # vectors made at once
N_QUERIES, K = 200, 10
N_EDITED = 1_000
N_LABELS = 1_000  # of the images that are trained on
ASKED = {"index": 20 * 60, "memory": 6e3, "query": 3.0, "recall": 0.98, "opening": 5.0, "adding": 3.0, "removing": 1.0}
ASKED |= {"train-memory": 2e3}


def write_table(folder: Path, n: int, n_labels: int | None = None) -> None:
    """Write the vectors and their ids: in folders of 1,000, or those that are labels."""
    photos = np.concatenate([images_of(name, "deep", "features.precision=float32")[1] for name in SETS])
    noise, rng = NOISE * float(np.abs(photos).mean()), np.random.default_rng(0)
    drawn = rng.integers(len(photos), size=n) if n_labels else None
    table = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float16, (n, D))
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        X = photos[rng.integers(len(photos), size=size) if drawn is None else drawn[start : start + size]]
        X += noise * rng.standard_normal(X.shape, np.float32)
        table[start : start + len(X)] = X / np.linalg.norm(X, axis=1, keepdims=True)
    folders = np.arange(n) // 1000 if n_labels is None else drawn * n_labels // len(photos)
    (folder / "ids.txt").write_text("".join(f"{name:04d}/{i:07d}\n" for i, name in enumerate(folders.tolist())))


def measured(folder: Path, name: str, *rest: object) -> tuple[float, dict[str, float]]:
    """Run a command; return its seconds, and its processor time, the megabytes of its peak, and of its own memory's."""
    start = time.perf_counter()
    process = subprocess.Popen(command(name, *rest), env=environment(folder / "runs"), stdout=subprocess.DEVNULL)
    ended, own = 0, 0.0
    while not ended:
        with suppress(OSError):
            own = max(own, memory_of(process.pid).get("RssAnon:", 0.0))
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        time.sleep(0.02)
    if status:
        raise RuntimeError(f"visterm {name} ended with {status}")
    used = {"processor": usage.ru_utime + usage.ru_stime, "peak": usage.ru_maxrss / 1e3, "own": own}
    return time.perf_counter() - start, used


def memory_of(process: int) -> dict[str, float]:
    """Megabytes of a process: at its peak, and its own, without what is mapped from files."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {parts[0]: int(parts[1]) / 1e3 for parts in lines if parts[0] in ("VmHWM:", "RssAnon:")}


def ask(port: int, ids: np.ndarray) -> np.ndarray:
    """Milliseconds of each search by id, one after the other."""
    times = []
    for id_ in ids.tolist():
        start = time.perf_counter()
        address = f"http://127.0.0.1:{port}/search?id={id_}&k={K}"
        assert len(json.load(urllib.request.urlopen(address))[0]["results"]) == K
        times.append(1e3 * (time.perf_counter() - start))
    return np.array(times)


def edited(run: Run, folder: Path) -> dict[str, float]:
    """Seconds until a run that is open has taken in 1,000 new images, and until it has let them go."""
    opened = Searcher(run)
    index = opened.index("cosine")
    index.search(opened.X[:1], k=K)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N_EDITED, D)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)

    def reopened(first_is_new: bool) -> None:
        nonlocal opened
        opened = Searcher(run, like=opened)
        ranking = opened.index("cosine").search(X[:1], k=1)
        path = opened.images[int(ranking.indices[0, 0])].path
        assert path.startswith("new/") == first_is_new, path

    with Collection(run.collection) as collection:
        last, (number, root) = collection.last_id, (collection.reserve_segments(1), collection.root)
        assert root is not None
        write_segment(collection.segments / str(number), X.astype(np.float16), (), **collection.origin())
        new = [(b"new/%d" % i,) for i in range(N_EDITED)]
        with collection.transaction():
            query = "INSERT INTO images (path, size, mtime_ns, status) VALUES (?, 1, 1, 'pending')"
            collection.executemany(query, new)
        ids = range(last + 1, last + 1 + N_EDITED)

        def add() -> None:
            outcomes = [Outcome(id_, f"{id_:064x}", None, None, row, None) for row, id_ in enumerate(ids)]
            collection.enter_segment(number, outcomes)
            reopened(True)

        def remove() -> None:
            collection.exclude(ids)
            reopened(False)

        return {"adding": seconds(add, clock=ELAPSED), "removing": seconds(remove, clock=ELAPSED)}


def trained(folder: Path, n: int) -> tuple[float, dict[str, float]]:
    """Seconds, processor time and memory of a training on a table with labels."""
    folder.mkdir()
    write_table(folder, n, N_LABELS)
    measured(folder, "features", "--vectors", folder / "vectors.npy", "--ids", folder / "ids.txt")
    return measured(folder, "train")


def run(quick: bool = False) -> list[dict]:
    n = QUICK if quick else N_IMAGES
    folder = ROOT / "build" / "million"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        return _records(folder, n)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _records(folder: Path, n: int) -> list[dict]:
    what, records = f"{n:,} deep vectors of {D:,} numbers", []

    def keep(name: str, title: str, value: float, unit: str, limit: str, how: str, **more: float) -> None:
        figures = compared(value, ASKED.get(name, value), unit, n, higher=unit == "recall")
        records.append(
            record(f"million-{name}", f"{title}, {what}", "the target", limit, figures, measured=how, **more)
        )
        print(records[-1]["name"], value, unit, more, flush=True)

    write_table(folder, n)
    table = ["--vectors", folder / "vectors.npy", "--ids", folder / "ids.txt", "--set", "index.kind=two-stage"]
    spent, used = measured(folder, "features", *table)
    keep("import", "import of a table", spent, "s", "each number is read, scaled and written", "once", **used)
    spent, used = measured(folder, "index", "--learner", "cosine")
    keep("index", "building the index", spent, "s", "a walk through the graph for each image", "once, elapsed", **used)
    query_ids = 1 + np.random.default_rng(1).permutation(n)[:N_QUERIES]
    start = time.perf_counter()
    with serving(folder / "runs") as (port, process):
        opening = time.perf_counter() - start
        ticks = sum(map(int, Path(f"/proc/{process}/stat").read_text().split()[13:15]))
        times = ask(port, query_ids)
        memory = memory_of(process)
    title, processor = "from the start of the service until it answers", ticks / os.sysconf("SC_CLK_TCK")
    keep("opening", title, opening, "s", "starting Python, then reading the catalogue", "once", processor=processor)
    how = f"after {N_QUERIES} searches; {memory['RssAnon:']:,.0f} MB are its own, the rest is mapped files"
    keep("memory", "peak memory of the service", memory["VmHWM:"], "MB", "vectors and graph, where all are read", how)
    how = f"median of {N_QUERIES} requests, one after the other"
    keep("request", "a search in the service", float(np.median(times)), "ms per query", "", how)
    run = Run(folder / "runs" / RUN)
    searcher = Searcher(run)
    index, rows = searcher.index("cosine"), query_ids - 1
    Q = searcher.X[rows]
    index.search(Q, K)
    times = [1e3 * seconds(index.search, q[None], K, clock=ELAPSED) for q in Q]
    how = f"median of {N_QUERIES}, one thread, elapsed"
    keep("query", "a query alone in two stages", float(np.median(times)), "ms per query", "the images in view", how)
    wanted = ExactIndex(Cosine().fit(Q), searcher.X, n_jobs=2).search(Q, K, exclude=rows).indices
    share = recall(wanted, index.search(Q, K, exclude=rows).indices)
    keep("recall", f"recall at {K}, in two stages", share, "recall", "1", f"{N_QUERIES} queries, beside exact search")
    for name, value in edited(run, folder).items():
        keep(name, f"{name} {N_EDITED:,} images, until that is seen", value, "s", "the changed images are read", "once")
    spent, used = trained(folder / "labelled", n)
    limit = "the products of W with the vectors of each query, and whitening"
    keep("train", "training OASIS by its defaults", spent, "s", limit, "once, elapsed", **used)
    limit = f"one copy of the training vectors as float32 has {0.6 * n * D * 4 / 1e6:,.0f} MB"
    keep("train-memory", "memory of its own of the training", used["own"], "MB", limit, "at its peak, every 20 ms")
    return records
