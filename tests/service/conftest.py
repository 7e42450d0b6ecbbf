"""A small run, and clients of the service over it."""

import functools
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from contextlib import closing, contextmanager
from importlib.util import find_spec
from itertools import chain
from types import SimpleNamespace
from typing import get_origin, get_type_hints

import numpy as np
import pytest
from running import CHROMIUM

from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.stages.evaluate import evaluate as evaluate_stage
from visterm.pipeline.stages.features import features as features_stage
from visterm.pipeline.stages.train import train as train_stage
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.run import Run
from visterm.teaching.marks import RelevanceMarks
from visterm.teaching.overview import overview_folder, overview_record

SETTINGS = ["features.n_visterms=40", "oasis.n_steps=20000", "compute.n_jobs=1"]
PATIENCE = 120  # seconds: of a machine that is busy with other things
MARKUP = "<img src=x onerror=alert(1)>"
if any(find_spec(name) is None for name in ("fastapi", "httpx", "uvicorn")):
    collect_ignore_glob = ["test_*.py"]


def _client_class():
    """Make the class of the clients; here, because httpx may be missing."""
    import httpx
    from pydantic import TypeAdapter
    from starlette.routing import Match
    from typing_extensions import is_typeddict

    adapter = functools.cache(TypeAdapter)

    class ServiceClient(httpx.Client):
        """A client of one service, and its application (`parts`, `subjects`).

        Answers must have exactly the fields that their routes declare, unless `declared` is False.
        """

        declared = True

        def request(self, method, url, **options):
            response = super().request(method, url, **options)
            kind = response.headers.get("content-type")
            if self.declared and response.content and (response.status_code, kind) == (200, "application/json"):
                answer = response.json()
                if (model := self._model(method, response.request.url.path)) is not None:
                    assert model.validate_python(answer, strict=True) == answer
            return response

        def _model(self, method, path):
            scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
            route = next(route for route in self.app.routes if route.matches(scope)[0] is Match.FULL)
            model = get_type_hints(route.endpoint, include_extras=True).get("return")
            return adapter(model) if is_typeddict(model) or get_origin(model) is list else None

        def upload(self, data, name="a.jpg", **fields):
            return self.post("/search", files={"file": (name, data)}, data=fields)

        def mark(self, photos, query, relevant, not_relevant):
            """Mark results by path; return the key of the query."""
            key = self.get("/search", params={"id": photos.id(query)}).json()[0]["key"]
            for paths, mark in ((relevant, 1), (not_relevant, -1)):
                for path in paths:
                    body = {"query": key, "image": photos.id(path), "mark": mark, "learner": "oasis"}
                    assert self.post("/marks", json=body).status_code == 200
            return key

        def health(self):
            return self.get("/health").json()

        def wait_for_version(self, old):
            self.wait_until(lambda: self.health()["version"] != old)
            return self.health()["version"]

        def wait_for_colors(self):
            """Answers have the mean colours of images from some moment after the start."""
            looks = self.parts.looks
            self.wait_until(lambda: looks._thread is not None and not looks._thread.is_alive())

        @staticmethod
        def wait_until(condition):
            deadline = time.monotonic() + PATIENCE
            while not condition():
                assert time.monotonic() < deadline
                time.sleep(0.01)

        @staticmethod
        def check_error(response, status, *words):
            """Errors have one shape, and one line of text."""
            assert response.status_code == status, response.text
            error = response.json()
            assert (error["ok"], error["status"]) == (False, status)
            assert "\n" not in error["error"]
            for word in words:
                assert word in error["error"]

    return ServiceClient


_open_pages = []  # of the browser


@contextmanager
def _serving(run, *, token=None, local=True, settings=None, **options):
    import uvicorn

    from visterm.service.app import create_app
    from visterm.service.server import server_config
    from visterm.service.settings import ServiceSettings

    app = create_app(run, ServiceSettings(**settings or {}), token=token, local=local)
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = uvicorn.Server(server_config(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():  # the application's threads run then
                time.sleep(0.001)
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            # Certificates, which no test needs, take 30 ms to read.
            with _client_class()(base_url=address, timeout=PATIENCE, verify=False, **options) as client:
                client.app, client.parts, client.subjects = app, app.state.parts, app.state.subjects
                client.connections, client.requests = server.server_state.connections, server.server_state.tasks
                yield client
                for page in _open_pages:
                    page.goto("about:blank")  # it would ask a service that is gone
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the service does not end"


@pytest.fixture(scope="session")
def serving():
    """Context manager (run) that serves a run in a thread and gives a client of it."""
    return _serving


@pytest.fixture(scope="session")
def made(build_once, write_images):
    """A run of 19 images, one of them twice, with two learners. Tests do not change it; see `own`."""

    def build(folder):
        photos = folder / "photos"
        write_images(photos, [f"{name}/{i}.jpg" for name in ("pear", "plum", "fig") for i in range(6)])
        shutil.copy(photos / "pear/0.jpg", photos / "pear/0 again.jpg")
        (photos / "fig/5.jpg").rename(photos / f"fig/{MARKUP}.jpg")
        _evaluated(folder, "knn", "split.train=4", "split.test=2")

    return Run(build_once("service", "photos", build) / "runs/photos")


def _evaluated(folder, learner, *settings):
    """Make a run over the photos of a folder, with oasis, evaluated, and one more learner."""
    run, config = Run(folder / "runs/photos"), load_config(None, [*SETTINGS, *settings])
    quiet = Console(quiet=True)
    features_stage(run, config, folder / "photos", quiet)
    for name in ("oasis", learner):
        train_stage(run, config, name, quiet)
    evaluate_stage(run, config, "oasis", quiet)


@pytest.fixture(scope="session")
def client(made):
    with _serving(made) as client:
        client.wait_for_colors()
        yield client


@pytest.fixture(scope="session")
def searcher(made):
    return Searcher(made)


@pytest.fixture(scope="session")
def photos(searcher):
    """The images of `made` by path: functions id and data."""
    return SimpleNamespace(
        id=lambda path: next(image.id for image in searcher.images if image.path == path),
        data=lambda path: (searcher.root / path).read_bytes(),
    )


@pytest.fixture
def own(made, tmp_path):
    """A copy of the run, to be changed, over the same images."""
    run = Run(tmp_path / "runs" / "photos")
    shutil.copytree(made.folder, run.folder, ignore=shutil.ignore_patterns("service", "*.lock"))
    return run


@pytest.fixture
def flat(build_once, write_images, tmp_path):
    """A run of a folder of 18 images without labels, of one's own; nothing is trained."""

    def build(folder):
        write_images(folder / "photos", [f"{name}{i}.jpg" for name in ("pear", "plum", "fig") for i in range(6)])
        run, config = Run(folder / "runs/flat"), load_config(None, SETTINGS)
        features_stage(run, config, folder / "photos", Console(quiet=True))

    run = Run(tmp_path / "runs" / "flat")
    shutil.copytree(build_once("flat", "photos", build) / "runs/flat", run.folder)
    return run


@pytest.fixture
def own_photos(own, searcher, tmp_path):
    """The folder of the images of `own`, a copy that tests may change."""
    folder = tmp_path / "photos"
    shutil.copytree(searcher.root, folder)
    features_stage(own, own.configure(None, []), folder, Console(quiet=True))
    return folder


@pytest.fixture(scope="session")
def start_upload():
    """Function (address, length) that connects and sends the head of an upload of this length."""

    def start(address, length, *headers):
        host = str(address).removeprefix("http://").rstrip("/")
        name, port = host.split(":")
        connection = socket.create_connection((name, int(port)), timeout=PATIENCE)
        lines = ["POST /search HTTP/1.1", f"Host: {host}", "Content-Type: multipart/form-data; boundary=x"]
        lines += [f"Content-Length: {length}", *headers]
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        return connection

    return start


@pytest.fixture(scope="session")
def shown(build_once, write_images):
    """The run of the pages in a browser: 76 images, some named in markup, with two learners and figures."""

    def build(folder):
        photos = folder / "photos"
        write_images(photos, [f"{name}/{i}.jpg" for name in ("pear", "plum", "fig", "<b>nut") for i in range(19)])
        (photos / "fig/0.jpg").rename(photos / f"fig/{MARKUP}.jpg")
        _evaluated(folder, "musl", "musl.n_metrics=2", "musl.n_bits=4", "split.train=12", "split.test=6")

    return Run(build_once("page", "photos", build) / "runs/photos")


@pytest.fixture
def own_shown(shown, tmp_path):
    """A copy of that run, to be changed, over the same images; without what its service may be writing."""
    run = Run(tmp_path / "runs" / "photos")
    written = shutil.ignore_patterns("service", "overview*", "feedback*", "judgements*", "*.lock")
    shutil.copytree(shown.folder, run.folder, ignore=written)
    return run


@pytest.fixture(scope="session")
def mapped(shown):
    """Give the run of the pages an overview, as the background process would."""
    searcher = Searcher(shown)
    ids = [image.id for image in searcher.images]
    names = sorted({label for image in searcher.images for label in image.labels})
    rng = np.random.default_rng(0)
    corners = np.array([[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]])
    places = [corners[names.index(next(iter(image.labels)))] for image in searcher.images]
    with publish(overview_folder(shown), overview_record(searcher)) as folder:
        np.save(folder / "ids.npy", np.array(ids, np.int64))
        np.save(
            folder / "points.npy", np.clip(np.array(places) + rng.normal(0, 0.02, (len(ids), 2)), 0, 1).astype("f4")
        )
        pairs = {"same": [(ids[0], other, 0.95) for other in ids[1:3]]}
        pairs |= {"scene": [(ids[9], other, 0.92) for other in ids[10:12]]}
        pairs |= {"alike": [(ids[5], other, 0.94) for other in ids[6:8]], "blank": [ids[12]]}
        (folder / "alike.json").write_text(json.dumps(pairs))
        entry = {"label": "plum", "share": 0.0, "suggested": "pear", "suggested_share": 0.9}
        (folder / "check.json").write_text(json.dumps([{"id": ids[-1]} | entry]))


@pytest.fixture(scope="session")
def draw_overview():
    """Function (run, entries) that gives a run an overview with these labels to check: pairs of id and label."""
    return _draw_overview


def _draw_overview(run, entries):
    """Give a run an overview with these labels to check."""
    searcher = Searcher(run)
    ids = [image.id for image in searcher.images]
    with publish(overview_folder(run), overview_record(searcher)) as folder:
        np.save(folder / "ids.npy", np.array(ids, np.int64))
        np.save(folder / "points.npy", np.zeros((len(ids), 2), "f4"))
        (folder / "alike.json").write_text('{"same": [], "scene": [], "alike": [], "blank": []}')
        doubt = {"probability": 0.03, "share": 0.0, "suggested": "pear"}
        doubt |= {"suggested_probability": 0.914, "suggested_share": 0.9}
        (folder / "check.json").write_text(json.dumps([{"id": id_, "label": label} | doubt for id_, label in entries]))


@pytest.fixture(scope="session", autouse=True)
def bundle(tmp_path_factory, repository):
    """Folder of the bundle of a wheel, which the services of this process serve; None without esbuild.

    A checkout serves dozens of modules instead, which each page of a test loads anew.
    """
    node = shutil.which("node")
    if node is None or not (repository / "node_modules/esbuild").is_dir():
        yield None
        return
    from visterm.service import routes_pages

    folder = tmp_path_factory.mktemp("bundle")
    subprocess.run([node, str(repository / "bundle.js"), str(routes_pages.WEB), str(folder)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routes_pages, "BUNDLE", folder)
        yield folder


@pytest.fixture(scope="session")
def site(shown):
    with _serving(shown) as client:
        yield client


@pytest.fixture(scope="session")
def ids(shown):
    """Path to id."""
    return {image.path: image.id for image in Searcher(shown).images}


@pytest.fixture(scope="module")
def browser():
    """One for each file: while it runs, an event loop does, too, which other tests need for themselves."""
    from playwright.sync_api import expect, sync_playwright

    if CHROMIUM is None:
        pytest.skip("the browser tests need chromium")
    expect.set_options(timeout=1000 * PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(params=[{}])
def page(request, browser, site, shown):
    """An empty page of the site, without marks; afterwards its console holds errors only if told (`page.refusals`)."""
    marks = RelevanceMarks(shown.marks)
    site.wait_until(lambda: not (site.connections or site.requests))  # of the page before: it may still be marking
    for mark in chain(*marks.standing().values()):
        marks.take_back(mark)
    options = {"base_url": str(site.base_url), "viewport": {"width": 1280, "height": 860}}
    options["reduced_motion"] = "reduce"  # each frame of what fades is drawn by the processor
    context = browser.new_context(**(options | request.param))
    page = context.new_page()
    page.set_default_timeout(1000 * PATIENCE)

    def wait_until(condition, patience=PATIENCE):
        """Wait for a condition in the page, whose policy forbids the eval of `wait_for_function`."""
        page.evaluate(
            f"""() => new Promise((done, fail) => {{
                const end = performance.now() + {1000 * patience};
                const look = () => ({condition}) ? done()
                    : performance.now() > end ? fail(new Error("not so in time")) : setTimeout(look, 10);
                look();
            }})"""
        )

    def ask(number, more=""):
        """Search with an image."""
        page.goto(f"?id={number}{more}", wait_until="commit")
        page.locator("#results .rank").first.wait_for()  # not just a skeleton; asks more often than expect()

    def refuse(route, text, status):
        """Answer as the service does where it refuses."""
        body = json.dumps({"ok": False, "error": text, "status": status})
        route.fulfill(status=status, body=body, content_type="application/json")

    def options(advanced=True):
        """Open the menu of options."""
        if page.locator("#options").get_attribute("open") is None:
            page.locator("#options > summary").click()
        if advanced and page.locator("#options details").get_attribute("open") is None:
            page.get_by_text("Advanced").click()

    def filter_by(label):
        """Show only results with a label."""
        page.get_by_role("combobox", name="Search by photo").fill(f"label:{label}")
        page.keyboard.press("Enter")

    def results():
        """The ids of all results, once they are there: those below the screen are drawn some frames later."""
        page.locator("#results .rank").first.wait_for()
        page.evaluate("""() => new Promise((done) => {
            let before = 0;
            const look = () => {
                const n = document.querySelectorAll("#results [data-id]").length;
                if (n === before) return done();
                before = n;
                requestAnimationFrame(() => setTimeout(look));
            };
            look();
        })""")
        return [
            int(value)
            for value in page.locator("#results [data-id]").evaluate_all("all => all.map((n) => n.dataset.id)")
        ]

    def violations():
        """What axe-core finds wrong, as a script of the browser, which the policy of the page does not bind.

        Of each list of photos the first eight are looked at: the others are made alike, and took most of the time.
        """
        script = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python").AXE_SCRIPT
        page.emulate_media(reduced_motion="reduce")  # colours of what fades are those at its end
        page.wait_for_timeout(250)
        world = page.context.new_cdp_session(page)
        frame = world.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        context = world.send("Page.createIsolatedWorld", {"frameId": frame})["executionContextId"]

        def run(text):
            options = {"contextId": context, "awaitPromise": True, "returnByValue": True}
            return world.send("Runtime.evaluate", {"expression": text} | options)

        run(script)
        place = "{ exclude: [['.tile:nth-child(n + 9)']] }"
        fields = "[v.id, v.nodes[0].html.slice(0, 300)]"
        answer = run(
            f"axe.run({place}, {{ resultTypes: ['violations'] }}).then((r) => r.violations.map((v) => {fields}))"
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    page.violations = violations
    page.results = results
    page.box = page.get_by_role("combobox", name=re.compile("^(Search by photo|Add an example)"))
    page.tile = lambda index: page.locator(f'#results .tile[data-index="{index}"]')
    page.options, page.filter_by = options, filter_by
    page.pictures = lambda: wait_until("[...document.images].every((i) => i.complete || i.loading === 'lazy')")
    page.wait_until, page.ask, page.refuse, page.refusals = wait_until, ask, refuse, 0
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
    _open_pages.append(page)
    yield page
    _open_pages.remove(page)
    page.pictures()
    while len(refused := [error for error in errors if error.startswith("Failed to load resource")]) < page.refusals:
        page.wait_for_event("console")
    context.close()
    assert [error for error in errors if error not in refused] == []
    assert len(refused) == page.refusals
