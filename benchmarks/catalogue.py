"""The catalogue of a million images: time to open it and to compare it with a million unchanged files; memory.

python -m benchmarks catalogue [--quick]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

from visterm.pipeline.config.models import Config
from visterm.pipeline.store.catalogue import Collection

from .extraction import photos

COMMAND = "python -m benchmarks catalogue"
PER_FOLDER = 1000
PROCESS = """
import atexit, pathlib, sys
atexit.register(lambda: print("peak", pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]))
from visterm.pipeline.cli.start import main
main()
"""


def write_files(root: Path, n: int) -> None:
    """Write tiny files with many hard links each: 1,000 per folder, one folder per class."""
    for number in range(n // PER_FOLDER):
        folder = root / f"{number:04}"
        folder.mkdir(parents=True)
        first = folder / "0.jpg"
        first.write_bytes(b"image")
        for i in range(1, PER_FOLDER):
            os.link(first, folder / f"{i}.jpg")


def walk(root: Path) -> int:
    """Stat every file: the least that detecting changes takes."""
    folders, n = [os.fspath(root)], 0
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders.append(entry.path)
                else:
                    os.stat(entry.path)
                    n += 1
    return n


def seconds(function) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def scanned(folder: Path, n: int, rounds: int) -> list[dict]:
    root, place = folder / "images", folder / "runs" / "images" / "collection"
    write_files(root, n)
    collection = Collection(place, create=True)
    first = seconds(lambda: collection.scan(root, Config()))
    with collection.transaction():  # as after extraction
        collection.execute(
            "UPDATE images SET status = 'ok', segment = id / 256, row = id % 256, sha256 = lower(hex(randomblob(32)))"
        )

    def again() -> None:
        changes = collection.scan(root, Config())
        assert (changes.unchanged, changes.added, changes.changed) == (n, 0, 0)

    pairs = [(seconds(again), seconds(lambda: walk(root))) for _ in range(rounds)]
    collection.close()
    found: list[Collection] = []
    opened = statistics.median(seconds(lambda: found.append(Collection(place))) for _ in range(rounds))
    counted = seconds(lambda: found[0].counts_by("status"))
    read = seconds(lambda: found[0].images())
    tracemalloc.start()
    rows = found[0].images()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(rows) == n
    on_disk = sum(file.stat().st_size for file in place.glob("catalogue.sqlite*"))
    for collection in found:
        collection.close()
    ours, peer = (statistics.median(column) for column in zip(*pairs, strict=True))
    common = {"n": n, "command": COMMAND}
    return [
        {
            "name": "catalogue-scan",
            "what": f"{n} files that have not changed, compared with the catalogue",
            "ours": ours,
            "peer": peer,
            "peer_name": "os.scandir and os.stat alone",
            "ratio": statistics.median(b / a for a, b in pairs),
            "limit": "the peer's time: every file has to be looked at",
            "unit": "s",
            "measured": f"median of {rounds} in turns, elapsed time, one core, directories in memory",
            "first": first,
            **common,
        },
        {
            "name": "catalogue-open",
            "what": f"a catalogue of {n} images, opened",
            "ours": 1000 * opened,
            "peer": 1000 * read,
            "peer_name": "reading a row of every image from it",
            "ratio": read / opened,
            "limit": "opening a file",
            "unit": "ms",
            "measured": f"median of {rounds} (peer: once), elapsed time",
            "count_ms": 1000 * counted,
            **common,
        },
        {
            "name": "catalogue-memory",
            "what": f"rows of {n} images, as a search has them in memory",
            "ours": held / 1e6,
            "peer": on_disk / 1e6,
            "peer_name": "the catalogue on disk",
            "ratio": on_disk / held,
            "limit": "its size on disk",
            "unit": "MB",
            "measured": "once, Python's objects",
            **common,
        },
    ]


def memory(folder: Path, n: int, n_photos: int) -> dict:
    """Peak memory of ``visterm features`` in one process, for n images and for 4n."""
    (folder / "photos").mkdir()
    train, _ = photos(n_photos, 0, folder / "photos")

    def peak(n: int) -> float:
        for i in range(n):
            target = folder / f"{n}" / str(i % 10) / f"{i}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(train[i % len(train)].resolve())
        settings = ("features.n_visterms=1000", "features.max_training_images=200", "compute.n_jobs=1")
        command = [sys.executable, "-c", PROCESS, "--quiet", "features", folder / f"{n}"]
        command += [part for setting in settings for part in ("--set", setting)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
        return int(done.stdout.split()[-1]) / 1024

    few, many = peak(n), peak(4 * n)
    return {
        "name": "features-memory",
        "what": f"visterm features of {4 * n} photos",
        "ours": many,
        "peer": few,
        "peer_name": f"ourselves with {n} photos",
        "ratio": few / many,
        "limit": "1: memory does not depend on the number of images",
        "unit": "MiB at the peak",
        "n": 4 * n,
        "measured": "peak of one process that learns from 200 photos and extracts all",
        "bytes_per_image": (many - few) * 2**20 / (3 * n),
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    with tempfile.TemporaryDirectory() as name:
        found = scanned(Path(name), 20_000 if quick else 1_000_000, 3 if quick else 5)
    with tempfile.TemporaryDirectory() as name:
        return [*found, memory(Path(name), 500 if quick else 5000, 200)]
