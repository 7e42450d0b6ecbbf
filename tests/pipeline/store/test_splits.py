"""Train/test split, from folders or by share."""

from __future__ import annotations

from collections import Counter

from visterm.pipeline.config.loading import load_config


def test_folders_name_classes_and_splits(collection, tmp_path, touch, extract):
    touch(tmp_path / "one", *(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    collection.scan(tmp_path / "one", load_config(None, ["split.train=6", "split.test=3"]))
    extract(collection)
    found = Counter((next(iter(image.labels)), image.split) for image in collection.images())
    assert found == {(c, s): n for c in "ab" for s, n in (("train", 6), ("test", 3), (None, 1))}


def test_split_folders_take_precedence(collection, tmp_path, touch, extract):
    touch(tmp_path / "two", "train/a/1.jpg", "train/b/1.jpg", "test/a/2.jpg", "validation/b/3.jpg")
    collection.scan(tmp_path / "two", load_config())
    extract(collection)
    found = {image.path: (list(image.labels), image.split) for image in collection.images()}
    assert found == {
        "train/a/1.jpg": (["a"], "train"),
        "train/b/1.jpg": (["b"], "train"),
        "test/a/2.jpg": (["a"], "test"),
        "validation/b/3.jpg": (["b"], "validation"),
    }


def test_a_class_may_be_called_train(collection, tmp_path, touch, extract):
    touch(tmp_path / "trains", "train/1.jpg", "bus/1.jpg")
    collection.scan(tmp_path / "trains", load_config())
    extract(collection)
    assert [list(image.labels) for image in collection.images()] == [["bus"], ["train"]]


def test_a_flat_folder_has_no_labels_and_trains_visterms_on_all(collection, tmp_path, touch, extract):
    touch(tmp_path / "flat", "1.jpg", "2.jpg")
    collection.scan(tmp_path / "flat", load_config())
    assert collection.training_paths() == ["1.jpg", "2.jpg"]
    extract(collection)
    assert [(image.labels, image.split) for image in collection.images()] == [({}, None)] * 2


def test_visterms_are_learned_from_training_images_only(collection, tmp_path, touch, extract):
    touch(tmp_path / "images", *(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    collection.scan(tmp_path / "images", load_config())
    training = set(collection.training_paths())
    extract(collection)
    assert len(training) == 12
    assert training == {image.path for image in collection.images("train")}


def test_a_new_image_never_moves_an_old_one(collection, tmp_path, touch, extract):
    root = tmp_path / "images"
    touch(root, *(f"a/{i}.jpg" for i in range(10)), *(f"b/{i}.jpg" for i in range(10)))
    collection.scan(root, load_config())
    extract(collection)
    before = {image.path: image.split for image in collection.images()}
    touch(root, *(f"a/new{i}.jpg" for i in range(10)))
    collection.scan(root, load_config())
    extract(collection)
    after = {image.path: image.split for image in collection.images()}
    assert {path: after[path] for path in before} == before
    assert Counter(split for path, split in after.items() if path.startswith("a/")) == {"train": 12, "test": 8}


def test_another_fold_draws_other_images(collection, tmp_path, touch):
    touch(tmp_path / "images", *(f"a/{i}.jpg" for i in range(20)))
    collection.scan(tmp_path / "images", load_config())
    first = collection.training_paths()
    collection.scan(tmp_path / "images", load_config(None, ["split.seed=1"]))
    assert len(collection.training_paths()) == len(first) == 12
    assert collection.training_paths() != first
