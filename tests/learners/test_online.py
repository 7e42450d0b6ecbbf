"""Early stopping, as all online learners do it."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from visterm.learners import AROMA, LEGO, MCML, OASIS, PAMIR, WSABIE, Cosine, OneVsRestPA
from visterm.learners.base import SimilarityLearner
from visterm.learners.early_stopping import HeldOutImages, Measured
from visterm.learners.loop import StepCost, chunk_steps
from visterm.learners.rows import as_rows, take_rows
from visterm.learners.validation import CAUTIOUS, CAUTIOUS_SPARSE, Quality

BRIEF = {"n_steps": 4, "pass_steps": 1, "validation_fraction": 0.4, "refit": False, "random_state": 0}

START_IS_A_MODEL = {
    "oasis": OASIS(**BRIEF),
    "oasis-dissim": OASIS(variant="dissim", **BRIEF),
    "aroma-identity": AROMA(init="identity", **BRIEF),
    "lego": LEGO(**BRIEF),
    "mcml": MCML(**BRIEF),
}
START_SAYS_NOTHING = {
    "oasis-zero": OASIS(init="zero", **BRIEF),
    "aroma": AROMA(**BRIEF),
    "pamir": PAMIR(**BRIEF),
    "ovr": OneVsRestPA(**BRIEF),
    "wsabie": WSABIE(n_components=4, **BRIEF),
    "wsabie-ensemble": WSABIE(n_components=[4, 8], **BRIEF),
}


def choose(learner, figures, synonyms):
    """Fit a learner whose validation finds these figures, one before the first pass and one after each."""
    learner, remaining = clone(learner), iter(figures)
    learner._validator = lambda X, y, held_out: lambda: next(remaining)
    return learner.fit(*synonyms)


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", START_SAYS_NOTHING)
def test_a_start_that_says_nothing_is_never_chosen(name, refit, synonyms):
    learner = clone(START_SAYS_NOTHING[name]).set_params(refit=refit)
    fitted = choose(learner, [0.9, 0.1, 0.5, 0.5, 0.2], synonyms)
    assert (fitted.best_step_, fitted.n_steps_, fitted.best_validation_) == (2, 2, 0.5)
    assert [entry["step"] for entry in fitted.history_ if entry["phase"] == "search"] == [0, 1, 2, 3, 4]
    assert choose(learner, [0.9, 0.0, 0.0, 0.0, 0.0], synonyms).n_steps_ == 1


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", START_IS_A_MODEL)
def test_the_cosine_may_be_the_best(name, refit, synonyms):
    learner = clone(START_IS_A_MODEL[name]).set_params(refit=refit)
    assert choose(learner, [0.9, 0.1, 0.5, 0.5, 0.2], synonyms).n_steps_ == 0


@pytest.mark.parametrize("name", ["oasis", "aroma", "lego"])
def test_the_start_is_not_chosen_where_a_share_is(name, several, monkeypatch):
    """It is the share 0 of any later state."""
    learner = clone((START_IS_A_MODEL | START_SAYS_NOTHING)[name])
    figures = iter([0.9, 0.1, 0.5, 0.5, 0.2])
    monkeypatch.setattr(HeldOutImages, "by_share", lambda *_: lambda: Measured(Quality(next(figures), 0.0)))
    assert learner.fit(*several, world="open", learned_weight=None).n_steps_ == 2


@pytest.mark.parametrize("name", ["wsabie", "ovr", "pamir"])
def test_labels_that_are_not_trained_on_do_not_stop_a_training(name, several):
    learner, asked = clone(START_SAYS_NOTHING[name]), []
    learner._validator = lambda X, y, held_out: asked.append(held_out) or (lambda: 0.5)
    learner.fit(*several, world="open", learned_weight=None)
    assert len(learner.unseen_)
    np.testing.assert_array_equal(asked[0], np.setdiff1d(learner.held_out_, learner.unseen_))


def test_patience_counts_from_the_first_pass(synonyms):
    learner = clone(START_SAYS_NOTHING["wsabie"]).set_params(patience=2)
    fitted = choose(learner, [0.9, 0.1, 0.1, 0.1, 0.8], synonyms)
    assert fitted.n_steps_ == 1
    assert len(fitted.history_) == 4


def test_steps_by_the_number_of_images(synonyms):
    assert OASIS().steps_for(10) == 4_000_000
    assert OASIS().steps_for(5000) == 5_000_000
    assert OASIS(n_steps=7).steps_for(5000) == 7
    learner = WSABIE(n_components=2, pass_steps=100_000, random_state=0)
    learner._steps = (100_000, 2000)
    learner.fit(*synonyms)
    assert (learner.n_steps, learner.n_steps_, learner.steps_total_) == (None, 120_000, 120_000)
    with pytest.raises(ValueError, match="n_steps must be an integer of at least 1, got None"):
        AROMA(n_steps=None).fit(*synonyms)


def test_few_images_held_out_are_mentioned_and_too_few_left_refused(X, y, caplog):
    with caplog.at_level(logging.WARNING):
        OASIS(n_steps=10).fit(X, y, validation_rows=np.arange(0, 60, 3))
        assert caplog.text == ""
        OASIS(n_steps=10).fit(X, y, validation_rows=np.arange(0, 60, 8))
    assert "early stopping uses only 8 images" in caplog.text
    with pytest.raises(ValueError, match="class"):
        OASIS(n_steps=10).fit(X, y, validation_rows=np.arange(len(y)))


def rows_of(n_entries):
    """What a learner reads to estimate the cost of a step, for images of so many non-zeros each."""
    return np.array([0, n_entries]), np.zeros(n_entries, np.uint32), np.zeros(n_entries, np.float32), np.zeros(1)


@pytest.mark.parametrize(
    ("cost", "pairs", "expected"), [(0, 1, 5000), (3e4, 1, 5000), (1e5, 1, 1667), (1e5, 64, 1728), (1e9, 64, 64)]
)
def test_chunks_are_equal_and_hold_whole_queries(cost, pairs, expected):
    assert chunk_steps(5000, StepCost(cost, pairs)) == expected


@pytest.mark.parametrize(
    ("learner", "d", "n_entries", "n_chunks"),
    [
        (OASIS(pass_steps=10_000), 10_000, 26, 1),
        (OASIS(pass_steps=10_000, pairs_per_query=1), 10_000, 26, 1),
        (OASIS(pass_steps=10_000), 1280, 1280, 1),
        (OASIS(pass_steps=10_000, pairs_per_query=1), 1280, 1280, 8),
        (OASIS(pass_steps=10_000, n_rankers=2), 1280, 1280, 1),  # on a cluster a chunk would move W to and fro
        (AROMA(pass_steps=10_000, pairs_per_query=1), 1280, 1280, 80),
        (AROMA(pass_steps=10_000), 1280, 1280, 4),
        (AROMA(pass_steps=10_000, covariance="factored"), 1280, 1280, 30),
        (LEGO(pass_steps=5000), 10_000, 26, 120),
        (PAMIR(pass_steps=20_000), 10_000, 26, 1),
        (OneVsRestPA(pass_steps=2000), 10_000, 26, 1),
        (WSABIE(pass_steps=10_000), 10_000, 26, 1),
        (WSABIE(pass_steps=10_000), 1280, 1280, 2),
    ],
)
def test_only_long_passes_are_split(learner, d, n_entries, n_chunks):
    """The more chunks, the longer a pass takes: as many as given here or up to twice as many."""
    learner.n_features_in_ = d
    learner.classes_, learner.member_sizes_ = np.arange(100), [100]
    learner.distribution_ = np.broadcast_to(0, (3, d, d) if "factored" in learner.get_params().values() else (d, d, 2))
    chunk = chunk_steps(learner.pass_steps, learner._step_cost(rows_of(n_entries)))
    assert n_chunks <= -(-learner.pass_steps // chunk) <= max(1, 2 * n_chunks - 1)


def test_rows_that_follow_each_other_are_not_copied():
    X = sp.random_array((50, 20), density=0.3, format="csr", dtype=np.float32, random_state=0)
    for rows in (np.arange(10, 45), np.arange(50)):  # SciPy itself copies what is less than half of an array
        taken = take_rows(X, rows)
        assert np.shares_memory(taken.data, X.data)
        assert np.shares_memory(taken.indices, X.indices)
        assert (taken != X[rows]).nnz == 0
    for rows in (np.array([49]), np.array([0, 3, 4]), np.array([], int)):
        assert (take_rows(X, rows) != X[rows]).nnz == 0


def test_norms_do_not_depend_on_how_many_rows_are_taken_at_once(monkeypatch):
    X = sp.random_array((50, 20), density=0.3, format="csr", dtype=np.float32, random_state=0)
    norms = as_rows(X)[3]
    monkeypatch.setattr("visterm.learners.rows._ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(as_rows(X)[3], norms)
    np.testing.assert_allclose(norms, (X.toarray() ** 2).sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("world", "dense", "share"), [("seen", False, 1.0), ("open", False, CAUTIOUS_SPARSE), ("unseen", True, CAUTIOUS)]
)
def test_too_few_images_to_hold_some_out_are_all_learned_from(world, dense, share, caplog):
    """With a cautious weight of the learner where images may be of other classes: nothing chose another."""
    X = sp.csr_array(np.eye(9, dtype=np.float32)) if not dense else np.random.default_rng(0).random((9, 4), np.float32)
    y = np.repeat([0, 1, 2], 3)
    learner = OASIS(n_steps=200, pass_steps=100, pairs_per_query=4, validation_fraction=0.2, random_state=0)
    learner.fit(X, y, world=world, learned_weight=None)
    assert (learner.held_out_, learner.validation_map_, learner.n_steps_, learner.learned_weight_) == (
        None,
        None,
        200,
        share,
    )
    assert "no class has four: all images are learned from, and nothing is validated" in caplog.text


class TestFiguresOfHeldOutImages:
    def test_all_learners_have_one_measure(self, X, y):
        rows = np.arange(0, len(y), 3)
        kept = []
        for learner in (OASIS(n_steps=400, pass_steps=100, random_state=0), PAMIR(n_steps=400, random_state=0)):
            learner.set_params(refit=False).fit(X, y, validation_rows=rows)
            expected = learner.score(X[rows], y[rows])  # mAP, or precision at 1
            assert learner.best_validation_ == pytest.approx(expected)
            kept.append(learner.cosine_map_)
            scores = SimilarityLearner.score(learner, X[rows], y[rows])
            assert learner.validation_map_ == pytest.approx(scores)
            scores = learner.similarity(X[rows], X[rows])
            np.fill_diagonal(scores, -np.inf)
            assert learner.validation_p1_ == np.mean(y[rows][scores.argmax(axis=1)] == y[rows])
            scores = X[rows] @ X[rows].T
            scores = scores.toarray()
            np.fill_diagonal(scores, -np.inf)
            assert learner.cosine_p1_ == np.mean(y[rows][scores.argmax(axis=1)] == y[rows])
        assert kept[0] == kept[1] == pytest.approx(Cosine().fit(X).score(X[rows], y[rows]))

    @pytest.mark.parametrize(
        ("figures", "patience", "expected"),
        [
            ([0.1, 0.2, 0.3, 0.4, 0.5], None, True),
            ([0.1, 0.2, 0.5, 0.5, 0.5001], None, False),  # by hardly anything
            ([0.1, 0.5, 0.4, 0.4, 0.4], None, False),
            ([0.1, 0.2, 0.1, 0.1, 0.5], 2, False),  # ended by patience, before the steps did
        ],
    )
    def test_still_improving(self, figures, patience, expected, synonyms):
        learner = choose(OASIS(patience=patience, **BRIEF), figures, synonyms)
        assert learner.is_improving() is expected

    def test_a_fit_can_end_earlier_and_later(self, synonyms, checkpoint):
        settings = {"pass_steps": 100, "validation_fraction": 0.4, "refit": False, "random_state": 0}

        def stop(learner):
            if learner.n_steps_ == 200:
                learner.end_after(0)

        short = OASIS(n_steps=400, **settings).fit(*synonyms, callback=stop)
        assert [entry["step"] for entry in short.history_] == [0, 100, 200]

        longer = checkpoint(OASIS(n_steps=300, **settings), *synonyms, 1)
        longer.end_after(400)
        whole = OASIS(n_steps=400, **settings).fit(*synonyms)
        assert (longer.resume(*synonyms).W_ == whole.W_).all()


@pytest.mark.parametrize("world", ["seen", "open"])
def test_held_out_images_are_measured_as_new_and_learned_from_as_they_are(world, several, tmp_path):
    X, y = several
    rows = np.arange(0, X.shape[0], 2)
    as_new = sp.csr_array(X)[np.random.default_rng(0).permutation(X.shape[0])][rows]  # of other images: to no avail
    settings = {"n_steps": 60, "pass_steps": 20, "validation_fraction": 0.4, "refit": True, "random_state": 0}
    plain = OASIS(**settings).fit(X, y, world=world)
    learner = OASIS(**settings).measure_as_new(rows, as_new).fit(X, y, world=world)
    np.testing.assert_array_equal(learner.held_out_, plain.held_out_)
    assert learner.validation_map_ != plain.validation_map_
    assert learner.cosine_map_ != plain.cosine_map_
    other = sp.csr_array(X).tolil()
    for row, vector in zip(rows, as_new.toarray(), strict=True):
        if row in learner.held_out_:
            other[row] = vector
    replaced = OASIS(**settings).fit(sp.csr_array(other), y, world=world)
    assert learner.validation_map_ == pytest.approx(replaced.validation_map_)
    assert learner.best_step_ == replaced.best_step_
    # the refit is of the images as they are
    refit = OASIS(n_steps=max(1, learner.best_step_), pass_steps=20, random_state=0).fit(X, y)
    if learner.best_step_:
        np.testing.assert_allclose(learner.W_, refit.W_, rtol=1e-5, atol=1e-6)
    # and a second fit knows nothing of it
    assert learner.fit(X, y, world=world).validation_map_ == plain.validation_map_


def test_a_resumed_search_measures_as_new(several, checkpoint):
    X, y = several
    rows = np.arange(X.shape[0])
    as_new = sp.csr_array(X)[np.random.default_rng(0).permutation(X.shape[0])]
    learner = OASIS(n_steps=60, pass_steps=20, validation_fraction=0.4, refit=False, random_state=0)
    stopped = checkpoint(learner, X, y, 0, fit=clone(learner).measure_as_new(rows, as_new).fit)
    resumed = stopped.measure_as_new(rows, as_new).resume(X, y)
    assert resumed.history_ == learner.measure_as_new(rows, as_new).fit(X, y).history_
