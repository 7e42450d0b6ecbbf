"""The HTTP service: answers, bad input, who may ask, exchange of what is newer."""

from __future__ import annotations

import asyncio
import datetime
import gc
import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import httpx
import uvicorn
from PIL import Image as Pillow

from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.feedback import update as feedback_update
from visterm.pipeline.human_eval.judgements import Judgements
from visterm.pipeline.human_eval.tasks import draw_tasks
from visterm.pipeline.service import app as service_app
from visterm.pipeline.service import batching, handlers, middleware, reloader, schemas, server, thumbnails, uploads
from visterm.pipeline.service.uploads import Uploads
from visterm.pipeline.stages import edit as edit_stage
from visterm.pipeline.stages import extraction as extraction_stage
from visterm.pipeline.stages.evaluate import evaluate as evaluate_stage
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.stages.train import train as train_stage
from visterm.pipeline.store import append_only
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run

SETTINGS = ["features.n_visterms=40", "oasis.n_steps=300", "split.train=4", "split.test=2", "compute.n_jobs=1"]
MARKUP = "fig/<img src=x onerror=alert(1)>.jpg"


@contextmanager
def serving(app, **options):
    """A client of the application, which runs in a thread."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            with httpx.Client(base_url=address, timeout=30, **options) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def made(tmp_path_factory, write_images):
    """A run of 19 images, one of them twice, with two learners."""
    folder = tmp_path_factory.mktemp("service")
    photos = folder / "photos"
    write_images(photos, [f"{name}/{i}.jpg" for name in ("pear", "plum", "fig") for i in range(6)])
    shutil.copy(photos / "pear/0.jpg", photos / "pear/0 again.jpg")
    (photos / "fig/5.jpg").rename(photos / MARKUP)
    run, config, quiet = Run(folder / "runs" / "photos"), load_config(None, SETTINGS), Console(quiet=True)
    features_stage(run, config, photos, quiet)
    for learner in ("oasis", "knn"):
        train_stage(run, config, learner, quiet)
    evaluate_stage(run, config, "oasis", quiet)
    return run


@pytest.fixture(scope="module")
def client(made):
    with serving(service_app.create_app(made)) as client:
        yield client


@pytest.fixture
def own(made, tmp_path):
    """A copy of the run and of its images, to be changed."""
    shutil.copytree(made.folder.parents[1], tmp_path / "own", dirs_exist_ok=True)
    run = Run(tmp_path / "own" / "runs" / "photos")
    features_stage(run, run.configure(None, []), tmp_path / "own" / "photos", Console(quiet=True))
    return run


@pytest.fixture(scope="module")
def searcher(made):
    return Searcher(made)


def _id(searcher, path):
    return next(image.id for image in searcher.images if image.path == path)


def _bytes(searcher, path):
    return (searcher.root / path).read_bytes()


def _upload(client, data, name="a.jpg", **fields):
    return client.post("/search", files={"file": (name, data)}, data=fields)


def _refused(answer, status, *words):
    """An error has one shape, and says what is wrong on one line."""
    assert answer.status_code == status, answer.text
    found = answer.json()
    assert found["ok"] is False
    assert found["status"] == status
    assert "\n" not in found["error"]
    for word in words:
        assert word in found["error"]


# ------------------------------------------------------------------------------------------------------------- answers


def test_search_by_id_answers_as_searcher_does(client, searcher):
    number = _id(searcher, "plum/2.jpg")
    (answer,) = client.get("/search", params={"id": number, "k": 5}).json()
    (expected,) = searcher.search(f"id:{number}", k=5)
    assert [{key: row[key] for key in expected["results"][0]} for row in answer["results"]] == expected["results"]
    found = schemas.Answer.model_validate(answer)
    assert found.query == "plum/2.jpg"
    assert found.key == hashlib.sha256(_bytes(searcher, "plum/2.jpg")).hexdigest()
    assert (found.learner, found.n_searched, found.version) == ("oasis", 19, searcher.version)
    assert number not in [row.id for row in found.results]
    assert {(row.width, row.height) for row in found.results} == {(128, 96)}


def test_every_learner_and_the_next_page(client):
    for learner in ("oasis", "knn", "cosine"):
        (whole,) = client.get("/search", params={"id": 1, "k": 12, "learner": learner}).json()
        (rest,) = client.get("/search", params={"id": 1, "k": 6, "offset": 6, "learner": learner}).json()
        assert rest["results"] == whole["results"][6:]
        assert whole["learner"] == learner
    (beyond,) = client.get("/search", params={"id": 1, "offset": 500}).json()
    assert beyond["results"] == []


def test_filters(client, searcher):
    number = _id(searcher, "pear/0.jpg")
    (figs,) = client.get("/search", params={"id": number, "k": 100, "label": "fig"}).json()
    assert sorted(row["path"] for row in figs["results"]) == sorted(
        image.path for image in searcher.images if image.path.startswith("fig/")
    )
    assert figs["n_searched"] == 6
    (all_of_them,) = client.get("/search", params={"id": number, "k": 100}).json()
    assert [(row["id"], row["score"]) for row in figs["results"]] == [
        (row["id"], row["score"]) for row in all_of_them["results"] if row["labels"] == ["fig"]
    ]
    (own,) = client.get("/search", params={"id": number, "k": 100, "label": "pear"}).json()
    assert number not in [row["id"] for row in own["results"]]
    (pears,) = client.get("/search", params={"id": number, "label": "pear", "exclude_duplicates": True}).json()
    assert len(pears["results"]) == len(own["results"]) - 1 == 5
    (everything,) = client.get("/search", params={"id": number, "k": 100}).json()
    (without,) = client.get("/search", params={"id": number, "k": 100, "exclude_duplicates": True}).json()
    paths = [row["path"] for row in everything["results"]]
    assert "pear/0 again.jpg" in paths
    assert [row["path"] for row in without["results"]] == [path for path in paths if path != "pear/0 again.jpg"]
    assert [row["rank"] for row in without["results"]] == list(range(1, 18))


def test_upload_answers_as_searcher_does_and_can_be_asked_again(client, searcher):
    data = _bytes(searcher, "fig/1.jpg")
    (answer,) = _upload(client, data, "dropped.jpg", k="4", learner="cosine").json()
    assert answer["query"] == "dropped.jpg"
    assert answer["results"][0]["path"] == "fig/1.jpg"  # what is dropped may be in the collection
    assert answer["results"][0]["score"] == pytest.approx(1, abs=1e-6)
    assert answer["key"] == answer["upload"] == hashlib.sha256(data).hexdigest()
    (again,) = client.get("/search", params={"upload": answer["upload"], "k": 4, "learner": "cosine"}).json()
    assert again["results"] == answer["results"]
    left = datetime.datetime.fromisoformat(again["upload_expires"]) - datetime.datetime.now(datetime.UTC)
    assert left.total_seconds() == pytest.approx(7 * 24 * 3600, abs=60)
    from_parameters = client.post(f"/search?upload={answer['upload']}&k=4&learner=cosine").json()
    assert from_parameters[0]["results"] == answer["results"]


def test_upload_keeps_pixels_and_nothing_else(client):
    picture = Pillow.fromarray(np.random.default_rng(0).integers(0, 256, (80, 90, 3), np.uint8))
    exif = Pillow.Exif()
    exif[0x010E] = "taken at home"
    stream = io.BytesIO()
    picture.save(stream, "JPEG", exif=exif)
    assert b"taken at home" in stream.getvalue()
    (answer,) = _upload(client, stream.getvalue()).json()
    kept = client.get(f"/uploads/{answer['upload']}")
    assert kept.headers["content-type"] == "image/png"
    assert b"taken at home" not in kept.content
    with Pillow.open(io.BytesIO(kept.content)) as shown, Pillow.open(stream) as sent:
        assert not shown.getexif()
        assert np.abs(np.asarray(shown, int) - np.asarray(sent.convert("RGB"), int)).mean() < 1
    small = client.get(f"/uploads/{answer['upload']}", params={"size": 32})
    assert small.headers["content-type"] == "image/webp"


def test_labels(client, searcher):
    number = _id(searcher, "plum/1.jpg")
    labels = client.post("/annotate", data={"id": number, "k": 2}).json()
    assert labels["labels"] == searcher.annotate(f"id:{number}", k=2)[0]["labels"]
    uploaded = client.post("/annotate", files={"file": ("a.jpg", _bytes(searcher, "plum/1.jpg"))}, data={"k": 2}).json()
    assert uploaded["labels"] == labels["labels"]
    (answer,) = client.get("/search", params={"query_label": "plum", "k": 3, "offset": 1}).json()
    expected = searcher.search_label("plum", k=4)[0]["results"][1:]
    assert [(row["rank"], row["path"]) for row in answer["results"]] == [(r["rank"], r["path"]) for r in expected]
    assert answer["learner"] == "knn"
    _refused(client.get("/search", params={"query_label": "plumb"}), 404, "did you mean plum?")
    (among,) = client.get("/search", params={"query_label": "plum", "label": "fig", "k": 9}).json()
    figs = [row for row in searcher.search_label("plum", k=19)[0]["results"] if row["labels"] == ["fig"]]
    assert [(row["path"], row["score"]) for row in among["results"]] == [(row["path"], row["score"]) for row in figs]
    _refused(client.get("/search", params={"query_label": "plum", "label": "figs"}), 404, "figs")
    _refused(client.get("/search", params={"query_label": "plum", "learner": "oasis"}), 409, "knn")


def test_explanation(client, searcher):
    first, second = _id(searcher, "plum/1.jpg"), _id(searcher, "plum/2.jpg")
    found = client.get("/explain", params={"id": first, "result": second, "learner": "cosine"}).json()
    assert found["result"]["path"] == "plum/2.jpg"
    assert sum(found["query"]["heat"]) == pytest.approx(found["score"], abs=1e-4)
    (answer,) = _upload(client, _bytes(searcher, "plum/1.jpg")).json()
    same = client.get("/explain", params={"upload": answer["upload"], "result": second, "learner": "cosine"}).json()
    assert same["score"] == pytest.approx(found["score"], abs=1e-5)
    png = client.get("/explain", params={"id": first, "result": second, "format": "png"})
    assert png.content.startswith(b"\x89PNG")
    _refused(client.get("/explain", params={"id": first, "result": 12345}), 404, "12345")


def test_facts(client, searcher):
    facts = schemas.RunFacts.model_validate(client.get("/api/run").json())
    assert facts.labels == {"fig": 6, "pear": 7, "plum": 6}
    assert facts.learners == ["oasis", "knn", "cosine"]
    assert (facts.default_learner, facts.annotators, facts.evaluations) == ("oasis", ["knn"], ["oasis"])
    assert client.get("/health").json() == {
        "status": "ok",
        "version": searcher.version,
        "images": 19,
        "problem": None,
    }
    metrics = client.get("/api/evaluations/oasis/metrics").json()
    curves = schemas.Curves.model_validate(client.get("/api/evaluations/oasis/curves").json())
    assert set(curves.systems) == set(metrics["systems"])
    assert curves.systems["oasis"][0] == pytest.approx(metrics["systems"]["oasis"]["precision_at"]["1"], abs=1e-6)


def test_images(client, searcher):
    listed = client.get("/api/images", params={"limit": 5, "offset": 2}).json()
    assert [image["path"] for image in listed] == [image.path for image in searcher.images[2:7]]
    some = client.get("/api/images", params={"sample": 6, "seed": 3, "label": "plum"}).json()
    assert {image["labels"][0] for image in some} == {"plum"}
    assert some == client.get("/api/images", params={"sample": 6, "seed": 3, "label": "plum"}).json()
    assert client.get("/api/images", params={"label": "none such"}).json() == []
    one = schemas.ShownWithFile.model_validate(client.get(f"/api/images/{listed[0]['id']}").json())
    assert one.bytes == (searcher.root / one.path).stat().st_size


def test_thumbnails_are_kept_by_content(client, searcher):
    number = _id(searcher, "pear/3.jpg")
    image = client.get(f"/api/images/{number}").json()
    assert image["color"] is None
    plain = client.get(f"/images/{number}/thumbnail", params={"size": 100})
    assert plain.headers["content-type"] == "image/webp"
    with Pillow.open(io.BytesIO(plain.content)) as picture:
        assert picture.size == (128, 96)
    assert "immutable" not in plain.headers["cache-control"]  # another run may give this id to another image
    by_hash = client.get(f"/{image['thumbnail']}&size=100")
    assert "immutable" in by_hash.headers["cache-control"]
    etag = {"If-None-Match": plain.headers["etag"]}
    assert client.get(f"/images/{number}/thumbnail", params={"size": 100}, headers=etag).status_code == 304
    color = client.get(f"/api/images/{number}").json()["color"]
    assert len(color) == 7
    original = client.get(f"/images/{number}/original")
    assert original.content == _bytes(searcher, "pear/3.jpg")
    assert original.headers["content-type"] == "image/jpeg"


def test_documentation_needs_no_script_and_no_other_host(client):
    schema = client.get("/openapi.json").json()
    assert {"/search", "/annotate", "/explain", "/health", "/api/run", "/api/images"} <= set(schema["paths"])
    assert schema["paths"]["/search"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    page = client.get("/docs").text
    for path in schema["paths"]:
        assert path in page
    assert "<script" not in page
    assert "//" not in page.replace("http://www.w3.org", "")


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("data", "status", "word"),
    [
        (b"", 415, "empty"),
        (b"hello, this is text", 415, "not an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", 415, "not an image"),
        (b"\xff\xd8\xff\xe0\x00\x10JFIF", 415, ""),
    ],
)
def test_upload_that_is_no_image(client, data, status, word):
    _refused(_upload(client, data, "x.jpg"), status, "x.jpg", word, "JPEG, PNG")


def test_upload_that_ends_too_early(client, searcher):
    _refused(_upload(client, _bytes(searcher, "fig/1.jpg")[:-500]), 415, "truncated")


def test_upload_of_too_many_pixels_is_not_decoded(client, monkeypatch):
    stream = io.BytesIO()
    Pillow.new("1", (9000, 9000)).save(stream, "PNG")
    assert len(stream.getvalue()) < 50_000
    _refused(_upload(client, stream.getvalue()), 413, "9000 x 9000 pixels")


def test_upload_of_too_many_bytes(client, monkeypatch):
    data = np.random.default_rng(0).bytes(handlers.UPLOAD_BYTES)
    _refused(_upload(client, data), 413, "33,554,432 bytes")

    def parts():  # without a length that could be looked at
        for start in range(0, len(data), 2**20):
            yield data[start : start + 2**20]
        yield b"and more"

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    _refused(client.post("/search", content=parts(), headers=headers), 413, "bytes")


def test_annotate_refuses_what_search_refuses(client):
    picture = io.BytesIO()
    Pillow.new("1", (9000, 9000)).save(picture, "PNG")
    data = (b"hello, this is text", 415, "JPEG, PNG"), (picture.getvalue(), 413, "9000 x 9000 pixels")
    for sent, status, words in (*data, (bytes(handlers.UPLOAD_BYTES), 413, "33,554,432 bytes")):
        _refused(client.post("/annotate", files={"file": ("x.jpg", sent)}), status, words)


def test_body_that_is_no_form(client):
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post("/search", content=b"nonsense", headers=headers).status_code in (400, 422)
    _refused(client.post("/search", content=b"id=1&id=no"), 422, "exactly one")


@pytest.mark.parametrize(
    "path",
    ["/search?id=999999", "/images/999999/thumbnail", "/images/999999/original", "/api/images/999999", "/search?id=0"],
)
def test_unknown_ids(client, path):
    _refused(client.get(path), 404, "no image", "removed")


def test_unknown_ids_in_every_question(client):
    unknown, known = {"id": 999999}, {"id": 1}
    for answer in (
        client.post("/search", data=unknown),
        client.post("/annotate", data=unknown),
        client.get("/explain", params=unknown | {"result": 1}),
        client.get("/explain", params=known | {"result": 999999}),
    ):
        _refused(answer, 404, "no image 999999", "removed")


@pytest.mark.parametrize("key", ["0" * 64, "f" * 64])
def test_unknown_uploads(client, key):
    _refused(client.get(f"/uploads/{key}"), 404, "expired")
    _refused(client.get("/search", params={"upload": key}), 404, "expired")


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ("k=0", "k: "),
        ("k=1000000", "1000"),
        ("k=-3", "k: "),
        ("k=many", "k: "),
        ("offset=-1", "offset"),
        ("id=-1", "id"),
        ("id=1e99", "id"),
        (f"id={2**70}", "id"),
        ("upload=..%2F..%2Fetc%2Fpasswd", "upload"),
        ("upload=" + "A" * 64, "upload"),
    ],
)
def test_numbers_and_hashes_out_of_range(client, asked, word):
    asked = asked if asked.startswith(("id", "upload")) else f"id=1&{asked}"
    _refused(client.get(f"/search?{asked}"), 422, word)


@pytest.mark.parametrize("k", ["0", "-1", "1000000", "ten"])
def test_numbers_out_of_range_in_a_form(client, searcher, k):
    _refused(_upload(client, _bytes(searcher, "fig/1.jpg"), k=k), 422, "k: ")
    _refused(client.post("/search", data={"id": 1, "k": k}), 422, "k: ")
    _refused(client.post("/annotate", data={"id": 1, "k": k}), 422, "k: ")


def test_questions_that_make_no_sense(client):
    _refused(client.get("/search"), 422, "exactly one")
    _refused(client.get("/search", params={"id": 1, "query_label": "fig"}), 422, "exactly one")
    _refused(client.get("/search", params={"id": 1, "learner": "oasys"}), 404, "oasys", "oasis, knn, cosine")
    _refused(client.get("/search", params={"id": 1, "learner": "wsabie"}), 409, "not trained")
    _refused(client.get("/search", params={"id": 1, "label": "<b>"}), 404, "<b>")
    _refused(client.get("/nowhere"), 404)
    _refused(client.delete("/search"), 405)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../service.py",
        "/static/%2e%2e/service.py",
        "/static/..%2fservice.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/api/evaluations/..%2f..%2fcollection/metrics",
        "/api/evaluations/../../config.yaml/metrics",
        "/images/..%2f..%2fetc%2fpasswd/original",
        "/images/%2fetc%2fpasswd/original",
        "/uploads/..%2f..%2fconfig.yaml",
    ],
)
def test_paths_that_climb_out(client, path):
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert b"root:" not in answer.content
    assert b"create_app" not in answer.content


def test_names_of_uploads_lead_nowhere(own, searcher, tmp_path):
    with serving(service_app.create_app(own)) as client:
        for picture, name in (("fig/1.jpg", "../../../up.jpg"), ("fig/2.jpg", str(tmp_path / "up.jpg"))):
            before = {file for file in tmp_path.rglob("*") if file.suffix in (".jpg", ".png")}
            (answer,) = _upload(client, _bytes(searcher, picture), name).json()
            assert answer["query"] == name
            after = {file for file in tmp_path.rglob("*") if file.suffix in (".jpg", ".png")}
            assert after - before <= {own.folder / "service" / "uploads" / f"{answer['upload']}.png"}


def test_file_that_was_exchanged_is_not_shown(own, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with serving(service_app.create_app(own)) as client:
        searcher = Searcher(own)
        link, pipe, other = (_id(searcher, f"plum/{i}.jpg") for i in (1, 2, 3))
        for i in (1, 2, 3):
            (searcher.root / f"plum/{i}.jpg").unlink()
        (searcher.root / "plum/1.jpg").symlink_to(secret)
        os.mkfifo(searcher.root / "plum/2.jpg")
        shutil.copy(searcher.root / "fig/1.jpg", searcher.root / "plum/3.jpg")
        for number in (link, pipe, other):
            _refused(client.get(f"/images/{number}/original"), 410, "visterm features")
            _refused(client.get(f"/images/{number}/thumbnail"), 410, "gone or has changed")
        shutil.rmtree(searcher.root / "fig")
        _refused(client.get(f"/images/{_id(searcher, 'fig/2.jpg')}/original"), 410)
        assert client.get("/search", params={"id": other}).status_code == 200  # its vector is still there


def test_markup_stays_text(client, searcher):
    number = _id(searcher, MARKUP)
    answer = client.get("/search", params={"id": number})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()[0]["query"] == MARKUP
    original = client.get(f"/images/{number}/original")
    assert "<" not in original.headers["content-disposition"]
    assert original.headers["content-security-policy"] == "default-src 'none'; sandbox"
    for refused in (
        _upload(client, b"no image", "<script>alert(1)</script>\r\n.jpg"),
        client.get("/search", params={"id": number, "label": "<script>"}),
        client.get("/search", params={"query_label": "<script>"}),
        client.get("/search", params={"id": number, "learner": "<script>"}),
    ):
        assert refused.status_code in (404, 415)
        assert refused.headers["content-type"] == "application/json"
        assert refused.headers["x-content-type-options"] == "nosniff"


def test_markup_in_the_name_of_a_run_stays_text(own):
    own.folder.rename(own.folder.with_name("<b>photos"))
    with serving(service_app.create_app(Run(own.folder.with_name("<b>photos")))) as client:
        page = client.get("/docs").text
        assert "&lt;b&gt;photos" in page
        assert "<b>photos" not in page
        assert client.get("/api/run").json()["run"] == "<b>photos"


def test_name_that_is_no_utf8(own):
    root = Searcher(own).root
    shutil.copy(root / "fig/1.jpg", os.path.join(os.fsencode(root), b"fig/\xff\n.jpg"))
    features_stage(own, own.configure(None, []), None, Console(quiet=True))
    with serving(service_app.create_app(own)) as client:
        image = client.get("/api/images", params={"label": "fig", "limit": 200}).json()[-1]
        assert image["path"] == "fig/\udcff\n.jpg"
        assert client.get(f"/images/{image['id']}/original").headers["content-disposition"].endswith("%FF%0A.jpg")


def test_full_queue(own, searcher):
    """Searches by id and everything else have queues of their own, and both end."""
    app = service_app.create_app(own)
    number = _id(searcher, "fig/1.jpg")
    with serving(app) as client:
        shared, release = app.state.handlers, threading.Event()
        shared.searches._limit, shared.searches._most = 2, 1
        shared.others._most = 3
        answered, held = [], []

        def hold(*asked):
            held.append(asked)
            assert release.wait(30)
            return [{}] * len(asked[0]) if isinstance(asked[0], list) else {}

        shared.searches._function, shared._answer_alone = hold, hold
        by_id, within_label = f"/search?id={number}", f"/search?id={number}&label=fig"
        threads = []

        def ask(path, times, arrived):
            for _ in range(times):
                threads.append(threading.Thread(target=lambda: answered.append(client.get(path))))
                threads[-1].start()
            deadline = time.monotonic() + 30
            while not arrived():
                assert time.monotonic() < deadline
                time.sleep(0.01)

        for i in range(shared.searches._workers):  # one by one: together some would find the queue full
            ask(by_id, 1, lambda i=i: len(held) == i + 1)
        ask(by_id, 2, lambda: len(shared.searches._waiting) == 2)
        ask(within_label, 3, lambda: shared.others._busy == 3)
        full = [client.get(path) for path in (by_id, within_label, "/marks?query=" + "0" * 64)]
        upload = _upload(client, _bytes(searcher, "fig/1.jpg"))
        assert client.get("/health").status_code == 200
        release.set()
        for thread in threads:
            thread.join()
        for answer in (*full, upload):
            _refused(answer, 429, "try again")
            assert answer.headers["retry-after"] == "1"
        assert [answer.status_code for answer in answered] == [200] * len(threads)


def test_many_uploads_at_once(own, searcher, monkeypatch):
    """The bytes of only so many are held in memory."""
    monkeypatch.setattr(middleware, "UPLOADS_AT_ONCE", 2)
    with serving(service_app.create_app(own)) as client:
        address = str(client.base_url)
        with _connect(address) as first, _connect(address) as second:
            for connection in (first, second):
                connection.sendall(_head(address, 1000))
            deadline = time.monotonic() + 30
            while (answer := _upload(client, _bytes(searcher, "fig/1.jpg"))).status_code == 200:
                assert time.monotonic() < deadline
            _refused(answer, 429, "try again")
            assert answer.headers["retry-after"] == "1"
        deadline = time.monotonic() + 30
        while _upload(client, _bytes(searcher, "fig/1.jpg")).status_code == 429:
            assert time.monotonic() < deadline


def test_question_right_after_an_answer_finds_a_worker():
    async def ask():
        batches = batching.MicroBatcher(lambda questions: questions, workers=1, waiting=2, most=1)
        try:
            return [await batches.run(question) for question in range(3)]
        finally:
            batches.close()

    assert asyncio.run(asyncio.wait_for(ask(), 5)) == [0, 1, 2]


def test_searches_together_are_answered_as_alone(own):
    app = service_app.create_app(own)
    with serving(app) as client:
        shared = app.state.handlers
        asked = [
            schemas.Question(id=i, k=k, offset=o, learner=name)
            for i in (1, 2, 3)
            for k, o, name in ((3, 0, "oasis"), (3, 2, "oasis"), (5, 0, "cosine"), (4, 0, None))
        ]
        asked += [schemas.Question(id=77777), schemas.Question(id=1, learner="none such")]
        together = shared.search_many([(shared.snapshot, question) for question in asked])
        for question, found in zip(asked, together, strict=True):
            alone = client.get("/search", params=question.model_dump(exclude_none=True)).json()
            if isinstance(found, Exception):
                assert alone["error"] == found.detail
            else:
                assert found | {"seconds": 0} == alone[0] | {"seconds": 0}
        assert [type(found).__name__ for found in together[-2:]] == ["HTTPException"] * 2


def test_disk_full_while_an_upload_is_kept(own, searcher, monkeypatch):
    """The search is answered; only the link to it does not exist."""
    with serving(service_app.create_app(own)) as client:
        shutil.rmtree(own.folder / "service" / "uploads", ignore_errors=True)
        (own.folder / "service" / "uploads").write_text("in the way")
        (answer,) = _upload(client, _bytes(searcher, "fig/1.jpg")).json()
    assert answer["results"]
    assert "upload" not in answer


def test_uploads_expire_and_have_a_cap(tmp_path):
    uploads = Uploads(tmp_path / "uploads", seconds=100, most=3)
    pixels = np.zeros((8, 8, 3), np.uint8)
    for i in range(5):
        assert uploads.add(f"{i}", pixels)
        os.utime(tmp_path / "uploads" / f"{i}.png", (time.time() - 50 + i,) * 2)
    uploads.sweep()
    assert sorted(file.stem for file in (tmp_path / "uploads").iterdir()) == ["2", "3", "4"]
    os.utime(tmp_path / "uploads" / "2.png", (time.time() - 101,) * 2)
    assert uploads.read("2") is None
    assert uploads.read("3") is not None  # and counts as used
    uploads.sweep()
    assert sorted(file.stem for file in (tmp_path / "uploads").iterdir()) == ["3", "4"]
    size = (tmp_path / "uploads" / "3.png").stat().st_size
    Uploads(tmp_path / "uploads", most_bytes=size)
    assert [file.stem for file in (tmp_path / "uploads").iterdir()] == ["3"]


# ---------------------------------------------------------------------------------------------------------- who may ask


def test_token(made):
    app = service_app.create_app(made, token="tell nobody", local=False)
    with serving(app, headers={"Host": "photos.example"}) as client:
        for path in ("/", "/health", "/docs", "/openapi.json", "/search?id=1", "/static/app.css", "/nowhere"):
            _refused(client.get(path), 401, "Bearer")
        assert client.get("/health").headers["www-authenticate"] == "Bearer"
        for wrong in ("Bearer tell nobod", "Bearer", "tell nobody", "Basic tell nobody", "Bearer \xff"):
            _refused(client.get("/health", headers={"Authorization": wrong.encode("latin-1")}), 401)
        _refused(client.get("/health?token=tell"), 401)
        _refused(client.post("/search?token=tell+nobody&id=1"), 401)
        assert client.get("/health", headers={"Authorization": "Bearer tell nobody"}).status_code == 200
        entered = client.get("/search?token=tell+nobody&id=1&k=2")
        assert entered.status_code == 303
        assert entered.headers["location"] == "/search?id=1&k=2"
        cookie = entered.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "nobody" not in cookie
        assert client.get("/health").status_code == 200  # by the cookie
        client.cookies.clear()
        wrong = {"Cookie": f"{cookie.partition('=')[0]}=wrong"}
        _refused(client.get("/health", headers=wrong), 401, "Bearer")
        assert client.get(f"{client.base_url}//evil.example/?token=tell+nobody").headers["location"] == "/evil.example/"


def test_tokens_are_compared_in_constant_time(made, monkeypatch):
    compared = []
    compare = middleware.hmac.compare_digest
    monkeypatch.setattr(middleware.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or compare(a, b))
    with serving(service_app.create_app(made, token="tell nobody")) as client:
        client.get("/health", headers={"Authorization": "Bearer guess"})
    assert (b"guess", b"tell nobody") in compared


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "", "[", "0x7f.1"]
)
def test_other_names_of_this_machine(client, host):
    """A page elsewhere may point its own name here (DNS rebinding)."""
    _refused(client.get("/health", headers={"Host": host}), 421, "localhost")


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000", "LOCALHOST"])
def test_names_of_this_machine(client, host):
    assert client.get("/health", headers={"Host": host}).status_code == 200


def test_requests_that_other_pages_make(client):
    here = str(client.base_url).rstrip("/")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[x"},
        {"Origin": "http://127.0.0.1:81"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": here},
    ):
        _refused(client.post("/search?id=1", headers=headers), 403, "another site")
    for headers in ({"Origin": here}, {"Sec-Fetch-Site": "same-origin"}, {}):
        assert client.post("/search?id=1", headers=headers).status_code == 200


def test_security_headers_are_on_every_answer(client, monkeypatch):
    for path in ("/health", "/nowhere", "/search", "/images/1/thumbnail", "/docs"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "unsafe" not in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


def test_mistake_of_ours_is_no_traceback_to_others(own):
    app = service_app.create_app(own)
    with serving(app) as client:
        app.state.handlers._answer_alone = lambda *_: 1 / 0
        answer = client.get("/search?id=1&label=fig")
        app.state.handlers.searches._function = lambda *_: 1 / 0
        _refused(client.get("/search?id=1"), 500, "ZeroDivisionError")
    _refused(answer, 500, "ZeroDivisionError")
    assert answer.headers["x-content-type-options"] == "nosniff"


# ---------------------------------------------------------------------------------------------------- what is newer


def _wait_for(client, old):
    deadline = time.monotonic() + 20
    while (version := client.get("/health").json()["version"]) == old:
        assert time.monotonic() < deadline, "no newer version"
        time.sleep(0.05)
    return version


def test_training_and_new_images_are_taken_up_without_an_error(own, write_images):
    quiet = Console(quiet=True)
    config = own.configure(None, ["oasis.n_steps=20000"])
    with serving(service_app.create_app(own)) as client:
        first = client.get("/health").json()["version"]
        answered, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                reported = client.get("/health").json()["version"]
                answered.append((reported, client.get("/search?id=1&k=3")))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            before = client.get("/search?id=1&k=3").json()[0]
            train_stage(own, config, "oasis", quiet)
            second = _wait_for(client, first)
            after = client.get("/search?id=1&k=3").json()[0]
            write_images(Searcher(own).root, ["plum/new.jpg"])
            features_stage(own, config, None, quiet)
            third = _wait_for(client, second)
            assert client.get("/health").json()["images"] == 20
            assert "plum/new.jpg" in [image["path"] for image in client.get("/api/images").json()]
        finally:
            stop.set()
            asking.join()
    assert [row["score"] for row in before["results"]] != [row["score"] for row in after["results"]]
    assert {answer.status_code for _, answer in answered} == {200}
    order = [first, second, third]
    for reported, answer in answered:  # never older than what was reported before it was asked
        assert order.index(answer.json()[0]["version"]) >= order.index(reported)


def test_state_that_was_exchanged_is_let_go_without_a_collection(own):
    """States are left out of the collection of cyclic garbage, so no cycle may hold one."""
    held = reloader.SnapshotReloader(own)
    old = weakref.ref(held.snapshot), weakref.ref(held.snapshot.searcher)
    train_stage(own, own.configure(None, ["oasis.n_steps=200"]), "oasis", Console(quiet=True))
    gc.disable()
    try:
        assert held.refresh() is not old[0]()
        assert [state() for state in old] == [None, None]
    finally:
        gc.enable()


def test_run_in_the_middle_of_a_change_is_answered_from_before(own):
    with serving(service_app.create_app(own)) as client:
        version = client.get("/health").json()["version"]
        record = own.extractor / "record.json"
        kept = record.read_text()
        record.write_text(json.dumps(json.loads(kept) | {"content": "another"}))
        deadline = time.monotonic() + 20
        while client.get("/health").json()["status"] == "ok":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        health = client.get("/health").json()
        assert "features are not finished" in health["problem"]
        assert client.get("/search?id=1").json()[0]["version"] == version
        record.write_text(kept)
        while client.get("/health").json()["status"] != "ok":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_images_that_are_extracted_again_are_not_lost_meanwhile(own):
    with serving(service_app.create_app(own)) as client:
        first = client.get("/health").json()
        with closing(Collection(own.collection)) as collection:
            content = collection["extractor"]
            collection.use_extractor("")
            collection.use_extractor(content)
            pending, config, quiet = collection.pending(), own.configure(None, []), Console(quiet=True)
            extraction_stage.extract(own, config, collection, collection.root, pending[:5], quiet)
            deadline = time.monotonic() + 20
            while "14 images not extracted again yet" not in str(client.get("/health").json()["problem"]):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            health = client.get("/health").json()
            assert health == first | {"status": "behind", "problem": health["problem"]}
            assert len(client.get("/search?id=1&k=50").json()[0]["results"]) == 18
            extraction_stage.extract(own, config, collection, collection.root, pending[5:], quiet)
        while client.get("/health").json() != first:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_change_under_way_is_warned_of_once(own, caplog):
    held = reloader.SnapshotReloader(own)
    with closing(Collection(own.collection)) as collection, caplog.at_level("WARNING"):
        content = collection["extractor"]
        collection.use_extractor("")
        collection.use_extractor(content)
        pending, config, quiet = collection.pending(), own.configure(None, []), Console(quiet=True)
        for some in (pending[:5], pending[5:9], pending[9:12]):
            extraction_stage.extract(own, config, collection, collection.root, some, quiet)
            held.refresh()
            assert "not extracted again yet" in held.problem
    (warned,) = [record.getMessage() for record in caplog.records]
    assert warned == "14 images not extracted again yet; answers are of the state before"


def test_compacting_while_others_search(own, tmp_path):
    """The service answers, and so does another process that opens the run again and again."""
    stop, quiet = tmp_path / "stop", Console(quiet=True)
    program = (
        "import os, sys\nfrom visterm.pipeline import Searcher\nprint('searching', flush=True)\n"
        "while not os.path.exists(sys.argv[2]):\n    assert Searcher(sys.argv[1]).search('id:1', k=3)[0]['results']\n"
    )
    command = [sys.executable, "-c", program, str(own.folder), str(stop)]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with serving(service_app.create_app(own)) as client:
            assert other.stdout.readline() == "searching\n", other.stderr.read()
            searcher = Searcher(own)
            before = searcher.search("id:1", k=3)
            removed = [_id(searcher, path) for path in ("plum/3.jpg", "plum/4.jpg", "fig/2.jpg")]
            assert client.get(f"/images/{removed[0]}/thumbnail").status_code == 200
            for number in removed:
                edit_stage.remove(own, [f"id:{number}"], quiet)
                assert edit_stage.compact(own, quiet)["dropped_rows"] == 1
                assert client.get("/search?id=1&k=3").status_code == 200
            deadline = time.monotonic() + 20
            while client.get("/health").json()["images"] != 16:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for address in (f"/images/{removed[0]}/thumbnail", f"/search?id={removed[0]}"):
                _refused(client.get(address), 404, "removed")
            (answer,) = client.get("/search?id=1&k=15").json()
            assert [row["path"] for row in answer["results"]] == [
                row["path"] for row in Searcher(own).search("id:1", k=15)[0]["results"]
            ]
            assert searcher.search("id:1", k=3) == before  # it keeps the segments that are gone
    finally:
        stop.touch()
        _, error = other.communicate(timeout=60)
    assert other.returncode == 0, error


def test_two_services_on_one_run(own, monkeypatch):
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)
    searcher = Searcher(own)
    with serving(service_app.create_app(own)) as first, serving(service_app.create_app(own)) as second:
        (answer,) = _upload(first, _bytes(searcher, "fig/1.jpg")).json()
        (same,) = second.get("/search", params={"upload": answer["upload"]}).json()
        assert same["results"] == answer["results"]
        key = _teach(first, searcher, "plum/0.jpg", ["plum/1.jpg"], ["fig/1.jpg"])
        assert len(second.get("/marks", params={"query": key}).json()["marks"]) == 2
        with ThreadPoolExecutor(2) as pool:
            taught = list(pool.map(lambda client: client.post("/feedback/update", json={}), (first, second)))
        assert [answer.status_code for answer in taught] == [200, 200]
        assert sorted(answer.json()["accepted"] for answer in taught) == [False, True]  # once, not twice
        deadline = time.monotonic() + 20
        while len({client.get("/health").json()["version"] for client in (first, second)} - {searcher.version}) != 1:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = [client.get("/search?id=1&k=18").json()[0] for client in (first, second)]
        assert found[0]["version"] == found[1]["version"] != searcher.version
        assert found[0]["results"] == found[1]["results"]


def test_a_filter_scores_only_the_images_of_its_label(own):
    app = service_app.create_app(own)
    with serving(app) as client:
        app.state.handlers.snapshot.searcher.index = lambda name: 1 / 0
        (answer,) = client.get("/search", params={"id": 1, "label": "plum", "k": 50}).json()
        assert len(answer["results"]) == answer["n_searched"] == 6


def test_uploads_that_expired_go_while_it_runs(own, searcher, monkeypatch):
    monkeypatch.setattr(reloader, "TIDY_SECONDS", 0.1)
    monkeypatch.setattr(reloader, "POLL_SECONDS", 0.01)
    with serving(service_app.create_app(own)) as client:
        time.sleep(0.5)  # when a service starts, it tidies up in any case
        (answer,) = _upload(client, _bytes(searcher, "fig/1.jpg")).json()
        file = own.folder / "service" / "uploads" / f"{answer['upload']}.png"
        os.utime(file, (0, 0))
        deadline = time.monotonic() + 20
        while file.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_thumbnails_of_removed_images_go(own):
    shutil.rmtree(own.folder / "service", ignore_errors=True)  # copied while it was written to
    app = service_app.create_app(own)
    with serving(app) as client:
        searcher = Searcher(own)
        gone, stays = _id(searcher, "plum/4.jpg"), _id(searcher, "plum/5.jpg")
        for number in (gone, stays):
            assert client.get(f"/images/{number}/thumbnail").status_code == 200
        (searcher.root / "plum/4.jpg").unlink()
        features_stage(own, own.configure(None, []), None, Console(quiet=True))
        _wait_for(client, searcher.version)
        _refused(client.get(f"/images/{gone}/thumbnail"), 404, "removed")
        kept, deadline = app.state.handlers.thumbnails, time.monotonic() + 20
        while searcher.images[searcher.place[gone]].sha256 in kept.colors:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with closing(sqlite3.connect(own.folder / "service/thumbnails.sqlite")) as db:
            living = [row[0] for row in db.execute("SELECT sha256 FROM thumbnails")]
        assert living == list(kept.colors) == [searcher.images[searcher.place[stays]].sha256]


def test_thumbnails_have_a_cap(own, monkeypatch):
    searcher = Searcher(own)
    with closing(thumbnails.Thumbnails(own.folder / "cap.sqlite")) as kept:
        kept.get(searcher.root, searcher.images[0], 128, 10**8)
        kept.sweep(searcher.images)
        assert kept._db.execute("SELECT count(*) FROM thumbnails").fetchone() == (1,)
        monkeypatch.setattr(thumbnails, "MAX_THUMBNAIL_BYTES", 0)
        kept.sweep(searcher.images)
        assert kept._db.execute("SELECT count(*) FROM thumbnails").fetchone() == (0,)
        kept._db.execute("DROP TABLE thumbnails")  # as good as damaged
        assert kept.get(searcher.root, searcher.images[0], 128, 10**8)


def test_a_lesson_and_an_index_in_the_making_hold_nobody_up(own):
    """Updates have a thread of their own, and so have searches by learners that are at hand."""
    app = service_app.create_app(own)
    with serving(app) as client:
        shared, release = app.state.handlers, threading.Event()
        shared.teacher.update = lambda _: release.wait(30) and {"accepted": False}
        searcher, index = shared.snapshot.searcher, shared.snapshot.searcher.index
        searcher.index = lambda name: index(name) if name == "oasis" or release.wait(30) else None
        shared.searches._workers = 1
        asked = [
            threading.Thread(target=client.post, args=("/feedback/update",), kwargs={"json": {}}) for _ in range(4)
        ] + [threading.Thread(target=client.get, args=("/search?id=1&learner=cosine",))]
        for thread in asked:
            thread.start()
        try:
            time.sleep(0.2)
            assert client.get("/search?id=1", timeout=10).status_code == 200
            assert client.get("/images/1/thumbnail", timeout=10).status_code == 200
        finally:
            release.set()
            for thread in asked:
                thread.join()


def test_what_was_uploaded_is_nobody_elses(own, searcher):
    with serving(service_app.create_app(own)) as client:
        _upload(client, _bytes(searcher, "fig/1.jpg"))
    assert (own.folder / "service" / "uploads").stat().st_mode & 0o077 == 0


def test_an_update_says_that_an_older_state_answers(own, monkeypatch):
    with serving(service_app.create_app(own)) as client:
        assert client.post("/feedback/reset", json={}).json()["behind"] is None

        def fails(*_, **__):
            raise UserError("in the middle of a change")

        monkeypatch.setattr(reloader, "Searcher", fails)
        assert client.post("/feedback/reset", json={}).json()["behind"] == "in the middle of a change"


def test_removed_image(own):
    with serving(service_app.create_app(own)) as client:
        searcher = Searcher(own)
        number = _id(searcher, "plum/4.jpg")
        (searcher.root / "plum/4.jpg").unlink()
        features_stage(own, own.configure(None, []), None, Console(quiet=True))
        _wait_for(client, searcher.version)
        _refused(client.get("/search", params={"id": number}), 404, "removed")


# ---------------------------------------------------------------------------------------------------------- marks


def _teach(client, searcher, query, good, bad):
    key = client.get("/search", params={"id": _id(searcher, query)}).json()[0]["key"]
    for paths, mark in ((good, 1), (bad, -1)):
        for path in paths:
            asked = {"query": key, "image": _id(searcher, path), "mark": mark, "learner": "oasis"}
            assert client.post("/marks", json=asked).status_code == 200
    return key


def test_marks_teach_and_are_undone(own):
    searcher = Searcher(own)
    with serving(service_app.create_app(own)) as client:
        number = _id(searcher, "plum/0.jpg")
        ask = {"id": number, "k": 18}
        (before,) = client.get("/search", params=ask).json()
        worst, best = before["results"][-1], before["results"][0]
        key = _teach(client, searcher, "plum/0.jpg", [worst["path"]], [best["path"], "fig/1.jpg"])
        found = schemas.MarksOfQuery.model_validate(client.get("/marks", params={"query": key}).json())
        assert [(mark.path, mark.mark) for mark in found.marks][0] == (worst["path"], 1)
        left = client.post("/marks/undo", json={"query": key}).json()
        assert [mark["path"] for mark in left["marks"]] == [worst["path"], best["path"]]
        taught = schemas.Taught.model_validate(client.post("/feedback/update", json={"query": key}).json())
        assert (taught.n_relevant, taught.n_not) == (1, 1)
        (after,) = client.get("/search", params=ask).json()
        if taught.accepted:
            assert after["version"] == taught.version != before["version"]
            changed = [a["id"] != b["id"] for a, b in zip(before["results"], after["results"], strict=True)]
            assert taught.changed_in_top == sum(changed)
            assert client.get("/api/run").json()["models"]["oasis"] == {"version": 1, "marks": 2}
            back = client.post("/feedback/undo", json={}).json()
            assert (back["from_version"], back["to_version"]) == (1, 0)
            (again,) = client.get("/search", params=ask).json()
            assert again["results"] == before["results"]
        exported = client.get("/feedback/export").json()
        assert [row["mark"] for row in exported] == [1, -1, -1, 0]
        _refused(client.post("/feedback/undo", json={}), 409, "nothing to undo")
        _refused(client.post("/feedback/update", json={"learner": "knn"}), 409, "knn does not learn from marks")
        assert client.post("/feedback/reset", json={}).json()["to_version"] == 0


def test_marks_of_an_upload_outlive_it(own, tmp_path, write_images):
    write_images(tmp_path, ["plum/outside.jpg"])
    with serving(service_app.create_app(own)) as client:
        (answer,) = _upload(client, (tmp_path / "plum/outside.jpg").read_bytes()).json()
        asked = {"query": answer["key"], "image": answer["results"][0]["id"], "mark": 1}
        assert client.post("/marks", json=asked).status_code == 200
        for file in (own.folder / "service" / "uploads").iterdir():
            file.unlink()
        asked |= {"image": answer["results"][1]["id"], "mark": -1}
        assert len(client.post("/marks", json=asked).json()["marks"]) == 2
        _refused(client.post("/marks", json=asked | {"query": "0" * 64}), 404, "search with it again")


@pytest.mark.parametrize(
    ("wrong", "status", "word"),
    [
        ({"mark": 2}, 422, "mark"),
        ({"mark": "1; DROP TABLE marks"}, 422, "mark"),
        ({"image": 999999}, 404, "no image"),
        ({"query": "../../etc/passwd"}, 422, "query"),
        ({"query": None}, 422, "query"),
        ({"learner": "<b>"}, 404, "<b>"),
        ({"more": 1}, 422, "more"),
    ],
)
def test_marks_that_make_no_sense(client, searcher, wrong, status, word):
    asked = {"query": searcher.images[0].sha256, "image": searcher.images[1].id, "mark": 1} | wrong
    _refused(client.post("/marks", json=asked), status, word)
    assert client.get("/feedback/export").json() == []


def test_bodies_that_are_no_json_or_too_long(client):
    headers = {"Content-Type": "application/json"}
    _refused(client.post("/marks", content=b"{", headers=headers), 422)
    _refused(client.post("/marks", content=b" " * 100_000, headers=headers), 413, "65,536 bytes")


def test_damage_is_said_and_never_a_fault_of_the_service(own):
    damaged = own.taught("oasis") / "in_force.json"
    damaged.parent.mkdir(parents=True)
    mark = {"query": Searcher(own).images[0].sha256, "image": 2, "mark": 1}
    with serving(service_app.create_app(own)) as client:
        version = client.get("/health").json()["version"]
        for text in ("[]", "7", "{}", '{"base": 1}', "{"):
            damaged.write_text(text)
            facts = client.get("/api/run")
            assert (facts.status_code, facts.json()["models"]) == (200, {})
            for answer in (client.post("/feedback/update", json={}), client.post("/marks", json=mark)):
                _refused(answer, 409, "in_force.json: damaged; remove it to go back to the base")
        damaged_version = _wait_for(client, version)
        _refused(client.get("/search?id=1"), 409, "damaged; remove it")
        assert client.get("/search?id=1&learner=cosine").status_code == 200
        damaged.unlink()
        assert _wait_for(client, damaged_version) == version
        assert client.get("/search?id=1").status_code == 200


@pytest.mark.parametrize("text", ["", "k,oasis\n", "k,oasis\n1,x\n", "k,oasis\n1,0.5,0.5\n", None])
def test_damaged_curves(own, text):
    file = own.evaluation("oasis") / "curves.csv"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with serving(service_app.create_app(own)) as client:
        _refused(client.get("/api/evaluations/oasis/curves"), 409, "visterm evaluate --force")


def test_disk_full_while_a_mark_is_written(own, monkeypatch):
    """SQLite itself says that the disk is full: its file may not grow any more."""
    searcher = Searcher(own)
    with serving(service_app.create_app(own)) as client:
        key = _teach(client, searcher, "plum/0.jpg", ["plum/1.jpg"], [])
        connect = append_only.AppendOnlyStore._connect

        def on_a_full_disk(self):
            db = connect(self)
            db.execute("PRAGMA max_page_count = 1")
            return db

        monkeypatch.setattr(append_only.AppendOnlyStore, "_connect", on_a_full_disk)
        answered = []
        for image in searcher.images * 40:  # until the page at hand is full
            answered.append(client.post("/marks", json={"query": key, "image": image.id, "mark": -1}))
            if answered[-1].status_code != 200:
                break
        monkeypatch.undo()
        _refused(answered[-1], 507, "the mark was not kept", "full")
        assert len(client.get("/feedback/export").json()) == len(answered)  # one before, and all but the last


# -------------------------------------------------------------------------------------------------------- judging


def test_judging(own):
    searcher = Searcher(own)
    with serving(service_app.create_app(own)) as client:
        _refused(client.get("/api/judge/next", params={"judge": "Ann"}), 409, "visterm judge")
        tasks = draw_tasks(searcher, "oasis", n_queries=1, k=3, n_random=1)
        Judgements(own.judgements).create(tasks, learner="oasis", version="1")
        following = client.get("/api/judge/next", params={"judge": "Ann"}).json()
        assert "broad rather than a strict sense" in following["instructions"]
        for done in range(4):
            assert schemas.NextTask.model_validate(following).done == done
            asked = {key: following["task"][key] for key in ("task", "image")} | {"judge": "Ann", "decision": "not"}
            following = client.post("/api/judge/decisions", json=asked).json()
        assert following["task"] is None
        assert client.post("/api/judge/undo", json={"judge": "Ann"}).json()["done"] == 3
        client.post("/api/judge/decisions", json=asked | {"decision": "relevant", "seconds": 1.5})
        assert client.get("/api/judge/results").json()["judges"][0]["done"] == 4
        assert len(client.get("/api/judge/export").json()) == 4
        for format in ("csv", "qrels"):
            assert len(client.get("/api/judge/export", params={"format": format}).text.splitlines()) in (4, 5)
        _refused(client.post("/api/judge/decisions", json=asked | {"decision": "perhaps"}), 422, "decision")
        _refused(client.post("/api/judge/decisions", json=asked | {"image": 999999}), 409, "no image 999999")
        _refused(client.get("/api/judge/next", params={"judge": ""}), 422, "judge")
        _refused(client.post("/api/judge/undo", json={"judge": "Bob"}), 409, "nothing to undo")


# ------------------------------------------------------------------------------------------------------ the command


def _command(run, *options):
    return subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "visterm"), "serve", "--run", run.name, *options],
        env=os.environ | {"VISTERM_RUNS": str(run.folder.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def served(made):
    """Address of a real process."""
    process = _command(made, "--port", "0")
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr.read()
        _wait_until_up(address)
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert error == "Ctrl-C ends it\n"


def _wait_until_up(address):
    deadline = time.monotonic() + 30
    while True:
        try:
            return httpx.get(f"{address}health", timeout=5)
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _connect(address):
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _head(address, length):
    host = address.removeprefix("http://").rstrip("/")
    return (
        f"POST /search HTTP/1.1\r\nHost: {host}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def test_process_answers(served, searcher):
    (answer,) = httpx.get(f"{served}search", params={"id": 1, "k": 2}).json()
    assert len(answer["results"]) == 2
    with open(searcher.root / "fig/1.jpg", "rb") as picture:
        (answer,) = httpx.post(f"{served}search", files={"file": picture}).json()
    assert answer["upload"]


def test_upload_that_is_cut_off_harms_nobody(served, made, searcher):
    kept = sorted(made.folder.glob("service/uploads/*"))
    for _ in range(middleware.UPLOADS_AT_ONCE + 1):
        with _connect(served) as connection:
            connection.sendall(_head(served, 100_000) + b"--x\r\n")
    assert httpx.get(f"{served}health").status_code == 200
    assert sorted(made.folder.glob("service/uploads/*")) == kept
    deadline, picture = time.monotonic() + 30, {"file": _bytes(searcher, "fig/1.jpg")}
    while (answer := httpx.post(f"{served}search", files=picture)).status_code == 429:  # until it knows that they left
        assert time.monotonic() < deadline
    assert answer.status_code == 200


def test_upload_that_claims_too_much_is_refused_at_once(served):
    for length, more in ((10**12, b""), (handlers.UPLOAD_BYTES + 1, b"Expect: 100-continue\r\n")):
        with _connect(served) as connection:
            connection.sendall(_head(served, length)[:-2] + more + b"\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("limit", "more"), [("SECONDS_BETWEEN_BYTES", b""), ("SECONDS_FOR_A_BODY", b"x")])
def test_slow_upload(client, monkeypatch, limit, more):
    """One that pauses, and one that goes on for ever."""
    monkeypatch.setattr(middleware, limit, 0.3)
    address, found, deadline = str(client.base_url), b"", time.monotonic() + 20
    with _connect(address) as connection:
        connection.sendall(_head(address, 10_000))
        connection.settimeout(0.05)
        while b"}" not in found:
            assert time.monotonic() < deadline
            try:
                found += connection.recv(10_000)
            except TimeoutError:
                connection.sendall(more)
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b"too slow" in found


def test_port_in_use(made):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        process = _command(made, "--port", str(taken.getsockname()[1]))
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert error.count("\n") == 1
    assert "another program listens there" in error


@pytest.mark.parametrize(
    ("host", "token", "word"),
    [
        ("0.0.0.0", None, "a token is needed"),
        ("::", None, "a token is needed"),
        ("192.0.2.1", None, "a token is needed"),
        ("photos.example", None, "a token is needed"),
        ("127.0.0.1", "short", "at least 8"),
        ("127.0.0.1", "with a blank", "without blanks"),
        ("192.0.2.1", "long enough", "cannot listen"),
    ],
)
def test_refuses_to_start(made, host, token, word):
    token = token and token.replace("long enough", "long-enough")
    with pytest.raises(UserError, match=word):
        server.serve(made, Console(quiet=True), host=host, port=0, token=token)


def test_the_limits_are_those_of_the_docs(repository):
    mib = 2**20
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|", (repository / "docs/serving.md").read_text(), re.MULTILINE))
    expected = {
        f"searches by id that wait, answered {handlers.AT_ONCE} together": handlers.SEARCHES_WAITING,
        "thumbnails that wait": handlers.PICTURES_WAITING,
        "uploads being received, held in memory": middleware.UPLOADS_AT_ONCE,
        "updates of feedback that wait, done one after the other": handlers.LESSONS_WAITING,
        "all else that waits: searches by picture or in a label, explanations, labels, marks": handlers.OTHERS_WAITING,
        "connections, idle ones too": server.CONNECTIONS,
        "bytes of an upload, with the form around it": f"{handlers.UPLOAD_BYTES // mib} MiB",
        "pixels of an upload; fewer if `collection.max_pixels` is less": f"{handlers.UPLOAD_PIXELS // 10**6} million",
        "bytes of any other body": f"{middleware.JSON_BYTES // 1024} KiB",
        "pause between the bytes of a body": f"{middleware.SECONDS_BETWEEN_BYTES:.0f} s",
        "time of a whole body": f"{middleware.SECONDS_FOR_A_BODY:.0f} s",
        "`k`, `offset`": f"{schemas.MAX_K:,} and {schemas.MAX_OFFSET:,}",
        "bytes of an image file that is shown": f"{thumbnails.MAX_ORIGINAL_BYTES // mib} MiB",
        "uploads": f"{uploads.MAX_UPLOADS:,}, and {uploads.MAX_UPLOAD_BYTES // 2**30} GiB as they are kept",
        "an upload after its last use": f"{uploads.UPLOAD_SECONDS // 86400} days",
        "thumbnails": f"{thumbnails.MAX_THUMBNAIL_BYTES // 2**30} GiB",
        "a connection after an answer": f"{server.IDLE_SECONDS} s",
    }
    assert {name: rows.get(name) for name in expected} == {name: str(value) for name, value in expected.items()}


def test_every_file_of_a_run_is_described(own, searcher, repository):
    described = (repository / "docs/files.md").read_text().partition("## A collection")[0]
    own.save_config(own.configure(None, ["index.kind=two-stage"]))
    with serving(service_app.create_app(own)) as client:
        _upload(client, _bytes(searcher, "fig/1.jpg"))
        assert client.get("/images/1/thumbnail").status_code == 200
        _teach(client, searcher, "plum/0.jpg", ["plum/1.jpg"], ["fig/1.jpg"])
        client.post("/feedback/update", json={})
    Judgements(own.judgements).create(
        draw_tasks(searcher, "oasis", n_queries=1, k=3, n_random=1), learner="oasis", version="1"
    )
    files = [file for file in own.folder.rglob("*") if file.is_file()]
    assert len(files) > 25
    for file in files:
        if file.parent.parent.parent == own.folder / "learners" and file.suffix == ".npy":
            continue  # one .npy an array
        name = "<sha256>.png" if file.parent.name == "uploads" else re.sub("-(wal|shm)$", "", file.name)
        assert re.search(rf"(?<![\w.]){re.escape(name)}", described), file


def test_refuses_a_run_without_images(tmp_path):
    with pytest.raises(UserError, match="visterm features"):
        service_app.create_app(Run(tmp_path / "none"))
