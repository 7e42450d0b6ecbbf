"""Damage that keeps the size of a file, and what tells it."""

import os
import sqlite3
import zlib

import numpy as np
import pytest
from scipy import sparse

from visterm.pipeline.errors import UserError
from visterm.pipeline.store import append_only
from visterm.pipeline.store.append_only import AppendOnlyStore, append_row
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import is_up_to_date, make_record, read_record
from visterm.pipeline.store.segments import is_whole, read_segment, write_segment


def flip(file, place):
    """Flip the lowest bit of a byte; the size stays, and the time is put back."""
    data, status = bytearray(file.read_bytes()), file.stat()
    data[place] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("name", ["indptr.npy", "indices.npy", "counts.npy", "images.jsonl", "record.json"])
def test_one_bit_of_a_segment(tmp_path, name):
    write_segment(
        tmp_path / "run/collection/segments/1", sparse.csr_matrix(np.eye(5, dtype=np.int32)), [[1, "a", "", 1, 1]]
    )
    segment = tmp_path / "run/collection/segments/1"
    assert is_whole(segment)
    read_segment(segment)
    flip(segment / name, (segment / name).stat().st_size - 9)
    assert not is_whole(segment)
    with pytest.raises(UserError, match=r"segments/1: damaged segment \(.*visterm features --run run"):
        read_segment(segment)


def test_one_bit_of_an_artifact(tmp_path, caplog):
    record = make_record("train", {}, {})
    with publish(tmp_path / "learners/oasis", record) as folder:
        (folder / "a.npy").write_bytes(b"numbers")
    assert is_up_to_date(tmp_path / "learners/oasis", record)
    flip(tmp_path / "learners/oasis/a.npy", 3)
    assert not is_up_to_date(tmp_path / "learners/oasis", record)
    assert "a.npy does not have the checksum" in caplog.text
    text = (tmp_path / "learners/oasis/record.json").read_text()
    (tmp_path / "learners/oasis/record.json").write_text(text.replace('"sizes": {', '"sizer": {'))
    with pytest.raises(UserError, match=r"damaged record; run 'visterm train --learner oasis --force"):
        read_record(tmp_path / "learners/oasis")


def test_one_bit_of_the_catalogue(tmp_path):
    with Collection(tmp_path / "run/collection", create=True) as collection, collection.transaction():
        collection["root"] = b"/images/of/fruit"
    file = tmp_path / "run/collection/catalogue.sqlite"
    with Collection(tmp_path / "run/collection") as collection:
        assert os.fspath(collection.root) == "/images/of/fruit"
    flip(file, file.read_bytes().index(b"of/fruit"))
    with pytest.raises(UserError, match="damaged catalogue .*; run 'visterm repair --run run' to restore it"):
        Collection(tmp_path / "run/collection")


def test_a_changed_catalogue_leaves_a_copy(tmp_path):
    folder = tmp_path / "run/collection"
    file, copy = folder / "catalogue.sqlite", folder / "catalogue.copy.sqlite"
    with Collection(folder, create=True) as collection, collection.transaction():
        collection["root"] = b"/images"
    assert copy.read_bytes() == file.read_bytes()
    copied = copy.stat().st_mtime_ns
    with Collection(folder) as collection, collection.transaction():
        collection["root"] = b"/images"  # as it was
    assert copy.stat().st_mtime_ns == copied
    copy.unlink()
    copy.mkdir()
    with Collection(folder) as collection, collection.transaction():
        collection["root"] = b"/other"
    assert copy.read_bytes() == file.read_bytes()


def test_a_damaged_catalogue_is_not_copied(tmp_path):
    """Damage that shows only in the middle of a command must not take the place of the good copy."""
    folder = tmp_path / "run/collection"
    with Collection(folder, create=True) as collection, collection.transaction():
        collection["root"] = b"/images"
    good = (folder / "catalogue.copy.sqlite").read_bytes()

    def change():
        with Collection(folder) as collection:
            with collection.transaction():
                collection["root"] = b"/other"
            raise sqlite3.DatabaseError("database disk image is malformed")

    with pytest.raises(UserError, match="damaged catalogue"):
        change()
    assert (folder / "catalogue.copy.sqlite").read_bytes() == good


@pytest.mark.parametrize("how", ["empty", "gone"])
def test_no_catalogue_beside_segments(tmp_path, how):
    with Collection(tmp_path / "run/collection", create=True):
        pass
    write_segment(tmp_path / "run/collection/segments/1", sparse.csr_matrix(np.eye(2, dtype=np.int32)))
    for file in (tmp_path / "run/collection").glob("catalogue.*"):
        file.unlink()
    if how == "empty":
        (tmp_path / "run/collection/catalogue.sqlite").touch()
    with pytest.raises(UserError, match=f"damaged catalogue .*{how}.*visterm repair"):
        Collection(tmp_path / "run/collection", create=True)
    assert is_whole(tmp_path / "run/collection/segments/1")


class _Notes(AppendOnlyStore):
    schema = "CREATE TABLE notes (number INTEGER PRIMARY KEY, time TEXT NOT NULL, text TEXT, seconds REAL)"

    def add(self, text):
        with self._writing() as db:
            return append_row(db, "notes", {"text": text, "seconds": 2})

    def all(self):
        with self._reading() as db:
            return [] if db is None else [text for (text,) in db.execute("SELECT text FROM notes ORDER BY number")]


def test_one_bit_of_a_mark_and_keeping_the_others(tmp_path):
    notes = _Notes(tmp_path / "notes.sqlite")
    assert notes.all() == []
    assert [notes.add(f"note {i}") for i in range(3)] == [1, 2, 3]
    assert notes.file.stat().st_mode & 0o777 == 0o600
    assert notes.damage() is None
    flip(notes.file, notes.file.read_bytes().index(b"note 1"))
    assert "row 2 of notes does not have the checksum" in notes.damage()
    with pytest.raises(UserError, match="visterm repair"):
        notes.add("more")
    notes.copy.unlink()
    assert notes.rebuild() == (2, 1)
    assert notes.all() == ["note 0", "note 2"]
    assert notes.add("more") == 4
    assert notes.file.with_name("notes.sqlite.damaged").exists()


@pytest.mark.parametrize("how", ["flipped", "emptied", "cut", "gone", "folder"])
def test_a_row_of_either_file_is_kept(tmp_path, how):
    notes = _Notes(tmp_path / "notes.sqlite")
    for i in range(3):
        notes.add(f"note {i}")
    assert notes.copy.stat().st_mode & 0o777 == 0o600
    flip(notes.copy, notes.copy.read_bytes().index(b"note 2"))
    if how == "flipped":
        flip(notes.file, notes.file.read_bytes().index(b"note 1"))
        assert notes.damage()
        assert notes.rebuild() == (3, 0)
        assert notes.all() == ["note 0", "note 1", "note 2"]
        return
    data = notes.file.read_bytes()
    notes.file.unlink()
    if how == "folder":
        notes.file.mkdir()
    elif how != "gone":
        notes.file.write_bytes(data[:5000] if how == "cut" else b"")
    assert "damaged" in notes.damage()
    for call in (notes.all, lambda: notes.add("more")):
        with pytest.raises(UserError, match="damaged.*visterm repair"):
            call()
    notes.rebuild()
    assert notes.all() == ["note 0", "note 1"]
    assert notes.add("more") == 3


@pytest.mark.parametrize("how", ["emptied", "text", "gone", "folder"])
def test_a_damaged_copy_is_written_again(tmp_path, how):
    notes = _Notes(tmp_path / "notes.sqlite")
    notes.add("note 0")
    notes.copy.unlink()
    if how == "folder":
        notes.copy.mkdir()
    elif how != "gone":
        notes.copy.write_bytes(b"" if how == "emptied" else b"not a database" * 1000)
    for i in (1, 2):
        notes.add(f"note {i}")
    notes.file.unlink()
    assert notes.rebuild() == (3, 0)
    assert notes.all() == ["note 0", "note 1", "note 2"]


def test_a_new_process_does_not_look_at_each_row_of_a_file_that_is_as_it_was_left(tmp_path, monkeypatch):
    """Time would grow with all that people ever said."""
    notes = _Notes(tmp_path / "notes.sqlite")
    for i in range(20):
        notes.add(f"note {i}")
    compared, crc32_of = [], append_only._crc32_of
    monkeypatch.setattr(append_only, "_crc32_of", lambda *row: compared.append(row) or crc32_of(*row))

    def n_compared(work, *arguments):
        append_only._checked.clear()  # as a new process
        compared.clear()
        work(*arguments)
        return len(compared)

    assert n_compared(notes.all) == 0
    assert n_compared(notes.add, "more") == 1  # its own
    assert n_compared(notes.all) == 0
    notes.seal.write_text("{")
    assert n_compared(notes.all) == 0, "the copy has the same rows"
    asked: list[str] = []
    connect = sqlite3.connect

    def noting(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", noting)
    for seal in (notes.seal.read_text(), "{"):
        asked.clear()
        notes.seal.write_text(seal)
        assert n_compared(notes.damage) == 0, "nor does repair, whose time would grow with all that people ever said"
        assert any("NOT EXISTS" in query for query in asked), "with the copy it compares all"
        assert any("integrity_check" in query for query in asked) == (seal == "{")
    assert n_compared(notes.renew_copy) == 0
    flip(notes.copy, notes.copy.read_bytes().index(b"note 5"))
    assert n_compared(notes.damage) == 16, "from the first row that differs"
    notes.copy.unlink()
    assert n_compared(notes.damage) == 21
    notes.renew_copy()
    assert notes.copy.stat().st_mode & 0o777 == 0o600
    assert n_compared(notes.damage) == 0
    flip(notes.file, notes.file.read_bytes().index(b"note 7"))
    append_only._checked.clear()
    with pytest.raises(UserError, match="row 8 of notes does not have the checksum"):
        notes.all()


def test_the_text_of_a_row_is_that_of_its_pairs():
    """As files of older versions have it."""
    row = {"b": b"caf\xe9", "a": "caf\u00e9 '%s' \udce9", "d": None, "c": 2, "e": 0.1}
    pairs = [("a", row["a"]), ("b", row["b"]), ("c", 2.0), ("d", None), ("e", 0.1)]
    assert append_only._row_crc32(row) == zlib.crc32(repr(pairs).encode("utf-8", "backslashreplace"))
