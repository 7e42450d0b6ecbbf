"""Learning again after labels changed: what is trained, what is taken, and what can be brought back."""

import re
import shutil
import signal

import pytest
from running import CLASSES, NOT_EXCHANGED, SMALL, copy_run, ended_by_signals, json_of, refused, visterm

from visterm.pipeline import FeedbackTrainer, LabelEditor, Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.train import checkpoint_path
from visterm.pipeline.store.files import publish
from visterm.pipeline.store.models import trained_record
from visterm.pipeline.store.opened import opened
from visterm.pipeline.store.run import Run
from visterm.teaching import retrain as module
from visterm.teaching.retrain import stale_learners, train_again, undo_training, undoable

ALL = ["oasis", "wsabie", "musl"]


def stale(run):
    with opened(run, run.configure(None, []), lock=False) as it:
        return stale_learners(it, it.config, it.training)


def relabel(run, split="train", n=1):
    """Give some apples of a split another label."""
    images = [image for image in Searcher(run).images if image.split == split and "apple" in image.labels][:n]
    edits = [(image.id, label, change) for image in images for label, change in (("apple", -1), ("pear", 1))]
    LabelEditor(run).edit(edits)


def files(run, learner):
    """The bytes of a model, and when it was made."""
    folder = run.learner(learner) / "files"
    made = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return trained_record(run, learner)["created"], made


def test_learners_that_have_not_learned_the_labels_of_now(run):
    assert stale(run) == []
    relabel(run, split="test")
    assert stale(run) == []
    relabel(run)
    assert stale(run) == ALL
    LabelEditor(run).undo()
    assert stale(run) == []
    assert train_again(run) == []


def test_the_report_says_which_images_decided(mine, monkeypatch):
    visterm("evaluate", "--force", cwd=mine)
    report = mine / "runs/fruit/evaluations/oasis/report.html"
    assert "decided that the model" not in report.read_text()
    run = Run(mine / "runs/fruit")
    relabel(run)
    monkeypatch.setattr(module, "TOLERANCE", 1.0)
    train_again(run)
    visterm("evaluate", "--learner", "oasis", cwd=mine)
    words = "test images, all of them, decided that the model of oasis was taken: its figures are flattered"
    assert words in report.read_text()


def test_new_models_are_taken_and_the_old_ones_brought_back(run, monkeypatch):
    before, version = {name: files(run, name) for name in ALL}, Searcher(run).version
    relabel(run)
    labels = Searcher(run).version
    monkeypatch.setattr(module, "TOLERANCE", 1.0)
    results = train_again(run)
    assert [result["learner"] for result in results if result["taken"]] == ALL
    for result in results:
        assert all(0 <= result[when] <= 1 for when in ("before", "after"))
        assert re.fullmatch(r"\d+ test images", result["measured_on"])
        assert files(run, result["learner"])[0] != before[result["learner"]][0]
    assert (stale(run), undoable(run)) == ([], results)
    assert Searcher(run).learners == [*ALL, "cosine"]  # what is kept is no learner
    assert undo_training(run) == ALL
    assert {name: files(run, name) for name in ALL} == before
    assert (stale(run), undoable(run), Searcher(run).version) == (ALL, [], labels)
    with pytest.raises(UserError, match="no training to undo"):
        undo_training(run)
    LabelEditor(run).undo()
    assert Searcher(run).version == version


def test_a_model_that_ranks_held_out_images_worse_is_not_taken(run, monkeypatch):
    before = files(run, "oasis")
    relabel(run)
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    results = train_again(run)
    assert [result["taken"] for result in results] == [False] * 3
    assert re.search(r"held-out mAP would fall from [01]\.\d+ to [01]\.\d+ \(\d+ test images\)", results[0]["reason"])
    assert files(run, "oasis") == before
    assert (stale(run), undoable(run)) == (ALL, [])
    assert sorted(path.name for path in (run.folder / "learners").iterdir()) == sorted(ALL)


def test_figures_are_of_the_labels_of_now(run, monkeypatch):
    """Both models rank images whose labels say nothing about them any more."""
    relabel(run)
    monkeypatch.setattr(module, "TOLERANCE", -1.0)
    first = train_again(run)[0]
    images = [image for image in Searcher(run).images if image.split == "test"]
    names = sorted(CLASSES)
    LabelEditor(run).edit(
        [
            (image.id, label, change)
            for number, image in enumerate(images)
            for label, change in ((next(iter(image.labels)), -1), (names[number % 3], 1))
        ]
    )
    second = train_again(run)[0]
    assert second["before"] < first["before"] - 0.1


def test_the_first_training_is_compared_with_how_images_look(run, monkeypatch):
    shutil.rmtree(run.folder / "learners")
    assert stale(run) == ["oasis"]
    monkeypatch.setattr(module, "TOLERANCE", 1.0)
    (result,) = train_again(run)
    assert (result["learner"], result["taken"]) == ("oasis", True)
    assert result["before"] is not None
    assert (stale(run), undoable(run)) == ([], [])


def test_marks_teach_a_run_without_labels(tmp_path, write_images):
    write_images(tmp_path / "flat", [f"{label}{i}.jpg" for label in CLASSES for i in range(4)])
    visterm("features", "flat", *SMALL, cwd=tmp_path)
    run = Run(tmp_path / "runs" / "flat")
    assert stale(run) == []
    image = {image.path: image for image in Searcher(run).images}
    marks = FeedbackTrainer(run).marks
    for path, mark in (("apple1.jpg", 1), ("pear0.jpg", -1)):
        marks.add(image["apple0.jpg"].sha256, image[path], mark, learner="cosine")
    assert stale(run) == ["oasis"]
    (result,) = train_again(run)
    assert (result["taken"], result["before"], result["after"]) == (True, None, None)
    assert stale(run) == []
    marks.add(image["apple0.jpg"].sha256, image["plum0.jpg"], -1, learner="oasis")
    assert stale(run) == ["oasis"]
    first = files(run, "oasis")
    assert train_again(run)[0]["taken"]
    undo_training(run)
    assert files(run, "oasis") == first


def test_a_new_model_learns_the_marks_that_the_old_one_had_learned(run, monkeypatch):
    image = {image.path: image for image in Searcher(run).images}
    trainer = FeedbackTrainer(run)
    for path, mark in (("apple/1.jpg", 1), ("pear/0.jpg", -1)):
        trainer.marks.add(image["apple/0.jpg"].sha256, image[path], mark, learner="oasis")
    assert trainer.update()["accepted"]
    relabel(run)
    monkeypatch.setattr(module, "TOLERANCE", 1.0)
    train_again(run)
    assert FeedbackTrainer(run).status()["learners"]["oasis"]["waiting"] == 0
    assert FeedbackTrainer(run).version("oasis") > 1
    undo_training(run)
    assert FeedbackTrainer(run).status()["learners"]["oasis"]["waiting"] == 0


def test_only_a_checkpoint_of_other_labels_is_discarded(run):
    old = trained_record(run, "oasis")
    with publish(checkpoint_path(run, "oasis"), {key: old[key] for key in ("format", "stage", "config", "inputs")}):
        pass
    relabel(run)
    assert train_again(run)[0]["reason"] is None or "would fall" in train_again(run)[0]["reason"]
    LabelEditor(run).undo()
    other = old["config"] | {"oasis": old["config"]["oasis"] | {"C": 9.0}}
    with publish(checkpoint_path(run, "oasis"), old | {"config": other, "inputs": {}}):
        pass
    relabel(run, n=2)
    with pytest.raises(UserError, match=r"interrupted training with .*C=9\.0"):
        train_again(run)
    assert checkpoint_path(run, "oasis").exists()


def test_another_command_at_work_is_one_line(run):
    relabel(run)
    with run.locked(), pytest.raises(UserError, match="another visterm is at work"):
        train_again(run)


def test_from_the_command_line(mine, run):
    assert (
        "nothing to learn: learners have learned the labels of this run, or it has fewer than two"
        in visterm("train", "--again", cwd=mine).stderr
    )
    relabel(run)
    results = json_of("train", "--again", cwd=mine)
    assert [result["learner"] for result in results] == ALL
    taken = [result["learner"] for result in results if result["taken"]]
    if taken:
        assert json_of("train", "--undo", cwd=mine) == taken
    assert "no training to undo" in refused("train", "--undo", cwd=mine)
    assert "--again takes no other option" in refused("train", "--again", "--force", cwd=mine)
    assert "takes no other option" in refused("train", "--again", "--undo", cwd=mine)


MOMENTS = (
    "visterm.learners:OASIS fit 1",
    "visterm.teaching.retrain _measure 1",  # trained, and not compared
    "os link 2",  # the old model is half-kept
    "pathlib:Path rename 1",  # the old model is kept, and the folder has not its name
    "visterm.pipeline.store.files exchanged 1",  # before the old and the new model take each other's place
    f"pathlib:Path rename 2 {NOT_EXCHANGED}",  # where they cannot: before the old model leaves its place
    f"pathlib:Path rename 3 {NOT_EXCHANGED}",  # it has left its place, the new one is not there
    "visterm.teaching.retrain _learn_marks 1",  # the new model is there
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_leaves_the_old_or_the_new_model(finished, tmp_path, number):
    """At any moment: searches use one of both, and the next training ends."""
    copy_run(finished, tmp_path / "whole")
    for learner in ("wsabie", "musl"):
        shutil.rmtree(tmp_path / "whole/runs/fruit/learners" / learner)
    whole = Run(tmp_path / "whole/runs/fruit")
    relabel(whole)
    old = files(whole, "oasis")
    copy_run(tmp_path / "whole", tmp_path / "undisturbed")
    done = json_of("train", "--again", cwd=tmp_path / "undisturbed")
    assert done[0]["taken"], done
    new = files(Run(tmp_path / "undisturbed/runs/fruit"), "oasis")
    states = []
    folders = [copy_run(tmp_path / "whole", tmp_path / str(place)) for place in range(len(MOMENTS))]
    with ended_by_signals() as end:
        for folder, moment in zip(folders, MOMENTS, strict=True):
            end(number, moment, "train", "--again", cwd=folder)
    for folder, moment in zip(folders, MOMENTS, strict=True):
        run = Run(folder / "runs/fruit")
        with run.locked():  # as the next command: it puts back what was between two names
            pass
        model = files(run, "oasis")
        states.append("old" if model == old else "new" if model[1] == new[1] else "neither")
        assert Searcher(run).search([Searcher(run).images[0].path], k=1) is not None
        results = train_again(run)
        assert stale(run) == []
        assert files(run, "oasis")[1] == new[1], (moment, results)
        assert undo_training(run) == ["oasis"], moment
        assert files(run, "oasis") == old, moment
    assert states == ["old"] * (len(MOMENTS) - 1) + ["new"]
