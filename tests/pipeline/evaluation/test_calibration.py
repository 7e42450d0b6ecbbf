"""Probabilities of results: right for the first ones of each query, never rising, and absent with the reason."""

import numpy as np
import pytest
from running import json_of, refused, visterm
from sklearn.linear_model import LogisticRegression

from visterm.pipeline import Searcher
from visterm.pipeline.evaluation.calibration import Calibration, _fit_logistic, calibrate, read_calibration
from visterm.retrieval import Ranking


def rankings(rng, n_queries=250, n=300):
    """Rankings of queries that are easy or hard, what is relevant by image and by rank, and which are hard.

    Of an easy query the first results are nearly all relevant, of a hard one a third; its best scores are no lower, and
    fall faster.
    """
    hard = rng.random(n_queries) < 0.5
    ranks = np.log(1 + np.arange(n))
    odds = np.where(hard[:, None], -0.7, 4.0) - 1.5 * np.maximum(ranks - 2.5, 0)
    relevant = rng.random((n_queries, n)) < 1 / (1 + np.exp(-odds))
    scores = (
        rng.normal(1, 0.05, n_queries)[:, None]
        - np.where(hard, 0.3, 0.15)[:, None] * ranks
        - np.maximum(ranks - 2.5, 0)
    )
    images = rng.permuted(np.tile(np.arange(n, dtype=np.int32), (n_queries, 1)), axis=1)
    by_image = np.zeros_like(relevant)
    np.put_along_axis(by_image, images, relevant, axis=1)
    return Ranking(images, scores.astype(np.float32)), by_image, relevant, hard


def known_of(rng, **options):
    ranking, relevant, *_ = rankings(rng, **options)
    return calibrate(ranking, relevant, np.ones(relevant.shape[1], bool))


def test_probabilities_of_first_results_hold_for_easy_and_for_hard_queries():
    rng = np.random.default_rng(0)
    known = known_of(rng)
    assert isinstance(known, Calibration)
    ranking, _, relevant, hard = rankings(rng)  # others, of the same kind
    likely = np.stack([known.of(scores, scores[:10]) for scores in ranking.scores])
    for these in (hard, ~hard):
        for depth in (1, 10):
            assert likely[these, :depth].mean() == pytest.approx(relevant[these, :depth].mean(), abs=0.1)
    assert likely[:, 100:].mean() == pytest.approx(relevant[:, 100:].mean(), abs=0.1)
    assert known.base_rate == pytest.approx(relevant.mean(), abs=0.05)


@pytest.mark.parametrize("n", [30, 3000])
def test_the_fit_is_that_of_scikit_learn(n):
    rng = np.random.default_rng(n)
    features, weights = rng.normal(size=(n, 3)), rng.random(n)
    answers = rng.random(n) < 1 / (1 + np.exp(3 - features @ [5, 1, -1]))
    fitted = LogisticRegression(tol=1e-12, max_iter=10_000).fit(features, answers, sample_weight=weights)
    np.testing.assert_allclose(
        _fit_logistic(features, answers, weights), [*fitted.coef_[0], fitted.intercept_[0]], rtol=1e-5, atol=1e-6
    )
    apart = _fit_logistic(features, features[:, 0] > 0, weights * 1e6)  # nothing but the penalty ends it
    assert np.isfinite(apart).all()


def test_probabilities_never_rise_and_are_no_surer_than_the_queries_allow():
    known = known_of(np.random.default_rng(0))
    scores = np.array([9.0, 5.0, 1.0, 0.5, -9.0])
    likely = known.of(scores, [1.0, 0.99, 0.98])  # above the best they count as the best
    assert (np.diff(likely) <= 0).all()
    assert likely[0] == likely[1] == likely[2] == known.of([1.0], [1.0, 0.99, 0.98])[0] <= 1 - 1 / 252
    copy = known.of([0.5], [9.0, 0.99, 0.98])
    assert copy == known.of([0.5], [2.0, 0.99, 0.98])  # a near copy counts as a best score well above the others
    alone = known.of([0.97], [1.0, 0.99, 0.98, 0.97, 0.96])
    assert alone == known.of([1.0, 0.97, 0.5], [1.0, 0.99, 0.98, 0.97, 0.96])[1]  # nor do other results
    assert known.of([], []).tolist() == []
    assert known.of([1.0], [1.0]).shape == (1,)


def test_first_results_are_no_surer_than_their_queries_tell():
    """Where first results are alike for all queries, and the others are not, the mean of a query tells little of them.

    One logistic function for all ranks is too bold of the first results of high means, and too modest of low ones.
    """
    rng = np.random.default_rng(0)

    def drawn():
        of_query, ranks = rng.normal(0, 0.3, 250), np.arange(300)
        scores = of_query[:, None] - 0.1 * np.log(1 + ranks) - 0.02 * np.maximum(ranks - 10, 0)
        odds = 6 * of_query[:, None] * (ranks > 0) - 2.5 * (ranks > 0) - 0.1 * ranks
        images = np.tile(np.arange(300, dtype=np.int32), (250, 1))
        return Ranking(images, scores.astype(np.float32)), rng.random(scores.shape) < 1 / (1 + np.exp(-odds)), of_query

    ranking, relevant, _ = drawn()
    known = calibrate(ranking, relevant, np.ones(300, bool))
    ranking, _, of_query = drawn()
    likely = np.array([known.of(scores[:1], scores[:10])[0] for scores in ranking.scores])
    low, high = (
        likely[rows].mean() for rows in (of_query < np.quantile(of_query, 0.2), of_query > np.quantile(of_query, 0.8))
    )
    assert (low, high) == pytest.approx((0.5, 0.5), abs=0.2)


def test_no_calibration_where_little_was_held_out_and_an_older_one_as_it_was():
    older = read_calibration(
        {"calibration": {"weights": [2.0, 3.0, 1.0], "intercept": -1.0, "base_rate": 0.1, "n_queries": 98}}
    )
    assert older.of([0.9, 0.4], [0.9, 0.8, 0.7]).round(3).tolist() == [0.858, 0.711]
    ranking, relevant, *_ = rankings(np.random.default_rng(0), n_queries=9)
    everyone = np.ones(relevant.shape[1], bool)
    assert "of their label: 9; 10 are needed" in calibrate(ranking, relevant, everyone)
    ranking, relevant, *_ = rankings(np.random.default_rng(0), n_queries=20)
    assert "all held-out" in calibrate(ranking, np.ones_like(relevant), everyone)
    assert read_calibration({}) == "no labelled images were held out"
    older = {"scores": [0.0, 1.0], "probabilities": [0.1, 0.9], "base_rate": 0.2, "n_pairs": 10}
    assert "train again" in read_calibration({"calibration": older})


def test_images_without_labels_are_ranked_and_not_counted():
    rng = np.random.default_rng(0)
    ranking, relevant, *_ = rankings(rng)
    labelled = rng.random(relevant.shape[1]) < 0.5
    half = calibrate(ranking, relevant & labelled, labelled)
    every = calibrate(ranking, relevant, np.ones_like(labelled))
    best = ranking.scores[0, :10]
    likely = [one.of(best, best).mean() for one in (half, every)]
    assert likely[0] == pytest.approx(likely[1], abs=0.05)
    assert half.base_rate == pytest.approx(every.base_rate, abs=0.01)


def test_search_shows_probabilities_and_leaves_out_what_is_less_likely(finished):
    searcher = Searcher(finished / "runs/fruit")
    every = searcher.search("pear/3.jpg", k=29, learner="oasis")[0]["results"]
    known = [result["probability"] for result in every]
    assert known == sorted(known, reverse=True)
    assert 0 < known[-1] < known[0] < 1
    likely = searcher.search("pear/3.jpg", k=29, learner="oasis", min_probability=known[4])[0]["results"]
    assert likely == [result for result in every if result["probability"] >= known[4]]
    call = ["search", "pear/3.jpg", "-k", "29", "--learner", "oasis", "--min-probability", known[4]]
    assert json_of(*call, cwd=finished)[0]["results"] == likely
    assert f"  {known[0]:.0%} likely" in visterm(*call, cwd=finished).stdout
    assert "probability" not in searcher.search("pear/3.jpg", learner="oasis", weight=2)[0]["results"][0]
    for learner, reason in (("cosine", "cosine is not trained"), ("musl", "compares images by their labels")):
        assert reason in refused(*call[:-3], learner, *call[-2:], cwd=finished)
    assert "the weight of the learned similarity" in refused(*call, "--learned-weight", "0.123", cwd=finished)


@pytest.mark.parametrize("options", [{"k": 3}, {"offset": 2}, {"label": "apple"}, {"exclude_duplicates": True}])
def test_a_probability_depends_on_neither_k_nor_filters(finished, options):
    searcher = Searcher(finished / "runs/fruit")
    every = searcher.search("pear/3.jpg", k=29, learner="oasis")[0]["results"]
    known = {result["id"]: result["probability"] for result in every}
    fewer = searcher.search("pear/3.jpg", learner="oasis", **options)[0]["results"]
    assert fewer
    assert {result["id"]: result["probability"] for result in fewer}.items() <= known.items()
