"""A damaged catalogue is restored from its copy, or else from the segments."""

import shutil

import pytest
from running import CLASSES, SMALL, catalogue_rows, json_of, refused, visterm

from visterm.pipeline.store.files import write_record
from visterm.plugins.repair import repair


@pytest.fixture(scope="module")
def finished(tmp_path_factory, write_images):
    """A run with an image that was removed by hand, and one that has a label by hand."""
    folder = tmp_path_factory.mktemp("repair")
    write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in CLASSES for i in range(6)])
    visterm("features", "fruit", *SMALL, "--set", "compute.segment_size=7", cwd=folder)
    visterm("remove", "id:2", cwd=folder)
    visterm("add", "fruit/plum/0.jpg", "--label", "apple", cwd=folder)
    return folder


def rows(folder):
    return catalogue_rows(folder, "id, path, sha256, labels, split, status")


def flip(file):
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(data)
    return bytes(data)


def test_one_bit_costs_nothing(mine):
    before, file = rows(mine), mine / "runs/fruit/collection/catalogue.sqlite"
    data = flip(file)
    for command in (["search", "id:1"], ["info"], ["features"], ["compact"], ["remove", "id:3"]):
        assert "damaged catalogue" in refused(*command, cwd=mine)
    done = json_of("repair", cwd=mine)
    assert (done["catalogue"], done["lost"], done["damaged"]) == (True, [], [])
    assert "the catalogue, as its last good copy has it" in done["kept"][0]
    assert rows(mine) == before
    assert file.with_name("catalogue.sqlite.damaged").read_bytes() == data
    done = json_of("repair", cwd=mine)
    assert (done["catalogue"], done["kept"], done["features"]["extracted"]) == (False, [], 0)


@pytest.mark.parametrize("how", ["empty", "gone", "a folder", "of another program"])
def test_without_a_catalogue_the_copy_is_used(mine, how):
    before, file = rows(mine), mine / "runs/fruit/collection/catalogue.sqlite"
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how != "gone":
        file.write_bytes(b"" if how == "empty" else b"not a database" * 1000)
    assert "damaged catalogue" in refused("features", cwd=mine)
    assert json_of("repair", cwd=mine)["lost"] == []
    assert rows(mine) == before


def test_a_change_that_no_copy_has_is_told(mine):
    """As of a command that was killed before it had copied the catalogue."""
    collection = mine / "runs/fruit/collection"
    names = ("catalogue.copy.sqlite", "catalogue.checksum.json")
    kept = {name: (collection / name).read_bytes() for name in names}
    visterm("remove", "id:3", cwd=mine)
    for name, data in kept.items():
        (collection / name).write_bytes(data)
    with open(collection / "catalogue.sqlite", "r+b") as stream:
        stream.truncate(5000)
    (line,) = json_of("repair", cwd=mine)["lost"]
    assert "removals made by hand since then, if there were any" in line
    assert {row[0] for row in rows(mine) if row[5] == "excluded"} == {2}


@pytest.mark.parametrize("copy", ["damaged", "gone"])
def test_without_any_copy_the_segments_know_the_images(mine, copy):
    before = {row[:3] for row in rows(mine)}
    collection = mine / "runs/fruit/collection"
    (collection / "catalogue.sqlite").write_bytes(b"")
    if copy == "gone":
        (collection / "catalogue.copy.sqlite").unlink()
    else:
        flip(collection / "catalogue.copy.sqlite")
    assert "it is empty" in refused("features", cwd=mine)
    done = json_of("repair", cwd=mine)
    assert done["features"]["extracted"] == 0
    assert done["lost"] == ["labels given and removals made by hand, if there were any"]
    assert {row[:3] for row in rows(mine)} == before
    assert len(json_of("search", "id:1", "--learner", "cosine", "-k", "30", cwd=mine)[0]["results"]) == 17
    assert (collection / "catalogue.copy.sqlite.damaged").exists() == (copy == "damaged")
    assert (collection / "catalogue.copy.sqlite").read_bytes() == (collection / "catalogue.sqlite").read_bytes()


def test_a_segment_lost_with_the_catalogue_is_extracted_again(mine):
    before, collection = rows(mine), mine / "runs/fruit/collection"
    (collection / "segments/2/counts.npy").write_bytes(b"")
    assert "damaged segment" in refused("compact", cwd=mine)
    assert "damaged segment" in refused("add", "fruit/plum/1.jpg", cwd=mine)
    (collection / "catalogue.sqlite").unlink()
    done = json_of("repair", cwd=mine)
    assert (done["lost"], done["features"]["extracted"]) == ([], 7)
    assert rows(mine) == before
    (collection / "segments/3/counts.npy").write_bytes(b"")
    for name in ("catalogue.sqlite", "catalogue.copy.sqlite"):
        (collection / name).unlink()
    done = json_of("repair", cwd=mine)
    assert done["lost"][1] == "segment 3 is damaged: its images are extracted again"
    assert done["features"]["extracted"] > 0
    assert {row[:3] for row in rows(mine)} == {row[:3] for row in before}


def test_what_is_replaced_or_removed_while_it_is_looked_at_is_not_damaged(run, monkeypatch):
    shutil.copytree(run.extractor, run.folder / "index/oasis")
    look = repair.damage

    def replaced(folder, record, **how):
        if folder == run.extractor and "replaced" not in record:
            problem = look(folder, record | {"crc32": {"files/idf.npy": 0}})
            write_record(folder / "record.json", record | {"replaced": True})
            return problem
        if folder == run.folder / "index/oasis":
            shutil.rmtree(folder)
        return look(folder, record, **how)

    monkeypatch.setattr(repair, "damage", replaced)
    assert repair.damaged_artifacts(run) == []


def test_what_another_command_makes_again_is_named(mine):
    visterm("train", "--learner", "pamir", "--set", "pamir.n_steps=100", cwd=mine)
    next((mine / "runs/fruit/learners/pamir/files").glob("*.npy")).write_bytes(b"")
    line = refused("repair", "--run", "fruit", cwd=mine)
    assert "learners/pamir: damaged" in line
    assert line.endswith("run 'visterm train --learner pamir --force --run fruit' to rebuild it")
