"""A run of three classes of ten images, with three learners."""

import shutil

import pytest
from typer.testing import CliRunner

from visterm.features import images
from visterm.pipeline import Searcher
from visterm.pipeline.cli.app import app

SMALL = [
    *("--set", "features.n_visterms=40"),
    *("--set", "oasis.n_steps=4000"),
    *("--set", "oasis.pass_steps=1000"),
    *("--set", "wsabie.n_steps=4000"),
    *("--set", "wsabie.pass_steps=1000"),
    *("--set", "musl.n_metrics=2"),
    *("--set", "musl.n_bits=8"),
    *("--set", "compute.n_jobs=1"),
]
CLASSES = ("apple", "pear", "plum")


def _visterm(*arguments, cwd, check=0):
    """Run the command in a folder, in this process; the exit code must be the one expected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("VISTERM_RUN", "")
        patch.delenv("VISTERM_RUNS", raising=False)
        patch.setattr(images, "_silenced", True)  # pytest's own descriptors stay as they are
        result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="visterm")
    assert result.exit_code == check, result.stderr
    return result


@pytest.fixture(scope="session")
def visterm():
    """Run the command in a folder, in this process: ``visterm("info", cwd=folder)``."""
    return _visterm


@pytest.fixture(scope="session")
def done(tmp_path_factory, write_images):
    """A folder with three classes of ten images, and a run with three learners."""
    folder = tmp_path_factory.mktemp("searcher")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(10)])
    _visterm("features", "fruit", *SMALL, cwd=folder)
    _visterm("train", "--learner", "oasis,wsabie,musl", cwd=folder)
    return folder


@pytest.fixture
def mine(tmp_path, write_images, done):
    """A copy of it that a test may change, with images of its own."""
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    _visterm("features", "fruit", cwd=tmp_path)  # the root has moved
    return tmp_path


@pytest.fixture(scope="session")
def searcher(done):
    return Searcher(done / "runs/fruit")


@pytest.fixture
def outside(tmp_path, write_images):
    """A folder with an image of each class that is not in the collection."""
    write_images(tmp_path / "outside", [f"{c}/new.jpg" for c in CLASSES])
    return tmp_path / "outside"
