"""One small run for all tests of the pipeline that need a finished one."""

from __future__ import annotations

import pytest
from running import CLASSES, SMALL, copy_run, visterm


@pytest.fixture(scope="session")
def finished(build_once, write_images):
    """A folder with three classes of ten images, and the run "fruit" of oasis, wsabie and musl, oasis evaluated.

    Tests only read it; `mine` is a copy to change.
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
