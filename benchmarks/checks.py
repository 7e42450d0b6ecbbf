"""What checksums cost: commands with the checks of files and records, and with these checks taken out."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from visterm.pipeline.stages.demo_images import write_demo_images

from .service import command, environment, make_run
from .vectors import DATA

RUN = "from visterm.pipeline.cli.start import main; main()"
# Taken out before the modules that use them are imported.
WITHOUT = """
from visterm.pipeline.store import checksums
checksums.check_files = checksums.check_seal = lambda *arguments: None
"""


def run(quick: bool = False) -> list[dict]:
    n_images, turns = (5_000, 3) if quick else (100_000, 15)
    records = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photos = DATA / "caltech101"
        if quick or not photos.is_dir():
            photos = folder / "pictures"
            write_demo_images(photos)
        command(folder, "features", photos)
        n = sum(len(files) for _, _, files in os.walk(photos))
        records.append(
            record(
                "features",
                f"visterm features, {n:,} images, none of them new",
                folder,
                ["features", str(photos)],
                turns,
            )
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_run(folder, n_images)
        search = ["search", "id:1", "--learner", "oasis"]
        records.append(record("search", f"visterm search by id, {n_images:,} images", folder, search, turns))
    return records


def record(key: str, what: str, folder: Path, arguments: list[str], turns: int) -> dict:
    def seconds(before: str) -> float:
        run = [sys.executable, "-c", before + RUN, "--quiet", *arguments, "--run", "bench"]
        earlier = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(run, env=environment(folder) | {"NUMBA_NUM_THREADS": "1"}, check=True, capture_output=True)
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime - earlier.ru_utime - earlier.ru_stime

    pairs = [(seconds(""), seconds(WITHOUT)) for _ in range(turns + 1)][1:]  # the first fills the caches of files
    ours, peer = (median(times) for times in zip(*pairs, strict=True))
    size = sum(file.stat().st_size for file in (folder / "runs").rglob("*") if file.is_file())
    return {
        "name": f"checks-{key}",
        "what": f"{what}; a run of {size / 1e6:.0f} MB, each file compared with its checksum before it is used",
        "ours": ours,
        "peer": peer,
        "peer_name": "the same without checks",
        "ratio": peer / ours,
        "limit": "1: no cost",
        "unit": "s",
        "n": turns,
        "measured": f"medians of {turns} commands in turns, processor time",
        "command": "python -m benchmarks checks",
    }
