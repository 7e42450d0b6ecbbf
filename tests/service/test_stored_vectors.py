"""The service of a run of float16 vectors that stay on disk answers as one that has them in memory."""

import io
import zipfile

import numpy as np
import pytest
from running import copy_run, visterm

from visterm.pipeline.store import vectors
from visterm.pipeline.store.run import Run
from visterm.retrieval import StoredVectors

TABLE = ["--vectors", "fruit.npy", "--ids", "fruit.txt"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A folder with a table of 30 vectors of three classes, and a run of it."""
    folder, rng = tmp_path_factory.mktemp("stored"), np.random.default_rng(0)
    y = np.repeat(["apple", "pear", "plum"], 10)
    np.save(folder / "fruit.npy", rng.normal(size=(30, 12)) + (y[:, None] == np.unique(y)) @ rng.normal(size=(3, 12)))
    (folder / "fruit.txt").write_text("\n".join(f"{label}/{i}.jpg" for i, label in enumerate(y)))
    visterm("features", *TABLE, cwd=folder)
    return folder


def test_searches_and_images_that_come_and_go(imported, tmp_path, serving, monkeypatch):
    folder = copy_run(imported, tmp_path)
    run = Run(folder / "runs/fruit")
    asked = [*(f"/search?id={number}&k=5" for number in (1, 12, 30)), "/search?id=3&folder=pear"]

    def results(client):
        return [client.get(address).json()[0]["results"] for address in asked]

    with serving(run) as client:
        wanted = results(client)
    monkeypatch.setattr(vectors, "IN_MEMORY", 0)
    with serving(run) as client:
        assert isinstance(client.parts.snapshot.searcher.X, StoredVectors)
        assert results(client) == wanted
        X, ids = np.load(folder / "fruit.npy"), (folder / "fruit.txt").read_text().split()
        np.save(folder / "fruit.npy", np.concatenate([X[2:], X[:1]]))
        (folder / "fruit.txt").write_text("\n".join([*ids[2:], "new"]))
        visterm("features", *TABLE, cwd=folder)

        def paths():
            return {row["path"] for row in client.get("/search?id=3&k=30").json()[0]["results"]}

        client.wait_until(lambda: "new" in paths())  # the images that are gone may be taken in before
        assert paths() == {*ids[3:], "new"}
        assert client.get("/search?id=1").status_code == 404


def test_pictures_of_imported_vectors(imported, tmp_path, serving, write_images):
    folder = copy_run(imported, tmp_path)
    write_images(folder, ["apple/0.jpg", "apple/1.jpg"])
    (folder / "apple/2.jpg").write_text("no picture")
    visterm("features", folder, *TABLE, "--run", "fruit", cwd=folder)
    first = (folder / "apple/0.jpg").read_bytes()
    with serving(Run(folder / "runs/fruit"), settings={"keep_metadata": True}) as client:
        small = client.get("/images/1/thumbnail")
        assert (small.status_code, small.headers["content-type"]) == (200, "image/webp")
        assert client.get("/images/1/original").content == first
        assert client.get("/images/2/thumbnail").content != small.content
        client.check_error(client.get("/images/3/original"), 415, "cannot be decoded")
        client.check_error(
            client.get("/images/4/thumbnail"), 410, "image 4 of this run of imported vectors has no file"
        )
        packed = zipfile.ZipFile(io.BytesIO(client.post("/images/download", data={"ids": "1,3,4"}).content))
        assert packed.read("apple/0.jpg") == first
        assert packed.read("missing.txt").decode().split() == ["apple/2.jpg", "apple/3.jpg"]
        (folder / "apple/0.jpg").write_bytes((folder / "apple/1.jpg").read_bytes())  # no import is needed
        changed = client.get("/images/1/thumbnail", headers={"If-None-Match": small.headers["etag"]})
        assert changed.content == client.get("/images/2/thumbnail").content
        assert client.get("/images/1/thumbnail", headers={"If-None-Match": changed.headers["etag"]}).status_code == 304
        client.parts.clean_up(client.parts.snapshot)  # keeps them
        assert client.parts.thumbnails.colors
