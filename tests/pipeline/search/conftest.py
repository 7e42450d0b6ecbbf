"""Searchers over the finished run, and images from outside of it."""

import pytest
from running import copy_run, visterm

from visterm.pipeline import Searcher

CLASSES = ("apple", "pear", "plum")


@pytest.fixture
def mine(finished, tmp_path):
    """A copy of the finished run, over images of its own."""
    visterm("features", "fruit", cwd=copy_run(finished, tmp_path))  # the root has moved
    return tmp_path


@pytest.fixture(scope="session")
def searcher(finished):
    return Searcher(finished / "runs/fruit")


@pytest.fixture
def outside(tmp_path, write_images):
    """A folder with an image of each class that is not in the collection."""
    write_images(tmp_path / "outside", [f"{c}/new.jpg" for c in CLASSES])
    return tmp_path / "outside"
