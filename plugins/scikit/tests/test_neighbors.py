"""Learners in pipelines: a metric, points of a space, a graph of neighbours, and the warning of a plain learner."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from visterm.learners import (
    AROMA,
    HIER,
    OASIS,
    RCA,
    WSABIE,
    Cosine,
    Embedding,
    KNNAnnotator,
    MuSL,
    OneVsRestPA,
    SimilarityNeighbors,
)

STEPS = {"n_steps": 3000, "pass_steps": 1000, "random_state": 3}
LEARNERS = {
    "oasis": OASIS(**STEPS),
    "oasis-whitened": OASIS(whiten=True, **STEPS),
    "oasis-dissim": OASIS(variant="dissim", pairs_per_query=8, **STEPS),
    "aroma": AROMA(**STEPS),
    "rca": RCA(),
    "wsabie": WSABIE(n_components=16, max_norm=1.1, learning_rate=0.05, **STEPS),
    "ovr": OneVsRestPA(**STEPS),
    "hier": HIER(**STEPS),
}
QUICK = {"n_steps": 20, "pass_steps": 10, "random_state": 0}


@parametrize_with_checks(
    [
        SimilarityNeighbors(OASIS(**QUICK), n_neighbors=3),
        SimilarityNeighbors(Cosine()),
        Embedding(OASIS(**QUICK)),
    ]
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [Embedding, SimilarityNeighbors])
def test_before_the_fit_it_says_so(kind):
    with pytest.raises(NotFittedError, match=f"This {kind.__name__} instance is not fitted yet"):
        kind().transform(np.eye(3))


@pytest.fixture(params=LEARNERS)
def learner(request):
    return clone(LEARNERS[request.param])


def accuracy(pipeline, synonyms, unseen_synonyms):
    return pipeline.fit(*synonyms).score(*unseen_synonyms)


def test_both_ways_into_a_pipeline_see_what_was_learned(learner, synonyms, unseen_synonyms):
    k = 15  # as many as a class has, most of which share no visterm with the query
    plain = accuracy(KNeighborsClassifier(k), synonyms, unseen_synonyms)
    points = make_pipeline(Embedding(learner), KNeighborsClassifier(k))
    graph = make_pipeline(SimilarityNeighbors(learner, n_neighbors=k), KNeighborsClassifier(k, metric="precomputed"))
    for pipeline in (points, graph):
        assert accuracy(pipeline, synonyms, unseen_synonyms) > plain + 0.15


@pytest.mark.parametrize("name", ["oasis", "oasis-dissim", "rca"])
def test_a_learner_alone_in_a_pipeline_warns(name, synonyms):
    with pytest.warns(UserWarning, match=r"transform gives the gallery side.*Embedding\((OASIS|RCA)\(...\)\) or Sim"):
        make_pipeline(clone(LEARNERS[name]), KNeighborsClassifier()).fit(*synonyms)


@pytest.mark.parametrize("name", ["wsabie", "ovr", "hier"])
def test_a_learner_whose_sides_are_alike_does_not(name, synonyms):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_pipeline(clone(LEARNERS[name]), KNeighborsClassifier()).fit(*synonyms)


def test_the_metric_is_one(learner, X, y):
    X = X.toarray()
    distance = learner.fit(X, y).metric()
    a, b, c = X[[0, 20, 40]]
    assert distance(a, a) == 0 <= distance(a, b) == distance(b, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c) + 1e-6
    points = distance.embed(X)
    assert distance(a, b) == pytest.approx(np.linalg.norm(points[0] - points[20]), rel=1e-5)
    predicted = KNeighborsClassifier(3, metric=distance, algorithm="brute").fit(X[::4], y[::4]).predict(X[1::4])
    np.testing.assert_array_equal(predicted, KNeighborsClassifier(3).fit(points[::4], y[::4]).predict(points[1::4]))


def test_the_metric_of_a_mahalanobis_learner_is_its_similarity(X, y):
    learner = RCA().fit(X, y)
    distance = learner.metric()
    Q = X[:3].toarray()
    squared = np.array([[distance(a, b) ** 2 for b in X.toarray()] for a in Q])
    own = -learner.similarity(Q, X)  # a' A a is left out
    np.testing.assert_allclose(squared - squared[:, :1], own - own[:, :1], atol=1e-3)


@pytest.mark.parametrize("learner", [Cosine(), KNNAnnotator(), MuSL(n_metrics=2, n_bits=4, negatives_per_example=20)])
def test_other_learners_have_a_metric_too(learner, X, y):
    assert learner.fit(X, y).metric()(X[[0]].toarray()[0], X[[20]].toarray()[0]) >= 0


class TestSimilarityNeighbors:
    def test_ranks_as_the_learner(self, learner, X, y, unseen_synonyms):
        Q, _ = unseen_synonyms
        neighbors = SimilarityNeighbors(learner, n_neighbors=7).fit(X, y)
        graph = neighbors.transform(Q)
        scores = neighbors.learner_.similarity(Q, X)
        expected = np.argsort(-scores, axis=1, kind="stable")[:, :8]
        np.testing.assert_array_equal(graph.indices.reshape(-1, 8), expected)
        distances = graph.data.reshape(-1, 8)
        assert (np.diff(distances, axis=1) >= 0).all()
        wanted = np.maximum(neighbors.largest_ - np.take_along_axis(scores, expected, axis=1), 0)
        np.testing.assert_allclose(distances, wanted, atol=1e-6)

    def test_cosine_gives_one_minus_the_cosine(self, synonyms):
        X, _ = synonyms
        graph = SimilarityNeighbors(Cosine(), n_neighbors=2).fit_transform(X)
        assert graph.shape == (60, 60)
        rows = np.repeat(np.arange(60), 3)
        expected = 1 - np.asarray(X[rows].multiply(X[graph.indices]).sum(axis=1)).ravel()
        np.testing.assert_allclose(graph.data, expected, atol=1e-6)
        graph = SimilarityNeighbors(Cosine(), n_neighbors=4, mode="connectivity").fit_transform(synonyms[0])
        assert set(graph.data) == {1}
        assert graph.nnz == 60 * 5

    def test_a_fitted_learner(self, X, y):
        fitted = OASIS(**STEPS).fit(X, y)
        before = fitted.W_.copy()
        graph = SimilarityNeighbors(FrozenEstimator(fitted)).fit(X).transform(X)
        np.testing.assert_array_equal(fitted.W_, before)
        expected = SimilarityNeighbors(OASIS(**STEPS)).fit(X, y).transform(X)
        np.testing.assert_array_equal(graph.toarray(), expected.toarray())
        points = Embedding(FrozenEstimator(fitted)).fit(X).transform(X)
        np.testing.assert_array_equal(points, fitted.metric().embed(X))

    @pytest.mark.parametrize("dense", [False, True])
    def test_an_image_is_the_first_of_its_own_row(self, X, y, dense):
        """A learned similarity may find others more similar; scikit-learn drops the first one as the image itself."""
        X = X.toarray() if dense else X
        neighbors = SimilarityNeighbors(LEARNERS["oasis"], n_neighbors=5)
        graph = neighbors.fit_transform(X, y)
        scores = neighbors.learner_.similarity(X, X)
        assert (scores.argmax(axis=1) != np.arange(60)).any()
        nearest, distances = graph.indices.reshape(60, 6), graph.data.reshape(60, 6)
        np.testing.assert_array_equal(nearest[:, 0], np.arange(60))
        assert (distances[:, 0] == 0).all()
        np.fill_diagonal(scores, -np.inf)
        np.testing.assert_array_equal(nearest[:, 1:], np.argsort(-scores, axis=1, kind="stable")[:, :5])
        some = neighbors.transform(X[[7, 3]])
        np.testing.assert_array_equal(some.toarray(), graph[[7, 3]].toarray())
        of_sklearn = KNeighborsClassifier(5, metric="precomputed").fit(graph, y).kneighbors(return_distance=False)
        np.testing.assert_array_equal(of_sklearn, nearest[:, 1:])

    def test_feeds_dbscan_and_tsne(self, X, y):
        graph = SimilarityNeighbors(OASIS(**STEPS), n_neighbors=30).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            distances = graph.transform(X)
            near = np.median(distances.data)
            assert len(set(DBSCAN(eps=near, metric="precomputed").fit_predict(distances))) >= 1
            points = TSNE(metric="precomputed", init="random", perplexity=5, max_iter=250).fit_transform(distances)
        assert points.shape == (60, 2)

    def test_parameters(self, synonyms):
        for params, message in (({"n_neighbors": 0}, "n_neighbors must be"), ({"mode": "far"}, "mode must be")):
            with pytest.raises(ValueError, match=message):
                SimilarityNeighbors(Cosine(), **params).fit(*synonyms)


def test_feeds_umap(synonyms, umap):
    X, y = synonyms
    distances = SimilarityNeighbors(OASIS(**STEPS), n_neighbors=59).fit(X, y).transform(X).toarray()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert umap.UMAP(metric="precomputed", random_state=0, n_epochs=20).fit_transform(distances).shape == (60, 2)
