"""Reloading the run when it changes on disk."""

import gc
import json
import re
import subprocess
import sys
import threading
import weakref
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from visterm.pipeline import Searcher
from visterm.pipeline.console import Console
from visterm.pipeline.stages import edit as edit_stage
from visterm.pipeline.stages.extraction import ImageSource, extract
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.stages.train import train as train_stage
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import write_record
from visterm.pipeline.store.opened import OpenedRun
from visterm.retrieval import ExactIndex
from visterm.service import reloader, snapshot


@pytest.fixture(autouse=True)
def poll(monkeypatch):
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(reloader, "FIRST_SECONDS", 0.01)


def start_extraction(run, collection):
    """Mark all images as not extracted; return them, and a function that extracts some."""
    content = collection["extractor"]
    collection.use_extractor("")
    collection.use_extractor(content)
    config, quiet = run.configure(None, []), Console(quiet=True)
    it = OpenedRun(run, config, collection)
    source = ImageSource.of(it, collection.root)
    return collection.pending(), lambda some: extract(it, source, some, quiet)


@pytest.mark.slow
def test_training_and_new_images_without_an_error(own, own_photos, write_images, serving):
    quiet = Console(quiet=True)
    config = own.configure(None, ["oasis.C=0.5"])
    with serving(own) as client:
        first = client.health()["version"]
        answered, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                reported = client.health()["version"]
                answered.append((reported, client.get("/search?id=1&k=3")))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            before = client.get("/search?id=1&k=3").json()[0]
            train_stage(own, config, "oasis", quiet)
            second = client.wait_for_version(first)
            after = client.get("/search?id=1&k=3").json()[0]
            write_images(own_photos, ["plum/new.jpg"])
            features_stage(own, config, None, quiet)
            third = client.wait_for_version(second)
            assert client.health()["images"] == 20
            assert "plum/new.jpg" in [image["path"] for image in client.get("/api/images").json()]
        finally:
            stop.set()
            asking.join()
    assert [row["score"] for row in before["results"]] != [row["score"] for row in after["results"]]
    assert {answer.status_code for _, answer in answered} == {200}
    order = [first, second, third]
    for reported, answer in answered:  # never older than what was reported before it was asked
        assert order.index(answer.json()[0]["version"]) >= order.index(reported)


def test_replaced_snapshot_is_freed_without_the_cyclic_gc(own):
    """Snapshots are excluded from the cyclic GC, so no cycle may hold one."""
    held = reloader.SnapshotReloader(own)
    old = weakref.ref(held.snapshot), weakref.ref(held.snapshot.searcher)
    train_stage(own, own.configure(None, ["oasis.n_steps=200"]), "oasis", Console(quiet=True))
    gc.disable()
    try:
        assert held.refresh() is not old[0]()
        assert [reference() for reference in old] == [None, None]
    finally:
        gc.enable()


def test_new_snapshot_shares_what_has_not_changed(own):
    held = reloader.SnapshotReloader(own)
    old = held.snapshot
    old.load()
    old.warm({"oasis", "cosine"})
    train_stage(own, own.configure(None, []), "knn", Console(quiet=True), force=True)
    new = held.refresh()
    assert new.searcher.learner("knn") is not old.searcher.learner("knn")
    for part in ("X", "images", "place"):
        assert getattr(new.searcher, part) is getattr(old.searcher, part)
    assert (new.sizes is old.sizes, new.labels is old.labels) == (True, True)
    assert new.searcher.gallery.albums is old.searcher.gallery.albums
    for name in ("oasis", "cosine"):
        assert new.searcher.learner(name) is old.searcher.learner(name)
        assert new.searcher.index(name) is old.searcher.index(name)


def resident(folder):
    """KiB in the memory of this process of copies without a name that were made in a folder."""
    total, is_copy = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-", line):
            is_copy = str(folder) in line and line.endswith("(deleted)")
        elif is_copy and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux lists mapped files")
def test_new_snapshot_holds_no_pages_of_a_learner_beside_the_old_one(own, monkeypatch):
    monkeypatch.setattr(snapshot, "_SAMPLE", 3)
    monkeypatch.setattr("visterm.pipeline.store.models._WHOLE_BYTES", 0)  # small learners are not mapped
    monkeypatch.setattr("visterm.learners.storage._SMALL", 0)
    held, mapped, folder = reloader.SnapshotReloader(own), [], own.learner("oasis")
    held.snapshot.searcher.index("oasis").search(held.snapshot.searcher.X[:1], k=1)
    assert resident(folder) > 0
    train_stage(own, own.configure(None, ["oasis.n_steps=200"]), "oasis", Console(quiet=True))
    search = ExactIndex.search

    def noting(index, Q, *arguments, **options):
        mapped.append((resident(folder), len(np.unique(Q.toarray(), axis=0))))
        return search(index, Q, *arguments, **options)

    monkeypatch.setattr(ExactIndex, "search", noting)
    new = held.refresh()
    assert resident(folder) == 0
    assert mapped[1:4] == [(0, 1)] * 3  # each search of the sample, and the one after them
    assert {n_images for _, n_images in mapped} == {1}
    monkeypatch.setattr(ExactIndex, "search", search)
    new.searcher.index("oasis").search(new.searcher.X[:1], k=1)
    assert resident(folder) > 0


def test_released_pages_are_read_again(tmp_path):
    values = np.arange(100_000.0)
    np.save(tmp_path / "a.npy", values)
    learner = SimpleNamespace(mapped=np.load(tmp_path / "a.npy", "r"), changed=np.load(tmp_path / "a.npy", "c"))
    learner.changed[:] = 7
    snapshot.release_pages(learner)
    assert (learner.mapped == values).all()
    assert (learner.changed == 7).all()


def test_the_first_second_is_for_the_photos(own, serving, monkeypatch):
    monkeypatch.setattr(reloader, "FIRST_SECONDS", 1000.0)
    with serving(own) as client:
        assert client.get("/api/home").status_code == 200
        assert client.get("/images/1/thumbnail?size=256").status_code == 200
        assert ("learner", "oasis") not in client.parts.snapshot.searcher._once
        assert client.parts.looks._thread is None
        assert client.get("/search?id=1&learner=oasis").status_code == 200  # loads what it needs itself


def test_a_learner_that_is_trained_before_it_is_loaded(own, searcher, serving, photos, monkeypatch):
    monkeypatch.setattr(reloader, "FIRST_SECONDS", 1000.0)

    def train_again(C):
        train_stage(own, own.configure(None, [f"oasis.C={C}"]), "oasis", Console(quiet=True))

    with serving(own) as client:
        first = client.health()["version"]
        train_again(0.5)
        (answer,) = client.get("/search?id=1&learner=oasis").json()
        assert answer["version"] == client.health()["version"] != first
        client.parts.snapshot.searcher._once.drop(("learner", "oasis"))
        train_again(0.4)
        photo = next(searcher.root.rglob("*.jpg")).read_bytes()
        (answer,) = client.upload(photo, learner="oasis").json()
        assert answer["results"]
        assert answer["version"] == client.health()["version"]
        query = client.mark(photos, "plum/0.jpg", ["plum/1.jpg"], ["pear/1.jpg"])
        client.parts.snapshot.searcher._once.drop(("learner", "oasis"))
        train_again(0.5)
        updated = client.post("/feedback/update", json={"learner": "oasis", "query": query})
        assert (updated.status_code, updated.json().get("n_relevant")) == (200, 1), updated.text


def test_old_snapshot_is_used_while_the_run_is_changed(own, serving):
    with serving(own) as client:
        client.wait_until(lambda: ("learner", "oasis") in client.parts.snapshot.searcher._once)
        version = client.health()["version"]
        record = own.extractor / "record.json"
        kept = record.read_text()
        write_record(record, json.loads(kept) | {"content": "another"})
        client.wait_until(lambda: client.health()["status"] == "behind")
        health = client.health()
        assert "features are not finished" in health["problem"]
        record.write_text("{")
        client.wait_until(lambda: "damaged" in client.health()["problem"])
        edit = {"id": 1, "label": "fig", "change": "add"}
        behind = client.post("/api/labels", json={"edits": [edit]}).json()["behind"]
        for problem in (client.health()["problem"], client.get("/api/run").json()["problem"], behind):
            assert problem.startswith("photos/extractor/record.json: ")  # without the folders above
        assert client.get("/search?id=1").json()[0]["version"] == version
        record.write_text(kept)
        client.wait_until(lambda: client.health()["status"] == "ok")


@pytest.mark.slow
def test_images_stay_while_they_are_extracted_again(own, serving):
    with serving(own) as client:
        first = client.health()
        with closing(Collection(own.collection)) as collection:
            pending, go_on = start_extraction(own, collection)
            go_on(pending[:5])
            client.wait_until(lambda: "14 images not extracted again yet" in str(client.health()["problem"]))
            health = client.health()
            assert health == first | {"status": "behind", "problem": health["problem"]}
            assert len(client.get("/search?id=1&k=50").json()[0]["results"]) == 18
            go_on(pending[5:])
        client.wait_until(lambda: client.health() == first)


def test_a_learner_that_is_used_for_the_first_time_while_the_run_is_read_again(own):
    """A search enters its usual scores in the snapshot whose scores the new one takes over."""
    old = snapshot.Snapshot(Searcher(own))
    old._low = {"oasis": 0.5, "cosine": 0.5}

    class During(snapshot.Snapshot):
        def _ranks_as(self, other, learner):
            other._low[f"{learner} and another"] = 0.5
            return super()._ranks_as(other, learner)

    assert During(Searcher(own), old)._low == {"oasis": 0.5, "cosine": 0.5}


def test_failed_reload_warns_once(own, caplog):
    held = reloader.SnapshotReloader(own)
    with closing(Collection(own.collection)) as collection, caplog.at_level("WARNING"):
        pending, go_on = start_extraction(own, collection)
        for some in (pending[:5], pending[5:9], pending[9:12]):
            go_on(some)
            held.refresh()
            assert "not extracted again yet" in held.problem
    (warned,) = [record.getMessage() for record in caplog.records]
    assert warned == "14 images not extracted again yet; the previous snapshot stays in use"


@pytest.mark.slow
def test_compacting_while_others_search(own, tmp_path, serving, photos):
    """Searches work in the service and in another process that keeps opening the run."""
    stop, quiet = tmp_path / "stop", Console(quiet=True)
    program = (
        "import os, sys\nfrom visterm.pipeline import Searcher\nprint('searching', flush=True)\n"
        "while not os.path.exists(sys.argv[2]):\n    assert Searcher(sys.argv[1]).search('id:1', k=3)[0]['results']\n"
    )
    command = [sys.executable, "-c", program, str(own.folder), str(stop)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with serving(own) as client:
            assert other.stdout.readline() == "searching\n", other.stderr.read()
            searcher = Searcher(own)
            before = searcher.search("id:1", k=3)
            removed = [photos.id(path) for path in ("plum/3.jpg", "plum/4.jpg", "fig/2.jpg")]
            assert client.get(f"/images/{removed[0]}/thumbnail").status_code == 200
            for number in removed:
                edit_stage.remove(own, [f"id:{number}"], quiet)
                assert edit_stage.compact(own, quiet)["dropped_rows"] == 1
                assert client.get("/search?id=1&k=3").status_code == 200
            client.wait_until(lambda: client.health()["images"] == 16)
            for address in (f"/images/{removed[0]}/thumbnail", f"/search?id={removed[0]}"):
                client.check_error(client.get(address), 404, "removed")
            (answer,) = client.get("/search?id=1&k=15").json()
            assert [row["path"] for row in answer["results"]] == [
                row["path"] for row in Searcher(own).search("id:1", k=15)[0]["results"]
            ]
            assert searcher.search("id:1", k=3) == before  # it keeps the removed segments open
    finally:
        stop.touch()
        _, error = other.communicate(timeout=100)
    assert other.returncode == 0, error
