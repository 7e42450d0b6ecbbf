"""100,000 edits of labels: ``python -m benchmarks label_edits [--quick]``.

The run of benchmarks/service.py, of synthetic vectors; labels are added to its images in steps of some thousand, as a
selection on the page does. Measured: the export of all labels, and how long the page waits for a search and for its
first page, with the edits and before them, from the service in a process of its own.
"""

from __future__ import annotations

import io
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

from visterm.pipeline.store.run import Run
from visterm.teaching.labels import LabelEditor

from .processes import RUN, serving
from .records import ELAPSED, compared, record
from .service import make_run

N_IMAGES, N_STEPS, PER_STEP = 20_000, 20, 5_000
AIM = 2.0  # seconds of an export
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
    return records
