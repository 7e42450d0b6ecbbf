"""Files whose tags change keep their ids, marks, label edits and vectors; a turned picture does not."""

import shutil
import sqlite3

import pytest
from PIL import Image
from running import SMALL, catalogue_rows, counts_by_path, json_of, visterm

from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.plugins.repair.restore import restore_catalogue
from visterm.teaching.marks import RelevanceMarks

IDENTITY = "path, id, sha256, labels, split, status"


def insert(file, marker, data):
    """Put a segment behind the start of a JPEG; the pixels stay."""
    whole = file.read_bytes()
    file.write_bytes(whole[:2] + marker + (len(data) + 2).to_bytes(2, "big") + data + whole[2:])


def tag(file, text=b"five stars"):
    """Write a comment, as raters and keyword tools do."""
    insert(file, b"\xff\xfe", text)


def write_exif(file, **tags):
    """Write tags of EXIF by their numbers."""
    exif = Image.Exif()
    exif.update({int(number.removeprefix("t")): value for number, value in tags.items()})
    insert(file, b"\xff\xe1", b"Exif\0\0" + exif.tobytes().removeprefix(b"Exif\0\0"))


def turn(file):
    """Write an orientation, as viewers that turn pictures do."""
    write_exif(file, t274=6)


def write_xmp(file, stars):
    """Write a rating and keywords, as Lightroom and digiKam do."""
    about = f"""<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:dc="http://purl.org/dc/elements/1.1/"
xmp:Rating="{stars}"><dc:subject><rdf:Bag><rdf:li>sea</rdf:li></rdf:Bag></dc:subject></rdf:Description>
</rdf:RDF></x:xmpmeta>"""
    insert(file, b"\xff\xe1", b"http://ns.adobe.com/xap/1.0/\0" + about.encode())


def write_iptc(file, word):
    """Write a keyword as IPTC, in Photoshop's resources."""
    record = b"\x1c\x02\x19" + len(word).to_bytes(2, "big") + word
    block = b"8BIM\x04\x04\0\0" + len(record).to_bytes(4, "big") + record + b"\0" * (len(record) % 2)
    insert(file, b"\xff\xed", b"Photoshop 3.0\0" + block)


WRITERS = {
    "comment": tag,
    "rating of EXIF": lambda file: write_exif(file, t18246=4, t18249=75),
    "keywords of Windows": lambda file: write_exif(file, t40094="sea;sky\0".encode("utf-16-le")),
    "XMP": lambda file: write_xmp(file, 5),
    "IPTC": lambda file: write_iptc(file, b"sea"),
}


def contents(folder):
    """SHA-256 that each image is known by, by path."""
    return dict(catalogue_rows(folder, "path, sha256"))


def test_tags_in_files_change_neither_ids_nor_marks_and_nothing_is_extracted_again(mine, run):
    files = sorted((mine / "fruit").rglob("*.jpg"))
    before, counts = catalogue_rows(mine, IDENTITY), counts_by_path(mine)
    with Collection(run.collection) as collection:
        first, second = collection.images()[:2]
    RelevanceMarks(run.marks).add(first.sha256, second, 1, learner="oasis")
    for number in range(2):  # and again, from bytes that the catalogue did not enter
        for file in files:
            tag(file, b"rating %d" % number)
        done = json_of("features", "fruit", cwd=mine)
        assert (done["added"], done["changed"], done["removed"], done["extracted"]) == (0, 0, 0, 0)
        assert catalogue_rows(mine, IDENTITY) == before
    assert counts_by_path(mine) == counts
    assert "30 with other tags" not in visterm("features", "fruit", cwd=mine).stderr, "said once"
    (mark,) = RelevanceMarks(run.marks).of(first.sha256)
    assert mark.sha256 in contents(mine).values()
    visterm("features", "fruit", "--force", cwd=mine)  # extracts all of them, which are known by what they were
    assert catalogue_rows(mine, IDENTITY) == before


@pytest.mark.slow
def test_tags_of_every_kind_in_a_hundred_photos(tmp_path, write_images):
    """No new id, no mark lost, nothing extracted again."""
    names = [f"{label}/{i}.jpg" for label in ("apple", "pear", "plum", "fig") for i in range(25)]
    write_images(tmp_path / "fruit", names)
    visterm("features", "fruit", *SMALL, cwd=tmp_path)
    visterm("train", "--learner", "oasis", cwd=tmp_path)
    run = Run(tmp_path / "runs/fruit")
    with Collection(run.collection) as collection:
        images = collection.images()
    marks = RelevanceMarks(run.marks)
    for query, result in zip(images, images[1:], strict=False):
        marks.add(query.sha256, result, 1, learner="oasis")
    visterm("label", "add", "ripe", *names[:10], cwd=tmp_path)

    def state():
        (answer,) = json_of("search", "id:3", cwd=tmp_path)
        return catalogue_rows(tmp_path, IDENTITY), json_of("feedback", "status", cwd=tmp_path), answer["results"]

    before, counts = state(), counts_by_path(tmp_path)
    assert before[1]["relevant"] == 99
    for write in WRITERS.values():
        old = [(tmp_path / "fruit" / name).read_bytes() for name in names]
        for name in names:
            write(tmp_path / "fruit" / name)
        assert all((tmp_path / "fruit" / name).read_bytes() != data for name, data in zip(names, old, strict=True))
        done = json_of("features", "fruit", cwd=tmp_path)
        assert (done["added"], done["changed"], done["removed"], done["extracted"]) == (0, 0, 0, 0)
        assert state() == before
    assert counts_by_path(tmp_path) == counts
    visterm("feedback", "update", cwd=tmp_path)  # exits with 2 where there is nothing to learn


def test_a_tagged_file_and_a_copy_of_it_are_known(mine, run):
    file = mine / "fruit/apple/0.jpg"
    tag(file)
    stderr = visterm("features", "fruit", cwd=mine).stderr
    assert "0 changed, 0 removed, 1 with other tags in the file)" in stderr
    shutil.copy(file, mine / "copy.jpg")
    searcher = Searcher(run)
    answer = searcher.find([str(mine / "copy.jpg")], SearchRequest.of(3, "cosine", exclude_duplicates=True))
    assert "apple/0.jpg" not in [searcher.images[row].path for row, _ in answer.ranked[0]]
    digest = next(iter(searcher.gallery._retagged))
    assert searcher.gallery.rows_by_sha256[digest] == searcher.images.row_of_path("apple/0.jpg")


def test_a_file_that_is_moved_and_tagged_keeps_marks_and_label_edits(mine):
    visterm("label", "add", "ripe", "apple/0.jpg", cwd=mine)
    known_by = contents(mine)["apple/0.jpg"]
    file = (mine / "fruit/apple/0.jpg").rename(mine / "fruit/apple/moved.jpg")
    tag(file)
    json_of("features", "fruit", cwd=mine)
    assert contents(mine)["apple/moved.jpg"] == known_by
    assert dict(catalogue_rows(mine, "path, labels"))["apple/moved.jpg"] == '{"apple": 1.0, "ripe": 1.0}'


def test_a_turned_picture_has_changed(mine):
    file = mine / "fruit/apple/0.jpg"
    before = counts_by_path(mine)["apple/0.jpg"]
    turn(file)
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (1, 1)
    assert counts_by_path(mine)["apple/0.jpg"] != before


def test_a_run_without_hashes_and_one_restored_from_its_segments(mine, run):
    before = catalogue_rows(mine, IDENTITY)
    tag(mine / "fruit/apple/0.jpg")
    visterm("compact", cwd=mine)
    for name in ("catalogue.sqlite", "catalogue.copy.sqlite"):
        (run.collection / name).unlink()
    restore_catalogue(run, mine / "fruit")
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (0, 0), "segments note the hashes"
    assert [row[:3] for row in catalogue_rows(mine, IDENTITY)] == [row[:3] for row in before]

    with sqlite3.connect(run.collection / "catalogue.sqlite") as db:  # as older versions made it
        db.executescript("DROP TABLE pictures; DROP TABLE retagged")
    (run.collection / "catalogue.checksum.json").unlink()
    tag(mine / "fruit/apple/1.jpg")
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (1, 1), "as before"
    tag(mine / "fruit/apple/1.jpg")
    done = json_of("features", "fruit", cwd=mine)
    assert (done["changed"], done["extracted"]) == (0, 0), "known by its pixels from then on"
