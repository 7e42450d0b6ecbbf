"""A collection of made-up images, and their extraction."""

import os

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.segments import write_segment


@pytest.fixture
def collection(tmp_path):
    collection = Collection(tmp_path / "collection", create=True)
    yield collection
    collection.close()


@pytest.fixture
def scan(collection, tmp_path):
    """Function (*names, settings, content) that writes files below images/ and scans it; returns what it changed."""

    def scan(*names, settings=(), content=b"x"):
        for name in names:
            path = os.path.join(os.fsencode(tmp_path / "images"), os.fsencode(name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(content)
        changes = collection.scan(tmp_path / "images", load_config(None, list(settings)))
        return changes.added, changes.changed, changes.removed, changes.unchanged

    return scan


@pytest.fixture
def extract(collection):
    """Function that enters counts for pending images: visterm i of the i-th has the count i + 1; returns all images."""

    def extract():
        pending = collection.pending()
        counts = np.diag(np.arange(1, len(pending) + 1, dtype=np.int32))
        number = collection.reserve_segments(1)
        write_segment(collection.segments / str(number), sparse.csr_matrix(counts))
        outcomes = [Outcome(id_, f"sha{id_}", 128, 96, row, None) for row, (id_, _) in enumerate(pending)]
        collection.enter_segment(number, outcomes)
        return collection.images()

    return extract
