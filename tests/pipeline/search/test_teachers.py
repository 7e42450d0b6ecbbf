"""Which training images made two images similar: the sum is the score that search shows."""

import json
import shutil

import numpy as np
import pytest
from running import refused, visterm

from visterm.pipeline import Searcher, explain_pair
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.feedback import update as feedback_update
from visterm.pipeline.feedback.update import FeedbackTrainer
from visterm.pipeline.search.teachers import explain_teachers, in_words
from visterm.pipeline.stages import train as train_module
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import load_teachers

QUIET = Console(quiet=True)


def whole(found):
    return found["unlearned"] + found["common"] + found["learned"]


@pytest.mark.parametrize("learned", [None, 1.0, 0.3])
def test_the_parts_add_up_to_the_score_of_search(searcher, outside, learned):
    for query in (outside / "pear/new.jpg", "pear/3.jpg"):
        for result in searcher.search(query, k=3, learned=learned)[0]["results"]:
            found = explain_teachers(searcher, query, result["path"], learned=learned, n_teachers=3)
            assert found["learner"] == "oasis"
            assert found["score"] == pytest.approx(result["score"], abs=2e-6)
            assert whole(found) == pytest.approx(result["score"], rel=1e-4, abs=1e-5)
            listed = sum(one["contribution"] for one in found["pairs"]) + found["rest"]
            assert listed == pytest.approx(found["learned"], rel=1e-4, abs=1e-6)
            assert found == json.loads(json.dumps(found))


def test_teachers_are_training_images_with_what_stands_behind_them(searcher):
    training = {image.path for image in searcher.gallery.training_images}
    found = explain_pair(searcher, "pear/3.jpg", "pear/4.jpg", "oasis", learned=1.0, n_teachers=4)["teachers"]
    assert found["pairs"]
    for one in found["pairs"]:
        sides = one["query"], one["result"]
        assert {side["path"] for side in sides} <= training
        assert one["together"] == (one["label"] is not None)  # oasis puts together what shares a label
        assert one["label"] is None or all(one["label"] in side["labels"] for side in sides)
        assert one["mark"] is None
    signs = [one["contribution"] for one in found["pairs"]]
    assert signs == [*sorted((s for s in signs if s > 0), reverse=True), *sorted(s for s in signs if s < 0)]


def test_the_command_prints_a_table_or_json(finished):
    call = ["explain", "pear/3.jpg", "pear/4.jpg", "--run", "fruit", "--teachers", "--pairs", "2"]
    lines = visterm(*call, cwd=finished).stdout.splitlines()
    assert lines[0].startswith("pear/3.jpg and pear/4.jpg: ")
    assert "without learning" in lines[1]
    assert "like the query" in lines[2]
    found = json.loads(visterm(*call, "--json", cwd=finished).stdout)
    assert in_words(found) == lines
    assert "oasis has one" in refused(*call, "--learner", "wsabie", cwd=finished)
    assert "--output" in refused(*call, "--output", "a.png", cwd=finished)


def test_a_learner_without_a_table_says_how_to_make_one(mine, monkeypatch):
    run = Run(mine / "runs/fruit")
    monkeypatch.setattr(train_module, "MOST_IMAGES", 0)
    train_module.train(run, load_config(run.folder / "config.yaml", []), "oasis", QUIET, force=True)
    with pytest.raises(UserError, match="'visterm train --learner oasis --run fruit --force' to make one"):
        explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg")
    assert load_teachers(run.learner("oasis")) is None


def test_removed_images_stay_teachers(mine):
    run = Run(mine / "runs/fruit")
    before = explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg", learned=1.0)
    taught = [one[side]["path"] for one in before["pairs"] for side in ("query", "result")]
    gone = next(path for path in taught if path not in ("pear/3.jpg", "pear/4.jpg"))
    visterm("remove", gone, "--run", "fruit", cwd=mine)
    after = explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg", learned=1.0)
    assert whole(after) == pytest.approx(whole(before))
    assert None in [one[side]["path"] for one in after["pairs"] for side in ("query", "result")]
    assert "(not in the run)" in "\n".join(in_words(after))


def test_damage_never_changes_a_score_and_is_told_where_it_matters(mine):
    run = Run(mine / "runs/fruit")
    wanted = Searcher(run).search("pear/3.jpg", k=5)
    for spoiled in (*run.learner("oasis").glob("files/teachers_*.npy"), *(run.learner("oasis") / "teachers").iterdir()):
        kept = spoiled.read_bytes()
        for content in (b"", kept[:-8], kept[:-4] + b"\x7f\x7f\x7f\x7f"):
            spoiled.write_bytes(content)
            searcher = Searcher(run)
            assert searcher.search("pear/3.jpg", k=5) == wanted
            if content != kept:
                with pytest.raises(UserError, match="visterm train --learner oasis .*--force"):
                    explain_teachers(searcher, "pear/3.jpg", "pear/4.jpg")
        spoiled.write_bytes(kept)
    shutil.rmtree(run.learner("oasis") / "teachers")
    with pytest.raises(UserError, match="without a table of teachers"):
        explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg")


def test_marks_are_teachers_with_their_number_and_time(mine, monkeypatch):
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)  # these marks contradict the labels, so that all are learned
    run = Run(mine / "runs/fruit")
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    images = {image.path: image for image in searcher.images}
    for path, mark in (("plum/5.jpg", 1), ("plum/6.jpg", 1), ("pear/1.jpg", -1), ("pear/2.jpg", -1)):
        trainer.marks.add(images["pear/3.jpg"].sha256, images[path], mark, learner="oasis")
    assert trainer.update("oasis")["accepted"]
    searcher = Searcher(run)
    found = explain_teachers(searcher, "pear/3.jpg", "plum/5.jpg", learned=1.0, n_teachers=500)
    score = searcher.search("pear/3.jpg", k=len(searcher.images), learned=1.0)[0]["results"]
    assert whole(found) == pytest.approx(next(r["score"] for r in score if r["path"] == "plum/5.jpg"), rel=1e-4)
    of_marks = [one for one in found["pairs"] if one["mark"] is not None]
    assert {one["mark"]["number"] for one in of_marks} >= {1}
    numbers = {mark.number: mark.time for marks in trainer.marks.standing().values() for mark in marks}
    assert all(numbers[one["mark"]["number"]] == one["mark"]["time"] for one in of_marks)
    assert any(f"mark {of_marks[0]['mark']['number']}, " in line for line in in_words(found))
    trainer.undo("oasis")
    assert not any(one["mark"] for one in explain_teachers(Searcher(run), "pear/3.jpg", "plum/5.jpg")["pairs"])


def test_vectors_of_teachers_are_those_of_the_training(mine):
    run = Run(mine / "runs/fruit")
    searcher = Searcher(run)
    taught = load_teachers(run.learner("oasis"))
    rows = [searcher.place[row["id"]] for row in taught.rows]
    assert [searcher.images[row].id for row in rows] == [image.id for image in searcher.gallery.training_images]
    np.testing.assert_array_equal(taught.X.toarray(), searcher.X[rows].toarray())
