"""The images of a collection in columns: the same as a list of them, and what only columns can."""

import json
import shutil

import numpy as np
import pytest

from visterm.pipeline.errors import UserError
from visterm.pipeline.store import images as columns
from visterm.pipeline.store.catalogue import Collection, Outcome

PATHS = [b"pear/2.jpg", b"a\nb.jpg", b"\xff\xfe.jpg", "größe.png".encode(), b"/outside/x.jpg", b"apple/1.jpg"]
LABELS = ['{"pear": 1.0}', None, '{"apple": 1.0, "red": 0.5}', '{"pear": 1.0}', None, '{"apple": 1.0}']
SPLITS = ["train", None, "test", "train", None, "validation"]


@pytest.fixture
def collection(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "_IDS_AT_ONCE", 2)
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", 4)
    with Collection(tmp_path / "collection", create=True) as collection:
        collection.insert([(path, 1, 1, "pending", None) for path in (b"gone.jpg", *PATHS, b"waits.jpg")])
        collection.enter_segment(7, [Outcome(2 + i, f"sha{i}", 10 + i, 20, i, None) for i in range(len(PATHS))])
        collection.executemany(
            "UPDATE images SET labels = ?, split = ? WHERE id = ?",
            [(labels, split, 2 + i) for i, (labels, split) in enumerate(zip(LABELS, SPLITS, strict=True))],
        )
        collection.bury([1])
        yield collection


def test_they_are_those_of_the_list_known_by_id_and_path(collection):
    living, images = collection.living(), collection.images()
    assert len(living) == len(images) == len(PATHS)
    assert list(living) == images
    assert [living[row] for row in range(len(living))] == images
    assert living[-1] == images[-1]
    assert living[1:5:2] == images[1:5:2]
    assert living[9:] == []
    assert living.paths() == [image.path for image in images]
    for row in (len(images), -len(images) - 1):
        with pytest.raises(IndexError):
            living[row]
    living = collection.living()
    for row, image in enumerate(living):
        assert living.place[image.id] == row == living.row_of_path(image.path)
    assert sorted(living.place) == [2, 3, 4, 5, 6, 7]
    assert {1, 2, 8} & living.place.keys() == {2}
    for unknown in (1, 8, 10**30, -(10**30)):
        assert unknown not in living.place
    for unknown in ("gone.jpg", "", "zebra", "waits.jpg", "\ud800"):
        assert living.row_of_path(unknown) is None
    assert living.count_labels() == {"pear": 2, "apple": 2, "red": 1}
    assert living.labelled("train", "validation") == collection.images("train", "validation", labelled=True)
    assert living.sizes.tolist() == [[10 + image.row, 20] for image in living]


def test_the_fingerprint_is_of_ids_contents_labels_and_splits(collection):
    seen = {collection.living().fingerprint}
    for change in ("sha256 = 'other'", "labels = '{\"plum\": 1.0}'", "split = 'test'", "id = 90"):
        assert collection.living().fingerprint in seen
        collection.execute(f"UPDATE images SET {change} WHERE path = ?", (PATHS[1],))
        seen.add(collection.living().fingerprint)
    assert len(seen) == 5
    collection.execute("UPDATE images SET width = 5")
    assert collection.living().fingerprint in seen


@pytest.mark.parametrize("damage", ["path = 'text'", "sha256 = NULL", "segment = 'x'", "row = NULL", "path = x'6100'"])
def test_a_row_that_no_command_writes(collection, damage):
    collection.execute(f"UPDATE images SET {damage} WHERE id = 3")
    with pytest.raises(UserError, match="damaged catalogue .*; run 'visterm repair"):
        collection.living()


# What has changed since is read, and nothing else: the result is that of reading all.


@pytest.fixture
def many(tmp_path):
    with Collection(tmp_path / "many", create=True) as collection:
        enter(collection, [f"{i % 7}/{i:03}.jpg" for i in range(300)], 1)
        label(collection, range(1, 301))
        yield collection


def enter(collection, paths, segment):
    first = 1 + collection.last_id
    with collection.transaction():
        collection.insert([(path.encode(), 1, 1, "pending", None) for path in paths])
    collection.enter_segment(
        segment, [Outcome(first + i, f"{first + i:064x}", 10 + i, 20, i, None) for i in range(len(paths))]
    )


def label(collection, ids):
    with collection.transaction():
        collection.executemany(
            "UPDATE images SET labels = ?, split = ? WHERE id = ?",
            [(json.dumps({f"of {i % 4}": 1.0}) if i % 5 else None, ["train", None, "test"][i % 3], i) for i in ids],
        )


def assert_same(images, wanted):
    assert list(images) == list(wanted)
    assert images.fingerprint == wanted.fingerprint
    assert images.count_labels() == wanted.count_labels()
    assert list(images.count_labels()) == list(wanted.count_labels())
    assert dict(images.place) == dict(wanted.place)
    for name in ("ids", "segments", "rows", "sizes"):
        np.testing.assert_array_equal(getattr(images, name), getattr(wanted, name))


CHANGES = {
    "nothing": lambda c: None,
    "added at both ends": lambda c: enter(c, ["!first.jpg", "3/000x.jpg", "3/000y.jpg", "~last.jpg"], 2),
    "removed": lambda c: c.exclude([1, 2, 3, 150, 300]),
    "removed and put back": lambda c: c.restore(c.exclude([1, 2, 300])),
    "added and removed again": lambda c: (enter(c, ["new.jpg", "other.jpg"], 2), c.exclude([301])),
    "labels": lambda c: c.execute("UPDATE images SET labels = NULL, split = NULL WHERE id IN (1, 7, 20)"),
    "a new label first": lambda c: c.execute("UPDATE images SET labels = '{\"z\": 2.0}' WHERE path = '0/000.jpg'"),
    "a path": lambda c: c.execute("UPDATE images SET path = CAST('6/moved.jpg' AS BLOB) WHERE id = 5"),
    "an id": lambda c: c.execute("UPDATE images SET id = 999 WHERE id = 5"),
    "a row deleted": lambda c: c.execute("DELETE FROM images WHERE id = 5"),
    "extracted again": lambda c: c.enter_segment(9, [Outcome(8, "f" * 64, 5, 6, 0, None)]),
    "tombstones": lambda c: c.bury([4, 299]),
    "sizes": lambda c: c.execute("UPDATE images SET width = NULL WHERE id < 9"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_read(many, change):
    before = many.living()
    was = list(before)
    CHANGES[change](many)
    wanted = many.living()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_read_all", None)  # cannot be called
        after = many.living(before)
    assert_same(after, wanted)
    assert list(before) == was  # who holds the older ones keeps them


def test_one_change_after_the_other(many):
    rng = np.random.default_rng(0)
    images, steps = many.living(), list(CHANGES)
    for number in range(20):
        change = steps[rng.integers(len(steps))]
        if change in ("added at both ends", "added and removed again"):
            enter(many, [f"{rng.integers(9)}/{number}.png"], 100 + number)
        elif change not in ("a path", "an id"):
            CHANGES[change](many)
        images = many.living(images)
        assert_same(images, many.living())


def test_a_catalogue_that_took_another_course_is_read_again(tmp_path):
    folder, older = tmp_path / "collection", tmp_path / "older.sqlite"
    with Collection(folder, create=True) as collection:
        enter(collection, [f"{i:02}.jpg" for i in range(50)], 1)
        shutil.copy(collection.file, older)
        enter(collection, ["a.jpg"], 2)
        images = collection.living()
    shutil.copy(older, collection.file)  # in place: the same inode
    (folder / "catalogue.checksum.json").unlink()
    with Collection(folder) as collection:
        enter(collection, ["b.jpg"], 2)
        enter(collection, ["c.jpg"], 3)
        assert_same(collection.living(images), collection.living())


def test_many_changes_and_old_ones_are_read_as_a_whole(many, monkeypatch):
    images = many.living()
    label(many, range(100, 200))
    assert_same(many.living(images), many.living())
    images = many.living()
    many.exclude([5])
    many.execute("DELETE FROM changes WHERE number < (SELECT max(number) FROM changes)")
    assert_same(many.living(images), many.living())


def test_only_the_last_changes_are_kept(many):
    for _ in range(3):
        many.execute("UPDATE images SET mtime_ns = mtime_ns + 1")
    n, last = many.execute("SELECT count(*), max(number) FROM changes").fetchone()
    assert n == last == 1 + 3 * 300 + 3 * 300
    many.execute("UPDATE changes SET number = number + 99900 - 1")
    many.execute("UPDATE images SET mtime_ns = 1")
    assert many.execute("SELECT max(number) - min(number) FROM changes").fetchone()[0] < 100_000
