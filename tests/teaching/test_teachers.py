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
from visterm.pipeline.stages import train as train_module
from visterm.pipeline.store.checksums import files_crc32
from visterm.pipeline.store.files import write_record
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.teachers import load_teachers
from visterm.teaching import feedback as feedback_update
from visterm.teaching.feedback import FeedbackTrainer
from visterm.teaching.teachers import explain_teachers, in_words

QUIET = Console(quiet=True)


def whole(explanation):
    return explanation["unlearned"] + explanation["common"] + explanation["learned"]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("learned_weight", [None, 1.0, 0.3])
def test_the_parts_add_up_to_the_score_of_search(searcher, outside, learned_weight):
    for query in (outside / "pear/new.jpg", "pear/3.jpg"):
        for result in searcher.search(query, k=3, learned_weight=learned_weight)[0]["results"]:
            explanation = explain_teachers(searcher, query, result["path"], learned_weight=learned_weight, n_teachers=3)
            assert explanation["learner"] == "oasis"
            assert explanation["score"] == pytest.approx(result["score"], abs=2e-6)
            assert whole(explanation) == pytest.approx(result["score"], rel=1e-4, abs=1e-5)
            listed = sum(one["contribution"] for one in explanation["pairs"]) + explanation["rest"]
            assert listed == pytest.approx(explanation["learned"], rel=1e-4, abs=1e-6)
            assert explanation == json.loads(json.dumps(explanation))


def test_teachers_are_training_images_with_what_stands_behind_them(searcher):
    training = {image.path for image in searcher.gallery.training_images}
    teachers = explain_pair(searcher, "pear/3.jpg", "pear/4.jpg", "oasis", learned_weight=1.0, n_teachers=4)["teachers"]
    assert teachers["pairs"]
    for one in teachers["pairs"]:
        sides = one["query"], one["result"]
        assert {side["path"] for side in sides} <= training
        assert one["together"] == (one["label"] is not None)  # oasis puts together what shares a label
        assert one["label"] is None or all(one["label"] in side["labels"] for side in sides)
        assert one["mark"] is None
    signs = [one["contribution"] for one in teachers["pairs"]]
    assert signs == [*sorted((s for s in signs if s > 0), reverse=True), *sorted(s for s in signs if s < 0)]


def test_the_command_prints_a_table_or_json(finished):
    call = ["explain", "pear/3.jpg", "pear/4.jpg", "--run", "fruit", "--teachers", "--pairs", "2"]
    lines = visterm(*call, cwd=finished).stdout.splitlines()
    assert lines[0].startswith("pear/3.jpg and pear/4.jpg: ")
    assert "without learning" in lines[1]
    assert "like the query" in lines[2]
    explanation = json.loads(visterm(*call, "--json", cwd=finished).stdout)
    assert in_words(explanation) == lines
    assert "oasis has one" in refused(*call, "--learner", "wsabie", cwd=finished)
    assert "--output" in refused(*call, "--output", "a.png", cwd=finished)


def test_a_learner_without_a_table_says_how_to_make_one(run, monkeypatch):
    monkeypatch.setattr(train_module, "MOST_IMAGES", 0)
    train_module.train(run, load_config(run.folder / "config.yaml", []), "oasis", QUIET, force=True)
    with pytest.raises(UserError, match="'visterm train --learner oasis --run fruit --force' to make one"):
        explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg")
    assert load_teachers(run.learner("oasis")) is None


def test_removed_images_stay_teachers(mine, run):
    before = explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg", learned_weight=1.0)
    taught = [one[side]["path"] for one in before["pairs"] for side in ("query", "result")]
    gone = next(path for path in taught if path not in ("pear/3.jpg", "pear/4.jpg"))
    visterm("remove", gone, "--run", "fruit", cwd=mine)
    after = explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg", learned_weight=1.0)
    assert whole(after) == pytest.approx(whole(before))
    assert None in [one[side]["path"] for one in after["pairs"] for side in ("query", "result")]
    assert "(not in the run)" in "\n".join(in_words(after))


def test_damage_never_changes_a_score_and_is_told_where_it_matters(run):
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


@pytest.mark.usefixtures("alone")
def test_marks_are_teachers_with_their_number_and_time(run, monkeypatch):
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)  # these marks contradict the labels, so that all are learned
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    images = {image.path: image for image in searcher.images}
    for path, mark in (("plum/5.jpg", 1), ("plum/6.jpg", 1), ("pear/1.jpg", -1), ("pear/2.jpg", -1)):
        trainer.marks.add(images["pear/3.jpg"].sha256, images[path], mark, learner="oasis")
    assert trainer.update("oasis")["accepted"]
    searcher = Searcher(run)
    explanation = explain_teachers(searcher, "pear/3.jpg", "plum/5.jpg", learned_weight=1.0, n_teachers=500)
    score = searcher.search("pear/3.jpg", k=len(searcher.images), learned_weight=1.0)[0]["results"]
    assert whole(explanation) == pytest.approx(next(r["score"] for r in score if r["path"] == "plum/5.jpg"), rel=1e-4)
    of_marks = [one for one in explanation["pairs"] if one["mark"] is not None]
    assert {one["mark"]["number"] for one in of_marks} >= {1}
    numbers = {mark.number: mark.time for marks in trainer.marks.standing().values() for mark in marks}
    assert all(numbers[one["mark"]["number"]] == one["mark"]["time"] for one in of_marks)
    assert any(f"mark {of_marks[0]['mark']['number']}, " in line for line in in_words(explanation))
    trainer.undo("oasis")
    assert not any(one["mark"] for one in explain_teachers(Searcher(run), "pear/3.jpg", "plum/5.jpg")["pairs"])


def test_vectors_of_teachers_are_those_of_the_training(run):
    searcher = Searcher(run)
    taught = load_teachers(run.learner("oasis"))
    rows = [searcher.place[row["id"]] for row in taught.rows]
    assert [searcher.images[row].id for row in rows] == [image.id for image in searcher.gallery.training_images]
    np.testing.assert_array_equal(taught.X.toarray(), searcher.X[rows].toarray())


def test_a_forgotten_image_leaves_the_learner_and_its_table_and_comes_back_with_undo(mine, run, monkeypatch):
    before = Searcher(run).search("pear/3.jpg", k=20, learned_weight=1.0)
    explanation = explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg", learned_weight=1.0, n_teachers=500)
    sides = [one[side] for one in explanation["pairs"] for side in ("query", "result")]
    gone = next(side for side in sides if side["path"] not in ("pear/3.jpg", "pear/4.jpg"))
    part = sum(p["contribution"] for p in explanation["pairs"] if gone["id"] in (p["query"]["id"], p["result"]["id"]))

    monkeypatch.setattr(feedback_update, "MAX_FALL", -1.0)
    assert "held-out mAP would fall" in refused("forget", f"id:{gone['id']}", cwd=mine)
    assert Searcher(run).search("pear/3.jpg", k=20, learned_weight=1.0) == before
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)
    done = visterm("forget", f"id:{gone['id']}", cwd=mine)
    assert f"id:{gone['id']}  {gone['path']}" in done.stdout
    assert "version 0 to 1: forgot 1 image" in done.stderr
    assert "held-out mAP" in done.stderr

    after = explain_teachers(Searcher(run), "pear/3.jpg", "pear/4.jpg", learned_weight=1.0, n_teachers=500)
    assert not any(gone["id"] in (p["query"]["id"], p["result"]["id"]) for p in after["pairs"])
    assert after["learned"] == pytest.approx(explanation["learned"] - part, rel=1e-4, abs=1e-6)
    assert whole(after) == pytest.approx(after["score"], rel=1e-4)
    assert "has forgotten it already" in refused("forget", gone["path"], cwd=mine)
    assert FeedbackTrainer(run).undo("oasis")["to_version"] == 0
    assert Searcher(run).search("pear/3.jpg", k=20, learned_weight=1.0) == before


def test_marks_are_forgotten_and_later_updates_do_not_bring_back_what_was(run, monkeypatch):
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    images = {image.path: image for image in searcher.images}
    query = images["pear/3.jpg"].sha256
    for path, mark in (("plum/5.jpg", 1), ("plum/6.jpg", 1), ("pear/1.jpg", -1)):
        trainer.marks.add(query, images[path], mark, learner="oasis")
    trained = next(image for image in searcher.images if image.split == "train" and image.path.startswith("apple"))
    assert trainer.update("oasis")["accepted"]
    done = trainer.forget(["mark:1"])
    assert (done["marks"], done["to_version"]) == ([1], 2)
    assert [mark.number for mark in trainer.marks.of(query)] == [2, 3]
    assert trainer.marks.export()[-1]["mark"] == 0  # it stays in the record, as taken back
    with pytest.raises(UserError, match="mark:1: this mark was taken back"):
        trainer.forget(["mark:1"])
    with pytest.raises(UserError, match="mark:99: this mark does not exist"):
        trainer.forget(["mark:99"])

    assert trainer.forget([trained.path, "plum/6.jpg"])["marks"] == [2]
    trainer.marks.add(query, images["plum/7.jpg"], 1, learner="oasis")
    assert trainer.update("oasis")["accepted"]
    explanation = explain_teachers(Searcher(run), "pear/3.jpg", "plum/7.jpg", learned_weight=1.0, n_teachers=500)
    assert {one["mark"]["number"] for one in explanation["pairs"] if one["mark"]} <= {3, 5}
    assert trained.id not in {one[side]["id"] for one in explanation["pairs"] for side in ("query", "result")}
    assert whole(explanation) == pytest.approx(explanation["score"], rel=1e-4)


def test_what_cannot_be_forgotten_is_said_in_one_line(mine):
    test = next(image.path for image in Searcher(Run(mine / "runs/fruit")).images if image.split == "test")
    assert f"{test}: oasis never learned from it" in refused("forget", test, cwd=mine)
    assert "has no image pear/99.jpg" in refused("forget", "pear/99.jpg", cwd=mine)
    assert "wsabie does not learn from marks" in refused("forget", "id:1", "--learner", "wsabie", cwd=mine)
    shutil.rmtree(mine / "runs/fruit/learners/oasis/teachers")
    assert "--force' to make one" in refused("forget", "pear/3.jpg", cwd=mine)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.__setitem__(3, "apple/3.jpg"),
        lambda rows: rows.__setitem__(0, {"id": "12"}),
        lambda rows: rows.__setitem__(0, {"sha256": "ab", "mark": "yes"}),
        lambda rows: rows.pop(),
    ],
)
def test_rows_that_name_no_image_are_damage(run, change):
    """With a checksum that fits, as of a program that wrote them."""
    artifact = run.learner("oasis")
    file, record = artifact / "teachers/rows.json", json.loads((artifact / "record.json").read_text())
    known = json.loads(file.read_text())
    change(known["rows"])
    file.write_text(json.dumps(known))
    record["crc32"] |= files_crc32(artifact, ["teachers/rows.json"])
    write_record(artifact / "record.json", record)
    for call in (["explain", "id:1", "id:2", "--learner", "oasis", "--teachers"], ["forget", "id:1"]):
        line = refused(*call, "--run", "fruit", cwd=run.folder.parents[1])
        assert "teachers: damaged" in line
        assert "visterm train --learner oasis --force --run fruit" in line
