"""Labels that people add and remove: where they reach, that they stay, and that they can be taken back."""

import io
import json
import os
import random
import re
import sqlite3
import sys
from pathlib import Path

import numpy as np
import pytest
from running import json_of, refused, said_until_killed, visterm

from visterm.pipeline import LabelEditor, Searcher
from visterm.pipeline.errors import UserError
from visterm.pipeline.store import label_edits
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.label_edits import LabelEdits, quoted, unquoted
from visterm.pipeline.store.labels import read_labels
from visterm.pipeline.store.splits import Layout
from visterm.teaching import commands_labels as commands

HEBREW = "שקיעה בים"


@pytest.fixture
def editor(mine, monkeypatch):
    monkeypatch.chdir(mine)
    return LabelEditor("fruit")


def labels_of(editor, *images):
    return [sorted(labels) for labels in editor.of(images).values()]


def test_an_edit_reaches_searches_and_training_images(editor):
    editor.add("red", ["apple/0.jpg", "id:2", 3])
    editor.remove("apple", ["apple/0.jpg"])
    assert labels_of(editor, "apple/0.jpg") == [["red"]]
    assert editor.counts() == {"pear": 10, "plum": 10, "apple": 9, "red": 3}
    results = Searcher(editor.run).search("fruit/apple/0.jpg", learner="cosine", k=30, label=["red"])[0]["results"]
    assert len(results) == 3
    assert results[0]["labels"] == ["red"]
    assert (editor.run.folder.parents[1] / "fruit/apple/0.jpg").exists()  # the files stay where they are


def test_one_image_or_label_and_numbers_of_numpy(editor):
    """A text was taken apart: "12" renamed the labels 1 and 2."""
    editor.add("1", "id:1")
    assert editor.add("2", 1)["changed"] == editor.add("12", Path("apple/0.jpg"))["changed"] == 1
    editor.add("12", np.array([1, 2]))
    editor.edit([(np.int64(3), "12", 1)])
    assert editor.counts()["12"] == 3
    editor.rename("12", "red")
    assert labels_of(editor, "id:1") == [["1", "2", "apple", "red"]]


def test_each_step_is_undone_as_a_whole(editor):
    before = editor.counts()
    assert editor.add("red", ["apple"]) == {"step": 1, "changed": 10, "unchanged": 0}
    assert editor.add("red", ["apple"]) == {"step": None, "changed": 0, "unchanged": 10}
    middle = editor.counts()
    editor.remove("apple", ["apple/0.jpg"])
    editor.add("apple", ["apple/0.jpg"])
    editor.undo()
    assert labels_of(editor, "apple/0.jpg") == [["red"]]
    editor.undo()
    assert editor.counts() == middle
    assert len(LabelEditor(editor.run).undo()) == 10  # of another process
    assert editor.counts() == before
    assert editor.undo() == []


def test_a_large_step_is_undone_by_the_index_of_images_not_by_all_edits(editor, monkeypatch):
    """Undoing 5,000 labels read every edit for each of them, over a connection of its own: a minute."""
    editor.add("red", ["apple", "pear", "plum"])
    before = editor.counts()
    editor.add("ripe", ["apple", "pear", "plum"])
    connected = []
    connect = LabelEdits._reading
    monkeypatch.setattr(LabelEdits, "_reading", lambda store: connected.append(1) or connect(store))
    assert len(editor.undo()) == 30
    assert len(connected) < 15
    assert editor.counts() == before
    with sqlite3.connect(editor.run.label_edits) as db:
        where = f"path = ? AND label = ? AND number < ? AND {label_edits._IN_FORCE}"
        plan = db.execute(f"EXPLAIN QUERY PLAN SELECT change FROM edits WHERE {where}", (b"a", "red", 9)).fetchall()
    db.close()
    assert "by_image" in plan[0][3]


def test_labels_are_renamed_and_merged_in_one_step(editor, mine):
    before = editor.counts()
    editor.remove("apple", ["pear/0.jpg"])  # nothing to remove
    editor.edit([(editor_id(editor, "pear/1.jpg"), "apple", -1)], confirm=True)  # people said that it is none
    done = json_of("label", "rename", "apple", "malus", cwd=mine)
    assert done == {"step": 2, "changed": 10, "unchanged": 0}
    assert editor.counts() == {"malus": 10, "pear": 10, "plum": 10}
    assert (editor_id(editor, "pear/1.jpg"), "malus") in LabelEdits(editor.run.label_edits).decided().refused
    editor.add("pear", ["plum/0.jpg"])
    said = visterm("label", "merge", "pear", "plum", "--into", "fruit", cwd=mine).stderr
    assert "pear and plum are now fruit on 20 images" in said
    assert editor.counts() == {"fruit": 20, "malus": 10}
    editor.rename(["fruit", "malus"], "fruit")  # into one of them
    assert editor.counts() == {"fruit": 30}
    assert "no label 'quince'" in refused("label", "merge", "fruit", "quince", "--into", "malus", cwd=mine)
    assert "control characters" in refused("label", "rename", "fruit", "a\nb", cwd=mine)
    for _ in range(5):
        editor.undo()
    assert editor.counts() == before


def test_a_removed_image_has_the_new_name_of_its_label_when_it_comes_back(editor, mine):
    """It had the old one, which nobody saw or could rename meanwhile."""
    before = editor.counts()
    editor.edit([(editor_id(editor, "pear/1.jpg"), "round", -1)], confirm=True)
    editor.add("round", ["pear/2.jpg"])
    visterm("remove", "plum/1.jpg", "pear/1.jpg", cwd=mine)
    assert json_of("label", "rename", "plum", "prune", cwd=mine)["changed"] == 9
    editor.rename(["round"], "bulbous")
    editor.rename(["pear", "apple"], "fruit")
    assert "plum/1.jpg was removed" in refused("label", "add", "prune", "plum/1.jpg", cwd=mine)
    visterm("add", "plum/1.jpg", "pear/1.jpg", cwd=mine)
    assert editor.counts() == {"fruit": 20, "prune": 10, "bulbous": 1}
    assert (editor_id(editor, "pear/1.jpg"), "bulbous") in LabelEdits(editor.run.label_edits).decided().refused
    visterm("remove", "apple/1.jpg", cwd=mine)
    for _ in range(4):
        editor.undo()
    visterm("add", "apple/1.jpg", cwd=mine)
    visterm("features", "fruit", "--run", "fruit", cwd=mine)
    assert editor.counts() == before


def editor_id(editor, path):
    return next(image.id for image in Searcher(editor.run).images if image.path == path)


def test_edits_outlive_features_a_lost_catalogue_and_a_moved_file(editor, mine):
    editor.add("red", ["apple/0.jpg"])
    editor.remove("plum", ["plum/1.jpg"])
    os.rename("fruit/apple/0.jpg", "fruit/pear/new.jpg")
    visterm("features", "fruit", "--run", "fruit", cwd=mine)
    assert labels_of(editor, "pear/new.jpg", "plum/1.jpg") == [["pear", "red"], []]
    for name in ("catalogue.sqlite", "catalogue.copy.sqlite"):
        (editor.run.collection / name).unlink()
    editor.run.label_edits.write_bytes(b"damaged")
    assert "label edits: 2 rows" in visterm("repair", "--run", "fruit", cwd=mine).stderr
    assert labels_of(editor, "pear/new.jpg", "plum/1.jpg") == [["pear", "red"], []]
    editor.undo()
    assert labels_of(editor, "pear/new.jpg", "plum/1.jpg") == [["pear", "red"], ["plum"]]


def test_an_edit_that_a_kill_kept_from_the_catalogue_is_entered_next_time(editor, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("visterm.pipeline.store.edit._split_again", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            editor.add("red", ["apple/0.jpg"])
    assert labels_of(editor, "apple/0.jpg") == [["apple"]]
    editor.add("round", ["apple/0.jpg"])
    assert labels_of(editor, "apple/0.jpg") == [["apple", "red", "round"]]


def test_what_export_writes_is_read_as_the_same(editor):
    for label in ("=1+1", "'=1+1", "''", "-5", '@a,"b"', HEBREW):
        editor.add(label, ["apple/0.jpg", "plum/3.jpg"])
    editor.remove("pear", ["pear/0.jpg"])
    table = editor.run.folder / "labels.csv"
    visterm("label", "export", table, "--run", "fruit", cwd=editor.run.folder.parents[1])
    assert not re.search(r"""(?m)(^|,)"?[-=@]""", table.read_text())
    config = editor.run.configure(None, ["collection.labels=" + json.dumps(str(table))])
    with Collection(editor.run.collection) as collection:
        paths = [image.path for image in collection.images()]
        folders = collection.root, paths, set(paths), editor.run.collection
        read = read_labels(config.collection, Layout("classes"), *folders).labels
        assert {path: labels for path in paths if (labels := read(path))} == collection.labels()


def test_export_to_a_hyphen_is_standard_output(editor):
    folder = editor.run.folder.parents[1]
    outputs = [visterm("label", "export", *file, "--run", "fruit", cwd=folder).stdout for file in ([], ["-"])]
    assert outputs[0] == outputs[1] != ""
    assert not (folder / "-").exists()


def test_a_label_has_one_form_whoever_types_it(editor):
    """An accent of its own, as a Mac writes file names, or a single character."""
    editor.add("cafe\u0301", ["apple/0.jpg"])
    assert labels_of(editor, "apple/0.jpg") == [["apple", "caf\u00e9"]]
    assert editor.add("caf\u00e9", ["apple/0.jpg"])["changed"] == 0
    for options in ({"label": "cafe\u0301"}, {"not_label": ["cafe\u0301", "plum", "pear"], "k": 1}):
        assert len(Searcher(editor.run).search([1], learner="cosine", **options)[0]["results"]) <= 1
    answers = Searcher(editor.run).search_label("cafe\u0301", k=1, learner="cosine")
    assert "caf\u00e9" in answers[0]["results"][0]["labels"]
    with pytest.raises(UserError, match="no training image has it; --learner cosine can"):
        Searcher(editor.run).search_label("caf\u00e9", learner="wsabie")
    dry = json_of("remove", "--label", "cafe\u0301", "--dry-run", cwd=editor.run.folder.parents[1])
    assert dry["removed"] == 1
    editor.remove("cafe\u0301", ["apple/0.jpg"])
    assert labels_of(editor, "apple/0.jpg") == [["apple"]]


def test_spaces_around_the_name_of_a_folder_are_no_part_of_its_label(editor, mine):
    """Renaming the album of the folder "apple " renamed the images of "apple"."""
    os.rename("fruit/plum", "fruit/apple ")
    visterm("features", "fruit", "--run", "fruit", cwd=mine)
    assert editor.counts() == {"apple": 20, "pear": 10}
    editor.rename([" apple"], "malus")
    assert editor.counts() == {"malus": 20, "pear": 10}


@pytest.mark.parametrize("folder", ["plum\nblue", "plum\x7f", 230 * "a"])
def test_a_label_of_a_folder_that_nobody_could_add_is_renamed(editor, mine, folder):
    os.rename("fruit/plum", f"fruit/{folder}")
    visterm("features", "fruit", "--run", "fruit", cwd=mine)
    assert editor.counts()[folder] == 10
    assert json_of("label", "rename", folder, "plum", cwd=mine)["changed"] == 10
    assert editor.counts() == {"apple": 10, "pear": 10, "plum": 10}
    editor.undo()
    assert json_of("label", "merge", folder, "pear", "--into", "pear", cwd=mine)["changed"] == 10
    assert editor.counts() == {"apple": 10, "pear": 20}


@pytest.mark.parametrize("folder", ["plum\tblue", 230 * "a"])
def test_a_label_of_a_folder_that_nobody_could_add_is_suggested_and_added(editor, mine, folder):
    """Suggesting it was refused, as if it were to be a new one."""
    os.rename("fruit/plum", f"fruit/{folder}")
    visterm("features", "fruit", "--run", "fruit", cwd=mine)
    json_of("label", "suggest", folder, cwd=mine)
    assert json_of("label", "add", folder, "apple/0.jpg", cwd=mine)["changed"] == 1
    visterm("add", "apple/1.jpg", "--label", folder, cwd=mine)
    editor.rename("pear", folder)
    assert editor.counts() == {folder: 22, "apple": 9}
    for before, after in (("label suggest", ""), ("label add", "id:1"), ("add fruit --label", "")):
        assert "control characters" in refused(*before.split(), "a\tb", *after.split(), cwd=mine)


def test_labels_of_removed_images_are_neither_listed_nor_exported_and_come_back_with_them(editor, mine):
    """Of a removed image, the table named a file that its reader may not have."""
    editor.add("red", ["plum"])
    visterm("remove", "plum", cwd=mine)
    assert editor.counts() == {"apple": 10, "pear": 10}
    assert json_of("label", "list", cwd=mine) == [{"label": "apple", "images": 10}, {"label": "pear", "images": 10}]
    assert "plum" not in visterm("label", "export", cwd=mine).stdout
    visterm("add", "plum", cwd=mine)
    assert editor.counts() == {"apple": 10, "pear": 10, "plum": 10, "red": 10}
    assert visterm("label", "export", cwd=mine).stdout.count("plum/0.jpg,red") == 1


def test_export_says_how_labels_with_separators_are_read(editor, mine):
    editor.add("red|round", ["apple/0.jpg"])
    said = visterm("label", "export", "labels.csv", "--run", "fruit", cwd=mine).stderr
    assert "1 label with | or ;, such as red|round: read the table with --set collection.label_separator=none" in said


@pytest.mark.parametrize("cell", ["=a", "'=a", "''=a", "'a", "a", "'", "+1", "\ta"])
def test_a_cell_is_the_same_again(cell):
    assert unquoted(quoted(cell)) == cell


def test_images_come_from_standard_input(editor, mine, monkeypatch):
    results = visterm("search", "fruit/plum/0.jpg", "--run", "fruit", "-k", 4, "--json", cwd=mine).stdout
    lines = "".join(f"{json.dumps({'results': [{'id': id_}]})}\n" for id_ in (4, 5, 6))  # of `search -`
    for text, n in ((results, 4), ("id:1\nplum/5.jpg\n", 2), ("rank,path\n1,apple/3.jpg\n", 1), (lines, 3)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert len(images := commands._images(None)) == n
        editor.add(f"from {n}", images)
    assert editor.counts()["from 4"] == 4
    assert json_of("label", "add", "one", "id:1", cwd=mine)["changed"] == 1
    assert json_of("label", "list", "id:1", cwd=mine)[0]["labels"] == ["apple", "from 2", "one"]
    assert json_of("label", "undo", cwd=mine)["undone"] == 1


def test_images_that_surely_have_a_label_are_suggested(editor, mine):
    plums = [image for image in Searcher(editor.run).images if image.path.startswith("plum/")]
    apples = [image for image in Searcher(editor.run).images if image.path.startswith("apple/")]
    editor.add("round", [image.id for image in plums[:3]])
    editor.edit([(image.id, "round", -1) for image in [plums[3], *apples[:4]]], confirm=True)
    images = json_of("label", "suggest", "round", cwd=mine)
    assert images
    assert not {image["id"] for image in images} & {image.id for image in [*plums[:4], *apples[:4]]}
    assert json_of("label", "suggest", "round", "-k", 1, cwd=mine) == images[:1]
    assert "has no label 'square'" in refused("label", "suggest", "square", cwd=mine)


@pytest.mark.parametrize(
    ("label", "image", "message"),
    [
        ("a" * 4000, "id:1", "a label of 4,000 characters"),
        ("a\nb", "id:1", "control characters"),
        (" ", "id:1", "the label is empty"),
        ("red", "id:99", "has no image id:99"),
        ("red", "apple/1.jpg", "was removed; 'visterm add' brings it back"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(editor, mine, label, image, message):
    visterm("remove", "apple/1.jpg", cwd=mine)
    assert message in refused("label", "add", label, image, cwd=mine)
    with pytest.raises(UserError):
        editor.add(label, [image])
    assert editor.history() == []


EDITING = """
import sys
from visterm.pipeline import LabelEditor
editor = LabelEditor(sys.argv[1])
while True:
    step = editor.add(f"label {len(editor.history())}", ["id:1"])["step"]
    print(step, flush=True)
"""


@pytest.mark.slow
def test_what_was_confirmed_survives_a_kill(editor):
    wait, confirmed = random.Random(0), 0
    for _ in range(8):
        steps = said_until_killed(EDITING, editor.run.folder, lines=1, seconds=wait.uniform(0, 0.3))
        n_edits = len(editor.history())
        assert n_edits in (steps[-1], steps[-1] + 1)  # the last may be written and not yet confirmed
        editor.add(f"label {n_edits}", ["id:1"])
        assert len(labels_of(editor, "id:1")[0]) == 1 + n_edits + 1  # apple, and no gap
        assert n_edits > confirmed
        confirmed = n_edits
