"""The service of a run of float16 vectors that stay on disk answers as one that has them in memory."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import PIL.Image
import pytest
from running import copy_run, json_of, refused, visterm

from visterm.features import OnnxEmbedder
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


def test_sparse_arrays_are_imported_before_threads_ask_for_them_at_once(imported):
    """SciPy's are not ready for a thread while another one imports them."""
    code = (
        "import sys; from pathlib import Path; from visterm.pipeline.store.run import Run; "
        "from visterm.service.app import create_app; create_app(Run(Path('runs/fruit'))); "
        "assert 'scipy.sparse' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=imported, check=True)


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


def test_pictures_of_imported_vectors_have_their_shapes(imported, tmp_path, serving):
    folder, turned = copy_run(imported, tmp_path), PIL.Image.Exif()
    turned[0x0112] = 6  # on its side
    (folder / "apple").mkdir()
    picture = PIL.Image.new("RGB", (60, 30))
    for i, (kind, exif) in enumerate([("JPEG", turned), ("JPEG", PIL.Image.Exif()), ("PNG", turned)]):
        picture.save(folder / f"apple/{i}.jpg", kind, exif=exif)
    (folder / "apple/3.jpg").write_text("no picture")
    visterm("features", folder, *TABLE, "--run", "fruit", cwd=folder)
    with serving(Run(folder / "runs/fruit")) as client:
        client.wait_until(lambda: client.get("/api/images/columns").json()["ratios"][:5] == [0.5, 2, 2, 0, 0])
        sizes = [(row["width"], row["height"]) for row in client.get("/api/images?limit=4").json()]
        assert sizes == [(30, 60), (60, 30), (60, 30), (None, None)]
        client.get("/images/3/thumbnail")  # reads the EXIF of a PNG, which may stand behind its pixels
        assert client.get("/api/images/columns").json()["ratios"][2] == 0.5


def test_imported_vectors_and_the_model_that_made_them(tmp_path, serving, write_images, write_model):
    """With the model other photos are queries and results are explained by pixels; the vectors stay as they are."""
    pytest.importorskip("onnx")
    names = [f"{kind}/{i}.jpg" for kind in ("plum", "fig") for i in range(8)]
    write_images(tmp_path / "photos", [*names, "new.jpg"])
    (tmp_path / "photos/new.jpg").rename(tmp_path / "new.jpg")
    write_model(tmp_path / "model.onnx", 32)
    made = (
        OnnxEmbedder(tmp_path / "model.onnx", layer="flat")
        .fit()
        .transform([tmp_path / "photos" / name for name in names])
    )
    made[12] *= -1  # of another picture than fig/4.jpg
    noise = np.random.default_rng(0).normal(size=made.shape) * 0.002  # of another exporter
    np.save(tmp_path / "v.npy", made + noise)
    (tmp_path / "v.txt").write_text("\n".join(names))
    table = ["features", "photos", "--vectors", "v.npy", "--ids", "v.txt", "--run", "fruit"]
    visterm(*table, cwd=tmp_path)
    run = Run(tmp_path / "runs/fruit")
    with serving(run) as client:
        alone = client.get("/explain", params={"id": 1, "result": 2, "teachers": 3, "learner": "cosine"}).json()
        assert "is not known: run fruit: its vectors are not made of blocks" in alone["sentence"]
        assert (alone["query"]["path"], alone["query"]["cells"]) == ("plum/0.jpg", [])
        assert alone["score"] == pytest.approx(float(made[0] @ made[1]), abs=0.02)
        assert alone["no_teachers"]
        client.check_error(client.get("/explain", params={"id": 1, "result": 2, "format": "png"}), 409, "of blocks")
        client.check_error(client.upload((tmp_path / "new.jpg").read_bytes()), 409, "nothing to make vectors with")
    before = run.record(run.extractor)["content"]
    model = ["--set", "features.kind=onnx", "--set", "features.onnx.model=model.onnx"]
    model += ["--set", "features.onnx.layer=flat"]
    said = visterm("features", "--run", "fruit", *model, cwd=tmp_path).stderr
    assert "the model makes the imported vectors: cosine 1.000, median of 8 photos" in said
    assert (run.record(run.extractor)["content"], json_of("features", "--run", "fruit", cwd=tmp_path)["extracted"]) == (
        before,
        0,
    )
    with serving(run) as client:
        explained = client.get("/explain", params={"id": 1, "result": 2, "learner": "cosine"}).json()
        assert explained["score"] == pytest.approx(alone["score"], abs=1e-4)
        assert sum(explained["query"]["cell_heat"]) == pytest.approx(explained["score"], abs=1e-4)
        png = client.get("/explain", params={"id": 1, "result": 2, "format": "png"})
        assert (png.status_code, png.headers["content-type"]) == (200, "image/png")
        assert client.upload((tmp_path / "new.jpg").read_bytes()).json()[0]["results"]
        same = client.get("/search", params={"path": "plum/3.jpg", "k": 1}).json()[0]["results"][0]
        assert same["path"].startswith("plum/")
        (tmp_path / "photos/plum/1.jpg").unlink()
        for result, why in ((2, "plum/1.jpg: cannot be read"), (13, "fig/4.jpg: the model makes another vector")):
            partly = client.get("/explain", params={"id": 1, "result": result, "learner": "cosine"}).json()
            assert f"is not known: {why}" in partly["sentence"]
            assert partly["score"] == pytest.approx(float(made[0] @ made[result - 1]), abs=0.02)
    write_model(tmp_path / "other.onnx", 32, seed=5)
    other = ["--set", "features.onnx.model=other.onnx"]
    assert "its vectors are not those that were imported (cosine" in refused(
        "features", "--run", "fruit", *other, cwd=tmp_path
    )
    write_model(tmp_path / "short.onnx", 32)
    short = ["--set", "features.onnx.model=short.onnx", "--set", "features.onnx.layer=null"]
    assert "gives 16 numbers, and vectors have 8" in refused("features", "--run", "fruit", *short, cwd=tmp_path)
