"""kill -9 at random moments: the next run ends with the same bytes as one that was left in peace."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from visterm.pipeline.store.catalogue import Collection

CLASSES = ("apple", "pear", "plum", "quince")
SETTINGS = (
    "features.n_visterms=200",
    "oasis.n_steps=400000",
    "oasis.pass_steps=20000",
    "oasis.patience=null",
    "compute.segment_size=12",
    "compute.checkpoint_seconds=0",
    "split.train=12",
    "split.test=8",
)


def command(stage, *arguments):
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return [str(Path(sys.executable).with_name("visterm")), stage, *arguments, "--run", "fruit", *settings]


def run(cwd, *arguments):
    result = subprocess.run(command(*arguments), cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def run_and_kill(cwd, sign, most, rng, *arguments):
    """Kill a stage within some seconds of a new file, but not its workers; tell whether it was still at work."""
    known = set(cwd.glob(sign))
    process = subprocess.Popen(command(*arguments), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while known.issuperset(cwd.glob(sign)) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, most))
        return process.poll() is None
    finally:
        process.kill()
        process.wait()


def result(folder):
    """Everything that must come out the same: paths, counts, the extractor's and the model's bytes."""
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
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(24)])
    for c in CLASSES:  # what cannot be read must not move others from split to split
        (folder / f"fruit/{c}/broken.jpg").write_bytes((folder / f"fruit/{c}/1.jpg").read_bytes()[:500])
    run(folder, "features", "fruit")
    run(folder, "train")
    return folder


# By stage: a file that shows that the work has begun, and within how many seconds thereafter it is killed. Before that
# most time goes into imports.
KILLS = {
    "features": (("extractor.tmp", 0.4), ("collection/segments/*", 0.1)),
    "train": (("learners/oasis.tmp", 0.2), ("learners/oasis.checkpoint*/*", 0.1)),
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
                shutil.rmtree(tmp_path / "runs/fruit" / made[stage])  # it was quicker than the kill: begin again
            else:
                pytest.fail("the kills come too late")
        run(tmp_path, stage, *arguments)

    paths, counts, files = result(tmp_path)
    expected_paths, expected_counts, expected_files = result(undisturbed)
    assert paths == expected_paths
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(counts, name), getattr(expected_counts, name))
    assert files == expected_files
    left = [str(path) for path in tmp_path.rglob("*") if path.name.endswith((".tmp", ".old", ".checkpoint"))]
    assert left == []


def test_training_goes_on_from_its_checkpoint(undisturbed, tmp_path):
    """A killed training must not start from the beginning."""
    shutil.copytree(undisturbed / "runs", tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs/fruit/learners")
    process = subprocess.Popen(command("train"), cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    checkpoint = tmp_path / "runs/fruit/learners/oasis.checkpoint"
    deadline = time.monotonic() + 60
    while not (checkpoint / "record.json").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert "going on from the checkpoint" in run(tmp_path, "train").stderr
    assert result(tmp_path)[2] == result(undisturbed)[2]


def test_workers_end_with_the_process_that_started_them(undisturbed, tmp_path):
    """Or whoever reads its standard error to the end would wait for minutes."""
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_command_says_so(undisturbed, tmp_path, number, code):
    (tmp_path / "fruit").symlink_to(undisturbed / "fruit")
    process = subprocess.Popen(
        command("features", "fruit"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        # Jobs in a shell's background ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "runs/fruit/extractor.tmp").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    lines = process.communicate(timeout=60)[1].splitlines()
    assert lines[-1] == "visterm: interrupted; re-run the same command to resume"
    assert process.returncode == code
