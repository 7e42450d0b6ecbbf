"""The description of a run: what of its tables is not used, and which files are damaged."""

import pytest
from running import CLASSES, SMALL, json_of, refused, visterm

from visterm.pipeline.store.files import publish
from visterm.pipeline.store.records import make_record

PLACES = {  # artifacts, and the command that repairs each
    "collection": "features --run fruit",
    "collection/segments/1": "features --run fruit",
    "extractor": "features --force --run fruit",
    "learners/oasis": "train --learner oasis --force --run fruit",
    "learners/musl.checkpoint": "train --learner musl --force --run fruit",
    "tuning/oasis": "tune --learner oasis --force --run fruit",
    "index/oasis": "index --rebuild --learner oasis --run fruit",
    "index/vectors": "index --rebuild --learner cosine --run fruit",
    "evaluations/oasis": "evaluate --learner oasis --force --run fruit",
}


def loop(file):
    file.unlink()
    file.symlink_to(file.name)


def link_to_a_folder(file):
    file.unlink()
    file.symlink_to(file.parent)


def link_to_nothing(file):
    file.unlink()
    file.symlink_to("gone")


def folder(file):
    file.unlink()
    file.mkdir()


def empty(file):
    file.write_bytes(b"")


def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.fixture
def whole(mine):
    """The finished run with a checkpoint, a tuning and two indexes, which are as good as empty."""
    for place in ("learners/musl.checkpoint", "tuning/oasis", "index/oasis", "index/vectors"):
        with publish(mine / "runs/fruit" / place, make_record("any", {}, {"extractor": ""})):
            pass
    assert json_of("info", cwd=mine)["damaged"] == []
    return mine


def test_checksums_are_of_codebook_and_vectors_until_images_change(mine):
    checksums = json_of("info", cwd=mine)["checksums"]
    assert [len(checksum) for checksum in checksums.values()] == [16, 16]
    assert f"checksums:   codebook {checksums['codebook']}, vectors" in visterm("info", cwd=mine).stdout
    visterm("remove", "id:1", cwd=mine)
    assert "checksums" not in json_of("info", cwd=mine)


@pytest.mark.parametrize("damage", [loop, link_to_a_folder, link_to_nothing, folder, empty, flip])
def test_every_damaged_record_is_named_with_the_command_that_repairs_it(whole, damage):
    for place in PLACES:
        damage(whole / "runs/fruit" / place / "record.json")
    described = json_of("info", cwd=whole)
    assert described["images"] == 30  # the rest is described
    assert "damaged segment" in described["segments"]["error"]
    assert described["learners"]["wsabie"].endswith(" steps (out of date: train again)")
    assert described["learners"]["oasis"].startswith("damaged: ")
    assert len(described["damaged"]) == len(PLACES)
    table = visterm("info", cwd=whole).stdout.splitlines()
    for place, command in PLACES.items():
        (line,) = (
            line for line in described["damaged"] if line.startswith((f"runs/fruit/{place}/r", f"runs/fruit/{place}:"))
        )
        assert f"run 'visterm {command}'" in line
        assert f"damaged:     {line}" in table


@pytest.mark.slow
@pytest.mark.parametrize("damage", [loop, pytest.param(folder, marks=pytest.mark.slow)])
def test_repair_and_the_commands_it_names_leave_nothing_damaged(whole, damage):
    for place in PLACES:
        if not place.startswith("tuning"):
            damage(whole / "runs/fruit" / place / "record.json")
    refused("repair", cwd=whole)  # with the other lines
    places = (
        "extractor",
        "learners/oasis",
        "learners/musl.checkpoint",
        "evaluations/oasis",
        "index/oasis",
        "index/vectors",
    )
    for place in places:
        visterm(*PLACES[place].split(), cwd=whole)
    assert json_of("info", cwd=whole)["damaged"] == []
    assert json_of("repair", cwd=whole)["damaged"] == []


METRICS = {
    "empty": "",
    "cut short": '{"protocol": "split", "sys',
    "no keys": "{}",
    "null": "null",
    "a list": "[1]",
    "other types": '{"protocol": "split", "n_queries": "2", "systems": {"oasis": {"map": 0.5}}}',
    "no systems": '{"protocol": "split", "n_queries": 2, "systems": {}}',
    "no figures": '{"protocol": "split", "n_queries": 2, "systems": {"oasis": {"map": null}}}',
    "missing": None,
}


def test_a_directory_of_images_that_is_gone_is_said(mine):
    visterm("features", "fruit", "--run", "fruit", cwd=mine)
    assert "is gone" not in visterm("info", "--run", "fruit", cwd=mine).stdout
    (mine / "fruit").rename(mine / "moved")
    line = f"{mine / 'fruit'}, which is gone; 'visterm features IMAGES --run fruit' follows images that were moved\n"
    assert line in visterm("info", "--run", "fruit", cwd=mine).stdout


def test_visterms_are_learned_from_the_images_that_can_be_read(mine):
    """Files that are no images were counted."""
    (mine / "fruit/pear/no.jpg").write_bytes(b"no image")
    visterm(
        "features", "fruit", "--run", "new", *SMALL, "--set", "split.train=1.0", "--set", "split.test=0.0", cwd=mine
    )
    described = json_of("info", "--run", "new", cwd=mine)
    assert (described["images"], described["skipped"]) == (30, 1)
    assert described["learned from"] == "30 training images"


@pytest.mark.parametrize("text", METRICS.values(), ids=METRICS)
def test_damaged_figures_are_named(mine, text):
    evaluation = mine / "runs/fruit/evaluations/oasis"
    file = evaluation / "metrics.json"
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)
    described = json_of("info", cwd=mine)
    (line,) = described["damaged"]
    assert line.startswith("runs/fruit/evaluations/oasis")
    assert "metrics.json" in line
    assert line.endswith("run 'visterm evaluate --learner oasis --force --run fruit' to rebuild it")
    assert f"damaged:     {line}" in visterm("info", cwd=mine).stdout.splitlines()
    assert described["evaluations"]["oasis"]["error"].startswith("runs/fruit/evaluations/oasis/metrics.json: damaged")
    assert described["learners"]["oasis"].endswith("0 steps")


def test_what_a_table_holds_and_a_run_does_not_use_is_said_everywhere(mine):
    """By `features`, `info` and the report of an evaluation."""
    rows = [f"{c}\\{i}.jpg;{c}\n" for c in CLASSES for i in range(10) if (c, i) != ("apple", 0)]
    (mine / "labels.csv").write_text("file;Class\n" + "".join(rows) + "gone.jpg;fig\n")
    said = visterm("features", "fruit", *SMALL, "--set", "collection.labels=labels.csv", cwd=mine).stderr
    lines = [
        "29 names with backslashes, such as apple\\1.jpg",
        "1 row without an image of the collection, such as gone.jpg; skipped",
        "1 image in no row of labels.csv, such as apple/0.jpg: no label",
    ]
    assert "3 labels from labels.csv, column Class, images by the column file: apple, pear, plum" in said
    assert all(line in said for line in lines)
    described = json_of("info", cwd=mine)
    assert described["labels"] == "labels.csv, column Class, images by the column file"
    assert [line.split("labels.csv: ")[-1] for line in described["not_used"]] == lines
    printed = visterm("info", cwd=mine).stdout
    assert all(f"{line}\n" in printed for line in lines)
    visterm("evaluate", "--learner", "cosine", cwd=mine)
    report = (mine / "runs/fruit/evaluations/cosine/report.html").read_text()
    assert "1 row without an image of the collection, such as gone.jpg; skipped" in report


def test_rows_that_make_no_sense_are_refused_or_skipped(mine):
    rows = [f"{c}/{i}.jpg,{c}\n" for c in CLASSES for i in range(10)]
    (mine / "labels.csv").write_text("path,label\n" + "".join(rows) + "apple/1.jpg,a,b\n")
    arguments = ("features", "fruit", *SMALL, "--set", "collection.labels=labels.csv")
    line = refused(*arguments, cwd=mine)
    assert line.endswith(
        "labels.csv, line 32: more cells than the first line has columns; --set collection.skip_bad_rows=true skips "
        "such rows"
    )
    assert "1 row that cannot be used, such as line 32" in visterm(*arguments, "--skip-bad-rows", cwd=mine).stderr


def test_the_description_does_not_read_very_large_files_which_repair_does(whole, monkeypatch):
    (W,) = (whole / "runs/fruit/learners/oasis/files").glob("W*.npy")
    monkeypatch.setattr("visterm.pipeline.store.records.LARGE", W.stat().st_size)
    flip(W)
    assert "does not have the checksum" in json_of("info", cwd=whole)["damaged"][0]
    monkeypatch.setattr("visterm.pipeline.store.records.LARGE", W.stat().st_size - 1)
    assert json_of("info", cwd=whole)["damaged"] == []
    assert "does not have the checksum" in visterm("repair", cwd=whole, check=2).stderr
    W.write_bytes(W.read_bytes()[:-1])
    assert "has another size" in json_of("info", cwd=whole)["damaged"][0]
