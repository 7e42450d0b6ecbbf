"""The vectors and the learner that ``visterm try`` chooses, against the best of nine.

The nine are deep vectors, visterms and visterms per cell, by cosine, oasis and hier, trained on all training images
with the defaults of ``visterm train`` and with ``--for seen``, by mAP on test images as in the study defaults,
whose figures are shared. ``visterm try`` sees at most 600 images, with its own held-out ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.records import compared, kept_in, record
from benchmarks.vectors import CACHE, DATA
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.plugins.choosing.try_photos import LEARNERS, try_photos

from .defaults import SPLITS, WORLDS, measured
from .open import KINDS, SETS


def tried(name: str, world: str) -> dict[str, Any]:
    """What ``visterm try`` says of a set."""
    settings = [f"train.world={world}"]
    if (DATA / name / "labels.csv").exists():
        settings.append(f"collection.labels={DATA / name / 'labels.csv'}")
    return try_photos(DATA / name, load_config(None, settings), Console(quiet=True))


def test_maps(name: str, world: str, quick: bool) -> dict[tuple[str, str], float]:
    """Test mAP of kinds of vectors and learners, means over the splits."""
    maps = {}
    for kind in KINDS:
        for learner in LEARNERS:
            file = CACHE / "defaults" / f"{name}-{kind}-{world}-{learner}{'-quick' if quick else ''}.json"
            splits = kept_in(
                file,
                lambda case=(name, kind, world, learner): measured(*case, 1 if quick else SPLITS),
            )
            maps[kind, learner] = float(np.mean([split["test"][0] for split in splits]))
            maps[kind, "cosine"] = float(np.mean([split["cosine"][0] for split in splits]))
    return maps


def run(quick: bool = False) -> list[dict]:
    """One record per set and world, and one of the longest time."""
    records, longest = [], 0.0
    for name in ["flowers"] if quick else SETS:
        for world in ["open"] if quick else WORLDS:
            chosen = tried(name, world)
            longest = max(longest, chosen["seconds"])
            maps = test_maps(name, world, quick)
            pair = chosen["vectors"], chosen["learner"]
            best = max(maps, key=lambda pair: maps[pair])
            where = {"open": "images of any class", "seen": "trained classes"}[world]
            records.append(
                record(
                    f"try-{name}-{world}",
                    f"{SETS[name]}, for {where}: test mAP of what visterm try chooses ({', '.join(pair)})",
                    f"the best of nine ({', '.join(best)})",
                    "1: none is better; 0.97 asked",
                    compared(maps[pair], maps[best], "mAP", 1 if quick else SPLITS, higher=True),
                    measured=f"means of splits; {chosen['n_tried']} of {chosen['n_images']:,} images tried",
                )
            )
    records.append(
        record(
            "try-seconds",
            "visterm try, the slowest set",
            "90 s asked",
            "none",
            compared(longest, 90.0, "s", len(records)),
            measured="once per set",
        )
    )
    return records
