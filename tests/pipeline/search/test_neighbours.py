"""Neighbours in a run: made once, kept up to date, explained, and left out where they are not asked for."""

import json
import shutil

import numpy as np
import pytest
from running import SMALL, json_of, refused, visterm

from visterm.pipeline import Searcher
from visterm.pipeline.search import neighbours
from visterm.pipeline.store.run import Run
from visterm.plugins.explanation.explanation import explain_pair
from visterm.plugins.explanation.shared_neighbours import explain_neighbours
from visterm.retrieval import Neighbours

pytestmark = pytest.mark.usefixtures("few_suffice")


def results_of(searcher, query="pear/3.jpg", k=29, **options):
    return [(row["path"], row["score"]) for row in searcher.search(query, k, **options)[0]["results"]]


@pytest.fixture
def said(monkeypatch):
    """The photos for which graphs are made or brought up to date."""
    made = []
    find, update = Neighbours.of.__func__, Neighbours.updated

    def of(cls, index, X):
        made.append(("made", index.n_gallery))
        return find(cls, index, X)

    def updated(self, index, X, rows):
        made.append(("updated", index.n_gallery))
        return update(self, index, X, rows)

    monkeypatch.setattr(Neighbours, "of", classmethod(of))
    monkeypatch.setattr(Neighbours, "updated", updated)
    return made


def test_a_graph_is_made_once_and_follows_the_photos(mine, said, write_images):
    for _ in range(2):
        first = results_of(Searcher(mine / "runs/fruit"))
    assert said in ([], [("made", 30)])  # the copied run may have it
    said.clear()
    write_images(mine / "fruit", ["plum/new.jpg"])
    visterm("features", "fruit", cwd=mine)
    added = results_of(Searcher(mine / "runs/fruit"), k=30)
    assert said == [("updated", 31)]
    assert "plum/new.jpg" in dict(added)
    (mine / "fruit/plum/new.jpg").unlink()
    visterm("features", "fruit", cwd=mine)
    assert [path for path, _ in results_of(Searcher(mine / "runs/fruit"))] == [path for path, _ in first]
    assert said == [("updated", 31), ("updated", 30)]


def test_the_run_is_free_for_a_training_while_a_graph_is_saved(mine, monkeypatch):
    folder, write, trained = mine / "runs/fruit/neighbours/oasis", neighbours._write, []

    def meanwhile(*arguments):
        trained.append(visterm("train", "--learner", "oasis", "--set", "oasis.n_steps=400", cwd=mine))
        write(*arguments)

    shutil.rmtree(folder, ignore_errors=True)
    with Run(mine / "runs/fruit").saving("neighbours"):
        expected = results_of(Searcher(mine / "runs/fruit"))  # by a graph that another process is saving
    assert not folder.exists()
    monkeypatch.setattr(neighbours, "_write", meanwhile)
    assert results_of(Searcher(mine / "runs/fruit")) == expected
    assert (len(trained), [path.name for path in folder.parent.glob("[!.]*")]) == (1, ["oasis"])


@pytest.mark.parametrize("damage", [b"", b"PK no archive", None])
def test_a_damaged_graph_is_made_again(mine, said, damage):
    expected = results_of(Searcher(mine / "runs/fruit"))
    file = mine / "runs/fruit/neighbours/oasis/graph.npz"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    said.clear()
    assert results_of(Searcher(mine / "runs/fruit")) == expected
    assert said == [("made", 30)]
    assert results_of(Searcher(mine / "runs/fruit")) == expected
    assert said == [("made", 30)]


def test_a_graph_belongs_to_its_similarity(mine, said):
    Searcher(mine / "runs/fruit").search("pear/3.jpg")
    visterm("train", "--learner", "oasis", "--set", "oasis.C=0.01", cwd=mine)
    said.clear()
    Searcher(mine / "runs/fruit").search("pear/3.jpg", learner="oasis")
    assert said == [("made", 30)]


def test_neighbours_can_be_left_out(mine, monkeypatch):
    visterm("train", "--learner", "oasis", "--set", "oasis.C=0.01", cwd=mine)
    with_them = results_of(Searcher(mine / "runs/fruit"))
    assert 0 <= json_of("info", cwd=mine)["neighbours"]["oasis"] <= 1
    with monkeypatch.context() as patch:
        patch.setattr("visterm.retrieval.neighbours.FORMAT", 99)
        older = "it is known for results that are ranked with neighbours of an older version; train again"
        assert Searcher(mine / "runs/fruit").calibration("oasis") == older
    visterm("features", "fruit", "--set", "search.neighbours=none", cwd=mine)
    searcher = Searcher(mine / "runs/fruit")
    alone = results_of(searcher)
    assert alone != with_them
    similarity = searcher.blend("oasis").similarity(searcher.X[searcher.row_named("pear/3.jpg")], searcher.X)[0]
    assert dict(alone)["pear/4.jpg"] == pytest.approx(float(similarity[searcher.row_named("pear/4.jpg")]), abs=1e-5)
    assert explain_neighbours(searcher, "pear/3.jpg", "pear/4.jpg") is None
    assert "neighbours" not in explain_pair(searcher, "pear/3.jpg", "pear/4.jpg")
    assert searcher.calibration("oasis") == ("it is known for results that are ranked with neighbours; train again")
    told = refused("explain", "pear/3.jpg", "pear/4.jpg", "--neighbours", cwd=mine)
    assert "oasis ranks these two without neighbours" in told
    told = refused("features", "fruit", "--set", "search.neighbours=some", cwd=mine)
    assert "search.neighbours" in told


@pytest.mark.parametrize("learner", ["oasis", "wsabie", "cosine"])
def test_a_score_is_the_sum_of_its_parts(searcher, outside, learner):
    for query in ("pear/3.jpg", str(outside / "pear/new.jpg")):
        for path, score in results_of(searcher, query, k=5, learner=learner):
            shared = explain_neighbours(searcher, query, path, learner)
            assert shared["score"] == pytest.approx(score, abs=2e-5)
            parts = sum(photo["contribution"] for photo in shared["photos"])
            assert shared["alone"] + parts == pytest.approx(score, abs=2e-5)
            assert shared["sentence"].startswith(("Both are like", "No photo"))
            assert shared == json.loads(json.dumps(shared))


def test_the_command_lists_the_photos_that_both_are_like_and_filters_leave_them(finished, searcher):
    shared = json_of("explain", "pear/3.jpg", "pear/4.jpg", "--neighbours", cwd=finished)
    lines = visterm("explain", "pear/3.jpg", "pear/4.jpg", "--neighbours", cwd=finished).stdout.splitlines()
    assert lines[0] == shared["sentence"]
    assert len(lines) == len(shared["photos"]) + 2
    whole = visterm("explain", "pear/3.jpg", "pear/4.jpg", cwd=finished).stdout.splitlines()
    assert whole[0] == shared["sentence"]
    told = refused("explain", "pear/3.jpg", "pear/4.jpg", "--neighbours", "-o", "why.png", cwd=finished)
    assert "print the neighbours without --output" in told
    # They are of the whole gallery; only results are filtered.
    whole = results_of(searcher)
    for condition in ({"label": "pear"}, {"not_label": "pear"}, {"folder": "plum"}):
        rows = {searcher.images[i].path for i in searcher.gallery.rows_of(searcher.filter(**condition))}
        results = results_of(searcher, **condition)
        assert [path for path, _ in results] == [path for path, _ in whole if path in rows]
        np.testing.assert_allclose([s for _, s in results], [s for path, s in whole if path in rows], atol=1e-6)


def test_an_evaluation_tells_both(finished, mine):
    systems = json.loads((finished / "runs/fruit/evaluations/oasis/metrics.json").read_text())["systems"]
    assert "map_alone" not in systems["oasis"]  # nine test images are too few
    visterm("features", "fruit", "--run", "half", *SMALL, "--set", "split.test=9", "--set", "split.train=1", cwd=mine)
    visterm("evaluate", "--run", "half", "--learner", "cosine", cwd=mine)
    (file,) = (mine / "runs/half/evaluations/cosine").glob("metrics.json")
    figures = json.loads(file.read_text())["systems"]["cosine"]
    assert 0 < figures["map_alone"] <= 1
    assert "mAP without neighbours" in (file.parent / "report.html").read_text()
