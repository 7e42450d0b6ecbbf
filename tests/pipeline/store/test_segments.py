"""Segments: numbers, and the remains of a killed run."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from visterm.pipeline.store.segments import write_segment


def test_what_a_killed_run_left_behind_is_removed(collection, scan, extract):
    scan("a/1.jpg")
    extract()
    number = collection.reserve_segments(1)
    write_segment(collection.segments / str(number), sparse.csr_matrix(np.eye(1, dtype=np.int32)))
    (collection.segments / "3.tmp").mkdir()
    collection.clean()
    assert [path.name for path in collection.segments.iterdir()] == ["1"]


def test_segment_numbers_are_never_given_twice(collection):
    """A worker of a killed run may still be writing the one that it was given."""
    assert [collection.reserve_segments(3), collection.reserve_segments(1)] == [1, 4]
