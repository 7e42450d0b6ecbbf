"""Cost of adding images to a large collection beyond extracting them: ``python -m benchmarks edit [--quick]``.

The collection is synthetic: 100 classes, visterm counts as photographs have, in segments as `features` writes them. The
added images are crops of photos, and so are those that visterms are learned from. Elapsed time.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.demo_images import write_demo_images
from visterm.pipeline.stages.edit import add, remove
from visterm.pipeline.stages.extraction import ImageSource, extract_segment
from visterm.pipeline.stages.features import features
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import write_segment

from .search import gallery

N_ADDED = 100
N_CLASSES = 100
ROWS = 256  # of a segment


def fill(collection: Collection, n_images: int) -> None:
    """Enter synthetic images, extracted and labelled."""
    counts = gallery(n_images, 10_000, np.random.default_rng(0))
    counts.data = (1 + 10 * counts.data).astype(np.int32)
    n_segments = -(-n_images // ROWS)
    first, last = collection.reserve_segments(n_segments), collection.last_id
    with collection.transaction():
        collection.executemany(
            "INSERT INTO images (path, size, mtime_ns, labels, split, status) VALUES (?, 1, 1, ?, ?, 'pending')",
            [
                (b"made-up/%07d.jpg" % i, f'{{"made-up {i % N_CLASSES}": 1.0}}', "train" if i % 5 < 3 else "test")
                for i in range(n_images)
            ],
        )
    for i in range(n_segments):
        part = counts[i * ROWS : (i + 1) * ROWS]
        write_segment(collection.segments / str(first + i), part)
        start = last + 1 + i * ROWS
        outcomes = [Outcome(start + row, f"{start + row:064x}", 300, 240, row, None) for row in range(part.shape[0])]
        collection.enter_segment(first + i, outcomes)


def run(quick: bool = False) -> list[dict]:
    n_images, repeats = (10_000, 2) if quick else (100_000, 7)
    console = Console(quiet=True, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        place, config = Run(Path(folder) / "runs/bench"), load_config(None, ["features.n_visterms=10000"])
        write_demo_images(Path(folder) / "crops")
        crops = sorted((Path(folder) / "crops").rglob("*.*"))
        (Path(folder) / "new").mkdir()
        for i in range(N_ADDED):
            os.link(crops[i % len(crops)], Path(folder) / f"new/{i}{crops[i % len(crops)].suffix}")
        features(place, config, Path(folder) / "crops", console)
        collection = Collection(place.collection)
        fill(collection, n_images)
        version = collection["extractor"]
        images = [(i, os.fspath(path)) for i, path in enumerate(sorted((Path(folder) / "new").iterdir()))]

        def extracting() -> float:
            started = time.perf_counter()
            source = ImageSource(place.extractor / "files", version, Path(folder), 10**8, N_ADDED)
            extract_segment(source, images, Path(folder) / "alone/1", 0, {})
            return time.perf_counter() - started

        def adding() -> float:
            started = time.perf_counter()
            done = add(place, config, [Path(folder) / "new"], console, labels=["made-up 0"])
            assert done["extracted"] == N_ADDED
            seconds = time.perf_counter() - started
            remove(place, [Path(folder) / "new"], console)
            return seconds

        extracting(), adding()  # compile, and fill the caches
        times = [(extracting(), adding()) for _ in range(repeats)]
        peer = median(alone for alone, _ in times)
        ours = median(whole - alone for alone, whole in times)
        collection.close()
    return [
        {
            "name": "features-add",
            "what": f"adding {N_ADDED} images to {n_images:,}, beyond extracting them",
            "ours": ours,
            "peer": peer,
            "peer_name": "extracting them, one core",
            "ratio": peer / ours,
            "limit": "one look at the catalogue: labels and splits of a class, copies, segments",
            "unit": "s",
            "n": n_images,
            "measured": f"median of {repeats} in turns, elapsed time",
            "command": "python -m benchmarks edit",
        },
    ]
