"""Labels edited through the service, and on the page."""

import re
import shutil

import pytest

from visterm.pipeline import LabelEditor, Searcher
from visterm.pipeline.service import schemas
from visterm.pipeline.store.run import Run


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


def test_a_label_that_was_confirmed_is_not_asked_about_again(own, serving, photos, draw_overview):
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


@pytest.fixture
def labelled(shown, tmp_path, serving, draw_overview):
    """The address of a service of a copy of the pages' run, with two labels to check; and the run."""
    run = Run(tmp_path / "runs" / "photos")
    shutil.copytree(shown.folder, run.folder, ignore=shutil.ignore_patterns("service", "overview", "*.lock"))
    images = Searcher(run).images
    draw_overview(run, [(image.id, "plum") for image in images if image.path in ("plum/1.jpg", "plum/2.jpg")])
    with serving(run) as client:
        yield str(client.base_url), run


def test_labels_are_edited_where_they_are_seen(page, labelled, ids):
    from playwright.sync_api import expect

    address, run = labelled
    number = ids["plum/1.jpg"]
    page.goto(f"{address}?view=album&open={number}")
    labels = page.get_by_role("region", name="Labels")
    labels.get_by_label("Add a label").fill("ripe")
    page.keyboard.press("Enter")
    expect(labels.get_by_role("listitem")).to_have_text(["plum", "ripe"])
    labels.get_by_role("button", name="Remove label plum").click()
    expect(labels.get_by_role("listitem")).to_have_text(["ripe"])
    page.reload()
    labels.get_by_role("button", name="Undo").click()
    labels.get_by_role("button", name=re.compile("Undo ripe added")).click()
    expect(labels.get_by_role("listitem")).to_have_text(["plum"])
    page.goto(f"{address}?view=queue")
    expect(page.locator("#queue")).to_contain_text("2 photos left")
    expect(page.locator("#queue")).to_contain_text("By all other photos, pear is 91 % likely and plum 3 %.")
    page.keyboard.press("y")
    expect(page.locator("#queue")).to_contain_text("1 decided, 1 photo left")
    page.keyboard.press("n")
    expect(page.locator("#queue")).to_contain_text("No label is left to check")
    assert LabelEditor(run).of([number]) == {"plum/1.jpg": {"pear": 1.0}}
