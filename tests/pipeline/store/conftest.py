"""A collection of made-up images, and their extraction."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.segments import write_segment


@pytest.fixture
def collection(tmp_path):
    collection = Collection(tmp_path / "collection", create=True)
    yield collection
    collection.close()


@pytest.fixture(scope="session")
def touch():
    """Function (root, *names, content) that writes files."""
    return _touch


@pytest.fixture(scope="session")
def extract():
    """Function (collection) that enters counts for pending images; visterm i of the i-th image has the count i + 1."""
    return _extract


def _touch(root, *names, content=b"x"):
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content)


def _extract(collection):
    pending = collection.pending()
    counts = np.diag(np.arange(1, len(pending) + 1, dtype=np.int32))
    number = collection.reserve_segments(1)
    write_segment(collection.segments / str(number), sparse.csr_matrix(counts))
    collection.enter_segment(
        number, [Outcome(id_, f"sha{id_}", 128, 96, row, None) for row, (id_, _) in enumerate(pending)]
    )
    return [path for _, path in pending]
