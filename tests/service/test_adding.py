"""Photos added through the service."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from visterm.pipeline import Searcher
from visterm.pipeline.store.files import write_bytes
from visterm.service.add_files import add_waiting, waiting_files
from visterm.service.batching import NicePool
from visterm.service.subjects import adding
from visterm.service.subjects.adding import AddingSubject, PhotoAdder

pytestmark = pytest.mark.timeout(900)  # a process of low priority adds, on a busy machine


def keep(client, name, data):
    return client.post("/api/add/photo", files={"file": (name, data)})


def ended(client):
    deadline = time.monotonic() + 600
    while client.get("/api/add").json()["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return client.get("/api/add").json()


def paths(run):
    return {image.path for image in Searcher(run).images}


@pytest.fixture
def pictures(write_images, tmp_path):
    """Bytes of new photos by name."""
    names = [f"new/{i}.jpg" for i in range(4)]
    write_images(tmp_path / "outside", names)
    return {name.split("/")[1]: (tmp_path / "outside" / name).read_bytes() + b" " for name in names}


def test_photos_are_kept_added_and_searched(own, serving, photos, pictures):
    with serving(own) as client:
        before = client.health()["images"]
        for name, data in pictures.items():
            assert keep(client, f"holiday/{name}", data).json() == {"name": name, "copy_of": None}
        there = keep(client, "again.jpg", photos.data("pear/1.jpg")).json()
        assert there == {"name": "again.jpg", "copy_of": "pear/1.jpg"}
        assert keep(client, "twice.jpg", pictures["2.jpg"]).json() == {"name": "twice.jpg", "copy_of": "2.jpg"}
        for data, name, status, word in ((b"text", "bad.jpg", 415, "not an image"), (b"text", "a.txt", 415, "not the")):
            client.check_error(keep(client, name, data), status, name, word)
        assert {file.name for file in own.added.iterdir()} == set(pictures)
        assert client.health()["images"] == before
        assert client.post("/api/add").json()["running"]
        state = ended(client)
        assert (state["result"], state["problem"]) == ({"added": 4, "refused": [], "cancelled": 0}, None)
        assert client.health()["images"] == before + 4
        listed = client.get("/api/images", params={"order": "recent", "limit": 4}).json()
        assert {os.path.basename(image["path"]) for image in listed} == set(pictures)
        assert listed[0]["labels"] == []
        assert client.get("/search", params={"id": listed[0]["id"]}).status_code == 200
        assert client.get(listed[0]["thumbnail"]).status_code == 200
        # A removed photo does not come back with the next ones, unless it is given again.
        client.post("/api/images/remove", json={"ids": [listed[0]["id"]]})
        assert list(waiting_files(own)) == []
        name = os.path.basename(listed[0]["path"])
        assert keep(client, name, pictures[name]).json() == {"name": name, "copy_of": None}
        assert [file.name for file in waiting_files(own)] == [name]
        client.delete("/api/add")  # its file stays, as the removal can be undone
        assert (waiting_files(own), (own.added / name).read_bytes()) == ({}, pictures[name])
        assert keep(client, name, pictures[name]).json()["copy_of"] is None
        client.post("/api/add")
        assert ended(client)["result"]["added"] == 1
        assert client.health()["images"] == before + 4
        assert keep(client, "0.jpg", pictures["1.jpg"]).json()["copy_of"]


def test_two_photos_of_one_name_are_both_kept_and_names_are_made_safe(own, serving, pictures):
    first, second, *_ = pictures.values()
    with serving(own) as client:
        for data in (first, second, second):
            keep(client, "a.jpg", data)
        assert len(list(own.added.iterdir())) == 2
        for given in ("../../evil.jpg", "..\\..\\evil.jpg", "\x00\n\u202eb.jpg", ".jpg", 300 * "ä" + ".jpg", "..."):
            response = keep(client, given, first)
            assert response.status_code in (200, 415)
        assert all(file.parent == own.added and len(os.fsencode(file.name)) < 200 for file in own.added.iterdir())
        assert not any((own.folder.parent / name).exists() for name in ("evil.jpg", "../evil.jpg"))


def test_two_photos_of_one_name_at_once_are_both_kept(own, serving, pictures, monkeypatch):
    def slowly(file, data):
        time.sleep(0.5)
        write_bytes(file, data)

    with serving(own) as client, ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(client.parts, "upload_pool", NicePool(2, 60))
        monkeypatch.setattr(adding, "write_bytes", slowly)
        sent = [pool.submit(keep, client, "a.jpg", data) for data in list(pictures.values())[:2]]
        assert all(one.result().status_code == 200 for one in sent)
        assert len(list(own.added.iterdir())) == 2


def test_cancelled_photos_are_deleted_and_what_a_kill_left_is_added_next_time(own, serving, pictures, monkeypatch):
    waiting = 'import sys, time; print(\'{"done": 0, "total": 4}\', flush=True); time.sleep(60)'
    with serving(own) as client:
        for name, data in pictures.items():
            keep(client, name, data)
        monkeypatch.setattr(PhotoAdder, "command", (sys.executable, "-c", waiting))
        client.post("/api/add")
        client.wait_until(lambda: client.get("/api/add").json()["total"] == 4)
        client.check_error(client.post("/api/add"), 409, "photos are being added")
        os.kill(client.subjects.of(AddingSubject).job.process.pid, signal.SIGKILL)
        state = ended(client)
        assert "was killed" in state["problem"]
        assert len(waiting_files(own)) == 4
        client.post("/api/add")
        client.delete("/api/add")
        state = ended(client)
        assert (state["result"]["cancelled"], state["problem"], list(waiting_files(own))) == (4, None, [])
        keep(client, "one.jpg", pictures["1.jpg"])
        client.delete("/api/add")  # before it was started
        assert list(waiting_files(own)) == []


def test_photos_that_come_during_adding_outlive_its_cancelling(own, serving, pictures, monkeypatch):
    """Those of another page were deleted with the photos that were being added."""
    command = PhotoAdder.command
    waiting = 'import sys, time; print(\'{"done": 0, "total": 1}\', flush=True); time.sleep(60)'
    first, second, third, fourth = pictures
    with serving(own) as client:
        monkeypatch.setattr(PhotoAdder, "command", (sys.executable, "-c", waiting))
        assert keep(client, first, pictures[first]).json()["name"] == first
        client.post("/api/add")
        for name in (second, third, fourth):
            keep(client, name, pictures[name])
        other = keep(client, second, pictures[third] + b"\n").json()["name"]  # of another photo
        assert other != second
        names = [third, other, "../catalogue.sqlite", "none.jpg"]
        assert client.post("/api/add/cancel", json={"names": names}).json()["running"]
        assert {file.name for file in waiting_files(own)} == {first, second, fourth}
        assert client.post("/api/add/cancel", json={"names": [first]}).status_code == 200  # of those that are added now
        assert ended(client)["result"]["cancelled"] == 1
        assert {file.name for file in waiting_files(own)} == {second, fourth}
        monkeypatch.setattr(PhotoAdder, "command", command)
        client.post("/api/add")
        assert ended(client)["result"]["added"] == 2


def test_some_at_a_time_and_a_file_that_is_no_image_does_not_stop_the_others(own, pictures, monkeypatch):
    monkeypatch.setattr("visterm.service.add_files.AT_ONCE", 2)
    own.added.mkdir()
    for name, data in pictures.items():
        (own.added / name).write_bytes(data)
    (own.added / "1-bad.jpg").write_bytes(b"no image")
    before, told = len(paths(own)), []
    result = add_waiting(own, lambda *step: told.append(step), lambda: len(told) == 2)
    assert told == [(0, 5), (2, 5)]
    assert (result["added"], [refused["name"] for refused in result["refused"]]) == (3, ["1-bad.jpg"])
    assert [file.name for file in waiting_files(own)] == ["3.jpg"]  # cancelled: it waits
    assert add_waiting(own, lambda *step: None) == {"added": 1, "refused": []}
    assert len(paths(own)) == before + 4
    assert not (own.added / "1-bad.jpg").exists()


def test_a_job_ends_whatever_ends_it(own, serving, pictures, monkeypatch, caplog):
    """Where the catalogue is damaged meanwhile, or what the process prints cannot be read."""
    command = PhotoAdder.command
    catalogue = own.collection / "catalogue.sqlite"
    intact = catalogue.read_bytes()
    with serving(own) as client:
        for name, data in pictures.items():
            keep(client, name, data)
        monkeypatch.setattr(PhotoAdder, "command", (sys.executable, "-c", "import time; time.sleep(60)"))
        assert client.post("/api/add").json()["running"]
        catalogue.write_bytes(intact[: len(intact) // 2])
        assert client.delete("/api/add").status_code == 200  # what waits is not known without the catalogue
        state = ended(client)
        assert state["problem"].startswith(f"{own.name}/collection/catalogue.sqlite: damaged catalogue")
        assert state["result"] is None
        catalogue.write_bytes(intact)
        for printed in ("b'\\xff\\n'", "b'[]\\n3\\n'"):
            program = f"import os, time; os.write(1, {printed}); os.close(1); time.sleep(60)"
            monkeypatch.setattr(PhotoAdder, "command", (sys.executable, "-c", program))
            client.post("/api/add")
            assert ended(client)["problem"] == "the process that adds photos ended with an error"
        monkeypatch.setattr(PhotoAdder, "command", command)
        client.post("/api/add")
        assert ended(client)["result"] == {"added": 4, "refused": [], "cancelled": 0}
