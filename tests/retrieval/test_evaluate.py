import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.stats
from galleries import Bilinear
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import label_ranking_average_precision_score

from visterm.learners import Cosine
from visterm.retrieval import (
    Evaluation,
    ExactIndex,
    Ranking,
    compare,
    evaluate,
    evaluate_index,
    evaluate_query_gallery,
    evaluate_test_test,
    mean_recall,
    relevance_from_labels,
)


def ranking_of(*rows):
    indices = np.array(rows, np.int32)
    return Ranking(indices, np.where(indices >= 0, -np.arange(indices.shape[1]), -np.inf).astype(np.float32))


def some_data(seed=0, n=60, d=7, n_classes=5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)).astype(np.float32), rng.integers(0, n_classes, n)


def assert_same(a: Evaluation, b: Evaluation):
    for name in ("average_precision", "precision", "first_relevant", "n_relevant", "n_candidates"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def test_by_hand():
    relevance = sp.csr_matrix(np.array([[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]]))
    figures = evaluate(ranking_of([0, 1, 2, 3], [1, 3, 0, 2], [0, 1, 2, 3]), relevance)
    np.testing.assert_allclose(figures.average_precision, [(1 / 1 + 2 / 3) / 2, 1 / 2, np.nan])
    np.testing.assert_allclose(figures.precision, [[1, 1 / 2, 2 / 3, 2 / 4], [0, 1 / 2, 1 / 3, 1 / 4], [0] * 4])
    np.testing.assert_array_equal(figures.first_relevant, [1, 2, 0])
    np.testing.assert_array_equal(figures.n_relevant, [2, 1, 0])
    assert (figures.n_queries, figures.n_without_relevant) == (2, 1)
    assert figures.mean_average_precision == pytest.approx(((1 / 1 + 2 / 3) / 2 + 1 / 2) / 2)
    np.testing.assert_allclose(figures.precision_curve, [1 / 2, 1 / 2, (2 / 3 + 1 / 3) / 2, (2 / 4 + 1 / 4) / 2])
    assert figures.precision_at(3) == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert figures.chance_precision == pytest.approx((2 / 4 + 1 / 4) / 2)
    with pytest.raises(ValueError, match="precision at 1 to 4, not at 5"):
        figures.precision_at(5)

    cut = evaluate(ranking_of([0, 1, 2, 3]), relevance[:1], max_k=2)
    assert cut.max_k == 2
    assert cut.mean_average_precision == pytest.approx((1 / 1 + 2 / 3) / 2)
    nothing = evaluate(ranking_of([0, 1]), sp.csr_matrix((1, 2)))
    assert (nothing.n_queries, nothing.n_without_relevant) == (0, 1)
    for value in (nothing.mean_average_precision, nothing.precision_curve, nothing.map_interval()):
        assert np.isnan(value).all()
    assert np.isnan(nothing.chance_mean_average_precision)
    relevance = sp.csr_matrix(np.array([[1, 0, 1, 1]]))
    figures = evaluate(ranking_of([2, 1, -1]), relevance)
    np.testing.assert_allclose(figures.average_precision, [(1 / 1 + 0 + 0) / 3])
    np.testing.assert_allclose(figures.precision, [[1 / 1, 1 / 2, 1 / 3]])


def test_bad_input():
    X, y = some_data()
    relevance, right = sp.csr_matrix(np.eye(3)), [[0, 1, 2]] * 3
    index = ExactIndex(Bilinear(), X)
    for call, message in (
        (lambda: evaluate(ranking_of([0, 1, 2]), relevance), "1 ranked lists, but relevance for 3 queries"),
        (lambda: evaluate(ranking_of(*[[0, 1, 3]] * 3), relevance), "names images beyond the 3 of the gallery"),
        (lambda: evaluate(ranking_of([0, 1, 2], [0, 0, 2], [0, 1, 2]), relevance), "query 1 names an image twice"),
        (lambda: evaluate(ranking_of(*right), relevance, max_k=0), "max_k must be at least 1"),
        (lambda: evaluate(ranking_of(*right), np.eye(3)), "sparse matrix"),
        (lambda: relevance_from_labels([1, 2], sp.csr_matrix(np.eye(2))), "must both have plain labels"),
        (lambda: relevance_from_labels(sp.eye_array(2), sp.eye_array(3)), "queries have 2 labels, the gallery has 3"),
        (lambda: relevance_from_labels(np.eye(2), np.eye(2)), "labels must be an array"),
        (lambda: relevance_from_labels(["a", None], ["a"]), "labels hold None in place of a label"),
        (lambda: relevance_from_labels(["a", pd.NA], ["a"]), "labels hold <NA> in place of a label"),
        (lambda: evaluate_test_test(Bilinear(), X, np.where(y > 1, y, np.nan)), "labels hold nan in place of a label"),
        (lambda: mean_recall([0, 1], [np.nan, 1]), "labels hold nan in place of a label"),
        (lambda: evaluate(ranking_of(*right), relevance, classes=[0, 1, 2]), "of the queries' classes, and those of"),
        (
            lambda: evaluate_index(index, X, relevance_from_labels(y, y[:-1])),
            r"relevance must be \(60, 60\), got \(60, 59\)",
        ),
        (lambda: evaluate_index(index, X[:0], relevance_from_labels(y[:0], y)), "no queries"),
        (lambda: compare(evaluation_with([0.1, 0.2]), evaluation_with([0.1, np.nan])), "not of the same queries"),
        (lambda: compare(evaluation_with([np.nan]), evaluation_with([np.nan])), "nothing to compare"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_relevance_from_labels():
    relevance = relevance_from_labels(["cat", "dog", "emu"], ["dog", "cat", "dog"])
    np.testing.assert_array_equal(relevance.toarray(), [[0, 1, 0], [1, 0, 1], [0, 0, 0]])
    assert relevance.dtype == bool
    y = np.array([0, 0, 1])
    np.testing.assert_array_equal(
        relevance_from_labels(y, y, exclude=np.arange(3)).toarray(), [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    )
    np.testing.assert_array_equal(relevance_from_labels(y[:2], y, exclude=[-1, 1]).toarray(), [[1, 1, 0], [1, 0, 0]])
    query = sp.csr_matrix(np.array([[2.0, 0, 1], [0, 0, 0]]))
    gallery = sp.csr_matrix(np.array([[1.0, 0, 1], [0, 3, 0], [0, 1, -1]]))
    np.testing.assert_array_equal(relevance_from_labels(query, gallery).toarray(), [[1, 0, 0], [0, 0, 0]])


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_agrees_with_scikit_learn(seed):
    X, y = some_data(seed)
    Q, y_query = some_data(seed + 1, n=15)
    figures = evaluate_query_gallery(Bilinear(), Q, y_query, X, y)
    relevance = relevance_from_labels(y_query, y).toarray()
    kept = figures.counted
    theirs = label_ranking_average_precision_score(relevance[kept], (Q @ X.T)[kept])
    assert figures.mean_average_precision == pytest.approx(theirs, rel=1e-9)


def test_a_perfect_similarity_reaches_one_and_random_scores_chance():
    y = np.repeat(np.arange(4), 5)
    X = np.eye(4, dtype=np.float32)[y]
    figures = evaluate_test_test(Bilinear(), X, y)
    assert figures.mean_average_precision == pytest.approx(1)
    assert figures.precision_at(4) == 1
    assert figures.precision_at(8) == 4 / 8
    assert (figures.first_relevant == 1).all()
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 60)
    figures = evaluate_test_test(Bilinear(), rng.standard_normal((300, 200)), y)
    assert figures.mean_average_precision == pytest.approx(figures.chance_mean_average_precision, rel=0.05)
    assert figures.chance_precision == pytest.approx(59 / 299)


@pytest.mark.parametrize("block_size", [1, 7, 1000])
def test_blocks_do_not_change_the_figures(block_size):
    X, y = some_data()
    own = np.arange(len(y))
    index = ExactIndex(Bilinear(), X)
    for exclude in (own, np.where(own < 20, own, -1)):
        relevance = relevance_from_labels(y, y, exclude=exclude)
        whole = evaluate(index.search(X, exclude=exclude), relevance, exclude=exclude)
        assert_same(whole, evaluate_index(index, X, relevance, exclude=exclude, block_size=block_size))
        np.testing.assert_array_equal(whole.n_candidates, len(y) - (exclude >= 0))
    assert_same(evaluate_test_test(Bilinear(), X, y, n_jobs=2), evaluate_test_test(Bilinear(), X * 8, y))


def evaluation_with(average_precision):
    values = np.asarray(average_precision, float)
    counts = np.where(np.isnan(values), 0, 3)
    candidates = np.full(len(values), 9)
    return Evaluation(
        values, values[:, None], np.ones(len(values), int), counts, candidates, values[:, None], values, values
    )


def test_interval_agrees_with_scipy():
    values = np.random.default_rng(0).beta(2, 5, size=200)
    figures = evaluation_with([*values, np.nan])
    low, high = figures.map_interval()
    theirs = scipy.stats.bootstrap((values,), np.mean, method="percentile", rng=1).confidence_interval
    assert low == pytest.approx(theirs.low, abs=0.003)
    assert high == pytest.approx(theirs.high, abs=0.003)
    assert low < figures.mean_average_precision < high
    assert figures.map_interval() == (low, high)  # seeded
    narrow = figures.map_interval(confidence=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_classes_without_counted_queries_are_no_evidence_of_others():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 6)
    X = np.hstack([rng.normal(size=(3, 4))[y] + rng.normal(size=(18, 4)), np.full((18, 1), -9)]).astype(np.float32)
    known = evaluate_test_test(Bilinear(), X, y).map_interval(of_classes=True)
    far = np.zeros((40, 5), np.float32)
    far[:, 4] = 99  # behind all others, each the only one of its class
    figures = evaluate_test_test(Bilinear(), np.vstack([X, far]), np.concatenate([y, np.arange(3, 43)]))
    assert figures.map_interval(of_classes=True) == pytest.approx(known)


def test_an_interval_of_classes_by_hand():
    """The mAP of trainings without each class as it is measured without its images, and Student's t."""
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 6)
    X = (rng.normal(size=(3, 4))[y] + rng.normal(size=(18, 4))).astype(np.float32)
    learner = Cosine().fit(X)
    figures = evaluate_test_test(learner, X, y)
    without = np.array([evaluate_test_test(learner, X[y != c], y[y != c]).mean_average_precision for c in range(3)])
    mean = figures.mean_average_precision
    error = np.sqrt(2 / 3 * ((without - without.mean()) ** 2).sum())
    half = scipy.stats.t.ppf(0.75, 2) * error * np.sqrt(2) / (mean * (1 - mean))
    low, high = figures.map_interval(of_classes=True, confidence=0.5)
    assert (low, high) == pytest.approx(tuple(scipy.special.expit(scipy.special.logit(mean) + [-half, half])))
    assert 0 < low < mean < high < 1
    few = evaluate_test_test(learner, X[y == 0], y[y == 0])
    assert np.isnan(few.map_interval(of_classes=True)).all()
    assert np.isnan(evaluation_with([0.5, 0.6]).map_interval(of_classes=True)).all()


def test_average_precisions_without_a_class_of_images_with_several_labels():
    """A class that is absent takes its relevant images with it, also of queries of other classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5)).astype(np.float32)
    relevance = sp.csr_matrix(np.triu(rng.random((30, 30)) < 0.3, 1))
    of = rng.integers(0, 4, 30)
    index, rows = ExactIndex(Cosine().fit(X), X), np.arange(30)
    figures = evaluate_index(index, X, relevance, exclude=rows, classes=(of, of), block_size=7)
    for c in range(4):
        rest = np.flatnonzero(of != c)
        alone = ExactIndex(Cosine().fit(X), X[rest])
        expected = evaluate_index(alone, X[rest], relevance[rest][:, rest], exclude=np.arange(len(rest)))
        total, n = figures.without_class[:, c]
        assert n == expected.n_queries
        assert total / n == pytest.approx(expected.mean_average_precision)


@pytest.mark.parametrize("n_classes", [8, 20, 40])
def test_an_interval_of_classes_holds_the_map_of_other_classes(n_classes):
    """Of halves of a set, whose classes differ in how alike their images are; over queries it is far too narrow."""
    rng = np.random.default_rng(n_classes)
    covered = []
    for _ in range(60):
        spread = rng.uniform(0.5, 2.5, 2 * n_classes)
        centres = rng.normal(size=(2 * n_classes, 5))
        halves = []
        for classes in np.split(rng.permutation(2 * n_classes), 2):
            y = np.repeat(classes, 8)
            X = centres[y] + spread[y, None] * rng.normal(size=(len(y), 5))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            halves.append((evaluate_test_test(Cosine().fit(X), X.astype(np.float32), y, max_k=1), y))
        (half, y), (other, _) = halves
        intervals = half.map_interval(of_classes=True), half.map_interval(n_resamples=200)
        covered.append([low <= other.mean_average_precision <= high for low, high in intervals])
    by_class, by_query = np.mean(covered, axis=0)
    assert by_class >= 0.9
    assert by_query < 0.75


def test_queries_of_a_class_are_relabelled_together():
    """Three classes: one of four ways to sign them, up to the sign of all, is as extreme as the observed one."""
    b = np.full(300, 0.4)
    a = b + np.random.default_rng(0).uniform(0.05, 0.15, 300)
    first, second = evaluation_with(a), evaluation_with(b)
    assert compare(first, second).p_value < 0.001
    by_class = compare(first, second, groups=np.repeat(list("abc"), 100))
    assert by_class.p_value == pytest.approx(0.25, abs=0.02)
    assert (by_class.wins, by_class.difference) == (300, compare(first, second).difference)


def test_comparison_agrees_with_scipy_and_tells_equal_from_clearly_better():
    rng = np.random.default_rng(0)
    b = rng.random(40)
    a = b + rng.normal(0.05, 0.2, size=40)
    result = compare(evaluation_with([*a, np.nan]), evaluation_with([*b, np.nan]))
    theirs = scipy.stats.permutation_test(
        (a, b), lambda x, y, axis: (x - y).mean(axis), permutation_type="samples", vectorized=True, rng=1
    )
    assert result.p_value == pytest.approx(theirs.pvalue, abs=0.02)
    assert result.difference == pytest.approx((a - b).mean())
    assert (result.wins, result.ties, result.losses) == ((a > b).sum(), 0, (a < b).sum())
    values = np.linspace(0, 1, 50)
    equal = compare(evaluation_with(values), evaluation_with(values))
    assert (equal.p_value, equal.wins, equal.ties, equal.losses) == (1.0, 0, 50, 0)
    better = compare(evaluation_with(values + 0.1), evaluation_with(values))
    assert better.p_value == 1 / 10_001
    assert (better.wins, better.ties, better.losses) == (50, 0, 0)
    at_one = compare(evaluation_with(values + 0.1), evaluation_with(values), k=1)
    assert at_one.difference == pytest.approx(0.1)
