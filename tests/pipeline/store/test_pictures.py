"""Files whose tags change keep their ids, marks, label edits and vectors; a turned picture does not."""

from __future__ import annotations

import shutil
import sqlite3

from PIL import Image
from running import catalogue_rows, counts_by_path, json_of, visterm

from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.marks import RelevanceMarks
from visterm.pipeline.store.restore import restore_catalogue

IDENTITY = "path, id, sha256, labels, split, status"


def tag(file, text=b"five stars"):
    """Write a comment into a JPEG, as raters and keyword tools do; the pixels stay."""
    data = file.read_bytes()
    file.write_bytes(data[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + data[2:])


def turn(file):
    """Write an EXIF orientation into a JPEG, as viewers that turn pictures do."""
    exif = Image.Exif()
    exif[0x0112] = 6
    text = b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0")
    data = file.read_bytes()
    file.write_bytes(data[:2] + b"\xff\xe1" + (len(text) + 2).to_bytes(2, "big") + text + data[2:])


def contents(folder):
    """SHA-256 that each image is known by, by path."""
    return dict(catalogue_rows(folder, "path, sha256"))


def test_tags_in_files_change_neither_ids_nor_marks_and_nothing_is_extracted_again(mine, run):
    files = sorted((mine / "fruit").rglob("*.jpg"))
    before, counts = catalogue_rows(mine, IDENTITY), counts_by_path(mine)
    with Collection(run.collection) as collection:
        first, second = collection.images()[:2]
    RelevanceMarks(run.marks).add(first.sha256, second, 1, learner="oasis")
    for number in range(2):  # and again, from bytes that the catalogue did not enter
        for file in files:
            tag(file, b"rating %d" % number)
        done = json_of("features", "fruit", cwd=mine)
        assert (done["added"], done["changed"], done["removed"], done["extracted"]) == (0, 0, 0, 0)
        assert catalogue_rows(mine, IDENTITY) == before
    assert counts_by_path(mine) == counts
    assert "30 with other tags" not in visterm("features", "fruit", cwd=mine).stderr, "said once"
    (mark,) = RelevanceMarks(run.marks).of(first.sha256)
    assert mark.sha256 in contents(mine).values()
    visterm("features", "fruit", "--force", cwd=mine)  # extracts all of them, which are known by what they were
    assert catalogue_rows(mine, IDENTITY) == before


def test_a_tagged_file_and_a_copy_of_it_are_known(mine, run):
    file = mine / "fruit/apple/0.jpg"
    tag(file)
    stderr = visterm("features", "fruit", cwd=mine).stderr
    assert "0 changed, 0 removed, 1 with other tags in the file)" in stderr
    shutil.copy(file, mine / "copy.jpg")
    searcher = Searcher(run)
    found = searcher.find([str(mine / "copy.jpg")], SearchRequest.of(3, "cosine", exclude_duplicates=True))
    assert "apple/0.jpg" not in [searcher.images[row].path for row, _ in found.ranked[0]]
    digest = next(iter(searcher.gallery._retagged))
    assert searcher.gallery.rows_by_sha256[digest] == searcher.images.row_of_path("apple/0.jpg")


def test_a_file_that_is_moved_and_tagged_keeps_marks_and_label_edits(mine):
    visterm("label", "add", "ripe", "apple/0.jpg", cwd=mine)
    known_by = contents(mine)["apple/0.jpg"]
    file = (mine / "fruit/apple/0.jpg").rename(mine / "fruit/apple/moved.jpg")
    tag(file)
    json_of("features", "fruit", cwd=mine)
    assert contents(mine)["apple/moved.jpg"] == known_by
    assert dict(catalogue_rows(mine, "path, labels"))["apple/moved.jpg"] == '{"apple": 1.0, "ripe": 1.0}'


def test_a_turned_picture_has_changed(mine):
    file = mine / "fruit/apple/0.jpg"
    before = counts_by_path(mine)["apple/0.jpg"]
    turn(file)
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (1, 1)
    assert counts_by_path(mine)["apple/0.jpg"] != before


def test_a_run_without_hashes_and_one_restored_from_its_segments(mine, run):
    before = catalogue_rows(mine, IDENTITY)
    tag(mine / "fruit/apple/0.jpg")
    visterm("compact", cwd=mine)
    for name in ("catalogue.sqlite", "catalogue.copy.sqlite"):
        (run.collection / name).unlink()
    restore_catalogue(run, mine / "fruit")
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (0, 0), "segments note the hashes"
    assert [row[:3] for row in catalogue_rows(mine, IDENTITY)] == [row[:3] for row in before]

    with sqlite3.connect(run.collection / "catalogue.sqlite") as db:  # as older versions made it
        db.executescript("DROP TABLE pictures; DROP TABLE retagged")
    (run.collection / "catalogue.checksum.json").unlink()
    tag(mine / "fruit/apple/1.jpg")
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (1, 1), "as before"
    tag(mine / "fruit/apple/1.jpg")
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (0, 0), "known by its pixels from then on"
