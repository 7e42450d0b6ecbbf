"""The service as a process, its limits and files."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from functools import partial

import httpx
import pytest
from starlette.testclient import TestClient

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import NothingToSearch, UserError
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.store.run import Run
from visterm.plugins.judge.judgements import Judgements
from visterm.plugins.judge.tasks import draw_tasks
from visterm.service import bodies, connection, middleware, parts, schemas, server, thumbnails, uploads, waiting
from visterm.service.app import create_app
from visterm.service.settings import ServiceSettings
from visterm.service.subjects import search

PATIENCE = 120  # seconds
get, post = partial(httpx.get, timeout=PATIENCE), partial(httpx.post, timeout=PATIENCE)


@contextmanager
def in_a_process(run, said="press Ctrl-C to stop\n"):
    """Run the service in a process of its own, which must say this and no more; yields its address."""
    command = [os.path.join(os.path.dirname(sys.executable), "visterm"), "serve", "--run", run.name, "--port", "0"]
    environment = os.environ | {"VISTERM_RUNS": str(run.folder.parent)}
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = started.stdout.readline().strip()  # the socket listens already
        assert address.startswith("http://127.0.0.1:"), started.stderr.read()
        yield address
    finally:
        started.send_signal(signal.SIGINT)
        out, error = started.communicate(timeout=100)
    assert (started.returncode, out) == (0, "")
    assert error == said


@pytest.fixture(scope="module")
def process(made):
    with in_a_process(made) as address:
        yield address


def test_a_run_without_images_says_how_to_begin_and_is_served_once_it_has_some(tmp_path, write_images):
    run = Run(tmp_path / "runs" / "new run")
    run.folder.mkdir(parents=True)
    said = (
        f"{run.collection}: no collection here yet; run 'visterm features IMAGES' first; the page says so until then\n"
    )
    with in_a_process(run, said + "press Ctrl-C to stop\n") as address:
        page = get(address)
        assert (page.status_code, "visterm features IMAGES --run &#39;new run&#39;" in page.text) == (200, True)
        assert get(f"{address}static/core/app.css").status_code == 200
        refused = get(f"{address}search", params={"id": 1})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert "no images yet" in refused.json()["error"]
        assert get(address, headers={"Host": "example.org"}).status_code == 421
        write_images(tmp_path / "photos", ["1.jpg", "2.jpg"])
        features_stage(run, load_config(None, ["features.n_visterms=4"]), tmp_path / "photos", Console(quiet=True))
        deadline = time.monotonic() + PATIENCE
        while get(f"{address}health").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (answer,) = get(f"{address}search", params={"id": 1}).json()
        assert len(answer["results"]) == 1


def test_a_run_that_cannot_be_opened_is_waited_for(tmp_path, monkeypatch):
    run = Run(tmp_path / "runs" / "new")
    errors = [UserError(f"{run.folder}/config.yaml: damaged"), NothingToSearch("no images")]
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0)

    def create():
        raise errors[0]

    app = waiting.WaitingApp(run, create, token=None, local=True)
    with TestClient(app, base_url="http://localhost") as client:
        for path in ("/", "/health"):
            refused = client.get(path)
            assert (refused.status_code, refused.json()["error"]) == (503, "new/config.yaml: damaged")
        del errors[0]
        assert client.get("/").status_code == 200
        assert "no images yet" in client.get("/health").json()["error"]


def test_process_answers(process, searcher):
    (answer,) = get(f"{process}search", params={"id": 1, "k": 2}).json()
    assert len(answer["results"]) == 2
    with open(searcher.root / "fig/1.jpg", "rb") as picture:
        (answer,) = post(f"{process}search", files={"file": picture}).json()
    assert answer["upload"]


def test_upload_that_is_cut_off(process, made, photos, start_upload):
    kept = sorted(made.folder.glob("service/uploads/*"))
    for _ in range(bodies.MAX_CONCURRENT_UPLOADS + 1):
        with start_upload(process, 100_000) as connection:
            connection.sendall(b"--x\r\n")
    assert get(f"{process}health").status_code == 200
    assert sorted(made.folder.glob("service/uploads/*")) == kept
    picture = {"file": photos.data("fig/1.jpg")}
    assert post(f"{process}search", files=picture).status_code == 200


def test_suggested_token_is_accepted_and_ports_in_use_are_not(made):
    with pytest.raises(UserError) as refused:
        server.serve(made, Console(quiet=True), token="short")
    server._check_token("192.0.2.1", str(refused.value).split()[-1])
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match="another program listens there"):
            server.serve(made, Console(quiet=True), port=port)


def test_upload_that_claims_too_much_is_refused_at_once(client, start_upload):
    for length, *header in ((10**12,), (parts.UPLOAD_BYTES + 1, "Expect: 100-continue")):
        with start_upload(client.base_url, length, *header) as connection:
            assert connection.recv(100).startswith(b"HTTP/1.1 413 ")


def test_refuses_to_start(made, tmp_path):
    for host, token, word in (
        *((host, None, "a token is needed") for host in ("0.0.0.0", "::", "192.0.2.1", "photos.example")),
        ("127.0.0.1", "x" * 21, "at least 22"),
        ("127.0.0.1", "long enough, but with blanks", "without blanks"),
        ("192.0.2.1", "x" * 22, "cannot listen"),
    ):
        with pytest.raises(UserError, match=word):
            server.serve(made, Console(quiet=True), host=host, port=0, token=token)
    with pytest.raises(UserError, match="visterm features"):
        create_app(Run(tmp_path / "none"))


@pytest.mark.parametrize("package", ["fastapi", "httptools", "python_multipart", "uvicorn"])
def test_a_package_that_is_missing_is_named(package):
    """Of all the packages of the service, in a process that has imported none."""
    code = f"import sys; sys.modules[{package!r}] = None; from visterm.service.commands import start_service\n"
    code += "from visterm.pipeline.errors import UserError\ntry: start_service()\nexcept UserError as e: print(e)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"the service needs {package}: ")
    assert "-m pip install " in said


def test_the_limits_are_those_of_the_docs(repository):
    mib, pixels = 2**20, ServiceSettings.upload_pixels // 10**6
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|", (repository / "docs/serving.md").read_text(), re.MULTILINE))
    expected = {
        "any request but `/health`, for its start": f"{middleware.START_SECONDS:.0f} s",
        f"a search by id, answered in batches of {search.BATCH_SIZE}": f"{search.SEARCH_SECONDS:.0f} s",
        f"an upload of more than {bodies.JSON_BYTES // 1024} KiB, for one of "
        f"{bodies.MAX_CONCURRENT_UPLOADS} places in memory": f"{bodies.UPLOAD_TURN_SECONDS:.0f} s",
        f"an uploaded image, for one of at most {parts.MAX_UPLOAD_WORKERS} threads": (f"{parts.UPLOAD_SECONDS:.0f} s"),
        "a feedback update; they run one after the other": f"{parts.UPDATE_SECONDS:.0f} s",
        "thumbnails, searches within a label, explanations, labels, marks": f"{parts.OTHER_SECONDS:.0f} s",
        "connections, including idle ones": connection.CONNECTIONS,
        "request line and headers": f"{connection.HEAD_BYTES // 1024} KiB and {connection.MAX_HEADERS} headers",
        "time from the connection, or the first byte, to the end of the headers": f"{connection.HEAD_SECONDS:.0f} s",
        "bytes of an upload, including its form": f"{parts.UPLOAD_BYTES // mib} MiB",
        "pixels of an upload: `--upload-pixels`, or `collection.max_pixels` if smaller": f"{pixels} million",
        "bytes of any other body": f"{bodies.JSON_BYTES // 1024} KiB",
        "pause within a body": f"{bodies.SECONDS_BETWEEN_BYTES:.0f} s",
        "time for a whole body": f"{bodies.SECONDS_FOR_BODY:.0f} s",
        "`k`, `offset`": f"{schemas.MAX_K:,} and {schemas.MAX_OFFSET:,}",
        "bytes of a served image file": f"{thumbnails.MAX_ORIGINAL_BYTES // mib} MiB",
        "uploads": f"{uploads.MAX_UPLOADS:,}, and {uploads.MAX_UPLOAD_BYTES // 2**30} GiB",
        "an upload after its last use": f"{uploads.UPLOAD_SECONDS // 86400} days",
        "thumbnails": f"{thumbnails.MAX_THUMBNAIL_BYTES // 2**30} GiB",
        "an idle connection": f"{connection.IDLE_SECONDS} s",
    }
    assert {name: rows.get(name) for name in expected} == {name: str(value) for name, value in expected.items()}


def test_every_file_of_a_run_is_described(own, searcher, repository, serving, photos):
    described = (repository / "docs/files.md").read_text().partition("## A collection")[0]
    own.save_config(own.configure(None, ["index.kind=two-stage"]))
    with serving(own) as client:
        client.upload(photos.data("fig/1.jpg"))
        assert client.get("/images/1/thumbnail").status_code == 200
        client.mark(photos, "plum/0.jpg", ["plum/1.jpg"], ["fig/1.jpg"])
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
