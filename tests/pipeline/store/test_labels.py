"""Labels and clicks from tables."""

import pytest

from visterm.pipeline.errors import UserError


@pytest.mark.parametrize(
    ("kind", "text", "labels"),
    [
        (
            "labels",
            "path,label\n1.jpg,red\n1.jpg,round\n2.jpg,red\ngone.jpg,red\n",
            [{"red": 1.0, "round": 1.0}, {"red": 1.0}, {}],
        ),
        ("labels", "\ufeffpath,label\n1.jpg,red\n", [{"red": 1.0}, {}, {}]),  # as spreadsheets begin it
        ("clicks", "query,path,count\ncat,1.jpg,3\ncat,1.jpg,2\ndog,2.jpg,1\n", [{"cat": 5.0}, {"dog": 1.0}, {}]),
    ],
)
def test_labels_and_clicks_from_a_table(tmp_path, scan, extract, kind, text, labels):
    (tmp_path / "table.csv").write_text(text, encoding="utf-8")
    scan("1.jpg", "2.jpg", "3.jpg", settings=[f"collection.{kind}={tmp_path}/table.csv"])
    assert [image.labels for image in extract()] == labels


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("labels", "path,label\nx.jpg,a\n", "none of its rows names an image of the collection, not even x.jpg"),
        ("labels", "path,label\n", "none of its rows names an image"),
        ("clicks", "query,path,count\ncat,1.jpg,-3\n", "line 2: count '-3' is not a positive number"),
    ],
)
def test_a_wrong_table_is_one_clear_line(collection, tmp_path, scan, kind, text, message):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        scan("1.jpg", settings=[f"collection.{kind}={tmp_path}/table.csv"])
    assert collection.pending() == [], "a refused scan changes nothing"
