"""A folder that is watched: what appears in it is added, without harm from what is half there."""

import os
import shutil
import time

import numpy as np
import pytest
from running import refused, visterm

from visterm.pipeline.stages.edit import exclude
from visterm.pipeline.store.catalogue import Collection
from visterm.service.subjects.adding import AddingSubject
from visterm.service.watch_folder import FolderWatch, unknown_files


@pytest.fixture
def told():
    return []


def old(file, seconds=60):
    """Let a file look as if it was written a while ago."""
    os.utime(file, (time.time() - seconds,) * 2)


def paths(run):
    with Collection(run.collection) as collection:
        return {image.path for image in collection.images()}


def test_new_and_changed_files_are_added_once_they_are_written(own, own_photos, photos, told):
    watch = FolderWatch(own, told.append)
    shutil.copy(own_photos / "fig/1.jpg", own_photos / "fig/new.jpg")
    with (own_photos / "fig/new.jpg").open("ab") as file:
        file.write(b" ")
    (own_photos / "notes.txt").write_text("no photo")
    watch.add()
    assert watch.pending  # it may still be being written
    assert "fig/new.jpg" not in paths(own)
    old(own_photos / "fig/new.jpg")
    watch.add()
    assert (watch.pending, told[-1]["problem"]) == (False, None)
    assert "fig/new.jpg" in paths(own)
    n = len(told)
    watch.add()
    assert len(told) == n + 1  # nothing to add
    half = (own_photos / "fig/2.jpg").read_bytes()
    (own_photos / "fig/half.jpg").write_bytes(half[: len(half) // 2])
    old(own_photos / "fig/half.jpg")
    watch.add()
    assert "fig/half.jpg" not in paths(own)
    assert unknown_files(own) == ([], False)  # not read again and again
    (own_photos / "fig/half.jpg").write_bytes(half + b" ")
    old(own_photos / "fig/half.jpg", 30)
    watch.add()
    assert "fig/half.jpg" in paths(own)


def test_a_file_from_the_future_is_added(own, own_photos, told, monkeypatch):
    shutil.copy(own_photos / "fig/1.jpg", own_photos / "fig/new.jpg")
    old(own_photos / "fig/new.jpg", -86_400)
    watch = FolderWatch(own, told.append)
    watch.add()
    assert watch.pending, "it was written just now"
    monkeypatch.setattr("visterm.service.watch_folder.SETTLED", 0.0)
    watch.add()
    assert not watch.pending
    assert "fig/new.jpg" in paths(own)


def test_what_was_removed_stays_removed_and_a_folder_that_disappears_harms_nothing(own, own_photos, photos, told):
    before = paths(own)
    exclude(own, [photos.id("fig/1.jpg")])
    watch = FolderWatch(own, told.append)
    watch.add()
    assert paths(own) == before - {"fig/1.jpg"}
    own_photos.rename(own_photos.with_name("elsewhere"))
    watch.add()
    assert watch.pending
    assert told[-1]["problem"] == f"{own_photos}: no such folder; give the folder that holds the images"
    assert paths(own) == before - {"fig/1.jpg"}
    own_photos.with_name("elsewhere").rename(own_photos)
    watch.add()
    assert (watch.pending, told[-1]["problem"]) == (False, None)


def test_a_busy_run_is_tried_again(own, own_photos, told):
    shutil.copy(own_photos / "fig/1.jpg", own_photos / "fig/new.jpg")
    old(own_photos / "fig/new.jpg")
    watch = FolderWatch(own, told.append)
    with own.locked():
        watch.add()
        assert watch.pending
    watch.add()
    assert "fig/new.jpg" in paths(own)


def test_a_file_that_appears_before_the_watch_begins(own, own_photos, told, monkeypatch):
    def begun(root, **options):
        shutil.copy(own_photos / "fig/1.jpg", own_photos / "fig/new.jpg")
        old(own_photos / "fig/new.jpg")
        yield set()
        raise KeyboardInterrupt

    watchfiles = pytest.importorskip("watchfiles", reason="the folder is watched by watchfiles")
    monkeypatch.setattr(watchfiles, "watch", begun)
    with pytest.raises(KeyboardInterrupt):
        FolderWatch(own, told.append).follow()
    assert "fig/new.jpg" in paths(own)


def test_what_cannot_be_watched(finished, tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    (tmp_path / "x.txt").write_text("a\nb\nc\nd")
    visterm("features", "--vectors", "x.npy", "--ids", "x.txt", cwd=tmp_path)
    assert "imported vectors" in refused("serve", "--watch", "--run", "x", cwd=tmp_path)
    monkeypatch.setattr("visterm.service.commands.find_spec", lambda name: None)
    line = refused("serve", "--watch", "--run", "fruit", cwd=finished)
    assert line.startswith("visterm: --watch needs watchfiles: ")
    assert "pip install" in line


@pytest.mark.slow
def test_a_service_that_watches(own, own_photos, serving):
    pytest.importorskip("watchfiles", reason="the folder is watched by watchfiles")
    with serving(own, settings={"watch": True}) as client:
        watcher = client.subjects.of(AddingSubject).watcher
        client.wait_until(lambda: watcher.progress)
        facts = client.get("/api/run").json()
        assert (facts["watching"], facts["watch_problem"]) == (True, None)
        shutil.copy(own_photos / "fig/1.jpg", own_photos / "fig/new.jpg")
        client.wait_until(lambda: client.health()["images"] == facts["images"] + 1)
        own_photos.rename(own_photos.with_name("elsewhere"))
        client.wait_until(lambda: client.get("/api/run").json()["watch_problem"])
        own_photos.with_name("elsewhere").rename(own_photos)
        client.wait_until(lambda: client.get("/api/run").json()["watch_problem"] is None)
        assert client.health()["images"] == facts["images"] + 1
