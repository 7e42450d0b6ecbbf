"""The demo's images: enough of them, and no test image overlaps a training image."""

from collections import Counter
from functools import cache

from visterm.plugins.demo import demo_images
from visterm.plugins.demo.demo_images import CROPS, tile_box, tile_of_split, write_demo_images


def test_twelve_classes_in_each_split_and_the_same_seed_the_same_bytes(tmp_path, monkeypatch):
    assert sum(CROPS.values()) == 50
    monkeypatch.setattr(demo_images, "CROPS", {"train": 3, "test": 2})
    monkeypatch.setattr(demo_images, "_PHOTOS", {name: cache(load) for name, load in demo_images._PHOTOS.items()})
    n = {write_demo_images(tmp_path / name) for name in "ab"}
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.jpg"))
    n_crops = Counter(file.parts[:2] for file in files)
    assert n == {sum(n_crops.values())}
    labels = {split: {label for of, label in n_crops if of == split} for split in CROPS}
    assert labels["train"] == labels["test"]
    assert len(labels["train"]) >= 12
    assert all(n == (3 if split == "train" else 2) for (split, _), n in n_crops.items())
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_no_tile_of_training_overlaps_one_of_testing():
    boxes = {split: {tile_box((303, 384), tile_of_split(split, i)) for i in range(n)} for split, n in CROPS.items()}
    for left, top, right, bottom in boxes["train"]:
        for other_left, other_top, other_right, other_bottom in boxes["test"]:
            apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
            assert apart
