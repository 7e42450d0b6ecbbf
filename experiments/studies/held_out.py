"""Held-out images beside test images, by number of visterms.

Early stopping, tuning and the recommended learner rest on mAP on held-out training images. It is to order numbers of
visterms as mAP on test images does, and to be about as large. Each case is a run of the pipeline: ``visterm features``
with so many visterms and a seed of its own, which draws the test images, and ``visterm train --for seen`` of OASIS.
MAP depends on the number of images: test images are measured in galleries as large as the held-out one, too.

What was measured is kept in build/bench/held-out, a file for each set, split and number of visterms, so that an
interrupted benchmark resumes; delete a file to measure it again. Writes the table of docs/comparison.md.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import yaml

from benchmarks.page import DOCS, replace, table
from benchmarks.photos import quality
from benchmarks.records import compared, kept_in, record
from benchmarks.vectors import CACHE, DATA
from visterm.learners import load_learner
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import supervision, vectors

from .open import SETS, triple

TITLES = SETS | {"merged-20": "mixed set, 20 classes of objects, flowers and textures"}
SIZES = (1_000, 3_000, 10_000)
SPLITS = 3
DRAWS = 5  # of test images, as many as are held out
HEADER = ("1,000 / 3,000 / 10,000 visterms", "held-out mAP", "test mAP, as many images", "test mAP, all", "difference")


def photos_of(name: str) -> Path:
    """The folder of a set; of a set of several sources one of links."""
    if (DATA / name).is_dir():
        return DATA / name
    folder = CACHE / "held-out" / name
    for source, categories in yaml.safe_load((DATA / "sets.yaml").read_text())[name].items():
        for category in categories:
            (folder / category).mkdir(parents=True, exist_ok=True)
            for photo in (DATA / source / category).iterdir():
                link = folder / category / photo.name
                if not link.exists():
                    link.symlink_to(photo)
    return folder


def measured(name: str, n_visterms: int, split: int) -> dict[str, Any]:
    """MAP of OASIS on held-out images, on as many test images, and on all of these."""
    settings = [f"features.n_visterms={n_visterms}", f"seed={split}", "train.world=seen", "compute.n_jobs=2"]
    if (DATA / name / "labels.csv").exists():
        settings.append(f"collection.labels={DATA / name / 'labels.csv'}")
    config, console = load_config(None, settings), Console(quiet=True)
    run = Run(CACHE / "held-out" / f"run-{name}-{n_visterms}-{split}")
    features(run, config, photos_of(name), console)
    result = train(run, config, "oasis", console)
    learner: Any = load_learner(run.learner("oasis") / "files")
    with Collection(run.collection) as collection:
        tested = collection.images("test", labelled=True)
        X, (y, _) = vectors(run, collection, tested), supervision(tested)
        held_out, _ = supervision([collection.images("train", labelled=True)[row] for row in learner.held_out_])
    shutil.rmtree(run.folder)
    rng, drawn = np.random.default_rng(split), []
    for _ in range(DRAWS):
        if sp.issparse(y):
            rows = rng.permutation(y.shape[0])[: held_out.shape[0]]
        else:
            each = [(rng.permutation(np.flatnonzero(y == one)), (held_out == one).sum()) for one in np.unique(y)]
            rows = rng.permutation(np.concatenate([members[:n] for members, n in each]))
        drawn.append(quality(learner, X[rows], y[rows]))
    figures = {
        "held_out": result["validation_map"],
        "test_as_many": float(np.mean(drawn)),
        "test": quality(learner, X, y),
        "n_held_out": len(learner.held_out_),
    }
    print(f"    {name} {n_visterms} {split}: {figures}", flush=True)
    return figures


def run(quick: bool = False) -> list[dict]:
    """Measure what is not kept, and write the table."""
    names, sizes, n_splits = (["flowers"], SIZES[:1], 1) if quick else (list(TITLES), SIZES, SPLITS)
    kept: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}
    for split in range(n_splits):
        for name in names:
            files = [CACHE / "held-out" / f"{name}-{size}-{split}.json" for size in sizes]
            kept[name].append(
                [
                    kept_in(file, lambda case=(name, size, split): measured(*case))
                    for file, size in zip(files, sizes, strict=True)
                ]
            )
    records, rows = [], []
    for name in names:
        of = {
            which: np.mean([[case[which] for case in cases] for cases in kept[name]], axis=0)
            for which in ("held_out", "test_as_many", "test")
        }
        n = kept[name][0][0]["n_held_out"]
        difference = of["held_out"] - of["test_as_many"]
        for i, size in enumerate(sizes):
            records.append(
                record(
                    f"held-out-map-{name}-{size}",
                    f"OASIS, {TITLES[name]}, {size:,} visterms: mAP on held-out training images",
                    "on as many test images",
                    "1, a difference of at most 0.03 asked",
                    compared(of["held_out"][i], of["test_as_many"][i], "mAP", n, higher=True),
                    measured=f"means of {n_splits} splits",
                    all_test_images=float(of["test"][i]),
                )
            )
        figures = [triple(of[which]) for which in ("held_out", "test_as_many", "test")]
        rows.append([f"{TITLES[name].partition(',')[0]}, {n:,} held out", *figures, triple(difference)])
    if not quick:
        replace(DOCS / "comparison.md", "held-out", table(HEADER, rows))
    return records
