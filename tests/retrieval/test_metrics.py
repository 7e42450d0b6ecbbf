from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, label_ranking_average_precision_score, ndcg_score

from visterm.retrieval import (
    average_precision,
    chance_average_precision,
    chance_precision,
    map_at_r,
    ndcg_at,
    precision_at,
    r_precision,
    recall_at,
)

lists = st.lists(st.booleans(), min_size=1, max_size=30)


def test_precisions_by_hand():
    relevant = [True, False, True, True]
    assert precision_at(relevant, 1) == 1 / 1
    assert precision_at(relevant, 3) == 2 / 3
    assert precision_at(relevant, 4) == 3 / 4
    np.testing.assert_array_equal(precision_at([relevant, [False] * 4], 2), [1 / 2, 0 / 2])
    assert average_precision([True, False, True], 2) == (1 / 1 + 2 / 3) / 2
    assert average_precision([False, False, True], 1) == 1 / 3
    # A relevant image that was not found counts as 0.
    assert average_precision([True, False, True], 4) == (1 / 1 + 2 / 3 + 0 + 0) / 4
    assert average_precision([False, False], 3) == 0
    np.testing.assert_allclose(
        average_precision([[True, False, True], [False, True, True]], [2, 2]),
        [(1 / 1 + 2 / 3) / 2, (1 / 2 + 2 / 3) / 2],
        rtol=1e-15,
    )
    # Without a relevant image it is undefined; of an empty list nothing was found.
    assert np.isnan(average_precision([False, False], 0))
    np.testing.assert_array_equal(average_precision([[False], [True]], [0, 1]), [np.nan, 1.0])
    assert average_precision(np.zeros(0, bool), 3) == 0
    assert average_precision(np.zeros((2, 0), bool), [3, 1]).tolist() == [0, 0]
    lists = [[True, False, True, False, True], [False, False, False, True, False], [False] * 5]
    R = [3, 2, 0]
    np.testing.assert_allclose(recall_at(lists, R, 3), [2 / 3, 0 / 2, np.nan])
    np.testing.assert_allclose(recall_at(lists, R, 4), [2 / 3, 1 / 2, np.nan])
    np.testing.assert_allclose(r_precision(lists, R), [2 / 3, 0 / 2, np.nan])
    np.testing.assert_allclose(map_at_r(lists, R), [(1 / 1 + 2 / 3) / 3, 0, np.nan])
    gain = 1 / np.log2([2, 3, 4, 5, 6])  # of a relevant image at rank 1, 2, ...
    first = (gain[0] + gain[2]) / (gain[0] + gain[1] + gain[2])
    np.testing.assert_allclose(ndcg_at(lists, R, 3), [first, 0, np.nan])
    np.testing.assert_allclose(ndcg_at(lists, R, 4), [first, gain[3] / (gain[0] + gain[1]), np.nan])
    assert ndcg_at(lists[0], 3, 1) == recall_at([True], 1, 1) == 1.0  # plain numbers of one list
    assert r_precision([True, True], n_relevant=4) == 2 / 4
    assert map_at_r([True, True], n_relevant=4) == 2 / 4
    for measure in (recall_at, ndcg_at):
        with pytest.raises(ValueError, match="needs 1 <= k <= the number of ranked images, 2"):
            measure([True, True], 4, 3)


def test_bad_input():
    for call, message in (
        *((lambda k=k: precision_at([True] * 4, k), "the number of ranked images, 4") for k in (0, -1, 5)),
        (lambda: precision_at(np.zeros((1, 1, 1)), 1), "relevance by rank must be"),
        (lambda: average_precision([True, True], 1), "more relevant images than n_relevant"),
        (lambda: chance_average_precision(3, 2), "between 0 and n_gallery"),
        (lambda: chance_average_precision(-1, 2), "between 0 and n_gallery"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@given(n_relevant=st.integers(1, 10), n_others=st.integers(0, 10))
def test_perfect_and_worst_order(n_relevant, n_others):
    perfect = [True] * n_relevant + [False] * n_others
    assert average_precision(perfect, n_relevant) == pytest.approx(1)
    worst = sum((i + 1) / (n_others + i + 1) for i in range(n_relevant)) / n_relevant
    assert average_precision(perfect[::-1], n_relevant) == pytest.approx(worst)


@given(relevant=lists.filter(any))
def test_agrees_with_scikit_learn_where_nothing_ties(relevant):
    scores = -np.arange(len(relevant))
    ours = average_precision(relevant, sum(relevant))
    assert ours == pytest.approx(average_precision_score(relevant, scores))
    assert ours == pytest.approx(label_ranking_average_precision_score([relevant], [scores]))


@pytest.mark.parametrize("n_gallery", range(1, 7))
def test_chance_equals_the_mean_over_all_orders(n_gallery):
    for n_relevant in range(1, n_gallery + 1):
        orders = np.array(list(permutations([True] * n_relevant + [False] * (n_gallery - n_relevant))))
        values = average_precision(orders, np.full(len(orders), n_relevant))
        assert chance_average_precision(n_relevant, n_gallery) == pytest.approx(values.mean(), rel=1e-12)
        for k in range(1, n_gallery + 1):
            expected = precision_at(orders, k).mean()
            assert chance_precision(n_relevant, n_gallery) == pytest.approx(expected, rel=1e-12)


def test_chance_of_many_queries():
    np.testing.assert_allclose(
        chance_average_precision([0, 1, 3], [5, 2, 3]), [np.nan, (1 / 1 + 1 / 2) / 2, 1.0], rtol=1e-15
    )
    np.testing.assert_allclose(chance_precision([0, 1, 0], [4, 4, 0]), [0, 1 / 4, np.nan])
    assert chance_average_precision(25, 500) == pytest.approx(25 / 500, rel=0.3)


@given(relevant=lists, missing=st.integers(0, 5))
def test_bounds(relevant, missing):
    n_relevant = sum(relevant) + missing
    if n_relevant:
        assert 0 <= average_precision(relevant, n_relevant) <= 1


@given(relevant=lists.filter(any), position=st.integers(0, 29))
def test_moving_a_relevant_image_up_never_harms(relevant, position):
    position %= len(relevant)
    if position and relevant[position] and not relevant[position - 1]:
        better = list(relevant)
        better[position - 1], better[position] = True, False
        assert average_precision(better, sum(relevant)) > average_precision(relevant, sum(relevant))


def test_ndcg_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    relevant = rng.random((20, 30)) < 0.3
    relevant[:, 4] = True
    scores = np.arange(30, 0, -1)[None].repeat(20, axis=0)
    for k in (1, 7, 30):
        ndcg = ndcg_at(relevant, relevant.sum(axis=1), k)
        assert ndcg.mean() == pytest.approx(ndcg_score(relevant, scores, k=k), abs=1e-12)
