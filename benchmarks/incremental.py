"""Time of a second ``visterm features`` with nothing changed, beside the first."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median

from .photos import caltech_or_demo
from .processes import visterm
from .records import ELAPSED, compared, record, seconds


def run(quick: bool = False) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        images = caltech_or_demo(Path(folder) / "images", quick)
        n = sum(len(files) for _, _, files in os.walk(images))
        command = (visterm, folder, "features", images, "--set", "features.n_visterms=1000")
        first = seconds(*command, clock=ELAPSED)
        second = median(seconds(*command, clock=ELAPSED) for _ in range(5))
    return [
        record(
            "features-again",
            f"looking through {n} images that have not changed",
            "the first run on these images",
            "starting Python, and one stat call an image",
            compared(second, first, "s", 5),
            measured="median of 5 (peer: once), elapsed time of the command, all cores",
        )
    ]
