"""Tables of images that users bring, from the file to a filtered search."""

import json
import os
import sqlite3
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from running import SMALL, json_of, refused, visterm

from visterm.pipeline import Searcher
from visterm.pipeline.config.models import CollectionConfig
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.fields import read_fields
from visterm.pipeline.store.manifests import read_manifest
from visterm.pipeline.store.notes import Notes

SETTINGS = (
    *SMALL,
    "--set",
    "features.n_visterms=10",
    "--set",
    "collection.labels=photos/metadata.csv",
    *("--set", "collection.label_column=none"),
)
PATHS = ["train/1.jpg", "train/2.jpg", "3.jpg"]


@pytest.fixture
def read(tmp_path):
    """Function (name, text) that writes a table into the directory of the images, and reads it."""

    def write_and_read(name, content, **settings):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        notes = Notes(file, skip_bad_rows=False)
        manifest = read_manifest(file, tmp_path, PATHS, {*PATHS, "notes.txt"}, CollectionConfig(**settings), notes)
        return manifest, notes.lines()

    return write_and_read


def test_a_table_with_and_without_labels(read):
    table, lines = read("labels.csv", "path,label\n3.jpg,x\n3.jpg,y\ngone.jpg,x\nnotes.txt,x\n")
    assert table.labels == {"3.jpg": {"x": 1.0, "y": 1.0}}
    assert (table.fields, table.example) == ({"3.jpg": {}}, "gone.jpg")
    assert lines == [
        "1 row of a file that is no image of the collection, such as notes.txt; skipped",
        "1 row without an image of the collection, such as gone.jpg; skipped",
    ]
    table, _ = read("metadata.csv", "file_name,camera\n3.jpg,X100\n", label_column="none")
    assert (table.labels, table.fields) == (None, {"3.jpg": {"camera": "X100"}})


def test_metadata_of_hugging_face(read):
    rows = "file_name,label,camera,date\n1.jpg,x,X100,2024-05\n2.jpg,,D70,\n"
    table, _ = read("train/metadata.csv", rows)  # its names are relative to its folder
    assert table.labels == {"train/1.jpg": {"x": 1.0}, "train/2.jpg": {}}
    assert table.fields == {
        "train/1.jpg": {"camera": "X100", "date": "2024-05-01T00:00:00"},
        "train/2.jpg": {"camera": "D70"},
    }
    lines = [
        {"file_name": "1.jpg", "label": 3, "iso": 200, "flash": True, "objects": {"bbox": []}},
        {"file_name": "2.jpg", "labels": ["x", "y"]},
    ]
    table, told = read("train/metadata.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
    assert table.labels == {"train/1.jpg": {"3": 1.0}, "train/2.jpg": {"x": 1.0, "y": 1.0}}
    assert table.fields["train/1.jpg"] == {"iso": "200", "flash": "true"}
    assert told == [
        "1 column beside label, such as labels; used where label is empty",
        "1 column of lists, such as objects; no fields of the images",
    ]


def test_annotations_of_coco(read):
    content = {
        "images": [
            {"id": 7, "file_name": "train/1.jpg", "width": 5, "height": 5, "license": 4},
            {"id": 8, "file_name": "3.jpg"},
            {"id": 9, "file_name": "gone.jpg"},
        ],
        "annotations": [
            {"image_id": 7, "category_id": 1},
            {"image_id": 7, "category_id": 2},
            {"image_id": 7, "category_id": 1},
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
    }
    table, lines = read("instances.json", content)
    assert table.labels == {"train/1.jpg": {"dog": 1.0, "cat": 1.0}, "3.jpg": {}}
    assert table.fields == {"train/1.jpg": {"license": "4"}, "3.jpg": {}}
    assert lines == [
        "1 row without an image of the collection, such as gone.jpg; skipped",
        "1 image that the table names without a label, such as 3.jpg",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "file_nam,label\n3.jpg,x\n", "a.csv: no column path or file_name that names the images; is file_nam"),
        ("a.csv", "what,label\n3.jpg,x\n", "a.csv: no column path or file_name that names the images; its columns"),
        ("a.csv", "path,label,label\n3.jpg,x,y\n", "a.csv: two columns label; rename one of them"),
        ("a.csv", "path,label\n3.jpg,\n", "a.csv: gives no label to any image of the collection (column label)"),
        ("a.csv", "path,label\n,x\n", "a.csv, line 2: an empty path"),
        ("a.csv", "path,label\n3.jpg,x,y\n", "a.csv, line 2: more cells than the first line has columns"),
        (
            "a.csv",
            "path,label,iso\n3.jpg,x,100\n3.jpg,x,200\n",
            "a.csv, line 3: 3.jpg is listed twice, with another iso: '200' after '100'; keep one",
        ),
        ("a.csv", "path,label,date\n3.jpg,x,May\n", "a.csv, line 2: 'May' is not a date"),
        ("a.jsonl", '{"file_name": "3.jpg"\n', "a.jsonl, line 1: not JSON ("),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1: not a JSON object"),
        ("a.jsonl", '{"file_name": [3], "label": 3}\n', "a.jsonl, line 1: file_name is not the name of a file"),
        ("a.jsonl", '{"name": "3.jpg"}\n', "a.jsonl: no column path or file_name"),
        ("a.json", "{", "a.json: not JSON"),
        ("a.json", [], "a.json: not COCO annotations"),
        ("a.json", {"images": [{"id": 1}]}, "a.json: not COCO annotations (images, annotations, categories): 'file_na"),
        (
            "a.json",
            {"images": [], "annotations": [{"category_id": 1}]},
            "a.json: not COCO annotations (images, annotations, categories): 'image_id' is missing",
        ),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(read, tmp_path, name, content, message):
    with pytest.raises(UserError) as error:
        read(name, content)
    assert str(error.value).removeprefix(os.path.join(tmp_path, "")).startswith(message)
    assert "\n" not in str(error.value)


def write_photo(file: Path, taken: str | None, camera: str | None = None):
    pixels = np.random.default_rng(len(file.name)).integers(0, 256, (96, 128, 3), np.uint8)
    exif = Image.Exif()
    if taken is not None:
        exif[0x0132] = taken
    if camera is not None:
        exif[0x0110] = camera
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(cv2.resize(pixels[:24, :32], (128, 96))).save(file, exif=exif)


def test_camera_and_place_are_fields_also_of_a_run_of_an_earlier_version(tmp_path):
    for i, camera in enumerate(("X100", "D70", None)):
        write_photo(tmp_path / f"photos/{i}.jpg", "2024:05:03 14:22:10", camera)
    visterm("features", "photos", *SMALL, "--set", "features.n_visterms=4", cwd=tmp_path)

    def paths(*options):
        (answer,) = json_of("search", "id:3", "--learner", "cosine", *options, cwd=tmp_path)
        return {result["path"]: result["fields"] for result in answer["results"]}

    fields = {"date": "2024-05-03T14:22:10", "date_source": "exif"}
    assert paths("--where", "camera=X100") == {"0.jpg": {"camera": "X100", **fields}}
    with sqlite3.connect(tmp_path / "runs/photos/collection/catalogue.sqlite") as db:
        db.execute("UPDATE fields SET taken = json_extract(taken, '$.date')")
    db.close()
    assert paths("--after", "2024-05-03") == {"0.jpg": fields, "1.jpg": fields}
    visterm("features", "photos", cwd=tmp_path)  # reads EXIF once more
    assert list(paths("--where", "camera!=X100")) == ["1.jpg"]
    assert "reading dates" not in visterm("features", "photos", cwd=tmp_path).stderr
    (tmp_path / "photos/metadata.csv").write_text("file_name,camera\n0.jpg,mine\n")  # the table comes first
    visterm("features", "photos", *SETTINGS[-4:], cwd=tmp_path)
    assert list(paths("--where", "camera=mine")) == ["0.jpg"]


def test_from_a_manifest_to_filtered_searches(tmp_path):
    taken = {
        "a.jpg": "2024:05:03 14:22:10",
        "b.png": "2024:06:01 00:00:00",
        "c.webp": "2023:01:01 00:00:00",
        "d.jpg": None,
    }
    for name, date in taken.items():
        write_photo(tmp_path / "photos" / name, date)
    os.utime(tmp_path / "photos/d.jpg", (0, 1_600_000_000))  # 2020
    (tmp_path / "photos/notes.txt").write_text("no image")
    manifest = tmp_path / "photos/metadata.csv"
    manifest.write_text("file_name,camera\na.jpg,X100\nb.png,X100\nc.webp,D70\ngone.jpg,D70\n")
    said = visterm("features", "photos", *SETTINGS, cwd=tmp_path).stderr
    assert "1 row without an image of the collection, such as gone.jpg" in said
    assert "1 other file ignored, such as notes.txt" in said
    assert "skipped:" not in said

    def paths(*options):
        (answer,) = json_of("search", "id:4", "--learner", "cosine", *options, cwd=tmp_path)
        return {result["path"]: result.get("fields") for result in answer["results"]}

    assert paths("--after", "2024-05", "--before", "2024-06") == {
        "a.jpg": {"camera": "X100", "date": "2024-05-03T14:22:10", "date_source": "exif"}
    }
    assert sorted(paths("--where", "camera=X100")) == ["a.jpg", "b.png"]
    assert list(paths("--where", "camera!=X100", "--where", "date<2024")) == ["c.webp"]
    assert list(paths().values()) == [None, None, None]  # no fields without a condition on them
    refusal = refused("search", "id:4", "--learner", "cosine", "--where", "camra=X100", cwd=tmp_path)
    assert refusal == "visterm: no image has the field 'camra'; did you mean camera?"

    searcher = Searcher(tmp_path / "runs/photos")
    (answer,) = searcher.search("id:1", learner="cosine", where="date_source=file")
    assert [result["path"] for result in answer["results"]] == ["d.jpg"]
    assert answer["results"][0]["fields"]["date"].startswith("2020-09-13")

    # a manifest that changes is read again, images added by hand are in it, too, and a snapshot knows of both
    write_photo(tmp_path / "photos/e.jpg", "2024:05:04 00:00:00")
    manifest.write_text("file_name,camera\na.jpg,X200\ne.jpg,X200\n")
    visterm("add", "photos/e.jpg", cwd=tmp_path)
    assert not searcher.is_current()
    assert sorted(paths("--where", "camera=X200")) == ["e.jpg"]
    visterm("features", cwd=tmp_path)
    assert sorted(paths("--where", "camera=X200")) == ["a.jpg", "e.jpg"]
    assert Searcher(searcher.run).version != searcher.version
    visterm("compact", cwd=tmp_path)
    with Collection(tmp_path / "runs/photos/collection") as collection:
        assert len(read_fields(collection)) == 5
