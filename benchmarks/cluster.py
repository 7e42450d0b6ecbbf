"""Extraction by workers of a Dask cluster on this machine, beside joblib's processes.

    python -m benchmarks cluster [--quick]

A scheduler and four workers, each a process with one thread, as ``dask scheduler`` and ``dask worker`` start them.
The images are those of Caltech-101 below ``$VISTERM_DATA``, or else crops of photos, each under several names. The two
sides extract all of them in turns, after a round that starts their processes and compiles.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.extraction import ImageSource, extract
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content

from .photos import some_photos
from .processes import link_images, temporary_folder
from .records import ELAPSED, compared, record, seconds

N_WORKERS = 4
# As joblib does it, and without Dask's sampling of what its workers are at, every 10 ms.
SINGLE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}
SETTINGS = ("features.max_training_images=500",)


@contextlib.contextmanager
def dask_cluster(folder: Path) -> Iterator[str]:
    """Start a scheduler and workers; yield its address."""
    file, processes = folder / "scheduler.json", []

    def start(*arguments: str) -> None:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        processes.append(subprocess.Popen(command, **quiet, cwd=folder, env=os.environ | SINGLE))

    try:
        start("scheduler", "--host=127.0.0.1", "--port=0", "--no-show", f"--scheduler-file={file}")
        while not file.exists() or not file.read_text().endswith("}"):
            if processes[0].poll() is not None:
                raise RuntimeError("the scheduler does not start")
            time.sleep(0.1)
        for _ in range(N_WORKERS):
            start("worker", f"--scheduler-file={file}", "--nthreads=1", "--no-nanny", "--memory-limit=0")
        import distributed

        with distributed.Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(N_WORKERS, timeout=120)
            address = client.scheduler.address
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def extraction_seconds(run: Run, config: Config, collection: Collection, root: Path) -> float:
    """Extract every image again."""
    collection.use_extractor("")
    collection.use_extractor(extractor_content(run))
    it = OpenedRun(run, config, collection)
    source, pending = ImageSource.of(it, root), collection.pending()
    spent = seconds(extract, it, source, pending, Console(quiet=True), clock=ELAPSED)
    collection.clean()
    return spent


def run(quick: bool = False) -> list[dict]:
    n, times, rounds, n_visterms = (200, 6, 3, 1000) if quick else (2000, 8, 5, 10_000)
    with temporary_folder() as folder:
        (folder / "photos").mkdir()
        link_images(folder / "images", some_photos(n, 0, folder / "photos")[0], n * times)
        settings = [*SETTINGS, f"features.n_visterms={n_visterms}", f"compute.segment_size={32 if quick else 256}"]
        here = load_config(None, [*settings, f"compute.n_jobs={os.cpu_count()}"])
        place, root = Run(folder / "runs" / "photos"), folder / "images"
        features_stage(place, here, root, Console(quiet=True))
        with dask_cluster(folder) as address, place.locked(), Collection(place.collection) as collection:
            there = load_config(None, [*settings, f"cluster.scheduler={address}"])
            spent = np.array(
                [
                    [extraction_seconds(place, config, collection, root) for config in (there, here)]
                    for _ in range(rounds + 1)
                ]
            )[1:]  # the first round starts processes and compiles
    ours, peer = n * times / np.median(spent, axis=0)
    ratio = float(np.median(spent[:, 1] / spent[:, 0]))
    return [
        record(
            "cluster-extraction",
            f"{n * times} photos to {n_visterms} visterms by {N_WORKERS} Dask workers",
            f"joblib, {os.cpu_count()} processes on {os.cpu_count()} cores",
            "1: both do the same work on the same cores",
            compared(ours, peer, "photos a second", n * times, ratio=ratio),
            measured=f"median of {rounds} in turns, elapsed time of extraction with connecting to the cluster",
        )
    ]
