"""Early stopping sees held-out images as new photos, which have made no centre of the codebook."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from running import CLASSES, refused, visterm

from visterm.features import VistermExtractor
from visterm.learners import OASIS, load_learner
from visterm.pipeline.store.as_new import counts_as_new, save_counts_as_new
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import read_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_of, supervision

SMALL = ("features.n_visterms=40", "oasis.n_steps=2000", "oasis.pass_steps=1000", "compute.n_jobs=1")


def settings(*more):
    return [part for text in (*SMALL, *more) for part in ("--set", text)]


@pytest.fixture
def fruit(finished, tmp_path):
    shutil.copytree(finished / "fruit", tmp_path / "fruit")
    return tmp_path


def training_images(run):
    """Images, counts, their places among them as new ones, and their counts as these."""
    with Collection(run.collection) as collection:
        images = collection.images("train")
        counts = collection.counts(images)
        return images, counts, *counts_as_new(run, images, counts.shape[1])


def test_held_out_images_are_measured_as_new(fruit):
    visterm("features", "fruit", *settings(), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    images, counts, places, as_new = training_images(run)
    held_out = read_record(run.extractor)["held_out"]
    assert [images[place].path for place in places] == held_out
    assert sorted(Path(path).parent.name for path in held_out) == sorted(2 * CLASSES)
    np.testing.assert_array_equal(as_new.sum(axis=1), counts[places].sum(axis=1))
    assert (as_new != counts[places]).nnz
    # The codebook is of all training images, as without early stopping.
    extractor = extractor_of(run)
    again = VistermExtractor(**extractor.get_params()).fit([fruit / "fruit" / image.path for image in images])
    np.testing.assert_array_equal(extractor.codebook_.centers_, again.codebook_.centers_)
    np.testing.assert_array_equal(extractor.weighting_.idf_, again.weighting_.idf_)

    # As these photos are told apart too easily, each gets the counts of another.
    as_new = as_new[[1, 2, 3, 4, 5, 0]]
    with publish(run.extractor, read_record(run.extractor)) as folder:
        shutil.copytree(run.extractor / "files", folder / "files")
        save_counts_as_new(folder, [image.id for image in images], [places.tolist()], [as_new])
    visterm("train", "--for", "seen", cwd=fruit)
    learner = load_learner(run.learner("oasis") / "files")
    assert learner.held_out_.tolist() == places.tolist()
    weighting, y = extractor.weighting_, supervision(images)[0]
    X = weighting.transform(counts).tolil()
    X[places] = weighting.transform(as_new)
    again = OASIS(**learner.get_params()).fit(X.tocsr(), y, validation_rows=places)
    assert read_record(run.learner("oasis"))["result"]["validation_map"] == pytest.approx(again.validation_map_)
    plain = OASIS(**learner.get_params()).fit(weighting.transform(counts), y, validation_rows=places)
    assert again.validation_map_ < 0.9 < plain.validation_map_


def test_classes_that_are_held_out_are_measured_as_new(tmp_path, write_images):
    classes = ("apple", "pear", "plum", "fig", "kiwi", "lime")
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in classes for i in range(10)])
    visterm("features", "fruit", *settings(), cwd=tmp_path)
    run = Run(tmp_path / "runs/fruit")
    images, _, places, _ = training_images(run)
    visterm("train", cwd=tmp_path)  # for images of any class
    learner = load_learner(run.learner("oasis") / "files")
    unseen = {Path(images[row].path).parent.name for row in learner.unseen_}
    assert len(unseen) == 2
    assert len(learner.held_out_) > len(learner.unseen_) == 12
    assert set(learner.held_out_) <= set(places)


@pytest.mark.parametrize("table", ["labels", "clicks"])
def test_of_several_labels_and_clicks_a_fifth_is_held_out(fruit, table):
    header, line = {"labels": ("path,label", "{0},{1}"), "clicks": ("query,path,count", "{1},{0},1")}[table]
    rows = [line.format(f"{c}/{i}.jpg", label) for c in CLASSES for i in range(10) for label in (c, f"fruit {i % 3}")]
    (fruit / "table.csv").write_text("\n".join([header, *rows]))
    visterm("features", "fruit", *settings(f"collection.{table}=table.csv"), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    images = training_images(run)[0]
    held_out = read_record(run.extractor)["held_out"]
    assert len(held_out) == round(0.2 * len(images))
    visterm("train", "--for", "seen", cwd=fruit)
    learner = load_learner(run.learner("oasis") / "files")
    assert [images[row].path for row in learner.held_out_] == held_out


def test_with_labels_that_come_later_the_learner_draws(fruit):
    rows = [f"{c}/{i}.jpg,{c}" for c in CLASSES for i in range(10)]
    (fruit / "few.csv").write_text("\n".join(["path,label", *(row for row in rows if row.startswith(CLASSES[0]))]))
    (fruit / "all.csv").write_text("\n".join(["path,label", *rows]))
    visterm("features", "fruit", *settings("collection.labels=few.csv"), cwd=fruit)
    visterm("features", "fruit", *settings("collection.labels=all.csv"), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    images, _, places, _ = training_images(run)
    assert len({Path(images[place].path).parent.name for place in places}) == 1  # of which no relevance can be measured
    visterm("train", "--for", "seen", cwd=fruit)
    learner = load_learner(run.learner("oasis") / "files")
    assert {Path(images[row].path).parent.name for row in learner.held_out_} == set(CLASSES)


def test_where_there_are_more_than_enough_they_make_no_codebook(fruit):
    visterm("features", "fruit", *settings("features.max_training_images=12", "features.n_visterms=20"), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    images, _, places, _ = training_images(run)
    record = read_record(run.extractor)
    assert record["training_images"] == len(images) - len(record["held_out"]) == 12
    assert not len(places)  # they are new as they are
    extractor = extractor_of(run)
    paths = [fruit / "fruit" / image.path for image in images if image.path not in record["held_out"]]
    again = VistermExtractor(**extractor.get_params()).fit(paths)
    np.testing.assert_array_equal(extractor.codebook_.centers_, again.codebook_.centers_)


def test_the_counts_stay_when_weights_are_made_again(fruit):
    visterm("features", "fruit", *settings(), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    _, _, places, before = training_images(run)
    visterm("features", *settings("features.weighting.tf=sqrt"), cwd=fruit)
    _, _, again, after = training_images(run)
    assert again.tolist() == places.tolist()
    assert (before != after).nnz == 0


def test_a_run_of_before_and_validation_images_are_measured_as_they_are(fruit, write_images):
    visterm("features", "fruit", *settings(), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    shutil.rmtree(run.extractor / "as_new")
    assert not len(training_images(run)[2])
    names = [f"{split}/{c}/{i}.jpg" for split in ("train", "validation") for c in CLASSES for i in range(4)]
    write_images(fruit / "split", names)
    visterm("features", "split", *settings("features.n_visterms=8"), cwd=fruit)
    assert not (fruit / "runs/split/extractor/as_new").exists()
    visterm("train", "--run", "split", cwd=fruit)


@pytest.mark.parametrize("name", ["ids", "indptr", "indices", "counts"])
def test_arrays_that_do_not_fit_are_damage(fruit, name):
    visterm("features", "fruit", *settings(), cwd=fruit)
    run = Run(fruit / "runs/fruit")
    with publish(run.extractor, read_record(run.extractor)) as folder:
        for part in ("files", "as_new"):
            shutil.copytree(run.extractor / part, folder / part)
        array = np.load(folder / f"as_new/{name}.npy")
        np.save(folder / f"as_new/{name}.npy", array + 10_000 if name == "indices" else array[:-1])
    line = refused("train", cwd=fruit)
    assert "extractor/as_new: damaged (" in line
    assert "visterm features --force --run fruit" in line
