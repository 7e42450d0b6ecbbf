"""The two sides of a similarity as steps, and as an ONNX model: equal to what the learner itself gives."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from visterm.learners import (
    AROMA,
    HIER,
    OASIS,
    RCA,
    WSABIE,
    Blend,
    Cosine,
    KNNAnnotator,
    LabelRidge,
    MuSL,
    OneVsRestPA,
    to_onnx,
)
from visterm.learners.base import SimilarityLearner
from visterm.learners.maps import as_chain
from visterm.plugins.export import onnx_maps

STEPS = {"n_steps": 1000, "pass_steps": 500, "random_state": 3}
LEARNERS = {
    "cosine": Cosine(),
    "oasis": OASIS(**STEPS),
    "oasis-whitened": OASIS(whiten=True, **STEPS),
    "oasis-dissim": OASIS(variant="dissim", **STEPS),
    "aroma": AROMA(**STEPS),
    "aroma-factored-whitened": AROMA(covariance="factored", whiten=True, **STEPS),
    "knn": KNNAnnotator(random_state=3),
    "rca": RCA(),
    "ridge-whitened": LabelRidge(whiten=True),
    "wsabie": WSABIE(n_components=[4, 8], **STEPS),
    "wsabie-whitened": WSABIE(n_components=8, whiten=True, **STEPS),
    "ovr": OneVsRestPA(**STEPS),
    "hier": HIER(**STEPS),
}
NO_CHAIN = {("cosine", 0.4), ("hier", 1.0), ("hier", 0.4), ("ovr", 0.4), ("knn", 0.4)}


@pytest.fixture(scope="module", params=LEARNERS)
def fitted(request, synonyms):
    return request.param, clone(LEARNERS[request.param]).fit(*synonyms)


@pytest.fixture(params=[1.0, 0.4])
def similarity(request, fitted):
    """A learner and its name, or a share of it with a scale of its own."""
    name, learner = fitted
    return name, request.param, learner if request.param == 1 else Blend(learner, request.param, scale=2.5)


def dense(side):
    return side.toarray() if sp.issparse(side) else side


def run(model, X):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["query", "gallery"], {"vectors": X})


def follow(chain, X):
    """The steps of a chain, as the documentation has them."""
    if chain.first is not None:
        X = X @ chain.first.matrix + (0 if chain.first.offset is None else chain.first.offset)
    if chain.unit:
        X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
    if chain.second is not None:
        X = X @ chain.second.matrix + (0 if chain.second.offset is None else chain.second.offset)
    return X


def test_onnx_runtime_gives_the_sides(similarity, synonyms):
    _, _, learner = similarity
    X = synonyms[0].toarray()
    X[3] = 0
    query, gallery = run(to_onnx(learner), X)
    assert query.dtype == gallery.dtype == np.float32
    np.testing.assert_allclose(query, dense(learner.transform_query(X)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gallery, dense(learner.transform(X)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(query @ gallery.T, learner.similarity(X, X), rtol=1e-4, atol=1e-5)


def test_a_chain_of_products_gives_the_query_side(similarity, synonyms):
    name, share, learner = similarity
    X = synonyms[0].toarray()
    chain = as_chain(learner.query_map(), X.shape[1])
    assert (chain is None) == ((name, share) in NO_CHAIN)
    if chain is not None:
        np.testing.assert_allclose(follow(chain, X), dense(learner.transform_query(X)), rtol=1e-4, atol=1e-5)


def test_what_two_sides_have_in_common_is_written_once(synonyms):
    learner = clone(LEARNERS["wsabie-whitened"]).fit(*synonyms)
    onnx = pytest.importorskip("onnx")
    graph = onnx.load_from_string(to_onnx(learner)).graph
    assert len([node for node in graph.node if node.op_type == "MatMul"]) == 2
    assert len(graph.initializer) == 5  # whitening, its offset, the axis of lengths, the smallest one, V


def test_learners_without_a_map_say_so(synonyms):
    musl = MuSL(n_metrics=2, n_bits=4, negatives_per_example=20, random_state=3).fit(*synonyms)
    with pytest.raises(NotImplementedError, match="MuSL compares by metrics .* no export"):
        to_onnx(musl)

    class Own(SimilarityLearner):
        def _fit(self, X, y, options):
            self._check_images(X, reset=True)
            return self

        def transform_query(self, Q):
            return self._check_images(Q) * 2

    with pytest.raises(NotImplementedError, match="Own has no map that can be exported"):
        to_onnx(Own().fit(*synonyms))


@pytest.mark.parametrize("learner", [OASIS(), WSABIE(), Cosine()])
def test_a_learner_that_has_not_learned_says_so(learner):
    with pytest.raises(NotFittedError):
        to_onnx(learner)


def test_a_model_that_does_not_fit_into_a_file_is_refused(synonyms, monkeypatch):
    monkeypatch.setattr(onnx_maps, "_MOST_BYTES", 4_000)
    with pytest.raises(ValueError, match="an ONNX file holds 2 GB at most, and the matrices of this learner take 0.0"):
        to_onnx(clone(LEARNERS["oasis"]).fit(*synonyms))
