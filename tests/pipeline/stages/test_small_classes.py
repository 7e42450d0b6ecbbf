"""Many classes of few images, from vectors to the learner that is recommended."""

import json

import numpy as np
import pytest
from running import json_of, refused, visterm

from visterm.learners import Cosine, load_learner
from visterm.pipeline.search.searcher import Searcher


def vectors_of(y, seed=0, d=24):
    """Unit vectors: what tells classes apart varies little, and four directions that say nothing a lot."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(max(y) + 1, d))[y] + 0.2 * rng.normal(size=(len(y), d))
    X[:, :4] += 4 * rng.normal(size=(len(y), 4))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def features(folder, sizes, *settings):
    """Import vectors of classes of these sizes."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    names = [f"c{c:03}/{i}.jpg" for c, n in enumerate(sizes) for i in range(n)]
    np.save(folder / "x.npy", vectors_of(y))
    (folder / "x.txt").write_text("".join(f"{name}\n" for name in names))
    return visterm("features", "--vectors", "x.npy", "--ids", "x.txt", *settings, cwd=folder).stderr


@pytest.mark.parametrize("sizes", [[2] * 150, [1, 2, 3] * 70], ids=["pairs", "1-to-3"])
def test_small_classes_train_validate_by_class_and_rank_no_worse_than_cosine(tmp_path, sizes):
    told = features(tmp_path, sizes)
    assert "whole classes are trained on (" in told
    told = visterm("train", "--set", "oasis.n_steps=20000", cwd=tmp_path).stderr
    assert "for other classes\n" in told
    assert "for classes that it was trained on" not in told
    record = json.loads((tmp_path / "runs/x/learners/oasis/record.json").read_text())["result"]
    assert record["n_validation"] >= 20
    assert record["worlds"]["n_images"][0] == 0
    metrics = json_of("evaluate", cwd=tmp_path)
    recommended, systems = metrics["recommended"]["learner"], metrics["systems"]
    assert recommended == "oasis"
    assert systems["oasis"]["map"] > systems["cosine"]["map"] + 0.05
    assert "map_alone" not in systems["oasis"], "neither evaluate nor search ranks by neighbours"
    assert Searcher(tmp_path / "runs/x").by_neighbours("oasis") is None
    assert "knn_accuracy" not in systems["oasis"]  # no test image is of a class that was trained on
    assert set(systems["oasis"]["held_out"]) == {"unseen"}
    report = (tmp_path / "runs/x/evaluations/oasis/report.html").read_text()
    assert "test images are of other classes than training images" in report


@pytest.mark.slow
@pytest.mark.parametrize(("n", "most"), [(3000, 2), (1000, 3)], ids=["3,000-pairs", "1,000-of-1-to-3"])
def test_thousands_of_small_classes_rank_no_worse_than_cosine(tmp_path, n, most):
    """Classes that differ little, in vectors without a direction to learn from, and in others."""
    sizes = [2] * n if most == 2 else np.random.default_rng(1).integers(1, 4, n).tolist()
    features(tmp_path, sizes)
    visterm("train", cwd=tmp_path)
    record = json.loads((tmp_path / "runs/x/learners/oasis/record.json").read_text())["result"]
    assert record["worlds"]["n_images"][0] == 0, "validated by images of other classes alone"
    metrics = json_of("evaluate", cwd=tmp_path)
    recommended, systems = metrics["recommended"]["learner"], metrics["systems"]
    assert systems[recommended]["map"] >= systems["cosine"]["map"]
    assert systems["oasis"]["map"] >= systems["cosine"]["map"]


@pytest.mark.slow
def test_labels_of_small_classes_are_learned_and_do_not_rank_below_cosine(tmp_path):
    """Learners of labels say nothing of other classes: their weight is that which images of such chose."""
    features(tmp_path, [2] * 150)
    visterm("train", "--learner", "hier,wsabie", "--set", "hier.n_steps=4000", cwd=tmp_path)
    systems = json_of("evaluate", "--learner", "all", cwd=tmp_path)["systems"]
    assert all(systems[name]["map"] >= systems["cosine"]["map"] for name in ("hier", "wsabie"))
    assert "annotation" not in systems["wsabie"]


def test_one_label_a_class_learns_from_the_gallery(tmp_path):
    lines = [f"c{c:03}/0.jpg,{c}\n" for c in range(40)]
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(lines))
    features(tmp_path, [5] * 40, "--set", "collection.labels=labels.csv")
    told = visterm("train", "--learner", "oasis,hier", cwd=tmp_path).stderr
    assert (
        "oasis: no class has two labelled images, so only a whitening is learned, from 160 images without labels and "
        "their nearest neighbours; nothing validates it"
    ) in told
    y = np.repeat(np.arange(40), 5)
    X = vectors_of(y)
    oasis, hier = (load_learner(tmp_path / f"runs/x/learners/{name}/files") for name in ("oasis", "hier"))
    assert oasis.score(X, y) > Cosine().fit(X).score(X, y) + 0.05
    assert hier.learned_weight_ == 0  # cosine: one image of a class teaches nothing of what is similar
    (tmp_path / "few").mkdir()
    (tmp_path / "few/labels.csv").write_text("path,label\n" + "".join(lines[:20]))
    features(tmp_path / "few", [5] * 20, "--set", "collection.labels=labels.csv")
    line = refused("train", cwd=tmp_path / "few")
    assert "no class has two images: label a second image of some, or use deep vectors" in line
    assert line.endswith("; images for testing (split.test) do not count")  # one of two labelled ones
