"""Relevance marks: what stands, undo, many writers, full disks, damage."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np
import pytest

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.run import Run
from visterm.teaching.feedback import FeedbackTrainer
from visterm.teaching.marks import RelevanceMarks

QUERY, OTHER = hashlib.sha256(b"query").hexdigest(), hashlib.sha256(b"other").hexdigest()


def image(number, path=None):
    return Image(number, path or f"pear/{number}.jpg", f"{number:064x}", {}, None, 0, 0)


def stands(marks, query=QUERY):
    return {mark.image: mark.mark for mark in marks.of(query)}


@pytest.fixture
def marks(tmp_path):
    return RelevanceMarks(tmp_path / "feedback.sqlite")


def test_reading_makes_no_file_and_the_last_mark_of_an_image_stands(marks):
    assert (marks.of(QUERY), marks.standing(), marks.export(), marks.vector(QUERY, "x")) == ([], {}, [], None)
    assert not marks.file.exists()
    for number, mark in ((1, 1), (2, -1), (3, 1), (1, -1), (3, 0)):
        marks.add(QUERY, image(number), mark, learner="oasis")
    marks.add(OTHER, image(1), 1, learner="oasis")
    assert stands(marks) == {2: -1, 1: -1}
    assert stands(marks, OTHER) == {1: 1}
    assert list(marks.standing()) == [QUERY, OTHER]
    assert len(marks.export()) == 6


def test_undo_goes_back_one_mark_at_a_time(marks):
    for number, mark in ((1, 1), (2, 1), (1, -1), (2, 0)):
        marks.add(QUERY, image(number), mark, learner="oasis", version=4)
    marks.add(OTHER, image(1), 1, learner="oasis")
    expected = [{1: -1, 2: 1}, {1: 1, 2: 1}, {1: 1}, {}]
    for after in expected:
        undone = marks.undo(QUERY)
        assert stands(marks) == after
        assert undone.mark == after.get(undone.image, 0)
    assert marks.undo(QUERY) is None
    assert stands(marks, OTHER) == {1: 1}
    marks.add(QUERY, image(3), 1, learner="oasis")
    marks.undo(QUERY)
    assert stands(marks) == {}
    rows = marks.export()  # nothing was taken away
    assert [row["undoes"] for row in rows] == [None] * 5 + [4, 3, 2, 1, None, 10]


def test_marks_name_content_not_rows_which_cannot_be_changed(marks):
    """The same bytes under a new id and path are the same image."""
    marks.add(QUERY, image(1), 1, learner="oasis")
    marks.add(QUERY, image(1)._replace(id=77, path="moved.jpg"), -1, learner="oasis")
    assert stands(marks) == {77: -1}
    with contextlib.closing(sqlite3.connect(marks.file)) as db:
        for statement in ("UPDATE marks SET mark = -1", "DELETE FROM marks"):
            with pytest.raises(sqlite3.IntegrityError, match="only added"):
                db.execute(statement)


def test_export_has_every_field_and_any_path(marks):
    path = os.fsdecode(b"pe\xe4r/\n1.jpg")
    marks.add(QUERY, image(5, path), -1, learner="aroma", version=2)
    (row,) = json.loads(json.dumps(marks.export()))
    assert row.pop("time").endswith("+00:00")
    expected = {"query": QUERY, "image": 5, "path": path, "sha256": f"{5:064x}", "mark": -1}
    assert row == expected | {"learner": "aroma", "version": 2, "number": 1, "undoes": None}


def test_other_marks_and_keys_are_refused(marks):
    for mark in (2, "1", None, True, 0.5):
        with pytest.raises(UserError, match="a mark is 1"):
            marks.add(QUERY, image(1), mark, learner="oasis")
    for key in ("", "abc", QUERY.upper(), QUERY + "\n", "'; DROP TABLE marks; --", None):
        with pytest.raises(UserError, match="64 hexadecimal digits"):
            marks.add(key, image(1), 1, learner="oasis")
        with pytest.raises(UserError):
            marks.undo(key)


def test_query_vectors_come_back_for_the_extractor_they_were_made_with(marks):
    from scipy import sparse

    vector = sparse.csr_matrix(np.array([[0, 0.6, 0, 0.8]], np.float32))
    for _ in range(2):
        marks.add(QUERY, image(1), 1, learner="oasis", vector=vector, extractor="a")
    np.testing.assert_array_equal(marks.vector(QUERY, "a").toarray(), vector.toarray())
    assert marks.vector(QUERY, "b") is None
    assert marks.vector(OTHER, "a") is None


WRITER = """
import sys
from pathlib import Path
from visterm.pipeline.store.images import Image
from visterm.teaching.marks import RelevanceMarks
marks = RelevanceMarks(Path(sys.argv[1]))
for i in range(15):
    marks.add(sys.argv[2], Image(i, "a.jpg", f"{i:064x}", {}, None, 0, 0), 1, learner="oasis")
"""


def test_many_processes_and_threads_write_at_once(marks):
    """All begin with the file that is not there yet."""
    keys = [hashlib.sha256(bytes([i])).hexdigest() for i in range(6)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, marks.file, key], stderr=subprocess.PIPE) for key in keys[:3]
    ]

    def write(key):
        for number in range(15):
            marks.add(key, image(number), -1, learner="oasis")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        list(pool.map(write, keys[3:]))
    for writer in writers:
        assert writer.communicate(timeout=100)[1] == b""
        assert writer.returncode == 0
    assert {key: len(of_key) for key, of_key in marks.standing().items()} == dict.fromkeys(keys, 15)
    assert len({row["number"] for row in marks.export()}) == 90


def test_a_full_disk_is_an_error_and_nothing_is_lost(marks, small_disk):
    kept = []

    def fill():
        for number in range(2000):
            marks.add(QUERY, image(number, "x" * 1000), 1, learner="oasis")
            kept.append(number)

    with small_disk(60_000), pytest.raises(UserError, match=r"the mark was not kept .*then try again"):
        fill()
    kept = len(kept) - 1
    assert kept > 3
    assert set(stands(marks)) == set(range(kept + 1))
    marks.add(QUERY, image(5000), 1, learner="oasis")  # and with room again it goes on
    assert set(stands(marks)) == {*range(kept + 1), 5000}


@pytest.mark.parametrize("beside", [(), ("-wal",), ("-wal", "-shm")])
def test_marks_are_read_on_a_full_disk(marks, small_disk, tmp_path, beside):
    """Also those in the -wal file that a killed process, or a copy of the run, left."""
    marks.add(QUERY, image(0), 1, learner="oasis")
    with contextlib.closing(marks._connect() if beside else sqlite3.connect(":memory:")) as held:
        held.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the last connection would empty the -wal file
        for number in range(1, 40):
            marks.add(QUERY, image(number), 1, learner="oasis")
        copy = RelevanceMarks(tmp_path / "copy/feedback.sqlite")
        copy.file.parent.mkdir()
        for suffix in ("", *beside):
            shutil.copy(f"{marks.file}{suffix}", f"{copy.file}{suffix}")
    if beside:
        with open(f"{copy.file}-wal", "ab") as log:
            log.write(bytes(5000))  # a transaction that was not finished
    with small_disk(0):
        assert stands(copy) == dict.fromkeys(range(40), 1)
        assert copy.export() == marks.export()
        with pytest.raises(UserError, match="the mark was not kept"):
            copy.add(QUERY, image(40), 1, learner="oasis")
    copy.add(QUERY, image(40), 1, learner="oasis")
    assert len(copy.export()) == 41


def test_a_run_that_is_gone_is_not_made_again(tmp_path):
    run = Run(tmp_path / "runs/fruit")
    marks = RelevanceMarks(run.marks)
    for call in (marks.export, lambda: marks.add(QUERY, image(1), 1, learner="oasis")):
        with pytest.raises(UserError, match="No such file"):
            call()
    for call in (FeedbackTrainer(run).update, FeedbackTrainer(run).reset):
        with pytest.raises(UserError, match="fruit: no such run; run 'visterm features IMAGES --run fruit'"):
            call("oasis")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_said_and_left_alone(marks):
    marks.file.write_bytes(b"no database " * 400)
    for call in (marks.export, lambda: marks.add(QUERY, image(1), 1, learner="oasis")):
        with pytest.raises(UserError, match="damaged"):
            call()
    assert marks.file.read_bytes() == b"no database " * 400
    with pytest.raises(UserError, match="the mark was not kept"):
        RelevanceMarks(marks.file / "feedback.sqlite").add(QUERY, image(1), 1, learner="oasis")  # below a file
