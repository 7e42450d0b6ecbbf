"""Train/test split, from folders or by share."""

from collections import Counter, defaultdict

import pytest

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.splits import Layout, split_key


def test_folders_name_classes_and_splits(scan, extract):
    names = (f"{c}/{i}.jpg" for c in "ab" for i in range(10))
    scan(*names, settings=["split.train=6", "split.test=3"])
    counts = Counter((next(iter(image.labels)), image.split) for image in extract())
    assert counts == {(c, s): n for c in "ab" for s, n in (("train", 6), ("test", 3), (None, 1))}


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


@pytest.mark.parametrize(
    ("paths", "text", "first"),  # the layout, and label and split of the first image
    [
        (["Training/a/1.jpg", "valid/a/2.jpg", "testing/b/1.jpg", "dev/b/3.jpg"], "split", ("a", "train")),
        (["train/1.jpg", "valid/2.jpg", "test/3.jpg"], "split", (None, "train")),
        (["train2017/1.jpg", "val2017/2.jpg"], "split", (None, "train")),
        (["train/images/1.jpg", "valid/images/2.jpg"], "split/none", (None, "train")),
        (["images/train/1.jpg", "images/val/2.jpg"], "split1", (None, "train")),
        (["set/data/train/a/1.jpg", "set/data/val/b/2.jpg"], "split2", ("a", "train")),
        (["2023/1.jpg", "2024/2.jpg"], "flat", (None, None)),
        (["2023/05/1.jpg", "2024/12/2.jpg"], "flat", (None, None)),
        (["2023-05-01/1.jpg", "20240517/2.jpg", "Photos from 2024/1.jpg"], "flat", (None, None)),
        (["DCIM/100CANON/1.jpg", "DCIM/101_FUJI/2.jpg"], "flat", (None, None)),
        (["00000/000000004.jpg", "00001/000010002.jpg"], "flat", (None, None)),  # shards of img2dataset
        (["00000/00000_00004.ppm", "00001/00001_00002.ppm"], "classes", ("00000", None)),
        (["2023/dog/1.jpg", "2024/cat/2.jpg", "2024/3.jpg"], "classes/1", ("dog", None)),
        (["Takeout/Google Photos/dog/1.jpg", "Takeout/Google Photos/cat/1.jpg"], "classes/2", ("dog", None)),
        (["0001/1.jpg", "1999/2.jpg", "2999/1.jpg"], "classes", ("0001", None)),  # numbers of products
        (["0/1.jpg", "1/2.jpg", "9/1.jpg"], "classes", ("0", None)),  # of digits
        (["dog/1.jpg", "dog/2.jpg"], "classes", ("dog", None)),  # a first class
        (["dog/2023/1.jpg", "cat/2024/2.jpg", "3.jpg"], "classes", ("dog", None)),
        (["/elsewhere/dog/1.jpg", "2.jpg"], "flat", (None, None)),
        (["2024/1.jpg", "takeout/2.jpg", "live/3.jpg"], "classes~", (None, None)),  # one label, live
        (["live/3.jpg", "2024/1.jpg", "DCIM/100CANON/4.jpg"], "classes~", ("live", None)),
        (["2024/1.jpg", "dog/2.jpg", "17/2.jpg"], "classes", ("2024", None)),  # numbers of something
        (["camera/1.jpg", "anchor/2.jpg"], "classes", ("camera", None)),  # of Caltech-101
    ],
)
def test_what_folders_mean(paths, text, first):
    layout = Layout.of(paths)
    assert layout.text == text
    again = Layout(text + "+table")  # as the catalogue has it
    for one in (layout, again):
        label, split = one.label(paths[0]), one.split(paths[0]) if one.kind == "split" else None
        assert (label, split) == first


@pytest.mark.parametrize(
    ("level", "labels"),
    [(1, ["2023", "2024"]), (2, ["dog", "cat"]), (-1, ["big", "cat"]), (3, ["big", None]), (9, [None, None])],
)
def test_the_level_of_the_labels_can_be_chosen(level, labels):
    paths = ["2023/dog/big/1.jpg", "2024/cat/2.jpg"]
    assert list(map(Layout.of(paths, level).label, paths)) == labels
    below = ["train/" + path for path in paths]
    layout = Layout.of(below, level)
    assert list(map(layout.label, below)) == labels
    assert layout.split(below[0]) == "train"


def test_folders_that_name_no_label_are_said(collection, tmp_path, scan):
    scan("2023/dog/1.jpg", "2024/cat/2.jpg")
    (line,) = collection.label_source()[1]
    assert line.startswith(
        "folders 2023, 2024 name no label: dates, cameras, shards, or a folder that holds all others; --set"
    )
    assert collection.label_sizes() == {"dog": 1, "cat": 1}
    scan(settings=["collection.label_level=1"])
    assert collection.label_source() == ("the folders", [])
    assert collection.label_sizes() == {"2023": 1, "2024": 1}
    scan("2023/1.jpg", "wedding/1.jpg")
    assert collection.label_source()[1][0].startswith("folders 2023, 2024 name no label: dates, cameras, ")
    scan(settings=["collection.labels=none"])
    assert (collection.label_source(), collection.label_sizes()) == (("", []), {})
    with pytest.raises(UserError, match="label_level counts folders from 1"):
        load_config(None, ["collection.label_level=0"])


@pytest.mark.parametrize(
    ("paths", "line", "setting", "labels"),
    [
        (  # of PlantVillage
            [f"{kind}/{name}/1.jpg" for kind in ("color", "grayscale") for name in ("rust", "scab")],
            "folders color, grayscale name the labels, and hold the same folders rust, scab: if these are the labels",
            "collection.label_level=2",
            {"rust": 2, "scab": 2},
        ),
        (
            [f"train/fold_{i}/{name}/1.jpg" for i in range(5) for name in ("cat", "dog", "rare")[: 2 + (i < 2)]],
            "folders fold_0, fold_1, fold_2, ... name the labels, and hold the same folders cat, dog: if these",
            "collection.label_level=2",
            {"cat": 5, "dog": 5, "rare": 2},
        ),
        (
            [f"{name}/{split}/1.jpg" for name in ("cat", "dog") for split in ("train", "val")],
            "folders train, val below those of the labels (cat, dog) are no split, which is drawn",
            None,
            {"cat": 2, "dog": 2},
        ),
        (
            [f"{name}/{kind}/{i}.png" for name in ("cat", "dog") for kind in ("images", "masks") for i in range(3)],
            "6 images in folders of masks, annotations or previews, such as cat/masks, with the names of others: taken",
            "collection.exclude=[masks]",
            {"cat": 3, "dog": 3},
        ),
        (
            ["JPEGImages/a.jpg", "JPEGImages/b.jpg", "SegmentationClass/a.png", "SegmentationClass/b_mask.png"],
            "2 images in folders of masks, annotations or previews, such as SegmentationClass, with the names of",
            "collection.exclude=[SegmentationClass]",
            {},
        ),
        (
            ["cat/1.jpg", "dog/2.jpg", "cat/_Thumbs/1_thumb.jpg", "dog/_Thumbs/2.jpg"],
            "2 images in folders of masks, annotations or previews, such as cat/_Thumbs, with the names of others",
            "collection.exclude=[_Thumbs]",
            {"cat": 1, "dog": 1},
        ),
        (
            ["train/cat.1.jpg", "train/dog.1.jpg", "test1/1.jpg"],  # of Kaggle's cats and dogs
            "folders test1 (test?), train look like a split: all are taken for classes; name them",
            None,
            {"train": 2, "test1": 1},
        ),
        (
            ["default/1.jpg", "cat/2.jpg"],
            "1 label that may say that there is none, such as default; kept",
            None,
            {"default": 1, "cat": 1},
        ),
        (
            ["val/1.jpg", "test/1.jpg"],
            "folders test, val look like a split: all are taken for classes; name them",
            None,
            {"val": 1, "test": 1},
        ),
        (
            ["Cat/1.jpg", "cat/2.jpg", "dog/3.jpg"],
            "1 label in different capitals, spaces, hyphens or digits, such as Cat and cat; different labels",
            None,
            {"Cat": 1, "cat": 1, "dog": 1},
        ),
        (
            ["KÃ¤fer/1.jpg", "Käfer/2.jpg", "Caf√©/3.jpg"],
            "2 labels that an earlier tool probably garbled, such as Caf√© (Café?); kept as written",
            None,
            {"KÃ¤fer": 1, "Käfer": 1, "Caf√©": 1},
        ),
        (
            ["New folder/1.jpg", "cat/2.jpg", "dog/3.jpg"],
            "1 label that may say that there is none, such as New folder; kept",
            None,
            {"New folder": 1, "cat": 1, "dog": 1},
        ),
        (["cat/small/1.jpg", "cat/2.jpg", "dog/small/1.jpg", "dog/2.jpg"], None, None, {"cat": 2, "dog": 2}),
        (["cat/black/1.jpg", "cat/red/2.jpg", "dog/red/3.jpg"], None, None, {"cat": 2, "dog": 1}),
        (["mask/1.jpg", "mask/2.jpg", "anchor/3.jpg"], None, None, {"mask": 2, "anchor": 1}),  # a class
    ],
)
def test_folders_that_may_mean_something_else_are_said(collection, scan, paths, line, setting, labels):
    scan(*paths)
    lines = collection.label_source()[1]
    assert [told[: len(line)] for told in lines] == ([line] if line else [])
    if setting:
        assert setting in lines[0]
        scan(settings=[setting])
        assert line not in str(collection.label_source())
    assert collection.label_sizes() == labels


def test_a_folder_that_is_not_utf8_names_a_label_that_can_be_typed(collection, scan):
    scan(b"caf\xe9/1.jpg", b"bar/1.jpg")
    assert collection.label_sizes() == {"caf\u00e9": 1, "bar": 1}


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


@pytest.mark.parametrize(
    ("photos", "table"),
    [
        (["1.jpg", "2.jpg"], "labels.csv"),
        (["batch1/1.jpg", "batch2/2.jpg"], "Train.csv"),  # the folders of scans name labels
        (["batch1/1.jpg", "batch2/2.jpg"], "batch1/_annotations.coco.json"),
    ],
)
def test_a_table_beside_photos_that_is_not_read_is_said(collection, scan, photos, table):
    scan(*photos, table)
    assert any(f"{table} is not read; --set collection.labels=" in line for line in collection.label_source()[1])
