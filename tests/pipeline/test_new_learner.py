"""A learner that is one class and one row of the table works with every command, and the page offers it."""

import json
import subprocess
import sys

import pytest
from running import set_all

PROGRAM = '''
import json
import sys

import numpy as np
import scipy.sparse as sp

import visterm.learners
from visterm.pipeline.config import learners


class Toy(visterm.learners.SimilarityLearner):
    """Visterms count as their means in classes vary."""

    _state = (*visterm.learners.SimilarityLearner._state, "weights_")

    def __init__(self, *, power: float = 1.0) -> None:
        self.power = power

    def check(self, X, y, *, vectors=None):
        if self.power > 9:
            raise ValueError(f"power={self.power} of {vectors} visterms is too much; use power=2")

    def _fit(self, X, y, options):
        X = self._check_images(X, reset=True)
        means = np.stack([np.asarray(X[y == label].mean(axis=0)).ravel() for label in np.unique(y)])
        self.weights_ = (0.01 + means.std(axis=0) ** self.power).astype(np.float32)
        return self

    def transform_query(self, Q):
        return sp.csr_array(self._check_images(Q)).multiply(self.weights_).tocsr()


class Settings:
    power: float = learners._within(1.0, gt=0)


visterm.learners.LEARNERS["Toy"] = Toy
learners.TABLE["toy"] = learners.Row("Toy", "A toy", Settings, {"power": [0.5, 1.0, 2.0]})

from fastapi.testclient import TestClient
from typer.testing import CliRunner
from visterm.pipeline.cli.app import app
from visterm.service.app import create_app
from visterm.pipeline.store.run import Run
from pathlib import Path

said = []
for arguments in json.load(sys.stdin):
    result = CliRunner().invoke(app, arguments, prog_name="visterm")
    said.append([result.exit_code, result.stdout, result.stderr])
with TestClient(create_app(Run(Path("runs/photos"))), base_url="http://127.0.0.1") as client:
    print(json.dumps([said, client.get("/api/run").json()]))
'''
SETTINGS = set_all(features={"n_visterms": 40}, split={"train": 6, "test": 2}, compute={"n_jobs": 1})


@pytest.mark.slow
def test_a_class_and_a_row(write_images, tmp_path):
    """In a process of its own, as the table is read when the program is imported."""
    write_images(tmp_path / "photos", [f"{name}/{i}.jpg" for name in ("pear", "plum", "fig") for i in range(8)])
    commands = [
        ["train", "--help"],
        ["features", "photos", *SETTINGS],
        ["train", "--learner", "toy", "--set", "toy.power=10"],
        ["train", "--learner", "toy"],
        ["tune", "--learner", "toy", "--budget", "1m"],
        ["evaluate", "--learner", "toy"],
        ["search", "id:1", "--learner", "toy", "--json"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(commands),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    said, page = json.loads(done.stdout)
    assert [code for code, _, _ in said] == [0, 0, 2, 0, 0, 0, 0], said
    (_, usage, _), _, (_, _, refusal), _, (_, tuned, _), _, (_, answers, _) = said
    assert "toy" in usage
    assert "toy: power=10.0 of kmeans visterms is too much; use --set toy.power=2\n" in refusal
    assert "power" in tuned
    assert "toy" in json.loads((tmp_path / "runs/photos/evaluations/toy/metrics.json").read_text())["systems"]
    assert json.loads(answers)[0]["results"]
    assert "toy" in page["learners"]
    assert page["titles"]["toy"] == "A toy"
