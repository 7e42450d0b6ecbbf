"""Filters by label and folder, and albums."""

import pytest

from visterm.pipeline.search.filters import NO_FILTER, Albums, Filter, covers
from visterm.pipeline.store.catalogue import Image

IMAGES = [
    Image(i, path, str(i), dict.fromkeys(labels, 1.0), None, 0, i)
    for i, (path, labels) in enumerate(
        [("a/1.jpg", ["x"]), ("a/b/2.jpg", ["x", "y"]), ("ab/3.jpg", ["y"]), ("4.jpg", []), ("a/5.jpg", ["x"])]
    )
]


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (NO_FILTER, [0, 1, 2, 3, 4]),
        (Filter(label=("x",)), [0, 1, 4]),
        (Filter(label=("x", "y")), [0, 1, 2, 4]),
        (Filter(label=("x",), not_label=("y",)), [0, 4]),
        (Filter(not_label=("x",)), [2, 3]),
        (Filter(folder="a"), [0, 1, 4]),  # and below; ab is another folder
        (Filter(folder="a/b/"), [1]),
        (Filter(folder="."), [3]),
        (Filter(label=("z",)), []),
    ],
)
def test_rows(wanted, rows):
    assert wanted.rows(IMAGES).tolist() == rows


def test_albums_are_the_largest_first():
    albums = Albums(IMAGES)
    assert albums.labels == {"x": [0, 1, 4], "y": [1, 2]}
    assert list(albums.labels) == ["x", "y"]
    assert albums.folders == {"a": [0, 4], "": [3], "a/b": [1], "ab": [2]}
    assert not albums.are_alike
    assert Albums([IMAGES[0]._replace(path="x/1.jpg"), IMAGES[2]._replace(path="y/1.jpg")]).are_alike


def test_covers_are_spread():
    assert covers(range(100)) == [0, 25, 50, 75]
    assert covers([3, 4]) == [3, 4]
