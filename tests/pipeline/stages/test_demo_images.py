"""The demo's images: enough of them, and no test image overlaps a training image."""

from __future__ import annotations

from collections import Counter

from visterm.pipeline.stages import demo_images
from visterm.pipeline.stages.demo_images import CROPS, tile_box, tile_of_split, write_demo_images


def test_at_least_twelve_classes_in_each_split(tmp_path, monkeypatch):
    assert sum(CROPS.values()) == 50
    monkeypatch.setattr(demo_images, "CROPS", {"train": 3, "test": 2})
    n = write_demo_images(tmp_path / "images")
    n_crops = Counter(path.parts[-3:-1] for path in (tmp_path / "images").rglob("*.jpg"))
    assert n == sum(n_crops.values())
    labels = {split: {label for of, label in n_crops if of == split} for split in CROPS}
    assert labels["train"] == labels["test"]
    assert len(labels["train"]) >= 12
    assert all(n == (3 if split == "train" else 2) for (split, _), n in n_crops.items())


def test_the_same_seed_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_images, "CROPS", {"train": 1, "test": 1})
    for name in ("a", "b"):
        write_demo_images(tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.jpg"))
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_no_tile_of_training_overlaps_one_of_testing():
    boxes = {split: {tile_box((303, 384), tile_of_split(split, i)) for i in range(n)} for split, n in CROPS.items()}
    for left, top, right, bottom in boxes["train"]:
        for other_left, other_top, other_right, other_bottom in boxes["test"]:
            apart = right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
            assert apart
