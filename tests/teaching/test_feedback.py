"""Learners that marks update: as far as they may, exactly back again, and never for the worse."""

import concurrent.futures
import hashlib
import json
import re
import shutil
import threading

import numpy as np
import pytest
import running

from visterm.learners import load_learner
from visterm.pipeline import Searcher
from visterm.pipeline.config.loading import load_config
from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation import held_out
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.train import train
from visterm.pipeline.store import versions
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.vectors import extractor_content
from visterm.pipeline.store.versions import KEPT, LearnerVersions
from visterm.retrieval import ExactIndex
from visterm.teaching import feedback as feedback_update
from visterm.teaching.batches import collect_batches, learn_batch, prepare_learner
from visterm.teaching.feedback import MAX_FALL, FeedbackTrainer

QUIET = Console(quiet=True)
QUERY, OTHER = hashlib.sha256(b"query").hexdigest(), hashlib.sha256(b"other").hexdigest()

# What in_force.json may hold that is damage: text, or wrong values beside the right ones.
SHAPES = (
    *("", "{", "[]", "7", "null", "{}", '"base"', '{"version": 1}'),
    *({"version": "1"}, {"version": -1}, {"before": 3}, {"before": [1]}, {"set_aside": [None]}, {"more": 1}),
)


CLASSES = ("apple", "pear", "plum", "quince", "sloe")
SETTINGS = [
    *("features.n_visterms=150", "split.train=8", "split.test=16", "oasis.n_steps=30000", "oasis.pass_steps=10000"),
    *("oasis.C=0.03", "aroma.n_steps=2000", "aroma.pass_steps=1000", "compute.n_jobs=1"),
    *("train.world=seen", "train.learned_weight=1"),  # all that marks change counts
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, write_images):
    folder = tmp_path_factory.mktemp("feedback")
    for number, name in enumerate(CLASSES):  # every third looks like the next class: results are mixed
        looks = [name if i % 3 else CLASSES[number - 1] for i in range(24)]
        write_images(folder / "looks", [f"{look}/{name}{i}.jpg" for i, look in enumerate(looks)])
        (folder / "fruit" / name).mkdir(parents=True)
        for i, look in enumerate(looks):
            (folder / f"looks/{look}/{name}{i}.jpg").rename(folder / f"fruit/{name}/{i}.jpg")
    run, config = Run(folder / "runs/fruit"), load_config(None, SETTINGS)
    features(run, config, folder / "fruit", QUIET)
    train(run, config, "oasis", QUIET)
    train(run, config, "aroma", QUIET)
    return run


@pytest.fixture
def own_run(trained, tmp_path):
    """A run of one's own."""
    shutil.copytree(trained.folder, tmp_path / "runs/fruit")
    return Run(tmp_path / "runs/fruit")


@pytest.fixture
def run(own_run, monkeypatch):
    """One whose updates are not refused: on so few images, that look alike, a mark may cost more than 0.005."""
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)
    return own_run


def matrix(run, learner="oasis", folder=None):
    """What is learned, in memory."""
    model = FeedbackTrainer(run).load(learner) if folder is None else load_learner(folder)
    return np.array(getattr(model, {"oasis": "W_", "aroma": "distribution_"}[learner]))


def ranking(searcher, model, row, k=None):
    index = ExactIndex(model, searcher.X)
    return index.search(searcher.X[[row]], k=k or len(searcher.images) - 1, exclude=[row]).indices[0].tolist()


def session(run, rows, *, wrong=False, learner="oasis", n=20):
    """Mark the first results of some queries by their labels; the queries that had marks of both kinds."""
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    model, done = trainer.load(learner), []
    for row in rows:
        query = searcher.images[row]
        nearest = ranking(searcher, model, row, n)
        right = [searcher.images[i].labels == query.labels for i in nearest]
        for i, relevant in zip(nearest, right, strict=True):
            mark = 1 if relevant != wrong else -1
            trainer.marks.add(query.sha256, searcher.images[i], mark, learner=learner, version=trainer.version(learner))
        if len(set(right)) == 2:
            done.append((row, nearest, right))
    return done


def some_queries(run, n, learner="oasis"):
    """Rows of test images whose first 20 results are of both kinds."""
    searcher, rows = Searcher(run), []
    model = FeedbackTrainer(run).load(learner)
    for row, query in enumerate(searcher.images):
        right = sum(searcher.images[i].labels == query.labels for i in ranking(searcher, model, row, 20))
        if query.split == "test" and 5 <= right <= 15:
            rows.append(row)
    return rows[:: len(rows) // n][:n]


@pytest.mark.parametrize("learner", ["oasis", "aroma"])
def test_marks_move_the_ranking_of_their_query(run, caplog, learner):
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    before = trainer.load(learner)
    done = session(run, some_queries(run, 3, learner), learner=learner)
    answer = trainer.update(learner)
    assert answer["accepted"], answer["reason"]
    assert "never a query" not in caplog.text  # images that are not relevant are none on purpose
    assert (answer["from_version"], answer["to_version"], trainer.version(learner)) == (0, 1, 1)
    right = np.concatenate([right for _, _, right in done])
    assert (answer["n_relevant"], answer["n_not"]) == (right.sum(), (~right).sum())
    after, changed = trainer.load(learner), []
    for row, images, right in done:
        old, new = ranking(searcher, before, row), ranking(searcher, after, row)
        changed.append(len(set(old[:20]) - set(new[:20])))
        moved, right = np.array([new.index(i) - old.index(i) for i in images]), np.array(right)
        assert moved[right].mean() < moved[~right].mean()
    assert np.mean(changed) >= 2


def test_neighbours_follow_marks(run, few_suffice):
    """Those of the learner before the marks are not taken, however long they have been in the run."""
    before = Searcher(run).neighbours("oasis").arrays()["scores"]
    session(run, some_queries(run, 3))
    assert FeedbackTrainer(run).update()["accepted"]
    kept = Searcher(run).neighbours("oasis").arrays()["scores"]
    shutil.rmtree(run.folder / "neighbours")
    np.testing.assert_array_equal(kept, Searcher(run).neighbours("oasis").arrays()["scores"])
    assert not np.array_equal(kept, before)


def learned_plainly(run, learner="oasis"):
    """What the marks make of the whole base, without versions."""
    plain = load_learner(run.learner(learner) / "files")
    prepare_learner(plain, learner)
    for batch in collect_batches(run, FeedbackTrainer(run).marks, learner).batches:
        learn_batch(plain, batch)
    return plain


@pytest.mark.parametrize("learner", ["oasis", "aroma"])
def test_a_version_is_exactly_what_partial_fit_makes_of_the_whole_base(run, learner):
    base = run.learner(learner) / "files"
    digest = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in base.iterdir()}
    session(run, some_queries(run, 3, learner), learner=learner)
    plain = learned_plainly(run, learner)
    assert FeedbackTrainer(run).update(learner)["accepted"]
    expected = plain.W_ if learner == "oasis" else plain.distribution_
    assert not np.array_equal(expected, matrix(run, learner, base))
    np.testing.assert_array_equal(matrix(run, learner), expected)
    assert digest == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in base.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["symmetric", "online-symmetric", "dissim", "psd"])
def test_the_variants_of_oasis_learn_from_marks_too(run, variant):
    train(run, load_config(None, [*SETTINGS, f"oasis.variant={variant}"]), "oasis", QUIET)
    session(run, some_queries(run, 2))
    plain, trainer = learned_plainly(run), FeedbackTrainer(run)
    assert trainer.update()["accepted"]
    np.testing.assert_array_equal(matrix(run), plain.W_)
    assert trainer.load("oasis").symmetry_index() == pytest.approx(1, abs=1e-5)


def test_undo_and_reset_put_back_exactly_what_was(run):
    trainer, states = FeedbackTrainer(run), [matrix(run)]
    rows = some_queries(run, 3)
    for row in rows:
        assert session(run, [row])
        assert trainer.update()["accepted"]
        states.append(matrix(run))
    assert not any(np.array_equal(a, b) for a, b in zip(states, states[1:], strict=False))
    assert trainer.undo() == {"learner": "oasis", "from_version": 3, "to_version": 2}
    np.testing.assert_array_equal(matrix(run), states[2])
    assert trainer.reset() == {"learner": "oasis", "from_version": 2, "to_version": 0}
    np.testing.assert_array_equal(matrix(run), states[0])
    assert trainer.update()["reason"] == "there are no marks to learn from"  # those before the reset do not come back
    assert trainer.undo()["to_version"] == 2
    np.testing.assert_array_equal(matrix(run), states[2])
    assert trainer.update()["to_version"] == 4  # the marks stand: what was undone can be done again
    np.testing.assert_array_equal(matrix(run), states[3])
    for version in (2, 1, 0):
        assert trainer.undo()["to_version"] == version
        np.testing.assert_array_equal(matrix(run), states[version])
    with pytest.raises(UserError, match="nothing to undo, the base is in force"):
        trainer.undo()


def test_an_undo_does_not_hide_that_the_marks_are_gone(run):
    session(run, some_queries(run, 1))
    trainer = FeedbackTrainer(run)
    assert trainer.update()["accepted"]
    run.marks.unlink()
    with pytest.raises(UserError, match="it is gone"):
        trainer.undo()
    assert trainer.version("oasis") == 1


def test_marks_taken_back_leave_no_trace(run):
    trainer = FeedbackTrainer(run)
    first, second = some_queries(run, 2)
    session(run, [first])
    trainer.update()
    state = matrix(run)
    session(run, [second])
    trainer.update()
    key = Searcher(run).images[second].sha256
    while trainer.marks.undo(key):
        pass
    answer = trainer.update()
    assert (answer["accepted"], answer["n_relevant"], answer["n_not"], answer["n_marks"]) == (True, 0, 0, 20)
    np.testing.assert_array_equal(matrix(run), state)


def test_a_query_needs_both_kinds_of_marks(run):
    trainer, images = FeedbackTrainer(run), Searcher(run).images
    assert trainer.update()["reason"] == "there are no marks to learn from"
    trainer.marks.add(images[0].sha256, images[1], 1, learner="oasis")
    answer = trainer.update()
    assert "none is marked not relevant" in answer["reason"]
    assert (answer["accepted"], answer["to_version"], answer["n_left_out"]) == (False, 0, 1)
    trainer.marks.add(images[5].sha256, images[2], -1, learner="oasis")
    assert "no query has a relevant and a not relevant mark" in trainer.update()["reason"]
    trainer.marks.add(images[0].sha256, images[2], -1, learner="oasis")
    assert trainer.update()["accepted"]
    assert "nothing new" in trainer.update()["reason"]
    assert not (run.feedback("oasis") / "2").exists()


@pytest.mark.slow
def test_a_bad_marker_cannot_ruin_the_model(own_run):
    """Everything is marked wrongly, query after query."""
    run, trainer, searcher = own_run, FeedbackTrainer(own_run), Searcher(own_run)
    test = np.array([image.split == "test" for image in searcher.images])
    X, y = searcher.X[test], np.array([min(image.labels) for image in searcher.images])[test]
    assert test.sum() < held_out.MAX_QUERIES  # so that this is what the held-out check measures
    base = trainer.load("oasis").score(X, y)
    refused = 0
    for row in some_queries(run, 16):
        assert session(run, [row], wrong=True)
        before, version = matrix(run), trainer.version("oasis")
        answer = trainer.update()
        if not answer["accepted"]:
            refused += 1
            assert "would fall" in answer["reason"]
            assert trainer.version("oasis") == version
            np.testing.assert_array_equal(matrix(run), before)
        assert trainer.load("oasis").score(X, y) >= base - MAX_FALL
    assert refused
    assert trainer.status()["learners"]["oasis"]["set_aside"] == 20 * refused
    trainer.reset()
    assert trainer.load("oasis").score(X, y) == base


def test_a_refused_update_says_why_and_its_marks_come_back_by_undo_only(run, monkeypatch):
    trainer = FeedbackTrainer(run)
    first, second = some_queries(run, 2)
    session(run, [first])
    monkeypatch.setattr(feedback_update, "MAX_FALL", -1.0)  # nothing is good enough
    answer = trainer.update()
    assert not answer["accepted"]
    assert "the model stays as it was, and the 20 new marks are set aside" in answer["reason"]
    assert answer["map_after"] is not None
    monkeypatch.setattr(feedback_update, "MAX_FALL", 1.0)
    assert trainer.update()["reason"] == "there are no marks to learn from"
    assert trainer.status()["learners"]["oasis"]["set_aside"] == 20
    session(run, [second])
    assert trainer.update()["n_marks"] == 20
    assert len(trainer.marks.export()) == 40
    for before in (1, 0):  # undo brings them back
        assert trainer.undo() == {"learner": "oasis", "from_version": before, "to_version": 0}
    assert trainer.update()["n_marks"] == 40


def test_what_was_measured_is_said(run, monkeypatch):
    session(run, some_queries(run, 1))
    answer = FeedbackTrainer(run).update()
    assert re.fullmatch(r"\d+ test images that no mark names", answer["measured_on"])
    assert 0 <= answer["map_error"] < 0.1
    monkeypatch.setattr(held_out, "MIN_QUERIES", 1000)  # too few are unmarked
    session(run, some_queries(run, 2)[1:])
    assert FeedbackTrainer(run).update()["measured_on"] == "80 test images"


def test_a_version_that_a_third_part_decided_about_has_probabilities(run, monkeypatch):
    monkeypatch.setattr(held_out, "FEWEST_DECIDING", 1)
    session(run, some_queries(run, 1))
    answer = FeedbackTrainer(run).update()
    assert "third part" in answer["measured_on"]
    assert 0 < Searcher(run).search("id:1", learner="oasis")[0]["results"][0]["probability"] < 1


def test_a_base_that_is_exchanged_while_a_version_is_loaded(run, monkeypatch):
    """The block of one base must never be laid over another one."""
    trainer = FeedbackTrainer(run)
    session(run, some_queries(run, 1))
    assert trainer.update()["accepted"]
    load, config = LearnerVersions.load, run.configure(None, ["oasis.C=0.05"])

    def exchanged(self, learner, version, *rest):
        monkeypatch.undo()
        train(run, config, "oasis", QUIET)
        return load(self, learner, version, *rest)

    monkeypatch.setattr(LearnerVersions, "load", exchanged)
    loaded = np.array(trainer.load("oasis").W_)
    np.testing.assert_array_equal(loaded, matrix(run, folder=run.learner("oasis") / "files"))


def test_a_training_in_the_middle_of_an_update(run, monkeypatch):
    """Nothing is measured on two bases at once, and no mark is set aside for it."""
    trainer, config = FeedbackTrainer(run), run.configure(None, ["oasis.C=0.05"])
    session(run, some_queries(run, 1))

    def learn_meanwhile(model, batch):
        learn_batch(model, batch)
        train(run, config, "oasis", QUIET)

    monkeypatch.setattr(feedback_update, "learn_batch", learn_meanwhile)
    with pytest.raises(UserError, match="oasis was retrained during the update; update again"):
        trainer.update()
    monkeypatch.setattr(feedback_update, "learn_batch", learn_batch)
    status = trainer.status()["learners"]["oasis"]
    assert (status["version"], status["set_aside"], status["waiting"]) == (0, 0, 20)
    assert trainer.update()["n_marks"] == 20


@pytest.mark.slow
def test_a_new_training_makes_the_versions_void(run, capsys):
    trainer = FeedbackTrainer(run)
    session(run, some_queries(run, 2))
    trainer.update()
    train(run, load_config(None, [*SETTINGS, "oasis.n_steps=2000"]), "oasis", QUIET)
    assert "has not learned from the relevance marks yet; 'visterm feedback update" in capsys.readouterr().err
    assert trainer.version("oasis") == 0
    np.testing.assert_array_equal(matrix(run), matrix(run, folder=run.learner("oasis") / "files"))
    status = trainer.status()["learners"]["oasis"]
    assert (status["void"], status["waiting"]) == (True, 40)
    answer = trainer.update()  # the marks are learned by the new one
    assert (answer["accepted"], answer["n_marks"], answer["to_version"]) == (True, 40, 2)
    assert not trainer.status()["learners"]["oasis"]["void"]
    assert not (run.feedback("oasis") / "1").exists()


@pytest.mark.slow
def test_a_few_versions_are_kept(run):
    trainer, images = FeedbackTrainer(run), Searcher(run).images
    trainer.marks.add(images[0].sha256, images[1], 1, learner="oasis")
    for number in range(2, KEPT + 5):
        trainer.marks.add(images[0].sha256, images[number], -1, learner="oasis")
        assert trainer.update()["accepted"]
    last = KEPT + 3
    kept = sorted(int(path.name) for path in run.feedback("oasis").iterdir() if path.is_dir())
    assert kept == list(range(last - KEPT, last + 1))
    assert trainer.status()["learners"]["oasis"]["undo"] == list(range(last - 1, last - KEPT - 1, -1))
    for _ in range(KEPT):
        trainer.undo()
    with pytest.raises(UserError, match="older versions are not kept"):
        trainer.undo()


def test_an_uploaded_query_is_learned_from_by_the_vector_saved_with_its_mark(run):
    trainer, searcher = FeedbackTrainer(run), Searcher(run)
    content = extractor_content(run)
    for i, mark in ((1, 1), (40, -1)):
        options = {"learner": "oasis", "vector": searcher.X[[0]], "extractor": content}
        trainer.marks.add(QUERY, searcher.images[i], mark, **options)
    assert trainer.update()["accepted"]
    by_vector = matrix(run)
    trainer.reset()
    for i, mark in ((1, 1), (40, -1)):
        trainer.marks.add(searcher.images[0].sha256, searcher.images[i], mark, learner="oasis")
    assert trainer.update()["accepted"]
    np.testing.assert_array_equal(matrix(run), by_vector)
    options = {"learner": "oasis", "vector": searcher.X[[0]], "extractor": "another"}
    trainer.marks.add(OTHER, searcher.images[1], 1, **options)
    trainer.marks.add(OTHER, searcher.images[40], -1, **options)
    answer = trainer.update()
    assert (answer["accepted"], answer["n_left_out"]) == (False, 2)


def test_marks_of_images_that_are_gone_are_left_out(run):
    trainer, images = FeedbackTrainer(run), Searcher(run).images
    trainer.marks.add(images[0].sha256, images[1], 1, learner="oasis")
    trainer.marks.add(images[0].sha256, images[40]._replace(id=9999, path="elsewhere.jpg"), -1, learner="oasis")
    trainer.marks.add(images[0].sha256, images[2]._replace(id=7777, sha256="7" * 64), -1, learner="oasis")
    answer = trainer.update()
    assert (answer["accepted"], answer["n_marks"], answer["n_left_out"]) == (True, 2, 1)


def test_who_cannot_learn_from_marks_says_so(run, tmp_path):
    with pytest.raises(UserError, match="wsabie does not learn from marks; oasis and aroma do"):
        FeedbackTrainer(run).update("wsabie")
    shutil.rmtree(run.learner("oasis"))
    with pytest.raises(UserError, match="has no trained oasis"):
        FeedbackTrainer(run).update("oasis")
    train(run, load_config(None, [*SETTINGS, "aroma.covariance=factored"]), "aroma", QUIET)
    session(run, some_queries(run, 1, "aroma"), learner="aroma")
    with pytest.raises(UserError, match="factored covariance does not learn from marks"):
        FeedbackTrainer(run).update("aroma")


def test_damage_is_said_with_the_way_back(run):
    session(run, some_queries(run, 1))
    trainer = FeedbackTrainer(run)
    trainer.update()
    record = run.feedback("oasis") / "1/record.json"
    whole = record.read_text()
    record.write_text('{"format": 2}')
    with pytest.raises(
        UserError, match="damaged record; run 'visterm feedback reset --learner oasis --run fruit' to go back"
    ):
        trainer.status()
    record.write_text(whole)
    block = run.feedback("oasis") / "1/block.npy"
    block.write_bytes(block.read_bytes()[:200])
    with pytest.raises(UserError, match="visterm feedback reset"):
        trainer.load("oasis")
    trainer.reset()
    np.testing.assert_array_equal(matrix(run), matrix(run, folder=run.learner("oasis") / "files"))
    whole = json.loads((run.feedback("oasis") / "in_force.json").read_text())
    for wrong in SHAPES:
        text = json.dumps(whole | wrong) if isinstance(wrong, dict) else wrong
        (run.feedback("oasis") / "in_force.json").write_text(text)
        for ask in (trainer.load, trainer.version, trainer.update, trainer.undo, lambda _: trainer.status()):
            with pytest.raises(UserError, match="damaged; run 'visterm feedback reset"):
                ask("oasis")


def test_a_full_disk_leaves_the_model_as_it_was(run, small_disk):
    session(run, some_queries(run, 4, "aroma"), learner="aroma")
    trainer, before = FeedbackTrainer(run), matrix(run, "aroma")
    with small_disk(33_000), pytest.raises(UserError, match="the version was not kept"):  # SQLite needs 32 KiB to read
        trainer.update("aroma")
    assert trainer.version("aroma") == 0
    np.testing.assert_array_equal(matrix(run, "aroma"), before)
    assert trainer.update("aroma")["accepted"]


@pytest.mark.slow
def test_a_search_sees_one_version_or_the_next(run):
    """Threads load while another one updates, undoes and resets."""
    trainer, known, stop = FeedbackTrainer(run), {}, threading.Event()
    rows = some_queries(run, 4)

    def digest():
        return hashlib.sha256(matrix(run).tobytes()).hexdigest()

    def look():
        digests = set()
        while not stop.is_set():
            digests.add(digest())
        return digests

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        watchers = [pool.submit(look) for _ in range(2)]
        try:
            known[digest()] = 0
            for row in rows:
                session(run, [row])
                trainer.update()
                known[digest()] = trainer.version("oasis")
            trainer.undo()
            trainer.reset()
        finally:
            stop.set()
        seen = set().union(*(watcher.result() for watcher in watchers))
    assert len(known) == 5
    assert seen <= set(known)


def test_an_update_of_a_damaged_learner_names_the_damage_and_starts_none(run):
    session(run, some_queries(run, 1))
    (run.learner("oasis") / "files/learner.json").unlink()
    before = sorted(run.learner("oasis").rglob("*"))
    with pytest.raises(UserError, match=r"learner\.json: no such file .* --force"):
        FeedbackTrainer(run).update()
    assert sorted(run.learner("oasis").rglob("*")) == before


def test_reading_which_version_is_used_removes_nothing(run, monkeypatch):
    """The first update may write the file between a reader's look and a removal."""
    removed = []
    monkeypatch.setattr(versions, "discard", removed.append)
    assert LearnerVersions(run).in_force("oasis").version == 0
    assert not removed


@pytest.mark.slow
def test_right_marks_on_real_photos_cost_nothing_held_out(data, tmp_path):
    """A session on photos: rankings change, and the images that nobody marked are ranked as well as before."""
    classes = "bonsai,dalmatian,ferry,helicopter,laptop,menorah,scorpion,sunflower"
    settings = [f"collection.classes=[{classes}]", "split.train=15", "split.test=15", "features.n_visterms=1000"]
    settings += ["oasis.C=0.03", "oasis.n_steps=20000", "oasis.pass_steps=5000", "compute.n_jobs=1"]
    run, config = Run(tmp_path / "runs/photos"), load_config(None, settings)
    features(run, config, data / "caltech101", QUIET)
    train(run, config, "oasis", QUIET)
    searcher, trainer = Searcher(run), FeedbackTrainer(run)
    test = [row for row, image in enumerate(searcher.images) if image.split == "test"]
    changed, moved = [], []
    for row in test[::24]:
        before = ranking(searcher, trainer.load("oasis"), row)
        if not (marked := session(run, [row])):
            continue
        ((_, nearest, right),) = marked
        answer = trainer.update()
        assert answer["accepted"], answer["reason"]
        assert answer["map_after"] >= answer["map_base"] - MAX_FALL
        after = ranking(searcher, trainer.load("oasis"), row)
        changed.append(len(set(before[:20]) - set(after[:20])))
        places = np.array([after.index(i) - before.index(i) for i in nearest])
        moved.append((places[np.array(right)].mean(), places[~np.array(right)].mean()))
    assert len(changed) >= 3
    assert np.mean(changed) >= 4
    assert all(relevant < 0 < other for relevant, other in moved)


def test_the_command(run, monkeypatch):
    def visterm(*arguments, code=0):
        return running.visterm("feedback", *arguments, cwd=run.folder.parent.parent, check=code)

    assert "nothing" not in visterm("status").stdout
    assert "there are no marks to learn from" in visterm("update").stderr
    session(run, some_queries(run, 1))
    assert "20 not used yet" in visterm("status").stdout
    told = visterm("update").stderr
    assert "version 0 to 1: learned from" in told
    assert "never a query" not in told  # images marked as not relevant are no queries, on purpose
    assert "oasis:       version 1 from 20 marks, held-out mAP" in visterm("status").stdout
    assert "nothing new to learn" in visterm("update").stderr
    assert json.loads(visterm("undo", "--json").stdout) == {"learner": "oasis", "from_version": 1, "to_version": 0}
    assert "visterm: oasis: nothing to undo" in visterm("undo", code=2).stderr
    assert "the base in use" in visterm("reset").stderr
    assert "20 set aside" in visterm("status").stdout
    assert len(json.loads(visterm("export").stdout)) == 20
    header, *lines = visterm("export", "--format", "csv").stdout.splitlines()
    assert header == "number,time,query,image,path,sha256,mark,learner,version,undoes"
    assert len(lines) == 20
    assert "marks are exported as json or csv" in visterm("export", "--format", "table", code=2).stderr
    session(run, some_queries(run, 2)[1:])
    monkeypatch.setattr(feedback_update, "MAX_FALL", -1.0)
    assert "the model stays as it was" in visterm("update", code=2).stderr
    assert "wsabie does not learn from marks" in visterm("update", "--learner", "wsabie", code=2).stderr
