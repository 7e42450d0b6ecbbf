"""Duplicates that people say are different pictures: never shown together again, and taken back by undo."""

import os
import shutil

import pytest
from running import json_of, refused, visterm

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run
from visterm.teaching import overview
from visterm.teaching.different import DifferentPictures
from visterm.teaching.not_same import say_different, undo_different


@pytest.fixture
def copies(mine, monkeypatch):
    """The run with two copies of an image, each in an order of its own."""
    monkeypatch.setattr(overview, "alike_limit", lambda config: 1.1)
    monkeypatch.chdir(mine)
    for name in ("a", "b"):
        shutil.copy("fruit/pear/1.jpg", f"fruit/pear/{name}.jpg")
    visterm("features", "fruit", cwd=mine)
    return mine


def groups(folder):
    listed = json_of("duplicates", cwd=folder)["groups"]
    return [sorted(image["path"].removesuffix(".jpg") for image in group["images"]) for group in listed]


def test_what_is_said_to_differ_is_listed_together_no_more_until_undone(copies):
    assert groups(copies) == [["pear/1", "pear/a", "pear/b"]]
    done = json_of("duplicates", "pear/a.jpg", "pear/b.jpg", "--not-same", cwd=copies)
    assert done == {"step": 1, "images": 2}
    (pair,) = groups(copies)
    assert len(pair) == 2
    assert "pear/1" in pair
    assert (
        "--undo"
        in visterm("duplicates", "pear/1.jpg", *[f"{name}.jpg" for name in pair[1:]], "--not-same", cwd=copies).stderr
    )
    assert len(groups(copies)) <= 1
    for left in (1, 0):
        assert json_of("duplicates", "--undo", cwd=copies)["images"] == 2
        assert len(DifferentPictures(Run(copies / "runs/fruit").different).standing()) == left
    assert groups(copies) == [["pear/1", "pear/a", "pear/b"]]
    assert json_of("duplicates", "--undo", cwd=copies) == {"step": None, "images": 0}
    assert "nothing to undo" in visterm("duplicates", "--undo", cwd=copies).stderr


@pytest.mark.slow
def test_it_outlives_features_a_moved_file_and_damage(copies):
    run = Run(copies / "runs/fruit")
    say_different(run, [["pear/1.jpg"], ["pear/a.jpg"], ["pear/b.jpg"]])
    assert groups(copies) == []
    os.rename("fruit/pear/b.jpg", "fruit/pear/moved.jpg")
    visterm("features", "fruit", cwd=copies)
    assert groups(copies) == []
    run.different.write_bytes(b"damaged")
    assert "repair" in refused("duplicates", cwd=copies)
    assert "pictures said to be different: 3 rows" in visterm("repair", "--run", "fruit", cwd=copies).stderr
    assert groups(copies) == []
    run.different.unlink()  # the copy says that it was there
    assert "is gone" in refused("duplicates", cwd=copies)
    visterm("repair", "--run", "fruit", cwd=copies)
    undo_different(run)
    assert groups(copies) == [["pear/1", "pear/a", "pear/moved"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--not-same"], "two or more images"),
        (["pear/1.jpg", "--not-same"], "two or more images"),
        (["pear/1.jpg", "pear", "--not-same"], "is given twice"),
        (["pear/1.jpg", "nowhere.jpg", "--not-same"], "no image nowhere.jpg; nothing was kept"),
        (["pear/1.jpg", "--undo"], "give it alone"),
        (["--not-same", "--undo"], "give it alone"),
        (["pear/1.jpg"], "images are for --not-same"),
    ],
)
def test_bad_input(mine, arguments, message):
    assert message in refused("duplicates", *arguments, cwd=mine)
    assert not Run(mine / "runs/fruit").different.exists()


def test_an_image_that_was_removed_is_refused(mine, run, monkeypatch):
    monkeypatch.chdir(mine)
    visterm("remove", "pear/1.jpg", cwd=mine)
    with pytest.raises(UserError, match="was removed"):
        say_different(run, [["pear/1.jpg"], ["pear/2.jpg"]])
    with pytest.raises(UserError, match="no such run"):
        undo_different(Run(mine / "runs/none"))
