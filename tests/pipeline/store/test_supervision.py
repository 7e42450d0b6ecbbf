"""Learning from triplets, of a table or of relevance marks, in place of labels."""

import shutil

import numpy as np
import pytest
from running import CLASSES, SMALL, json_of, refused, visterm
from scipy import sparse

from visterm.learners import OASIS, load_learner
from visterm.pipeline import FeedbackTrainer, Searcher, open_run
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.models import trained_record
from visterm.pipeline.store.run import Run
from visterm.teaching.first import start_learner

HEADER = "query,relevant,irrelevant\n"


@pytest.fixture(scope="module")
def flat(tmp_path_factory, write_images):
    """A folder without labels, with its features; tests overwrite triplets.csv."""
    folder = tmp_path_factory.mktemp("flat")
    write_images(folder / "fruit", [f"{label}{i}.jpg" for label in CLASSES for i in range(6)])
    visterm("features", "fruit", *SMALL, cwd=folder)
    return folder


@pytest.fixture
def triplets(flat):
    """Function that writes triplets.csv, and returns the setting that names it."""

    def write(*rows):
        (flat / "triplets.csv").write_text(HEADER + "".join(f"{','.join(row)}\n" for row in rows))
        return "--set", "collection.triplets=triplets.csv"

    return write


ROWS = [("apple0.jpg", "apple1.jpg", "pear0.jpg"), ("pear0.jpg", "pear1.jpg", "plum3.jpg")] * 20


def test_a_table_of_triplets_gives_the_similarity_that_fit_triplets_learns(flat, triplets):
    given = triplets(*ROWS, ("apple0.jpg", "gone.jpg", "pear0.jpg"))
    result = visterm("train", *given, cwd=flat)
    assert (
        "warning: triplets.csv: 1 row without an image of the run, such as gone.jpg; skipped"
        in result.stderr.replace(f"{flat}/", "")
    )
    assert "oasis learns from 40 triplets of" in result.stderr
    assert "Next: visterm search IMAGE" in result.stderr
    opened = open_run(flat / "runs" / "fruit")
    names = sorted({path for row in ROWS for path in row})
    X = opened.X[[opened.paths.index(name) for name in names]]
    made = load_learner(flat / "runs/fruit/learners/oasis/files")
    parameters = made.get_params() | {"record_teachers": False, "validation_fraction": None}
    own = OASIS(**parameters).fit_triplets(X, [[names.index(path) for path in row] for row in ROWS])
    np.testing.assert_array_equal(made.W_, own.W_)

    assert json_of("train", cwd=flat)["up_to_date"]  # the run keeps the setting
    assert "1 row without an image of the run, such as gone.jpg" in visterm("train", cwd=flat).stderr
    assert json_of("info", cwd=flat)["learners"]["oasis"] == "4,000 steps"
    searched = visterm("search", "fruit/apple0.jpg", cwd=flat)
    assert searched.stderr == ""  # by oasis, which is not out of date
    triplets(*ROWS[:-1])
    assert "out of date" in json_of("info", cwd=flat)["learners"]["oasis"]
    assert json_of("train", cwd=flat)["n_triplets"] == 39


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("apple0.jpg", "./apple0.jpg", "pear0.jpg"), "line 2: apple0.jpg stands twice in a triplet"),
        (("a.jpg", "b.jpg", "c.jpg"), "no triplet of training images; 1 row without an image of the run"),
        (("apple0.jpg", "", "pear0.jpg"), "line 2: an empty relevant"),
    ],
)
def test_bad_triplets_are_one_line(flat, triplets, row, message):
    assert message in refused("train", "--force", *triplets(row), cwd=flat)


def test_rows_with_an_empty_cell_are_skipped_if_asked_for_and_others_learn_from_no_triplets(flat, triplets):
    given = triplets(*ROWS)
    assert "wsabie learns from labels, not from triplets" in refused("train", "--learner", "wsabie", *given, cwd=flat)
    assert "use oasis or aroma" in refused("train", "--learner", "hier", *given, cwd=flat)
    assert "tune learns from labels, not from triplets" in refused("tune", *given, cwd=flat)
    assert "not both" in refused("train", *given, "--set", "collection.clicks=clicks.csv", cwd=flat)
    given = triplets(*ROWS, ("apple0.jpg", "", "pear0.jpg"))
    said = visterm("train", *given, "--set", "collection.skip_bad_rows=true", cwd=flat).stderr
    assert "1 row that cannot be used, such as line 42: an empty relevant" in said


def test_test_images_are_not_learned_from(mine):
    (mine / "triplets.csv").write_text(
        HEADER + "".join(f"{c}/{i}.jpg,{c}/{i + 1}.jpg,pear/9.jpg\n" for c in ("apple", "plum") for i in range(9))
    )
    result = visterm("train", "--learner", "aroma", "--set", "collection.triplets=triplets.csv", cwd=mine)
    assert "triplets with a test image" in result.stderr
    opened = open_run(mine / "runs" / "fruit")
    n = trained_record(Searcher(mine / "runs" / "fruit").run, "aroma")["result"]["n_triplets"]
    split = dict(zip(opened.paths, opened.splits, strict=True))
    rows = [line.split(",") for line in (mine / "triplets.csv").read_text().splitlines()[1:]]
    assert 0 < n == sum(all(split[path] == "train" for path in row) for row in rows)


def test_marks_alone_teach_a_run_without_labels(flat):
    without = "--set", "collection.triplets=null"
    assert "or mark results, relevant ones and others" in refused("train", *without, "--learner", "aroma", cwd=flat)
    searcher = Searcher(flat / "runs" / "fruit")
    image = {image.path: image for image in searcher.images}
    marks = FeedbackTrainer(searcher.run).marks
    for path, mark in (("apple1.jpg", 1), ("apple2.jpg", 1), ("pear0.jpg", -1), ("plum0.jpg", -1)):
        marks.add(image["apple0.jpg"].sha256, image[path], mark, learner="cosine")
    upload = sparse.csr_matrix(searcher.X[:1])
    for path, mark in (("apple3.jpg", 1), ("pear3.jpg", -1)):
        options = {"learner": "cosine", "vector": upload, "extractor": searcher.gallery.content}
        marks.add("a" * 64, image[path], mark, **options)
    marks.add("0" * 64, image["pear0.jpg"], 1, learner="cosine")
    result = visterm("train", *without, "--learner", "aroma", cwd=flat)
    assert "aroma learns from 5 triplets of 6 relevance marks" in result.stderr
    assert "warning: 1 mark skipped" in result.stderr
    assert json_of("train", "--learner", "aroma", cwd=flat)["up_to_date"]
    visterm("train", cwd=flat)  # oasis, with the upload among its teachers
    taught = json_of("explain", "id:1", "id:2", "--teachers", "--learner", "oasis", "--learned-weight", "1", cwd=flat)
    assert len(taught["pairs"]) > 0
    status = FeedbackTrainer(searcher.run).status()["learners"]["oasis"]
    assert (status["marks"], status["waiting"]) == (6, 1)  # that of the query which is gone


def test_an_update_replaces_no_learner_that_was_trained_meanwhile(flat, tmp_path):
    shutil.copytree(flat / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns("learners", "*feedback*"))
    run = Run(tmp_path / "runs" / "fruit")
    start_learner(run)
    before = (run.learner("oasis") / "record.json").read_bytes()
    with pytest.raises(UserError, match="oasis was trained meanwhile; update again"):
        start_learner(run)
    assert (run.learner("oasis") / "record.json").read_bytes() == before


@pytest.mark.parametrize("kind", ["visterms", "vectors"])
def test_updates_from_marks_alone_start_at_the_identity(flat, tmp_path, kind):
    if kind == "vectors":  # dense ones
        names = [f"{i}.jpg" for i in range(18)]
        np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(18, 12)).astype(np.float32))
        (tmp_path / "ids.txt").write_text("".join(f"{name}\n" for name in names))
        visterm("features", "--vectors", "v.npy", "--ids", "ids.txt", "--run", "fruit", cwd=tmp_path)
    else:
        of_others = shutil.ignore_patterns("learners", "*feedback*")
        shutil.copytree(flat / "runs", tmp_path / "runs", ignore=of_others)
    run = Run(tmp_path / "runs" / "fruit")
    run.save_config(run.configure(None, ["collection.triplets=null"]))
    trainer, searcher = FeedbackTrainer(run), Searcher(run)
    query = searcher.images[0]
    (before,) = searcher.search(f"id:{query.id}", k=17)
    line = visterm("feedback", "update", cwd=tmp_path).stderr
    assert "oasis: there are no marks to learn from" in line
    assert run.learners() == []  # and none was started
    first, last = before["results"][0], before["results"][-1]
    trainer.marks.add(query.sha256, searcher.images[searcher.place[last["id"]]], 1, learner="cosine")
    assert "none is marked not relevant" in visterm("feedback", "update", cwd=tmp_path).stderr
    trainer.marks.add(query.sha256, searcher.images[searcher.place[first["id"]]], -1, learner="cosine")
    line = visterm("feedback", "update", cwd=tmp_path).stderr
    assert "oasis, version 0 to 1: learned from 1 relevant, 1 not, in" in line
    assert "no image is labelled, so that nothing was measured; 'visterm feedback undo' goes back" in line

    after = Searcher(run)
    assert after.default_learner() == "oasis"
    order = [result["id"] for result in after.search(f"id:{query.id}", k=17)[0]["results"]]
    assert order.index(last["id"]) < len(order) - 1
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(after.learner("oasis").W_, np.eye(searcher.X.shape[1]))
    taught = json_of(
        "explain", f"id:{query.id}", f"id:{last['id']}", "--teachers", "--learned-weight", "1", cwd=tmp_path
    )
    assert {pair["mark"]["number"] for pair in taught["pairs"]} <= {1, 2}
    assert taught["pairs"][0]["together"]
    assert json_of("info", cwd=tmp_path)["learners"] == {"oasis": "learns from marks alone"}
    learned = trainer.status()["learners"]["oasis"]
    assert (learned["version"], learned["marks"], learned["waiting"]) == (1, 2, 0)
    assert trainer.update()["reason"].startswith("nothing new to learn")

    trainer.undo()
    undone = Searcher(run)
    np.testing.assert_array_equal(undone.learner("oasis").W_, np.eye(searcher.X.shape[1]))
    assert [result["id"] for result in undone.search(f"id:{query.id}", k=17)[0]["results"]] == [
        result["id"] for result in before["results"]
    ]
    assert trainer.update()["to_version"] == 2  # learned again
    visterm("train", cwd=tmp_path)  # from the marks alone, and for long
    assert trainer.update()["reason"].startswith("nothing new to learn")  # what training has learned, too
