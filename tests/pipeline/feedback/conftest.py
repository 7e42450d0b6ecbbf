"""A disk that is full, for tests of what is written to it."""

import contextlib
import resource

import pytest


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
