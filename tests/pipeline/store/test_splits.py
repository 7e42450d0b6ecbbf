"""Train/test split, from folders or by share."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.store.splits import split_key


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


def splits_of(images):
    """Splits of each class."""
    splits = defaultdict(Counter)
    for image in images:
        splits[next(iter(image.labels))][image.split] += 1
    return splits


def test_where_most_classes_are_pairs_whole_classes_are_drawn(collection, scan, extract):
    """Split within classes, no side would have two images of any: nothing could be learned or measured."""
    scan(*(f"c{c:02}/{i}.jpg" for c in range(40) for i in range(2)), *(f"alone{c}/0.jpg" for c in range(10)))
    splits = splits_of(extract())
    assert all(len(of_class) == 1 for of_class in splits.values())
    pairs, alone = (
        Counter(next(iter(of_class)) for name, of_class in splits.items() if name.startswith(kind))
        for kind in ("c", "alone")
    )
    assert (pairs, alone) == ({"train": 24, "test": 16}, {"train": 6, "test": 4})
    assert collection["split_by"] == "class"

    scan(*(f"c{c:02}/new.jpg" for c in range(40)), *(f"d{c:02}/{i}.jpg" for c in range(10) for i in range(2)))
    after = splits_of(collection.images() + extract())
    assert all(set(after[name]) == set(of_class) for name, of_class in splits.items())  # new images follow their class
    assert Counter(next(iter(after[f"d{c:02}"])) for c in range(10)) == {"train": 6, "test": 4}


@pytest.mark.parametrize(
    ("names", "settings", "whole"),
    [
        ([f"c{c}/{i}" for c in range(19) for i in range(2)], [], False),  # too few classes
        ([f"c{c}/{i}" for c in range(20) for i in range(3)], [], True),
        ([f"c{c}/{i}" for c in range(20) for i in range(4)], [], False),
        ([*(f"c{c}/{i}" for c in range(20) for i in range(3)), *(f"big/{i}" for i in range(61))], [], False),
        ([f"c{c}/{i}" for c in range(20) for i in range(3)], ["split.by=image"], False),
        ([f"c{c}/{i}" for c in range(20) for i in range(3)], ["split.train=2", "split.test=1"], False),
        ([f"c{c}/{i}" for c in range(5) for i in range(9)], ["split.by=class"], True),
        ([f"c{c}/0" for c in range(40)], [], False),  # one image of each class: all are trained on
    ],
)
def test_whole_classes_are_drawn_where_they_are_small_or_asked_for(scan, extract, names, settings, whole):
    scan(*(f"{name}.jpg" for name in names), settings=settings)
    splits = splits_of(extract())
    assert all(len(of_class) == 1 for of_class in splits.values()) == (whole or len(splits) == 40)
    assert (sum(of_class["test"] for of_class in splits.values()) > 0) == (len(splits) != 40)


def test_runs_from_before_whole_classes_keep_their_split():
    assert split_key(load_config(None, [])) == '[{"train": 0.6, "test": 0.4, "seed": 0}, null, "auto"]'
    assert split_key(load_config(None, ["split.by=class"])) != split_key(load_config(None, []))
