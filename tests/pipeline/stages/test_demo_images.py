"""The demo's images: enough of them, and none that a learner has seen is tested."""

from __future__ import annotations

from collections import Counter

from visterm.pipeline.stages.demo_images import CROPS, tile_box, tile_of_split, write_demo_images


def test_twelve_classes_of_fifty(tmp_path):
    n = write_demo_images(tmp_path / "images")
    found = Counter(path.parts[-3:-1] for path in (tmp_path / "images").rglob("*.jpg"))
    assert n == sum(found.values())
    assert {label for _, label in found} == {label for split, label in found if split == "test"}
    assert len({label for _, label in found}) >= 12
    assert set(found.values()) == {30, 20}


def test_the_same_seed_the_same_bytes(tmp_path):
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
