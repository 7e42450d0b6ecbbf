"""What checksums cost: commands with the checks of files and records, and with these checks taken out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .photos import caltech_or_demo
from .processes import child_seconds, command, environment, temporary_folder, visterm
from .records import Clock, race, record
from .service import make_run

START = "from visterm.pipeline.cli.start import main; main()"
# Taken out before the modules that use them are imported.
WITHOUT = """
from visterm.pipeline.store import checksums
checksums.check_files = checksums.check_seal = lambda *arguments: None
"""


def run(quick: bool = False) -> list[dict]:
    n_images, turns = (5_000, 3) if quick else (100_000, 15)
    with temporary_folder() as folder:
        photos = caltech_or_demo(folder / "pictures", quick)
        visterm(folder / "runs", "features", photos)
        n = sum(len(files) for _, _, files in os.walk(photos))
        what = f"visterm features, {n:,} images, none of them new"
        first = compare("features", what, folder, command("features", photos), turns)
    with temporary_folder() as folder:
        make_run(folder, n_images)
        search = command("search", "id:1", "--learner", "oasis")
        return [first, compare("search", f"visterm search by id, {n_images:,} images", folder, search, turns)]


def compare(key: str, what: str, folder: Path, arguments: list[str], turns: int) -> dict:
    size = sum(file.stat().st_size for file in (folder / "runs").rglob("*") if file.is_file())

    def call(before: str) -> None:
        # The command without its program, the first argument.
        started = [sys.executable, "-c", before + START, *arguments[1:]]
        variables = environment(folder / "runs") | {"NUMBA_NUM_THREADS": "1"}
        subprocess.run(started, env=variables, check=True, capture_output=True)

    times = race(lambda _: call(""), lambda _: call(WITHOUT), turns, Clock(child_seconds, "processor time"), unit="s")
    return record(
        f"checks-{key}",
        f"{what}; a run of {size / 1e6:.0f} MB, each file compared with its checksum before it is used",
        "the same without checks",
        "1: no cost",
        times,
        measured=f"medians of {turns} commands in turns, processor time",
    )
