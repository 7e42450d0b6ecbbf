"""Labels and clicks from tables."""

from __future__ import annotations

import pytest

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.errors import UserError


def test_labels_from_a_table(collection, tmp_path, touch, extract):
    touch(tmp_path / "images", "1.jpg", "2.jpg", "3.jpg")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.jpg,red\n1.jpg,round\n2.jpg,red\ngone.jpg,red\n")
    collection.scan(tmp_path / "images", load_config(None, [f"collection.labels={table}"]))
    extract(collection)
    assert [image.labels for image in collection.images()] == [{"red": 1.0, "round": 1.0}, {"red": 1.0}, {}]


def test_a_table_from_a_spreadsheet_may_begin_with_a_mark(collection, tmp_path, touch, extract):
    touch(tmp_path / "images", "1.jpg")
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n1.jpg,red\n", encoding="utf-8-sig")
    collection.scan(tmp_path / "images", load_config(None, [f"collection.labels={table}"]))
    extract(collection)
    assert [image.labels for image in collection.images()] == [{"red": 1.0}]


def test_clicks_from_a_table(collection, tmp_path, touch, extract):
    touch(tmp_path / "images", "1.jpg", "2.jpg")
    table = tmp_path / "clicks.csv"
    table.write_text("query,path,count\ncat,1.jpg,3\ncat,1.jpg,2\ndog,2.jpg,1\n")
    collection.scan(tmp_path / "images", load_config(None, [f"collection.clicks={table}"]))
    extract(collection)
    assert [image.labels for image in collection.images()] == [{"cat": 5.0}, {"dog": 1.0}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path;label\n", "no column path"),
        ("path,label\n1.jpg,\n", "line 2: an empty label"),
        ("path,label\nx.jpg,a\n", "none of its 1 paths"),
        ("path,label\n", "none of its 0 paths"),
    ],
)
def test_a_wrong_table_is_one_clear_line(collection, tmp_path, text, message, touch):
    touch(tmp_path / "images", "1.jpg")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        collection.scan(tmp_path / "images", load_config(None, [f"collection.labels={tmp_path / 'labels.csv'}"]))
    assert collection.pending() == [], "a refused scan changes nothing"


def test_a_wrong_count_names_its_line(collection, tmp_path, touch):
    touch(tmp_path / "images", "1.jpg")
    (tmp_path / "clicks.csv").write_text("query,path,count\ncat,1.jpg,-3\n")
    with pytest.raises(UserError, match="line 2: count '-3' is not a positive number"):
        collection.scan(tmp_path / "images", load_config(None, [f"collection.clicks={tmp_path / 'clicks.csv'}"]))
