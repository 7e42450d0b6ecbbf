"""The protocol open: learners trained on half of the classes, and measured on both halves."""

import json

import numpy as np
import pytest
from running import copy_run, refused, set_all, visterm

from visterm.learners.validation import mean_average_precision
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.evaluate import evaluation_record
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.opened import OpenedRun, opened
from visterm.pipeline.store.run import Run
from visterm.plugins.figures import open_world

CLASSES = ("apple", "fig", "pear", "plum", "quince")
WORLDS = ["seen", "unseen", "both"]
QUIET = Console(quiet=True)
OPEN = set_all(evaluate={"protocol": "open", "class_splits": 2})


@pytest.fixture(scope="module")
def trained(build_once, write_images):
    """A folder with five classes of ten images, and the run "fruit" with oasis and wsabie; nothing is evaluated."""
    sections = {name: {"n_steps": 2000, "pass_steps": 1000} for name in ("oasis", "wsabie")}

    def build(folder):
        write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in CLASSES for i in range(10)])
        settings = set_all(features={"n_visterms": 40}, compute={"n_jobs": 1}, **sections)
        visterm("features", "fruit", *settings, cwd=folder)
        visterm("train", "--learner", "oasis,wsabie", cwd=folder)

    return build_once("open", "fruit", build)


@pytest.fixture
def mine(trained, tmp_path):
    return copy_run(trained, tmp_path)


@pytest.fixture
def run(mine):
    run = Run(mine / "runs/fruit")
    config = load_config(run.folder / "config.yaml", ["evaluate.protocol=open", "evaluate.class_splits=2"])
    with opened(run, config, lock=False) as it:
        yield it


def configured(run, *settings):
    """The same run with other settings."""
    return OpenedRun(run, load_config(run.folder / "config.yaml", list(settings)), run.catalogue)


def images_of(labels, split="test", first=0):
    return [Image(i, f"{i}.jpg", "", dict.fromkeys(own, 1.0), split, 0, i) for i, own in enumerate(labels, start=first)]


def test_half_of_the_classes_is_trained_on_and_an_image_with_an_unseen_label_is_unseen():
    images = images_of([("a",), ("b",), ("c",), ("d",), ("e",)] * 2, "train")
    tested = images_of([("a",), ("b",), ("c",), ("d",), ("e",), ("f",)] * 2, first=10)
    drawn = set()
    for number in range(8):
        split = open_world.split_classes(images, tested, 3, number)
        seen = {label for image in split.training for label in image.labels}
        assert len(seen) == 3
        assert len(split.training) == 6
        assert sorted(image.id for image in split.tested) == list(range(10, 22))
        assert split.seen == [set(image.labels) <= seen for image in split.tested]  # f, never trained on, is unseen
        drawn.add(frozenset(seen))
    assert len(drawn) > 1
    assert open_world.split_classes(images, tested, 3, 7) == split  # the same for the same seed
    assert open_world.split_classes(images, tested, 4, 7) != split
    images = images_of([("a",), ("a", "b"), ("b", "c"), ("c", "d"), ("d",), ("a", "b", "c", "d")], "train")
    for number in range(6):
        split = open_world.split_classes(images, images_of([("a",), ("a", "d")]), 0, number)
        seen = {label for image in split.training for label in image.labels}
        assert all(set(image.labels) <= seen for image in split.training)
        assert ("a", "b", "c", "d") not in [tuple(image.labels) for image in split.training]
        assert split.seen == [set(image.labels) <= seen for image in split.tested]


def test_figures_report_and_lines(mine):
    result = visterm("evaluate", *OPEN, cwd=mine)
    folder = mine / "runs/fruit/evaluations/oasis"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert (metrics["protocol"], metrics["open"]["n_splits"]) == ("open", 2)
    systems = metrics["open"]["systems"]
    assert list(systems) == ["oasis", "cosine", "chance"]
    for worlds in systems.values():
        assert list(worlds) == WORLDS
        for own in worlds.values():
            assert set(own) == {"map", "map_sd", "p1"}
            assert 0 < own["map"] <= 1
            assert own["map_sd"] >= 0
    assert metrics["n_queries"] == 20  # the usual figures are there, too
    assert systems["chance"]["both"]["map"] == pytest.approx(metrics["systems"]["chance"]["map"])
    assert systems["chance"]["both"]["p1"] == pytest.approx(3 / 19)
    assert systems["oasis"]["seen"]["map"] > systems["chance"]["seen"]["map"]
    lines = [line for line in result.stderr.splitlines() if line.lstrip().startswith("oasis  ")]
    own = systems["oasis"]["unseen"]
    assert f"  unseen mAP {own['map']:.3f} ± {own['map_sd']:.3f} P@1 {own['p1']:.3f}" in lines[1]
    assert "Trained on half of the classes, means of 2 class splits:" in result.stderr
    page = (folder / "report.html").read_text()
    assert f'{own["map"]:.3f} <span class="quiet">± {own["map_sd"]:.3f}</span>' in page


def test_cosine_by_hand_and_one_split_without_a_standard_deviation(run):
    systems = open_world.measure_class_splits(run, ["cosine"], QUIET)["systems"]
    maps = {world: [] for world in WORLDS}
    for number in range(2):
        tested = run.images("test", labelled=True)
        split = open_world.split_classes(run.images("train"), tested, run.config.seed, number)
        Q = run.vectors(split.tested).toarray()
        y, seen = np.array([next(iter(image.labels)) for image in split.tested]), np.array(split.seen)
        for world, own in zip(WORLDS, (seen, ~seen, seen | True), strict=True):
            value = mean_average_precision(Q[own] @ Q[own].T, y[own][:, None] == y[own], np.arange(own.sum()))
            maps[world].append(value)
    for world in WORLDS:
        assert systems["cosine"][world]["map"] == pytest.approx(np.mean(maps[world]), abs=1e-6)
        assert systems["cosine"][world]["map_sd"] == pytest.approx(np.std(maps[world], ddof=1), abs=1e-6)
    run = configured(run, "evaluate.protocol=open", "evaluate.class_splits=1")
    measured = open_world.measure_class_splits(run, ["cosine"], QUIET)
    assert set(measured["systems"]["cosine"]["both"]) == {"map", "p1"}


def test_learners_see_half_of_the_classes_and_the_settings(run):
    images, tested = run.images("train", labelled=True), run.images("test", labelled=True)
    split = open_world.split_classes(images, tested, 0, 0)
    ticks = []
    learner = open_world._trained_on(run, "wsabie", split, lambda: ticks.append(1))
    known = {label for image in split.training for label in image.labels}
    assert set(learner.classes_) == known
    assert len(known) == 3
    assert ticks
    assert (learner.world_, learner.n_steps) == ("open", 2000)
    closed = configured(run, "train.world=seen", "train.learned_weight=0.5", "wsabie.n_steps=1000")
    learner = open_world._trained_on(closed, "wsabie", split, lambda: None)
    assert (learner.world_, learner.learned_weight_, learner.n_steps) == ("seen", 0.5, 1000)
    assert open_world._trained_on(closed, "knn", split, lambda: None).learned_weight_ == 0.5


def test_what_an_evaluation_depends_on(run):
    def record_of(*settings):
        record = evaluation_record(configured(run, *settings), ["oasis"])
        return record["config"], record["inputs"]

    usual = record_of()
    for setting in ("evaluate.class_splits=3", "oasis.n_steps=1000", "seed=1"):  # which only the protocol open reads
        assert record_of(setting) == usual
    open_ = record_of("evaluate.protocol=open")
    assert open_ != usual
    assert record_of("evaluate.protocol=open", "wsabie.n_steps=1000") == open_  # not of this learner
    assert record_of("evaluate.protocol=open", "compute.n_jobs=2") == open_
    for setting in (
        "evaluate.class_splits=3",
        "oasis.n_steps=1000",
        "seed=1",
        "train.world=seen",
        "train.learned_weight=0.5",
    ):
        assert record_of("evaluate.protocol=open", setting) != open_


def test_too_few_classes_are_refused(finished, tmp_path):
    mine = copy_run(finished, tmp_path)
    before = sorted((mine / "runs/fruit/evaluations").rglob("*"))
    line = refused("evaluate", *OPEN, cwd=mine)
    assert line == (
        "visterm: run fruit: 3 classes with training images; evaluate.protocol=open needs 4 classes or more, with two "
        "training and two test images each"
    )
    assert sorted((mine / "runs/fruit/evaluations").rglob("*")) == before


@pytest.mark.parametrize(
    ("labels", "tested", "message"),
    [
        (["apple"], CLASSES, "run fruit, class split 1: oasis: .*"),
        ([], CLASSES, "run fruit, class split 1: oasis: every training image has a label that is not trained on"),
        (CLASSES, ["apple"], "run fruit, class split 1: no two test images of unseen classes share a label"),
    ],
)
def test_halves_that_cannot_be_used_are_refused(run, monkeypatch, labels, tested, message):
    def split(images, queries, seed, number):
        some = [image for image in queries if not set(image.labels).isdisjoint(tested)]
        read_training_data = [image for image in images if not set(image.labels).isdisjoint(labels)]
        return open_world.ClassSplit(read_training_data, some, [set(image.labels) <= set(labels) for image in some])

    monkeypatch.setattr(open_world, "split_classes", split)
    with pytest.raises(UserError, match=f"{message}; evaluate.protocol=open needs 4 classes or more") as error:
        open_world.measure_class_splits(run, ["oasis"], QUIET)
    assert "\n" not in str(error.value)
