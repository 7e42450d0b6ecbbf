import sys

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import AROMA, LEGO, MCML, OASIS, PAMIR, WSABIE, Cosine, KNNAnnotator, MuSL, OneVsRestPA
from visterm.learners.base import SimilarityLearner
from visterm.retrieval import explain

SMALL = {"n_steps": 2000, "pass_steps": 1000, "random_state": 3}
LINEAR = {
    "cosine": Cosine(),
    "oasis": OASIS(**SMALL),
    "oasis-dissim": OASIS(variant="dissim", **SMALL),
    "aroma": AROMA(**SMALL),
    "aroma-factored": AROMA(covariance="factored", **SMALL),
    "lego": LEGO(**SMALL),
    "mcml": MCML(n_steps=5, pass_steps=5, random_state=3),
    "wsabie": WSABIE(n_components=8, **SMALL),
    "wsabie-ensemble": WSABIE(n_components=[4, 6], **SMALL),
    "wsabie-weighted": WSABIE(n_components=[4, 6], validation_fraction=0.2, **SMALL),
    "pamir": PAMIR(**SMALL),
    "ovr": OneVsRestPA(**SMALL),
    "knn": KNNAnnotator(random_state=3),
}
N_FEATURES = 30


def make_parts(n_parts, seed, *, per_part=1):
    """Parts whose sum has unit length, many of them equal and one of them empty."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((n_parts, N_FEATURES), np.float32)
    weights = rng.uniform(0.2, 1, N_FEATURES)
    for row in dense[1:]:
        features = rng.choice(N_FEATURES // 2, per_part, replace=False)
        row[features] = weights[features]
    return sp.csr_matrix(dense / np.linalg.norm(dense.sum(axis=0)))


@pytest.fixture(scope="module")
def images():
    """Non-negative vectors of unit length, of three classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(["pear", "plum", "fig"], 20)
    X = rng.poisson(0.3, (60, N_FEATURES)).astype(np.float32)
    for c, name in enumerate(("pear", "plum", "fig")):
        X[y == name, 5 * c : 5 * c + 5] += rng.poisson(1.0, (20, 5))
    X[:, -1] += 1
    return sp.csr_array(X / np.linalg.norm(X, axis=1, keepdims=True)), y


@pytest.fixture(scope="module", params=LINEAR)
def linear(request, images):
    return LINEAR[request.param].fit(*images)


@pytest.mark.parametrize("per_part", [1, 4])
def test_contributions_sum_to_the_score_that_search_shows(linear, per_part):
    query, result = make_parts(25, 1, per_part=per_part), make_parts(18, 2, per_part=per_part)
    score = linear.similarity(query.sum(axis=0).A, result.sum(axis=0).A)[0, 0]
    explained = explain(linear, query, result)
    assert explained.score == pytest.approx(score, rel=1e-5)
    assert abs(score) > 1e-4
    near = {"rel": 1e-4, "abs": 1e-5}
    assert explained.query.sum(dtype=float) == pytest.approx(score, **near)
    assert explained.result.sum(dtype=float) == pytest.approx(score, **near)
    assert explained.positive + explained.negative == pytest.approx(score, **near)
    assert explained.positive >= 0 >= explained.negative
    assert explained.query.shape == (25,)
    assert explained.result.shape == (18,)
    assert sum(pair.contribution for pair in explained.pairs) == pytest.approx(score, **near)


def test_contributions_are_those_of_each_pair_alone(linear):
    """Leaving out a part changes each contribution of the others by nothing, for the same image."""
    query, result = make_parts(12, 3), make_parts(10, 4)
    q, x = query.sum(axis=0).A, result.sum(axis=0).A
    matrix = np.zeros((12, 10))
    for i in range(12):
        for j in range(10):
            a, b = linear.transform_query_parts(query[i], q), linear.transform_parts(result[j], x)
            matrix[i, j] = (a @ b.T).sum()
    explained = explain(linear, query, result)
    near = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(explained.query, matrix.sum(axis=1), **near)
    np.testing.assert_allclose(explained.result, matrix.sum(axis=0), **near)
    for pair in explained.pairs:
        np.testing.assert_allclose(pair.contribution, matrix[np.ix_(pair.query_parts, pair.result_parts)].sum(), **near)
    sizes = [abs(pair.contribution) for pair in explained.pairs]
    assert sizes == sorted(sizes, reverse=True)


def test_equal_parts_share_equally_and_the_list_is_cut_to_the_strongest(images):
    query, result = sp.csr_matrix([[0.3, 0.0], [0.3, 0.0], [0.0, 0.8]]), sp.csr_matrix([[0.5, 0.0], [0.5, 0.0]])
    learner = Cosine().fit(query)
    explained = explain(learner, query, result)
    assert explained.score == pytest.approx(0.6)
    np.testing.assert_allclose(explained.query, [0.3, 0.3, 0], rtol=1e-6)
    np.testing.assert_allclose(explained.result, [0.3, 0.3], rtol=1e-6)
    (pair,) = explained.pairs
    assert (pair.query_parts.tolist(), pair.result_parts.tolist()) == ([0, 1], [0, 1])
    assert pair.contribution == pytest.approx(0.6)
    learner = OASIS(**SMALL).fit(*images)
    query, result = make_parts(25, 1, per_part=3), make_parts(18, 2, per_part=3)
    everything, some = explain(learner, query, result), explain(learner, query, result, n_pairs=7)
    assert [pair.contribution for pair in some.pairs] == [pair.contribution for pair in everything.pairs[:7]]
    assert some.positive == everything.positive


def test_pieces_of_a_large_matrix_make_the_same_sums(images, monkeypatch):
    learner = OASIS(**SMALL).fit(*images)
    query, result = make_parts(25, 1, per_part=3), make_parts(18, 2, per_part=3)
    whole = explain(learner, query, result, n_pairs=9)
    monkeypatch.setattr(sys.modules["visterm.plugins.explanation.contributions"], "_AT_ONCE", 100)
    pieces = explain(learner, query, result, n_pairs=9)
    np.testing.assert_allclose(pieces.result, whole.result, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(pieces.query, whole.query, rtol=1e-5, atol=1e-7)
    for a, b in zip(pieces.pairs, whole.pairs, strict=True):
        np.testing.assert_array_equal(a.query_parts, b.query_parts)
        np.testing.assert_array_equal(a.result_parts, b.result_parts)


@pytest.fixture(scope="module")
def musl(images):
    return MuSL(n_metrics=2, n_bits=8, alpha=1.0, midpoint="running", random_state=0).fit(*images)


@pytest.mark.parametrize("label", ["pear", "fig", "never seen", None])
def test_bits_sum_to_the_similarity(musl, label):
    y = None if label is None else np.array([label])
    for seed in range(5):
        query, result = make_parts(20, seed), make_parts(15, seed + 10)
        q, x = query.sum(axis=0).A, result.sum(axis=0).A
        score = musl.similarity(q, x, y)[0, 0]
        explained = explain(musl, query, result, y)
        assert explained.score == score
        assert explained.positive + explained.negative == pytest.approx(score)
        assert sum(pair.contribution for pair in explained.pairs) == pytest.approx(score)
        assert explained.positive - explained.negative == pytest.approx(8)  # each bit once, or K times 1 / K
        for parts, heat, side in ((query, explained.query, 0), (result, explained.result, 1)):
            shown = sum(pair.contribution for pair in explained.pairs if len(pair[side]))
            assert heat.sum() == pytest.approx(shown, abs=1e-5)
            assert not heat[np.diff(parts.indptr) == 0].any()


def test_a_bit_belongs_to_the_blocks_with_its_visterm(musl):
    query, result = make_parts(20, 1), make_parts(15, 2)
    q, x = query.sum(axis=0).A, result.sum(axis=0).A
    metric = musl.metric_of_category_[musl.classes_.tolist().index("pear")]
    features, thresholds = musl.stump_features_[metric], musl.stump_thresholds_[metric]
    same = (q[0, features] < thresholds) == (x[0, features] < thresholds)
    explained = explain(musl, query, result, np.array(["pear"]))
    expected = {
        (tuple(query[:, j].nonzero()[0]), tuple(result[:, j].nonzero()[0]), sum(2.0 * same[features == j] - 1))
        for j in set(features.tolist())
    }
    assert {(*map(tuple, pair[:2]), pair.contribution) for pair in explained.pairs} == expected


def test_images_and_similarities_that_are_refused(images):
    empty, some = sp.csr_matrix((3, N_FEATURES), dtype=np.float32), make_parts(5, 0)
    learner = Cosine().fit(images[0])
    with pytest.raises(ValueError, match="the vector of the result is zero"):
        explain(learner, some, empty)
    with pytest.raises(ValueError, match="the vector of the query is zero"):
        explain(learner, empty, some)

    class Squared(SimilarityLearner):
        _fit = Cosine._fit

        def transform(self, X, y=None):
            return abs(super().transform(X)).power(2)

    class Wrong(Cosine):
        def transform_query(self, Q):
            return self.transform(Q) * 2

    parts = make_parts(5, 0)
    with pytest.raises(ValueError, match="Squared is not a sum over parts"):
        explain(Squared().fit(images[0], None), parts, parts)
    with pytest.raises(NotImplementedError, match="Squared"):
        Squared().fit(images[0], None).transform_parts(parts, parts.sum(axis=0).A)
    with pytest.raises(ValueError, match="Wrong declares `linear` but is not"):
        explain(Wrong().fit(images[0]), parts, parts)
