"""Learning again through the service, and on the page."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import pytest

from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.models import trained_record
from visterm.pipeline.store.run import Run
from visterm.service.subjects.training import Retraining, TrainingSubject
from visterm.teaching.retrain import train_again, undoable

PATIENCE = 120  # seconds
# As the process that the service starts, of normal priority, as other tests keep the processors busy, and with another
# tolerance: what a training of a few images gives is chance.
TOLERANT = """
import os, sys
from visterm.teaching import retrain as train_again
os.nice = lambda _: 0
train_again.TOLERANCE = {}
sys.exit(train_again._main(sys.argv[1]))
"""


@pytest.fixture
def tolerance(monkeypatch):
    """Function that sets how far mean average precision may fall."""
    return lambda most: monkeypatch.setattr(Retraining, "command", (sys.executable, "-c", TOLERANT.format(most)))


def state(client):
    return SimpleNamespace(**client.get("/api/train").json())


def relabel(client, run, label="ripe"):
    """Give a training image another label."""
    image = next(image for image in Searcher(run).images if image.split == "train")
    return client.post("/api/labels", json={"edits": [{"id": image.id, "label": label, "change": "add"}]})


def ended(client):
    client.wait_until(lambda: not state(client).running)
    return state(client)


def created(run):
    return {name: trained_record(run, name)["created"] for name in run.learners()}


def test_labels_are_learned_in_the_background_and_undone(own, serving, photos, tolerance):
    tolerance(1.0)
    before = created(own)
    with serving(own) as client:
        assert (state(client).stale, state(client).running, state(client).undo) == ([], False, [])
        client.check_error(client.post("/api/train"), 409, "nothing to learn")
        client.check_error(client.delete("/api/train"), 409, "no training is running")
        client.check_error(client.post("/api/train/undo"), 409, "no training to undo")
        relabel(client, own)
        assert state(client).stale == ["oasis", "knn"]
        version = client.health()["version"]
        assert SimpleNamespace(**client.post("/api/train").json()).running
        client.check_error(client.post("/api/train"), 409, "wait for it to end")
        while state(client).running:
            assert client.get("/search", params={"id": photos.id("plum/0.jpg")}).status_code == 200
            time.sleep(0.05)
        done = state(client)
        assert [(result["learner"], result["taken"]) for result in done.results] == [("oasis", True), ("knn", True)]
        assert None not in (done.results[0]["before"], done.results[0]["after"])
        assert (done.stale, done.problem, done.undo) == ([], None, done.results)
        assert client.health()["version"] != version  # searches use them already
        assert client.get("/api/run").json()["training"] == vars(done)
        undone = SimpleNamespace(**client.post("/api/train/undo").json())
        assert (undone.stale, undone.undo, undone.results) == (["oasis", "knn"], [], [])
        assert client.health()["version"] == version
    assert created(own) == before


@pytest.mark.slow
def test_a_worse_model_is_told_and_not_offered_again(own, serving, tolerance):
    tolerance(-1.0)
    before = created(own)
    with serving(own) as client:
        relabel(client, own)
        client.post("/api/train")
        done = ended(client)
        assert [result["taken"] for result in done.results] == [False, False]
        assert "the old model stays in use" in done.results[0]["reason"]
        assert (done.stale, done.undo, created(own)) == ([], [], before)
        client.check_error(client.post("/api/train"), 409, "nothing to learn")
        relabel(client, own, "sweet")
        assert state(client).stale == ["oasis", "knn"]


def test_a_training_is_cancelled_or_killed(own, serving):
    before = created(own)
    with serving(own) as client:
        relabel(client, own)
        client.post("/api/train")
        client.delete("/api/train")
        done = ended(client)
        assert (done.cancelled, done.problem, done.results, done.stale) == (True, None, [], ["oasis", "knn"])
        client.post("/api/train")
        os.kill(client.subjects.of(TrainingSubject).job.process.pid, signal.SIGKILL)
        done = ended(client)
        assert (done.cancelled, done.results, done.stale) == (False, [], ["oasis", "knn"])
        assert "was killed" in done.problem
        with own.locked():
            client.check_error(client.post("/api/train"), 503, "another visterm is at work")
        client.post("/api/train")  # and the service ends while it runs
    assert created(own) == before


def test_others_may_not_train(own, serving):
    with serving(own, token="a" * 22) as client:
        client.check_error(client.get("/api/train"), 401)
    with serving(own) as client:
        relabel(client, own)
        evil = {"Origin": "http://evil.example"}
        for method, path in (("POST", "/api/train"), ("DELETE", "/api/train"), ("POST", "/api/train/undo")):
            client.check_error(client.request(method, path, headers=evil), 403)
        own.folder.rename(own.folder.with_name("moved"))
        for method, path in (("POST", "/api/train"), ("DELETE", "/api/train"), ("POST", "/api/train/undo")):
            client.check_error(client.request(method, path), 503, "renamed")
        own.folder.with_name("moved").rename(own.folder)


def _train_when_free(run):
    """Train again once the process of a service that was killed has ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return train_again(run)
        except UserError as error:
            if "another visterm is at work" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _hurry(service):
    """Let what a service has started not wait for other tests."""
    with contextlib.suppress(OSError):  # one may not, it has ended, or there is no such command
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(service.pid)], capture_output=True, text=True)
        for pid in listed.stdout.split():
            os.setpriority(os.PRIO_PROCESS, int(pid), 0)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_killed_service_leaves_the_old_or_the_new_model(own):
    """Killed before the training, in it, and about its end; the training ends with the service, or on its own."""
    before = created(own)
    for wait in ("starting", "training", None):
        run = Run(own.folder.with_name(f"killed-{wait}"))  # its own: a training may go on when the test has left it
        shutil.copytree(own.folder, run.folder)
        command = [os.path.join(os.path.dirname(sys.executable), "visterm"), "serve", "--run", run.name, "--port", "0"]
        environment = os.environ | {"VISTERM_RUNS": str(run.folder.parent)}
        service = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            with httpx.Client(base_url=service.stdout.readline().strip(), timeout=PATIENCE) as client:
                relabel(client, run)
                told = client.post("/api/train").json()
                while told["running"] and not (wait and told["phase"].startswith(wait)):
                    time.sleep(0.05)
                    _hurry(service)
                    told = client.get("/api/train").json()
        finally:
            service.kill()
            service.communicate(timeout=PATIENCE)
        _train_when_free(run)
        for name, time_of in created(run).items():
            assert time_of == before[name] or name in {training["learner"] for training in undoable(run)}
        assert Searcher(run).learners == ["oasis", "knn", "cosine"]


def test_one_label_is_learned_once_there_are_photos_without_it(flat, serving, tolerance, caplog):
    """A concept is one class, and those that were answered with No are another one."""
    tolerance(1.0)
    ids = [image.id for image in Searcher(flat).images]

    def answer(change, some):
        edits = [{"id": id_, "label": "ripe", "change": change} for id_ in some]
        assert client.post("/api/labels", json={"edits": edits, "source": "concept"}).status_code == 200

    with serving(flat) as client:
        answer("add", ids[:6])
        assert state(client).stale == []
        client.check_error(client.post("/api/train"), 409, "nothing to learn", "all labels are one")
        answer("remove", ids[6:12])
        assert state(client).stale == ["oasis"]
        client.post("/api/train")
        done = ended(client)
        assert (done.problem, done.results[0]["taken"], done.stale) == (None, True, [])
        assert trained_record(flat, "oasis")["result"]["n_images"] > 6
        assert "was trained before" not in caplog.text
        answer("remove", ids[12:13])
        assert state(client).stale == ["oasis"]


@pytest.fixture
def labelled(own_shown, serving, draw_overview):
    """The address of a service of a copy of the pages' run with twenty labels to check; and the run."""
    images = [image for image in Searcher(own_shown).images if image.path.startswith(("plum", "fig"))]
    draw_overview(own_shown, [(image.id, next(iter(image.labels))) for image in images[-20:]])
    with serving(own_shown) as client:
        yield str(client.base_url), own_shown


PHONE = {"viewport": {"width": 320, "height": 600}, "color_scheme": "dark"}


@pytest.mark.parametrize("page", [{}, PHONE], ids=["desktop", "phone"], indirect=True)
@pytest.mark.slow
def test_learn_again_from_the_page(page, labelled, tolerance):
    from playwright.sync_api import expect

    tolerance(1.0)
    address, run = labelled
    line = page.get_by_role("region", name="Learning from labels")
    image = next(image for image in Searcher(run).images if image.split == "train")
    page.goto(f"{address}?view=photos")
    expect(page.locator("#photos .tile").first).to_be_visible()
    expect(line).to_be_hidden()
    edits = [{"id": image.id, "label": "ripe", "change": "add"}]
    page.request.post(f"{address}/api/labels", data={"edits": edits})
    page.reload()
    expect(line).to_contain_text("Labels have changed.")
    assert page.violations() == []
    assert line.bounding_box()["height"] <= (40 if page.viewport_size["width"] > 600 else 70)
    line.get_by_role("button", name="Dismiss").click()
    expect(line).to_be_hidden()
    page.reload()
    expect(page.locator("#photos .tile").first).to_be_visible()
    expect(line).to_be_hidden()
    page.evaluate("localStorage.clear()")
    page.reload()
    line.get_by_role("button", name="Learn again").press("Enter")
    expect(line.get_by_role("progressbar")).to_be_visible()
    expect(line.get_by_role("button", name="Cancel")).to_be_focused()
    assert page.violations() == []
    page.reload()
    expect(line).to_contain_text(re.compile("mAP on held-out photos [01].[0-9]{3} before, [01].[0-9]{3} after"))
    assert page.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    page.reload()
    line.get_by_role("button", name="Undo").press("Enter")
    expect(line).to_contain_text("Labels have changed")
    expect(line.get_by_role("button", name="Learn again")).to_be_focused()
    assert undoable(run) == []


@pytest.mark.slow
def test_the_queue_learns_every_twenty_decisions(page, labelled, tolerance):
    from playwright.sync_api import expect

    tolerance(1.0)
    address, run = labelled
    line = page.get_by_role("region", name="Learning from labels")
    page.goto(f"{address}?view=queue")
    expect(page.locator("#queue")).to_contain_text("20 photos left")
    for number in range(1, 21):
        page.keyboard.press("y")
        expect(page.locator("#queue")).to_contain_text(re.compile(f"{number} decided|No label is left"))
        if number == 19:
            expect(line).to_contain_text("Labels have changed")
    expect(line).to_contain_text(re.compile("mAP on held-out photos .* before, .* after"))
    line.get_by_role("button", name="Dismiss").click()
    expect(line).to_be_hidden()
    page.reload()
    expect(page.locator("#queue")).to_contain_text("No label is left")
    expect(line).to_be_hidden()
