"""A searcher, from Python and from the command line: images, labels, warnings."""

import contextlib
import json
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from running import visterm
from scipy import sparse

from visterm import LabelEditor, Searcher, open_run
from visterm.learners import Blend, KNNAnnotator, load_learner
from visterm.learners.validation import CAUTIOUS, CAUTIOUS_SPARSE
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.search import opened
from visterm.pipeline.store.files import write_record
from visterm.pipeline.store.run import run_at


def test_as_many_results_as_there_are_or_none(searcher, finished):
    (answer,) = searcher.search("id:1", k=1_000_000)
    assert len(answer["results"]) == 29
    (answer,) = searcher.search_label("pear", k=1_000_000)
    assert len(answer["results"]) == 30
    with pytest.raises(UserError, match="k 0: give a number of at least 1"):
        searcher.annotate("id:1", k=0)
    said = visterm("search", "id:1", "--offset", "29", "--run", "fruit", cwd=finished)
    assert said.stdout.splitlines()[1:] == ["no results"]


def test_a_run_is_opened_by_its_name_or_its_folder_also_in_another_process(searcher, finished, tmp_path, monkeypatch):
    monkeypatch.chdir(finished)
    data = pickle.dumps(Searcher("fruit"))
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(data).search("id:1", k=3) == searcher.search("id:1", k=3)  # as joblib sends it
    monkeypatch.chdir(finished)
    for run in ("fruit", "runs/fruit", finished / "runs/fruit"):
        assert len(Searcher(run).images) == len(open_run(run).paths) == 30
    with monkeypatch.context() as patch:  # images in a folder that looks like a run
        patch.setattr(Path, "is_dir", lambda path: path.name == "collection" or os.path.isdir(path))
        assert run_at("fruit").folder == Path("runs/fruit")
    monkeypatch.chdir(finished / "fruit")
    monkeypatch.setenv("VISTERM_RUNS", "../runs")
    assert len(Searcher("fruit").images) == len(open_run("fruit").paths) == 30
    for opener in (Searcher, open_run, LabelEditor):
        with pytest.raises(UserError, match=r"no run fruits in \.\./runs \(did you mean fruit\?\)"):
            opener("fruits")


def test_a_query_that_compiles_kernels_says_so(finished, outside, monkeypatch, capsys):
    read = opened.read_queries
    monkeypatch.setattr(opened, "read_queries", lambda *arguments: numba.njit(lambda x: x + 1)(1) and read(*arguments))
    searcher = Searcher(finished / "runs/fruit", console=Console())
    capsys.readouterr()
    searcher.queries(["id:1", "pear/0.jpg"])  # of the run, whose vectors are there
    assert capsys.readouterr().err == ""
    searcher.queries([str(outside / "pear/new.jpg")])
    assert capsys.readouterr().err.startswith("compiling kernels, up to half a minute")


def test_every_learner_answers_as_the_command_does(searcher, finished):
    for name in searcher.learners:
        (answer,) = searcher.search("id:7", k=5, learner=name)
        told = visterm("search", "id:7", "-k", 5, "--learner", name, "--json", cwd=finished).stdout
        assert json.loads(told) == [answer]
        assert all(searcher.images[searcher.place[r["id"]]].path == r["path"] for r in answer["results"])
    with pytest.raises(UserError, match="did you mean oasis"):
        searcher.search("id:1", learner="oassis")
    with pytest.raises(UserError, match="no trained aroma"):
        searcher.search("id:1", learner="aroma")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", ["oasis", "wsabie", "cosine"])
def test_a_share_of_what_was_learned(searcher, name):
    """Nothing of it is the plain look, all of it the learner; between them one index serves every share."""
    (look,) = searcher.search("id:7", k=29, learner="cosine")
    (learned,) = searcher.search("id:7", k=29, learner=name, learned_weight=1)
    chosen = searcher.share(name)
    # Three classes are too few to hold some out.
    assert chosen == {"oasis": CAUTIOUS_SPARSE, "wsabie": CAUTIOUS, "cosine": 1}[name]
    assert searcher.search("id:7", k=29, learner=name) == searcher.search(
        "id:7", k=29, learner=name, learned_weight=chosen
    )
    none = searcher.search("id:7", k=29, learner=name, learned_weight=0.0)[0]
    assert [row["id"] for row in none["results"]] == [row["id"] for row in look["results"]]
    scale = searcher.blend(name, 0.3).scale
    (mixed,) = searcher.search("id:7", k=29, learner=name, learned_weight=0.3)
    of_look, of_learned = ({row["id"]: row["score"] for row in answer["results"]} for answer in (look, learned))
    for row in mixed["results"]:
        expected = 0.7 * of_look[row["id"]] + 0.3 * scale * of_learned[row["id"]]
        assert row["score"] == pytest.approx(expected, abs=1e-4)
    galleries = [searcher.index(name, share).gallery_ for share in (0.1, 0.6)]
    assert galleries[0] is galleries[1]
    (few,) = searcher.search("id:7", 29, name, learned_weight=0.3, label="plum")  # an index of its own
    assert few["results"]
    assert {(row["id"], row["score"]) for row in few["results"]} <= {
        (row["id"], row["score"]) for row in mixed["results"]
    }
    (few,) = searcher.search("id:7", 29, name, learned_weight=0.1, label="plum")  # the same, ranked by another weight
    scores = {row["id"]: row["score"] for row in searcher.search("id:7", 29, name, learned_weight=0.1)[0]["results"]}
    assert [row["score"] for row in few["results"]] == [scores[row["id"]] for row in few["results"]]
    (several,) = searcher.search("id:7", 5, name, example="id:9@0.5", learned_weight=0.3)
    assert len(several["results"]) == 5


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", ["exact", "two-stage", pytest.param("milvus", marks=pytest.mark.slow)])
@pytest.mark.parametrize("chosen", [0.35, 1.0])
def test_the_share_of_a_run_is_what_training_chose(mine, kind, chosen):
    """Whatever the index, and also where the gallery side is not the vectors: wsabie's."""
    if kind == "milvus":
        pytest.importorskip("milvus_lite")
    visterm("features", "fruit", "--set", f"index.kind={kind}", cwd=mine)
    visterm("train", "--learner", "oasis,wsabie", "--for", "seen", "--set", f"train.learned_weight={chosen}", cwd=mine)
    searcher = Searcher(mine / "runs/fruit")
    X = searcher.X[[7]], searcher.X
    try:
        for name in ("oasis", "wsabie"):
            learner = load_learner(mine / "runs/fruit/learners" / name / "files")
            assert searcher.share(name) == learner.learned_weight_ == chosen
            by_default = searcher.search("id:8", k=29, learner=name)
            assert by_default == searcher.search("id:8", k=29, learner=name, learned_weight=chosen)
            for share in (chosen, 1, 0.7, 0):
                (answer,) = searcher.search("id:8", k=29, learner=name, learned_weight=share)
                scale = searcher.blend(name, 0.5).scale
                expected = Blend(learner, share, scale=1 if share == 1 else scale).similarity(*X)[0]
                scores = {row["id"]: row["score"] for row in answer["results"]}
                assert len(scores) == 29
                for number, score in scores.items():
                    assert score == pytest.approx(expected[searcher.place[number]], abs=1e-5)
        kept = {path.name for path in (mine / "runs/fruit/index").glob("*/")} - {"milvus.db"}
        looks = {"wsabie_look"} if chosen == 1 else set()  # another index where all of it counts by default
        assert kept == (set() if kind == "exact" else {"oasis", "wsabie"} | looks)
        searcher.forget_index("wsabie")
        assert not [path for path in (mine / "runs/fruit/index").glob("wsabie*")]
    finally:
        if kind == "milvus":
            from visterm.plugins.milvus.milvus_connection import close_file

            close_file(os.fspath(mine / "runs/fruit/index/milvus.db"))


@pytest.mark.usefixtures("alone")
def test_of_a_model_that_was_saved_before_there_were_shares_all_counts(mine):
    """It has no share, no scale and no whitening."""
    for name in ("oasis", "wsabie"):
        file = mine / "runs/fruit/learners" / name / "files/learner.json"
        saved = json.loads(file.read_text())
        for key in ("learned_weight_", "scale_", "worlds_", "world_", "shares_"):
            del saved["state"][key]
        del saved["params"]["whiten"]
        file.write_text(json.dumps(saved))
        record = json.loads((file.parents[1] / "record.json").read_text())
        for noted in ("sizes", "crc32"):
            del record[noted]["files/learner.json"]
        write_record(file.parents[1] / "record.json", record)
    searcher = Searcher(mine / "runs/fruit")
    for name in ("oasis", "wsabie"):
        learner = searcher.learner(name)
        assert (searcher.share(name), learner.is_whitened()) == (1, False)
        assert searcher.blend(name) is learner
        assert searcher.index(name).learner is learner
        (answer,) = searcher.search("id:8", k=29, learner=name)
        expected = learner.similarity(searcher.X[[7]], searcher.X)[0]
        assert answer["results"][0]["score"] == pytest.approx(np.delete(expected, 7).max(), abs=1e-5)
        assert searcher.search("id:8", learner=name, learned_weight=0.2) != searcher.search("id:8", learner=name)


def test_the_next_searcher_shares_the_indexes_of_learners_that_stay(mine):
    """Also the one for other shares than all."""
    visterm("train", "--learner", "wsabie", "--for", "seen", "--set", "train.learned_weight=1", cwd=mine)
    one = Searcher(mine / "runs/fruit")
    galleries = [one.index("wsabie", share).gallery_ for share in (None, 0.5)]
    assert galleries[0] is not galleries[1]
    other = Searcher(mine / "runs/fruit", like=one)
    assert all(other.index("wsabie", share).gallery_ is old for share, old in zip((None, 0.5), galleries, strict=True))
    assert other.index("wsabie", 0.2).gallery_ is galleries[1]


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


def test_importing_the_room_is_quick():
    """The class is loaded when it is asked for: ``visterm --help`` must not wait for it."""
    code = "import sys, visterm.pipeline; assert 'numpy' not in sys.modules; visterm.pipeline.Searcher"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_deleted_photos_do_not_fit_a_label(mine):
    searcher = Searcher(mine / "runs" / "fruit")

    def fitting(**options):
        return [result["path"] for result in searcher.search_label("pear", learner="wsabie", **options)[0]["results"]]

    before = fitting(k=30)
    for path in (before[0], before[2]):
        (mine / "fruit" / path).unlink()
    left = [path for path in before if path not in (before[0], before[2])]
    assert fitting(k=4) == left[:4]
    assert fitting(k=3, offset=2) == left[2:5]
    assert fitting(k=30) == left


def test_the_nearest_labels_need_no_training(searcher, outside, mine, capsys):
    """They are the votes of `KNNAnnotator`, of all labelled images but the query."""
    query, rest = 3, [row for row in range(len(searcher.images)) if row != 3]
    labels = [next(iter(searcher.images[row].labels)) for row in rest]
    knn = KNNAnnotator(n_neighbors=searcher.config.knn.n_neighbors).fit(searcher.X[rest], labels)
    numbers, scores = knn.annotate(searcher.X[[query]], 3)
    ((first, *others),) = [
        answer["labels"] for answer in searcher.annotate(f"id:{searcher.images[query].id}", learner="knn")
    ]
    assert first["label"] == next(iter(searcher.images[query].labels))
    expected = [(knn.classes_[number], score) for number, score in zip(numbers[0], scores[0], strict=True) if score > 0]
    assert [one["label"] for one in (first, *others)] == [name for name, _ in expected]
    np.testing.assert_allclose([one["score"] for one in (first, *others)], [score for _, score in expected], rtol=1e-4)

    shutil.rmtree(mine / "runs/fruit/learners/wsabie")
    told = Searcher(mine / "runs/fruit", console=Console())
    assert told.annotators == []
    by_default = told.annotate(outside)
    assert [answer["labels"][0]["label"] for answer in by_default] == ["apple", "pear", "plum"]
    assert by_default == told.annotate(outside, learner="knn") == searcher.annotate(outside, learner="knn")
    assert capsys.readouterr().err.count("by knn, which needs no training; no learner of run fruit") == 1


def test_without_a_learner_of_labels_the_labelled_photos_rank(mine, capsys):
    shutil.rmtree(mine / "runs/fruit/learners/wsabie")
    searcher = Searcher(mine / "runs/fruit", console=Console())
    (answer,) = searcher.search_label("plum", k=30)
    assert answer["query"] == "plum"
    assert [result["labels"] for result in answer["results"][:10]] == [["plum"]] * 10
    line = "by oasis, similarity to the mean of the images labelled plum: no learner that ranks labels is used"
    assert capsys.readouterr().err.splitlines()[-1] == line
    plums = [row for row, image in enumerate(searcher.images) if "plum" in image.labels]
    mean = np.asarray(searcher.X[plums].mean(axis=0), np.float32)
    Q = sparse.csr_matrix(mean / np.linalg.norm(mean))
    expected = searcher.ranking_index("oasis").search(Q, k=30)
    assert [searcher.place[result["id"]] for result in answer["results"]] == expected.indices[0].tolist()
    np.testing.assert_allclose([result["score"] for result in answer["results"]], expected.scores[0], rtol=1e-4)

    (both,) = searcher.search_label(["plum", "pear"], k=3, learner="cosine", not_label="plum", offset=1)
    assert [result["labels"] for result in both["results"]] == [["pear"]] * 3
    assert [result["rank"] for result in both["results"]] == [2, 3, 4]
    with pytest.raises(UserError, match="no label 'plumb'; did you mean plum"):
        searcher.search_label("plumb")
    with pytest.raises(UserError, match="no label to search by"):
        searcher.search_label([])
    with pytest.raises(UserError, match="no trained wsabie"):  # it was asked for
        searcher.search_label("plum", learner="wsabie")
    assert line in visterm("search", "--label", "plum", "-k", 1, cwd=mine).stderr


def test_the_nearest_labels_are_those_of_the_moment(run):
    images = Searcher(run).images
    plums = [image.id for image in images if "plum" in image.labels]
    editor = LabelEditor(run)
    for name in ("apple", "pear", "plum"):
        editor.remove(name, [image.id for image in images if name in image.labels])
    with pytest.raises(UserError, match="no labels that knn could learn from"):
        Searcher(run).annotate(f"id:{plums[0]}", learner="knn")
    editor.add("ripe", plums[:2])
    ((suggested,),) = [answer["labels"] for answer in Searcher(run).annotate(f"id:{plums[5]}", learner="knn")]
    assert suggested["label"] == "ripe"  # of all images, only few have a label


@pytest.mark.parametrize("limit", [0, 100_000_000])
def test_a_learner_in_use_outlives_files_that_are_cut_short(run, monkeypatch, limit):
    """One that is mapped is refused: reading beyond the end of its file would end the process."""
    monkeypatch.setattr("visterm.pipeline.store.models._WHOLE_BYTES", limit)
    searcher = Searcher(run)
    before = {name: searcher.search("id:1", learner=name) for name in searcher.learners}
    for file in run.folder.glob("learners/*/files/*.npy"):
        os.truncate(file, 10)
    for name, answers in before.items():
        if limit or name == "cosine":
            assert searcher.search("id:1", learner=name) == answers
            continue
        reason = f"cut short while it was in use; run 'visterm train --learner {name}"
        with pytest.raises(UserError, match=reason):
            searcher.search("id:1", learner=name)
        with pytest.raises(UserError, match=reason):
            searcher.index(name)
