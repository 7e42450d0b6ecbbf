"""The command as a user meets it: what it prints, where, and with which exit code."""

import contextlib
import csv
import errno
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from running import CLASSES, SMALL, counts_by_path, json_of, note, refused, set_all, visterm
from typer.testing import CliRunner

from visterm.features import VistermExtractor
from visterm.learners import OASIS
from visterm.pipeline import console
from visterm.pipeline.cli.app import app, main
from visterm.pipeline.stages import train as train_stage
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.database import Database
from visterm.plugins.demo import demo_images as demo_images_stage

FEW_FOR_A_FOREST = set_all(features={"codebook.kind": "forest", "n_visterms": 3})  # seen when the codebook is learned


def in_a_process(*arguments, cwd, check=True):
    """Run the command as it is run for real."""
    command = [Path(sys.executable).with_name("visterm"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=check, stdin=subprocess.DEVNULL)


def test_help_lists_the_commands_and_no_types_of_python(tmp_path):
    text = visterm(cwd=tmp_path).stdout
    assert text == visterm("--help", cwd=tmp_path).stdout == visterm("-h", cwd=tmp_path).stdout
    assert "Did you mean 'features'?" in visterm("feature", cwd=tmp_path, check=2).stderr
    for command in ("features", "train", "evaluate", "search", "info", "demo"):
        assert f"\n  {command} " in text
        assert "Options:" in visterm(command, "-h", cwd=tmp_path).stdout
    for command in ("search", "features", "tune", "serve", "explain", "label add", "model inspect", "judge export"):
        text = visterm(*command.split(), "--help", cwd=tmp_path).stdout
        assert re.findall(r"^  (?:-|[A-Z]+\b).*<(?:str|int|float|path|list).*", text, re.MULTILINE) == []


def test_help_is_asked_for_in_any_way(tmp_path, monkeypatch, capsys):
    for group in ("label", "feedback", "model"):
        monkeypatch.setattr(sys, "argv", ["visterm", group])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 0
        out, err = capsys.readouterr()
        assert (out.splitlines()[0], err) == (f"Usage: visterm {group} [OPTIONS] COMMAND [ARGS]...", "")
    for words in (["search"], ["label", "add"]):
        assert visterm("help", *words, cwd=tmp_path).stdout == visterm(*words, "--help", cwd=tmp_path).stdout
    assert visterm("help", cwd=tmp_path).stdout == visterm("--help", cwd=tmp_path).stdout


def test_options_of_all_commands_may_follow_the_command(finished):
    quiet = visterm("search", "fruit/pear/0.jpg", "-k", 1, "-q", cwd=finished)
    assert quiet.stdout == visterm("search", "fruit/pear/0.jpg", "-k", 1, cwd=finished).stdout
    assert quiet.stderr == ""
    assert "Traceback" in in_a_process("info", "--run", "none", "--debug", cwd=finished, check=False).stderr
    assert "no such file" in visterm("search", "--", "-q", cwd=finished, check=2).stderr.lower()


def test_names_are_completed(finished):
    def completed(words):
        environment = os.environ | {"_VISTERM_COMPLETE": "complete_bash", "COMP_WORDS": words, "VISTERM_RUNS": "runs"}
        environment["COMP_CWORD"] = str(len(words.split()) - 1)
        command = [Path(sys.executable).with_name("visterm")]
        return subprocess.run(command, cwd=finished, env=environment, capture_output=True, text=True).stdout.split()

    assert completed("visterm info --run fr") == ["fruit"]
    assert completed("visterm train --learner oasis,ws") == ["oasis,wsabie"]


def test_a_damaged_record_does_not_hide_the_run(mine):
    (mine / "runs/fruit/learners/oasis/record.json").write_text("{")
    info = json_of("info", cwd=mine)
    assert info["images"] == 30
    assert info["learners"]["oasis"] == "damaged: run 'visterm train --learner oasis --run fruit --force'"
    line = refused("search", "fruit/pear/0.jpg", cwd=mine)
    assert "damaged record; run 'visterm train --learner oasis --force --run fruit'" in line
    visterm("train", "--learner", "oasis", "--run", "fruit", "--force", cwd=mine)
    assert "damaged" not in visterm("info", cwd=mine).stdout


def test_a_full_disk_and_an_interrupt_are_one_line(mine, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "runs/fruit/learners/oasis.tmp/files")
    monkeypatch.setattr(train_stage, "publish", Mock(side_effect=full))
    line = refused("train", "--force", cwd=mine)
    assert line.startswith("visterm: runs/fruit/learners/oasis.tmp/files: No space left on device")
    monkeypatch.setattr(train_stage, "train", Mock(side_effect=KeyboardInterrupt))
    assert "; re-run the same command to resume" in visterm("train", cwd=mine, check=130).stderr
    assert "same command without --force to resume" in visterm("train", "--force", cwd=mine, check=130).stderr


def test_an_interrupted_force_goes_on_and_a_kill_between_two_renames_is_undone(mine):
    learners = mine / "runs/fruit/learners"
    shutil.copytree(learners / "oasis", learners / "oasis.checkpoint")
    assert "unfinished:" in visterm("info", cwd=mine).stdout
    result = visterm("train", cwd=mine)
    assert "resuming from the checkpoint" in result.stderr
    assert not (learners / "oasis.checkpoint").exists()
    assert "unfinished" not in visterm("info", cwd=mine).stdout
    assert json_of("train", cwd=mine)["up_to_date"]
    (learners / "oasis").rename(learners / "oasis.old")
    (learners / "oasis.tmp").mkdir()
    assert json_of("train", cwd=mine)["up_to_date"]
    assert sorted(path.name for path in learners.iterdir()) == ["musl", "oasis", "wsabie"]


def test_evaluate_writes_all_its_files_and_info_says_what_the_run_holds(finished):
    folder = finished / "runs/fruit/evaluations/oasis"
    names = "curves.csv metrics.json neighbours.csv precision_curve.png precision_curve.svg queries.csv record.json"
    assert sorted(path.name for path in folder.iterdir()) == [*names.split(), "report.html"]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert [metrics[key] for key in ("protocol", "n_queries", "n_without_relevant")] == ["test-test", 12, 0]
    assert set(metrics["systems"]) == {"oasis", "cosine", "chance"}
    for system in metrics["systems"].values():
        assert 0 <= system["map"] <= 1
        assert "1" in system["precision_at"]
    with open(folder / "neighbours.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 12 * 10
    assert all(row["query"] != row["path"] for row in rows)
    info = json_of("info", cwd=finished)
    assert (info["images"], info["classes"], info["visterms"]) == (30, 3, 40)
    assert info["splits"] == {"train": 18, "test": 12}
    assert "oasis" in info["learners"]
    assert "images:      30" in visterm("info", cwd=finished).stdout


def test_what_is_fresh_is_not_made_again(mine):
    before = {path: path.stat().st_mtime_ns for path in (mine / "runs").rglob("*") if path.is_file()}
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 0
    assert json_of("train", cwd=mine)["up_to_date"]
    visterm("evaluate", cwd=mine)
    after = {path: path.stat().st_mtime_ns for path in (mine / "runs").rglob("*") if path.is_file()}
    changed = {path.name for path in after if after[path] != before.get(path)}
    assert changed <= {"catalogue.sqlite", "catalogue.copy.sqlite", "catalogue.checksum.json", ".lock"}


def test_only_what_changed_is_extracted(mine, write_images):
    before = counts_by_path(mine)
    write_images(mine / "fruit", [f"apple/new{i}.jpg" for i in range(10)])
    summary = json_of("features", "fruit", cwd=mine)
    assert (summary["added"], summary["extracted"], summary["n_images"]) == (10, 10, 40)

    write_images(mine / "fruit", ["pear/0.jpg"], seed=1)
    summary = json_of("features", "fruit", cwd=mine)
    assert (summary["changed"], summary["extracted"], summary["n_images"]) == (1, 1, 40)

    (mine / "fruit/plum/0.jpg").unlink()
    summary = json_of("features", "fruit", cwd=mine)
    assert (summary["removed"], summary["extracted"], summary["n_images"]) == (1, 0, 39)

    now = counts_by_path(mine)
    assert all(now[path] == row for path, row in before.items() if path not in ("pear/0.jpg", "plum/0.jpg"))


def test_settings_change_what_depends_on_them(mine):
    for setting in ("seed=1", "split.train=0.2"):
        assert "features were made with another configuration" in refused("train", "--set", setting, cwd=mine)
    result = visterm("train", "--set", "oasis.C=0.05", "--set", "oasis.C=0.04", cwd=mine)
    assert "kept for later commands in runs/fruit/config.yaml: oasis.C=0.04\n" in result.stderr
    result = visterm("train", cwd=mine)
    assert "kept" not in result.stderr
    assert "up to date" in result.stderr


def test_search_finds_an_image_from_outside(finished, tmp_path, write_images):
    write_images(tmp_path, ["pear/outside.jpg"])
    query = str(tmp_path / "pear/outside.jpg")
    (answer,) = json_of("search", query, cwd=finished)
    assert answer["query"] == query
    assert [result["rank"] for result in answer["results"]] == list(range(1, 11))
    assert set(answer["results"][0]) == {"rank", "id", "path", "score", "labels", "probability"}
    assert [result["labels"] for result in answer["results"][:5]] == [["pear"]] * 5
    table = visterm("search", query, "-k", "3", cwd=finished).stdout.splitlines()
    assert table[0] == query
    assert len(table) == 5
    rows = list(csv.DictReader(visterm("search", query, "--format", "csv", cwd=finished).stdout.splitlines()))
    assert [row["path"] for row in rows] == [result["path"] for result in answer["results"]]
    assert [float(row["probability"]) for row in rows] == [result["probability"] for result in answer["results"]]


def test_search_leaves_the_query_itself_out(finished):
    for learner in ("oasis", "cosine"):
        result = visterm("search", "fruit/pear/0.jpg", "-k", "99", "--learner", learner, "--json", cwd=finished)
        (answer,) = json.loads(result.stdout)
        assert len(answer["results"]) == 29
        assert "pear/0.jpg" not in [row["path"] for row in answer["results"]]
        assert "-k 99: the collection has 30 images" in result.stderr


def test_a_flat_folder_can_be_searched_but_not_trained(tmp_path, write_images):
    write_images(tmp_path / "flat", [f"{c}{i}.jpg" for c in CLASSES for i in range(4)])
    result = visterm("features", "flat", *SMALL, cwd=tmp_path)
    assert "Next: visterm search IMAGE --run flat\n" in result.stderr
    (answer,) = json_of("search", "flat/pear0.jpg", "--learner", "cosine", cwd=tmp_path)
    assert len(answer["results"]) == 10
    line = refused("train", cwd=tmp_path)
    for way in ("one folder per class", "labels.csv", "clicks.csv"):
        assert way in line
    result = visterm("search", "flat/pear0.jpg", "--json", cwd=tmp_path)
    assert json.loads(result.stdout) == [answer]
    assert "by cosine: run flat has no trained learner" in result.stderr
    line = refused("search", "flat/pear0.jpg", "--label", "pear", cwd=tmp_path)
    assert "run flat has no label 'pear'; its images have no labels" in line
    assert json_of("search", "flat/pear0.jpg", "--folder", ".", cwd=tmp_path) == [answer]
    line = refused("search", "flat/pear0.jpg", "--learner", "oasis", cwd=tmp_path)
    assert line.endswith("run flat has no labels that oasis could learn from; --learner cosine needs no training")
    line = refused("annotate", "flat/pear0.jpg", cwd=tmp_path)
    assert "run flat has no labels that wsabie could learn from: sort the images" in line
    assert "cosine" not in line
    line = refused("evaluate", cwd=tmp_path)
    assert "run flat has no labelled test images: sort the images" in line
    assert "visterm train" not in line


@pytest.mark.slow
def test_labels_and_clicks_from_tables(tmp_path, write_images):
    names = [f"{c}{i}.jpg" for c in CLASSES for i in range(8)]
    write_images(tmp_path / "flat", names)
    (tmp_path / "flat/bad.jpg").write_text("no image")
    labels = [f"{n},{label}\n" for n in names for label in (n[:-5], "round" if "a" in n else "long")]
    labels += [f"{name},{name[:-5]}\n" for name in ("bad.jpg", "gone.jpg", "fig1.jpg")]
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(labels))
    for table in ("labels", "clicks", "single"):
        if table != "labels":
            rows = [f"{n[:-5]},{n},{1 if table == 'single' else 2}\n" for n in names]
            (tmp_path / "clicks.csv").write_text("query,path,count\n" + "".join(rows))
        setting = "collection.labels=labels.csv" if table == "labels" else "collection.clicks=clicks.csv"
        split = () if table == "labels" else ("--set", "split.train=0.7", "--set", "split.test=0.3")  # else all train
        result = visterm("features", "flat", "--run", table, *SMALL, "--set", setting, *split, cwd=tmp_path)
        told = "labels.csv: 2 rows without an image of the collection, such as gone.jpg" in result.stderr
        assert told == (table == "labels")
        visterm("train", "--run", table, cwd=tmp_path)
        metrics = json_of("evaluate", "--run", table, cwd=tmp_path)
        assert metrics["n_queries"] > 0
        assert metrics["systems"]["oasis"]["map"] > metrics["systems"]["chance"]["map"]


def test_few_clicked_images_are_all_trained_on(tmp_path, write_images):
    """Unless test images are asked for."""
    names = [f"{c}{i}.jpg" for c in CLASSES for i in range(4)]
    write_images(tmp_path / "flat", names)
    (tmp_path / "clicks.csv").write_text("query,path,count\n" + "".join(f"{n[:-5]},{n},1\n" for n in names))
    result = visterm("features", "flat", *SMALL, "--set", "collection.clicks=clicks.csv", cwd=tmp_path)
    keep = "--set split.train=0.7 --set split.test=0.3"
    assert f"12 of 12 clicked images are trained on, as they are few; {keep} keeps test images" in result.stderr
    visterm("train", cwd=tmp_path)
    line = refused("evaluate", cwd=tmp_path)
    assert line.endswith(f"no clicked image is a test image; 'visterm features --run flat {keep}' keeps some")
    result = visterm("features", "--run", "flat", *keep.split(), cwd=tmp_path)
    assert "8 of 12 clicked images are trained on, 4 are kept as test images; " in result.stderr
    assert "trained on" not in visterm("features", "--run", "flat", cwd=tmp_path).stderr


def test_labels_given_after_the_features_are_a_whole_command(finished, mine):
    """Two commands must not send people from one to the other."""
    rows = [f"{c}/{i}.jpg,{c}\n" for c in CLASSES for i in range(10)]
    (mine / "labels.csv").write_text("path,label\n" + "".join(rows))
    line = refused("train", "--set", "collection.labels=labels.csv", cwd=mine)
    (command,) = re.findall("run 'visterm (.*)' first", line)
    assert command == f"features --run fruit --set collection.labels={(mine / 'labels.csv').resolve()}"
    visterm(*command.split(), cwd=mine)
    assert "oasis is up to date" in visterm("train", cwd=mine).stderr  # the labels are the same


def test_removed_images_are_said_and_are_no_results(finished, tmp_path):
    shutil.copytree(finished / "fruit", tmp_path / "fruit")
    visterm("features", "fruit", *SMALL, cwd=tmp_path)
    query = "fruit/pear/0.jpg"
    (answer,) = json_of("search", query, "--learner", "cosine", "-k", "9", cwd=tmp_path)
    gone = [result["path"] for result in answer["results"][:3]]
    for path in gone:
        (tmp_path / "fruit" / path).unlink()
    result = visterm("search", query, "--learner", "cosine", "-k", "6", "--json", cwd=tmp_path)
    left = [row["path"] for row in json.loads(result.stdout)[0]["results"]]
    assert left == [row["path"] for row in answer["results"][3:]]
    assert result.stderr.count("deleted photos are no results; 'visterm features --run fruit' removes them") == 1
    assert "3 images removed in " in visterm("features", "--run", "fruit", cwd=tmp_path).stderr
    assert "nothing to do in " in visterm("features", "--run", "fruit", cwd=tmp_path).stderr


def test_tune_does_not_list_cosine(mine):
    assert refused("tune", "--learner", "zzz", cwd=mine).endswith("pamir, warp, ovr, hier, knn")


@pytest.mark.slow
def test_query_gallery_protocol(mine):
    metrics = json_of("evaluate", "--set", "evaluate.protocol=query-gallery", cwd=mine)
    assert (metrics["protocol"], metrics["n_queries"], metrics["n_gallery"]) == ("query-gallery", 12, 18)


def test_bad_files_are_listed_and_the_run_goes_on(mine):
    fruit = mine / "fruit/apple"
    (fruit / "empty.jpg").touch()
    (fruit / "text.png").write_text("not an image")
    (fruit / "notes.txt").write_text("notes")
    (fruit / "cut.jpg").write_bytes((fruit / "1.jpg").read_bytes()[:900])
    os.symlink("..", fruit / "loop")
    os.symlink("nowhere.jpg", fruit / "broken.jpg")
    (fruit / "a \"b\" 'c'\nd.jpg").write_bytes((fruit / "1.jpg").read_bytes())
    with open(os.path.join(os.fsencode(fruit), b"\xff.jpg"), "wb") as stream:
        stream.write((fruit / "2.jpg").read_bytes())
    result = visterm("features", "fruit", "--json", cwd=mine)
    summary = json.loads(result.stdout)
    assert summary["added"] - summary["extracted"] == 3  # empty, text and cut
    assert summary["n_images"] == 32
    listed = visterm("info", "--skipped", cwd=mine).stdout
    reasons = {"empty.jpg": "empty file", "text.png": "not an image", "cut.jpg": "truncated"}
    for name, reason in (reasons | {"loop": "loop", "broken.jpg": "link"}).items():
        assert any(name in line and reason in line for line in listed.splitlines()), (name, listed)
    assert [line for line in listed.splitlines() if "notes.txt" in line and not line.startswith("not used:")] == []
    assert "1 other file ignored, such as apple/notes.txt" in result.stderr
    assert "skipped" in result.stderr
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 0
    visterm("train", cwd=mine)
    visterm("evaluate", cwd=mine)


def test_a_refused_run_leaves_nothing_behind(tmp_path, write_images):
    (tmp_path / "none").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/1.jpg").write_text("text")
    for _ in range(2):
        told = visterm("features", "bad", "--run", "bad", cwd=tmp_path, check=2).stderr
        assert "1.jpg: not an image" in told
        assert "no image could be read" in told
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    assert "no image could be read" in refused("features", "none", cwd=tmp_path)
    (tmp_path / "none/00000.parquet").touch()  # as img2dataset writes them, with a table beside each archive
    (tmp_path / "none/00000.tar").touch()
    assert "those inside .tar files are not: unpack them: tar -xf FILE" in refused("features", "none", cwd=tmp_path)
    refused("features", "missing", cwd=tmp_path)
    write_images(tmp_path / "fruit", ["a/1.jpg"])
    refused("features", "fruit", *FEW_FOR_A_FOREST, cwd=tmp_path)
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs").write_text("a file in the place of the folder")
    assert "cannot be written" in refused("features", "fruit", cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["features", "fruit", "--run", "a/b"], "one plain word"),
        (["features", "fruit", "--run", "new", *FEW_FOR_A_FOREST], "n_visterms"),
        (["train", "--run", "none"], "no run none in runs"),
        (["train", "--learner", "oassis"], "did you mean oasis?"),
        (["train", "--set", "aroma.r=0"], "--set aroma.r=0: aroma.r: r must be positive, from 1e-30 to 1e30, not 0"),
        (["train", "--set", "aroma.r=-1", "--set", "oasis.C=1"], "--set aroma.r=-1: aroma.r: r must be positive"),
        (["train", "--learner", ""], "the name of a learner is missing"),
        (["search", "labels.csv"], "labels.csv"),
    ],
)
def test_mistakes_are_one_line(mine, arguments, message):
    (mine / "labels.csv").write_text("path,label\n")
    assert message in refused(*arguments, cwd=mine)


def test_too_few_classes_or_images(tmp_path, write_images):
    write_images(tmp_path / "one", [f"apple/{i}.jpg" for i in range(6)])
    visterm("features", "one", *SMALL[:2], "--set", "features.n_visterms=10", cwd=tmp_path)
    assert "two classes" in refused("train", cwd=tmp_path)

    write_images(tmp_path / "lonely", ["apple/1.jpg", *(f"{c}/{i}.jpg" for c in CLASSES[1:] for i in range(9))])
    visterm("features", "lonely", *SMALL, cwd=tmp_path)
    result = visterm("train", "--run", "lonely", cwd=tmp_path)
    assert "1 of" in result.stderr

    write_images(tmp_path / "all", [f"{c}/{i}.jpg" for c in CLASSES for i in range(6)])
    visterm("features", "all", *SMALL, "--set", "split.train=1.0", "--set", "split.test=0", cwd=tmp_path)
    visterm("train", "--run", "all", cwd=tmp_path)
    assert "no labelled test images" in refused("evaluate", "--run", "all", cwd=tmp_path)


@pytest.mark.slow
def test_duplicates_across_the_split_are_reported(mine):
    for c in CLASSES:
        for i in range(10):
            shutil.copy(mine / f"fruit/{c}/{i}.jpg", mine / f"fruit/{c}/copy{i}.jpg")
    visterm("features", "fruit", cwd=mine)
    visterm("train", cwd=mine)
    visterm("evaluate", cwd=mine)
    assert "duplicate" in (mine / "runs/fruit/evaluations/oasis/report.html").read_text().lower()


@pytest.mark.parametrize("part", ["extractor", "collection"])
@pytest.mark.parametrize("version", [1, 99])
def test_a_run_of_another_version_is_to_be_built_again(mine, part, version):
    """Format 1: of versions up to 0.3."""
    folder = mine / "runs/fruit" / part
    if part == "extractor":
        record = json.loads((folder / "record.json").read_text()) | {"format": version}
        (folder / "record.json").write_text(json.dumps(record))
    else:
        with contextlib.closing(sqlite3.connect(folder / "catalogue.sqlite")) as db, db:
            db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(version),))
    line = refused("train", cwd=mine)
    assert f"runs/fruit/{part}: made by another version (format {version}, this visterm reads 2)" in line
    assert line.endswith("build the run again: use another --run, or remove it and run 'visterm features IMAGES'")


@pytest.mark.parametrize("file", ["record.json", "files/{}.json"])
@pytest.mark.parametrize("part", ["extractor", "learners/oasis"])
def test_damaged_files_are_named(mine, part, file):
    (mine / "runs/fruit" / part / file.format(part.partition("s/")[0])).write_text("{")
    assert part.partition("/")[0] in refused("search", "fruit/pear/0.jpg", cwd=mine)


@pytest.mark.slow
def test_the_decoders_are_silent(data, tmp_path):
    result = in_a_process("features", data / "odd", *SMALL, "--set", "features.n_visterms=200", "--json", cwd=tmp_path)
    summary = json.loads(result.stdout)
    assert summary["n_images"] + summary["skipped"] == 170
    own = ("warning: ", str(data / "odd"), "learning ", "extracting", "reading dates", "kept for later commands")
    own += ("files of more than 8 bits",)
    assert [line for line in result.stderr.splitlines() if not line.startswith(own)] == []


def test_unreadable_files_keep_their_places_in_the_split(mine):
    """Or the next run would draw others into training, and train another model."""
    for c in CLASSES:
        (mine / f"fruit/{c}/broken.jpg").write_text("not an image")
    settings = ["--set", "split.train=4", "--set", "split.test=3"]
    visterm("features", "fruit", *SMALL, *settings, cwd=mine)
    first = json_of("info", cwd=mine)
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 0
    assert json_of("info", cwd=mine)["splits"] == first["splits"]


@pytest.mark.parametrize(
    ("kind", "method", "setting", "refused_ones"),
    [  # a kill leaves the new split beside the old codebook, or counts of the old one
        (VistermExtractor, "fit", "split.seed=5", (["train"], ["evaluate"])),
        (Collection, "use_extractor", "features.n_visterms=30", (["search", "fruit/pear/0.jpg"],)),
    ],
)
def test_unfinished_features_are_not_used(mine, monkeypatch, kind, method, setting, refused_ones):
    monkeypatch.setattr(kind, method, Mock(side_effect=KeyboardInterrupt))
    visterm("features", "fruit", *SMALL, "--set", setting, cwd=mine, check=130)
    for command in refused_ones:
        assert "the features are not finished" in refused(*command, cwd=mine)


@pytest.mark.slow
def test_changed_labels_make_the_learner_stale(mine):
    table = mine / "labels.csv"
    rows = [f"{c}/{i}.jpg,{c}\n" for c in CLASSES for i in range(10)]
    table.write_text("path,label\n" + "".join(rows))
    settings = [*SMALL, "--set", f"collection.labels={table}"]
    visterm("features", "fruit", *settings, cwd=mine)
    visterm("train", cwd=mine)
    rows[0], rows[10] = "apple/0.jpg,pear\n", "pear/0.jpg,apple\n"
    table.write_text("path,label\n" + "".join(rows))
    result = visterm("features", "fruit", cwd=mine)
    assert "(0 new, 0 changed, 0 removed, 2 with other labels)" in result.stderr
    assert "2 images relabelled in " in result.stderr
    again = visterm("features", "fruit", cwd=mine)
    assert "(0 new, 0 changed, 0 removed)" in again.stderr
    assert "nothing to do" in again.stderr
    assert "(out of date: train again)" in visterm("info", cwd=mine).stdout
    warning = "oasis was trained before the training images or their labels changed; "
    warning += "'visterm train --learner oasis --run fruit' retrains it"
    assert warning in visterm("evaluate", cwd=mine).stderr
    assert warning in visterm("search", "fruit/pear/0.jpg", cwd=mine).stderr
    assert "trained before" not in visterm("search", "fruit/pear/0.jpg", "--learner", "cosine", cwd=mine).stderr
    assert not json_of("train", cwd=mine)["up_to_date"]


@pytest.mark.slow
def test_an_evaluation_is_renewed_with_its_learner(mine):
    report = mine / "runs/fruit/evaluations/oasis/report.html"
    before = report.stat().st_mtime_ns
    assert visterm("evaluate", cwd=mine).stdout == f"{report.relative_to(mine)}\n"
    assert report.stat().st_mtime_ns == before
    visterm("train", "--set", "oasis.C=0.01", cwd=mine)
    visterm("evaluate", cwd=mine)
    assert report.stat().st_mtime_ns != before
    assert "C: 0.01" in report.read_text()


@pytest.mark.slow
def test_the_report_shows_what_the_learner_was_trained_with(mine):
    settings = ("oasis.C=7.5", "index.kind=milvus", "index.uri=https://me:s@cret@host/db")
    result = visterm("evaluate", "--force", *(part for setting in settings for part in ("--set", setting)), cwd=mine)
    assert "trained with other settings" in result.stderr
    report = (mine / "runs/fruit/evaluations/oasis/report.html").read_text()
    assert "C: 7.5" not in report
    assert report.count("https://host/db") == 2  # in the configuration, and in the command
    assert "cret" not in report


@pytest.mark.slow
def test_the_report_ends_with_when_to_take_cells(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{label}/{i}.jpg" for label in CLASSES for i in range(6)])
    for cells, named in (("[1]", True), ("[2]", False)):
        settings = ("--set", f"features.cells={cells}")
        visterm("features", "fruit", *SMALL, *settings, cwd=tmp_path)
        visterm("evaluate", "--learner", "cosine", *SMALL, *settings, cwd=tmp_path)
        report = tmp_path / "runs/fruit/evaluations/cosine/report.html"
        assert ("take configs/spatial.yaml" in report.read_text().split('id="glossary"')[1]) == named


def test_a_checkpoint_of_other_settings_is_kept_until_told(mine):
    """It may be of hours of training: only --force goes over it."""
    checkpoint = mine / "runs/fruit/learners/oasis.checkpoint"
    shutil.copytree(mine / "runs/fruit/learners/oasis", checkpoint)
    told = "oasis.checkpoint is of an interrupted training with C=0.1, now 0.05: train with those settings to resume it"
    assert told in refused("train", "--set", "oasis.C=0.05", cwd=mine)
    assert checkpoint.exists()
    (mine / "fruit/pear/more.jpg").write_bytes((mine / "fruit/pear/1.jpg").read_bytes())
    visterm("features", "fruit", cwd=mine)
    assert "with other images or labels: train with those" in refused("train", cwd=mine)
    assert "going on" not in visterm("train", "--force", "--set", "oasis.C=0.05", cwd=mine).stderr
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
        (
            OSError("8 requested and 4 written"),
            "a full disk, a quota or a limit of file sizes: 4 of 8 numbers of an array were written",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_written_does_not_end_training(mine, monkeypatch, error, reason):
    save = OASIS.save

    def full(self, folder):
        if "checkpoint" in os.fspath(folder):
            raise error
        save(self, folder)

    monkeypatch.setattr(OASIS, "save", full)
    result = visterm("train", "--force", "--set", "compute.checkpoint_seconds=0", cwd=mine)
    assert f"oasis.checkpoint: the checkpoint could not be written ({reason}); training continues" in result.stderr
    assert "Next: visterm evaluate" in result.stderr


def test_a_moved_root_is_the_same_collection(mine, write_images):
    (mine / "fruit").rename(mine / "moved")
    write_images(mine / "moved", ["apple/new.jpg"])
    (mine / "moved/pear/0.jpg").unlink()
    summary = json_of("features", "moved", "--run", "fruit", cwd=mine)
    assert (summary["added"], summary["removed"], summary["extracted"]) == (1, 1, 1)


def test_the_folder_that_a_relative_path_leads_out_of_may_go(mine):
    """The images of "away/../fruit" were gone with it."""
    (mine / "away").mkdir()
    visterm("features", "away/../fruit", "--run", "fruit", cwd=mine)
    (mine / "away").rmdir()
    assert json_of("features", "--run", "fruit", cwd=mine)["n_images"] == 30
    assert json_of("info", "--run", "fruit", cwd=mine)["root"] == str(mine / "fruit")


def test_the_pixel_limit_may_move(mine, write_images):
    import cv2

    cv2.imwrite(str(mine / "fruit/apple/large.png"), np.zeros((200, 300, 3), np.uint8))
    summaries = []
    for limit in (100_000, 50_000, 100_000):
        options = ["--set", f"collection.max_pixels={limit}", "--json"]
        summaries.append(json.loads(visterm("features", "fruit", *SMALL, *options, cwd=mine).stdout))
    assert [f["n_images"] for f in summaries] == [31, 30, 31]
    assert summaries[2]["extracted"] == 1


def test_a_lost_collection_loses_nothing_else(mine):
    shutil.rmtree(mine / "runs/fruit/collection")
    assert "no images given" in refused("features", "--run", "fruit", cwd=mine)
    assert (mine / "runs/fruit/learners/oasis/record.json").exists()


def test_a_picture_beside_the_split_folders_changes_nothing(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{s}/{c}/{i}.jpg" for s in ("train", "test") for c in CLASSES for i in range(5)])
    write_images(tmp_path / "fruit", ["cover.jpg"])
    visterm("features", "fruit", *SMALL, cwd=tmp_path)
    info = json_of("info", cwd=tmp_path)
    assert (info["classes"], info["splits"]) == (3, {"none": 1, "test": 15, "train": 15})


@pytest.mark.slow
def test_demo_prints_the_path_of_its_report_last(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_images_stage, "CROPS", {"train": 6, "test": 4})
    monkeypatch.setattr(demo_images_stage, "DEMO_SETTINGS", [setting for setting in SMALL if setting != "--set"])
    assert visterm("demo", cwd=tmp_path).stdout == "runs/demo/evaluations/oasis/report.html\n"


def test_a_refused_first_command_leaves_the_folder_of_runs(tmp_path, write_images):
    write_images(tmp_path, ["fruit/a/1.jpg"])
    (tmp_path / "runs").mkdir()
    refused("features", "fruit", *FEW_FOR_A_FOREST, cwd=tmp_path)
    assert os.listdir(tmp_path / "runs") == []


def test_some_queries_are_answered(finished):
    good, bad = "fruit/pear/0.jpg", "https://example.org/a.jpg"
    for command in ("search", "annotate"):
        line = "visterm: https://example.org/a.jpg: an address on the web; download the image first: curl -O https://"
        result = visterm(command, good, bad, cwd=finished, check=1)
        assert result.stdout.startswith(good)
        assert line in result.stderr
        assert line in visterm(command, bad, cwd=finished, check=2).stderr


def test_what_cannot_be_used_does_not_stay(mine, write_images):
    refused("features", "fruit", *FEW_FOR_A_FOREST, cwd=mine)
    write_images(mine / "elsewhere/fruit", ["a/1.jpg", "b/1.jpg"])
    assert "--force" in refused("features", "elsewhere/fruit", cwd=mine)
    assert json_of("features", "fruit", cwd=mine)["n_images"] == 30
    assert json_of("train", cwd=mine)["up_to_date"]


def test_which_run(mine, write_images):
    write_images(mine / "other", ["a/1.jpg", "b/1.jpg"])
    visterm("features", "other", *SMALL, "--set", "features.n_visterms=4", cwd=mine)
    current = "run {}, the last one used; --run NAME selects another one\n"
    result = visterm("info", cwd=mine)  # the one that was made last
    assert (result.stdout.splitlines()[0], result.stderr) == ("run:         other", current.format("other"))
    assert visterm("info", "--run", "fruit", cwd=mine).stderr == ""
    assert visterm("info", cwd=mine).stderr == current.format("fruit")  # the one that was used last
    assert visterm("-q", "info", cwd=mine).stderr == ""
    with pytest.MonkeyPatch.context() as patch:  # another person, with whom the folder is shared
        patch.setattr(os, "getuid", lambda: 12345)
        assert refused("info", cwd=mine) == "visterm: no run given; use --run NAME: one of fruit, other"
    visterm("features", "other", cwd=mine)
    assert visterm("info", cwd=mine).stderr == current.format("other")
    shutil.rmtree(mine / "runs/other")  # the only one that there is
    assert visterm("info", cwd=mine).stderr == ""
    assert refused("info", "--run", "fruits", cwd=mine).startswith(
        "visterm: no run fruits in runs (did you mean fruit?)"
    )
    line = refused("info", cwd=mine / "fruit")
    assert line == "visterm: no run given; use --run NAME: runs is empty, run 'visterm features IMAGES' first"
    for name in ("one", "two"):
        (mine / "runs" / name).mkdir()
        (mine / "runs" / name / "config.yaml").touch()
    shutil.rmtree(mine / "runs/fruit")
    (mine / "runs/.current").write_text("fruit")
    assert refused("info", cwd=mine) == "visterm: no run given; use --run NAME: one of one, two"


def test_the_variable_names_the_run(mine, monkeypatch):
    shutil.copytree(mine / "runs/fruit", mine / "runs/copy")
    monkeypatch.chdir(mine)
    for name in ("copy", "fruit", "copy"):
        monkeypatch.setenv("VISTERM_RUN", name)
        result = CliRunner().invoke(app, ["info", "--json"], prog_name="visterm")
        assert json.loads(result.stdout)["run"] == name
        assert result.stderr == ""
    result = CliRunner().invoke(app, ["info", "--json", "--run", "fruit"], prog_name="visterm")
    assert json.loads(result.stdout)["run"] == "fruit"


@pytest.mark.slow
def test_images_of_runs_are_not_those_of_the_directory(tmp_path, write_images):
    write_images(tmp_path / "photos", [f"{c}/{i}.jpg" for c in CLASSES for i in range(8)])
    write_images(tmp_path / "photos/runs/demo/images", ["x/1.jpg"])
    arguments = ["features", ".", *SMALL, "--run", "mine", "--json"]
    assert json.loads(visterm(*arguments, cwd=tmp_path / "photos").stdout)["n_images"] == 24
    # But those of a run may be what is asked for.
    arguments = ["features", "runs/demo/images", "--run", "other", "--set", "features.n_visterms=4", "--json"]
    assert json.loads(visterm(*arguments, cwd=tmp_path / "photos").stdout)["n_images"] == 1


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (("train", "tst"), "folders train look like a split, but tst beside them is none (did you mean test?)"),
        (("Train", "test", "extra"), "folders Train, test look like a split, but extra beside them is none"),
        (
            ("seg_test", "seg_train", "query"),
            "folders seg_test, seg_train look like a split: all are taken for classes",
        ),
        (("test", "validation"), "there is no folder train beside test, validation"),
    ],
)
def test_a_mistyped_split_is_warned_of(tmp_path, write_images, folders, message):
    write_images(tmp_path / "fruit", [f"{s}/{c}/{i}.jpg" for s in folders for c in CLASSES for i in range(3)])
    assert message in visterm("features", "fruit", *SMALL, cwd=tmp_path).stderr


def test_a_class_called_train_is_no_mistake(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in ("train", "boat") for i in range(6)])
    assert "look like a split" not in visterm("features", "fruit", *SMALL, cwd=tmp_path).stderr


@pytest.mark.parametrize("lost", [True, False])
def test_a_lost_or_cut_segment_is_extracted_again(mine, lost):
    (segment,) = (mine / "runs/fruit/collection/segments").iterdir()
    if lost:
        shutil.rmtree(segment)
    else:
        os.truncate(segment / "counts.npy", (segment / "counts.npy").stat().st_size - 4)
        assert "damaged segment" in refused("search", "fruit/pear/0.jpg", cwd=mine)
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 30
    assert json_of("train", cwd=mine)["up_to_date"]


def test_a_terminal_without_columns(monkeypatch):
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((0, 0)))
    assert console._columns() == 80
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((120, 30)))
    assert console._columns() is None


def test_evaluate_says_what_held_out_images_say_of_both_worlds(mine):
    for name, share, figures in (("oasis", 0.2, [0.958, 0.917, 0.888]), ("wsabie", 1.0, [0.958, 0.751, 0.708])):
        worlds = {"for": "open", "learner": figures, "cosine": [0.890, 0.914, 0.854], "chance": [0.1] * 3}
        note(mine, name, learned_weight=share, worlds=worlds | {"n_images": [5, 6, 11]})
    stderr = visterm("evaluate", "--learner", "oasis,wsabie", cwd=mine).stderr
    warning = (
        "wsabie is below cosine on held-out images for other classes (mAP 0.751, cosine 0.914) and for both in one "
        "gallery (mAP 0.708, cosine 0.854): a smaller --set train.learned_weight, or --learner cosine, is better there"
    )
    *lines, last = [line for line in stderr.splitlines() if "held-out" in line]
    assert lines == [
        "oasis, held-out images (cosine): seen 0.958 (0.890), unseen 0.917 (0.914), both 0.888 (0.854)",
        "wsabie, held-out images (cosine): seen 0.958 (0.890), unseen 0.751 (0.914), both 0.708 (0.854)",
        f"warning: {warning}",
    ]
    assert ", for images of any class, by held-out images: mAP " in last
    folder = mine / "runs/fruit/evaluations/oasis+wsabie"
    assert warning in (folder / "report.html").read_text()
    systems = json.loads((folder / "metrics.json").read_text())["systems"]
    assert systems["oasis"]["learned_weight"] == 0.2
    both = {"map": 0.888, "cosine": 0.854, "chance": 0.1, "n_images": 11, "below_cosine": False}
    assert systems["oasis"]["held_out"]["both"] == both
    assert "learned_weight" not in systems["wsabie"]
    assert "held_out" not in systems["cosine"]


def test_a_renamed_directory_of_images_is_told_of_its_run(mine):
    """A run of its own began, without the labels and the learners, and nothing said so."""
    visterm("features", "fruit", cwd=mine)  # the run was copied from elsewhere
    (mine / "fruit").rename(mine / "my fruit")
    hint = "the images of run fruit lie in my fruit now; to use that run, with its labels and learners: "
    begin = ("features", "my fruit", *SMALL)
    assert f"{hint}visterm features 'my fruit' --run fruit\n" in visterm(*begin, cwd=mine).stderr
    assert hint not in visterm(*begin, cwd=mine).stderr  # which is chosen now
    shutil.rmtree(mine / "runs/my fruit")
    assert json_of("features", "my fruit", "--run", "fruit", cwd=mine)["extracted"] == 0
    assert hint not in visterm(*begin, cwd=mine).stderr  # a run more, as the other has its images


def test_a_new_run_reads_no_more_than_the_directory_of_each_other_run(mine, monkeypatch):
    """The checksums of all catalogues were compared, and one that another command wrote to was waited for."""
    visterm("features", "fruit", cwd=mine)  # the run was copied from elsewhere
    for i in range(3):
        shutil.copytree(mine / "runs/fruit", mine / f"runs/{i}")
    opened, connect = [], Database.__init__

    def noted(self, folder, **options):
        opened.append(folder.parent.name)
        connect(self, folder, **options)

    monkeypatch.setattr(Database, "__init__", noted)
    (mine / "fruit").rename(mine / "my fruit")
    with contextlib.closing(sqlite3.connect(mine / "runs/0/collection/catalogue.sqlite")) as held:
        held.execute("BEGIN EXCLUSIVE")
        said = visterm("features", "my fruit", *SMALL, cwd=mine).stderr
    assert "the images of run 1 lie in my fruit now" in said
    assert set(opened) == {"my fruit"}


def test_a_directory_with_other_images_of_the_same_names_is_no_renamed_one(mine, write_images):
    visterm("features", "fruit", cwd=mine)
    (mine / "fruit").rename(mine / "away")
    write_images(mine / "other", [f"{name}/{i}.jpg" for name in CLASSES for i in range(10)])
    for file in (mine / "other").rglob("*.jpg"):
        file.write_bytes(file.read_bytes() + b" ")
    assert "the images of run fruit" not in visterm("features", "other", *SMALL, cwd=mine).stderr
