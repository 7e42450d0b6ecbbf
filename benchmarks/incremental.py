"""Time of a second ``visterm features`` with nothing changed, beside the first."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median


def run(quick: bool = False) -> list[dict]:
    data = Path(os.environ.get("VISTERM_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
    with tempfile.TemporaryDirectory() as folder:
        images = data / "caltech101"
        if quick or not images.is_dir():  # crops of photos that come with the libraries
            from visterm.pipeline.stages.demo_images import write_demo_images

            images = Path(folder) / "images"
            write_demo_images(images)
        n = sum(len(files) for _, _, files in os.walk(images))
        visterm = Path(sys.executable).with_name("visterm")
        command = [visterm, "features", images, "--run", "bench", "--set", "features.n_visterms=1000"]

        def seconds() -> float:
            started = time.perf_counter()
            subprocess.run(command, check=True, env=os.environ | {"VISTERM_RUNS": folder}, capture_output=True)
            return time.perf_counter() - started

        first = seconds()
        second = median(seconds() for _ in range(5))
    return [
        {
            "name": "features-again",
            "what": f"looking through {n} images that have not changed",
            "ours": second,
            "peer": first,
            "peer_name": "the first run on these images",
            "ratio": first / second,
            "limit": "starting Python, and one stat call an image",
            "unit": "s",
            "n": 5,
            "measured": "median of 5 (peer: once), elapsed time of the command, all cores",
            "command": "python -m benchmarks incremental",
        }
    ]
