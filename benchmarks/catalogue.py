"""The catalogue of a million images: time to open it and to compare it with a million unchanged files; memory.

python -m benchmarks catalogue [--quick]
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from visterm.pipeline.config.models import Config
from visterm.pipeline.store.catalogue import Collection

from .photos import some_photos
from .processes import peak_of_features, set_options, traced_memory
from .records import ELAPSED, compared, race, record, seconds, timed

PER_FOLDER = 1000


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


def scanned(folder: Path, n: int, rounds: int) -> list[dict]:
    root, place = folder / "images", folder / "runs" / "images" / "collection"
    write_files(root, n)
    collection = Collection(place, create=True)
    first = seconds(collection.scan, root, Config(), clock=ELAPSED)
    with collection.transaction():  # as after extraction
        collection.execute(
            "UPDATE images SET status = 'ok', segment = id / 256, row = id % 256, sha256 = lower(hex(randomblob(32)))"
        )

    def scan() -> None:
        changes = collection.scan(root, Config())
        assert (changes.unchanged, changes.added, changes.changed) == (n, 0, 0)

    scans = race(lambda _: scan(), lambda _: walk(root), rounds, ELAPSED, unit="s", n=n, paired=True)
    collection.close()
    collections, opened = zip(*(timed(Collection, place, clock=ELAPSED) for _ in range(rounds)), strict=True)
    counted = seconds(collections[0].counts_by, "status", clock=ELAPSED)
    read = seconds(collections[0].images, clock=ELAPSED)
    rows, held, _ = traced_memory(collections[0].images)
    assert len(rows) == n
    on_disk = sum(file.stat().st_size for file in place.glob("catalogue.sqlite*"))
    for collection in collections:
        collection.close()
    return [
        record(
            "catalogue-scan",
            f"{n} files that have not changed, compared with the catalogue",
            "os.scandir and os.stat alone",
            "the peer's time: every file has to be looked at",
            scans,
            measured=f"{scans['measured']}, one core, directories in memory",
            first=first,
        ),
        record(
            "catalogue-open",
            f"a catalogue of {n} images, opened",
            "reading a row of every image from it",
            "opening a file",
            compared(1000 * statistics.median(opened), 1000 * read, "ms", n),
            measured=f"median of {rounds} (peer: once), elapsed time",
            count_ms=1000 * counted,
        ),
        record(
            "catalogue-memory",
            f"rows of {n} images, as a search has them in memory",
            "the catalogue on disk",
            "its size on disk",
            compared(held / 1e6, on_disk / 1e6, "MB", n),
            measured="once, Python's objects",
        ),
    ]


def memory(folder: Path, n: int, n_photos: int) -> dict:
    """Peak memory of ``visterm features`` in one process, for n images and for 4n."""
    (folder / "photos").mkdir()
    train, _ = some_photos(n_photos, 0, folder / "photos")
    settings = ("features.n_visterms=1000", "features.max_training_images=200", "compute.n_jobs=1")
    few, many = (peak_of_features(folder, train, size, *set_options(settings)) for size in (n, 4 * n))
    return record(
        "features-memory",
        f"visterm features of {4 * n} photos",
        f"ourselves with {n} photos",
        "1: memory does not depend on the number of images",
        compared(many, few, "MiB at the peak", 4 * n),
        measured="peak of one process that learns from 200 photos and extracts all",
        bytes_per_image=(many - few) * 2**20 / (3 * n),
    )


def run(quick: bool = False) -> list[dict]:
    with tempfile.TemporaryDirectory() as name:
        records = scanned(Path(name), 20_000 if quick else 1_000_000, 3 if quick else 5)
    with tempfile.TemporaryDirectory() as name:
        return [*records, memory(Path(name), 500 if quick else 5000, 200)]
