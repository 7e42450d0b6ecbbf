"""100,000 edits of labels: ``python -m benchmarks label_edits [--quick]``.

The run of benchmarks/service.py, of synthetic vectors; labels are added to its images in steps of some thousand, as a
selection on the page does. Measured: the export of all labels, and how long the page waits for a search and for its
first page, with the edits and before them, from the service in a process of its own. Then what commands of new
processes take with such a history and with one of 100 edits.
"""

from __future__ import annotations

import io
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from visterm.pipeline.store.run import Run
from visterm.teaching.labels import LabelEditor

from .processes import RUN, VISTERM, child_seconds, environment, serving, temporary_folder, visterm
from .records import ELAPSED, PROCESS, compared, record
from .service import make_run

N_IMAGES, N_STEPS, PER_STEP = 20_000, 20, 5_000
AIM = 2.0  # seconds of an export
COMMANDS = {
    "first": ("the first edit", ("label", "add", "new", "id:7")),
    "undo": ("label undo", ("label", "undo")),
    "repair": ("repair", ("repair",)),
}
PAGES = {"search": "search?id={}&k=50", "home": "api/home"}


def timed_pages(runs: Path, repeats: int) -> dict[str, float]:
    """Medians in milliseconds of what the page asks for."""
    with serving(runs) as (port, _):
        times: dict[str, list[float]] = {name: [] for name in PAGES}
        for i in range(repeats + 5):
            for name, path in PAGES.items():
                started = time.perf_counter()
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{path.format(i + 1)}").read()
                times[name].append(1e3 * (time.perf_counter() - started))
        return {name: float(np.median(own[5:])) for name, own in times.items()}


def make_history(folder: Path, n_images: int, n_edits: int) -> None:
    """Make a run of imported vectors, whose images get a label and lose it until there are so many edits."""
    names = "".join(f"class {i % 10}/{i}.jpg\n" for i in range(n_images))
    (folder / "ids.txt").write_text(names)
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(n_images, 16)).astype(np.float32))
    visterm(folder / "runs", "features", "--vectors", folder / "x.npy", "--ids", folder / "ids.txt")
    editor, per_step = LabelEditor(Run(folder / "runs" / RUN)), min(n_edits, n_images)
    for step in range(n_edits // per_step):
        (editor.remove if step % 2 else editor.add)("label", list(range(1, per_step + 1)))


def timed_commands(n_images: int, n_edits: int, repeats: int) -> list[dict]:
    """A record per command: medians of processor time with a long history and a short one, in turns."""
    times: dict[tuple[str, int], list[float]] = {}
    with temporary_folder() as folder:
        histories = (n_edits, 100)
        for n in histories:
            (folder / str(n)).mkdir()
            make_history(folder / str(n), n_images, n)
        for _ in range(repeats + 1):
            for name, (_, words) in COMMANDS.items():
                for n in histories:
                    before, runs = child_seconds(), environment(folder / str(n) / "runs")
                    subprocess.run([VISTERM, "-q", *words, "--run", RUN], env=runs, check=True, capture_output=True)
                    times.setdefault((name, n), []).append(child_seconds() - before)
    ours, peer = ({name: float(np.median(times[name, n][1:])) for name in COMMANDS} for n in histories)
    return [
        record(
            f"label-edits-{name}",
            f"{title}, a new process, after {n_edits:,} edits of labels, {n_images:,} images",
            "the same after 100 edits",
            "1.0: nothing grows with the history",
            compared(ours[name], peer[name], "s", repeats),
            measured=f"medians of {repeats} in turns, {PROCESS.title}",
        )
        for name, (title, _) in COMMANDS.items()
    ]


def run(quick: bool = False) -> list[dict]:
    n_images, per_step, repeats = (2_000, 500, 20) if quick else (N_IMAGES, PER_STEP, 100)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="visterm-bench-") as name:
        make_run(Path(name), n_images)
        runs = Path(name) / "runs"
        before = timed_pages(runs, repeats)
        editor = LabelEditor(Run(runs / RUN))
        for step in range(N_STEPS):
            images = rng.choice(np.arange(1, n_images + 1), per_step, replace=False)
            editor.add(f"label {step}", [int(i) for i in images])
        n_edits = N_STEPS * per_step
        exports = []
        for _ in range(3 if quick else 5):
            started = time.perf_counter()
            n_rows = editor.export(io.StringIO())
            exports.append(time.perf_counter() - started)
        after = timed_pages(runs, repeats)
    records = [
        record(
            "label-edits-export",
            f"export of all labels after {n_edits:,} edits, {n_images:,} images",
            "2 s, asked for",
            "reading the edits and the catalogue once",
            compared(float(np.median(exports)), AIM, "s", len(exports)),
            measured=f"median of {len(exports)}, {ELAPSED.title}; {n_rows:,} rows",
        )
    ]
    for page, what in (("search", "a search by id with 50 results"), ("home", "what the first page shows")):
        records.append(
            record(
                f"label-edits-{page}",
                f"{what}, after {n_edits:,} edits of labels, {n_images:,} images",
                "the same before the edits",
                "1.0: edits are read once",
                compared(after[page], before[page], "ms", repeats),
                measured=f"medians of {repeats} requests one after the other, {ELAPSED.title}",
            )
        )
    return records + timed_commands(1_000 if quick else 2_000, n_edits, 3 if quick else 9)
