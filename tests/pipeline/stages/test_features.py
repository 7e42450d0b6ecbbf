"""The stage features with a codebook that is a forest, up to a search."""

import re
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from running import CLASSES, json_of, refused, visterm

from visterm.features import VistermExtractor, VistermWeighting
from visterm.learners import load_learner
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.records import read_record
from visterm.pipeline.store.run import Run

SETTINGS = """
features:
  n_visterms: 60
  codebook: {kind: forest, n_trees: 4, min_samples_leaf: 2}
oasis: {n_steps: 2000, pass_steps: 1000}
compute: {n_jobs: 1}
"""


@pytest.fixture
def fruit(finished, tmp_path):
    shutil.copytree(finished / "fruit", tmp_path / "fruit")
    (tmp_path / "forest.yaml").write_text(SETTINGS)
    return tmp_path


def by_forest(*settings, images="fruit"):
    return "features", images, "--config", "forest.yaml", *(part for text in settings for part in ("--set", text))


def test_a_forest_from_images_to_a_search(fruit):
    visterm(*by_forest(), cwd=fruit)
    run = Run(fruit / "runs/forest")
    extractor = VistermExtractor.load(run.extractor / "files")
    assert (extractor.codebook, extractor.n_trees, extractor.min_samples_leaf) == ("forest", 4, 2)

    # the trees have learned from labels of training images, without those of early stopping, and rows are their counts
    collection = Collection(run.collection)
    images = collection.images()
    counts = collection.counts(images).toarray()
    collection.close()
    held_out = read_record(run.extractor)["held_out"]
    train = [image for image in images if image.split == "train" and image.path not in held_out]
    paths = [fruit / "fruit" / image.path for image in train]
    y = [next(iter(image.labels)) for image in train]
    again = VistermExtractor(**extractor.get_params()).fit(paths, y)
    assert again.codebook_.nodes_.tobytes() == extractor.codebook_.nodes_.tobytes()
    np.testing.assert_array_equal(counts, again.count([fruit / "fruit" / image.path for image in images]).toarray())

    visterm("train", "--run", "forest", cwd=fruit)
    learned = [image.path for image in images if image.split == "train"]
    assert [learned[row] for row in load_learner(run.learner("oasis") / "files").held_out_] == held_out
    assert sorted(Path(path).parent.name for path in held_out) == sorted(2 * CLASSES)
    (answer,) = json_of("search", "fruit/pear/0.jpg", "-k", "5", "--run", "forest", cwd=fruit)
    assert [result["labels"] for result in answer["results"]] == [["pear"]] * 5


def test_idf_is_of_the_images_that_grew_no_trees_too(fruit):
    visterm(*by_forest(), cwd=fruit)
    run = Run(fruit / "runs/forest")
    collection = Collection(run.collection)
    counts = collection.counts(collection.images("train"))
    collection.close()
    idf = VistermExtractor.load(run.extractor / "files").weighting_.idf_
    np.testing.assert_array_equal(idf, VistermWeighting().fit(counts).idf_)


def test_without_early_stopping_nothing_is_held_out(fruit):
    visterm(*by_forest("oasis.validation_fraction=null"), cwd=fruit)
    visterm("train", "--run", "forest", cwd=fruit)
    assert load_learner(Run(fruit / "runs/forest").learner("oasis") / "files").held_out_ is None


def test_a_folder_of_validation_images_takes_precedence(fruit, write_images):
    names = [f"{split}/{c}/{i}.jpg" for split in ("train", "validation", "test") for c in CLASSES for i in range(4)]
    write_images(fruit / "split", names)
    visterm(*by_forest(images="split"), cwd=fruit)
    visterm("train", "--run", "forest", cwd=fruit)
    run = Run(fruit / "runs/forest")
    assert "held_out" not in read_record(run.extractor)
    assert len(load_learner(run.learner("oasis") / "files").held_out_) == 12


@pytest.mark.parametrize("table", ["labels", "clicks"])
def test_a_forest_refuses_several_labels_and_clicks(fruit, table):
    name = {"labels": "label", "clicks": "query"}[table]
    lines = [f"{c}/{i}.jpg,{label}" for c in CLASSES for i in range(10) for label in (c, "fruit")]
    if table == "clicks":
        lines = [",".join([*reversed(line.split(",")), "1"]) for line in lines]
    (fruit / "table.csv").write_text("\n".join([f"path,{name}" if table == "labels" else "query,path,count", *lines]))
    line = refused(*by_forest(f"collection.{table}=table.csv"), cwd=fruit)
    assert "one label per image" in line
    assert "kind=kmeans" in line


def test_a_forest_skips_images_without_a_label(fruit):
    lines = [f"{c}/{i}.jpg,{c}" for c in CLASSES for i in range(8)]
    (fruit / "table.csv").write_text("\n".join(["path,label", *lines]))
    visterm(*by_forest("collection.labels=table.csv"), cwd=fruit)
    extractor = VistermExtractor.load(fruit / "runs/forest/extractor/files")
    assert extractor.weighting_.n_images_ == 15  # 0.6 of 8 images, rounded, three times


def test_a_forest_needs_labels_and_visterms_for_its_leaves(fruit, write_images):
    assert "n_visterms must be at least 12" in refused(*by_forest("features.n_visterms=11"), cwd=fruit)
    write_images(fruit / "flat", [f"{c}{i}.jpg" for c in CLASSES for i in range(3)])
    assert "a forest codebook learns from labels: sort" in refused(*by_forest(images="flat"), cwd=fruit)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [("caltech101", (120, 80)), ("flowers", (120, 80)), ("flowers", (32, 32))])
def test_oasis_learns_from_thumbnails(data, tmp_path, name, size):
    """With the defaults: no error, a line that says how many visterms there are, and a gain on cosine."""
    for folder in sorted((data / name).iterdir())[:8]:
        (tmp_path / "small" / folder.name).mkdir(parents=True)
        for file in sorted(folder.iterdir())[:50]:
            photo = cv2.resize(cv2.imread(str(file)), size, interpolation=cv2.INTER_AREA)
            cv2.imwrite(str(tmp_path / "small" / folder.name / f"{file.stem}.png"), photo)
    told = visterm("features", "small", cwd=tmp_path).stderr
    assert re.search(r"^[0-9,]+ of 10,000 visterms are used, ", told, re.MULTILINE)
    visterm("train", cwd=tmp_path)
    systems = json_of("evaluate", cwd=tmp_path)["systems"]
    assert systems["oasis"]["map"] > 1.1 * systems["cosine"]["map"]
    assert systems["oasis"]["precision_at"]["1"] >= systems["cosine"]["precision_at"]["1"]
