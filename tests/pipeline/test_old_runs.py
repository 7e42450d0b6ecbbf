"""A run folder made by the last commit of version 0.1 opens and works."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from running import json_of, refused, visterm

pytestmark = pytest.mark.slow

COMMIT = "8a20b557"  # the last one before the pipeline had rooms
ROOMS = ("features", "learners", "retrieval", "pipeline")
PROGRAM = """
import sys
from pathlib import Path
from visterm.pipeline import Searcher
from visterm.pipeline.config import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.feedback import Marks, Teacher
from visterm.pipeline.judge import Judgements, draw_tasks
from visterm.pipeline.run import Run
from visterm.pipeline.stages import evaluate, features, train

run, console = Run(Path("runs/fruit")), Console(quiet=True)
settings = ["features.n_visterms=20", "oasis.n_steps=300", "oasis.pass_steps=100", "compute.n_jobs=1"]
config = load_config(None, [*settings, "split.train=5", "split.test=3"])
features(run, config, Path("fruit"), console)
train(run, config, "oasis", console)
evaluate(run, config, "oasis", console)
searcher = Searcher(run)
tasks = draw_tasks(searcher, "oasis", n_queries=1, k=2, n_random=1)
judgements = Judgements(run.judgements)
judgements.create(tasks, learner="oasis", version=searcher.version)
task = judgements.next("ann")["task"]
judgements.decide("ann", task["task"], task["image"], "relevant")
marks = Marks(run.marks)
for row, mark in ((1, 1), (20, -1)):
    marks.add(searcher.images[0].sha256, searcher.images[row], mark, learner="oasis")
print(Teacher(run).update("oasis")["n_marks"])
"""


@pytest.fixture(scope="module")
def old(repository, tmp_path_factory, write_images):
    """The folder above ``runs/fruit`` of that version, and what it found."""
    folder = tmp_path_factory.mktemp("old")
    archive = subprocess.run(["git", "-C", repository, "archive", COMMIT, *ROOMS], capture_output=True)
    if archive.returncode:
        pytest.skip(f"no commit {COMMIT} in this checkout: its history is not here")
    (folder / "code").mkdir()
    subprocess.run(["tar", "-x", "-C", folder / "code"], input=archive.stdout, check=True)
    (folder / "path/visterm").mkdir(parents=True)
    for room in ROOMS:
        (folder / "path/visterm" / room).symlink_to(folder / "code" / room)
    write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in ("pear", "plum", "fig") for i in range(8)])
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / "path"), "NUMBA_OPT": "0"},  # to compile sooner
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.split() == ["2"]
    return folder


def test_an_old_run_is_up_to_date_and_works(old):
    """Its images were taken as they came: with the sizes that are now the default, the run is out of date.

    So is its learner, of which all counts: it was trained before a share was chosen. As it was asked for, it is not.
    """
    folder = old / "runs/fruit"
    kept = {file: file.read_bytes() for file in folder.rglob("*") if file.suffix in (".npy", ".json", ".csv")}
    why = "features.max_side, features.enlarge_to differ from those it was made with"
    assert why in refused("train", cwd=old)
    assert f"(out of date, {why}: run features again)" in json_of("info", cwd=old)["learned from"]
    assert len(json_of("search", "pear/0.jpg", cwd=old)[0]["results"]) == 10
    as_before = ("--set", "features.max_side=null", "--set", "features.enlarge_to=null", "--set", "oasis.whiten=false")
    as_before += ("--set", "train.world=seen", "--set", "train.learned=1")
    assert json_of("info", cwd=old)["learners"] == {"oasis": "trained (out of date: train again)"}
    assert "nothing to do" in visterm("features", "fruit", *as_before, cwd=old).stderr
    info = json_of("info", cwd=old)
    assert info["pending"] == 0
    assert "out of date" not in json.dumps(info["learners"])
    assert not info["evaluations"]["oasis"]["stale"]
    assert "up to date" in visterm("train", cwd=old).stderr
    assert visterm("evaluate", cwd=old).stdout.strip() == "runs/fruit/evaluations/oasis/report.html"
    assert {file: file.read_bytes() for file in kept} == kept  # nothing was made again
    (answer,) = json_of("search", "pear/0.jpg", cwd=old)
    assert len(answer["results"]) == 10
    status = json_of("feedback", "status", cwd=old)
    assert (status["relevant"], status["not"]) == (1, 1)
    assert json_of("judge", "results", cwd=old)["judges"][0]["done"] == 1
    (old / "fruit/fig/9.jpg").write_bytes((old / "fruit/fig/1.jpg").read_bytes())
    assert "1 image extracted" in visterm("features", "fruit", cwd=old).stderr
    visterm("train", cwd=old)
    visterm("evaluate", cwd=old)
    told = visterm("features", "fruit", "--set", "features.max_side=500", cwd=old).stderr
    assert told.count("run fruit: made with features.max_side=null, now 500; ") == 1
    assert "25 images extracted" in told
