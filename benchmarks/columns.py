"""The rows of a million images, read as the service does: ``python -m benchmarks columns [--quick]``.

A catalogue as after extraction, with 1,000 labels, half of the images labelled. The peer is an object per image, as a
list. What a service reads again after 1,000 images were removed has reading all for a peer.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from visterm.pipeline.store.catalogue import Collection

from .records import PROCESS, race, record

N_IMAGES, N_CHANGED = 1_000_000, 1_000
ROUNDS = 3


def filled(folder: Path, n: int) -> Collection:
    """A catalogue of n images."""
    collection = Collection(folder, create=True)
    with collection.transaction():
        collection.executemany(
            "INSERT INTO images (path, size, mtime_ns, sha256, width, height, labels, split, segment, row, status) "
            "VALUES (?, 1, 1, ?, 640, 480, ?, ?, ?, ?, 'ok')",
            (
                (
                    b"%04d/%07d.jpg" % (i // 1000, i),
                    hashlib.sha256(b"%d" % i).hexdigest(),
                    json.dumps({f"{i // 1000:04}": 1.0}) if i % 2 else None,
                    "train" if i % 2 else None,
                    1 + i // 256,
                    i % 256,
                )
                for i in range(n)
            ),
        )
    return collection


def run(quick: bool = False) -> list[dict]:
    n = 20_000 if quick else N_IMAGES
    with tempfile.TemporaryDirectory() as folder, filled(Path(folder) / "collection", n) as collection:
        living = collection.living()
        assert list(living[:9]) == collection.images()[:9]
        reading = race(
            lambda _: collection.living(), lambda _: collection.images(), ROUNDS, PROCESS, unit="s", n=n, paired=True
        )

        def change(k: int) -> None:
            nonlocal living
            collection.restore(collection.exclude(range(1 + k, n, n // N_CHANGED)))
            living = collection.living(living)

        changing = race(change, lambda _: collection.living(), ROUNDS, PROCESS, unit="s", n=n, paired=True)
        assert list(living[:9]) == list(collection.living()[:9])
    return [
        record("columns-read", f"rows of {n:,} images, read", "an object per image", "the file is read once", reading),
        record(
            "columns-changes",
            f"{N_CHANGED:,} of {n:,} images removed and put back, and what changed read",
            "reading all",
            "the rows that changed",
            changing,
        ),
    ]
