"""Kernels without Numba: the plain forms give the bytes of the compiled ones, and take no more than their share."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from visterm import compiled
from visterm.learners import Cosine
from visterm.retrieval import ExactIndex, NeighbourIndex, Neighbours, StoredVectors


@pytest.fixture(params=["sparse", "dense", "stored"])
def gallery(request):
    """Unit rows, some of them equal and some of zeros."""
    rng = np.random.default_rng(5)
    if request.param == "sparse":
        X = sp.random_array((300, 50), density=0.2, rng=rng, dtype=np.float32, format="csr")
        X = sp.csr_array(sp.vstack([X, X[:20]]))
        X.data -= np.float32(0.3)
    else:
        X = np.vstack([X := rng.standard_normal((300, 50), np.float32), X[:20], np.zeros((2, 50), np.float32)])
        if request.param == "stored":
            X = StoredVectors([X.astype(np.float16)], np.zeros(len(X)), np.arange(len(X)))
    return X


def results(gallery, graph, n_queries):
    """Bytes of rankings, with and without neighbours, of few and of many results."""
    index = ExactIndex(Cosine().fit(gallery[:1]), gallery)
    graph = Neighbours.restored(graph.arrays())
    Q, own = gallery[:n_queries], np.arange(n_queries) - 1
    rankings = [index.search(Q, k, exclude=own) for k in (1, 10, 200)]
    for graph.strength in (0, 1):
        by = NeighbourIndex(index, graph, gallery)
        rankings += [by.search(Q, k, exclude=own) for k in (10, 90)]
    sides, rows = index.queries(Q), np.array([3, 310])
    scores = [index.score(side, rows) for side in sides]
    of = np.repeat(np.arange(n_queries), 2)
    np.testing.assert_array_equal(index.score_pairs(sides, np.tile(rows, n_queries), of), np.concatenate(scores))
    links = [links.tobytes() for links in graph._links]
    return [(r.indices.tobytes(), r.scores.tobytes()) for r in rankings], np.stack(scores).tobytes(), links


@pytest.mark.parametrize("n_queries", [1, 2, 5])
def test_plain_kernels_give_the_same_bytes(gallery, n_queries, monkeypatch):
    monkeypatch.setattr(compiled, "WORTH_COMPILING", 0)
    graph = Neighbours.of(ExactIndex(Cosine().fit(gallery[:1]), gallery), gallery)
    expected = results(gallery, graph, n_queries)
    monkeypatch.setattr(compiled, "WORTH_COMPILING", np.inf)
    plain = []
    monkeypatch.setattr(
        compiled.Kernel, "compiled", property(lambda kernel: plain.append(kernel.__name__) or kernel.interpreted)
    )
    assert results(gallery, graph, n_queries) == expected
    assert not plain


def test_plain_kernels_take_no_more_time_than_numba(monkeypatch):
    monkeypatch.setattr(compiled.Kernel, "spent", 0)
    calls = []

    def plain(x):
        calls.append(x)
        return x + 1

    kernel = compiled.njit(plain=plain)(lambda x: x + 1)
    assert (kernel(1), compiled.Kernel.spent > 0) == (2, True)
    compiled.Kernel.spent = compiled.WORTH_COMPILING
    assert (kernel(2), calls) == (3, [1])
    assert "numba" in sys.modules


def test_large_work_is_compiled():
    kernel = compiled.njit(plain=lambda x: NotImplemented)(lambda x: 2 * x)
    assert kernel(4) == 8
