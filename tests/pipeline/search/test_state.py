"""Threads that share a searcher, and runs that change on disk."""

import contextlib
import json
import os
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from running import visterm

from visterm.pipeline import Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.search.state import RecentCache
from visterm.pipeline.store.files import write_record
from visterm.teaching.feedback import FeedbackTrainer
from visterm.teaching.teachers import explain_teachers


def test_threads_share_one_index_and_get_the_same_answers(finished, monkeypatch):
    from visterm.pipeline.search import learners as module

    loads = []
    load = module.LearnerVersions.load_in_force

    def load_slowly(versions, name, **options):
        loads.append(name)
        time.sleep(0.05)
        return load(versions, name, **options)

    monkeypatch.setattr(module.LearnerVersions, "load_in_force", load_slowly)
    searcher = Searcher(finished / "runs/fruit")
    ids = [f"id:{image.id}" for image in searcher.images]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: searcher.search(i, k=5)[0], ids * 4))
        indexes = set(pool.map(lambda _: id(searcher.index("oasis")), range(32)))
    assert answers[:30] * 4 == answers == searcher.search(ids * 4, k=5)
    assert loads == ["oasis"]
    assert len(indexes) == 1


def test_what_was_used_last_is_kept():
    cache = RecentCache(2)
    for key in ("old", "new", "old", "newer"):
        cache(key, lambda key=key: key.upper())
    assert [cache.get(key) for key in ("old", "new", "newer")] == ["OLD", None, "NEWER"]
    cache = RecentCache(4)
    for key, size in (("old", 1), ("new", 1), ("large", 3)):
        cache(key, lambda key=key: key.upper(), size)
    assert [cache.get(key) for key in ("old", "new", "large")] == [None, "NEW", "LARGE"]


def test_filters_of_requests_are_not_kept_for_good(finished):
    searcher = Searcher(finished / "runs/fruit")
    for i in range(2 * len(searcher.images)):
        searcher.search("id:1", before=f"{1000 + i}")  # which no image is
        searcher.gallery.rows_of(SearchRequest.of(label=f"none {i}").filter)
    assert 0 < len(searcher.filtered._made) <= len(searcher.images)
    assert searcher.gallery.albums._label_rows == {}


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
    visterm("train", "--learner", "aroma", "--set", "features.n_visterms=40", "--set", "aroma.n_steps=2000", cwd=mine)
    visterm("train", "--set", "oasis.C=0.05", cwd=mine)
    record = mine / "runs/fruit/learners/wsabie/record.json"
    known = json.loads(record.read_text())
    write_record(record, known | {"labels": known["labels"][::-1], "created": "later"})
    for ask in (
        lambda: searcher.learner("aroma"),
        lambda: searcher.search("id:1", learner="oasis"),
        lambda: searcher.annotate("id:1"),
    ):
        with pytest.raises(UserError, match="retrained or updated after run fruit was opened"):
            ask()
    assert (loaded.search("id:1"), loaded.annotate("id:1"), loaded.search_label("pear")) == before
    with pytest.raises(UserError, match="retrained or updated after run fruit was opened"):
        explain_teachers(loaded, "id:1", "id:2", "oasis")  # the table is read at its first use
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


def test_results_follow_relevance_feedback(mine):
    searcher = Searcher(mine / "runs/fruit")
    trainer = FeedbackTrainer(searcher.run)
    query = searcher.images[searcher.row_named("pear/0.jpg")]
    before = searcher.search("pear/0.jpg", k=29)[0]["results"]
    for row in before[:4]:
        trainer.marks.add(query.sha256, searcher.images[searcher.place[row["id"]]], -1, learner="oasis")
    for row in before[-4:]:
        trainer.marks.add(query.sha256, searcher.images[searcher.place[row["id"]]], 1, learner="oasis")
    update = trainer.update("oasis")
    assert update["accepted"], update["reason"]
    assert not searcher.is_current()
    after = Searcher(mine / "runs/fruit")
    assert after.version != searcher.version
    assert after.search("pear/0.jpg", k=29)[0]["results"] != before == searcher.search("pear/0.jpg", k=29)[0]["results"]
    trainer.reset("oasis")
    assert Searcher(mine / "runs/fruit").search("pear/0.jpg", k=29)[0]["results"] == before


def test_a_damaged_version_affects_its_learner_only(mine):
    folder = mine / "runs/fruit/feedback/oasis"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "in_force.json").write_text("{")
    searcher = Searcher(mine / "runs/fruit")
    assert searcher.learners == ["oasis", "wsabie", "musl", "cosine"]  # no other one replaces it
    assert searcher.search("id:1", learner="cosine")[0]["results"]
    for learner in (None, "oasis"):
        with pytest.raises(UserError, match="damaged; run 'visterm feedback reset"):
            searcher.search("id:1", learner=learner)


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
    """Work that changed nothing must not make bookmarks and marks look old; nor must a training under way."""
    first = Searcher(mine / "runs/fruit")
    shutil.copytree(mine / "runs/fruit/learners/oasis", mine / "runs/fruit/learners/oasis.checkpoint")
    assert first.is_current()
    visterm("features", "fruit", cwd=mine)
    assert Searcher(mine / "runs/fruit").version == first.version


def test_looking_for_changes_is_cheap(searcher):
    searcher.is_current()
    seconds = []
    for _ in range(50):
        started = time.thread_time()
        searcher.is_current()
        seconds.append(time.thread_time() - started)
    assert min(seconds) < 0.001
