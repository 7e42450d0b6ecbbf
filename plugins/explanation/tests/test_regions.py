"""Regions carry the share of a score that is asked for, are few and small, and sum to it with the rest."""

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import LEGO, OASIS, Cosine
from visterm.retrieval import explain, explain_matrix, find_regions


def shown(regions):
    return sum(pair.contribution for pair in regions.pairs)


def test_a_strong_region_is_found_whole_and_alone():
    """Nine cells of one photo and four of the other make 90 % of the score."""
    query, result = np.full((6, 8), 0.01), np.full((5, 5), 0.01)
    query[1:4, 2:5] = result[3:5, 0:2] = 1
    regions = find_regions(np.outer(query, result), query.shape, result.shape, share=0.9)
    np.testing.assert_array_equal(regions.query.reshape(query.shape), np.where(query == 1, 0, -1))
    np.testing.assert_array_equal(regions.result.reshape(result.shape), np.where(result == 1, 0, -1))
    ((of_query, of_result, amount),) = regions.pairs
    assert (of_query, of_result) == (0, 0)
    assert amount == pytest.approx(36)
    query = np.zeros((3, 3))
    query[0, 0], query[1, 1] = 3, 2
    regions = find_regions(query.reshape(-1, 1), query.shape, (1, 1), share=0.9)
    assert regions.query.tolist() == [0, -1, -1, -1, 1, -1, -1, -1, -1]
    assert regions.pairs == [(0, 0, 3), (1, 0, 2)]
    # Of four pairs of two and two regions, those of the same kind carry nearly all.
    matrix = np.zeros((9, 9))
    matrix[0, 8], matrix[8, 0], matrix[0, 0], matrix[8, 8] = 5, 4, 0.1, 0.1
    regions = find_regions(matrix, (3, 3), (3, 3), share=0.9)
    assert regions.pairs == [(0, 0, 5), (1, 1, 4)]
    assert (regions.query[[0, 8]].tolist(), regions.result[[8, 0]].tolist()) == ([0, 1], [0, 1])
    alone = find_regions(matrix, (3, 3), (3, 3), share=0.5)
    assert alone.pairs == [(0, 0, 5)]
    assert (alone.query >= 0).sum() == (alone.result >= 0).sum() == 1


@pytest.mark.parametrize("seed", range(40))
def test_half_of_any_score_is_carried_by_three_pairs_at_most(seed):
    """Also of scores below 0, and where large parts cancel."""
    rng = np.random.default_rng(seed)
    shapes = [tuple(rng.integers(1, 9, 2)) for _ in range(2)]
    matrix = rng.normal(rng.choice([-0.5, 0, 0.5]), 1, [rows * columns for rows, columns in shapes])
    score = matrix.sum()
    regions = find_regions(matrix, *shapes)
    assert 1 <= len(regions.pairs) <= 3
    assert shown(regions) / score >= 0.5 - 1e-9
    of_pairs = np.zeros_like(matrix, dtype=bool)
    for query, result, amount in regions.pairs:
        block = np.ix_(regions.query == query, regions.result == result)
        assert amount == pytest.approx(matrix[block].sum())
        assert not of_pairs[block].any()  # no pair of cells is counted twice
        of_pairs[block] = True
    assert shown(regions) + matrix[~of_pairs].sum() == pytest.approx(score)
    sizes = [pair.contribution / score for pair in regions.pairs]
    assert sizes == sorted(sizes, reverse=True)
    for labels, side in ((regions.query, "query"), (regions.result, "result")):
        assert {getattr(pair, side) for pair in regions.pairs} == set(range(labels.max() + 1))


def test_even_scores_scattered_cells_and_no_score():
    regions = find_regions(np.ones((49, 49)), (7, 7), (7, 7))
    covered = (regions.query >= 0).sum() * (regions.result >= 0).sum()
    assert 49**2 / 2 <= covered < 49**2 / 2 + 49
    # A chessboard has no three regions of half its score: the gaps are filled.
    board = np.indices((8, 8)).sum(axis=0) % 2 + 0.01
    regions = find_regions(np.outer(board, board), board.shape, board.shape)
    assert len(regions.pairs) <= 3
    assert shown(regions) >= 0.5 * board.sum() ** 2
    regions = find_regions(np.zeros((4, 6)), (2, 2), (2, 3))
    assert regions.pairs == []
    assert regions.query.tolist() == [-1] * 4
    assert regions.result.tolist() == [-1] * 6


@pytest.mark.parametrize("learner", [Cosine(), OASIS(n_steps=500, random_state=0), LEGO(n_steps=500, random_state=0)])
@pytest.mark.parametrize("dense", [False, True])
def test_a_matrix_of_parts_has_the_sums_of_an_explanation(learner, dense):
    rng = np.random.default_rng(0)
    X = rng.random((30, 12)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    learner.fit(X if dense else sp.csr_array(X), np.arange(30) % 3)
    parts = [rng.random((n, 12)).astype(np.float32) / n for n in (6, 9)]
    query, result = parts if dense else map(sp.csr_matrix, parts)
    matrix, wanted = explain_matrix(learner, query, result), explain(learner, query, result)
    assert matrix.sum() == pytest.approx(wanted.score, rel=1e-5)
    np.testing.assert_allclose(matrix.sum(axis=1), wanted.query, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(matrix.sum(axis=0), wanted.result, rtol=1e-4, atol=1e-6)


def test_no_cell_of_the_regions_can_be_spared():
    """A round spot on each photo, and spots that belong together: what is left carries half, without one cell less."""
    y, x = np.mgrid[:8, :8] - 3.5
    spot = np.exp(-(x**2 + y**2) / 8).ravel()
    left, right = spot * (x.ravel() < 1), spot * (x.ravel() > -1)
    matrix = np.outer(left, right) + 0.5 * np.outer(right, left)
    regions = find_regions(matrix, (8, 8), (8, 8))
    assert len(regions.pairs) == 1
    rows, columns = np.flatnonzero(regions.query >= 0), np.flatnonzero(regions.result >= 0)
    block = matrix[np.ix_(rows, columns)] / matrix.sum()
    assert block.sum() >= 0.5
    assert block.sum() - min(block.sum(axis=1).min(), block.sum(axis=0).min()) < 0.5
