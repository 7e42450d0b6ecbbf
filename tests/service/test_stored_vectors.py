"""The service of a run of float16 vectors that stay on disk answers as one that has them in memory."""

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
