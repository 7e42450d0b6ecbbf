"""Labels edited through the service."""

import json

import numpy as np

from visterm.pipeline import LabelEditor, Searcher
from visterm.pipeline.search.overview import overview_folder, overview_record
from visterm.pipeline.service import schemas
from visterm.pipeline.store.files import publish


def draw_overview(run, entries):
    """Give a run an overview with these labels to check."""
    searcher = Searcher(run)
    ids = [image.id for image in searcher.images]
    with publish(overview_folder(run), overview_record(searcher)) as folder:
        np.save(folder / "ids.npy", np.array(ids, np.int64))
        np.save(folder / "points.npy", np.zeros((len(ids), 2), "f4"))
        (folder / "alike.json").write_text("[]")
        doubt = {"share": 0.0, "suggested": "pear", "suggested_share": 0.9}
        (folder / "check.json").write_text(json.dumps([{"id": id_, "label": label} | doubt for id_, label in entries]))


def change(number, label, how):
    return {"id": number, "label": label, "change": how}


def test_edits_are_searched_at_once_and_undone(own, serving, photos):
    plum, fig = photos.id("plum/0.jpg"), photos.id("fig/0.jpg")
    with serving(own) as client:
        edits = [change(plum, "ripe", "add"), change(fig, "ripe", "add"), change(fig, "fig", "remove")]
        done = schemas.LabelEditResult.model_validate(client.post("/api/labels", json={"edits": edits}).json())
        assert (done.changed, done.images[1].labels, done.last.added) == (2, ["ripe"], ["ripe"])
        (answer,) = client.get("/search", params={"id": plum, "label": "ripe"}).json()
        assert [result["id"] for result in answer["results"]] == [fig]
        LabelEditor(own).remove("ripe", [plum])  # of another program: the later one wins
        assert client.get("/api/labels/last").json()["last"]["removed"] == ["ripe"]
        for _ in range(2):
            client.post("/api/labels/undo")
        assert LabelEditor(own).of([plum, fig]) == {"fig/0.jpg": {"fig": 1.0}, "plum/0.jpg": {"plum": 1.0}}
        client.check_error(client.post("/api/labels/undo"), 409, "no edit of labels to undo")
        for label, message in (("a" * 4000, "4,000 characters"), ("a\nb", "control characters"), (" ", "is empty")):
            refused = client.post("/api/labels", json={"edits": [change(plum, label, "add")]})
            client.check_error(refused, 409, message)


def test_a_label_that_was_confirmed_is_not_asked_about_again(own, serving, photos):
    plum, fig = photos.id("plum/0.jpg"), photos.id("fig/0.jpg")
    draw_overview(own, [(plum, "plum"), (fig, "fig")])
    with serving(own) as client:
        client.post("/api/labels", json={"edits": [change(plum, "plum", "add")], "source": "queue"})
        assert [entry["image"]["id"] for entry in client.get("/api/check").json()["entries"]] == [fig]
        edits = [change(fig, "fig", "remove"), change(fig, "pear", "add")]
        client.post("/api/labels", json={"edits": edits, "source": "queue"})
        assert client.get("/api/check").json()["total"] == 0
        client.post("/api/labels/undo")
        assert client.get("/api/check").json()["total"] == 1
