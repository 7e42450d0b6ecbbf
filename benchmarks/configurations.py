"""Quality that the commands reach with the configurations in `configs`: ``python -m benchmarks configurations``.

``visterm features``, ``train`` and ``evaluate`` on the classes of Caltech-101 that a configuration names, as a user
runs them, for each of three splits. Test images query test images.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .vectors import DATA, ROOT

COMMAND = "python -m benchmarks configurations"
FOLDS = (0, 1, 2)
RUNS = {
    "config-map-1000": ("caltech101-20", []),
    "config-map-10000": ("caltech101-20-10000", []),
    "config-map-10000-stride32": ("caltech101-20-10000", ["features.stride=32"]),
}


def systems(config: str, settings: list[str]) -> dict:
    """The evaluation's figures of OASIS and cosine."""
    with tempfile.TemporaryDirectory() as runs:
        options = ["--config", str(ROOT / "configs" / f"{config}.yaml"), "--run", "bench"]
        options += [part for setting in settings for part in ("--set", setting)]
        for stage in (["features", str(DATA / "caltech101")], ["train"], ["evaluate"]):
            command = [Path(sys.executable).with_name("visterm"), *stage, *options]
            subprocess.run(command, check=True, capture_output=True, env=os.environ | {"VISTERM_RUNS": runs})
        return json.loads((Path(runs) / "bench" / "evaluations" / "oasis" / "metrics.json").read_text())["systems"]


def record(name: str, quick: bool) -> dict:
    config, settings = RUNS[name]
    if quick:
        settings = [*settings, "oasis.n_steps=20000", "features.max_training_images=100"]
    folds = FOLDS[: 1 if quick else 3]
    found = [systems(config, [*settings, f"split.seed={fold}"]) for fold in folds]
    oasis, cosine = np.array([[fold[system]["map"] for system in ("oasis", "cosine")] for fold in found]).T
    return {
        "name": name,
        "what": f"configs/{config}.yaml" + "".join(f", {setting}" for setting in settings),
        "ours": oasis[0],
        "peer": cosine[0],
        "peer_name": "cosine",
        "ratio": oasis[0] / cosine[0],
        "ratio_of_folds": (oasis / cosine).tolist(),
        "limit": "1.0: every image of the query's class first",
        "unit": "mAP",
        "n": 500,
        "measured": "20 classes, 800 images learned from, 500 queries, split.seed 0; ratios of 0, 1, 2: "
        + ", ".join(f"{ratio:.2f}" for ratio in oasis / cosine),
        "command": COMMAND,
    }


def run(quick: bool = False) -> list[dict]:
    if not (DATA / "caltech101").is_dir():
        print(f"    left out: no {DATA / 'caltech101'}", file=sys.stderr)
        return []
    return [record(name, quick) for name in list(RUNS)[: 1 if quick else 3]]
