"""The images of a run that can be searched: what is read, under which names, and what is refused."""

import contextlib
import os
import shutil
import sqlite3

import numpy as np
import pytest
from running import paths_of, visterm

from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.images import Images

CLASSES = ("apple", "pear", "plum")


def test_it_holds_the_images_and_their_vectors(searcher):
    assert len(searcher.images) == len(searcher.place) == searcher.X.shape[0] == 30
    assert searcher.X.dtype == np.float32
    np.testing.assert_allclose(np.sqrt(searcher.X.multiply(searcher.X).sum(axis=1)), 1, rtol=1e-5)
    assert all(searcher.images[row].id == number for number, row in searcher.place.items())
    assert searcher.learners == ["oasis", "wsabie", "musl", "cosine"]
    assert searcher.default_learner() == "oasis"


def test_the_image_itself_is_known_through_links_names_and_copies(searcher, finished, tmp_path, monkeypatch):
    os.symlink(finished / "fruit", tmp_path / "linked")
    os.symlink(finished / "fruit/pear/0.jpg", tmp_path / "other.jpg")
    shutil.copy(finished / "fruit/pear/0.jpg", tmp_path / "copy.jpg")
    monkeypatch.chdir(finished / "fruit/apple")
    links = [tmp_path / "linked/pear/0.jpg", tmp_path / "other.jpg", "../pear/0.jpg"]
    for answer in searcher.search(links, k=29):
        assert "pear/0.jpg" not in paths_of(answer)
    (answer,) = searcher.search(tmp_path / "copy.jpg", learner="cosine")
    assert paths_of(answer)[0] == "pear/0.jpg"  # a copy is another file
    shutil.copy(finished / "fruit/apple/0.jpg", tmp_path / "copy.jpg")
    searcher.gallery.rows_by_sha256  # noqa: B018 - made once for all queries
    rows, read = [], Images.__getitem__
    monkeypatch.setattr(Images, "__getitem__", lambda images, row: rows.append(row) or read(images, row))
    assert searcher.gallery.row_of_file(str(tmp_path / "copy.jpg")) == -1
    assert rows == [searcher.gallery.images.row_of_path("apple/0.jpg")]


def test_an_image_that_is_a_link_in_the_collection(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(4)])
    write_images(tmp_path, ["pear9.jpg"])
    os.symlink(tmp_path / "pear9.jpg", tmp_path / "fruit/pear/link.jpg")
    visterm("features", "fruit", "--set", "features.n_visterms=40", cwd=tmp_path)
    (answer,) = Searcher(tmp_path / "runs/fruit").search(tmp_path / "pear9.jpg", k=12, learner="cosine")
    assert "pear/link.jpg" not in paths_of(answer)
    os.symlink("../apple/0.jpg", tmp_path / "fruit/pear/apple.jpg")  # to another image of the collection
    visterm("features", "fruit", cwd=tmp_path)
    (answer,) = Searcher(tmp_path / "runs/fruit").search(tmp_path / "fruit/pear/apple.jpg", k=14, learner="cosine")
    assert paths_of(answer)[0] == "apple/0.jpg"
    assert "pear/apple.jpg" not in paths_of(answer)


def test_pending_images_are_told(mine, caplog):
    def forget(path):
        with Collection(mine / "runs/fruit/collection") as catalogue:
            catalogue._db.execute("UPDATE images SET status = 'pending' WHERE path = ?", (path,))

    forget(b"pear/0.jpg")
    told = "1 image not extracted yet, and not searchable until then"
    assert told in visterm("search", "id:1", cwd=mine).stderr
    with caplog.at_level("WARNING", logger="visterm.pipeline.search.searcher"):
        first = Searcher(mine / "runs/fruit")
        forget(b"pear/1.jpg")
        assert len(Searcher(mine / "runs/fruit", like=first).pending) == 2  # who follows a run that grows was told
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_run_that_changes_while_it_is_opened_is_opened_again(mine, monkeypatch):
    from visterm.pipeline.search import gallery as module

    catalogue = mine / "runs/fruit/collection/catalogue.sqlite"
    read, failed = module.searched_vectors, []

    def searched_vectors(*arguments):
        if not failed:
            failed.append(True)
            with contextlib.closing(sqlite3.connect(catalogue)) as db, db:
                db.execute("INSERT INTO meta VALUES ('a change', 1)")
            raise UserError("damaged segment")
        return read(*arguments)

    monkeypatch.setattr(module, "searched_vectors", searched_vectors)
    searcher = Searcher(mine / "runs/fruit")
    assert failed
    assert searcher.is_current()


def test_what_cannot_be_opened_is_refused_in_one_line(tmp_path):
    with pytest.raises(UserError, match="no collection here yet"):
        Searcher(tmp_path / "runs/none")
