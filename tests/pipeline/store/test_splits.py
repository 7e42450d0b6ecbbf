"""Train/test split, from folders or by share."""

from __future__ import annotations

from collections import Counter

import pytest


def test_folders_name_classes_and_splits(scan, extract):
    names = (f"{c}/{i}.jpg" for c in "ab" for i in range(10))
    scan(*names, settings=["split.train=6", "split.test=3"])
    found = Counter((next(iter(image.labels)), image.split) for image in extract())
    assert found == {(c, s): n for c in "ab" for s, n in (("train", 6), ("test", 3), (None, 1))}


@pytest.mark.parametrize(
    "expected",
    [
        {  # split folders take precedence
            "test/a/2.jpg": ({"a": 1.0}, "test"),
            "train/a/1.jpg": ({"a": 1.0}, "train"),
            "train/b/1.jpg": ({"b": 1.0}, "train"),
            "validation/b/3.jpg": ({"b": 1.0}, "validation"),
        },
        {"1.jpg": ({}, None), "2.jpg": ({}, None)},
    ],
)
def test_labels_and_splits_by_path(scan, extract, expected):
    scan(*expected)
    assert {image.path: (image.labels, image.split) for image in extract()} == expected


def test_a_class_may_be_called_train(scan, extract):
    scan("train/1.jpg", "bus/1.jpg")
    assert [list(image.labels) for image in extract()] == [["bus"], ["train"]]


def test_visterms_of_a_flat_folder_are_learned_from_all_images(collection, scan):
    scan("1.jpg", "2.jpg")
    assert collection.training_paths() == ["1.jpg", "2.jpg"]


def test_a_new_image_never_moves_an_old_one(scan, extract):
    scan(*(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    before = {image.path: image.split for image in extract()}
    scan(*(f"a/new{i}.jpg" for i in range(10)))
    after = {image.path: image.split for image in extract()}
    assert {path: after[path] for path in before} == before
    assert Counter(split for path, split in after.items() if path.startswith("a/")) == {"train": 12, "test": 8}


def test_another_fold_draws_other_images(collection, scan):
    scan(*(f"a/{i}.jpg" for i in range(20)))
    first = collection.training_paths()
    scan(settings=["split.seed=1"])
    assert len(collection.training_paths()) == len(first) == 12
    assert collection.training_paths() != first
