"""Trying photos: which vectors and which learner suit them."""

import json
import shlex

import pytest
import yaml
from running import CLASSES, json_of, refused, set_all, visterm

from visterm.plugins.choosing import try_photos as module
from visterm.plugins.vectors import efficientnet

SPATIAL = dict(module.SPATIAL)
QUICK = set_all(
    features={"n_visterms": 40}, oasis={"n_steps": 2000, "pass_steps": 1000}, compute={"n_jobs": 1, "backend": "loky"}
)


@pytest.fixture(autouse=True)
def few_visterms(monkeypatch):
    """In place of 10,000 for each of the nine cells, whose similarities are large."""
    monkeypatch.setitem(module.SPATIAL, "features.n_visterms", 40)


@pytest.fixture
def without_network(monkeypatch):
    def missing():
        raise ImportError("features.kind=deep needs onnx: python -m pip install onnx")

    monkeypatch.setattr(efficientnet, "cached_model", missing)


def test_the_best_pair_is_printed_with_its_commands_and_nothing_is_kept(
    without_network, tmp_path, write_images, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", None)
    names = [f"{label}/{i}.jpg" for label in CLASSES for i in range(20)]
    write_images(tmp_path / "my fruit", names)
    steps, work = [], module.features
    monkeypatch.setattr(module, "extract", lambda: steps.append("compile"))
    monkeypatch.setattr(module, "features", lambda *arguments: steps.append("features") or work(*arguments))
    result = visterm("try", "my fruit", *QUICK, "--budget", "0.01s", cwd=tmp_path)
    assert steps[:2] == ["compile", "features"]  # or compiling would be timed as the work of photos
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["visterms", name] for name in ("cosine", "oasis", "hier")]
    assert "best" in "".join(lines[1:4])
    assert shlex.split(lines[5])[:3] == ["visterm", "features", "my fruit"]
    assert "--run 'my fruit'" in lines[6]
    assert "deep was not tried: features.kind=deep needs onnx" in result.stderr
    assert "spatial was not tried: the time was over" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my fruit", "temporary"]
    assert not list((tmp_path / "temporary").iterdir())


def test_a_sample_has_as_many_of_each_class_and_no_test_images(monkeypatch, tmp_path, write_images):
    from visterm.pipeline.config.loading import load_config

    monkeypatch.setattr(module, "MOST_IMAGES", 30)
    names = [
        f"{split}/{c}/{i}.jpg"
        for c, n in zip(CLASSES, (4, 20, 30), strict=True)
        for split in ("train", "test")
        for i in range(n)
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff\xd8\xff")
    sample = module._sample(tmp_path, load_config(None, []), tmp_path / "own")
    assert all(path.startswith("train/") for path in sample.labels)
    of = [sum(path.split("/")[1] == c for path in sample.labels) for c in CLASSES]
    assert of == [4, 13, 13]
    assert [sum(path.split("/")[1] == c for path in sample.held_out) for c in CLASSES] == [2, 3, 3]
    assert (sample.n_images, sample.n_training) == (108, 54)


@pytest.mark.parametrize(
    ("seconds", "budget", "most", "left"),
    [
        ({"deep": 0.01, "visterms": 0.02, "spatial": 0.07}, 120, 600, ["deep", "visterms", "spatial"]),
        ({"deep": 0.01, "visterms": 0.02, "spatial": 0.07}, 30, 150, ["deep", "visterms", "spatial"]),
        ({"deep": 0.01, "visterms": 0.02, "spatial": 0.07}, 20, 333, ["deep", "visterms"]),
        ({"deep": 0.01, "visterms": 0.07, "spatial": 0.02}, 20, 333, ["deep", "spatial"]),
        ({"deep": 1.0, "visterms": 0.1}, 20, 60, ["deep"]),  # the first one stays
        ({"deep": 1.0, "visterms": 0.1}, -5, 60, ["deep"]),
    ],
)
def test_kinds_without_which_there_is_time_for_enough_images_are_skipped(seconds, budget, most, left):
    kinds, skipped = {kind: {} for kind in seconds}, {}
    names = list(kinds)
    assert module._plan(kinds, seconds, skipped, budget) == most
    assert list(kinds) == list(seconds) == left
    assert set(skipped) == set(names) - set(left)
    for reason in skipped.values():
        assert reason.startswith("vectors of 120 images would take ")


@pytest.mark.slow
def test_fewer_images_are_tried_where_the_time_is_short(without_network, tmp_path, write_images):
    names = [f"{label}/{i}.jpg" for label in CLASSES for i in range(60)]
    write_images(tmp_path / "fruit", names)
    whole = visterm("try", "fruit", *QUICK, "--json", "--budget", "1h", cwd=tmp_path)
    assert json.loads(whole.stdout)["n_tried"] == 108  # the training images
    short = visterm("try", "fruit", *QUICK, "--json", "--budget", "0.01s", cwd=tmp_path)
    tried = json.loads(short.stdout)
    assert tried["n_tried"] == 60
    assert {row["vectors"] for row in tried["tried"]} == {"visterms"}
    assert "60 images are tried, as many as 0 s allow" in short.stderr
    assert tried["skipped"]["spatial"] == "the time was over"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1.jpg", "2.jpg"], "no labels, and without them nothing can be compared: sort the images into one folder"),
        (["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"], "too few labelled images to hold some out"),
        ([], "no images"),
    ],
)
def test_photos_that_cannot_be_compared_are_one_line(names, message, tmp_path, write_images):
    (tmp_path / "photos").mkdir()
    write_images(tmp_path / "photos", names)
    assert message in refused("try", "photos", cwd=tmp_path)
    assert not (tmp_path / "runs").exists()


def test_spatial_is_the_configuration_of_that_name(repository):
    settings = yaml.safe_load((repository / "configs/spatial.yaml").read_text())
    flat = {f"{section}.{key}": value for section, values in settings.items() for key, value in values.items()}
    flat["features.weighting.tf"] = flat.pop("features.weighting")["tf"]
    assert flat == SPATIAL


@pytest.mark.slow
@pytest.mark.parametrize("supervision", ["labels", "clicks"])
def test_all_kinds_are_tried_with_labels_from_a_table(supervision, tmp_path, write_images):
    names = [f"{label}{i}.jpg" for label in CLASSES for i in range(20)]
    write_images(tmp_path / "fruit", names)
    header, ending = {"labels": ("path,label", ""), "clicks": ("query,path,count", ",2")}[supervision]
    rows = [(name, name.rstrip("0123456789.jpg")) for name in names] + [("pear1.jpg", "green")]
    rows = rows if supervision == "labels" else [pair[::-1] for pair in rows]
    (tmp_path / "table.csv").write_text("\n".join([header, *(",".join(row) + ending for row in rows)]))
    options = "--set", f"collection.{supervision}=table.csv", "--budget", "1h"
    report = json_of("try", "fruit", *options, *QUICK, cwd=tmp_path)
    assert {(row["vectors"], row["learner"]) for row in report["tried"]} == {
        (kind, learner) for kind in ("deep", "visterms", "spatial") for learner in ("cosine", "oasis", "hier")
    }
    best = max(report["tried"], key=lambda row: row["map"] + row["p1"])
    assert report["vectors"] == best["vectors"]
    assert f"--set collection.{supervision}=table.csv" in report["commands"][0]
    assert report["n_tried"] == {"labels": 36, "clicks": 60}[supervision]  # few clicks: all images are trained on
