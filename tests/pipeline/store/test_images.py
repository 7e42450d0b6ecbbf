"""The images of a collection in columns: the same as a list of them, and what only columns can."""

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


def test_they_are_those_of_the_list(collection):
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


def test_an_image_is_known_by_id_and_path(collection):
    living = collection.living()
    for row, image in enumerate(living):
        assert living.place[image.id] == row == living.row_of_path(image.path)
    assert sorted(living.place) == [2, 3, 4, 5, 6, 7]
    assert {1, 2, 8} & living.place.keys() == {2}
    for unknown in (1, 8, 10**30, -(10**30)):
        assert unknown not in living.place
    for unknown in ("gone.jpg", "", "zebra", "waits.jpg", "\ud800"):
        assert living.row_of_path(unknown) is None


def test_what_is_counted_and_chosen(collection):
    living = collection.living()
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
