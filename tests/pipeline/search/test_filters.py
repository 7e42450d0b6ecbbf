"""Filters by label, folder, date and fields, and albums."""

import pytest

from visterm.pipeline.search.filters import NO_FILTER, AlbumRows, Condition, Fields, Filter, InvalidFilter, covers
from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.store.fields import FieldsRow
from visterm.pipeline.store.images import Image

IMAGES = [  # sorted by path, as those of a gallery
    Image(i, path, str(i), dict.fromkeys(labels, 1.0), None, 0, i)
    for i, (path, labels) in enumerate(
        [("4.jpg", []), ("a-b/3.jpg", ["y"]), ("a/1.jpg", ["x"]), ("a/5.jpg", ["x"]), ("a/b/2.jpg", ["x", "y"])]
    )
]
FIELDS = Fields(
    [
        FieldsRow("2024-05-01T00:00:00", "exif", {"camera": "X100", "iso": "200"}),
        FieldsRow("2024-04-30T23:59:59", "exif", {"camera": "X100", "iso": "1600"}),
        FieldsRow("2023-12-31T12:00:00", "file", {"camera": "D70"}),
        FieldsRow("2024-05-31T08:15:00", "manifest", {"iso": "1600.0"}),
        None,
    ]
)


def filter_of(**conditions):
    return SearchRequest.of(**conditions).filter


def rows(wanted):
    return wanted.rows(IMAGES, AlbumRows(IMAGES), FIELDS).tolist()


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (NO_FILTER, [0, 1, 2, 3, 4]),
        (Filter(label=("x",)), [2, 3, 4]),
        (Filter(label=("x", "y")), [1, 2, 3, 4]),
        (Filter(label=("x",), not_label=("y",)), [2, 3]),
        (Filter(not_label=("x",)), [0, 1]),
        (Filter(folder="a"), [2, 3, 4]),  # and below; a-b is another folder
        (Filter(folder="a/b/"), [4]),
        (Filter(folder="."), [0]),
        (Filter(label=("z",)), []),
        (Filter(label=("y",), folder="a"), [4]),
    ],
)
def test_rows(wanted, expected):
    assert rows(wanted) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("camera=X100", [0, 1]),
        (" camera = X100 ", [0, 1]),
        ("camera!=X100", [2]),  # an image without a camera has no other one
        (["camera=X100", "iso>500"], [1]),
        ("iso=1600", [1, 3]),  # as numbers
        ("iso<1000", [0]),
        ("iso>=200", [0, 1, 3]),
        ("camera<E", [2]),  # in alphabetical order
        ("camera>=E", [0, 1]),
        ("date=2024-05", [0, 3]),
        ("date!=2024-05", [1, 2]),
        ("date<=2024", [0, 1, 2, 3]),
        ("date>2024-05-01", [3]),
        ("date<2024-05-01T00:00", [1, 2]),
        ("date_source=file", [2]),
    ],
)
def test_conditions(where, expected):
    assert rows(filter_of(where=where)) == expected


def test_dates_albums_and_covers():
    assert rows(filter_of(after="2024-05")) == [0, 3]
    assert rows(filter_of(before="2024-05")) == [1, 2]
    assert rows(filter_of(after="2024-4-30", before="2024-05-31T08:15:00")) == [0, 1]
    assert rows(filter_of(after="2024-05-31T08:15")) == [3]
    albums = AlbumRows(IMAGES)
    assert albums.labels == {"x": [2, 3, 4], "y": [1, 4]}
    assert list(albums.labels) == ["x", "y"]
    assert albums.folders == {"a": [2, 3], "": [0], "a-b": [1], "a/b": [4]}
    assert not albums.are_alike
    assert AlbumRows([IMAGES[2]._replace(path="x/1.jpg"), IMAGES[1]._replace(path="y/1.jpg")]).are_alike
    assert covers(range(100)) == [0, 25, 50, 75]
    assert covers([3, 4]) == [3, 4]
    with pytest.raises(InvalidFilter, match="no image has the field 'camera'; the images have none"):
        Fields([None, None]).passes(Condition("camera", "=", "X100"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"where": "camrea=X100"}, "no image has the field 'camrea'; did you mean camera?"),
        ({"where": "lens=50"}, "no image has the field 'lens'; there are date, date_source, camera, iso"),
        ({"where": "camera=X10"}, "no image has the camera 'X10'; did you mean X100?"),
        ({"where": "camera"}, "where: 'camera' is no condition; give a field"),
        ({"where": "camera="}, "where: 'camera=' is no condition"),
        ({"where": "date>May"}, "where: 'May' is not a date"),
        ({"after": "2024-13"}, "after: '2024-13' is not a date"),
        ({"before": "2024-02-30"}, "before: '2024-02-30' is not a date"),
    ],
)
def test_what_no_image_has_is_refused(options, message):
    with pytest.raises(InvalidFilter) as error:
        rows(filter_of(**options))
    assert str(error.value).startswith(message)
