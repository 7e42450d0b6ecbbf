"""What `configs/spatial.yaml` gains over the defaults, by set of photos: ``python -m benchmarks spatial [--quick]``.

``visterm features``, ``train`` and ``evaluate``, as a user runs them, with the configuration and without; OASIS, test
images query test images. Three splits, but for Corel-5K, which has one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .configurations import FOLDS
from .statistics import mean_and_error
from .vectors import DATA, ROOT, choose_images

COMMAND = "python -m benchmarks spatial"
SETS = {  # folder, settings, whether it has a split of its own
    "caltech101-20": ("caltech101", ["split.train=40", "split.test=25"], False),
    "caltech101": ("caltech101", ["split.train=40", "split.test=25"], False),
    "flowers": ("flowers", [], False),
    "textures": ("textures", [], False),
    "corel5k": ("corel5k", [f"collection.labels={DATA / 'corel5k' / 'labels.csv'}"], True),
}


def mean_average_precision(folder: str, options: list[str]) -> float:
    """That of OASIS on a set of photos, with some options of the commands."""
    with tempfile.TemporaryDirectory() as runs:
        for stage in (["features", str(DATA / folder)], ["train"], ["evaluate"]):
            command = [Path(sys.executable).with_name("visterm"), *stage, "--run", "bench", *options]
            subprocess.run(command, check=True, capture_output=True, env=os.environ | {"VISTERM_RUNS": runs})
        metrics = json.loads((Path(runs) / "bench" / "evaluations" / "oasis" / "metrics.json").read_text())
    return metrics["systems"]["oasis"]["map"]


def record(name: str, quick: bool) -> dict:
    folder, settings, has_split = SETS[name]
    if name == "caltech101-20":
        classes = sorted({path.parent.name for path in choose_images(name)[0]})
        settings = [*settings, f"collection.classes={json.dumps(classes)}"]
    if quick:
        settings = [*settings, "oasis.n_steps=20000", "features.max_training_images=100"]
    found = []
    for fold in FOLDS[: 1 if quick or has_split else 3]:
        chosen = [*settings, *([] if has_split else [f"split.seed={fold}"])]
        options = [part for setting in chosen for part in ("--set", setting)]
        spatial = ["--config", str(ROOT / "configs" / "spatial.yaml")]
        found.append([mean_average_precision(folder, [*config, *options]) for config in (spatial, [])])
    ours, peer = np.transpose(found)
    folds = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in found)
    return {
        "name": f"spatial-map-{name}",
        "what": f"configs/spatial.yaml on {name}, OASIS",
        "ours": mean_and_error(ours)[0],
        "peer": mean_and_error(peer)[0],
        "peer_name": "the defaults",
        "ratio": float(np.mean(ours) / np.mean(peer)),
        "limit": "1.0: every relevant image first",
        "unit": "mAP",
        "n": len(found),
        "measured": f"mean of {len(found)} split{'s' if len(found) > 1 else ''}: {folds}",
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    return [record(name, quick) for name in (["textures"] if quick else SETS)]
