"""A library of dense vectors as a user has it: ``python -m benchmarks library [--quick]``.

The gallery of benchmarks/dense.py, written as float16, goes through the commands: import, building the index, opening
the run for a search as the service does, adding and removing a hundredth of the images. Each is a process of its own,
as is the one whose memory is measured. ``python -m benchmarks.library 1000000`` prints the same for another size; a
million images need 25 GB of disk in the folder for temporary files.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from .dense import N_QUERIES, K, gallery
from .open import images_of
from .page import line
from .processes import RUN, in_own_process, peak_memory, set_options, visterm
from .records import ELAPSED, compared, record, timed

N_IMAGES = 100_000
AT_ONCE = 50_000  # vectors in memory while they are made
SETTINGS = ("index.kind=two-stage",)
# Of a million images, and 1,000 that come and go.
AIMS = {"build": 1200.0, "memory": 6_000.0, "open": 5.0, "query": 3.0, "add": 3.0, "remove": 1.0}


def write(folder: Path, photos: np.ndarray, n: int) -> None:
    """Write n vectors and their ids, of which the last hundredth is added later."""
    X = np.lib.format.open_memmap(folder / "all.npy", "w+", np.float16, (n, photos.shape[1]))
    for number, start in enumerate(range(0, n, AT_ONCE)):
        X[start : start + AT_ONCE] = gallery(photos, min(AT_ONCE, n - start), seed=number)
    X.flush()


def choose(folder: Path, n: int) -> None:
    """Let the files of vectors and ids that the run imports hold the first n."""
    X = np.load(folder / "all.npy", mmap_mode="r")
    np.save(folder / "new.npy", X[:n])
    os.replace(folder / "new.npy", folder / "library.npy")
    (folder / "library.txt").write_text("".join(f"{i:07d}\n" for i in range(n)))


def search(runs: str) -> dict[str, float]:
    """Open the run and search, in this process, which should be new."""
    from visterm.pipeline import Searcher

    searcher, opened = timed(Searcher, Path(runs) / RUN, clock=ELAPSED)
    index, mapped = timed(searcher.index, "cosine", clock=ELAPSED)
    rows = np.random.default_rng(1).permutation(len(searcher.images))[:N_QUERIES]
    Q, times = np.asarray(searcher.X[rows]), []
    index.search(Q[:1], K)
    for i in range(len(Q)):
        times.append(timed(index.search, Q[i : i + 1], K, clock=ELAPSED)[1])
    last = searcher.images[-1].path
    (answer,) = searcher.search(f"id:{searcher.images[-1].id}", k=1, learner="cosine")
    assert answer["results"]
    query = 1e3 * float(np.median(times))
    return {"open": opened + mapped, "query": query, "memory": peak_memory() / 1e6, "n": len(rows), "last": last}


def measure(n: int) -> dict[str, float]:
    """Seconds of each step, and the figures of `search`."""
    _, photos, _, _ = images_of("corel5k", "deep")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, photos, n)
        few = n // 100
        choose(folder, n - few)
        runs = folder / "runs"
        given = "--vectors", folder / "library.npy", "--ids", folder / "library.txt", *set_options(SETTINGS)
        _, imported = timed(visterm, runs, "features", *given, clock=ELAPSED)
        _, built = timed(visterm, runs, "index", "--learner", "cosine", clock=ELAPSED)
        recall = json.loads(visterm(runs, "info", "--json"))["indexes"]["vectors"]["recall"]
        figures = in_own_process(search, str(runs))
        choose(folder, n)
        _, added = timed(visterm, runs, "features", clock=ELAPSED)
        after = in_own_process(search, str(runs))
        assert after["last"] != figures["last"], "what was added is not searched"
        choose(folder, n - few)
        _, removed = timed(visterm, runs, "features", clock=ELAPSED)
        final = in_own_process(search, str(runs))
        assert final["last"] == figures["last"], "what was removed is searched"
    return figures | {
        "import": imported,
        "build": built,
        "recall": recall,
        "add": added + after["open"] - figures["open"],
        "remove": removed + final["open"] - figures["open"],
        "query after": after["query"],
    }


def records(n: int) -> list[dict]:
    figures, few = measure(n), n // 100
    vectors = f"{n:,} deep vectors of 1,280 numbers"
    rows = (
        ("build", f"building the index of {vectors}, which were imported in {figures['import']:.0f} s", "s"),
        ("memory", f"peak memory of a process that searches {vectors}", "MB"),
        ("open", f"opening a run of {vectors} for a search", "s"),
        (
            "query",
            f"a query alone, {vectors}, cosine; recall at 10 of {figures['recall']:.4f}, after {few:,} are added "
            f"{figures['query after']:.2f} ms",
            "ms per query",
        ),
        ("add", f"adding {few:,} to {vectors}, until a search finds them", "s"),
        ("remove", f"removing {few:,} of {vectors}, until a search skips them", "s"),
    )
    made = [
        record(
            f"library-{name}",
            what,
            "what is aimed at for a million images, and 1,000 of them",
            "reading the vectors" if name in ("open", "memory") else "a walk through the graph for each image",
            compared(figures[name], AIMS[name], unit, n),
            measured="median of 200" if name == "query" else "once, 2 cores, elapsed time",
        )
        for name, what, unit in rows
    ]
    return made


def run(quick: bool = False) -> list[dict]:
    return records(2_000 if quick else N_IMAGES)


if __name__ == "__main__":
    for made in records(int(sys.argv[1])):
        print(line(made), flush=True)
