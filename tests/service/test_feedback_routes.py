"""Relevance marks and updates of learners."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.store import append_only
from visterm.service import reloader
from visterm.teaching import feedback as feedback_update


@pytest.mark.slow
def test_update_and_undo(own, serving, photos):
    with serving(own) as client:
        number = photos.id("plum/0.jpg")
        ask = {"id": number, "k": 18}
        (before,) = client.get("/search", params=ask).json()
        worst, best = before["results"][-1], before["results"][0]
        key = client.mark(photos, "plum/0.jpg", [worst["path"]], [best["path"], "fig/1.jpg"])
        marks = client.get("/marks", params={"query": key}).json()
        assert [(mark["path"], mark["mark"]) for mark in marks["marks"]][0] == (worst["path"], 1)
        left = client.post("/marks/undo", json={"query": key}).json()
        assert [mark["path"] for mark in left["marks"]] == [worst["path"], best["path"]]
        result = client.post("/feedback/update", json={"query": key}).json()
        assert (result["n_relevant"], result["n_not"]) == (1, 1)
        (after,) = client.get("/search", params=ask).json()
        if result["accepted"]:
            assert after["version"] == result["version"] != before["version"]
            changed = [a["id"] != b["id"] for a, b in zip(before["results"], after["results"], strict=True)]
            assert result["changed_in_top"] == sum(changed)
            assert client.get("/api/run").json()["models"]["oasis"] == {"version": 1, "marks": 2}
            back = client.post("/feedback/undo", json={}).json()
            assert (back["from_version"], back["to_version"]) == (1, 0)
            (again,) = client.get("/search", params=ask).json()
            ranked, as_before = ([(r["id"], r["score"]) for r in answer["results"]] for answer in (again, before))
            assert ranked == as_before
        unmarked = {"query": "0" * 64}
        client.check_error(client.post("/marks/undo", json=unmarked), 409, "no marks")
        exported = client.get("/feedback/export").json()
        assert [row["mark"] for row in exported] == [1, -1, -1, 0]
        client.check_error(client.post("/feedback/undo", json={}), 409, "nothing to undo")
        refused = client.post("/feedback/update", json={"learner": "knn"})
        client.check_error(refused, 409, "knn does not learn from marks")
        assert client.post("/feedback/reset", json={}).json()["to_version"] == 0


def test_first_marks_of_a_flat_folder_start_oasis_at_the_identity(flat, serving):
    images = {image.path: image for image in Searcher(flat).images}
    ask = {"id": images["plum0.jpg"].id, "k": 17}

    def ranked(answer):
        return [(row["id"], row["score"]) for row in answer["results"]]

    with serving(flat) as client:
        assert client.get("/api/run").json()["models"] == {"oasis": {"version": 0, "marks": 0}}
        nothing = client.post("/feedback/update", json={}).json()
        assert (nothing["accepted"], nothing["reason"]) == (False, "there are no marks to learn from")
        (before,) = client.get("/search", params=ask).json()
        assert (before["learner"], client.get("/api/run").json()["learners"]) == ("cosine", ["cosine"])
        first, last = before["results"][0]["id"], before["results"][-1]["id"]
        for image, mark in ((last, 1), (first, -1)):
            body = {"query": before["key"], "image": image, "mark": mark, "learner": "cosine"}
            client.post("/marks", json=body)
        made = client.post("/feedback/update", json={"query": before["key"]}).json()
        assert (made["accepted"], made["from_version"], made["to_version"]) == (True, 0, 1)
        assert (made["map_before"], made["map_after"]) == (None, None)  # there is nothing to measure on
        (after,) = client.get("/search", params=ask).json()
        assert after["learner"] == "oasis"  # searches by it from now on
        order = [row["id"] for row in after["results"]]
        assert order.index(last) < order.index(first)
        assert made["changed_in_top"] == sum(a["id"] != b for a, b in zip(before["results"], order, strict=True))
        assert client.get("/api/train").json()["stale"] == []  # these marks are learned
    with serving(flat) as client:  # started again
        (again,) = client.get("/search", params=ask).json()
        assert ranked(again) == ranked(after)
        assert client.get("/api/run").json()["models"] == {"oasis": {"version": 1, "marks": 2}}
        assert client.post("/feedback/undo", json={}).json()["to_version"] == 0
        (undone,) = client.get("/search", params=ask).json()
        assert ([row["id"] for row in undone["results"]], undone["learner"]) == (
            [row["id"] for row in before["results"]],
            "oasis",
        )


def test_marks_of_an_upload_outlive_it(own, tmp_path, write_images, serving):
    write_images(tmp_path, ["plum/outside.jpg"])
    with serving(own) as client:
        (answer,) = client.upload((tmp_path / "plum/outside.jpg").read_bytes()).json()
        asked = {"query": answer["key"], "image": answer["results"][0]["id"], "mark": 1}
        assert client.post("/marks", json=asked).status_code == 200
        for file in (own.folder / "service" / "uploads").iterdir():
            file.unlink()
        asked |= {"image": answer["results"][1]["id"], "mark": -1}
        assert len(client.post("/marks", json=asked).json()["marks"]) == 2
        client.check_error(client.post("/marks", json=asked | {"query": "0" * 64}), 404, "search with it again")


def test_invalid_marks(client, searcher):
    asked = {"query": searcher.images[0].sha256, "image": searcher.images[1].id, "mark": 1}
    for key, *values in (("mark", 2, "1; DROP TABLE marks"), ("query", "../../etc/passwd", None), ("more", 1)):
        for value in values:
            client.check_error(client.post("/marks", json=asked | {key: value}), 422, key)
    client.check_error(client.post("/marks", json=asked | {"image": 999999}), 404, "no image")
    client.check_error(client.post("/marks", json=asked | {"learner": "<b>"}), 404, "<b>")
    assert client.get("/feedback/export").json() == []


def test_update_whose_reload_fails(own, monkeypatch, serving):
    with serving(own) as client:
        assert client.post("/feedback/reset", json={}).json()["behind"] is None

        def fails(*_, **__):
            raise UserError("in the middle of a change")

        monkeypatch.setattr(reloader, "Searcher", fails)
        assert client.post("/feedback/reset", json={}).json()["behind"] == "in the middle of a change"


def test_damaged_version(own, serving, searcher, monkeypatch):
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    damaged = own.feedback("oasis") / "in_force.json"
    damaged.parent.mkdir(parents=True)
    mark = {"query": searcher.images[0].sha256, "image": 2, "mark": 1}
    with serving(own) as client:
        version = client.get("/health").json()["version"]
        for text in ("[]", "7", "{}", '{"base": 1}', "{"):
            damaged.write_text(text)
            facts = client.get("/api/run")
            assert (facts.status_code, facts.json()["models"]) == (200, {})
            for answer in (client.post("/feedback/update", json={}), client.post("/marks", json=mark)):
                client.check_error(answer, 409, "in_force.json: damaged; run 'visterm feedback reset --learner oasis")
        damaged_version = client.wait_for_version(version)
        client.check_error(client.get("/search?id=1"), 409, "damaged; run")
        assert client.get("/search?id=1&learner=cosine").status_code == 200
        damaged.unlink()
        assert client.wait_for_version(damaged_version) == version
        assert client.get("/search?id=1").status_code == 200


def test_disk_full_while_a_mark_is_written(own, monkeypatch, serving, photos, searcher):
    """SQLite reports a full disk: its file may not grow."""
    with serving(own) as client:
        key = client.mark(photos, "plum/0.jpg", ["plum/1.jpg"], [])
        connect = append_only.AppendOnlyStore._connect

        def on_a_full_disk(self):
            db = connect(self)
            db.execute("PRAGMA max_page_count = 1")
            return db

        monkeypatch.setattr(append_only.AppendOnlyStore, "_connect", on_a_full_disk)
        answered = []
        for image in [*searcher.images] * 40:  # until the page is full
            answered.append(client.post("/marks", json={"query": key, "image": image.id, "mark": -1}))
            if answered[-1].status_code != 200:
                break
        monkeypatch.undo()
        client.check_error(answered[-1], 507, "the mark was not kept", "full")
        assert len(client.get("/feedback/export").json()) == len(answered)  # one before, and all but the last


def ranked(answer):
    """Ids and scores: colours and copies come in the background, sooner in one service than in the other."""
    return [(result["id"], result["score"]) for result in answer["results"]]


@pytest.mark.slow
def test_two_services_on_one_run(own, monkeypatch, serving, photos):
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    old = Searcher(own).version
    with serving(own) as first, serving(own) as second:
        (answer,) = first.upload(photos.data("fig/1.jpg")).json()
        (same,) = second.get("/search", params={"upload": answer["upload"]}).json()
        assert ranked(same) == ranked(answer)
        key = first.mark(photos, "plum/0.jpg", ["plum/1.jpg"], ["fig/1.jpg"])
        assert len(second.get("/marks", params={"query": key}).json()["marks"]) == 2
        with ThreadPoolExecutor(2) as pool:
            result = list(pool.map(lambda client: client.post("/feedback/update", json={}), (first, second)))
        assert [answer.status_code for answer in result] == [200, 200]
        assert sorted(answer.json()["accepted"] for answer in result) == [False, True]  # once, not twice
        first.wait_until(
            lambda: (
                old not in (versions := (first.health()["version"], second.health()["version"]))
                and len({*versions}) == 1
            )
        )
        answers = [client.get("/search?id=1&k=18").json()[0] for client in (first, second)]
        assert answers[0]["version"] == answers[1]["version"] != old
        assert ranked(answers[0]) == ranked(answers[1])
