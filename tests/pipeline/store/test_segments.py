"""Segments: numbers, and the remains of a killed run."""

import json

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.checksums import files_crc32, sealed
from visterm.pipeline.store.segments import is_whole, read_segment, read_segment_record, write_segment


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


@pytest.mark.parametrize(
    ("name", "place", "value"), [("indices", 3, 5), ("indices", 0, -1), ("indptr", 2, 9), ("counts", 1, -2)]
)
def test_numbers_out_of_range_are_damage(tmp_path, name, place, value):
    """With checksums that fit, as of a program that wrote them: compiled code would read beyond its arrays."""
    segment = tmp_path / "run/collection/segments/1"
    write_segment(segment, sparse.csr_matrix(np.eye(5, dtype=np.int32)), [[1, "a", "", 1, 1]])
    array = np.load(segment / f"{name}.npy")
    array[place] = value
    np.save(segment / f"{name}.npy", array)
    record = read_segment_record(segment)
    record["crc32"] |= files_crc32(segment, [f"{name}.npy"])
    (segment / "record.json").write_text(json.dumps(sealed(record)))
    for _ in range(2):
        with pytest.raises(UserError, match=r"segments/1: damaged segment \(.*visterm features --run run"):
            read_segment(segment)
        assert not is_whole(segment)
