"""The catalogue: what a scan finds, who trains and who tests, and what is left of a killed run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections import Counter

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.errors import UserError
from visterm.pipeline.store import database
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.segments import read_segment, write_segment


@pytest.fixture
def collection(tmp_path):
    collection = Collection(tmp_path / "collection", create=True)
    yield collection
    collection.close()


def touch(root, *names, content=b"x"):
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content)


def extract(collection, outcome=None):
    """Pretend to extract what is pending: the count of visterm i of the i-th image is i + 1."""
    pending = collection.pending()
    counts = np.diag(np.arange(1, len(pending) + 1, dtype=np.int32))
    number = collection.reserve_segments(1)
    write_segment(collection.segments / str(number), sparse.csr_matrix(counts))
    collection.enter_segment(
        number, [Outcome(id_, f"sha{id_}", 128, 96, row, None) for row, (id_, _) in enumerate(pending)]
    )
    return [path for _, path in pending]


def changes(found):
    return found.added, found.changed, found.removed, found.unchanged


def test_a_second_scan_finds_nothing(collection, tmp_path):
    root = tmp_path / "images"
    touch(root, "a/1.jpg", "a/2.jpg", "b/1.jpg")
    assert changes(collection.scan(root, load_config())) == (3, 0, 0, 0)
    assert extract(collection) == ["a/1.jpg", "a/2.jpg", "b/1.jpg"]
    assert changes(collection.scan(root, load_config())) == (0, 0, 0, 3)
    assert collection.pending() == []


def test_images_from_outside_can_be_added_while_the_root_is_away(collection, tmp_path):
    root, new = tmp_path / "images", tmp_path / "new.jpg"
    touch(root, "a/1.jpg", "b/1.jpg")
    touch(tmp_path, "new.jpg")
    collection.scan(root, load_config())
    root.rename(tmp_path / "away")
    assert changes(collection.add([str(new)], [], load_config())) == (1, 0, 0, 0)


def test_what_is_no_image_has_no_labels(collection, tmp_path):
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


def test_a_scan_finds_new_changed_and_removed_images(collection, tmp_path):
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


def test_a_new_time_with_the_same_content_is_no_change(collection, tmp_path):
    import hashlib

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


def test_counts_come_in_the_order_asked_for(collection, tmp_path):
    root = tmp_path / "images"
    touch(root, "a/1.jpg", "a/2.jpg", "a/3.jpg")
    collection.scan(root, load_config())
    extract(collection)
    images = collection.images()
    np.testing.assert_array_equal(collection.counts(images[::-1]).toarray(), [[0, 0, 3], [0, 2, 0], [1, 0, 0]])


def test_names_of_any_bytes(collection, tmp_path):
    root = tmp_path / "images"
    names = [b'it\'s a "class"/new\nline.jpg', b'it\'s a "class"/\xff\xfe.jpg', b" /,;.jpg"]
    touch(root, *names)
    assert changes(collection.scan(root, load_config())) == (3, 0, 0, 0)
    extract(collection)
    assert sorted(os.fsencode(image.path) for image in collection.images()) == sorted(names)
    assert changes(collection.scan(root, load_config())) == (0, 0, 0, 3)


def test_folders_name_classes_and_splits(collection, tmp_path):
    touch(tmp_path / "one", *(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    collection.scan(tmp_path / "one", load_config(None, ["split.train=6", "split.test=3"]))
    extract(collection)
    found = Counter((next(iter(image.labels)), image.split) for image in collection.images())
    assert found == {(c, s): n for c in "ab" for s, n in (("train", 6), ("test", 3), (None, 1))}


def test_split_folders_take_precedence(collection, tmp_path):
    touch(tmp_path / "two", "train/a/1.jpg", "train/b/1.jpg", "test/a/2.jpg", "validation/b/3.jpg")
    collection.scan(tmp_path / "two", load_config())
    extract(collection)
    found = {image.path: (list(image.labels), image.split) for image in collection.images()}
    assert found == {
        "train/a/1.jpg": (["a"], "train"),
        "train/b/1.jpg": (["b"], "train"),
        "test/a/2.jpg": (["a"], "test"),
        "validation/b/3.jpg": (["b"], "validation"),
    }


def test_a_class_may_be_called_train(collection, tmp_path):
    touch(tmp_path / "trains", "train/1.jpg", "bus/1.jpg")
    collection.scan(tmp_path / "trains", load_config())
    extract(collection)
    assert [list(image.labels) for image in collection.images()] == [["bus"], ["train"]]


def test_a_flat_folder_has_no_labels_and_trains_visterms_on_all(collection, tmp_path):
    touch(tmp_path / "flat", "1.jpg", "2.jpg")
    collection.scan(tmp_path / "flat", load_config())
    assert collection.training_paths() == ["1.jpg", "2.jpg"]
    extract(collection)
    assert [(image.labels, image.split) for image in collection.images()] == [({}, None)] * 2


def test_visterms_are_learned_from_training_images_only(collection, tmp_path):
    touch(tmp_path / "images", *(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    collection.scan(tmp_path / "images", load_config())
    training = set(collection.training_paths())
    extract(collection)
    assert len(training) == 12
    assert training == {image.path for image in collection.images("train")}


def test_a_new_image_never_moves_an_old_one(collection, tmp_path):
    root = tmp_path / "images"
    touch(root, *(f"a/{i}.jpg" for i in range(10)), *(f"b/{i}.jpg" for i in range(10)))
    collection.scan(root, load_config())
    extract(collection)
    before = {image.path: image.split for image in collection.images()}
    touch(root, *(f"a/new{i}.jpg" for i in range(10)))
    collection.scan(root, load_config())
    extract(collection)
    after = {image.path: image.split for image in collection.images()}
    assert {path: after[path] for path in before} == before
    assert Counter(split for path, split in after.items() if path.startswith("a/")) == {"train": 12, "test": 8}


def test_another_fold_draws_other_images(collection, tmp_path):
    touch(tmp_path / "images", *(f"a/{i}.jpg" for i in range(20)))
    collection.scan(tmp_path / "images", load_config())
    first = collection.training_paths()
    collection.scan(tmp_path / "images", load_config(None, ["split.seed=1"]))
    assert len(collection.training_paths()) == len(first) == 12
    assert collection.training_paths() != first


def test_only_the_classes_asked_for(collection, tmp_path):
    touch(tmp_path / "images", "a/1.jpg", "b/1.jpg", "c/1.jpg", "c/notes.txt")
    found = collection.scan(tmp_path / "images", load_config(None, ["collection.classes=[a, b]"]))
    assert (found.added, found.left_out, collection.skipped()) == (2, 1, [])
    with pytest.raises(UserError, match="no images in a folder d"):
        collection.scan(tmp_path / "images", load_config(None, ["collection.classes=[a, d]"]))


def test_files_that_are_no_images_are_entered_with_a_reason(collection, tmp_path):
    touch(tmp_path / "images", "a/1.jpg", "a/notes.txt")
    collection.scan(tmp_path / "images", load_config())
    ((path, reason),) = collection.skipped()
    assert path == "a/notes.txt"
    assert ".txt" in reason


def test_labels_from_a_table(collection, tmp_path):
    touch(tmp_path / "images", "1.jpg", "2.jpg", "3.jpg")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.jpg,red\n1.jpg,round\n2.jpg,red\ngone.jpg,red\n")
    collection.scan(tmp_path / "images", load_config(None, [f"collection.labels={table}"]))
    extract(collection)
    assert [image.labels for image in collection.images()] == [{"red": 1.0, "round": 1.0}, {"red": 1.0}, {}]


def test_a_table_from_a_spreadsheet_may_begin_with_a_mark(collection, tmp_path):
    touch(tmp_path / "images", "1.jpg")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.jpg,red\n", encoding="utf-8-sig")
    collection.scan(tmp_path / "images", load_config(None, [f"collection.labels={table}"]))
    extract(collection)
    assert [image.labels for image in collection.images()] == [{"red": 1.0}]


def test_clicks_from_a_table(collection, tmp_path):
    touch(tmp_path / "images", "1.jpg", "2.jpg")
    table = tmp_path / "clicks.csv"
    table.write_text("query,path,count\ncat,1.jpg,3\ncat,1.jpg,2\ndog,2.jpg,1\n")
    collection.scan(tmp_path / "images", load_config(None, [f"collection.clicks={table}"]))
    extract(collection)
    assert [image.labels for image in collection.images()] == [{"cat": 5.0}, {"dog": 1.0}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path;label\n", "no column path"),
        ("path,label\n1.jpg,\n", "line 2: an empty label"),
        ("path,label\nx.jpg,a\n", "none of its 1 paths"),
        ("path,label\n", "none of its 0 paths"),
    ],
)
def test_a_wrong_table_is_one_clear_line(collection, tmp_path, text, message):
    touch(tmp_path / "images", "1.jpg")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        collection.scan(tmp_path / "images", load_config(None, [f"collection.labels={tmp_path / 'labels.csv'}"]))
    assert collection.pending() == [], "a refused scan changes nothing"


def test_a_wrong_count_names_its_line(collection, tmp_path):
    touch(tmp_path / "images", "1.jpg")
    (tmp_path / "clicks.csv").write_text("query,path,count\ncat,1.jpg,-3\n")
    with pytest.raises(UserError, match="line 2: count '-3' is not a positive number"):
        collection.scan(tmp_path / "images", load_config(None, [f"collection.clicks={tmp_path / 'clicks.csv'}"]))


def test_what_a_killed_run_left_behind_is_removed(collection, tmp_path):
    touch(tmp_path / "images", "a/1.jpg")
    collection.scan(tmp_path / "images", load_config())
    extract(collection)
    write_segment(
        collection.segments / str(collection.reserve_segments(1)), sparse.csr_matrix(np.eye(1, dtype=np.int32))
    )
    (collection.segments / "3.tmp").mkdir()
    collection.clean()
    assert [path.name for path in collection.segments.iterdir()] == ["1"]


def test_segment_numbers_are_never_given_twice(collection):
    """A worker of a killed run may still be writing the one that it was given."""
    assert [collection.reserve_segments(3), collection.reserve_segments(1)] == [1, 4]


def test_counts_of_another_extractor_are_forgotten(collection, tmp_path):
    touch(tmp_path / "images", "a/1.jpg", "a/2.jpg")
    collection.scan(tmp_path / "images", load_config())
    collection.use_extractor("one")
    extract(collection)
    collection.use_extractor("one")
    assert collection.pending() == []
    collection.use_extractor("two")
    assert len(collection.pending()) == 2


def test_a_damaged_segment_is_named(collection, tmp_path):
    write_segment(collection.segments / "1", sparse.csr_matrix(np.eye(3, dtype=np.int32)))
    (collection.segments / "1" / "indices.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match="damaged segment"):
        read_segment(collection.segments / "1")


def test_another_version_is_refused(collection):
    collection["format"] = "0"
    with pytest.raises(UserError, match="another version"):
        Collection(collection.folder)


def test_a_damaged_catalogue_is_refused(tmp_path):
    (tmp_path / "collection").mkdir()
    (tmp_path / "collection/catalogue.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(UserError, match="damaged catalogue"):
        Collection(tmp_path / "collection")


def test_a_catalogue_that_another_process_writes_is_not_called_damaged(collection, monkeypatch):
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.05)
    with contextlib.closing(sqlite3.connect(collection.folder / "catalogue.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UserError, match=r"database is locked.*try again later") as refused:
            Collection(collection.folder)
        assert "remove" not in str(refused.value)
    Collection(collection.folder).close()


def test_a_refused_transaction_is_rolled_back(collection):

    def enter():
        with collection.transaction():
            collection["a"] = "1"
            collection.execute("INSERT INTO meta VALUES ('a', '2')")

    with pytest.raises(sqlite3.IntegrityError):
        enter()
    assert collection["a"] is None
