"""Learning from triplets that somebody gives."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from visterm.learners import AROMA, OASIS, TripletSampler

N_STEPS = 400
LEARNERS = {
    "oasis": OASIS(n_steps=N_STEPS, random_state=0, pairs_per_query=1),
    "oasis-blocks": OASIS(n_steps=N_STEPS, random_state=0, pairs_per_query=32),
    "aroma": AROMA(n_steps=N_STEPS, random_state=0, pairs_per_query=4),
    "aroma-factored": AROMA(n_steps=N_STEPS, random_state=0, pairs_per_query=1, covariance="factored"),
}


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = rng.random((30, 12)) * (rng.random((30, 12)) < 0.4) + np.eye(12)[y]
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("name", LEARNERS)
def test_triplets_of_the_sampler_give_the_w_of_the_sampler(name, dense, data):
    X, y = data
    X = X if dense else sp.csr_array(X)
    learned = clone(LEARNERS[name]).fit(X, y)
    drawn = {"pairs_per_query": learned.pairs_per_query}
    triplets = TripletSampler(y).draw_pass((learned.seed_, 0), 0, N_STEPS, **drawn)
    given = clone(LEARNERS[name]).fit_triplets(X, triplets)
    np.testing.assert_array_equal(given.W_, learned.W_)
    assert given.n_steps_ == N_STEPS
    assert not np.array_equal(clone(LEARNERS[name]).fit_triplets(X, triplets[::-1]).W_, learned.W_)


@pytest.mark.parametrize("kind", [OASIS, AROMA])
def test_each_triplet_is_learned_ten_times_without_n_steps_and_then_holds(kind, data):
    X, _ = data
    triplets = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    n_steps = None if kind is OASIS else 30  # AROMA's is always a number
    learner = kind(random_state=0, whiten=False, n_steps=n_steps).fit_triplets(X, triplets)
    assert learner.n_steps_ == 30
    for query, relevant, irrelevant in triplets:
        better, worse = learner.similarity(X[[query]], X[[relevant, irrelevant]])[0]
        assert better > worse


def test_an_interrupted_fit_resumes_to_the_same_w(data, checkpoint):
    from visterm.learners.given_triplets import GivenTriplets

    X, y = data
    triplets = np.column_stack(TripletSampler(y).sample(200, seed=3))
    learner = OASIS(n_steps=600, pass_steps=200, random_state=0)
    stopped = checkpoint(learner, X, triplets, 1, fit=clone(learner).fit_triplets)
    resumed = stopped.resume(X, GivenTriplets(triplets, len(X)))
    np.testing.assert_array_equal(resumed.W_, clone(learner).fit_triplets(X, triplets).W_)


@pytest.mark.parametrize(
    ("triplets", "message"),
    [
        (np.empty((0, 3), int), "at least one triplet"),
        ([[0, 1]], r"integers of shape \(n, 3\)"),
        ([[0.0, 1.0, 2.0]], r"integers of shape \(n, 3\)"),
        ([[0, 1, 2], [0, 1, 30]], r"triplet 1 is \[0, 1, 30\]; rows of X are 0 to 29"),
        ([[0, 1, -1]], r"triplet 0 is \[0, 1, -1\]"),
        ([[0, 1, 2], [0, 2, 2]], r"triplet 1 is \[0, 2, 2\]: it names an image twice"),
    ],
)
def test_triplets_that_make_no_sense_are_refused(triplets, message, data):
    with pytest.raises(ValueError, match=message):
        OASIS().fit_triplets(data[0], triplets)


def test_a_list_of_vectors(data):
    X, triplets = data[0].toarray() if sp.issparse(data[0]) else data[0], [[0, 1, 2], [3, 4, 5]]
    W = OASIS(random_state=0).fit_triplets(X, triplets).W_
    np.testing.assert_array_equal(OASIS(random_state=0).fit_triplets(X.tolist(), triplets).W_, W)


def test_validation_is_refused(data):
    with pytest.raises(ValueError, match="use validation_fraction=None"):
        OASIS(validation_fraction=0.2).fit_triplets(data[0], [[0, 1, 2]])
