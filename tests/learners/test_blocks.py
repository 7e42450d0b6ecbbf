"""Blocks of queries: the model of the steps one by one, whatever the blocks and the threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from visterm.learners import OASIS, TripletSampler
from visterm.learners.blocks import block_size, learn_blocks
from visterm.learners.rows import as_rows, dense_rows


def make_images(n, d, density, seed):
    """Unit rows, of which the first is zero and the second comes twice."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, d)) * (rng.random((n, d)) < density)
    X[0], X[2] = 0, X[1]
    return (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)).astype(np.float32)


def plain_steps(X, triplets, C):
    """Section 2.1 step by step, in double precision; W, the sum of the losses, and how many violated."""
    X, W, losses = X.astype(np.float64), np.eye(X.shape[1]), []
    for query, positive, negative in triplets:
        q, p = X[query], X[positive] - X[negative]
        losses.append(max(0.0, 1 - q @ W @ p))
        norm = (q @ q) * (p @ p)
        if losses[-1] > 0 and norm > 0:
            W += min(C, losses[-1] / norm) * np.outer(q, p)
    return W, sum(losses), np.count_nonzero(losses)


def learn(X, triplets, C, size, run=map):
    W = np.eye(X.shape[1], dtype=np.float32)
    return W, *learn_blocks(as_rows(sp.csr_array(X)), triplets, C, W, size, run)


@given(
    n=st.integers(8, 40),
    d=st.integers(3, 30),
    density=st.sampled_from([0.1, 0.3, 0.7, 1.0]),
    C=st.sampled_from([0.01, 0.3, 10.0]),
    pairs=st.sampled_from([1, 3, 50]),
    size=st.integers(1, 70),
    seed=st.integers(0, 1000),
)
def test_blocks_are_the_steps_one_by_one(n, d, density, C, pairs, size, seed):
    X = make_images(n, d, density, seed)
    triplets = TripletSampler(np.arange(n) % 3).draw_pass((seed,), 0, 300, pairs_per_query=pairs)
    W, losses, violating = learn(X, triplets, C, size)
    expected, expected_losses, expected_violating = plain_steps(X, triplets, C)
    assert np.linalg.norm(W - expected) <= 1e-5 * np.linalg.norm(expected)
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    assert violating == pytest.approx(expected_violating, abs=30)  # margins of 1 are rounded to either side


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.02, 1.0])
def test_threads_change_no_bit(density):
    """A W of several tiles, and blocks that end in the middle of the triplets."""
    X = make_images(200, 3000, density, 0)
    triplets = TripletSampler(np.arange(200) % 5).draw_pass((0,), 0, 1001, pairs_per_query=10)
    one, *figures = learn(X, triplets, 0.1, 7)
    with ThreadPoolExecutor(3) as pool:
        more, *others = learn(X, triplets, 0.1, 7, pool.map)
    assert one.tobytes() == more.tobytes()
    assert figures == others


def test_no_triplets_change_nothing_and_few_images_do(synonyms):
    X = make_images(10, 6, 0.5, 0)
    W, losses, violating = learn(X, np.zeros((0, 3), np.int32), 0.1, 4)
    np.testing.assert_array_equal(W, np.eye(6))
    assert (losses, violating) == (0.0, 0)
    X, y = synonyms
    learner = OASIS(n_steps=40_000, pairs_per_query=200, random_state=0).fit(X, y)
    assert learner.score(X, y) > 0.9


def test_a_quarter_of_the_entries_makes_an_array_of_all():
    X = make_images(20, 8, 0.4, 0)
    np.testing.assert_array_equal(dense_rows(as_rows(sp.csr_array(X)), 8), X)
    sparse = make_images(20, 8, 0.2, 0)
    assert dense_rows(as_rows(sp.csr_array(sparse)), 8) is None
    full = np.ones((3, 4), np.float32)
    rows = as_rows(sp.csr_array(full))
    assert np.shares_memory(dense_rows(rows, 4), rows[2])


@pytest.mark.parametrize(
    ("density", "pairs", "expected"),
    [(0.01, 1, False), (0.01, 64, True), (0.1, 1, True), (1.0, 1, True), (1.0, 64, True)],
)
def test_the_kernel_is_chosen_by_the_entries(density, pairs, expected):
    rows = as_rows(sp.random_array((50, 400), density=density, format="csr", dtype=np.float32, rng=0))
    assert bool(block_size(rows, 400, pairs)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [1, 20])
def test_either_kernel_learns_the_same(pairs):
    """Few entries in many columns: one pair a query is learned one by one, twenty in blocks."""
    X, y = make_images(60, 1000, 0.01, 0), np.arange(60) % 3
    learner = OASIS(n_steps=500, pairs_per_query=pairs, random_state=3).fit(X, y)
    assert bool(block_size(as_rows(sp.csr_array(X)), 1000, pairs)) == (pairs > 1)
    triplets = TripletSampler(y).draw_pass((3, 0), 0, 500, pairs_per_query=pairs)
    np.testing.assert_allclose(learner.W_, plain_steps(X, triplets, 0.1)[0], atol=1e-5)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_dense_vectors_learn_the_same_on_any_number_of_threads(n_jobs):
    X, y = make_images(60, 700, 1.0, 1), np.arange(60) % 4
    options = {"n_steps": 2000, "pairs_per_query": 8, "validation_fraction": 0.2, "random_state": 0}
    one = OASIS(n_jobs=1, **options).fit(X, y)
    threaded = OASIS(n_jobs=n_jobs, **options).fit(X, y)
    assert threaded.W_.tobytes() == one.W_.tobytes()
    assert threaded.history_ == one.history_
