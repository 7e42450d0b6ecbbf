"""A damaged catalogue is rebuilt from segments, marks and what can be read of it."""

from __future__ import annotations

import shutil
import sqlite3

import pytest
from running import CLASSES, SMALL, json_of, refused, visterm


@pytest.fixture(scope="module")
def made(tmp_path_factory, write_images):
    """A run with an image that was removed by hand, and one that has a label by hand."""
    folder = tmp_path_factory.mktemp("repair")
    write_images(folder / "fruit", [f"{label}/{i}.jpg" for label in CLASSES for i in range(6)])
    visterm("features", "fruit", *SMALL, "--set", "compute.segment_size=7", cwd=folder)
    visterm("remove", "id:2", cwd=folder)
    visterm("add", "fruit/plum/0.jpg", "--label", "apple", cwd=folder)
    return folder


@pytest.fixture
def mine(made, tmp_path):
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)


def rows(folder):
    query = "SELECT id, path, sha256, labels, split, status FROM images WHERE status != 'removed' ORDER BY id"
    with sqlite3.connect(folder / "runs/fruit/collection/catalogue.sqlite") as db:
        return db.execute(query).fetchall()


def test_one_bit_costs_nothing(mine):
    before, file = rows(mine), mine / "runs/fruit/collection/catalogue.sqlite"
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(data)
    for command in (["search", "id:1"], ["info"], ["features"], ["compact"], ["remove", "id:3"]):
        assert "damaged catalogue" in refused(*command, cwd=mine)
    done = json_of("repair", cwd=mine)
    assert (done["catalogue"], done["lost"], done["damaged"]) == (True, [], [])
    assert done["doubtful"] == [
        "2 images added, removed or labelled by hand: as the damaged catalogue has them, which may be wrong"
    ]
    assert rows(mine) == before
    assert file.with_name("catalogue.sqlite.damaged").read_bytes() == bytes(data)
    done = json_of("repair", cwd=mine)
    assert (done["catalogue"], done["kept"], done["features"]["extracted"]) == (False, [], 0)


def test_an_id_keeps_the_content_that_its_segment_notes(mine):
    """What the damaged catalogue says of an image may be read, and be wrong."""
    before, file = rows(mine), mine / "runs/fruit/collection/catalogue.sqlite"
    _, (_, _, sha256, *_), (_, path, *_), *_ = before
    data = file.read_bytes()
    assert sha256.encode() in data
    file.write_bytes(data.replace(sha256.encode(), b"0" * 64).replace(path, path.replace(b"/", b"+")))
    assert "damaged catalogue" in refused("info", cwd=mine)
    assert json_of("repair", cwd=mine)["lost"] == []
    assert rows(mine) == before


def test_without_any_catalogue_the_segments_know_the_images(mine):
    before = {row[:3] for row in rows(mine)}
    (mine / "runs/fruit/collection/catalogue.sqlite").write_bytes(b"")
    assert "empty, beside segments" in refused("features", cwd=mine)
    done = json_of("repair", cwd=mine)
    assert done["features"]["extracted"] == 0
    assert any("made by hand" in line for line in done["lost"])
    assert {row[:3] for row in rows(mine)} == before
    assert len(json_of("search", "id:1", "--learner", "cosine", "-k", "30", cwd=mine)[0]["results"]) == 17


def test_a_segment_lost_with_the_catalogue_is_extracted_again(mine):
    collection = mine / "runs/fruit/collection"
    (collection / "segments/2/counts.npy").write_bytes(b"")
    assert "damaged segment" in refused("compact", cwd=mine)
    assert "damaged segment" in refused("add", "fruit/plum/1.jpg", cwd=mine)
    (collection / "catalogue.sqlite").unlink()
    done = json_of("repair", cwd=mine)
    assert "segment 2 is damaged" in done["lost"][0]
    assert done["features"]["extracted"] == 7
    assert len(rows(mine)) == 18


def test_what_another_command_makes_again_is_named(mine):
    visterm("train", "--learner", "pamir", "--set", "pamir.n_steps=100", cwd=mine)
    next((mine / "runs/fruit/learners/pamir/files").glob("*.npy")).write_bytes(b"")
    line = refused("repair", "--run", "fruit", cwd=mine)
    assert "learners/pamir: damaged" in line
    assert line.endswith("run 'visterm train --learner pamir --force --run fruit' to rebuild it")
