"""Scanning: what a scan of the root finds changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Outcome
from visterm.pipeline.store.segments import write_segment


def changes(found):
    return found.added, found.changed, found.removed, found.unchanged


def test_a_second_scan_finds_nothing(collection, tmp_path, touch, extract):
    root = tmp_path / "images"
    touch(root, "a/1.jpg", "a/2.jpg", "b/1.jpg")
    assert changes(collection.scan(root, load_config())) == (3, 0, 0, 0)
    assert extract(collection) == ["a/1.jpg", "a/2.jpg", "b/1.jpg"]
    assert changes(collection.scan(root, load_config())) == (0, 0, 0, 3)
    assert collection.pending() == []


def test_images_from_outside_can_be_added_while_the_root_is_away(collection, tmp_path, touch):
    root, new = tmp_path / "images", tmp_path / "new.jpg"
    touch(root, "a/1.jpg", "b/1.jpg")
    touch(tmp_path, "new.jpg")
    collection.scan(root, load_config())
    root.rename(tmp_path / "away")
    assert changes(collection.add([str(new)], [], load_config())) == (1, 0, 0, 0)


def test_what_is_no_image_has_no_labels(collection, tmp_path, touch):
    root = tmp_path / "images"
    touch(root, "a/1.jpg", "a/2.jpg", "a/notes.txt", "b/1.jpg")
    for _ in range(2):
        collection.scan(root, load_config())
        with contextlib.closing(sqlite3.connect(collection.folder / "catalogue.sqlite")) as db:
            labels = dict(db.execute("SELECT CAST(path AS TEXT), labels FROM images"))
        assert labels == {
            "a/1.jpg": '{"a": 1.0}',
            "a/2.jpg": '{"a": 1.0}',
            "a/notes.txt": None,
            "b/1.jpg": '{"b": 1.0}',
        }


def test_a_scan_finds_new_changed_and_removed_images(collection, tmp_path, touch, extract):
    root = tmp_path / "images"
    touch(root, "a/1.jpg", "a/2.jpg", "b/1.jpg")
    collection.scan(root, load_config())
    extract(collection)
    touch(root, "a/3.jpg")
    touch(root, "a/1.jpg", content=b"other")
    (root / "b/1.jpg").unlink()
    assert changes(collection.scan(root, load_config())) == (1, 1, 1, 1)
    assert extract(collection) == ["a/1.jpg", "a/3.jpg"]
    assert [image.path for image in collection.images()] == ["a/1.jpg", "a/2.jpg", "a/3.jpg"]


def test_a_new_time_with_the_same_content_is_no_change(collection, tmp_path, touch):
    root = tmp_path / "images"
    touch(root, "a/1.jpg", "b/1.jpg")
    collection.scan(root, load_config())
    pending = collection.pending()
    digest = hashlib.sha256(b"x").hexdigest()
    assert collection.reserve_segments(1) == 1
    write_segment(collection.segments / "1", sparse.csr_matrix(np.eye(2, dtype=np.int32)))
    collection.enter_segment(1, [Outcome(id_, digest, 1, 1, row, None) for row, (id_, _) in enumerate(pending)])
    os.utime(root / "a/1.jpg", (1, 1))
    assert changes(collection.scan(root, load_config())) == (0, 0, 0, 2)
    assert changes(collection.scan(root, load_config())) == (0, 0, 0, 2)


def test_names_of_any_bytes(collection, tmp_path, touch, extract):
    root = tmp_path / "images"
    names = [b'it\'s a "class"/new\nline.jpg', b'it\'s a "class"/\xff\xfe.jpg', b" /,;.jpg"]
    touch(root, *names)
    assert changes(collection.scan(root, load_config())) == (3, 0, 0, 0)
    extract(collection)
    assert sorted(os.fsencode(image.path) for image in collection.images()) == sorted(names)
    assert changes(collection.scan(root, load_config())) == (0, 0, 0, 3)


def test_only_the_classes_asked_for(collection, tmp_path, touch):
    touch(tmp_path / "images", "a/1.jpg", "b/1.jpg", "c/1.jpg", "c/notes.txt")
    found = collection.scan(tmp_path / "images", load_config(None, ["collection.classes=[a, b]"]))
    assert (found.added, found.left_out, collection.skipped()) == (2, 1, [])
    with pytest.raises(UserError, match="no images in a folder d"):
        collection.scan(tmp_path / "images", load_config(None, ["collection.classes=[a, d]"]))


def test_files_that_are_no_images_are_entered_with_a_reason(collection, tmp_path, touch):
    touch(tmp_path / "images", "a/1.jpg", "a/notes.txt")
    collection.scan(tmp_path / "images", load_config())
    ((path, reason),) = collection.skipped()
    assert path == "a/notes.txt"
    assert ".txt" in reason
