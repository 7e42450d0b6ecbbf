"""Fixtures of several rooms: one small run for all tests that need a finished one, its searcher, a full disk."""

import contextlib
import resource

import pytest
from running import CLASSES, SMALL, copy_run, visterm

from visterm.pipeline import Searcher
from visterm.pipeline.store.run import Run


@pytest.fixture(scope="session")
def finished(build_once, write_images):
    """A folder with three classes of ten images, and the run "fruit" of oasis, wsabie and musl, oasis evaluated.

    Tests only read it; `mine` is a copy to change. A module that needs another run has a `finished` of its own.
    """

    def build(folder):
        write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in CLASSES for i in range(10)])
        visterm("features", "fruit", *SMALL, cwd=folder)
        visterm("train", "--learner", "oasis,wsabie,musl", cwd=folder)
        visterm("evaluate", cwd=folder)

    return build_once("finished", "fruit", build)


@pytest.fixture
def mine(finished, tmp_path):
    """A copy of `finished` that a test may change."""
    return copy_run(finished, tmp_path)


@pytest.fixture
def run(mine):
    """The run in `mine`."""
    return Run(mine / "runs/fruit")


@pytest.fixture(scope="session")
def searcher(finished):
    return Searcher(finished / "runs/fruit")


@pytest.fixture
def outside(tmp_path, write_images):
    """A folder with an image of each class that is not in the collection."""
    write_images(tmp_path / "outside", [f"{c}/new.jpg" for c in CLASSES])
    return tmp_path / "outside"


@contextlib.contextmanager
def _small_disk(limit):
    """No file may grow beyond so many bytes, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def small_disk():
    """``with small_disk(60_000)``: no file may grow beyond so many bytes."""
    return _small_disk
