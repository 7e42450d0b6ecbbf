"""A learner that is one class and one row of the table works with every command, and the page offers it."""

import json
import subprocess
import sys

import pytest

PROGRAM = '''
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

    def _fit(self, X, y, callback, progress):
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

if sys.argv[1] == "page":
    from fastapi.testclient import TestClient
    from visterm.pipeline.service.app import create_app
    from visterm.pipeline.store.run import Run
    from pathlib import Path

    with TestClient(create_app(Run(Path("runs/photos"))), base_url="http://127.0.0.1") as client:
        print(client.get("/api/run").text)
else:
    from visterm.pipeline.cli.app import main

    main(ends_process=True)
'''
SETTINGS = [
    "--set",
    "features.n_visterms=40",
    "--set",
    "split.train=6",
    "--set",
    "split.test=2",
    "--set",
    "compute.n_jobs=1",
]


@pytest.mark.slow
def test_a_class_and_a_row(write_images, tmp_path):
    write_images(tmp_path / "photos", [f"{name}/{i}.jpg" for name in ("pear", "plum", "fig") for i in range(8)])
    (tmp_path / "toy.py").write_text(PROGRAM)

    def visterm(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, "toy.py", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=200
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    assert "toy" in visterm("train", "--help")
    visterm("features", "photos", *SETTINGS)
    refusal = visterm("train", "--learner", "toy", "--set", "toy.power=10", code=2)
    assert "toy: power=10.0 of kmeans visterms is too much; use --set toy.power=2\n" in refusal
    visterm("train", "--learner", "toy")
    assert "power" in visterm("tune", "--learner", "toy", "--budget", "1m")
    visterm("evaluate", "--learner", "toy")
    assert "toy" in json.loads((tmp_path / "runs/photos/evaluations/toy/metrics.json").read_text())["systems"]
    (found,) = json.loads(visterm("search", "id:1", "--learner", "toy", "--json"))
    assert found["results"]
    page = json.loads(visterm("page"))
    assert "toy" in page["learners"]
    assert page["titles"]["toy"] == "A toy"
