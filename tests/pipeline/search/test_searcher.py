"""A run opened for searching, from Python and from the command line."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from typer.testing import CliRunner

from visterm.features import images, read_image
from visterm.pipeline import Searcher, explain_pair
from visterm.pipeline.cli.app import app
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.feedback.update import FeedbackTrainer
from visterm.pipeline.report import page as report_page
from visterm.pipeline.search import results_page
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.run import Run
from visterm.retrieval import TwoStageIndex

SMALL = [
    *("--set", "features.n_visterms=40"),
    *("--set", "oasis.n_steps=4000"),
    *("--set", "oasis.pass_steps=1000"),
    *("--set", "wsabie.n_steps=4000"),
    *("--set", "wsabie.pass_steps=1000"),
    *("--set", "musl.n_metrics=2"),
    *("--set", "musl.n_bits=8"),
    *("--set", "compute.n_jobs=1"),
]
CLASSES = ("apple", "pear", "plum")


def visterm(*arguments, cwd, check=0):
    """Run the command in a folder, in this process; the exit code must be the one expected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("VISTERM_RUN", "")
        patch.delenv("VISTERM_RUNS", raising=False)
        patch.setattr(images, "_silenced", True)  # pytest's own descriptors stay as they are
        result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="visterm")
    assert result.exit_code == check, result.stderr
    return result


def found_by(*arguments, cwd, check=0):
    """What visterm search --json prints."""
    return json.loads(visterm("search", *arguments, "--json", cwd=cwd, check=check).stdout)


@pytest.fixture(scope="module")
def done(tmp_path_factory, write_images):
    """A folder with three classes of ten images, and a run with three learners."""
    folder = tmp_path_factory.mktemp("searcher")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(10)])
    visterm("features", "fruit", *SMALL, cwd=folder)
    visterm("train", "--learner", "oasis,wsabie,musl", cwd=folder)
    return folder


@pytest.fixture
def mine(tmp_path, write_images, done):
    """A copy of it that a test may change, with images of its own."""
    shutil.copytree(done, tmp_path, dirs_exist_ok=True)
    visterm("features", "fruit", cwd=tmp_path)  # the root has moved
    return tmp_path


@pytest.fixture(scope="module")
def searcher(done):
    return Searcher(done / "runs/fruit")


@pytest.fixture
def outside(tmp_path, write_images):
    """A folder with an image of each class that is not in the collection."""
    write_images(tmp_path / "outside", [f"{c}/new.jpg" for c in CLASSES])
    return tmp_path / "outside"


def paths_of(answer):
    return [result["path"] for result in answer["results"]]


# ------------------------------------------------------------------------------------------------ what is asked with


def test_it_holds_the_images_and_their_vectors(searcher):
    assert len(searcher.images) == len(searcher.place) == searcher.X.shape[0] == 30
    assert searcher.X.dtype == np.float32
    np.testing.assert_allclose(np.sqrt(searcher.X.multiply(searcher.X).sum(axis=1)), 1, rtol=1e-5)
    assert all(searcher.images[row].id == number for number, row in searcher.place.items())
    assert searcher.learners == ["oasis", "wsabie", "musl", "cosine"]
    assert searcher.default_learner() == "oasis"


def test_a_file_an_id_a_path_and_pixels_are_the_same_query(searcher, done):
    path = "pear/3.jpg"
    number = next(image.id for image in searcher.images if image.path == path)
    file = str(done / "fruit" / path)
    pixels = read_image(file)
    by_file, by_path_object, by_id, by_path, by_pixels = searcher.search(
        [file, Path(file), f"id:{number}", path, pixels], k=29, learner="cosine"
    )
    assert by_file["results"] == by_id["results"] == by_path["results"] == by_path_object["results"]
    assert [answer["query"] for answer in (by_file, by_id, by_path)] == [file, f"id:{number}", path]
    assert path not in paths_of(by_file)
    assert paths_of(by_pixels)[0] == path  # of pixels nobody can say that they are the same file
    assert paths_of(by_pixels)[1:] == paths_of(by_file)[:28]
    assert by_pixels["query"] == "image 5"


def test_one_query_needs_no_list(searcher, done):
    file = done / "fruit/plum/1.jpg"
    (answer,) = searcher.search(str(file), k=3)
    assert searcher.search([file], k=3) == [answer] == searcher.search(file, k=3)
    assert paths_of(searcher.search(read_image(file), k=1, learner="cosine")[0]) == ["plum/1.jpg"]
    assert searcher.search([]) == []


def test_a_folder_is_all_images_below_it(searcher, outside):
    (outside / "pear/notes.txt").write_text("no image")
    found = searcher.search([outside, "id:1"], k=2)
    assert [answer["query"] for answer in found] == [*(str(outside / c / "new.jpg") for c in CLASSES), "id:1"]
    for answer, label in zip(found, CLASSES, strict=False):
        assert answer["results"][0]["labels"] == [label]


def test_many_queries_in_threads_are_as_one_after_the_other(done, outside, monkeypatch):
    searcher = Searcher(done / "runs/fruit")
    files = [done / "fruit" / image.path for image in searcher.images] * 4
    (outside / "bad.jpg").write_text("not an image")
    files.insert(70, outside / "bad.jpg")
    one_by_one = searcher.queries(files)
    object.__setattr__(searcher.config.compute, "n_jobs", 3)
    together = searcher.queries(files)
    assert together.names == one_by_one.names == [str(file) for file in files]
    assert together.errors == one_by_one.errors == {70: "not an image"}
    assert together.place == one_by_one.place == [i for i in range(121) if i != 70]
    assert together.own == [*range(30), *range(30), *range(30), *range(30)]
    np.testing.assert_array_equal(together.Q.toarray(), one_by_one.Q.toarray())
    np.testing.assert_array_equal(together.Q[:30].toarray(), searcher.X.toarray())


def test_queries_can_be_used_again(searcher, outside):
    queries = searcher.queries(outside)
    assert searcher.search(queries, k=4) == searcher.search(outside, k=4)
    assert searcher.annotate(queries, k=1) == searcher.annotate(outside, k=1)


def test_what_cannot_be_read_is_told_beside_the_others(searcher, outside, tmp_path):
    (tmp_path / "empty").mkdir()
    odd = np.zeros((4, 4), np.uint8)
    queries = [outside / "none.jpg", "id:999999", tmp_path / "empty", odd, odd.astype(float), outside / "pear/new.jpg"]
    *bad, good = searcher.search(queries, k=2)
    reasons = [answer["error"] for answer in bad]
    assert reasons[0].startswith("cannot be read")
    assert reasons[1:3] == ["run fruit has no image of this id", "no images in this folder"]
    assert reasons[3:] == ["not RGB uint8 (H, W, 3), but uint8 (4, 4)", "not RGB uint8 (H, W, 3), but float64 (4, 4)"]
    assert all(answer["results"] == [] for answer in bad)
    assert len(good["results"]) == 2
    assert all(answer["labels"] == [] for answer in searcher.annotate(queries[:5]))


def test_the_image_itself_is_known_through_links_and_other_names(searcher, done, tmp_path, monkeypatch):
    os.symlink(done / "fruit", tmp_path / "linked")
    os.symlink(done / "fruit/pear/0.jpg", tmp_path / "other.jpg")
    shutil.copy(done / "fruit/pear/0.jpg", tmp_path / "copy.jpg")
    monkeypatch.chdir(done / "fruit/apple")
    links = [tmp_path / "linked/pear/0.jpg", tmp_path / "other.jpg", "../pear/0.jpg"]
    for answer in searcher.search(links, k=29):
        assert "pear/0.jpg" not in paths_of(answer)
    (answer,) = searcher.search(tmp_path / "copy.jpg", learner="cosine")
    assert paths_of(answer)[0] == "pear/0.jpg"  # a copy is another file


def test_an_image_that_is_a_link_in_the_collection(tmp_path, write_images):
    write_images(tmp_path / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(4)])
    write_images(tmp_path, ["pear9.jpg"])
    os.symlink(tmp_path / "pear9.jpg", tmp_path / "fruit/pear/link.jpg")
    visterm("features", "fruit", *SMALL, cwd=tmp_path)
    (answer,) = Searcher(tmp_path / "runs/fruit").search(tmp_path / "pear9.jpg", k=12, learner="cosine")
    assert "pear/link.jpg" not in paths_of(answer)


def test_a_pipe_is_read_once(done, tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    data = (done / "fruit/pear/0.jpg").read_bytes()
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.jpg").write_bytes(data), daemon=True)
    writer.start()
    (answer,) = Searcher(done / "runs/fruit").search(tmp_path / "pipe.jpg", k=1)
    assert answer.get("error") or answer["results"]  # read or refused, but nothing hangs


# ------------------------------------------------------------------------------------------------------- the answers


def test_as_many_results_as_there_are(searcher):
    (answer,) = searcher.search("id:1", k=1_000_000)
    assert len(answer["results"]) == 29
    (answer,) = searcher.search_label("pear", k=1_000_000)
    assert len(answer["results"]) == 30
    for ask in (searcher.search, searcher.annotate):
        with pytest.raises(UserError, match="k=0: k must be at least 1"):
            ask("id:1", k=0)


def test_every_learner_answers_as_the_command_does(searcher, done):
    for name in searcher.learners:
        (answer,) = searcher.search("id:7", k=5, learner=name)
        assert found_by("id:7", "-k", 5, "--learner", name, cwd=done) == [answer]
        assert [r["id"] for r in answer["results"]] == [
            next(image.id for image in searcher.images if image.path == r["path"]) for r in answer["results"]
        ]
    with pytest.raises(UserError, match="did you mean oasis"):
        searcher.search("id:1", learner="oassis")
    with pytest.raises(UserError, match="no trained aroma"):
        searcher.search("id:1", learner="aroma")


def test_labels(searcher):
    plum, pear = searcher.search_label(["plum", "pear"], k=3)
    assert (plum["query"], pear["query"]) == ("plum", "pear")
    assert plum["results"][0]["labels"] == ["plum"]
    assert searcher.annotate("pear/0.jpg", k=1)[0]["labels"][0]["label"] == "pear"
    assert {entry["label"] for entry in searcher.similar_labels("pear", k=9)[0]["labels"]} == {"apple", "plum"}
    with pytest.raises(UserError, match="did you mean pear"):
        searcher.search_label("peer")
    with pytest.raises(UserError, match="oasis ranks images, not labels"):
        searcher.annotate("id:1", learner="oasis")


def test_two_stages_of_few_images_find_what_exact_search_finds(mine, searcher):
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    two_stages = Searcher(mine / "runs/fruit")
    for name in two_stages.learners:
        assert isinstance(two_stages.index(name), TwoStageIndex)
        assert two_stages.search("id:3", learner=name) == searcher.search("id:3", learner=name)
    visterm("features", "fruit", "--set", "index.kind=exact", "--set", "index.exact_milliseconds=0.0001", cwd=mine)
    assert not isinstance(Searcher(mine / "runs/fruit").index("oasis"), TwoStageIndex)


def test_large_galleries_take_two_stages_by_themselves(mine):
    visterm("features", "fruit", "--set", "index.exact_milliseconds=0.0001", "--set", "index.n_candidates=7", cwd=mine)
    index = Searcher(mine / "runs/fruit").index("cosine")
    assert isinstance(index, TwoStageIndex)
    assert index.n_candidates == 7
    visterm("features", "fruit", "--set", "index.exact_milliseconds=50", cwd=mine)
    assert not isinstance(Searcher(mine / "runs/fruit").index("cosine"), TwoStageIndex)


def test_what_two_stages_find_is_measured_once_and_shown(mine):
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    for name in ("oasis", "wsabie"):  # without lists, and with
        told = f"two stages find 100.0% of the 10 nearest images for {name} (measured with 30 queries"
        ask = ["search", "id:3", "--learner", name]
        assert told in visterm(*ask, cwd=mine).stderr
        assert "two stages" not in visterm(*ask, cwd=mine).stderr
    measured = {"recall": 1.0, "k": 10, "queries": 30, "images": 30}
    found = json.loads(visterm("info", "--json", cwd=mine).stdout)["indexes"]
    assert found == {"oasis": measured, "wsabie": measured}
    line = "index:       wsabie finds 100.0% of the 10 nearest of 30 images (measured with 30 of them)"
    assert line in visterm("info", cwd=mine).stdout.splitlines()


def test_an_index_that_takes_long_to_make_is_kept(mine, write_images):
    """That of a dense gallery side, such as wsabie's."""
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    ask, making = ["search", "id:3", "-k", "31", "--learner", "wsabie", "--json"], "building the index of"
    folder = mine / "runs/fruit/index"
    first = visterm(*ask, cwd=mine)
    assert "building the index of 30 images for wsabie" in first.stderr
    again = visterm(*ask, cwd=mine)
    assert making not in again.stderr
    assert again.stdout == first.stdout
    visterm("search", "id:3", "--learner", "oasis", cwd=mine)
    assert [path.parent.name for path in folder.glob("*/two_stage.npz")] == ["wsabie"]

    write_images(mine / "fruit", ["pear/new.jpg"])  # a few more images change nothing
    visterm("features", "fruit", cwd=mine)
    result = visterm(*ask, cwd=mine)
    assert making not in result.stderr
    assert "pear/new.jpg" in paths_of(json.loads(result.stdout)[0])

    visterm("train", "--learner", "wsabie", "--set", "wsabie.n_steps=3000", cwd=mine)
    assert making in visterm(*ask, cwd=mine).stderr
    next((folder / "wsabie").glob("*.npz")).write_bytes(b"damaged")
    assert making in visterm(*ask, cwd=mine).stderr

    shutil.rmtree(folder)
    with Run(mine / "runs/fruit").locked():  # another visterm is at work
        result = visterm(*ask, cwd=mine)
    assert "the index for wsabie cannot be saved" in result.stderr
    assert json.loads(result.stdout)[0]["results"]
    assert not folder.exists()


# ----------------------------------------------------------------------------------------------- many threads, changes


def test_threads_share_one_index_and_get_the_same_answers(done, monkeypatch):
    from visterm.pipeline.search import searcher as module

    loads = []
    load = module.FeedbackTrainer.load

    def load_slowly(teacher, name):
        loads.append(name)
        time.sleep(0.05)
        return load(teacher, name)

    monkeypatch.setattr(module.FeedbackTrainer, "load", load_slowly)
    searcher = Searcher(done / "runs/fruit")
    ids = [f"id:{image.id}" for image in searcher.images]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: searcher.search(i, k=5)[0], ids * 4))
        indexes = set(pool.map(lambda _: id(searcher.index("oasis")), range(32)))
    assert answers[:30] * 4 == answers == searcher.search(ids * 4, k=5)
    assert loads == ["oasis"]
    assert len(indexes) == 1


def test_what_failed_is_tried_again(mine):
    searcher = Searcher(mine / "runs/fruit")
    files = mine / "runs/fruit/learners/oasis/files"
    files.rename(files.with_name("away"))
    with pytest.raises(UserError):
        searcher.learner("oasis")
    files.with_name("away").rename(files)
    assert searcher.search("id:1", learner="oasis")[0]["results"]


def test_a_learner_that_came_after_opening_is_refused(mine):
    """One loaded late must be the one that the version speaks of; one loaded before goes on."""
    searcher, loaded = Searcher(mine / "runs/fruit"), Searcher(mine / "runs/fruit")
    with pytest.raises(UserError, match="no trained aroma"):
        searcher.learner("aroma")
    before = loaded.search("id:1"), loaded.annotate("id:1"), loaded.search_label("pear")
    visterm("train", "--learner", "aroma", *SMALL[:2], "--set", "aroma.n_steps=2000", cwd=mine)
    visterm("train", "--set", "oasis.C=0.05", cwd=mine)
    record = mine / "runs/fruit/learners/wsabie/record.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps(known | {"labels": known["labels"][::-1], "created": "later"}))
    for ask in (
        lambda: searcher.learner("aroma"),
        lambda: searcher.search("id:1", learner="oasis"),
        lambda: searcher.annotate("id:1"),
    ):
        with pytest.raises(UserError, match="retrained or updated after run fruit was opened"):
            ask()
    assert (loaded.search("id:1"), loaded.annotate("id:1"), loaded.search_label("pear")) == before
    assert Searcher(mine / "runs/fruit").search("id:1", learner="aroma")[0]["results"]


def test_one_like_another_reads_only_what_changed(mine):
    first = Searcher(mine / "runs/fruit")
    indexes = {name: first.index(name) for name in ("oasis", "wsabie")}
    visterm("train", "--set", "oasis.C=0.05", cwd=mine)
    second = Searcher(mine / "runs/fruit", like=first)
    assert second.shares_images(first)
    assert second.index("wsabie") is indexes["wsabie"]
    assert second.index("oasis") is not indexes["oasis"]
    fresh = Searcher(mine / "runs/fruit")
    assert second.version == fresh.version != first.version
    assert second.search("id:1") == fresh.search("id:1")
    (mine / "fruit/pear/3.jpg").unlink()
    visterm("features", "fruit", cwd=mine)
    third = Searcher(mine / "runs/fruit", like=second)
    assert not third.shares_images(second)
    assert len(third.images) == 29
    assert third.index("wsabie") is not indexes["wsabie"]


def test_a_change_on_disk_is_noticed_and_does_not_disturb(mine, write_images):
    searcher = Searcher(mine / "runs/fruit")
    before = searcher.search("id:3")
    assert searcher.is_current()
    changes = [
        lambda: visterm("train", "--set", "oasis.C=0.05", cwd=mine),
        lambda: visterm("train", "--learner", "pamir", "--set", "pamir.n_steps=2000", cwd=mine),
        lambda: (write_images(mine / "fruit", ["pear/new.jpg"]), visterm("features", "fruit", cwd=mine)),
        lambda: shutil.rmtree(mine / "runs/fruit/learners/wsabie"),
    ]
    for change in changes:
        other = Searcher(mine / "runs/fruit")
        change()
        assert not other.is_current()
        assert other.version != Searcher(mine / "runs/fruit").version
    shutil.rmtree(mine / "runs/fruit/collection/segments")
    assert searcher.search("id:3") == before
    assert searcher.search("id:3", learner="cosine")
    assert not searcher.is_current()


def test_a_training_under_way_changes_nothing_yet(mine):
    searcher = Searcher(mine / "runs/fruit")
    shutil.copytree(mine / "runs/fruit/learners/oasis", mine / "runs/fruit/learners/oasis.checkpoint")
    assert searcher.is_current()


def test_what_marks_taught_is_what_answers(mine):
    searcher = Searcher(mine / "runs/fruit")
    teacher = FeedbackTrainer(searcher.run)
    query = searcher.images[searcher.row_named("pear/0.jpg")]
    before = searcher.search("pear/0.jpg", k=29)[0]["results"]
    for row in before[:4]:
        teacher.marks.add(query.sha256, searcher.images[searcher.place[row["id"]]], -1, learner="oasis")
    for row in before[-4:]:
        teacher.marks.add(query.sha256, searcher.images[searcher.place[row["id"]]], 1, learner="oasis")
    taught = teacher.update("oasis")
    assert taught["accepted"], taught["reason"]
    assert not searcher.is_current()
    after = Searcher(mine / "runs/fruit")
    assert after.version != searcher.version
    assert after.search("pear/0.jpg", k=29)[0]["results"] != before == searcher.search("pear/0.jpg", k=29)[0]["results"]
    teacher.reset("oasis")
    assert Searcher(mine / "runs/fruit").search("pear/0.jpg", k=29)[0]["results"] == before


def test_a_damaged_lesson_spoils_its_learner_only(mine):
    folder = mine / "runs/fruit/feedback/oasis"
    folder.mkdir(parents=True)
    (folder / "in_force.json").write_text("{")
    searcher = Searcher(mine / "runs/fruit")
    assert searcher.learners == ["oasis", "wsabie", "musl", "cosine"]  # no other answers in its place
    assert searcher.search("id:1", learner="cosine")[0]["results"]
    for learner in (None, "oasis"):
        with pytest.raises(UserError, match="damaged; remove it to go back to the base"):
            searcher.search("id:1", learner=learner)


def test_an_explanation_sums_to_the_score(searcher):
    best = searcher.search("pear/0.jpg", k=1)[0]["results"][0]
    explanation = explain_pair(searcher, "pear/0.jpg", best["path"])
    assert explanation["score"] == pytest.approx(best["score"], abs=1e-5)
    assert explanation["result"]["id"] == best["id"]


def test_two_changes_within_one_tick_of_the_clock(mine):
    catalogue = mine / "runs/fruit/collection/catalogue.sqlite"
    searcher = Searcher(mine / "runs/fruit")
    status = catalogue.stat()
    with contextlib.closing(sqlite3.connect(catalogue)) as db, db:
        db.execute("UPDATE images SET labels = '{\"peer\": 1.0}' WHERE path = ?", (b"pear/0.jpg",))
    os.utime(catalogue, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert catalogue.stat().st_size == status.st_size
    assert not searcher.is_current()


def test_the_version_is_that_of_the_content(mine):
    """Work that changed nothing must not make bookmarks and marks look old."""
    first = Searcher(mine / "runs/fruit")
    visterm("features", "fruit", cwd=mine)
    assert Searcher(mine / "runs/fruit").version == first.version


def test_looking_for_changes_is_cheap(searcher):
    searcher.is_current()
    seconds = []
    for _ in range(50):
        started = time.perf_counter()
        searcher.is_current()
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 0.001


def test_a_run_that_changes_while_it_is_opened_is_opened_again(mine, monkeypatch):
    from visterm.pipeline.search import gallery as module

    catalogue = mine / "runs/fruit/collection/catalogue.sqlite"
    read, failed = module.vectors, []

    def vectors(*arguments):
        if not failed:
            failed.append(True)
            with contextlib.closing(sqlite3.connect(catalogue)) as db, db:
                db.execute("INSERT INTO meta VALUES ('a change', 1)")
            raise UserError("damaged segment")
        return read(*arguments)

    monkeypatch.setattr(module, "vectors", vectors)
    searcher = Searcher(mine / "runs/fruit")
    assert failed
    assert searcher.is_current()


def test_what_cannot_be_opened_is_refused_in_one_line(tmp_path, mine):
    with pytest.raises(UserError, match="no collection here yet"):
        Searcher(tmp_path / "runs/none")
    (segment,) = (mine / "runs/fruit/collection/segments").iterdir()
    os.truncate(segment / "counts.npy", 100)
    with pytest.raises(UserError, match="damaged segment"):
        Searcher(mine / "runs/fruit")


def test_warnings_go_to_the_console_or_to_the_log(mine, capsys, caplog):
    with contextlib.closing(sqlite3.connect(mine / "runs/fruit/collection/catalogue.sqlite")) as db, db:
        db.execute("UPDATE images SET labels = '{\"quince\": 1.0}' WHERE path = ?", (b"pear/0.jpg",))
        db.execute("UPDATE images SET split = 'train' WHERE path = ?", (b"pear/0.jpg",))
    with caplog.at_level("WARNING"):
        searcher = Searcher(mine / "runs/fruit")
        searcher.search("id:1")
        searcher.search("id:2")
    (record,) = [r for r in caplog.records if r.name == "visterm.pipeline.search.searcher"]
    assert "oasis was trained before the training images or their labels changed" in record.getMessage()
    Searcher(mine / "runs/fruit", console=Console()).search("id:1")
    assert "warning: oasis was trained before" in capsys.readouterr().err


def test_pending_images_are_told(mine, caplog):
    def forget(path):
        with contextlib.closing(Collection(mine / "runs/fruit/collection")) as catalogue:
            catalogue._db.execute("UPDATE images SET status = 'pending' WHERE path = ?", (path,))

    forget(b"pear/0.jpg")
    told = "1 image not extracted yet, and not searchable until then"
    assert told in visterm("search", "id:1", cwd=mine).stderr
    with caplog.at_level("WARNING", logger="visterm.pipeline.search.searcher"):
        first = Searcher(mine / "runs/fruit")
        forget(b"pear/1.jpg")
        assert len(Searcher(mine / "runs/fruit", like=first).pending) == 2  # who follows a run that grows was told
    assert [record.getMessage() for record in caplog.records] == [told]


# ---------------------------------------------------------------------------------------------------- the command


def test_many_kinds_of_queries_at_once(done, outside):
    answers = found_by(outside, "id:1", "plum/2.jpg", "-k", "2", cwd=done)
    assert [answer["query"] for answer in answers] == [
        *(str(outside / c / "new.jpg") for c in CLASSES),
        "id:1",
        "plum/2.jpg",
    ]
    assert all(len(answer["results"]) == 2 for answer in answers)
    rows = visterm("search", "id:1", "id:2", "-k", "1", "--format", "csv", cwd=done).stdout.splitlines()
    assert rows[0] == "query,rank,id,path,score,labels"
    assert [row.split(",")[:2] for row in rows[1:]] == [["id:1", "1"], ["id:2", "1"]]


def test_unknown_ids_and_empty_folders_are_reported(done, tmp_path):
    (tmp_path / "empty").mkdir()
    result = visterm("search", "id:77777", "id:1", tmp_path / "empty", "id:x", "--json", cwd=done, check=2)
    assert [bool(answer["results"]) for answer in json.loads(result.stdout)] == [False, True, False, False]
    assert "visterm: id:77777: run fruit has no image of this id\n" in result.stderr
    assert "empty: no images in this folder\n" in result.stderr
    assert "visterm: id:x: cannot be read" in result.stderr
    assert visterm("annotate", "id:1", "-k", "1", cwd=done).stdout.startswith("id:1\n")


def test_labels_and_images_together_are_refused_before_anything_is_read(done):
    result = visterm("search", "id:1", "--label", "pear", cwd=done, check=2)
    assert "give images or --label, not both" in result.stderr


# --------------------------------------------------------------------------------------------------------- the page


def page_of(folder, *arguments, name="found.html", check=0):
    result = visterm("search", *arguments, "--html", folder / name, cwd=folder, check=check)
    return result, (folder / name).read_text()


def test_a_page_of_answers(mine, outside):
    result, page = page_of(mine, outside, "-k", "4")
    assert result.stdout == f"{mine / 'found.html'}\n"
    assert "Nearest to 3 queries" in page
    assert "Run fruit: 30 images, ranked by oasis" in page
    assert page.count('<article class="row"') == 3
    assert page.count('<span class="rank"') == 12
    assert "http" not in page.replace("http-equiv", "")  # nothing is loaded from anywhere
    assert "<script" not in page
    assert "@media (prefers-color-scheme: dark)" in page
    links = re.findall(r'<a class="tile" href="([^"]*)"', page)
    assert len(links) == 3 + 12
    for link in links:
        assert read_image(mine / unquote(html.unescape(link))).size
    pictures = re.findall(r'<image id="(t\d+)"', page)
    assert len(pictures) == len(set(pictures)) == len(set(links))  # each is stored once
    assert set(re.findall(r'href="#(t\d+)"', page)) == set(pictures)


def test_a_page_beside_other_formats(mine):
    result, page = page_of(mine, "id:1", "--json")
    assert json.loads(result.stdout)[0]["query"] == "id:1"
    assert "pictures in " in result.stderr
    assert "Nearest to id:1" in page


def test_a_page_for_labels(mine):
    _, page = page_of(mine, "--label", "pear", "--label", "plum", "-k", "3")
    assert "ranked by wsabie" in page
    assert page.count('<span class="label">') == 2


def test_names_with_markup_stay_text(mine):
    name = "<img src=x onerror=alert(1)>\"' & #?%.jpg"
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "fruit/pear" / name)
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "javascript:alert(1).jpg")
    with open(os.path.join(os.fsencode(mine / "fruit/pear"), b"\xff\n.jpg"), "wb") as stream:
        stream.write((mine / "fruit/pear/0.jpg").read_bytes())
    visterm("features", "fruit", cwd=mine)
    (mine / "<b>.jpg").write_text("not an image")
    _, page = page_of(mine, "javascript:alert(1).jpg", "<b>.jpg", "-k", "4", "--learner", "cosine", check=2)
    assert "<img" not in page
    assert "<b>" not in page
    assert 'href="javascript' not in page.replace("javascript%3A", "")
    assert "&lt;b&gt;.jpg: not an image" in page
    assert r"\xff\n.jpg" in page
    for link in re.findall(r'<a class="tile" href="([^"]*)"', page):
        assert (mine / os.fsdecode(_bytes(link))).exists()


def _bytes(link):
    from urllib.parse import unquote_to_bytes

    return unquote_to_bytes(html.unescape(link))


def test_the_page_stays_small(mine, monkeypatch):
    monkeypatch.setattr(results_page, "PICTURES", 12)
    _, page = page_of(mine, *(f"id:{i}" for i in range(1, 31)), "-k", "5")
    assert 6 <= page.count("<image id=") <= 12
    assert re.search(r"\d+ (query|queries) not shown", page)
    monkeypatch.setattr(results_page, "PICTURES", 900)
    monkeypatch.setattr(results_page, "RESULTS_SHOWN", 7)
    _, page = page_of(mine, "id:1", "-k", "20")
    assert page.count('<span class="rank"') == 7
    assert "The first 7 of 20 results" in page

    monkeypatch.setattr(report_page, "SIZE_WANTED", 40_000)
    _, page = page_of(mine, *(f"id:{i}" for i in range(1, 31)), "-k", "5")
    assert 1 <= page.count('<article class="row"') < 30


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fruit/pear/0.jpg", "the name of a page ends in .html"),
        ("none/found.html", "there is no folder none"),
        ("folder.html", "this is a folder"),
    ],
)
def test_a_page_does_not_take_the_place_of_something_else(mine, name, message):
    (mine / "folder.html").mkdir()
    before = (mine / "fruit/pear/0.jpg").read_bytes()
    result = visterm("search", "id:1", "--html", name, cwd=mine, check=2)
    assert message in result.stderr
    assert result.stdout == ""
    assert (mine / "fruit/pear/0.jpg").read_bytes() == before


def test_a_picture_that_is_gone_is_a_placeholder(mine):
    (mine / "fruit/pear/5.jpg").unlink()
    _, page = page_of(mine, "pear/0.jpg", "-k", "29")
    assert page.count("cannot be read</span>") == 1


def test_examples_of_the_page_run(repository, mine, outside, monkeypatch):
    (mine / "runs/fruit").rename(mine / "runs/photos")
    outside.rename(mine / "holiday")
    shutil.copy(mine / "fruit/pear/0.jpg", mine / "a.jpg")
    monkeypatch.chdir(mine)
    names: dict = {}
    examples = re.findall(r"```python\n(.*?)```", (repository / "docs/searching.md").read_text(), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        exec(example, names)
    assert names["labels"][0]["label"] == "pear"
    assert set(names["by_learner"]) == set(names["searcher"].learners)


def test_importing_the_room_is_quick():
    """The class is loaded when it is asked for: ``visterm --help`` must not wait for it."""
    code = "import sys, visterm.pipeline; assert 'numpy' not in sys.modules; visterm.pipeline.Searcher"
    subprocess.run([sys.executable, "-c", code], check=True)
