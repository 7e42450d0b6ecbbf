"""Scanning: what a scan of the root finds changed."""

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


def test_a_scan_finds_new_changed_and_removed_images(collection, tmp_path, scan, extract):
    assert scan("a/1.jpg", "a/2.jpg", "b/1.jpg") == (3, 0, 0, 0)
    assert [path for _, path in collection.pending()] == ["a/1.jpg", "a/2.jpg", "b/1.jpg"]
    extract()
    assert scan() == (0, 0, 0, 3)
    assert collection.pending() == []
    (tmp_path / "images/a/1.jpg").write_bytes(b"other")
    (tmp_path / "images/b/1.jpg").unlink()
    assert scan("a/3.jpg") == (1, 1, 1, 1)
    assert [path for _, path in collection.pending()] == ["a/1.jpg", "a/3.jpg"]
    assert [image.path for image in extract()] == ["a/1.jpg", "a/2.jpg", "a/3.jpg"]


def test_images_from_outside_can_be_added_while_the_root_is_away(collection, tmp_path, scan):
    (tmp_path / "new.jpg").write_bytes(b"x")
    scan("a/1.jpg", "b/1.jpg")
    (tmp_path / "images").rename(tmp_path / "away")
    assert collection.add([str(tmp_path / "new.jpg")], [], load_config()).added == 1


def test_images_that_are_out_of_reach_for_a_while_stay(collection, tmp_path, scan, extract, monkeypatch):
    """A folder that could not be read took its images out of the run, with their ids."""
    names = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/c/1.jpg", "d/1.jpg"]
    scan(*names)
    before = [image.id for image in extract()]
    scandir, stat, away = os.scandir, os.stat, PermissionError(13, os.strerror(13))

    def list_folder(path):
        if os.fspath(path).endswith("/b"):
            raise away
        return scandir(path)

    def status(path, *args, **options):
        if os.fspath(path).endswith(("a/1.jpg", "d/2.jpg")):
            raise away
        return stat(path, *args, **options)

    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(f"{name},x\n" for name in names))
    (tmp_path / "images/d/1.jpg").unlink()
    (tmp_path / "images/d/2.jpg").write_bytes(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", list_folder)
        patch.setattr(os, "stat", status)
        assert scan() == (1, 0, 1, 4)
        assert scan(settings=[f"collection.labels={tmp_path}/labels.csv"]) == (0, 0, 0, 5)
        changes = collection.scan(tmp_path / "images", load_config())
        assert "2 images in a folder that cannot be read stay as they are, such as b/1.jpg" in changes.warnings
    assert scan() == (0, 1, 0, 4)  # the size of d/2.jpg is known now
    assert [image.id for image in collection.images()] == before[:-1]


def test_files_that_are_no_images_are_ignored_and_only_classes_asked_for_taken(collection, tmp_path, scan):
    (tmp_path / "images/a").mkdir(parents=True)
    (tmp_path / "images/a/3.jpg").symlink_to("nowhere.jpg")
    for _ in range(2):
        scan("a/1.jpg", "a/2.jpg", "a/notes.txt", "b/1.jpg")
        with contextlib.closing(sqlite3.connect(collection.folder / "catalogue.sqlite")) as db:
            labels = dict(db.execute("SELECT CAST(path AS TEXT), labels FROM images"))
        a, b = '{"a": 1.0}', '{"b": 1.0}'
        assert labels == {"a/1.jpg": a, "a/2.jpg": a, "a/3.jpg": None, "b/1.jpg": b}
    ((path, reason),) = collection.skipped()
    assert path == "a/3.jpg"
    assert reason == "broken symlink"
    changes = collection.scan(tmp_path / "images", load_config())
    assert (changes.n_others, changes.other) == (1, "a/notes.txt")


def test_a_new_time_with_the_same_content_is_no_change(collection, tmp_path, scan):
    scan("a/1.jpg", "b/1.jpg")
    digest = hashlib.sha256(b"x").hexdigest()
    assert collection.reserve_segments(1) == 1
    write_segment(collection.segments / "1", sparse.csr_matrix(np.eye(2, dtype=np.int32)))
    outcomes = [Outcome(id_, digest, 1, 1, row, None) for row, (id_, _) in enumerate(collection.pending())]
    collection.enter_segment(1, outcomes)
    os.utime(tmp_path / "images/a/1.jpg", (1, 1))
    assert [scan(), scan()] == [(0, 0, 0, 2)] * 2


def test_names_of_any_bytes(scan, extract):
    names = [b'it\'s a "class"/new\nline.jpg', b'it\'s a "class"/\xff\xfe.jpg', b" /,;.jpg"]
    assert scan(*names) == (3, 0, 0, 0)
    assert sorted(os.fsencode(image.path) for image in extract()) == sorted(names)
    assert scan() == (0, 0, 0, 3)


def test_previews_of_systems_are_no_class_and_patterns_exclude_files(collection, tmp_path, scan):
    names = ["a/1.jpg", "b/1.jpg", "a/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "#recycle/1.jpg"]
    names += [".thumbnails/1.jpg", "a/._1.jpg"]
    assert scan(*names) == (2, 0, 0, 0)
    assert set(collection.labels()) == {"a/1.jpg", "b/1.jpg"}
    assert collection.skipped() == []
    (tmp_path / "images/a/1.NEF").touch()  # of one shot
    changes = collection.scan(tmp_path / "images", load_config())
    assert (changes.system, changes.raw, collection.skipped()) == (("#recycle", "a/@eaDir"), 1, [])
    assert collection.label_source()[1] == [
        "1 raw file beside their photos skipped",
        "2 folders of previews or deleted files skipped, such as #recycle",
        "2 hidden names skipped, such as .thumbnails",
    ]

    config = load_config(None, ["collection.exclude=['*_THUMB.jpg', 'b/old*', small, no such]"])
    scan("a/1_thumb.jpg", "b/old/1.jpg", "c/small/x/1.jpg", "c/smaller/1.jpg", "a/b/old.jpg", "b/older.txt")
    assert len(collection.labels()) == 7
    changes = collection.scan(tmp_path / "images", config)
    assert (changes.removed, changes.excluded) == (3, 4)
    assert changes.warnings == ("collection.exclude: nothing matches 'no such'",)
    assert set(collection.labels()) == {"a/1.jpg", "a/b/old.jpg", "b/1.jpg", "c/smaller/1.jpg"}
    assert collection.unfit(["b/old/2.jpg", "a/@eaDir/1.jpg", "b/2.jpg"], config) == {
        "b/old/2.jpg": "collection.exclude skips 'b/old*'",
        "a/@eaDir/1.jpg": "it lies in a folder of previews or deleted files",
    }


def test_only_the_classes_asked_for(collection, tmp_path, scan):
    names = "a/1.jpg", "b/1.jpg", "c/1.jpg", "c/notes.txt"
    assert scan(*names, settings=["collection.classes=[a, b]"])[0] == 2
    changes = collection.scan(tmp_path / "images", load_config(None, ["collection.classes=[a, b]"]))
    assert (changes.left_out, collection.skipped()) == (1, [])
    with pytest.raises(UserError, match="no images in a folder d"):
        scan(settings=["collection.classes=[a, d]"])
