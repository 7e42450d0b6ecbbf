import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest
import scipy.sparse as sp
from galleries import Bilinear, D, assert_same, bilinear, photographs
from sklearn.preprocessing import normalize

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

from visterm.pipeline.console import without_password
from visterm.plugins.milvus import milvus, milvus_connection
from visterm.plugins.milvus.milvus import Entries, MilvusError, MilvusIndex, Scalars, StaleIndexError, drop_collection
from visterm.plugins.milvus.milvus_connection import connect
from visterm.retrieval import ExactIndex

N = 800


class Mapped:
    """Both sides mapped, as WSABIE does it."""

    def __init__(self, V):
        self.V = V

    def transform(self, X):
        return np.asarray(X @ self.V)

    transform_query = transform


@pytest.fixture(scope="module")
def learner():
    return bilinear()


@pytest.fixture(scope="module")
def X():
    return photographs(np.random.default_rng(1), N)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(2).permutation(4000)[:N]


@pytest.fixture(scope="module")
def queries(X):
    """Images of the gallery that have lost some of their entries."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, N, 10)
    return normalize(X[rows].toarray() * (rng.random((10, D)) < 0.7))


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """A file that tests share; each has its own collection."""
    return os.fspath(tmp_path_factory.mktemp("milvus") / "shared.db")


@pytest.fixture
def make(uri, request):
    """Function (learner, X, ids, **options) that gives an index in a collection of the test's own."""
    name = request.node.name.partition("[")[0]
    return lambda *given, **options: MilvusIndex(
        *given[:2], ids=given[2], **{"uri": uri, "collection": name, "n_candidates": 120} | options
    )


def test_it_finds_what_exact_search_finds_and_scores_are_exact(make, learner, X, ids, queries):
    index, exact = make(learner, X, ids), ExactIndex(learner, X)
    assert not index.is_synchronized()
    assert index.synchronize() == (N, 0)
    assert index.is_synchronized()
    hits, wanted = index.search(queries, 10), exact.search(queries, 10)
    shared = np.mean([np.isin(*both).mean() for both in zip(wanted.indices, hits.indices, strict=True)])
    assert 0.9 < shared <= 1
    all_scores = np.asarray(learner.transform_query(queries)).astype(np.float32) @ X.T.toarray()
    np.testing.assert_allclose(hits.scores, np.take_along_axis(all_scores, hits.indices, axis=1), rtol=1e-5)
    everything = exact.search(queries, N)
    for row, score, order, scores in zip(hits.indices, hits.scores, everything.indices, everything.scores, strict=True):
        assert score.tolist() == [scores[np.flatnonzero(order == i)[0]] for i in row]  # bit for bit
    np.testing.assert_array_equal(index.search(queries[3:4], 10).indices, hits.indices[3:4])


def test_a_query_is_left_out_of_its_own_results(make, learner, X, ids):
    index = make(learner, X, ids)
    index.synchronize()
    assert index.search(X[:5], 1).indices[:, 0].tolist() == [0, 1, 2, 3, 4]
    hits = index.search(X[:5], 10, exclude=np.array([0, -1, 2, 3, 4]))
    assert hits.indices[1, 0] == 1
    assert not (hits.indices[[0, 2, 3, 4]] == np.array([[0], [2], [3], [4]])).any()
    assert (hits.indices >= 0).all()


def test_short_vectors_go_to_milvus_as_they_are(make, X, ids, queries):
    V = np.random.default_rng(4).standard_normal((D, 30)).astype(np.float32)
    index, exact = make(Mapped(V), X, ids), ExactIndex(Mapped(V), X)
    index.synchronize()
    assert_same(index.search(queries, 10), exact.search(queries, 10))


@pytest.fixture(scope="module")
def dense():
    """Unit vectors longer than those that visterms are projected to."""
    return normalize(np.random.default_rng(5).standard_normal((N, 600))).astype(np.float32)


@pytest.mark.parametrize(
    "kind", [milvus.KINDS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in milvus.KINDS[1:])]
)
def test_dense_vectors_lie_in_an_index_of_milvus_as_they_are(make, dense, ids, kind):
    index = make(Bilinear(), dense, ids, kind=kind, n_candidates=None, collection=f"dense_{kind}")
    exact = ExactIndex(Bilinear(), dense)
    assert index.synchronize() == (N, 0)
    assert (index.n_candidates, index.is_synchronized()) == (milvus.DENSE_CANDIDATES, True)
    queries = dense[::40]
    hits, wanted = index.search(queries, 5), exact.search(queries, 5)
    np.testing.assert_array_equal(hits.indices[:, 0], wanted.indices[:, 0])
    np.testing.assert_array_equal(hits.scores[:, 0], wanted.scores[:, 0])  # bit for bit
    least = {"ivf": 0.2, "flat": 1.0}.get(kind, 0.9)  # random vectors lie in no lists
    assert np.mean([np.isin(*both).mean() for both in zip(wanted.indices, hits.indices, strict=True)]) >= least


def test_another_kind_of_index_is_made_of_what_milvus_holds(make, dense, ids):
    make(Bilinear(), dense, ids).synchronize()
    index = make(Bilinear(), dense, ids, kind="flat")
    assert not index.is_synchronized()
    assert index.synchronize() == (0, 0)
    assert index.is_synchronized()
    assert_same(index.search(dense[:9], 5), ExactIndex(Bilinear(), dense).search(dense[:9], 5))
    assert not make(Bilinear(), dense, ids).is_synchronized()
    with pytest.raises(ValueError, match="kind is one of autoindex, hnsw, ivf, flat, not 'tree'"):
        make(Bilinear(), dense, ids, kind="tree")


FOLDERS = ["", "sea", "sea/north", "seaside", "100%", "100x", "a_b", "axb", "a\\b", 'say "sea"', "größe/süd", "\udcff"]
LABELS = [(), ("x",), ("x", 'a "b"'), ("süß",), ("y", "x\udcff"), ("back\\slash",)]


@pytest.mark.parametrize(
    "wanted",
    [{"label": ["x"]}, {"label": ['a "b"', "süß"]}, {"label": ["y"], "not_label": ["x"]}, {"not_label": ["x", "y"]},
     {"label": ["back\\slash"]}, *({"folder": folder} for folder in FOLDERS[:-1]), {"folder": "sea", "label": ["x"]}],
)  # fmt: skip
def test_milvus_filters_by_label_and_folder(make, dense, ids, wanted, monkeypatch):
    scalars = Scalars([FOLDERS[i % len(FOLDERS)] for i in range(N)], [LABELS[i % 7 % len(LABELS)] for i in range(N)])
    index = make(Bilinear(), dense, ids, scalars=scalars, kind="flat", n_candidates=1)
    index.synchronize()

    def passes(folder, labels):
        below = wanted.get("folder")
        return (
            (not wanted.get("label") or not {*labels}.isdisjoint(wanted["label"]))
            and {*labels}.isdisjoint(wanted.get("not_label", ()))
            and (below is None or folder == below or bool(below and folder.startswith(f"{below}/")))
        )

    rows = np.flatnonzero([passes(*both) for both in zip(*scalars, strict=True)])
    assert 5 < len(rows) < N / 1.1
    np.testing.assert_array_equal(index.where(**wanted)._passing(), rows)
    monkeypatch.setattr(milvus, "_rows_of", lambda *_: np.arange(0))  # by Milvus alone
    for chosen in index.where(**wanted)._choose(dense[:3], N):
        np.testing.assert_array_equal(chosen, rows)
    monkeypatch.undo()
    hits = index.where(**wanted).search(dense[:20], 5)
    expected = ExactIndex(Bilinear(), dense[rows]).search(dense[:20], 5)
    np.testing.assert_array_equal(hits.indices, rows[expected.indices])
    np.testing.assert_array_equal(hits.scores, expected.scores)
    assert index.search(dense[:1], 1).indices[0, 0] == 0  # the index itself has no filter


@pytest.mark.parametrize("wanted", [{"label": ["far"]}, {"not_label": ["near"]}, {"folder": "far"}])
def test_a_filter_that_the_nearest_do_not_pass_finds_those_that_do(make, ids, wanted, monkeypatch):
    """A graph of Milvus looks at the nearest images alone, and none of these pass: it gives nothing, or a few."""
    monkeypatch.setattr(milvus, "ROWS_HASHED", 150)  # in three parts
    rng, names = np.random.default_rng(6), ["near", "far"] * (N // 2)
    X = normalize(rng.standard_normal((2, 60))[[0, 1] * (N // 2)] + 0.3 * rng.standard_normal((N, 60)))
    X = X.astype(np.float32)
    index = make(Bilinear(), X, ids, scalars=Scalars(names, [(name,) for name in names]), n_candidates=None)
    index.synchronize()
    index._client.release_collection(index.collection)  # milvus-lite makes the graph when it loads the collection
    index._client.load_collection(index.collection)
    hits = index.where(**wanted).search(X[:20:2], 5)
    expected = ExactIndex(Bilinear(), X[1::2]).search(X[:20:2], 5)
    np.testing.assert_array_equal(hits.indices, 2 * expected.indices + 1)
    np.testing.assert_array_equal(hits.scores, expected.scores)
    own = index.where(**wanted).search(X[1:20:2], 5, exclude=np.arange(1, 20, 2))
    assert (own.indices[:, 0] != np.arange(1, 20, 2)).all()


def test_other_labels_are_written_and_nothing_else(make, dense, ids):
    plain = make(Bilinear(), dense, ids)
    plain.synchronize()
    labels = [("new",) if i < 20 else () for i in range(N)]
    index = make(Bilinear(), dense, ids, scalars=Scalars([""] * N, labels))
    assert index.synchronize(plain.entries) == (20, 0)
    assert index.where(label=["new"]).search(dense[:1], 15).indices.max() < 20


def test_what_milvus_cannot_narrow_down_is_searched_exactly(make, learner, X, ids, queries):
    index = make(learner, X, ids)  # nothing is there to ask
    assert_same(index.search(queries, N), ExactIndex(learner, X).search(queries, N))
    with pytest.raises(ValueError, match="n_candidates must be at least 1, got 0"):
        make(learner, X, ids, n_candidates=0)
    for wrong in (ids[:-1], np.zeros(N, int), ids - 1000):
        with pytest.raises(ValueError, match="ids needs another number"):
            make(learner, X, wrong)


def test_only_what_came_changed_or_went_is_written(make, learner, X, ids, queries):
    old = make(learner, X[:700], ids[:700])
    old.synchronize()
    now = X[100:].copy()
    now.data[now.indptr[7] : now.indptr[8]] *= 2  # another image of the same id
    index = make(learner, now, ids[100:])
    assert not index.is_synchronized()
    for remembered in (old.entries, None):  # by what the run remembers, and by reading what is there
        assert index.synchronize(remembered) == (101, 100)
        assert index.is_synchronized()
        assert not old.is_synchronized()
        wanted = ExactIndex(learner, now).search(queries, 5)
        hits = index.search(queries, 5)
        assert np.mean([np.isin(*both).mean() for both in zip(wanted.indices, hits.indices, strict=True)]) > 0.9
        assert old.synchronize() == (101, 100)  # and back, for the next one
    assert index.synchronize(index.entries) == (101, 100)  # what is remembered is not what is there: read


@pytest.mark.slow
def test_ids_that_an_older_index_does_not_know_are_passed_over(make, learner, X, ids):
    old = make(learner, X[:600], ids[:600])
    old.synchronize()
    make(learner, X[200:], ids[200:]).synchronize(old.entries)
    rows = old.search(X[:600:50], 5).indices
    assert rows.max() < 600
    assert rows.min() >= 200  # these are gone from Milvus
    assert all(len(set(row)) == 5 for row in rows.tolist())


def test_a_learner_that_moves_the_query_side_alone_needs_nothing_new(make, learner, X, ids, queries):
    make(Bilinear(), X, ids).synchronize()
    index = make(learner, X, ids)
    assert index.is_synchronized()
    wanted = ExactIndex(learner, X).search(queries, 5)
    hits = index.search(queries, 5)
    assert np.mean([np.isin(*both).mean() for both in zip(wanted.indices, hits.indices, strict=True)]) > 0.9


@pytest.mark.slow
def test_another_gallery_side_is_written_anew_if_it_is_known_whose_the_old_one_is(make, X, ids):
    old, new = (Mapped(np.random.default_rng(0).standard_normal((D, n)).astype(np.float32)) for n in (30, 20))
    index = make(old, X, ids)
    index.synchronize()
    remembered, index = index.entries, make(new, X, ids)
    with pytest.raises(StaleIndexError, match="holds 0 of the 800 images as they are now"):
        index.synchronize()
    with pytest.raises(StaleIndexError, match="holds 0 of the 800"):
        index.synchronize(Entries(remembered.ids[1:], remembered.fingerprints[1:]))
    opened = make(old, X, ids)
    assert opened.is_synchronized()  # nothing was written
    new.V = np.random.default_rng(1).standard_normal((D, 30)).astype(np.float32)  # embeddings as long as the old ones
    index = make(new, X, ids)
    assert index.synchronize(remembered) == (N, 0)
    with pytest.raises(StaleIndexError, match="has lost images since it was opened"):
        opened.search(X[:1], 5)  # these are of another learner
    assert index.is_synchronized()
    drop_collection(index.uri, index.collection)
    assert not index.is_synchronized()


def test_addresses_are_shown_without_name_and_password():
    for uri in ("http://me:secret@host:1", "http://me:s@cret@host:1", "http://me:s/c@ret@host:1", "http://host:1"):
        assert without_password(uri) == "http://host:1"
    assert without_password("folder/a.db") == "folder/a.db"


def interrupt(index, monkeypatch, after):
    """Have writing to Milvus stop after some requests; the first of them writes the stamp."""
    upsert, calls = index._client.upsert, []

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) > after:
            raise KeyboardInterrupt
        return upsert(*arguments, **options)

    monkeypatch.setattr(index._client, "upsert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        index.synchronize()
    monkeypatch.setattr(index._client, "upsert", upsert)


@pytest.mark.slow
def test_what_was_interrupted_is_found_and_gone_on_with(make, learner, X, ids, monkeypatch):
    monkeypatch.setattr(milvus, "ROWS_AT_ONCE", 200)
    index = make(learner, X, ids)
    interrupt(index, monkeypatch, after=3)
    assert not index.is_synchronized()
    assert index.synchronize() == (400, 0)
    assert index.is_synchronized()
    now = X.copy()
    now.data[: now.indptr[300]] *= 2  # other images of the same ids
    changed = make(learner, now, ids)
    interrupt(changed, monkeypatch, after=2)
    assert not index.is_synchronized()
    assert not changed.is_synchronized()
    assert changed.synchronize() == (100, 0)


@pytest.mark.slow
def test_rows_that_somebody_removed_are_missed_and_written_again(make, learner, X, ids):
    index = make(learner, X, ids)
    index.synchronize()
    index._client.delete(index.collection, ids=[int(ids[5]), int(ids[9])])
    assert not index.is_synchronized()
    assert index.synchronize(index.entries) == (2, 0)
    index._client.delete(index.collection, ids=ids.tolist())
    with pytest.raises(StaleIndexError, match="has lost images since it was opened"):
        index.search(X[:1], 5)


@pytest.mark.slow
def test_threads_search_while_another_one_writes(make, learner, X, ids, queries):
    index = make(learner, X, ids)
    index.synchronize()
    wanted, wrong, stop = index.search(queries[:4], 5), [], threading.Event()

    def ask():
        while not stop.is_set():
            hits = index.search(queries[:4], 5)
            if not np.array_equal(hits.indices, wanted.indices):
                wrong.append(hits)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        more = sp.vstack([X, normalize(photographs(np.random.default_rng(9), 150))], format="csr")
        newer = make(learner, more, np.append(ids, np.arange(5000, 5150)))
        assert newer.synchronize(index.entries) == (150, 0)
        assert index.synchronize(newer.entries) == (0, 150)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    # 150 images more among the candidates can take the place of a few that were barely among them.
    assert all(np.isin(hits.indices, wanted.indices).mean() > 0.8 for hits in wrong)


@contextmanager
def serving(folder):
    """The address of a Milvus server in a process of its own, and the process."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    command = ["-m", "milvus_lite", "server", "--host", "127.0.0.1", "--port", str(port), "--data-dir", folder]
    server = subprocess.Popen(
        [sys.executable, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(200):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", server
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
def test_a_server_serves_as_a_file_does_until_it_is_gone(tmp_path, learner, X, ids, queries, monkeypatch, make):
    with serving(tmp_path / "data") as (uri, server):
        index, local = (make(learner, X, ids, kind="flat", **own) for own in ({"uri": uri}, {}))
        assert index.synchronize() == local.synchronize() == (N, 0)
        assert_same(index.search(queries, 10), local.search(queries, 10))
        server.kill()
        server.wait()
        monkeypatch.setattr(milvus, "ANSWER_SECONDS", 1.0)
        with pytest.raises(MilvusError, match=rf"^Milvus at {uri}: no answer; is it running"):
            index.search(queries, 10)


@pytest.mark.timeout(60)
def test_nobody_at_the_address_is_told_within_seconds(learner, X, ids, make, monkeypatch):
    monkeypatch.setattr(milvus_connection, "CONNECT_SECONDS", 1.0)
    with closing(socket.create_server(("127.0.0.1", 0))) as deaf:  # takes connections, and says nothing
        port = deaf.getsockname()[1]
        with pytest.raises(
            MilvusError, match=rf"^Milvus at http://127.0.0.1:{port}: no answer; is it running.*right\?$"
        ):
            make(learner, X, ids, uri=f"http://me:secret@127.0.0.1:{port}")


def test_what_is_no_milvus_file_is_refused_and_left_alone(learner, X, ids, make, tmp_path, monkeypatch):
    text = tmp_path / "text.db"
    text.write_text("no Milvus")
    folder = tmp_path / "folder.db"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    for file in (text, folder):
        with pytest.raises(MilvusError, match=rf"^{file}: no Milvus file \(milvus-lite keeps a folder\)"):
            make(learner, X, ids, uri=os.fspath(file))
    assert text.read_text() == "no Milvus"
    assert os.listdir(folder) == ["mine.txt"]
    monkeypatch.setattr(milvus_connection, "CONNECT_SECONDS", 0.5)
    with pytest.raises(MilvusError, match=r"nowhere/milvus.db: cannot be opened as a Milvus file.*not exists"):
        make(learner, X, ids, uri=os.fspath(tmp_path / "nowhere/milvus.db"))


@pytest.mark.slow
def test_a_file_that_another_process_holds_is_waited_for_and_then_refused(learner, X, ids, make, tmp_path, monkeypatch):
    file = os.fspath(tmp_path / "held.db")
    with serving(file) as (_, server):
        monkeypatch.setattr(milvus_connection, "CONNECT_SECONDS", 0.5)
        with pytest.raises(MilvusError, match=rf"^{file}: another process has this Milvus file open"):
            make(learner, X, ids, uri=file)
        monkeypatch.setattr(milvus_connection, "CONNECT_SECONDS", 30.0)
        threading.Timer(0.5, server.kill).start()
        assert not make(learner, X, ids, uri=file).is_synchronized()


def test_a_collection_of_somebody_else_is_refused(learner, X, ids, make, uri):
    client = connect(uri)
    client.create_collection("others", dimension=4)
    client.insert("others", [{"id": 1, "vector": [1.0, 2, 3, 4]}])
    index = make(learner, X, ids, collection="others")
    with pytest.raises(MilvusError, match=f"^others in Milvus at {uri} is no index of visterm"):
        index.synchronize()
    with pytest.raises(MilvusError, match="no index of visterm"):
        drop_collection(uri, "others")
    assert client.query("others", output_fields=["count(*)"])[0]["count(*)"] == 1


def test_a_file_is_not_pinged(tmp_path, monkeypatch):
    """After 80 seconds of pings its server would complain, which gRPC prints."""
    import grpc

    used, insecure_channel = {}, grpc.insecure_channel

    def channel(address, options):
        used.update(options)
        return insecure_channel(address, options)

    monkeypatch.setattr(grpc, "insecure_channel", channel)
    connect(str(tmp_path / "photos.db")).close()
    assert used["grpc.keepalive_time_ms"] > 1000 * 3600 * 24


@pytest.mark.parametrize("package", ["pymilvus", "milvus_lite"])
def test_missing_packages_are_named(package, learner, X, ids, make, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MilvusError, match=r"^Milvus needs \w+: .* -m pip install .*milvus-lite.*$"):
        make(learner, X, ids)
