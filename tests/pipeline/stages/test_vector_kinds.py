"""Runs on vectors of one's own: those of an ONNX model, and tables of vectors that were made elsewhere."""

import csv
import json
import os
import shutil
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import cv2
import numpy as np
import pytest
import scipy.sparse as sp
from running import catalogue_rows, json_of, refused, set_all, visterm

from visterm.features import OnnxEmbedder, read_image
from visterm.learners import Blend, load_learner
from visterm.pipeline import Searcher
from visterm.pipeline.store import vectors
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.checksums import file_crc32
from visterm.pipeline.store.files import file_sha256, write_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import load_extractor
from visterm.teaching import feedback as update
from visterm.teaching import overview
from visterm.teaching.batches import collect_batches, learn_batch, prepare_learner
from visterm.teaching.feedback import FeedbackTrainer

onnx = pytest.importorskip("onnx")

CLASSES = ("apple", "pear", "plum", "quince")
NAMES = [f"{name}/{i}.jpg" for name in CLASSES for i in range(10)]
LEARNERS = ("oasis", "aroma", "wsabie", "musl")
SMALL = {
    "wsabie": {"n_components": 8},
    "musl": {"n_metrics": 2, "n_bits": 8, "negatives_per_example": 20},
    "compute": {"n_jobs": 1, "segment_size": 16},
}
for name in LEARNERS[:3]:
    SMALL.setdefault(name, {}).update(n_steps=3000, pass_steps=1000)


def small(**others):
    return set_all(**SMALL, **others)


def halved(vectors):
    """What float16 keeps of float32 numbers."""
    return vectors.astype(np.float16).astype(np.float32)


def rows_by_path(folder):
    searcher = Searcher(folder)
    return dict(zip([image.path for image in searcher.images], searcher.X, strict=True))


def test_a_run_keeps_the_white_of_its_files_of_more_than_eight_bits(tmp_path, write_images):
    write_images(tmp_path / "photos", NAMES[:20])
    for file in (tmp_path / "photos").rglob("*.jpg"):
        levels = cv2.imread(str(file)).astype(np.uint16) * 16
        cv2.imwrite(str(file.with_suffix(".png")), levels >> (3 if file.stem in "12" else 0))
        file.unlink()
    said = visterm("features", "photos", *small(features={"n_visterms": 20}), cwd=tmp_path).stderr
    assert "files of more than 8 bits: white is 4,095, as half of them need it" in said
    assert "of 12 files of more than 8 bits need less and stay dim, such as" in said
    run = Run(tmp_path / "runs/photos")
    assert run.record(run.extractor)["reading"] == {"version": 3, "white": 4095, "longest": 2.5}
    extractor = load_extractor(run.extractor / "files", "")
    dim, bright = (extractor.read(tmp_path / f"photos/apple/{name}.png").pixels for name in (1, 0))
    assert dim.max() < 64 < bright.max()

    # one made before reads as it did, and is up to date
    file = run.extractor / "files/extractor.json"
    saved, record = json.loads(file.read_text()), json.loads((run.extractor / "record.json").read_text())
    del saved["settings"]["reading"], saved["settings"]["white"], record["reading"]
    file.write_text(json.dumps(saved | {"format": 5}))
    record["sizes"]["files/extractor.json"] = file.stat().st_size
    record["crc32"]["files/extractor.json"] = zlib.crc32(file.read_bytes())
    write_record(run.extractor / "record.json", record)
    assert json_of("features", "photos", cwd=tmp_path)["extracted"] == 0
    load_extractor.cache_clear()
    assert load_extractor(run.extractor / "files", "").read(tmp_path / "photos/apple/0.png").pixels.max() <= 15
    assert json_of("features", "photos", "--force", cwd=tmp_path)["extracted"] == 20
    load_extractor.cache_clear()
    assert load_extractor(run.extractor / "files", "").white == 4095


@pytest.fixture(scope="module")
def finished(tmp_path_factory, write_images, write_model):
    """A folder with images, a model, and a run of them with all learners trained and evaluated."""
    folder = tmp_path_factory.mktemp("onnx")
    write_images(folder / "fruit", NAMES)
    write_model(folder / "model.onnx", 32)
    by_model = {"features": {"kind": "onnx", "onnx.model": "model.onnx", "onnx.keep": 0.9}}
    visterm("features", "fruit", *small(**by_model), cwd=folder)
    visterm("train", "--learner", ",".join(LEARNERS), cwd=folder)
    visterm("evaluate", "--learner", ",".join(LEARNERS), cwd=folder)
    return folder


def test_the_collection_holds_the_vectors_of_the_model(finished, monkeypatch):
    embedder = OnnxEmbedder(finished / "model.onnx", keep=0.9).fit()
    rows = rows_by_path(finished / "runs/fruit")
    assert list(rows) == sorted(NAMES)
    for path, row in rows.items():
        np.testing.assert_array_equal(row, halved(embedder.transform([finished / "fruit" / path])[0]))
    segments = sorted((finished / "runs/fruit/collection/segments").iterdir())
    assert len(segments) == 3
    for segment in segments:
        assert json.loads((segment / "record.json").read_text())["kind"] == "dense"
        assert np.load(segment / "vectors.npy", mmap_mode="r").dtype == np.float16
    record = json.loads((finished / "runs/fruit/extractor/record.json").read_text())
    assert record["inputs"] == {"model": embedder.sha256_}
    assert record["n_features"] == 16
    run = Run(finished / "runs/fruit")
    with closing(Collection(run.collection)) as collection:
        images = collection.images()
        whole = vectors.mapped_vectors(run, collection, images)
        monkeypatch.setattr(vectors, "_AT_ONCE", 7)
        mapped = vectors.mapped_vectors(run, collection, images)
    np.testing.assert_array_equal(mapped, whole)
    assert whole.flags.writeable
    assert not mapped.flags.writeable


def test_every_learner_is_measured_in_one_report_and_annotates(finished):
    folder = finished / "runs/fruit/evaluations" / "+".join(LEARNERS)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert list(metrics["systems"]) == [*LEARNERS, "cosine", "chance"]
    for name in (*LEARNERS, "cosine"):
        figures = metrics["systems"][name]
        assert metrics["systems"]["chance"]["map"] < figures["map"] <= 1, name
        assert figures["knn_accuracy"] > 0.4, name
    report = (folder / "report.html").read_text()
    assert "data:image/webp" in report
    assert "model: " in report
    assert len(json_of("annotate", "fruit/plum/1.jpg", "-k", 2, cwd=finished)[0]["labels"]) == 2
    assert len(json_of("search", "--label", "plum", "-k", 3, cwd=finished)[0]["results"]) == 3
    line = refused("explain", "fruit/pear/1.jpg", "pear/2.jpg", "--learner", "oasis", cwd=finished)
    assert "its vectors are not the mean over the cells of a map, which explanations need" in line


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("learner", [*LEARNERS, "cosine"])
def test_search_embeds_the_query_with_the_same_model(finished, tmp_path, learner):
    shutil.copy(finished / "fruit/pear/3.jpg", tmp_path / "q.jpg")  # a copy, so that nothing is left out
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    answers = json_of("search", tmp_path / "q.jpg", "fruit/pear/3.jpg", "-k", 5, "--learner", learner, cwd=finished)
    copied, own = (answer["results"] for answer in answers)
    assert [row["rank"] for row in copied] == [1, 2, 3, 4, 5]
    assert all(row["labels"] == [os.path.dirname(row["path"])] for row in copied)
    scores = {row["path"]: row["score"] for row in copied}
    assert "pear/3.jpg" not in {row["path"] for row in own}
    assert all(scores.get(row["path"], row["score"]) == row["score"] for row in own)
    if learner == "cosine":
        assert copied[0]["path"] == "pear/3.jpg"
        assert copied[0]["score"] == pytest.approx(1, abs=1e-6)
    else:
        model = load_learner(finished / "runs/fruit/learners" / learner / "files")
        rows = rows_by_path(finished / "runs/fruit")
        query = halved(
            OnnxEmbedder(finished / "model.onnx", keep=0.9).fit().transform([read_image(tmp_path / "q.jpg")])
        )
        labels = np.array([os.path.dirname(path) for path in rows]) if learner == "musl" else None
        scores = Blend(model).similarity(query, np.stack(list(rows.values())), labels)[0]
        expected = dict(zip(rows, scores, strict=True))
        for row in copied:
            assert row["score"] == pytest.approx(expected[row["path"]], abs=1e-4)
    bad = visterm("search", tmp_path / "bad.jpg", "--learner", learner, cwd=finished, check=2)
    assert "bad.jpg: not an image" in bad.stderr


def test_a_second_run_does_nothing_and_new_images_are_embedded(mine, write_images):
    again = json_of("features", "fruit", cwd=mine)
    assert again["extracted"] == 0
    write_images(mine / "fruit", ["pear/new.jpg"])
    (mine / "fruit/pear/bad.jpg").write_bytes(b"no image")
    (mine / "model.onnx").unlink()  # the run has its own
    before = rows_by_path(mine / "runs/fruit")
    again = json_of("features", "fruit", cwd=mine)
    assert (again["added"], again["extracted"], again["skipped"]) == (2, 1, 1)
    after = rows_by_path(mine / "runs/fruit")
    assert set(after) - set(before) == {"pear/new.jpg"}
    answers = json_of("search", "fruit/pear/new.jpg", cwd=mine)
    assert len(answers[0]["results"]) == 10


def test_another_model_makes_everything_again(mine, write_model):
    write_model(mine / "other.onnx", 32, size=12, seed=1)
    other = json_of("features", "fruit", "--set", "features.onnx.model=other.onnx", cwd=mine)
    assert other["extracted"] == 40
    assert Searcher(mine / "runs/fruit").X.shape == (40, 12)
    assert "was trained on other features" in refused("search", "fruit/pear/1.jpg", cwd=mine)
    info = json_of("info", cwd=mine)
    assert info["vectors"] == f"of 12 numbers in float16, made by {mine / 'other.onnx'}"


def split(source, file):
    """Write a model with its weights in weights.bin beside it."""
    file.parent.mkdir(exist_ok=True)
    (file.parent / "weights.bin").unlink(missing_ok=True)
    onnx.save(onnx.load(source), file, save_as_external_data=True, location="weights.bin", size_threshold=0)


@pytest.fixture
def beside(tmp_path, write_images, write_model):
    """A run of a model whose weights lie in a second file; a stranger's weights lie in the current folder."""
    write_images(tmp_path / "fruit", NAMES[:6])
    for seed in (0, 1):
        write_model(tmp_path / f"{seed}.onnx", 32, seed=seed)
    split(tmp_path / "0.onnx", tmp_path / "models/m.onnx")
    split(tmp_path / "1.onnx", tmp_path / "stranger.onnx")
    section = {"kind": "onnx", "onnx.model": "models/m.onnx"}
    visterm("features", "fruit", *small(features=section), cwd=tmp_path)
    return tmp_path


def rows_are_those_of(folder, model):
    embedder = OnnxEmbedder(folder / model).fit()
    return all(
        np.array_equal(row, halved(embedder.transform([folder / "fruit" / path])[0]))
        for path, row in rows_by_path(folder / "runs/fruit").items()
    )


def test_weights_in_a_second_file_are_part_of_the_model(beside):
    assert rows_are_those_of(beside, "0.onnx")
    assert json_of("features", "fruit", cwd=beside)["extracted"] == 0
    split(beside / "1.onnx", beside / "models/m.onnx")  # exported again: the graph is the same
    again = visterm("features", "fruit", cwd=beside)
    assert "run fruit: made with another model; its vectors are made again" in again.stderr
    assert rows_are_those_of(beside, "1.onnx")
    (beside / "models/weights.bin").unlink()
    assert "m.onnx: its weights are missing: put the file weights.bin into" in refused("features", "fruit", cwd=beside)
    shutil.rmtree(beside / "models")  # the run has its own
    (beside / "moved").mkdir()
    (beside / "runs").rename(beside / "moved/runs")
    shutil.copy(beside / "fruit" / NAMES[0], beside / "moved/q.jpg")
    load_extractor.cache_clear()  # as in a process of its own
    results = json_of("search", "q.jpg", cwd=beside / "moved")[0]["results"]
    assert results[0]["path"] == NAMES[0]
    assert results[0]["score"] == pytest.approx(1, abs=1e-6)


def test_a_run_that_left_weights_out_says_so_and_is_rebuilt(beside):
    extractor = beside / "runs/fruit/extractor"
    record, embedder = (json.loads((extractor / name).read_text()) for name in ("record.json", "files/embedder.json"))
    (extractor / "files/weights.bin").unlink()
    del embedder["fitted"]["resizing"]
    (extractor / "files/embedder.json").write_text(json.dumps(embedder))
    record["inputs"] = {"model": file_sha256(beside / "models/m.onnx")}
    for key, measure in (("sizes", lambda file: file.stat().st_size), ("crc32", file_crc32)):
        record[key] = {name: measure(extractor / name) for name in record[key] if "weights" not in name}
    write_record(extractor / "record.json", record)
    load_extractor.cache_clear()  # as in a process of its own
    said = refused("search", f"fruit/{NAMES[0]}", cwd=beside)
    assert "an earlier version left its weights out" in said
    assert said.endswith("run 'visterm features --force --run fruit' to rebuild it")
    again = visterm("features", "fruit", cwd=beside)
    assert "made by a version that looked for the weights of the model in the current folder" in again.stderr
    assert rows_are_those_of(beside, "0.onnx")
    assert json_of("search", f"fruit/{NAMES[0]}", cwd=beside)[0]["results"]


def test_a_file_of_preprocessing_is_read_by_inspect_and_noticed_by_features(beside):
    settings = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 32, "width": 32}}
    (beside / "models/preprocessor_config.json").write_text(json.dumps(settings))
    shown = visterm("model", "inspect", "models/m.onnx", cwd=beside).stdout
    assert "preprocess: as" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("use it:"))
    assert "--set features.onnx.resize=stretch --set features.onnx.layer=flat" in line.replace(
        "--set features.onnx.preprocess=tf ", ""
    )
    said = visterm("features", "fruit", "--force", cwd=beside).stderr
    assert "preprocessor_config.json asks for another mean, scale or order of channels" in said
    said = visterm("features", "fruit", *line.split()[5:], "--force", cwd=beside).stderr
    assert "preprocessor_config.json" not in said
    assert "stretch to 32 x 32, rgb, preprocess tf" in said


def test_a_changed_setting_counts_and_a_moved_model_does_not(mine):
    os.rename(mine / "model.onnx", mine / "moved.onnx")
    assert json_of("features", "fruit", "--set", "features.onnx.model=moved.onnx", cwd=mine)["extracted"] == 0
    setting = ["--set", "features.onnx.unit=false"]
    assert "made with another configuration" in refused("train", *setting, cwd=mine)
    assert json_of("features", "fruit", *setting, cwd=mine)["extracted"] == 40


def test_models_and_settings_that_are_refused_leave_nothing_behind(tmp_path, write_images, write_model):
    write_images(tmp_path / "fruit", NAMES[:4])
    write_model(tmp_path / "model.onnx")
    (tmp_path / "bad.onnx").write_bytes((tmp_path / "model.onnx").read_bytes()[:900])

    for given, message in (
        ({"kind": "onnx"}, "kind: onnx needs a model"),
        ({"onnx.model": "bad.onnx"}, "bad.onnx: not an ONNX model, or damaged"),
        ({"onnx.model": "none.onnx"}, "none.onnx: the model cannot be read (No such file or directory)"),
        ({"onnx.model": "model.onnx"}, "takes images of any size: set size"),
        ({"onnx.model": "model.onnx", "onnx.size": 32, "onnx.layer": "poled"}, "did you mean pooled?"),
        ({"onnx.model": "model.onnx", "onnx.resize": "tile"}, "features.onnx.resize"),
        ({"onnx.sise": 3}, "unknown key features.onnx.sise; did you mean size?"),
        ({"kind": None, "onnx.model": "model.onnx"}, "used with kind: onnx only"),
    ):
        section = {key: value for key, value in ({"kind": "onnx"} | given).items() if value is not None}
        assert message in refused("features", "fruit", *small(features=section), cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_missing_runtime_is_named(finished, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    load_extractor.cache_clear()  # as in a process of its own
    install = f"{sys.executable} -m pip install 'onnx>=1.17' 'onnxruntime>=1.21'"
    needed = f"visterm: features.kind=onnx needs onnxruntime: {install}"
    shutil.copy(finished / "fruit/pear/3.jpg", tmp_path / "q.jpg")
    assert refused("search", tmp_path / "q.jpg", cwd=finished) == needed
    assert refused("features", "fruit", "--run", "new", "--config", "runs/fruit/config.yaml", cwd=finished) == needed
    assert not (finished / "runs/new/extractor").exists()


def test_a_damaged_model_of_a_run_is_one_line(mine):
    model = mine / "runs/fruit/extractor/files/model.onnx"
    model.write_bytes(model.read_bytes()[:-100])
    line = refused("search", "fruit/pear/1.jpg", cwd=mine)
    assert "model.onnx does not have the checksum it was written with" in line
    assert "visterm features" in line
    visterm("features", "fruit", cwd=mine)
    assert len(json_of("search", "fruit/pear/1.jpg", cwd=mine)[0]["results"]) == 10


@pytest.mark.slow
def test_workers_give_the_same_vectors(mine, finished):
    given = ("--run", "two", "--config", "runs/fruit/config.yaml", "--set", "compute.n_jobs=2")
    visterm("features", "fruit", *given, cwd=mine)
    one, two = rows_by_path(finished / "runs/fruit"), rows_by_path(mine / "runs/two")
    for path, row in one.items():
        np.testing.assert_array_equal(two[path], row)


def test_adding_removing_and_compacting(mine, tmp_path, write_images):
    write_images(mine / "elsewhere", ["quince/new.jpg"])
    added = json_of("add", "elsewhere/quince/new.jpg", "--run", "fruit", "--label", "quince", cwd=mine)
    assert (added["added"], added["n_images"]) == (1, 41)
    visterm("remove", "pear/0.jpg", "--run", "fruit", cwd=mine)
    before = rows_by_path(mine / "runs/fruit")
    visterm("compact", "--run", "fruit", cwd=mine)
    after = rows_by_path(mine / "runs/fruit")
    assert list(after) == list(before)
    for path, row in before.items():
        np.testing.assert_array_equal(after[path], row)
    assert len(list((mine / "runs/fruit/collection/segments").iterdir())) == 1


def made_up(seed=0):
    """Vectors of the names above whose classes differ, float64 (40, 12)."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.normal(size=(4, 12)), 10, axis=0) + rng.normal(size=(40, 12))


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def table(tmp_path):
    """A folder with vectors and ids, no images."""
    np.save(tmp_path / "fruit.npy", made_up())
    (tmp_path / "ids.txt").write_text("\n".join(NAMES))
    return tmp_path


KEPT = ["--set", "collection.vectors.unit=false"]


def take(folder, *more):
    return json_of("features", "--vectors", "fruit.npy", "--ids", "ids.txt", *small(), *more, cwd=folder)


def test_from_a_table_to_a_report_and_a_search(table):
    assert take(table)["extracted"] == 40
    for path, row in rows_by_path(table / "runs/fruit").items():
        np.testing.assert_array_equal(row, halved(unit(made_up())[NAMES.index(path)]))
    visterm("train", "--learner", ",".join(LEARNERS), cwd=table)
    visterm("evaluate", "--learner", "all", cwd=table)
    folder = table / "runs/fruit/evaluations" / "+".join(LEARNERS)
    metrics = json.loads((folder / "metrics.json").read_text())
    for name in (*LEARNERS, "cosine"):
        assert metrics["systems"][name]["map"] > metrics["systems"]["chance"]["map"], name
    assert ", cannot be read" in (folder / "report.html").read_text()  # names in the place of pictures
    for learner in (*LEARNERS, "cosine"):
        answers = json_of("search", "pear/3.jpg", "--learner", learner, cwd=table)
        paths = [row["path"] for row in answers[0]["results"]]
        assert len(paths) == 10
        assert "pear/3.jpg" not in paths
    number = next(row["id"] for row in answers[0]["results"] if row["path"] == paths[0])
    by_id = json_of("search", f"id:{number}", cwd=table)
    assert paths[0] not in [row["path"] for row in by_id[0]["results"]]
    info = json_of("info", cwd=table)
    assert info["vectors"] == f"of 12 numbers in float16, read from {table / 'fruit.npy'}"
    assert "visterms" not in info  # which were 0


def test_further_columns_of_a_table_of_vectors_are_fields(table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = [f"{name},{'ab'[i % 2]},2024-05-{i % 28 + 1:02}" for i, name in enumerate(NAMES)]
    (table / "ids.csv").write_text("\n".join(["id,shop,date", *lines]))
    columns = {
        "id": NAMES,
        "vector": made_up().tolist(),
        "price": range(40),
        "bytes": [b"x"] * 40,
        "split": ["", "test"] * 20,
    }
    pq.write_table(pa.table(columns), table / "fruit.parquet")
    said = visterm("features", "--vectors", "fruit.parquet", "--ids", "ids.csv", *small(), cwd=table).stderr
    assert f"; fields shop, date, price, split; no id, such as {NAMES[0]}, is an image below {table}; " in said
    assert {split for _, split in catalogue_rows(table, "path, split")} == {None, "test"}
    where = ("--where", "shop=b", "--after", "2024-05-07", "--where", "price<9")
    (answer,) = json_of("search", "id:1", *where, cwd=table)
    assert [result["path"] for result in answer["results"]] == [NAMES[7]]


def test_settings_without_effect_are_said_by_the_stage_that_would_use_them(table):
    rows = [f"{name},{'test' if i % 3 else 'train'}" for i, name in enumerate(NAMES)]
    (table / "splits.csv").write_text("\n".join(["path,split", *rows]))
    settings = ("labels=splits.csv", "label_column=none", "exclude=[pear]")
    asked = [part for setting in settings for part in ("--set", f"collection.{setting}")]
    base = ("features", "--vectors", "fruit.npy", "--ids", "ids.txt", *small(), *asked, "--set", "split.seed=3")
    for _ in range(2):  # also where nothing changes
        text = visterm(*base, cwd=table).stderr
        assert "collection.exclude: no effect as vectors come from collection.vectors.file" in text
        assert "split.seed: no effect, as folders or a table name the splits" in text
    assert "oasis.click_cutoff: no effect" in visterm("train", "--set", "oasis.click_cutoff=0.5", cwd=table).stderr
    assert "evaluate.class_splits: no" in visterm("evaluate", "--set", "evaluate.class_splits=2", cwd=table).stderr


def test_the_map_of_whitened_vectors_has_the_neighbours_of_the_learner(table):
    take(table)
    visterm("train", cwd=table)
    searcher = Searcher(table / "runs/fruit")
    assert searcher.learner("oasis").is_whitened()
    learned = overview._projected(searcher, lambda: overview._look(searcher))
    np.testing.assert_allclose(np.linalg.norm(learned, axis=1), 1, atol=1e-5)
    near = overview._nearest(learned, 5)[0]
    exact = searcher.index("oasis").search(searcher.X, k=5, exclude=np.arange(40)).indices
    shared = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(near.tolist(), exact.tolist(), strict=True)])
    assert shared > 0.6  # by chance 0.13


@pytest.mark.parametrize("learner", ["oasis", "aroma"])
def test_relevance_feedback_keeps_whitening_and_share(table, monkeypatch, learner):
    """A version is what partial_fit makes of the whole base: of whitened vectors, all of W changes."""
    monkeypatch.setattr(update, "MAX_FALL", 1.0)
    vectors = made_up()
    vectors[:10, 3] = vectors[10:20, 3] = 0  # an entry that none of the images below has
    np.save(table / "fruit.npy", vectors)
    take(table)
    visterm("train", "--learner", learner, cwd=table)
    run = Run(table / "runs/fruit")
    base = load_learner(run.learner(learner) / "files")
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    by_path = {image.path: image for image in searcher.images}
    for path, mark in (("apple/1.jpg", -1), ("apple/2.jpg", 1), ("pear/3.jpg", 1), ("pear/4.jpg", -1)):
        trainer.marks.add(by_path["apple/0.jpg"].sha256, by_path[path], mark, learner=learner)
    plain = load_learner(run.learner(learner) / "files")
    prepare_learner(plain, learner)
    for batch in collect_batches(run, trainer.marks, learner).batches:
        learn_batch(plain, batch)
    answer = trainer.update(learner)
    assert answer["accepted"], answer["reason"]
    updated = trainer.load(learner)
    assert (updated.learned_weight_, updated.scale_) == (base.learned_weight_, base.scale_)
    for name in ("mean_", "whitening_"):
        np.testing.assert_array_equal(getattr(updated, name), getattr(base, name))
    array = {"oasis": "W_", "aroma": "distribution_"}[learner]
    np.testing.assert_array_equal(getattr(updated, array), getattr(plain, array))
    assert not np.array_equal(getattr(updated, array), getattr(base, array))
    assert Searcher(run).share(learner) == base.learned_weight_
    trainer.undo(learner)
    undone = trainer.load(learner)
    np.testing.assert_array_equal(getattr(undone, array), getattr(base, array))
    assert undone.is_whitened()
    assert undone.learned_weight_ == base.learned_weight_


def test_vectors_as_queries_and_those_that_cannot_be_answered(table, write_images):
    take(table)
    np.save(table / "one.npy", made_up()[13] * 7)
    np.save(table / "two.npy", made_up()[[0, 39]].astype(np.float32))
    answers = json_of("search", "two.npy", "one.npy", "quince/2.jpg", "--learner", "cosine", cwd=table)
    assert [answer["query"] for answer in answers] == ["two.npy[0]", "two.npy[1]", "one.npy", "quince/2.jpg"]
    assert [answer["results"][0]["path"] for answer in answers[:3]] == [NAMES[0], NAMES[39], NAMES[13]]
    write_images(table, ["other.jpg"])
    np.save(table / "long.npy", np.ones(13))
    queries = ("other.jpg", "long.npy", "id:999", "pear/none.jpg")
    answers = json_of("search", *queries, "--learner", "cosine", cwd=table, check=2)
    errors = [answer["error"] for answer in answers]
    assert "this run has imported vectors and nothing to make vectors with: search with one of its images" in errors[0]
    assert errors[1].startswith("vectors of 13 numbers; those of the run have 12")
    assert "no image of this id" in errors[2]
    assert "imported vectors" in errors[3]


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_images_beside_the_vectors(table, write_images):
    """Where ids are paths of images, an image file asks with its vector, and the report shows it."""
    write_images(table / "photos", NAMES)
    (table / "ids.txt").write_text("\n".join(str(table / "photos" / name) for name in NAMES))  # as many tools write it
    visterm("features", "photos", "--run", "fruit", "--vectors", "fruit.npy", "--ids", "ids.txt", *small(), cwd=table)
    assert set(rows_by_path(table / "runs/fruit")) == set(NAMES)
    answers = json_of("search", "photos/plum/4.jpg", "--learner", "cosine", cwd=table)
    expected = np.argsort(-unit(made_up()) @ unit(made_up())[24], kind="stable")[1:]
    assert [row["path"] for row in answers[0]["results"]] == [NAMES[i] for i in expected[:10]]
    visterm("evaluate", "--learner", "cosine", cwd=table)
    assert "data:image/webp" in (table / "runs/fruit/evaluations/cosine/report.html").read_text()


def test_a_changed_table_takes_over_what_differs(table):
    take(table)
    before = {image.path: (image.id, image.split) for image in Searcher(table / "runs/fruit").images}
    assert take(table)["extracted"] == 0
    changed = np.vstack([made_up()[1:], np.ones((1, 12))])
    changed[4] = made_up(seed=1)[0]
    np.save(table / "fruit.npy", changed)
    (table / "ids.txt").write_text("\n".join([*NAMES[1:], "pear/new.jpg"]))
    again = json_of("features", "--run", "fruit", cwd=table)
    assert [again[key] for key in ("added", "changed", "removed", "extracted")] == [1, 1, 1, 2]
    after = {image.path: (image.id, image.split) for image in Searcher(table / "runs/fruit").images}
    assert set(after) == {*NAMES[1:], "pear/new.jpg"}
    assert all(after[name] == before[name] for name in NAMES[1:] if name != NAMES[5])
    for path, row in rows_by_path(table / "runs/fruit").items():
        np.testing.assert_array_equal(row, halved(unit(changed)[[*NAMES[1:], "pear/new.jpg"].index(path)]))


def test_another_length_or_scale_takes_all_over_again(table):
    take(table)
    visterm("train", cwd=table)
    np.save(table / "fruit.npy", made_up()[:, :7])
    assert take(table)["extracted"] == 40
    assert Searcher(table / "runs/fruit").X.shape == (40, 7)
    assert "was trained on other features" in refused("search", NAMES[0], cwd=table)
    assert take(table, "--set", "collection.vectors.unit=false")["extracted"] == 40
    for path, row in rows_by_path(table / "runs/fruit").items():
        np.testing.assert_allclose(row, made_up()[NAMES.index(path), :7], rtol=2**-11)


def test_another_precision_takes_all_over_again(table):
    take(table)
    run = table / "runs/fruit"
    assert json.loads((run / "extractor/record.json").read_text())["config"]["features"] == {"precision": "float16"}
    told = visterm("features", "--run", "fruit", "--set", "features.precision=float32", cwd=table).stderr
    assert 'made with features.precision="float16", now "float32"; its vectors are made again' in told
    for path, row in rows_by_path(run).items():
        np.testing.assert_allclose(row, unit(made_up())[NAMES.index(path)], atol=1e-7)
    assert json_of("info", cwd=table)["vectors"] == f"of 12 numbers in float32, read from {table / 'fruit.npy'}"
    assert take(table, "--set", "features.precision=float16")["extracted"] == 40


def test_a_run_in_float32_stays_so(table):
    take(table, "--set", "features.precision=float32")
    run = table / "runs/fruit"
    before = rows_by_path(run)
    visterm("train", cwd=table)
    np.save(table / "fruit.npy", np.vstack([made_up(), np.ones((1, 12))]))
    (table / "ids.txt").write_text("\n".join([*NAMES, "pear/new.jpg"]))
    assert json_of("features", "--run", "fruit", cwd=table)["extracted"] == 1
    after = rows_by_path(run)
    assert all(np.array_equal(after[path], row) for path, row in before.items())
    assert {np.load(file).dtype for file in run.glob("collection/segments/*/vectors.npy")} == {np.dtype(np.float32)}


def test_vectors_that_are_nearly_equal_are_said(tmp_path):
    """Numbers of another scale outweigh all others in a cosine."""
    X = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    (tmp_path / "x.txt").write_text("".join(f"{i % 3}/{i}.jpg\n" for i in range(30)))
    for column, told in ((1e6, True), (1.0, False)):
        np.save(tmp_path / "x.npy", np.column_stack([X, np.full(30, column, np.float32)]))
        said = visterm("features", "--vectors", "x.npy", "--ids", "x.txt", cwd=tmp_path).stderr
        line = "x.npy are nearly equal: the cosine of any two of a sample is over 0.999; if one number outweighs"
        assert (line in said) == told, said


@pytest.mark.parametrize("number", [1e5, 1e-7])
def test_numbers_that_float16_cannot_hold_are_refused(table, number):
    vectors = made_up()
    vectors[7] *= number
    np.save(table / "fruit.npy", vectors)
    line = refused("features", "--vectors", "fruit.npy", "--ids", "ids.txt", *KEPT, cwd=table)
    assert f"{NAMES[7]}: the largest number of its vector is " in line
    assert "keep float32 with --set features.precision=float32" in line
    assert take(table, *KEPT, "--set", "features.precision=float32")["extracted"] == 40
    scaled = ["--set", "collection.vectors.unit=true", "--set", "features.precision=float16"]
    assert take(table, *scaled)["extracted"] == 40


def test_sparse_vectors_stay_sparse(table):
    S = sp.csr_matrix(np.maximum(made_up() - 0.5, 0))
    sp.save_npz(table / "fruit.npz", S)
    visterm("features", "--vectors", "fruit.npz", "--ids", "ids.txt", *small(), cwd=table)
    searcher = Searcher(table / "runs/fruit")
    assert sp.issparse(searcher.X)
    order = [NAMES.index(image.path) for image in searcher.images]
    np.testing.assert_allclose(searcher.X.toarray(), unit(S.toarray())[order], atol=1e-6)
    visterm("train", cwd=table)
    visterm("evaluate", cwd=table)
    assert len(json_of("search", NAMES[0], cwd=table)[0]["results"]) == 10


def test_labels_of_the_table_and_of_a_file(table):
    labels = [f"{name[0]}|{i % 3}" if i != 39 else "nan" for i, name in enumerate(NAMES)]
    labels[38] = "KÃ¤fer"
    with open(table / "ids.csv", "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([("path", "kind"), *zip([f"<{i}>" for i in range(40)], labels, strict=True)])
    columns = {"vectors.id_column": "path", "vectors.label_column": "kind"}
    arguments = ("features", "--vectors", "fruit.npy", "--ids", "ids.csv", *small(collection=columns))
    said = visterm(*arguments, cwd=table).stderr
    assert "1 label without a value, such as nan; skipped" in said
    assert "1 label that an earlier tool probably garbled, such as KÃ¤fer (Käfer?); kept as written" in said
    image_labels = {image.path: image.labels for image in Searcher(table / "runs/fruit").images}
    assert image_labels == {f"<{i}>": {label: 1.0} if i != 39 else {} for i, label in enumerate(labels)}
    (table / "labels.csv").write_text("path,label\n<0>,x\n<0>,y\n<1>,x\n")
    visterm(*arguments, "--set", "collection.labels=labels.csv", cwd=table)
    image_labels = {image.path: image.labels for image in Searcher(table / "runs/fruit").images}
    assert {path: own for path, own in image_labels.items() if own} == {"<0>": {"x": 1.0, "y": 1.0}, "<1>": {"x": 1.0}}
    visterm(*arguments, "--set", "collection.labels=none", cwd=table)
    assert "no labelled training images" in refused("train", cwd=table)


def test_a_folder_of_clip_retrieval_is_one_command(tmp_path, write_images):
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_images(tmp_path / "photos/fruit", NAMES)
    for folder in ("img_emb", "text_emb", "metadata"):
        (tmp_path / "clip" / folder).mkdir(parents=True)
    for i in range(4):
        rows = slice(10 * i, 10 * i + 10)
        np.save(tmp_path / f"clip/img_emb/img_emb_{i}.npy", made_up()[rows].astype(np.float16))
        np.save(tmp_path / f"clip/text_emb/text_emb_{i}.npy", made_up(1)[rows].astype(np.float16))
        ids = [f"photos/fruit/{name}" for name in NAMES[rows]]  # as the command line of clip-retrieval named them
        pq.write_table(pa.table({"image_path": ids, "caption": ids}), tmp_path / f"clip/metadata/metadata_{i}.parquet")
    told = visterm("features", "photos/fruit", "--vectors", "clip", *small(), cwd=tmp_path)
    assert "vectors of 4 files, img_emb/img_emb_0.npy to img_emb/img_emb_3.npy; ids from column" in told.stderr
    assert list(rows_by_path(tmp_path / "runs/fruit")) == sorted(NAMES)
    for path, row in rows_by_path(tmp_path / "runs/fruit").items():
        expected = unit(made_up().astype(np.float16).astype(np.float64))[NAMES.index(path)]
        np.testing.assert_allclose(row, halved(expected), atol=1e-3)
    patterns = ("--vectors", "clip/img_emb/*.npy", "--ids", "clip/metadata/*.parquet")
    visterm("features", *patterns, *small(), cwd=tmp_path)  # the run is named after the folder of the pattern
    assert len(rows_by_path(tmp_path / "runs/img_emb")) == 40
    metadata = pa.table({"image_path": [str(tmp_path / "photos/fruit" / name) for name in NAMES]})
    pq.write_table(metadata, tmp_path / "ids.parquet")
    visterm("features", *patterns[:3], "ids.parquet", "--run", "absolute", *small(), cwd=tmp_path)
    assert Searcher(tmp_path / "runs/absolute").root == tmp_path / "photos/fruit"


def test_keys_of_shards_are_the_photos_of_these_names(tmp_path, write_images):
    names = [f"0000{i // 8}/0000{i // 8}{i:04}.jpg" for i in range(16)]  # of img2dataset
    write_images(tmp_path / "shards", [*names, "twice/000000001.jpg"])
    np.save(tmp_path / "v.npy", made_up()[:17])
    keys = [name[6:-4] for name in names]  # that clip-retrieval takes for paths
    (tmp_path / "ids.txt").write_text("\n".join([*keys, "gone"]))
    arguments = ("features", "shards", "--vectors", "v.npy", "--ids", "ids.txt", *small())
    told = visterm(*arguments, cwd=tmp_path).stderr
    assert "15 names by the base name without ending, such as 000000000" in told
    assert "1 name of several images, such as 000000001; skipped" in told
    expected = sorted([*names[:1], *names[2:], keys[1], "gone"])
    assert list(rows_by_path(tmp_path / "runs/shards")) == expected
    visterm(*arguments, cwd=tmp_path)  # nothing new
    assert list(rows_by_path(tmp_path / "runs/shards")) == expected
    (tmp_path / "shards").rename(tmp_path / "elsewhere")
    visterm("features", *arguments[2:6], "--run", "before", *small(), cwd=tmp_path)  # no photos: keys are names
    (tmp_path / "elsewhere").rename(tmp_path / "shards")
    visterm("features", *arguments[2:6], "--run", "before", *small(), cwd=tmp_path)
    assert list(rows_by_path(tmp_path / "runs/before")) == sorted([*keys, "gone"])


def test_photos_that_are_missing_do_not_decide_for_the_others(tmp_path, write_images):
    write_images(tmp_path / "photos", NAMES[2:])  # those of the first ids are gone
    np.save(tmp_path / "v.npy", made_up())
    for run, begin, end in (("folders", "photos/", ""), ("keys", "", ".jpg")):
        (tmp_path / "ids.txt").write_text("\n".join(begin + name.removesuffix(end) for name in NAMES))
        arguments = ("features", "photos", "--vectors", "v.npy", "--ids", "ids.txt", "--run", run, *small())
        told = visterm(*arguments, cwd=tmp_path).stderr
        gone = [name.removesuffix(end) for name in NAMES[:2]]
        assert f"; 2 of 40 ids, such as {gone[0]}, are no image below {tmp_path / 'photos'}\n" in told
        for _ in range(2):
            assert list(rows_by_path(tmp_path / "runs" / run)) == sorted([*gone, *NAMES[2:]])
            assert "(0 new, 0 changed, 0 removed)" in visterm(*arguments, cwd=tmp_path).stderr
        (tmp_path / "photos").rename(tmp_path / "unmounted")
        if run == "folders":  # what is known stays, though no file tells
            assert "no id, such as apple/0.jpg, is" in visterm("features", "--run", run, cwd=tmp_path).stderr
            assert list(rows_by_path(tmp_path / "runs" / run)) == sorted(NAMES)
        (tmp_path / "unmounted").rename(tmp_path / "photos")


def test_a_file_of_vectors_searches_a_run_of_a_network(mine):
    rows = rows_by_path(mine / "runs/fruit")
    np.save(mine / "query.npy", np.stack([rows["pear/3.jpg"], 2 * rows["pear/3.jpg"]]))
    np.save(mine / "wide.npy", np.ones(17, np.float32))
    answers = json_of("search", "query.npy", "fruit/plum/1.jpg", "--learner", "cosine", "-k", 3, cwd=mine)
    assert [answer["query"] for answer in answers] == ["query.npy[0]", "query.npy[1]", "fruit/plum/1.jpg"]
    assert answers[0]["results"][0]["path"] == "pear/3.jpg"
    assert answers[0]["results"] == answers[1]["results"]
    said = visterm("search", "wide.npy", "--learner", "cosine", cwd=mine, check=2).stderr
    assert "wide.npy: vectors of 17 numbers; those of the run have 16" in said


def test_parquet(table):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"embedding": made_up().tolist(), "image": NAMES}), table / "fruit.parquet")
    visterm("features", "--vectors", "fruit.parquet", *small(features={"precision": "float32"}), cwd=table)
    for path, row in rows_by_path(table / "runs/fruit").items():
        np.testing.assert_allclose(row, unit(made_up())[NAMES.index(path)], atol=1e-6)


WITH_NAN = made_up()
WITH_NAN[17, 3] = np.nan


@pytest.mark.parametrize(
    ("array", "ids", "message"),
    [
        (WITH_NAN, NAMES, "row 17 (from 0) holds NaN"),
        (made_up()[0], NAMES, "has shape (12,)"),
        (made_up(), NAMES[:39], "39 ids for 40 vectors"),
        (made_up(), [*NAMES[:39], NAMES[0]], "the id 'apple/0.jpg' is in rows 0 and 39"),
        (made_up(), [*NAMES[:39], "../out.jpg"], "the id '../out.jpg' is a path outside of"),
        (made_up(), [*NAMES[:39], "/etc/passwd"], "the id '/etc/passwd' is a path outside of"),
        (np.array([[object()] * 2] * 40), NAMES, "holds Python objects, which are not unpickled"),
        (np.arange(80).reshape(40, 2), NAMES, "holds int64, not float32"),
    ],
)
def test_tables_that_are_refused_leave_nothing_behind(tmp_path, array, ids, message):
    np.save(tmp_path / "fruit.npy", array, allow_pickle=True)
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    line = refused("features", "--vectors", "fruit.npy", "--ids", "ids.txt", *small(), cwd=tmp_path)
    assert message in line
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_images_that_is_not_there(table):
    for run in ("new", "fruit"):
        line = refused("features", "photoes", "--vectors", "fruit.npy", "--ids", "ids.txt", "--run", run, cwd=table)
        assert line == "visterm: photoes: no such folder; give the folder that holds the images"
        assert os.path.exists(table / "runs") == (run == "fruit")
        take(table)
    assert Searcher(table / "runs/fruit").root == table


def test_a_refused_table_leaves_a_run_as_it_was(table):
    take(table)
    before = rows_by_path(table / "runs/fruit")
    data = (table / "fruit.npy").read_bytes()
    (table / "fruit.npy").write_bytes(data[:-5])
    assert "fruit.npy: damaged or truncated" in refused("features", "--run", "fruit", cwd=table)
    np.save(table / "fruit.npy", made_up())
    (table / "ids.txt").write_text("\n".join(f"other{i}" for i in range(40)))
    assert "is a run of other images" in refused("features", "--run", "fruit", cwd=table)
    (table / "ids.txt").unlink()
    assert "ids.txt: cannot be read" in refused("features", "--run", "fruit", cwd=table)
    after = rows_by_path(table / "runs/fruit")
    assert list(after) == list(before)
    assert len(json_of("search", NAMES[0], "--learner", "cosine", cwd=table)) == 1
    (table / "ids.txt").write_text("\n".join(f"other{i}" for i in range(40)))
    visterm("features", "--run", "fruit", "--force", cwd=table)
    assert set(rows_by_path(table / "runs/fruit")) == {f"other{i}" for i in range(40)}


def test_settings_of_tables_that_do_not_fit(table):
    assert "vectors.ids names the vectors of vectors.file" in refused("features", ".", "--ids", "ids.txt", cwd=table)
    line = refused("features", "--vectors", "fruit.npy", cwd=table)
    assert "has no ids; give a file with one id per line: --ids ids.txt" in line
    line = refused("features", "--vectors", "fruit.npy", "--set", "collection.classes=[pear]", cwd=table)
    assert "classes chooses folders of images" in line


@pytest.mark.slow
def test_taking_over_that_was_killed_goes_on(table):
    """A kill between two segments: what is in the catalogue stays, the rest comes with the next call."""
    program = (
        "import sys, os; from pathlib import Path; import visterm.plugins.vectors.imported_vectors as e; "
        "from visterm.pipeline.store.catalogue import Collection as C; from visterm.pipeline.store.run import Run; "
        "from visterm.pipeline.stages.features import features; from visterm.pipeline.console import Console\n"
        "e.SEGMENT_BYTES = 4 * 12 * 8; n = 0; old = C.enter_segment\n"
        "def enter(*a):\n"
        "    global n; n += 1\n"
        "    if n == 3: os.kill(os.getpid(), 9)\n"
        "    old(*a)\n"
        "C.enter_segment = enter\n"
        "run = Run(Path('runs/fruit'))\n"
        "features(run, run.configure(None, ['collection.vectors.file=fruit.npy', 'collection.vectors.ids=ids.txt']), "
        "None, Console(quiet=True))"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=table, check=False)
    assert killed.returncode == -9
    with Collection(table / "runs/fruit/collection") as collection:
        assert collection.counts_by("status") == {"ok": 16, "pending": 24}
    assert take(table)["extracted"] == 24
    for path, row in rows_by_path(table / "runs/fruit").items():
        np.testing.assert_array_equal(row, halved(unit(made_up())[NAMES.index(path)]))
    with Collection(table / "runs/fruit/collection") as collection:
        assert len({image.segment for image in collection.images()}) == len(os.listdir(collection.segments))


def test_the_shipped_configuration_names_every_setting(repository: Path):
    from visterm.pipeline.config.loading import load_config

    config = load_config(repository / "configs/resnet50-onnx.yaml")
    assert config.features.kind == "onnx"
    assert config.features.onnx.model == str(repository / "configs/resnet50.onnx")


def test_a_damaged_segment_is_told_and_mended(table):
    take(table)

    def segment():
        (path,) = (table / "runs/fruit/collection/segments").glob("*/vectors.npy")
        return path

    file = segment()
    file.write_bytes(file.read_bytes()[:-8])
    assert "damaged segment" in refused("search", NAMES[0], "--learner", "cosine", cwd=table)
    assert take(table)["extracted"] == 40
    np.save(segment(), np.zeros((2, 3), np.float32))
    assert "damaged segment" in refused("search", NAMES[0], "--learner", "cosine", cwd=table)
