"""Adding, removing and compacting: what comes can be found, what goes stays away, and nothing is left half-way."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

from visterm.features import images as decoders
from visterm.pipeline.cli.app import app
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages import edit as edit_stage
from visterm.pipeline.store.catalogue import Collection, Outcome
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import read_segment, write_segment

CLASSES = ("apple", "pear", "plum")
SETTINGS = ("features.n_visterms=40", "oasis.n_steps=2000", "oasis.patience=null", "compute.n_jobs=1")


def visterm(*arguments, cwd, check=0):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("VISTERM_RUN", "")
        patch.delenv("VISTERM_RUNS", raising=False)
        patch.setattr(decoders, "_silenced", True)  # pytest's own descriptors stay as they are
        result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="visterm")
    assert result.exit_code == check, result.output
    return result


def answer(*arguments, cwd):
    return json.loads(visterm(*arguments, "--json", cwd=cwd).stdout)


def refused(*arguments, cwd):
    result = visterm(*arguments, cwd=cwd, check=2)
    assert result.stdout == ""
    return [line for line in result.stderr.splitlines() if line.startswith("visterm: ")][-1].removeprefix("visterm: ")


def found(query, cwd, learner="cosine", k=1):
    (result,) = answer("search", query, "--learner", learner, "-k", k, cwd=cwd)
    return [row["path"] for row in result["results"]]


def rows(folder, columns="path, labels, split, status"):
    """Rows of the catalogue that are not removed, by path."""
    with sqlite3.connect(folder / "runs/fruit/collection/catalogue.sqlite") as db:
        query = f"SELECT {columns} FROM images WHERE status != 'removed' ORDER BY path"
        return [(os.fsdecode(path), *rest) for path, *rest in db.execute(query)]


def counts(folder):
    """Counts of each living image."""
    collection = Collection(folder / "runs/fruit/collection")
    images = collection.images()
    matrix = collection.counts(images).toarray()
    collection.close()
    return {image.path: tuple(row) for image, row in zip(images, matrix, strict=True)}


@pytest.fixture(scope="module")
def done(tmp_path_factory, write_images):
    """A folder with a run of three classes of eight images, oasis trained, and images that are not in it."""
    folder = tmp_path_factory.mktemp("living")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(8)])
    write_images(folder / "more", [f"{c}/new{i}.jpg" for c in CLASSES for i in range(2)], seed=1)
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    visterm("features", "fruit", *settings, cwd=folder)
    visterm("train", cwd=folder)
    return folder


@pytest.fixture
def mine(done, tmp_path):
    """A copy of it that a test may change."""
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    visterm("features", "fruit", cwd=tmp_path)  # the root has moved
    return tmp_path


# ------------------------------------------------------------------------------------------------------------------ add


def test_an_added_image_is_found_at_once_by_what_was_trained_before(mine):
    shutil.copy(mine / "more/pear/new0.jpg", mine / "query.jpg")
    done = answer("add", "more/pear/new0.jpg", "--label", "pear", cwd=mine)
    assert {key: done[key] for key in ("run", "added", "present", "extracted", "skipped", "n_images", "refused")} == {
        "run": "fruit", "added": 1, "present": 0, "extracted": 1, "skipped": 0, "n_images": 25, "refused": [],
    }  # fmt: skip
    for learner in ("cosine", "oasis"):
        (result,) = answer("search", "query.jpg", "--learner", learner, "-k", 25, cwd=mine)
        assert len(result["results"]) == 25
    assert found("query.jpg", mine) == [str(mine / "more/pear/new0.jpg")]
    assert done["ids"] == [25]


def test_a_folder_below_the_root_is_added_as_a_scan_would_do_it(mine, tmp_path_factory):
    twin = tmp_path_factory.mktemp("twin") / "twin"
    for c in CLASSES:
        for i in range(2):
            shutil.copy(mine / f"more/{c}/new{i}.jpg", mine / f"fruit/{c}/new{i}.jpg")
    shutil.copytree(mine, twin)
    visterm("features", "fruit", cwd=twin)
    done = answer("add", "fruit/apple", "fruit/pear", "fruit/plum/new0.jpg", "fruit/plum/new1.jpg", cwd=mine)
    assert (done["added"], done["present"], done["n_images"]) == (6, 16, 30)
    assert rows(mine) == rows(twin)
    assert counts(mine) == counts(twin)
    again = answer("features", "fruit", cwd=mine)
    assert (again["added"], again["changed"], again["removed"], again["relabelled"], again["extracted"]) == (0,) * 5


def test_images_from_outside_stay_until_their_files_are_gone(mine):
    visterm("add", "more/apple", "--label", "apple", "--label", "red", cwd=mine)
    outside = [row for row in rows(mine) if row[0].startswith("/")]
    assert [(row[0], row[1]) for row in outside] == [
        (str(mine / f"more/apple/new{i}.jpg"), '{"apple": 1.0, "red": 1.0}') for i in range(2)
    ]
    assert {row[2] for row in outside} <= {"train", "test"}
    again = answer("features", "fruit", cwd=mine)
    assert (again["n_images"], again["relabelled"], again["extracted"]) == (26, 0, 0)
    (mine / "more/apple/new0.jpg").unlink()
    shutil.copy(mine / "more/plum/new0.jpg", mine / "more/apple/new1.jpg")
    again = answer("features", "fruit", cwd=mine)
    assert (again["n_images"], again["removed"], again["changed"], again["extracted"]) == (25, 1, 1, 1)
    assert [row[1] for row in rows(mine) if row[0].startswith("/")] == ['{"apple": 1.0, "red": 1.0}']


def test_a_root_that_encloses_what_was_outside_takes_it_in(mine):
    visterm("add", "more/apple/new0.jpg", "--label", "mine", cwd=mine)
    (id_,) = (row[1] for row in rows(mine, "path, id") if row[0].startswith("/"))
    visterm("features", ".", "--run", "fruit", "--force", cwd=mine)
    after = rows(mine, "path, id, labels")
    assert ("more/apple/new0.jpg", id_, '{"mine": 1.0}') in after
    assert not any(row[0].startswith("/") for row in after)
    assert len(after) == 24 + 6


def test_adding_again_does_nothing_and_a_changed_file_is_read_again(mine):
    visterm("add", "more/apple", cwd=mine)
    done = answer("add", "more/apple", "more/apple/new0.jpg", "more/../more/apple", cwd=mine)
    assert (done["added"], done["changed"], done["present"], done["extracted"]) == (0, 0, 2, 0)
    shutil.copy(mine / "more/plum/new0.jpg", mine / "more/apple/new0.jpg")
    done = answer("add", "more/apple", cwd=mine)
    assert (done["added"], done["changed"], done["present"], done["extracted"], done["n_images"]) == (0, 1, 1, 1, 26)


def test_labels_by_hand_win_and_outlive_a_scan(mine):
    done = answer("add", "fruit/pear/0.jpg", "--label", "green", cwd=mine)
    assert (done["present"], done["relabelled"], done["extracted"]) == (1, 1, 0)
    assert answer("features", "fruit", cwd=mine)["relabelled"] == 0
    assert ("pear/0.jpg", '{"green": 1.0}') in [row[:2] for row in rows(mine)]
    visterm("remove", "fruit/pear/0.jpg", cwd=mine)
    visterm("add", "fruit/pear/0.jpg", cwd=mine)
    assert ("pear/0.jpg", '{"pear": 1.0}') in [row[:2] for row in rows(mine)]


def test_labels_of_a_table_reach_what_is_added(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{i}.jpg" for i in range(6)])
    write_images(tmp_path / "more", ["x.jpg"])
    names = [*(f"{i}.jpg" for i in range(7)), tmp_path / "more/x.jpg"]
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(f"{name},round\n" for name in names))
    settings = ["--set", "features.n_visterms=10", "--set", "collection.labels=labels.csv"]
    visterm("features", "fruit", *settings, cwd=tmp_path)
    write_images(tmp_path / "fruit", ["6.jpg", "7.jpg"])
    assert answer("add", "fruit/6.jpg", "fruit/7.jpg", "more/x.jpg", cwd=tmp_path)["added"] == 3
    labels = {row[0]: row[1] for row in rows(tmp_path)}
    assert labels["6.jpg"] == labels[str(tmp_path / "more/x.jpg")] == '{"round": 1.0}'
    assert labels["7.jpg"] is None
    assert answer("features", "fruit", cwd=tmp_path)["relabelled"] == 0


def test_a_copy_of_what_is_there_is_warned_of(mine):
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "copy.jpg")
    result = visterm("add", "copy.jpg", cwd=mine)
    assert f"{mine}/copy.jpg is a copy of pear/0.jpg, which is there" in result.stderr.replace("\n", " ")


def test_links_lead_to_the_names_of_a_scan(mine):
    (mine / "link").symlink_to(mine / "fruit/pear")
    shutil.copy(mine / "more/pear/new0.jpg", mine / "fruit/pear/new0.jpg")
    done = answer("add", "link", cwd=mine)
    assert (done["added"], done["present"]) == (1, 8)
    assert answer("features", "fruit", cwd=mine)["added"] == 0


def test_names_of_any_bytes(mine):
    name = os.fsdecode(b"it's \xff\n.jpg")
    shutil.copy(mine / "more/pear/new0.jpg", mine / "more" / name)
    visterm("add", mine / "more" / name, cwd=mine)
    assert str(mine / "more" / name) in counts(mine)
    assert visterm("remove", mine / "more" / name, cwd=mine).stdout.endswith("/more/it's \\xff\\n.jpg\n")


def test_what_cannot_be_read_is_reported_and_the_rest_is_added(mine):
    (mine / "more/pear/broken.jpg").write_bytes(b"no image")
    done = json.loads(visterm("add", "more/pear", "--json", cwd=mine, check=2).stdout)
    assert (done["skipped"], done["n_images"]) == (1, 26)
    assert done["refused"] == [{"path": str(mine / "more/pear/broken.jpg"), "reason": "not an image"}]
    result = visterm("add", "more/plum/new0.jpg", "more/pear/broken.jpg", cwd=mine, check=2)
    assert "27 in run fruit" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jpg"], "missing.jpg: no such file or folder"),
        (["more/pear/new0.jpg", "missing.jpg"], "missing.jpg: no such file or folder"),
        ([""], "(empty name): no such file or folder"),
        (["notes.txt"], "notes.txt: not the name of an image; JPEG, PNG, WebP, BMP and TIFF files are read"),
        (["empty"], "empty: no images in this folder; JPEG, PNG, WebP, BMP and TIFF files are read"),
        (["fruit/.hidden.jpg"], ".hidden.jpg: cannot be added: hidden files are skipped"),
        (["more/pear", "--label", ""], "--label: the name of a label is empty"),
        (["pipe.jpg"], "pipe.jpg: no such file or folder"),
    ],
)
def test_add_refuses_what_is_a_mistake(mine, arguments, message):
    (mine / "empty").mkdir()
    (mine / "notes.txt").write_text("no image")
    os.mkfifo(mine / "pipe.jpg")
    shutil.copy(mine / "more/pear/new0.jpg", mine / "fruit/.hidden.jpg")
    before = rows(mine)
    assert refused("add", *arguments, cwd=mine) == message
    assert rows(mine) == before


def test_images_that_a_scan_would_take_out_again_are_refused(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(4)])
    write_images(tmp_path / "fruit/runs/other/images", ["x/1.jpg"])
    settings = ["--set", "features.n_visterms=10", "--set", "collection.classes=[apple, pear]"]
    visterm("features", ".", "--run", "fruit", *settings, cwd=tmp_path / "fruit")
    line = refused("add", "plum/1.jpg", cwd=tmp_path / "fruit")
    assert line == "plum/1.jpg: cannot be added: of plum, which collection.classes does not include"
    line = refused("add", "runs/other/images", cwd=tmp_path / "fruit")
    assert line == "runs/other/images/x/1.jpg: cannot be added: it belongs to a run of visterm"


def test_there_must_be_visterms_first(tmp_path, write_images):
    write_images(tmp_path / "fruit", ["a/1.jpg"])
    (tmp_path / "runs/fruit").mkdir(parents=True)
    for command in (["add", "fruit/a/1.jpg"], ["remove", "id:1"], ["compact"]):
        assert "run 'visterm features" in refused(*command, "--run", "fruit", cwd=tmp_path)


# --------------------------------------------------------------------------------------------------------------- remove


def test_a_removed_image_stays_away_until_it_is_added_again(mine):
    before = rows(mine, "path, id, labels, split")
    expected = counts(mine)
    assert visterm("remove", "fruit/pear/3.jpg", cwd=mine).stdout.endswith("  pear/3.jpg\n")
    assert (mine / "fruit/pear/3.jpg").exists()
    assert "pear/3.jpg" not in found("fruit/pear/3.jpg", mine, k=23)
    again = answer("features", "fruit", cwd=mine)
    assert (again["n_images"], again["added"], again["removed"]) == (23, 0, 0)
    (mine / "fruit/pear/3.jpg").rename(mine / "aside.jpg")  # nor when its file goes and comes back
    visterm("features", "fruit", cwd=mine)
    (mine / "aside.jpg").rename(mine / "fruit/pear/3.jpg")
    assert answer("features", "fruit", cwd=mine)["n_images"] == 23
    assert answer("add", "pear/3.jpg", cwd=mine)["added"] == 1  # as remove printed it
    assert rows(mine, "path, id, labels, split") == before
    assert counts(mine) == expected


@pytest.mark.parametrize(
    ("arguments", "removed"),
    [
        (["id:9"], ["pear/0.jpg"]),
        (["pear/0.jpg", "id:9", "fruit/pear/0.jpg"], ["pear/0.jpg"]),
        (["fruit/pear"], [f"pear/{i}.jpg" for i in range(8)]),
        (["pear/", "id:1"], ["apple/0.jpg", *(f"pear/{i}.jpg" for i in range(8))]),
        (["--label", "plum", "pear/1.jpg"], ["pear/1.jpg", *(f"plum/{i}.jpg" for i in range(8))]),
    ],
)
def test_what_remove_takes(mine, arguments, removed):
    would = answer("remove", *arguments, "--dry-run", cwd=mine)
    assert len(counts(mine)) == 24
    done = answer("remove", *arguments, cwd=mine)
    assert sorted(image["path"] for image in done["images"]) == removed
    assert would == done | {"dry_run": True}
    assert set(counts(mine)) == {f"{c}/{i}.jpg" for c in CLASSES for i in range(8)} - set(removed)
    assert answer("remove", *arguments, cwd=mine)["already"] == len(removed)


def test_the_root_and_folders_above_it_mean_all_images(mine):
    visterm("add", "more/pear", cwd=mine)
    assert answer("remove", "fruit", "--dry-run", cwd=mine)["removed"] == 24
    assert answer("remove", "more", "--dry-run", cwd=mine)["removed"] == 2
    result = visterm("remove", ".", "--json", cwd=mine)
    assert json.loads(result.stdout)["removed"] == 26
    assert "no image is left in run fruit" in result.stderr


def test_a_name_with_two_meanings_is_refused(mine):
    (mine / "fruit/pear/pear").mkdir()
    shutil.copy(mine / "more/pear/new0.jpg", mine / "fruit/pear/pear/0.jpg")
    visterm("add", "fruit/pear/pear", cwd=mine)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VISTERM_RUNS", str(mine / "runs"))
        patch.chdir(mine / "fruit/pear")
        result = CliRunner().invoke(app, ["remove", "pear/0.jpg"])
    assert result.exit_code == 2
    assert "pear/0.jpg is pear/pear/0.jpg (id:25) from here, and pear/0.jpg (id:9) below the root" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["id:99"], "run fruit has no image id:99; nothing was removed"),
        (["id:x"], "run fruit has no image id:x; nothing was removed"),
        (["id:" + "9" * 30], f"run fruit has no image id:{'9' * 30}; nothing was removed"),
        (["id:1", "missing.jpg"], "run fruit has no image missing.jpg; nothing was removed"),
        ([""], "run fruit has no image (empty name); nothing was removed"),
        (["../.."], "run fruit has no image ../..; nothing was removed"),
        (["--label", "cherry"], "run fruit has no images with the label 'cherry'; nothing was removed"),
        ([], "which images? give files, folders, id:N, or --label NAME"),
    ],
)
def test_remove_refuses_what_is_a_mistake(mine, arguments, message):
    if arguments == ["../.."]:
        arguments = [str(mine / "runs")]
        message = message.replace("../..", arguments[0])
    assert refused("remove", *arguments, cwd=mine) == message
    assert len(counts(mine)) == 24


# -------------------------------------------------------------------------------------------------------------- compact


def synthetic(folder, n_segments=30, rows_each=40):
    """A collection of made-up counts in many small segments, image i in row i - 1 of the counts returned, too."""
    collection = Collection(folder / "collection", create=True)
    rng = np.random.default_rng(0)
    with collection.transaction():
        collection.insert([(b"%06d.jpg" % (i + 1), 1, 1, "pending", None) for i in range(n_segments * rows_each)])
        collection["root"] = os.fsencode(folder)
    pending = collection.pending()
    first = collection.reserve_segments(n_segments)
    parts = []
    for i in range(n_segments):
        outcomes = [
            Outcome(id_, f"{id_}", 9, 9, row, None)
            for row, (id_, _) in enumerate(pending[i * rows_each : (i + 1) * rows_each])
        ]
        parts.append(sparse.csr_matrix(rng.poisson(0.2, (rows_each, 2000)).astype(np.int32)))
        write_segment(collection.segments / str(first + i), parts[-1])
        collection.enter_segment(first + i, outcomes)
    return collection, sparse.vstack(parts, format="csr")


def bury(collection, ids):
    with collection.transaction():
        collection.bury(ids)


def holds(collection, expected, ids):
    """Check that a collection has the counts of just these images."""
    images = collection.images()
    assert [image.id for image in images] == list(ids)
    assert (collection.counts(images) != expected[[id_ - 1 for id_ in ids]]).nnz == 0


def test_compacting_changes_nothing_that_can_be_read(tmp_path):
    collection, expected = synthetic(tmp_path)
    mapped = [read_segment(collection.segments / str(segment.number)) for segment in collection.stored()]
    gone = [*range(7, 1200, 7), 1200]
    bury(collection, gone)
    assert len(collection.mergeable()) == 30
    assert collection.compact() == {
        "segments_before": 30, "segments": 1, "dropped_rows": len(gone), "tombstones": len(gone) - 1,
    }  # fmt: skip
    holds(collection, expected, [i for i in range(1, 1200) if i % 7])
    assert [path.name for path in collection.segments.iterdir()] == [str(s.number) for s in collection.stored()]
    assert (sparse.vstack(mapped) != expected).nnz == 0, "who has the old ones mapped keeps them"
    assert collection.compact()["segments_before"] == 1
    collection.insert([(b"new.jpg", 1, 1, "pending", None)])
    assert collection.pending() == [(1201, "new.jpg")], "an id is never given twice"
    collection.close()


def test_large_segments_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("visterm.pipeline.store.catalogue.MERGED_BYTES", 200_000)
    collection, expected = synthetic(tmp_path, n_segments=5)  # of 120 kB each
    assert collection.mergeable() == []
    bury(collection, range(1, 16))  # of 40: more than a quarter is dead
    (dead,) = collection.mergeable()
    assert (dead.rows, dead.living) == (40, 25)
    done = collection.compact()
    assert (done["segments"], done["dropped_rows"]) == (5, 15)
    holds(collection, expected, range(16, 201))
    collection.close()


def test_a_run_goes_on_after_compacting(mine):
    visterm("add", "more/pear", cwd=mine)
    visterm("remove", "pear/1.jpg", cwd=mine)
    expected, nearest = counts(mine), found("fruit/pear/0.jpg", mine, "oasis", k=25)
    assert answer("info", cwd=mine)["segments"] == {"number": 2, "dead_rows": 1, "to_merge": 2}
    done = answer("compact", cwd=mine)
    assert (done["run"], done["segments_before"], done["segments"], done["dropped_rows"]) == ("fruit", 2, 1, 1)
    assert counts(mine) == expected
    assert found("fruit/pear/0.jpg", mine, "oasis", k=25) == nearest
    assert answer("features", "fruit", cwd=mine)["extracted"] == 0
    assert answer("info", cwd=mine)["segments"] == {"number": 1, "dead_rows": 0, "to_merge": 0}


# ------------------------------------------------------------------------------------------------- locks, kills, disks


def test_another_process_at_work_is_waited_for_by_people(mine):
    with Run(mine / "runs/fruit").locked():
        for command in (["add", "more/pear"], ["remove", "id:1"], ["compact"]):
            assert "another visterm is at work in this run" in refused(*command, cwd=mine)
    assert len(counts(mine)) == 24


def process(*arguments, cwd, **options):
    command = [str(Path(sys.executable).with_name("visterm")), *arguments]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)


def kill_when(running, happened):
    """Kill a process at the moment that something has happened; tell whether it was still at work."""
    deadline = time.monotonic() + 120
    while not happened() and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.0005)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    return running.returncode == -signal.SIGKILL


def test_a_killed_add_goes_on_where_it_was(mine, write_images):
    write_images(mine / "many", [f"{i}.jpg" for i in range(120)], seed=2)
    visterm("train", "--set", "compute.segment_size=5", "--force", cwd=mine)  # kept for later commands
    segments = mine / "runs/fruit/collection/segments"
    expected = counts(mine)
    for wanted in (2, 6):
        adding = process("add", "many", "--label", "new", cwd=mine)
        assert kill_when(adding, lambda wanted=wanted: len(list(segments.glob("*/record.json"))) >= wanted)
        partly = counts(mine)
        assert partly.items() >= expected.items()
        assert len(partly) < 24 + 120
        assert len(found("fruit/pear/0.jpg", mine, k=200)) == len(partly) - 1  # all that is there can be found
    done = answer("add", "many", "--label", "new", cwd=mine)
    assert (done["present"], done["n_images"], len(done["ids"])) == (120, 144, 120)
    killed, after = counts(mine), rows(mine, "path, labels, status")
    shutil.rmtree(mine / "runs")
    visterm("features", "fruit", *(p for s in SETTINGS for p in ("--set", s)), cwd=mine)
    visterm("add", "many", "--label", "new", cwd=mine)
    assert killed == counts(mine)
    assert after == rows(mine, "path, labels, status")


def test_a_killed_compact_leaves_the_old_or_the_new(tmp_path):
    place = tmp_path / "runs/fruit"
    collection, expected = synthetic(place, n_segments=60, rows_each=100)
    bury(collection, range(3, 6001, 3))
    living = [i for i in range(1, 6001) if i % 3]
    collection.close()
    (place / "config.yaml").write_text("seed: 0\n")
    shutil.copytree(tmp_path / "runs", tmp_path / "before")
    segments = place / "collection/segments"
    moments = {
        "it is being written": lambda: any(segments.glob("61.*.tmp")),
        "it is whole": lambda: (segments / "61").exists(),
        "the old ones are going": lambda: not (segments / "1").exists() or not (segments / "60").exists(),
    }
    for moment, happened in moments.items():
        for _ in range(10):
            shutil.rmtree(tmp_path / "runs")
            shutil.copytree(tmp_path / "before", tmp_path / "runs")
            if kill_when(process("compact", cwd=tmp_path), happened):
                break
        else:
            pytest.fail(f"the kills come too late: {moment}")
        collection = Collection(place / "collection")
        holds(collection, expected, living)
        collection.close()
        visterm("compact", cwd=tmp_path)
        collection = Collection(place / "collection")
        holds(collection, expected, living)
        assert [path.name for path in segments.iterdir()] == [str(s.number) for s in collection.stored()]
        assert collection.execute("SELECT count(*) FROM images").fetchone() == (len(living) + 1,)
        collection.close()


def in_small_files(*arguments, cwd, most):
    """Run a command that can write no file of more bytes: as on a full disk, a write ends half-way."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    running = process(*arguments, cwd=cwd, preexec_fn=limit)
    lines = running.communicate()[1].splitlines()
    assert running.returncode == 2, lines
    return lines[-1]


def test_no_room_for_the_catalogue(mine):
    before = rows(mine), counts(mine)
    for command in (["add", "more"], ["remove", "id:1"]):
        line = in_small_files(*command, cwd=mine, most=2000)
        assert line.startswith("visterm: runs/fruit: ")
        assert line.endswith("; fix this, then re-run the same command to resume")
        assert (rows(mine), counts(mine)) == before
    assert answer("add", "more", cwd=mine)["n_images"] == 30


def test_no_room_for_a_segment(tmp_path):
    place = tmp_path / "runs/fruit"
    collection, expected = synthetic(place)  # 1.7 MB of indices
    (place / "config.yaml").write_text("seed: 0\n")
    line = in_small_files("compact", cwd=tmp_path, most=1_000_000)
    assert line.endswith("; fix this, then re-run the same command to resume")
    holds(collection, expected, range(1, 1201))
    assert len(list((place / "collection/segments").iterdir())) == 30
    assert answer("compact", cwd=tmp_path)["segments"] == 1
    holds(collection, expected, range(1, 1201))
    collection.close()


def test_from_python_a_full_disk_is_the_same_error(mine, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("visterm.pipeline.stages.extraction.write_segment", full)
    run = Run(mine / "runs/fruit")
    with pytest.raises(UserError, match="No space left on device; fix this"):
        edit_stage.add(run, run.configure(None, []), [mine / "more/pear"], Console(quiet=True))


# --------------------------------------------------------------------------------------------- growth, earlier versions


def test_info_tells_when_learning_again_pays(mine, write_images):
    assert answer("info", cwd=mine)["growth"] == {"images": 0, "mean_cosine": None, "refit": False}
    write_images(mine / "fruit", [f"pear/{i}.jpg" for i in range(8, 12)])
    visterm("add", "fruit/pear", cwd=mine)
    growth = answer("info", cwd=mine)["growth"]
    assert growth["images"] == 4
    assert 0.9 < growth["mean_cosine"] < 1
    assert not growth["refit"]
    assert "4 images since visterms and idf were learned" in visterm("info", cwd=mine).stdout
    write_images(mine / "fruit", [f"pear/{i}.jpg" for i in range(12, 40)])  # more than there were before
    visterm("features", "fruit", cwd=mine)
    assert answer("info", cwd=mine)["growth"]["refit"]
    assert "would pay: visterm features --force --run fruit" in visterm("info", cwd=mine).stdout
    visterm("features", "fruit", "--force", cwd=mine)
    assert answer("info", cwd=mine)["growth"] == {"images": 0, "mean_cosine": None, "refit": False}


def test_the_cosine_is_that_of_the_vectors_of_all_images(mine, write_images):
    """By hand: weights log(n / images that contain it) of the training images, rows of unit length."""
    write_images(mine / "fruit", [f"pear/{i}.jpg" for i in range(8, 16)])
    visterm("features", "fruit", cwd=mine)
    collection = Collection(mine / "runs/fruit/collection")
    images = collection.images()
    matrix = collection.counts(images).toarray().astype(float)
    collection.close()
    training = matrix[[image.split == "train" for image in images]]
    now = np.log(len(training) / np.maximum((training > 0).sum(axis=0), 1))
    standing = np.load(mine / "runs/fruit/extractor/files/idf.npy")
    new, old = matrix * now, matrix * standing
    cosines = (new * old).sum(axis=1) / np.linalg.norm(new, axis=1) / np.linalg.norm(old, axis=1)
    assert answer("info", cwd=mine)["growth"]["mean_cosine"] == pytest.approx(cosines.mean(), abs=1e-4)


def test_a_run_of_an_earlier_version_lives_on(mine):
    """Its catalogue has no table of labels given by hand, its extractor does not say what it had seen."""
    with sqlite3.connect(mine / "runs/fruit/collection/catalogue.sqlite") as db:
        db.execute("DROP TABLE given")
    record = mine / "runs/fruit/extractor/record.json"
    old = json.loads(record.read_text())
    del old["last_image"]
    record.write_text(json.dumps(old))
    growth = answer("info", cwd=mine)["growth"]
    assert growth["images"] is None
    assert growth["mean_cosine"] == pytest.approx(1)
    assert "an unknown number of images" in visterm("info", cwd=mine).stdout
    assert len(found("fruit/pear/0.jpg", mine, "oasis", k=23)) == 23
    assert answer("remove", "id:1", cwd=mine)["removed"] == 1
    assert answer("add", "more/pear", "--label", "pear", cwd=mine)["n_images"] == 25
    assert answer("features", "fruit", cwd=mine)["n_images"] == 25


def test_a_damaged_segment_does_not_keep_info_from_telling_the_rest(mine):
    (segment,) = (mine / "runs/fruit/collection/segments").iterdir()
    (segment / "record.json").write_text("{")
    described = answer("info", cwd=mine)
    assert "damaged segment" in described["segments"]["error"]
    assert described["images"] == 24
    assert "damaged segment" in visterm("info", cwd=mine).stdout


def test_configurations_are_those_of_the_run(mine):
    """What add is given as configuration must not matter for what stands."""
    run = Run(mine / "runs/fruit")
    done = edit_stage.add(run, load_config(None, ["features.n_visterms=7"]), [mine / "more/plum"], Console(quiet=True))
    assert done["extracted"] == 2
    assert {len(row) for row in counts(mine).values()} == {40}


def test_tables_of_vectors_grow_in_their_own_files(tmp_path):
    np.savez(tmp_path / "table.npz", vectors=np.eye(4, dtype=np.float32), ids=np.array(list("abcd")))
    visterm("features", "--vectors", "table.npz", "--run", "fruit", cwd=tmp_path)
    (tmp_path / "x.jpg").touch()
    line = refused("add", "x.jpg", cwd=tmp_path)
    assert line.startswith("run fruit has vectors that were made elsewhere: add them to ")
    assert answer("remove", "b", cwd=tmp_path)["images"] == [{"id": 2, "path": "b"}]
    again = answer("features", "--vectors", "table.npz", "--run", "fruit", cwd=tmp_path)
    assert (again["n_images"], again["relabelled"]) == (3, 0)
    assert answer("info", cwd=tmp_path)["growth"] is None
