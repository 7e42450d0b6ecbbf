"""Segments: numbers, damage, and the remains of a killed run."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.segments import read_segment, write_segment


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


def test_a_damaged_segment_is_named(collection, tmp_path):
    write_segment(collection.segments / "1", sparse.csr_matrix(np.eye(3, dtype=np.int32)))
    (collection.segments / "1" / "indices.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match="damaged segment"):
        read_segment(collection.segments / "1")
