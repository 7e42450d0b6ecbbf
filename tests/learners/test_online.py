"""Early stopping, as all online learners do it."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from visterm.learners import AROMA, LEGO, MCML, OASIS, PAMIR, WSABIE, OneVsRestPA, online
from visterm.learners.online import as_rows, take_rows

BRIEF = {"n_steps": 4, "pass_steps": 1, "validation_fraction": 0.4, "random_state": 0}

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
    learner, found = clone(learner), iter(figures)
    learner._validator = lambda X, y, held_out: lambda: next(found)
    return learner.fit(*synonyms)


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", START_SAYS_NOTHING)
def test_a_start_that_says_nothing_is_never_chosen(name, refit, synonyms):
    learner = clone(START_SAYS_NOTHING[name]).set_params(refit=refit)
    found = choose(learner, [0.9, 0.1, 0.5, 0.5, 0.2], synonyms)
    assert (found.best_step_, found.n_steps_, found.best_validation_) == (2, 2, 0.5)
    assert [entry["step"] for entry in found.history_ if entry["phase"] == "search"] == [0, 1, 2, 3, 4]
    assert choose(learner, [0.9, 0.0, 0.0, 0.0, 0.0], synonyms).n_steps_ == 1


@pytest.mark.parametrize("refit", [False, True])
@pytest.mark.parametrize("name", START_IS_A_MODEL)
def test_the_cosine_may_be_the_best(name, refit, synonyms):
    learner = clone(START_IS_A_MODEL[name]).set_params(refit=refit)
    assert choose(learner, [0.9, 0.1, 0.5, 0.5, 0.2], synonyms).n_steps_ == 0


def test_patience_counts_from_the_first_pass(synonyms):
    learner = clone(START_SAYS_NOTHING["wsabie"]).set_params(patience=2)
    found = choose(learner, [0.9, 0.1, 0.1, 0.1, 0.8], synonyms)
    assert found.n_steps_ == 1
    assert len(found.history_) == 4


def test_few_images_held_out_are_mentioned(synonyms, caplog):
    X, y = synonyms
    with caplog.at_level(logging.WARNING):
        OASIS(n_steps=10).fit(X, y, validation_rows=np.arange(0, 60, 3))
        assert caplog.text == ""
        OASIS(n_steps=10).fit(X, y, validation_rows=np.arange(0, 60, 8))
    assert "early stopping uses only 8 images" in caplog.text


def test_nothing_left_to_learn_from_is_refused(synonyms):
    X, y = synonyms
    with pytest.raises(ValueError, match="class"):
        OASIS(n_steps=10).fit(X, y, validation_rows=np.arange(len(y)))


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
    monkeypatch.setattr(online, "_ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(as_rows(X)[3], norms)
    np.testing.assert_allclose(norms, (X.toarray() ** 2).sum(axis=1), rtol=1e-6)
