"""Cost of adding images to a large collection beyond extracting them: ``python -m benchmarks edit [--quick]``.

The collection is synthetic: 100 classes, visterm counts as photographs have, in segments as `features` writes them. The
added images are crops of photos, and so are those that visterms are learned from. Elapsed time.
"""

from __future__ import annotations

import os
from statistics import median

import numpy as np

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.edit import add, remove
from visterm.pipeline.stages.extraction import ImageSource, extract_segment
from visterm.pipeline.stages.features import features
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import write_segment
from visterm.plugins.demo.demo_images import write_demo_images

from .processes import temporary_folder
from .records import ELAPSED, compared, record, seconds
from .search import gallery

N_ADDED = 100
N_CLASSES = 100
SPLIT = "train", "train", "train", "test", "test"


def fill(collection: Collection, n_images: int, segment_size: int, n_classes: int | None = None) -> None:
    """Enter synthetic images without files, extracted; labelled if there are classes."""
    counts = gallery(n_images, 10_000, np.random.default_rng(0))
    counts.data = (1 + 10 * counts.data).astype(np.int32)
    counts.sum_duplicates()
    first, last = collection.reserve_segments(-(-n_images // segment_size)), collection.last_id
    rows = [
        (
            b"made-up/%07d.jpg" % i,
            *((f'{{"made-up {i % n_classes}": 1.0}}', SPLIT[i % 5]) if n_classes else (None, None)),
        )
        for i in range(n_images)
    ]
    with collection.transaction():
        collection.executemany(
            "INSERT INTO images (path, size, mtime_ns, labels, split, status) VALUES (?, 1, 1, ?, ?, 'pending')", rows
        )
    for number, start in enumerate(range(0, n_images, segment_size), first):
        part = counts[start : start + segment_size]
        write_segment(collection.segments / str(number), part)
        ids = range(last + 1 + start, last + 1 + start + part.shape[0])
        outcomes = [Outcome(id_, f"{id_:064x}", 300, 240, row, None) for row, id_ in enumerate(ids)]
        collection.enter_segment(number, outcomes)


def run(quick: bool = False) -> list[dict]:
    n_images, repeats = (10_000, 2) if quick else (100_000, 7)
    console = Console(quiet=True, progress=False)
    with temporary_folder() as folder:
        crops, new = folder / "crops", folder / "new"
        place, config = Run(folder / "runs/bench"), load_config(None, ["features.n_visterms=10000"])
        write_demo_images(crops)
        new.mkdir()
        files = sorted(crops.rglob("*.*"))
        for i in range(N_ADDED):
            os.link(files[i % len(files)], new / f"{i}{files[i % len(files)].suffix}")
        features(place, config, crops, console)
        collection = Collection(place.collection)
        fill(collection, n_images, 256, N_CLASSES)
        version = collection["extractor"]
        images = [(i, os.fspath(path)) for i, path in enumerate(sorted(new.iterdir()))]

        def extract() -> None:
            source = ImageSource(place.extractor / "files", version, folder, 10**8, N_ADDED, "float32")
            extract_segment(source, images, folder / "alone/1", 0, {})

        def add_new() -> None:
            assert add(place, config, [new], console, labels=["made-up 0"])["extracted"] == N_ADDED

        times = []
        for _ in range(repeats + 1):  # the first round compiles, and fills the caches
            times.append([seconds(work, clock=ELAPSED) for work in (extract, add_new)])
            remove(place, [new], console)
        collection.close()
    alone, beyond = median(first for first, _ in times[1:]), median(whole - first for first, whole in times[1:])
    return [
        record(
            "features-add",
            f"adding {N_ADDED} images to {n_images:,}, beyond extracting them",
            "extracting them, one core",
            "one look at the catalogue: labels and splits of a class, copies, segments",
            compared(beyond, alone, "s", n_images),
            measured=f"median of {repeats} in turns, elapsed time",
        )
    ]
