"""visterm export: what it writes, read back without visterm's own readers; bad input."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from machines import outside
from running import json_of, refused, set_all, visterm

from visterm.learners.blend import effective
from visterm.pipeline import open_run
from visterm.pipeline.store.models import load_trained
from visterm.pipeline.store.run import Run
from visterm.retrieval import ExactIndex


@pytest.fixture(scope="module")
def trained(finished, tmp_path_factory):
    """A run of imported dense vectors of unequal lengths, and learners that start at whitened vectors."""
    folder = tmp_path_factory.mktemp("export")
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cow", "dog", "elk", "fox"], 20)
    centres = rng.normal(size=(6, 12))
    X = (np.repeat(centres, 20, axis=0) + rng.normal(size=(120, 12))).astype(np.float32)
    np.savez(folder / "made.npz", vector=X, id=np.array([f"{label}/{i}" for i, label in enumerate(y)]), label=y)
    visterm("features", "--vectors", "made.npz", "--run", "made", cwd=folder)
    steps = ("--set", "oasis.n_steps=4000", "--set", "oasis.pass_steps=1000", "--set", "wsabie.n_steps=4000")
    visterm("train", "--learner", "oasis,wsabie,hier", "--run", "made", *steps, cwd=folder)
    return folder


def best(run, name, learned_weight=None, k=5):
    """The images of a run, all its vectors as queries, and what ExactIndex finds."""
    opened = open_run(run)
    similarity = effective(load_trained(Run(Path(run)), name), learned_weight)
    return opened, similarity, ExactIndex(similarity, opened.X).search(opened.X, k=k)


def as_documented(file, X):
    """The scores of vectors, by the lines of plugins/export/README.md."""
    with np.load(file) as arrays:
        f = dict(arrays)
    q = X @ f["map1"] + f["offset1"] if "map1" in f else X
    q = q / np.linalg.norm(q, axis=1, keepdims=True) if f["unit"] else q
    q = q @ f["map2"] + f["offset2"] if "map2" in f else q
    gallery = f["vector"] if "vector" in f else sp.load_npz(file).toarray()
    return q @ gallery.T, f


@pytest.mark.parametrize(
    ("run", "name", "share"),
    [
        *(("made", "oasis", None), ("made", "oasis", 1), ("made", "wsabie", None), ("made", "wsabie", 1)),
        *(("made", "cosine", None), ("fruit", "oasis", None), ("fruit", "wsabie", None), ("fruit", "wsabie", 1)),
    ],
)
def test_npz_and_onnx_give_the_scores_of_the_learner(run, name, share, trained, finished, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    where = trained if run == "made" else finished
    options = ("--learned-weight", share) if share is not None else ()
    told = json_of(
        *("export", "--to", "npz,onnx", "--run", run, "--learner", name, "--output", tmp_path / "out", *options),
        cwd=where,
    )
    opened, similarity, ranking = best(where / "runs" / run, name, share)
    assert told == {
        "run": run,
        "learner": name,
        "learned_weight": getattr(similarity, "learned_weight", 1),
        "n_images": len(opened.paths),
        "files": [str(tmp_path / "out" / file) for file in ("similarity.npz", "similarity.onnx")],
    }
    X = opened.X.toarray() if sp.issparse(opened.X) else np.array(opened.X)
    scores, f = as_documented(tmp_path / "out/similarity.npz", X)
    assert f["path"].tolist() == opened.paths
    if isinstance(opened.y, np.ndarray):
        assert f["label"].tolist() == opened.y.tolist()
    expected = similarity.similarity(opened.X, opened.X)
    np.testing.assert_allclose(scores, expected, atol=1e-5, rtol=1e-5)
    session = onnxruntime.InferenceSession(tmp_path / "out/similarity.onnx", providers=["CPUExecutionProvider"])
    query, gallery = session.run(["query", "gallery"], {"vectors": X})
    np.testing.assert_allclose(query @ gallery.T, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("run", "name"), [("made", "oasis"), ("made", "wsabie"), ("fruit", "oasis"), ("made", "cosine")]
)
def test_the_index_of_faiss_maps_its_queries(run, name, trained, finished, tmp_path):
    faiss = pytest.importorskip("faiss")
    where = trained if run == "made" else finished
    visterm("export", "--to", "faiss", "--run", run, "--learner", name, "--output", tmp_path / "out", cwd=where)
    opened, similarity, ranking = best(where / "runs" / run, name)
    X = opened.X.toarray() if sp.issparse(opened.X) else np.array(opened.X)
    index = faiss.read_index(str(tmp_path / "out/gallery.faiss"))
    scores, ids = index.search(X, 5)
    np.testing.assert_allclose(scores, ranking.scores, atol=1e-5, rtol=1e-5)
    with open(tmp_path / "out/images.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["path"] for row in rows] == opened.paths
    place = {int(row["id"]): i for i, row in enumerate(rows)}
    assert [place[i] for i in ids[:, 0].tolist()] == ranking.indices[:, 0].tolist()
    # A new image is added as its gallery side, behind the map of the queries.
    faiss.downcast_index(index.index).add_with_ids(similarity.transform(X[:1]), np.array([9999]))
    assert 9999 in set(index.search(X[:1], len(X) + 1)[1][0].tolist())


@pytest.mark.parametrize(("run", "name"), [("made", "hier"), ("fruit", "oasis")])
def test_parquet_holds_the_gallery_side(run, name, trained, finished, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    where = trained if run == "made" else finished
    visterm("export", "--to", "parquet", "--run", run, "--learner", name, "--output", tmp_path / "out", cwd=where)
    opened, similarity, _ = best(where / "runs" / run, name)
    table = parquet.read_table(tmp_path / "out/gallery.parquet")
    assert table["path"].to_pylist() == opened.paths
    assert table["labels"].to_pylist() == [[label] for label in opened.y.tolist()]
    expected = similarity.transform(opened.X)
    if run == "made":
        np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), expected)
    else:
        columns, values = table["columns"].to_pylist(), table["values"].to_pylist()
        for row, (indices, data) in enumerate(zip(columns, values, strict=True)):
            np.testing.assert_array_equal(np.float32(data), expected[[row]].toarray()[0, indices])
            assert len(indices) == expected[[row]].nnz


def test_files_are_overwritten_and_others_stay(trained, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    arguments = ("export", "--to", "npz", "--run", "made", "--learner", "oasis", "--output", tmp_path / "out")
    visterm(*arguments, cwd=trained)
    first = (tmp_path / "out/similarity.npz").read_bytes()
    printed = visterm(*arguments, "--learned-weight", 0, cwd=trained).stdout
    assert printed.split() == [str(tmp_path / "out/similarity.npz")]
    assert (tmp_path / "out/similarity.npz").read_bytes() != first
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["notes.txt", "similarity.npz"]


def test_what_a_killed_export_left_is_removed_by_the_next(trained, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    program = """
import os, sys
from pathlib import Path
from visterm.pipeline.store.files import replaced
with replaced(Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""
    for name in ("similarity.npz", "other.npz"):
        subprocess.run([sys.executable, "-c", program, out / name], check=False)
    (out / f"similarity.npz.{os.getpid()}-1.tmp").touch()  # of a process that runs
    assert len(list(out.iterdir())) == 3
    visterm("export", "--to", "npz", "--run", "made", "--learner", "oasis", "--output", out, cwd=trained)
    names = sorted(path.name for path in out.iterdir())
    assert [names[0][:10], *names[1:]] == ["other.npz.", "similarity.npz", f"similarity.npz.{os.getpid()}-1.tmp"]


def test_the_folder_is_named_after_run_and_learner(mine):
    visterm("export", "--to", "npz", "--learner", "wsabie", cwd=mine)
    assert (mine / "fruit-wsabie/similarity.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--to", "csv"), "--to csv: formats are npz, onnx, pixels, parquet, faiss"),
        (("--to", "npz", "--learner", "oassis"), "unknown learner oassis; did you mean oasis?"),
        (("--to", "npz", "--learner", "aroma"), "run made has no trained aroma"),
        (("--to", "npz", "--learner", "oasis", "--output", "no/such"), "--output no/such: no such folder: no"),
        (
            ("--to", "npz", "--learner", "oasis", "--output", "made.npz"),
            "--output made.npz: this is a file; name a folder",
        ),
        (
            ("--to", "npz", "--learner", "hier"),
            "hier.* is more than products .*: no npz file; use --to onnx$",
        ),
        (("--to", "onnx,faiss", "--learner", "hier", "--learned-weight", 1), "no index of FAISS; use --to onnx$"),
    ],
)
def test_bad_input(arguments, line, trained):
    before = sorted(trained.iterdir())
    assert re.search(line, refused("export", "--run", "made", *arguments, cwd=trained))
    assert sorted(trained.iterdir()) == before


def test_a_learner_without_export_says_so(finished):
    line = refused("export", "--to", "onnx", "--learner", "musl", cwd=finished)
    assert line == "visterm: musl: MuSL compares by metrics that the label of each gallery image chooses: no export"


@pytest.mark.parametrize(
    ("kind", "module", "package"),
    [("faiss", "faiss", "faiss-cpu"), ("parquet", "pyarrow", "pyarrow"), ("onnx", "onnx", "onnx")],
)
def test_a_missing_package_is_named(kind, module, package, finished, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    line = refused("export", "--to", f"npz,{kind}", "--output", tmp_path / "out", cwd=finished)
    assert f" -m pip install '{package}>=" in line
    assert not (tmp_path / "out").exists()


def test_an_index_that_memory_cannot_hold_is_refused(finished, monkeypatch, tmp_path):
    pytest.importorskip("faiss")
    monkeypatch.setattr("visterm.plugins.export.export._MOST_FAISS", 1000)
    line = refused("export", "--to", "faiss", "--output", tmp_path / "out", cwd=finished)
    assert "FAISS holds dense vectors: 30 images with 40 numbers take 0 GB; use --to npz, or --to parquet" in line


def prepared(path, repository):
    """A photo as input of pixels.onnx, by the lines of plugins/export/README.md."""
    section = (repository / "plugins/export/README.md").read_text().split("\n## From pixels\n")[1].split("\n## ")[0]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    assert "visterm." not in code.replace('"visterm.', "")
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        exec(code, names)
    names["gallery"].close()
    return names


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "settings",
    [
        {"onnx.keep": 0.9},
        {
            "onnx.keep": 0.9,
            "onnx.resize": "trim",
            "onnx.channels": "bgr",
            "onnx.layer": "positive",
            "precision": "float32",
        },
    ],
)
def test_pixels_give_the_results_of_a_search(repository, write_images, write_model, tmp_path, settings):
    pytest.importorskip("onnxruntime")
    write_images(tmp_path / "fruit", [f"{label}/{i}.png" for label in ("apple", "pear", "plum") for i in range(8)])
    write_model(tmp_path / "model.onnx", 32)
    section = {"kind": "onnx", "onnx.model": "model.onnx", "onnx.preprocess": "imagenet"} | settings
    visterm("features", "fruit", *set_all(features=section), cwd=tmp_path)
    visterm("train", "--learner", "oasis", *set_all(oasis={"n_steps": 2000, "pass_steps": 1000}), cwd=tmp_path)
    visterm("export", "--to", "pixels,npz", "--learner", "oasis", "--output", "out", cwd=tmp_path)
    (tmp_path / "out").rename(tmp_path / "photos-oasis")
    write_images(tmp_path, ["photo.jpg"])
    told = prepared(tmp_path / "photo.jpg", repository)
    (image,) = told["session"].get_inputs()
    assert (image.name, image.type, image.shape) == ("image", "tensor(uint8)", ["n", 32, 32, 3])
    (answer,) = json_of("search", "photo.jpg", "-k", 10, "--learner", "oasis", cwd=tmp_path)
    assert [row["path"] for row in answer["results"]] == told["paths"].tolist()
    np.testing.assert_allclose(
        [row["score"] for row in answer["results"]], told["scores"][told["best"]], rtol=1e-4, atol=1e-5
    )


def test_pixels_of_a_run_without_network_are_refused(trained):
    line = refused("export", "--to", "pixels", "--run", "made", "--learner", "cosine", cwd=trained)
    assert "run made has no network" in line


BLOCKS = ("NumPy", "FAISS", "ONNX Runtime", "usearch", "Qdrant", "Milvus")
N_QUERIES = 200


@pytest.fixture(scope="module")
def exported(data, tmp_path_factory):
    """The folder in which the lines of README.md run: photos of flowers, OASIS on the network's vectors."""
    folder = tmp_path_factory.mktemp("documented")
    for kind in sorted((data / "flowers").iterdir()):
        (folder / "photos" / kind.name).mkdir(parents=True)
        for file in sorted(kind.iterdir())[:24]:
            (folder / "photos" / kind.name / file.name).symlink_to(file)
    visterm("features", "photos", "--deep", cwd=folder)
    visterm("train", "--set", "oasis.n_steps=100000", cwd=folder)
    visterm("export", "--to", "npz,onnx,parquet,faiss", cwd=folder)
    opened, similarity, _ = best(folder / "runs/photos", "oasis")
    np.save(folder / "queries.npy", np.array(opened.X[:N_QUERIES]))
    with np.load(folder / "photos-oasis/similarity.npz") as arrays:
        ids = arrays["id"]
    return folder, ids, similarity.similarity(opened.X[:N_QUERIES], opened.X)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("heading", BLOCKS)
def test_the_lines_of_the_documentation_run_without_visterm(heading, exported, repository):
    peers = pytest.importorskip("benchmarks.peers", reason="benchmarks lie in the repository")
    folder, ids, expected = exported
    section = (repository / "plugins/export/README.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    packages = ["usearch==2.26.6", "qdrant-client==1.20.0", "setuptools"]
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        assert "visterm" not in block
        left = "outputs |= {n: globals()[n] for n in ('ids', 'scores', 'q', 'sides') if n in globals()}"
        script = f"import os\nos.chdir(str(inputs['folder']))\n{block}\n{left}"
        try:
            with outside():
                found = peers.run_in("export", packages, script, {"folder": np.array(str(folder))}, shared=True)
        except peers.PeerError as error:
            if "Could not find a version" in str(error) or "No matching distribution" in str(error):
                pytest.skip("no package index to fetch the indexes from")
            raise
        if heading == "ONNX Runtime":
            np.testing.assert_allclose(found["q"] @ found["sides"].T, expected[:, :N_QUERIES], atol=1e-5)
            continue
        place = {image: row for row, image in enumerate(ids.tolist())}
        columns = np.vectorize(place.get)(found["ids"].astype(int))
        assert columns.shape == (N_QUERIES, 10)
        tenth = np.sort(expected, axis=1)[:, -10]
        own = np.take_along_axis(expected, columns, axis=1)
        among_best = own >= tenth[:, None] - 1e-5
        assert among_best.mean() > 0.97 if heading == "usearch" else among_best.all()
        if heading != "NumPy":
            np.testing.assert_allclose(found["scores"], own, atol=1e-5)


def test_names_that_are_not_utf8_are_escaped():
    from visterm.plugins.export.export import _utf8

    assert _utf8("sea/\udcff.jpg") == "sea/\\xff.jpg"
    assert json.dumps(_utf8("süß.jpg"), ensure_ascii=False) == '"süß.jpg"'
