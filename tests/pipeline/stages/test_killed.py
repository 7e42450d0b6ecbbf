"""kill -9 at random moments: the next run ends with the same bytes as an uninterrupted one."""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run

CLASSES = ("apple", "pear", "plum", "quince")
SETTINGS = (
    "features.n_visterms=100",
    "oasis.n_steps=400000",
    "oasis.pass_steps=20000",
    "oasis.patience=null",
    "compute.segment_size=12",
    "compute.checkpoint_seconds=0",
    "split.train=8",
    "split.test=4",
)


def command(stage, *arguments):
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return [str(Path(sys.executable).with_name("visterm")), stage, *arguments, "--run", "fruit", *settings]


def run(cwd, *arguments):
    result = subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def run_and_kill(cwd, sign, most, rng, *arguments):
    """Kill a stage, but not its workers, within some seconds of a new file; return whether it was still running."""

    def signs():
        found = set()
        for path in cwd.glob(sign):
            with contextlib.suppress(FileNotFoundError):
                found.add((path, path.stat().st_mtime_ns))
        return found

    known = signs()
    process = subprocess.Popen(command(*arguments), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while signs() <= known and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, most))
        return process.poll() is None
    finally:
        process.kill()
        process.wait()


def result(folder):
    """Return everything that must be the same: paths, counts, the extractor's and the model's bytes."""
    place = folder / "runs/fruit"
    collection = Collection(place / "collection")
    images = collection.images()
    counts = collection.counts(images)
    collection.close()
    files = {
        str(path.relative_to(place)): path.read_bytes()
        for part in ("extractor/files", "learners/oasis/files")
        for path in sorted((place / part).glob("*.npy"))
    }
    assert len(files) >= 4
    return [image.path for image in images], counts, files


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, write_images):
    folder = tmp_path_factory.mktemp("undisturbed")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(14)])
    for c in CLASSES:  # unreadable images must not change the split of others
        (folder / f"fruit/{c}/broken.jpg").write_bytes((folder / f"fruit/{c}/1.jpg").read_bytes()[:500])
    place, config, console = Run(folder / "runs/fruit"), load_config(None, list(SETTINGS)), Console(quiet=True)
    features(place, config, folder / "fruit", console)
    train(place, config, "oasis", console)
    return folder


# By stage: a file that shows that the work has begun, and within how many seconds thereafter it is killed. Most of the
# time before is spent on imports.
KILLS = {
    "features": (("extractor.tmp", 0.4), ("collection/segments/*", 0.1)),
    "train": (("learners/oasis.tmp", 0.2), ("learners/oasis.checkpoint/record.json", 0.1)),
}


def test_kills_leave_no_trace(undisturbed, tmp_path):
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    rng = random.Random(0)
    given, made = {"features": ["fruit"], "train": []}, {"features": ".", "train": "learners"}
    for stage, arguments in given.items():
        for sign, most in KILLS[stage]:
            for _ in range(10):
                if run_and_kill(tmp_path, f"runs/fruit/{sign}", most, rng, stage, *arguments):
                    break
                shutil.rmtree(tmp_path / "runs/fruit" / made[stage])  # it was quicker than the kill: start again
            else:
                pytest.fail("the kills come too late")
        last = run(tmp_path, stage, *arguments)
    assert "resuming from the checkpoint" in last.stderr

    paths, counts, files = result(tmp_path)
    expected_paths, expected_counts, expected_files = result(undisturbed)
    assert paths == expected_paths
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(expected_counts, name))
    assert files == expected_files
    left = [str(path) for path in tmp_path.rglob("*") if path.name.endswith((".tmp", ".old", ".checkpoint"))]
    assert left == []


def test_workers_end_with_the_process_that_started_them(undisturbed, tmp_path):
    """Otherwise a reader of its standard error would wait for minutes."""
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    segments = tmp_path / "runs/fruit/collection/segments"
    shutil.copytree(undisturbed / "runs", tmp_path / "runs")
    shutil.rmtree(segments)
    process = subprocess.Popen(
        [*command("features", "fruit"), "--set", "compute.n_jobs=2", "--set", "compute.segment_size=2"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not any(segments.glob("*/record.json")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=20)  # ends when the last process that holds the pipe does


def test_an_interrupted_command_says_so(undisturbed, tmp_path):
    """As for SIGTERM in test_train."""
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    process = subprocess.Popen(
        command("features", "fruit"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # Background jobs of a shell ignore Ctrl-C, and so would their child processes.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "runs/fruit/extractor.tmp").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    for _ in range(10):  # Python loses the signal if it comes inside a callback from C, as while Numba compiles
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            lines = process.communicate(timeout=6)[1].splitlines()
            break
    assert lines[-1] == "visterm: interrupted; re-run the same command to resume"
    assert process.returncode == 130
