"""Quality that the commands reach with the configurations in `configs`.

``visterm features``, ``train`` and ``evaluate`` on the classes of Caltech-101 that a configuration names, as a user
runs them, for each of three splits. Test images query test images.
"""

import numpy as np

from benchmarks.photos import evaluated
from benchmarks.records import FIRST, compared, record
from benchmarks.vectors import DATA, ROOT

FOLDS = (0, 1, 2)
RUNS = {
    "config-map-1000": ("caltech101-20", []),
    "config-map-10000": ("caltech101-20-10000", []),
    "config-map-10000-stride32": ("caltech101-20-10000", ["features.stride=32"]),
}
QUICK = ["oasis.n_steps=20000", "features.max_training_images=100"]


def measure(name: str, quick: bool) -> dict:
    config, settings = RUNS[name]
    file, chosen = f"configs/{config}.yaml", [*settings, *(QUICK if quick else [])]
    maps = []
    for fold in FOLDS[: 1 if quick else 3]:
        options = ("--config", str(ROOT / file))
        systems = evaluated(DATA / "caltech101", *options, settings=[*chosen, f"split.seed={fold}"])
        maps.append([systems[system]["map"] for system in ("oasis", "cosine")])
    oasis, cosine = np.transpose(maps)
    return record(
        name,
        ", ".join((file, *chosen)),
        "cosine",
        FIRST,
        compared(oasis[0], cosine[0], "mAP", 500, higher=True),
        measured="20 classes, 800 images learned from, 500 queries, split.seed 0; ratios of 0, 1, 2: "
        + ", ".join(f"{ratio:.2f}" for ratio in oasis / cosine),
        ratio_of_folds=(oasis / cosine).tolist(),
    )


def run(quick: bool = False) -> list[dict]:
    return [measure(name, quick) for name in list(RUNS)[: 1 if quick else 3]]
