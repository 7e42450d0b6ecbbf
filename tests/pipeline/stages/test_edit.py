"""Adding, removing and compacting: searches find added images, removed ones stay away, a kill leaves no half."""

import json
import os
import shutil
from contextlib import closing
from signal import SIGKILL

import numpy as np
import pytest
from running import (
    CLASSES,
    SMALL,
    catalogue_rows,
    counts_by_path,
    end_by_signal,
    in_small_files,
    json_of,
    refused,
    visterm,
)

from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages import edit as edit_stage
from visterm.pipeline.stages.edit import READ
from visterm.pipeline.store.catalogue import Collection

NAMES = {f"{c}/{i}.jpg" for c in CLASSES for i in range(10)}


@pytest.fixture
def mine(mine, write_images):
    """With images that are not in the run."""
    write_images(mine / "more", [f"{c}/new{i}.jpg" for c in CLASSES for i in range(2)], seed=1)
    with closing(Collection(mine / "runs/fruit/collection")) as collection:
        collection["root"] = os.fsencode(mine / "fruit")
    return mine


def result_paths(query, cwd, learner="cosine", k=1):
    (result,) = json_of("search", query, "--learner", learner, "-k", k, cwd=cwd)
    return [row["path"] for row in result["results"]]


def test_an_added_image_is_found_at_once_by_what_was_trained_before(mine):
    shutil.copy(mine / "more/pear/new0.jpg", mine / "query.jpg")
    done = json_of("add", "more/pear/new0.jpg", "--label", "pear", cwd=mine)
    numbers = {"added": 1, "present": 0, "extracted": 1, "skipped": 0, "n_images": 31}
    assert done.items() >= (numbers | {"run": "fruit", "refused": [], "ids": [31]}).items()
    for learner in ("cosine", "oasis"):
        (result,) = json_of("search", "query.jpg", "--learner", learner, "-k", 31, cwd=mine)
        assert len(result["results"]) == 31
    assert result_paths("query.jpg", mine) == [str(mine / "more/pear/new0.jpg")]


def test_a_folder_below_the_root_is_added_as_a_scan_would_do_it(mine, tmp_path_factory):
    twin = tmp_path_factory.mktemp("twin") / "twin"
    for c in CLASSES:
        for i in range(2):
            shutil.copy(mine / f"more/{c}/new{i}.jpg", mine / f"fruit/{c}/new{i}.jpg")
    shutil.copytree(mine, twin)
    visterm("features", "fruit", cwd=twin)
    done = json_of("add", "fruit/apple", "fruit/pear", "fruit/plum/new0.jpg", "fruit/plum/new1.jpg", cwd=mine)
    assert (done["added"], done["present"], done["n_images"]) == (6, 20, 36)
    assert catalogue_rows(mine) == catalogue_rows(twin)
    assert counts_by_path(mine) == counts_by_path(twin)
    again = json_of("features", "fruit", cwd=mine)
    assert (again["added"], again["changed"], again["removed"], again["relabelled"], again["extracted"]) == (0,) * 5


def test_copies_links_and_names_of_any_bytes_are_added(mine):
    (mine / "more/apple/@eaDir").mkdir()
    (mine / "more/apple/notes.txt").touch()
    said = visterm("add", "more/apple", cwd=mine).stderr
    assert "2 other entries of the folders skipped, such as more/apple/@eaDir: folder of previews" in said
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "copy.jpg")
    result = visterm("add", "copy.jpg", cwd=mine)
    assert f"{mine}/copy.jpg is a copy of pear/0.jpg" in result.stderr.replace("\n", " ")
    name = os.fsdecode(b"it's \xff\n.jpg")
    shutil.copy(mine / "more/pear/new0.jpg", mine / "more" / name)
    visterm("add", mine / "more" / name, cwd=mine)
    assert str(mine / "more" / name) in counts_by_path(mine)
    assert visterm("remove", mine / "more" / name, cwd=mine).stdout.endswith("/more/it's \\xff\\n.jpg\n")
    (mine / "link").symlink_to(mine / "fruit/pear")
    shutil.copy(mine / "more/pear/new0.jpg", mine / "fruit/pear/new0.jpg")
    done = json_of("add", "link", cwd=mine)
    assert (done["added"], done["present"]) == (1, 10)
    assert json_of("features", "fruit", cwd=mine)["added"] == 0


def test_images_from_outside_stay_until_their_files_are_gone(mine):
    visterm("add", "more/apple", "--label", "apple", "--label", "red", cwd=mine)
    outside = [row for row in catalogue_rows(mine) if row[0].startswith("/")]
    assert [(row[0], row[1]) for row in outside] == [
        (str(mine / f"more/apple/new{i}.jpg"), '{"apple": 1.0, "red": 1.0}') for i in range(2)
    ]
    assert {row[2] for row in outside} <= {"train", "test"}
    again = json_of("features", "fruit", cwd=mine)
    assert (again["n_images"], again["relabelled"], again["extracted"]) == (32, 0, 0)
    (mine / "more/apple/new0.jpg").unlink()
    shutil.copy(mine / "more/plum/new0.jpg", mine / "more/apple/new1.jpg")
    again = json_of("features", "fruit", cwd=mine)
    assert (again["n_images"], again["removed"], again["changed"], again["extracted"]) == (31, 1, 1, 1)
    assert [row[1] for row in catalogue_rows(mine) if row[0].startswith("/")] == ['{"apple": 1.0, "red": 1.0}']


def test_a_root_that_encloses_what_was_outside_takes_it_in(mine):
    visterm("add", "more/apple/new0.jpg", "--label", "mine", cwd=mine)
    (id_,) = (row[1] for row in catalogue_rows(mine, "path, id") if row[0].startswith("/"))
    visterm("features", ".", "--run", "fruit", "--force", cwd=mine)
    after = catalogue_rows(mine, "path, id, labels")
    assert ("more/apple/new0.jpg", id_, '{"mine": 1.0}') in after
    assert not any(row[0].startswith("/") for row in after)
    assert len(after) == 30 + 6


def test_adding_again_does_nothing_but_changed_files_and_labels_by_hand_count(mine):
    visterm("add", "more/apple", cwd=mine)
    done = json_of("add", "more/apple", "more/apple/new0.jpg", "more/../more/apple", cwd=mine)
    assert (done["added"], done["changed"], done["present"], done["extracted"]) == (0, 0, 2, 0)
    shutil.copy(mine / "more/plum/new0.jpg", mine / "more/apple/new0.jpg")
    done = json_of("add", "more/apple", cwd=mine)
    assert (done["added"], done["changed"], done["present"], done["extracted"], done["n_images"]) == (0, 1, 1, 1, 32)
    done = json_of("add", "fruit/pear/0.jpg", "--label", "green", cwd=mine)
    assert (done["present"], done["relabelled"], done["extracted"]) == (1, 1, 0)
    assert json_of("features", "fruit", cwd=mine)["relabelled"] == 0
    assert ("pear/0.jpg", '{"green": 1.0}') in [row[:2] for row in catalogue_rows(mine)]
    visterm("remove", "fruit/pear/0.jpg", cwd=mine)
    visterm("add", "fruit/pear/0.jpg", cwd=mine)
    assert ("pear/0.jpg", '{"pear": 1.0}') in [row[:2] for row in catalogue_rows(mine)]


def test_labels_of_a_table_reach_what_is_added(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{i}.jpg" for i in range(6)])
    write_images(tmp_path / "more", ["x.jpg"])
    names = [*(f"{i}.jpg" for i in range(7)), tmp_path / "more/x.jpg"]
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(f"{name},round\n" for name in names))
    settings = ["--set", "features.n_visterms=10", "--set", "collection.labels=labels.csv"]
    visterm("features", "fruit", *settings, cwd=tmp_path)
    write_images(tmp_path / "fruit", ["6.jpg", "7.jpg"])
    assert json_of("add", "fruit/6.jpg", "fruit/7.jpg", "more/x.jpg", cwd=tmp_path)["added"] == 3
    labels = {row[0]: row[1] for row in catalogue_rows(tmp_path)}
    assert labels["6.jpg"] == labels[str(tmp_path / "more/x.jpg")] == '{"round": 1.0}'
    assert labels["7.jpg"] is None
    assert json_of("features", "fruit", cwd=tmp_path)["relabelled"] == 0


def test_what_cannot_be_read_is_reported_and_the_rest_is_added(mine):
    (mine / "more/pear/broken.jpg").write_bytes(b"no image")
    done = json.loads(visterm("add", "more/pear", "--json", cwd=mine, check=1).stdout)
    assert (done["skipped"], done["n_images"]) == (1, 32)
    assert done["refused"] == [{"path": str(mine / "more/pear/broken.jpg"), "reason": "not an image"}]
    result = visterm("add", "more/plum/new0.jpg", "more/pear/broken.jpg", cwd=mine, check=1)
    assert "33 in run fruit" in result.stderr
    visterm("add", "more/pear/broken.jpg", cwd=mine, check=2)  # nothing was added


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.jpg"], "missing.jpg: no such file or folder"),
        (["more/pear/new0.jpg", "missing.jpg"], "missing.jpg: no such file or folder"),
        ([""], "(empty name): no such file or folder"),
        (["notes.txt"], f"notes.txt: not the name of an image; {READ}"),
        (["empty"], f"empty: no images in this folder; {READ}"),
        (["fruit/.hidden.jpg"], ".hidden.jpg: cannot be added: hidden files are skipped"),
        (["more/pear", "--label", ""], "--label: the label is empty"),
        (["pipe.jpg"], "pipe.jpg: no such file or folder"),
    ],
)
def test_add_refuses_what_is_a_mistake(mine, arguments, message):
    (mine / "empty").mkdir()
    (mine / "notes.txt").write_text("no image")
    os.mkfifo(mine / "pipe.jpg")
    shutil.copy(mine / "more/pear/new0.jpg", mine / "fruit/.hidden.jpg")
    before = catalogue_rows(mine)
    assert refused("add", *arguments, cwd=mine).startswith(f"visterm: {message}")
    assert catalogue_rows(mine) == before


def test_images_that_a_scan_would_take_out_again_are_refused(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(4)])
    write_images(tmp_path / "fruit/runs/other/images", ["x/1.jpg"])
    settings = ["--set", "features.n_visterms=10", "--set", "collection.classes=[apple, pear]"]
    visterm("features", ".", "--run", "fruit", *settings, cwd=tmp_path / "fruit")
    line = refused("add", "plum/1.jpg", cwd=tmp_path / "fruit")
    assert line == "visterm: plum/1.jpg: cannot be added: of plum, which collection.classes does not include"
    line = refused("add", "runs/other/images", cwd=tmp_path / "fruit")
    assert line == "visterm: runs/other/images/x/1.jpg: cannot be added: it belongs to a run of visterm"


def test_there_must_be_visterms_first(tmp_path, write_images):
    write_images(tmp_path / "fruit", ["a/1.jpg"])
    (tmp_path / "runs/fruit").mkdir(parents=True)
    for command in (["add", "fruit/a/1.jpg"], ["remove", "id:1"], ["compact"]):
        assert "run 'visterm features" in refused(*command, "--run", "fruit", cwd=tmp_path)


def test_a_removed_image_stays_away_until_it_is_added_again(mine):
    before = catalogue_rows(mine, "path, id, labels, split")
    expected = counts_by_path(mine)
    assert visterm("remove", "fruit/pear/3.jpg", cwd=mine).stdout.endswith("  pear/3.jpg\n")
    assert (mine / "fruit/pear/3.jpg").exists()
    assert "pear/3.jpg" not in result_paths("fruit/pear/3.jpg", mine, k=29)
    again = json_of("features", "fruit", cwd=mine)
    assert (again["n_images"], again["added"], again["removed"]) == (29, 0, 0)
    (mine / "fruit/pear/3.jpg").rename(mine / "aside.jpg")  # nor when its file goes and comes back
    visterm("features", "fruit", cwd=mine)
    (mine / "aside.jpg").rename(mine / "fruit/pear/3.jpg")
    assert json_of("features", "fruit", cwd=mine)["n_images"] == 29
    assert json_of("add", "pear/3.jpg", cwd=mine)["added"] == 1  # as remove printed it
    assert catalogue_rows(mine, "path, id, labels, split") == before
    assert counts_by_path(mine) == expected


@pytest.mark.parametrize(
    ("arguments", "removed"),
    [
        (["id:11"], ["pear/0.jpg"]),
        (["pear/0.jpg", "id:11", "fruit/pear/0.jpg"], ["pear/0.jpg"]),
        (["fruit/pear"], [f"pear/{i}.jpg" for i in range(10)]),
        (["pear/", "id:1"], ["apple/0.jpg", *(f"pear/{i}.jpg" for i in range(10))]),
        (["--label", "plum", "pear/1.jpg"], ["pear/1.jpg", *(f"plum/{i}.jpg" for i in range(10))]),
    ],
)
def test_what_remove_takes(mine, arguments, removed):
    would = json_of("remove", *arguments, "--dry-run", cwd=mine)
    assert len(counts_by_path(mine)) == 30
    done = json_of("remove", *arguments, cwd=mine)
    assert sorted(image["path"] for image in done["images"]) == removed
    assert would == done | {"dry_run": True}
    assert set(counts_by_path(mine)) == NAMES - set(removed)
    assert json_of("remove", *arguments, cwd=mine)["already"] == len(removed)


def test_an_exclusion_is_undone_with_vectors_and_labels(mine, run):
    visterm("add", "fruit/plum/3.jpg", "--label", "damson", cwd=mine)
    before = catalogue_rows(mine, "path, id, labels, split, status, segment, row")
    ids = [id_ for path, id_, *_ in before if path in ("plum/3.jpg", "pear/1.jpg")]
    excluded = edit_stage.exclude(run, [*ids, 10**9])
    assert len(excluded) == 2
    assert edit_stage.exclude(run, ids) == []  # they are out already
    assert "plum/3.jpg" not in result_paths("fruit/plum/3.jpg", mine, k=30)
    assert edit_stage.restore(run, excluded) == 2
    assert catalogue_rows(mine, "path, id, labels, split, status, segment, row") == before
    with closing(Collection(run.collection)) as collection:
        assert collection.execute("SELECT labels FROM given").fetchall() == [('{"damson": 1.0}',)]
    assert edit_stage.restore(run, excluded) == 0  # once
    shutil.copy(mine / "more/plum/new0.jpg", mine / "fruit/plum/4.jpg")
    (old,) = (id_ for path, id_, *_ in before if path == "plum/4.jpg")
    visterm("features", "fruit", cwd=mine)
    assert edit_stage.exclude(run, [old]) == []  # its path is that of another image now
    edit_stage.exclude(run, ids)
    for segment in {image.segment for image in excluded}:
        shutil.rmtree(run.collection / "segments" / str(segment))
    edit_stage.restore(run, excluded)
    status = dict(catalogue_rows(mine, "path, status"))
    assert status["plum/3.jpg"] == status["pear/1.jpg"] == "pending"


def test_the_root_and_folders_above_it_mean_all_images(mine):
    visterm("add", "more/pear", cwd=mine)
    assert json_of("remove", "fruit", "--dry-run", cwd=mine)["removed"] == 30
    assert json_of("remove", "more", "--dry-run", cwd=mine)["removed"] == 2
    result = visterm("remove", ".", "--json", cwd=mine)
    assert json.loads(result.stdout)["removed"] == 32
    assert "no image is left in run fruit" in result.stderr


def test_a_name_with_two_meanings_is_refused(mine):
    (mine / "fruit/pear/pear").mkdir()
    shutil.copy(mine / "more/pear/new0.jpg", mine / "fruit/pear/pear/0.jpg")
    visterm("add", "fruit/pear/pear", cwd=mine)
    (mine / "fruit/pear/runs").symlink_to(mine / "runs")
    line = refused("remove", "pear/0.jpg", cwd=mine / "fruit/pear")
    assert "pear/0.jpg is pear/pear/0.jpg (id:31) from here, and pear/0.jpg (id:11) below the root" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["id:99"], "run fruit has no image id:99; nothing was removed"),
        (["id:x"], "run fruit has no image id:x; nothing was removed"),
        (["id:" + "9" * 30], f"run fruit has no image id:{'9' * 30}; nothing was removed"),
        (["id:1", "missing.jpg"], "run fruit has no image missing.jpg; nothing was removed"),
        ([""], "run fruit has no image (empty name); nothing was removed"),
        (["runs"], "run fruit has no image runs; nothing was removed"),
        (["--label", "cherry"], "run fruit has no images with the label 'cherry'; nothing was removed"),
        ([], "no images given; give files, folders, id:N, or --label NAME"),
    ],
)
def test_remove_refuses_what_is_a_mistake(mine, arguments, message):
    assert refused("remove", *arguments, cwd=mine).startswith(f"visterm: {message}")
    assert len(counts_by_path(mine)) == 30


@pytest.mark.slow
def test_a_run_goes_on_after_compacting(mine):
    visterm("add", "more/pear", cwd=mine)
    visterm("remove", "pear/1.jpg", cwd=mine)
    expected, nearest = counts_by_path(mine), result_paths("fruit/pear/0.jpg", mine, "oasis", k=31)
    assert json_of("info", cwd=mine)["segments"] == {"number": 2, "dead_rows": 1, "to_merge": 2}
    done = json_of("compact", cwd=mine)
    assert (done["run"], done["segments_before"], done["segments"], done["dropped_rows"]) == ("fruit", 2, 1, 1)
    assert counts_by_path(mine) == expected
    assert result_paths("fruit/pear/0.jpg", mine, "oasis", k=31) == nearest
    assert json_of("features", "fruit", cwd=mine)["extracted"] == 0
    assert json_of("info", cwd=mine)["segments"] == {"number": 1, "dead_rows": 0, "to_merge": 0}


def test_another_process_at_work_is_waited_for_by_people(mine, run):
    with run.locked():
        for command in (["add", "more/pear"], ["remove", "id:1"], ["compact"], ["train"]):
            assert "another visterm is at work in this run" in refused(*command, cwd=mine)
    assert len(counts_by_path(mine)) == 30


@pytest.mark.slow
def test_a_killed_add_goes_on_where_it_was(mine, write_images):
    write_images(mine / "many", [f"{i}.jpg" for i in range(30)], seed=2)
    visterm("train", "--set", "compute.segment_size=5", "--force", cwd=mine)  # kept for later commands
    expected = counts_by_path(mine)
    moment = "visterm.pipeline.store.catalogue:Collection enter_segment 4"
    end_by_signal(SIGKILL, moment, "add", "many", "--label", "new", cwd=mine)
    partly = counts_by_path(mine)
    assert partly.items() >= expected.items()
    assert len(partly) == 30 + 15
    assert len(result_paths("fruit/pear/0.jpg", mine, k=200)) == len(partly) - 1  # all that is there can be found
    done = json_of("add", "many", "--label", "new", cwd=mine)
    assert (done["present"], done["n_images"], len(done["ids"])) == (30, 60, 30)
    killed, after = counts_by_path(mine), catalogue_rows(mine, "path, labels, status")
    shutil.rmtree(mine / "runs")
    visterm("features", "fruit", *SMALL, cwd=mine)
    visterm("add", "many", "--label", "new", cwd=mine)
    assert killed == counts_by_path(mine)
    assert after == catalogue_rows(mine, "path, labels, status")


@pytest.mark.slow
def test_no_room_for_the_catalogue(mine):
    before = catalogue_rows(mine), counts_by_path(mine)
    for command in (["add", "more"], ["remove", "id:1"]):
        line = in_small_files(*command, cwd=mine, most=2000)
        assert line.startswith("visterm: runs/fruit")
        assert "disk" in line
        assert line.endswith("; fix this, then re-run the same command to resume")
        assert (catalogue_rows(mine), counts_by_path(mine)) == before
    assert json_of("add", "more", cwd=mine)["n_images"] == 36


@pytest.mark.slow
def test_info_tells_when_learning_again_pays(mine, write_images):
    assert json_of("info", cwd=mine)["drift"] == {"images": 0, "mean_cosine": None, "refit": False}
    write_images(mine / "fruit", [f"pear/{i}.jpg" for i in range(10, 14)])
    visterm("add", "fruit/pear", cwd=mine)
    drift = json_of("info", cwd=mine)["drift"]
    assert drift["images"] == 4
    assert 0.9 < drift["mean_cosine"] < 1
    assert not drift["refit"]
    assert "4 images added since visterms and idf were learned" in visterm("info", cwd=mine).stdout
    write_images(mine / "fruit", [f"pear/{i}.jpg" for i in range(14, 50)])  # more than there were before
    visterm("features", "fruit", cwd=mine)
    assert json_of("info", cwd=mine)["drift"]["refit"]
    assert "out of date: 'visterm features --force --run fruit' learns them again" in visterm("info", cwd=mine).stdout
    visterm("features", "fruit", "--force", cwd=mine)
    assert json_of("info", cwd=mine)["drift"] == {"images": 0, "mean_cosine": None, "refit": False}


def test_the_cosine_is_that_of_the_vectors_of_all_images(mine, write_images):
    """By hand: weights log(n / images that contain it) of the training images, rows of unit length."""
    write_images(mine / "fruit", [f"pear/{i}.jpg" for i in range(10, 18)])
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
    assert json_of("info", cwd=mine)["drift"]["mean_cosine"] == pytest.approx(cosines.mean(), abs=1e-4)


def test_configurations_are_those_of_the_run_and_a_full_disk_is_the_same_error(mine, run, monkeypatch):
    """What add is given as configuration must not matter for what stands."""
    done = edit_stage.add(run, load_config(None, ["features.n_visterms=7"]), [mine / "more/plum"], Console(quiet=True))
    assert done["extracted"] == 2
    assert {len(row) for row in counts_by_path(mine).values()} == {40}

    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("visterm.pipeline.stages.extraction.write_segment", full)
    with pytest.raises(UserError, match="No space left on device; fix this"):
        edit_stage.add(run, run.configure(None, []), [mine / "more/pear"], Console(quiet=True))


def test_tables_of_vectors_grow_in_their_own_files(tmp_path):
    np.savez(tmp_path / "table.npz", vectors=np.eye(4, dtype=np.float32), ids=np.array(list("abcd")))
    visterm("features", "--vectors", "table.npz", "--run", "fruit", cwd=tmp_path)
    (tmp_path / "x.jpg").touch()
    line = refused("add", "x.jpg", cwd=tmp_path)
    assert line.startswith("visterm: run fruit has precomputed vectors: add new ones to ")
    assert json_of("remove", "b", cwd=tmp_path)["images"] == [{"id": 2, "path": "b"}]
    again = json_of("features", "--vectors", "table.npz", "--run", "fruit", cwd=tmp_path)
    assert (again["n_images"], again["relabelled"]) == (3, 0)
    assert json_of("info", cwd=tmp_path)["drift"] is None
    said = visterm("add", "b", "id:1", cwd=tmp_path).stderr
    assert "run 'visterm features --run fruit' to import the vectors of 1 removed image again" in said
    assert json_of("features", "--run", "fruit", cwd=tmp_path)["n_images"] == 4
    assert json_of("search", "id:2", "-k", 4, cwd=tmp_path)[0]["query"] == "id:2"


def test_labels_of_a_table_of_vectors_have_no_spaces_around_them(tmp_path):
    labels = np.array([" x", "x ", " ", "y"])
    np.savez(tmp_path / "table.npz", vector=np.eye(4, dtype=np.float32), id=np.array(list("abcd")), label=labels)
    visterm("features", "--vectors", "table.npz", "--run", "fruit", cwd=tmp_path)
    assert json_of("label", "list", cwd=tmp_path) == [{"label": "x", "images": 2}, {"label": "y", "images": 1}]
