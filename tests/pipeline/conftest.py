"""One small run for all tests of the pipeline that need a finished one."""

from __future__ import annotations

import pytest
from running import copy_run, visterm

SMALL = [
    part
    for setting in (
        *("features.n_visterms=40", "oasis.n_steps=4000", "oasis.pass_steps=1000", "wsabie.n_steps=4000"),
        *("wsabie.pass_steps=1000", "musl.n_metrics=2", "musl.n_bits=8", "compute.n_jobs=1"),
    )
    for part in ("--set", setting)
]
CLASSES = ("apple", "pear", "plum")


@pytest.fixture(scope="session")
def finished(tmp_path_factory, write_images):
    """A folder with three classes of ten images, and the run "fruit" of oasis, wsabie and musl, oasis evaluated.

    Tests only read it; `mine` is a copy to change.
    """
    folder = tmp_path_factory.mktemp("finished")
    write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in CLASSES for i in range(10)])
    visterm("features", "fruit", *SMALL, cwd=folder)
    visterm("train", "--learner", "oasis,wsabie,musl", cwd=folder)
    visterm("evaluate", cwd=folder)
    return folder


@pytest.fixture
def mine(finished, tmp_path):
    """A copy of `finished` that a test may change; to damage an array or image, replace its file, as it is a link."""
    return copy_run(finished, tmp_path)
