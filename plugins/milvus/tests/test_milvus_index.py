"""A run whose indexes lie in Milvus: in step with the catalogue, and one line for whatever is wrong."""

import fcntl
import json
import os
import re
import shutil
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from running import copy_run, refused, visterm

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

from pymilvus import MilvusException

from visterm.pipeline import LabelEditor, Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.errors import UserError
from visterm.pipeline.search import opened
from visterm.pipeline.search import rank as rank_module
from visterm.pipeline.search.rank import rank
from visterm.pipeline.search.request import SearchRequest
from visterm.pipeline.store.run import Run
from visterm.plugins.milvus import milvus, milvus_connection
from visterm.plugins.milvus.milvus import MilvusIndex
from visterm.plugins.milvus.milvus_connection import close_file, connect
from visterm.plugins.milvus.milvus_index import RunIndex, collection_name
from visterm.retrieval import ExactIndex
from visterm.service import reloader

CLASSES = ("apple", "pear", "plum")
SETTINGS = ("features.n_visterms=40", "oasis.n_steps=300", "oasis.patience=null", "wsabie.n_steps=300",
            "wsabie.n_components=5", "wsabie.patience=null", "compute.n_jobs=1",
            "index.kind=milvus", "index.n_candidates=20")  # fmt: skip


def use(*settings, cwd):
    visterm("features", "fruit", *(part for setting in settings for part in ("--set", setting)), cwd=cwd)


def search(query, cwd, learner="oasis", k=1):
    process = visterm("search", query, "--learner", learner, "-k", k, "--json", cwd=cwd)
    return json.loads(process.stdout)[0]["results"], process.stderr


@pytest.fixture(scope="module")
def done(tmp_path_factory, write_images):
    """A folder with a run of three classes of fifteen images that searches in Milvus, and images that are not in it."""
    folder = tmp_path_factory.mktemp("milvus")
    write_images(folder / "fruit", [f"{c}/{i}.jpg" for c in CLASSES for i in range(15)])
    write_images(folder / "more", [f"{c}/new{i}.jpg" for c in CLASSES for i in range(2)], seed=1)
    use(*SETTINGS, cwd=folder)
    visterm("train", "--learner", "oasis,wsabie", cwd=folder)
    return folder


@pytest.fixture
def mine(done, tmp_path):
    """A copy of it that a test may change."""
    visterm("features", "fruit", cwd=copy_run(done, tmp_path))  # the root has moved
    yield tmp_path
    close_file(os.fspath(tmp_path / "runs/fruit/index/milvus.db"))


def test_candidates_of_milvus_are_ranked_as_exact_search_ranks_them(mine):
    searcher = Searcher(mine / "runs/fruit")
    asked = np.arange(len(searcher.images))
    for name in searcher.learners:
        index = searcher.index(name)
        assert isinstance(index, MilvusIndex)
        exact = ExactIndex(index.learner, searcher.X)
        hits, wanted = (some.search(searcher.X, 2, exclude=asked) for some in (index, exact))
        np.testing.assert_array_equal(hits.indices, wanted.indices)
        np.testing.assert_array_equal(hits.scores, wanted.scores)
    assert (mine / "runs/fruit/index/milvus.db").is_dir()


@pytest.mark.slow
def test_what_came_and_went_is_written_by_the_next_search(mine):
    shutil.copy(mine / "more/pear/new0.jpg", mine / "query.jpg")
    _, told = search("query.jpg", mine)
    assert "Milvus finds 100.0% of the 10 nearest images for oasis (measured with 45 queries)" in told
    visterm("add", "more/pear", "--label", "pear", cwd=mine)
    results, told = search("query.jpg", mine, k=5)
    assert str(mine / "more/pear/new0.jpg") in {result["path"] for result in results}
    assert "2 images written to Milvus for oasis, 0 removed" in told
    assert "Milvus" not in search("query.jpg", mine)[1]
    visterm("remove", "more/pear/new0.jpg", "fruit/plum/3.jpg", cwd=mine)
    results, told = search("query.jpg", mine, k=5)
    assert str(mine / "more/pear/new0.jpg") not in {result["path"] for result in results}
    assert "0 images written to Milvus for oasis, 2 removed" in told
    line = "index:       oasis finds 100.0% of the 10 nearest of 45 images (measured with 45 of them); 45 in Milvus, "
    assert line + "runs/fruit/index/milvus.db" in visterm("info", cwd=mine).stdout.splitlines()
    entries = visterm("index", "--learner", "oasis", "--json", cwd=mine)
    assert json.loads(entries.stdout) == {"run": "fruit", "indexes": {"oasis": {"kind": "milvus", "images": 45}}}


@pytest.mark.slow
def test_a_learner_that_was_trained_again_is_followed(mine):
    for learner, told in (("oasis", ""), ("wsabie", "updating the index of wsabie in Milvus to 45 images")):
        search("id:3", mine, learner)
        visterm("train", "--learner", learner, "--set", f"{learner}.n_steps=400", cwd=mine)
        results, words = search("id:3", mine, learner, k=2)
        assert told in words
        assert ("Milvus" in words) == bool(told)  # what OASIS learned is in its queries alone
        use("index.kind=exact", cwd=mine)
        assert search("id:3", mine, learner, k=2)[0] == results
        use("index.kind=milvus", cwd=mine)


def spoilt(folder):
    """Give the collection of oasis other images, as if another run of the same name had used it."""
    run = Run(folder / "runs/fruit")
    others = np.random.default_rng(0).random((30, 7), np.float32)
    uri, collection = os.fspath(run.folder / "index/milvus.db"), collection_name(run, "oasis")
    milvus.drop_collection(uri, collection)
    MilvusIndex(Same(), others, ids=np.arange(30), uri=uri, collection=collection).synchronize()


class Same:
    def transform(self, X):
        return X

    transform_query = transform


def test_labels_and_folders_are_filtered_by_milvus(mine, monkeypatch):
    filters: list = [{"label": "pear"}, {"not_label": ["pear", "plum"]}, {"folder": "plum/"},
                     {"folder": "."}, {"label": ["pear", "plum"], "folder": "pear"},
                     {"label": "pear", "where": "date>2000"}]  # fmt: skip

    def results():
        searcher = Searcher(mine / "runs/fruit")
        queries = [f"id:{searcher.images[row].id}" for row in range(0, 45, 5)]
        return [searcher.search(queries, k=2, learner="cosine", **wanted) for wanted in filters]

    asked, where = [], RunIndex.where
    monkeypatch.setattr(RunIndex, "where", lambda index, **given: (asked.append(given), where(index, **given))[1])
    wanted = results()
    assert not asked  # few images are compared here
    monkeypatch.setattr(rank_module, "_FEW", 5)
    assert results() == wanted
    assert len(asked) == 5  # no image lies in the top folder
    LabelEditor(mine / "runs/fruit").add("pear", [1, 2])
    with_edits = results()
    assert with_edits != wanted
    monkeypatch.setattr(rank_module, "_FEW", 10_000)
    assert results() == with_edits


def test_the_kind_of_milvus_index_is_a_setting(mine):
    results, _ = search("id:3", mine, k=2)
    for kind in ("flat", "hnsw"):
        use(f"index.milvus={kind}", cwd=mine)
        assert search("id:3", mine, k=2)[0] == results
        client = connect(os.fspath(mine / "runs/fruit/index/milvus.db"))
        assert client.describe_index("visterm_fruit_oasis", "embedding")["index_type"] == kind.upper()
    with pytest.raises(UserError, match="milvus is used with kind: milvus only"):
        load_config(None, ["index.milvus=hnsw"])


@pytest.mark.slow
def test_another_content_is_told_and_rebuild_repairs_it(mine):
    visterm("index", "--rebuild", cwd=mine)  # the first command that makes it
    results, _ = search("id:3", mine, k=2)
    spoilt(mine)
    for command in (("search", "id:3"), ("index",)):
        assert refused(*command, cwd=mine) == (
            "visterm: visterm_fruit_oasis in Milvus at runs/fruit/index/milvus.db holds 0 of the 45 images as they are "
            "now; run 'visterm index --rebuild --run fruit --learner oasis' to rebuild it"
        )
    assert "oasis: 45 images; milvus, up to date" in visterm("index", "--rebuild", cwd=mine).stderr
    again, told = search("id:3", mine, k=2)
    assert again == results
    assert "Milvus" not in told


@pytest.mark.slow
def test_a_few_lost_images_are_written_again_unasked(mine):
    results, _ = search("id:3", mine, k=2)
    client = connect(os.fspath(mine / "runs/fruit/index/milvus.db"))
    client.delete("visterm_fruit_oasis", ids=[results[0]["id"], results[1]["id"]])
    again, told = search("id:3", mine, k=2)
    assert again == results
    assert "2 images written to Milvus for oasis, 0 removed" in told
    for number, damaged in enumerate((b"damaged", b"")):
        (mine / "runs/fruit/index/oasis/entries.npy").write_bytes(damaged)
        visterm("remove", f"fruit/plum/{number}.jpg", cwd=mine)
        assert "0 images written to Milvus for oasis, 1 removed" in search("id:3", mine)[1]


@pytest.mark.slow
def test_a_damaged_file_in_the_run_is_told_and_rebuild_replaces_it(mine, monkeypatch):
    results, _ = search("id:3", mine, k=2)
    folder = mine / "runs/fruit/index/milvus.db"

    def slow(*_):
        raise MilvusException(message="StatusCode.DEADLINE_EXCEEDED")

    with monkeypatch.context() as patch:
        patch.setattr(milvus, "_is_there", slow)
        assert "no answer" in refused("index", "--rebuild", cwd=mine)
    close_file(os.fspath(folder))
    with (folder / "LOCK").open() as lock, monkeypatch.context() as patch:
        patch.setattr(milvus_connection, "CONNECT_SECONDS", 0.5)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process has this Milvus file open" in refused("index", "--rebuild", cwd=mine)
    assert "Milvus" not in search("id:3", mine, k=2)[1]  # neither has removed anything
    close_file(os.fspath(folder))
    for file in folder.rglob("*.json*"):
        file.write_text("damaged")
    assert refused("search", "id:3", cwd=mine).startswith("visterm: Milvus at runs/fruit/index/milvus.db: ")
    visterm("index", "--rebuild", cwd=mine)
    assert search("id:3", mine, k=2)[0] == results
    close_file(os.fspath(folder))
    shutil.rmtree(folder)
    folder.write_text("damaged so that it cannot even be opened")
    assert "no Milvus file" in refused("index", cwd=mine)
    assert "oasis: 45 images; milvus, up to date" in visterm("index", "--rebuild", cwd=mine).stderr


@pytest.mark.slow
def test_a_file_that_is_cut_or_removed_while_it_is_in_use_changes_no_result(mine, caplog):
    """Until the run changes, what was served is in memory; then search is exact, and says so."""
    run = Run(mine / "runs/fruit")
    folder = run.folder / "index/milvus.db"
    searcher = Searcher(run)
    results = searcher.search("id:3", k=2)
    assert type(searcher.index("oasis")) is RunIndex
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "LOCK":
            os.truncate(file, file.stat().st_size // 2)
    assert searcher.search("id:3", k=2) == results
    shutil.rmtree(folder)
    assert searcher.search("id:3", k=2) == results
    LabelEditor(run).add("red", [3])
    searcher = Searcher(run)
    assert type(searcher.index("oasis")) is ExactIndex
    assert [row["id"] for row in searcher.search("id:3", k=2)[0]["results"]] == [r["id"] for r in results[0]["results"]]
    assert "was removed while it was in use: oasis searches exactly" in caplog.text
    close_file(os.fspath(folder))
    assert type(Searcher(run).index("oasis")) is RunIndex


@pytest.mark.slow
def test_nobody_at_the_address_is_one_line_and_nothing_is_lost(mine, monkeypatch):
    results, _ = search("id:3", mine, k=2)
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf, monkeypatch.context() as patch:
        patch.setattr(milvus_connection, "CONNECT_SECONDS", 0.5)
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        use(f"index.uri={uri}", cwd=mine)
        for command in (("search", "id:3"), ("index", "--rebuild")):
            line = refused(*command, cwd=mine)
            assert line == f"visterm: Milvus at {uri}: no answer; is it running, and is the address right?"
    visterm("info", cwd=mine)
    use("index.uri=null", cwd=mine)
    again, told = search("id:3", mine, k=2)
    assert again == results
    assert "Milvus" not in told


def test_a_file_that_is_none_of_milvus_is_left_alone_and_without_pymilvus_the_extra_is_named(mine, monkeypatch):
    (mine / "text.db").write_text("no Milvus")
    use("index.uri=text.db", cwd=mine)
    for command in (("search", "id:3"), ("index", "--rebuild")):
        assert refused(*command, cwd=mine).startswith(
            f"visterm: {mine}/text.db: no Milvus file (milvus-lite keeps a folder)"
        )
    assert (mine / "text.db").read_text() == "no Milvus"
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    assert re.match("visterm: Milvus needs pymilvus: .* -m pip install .*pymilvus", refused("search", "id:3", cwd=mine))


@pytest.mark.slow
def test_while_others_write_to_an_index_search_is_exact(mine):
    results, _ = search("id:3", mine, k=2)
    visterm("add", "more/pear", "--label", "pear", cwd=mine)
    with Run(mine / "runs/fruit").saving("index"):
        _, told = search("id:3", mine, k=2)
        assert refused("index", cwd=mine).startswith("visterm: the Milvus index of oasis is out of date; re-run ")
    assert "the index of oasis in Milvus is out of date, using exact search for now: " in told
    assert "another visterm writes to it; wait for it to end" in told
    older = Searcher(mine / "runs/fruit")
    visterm("remove", "more/pear/new0.jpg", cwd=mine)
    assert type(older.index("oasis")) is ExactIndex  # what it holds is no longer what the run holds
    assert isinstance(Searcher(mine / "runs/fruit").index("oasis"), RunIndex)


@pytest.mark.slow
def test_a_service_follows_and_answers_from_several_threads(mine, monkeypatch):
    state = reloader.SnapshotReloader(Run(mine / "runs/fruit"))
    first = state.snapshot
    row = first.searcher.place[3]
    arguments = first.searcher, first.searcher.X[[row]], [row], SearchRequest(2, "oasis")
    wanted = rank(*arguments)
    assert isinstance(first.searcher.index("oasis"), RunIndex)
    visterm("add", "more/pear", "--label", "pear", cwd=mine)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(rank, *arguments) for _ in range(20)]
        second = state.refresh()
        assert second is not first
        assert all(answer.result() == wanted for answer in asked)
    index = second.searcher.index("oasis")
    assert isinstance(index, RunIndex)
    assert index.n_gallery == 47
    assert index.is_synchronized()
    visterm("remove", "more/pear/new0.jpg", cwd=mine)
    with Run(mine / "runs/fruit").saving("index"):
        third = state.refresh()
        assert type(third.searcher.index("oasis")) is ExactIndex  # it stands in
        assert state.refresh() is third
    monkeypatch.setattr(opened, "RETRY_SECONDS", 0.0)  # ten seconds later
    fourth = state.refresh()
    assert fourth.searcher.shares_images(third.searcher)
    assert isinstance(fourth.searcher.index("oasis"), RunIndex)
    assert state.refresh() is fourth


def test_indexes_of_other_kinds_are_made_and_forgotten_too(mine):
    use("index.kind=two-stage", cwd=mine)
    assert "oasis: 45 images; two-stage, up to date" in visterm("index", cwd=mine).stderr
    record = mine / "runs/fruit/index/oasis/record.json"
    made = record.stat().st_mtime_ns
    visterm("index", cwd=mine)
    assert record.stat().st_mtime_ns == made
    visterm("index", "--rebuild", cwd=mine)
    assert record.stat().st_mtime_ns != made
    use("index.kind=exact", cwd=mine)
    assert "oasis: 45 images; exact search needs no index" in visterm("index", cwd=mine).stderr


def test_addresses_and_names_of_collections(tmp_path):
    file = tmp_path / "photos.yaml"
    file.write_text("index: {kind: milvus, uri: vectors.db}")
    assert load_config(file).index.uri == os.fspath(tmp_path / "vectors.db")
    for uri in ("http://localhost:19530", "https://me:secret@host/db"):
        assert load_config(None, ["index.kind=milvus", f"index.uri={uri}"]).index.uri == uri
    for uri in ("localhost:19530", "ftp://host/milvus.db", "milvus", "http://", ".db/", "http://host:abc",
                "http://host:99999", "http://:19530", "https://me:se/cret@host", "https://me:1/cret@host",
                "https://me:1#cret@host", "https://me:secret@host:abc"):  # fmt: skip
        with pytest.raises(UserError, match=r"index.uri: uri is the address of a Milvus server .* not '") as told:
            load_config(None, ["index.kind=milvus", f"index.uri={uri}"])
        assert "cret" not in str(told.value)
    assert load_config(None, ["index.kind=milvus", "index.uri=http://me:s@cret@host"]).index.uri.endswith("cret@host")
    with pytest.raises(UserError, match="uri is used with kind: milvus only"):
        load_config(None, ["index.uri=milvus.db"])
    names = [collection_name(Run(Path(name)), "oasis") for name in ("photos", "my photos", "my-photos", "x" * 300)]
    assert names[0] == "visterm_photos_oasis"
    assert len(set(names)) == 4
    assert all(len(name) < 255 and name.replace("_", "a").isalnum() for name in names)
