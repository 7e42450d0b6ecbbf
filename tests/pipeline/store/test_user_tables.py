"""Tables as people and other programs write them: used right, or counted in a line."""

import json
import random

import pytest

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.config.models import CollectionConfig
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.fields import read_fields
from visterm.pipeline.store.labels import read_labels
from visterm.pipeline.store.splits import Layout

PHOTOS = ("a/1.jpg", "a/2.jpg", "b/3.jpg", "b/4.jpg")
RED_AND_BLUE = {"a/1.jpg": ["red"], "a/2.jpg": ["blue"], "b/3.jpg": ["red"], "b/4.jpg": ["blue"]}
ROWS = "a/1.jpg,red\na/2.jpg,blue\nb/3.jpg,red\nb/4.jpg,blue\n"


@pytest.fixture
def read(collection, tmp_path, scan, extract):
    """Function (name, content, *settings, photos) that scans photos with a table; returns their labels, and lines."""

    def read(name, content, *settings, photos=PHOTOS):
        table = tmp_path / name
        table.parent.mkdir(parents=True, exist_ok=True)
        content = content if isinstance(content, str | bytes) else json.dumps(content)
        table.write_bytes(content if isinstance(content, bytes) else content.encode())
        scan(*photos, settings=[f"collection.labels={table}", *settings])
        labels = {image.path: sorted(image.labels) for image in extract()}
        return labels, collection.label_source()[1]

    return read


def coco(images, annotations, names=("red", "blue")):
    """Annotations of COCO: images by id, pairs of image_id and category_id."""
    return {
        "images": [{"id": id_, "file_name": name} for id_, name in images.items()],
        "annotations": [{"image_id": image, "category_id": category} for image, category in annotations],
        "categories": [{"id": i, "name": name} for i, name in enumerate(names)],
    }


def supercategories():
    content = coco(BATCHES, ALTERNATING, ("x", "y"))
    for category, name in zip(content["categories"], ("red", "blue"), strict=True):
        category["supercategory"] = name
    for image, path in zip(content["images"], PHOTOS, strict=True):
        image |= {"url": f"../images/{path}", "colour": RED_AND_BLUE[path][0]}
    return content


BATCHES = {number: f"../images/{path}" for number, path in enumerate(PHOTOS)}
ALTERNATING = [(i, i % 2) for i in range(4)]
# Content of a table, which gives every photo its label, whatever its folder.
SAME = {
    "near name of the column": ("t.csv", "path,Label\n" + ROWS),
    "space before the name": ("t.csv", "path, label\n" + ROWS),
    "labels": ("t.csv", "path,labels\n" + ROWS),
    "class": ("t.csv", "path,class\n" + ROWS),
    "Category Name": ("t.csv", "path,Category Name\n" + ROWS),
    "space before the label": ("t.csv", "path,label\n" + ROWS.replace(",", ", ")),
    "semicolons": ("t.csv", "path;label\n" + ROWS.replace(",", ";")),
    "tabs": ("t.tsv", "path\tlabel\n" + ROWS.replace(",", "\t")),
    "sep": ("t.csv", "sep=;\r\npath;label\r\n" + ROWS.replace(",", ";")),
    "UTF-16": ("t.txt", ("path\tlabel\n" + ROWS.replace(",", "\t")).encode("utf-16")),
    "blank lines": ("t.csv", "\npath,label\n" + ROWS + "\n,\n , \n"),
    "empty columns": ("t.csv", "path,label,,\n" + ROWS.replace("\n", ",,\n")),
    "file names": ("t.csv", "Image,class\n" + ROWS.replace("a/", "").replace("b/", "")),
    "no endings": ("t.csv", "id,breed\n" + ROWS.replace("a/", "").replace("b/", "").replace(".jpg", "")),
    "paths without endings": ("t.csv", "path,label\n" + ROWS.replace(".jpg", "")),
    "backslashes": ("t.csv", "path,label\n" + ROWS.replace("/", "\\")),
    "of a PC": ("t.csv", "path,label\n" + "".join(f"C:\\photos\\{row}\n" for row in ROWS.replace("/", "\\").split())),
    "of another folder": ("t.csv", "path,label\n" + "".join(f"/content/set/{row}\n" for row in ROWS.split())),
    "capitals": ("t.csv", "path,label\n" + ROWS.replace("jpg", "JPG").replace("a/", "A/")),
    "numbers with names": ("t.csv", "path,label,label_name\n" + ROWS.replace(",", ",7,")),
    "JSON lines": (
        "t.jsonl",
        "".join(json.dumps({"file_name": f"images/{p}", "category": r}) + "\n" for p, (r,) in RED_AND_BLUE.items()),
    ),
    "a list in JSON": ("t.json", [{"path": path, "class": label} for path, (label,) in RED_AND_BLUE.items()]),
    "ids as texts": ("t.json", coco(BATCHES, [(str(i), str(category)) for i, category in ALTERNATING])),
    "ids as fractions": ("t.json", coco(BATCHES, [(float(i), float(category)) for i, category in ALTERNATING])),
}


@pytest.mark.parametrize("kind", SAME)
def test_a_table_is_read_as_it_is_meant(read, kind):
    name, content = SAME[kind]
    settings = ["collection.label_column=breed"] if kind == "no endings" else []
    assert read(name, content, *settings)[0] == RED_AND_BLUE


def test_a_table_of_windows(read):
    labels, lines = read("t.csv", "path,label\na/1.jpg,Käfer\na/2.jpg,Käfer\n".encode("cp1252"))
    assert labels == {"a/1.jpg": ["Käfer"], "a/2.jpg": ["Käfer"], "b/3.jpg": [], "b/4.jpg": []}
    assert any("2 cells not in UTF-8, such as Käfer; read as Windows-1252" in line for line in lines)


def test_labels_and_names_of_a_mac(read):
    """The files' names have an accent of its own, those of the table a single character."""
    names = ["e\u0301/1.jpg", "e\u0301/2.jpg"]
    labels, lines = read("t.csv", "path,label\n\u00e9/1.jpg,caf\u00e9\n\u00e9/2.jpg,cafe\u0301\n", photos=names)
    assert labels == dict.fromkeys(names, ["caf\u00e9"])
    assert "2 names in another Unicode form" in lines[0]
    assert read("t.csv", "", "collection.labels=auto", photos=names)[0] == dict.fromkeys(names, ["\u00e9"])


def test_what_is_not_used_is_counted(read):
    table = "path,label,date,extra\na/1.jpg,red,2024-05-01T10:00:00+02:00,1\na/2.jpg,NaN,May,\ngone.jpg,red,,\n"
    labels, lines = read("t.csv", table + "b/3.jpg,blue\nb/3.jpg,red\n")
    assert labels == {"a/1.jpg": ["red"], "a/2.jpg": [], "b/3.jpg": ["blue", "red"], "b/4.jpg": []}
    assert [line.partition("t.csv: ")[2] for line in lines] == [
        "1 date that cannot be read, such as line 3, 'May'; skipped",
        "1 label without a value, such as line 3, 'NaN'; skipped",
        "2 rows with fewer cells than the first line has columns, such as line 5",
        "1 row without an image of the collection, such as gone.jpg; skipped",
        "1 image that the table names without a label, such as a/2.jpg",
        "",
    ]
    assert lines[-1] == "1 image in no row of t.csv, such as b/4.jpg: no label"


@pytest.mark.parametrize("separator", ["|", ";", " | "])
def test_joined_labels(read, separator):
    content = f"path,label\na/1.jpg,red{separator}round\nb/3.jpg,red\n"
    labels, lines = read("t.csv", content)
    assert labels["a/1.jpg"] == ["red", "round"]
    assert "1 label joined by | or ;" in lines[0]
    labels, _ = read("t.csv", content, "collection.label_separator=none")
    assert labels["a/1.jpg"] == [f"red{separator}round"]
    labels, lines = read("t.csv", "path,label\na/1.jpg,animal > dog\n", "collection.label_separator='>'")
    assert (labels["a/1.jpg"], "1 label of several, such as animal > dog" in lines[0]) == (["animal", "dog"], True)


@pytest.mark.parametrize("cell", ['["red", "round"]', "['red', 'round']", "['red' 'round']", '["r\\u0065d","round"]'])
def test_a_cell_with_a_list(read, cell):
    """As pandas writes lists, and arrays of NumPy."""
    content = f'path;label\na/1.jpg;"{cell.replace(chr(34), chr(34) * 2)}"\nb/3.jpg;[red]\n'
    labels, lines = read("t.csv", content)
    assert (labels["a/1.jpg"], labels["b/3.jpg"]) == (["red", "round"], ["[red]"])
    assert "1 label written as a list, such as [" in lines[0]
    assert read("t.csv", content, "collection.label_separator=none")[0]["a/1.jpg"] == [cell]


def test_labels_that_are_probably_one_or_several_are_said(read):
    table = 'path,label\na/1.jpg,"red,round"\na/2.jpg,"blue, round"\nb/3.jpg,"salt, pepper"\nb/4.jpg,"Salt, pepper"\n'
    labels, lines = read("t.csv", table)
    assert labels["a/1.jpg"] == ["red,round"]
    text = "\n".join(lines)
    assert (
        "1 label in different capitals, spaces, hyphens or digits, such as Salt, pepper and salt, pepper; different"
        in text
    )
    assert "4 labels with a comma, such as Salt, pepper; kept whole; --set \"collection.label_separator=','\"" in text
    labels, lines = read("t.csv", table.rpartition("b/4")[0], "collection.label_separator=','")
    assert (labels["a/1.jpg"], any("comma" in line for line in lines)) == (["red", "round"], False)
    assert not any("comma" in line for line in read("t.csv", 'path,label\na/1.jpg,"salt, pepper"\na/2.jpg,a\n')[1])
    # As of Planet's photos of the Amazon.
    table = "image_name,tags\n1,haze primary\n2,clear primary\n3,clear\n"
    labels, lines = read("t.csv", table)
    assert labels["a/1.jpg"] == ["haze primary"]
    told = "2 labels of several words, such as clear primary; kept whole; --set \"collection.label_separator=' '\""
    assert any(told in line for line in lines)
    assert not any("several words" in line for line in read("t.csv", table.replace("tags", "class"))[1])
    assert read("t.csv", table, "collection.label_separator=' '")[0]["a/1.jpg"] == ["haze", "primary"]


@pytest.mark.parametrize("encoding", ["cp1252", "mac_roman", "cp437", "cp850", "&auml;", "%C3%A4", "\\u00e4"])
def test_labels_and_values_that_an_earlier_tool_garbled_are_said(read, encoding):
    garbled = "Käfer".encode().decode(encoding) if encoding.isalnum() or "_" in encoding else f"K{encoding}fer"
    labels, lines = read("t.csv", f"path,label,title\na/1.jpg,{garbled},Ein {garbled}\na/2.jpg,Käfer,\nb/3.jpg,a,\n")
    assert (labels["a/1.jpg"], labels["a/2.jpg"]) == ([garbled], ["Käfer"])
    for noun, text in (("label", ""), ("value", "Ein ")):
        told = (
            f"1 {noun} that an earlier tool probably garbled, such as {text}{garbled} ({text}Käfer?); kept as written"
        )
        assert any(told in line for line in lines), lines


def test_labels_that_are_written_as_they_are_meant(read):
    """Words of several languages, which could be text in another encoding were it not for their letters."""
    words = "l’école,«École»,São,NÃO,CORAÇÃO,РЁВ,Кошка,联通,AT&T,50% off,100%,A&B;,Ærø,œuf,½,25 °C,Â,Žluť,Γάτα,x%ff"
    rows = "".join(f"a/1.jpg,{word}\n" for word in words.split(","))
    assert not any("garbled" in line for line in read("t.csv", f"path,label\n{rows}")[1])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(
            ("red apple", other)
            for other in ("Red apple", "red\u00a0apple", "red_apple", "red apple\u200b", "red-apple")
        ),
        *(("1", other) for other in ("1.0", "01")),
    ],
)
def test_labels_that_are_written_in_two_ways_are_said(read, one, other):
    labels, lines = read("t.csv", f"path,label\na/1.jpg,{one}\na/2.jpg,{other}\nb/3.jpg,plum\n")
    assert labels["a/2.jpg"] == [other]
    assert any("1 label in different capitals, spaces, hyphens or digits, such as" in line for line in lines)


@pytest.mark.parametrize(
    ("label", "line"),
    [
        (
            lambda i: f"a photo of {i}",
            "12 labels of one image each, such as a photo of 0; kept; set collection.label_col",
        ),
        (lambda i: f"{1.5 * i}", "12 labels of one image each, such as 0.0; kept"),
        (
            lambda i: ("train", "val")[i % 2],
            "2 labels that name a split, such as train; kept; set collection.label_column",
        ),
        (lambda i: f"pair {i // 2}", None),
    ],
)
def test_labels_of_a_column_of_another_meaning_are_said(read, label, line):
    names = [f"{i}.jpg" for i in range(12)]
    table = "path,label\n" + "".join(f"{name},{label(i)}\n" for i, name in enumerate(names))
    lines = read("t.csv", table, photos=names)[1]
    assert [told.partition("t.csv: ")[2][: len(line)] for told in lines] == [line] if line else not lines


def test_labels_that_may_mean_none_are_said(read):
    """None is what Python writes, and a class of wafers without a fault."""
    table = "path,label\na/1.jpg,None\na/2.jpg,?\nb/3.jpg,red\nb/4.jpg,n/a\n"
    labels, lines = read("t.csv", table)
    assert labels["a/1.jpg"] == ["None"]
    told = "2 labels that may say that there is none, such as None; kept; an empty cell gives none"
    assert any(told in line for line in lines)


@pytest.mark.parametrize(
    ("column", "values", "line"),
    [
        (
            "split",
            "11",
            "1 column that names neither train, test nor validation, such as split (1); a field; the split",
        ),
        (
            "data_split",
            ("Train", "Valid"),
            "1 column that may name the split, such as data_split; a field; called split",
        ),
        ("Usage", ("Training", "PublicTest"), "1 column that may name the split, such as Usage; a field; called split"),
        ("is_train", "01", "1 column that may name the split, such as is_train; a field; called split, it is taken"),
        ("vehicle", ("train", "bus"), None),
        ("labels", ("a", "b"), "1 column beside label, such as labels; used where label is empty"),
    ],
)
def test_a_column_that_is_not_used_as_it_may_be_meant_is_said(read, column, values, line):
    rows = "".join(f"{row},{values[i % 2]}\n" for i, row in enumerate(ROWS.splitlines()))
    lines = read("t.csv", f"path,label,{column}\n{rows}")[1]
    assert [told.partition("t.csv: ")[2][: len(line or "")] for told in lines] == ([line] if line else [])


def test_a_row_per_object(read):
    """Boxes are no fields of a photo; a label with a confidence of 0 is one that somebody refuted."""
    content = "ImageID,Source,LabelName,Confidence,XMin,IsOccluded\n"
    content += "1,x,red,1,0.1,0\n1,y,blue,1,0.2,1\n1,y,red,1,0.3,1\n3,x,red,0,0.5,0\n3,x,blue,1,0.5,0\n"
    labels, lines = read("t.csv", content)
    assert (labels["a/1.jpg"], labels["b/3.jpg"]) == (["blue", "red"], ["blue"])
    text = "\n".join(lines)
    assert "1 row with a confidence of 0" in text
    assert "4 columns of objects, as rows of an image differ, such as Confidence, IsOccluded, Source, XMin" in text


@pytest.mark.parametrize("objects", [{"category": ["red", "blue", "red"]}, [{"category": "red"}, {"category": "blue"}]])
def test_labels_of_nested_objects(read, objects):
    """As in Hugging Face's metadata of objects."""
    content = json.dumps({"file_name": "1.jpg", "objects": objects}) + "\n"
    labels, _ = read("t.jsonl", content, "collection.label_column=objects.category")
    assert labels["a/1.jpg"] == ["blue", "red"]


def test_a_column_per_label(read):
    """As Roboflow exports several labels per photo."""
    content = "filename, red, round\n1.jpg, 1, 1\n2.jpg, 0, 1\n3.jpg, 0, 0\n"
    labels, _ = read("t.csv", content, "collection.label_column=0/1")
    assert labels == {"a/1.jpg": ["red", "round"], "a/2.jpg": ["round"], "b/3.jpg": [], "b/4.jpg": []}
    lines = "".join(json.dumps({"path": p, "red": i < 2, "round": i != 1}) + "\n" for i, p in enumerate(PHOTOS))
    labels, _ = read("t.jsonl", lines, "collection.label_column=0/1")
    assert list(labels.values()) == [["red", "round"], ["red"], ["round"], ["round"]]


def test_annotations_of_no_image_are_counted_and_names_of_categories_whole(read):
    labels, lines = read("t.json", coco(BATCHES, [*ALTERNATING, (77, 0), (77, 1)]))
    assert labels == RED_AND_BLUE
    assert "2 annotations of no image in the file, such as" in lines[0]
    assert "image_id 77" in lines[0]
    assert read("t.json", coco(BATCHES, ALTERNATING, ["a|b", "c;d"]))[0]["a/2.jpg"] == ["c;d"]
    assert read("t.jsonl", '{"path": "a/2.jpg", "labels": ["c;d"]}\n')[0]["a/2.jpg"] == ["c;d"]
    labels, _ = read("t.json", coco(BATCHES, ALTERNATING, [7, 8]))
    assert labels == {"a/1.jpg": ["7"], "a/2.jpg": ["8"], "b/3.jpg": ["7"], "b/4.jpg": ["8"]}


@pytest.mark.parametrize(
    ("column", "words"), [("supercategory", "supercategory of the categories"), ("colour", "colour of the images")]
)
def test_a_column_of_coco_that_is_asked_for_has_the_labels(read, collection, column, words):
    assert read("t.json", supercategories(), f"collection.label_column={column}")[0] == RED_AND_BLUE
    assert words in collection.label_source()[0]
    assert read("t.json", supercategories(), "collection.label_column=category")[0]["a/1.jpg"] == ["x"]
    photos = supercategories()
    for image in photos["images"]:
        image["file_name"] = "nothing.jpg"
    settings = [f"collection.label_column={column}", "collection.name_column=url"]
    assert read("t.json", photos, *settings)[0] == RED_AND_BLUE


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("label_column=0/1", "a column per label, not of COCO"),
        ("label_column=breed", "no column breed, which collection.label_column names; its columns are colour, .*url"),
        ("name_column=breed", "no column breed, which collection.name_column names; its columns are colour"),
    ],
)
def test_a_column_that_coco_has_not_is_refused(read, setting, message):
    with pytest.raises(UserError, match=message):
        read("t.json", supercategories(), f"collection.{setting}")


def test_a_missing_photo_gives_its_label_to_no_other(read):
    labels, _ = read("t.csv", "path,label\na/1.jpg,red\ngone/2.jpg,blue\n")
    assert labels["a/2.jpg"] == []
    table = "file_name,label\n1.jpg,red\n3.jpg,blue\n5.jpg,blue\n"  # of a folder in which 3.jpg and 5.jpg are gone
    labels, lines = read("images/a/metadata.csv", table, photos=(*PHOTOS, "5.jpg"))
    assert [path for path, own in labels.items() if own] == ["a/1.jpg"]
    assert "2 rows without an image of the collection, such as 3.jpg" in lines[0]


def test_base_names_that_several_images_have_are_counted(read):
    labels, lines = read("t.csv", "path,label\n1.jpg,red\n2.jpg,blue\n", photos=("a/1.jpg", "b/1.jpg", "b/2.jpg"))
    assert labels == {"a/1.jpg": [], "b/1.jpg": [], "b/2.jpg": ["blue"]}
    assert "1 name of several images, such as 1.jpg; skipped" in lines[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "path,breed\n" + ROWS, "no column label among path, breed; name the one of the labels by --set"),
        ("t.csv", "path,class,category\na/1.jpg,red,blue\n", "which of the columns class, category holds the labels"),
        ("t.csv", "path,label\na/1.jpg,\na/2.jpg,nan\n", "gives no label to any image of the collection"),
        ("t.json", coco(BATCHES, []), "gives no label to any image of the collection"),
        ("t.json", coco(BATCHES, [(70, 0)]), "gives no label to any image of the collection"),
        ("t.json", coco(BATCHES, [(0, 9)]), "annotation 0 .from 0.: category 9 is not among the categories; --set"),
        ("t.json", coco(BATCHES, [(0, 0)], [None]), "category 0 has no name"),
        ("t.json", "[" * 100_000, "t.json: nested too deeply"),
        ("t.jsonl", '{"path": "a/1.jpg"}\n{"a": ' + "[" * 100_000, "t.jsonl, line 2: nested too deeply; --set"),
        ("t.jsonl", '{"path": "a/1.jpg", "label": "\\ud800"}\n', "t.jsonl, line 1: .*lone surrogate"),
        ("t.jsonl", '{"path": "a/1.jpg", "label": "x", "\\ud800": 1}\n', "t.jsonl, line 1: .*lone surrogate"),
        ("t.jsonl", '{"path": "a/1.jpg", "label": "x", "y": "\\udcff"}\n', "t.jsonl, line 1: .*lone surrogate"),
        ("t.csv", "id,url,label\n17,x,red\n", "not even 17; .*by the column id; --set collection.name_column"),
        ("t.csv", ROWS, "t.csv: .*the first line must hold the names of the columns"),
        ("t.txt", "path|label\na/1.jpg|red\n", "its first line has no comma, semicolon or tab"),
        ("t.xlsx", b"PK\x03\x04", "t.xlsx: spreadsheets are not read; save it as CSV"),
        ("t.csv.gz", b"\x1f\x8b\x08\0", "t.csv.gz: compressed tables are not read; unpack it"),
        (
            "t.csv",
            'path,label\na/1.jpg,"red\na/2.jpg,blue\n',
            "line 2: a quote that is not closed, so that the rows up to",
        ),
        (
            "t.json",
            coco(BATCHES, ALTERNATING) | {"categories": [{"id": 0, "name": n} for n in "ab"]},
            "category 0: is used twice",
        ),
        (
            "t.json",
            coco(BATCHES, []) | {"images": [{"id": 7, "file_name": n} for n in PHOTOS]},
            "image 7: is used twice",
        ),
        ("t.csv", "path,label\na/1.jpg,red,7\n", "line 2: more cells than the first line has columns; --set"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_line(read, collection, name, content, message):
    with pytest.raises(UserError, match=message) as error:
        read(name, content)
    assert "\n" not in str(error.value)
    assert collection.pending() == [], "a refused scan changes nothing"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "path,label\n" + ROWS + "a/1.jpg,blue,7\n"),
        ("t.json", coco(BATCHES, [*ALTERNATING, (0, 9)])),
        ("t.jsonl", "".join(f'{{"path": "{p}", "label": "{r}"}}\n' for p, (r,) in RED_AND_BLUE.items()) + "{\n"),
    ],
)
def test_bad_rows_are_skipped_if_asked_for(read, name, content):
    labels, lines = read(name, content, "collection.skip_bad_rows=true")
    assert labels == RED_AND_BLUE
    assert "1 row that cannot be used, such as" in "".join(lines)


def test_parquet(read, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"file_name": [f"images/{path}" for path in PHOTOS], "label": ["red", "blue"] * 2})
    pq.write_table(table, tmp_path / "metadata.parquet")
    assert read("metadata.parquet", (tmp_path / "metadata.parquet").read_bytes())[0] == RED_AND_BLUE
    classes = json.dumps(
        {"info": {"features": {"label": {"names": ["red", "blue"]}, "file_name": {"dtype": "string"}}}}
    )
    numbers = table.set_column(1, "label", pa.array([0, 1] * 2)).replace_schema_metadata({"huggingface": classes})
    pq.write_table(numbers, tmp_path / "metadata.parquet")  # as the library datasets writes its ClassLabel
    assert read("metadata.parquet", (tmp_path / "metadata.parquet").read_bytes())[0] == RED_AND_BLUE


def export(tmp_path, splits=("train", "valid", "test")):
    """A data set with a table in each folder of a split; return its photos."""
    for split in splits:
        (tmp_path / "images" / split).mkdir(parents=True)
        content = coco({i: f"{i}.jpg" for i in range(4)}, ALTERNATING)
        (tmp_path / "images" / split / "_annotations.coco.json").write_text(json.dumps(content))
    return [f"{split}/{i}.jpg" for split in splits for i in range(4)]


def test_a_table_in_each_folder_of_a_split(collection, tmp_path, scan, extract):
    photos = export(tmp_path)
    scan(*photos)
    images = extract()
    assert {image.path: image.labels for image in images} == dict.fromkeys(photos, {})
    line, _ = collection.label_source()[1]
    (setting,) = [word for word in line.split("'") if word.startswith("collection.labels=")]
    scan(settings=[setting])
    images = extract() if collection.pending() else collection.images()
    assert {image.path: list(image.labels) for image in images} == {
        path: ["red" if int(path[-5]) % 2 == 0 else "blue"] for path in photos
    }
    assert {image.path.split("/")[0]: image.split for image in images} == {
        "train": "train",
        "valid": "validation",
        "test": "test",
    }


def test_a_table_a_split_for_one_folder(collection, tmp_path, scan, extract):
    for split, paths in (("train2017", PHOTOS[:2]), ("val2017", PHOTOS[2:])):
        content = coco({path: path.split("/")[1] for path in paths}, [(path, 0) for path in paths])
        (tmp_path / f"instances_{split}.json").write_text(json.dumps(content))
    scan(*PHOTOS, settings=[f"collection.labels={tmp_path}/instances_*.json"])
    splits = dict(zip(PHOTOS, ["train", "train", "validation", "validation"], strict=True))
    assert {image.path: image.split for image in extract()} == splits
    tables = sorted(str(file) for file in tmp_path.glob("*.json"))
    scan(settings=[f"collection.labels={json.dumps(tables)}"])
    assert {image.path: image.split for image in collection.images()} == splits
    with pytest.raises(UserError, match="no file has a name like this"):
        scan(settings=[f"collection.labels={tmp_path}/none_*.json"])


def test_a_column_names_the_splits(collection, tmp_path, scan, extract):
    table = tmp_path / "t.csv"
    rows = [f"{path},red,{split}" for path, split in zip(PHOTOS, ("train", "Valid", "testing", ""), strict=True)]
    table.write_text("\n".join(["path,label,split", *rows]))
    scan(*PHOTOS, settings=[f"collection.labels={table}"])
    assert [image.split for image in extract()] == ["train", "validation", "test", None]
    assert "1 image that the table puts neither into train, test nor validation, such as b/4.jpg" in str(
        collection.label_source()
    )
    table.write_text("\n".join(["path,label,split", *rows]).replace("testing", "train"))
    scan(settings=[f"collection.labels={table}"])
    assert [image.split for image in collection.images()] == ["train", "validation", "train", None]
    (tmp_path / "images/b/5.jpg").write_bytes(b"y")
    table.write_text("\n".join(["path,label,split", *rows, "b/5.jpg,red,test"]))
    config = load_config(None, [f"collection.labels={table}"])
    collection.add(["b/5.jpg"], [], config)
    assert {image.path: image.split for image in extract()}["b/5.jpg"] == "test"


def test_an_added_photo_takes_no_row_of_another(collection, tmp_path, scan, extract):
    """A base name that two images have is that of none, though only one of them is new."""
    table = tmp_path / "t.csv"
    table.write_text("path,label\n1.jpg,red\n2.jpg,blue\n")
    scan("a/1.jpg", "a/2.jpg", settings=[f"collection.labels={table}"])
    (tmp_path / "images/b").mkdir()
    (tmp_path / "images/b/1.jpg").write_bytes(b"y")
    collection.add(["b/1.jpg"], [], load_config(None, [f"collection.labels={table}"]))
    assert {image.path: image.labels for image in extract()}["b/1.jpg"] == {}


PIECES = (
    *(b"\xff", b"\0", b'"', b"'", b";", b",", b"\t", b"\n", b"\r", b"NaN", b"null", b"\\ud800", b"{", b"[", b"]", b"}"),
    *(
        b"1e999",
        b"9" * 5000,
        b"true",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"sep=|\n",
        b"\\",
        b"../",
        b"[" * 2000,
        b"\xed\xa0\x80",
    ),
)
WHOLE = {
    "t.csv": ("path,label,date,split\n" + "".join(f"{p},x|y,2024-05-01,train\n" for p in PHOTOS)).encode(),
    "u.csv": ("filename;Class;xmin;confidence\n" + "".join(f'"{p}";"é{p}";7;1\n' for p in PHOTOS)).encode("cp1252"),
    "t.jsonl": "".join(f'{{"file_name": "{p}", "labels": ["x", 3], "w": {{"a": [1.5]}}}}\n' for p in PHOTOS).encode(),
    "t.json": json.dumps(coco(dict(enumerate(PHOTOS)), ALTERNATING)).encode(),
    "l.json": json.dumps([{"path": p, "label": 1, "label_name": "x"} for p in PHOTOS]).encode(),
}


def test_a_damaged_table_is_read_or_refused_in_one_line(tmp_path):
    chance, n_read, refusals = random.Random(0), 0, []
    for _ in range(600):
        name = chance.choice(list(WHOLE))
        content = bytearray(WHOLE[name])
        for _ in range(chance.choice((1, 1, 2, 5))):
            at = chance.randrange(len(content) + 1)
            content[at : at + chance.choice((0, 0, 1, 30))] = chance.choice((*PIECES, b""))
        (tmp_path / name).write_bytes(content)
        column, skips = chance.choice((None, None, "none", "0/1", "label", "w.a")), chance.random() < 0.5
        settings = CollectionConfig(labels=str(tmp_path / name), label_column=column, skip_bad_rows=skips)
        try:
            read = read_labels(settings, Layout("classes"), tmp_path, PHOTOS, set(PHOTOS), tmp_path)
        except UserError as error:
            refusals.append(str(error))
        else:
            n_read += 1
            json.dumps([[read.labels(path) for path in PHOTOS], read.fields], ensure_ascii=False).encode()
    assert n_read > 50
    assert not [line for line in refusals if "\n" in line or len(line) > 1000]


def test_a_folder_of_img2dataset_has_fields_and_no_labels(collection, tmp_path, scan, extract):
    import pyarrow as pa
    import pyarrow.parquet as pq

    photos = [f"{shard:05d}/{shard:05d}{i:04d}.jpg" for shard in range(2) for i in (0, 1, 3)]  # 2 was not downloaded
    for shard in range(2):
        keys = [f"{shard:05d}{i:04d}" for i in range(4)]
        rows = {"key": keys, "status": ["success"] * 4, "caption": [f"a photo {key}" for key in keys], "width": [9] * 4}
        pq.write_table(pa.table(rows), tmp_path / f"{shard:05d}.parquet")
    settings = [f"collection.labels={tmp_path}/*.parquet", "collection.label_column=none"]
    scan(*photos, settings=settings)
    images = extract()
    assert [image.path for image in images] == photos
    assert not any(image.labels for image in images)
    lines = collection.label_source()[1]
    assert any("1 row without an image of the collection, such as 000000002" in line for line in lines)
    fields = read_fields(collection)
    assert [fields[image.id].given["caption"] for image in images] == [f"a photo {path[6:15]}" for path in photos]


@pytest.mark.parametrize(
    ("head", "name", "setting", "expected"),
    [
        ("#filename,region_attributes", "{}.jpg", "region_attributes.class", "red"),  # of the VGG Image Annotator
        ("#filename,region_attributes", "{}.jpg", "region_attributes", '{"class":"red"}'),
        ("SourceFile,Subject", "./photos/{}.jpg", "Subject.class", "red"),  # of ExifTool
        ("path ,Subject", "{}.jpg ", "Subject.class", "red"),
    ],
)
def test_tables_of_annotation_tools(read, head, name, setting, expected):
    row = name.format("a/1") + ',"{""class"":""red""}"'
    labels, lines = read("t.csv", f"{head}\n{row}\n", f"collection.label_column={setting}")
    assert labels["a/1.jpg"] == [expected]
    told = '1 label written as an object, such as {"class":"red"}; kept; set collection.label_column=COLUMN.KEY'
    assert any(told in line for line in lines) == (expected != "red")
