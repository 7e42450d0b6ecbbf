"""A learner and cosine in one similarity."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from visterm.learners import AROMA, HIER, LEGO, OASIS, RCA, WSABIE, Blend, KNNAnnotator, MuSL, OneVsRestPA
from visterm.learners.blend import scale_of
from visterm.retrieval import ExactIndex

SHORT = {"n_steps": 2000, "random_state": 0}
PLAIN = SHORT | {"whiten": False}
LEARNERS = [
    OASIS(**PLAIN),
    OASIS(variant="dissim", **PLAIN),
    AROMA(**PLAIN),
    AROMA(covariance="factored", **PLAIN),
    LEGO(**SHORT),
    WSABIE(n_components=4, **PLAIN),
    OneVsRestPA(**SHORT),
    HIER(**SHORT),
    KNNAnnotator(random_state=0),
    MuSL(n_metrics=2, n_bits=4, n_jobs=1, random_state=0),
    RCA(),
]


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 20)
    X = rng.random((60, 12)) * (rng.random((60, 12)) < 0.5)
    X[np.arange(60), y] += 1
    return sp.csr_array(normalize(X).astype(np.float32)), y


@pytest.fixture(scope="module", params=LEARNERS, ids=repr)
def learner(request, images):
    return request.param.fit(*images)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_sum_of_both_sides_has_the_same_bits_however_it_is_made(share):
    rng = np.random.default_rng(0)
    learner = OASIS()
    learner.n_features_in_, learner.W_ = 50, rng.normal(size=(50, 50)).astype(np.float32)
    X = sp.random_array((40, 50), density=0.2, rng=rng, dtype=np.float32, format="csr")
    cosine, learned = np.float32(1 - share), np.float32(share)
    twice = sp.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), 2 * X.indptr), X.shape)
    for Q in (X, X[:, ::-1].copy()[:, ::-1], twice, X.toarray()):
        before = Q.toarray() if sp.issparse(Q) else Q.copy()
        expected = cosine * before + learned * learner.transform_query(Q)
        np.testing.assert_array_equal(Blend(learner, share).transform_query(Q), expected)
        np.testing.assert_array_equal(Q.toarray() if sp.issparse(Q) else Q, before)


def test_by_hand():
    """W = I + [[1, 0], [2, 0]], a quarter of it learned: q' (I + [[1, 0], [2, 0]] / 4) x."""
    learner = OASIS()
    learner.n_features_in_, learner.W_ = 2, np.array([[2, 0], [2, 1]], np.float32)
    scores = Blend(learner, 0.25).similarity([[1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(scores, [[1.75, 1.0]])


def test_is_the_mixture_of_both_and_its_parts_add_up(learner, images):
    X, y = images
    labels = y if type(learner).__name__ == "MuSL" else None
    look, learned = (X @ X.T).toarray(), learner.similarity(X, X, labels)
    for share in (0.0, 0.3, 1.0):
        mixture = Blend(learner, share, scale=0.7 if not learner.gallery_is_vectors else 1.0)
        expected = (1 - share) * look + share * mixture.scale * learned
        np.testing.assert_allclose(mixture.similarity(X, X, labels), expected, atol=2e-5)
        np.testing.assert_allclose(mixture.similarity(X.toarray(), X.toarray(), labels), expected, atol=2e-5)
    if not learner.linear:
        assert not Blend(learner, 0.5).linear
        return
    X = images[0]
    blend, parts = Blend(learner, 0.3, scale=1.0), sp.csr_array(sp.diags_array(X[[0]].toarray()[0]))
    sides = blend.transform_query_parts(parts, X[[0]]), blend.transform_parts(parts, X[[0]])
    sums = [np.asarray(side.toarray() if sp.issparse(side) else side).sum(axis=0) for side in sides]
    assert sums[0] @ sums[1] == pytest.approx(blend.similarity(X[[0]], X[[0]])[0, 0], abs=1e-4)


def test_one_index_serves_every_share(learner, images):
    X, y = images
    labels = y if type(learner).__name__ == "MuSL" else None
    blend = Blend(learner, 0.4)
    if blend.shares_gallery:
        np.testing.assert_array_equal(blend.transform(X).toarray(), learner.transform(X).toarray())
    ranking = ExactIndex(blend, X, labels).search(X[:5], k=4)
    scores = blend.similarity(X[:5], X, labels)
    np.testing.assert_allclose(ranking.scores, -np.sort(-scores, axis=1)[:, :4], atol=2e-5)


def test_scale_makes_both_vary_alike(images):
    X, y = images
    others = ~np.eye(60, dtype=bool)
    look = (X @ X.T).toarray()[others].std()
    for learner in (WSABIE(n_components=4, **PLAIN), AROMA(**PLAIN)):
        learned = learner.fit(X, y).similarity(X, X)[others].std()
        assert scale_of(learner, X) * learned == pytest.approx(look, rel=1e-4)
    assert scale_of(OASIS(**PLAIN).fit(X, y), X) == 1
    learner = WSABIE(n_components=4, **PLAIN).fit(X, y)
    learner.visterm_vectors_ = np.zeros_like(learner.visterm_vectors_)
    assert scale_of(learner, X) == 1  # all images are alike
    assert scale_of(learner, X[:1]) == 1


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "a lot", True])
def test_refuses_what_is_no_share(share):
    with pytest.raises(ValueError, match="learned_weight must be a number from 0 to 1"):
        Blend(OASIS(), share)
    with pytest.raises(ValueError, match="scale must be a positive number"):
        Blend(OASIS(), 0.5, scale=0.0)
