"""A finished run whose images are its own."""

import pytest
from running import copy_run, visterm


@pytest.fixture
def mine(finished, tmp_path):
    """A copy of the finished run, over images of its own."""
    visterm("features", "fruit", cwd=copy_run(finished, tmp_path))  # the root has moved
    return tmp_path
