"""Two-stage indexes: when they are used, what they find, and what a run keeps of them."""

import json
import sys

import numpy as np
import pytest
from running import paths_of, visterm

from visterm.pipeline import Searcher
from visterm.pipeline.console import Console
from visterm.pipeline.store.checksums import files_crc32, sealed
from visterm.pipeline.store.run import Run
from visterm.retrieval import ExactIndex, TwoStageIndex


@pytest.fixture
def of_vectors(tmp_path):
    """A run of 30 dense vectors of three classes, with an index in two stages."""
    rng = np.random.default_rng(0)
    y = np.repeat(["apple", "pear", "plum"], 10)
    np.save(tmp_path / "fruit.npy", rng.normal(size=(30, 12)) + (y[:, None] == np.unique(y)) @ rng.normal(size=(3, 12)))
    (tmp_path / "fruit.txt").write_text("\n".join(f"{label}/{i}.jpg" for i, label in enumerate(y)))
    vectors = ["--vectors", "fruit.npy", "--ids", "fruit.txt"]
    visterm("features", *vectors, "--set", "index.kind=two-stage", "--set", "index.n_candidates=5", cwd=tmp_path)
    return tmp_path


def test_two_stages_of_few_images_find_what_exact_search_finds(mine, searcher):
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    two_stages = Searcher(mine / "runs/fruit")
    for name in two_stages.learners:
        assert isinstance(two_stages.index(name), TwoStageIndex)
        assert two_stages.search("id:3", learner=name) == searcher.search("id:3", learner=name)
    for kind, milliseconds, two in (("exact", "0.0001", False), ("auto", "0.0001", True), ("auto", "50", False)):
        settings = ["--set", f"index.exact_milliseconds={milliseconds}", "--set", "index.n_candidates=7"]
        visterm("features", "fruit", "--set", f"index.kind={kind}", *settings, cwd=mine)
        index = Searcher(mine / "runs/fruit").index("cosine")
        assert isinstance(index, TwoStageIndex) == two
        assert not two or index.n_candidates == 7


def test_what_two_stages_find_is_measured_once_and_shown(mine):
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    for name in ("oasis", "wsabie"):  # without lists, and with
        told = f"two stages find 100.0% of the 10 nearest images for {name} (measured with 30 queries"
        ask = ["search", "id:3", "--learner", name]
        assert told in visterm(*ask, cwd=mine).stderr
        assert "two stages" not in visterm(*ask, cwd=mine).stderr
    measured = {"recall": 1.0, "k": 10, "queries": 30, "images": 30}
    indexes = json.loads(visterm("info", "--json", cwd=mine).stdout)["indexes"]
    assert indexes == {"oasis": measured, "wsabie": measured}
    line = "index:       wsabie finds 100.0% of the 10 nearest of 30 images (measured with 30 of them)"
    assert line in visterm("info", cwd=mine).stdout.splitlines()


def test_the_index_of_dense_vectors_serves_what_is_learned_later(of_vectors):
    """Not even another learner builds it again, if its gallery side is the vectors."""
    ask, building = ["search", "id:3", "-k", "29", "--json", "--learner"], "building the index of"
    graph = of_vectors / "runs/fruit/index/vectors/graph.faiss"
    first = visterm(*ask, "cosine", cwd=of_vectors)
    assert "building the index of 30 images for cosine" in first.stderr
    assert "two stages find 100.0% of the 10 nearest images for cosine" in first.stderr
    made = graph.stat().st_mtime_ns
    for learner in ("oasis", "oasis", "aroma"):  # oasis is retrained, too
        visterm("train", "--learner", learner, "--set", f"{learner}.n_steps=2000", "--force", cwd=of_vectors)
        answer = visterm(*ask, learner, cwd=of_vectors)
        assert building not in answer.stderr
    assert graph.stat().st_mtime_ns == made
    line = "index:       vectors finds 100.0% of the 10 nearest of 30 images (measured with 30 of them)"
    assert line in visterm("info", cwd=of_vectors).stdout.splitlines()


def test_an_index_of_dense_vectors_takes_in_what_comes_and_leaves_out_what_goes(of_vectors):
    graph = of_vectors / "runs/fruit/index/vectors/graph.faiss"
    visterm("search", "id:3", "--learner", "cosine", cwd=of_vectors)
    made = graph.stat().st_mtime_ns
    X, ids = np.load(of_vectors / "fruit.npy"), (of_vectors / "fruit.txt").read_text().split()
    np.save(of_vectors / "fruit.npy", np.concatenate([X[2:], -X[:1]]))
    (of_vectors / "fruit.txt").write_text("\n".join([*ids[2:], "new"]))
    visterm("features", cwd=of_vectors)
    answer = visterm("search", "new", "-k", 28, "--json", "--learner", "cosine", cwd=of_vectors)
    assert graph.stat().st_mtime_ns == made
    searcher = Searcher(of_vectors / "runs/fruit")
    assert searcher.index("cosine").n_new == 1
    assert set(paths_of(json.loads(answer.stdout)[0])) == set(ids[2:])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("visterm.retrieval.graph.NEW_IMAGES", 0)
        assert Searcher(of_vectors / "runs/fruit").index("cosine").n_new == 0
    assert graph.stat().st_mtime_ns != made
    assert Searcher(of_vectors / "runs/fruit").index("cosine").n_new == 0


@pytest.mark.parametrize("damage", ["cut", "other", "library", "older", "record"])
def test_an_index_that_does_not_fit_is_built_again_with_one_line(of_vectors, damage):
    ask = ["search", "id:3", "-k", "29", "--json", "--learner", "cosine"]
    first = visterm(*ask, cwd=of_vectors)
    folder = of_vectors / "runs/fruit/index/vectors"
    graph, record = folder / "graph.faiss", json.loads((folder / "record.json").read_text())
    data = bytearray(graph.read_bytes())
    if damage == "cut":
        graph.write_bytes(data[:1000])
    elif damage == "other":  # of other vectors
        record["inputs"]["extractor"] = "other"
    elif damage == "older":  # an index of another format
        record["config"] = {"n_candidates": None}
    elif damage == "record":
        record = []
    else:
        data[:4] = b"Xxxx"  # FAISS of a later version, which has its own kinds
        graph.write_bytes(data)
        record["crc32"] = files_crc32(folder, record["crc32"])
    if damage != "cut":
        (folder / "record.json").write_text(json.dumps(sealed(record) if record else record))
    again = visterm(*ask, cwd=of_vectors)
    assert again.stdout == first.stdout
    told = [line for line in again.stderr.splitlines() if "index" in line and "building" not in line]
    assert len(told) == (damage in ("library", "record", "cut")) + 1, again.stderr  # and one about its recall
    assert "building the index of 30 images" in again.stderr
    quiet = visterm(*ask, cwd=of_vectors)
    assert "index" not in quiet.stderr
    assert quiet.stdout == first.stdout


def test_an_index_that_cannot_be_saved_is_used(of_vectors):
    with Run(of_vectors / "runs/fruit").saving("index"):  # another visterm saves one
        answer = visterm("search", "id:3", "--json", "--learner", "cosine", cwd=of_vectors)
    assert "the index for cosine cannot be saved" in answer.stderr
    assert json.loads(answer.stdout)[0]["results"]
    assert not (of_vectors / "runs/fruit/index/vectors").exists()


def test_without_faiss_search_is_exact_and_says_how_to_get_the_index(of_vectors, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    told = []
    console = Console(quiet=True)
    console.warn = told.append
    index = Searcher(of_vectors / "runs/fruit", console=console).index("cosine")
    assert type(index) is ExactIndex
    (line,) = told
    assert line.startswith("cosine searches exactly, without an index")
    assert "-m pip install 'faiss-cpu>=1.12'" in line


@pytest.mark.slow
def test_a_gallery_side_of_its_own_has_an_index_of_its_own(mine, write_images):
    """That of wsabie where all that it learned counts."""
    visterm("features", "fruit", "--set", "index.kind=two-stage", cwd=mine)
    visterm("train", "--learner", "wsabie", "--set", "train.learned_weight=1", cwd=mine)
    ask, making = ["search", "id:3", "-k", "31", "--learner", "wsabie", "--json"], "building the index of"
    folder = mine / "runs/fruit/index"
    first = visterm(*ask, cwd=mine)
    assert "building the index of 30 images for wsabie" in first.stderr
    again = visterm(*ask, cwd=mine)
    assert making not in again.stderr
    assert again.stdout == first.stdout
    visterm("search", "id:3", "--learner", "oasis", cwd=mine)
    assert [path.parent.name for path in folder.glob("*/graph.faiss")] == ["wsabie"]

    write_images(mine / "fruit", ["pear/new.jpg"])  # a few more images change nothing
    visterm("features", "fruit", cwd=mine)
    result = visterm(*ask, cwd=mine)
    assert making not in result.stderr
    assert "pear/new.jpg" in paths_of(json.loads(result.stdout)[0])

    visterm("train", "--learner", "wsabie", "--set", "wsabie.n_steps=3000", cwd=mine)
    assert making in visterm(*ask, cwd=mine).stderr
