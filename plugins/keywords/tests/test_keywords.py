"""Keywords of photos and sidecars as labels and fields, and labels written into sidecars; bad input."""

import json
import os
import shutil

import pytest
from running import SMALL, copy_run, json_of, refused, visterm

from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.plugins.keywords.reading import REMEMBERED, read_keywords
from visterm.plugins.keywords.sidecars import Sidecars, beside
from visterm.plugins.keywords.tags import MOST_KEYWORDS, UnreadableTags, opened, read_tags, read_takeout, values_of
from visterm.plugins.keywords.writing import write_sidecars

exiv2 = pytest.importorskip("exiv2")


def xmp(inner, before=""):
    """A sidecar of other programs."""
    spaces = {
        "dc": "http://purl.org/dc/elements/1.1/",
        "lr": "http://ns.adobe.com/lightroom/1.0/",
        "digiKam": "http://www.digikam.org/ns/1.0/",
        "xmp": "http://ns.adobe.com/xap/1.0/",
        "photoshop": "http://ns.adobe.com/photoshop/1.0/",
        "mwg-rs": "http://www.metadataworkinggroup.com/schemas/regions/",
        "MP": "http://ns.microsoft.com/photo/1.2/",
        "MPRI": "http://ns.microsoft.com/photo/1.2/t/RegionInfo#",
        "MPReg": "http://ns.microsoft.com/photo/1.2/t/Region#",
        "Iptc4xmpExt": "http://iptc.org/std/Iptc4xmpExt/2008-02-29/",
        "darktable": "http://darktable.sf.net/",
    }
    attributes = " ".join(f'xmlns:{name}="{uri}"' for name, uri in spaces.items())
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    return (
        f'{before}<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{rdf}"><rdf:Description rdf:about="" '
        f"{attributes}>{inner}</rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def bag(name, *values):
    return f"<{name}><rdf:Bag>{''.join(f'<rdf:li>{value}</rdf:li>' for value in values)}</rdf:Bag></{name}>"


@pytest.fixture
def photos(tmp_path, write_images):
    """Function (names) that writes photos without tags into a folder; returns the folder."""

    def write(*names):
        write_images(tmp_path / "photos", list(names))
        return tmp_path / "photos"

    return write


def embed(file, **lists):
    """Write properties of XMP into a photo: a list, or a text."""
    image = exiv2.ImageFactory.open(os.fspath(file))
    image.readMetadata()
    for name, value in lists.items():
        image.xmpData()[f"Xmp.{name.replace('_', '.')}"] = value
    image.writeMetadata()


def labels_in(folder, tmp_path, *tags):
    """Labels by name, fields, and the lines of what is not used."""
    names = sorted(name for name in os.listdir(folder) if name.endswith((".jpg", ".png")))
    read = read_keywords(tags or ["keywords"], folder, names, tmp_path, whole=True)
    return {name: [*read.labels(name)] for name in names}, read.fields, read.warnings


def test_hierarchies_names_ratings_and_texts():
    tags = read_tags(
        xmp(
            bag("dc:subject", "Places", "Europe", "Paris", "sunset")
            + bag("lr:hierarchicalSubject", "Places", "Places|Europe", "Places|Europe|Paris", "AC/DC")
            + bag("digiKam:TagsList", "not/used")
        )
    )
    assert tags.keywords == [["AC/DC"], ["Places", "Europe", "Paris"], ["sunset"]]
    assert read_tags(xmp(bag("digiKam:TagsList", "People/Anna", "dog"))).keywords == [["People", "Anna"], ["dog"]]
    assert read_tags(xmp("<xmp:Rating>4</xmp:Rating>")).keywords is None, "it says nothing of keywords"
    assert read_tags(xmp(bag("dc:subject"))).keywords == [], "it says that there are none"
    region = '<rdf:li rdf:parseType="Resource"><mwg-rs:Name>{}</mwg-rs:Name><mwg-rs:Type>{}</mwg-rs:Type></rdf:li>'
    tags = read_tags(
        xmp(
            "<xmp:Rating>4</xmp:Rating><mwg-rs:Regions rdf:parseType='Resource'><mwg-rs:RegionList><rdf:Bag>"
            + region.format("Anna", "Face")
            + region.format("Rex", "Pet")
            + "</rdf:Bag></mwg-rs:RegionList></mwg-rs:Regions>"
            + '<MP:RegionInfo rdf:parseType="Resource"><MPRI:Regions><rdf:Bag>'
            + '<rdf:li MPReg:PersonDisplayName="Ben"/></rdf:Bag></MPRI:Regions></MP:RegionInfo>'
            + bag("Iptc4xmpExt:PersonInImage", "Carla")
            + '<dc:title><rdf:Alt><rdf:li xml:lang="x-default">At the\nsea</rdf:li></rdf:Alt></dc:title>'
        )
    )
    assert tags.people == ["Anna", "Ben", "Carla"]
    assert tags.fields == {"title": "At the sea", "rating": "4"}
    for rating, kept in (("-1", "-1"), ("0", None), ("3.0", "3"), ("99", None), ("good", None)):
        assert read_tags(xmp(f"<xmp:Rating>{rating}</xmp:Rating>")).fields.get("rating") == kept
    tags = read_tags(xmp(bag("dc:subject", "a&#9;b", "x" * 201, "", " good ", *(f"k{i:04}" for i in range(5000)))))
    assert len(tags.keywords) == MOST_KEYWORDS
    assert tags.keywords[0] == ["good"]
    assert [n for _, _, n in tags.problems] == [2, 5001 - MOST_KEYWORDS]


@pytest.mark.parametrize(
    ("declared", "raw", "read"),
    [
        (b"\x1b%G", "Köln".encode(), "Köln"),
        (None, "Köln".encode(), "Köln"),
        (None, "Köln".encode("latin-1"), "Köln"),
        (b"\x1b-A", "Köln".encode("latin-1"), "Köln"),
        (b"\x1b-L", "Кёльн".encode("iso8859-5"), "Кёльн"),
        (None, "Ko\u0308ln\0".encode(), "Köln"),
    ],
)
def test_character_sets_of_iptc(photos, declared, raw, read):
    file = os.fspath(photos("a.jpg") / "a.jpg")
    image = exiv2.ImageFactory.open(file)
    image.readMetadata()
    if declared:
        image.iptcData().add(exiv2.IptcKey("Iptc.Envelope.CharacterSet"), exiv2.DataValue(declared))
    image.iptcData().add(exiv2.IptcKey("Iptc.Application2.Keywords"), exiv2.DataValue(raw))
    image.writeMetadata()
    assert read_tags(file).keywords == [[read]]
    embed(file, dc_subject=["other"])
    tags = read_tags(file)
    assert tags.keywords == [["other"]]
    assert "IPTC" in tags.problems[0][1]


def test_tags_of_windows(photos):
    file = os.fspath(photos("a.jpg") / "a.jpg")
    image = exiv2.ImageFactory.open(file)
    image.readMetadata()
    raw = "sea; Köln".encode("utf-16-le") + b"\0\0"
    image.exifData()["Exif.Image.XPKeywords"] = exiv2.DataValue(
        raw, exiv2.ByteOrder.littleEndian, exiv2.TypeId.unsignedByte
    )
    image.writeMetadata()
    assert read_tags(file).keywords == [["Köln"], ["sea"]]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        xmp(bag("dc:subject", "a"))[:-40],
        xmp(bag("dc:subject", "a")).decode().encode("utf-16"),
        xmp(bag("dc:subject", "&word;"), '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY word "expanded">]>'),
    ],
)
def test_broken_sidecars(photos, tmp_path, content):
    folder = photos("a.jpg", "b.jpg")
    (folder / "a.jpg.xmp").write_bytes(content)
    (folder / "b.jpg.json").write_text("[1, 2]")  # of another program
    embed(folder / "b.jpg", dc_subject=["sea"])
    embed(folder / "a.jpg", dc_subject=["dog"])
    labels, _, warnings = labels_in(folder, tmp_path)
    assert labels == {"a.jpg": ["dog"], "b.jpg": ["sea"]}
    assert any("cannot be read (without a title and a time), such as b.jpg" in line for line in warnings), warnings
    assert any("sidecar cannot be read" in line and "a.jpg" in line for line in warnings), warnings
    assert "ErrorCode" not in str(warnings)
    written = write_sidecars(folder, ["a.jpg"], {"a.jpg": ["cat"]}, {}, tmp_path, [])
    assert (folder / "a.jpg.xmp").read_bytes() == content, "a broken sidecar is not overwritten"
    assert written.written == 0
    assert "not changed" in written.warnings[0]


def test_which_sidecar_belongs_to_which_photo(tmp_path):
    for name, ending in (("one.xmp", ""), ("two.xmp", ""), ("three.xmp", "PNG"), ("four.XMP", ""), ("five.xmp", "")):
        extension = f"<photoshop:SidecarForExtension>{ending}</photoshop:SidecarForExtension>" if ending else ""
        (tmp_path / name).write_bytes(xmp(extension + bag("dc:subject", "a")))
    (tmp_path / "five.jpg.xmp").write_bytes(xmp(bag("dc:subject", "b")))
    photos = ["ONE.jpg", "two.jpg", "two.png", "three.jpg", "three.png", "five.jpg"]
    files = beside(tmp_path, photos)
    assert files.of == {
        "ONE.jpg": Sidecars("one.xmp"),
        "three.png": Sidecars("three.xmp"),
        "five.jpg": Sidecars("five.jpg.xmp"),
    }
    assert sorted(files.unused) == [
        ("beside one with the whole name of its image", "five.xmp"),
        ("of no image of the run", "four.XMP"),
        ("of several images", "two.xmp"),
    ]


LONG = "Screenshot_20200101-123456_Instagram_of_a_friend.jpg"


@pytest.mark.parametrize(
    ("json_name", "photo"),
    [
        ("a.jpg.json", "a.jpg"),
        ("a.jpg.supplemental-metadata.json", "a.jpg"),
        ("a.jpg.suppl.json", "a.jpg"),
        ("a.jpg(1).json", "a(1).jpg"),
        ("a.jpg.supplemental-metadata(1).json", "a(1).jpg"),
        (f"{LONG[:46]}.json", LONG),
        ("b.jpg.json", "b-edited.jpg"),
        ("c.jpg.json", None),
        ("video.mp4.json", None),
    ],
)
def test_files_of_takeout(tmp_path, json_name, photo):
    content = {"title": json_name.removesuffix(".json"), "photoTakenTime": {"timestamp": "1"}}
    (tmp_path / json_name).write_text(json.dumps(content | {"people": [{"name": "Anna"}, {}], "description": "x"}))
    (tmp_path / "metadata.json").write_text('{"title": "an album"}')
    files = beside(tmp_path, ["a.jpg", "a(1).jpg", LONG, "b-edited.jpg"])
    assert files.of == ({photo: Sidecars(None, json_name)} if photo else {})
    assert files.unused == ([] if photo else [("of no image of the run", json_name)])
    tags = read_takeout((tmp_path / json_name).read_bytes())[1]
    assert (tags.people, tags.fields) == (["Anna"], {"description": "x"})
    assert read_takeout(b"[" * 100_000) is None
    assert read_takeout(b"\xff") is None


@pytest.mark.parametrize(
    "word",
    [
        "edited", "bearbeitet", "modifié", "modifie\u0301", "modificato", "ha editado", "editado", "editat", "bewerkt",
        "edytowane", "編集済み", "编辑",
    ],
)  # fmt: skip
def test_an_edited_photo_has_the_file_of_takeout_of_its_original_in_each_language(tmp_path, word):
    """Those in English were known alone, and of these no numbered ones."""
    expected = {
        f"a-{word}.jpg": "a.jpg.json",
        f"a-{word}(1).jpg": "a.jpg(1).json",
        f"b(2)-{word}.JPG": "b.JPG.supplemental-metadata(2).json",
    }
    for name in expected.values():
        (tmp_path / name).write_text(json.dumps({"title": name, "photoTakenTime": {}}))
    files = beside(tmp_path, [*expected, f"c-{word}.jpg", "a-other.jpg"])
    assert files.of == {photo: Sidecars(None, name) for photo, name in expected.items()}
    assert files.unused == []


def test_sidecar_and_photo(photos, tmp_path):
    folder = photos("a.jpg", "b.jpg", "c.jpg")
    embed(folder / "a.jpg", dc_subject=["dog"], xmp_Rating="5")
    (folder / "a.xmp").write_bytes(xmp(bag("dc:subject", "cat")))
    (folder / "b.jpg.xmp").write_bytes(xmp("<xmp:Rating>2</xmp:Rating>"))
    embed(folder / "b.jpg", dc_subject=["sea"])
    (folder / "c.jpg.json").write_text(
        json.dumps({"title": "c.jpg", "photoTakenTime": {}, "people": [{"name": "Anna"}, {"name": "BjÃ¶rn"}]})
    )
    os.utime(folder / "a.xmp", (1, 1))
    labels, fields, warnings = labels_in(folder, tmp_path)
    assert labels == {"a.jpg": ["cat"], "b.jpg": ["sea"], "c.jpg": []}
    assert fields == {"a.jpg": {"rating": "5"}, "b.jpg": {"rating": "2"}, "c.jpg": {"people": "Anna; BjÃ¶rn"}}
    assert any("written after its sidecar" in line for line in warnings)
    assert any(line.startswith("1 image without keywords, such as c.jpg") for line in warnings)
    assert (
        "1 value that an earlier tool probably garbled, such as Anna; BjÃ¶rn (Anna; Björn?); kept as written"
        in warnings
    )
    (folder / "a.xmp").write_bytes(xmp(bag("dc:subject", "cow")))  # the photo itself is as it was
    assert labels_in(folder, tmp_path, "keywords", "people")[0] == {
        "a.jpg": ["cow"],
        "b.jpg": ["sea"],
        "c.jpg": ["Anna", "BjÃ¶rn"],
    }


def test_a_sidecar_of_two_photos_is_of_neither_when_one_is_added(photos, tmp_path):
    folder = photos("a.jpg")
    (folder / "a.xmp").write_bytes(xmp(bag("dc:subject", "cat")))
    assert labels_in(folder, tmp_path)[0] == {"a.jpg": ["cat"]}
    shutil.copy(folder / "a.jpg", folder / "a.png")
    read = read_keywords(["keywords"], folder, ["a.png"], tmp_path, whole=False)
    assert read.labels("a.png") == {}
    assert "of several images, such as a.xmp" in read.warnings[0]


def test_only_changed_files_are_read_again(photos, tmp_path, monkeypatch):
    folder = photos("a.jpg", "b.jpg")
    embed(folder / "a.jpg", dc_subject=["dog"])
    before = labels_in(folder, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("visterm.plugins.keywords.reading.read_entry", None)
        assert labels_in(folder, tmp_path) == before
    for damage in ("{", '{"version": 1, "photos": {"a.jpg": 1}}', '{"version": 0}', "[]"):
        (tmp_path / REMEMBERED).write_text(damage)
        assert labels_in(folder, tmp_path) == before


def test_circles_of_the_hierarchy(photos, tmp_path):
    folder = photos("a.jpg", "b.jpg")
    embed(folder / "a.jpg", lr_hierarchicalSubject=["x|y", "z|z"])
    embed(folder / "b.jpg", lr_hierarchicalSubject=["y|x", "p|q", "r|q"])
    labels, _, warnings = labels_in(folder, tmp_path)
    assert labels == {"a.jpg": ["y", "z"], "b.jpg": ["q", "q", "x"]} or labels["b.jpg"] == ["q", "x"]
    assert any("circle" in line for line in warnings)
    assert any("in several places of the hierarchy, such as q (p, r)" in line for line in warnings)


DARKTABLE = (
    "<darktable:history><rdf:Seq><rdf:li darktable:operation='exposure' darktable:num='0'/></rdf:Seq>"
    "</darktable:history>"
)


def test_sidecars_of_others_are_merged(photos, tmp_path):
    folder = photos("a.jpg", "b.jpg", "c.jpg")
    theirs = bag("dc:subject", "Europe", "Rome", "old") + bag("digiKam:TagsList", "Europe/Rome", "old") + DARKTABLE
    (folder / "a.xmp").write_bytes(xmp(theirs + "<xmp:Rating>3</xmp:Rating>"))
    embed(folder / "b.jpg", dc_subject=["sea"])
    photo = (folder / "b.jpg").read_bytes()
    names = ["a.jpg", "b.jpg", "c.jpg", "gone.jpg"]
    labels = {"a.jpg": ["dog", "Rome"], "b.jpg": ["sea"], "gone.jpg": ["x"]}
    done = write_sidecars(folder, names, labels, {"a.jpg": {"old"}, "b.jpg": {"sea"}}, tmp_path, [])
    assert (done.written, done.unchanged) == (2, 1)
    assert done.warnings == ["1 image without a file, such as gone.jpg; no sidecar"]
    assert sorted(os.listdir(folder)) == ["a.jpg", "a.xmp", "b.jpg", "b.jpg.xmp", "c.jpg"]
    assert (folder / "b.jpg").read_bytes() == photo
    text = (folder / "a.xmp").read_text()
    assert 'darktable:operation="exposure"' in text
    assert "<rdf:li>Europe</rdf:li>" in text, "which stands beside the path that holds it"
    tags = read_tags((folder / "a.xmp").read_bytes())
    assert (tags.keywords, tags.fields) == ([["Europe", "Rome"], ["dog"]], {"rating": "3"})
    assert "old" not in text
    assert labels_in(folder, tmp_path)[0] == {"a.jpg": ["Rome", "dog"], "b.jpg": [], "c.jpg": []}
    done = write_sidecars(folder, names[:3], labels, {"a.jpg": {"old"}, "b.jpg": {"sea"}}, tmp_path, [])
    assert (done.written, done.unchanged) == (0, 3)


def test_what_darktable_notes_for_itself_is_no_label_and_stays(photos, tmp_path):
    folder = photos("a.jpg", "b.jpg", "c.jpg")
    own = ["darktable|changed", "darktable|format|jpg"]
    flat = ["changed", "darktable", "format", "jpg"]
    (folder / "a.jpg.xmp").write_bytes(xmp(bag("dc:subject", *flat) + bag("lr:hierarchicalSubject", *own)))
    theirs = bag("dc:subject", *flat, "sea") + bag("lr:hierarchicalSubject", *own, "sea")
    (folder / "b.jpg.xmp").write_bytes(xmp(theirs + bag("digiKam:TagsList", "darktable/format/jpg", "sea")))
    embed(folder / "c.jpg", dc_subject=["darktable|format|jpg", "sun"])
    labels, _, warnings = labels_in(folder, tmp_path)
    assert labels == {"a.jpg": [], "b.jpg": ["sea"], "c.jpg": ["sun"]}
    assert warnings == ("1 image without keywords, such as a.jpg; no label",)
    done = write_sidecars(folder, ["a.jpg", "b.jpg"], {"a.jpg": ["dog"], "b.jpg": ["sea"]}, {}, tmp_path, ["keywords"])
    assert (done.written, done.unchanged, done.warnings) == (1, 1, [])
    lists = {datum.key(): values_of(datum) for datum in opened((folder / "a.jpg.xmp").read_bytes()).xmpData()}
    assert lists["Xmp.dc.subject"] == sorted([*flat, "dog"])
    assert lists["Xmp.lr.hierarchicalSubject"] == [*own, "dog"], "darktable reads these, where they are"


def test_what_a_program_has_removed_is_not_written_again(photos, tmp_path):
    folder = photos("a.jpg")
    embed(folder / "a.jpg", dc_subject=["dog", "sea"])
    labels_in(folder, tmp_path)
    embed(folder / "a.jpg", dc_subject=["sea", "sun"])
    done = write_sidecars(folder, ["a.jpg"], {"a.jpg": ["dog", "sea", "new"]}, {}, tmp_path, ["keywords"])
    assert done.written == 1
    assert read_tags((folder / "a.jpg.xmp").read_bytes()).keywords == [["new"], ["sea"], ["sun"]]


@pytest.fixture(scope="module")
def tagged(tmp_path_factory, write_images):
    """Photos with keywords of a hierarchy, and their run."""
    folder = tmp_path_factory.mktemp("tagged")
    write_images(folder / "photos", [f"{i}.jpg" for i in range(12)])
    for i in range(12):
        city = "Paris" if i % 2 else "Rome"
        embed(folder / f"photos/{i}.jpg", dc_subject=["Europe", city], lr_hierarchicalSubject=[f"Europe|{city}"])
    embed(folder / "photos/0.jpg", xmp_Rating="4", iptcExt_PersonInImage=["Anna", "Ben"])
    embed(folder / "photos/1.jpg", iptcExt_PersonInImage=["Ben"])
    visterm("features", "photos", "--set", "collection.labels=keywords", *SMALL, cwd=folder)
    return folder


def test_labels_follow_and_nothing_else_changes(tagged, tmp_path):
    mine = copy_run(tagged, tmp_path)

    def rows():
        with Collection(mine / "runs/photos/collection") as collection:
            return [image[:3] for image in collection.images()], collection.labels()

    visterm("features", "photos", cwd=mine)  # whose root was that of the copied run
    visterm("label", "add", "mine", "photos/2.jpg", cwd=mine)
    before, _ = rows()
    embed(mine / "photos/2.jpg", lr_hierarchicalSubject=["Europe|Oslo"])
    (mine / "photos/3.jpg.xmp").write_bytes(xmp(bag("dc:subject", "Lima")))
    done = json_of("features", "photos", "--json", cwd=mine)
    after, labels = rows()
    assert after == before
    assert (done["extracted"], done["added"], done["changed"], done["relabelled"]) == (0, 0, 0, 2)
    assert set(labels["2.jpg"]) == {"Oslo", "Rome", "mine"}, "Rome stands in the flat list, and in no path any more"
    assert set(labels["3.jpg"]) == {"Lima"}
    stderr = visterm("features", "photos", cwd=mine).stderr
    assert "from the keywords in the files and their sidecars" in stderr
    assert "other file" not in stderr, "a sidecar that is read is not ignored"


def test_filters_know_the_hierarchy_ratings_and_names(tagged):
    def paths(*options):
        (answer,) = json_of("search", "id:5", "-k", "20", *options, "--json", cwd=tagged)
        return {result["path"] for result in answer["results"]}

    paris = {f"{i}.jpg" for i in (1, 3, 7, 9, 11)}
    assert paths("--label", "Paris") - {"4.jpg"} >= paris - {"5.jpg"}
    assert paths("--label", "Europe") == paths()
    assert "no image passes" in refused("search", "id:5", "--not-label", "Europe", cwd=tagged)
    assert paths("--where", "rating=4") == {"0.jpg"}
    assert paths("--where", "people=Ben") == {"0.jpg", "1.jpg"}
    assert paths("--where", "people!=Anna") == {"1.jpg"}
    line = refused("search", "id:5", "--label", "Europ", cwd=tagged)
    assert "did you mean Europe?" in line


def test_the_search_box_finds_what_labels_are_within(tagged):
    testclient = pytest.importorskip("fastapi.testclient", reason="needs the extra serve")
    from visterm.service.app import create_app

    app = create_app(Run(tagged / "runs/photos"))
    with testclient.TestClient(app, base_url="http://127.0.0.1") as client:
        suggested = client.get("/api/suggest", params={"q": "euro"}).json()["labels"]
        assert suggested == [{"name": "Europe", "images": 12}]
        shown = client.get("/api/images", params={"label": "Europe"}).json()
        assert len(shown) == 12


def test_hier_takes_the_hierarchy_and_a_run_of_clicks_has_none(tagged, tmp_path):
    mine = copy_run(tagged, tmp_path)
    is_a = "runs/photos/collection/is_a.csv"
    assert (tagged / is_a).read_text() == "label,parent\nParis,Europe\nRome,Europe\n"
    visterm("train", "--learner", "hier", "--set", f"hier.is_a={is_a}", "--set", "hier.n_steps=200", cwd=mine)
    (mine / "clicks.csv").write_text("query,path,count\nsea,1.jpg,2\n")
    both = ("--set", "collection.labels=auto", "--set", "collection.clicks=clicks.csv")
    visterm("features", "photos", *both, cwd=mine)
    assert "clicked for, not labels" in refused("label", "export", "--xmp", cwd=mine)
    assert not (mine / "runs/photos/collection/is_a.csv").exists(), "clicks have no hierarchy"


def test_a_round_trip_through_sidecars(mine):
    visterm("features", "fruit", cwd=mine)  # whose root was that of the copied run
    visterm("label", "add", "sweet: a|b; ü", "fruit/apple/1.jpg", cwd=mine)
    photos = {file: file.read_bytes() for file in (mine / "fruit").rglob("*.jpg")}
    stderr = visterm("label", "export", "--xmp", cwd=mine).stderr
    assert "30 sidecars written; 0 images had these labels" in stderr
    assert {file: file.read_bytes() for file in (mine / "fruit").rglob("*.jpg")} == photos
    with Collection(mine / "runs/fruit/collection") as collection:
        labels = collection.labels()
    visterm("features", "fruit", "--run", "again", "--set", "collection.labels=keywords", *SMALL, cwd=mine)
    with Collection(mine / "runs/again/collection") as collection:
        assert collection.labels() == labels
    assert "0 sidecars written; 30 images" in visterm("label", "export", "--xmp", "--run", "again", cwd=mine).stderr


def test_bad_settings(tagged, monkeypatch):
    line = refused("features", "photos", "--set", "collection.labels=[keywords, a.csv]", cwd=tagged)
    assert "labels are keywords, or come from tables such as" in line
    assert "no FILE" not in refused("label", "export", "a.csv", "--xmp", cwd=tagged)
    monkeypatch.setitem(__import__("sys").modules, "exiv2", None)
    from visterm.plugins.keywords.tags import exiv2 as library

    library.cache_clear()
    line = refused("label", "export", "--xmp", cwd=tagged)
    library.cache_clear()
    assert "keywords need Exiv2" in line
    assert "pip install" in line


def test_strange_names_of_photos(photos, tmp_path):
    names = ["Ko\u0308ln ü.jpg", os.fsdecode(b"\xff.jpg")]
    folder = photos("a.jpg")
    embed(folder / "a.jpg", dc_subject=["dog"])
    for name in names:
        shutil.copy(folder / "a.jpg", folder / name)
    read = read_keywords(["keywords"], folder, names, tmp_path, whole=True)
    assert [read.labels(name) for name in names] == [{"dog": 1.0}] * 2
    assert read.warnings == ()
    assert write_sidecars(folder, names, dict.fromkeys(names, ["x"]), {}, tmp_path, []).written == 2
    read = read_keywords(["keywords"], folder, names, tmp_path, whole=True)
    assert [read.labels(name) for name in names] == [{"dog": 1.0, "x": 1.0}] * 2


def test_a_folder_that_cannot_be_written(photos, tmp_path):
    folder = photos("a.jpg")
    (folder / "a.jpg.xmp").mkdir()
    done = write_sidecars(folder, ["a.jpg"], {"a.jpg": ["x"]}, {}, tmp_path, [])
    assert (done.written, len(done.warnings)) == (0, 1)
    with pytest.raises(UnreadableTags):
        read_tags(b"")
