"""Suggestions, albums, filters, several examples, the map."""

import json
import os
import sys
import time

import numpy as np
import PIL.Image
import pytest

from visterm.pipeline import LabelEditor
from visterm.pipeline.console import Console
from visterm.pipeline.stages.features import features
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import publish
from visterm.service import reloader
from visterm.service.looks import Looks
from visterm.service.schemas import MAX_LISTED_LABELS
from visterm.service.snapshot import Snapshot
from visterm.service.subjects.map import MapSubject, OverviewMaker
from visterm.teaching.overview import Overview, overview_folder, overview_record

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def mapped(own, searcher, serving):
    """A service over a run with an overview that is up to date."""
    ids = [image.id for image in searcher.images]
    with publish(overview_folder(own), overview_record(searcher)) as folder:
        np.save(folder / "ids.npy", np.array([*ids, 10**6], np.int64))  # the last one was removed since
        np.save(folder / "points.npy", np.linspace(0, 1, 2 * len(ids) + 2, dtype=np.float32).reshape(-1, 2))
        alike = {"same": [(ids[0], other, 0.95) for other in ids[1:3]], "alike": [(ids[4], 10**6, 1.0)]}
        alike |= {"scene": [(ids[5], 10**6, 0.95)], "blank": [ids[6], 10**6]}
        (folder / "alike.json").write_text(json.dumps(alike))
        entry = {"label": "fig", "share": 0.0, "suggested": "pear", "suggested_share": 0.9}
        (folder / "check.json").write_text(json.dumps([{"id": ids[0]} | entry, {"id": 10**6} | entry]))
    with serving(own) as client:
        client.wait_for_colors()
        yield client


def test_suggestions_and_albums(client, photos):
    suggestions = client.get("/api/suggest", params={"q": "PE"}).json()
    assert suggestions["labels"] == [{"name": "pear", "images": 7}]
    assert {image["path"].split("/")[0] for image in suggestions["images"]} == {"pear"}
    assert suggestions["folders"] == []  # the same as the labels
    assert client.get("/api/suggest", params={"q": "pe", "kind": "folder"}).json()["folders"][0]["name"] == "pear"
    number = photos.id("plum/2.jpg")
    for text in (f"id:{number}", str(number)):
        assert client.get("/api/suggest", params={"q": text}).json()["images"][0]["id"] == number
    assert client.get("/api/suggest", params={"q": MARKUP}).json()["images"][0]["path"] == f"fig/{MARKUP}.jpg"
    nothing = client.get("/api/suggest", params={"q": "no such name"}).json()
    assert nothing == {"labels": [], "folders": [], "images": [], "words": [], "text_model": False}
    assert client.get("/api/suggest", params={"q": "figs and a plumm"}).json()["words"] == ["fig", "plum"]
    assert client.get("/api/suggest", params={"q": "fig"}).json()["words"] == []
    assert client.get("/api/suggest", params={"q": "x" * 301}).status_code == 422
    assert len(client.get("/api/suggest", params={"limit": 2}).json()["labels"]) == 2
    albums = client.get("/api/albums").json()
    assert [(album["name"], album["images"]) for album in albums["albums"]] == [("pear", 7), ("fig", 6), ("plum", 6)]
    assert all(len(album["covers"]) == 4 for album in albums["albums"])
    assert client.get("/api/albums", params={"q": "pl"}).json()["total"] == 1
    folders = client.get("/api/albums", params={"kind": "folder", "limit": 1, "offset": 1}).json()
    assert (folders["total"], folders["same_as_labels"], folders["albums"][0]["name"]) == (3, True, "fig")


def test_dates(own, own_photos, serving):
    for path in own_photos.rglob("*.*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))  # November 2023
    os.utime(own_photos / "plum/1.jpg", (1_600_000_000, 1_600_000_000))  # September 2020
    exif = PIL.Image.Exif()
    exif[306] = "2024:02:29 10:00:00"
    with PIL.Image.open(own_photos / "pear/2.jpg") as photo:
        photo.save(own_photos / "pear/2.jpg", exif=exif)
    features(own, own.configure(None, []), own_photos, Console(quiet=True))
    with serving(own) as client:
        answer = client.get("/api/dates").json()
        months = [("2024-02", 1), ("2023-11", 17), ("2020-09", 1)]
        assert [(one["month"], one["images"]) for one in answer["months"]] == months
        assert (answer["undated"], answer["from_files"]) == (0, 18)
        pears = client.get("/api/dates", params={"label": "pear", "before": "2024"}).json()
        assert pears["months"] == [{"month": "2023-11", "images": 6}]
        paths = [image["path"] for image in client.get("/api/images", params={"order": "date"}).json()]
        assert (paths[0], paths[-1], len(paths)) == ("pear/2.jpg", "plum/1.jpg", 19)
        assert client.get("/api/dates", params={"after": "May"}).status_code == 422


def test_a_hundred_thousand_labels_are_searched_fast_and_not_sent(own, serving):
    with Collection(own.collection) as collection:
        names = json.dumps({f"label {i}": 1.0 for i in range(100_000)})
        collection.execute("UPDATE images SET labels = ? WHERE id = 1", (names,))
    with serving(own) as client:
        client.get("/api/suggest", params={"q": "x"})  # makes the index
        started = time.process_time()
        answer = client.get("/api/suggest", params={"q": "label 99999"})
        assert time.process_time() - started < 2
        assert answer.json()["labels"] == [{"name": "label 99999", "images": 1}]
        run = client.get("/api/run").json()
        assert (len(run["labels"]), run["n_labels"]) == (MAX_LISTED_LABELS, 100_003)
        assert len(client.get("/api/albums", params={"limit": 3}).json()["albums"]) == 3


def test_filters_of_lists_and_those_that_are_refused(client, photos):
    of_pear = {"id": photos.id("pear/1.jpg")}
    for condition, message in (
        ({"where": "camera=X100"}, "no image has the field 'camera'; there are date, date_source"),
        ({"where": "date_source=files"}, "did you mean file?"),
        ({"after": "2024-13"}, "after: '2024-13' is not a date"),
    ):
        for path, asked in (("/search", of_pear), ("/api/images", {}), ("/api/images/columns", {})):
            client.check_error(client.get(path, params=asked | condition), 422, message)
    client.check_error(client.get("/search", params=of_pear | {"not_label": "nut"}), 404, "nut")
    assert client.get("/search", params=of_pear | {"folder": "nowhere"}).json()[0]["results"] == []
    assert client.get("/api/images", params={"before": "2000"}).json() == []
    recent = client.get("/api/images", params={"order": "recent"}).json()
    assert [image["id"] for image in recent] == sorted((image["id"] for image in recent), reverse=True)
    pears = client.get("/api/images", params={"label": "pear", "not_label": "fig", "folder": "pear"}).json()
    assert len(pears) == 7
    assert [image["id"] for image in client.get("/api/images", params={"ids": "3,999999,1"}).json()] == [3, 1]


def test_examples_and_regions_of_uploads(client, photos):
    a, b = photos.id("pear/1.jpg"), photos.id("plum/1.jpg")
    assert client.get("/search", params={"id": a, "example": f"id:{b}"}).json()[0]["key"] is None  # it takes no marks
    upload = client.upload(photos.data("fig/2.jpg")).json()[0]["upload"]
    again = client.get("/search", params={"id": a, "example": f"upload:{upload}"}).json()[0]
    assert a not in [result["id"] for result in again["results"]]
    client.check_error(client.get("/search", params={"id": a, "example": f"id:{a}@-1"}), 422, "cancel each other out")
    client.check_error(client.get("/search", params={"id": a, "example": "id:99999"}), 404, "no image 99999")
    client.check_error(client.get("/search", params={"id": a, "example": "../etc"}), 422, "example")
    whole, same = (
        client.get("/search", params={"id": a, "learner": "cosine"} | more).json()[0]["results"]
        for more in ({}, {"region": "0,0,1,1"})
    )
    assert [result["id"] for result in same] == [result["id"] for result in whole]
    assert client.get("/search", params={"upload": upload, "region": "0,0,0.4,0.4"}).status_code == 200
    third = {"region": f"0,0,{1 / 3},{2 / 3}", "example": f"id:{b}@{1 / 3}"}  # as programs write it
    assert client.get("/search", params={"upload": upload} | third).status_code == 200
    client.check_error(client.get("/search", params={"id": a, "region": "0.5,0,0.6,1"}), 422, "region")


def test_the_map_and_what_follows_from_it(mapped, searcher):
    state = mapped.get("/api/map").json()
    assert (state["ready"], state["current"], state["making"], state["n_alike"], state["n_check"]) == (
        True,
        True,
        False,
        1,
        1,
    )
    data, n = mapped.get("/api/map/points").content, len(searcher.images)
    assert len(data) == 14 * n  # without the removed image
    assert np.frombuffer(data[: 8 * n], "<f8").tolist() == [image.id for image in searcher.images]
    xy = np.frombuffer(data[8 * n : 12 * n], "<u2").reshape(n, 2)
    assert (xy[0] == np.round(np.array([0, 1 / (2 * n + 1)]) * 65535)).all()
    labels = np.frombuffer(data[12 * n :], "<u2")
    assert [state["labels"][i] for i in labels] == [next(iter(image.labels)) for image in searcher.images]
    few = mapped.get("/api/map/points", params={"most": 5}).content
    assert len(few) == 14 * 5
    assert np.frombuffer(few[:40], "<f8").tolist() == [searcher.images[i * n // 5].id for i in range(5)]
    assert len(mapped.get("/api/map/points", params={"most": n + 5}).content) == 14 * n
    groups = mapped.get("/api/alike").json()
    (group,) = groups["groups"]
    assert (groups["total"], group["n_images"], group["degree"], group["same"]) == (1, 3, "picture", True)
    assert group["splits"] == sorted({image.split for image in searcher.images[:3]} - {None})
    assert groups["removed"] is None
    assert (groups["n_blank"], [image["id"] for image in groups["blank"]]) == (1, [searcher.images[6].id])
    check = mapped.get("/api/check").json()
    assert (check["total"], check["entries"][0]["suggested"]) == (1, "pear")
    assert mapped.get("/api/check", params={"label": "plum"}).json()["total"] == 0


def test_what_is_known_before_the_map_is_drawn_is_there(mapped):
    """Of the first overview of a run."""
    folder = overview_folder(mapped.parts.run)
    parts = ("points.npy", "alike.json")
    kept = {name: (folder / name).rename(folder / f"{name}.old") for name in parts}
    (folder / "record.json").touch()
    state = mapped.get("/api/map").json()
    assert (state["ready"], state["n_alike"], state["n_check"]) == (False, None, 1)
    assert mapped.get("/api/check").json()["total"] == 1
    home = mapped.get("/api/home").json()
    assert (home["alike"], home["check"]["total"]) == (None, 1)
    mapped.check_error(mapped.get("/api/alike"), 409, "POST /api/map")
    kept["alike.json"].rename(folder / "alike.json")
    (folder / "record.json").touch()
    assert mapped.get("/api/map").json()["n_alike"] == 1


def test_what_is_said_to_be_different_is_in_no_group(mapped, searcher):
    first, second, third = (image.id for image in searcher.images[:3])

    def groups():
        listed = mapped.get("/api/alike").json()
        return [[image["id"] for image in group["images"]] for group in listed["groups"]], listed["last"]

    assert groups() == ([[first, second, third]], None)
    done = mapped.post("/api/alike/different", json={"parts": [[first, second], [third]]}).json()
    assert done["last"]["images"] == 3
    assert groups()[0] == [[first, second]]
    mapped.post("/api/alike/different", json={"parts": [[first], [second]]})
    assert groups()[0] == []
    assert (mapped.get("/api/map").json()["n_alike"], mapped.get("/api/map").json()["current"]) == (0, True)
    assert mapped.post("/api/alike/undo").json()["last"] == done["last"]
    assert mapped.post("/api/alike/undo").json()["last"] is None
    assert groups()[0] == [[first, second, third]]
    mapped.check_error(mapped.post("/api/alike/undo"), 409, "nothing to undo")
    for parts, message in (([[first], [first]], "twice"), ([[first], [10**6]], "no image id:1000000")):
        mapped.check_error(mapped.post("/api/alike/different", json={"parts": parts}), 409, message)
    mapped.check_error(mapped.post("/api/alike/different", json={"parts": [[first]]}), 422, "parts")
    assert groups()[1] is None


def test_a_request_keeps_its_groups_while_another_one_makes_those_of_a_newer_snapshot(mapped):
    subject, snapshot = mapped.subjects.of(MapSubject), mapped.parts.snapshot
    groups = subject._duplicates(snapshot)

    class Meanwhile(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            subject._groups = None, ([{"ids": [10**6]}], [])  # of an image that this snapshot has not
            return int(self) == other

    created, last, version = subject._groups[0]
    subject._groups = (created, Meanwhile(last), version), groups
    assert subject._duplicates(snapshot) == groups


def test_a_group_without_the_image_that_was_kept_is_no_group(mapped, searcher):
    """The others were compared with it alone."""
    first = searcher.images[0].id
    undo = mapped.post("/api/images/remove", json={"ids": [first]}).json()["undo"]
    assert mapped.get("/api/alike").json()["groups"] == []
    assert mapped.get("/api/alike").json()["removed"] == {"undo": undo, "images": 1}
    mapped.post("/api/images/restore", json={"undo": undo})
    assert [group["images"][0]["id"] for group in mapped.get("/api/alike").json()["groups"]] == [first]


def test_the_first_page_is_one_answer(mapped, client):
    for service in (mapped, client):
        home = service.get("/api/home").json()
        assert home["labels"] == service.get("/api/albums", params={"limit": 12}).json()
        assert home["folders"] == service.get("/api/albums", params={"kind": "folder", "limit": 12}).json()
        assert home["recent"] == service.get("/api/images", params={"order": "recent", "limit": 14}).json()
        assert home["map"] == service.get("/api/map").json()
        for part in ("alike", "check"):
            answer = service.get(f"/api/{part}", params={"limit": 4})
            assert home[part] == (answer.json() if home["map"]["ready"] else None)


def test_without_a_map_the_routes_say_so_and_photos_lie_in_rows(client, searcher):
    data, n = client.get("/api/map/points").content, len(searcher.images)
    assert np.frombuffer(data[: 8 * n], "<f8").tolist() == searcher.images.ids.tolist()
    xy = np.frombuffer(data[8 * n : 12 * n], "<u2").reshape(n, 2)
    assert len(np.unique(xy, axis=0)) == n
    assert (xy[:2] == np.round([[6553.5, 6553.5], [19660.5, 6553.5]])).all()
    assert client.get("/api/map").json()["ready"] is False
    assert client.get("/api/map").json()["n_check"] is None
    for path in ("alike", "check"):
        client.check_error(client.get(f"/api/{path}"), 409, "POST /api/map")


def test_the_map_is_drawn_in_the_background_and_a_failure_is_told(own, serving, monkeypatch):
    phase = 'import sys; print(\'{"phase": "drawing", "share": 0.5}\', flush=True); sys.stdin.read(); '
    monkeypatch.setattr(OverviewMaker, "command", (sys.executable, "-c", phase + "import time; time.sleep(60)"))
    with serving(own) as client:
        assert client.post("/api/map").json()["making"]
        client.wait_until(lambda: client.get("/api/map").json()["phase"] == "drawing")
        assert client.get("/health").status_code == 200  # the page stays usable
        client.subjects.of(MapSubject).job.stop()
        client.wait_until(lambda: not client.get("/api/map").json()["making"])
        failing = 'print(\'{"error": "the map needs umap"}\'); raise SystemExit(2)'
        monkeypatch.setattr(OverviewMaker, "command", (sys.executable, "-c", failing))
        client.post("/api/map")
        client.wait_until(lambda: client.get("/api/map").json()["problem"])
        assert client.get("/api/map").json()["problem"] == "the map needs umap"
        client.wait_until(lambda: not client.get("/api/map").json()["making"])
        killed = "import os; os.kill(os.getpid(), 9)"
        monkeypatch.setattr(OverviewMaker, "command", (sys.executable, "-c", killed))
        client.post("/api/map")
        client.wait_until(lambda: "was killed" in (client.get("/api/map").json()["problem"] or ""))


def test_a_map_that_is_asked_for_while_one_is_drawn_is_drawn_after_it(own, serving, monkeypatch):
    """A photo may have been removed, or have come back, after the process had read the run."""
    drawing = "import time; time.sleep(0.5)"
    monkeypatch.setattr(OverviewMaker, "command", (sys.executable, "-c", drawing))
    with serving(own) as client:
        client.post("/api/map")
        first = client.subjects.of(MapSubject).job.process
        client.post("/api/map")
        client.wait_until(lambda: client.subjects.of(MapSubject).job.process not in (first, None))


def test_a_removal_that_is_undone_while_its_map_is_drawn_leaves_the_map_of_all(mapped, tmp_path, monkeypatch):
    """The map on disk is up to date when the removal is undone, and not when the process ends."""
    maker = mapped.subjects.of(MapSubject).job
    record = overview_folder(mapped.parts.run) / "record.json"
    stale = tmp_path / "stale.json"
    stale.write_text(json.dumps(json.loads(record.read_text()) | {"inputs": {}}))
    wait, started = tmp_path / "go on", tmp_path / "started"
    code = f"""if 1:
        import os, pathlib, time
        started, wait = pathlib.Path({str(started)!r}), pathlib.Path({str(wait)!r})
        started.write_text(started.read_text() + "x" if started.exists() else "x")
        while not wait.exists():
            time.sleep(0.01)
        if started.read_text() == "x":
            os.replace({str(stale)!r}, {str(record)!r})"""
    monkeypatch.setattr(OverviewMaker, "command", (sys.executable, "-c", code))
    snapshot = mapped.parts.snapshot
    with monkeypatch.context() as patch:
        patch.setattr(maker, "is_current", lambda snapshot: False)  # of the images that are left
        maker.start(snapshot)
    mapped.wait_until(started.exists)
    maker.start(snapshot)  # the removal is undone
    wait.touch()
    mapped.wait_until(lambda: started.read_text() == "xx")


def test_the_labels_to_check_come_before_other_work_in_the_background(own, serving, monkeypatch, tmp_path):
    begun, judged, calls = tmp_path / "begun", tmp_path / "judged", []
    code = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(600)"
    monkeypatch.setattr(OverviewMaker, "command", (sys.executable, "-c", code))
    known = Overview(np.zeros(0, np.int64), None, None, [], {"created": "", "config": {}, "inputs": {}})
    monkeypatch.setattr(OverviewMaker, "overview", lambda maker: known if judged.exists() else None)
    monkeypatch.setattr(Looks, "follow", lambda looks, snapshot: calls.append(("looks", judged.exists())))
    monkeypatch.setattr(Snapshot, "warm", lambda snapshot, learners: calls.append(("warm", judged.exists())))
    with serving(own, settings={"overview": True}) as client:
        client.wait_until(begun.exists)
        time.sleep(3 * reloader.POLL_SECONDS)  # it looks again, and still waits
        judged.touch()
        client.wait_until(lambda: len(calls) == 2)
    assert calls == [("looks", True), ("warm", True)]


def test_figures_of_evaluations_and_trainings(client):
    figures = client.get("/api/evaluations/oasis/figures").json()
    assert not figures["stale"]
    assert figures["best"][0]["image"]["thumbnail"]
    assert figures["best"][0]["results"][0]["image"]["id"]
    assert client.get("/api/evaluations/none/figures").status_code == 404
    assert "oasis" in client.get("/api/training").json()["learners"]
    effect = client.get("/api/feedback/effect").json()
    assert (effect["learner"], effect["queries"]) == ("oasis", [])


@pytest.mark.slow
def test_the_effect_of_marks(own, serving, photos):
    with serving(own) as client:
        key = client.mark(photos, "pear/1.jpg", ["plum/1.jpg", "plum/2.jpg"], ["pear/2.jpg", "pear/3.jpg"])
        result = client.post("/feedback/update", json={"learner": "oasis", "query": key}).json()
        effect = client.get("/api/feedback/effect").json()
        if result["accepted"]:
            [query] = effect["queries"]
            assert query["image"]["id"] == photos.id("pear/1.jpg")
            assert len(query["before"]) == len(query["after"]) == 8
            assert any(image["mark"] for image in query["before"] + query["after"])


def test_figures_of_before_a_change_say_so(own, serving, photos):
    with serving(own) as client:
        for stale in (False, True):
            assert client.get("/api/evaluations/oasis/figures").json()["stale"] is stale
            LabelEditor(own).add("ripe", [photos.id("plum/0.jpg")])
