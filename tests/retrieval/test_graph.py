"""Two-stage search of dense vectors: what the graph finds, what it keeps on disk, and what it refuses."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.preprocessing import normalize

from visterm.learners import OASIS, Cosine
from visterm.retrieval import ExactIndex, TwoStageIndex, graph, two_stage

faiss = pytest.importorskip("faiss")
N, D = 2000, 24
FILE = "graph.faiss"


def vectors(seed, n=N, d=D):
    """Unit rows around 40 centres, and the centre of each."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 40, n)
    X = np.random.default_rng(0).standard_normal((40, d))[y] + rng.standard_normal((n, d))
    return normalize(X).astype(np.float32), y


@pytest.fixture(scope="module")
def gallery():
    return vectors(1)


@pytest.fixture(scope="module")
def oasis(gallery):
    return OASIS(n_steps=5_000, whiten=True, random_state=0).fit(*gallery)


@pytest.fixture(scope="module")
def built(gallery, tmp_path_factory):
    """A folder with the graph of the gallery."""
    folder = tmp_path_factory.mktemp("index")
    TwoStageIndex(Cosine().fit(gallery[0]), gallery[0]).save(folder)
    return folder


@pytest.fixture
def saved(built, tmp_path):
    """A copy of it."""
    (tmp_path / FILE).write_bytes((built / FILE).read_bytes())
    return tmp_path


def near(X, seed, n=50):
    rng = np.random.default_rng(seed)
    return normalize(X[rng.integers(0, len(X), n)] + 0.1 * rng.standard_normal((n, X.shape[1]))).astype(np.float32)


def test_scores_are_those_of_exact_search(gallery, oasis):
    X, _ = gallery
    Q = near(X, 2)
    for learner in (Cosine().fit(X), oasis):
        index = TwoStageIndex(learner, X, n_jobs=2)
        assert index.n_candidates == 128
        assert index.recall(Q, 10) >= 0.99
        ranking, wanted = index.search(Q, 10), ExactIndex(learner, X).search(Q, 10)
        same = ranking.indices == wanted.indices
        assert same.mean() >= 0.98
        np.testing.assert_array_equal(ranking.scores[same], wanted.scores[same])  # bit for bit


def test_query_sides_far_from_all_images_get_more_images_in_view(gallery, monkeypatch):
    X, _ = gallery
    index = TwoStageIndex(Cosine().fit(X), X, n_candidates=1)
    directions = np.linalg.svd(X, full_matrices=False)[2]
    far = np.random.default_rng(5).standard_normal((200, 6)) @ directions[-6:]  # where images hardly differ
    assert index.recall(far.astype(np.float32), 1) >= 0.99
    monkeypatch.setattr(graph, "WIDEST_VIEW", 1)
    assert index.recall(far.astype(np.float32), 1) < 0.9
    assert index.recall(near(X, 2), 1) >= 0.99


def test_the_graph_stays_valid_while_the_learner_learns(gallery, oasis, saved):
    X, y = gallery
    Q = near(X, 3)
    before = (saved / FILE).read_bytes()
    longer = OASIS(n_steps=20_000, random_state=1).fit(X, y)
    for learner in (oasis, longer):
        index = TwoStageIndex.load(saved, learner, X)
        assert index.n_new == 0
        assert index.recall(Q, 10) >= 0.99
    first, last = (ExactIndex(learner, X).search(Q, 10).indices for learner in (oasis, longer))
    assert (first != last).any()  # it has learned something
    assert (saved / FILE).read_bytes() == before


def test_images_come_and_go_without_building_again(gallery, saved):
    X, _ = gallery
    new = -X[:100]  # far from all others
    rows = np.random.default_rng(4).permutation(N)[: round(0.85 * N)]
    now, ids = np.concatenate([X[rows], new]), np.concatenate([rows, np.arange(N, N + 100)])
    learner = Cosine().fit(now)
    index = TwoStageIndex.load(saved, learner, now, ids=ids)
    assert index.n_new == 100
    places = np.arange(len(now))
    some = np.concatenate([places[:50], places[-50:]])
    np.testing.assert_array_equal(index.search(now[some], 1).indices[:, 0], some)
    assert index.recall(now[some], 10) >= 0.99

    before = (saved / FILE).read_bytes()
    index.update()
    assert index.n_new == 0
    assert (saved / FILE).read_bytes() == before  # until it is saved
    np.testing.assert_array_equal(index.search(now[some], 1).indices[:, 0], some)
    index.save(saved)
    index = TwoStageIndex.load(saved, learner, now, ids=ids)
    assert index.n_new == 0
    assert index.recall(now[some], 10) >= 0.99


def test_with_many_new_images_the_best_of_them_are_chosen(gallery, saved):
    X, _ = gallery
    new = vectors(7, 1000)[0]
    now = np.concatenate([X, new])
    index = TwoStageIndex.load(saved, Cosine().fit(now), now, n_candidates=20)
    assert len(index._first_stage.choose(new[0], 20)) <= 40
    np.testing.assert_array_equal(index.search(new, 1).indices[:, 0], np.arange(N, N + 1000))


def test_an_index_in_use_outlives_its_file(gallery, saved):
    X, _ = gallery
    index = TwoStageIndex.load(saved, Cosine().fit(X), X)
    os.truncate(saved / FILE, 10)  # of a mapped file, the next search would end the process
    assert index.recall(X[:20], 10) >= 0.99
    (saved / FILE).unlink()  # a search goes on while the file is replaced
    assert index.recall(X[:20], 10) >= 0.99


def test_other_galleries_and_damaged_files_are_refused(gallery, saved):
    X, _ = gallery
    learner = Cosine().fit(X)

    def refused(match, sides=X, ids=None):
        with pytest.raises(ValueError, match=match):
            TwoStageIndex.load(saved, learner if sides.shape[1] == D else Cosine().fit(sides), sides, ids=ids)

    for other in (vectors(99)[0], X[:, :20], np.roll(X, 1, axis=0)):
        refused("made for another gallery; build the index again", other)
    refused("22% of its images are gone; build the index again", X[: round(0.78 * N)])
    refused("100% of its images are gone", ids=np.arange(N) + N)
    for ids in (np.zeros(N, int), np.arange(5), np.ones(N)):
        refused("ids needs a different integer for each of the 2000 images", ids=ids)
    whole = (saved / FILE).read_bytes()
    for size in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        (saved / FILE).write_bytes(whole[:size])
        refused("damaged, or of another version")
    (saved / FILE).write_bytes(whole.replace(b"visterm graph 2", b"visterm graph 9"))
    refused("damaged, or of another version of visterm; build the index again")
    (saved / FILE).write_bytes(b"Xxxx" + whole[4:])
    refused("damaged, or of another version of FAISS .* not recognized")
    for other in (faiss.IndexFlatIP(D), faiss.IndexIDMap(faiss.IndexFlatIP(D))):
        faiss.write_index(other, os.fspath(saved / FILE))
        with (saved / FILE).open("ab") as file:
            file.write(graph._END)
        refused("build the index again")
    (saved / FILE).unlink()
    refused("no index is saved here; build the index")


def test_zero_vectors_and_zero_queries(tmp_path):
    X = vectors(5)[0]
    X[::7] = 0
    learner = Cosine().fit(X)
    index = TwoStageIndex(learner, X)
    index.save(tmp_path)
    assert TwoStageIndex.load(tmp_path, learner, X).recall(X[1:6], 10) >= 0.98
    ranking = index.search(np.zeros((1, D), np.float32), 4)
    np.testing.assert_array_equal(ranking.indices, [[0, 1, 2, 3]])  # all tie
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        TwoStageIndex(learner, X)


def test_a_query_that_the_graph_does_not_answer_is_searched_exactly(monkeypatch):
    """Copies of one image know only each other: the walk may not leave them."""
    X = np.concatenate([np.repeat(vectors(6, 2)[0][:1], 400, axis=0), vectors(6, 200)[0]])
    learner = Cosine().fit(X)
    index, wanted = TwoStageIndex(learner, X, n_candidates=20), ExactIndex(learner, X)
    for query in (X[:1], X[450:451]):
        ranking = index.search(query, 30)
        assert (ranking.indices >= 0).all()
    monkeypatch.setattr(graph.Graph, "choose", lambda self, query, n: np.arange(3))
    for exclude in (None, [450]):
        ranking, best = index.search(X[450:451], 3, exclude=exclude), wanted.search(X[450:451], 3, exclude=exclude)
        np.testing.assert_array_equal(ranking.indices, best.indices)
        assert ranking.scores.tobytes() == best.scores.tobytes()


def test_sides_of_any_length_and_threads_that_stay(gallery):
    """As WSABIE and LEGO have them."""
    X = gallery[0] * np.random.default_rng(8).uniform(0.5, 2, (N, 1)).astype(np.float32)

    class InnerProduct:
        transform = transform_query = staticmethod(lambda X: X)

    index = TwoStageIndex(InnerProduct(), X)
    assert index.recall(near(gallery[0], 9), 10) >= 0.95
    assert index.recall(1e-20 * near(gallery[0], 9), 10) >= 0.95
    before = faiss.omp_get_max_threads()
    TwoStageIndex(Cosine().fit(gallery[0]), gallery[0][:100], n_jobs=before + 1)
    assert faiss.omp_get_max_threads() == before


def test_without_faiss_the_error_says_how_to_install_it(gallery, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"needs FAISS .* -m pip install 'faiss-cpu>="):
        TwoStageIndex(Cosine().fit(gallery[0]), gallery[0])


WRITE = """
import sys
import numpy as np
from visterm.learners import Cosine
from visterm.retrieval import TwoStageIndex

X = np.load(sys.argv[1])
index = TwoStageIndex(Cosine().fit(X), X)
print("ready", flush=True)
while True:
    index.save(sys.argv[2])
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_graph_or_the_new_one(gallery, saved, tmp_path):
    X, _ = gallery
    np.save(tmp_path / "X.npy", X)
    command = [sys.executable, "-c", WRITE, os.fspath(tmp_path / "X.npy"), os.fspath(saved)]
    for pause in (0.0, 0.003, 0.01, 0.02):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(pause)
            process.send_signal(signal.SIGKILL)
        assert TwoStageIndex.load(saved, Cosine().fit(X), X).n_new == 0


def test_the_new_images_of_an_index_are_searched_whatever_the_batch(gallery, saved, monkeypatch):
    monkeypatch.setattr(two_stage, "MANY_IMAGES", 0)
    now = np.concatenate([gallery[0], vectors(7, 300)[0]])
    index = TwoStageIndex.load(saved, Cosine().fit(now), now, n_candidates=50)
    Q = near(now, 10)
    together = index.search(Q, 10)
    for size, n_jobs in ((1, 1), (7, 2)):
        index.n_jobs = n_jobs
        parts = [index.search(Q[start : start + size], 10) for start in range(0, 50, size)]
        assert np.concatenate([part.scores for part in parts]).tobytes() == together.scores.tobytes()
        assert np.concatenate([part.indices for part in parts]).tobytes() == together.indices.tobytes()
