"""Deep vectors by the network in int8 and in float32: mAP of cosine and of OASIS, on four sets of photos.

The photos and splits of `fitting`. Prints only. ``python experiments/studies/int8.py FILE`` writes the int8 vectors of
four images of noise, or compares them with those in FILE: so for another processor, which QEMU emulates,
``qemu-x86_64 -cpu Haswell .venv/bin/python experiments/studies/int8.py FILE``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

PRECISIONS = ("float32", "int8")


def run(quick: bool = False) -> list[dict]:
    from benchmarks.vectors import keep
    from experiments.studies import fitting
    from visterm.features import deep_embedder

    for name in list(fitting.SETS)[1:2] if quick else fitting.SETS:
        for precision in PRECISIONS:

            def write(path: Path, name: str = name, precision: str = precision) -> None:
                photos = fitting.photos(name)[0]
                np.save(path, deep_embedder(precision=precision, n_jobs=-1).fit().transform(photos))

            file = keep(fitting.FOLDER / f"{name}-{precision}.npy", write)
            fitting.measure(name, precision, 1 if quick else fitting.SPLITS, np.load(file))
    return []


def same(file: Path) -> None:
    from visterm.features import deep_embedder

    noise = np.random.default_rng(0).integers(0, 256, (4, 224, 224, 3), dtype=np.uint8)
    X = deep_embedder(resize="stretch", precision="int8").fit().transform(noise)
    if not file.exists():
        np.save(file, X)
    else:
        other = np.load(file)
        print("the same bits" if np.array_equal(X, other) else f"differ by up to {np.abs(X - other).max():.2g}")


if __name__ == "__main__":
    same(Path(sys.argv[1]))
