"""The stand-in of the size of the web: the same in every run, and something to learn from. In small."""

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import OASIS

pytestmark = pytest.mark.slow

webscale = pytest.importorskip("benchmarks.webscale", reason="benchmarks lie in the repository, not in the package")


@pytest.fixture
def small(tmp_path, monkeypatch):
    """3,000 images, kept in a folder of the test's own."""
    monkeypatch.setattr(webscale, "ROOT", tmp_path)
    monkeypatch.setattr(webscale, "BLOCK", 1000)
    return webscale.load(3000)


def test_blocks_do_not_depend_on_each_other_and_rows_are_units(small):
    X, y = small
    world = webscale.World(3000)
    again, images, queries, counts = webscale.make_block(world, 1000, 1000)
    assert (X[1000:2000] != again).nnz == 0
    assert (y[1000:2000] != sp.csr_array((counts, (images - 1000, queries)), shape=(1000, y.shape[1]))).nnz == 0
    assert not X.data.flags.writeable  # as the file is mapped; a copy in memory could be written to
    np.testing.assert_allclose(X.multiply(X).sum(axis=1), 1, rtol=1e-5)
    assert X.indices.max() < X.shape[1] == webscale.D
    rows = [X.indices[a:b] for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    assert all((np.diff(row) > 0).all() for row in rows)
    assert 60 < X.nnz / X.shape[0] < 80
    assert (y.sum(axis=1) > 0).all()
    options = {"n_steps": 40_000, "pass_steps": 20_000, "pairs_per_query": 32, "click_cutoff": 0.0, "refit": False}
    learner = OASIS(random_state=0, **options).fit(X, y, validation_rows=np.arange(2500, 3000))
    maps = [entry["validation"] for entry in learner.history_]
    assert maps[-1] > 1.1 * maps[0]


def test_images_that_were_never_watched_are_ranked_in_the_end(small, monkeypatch):
    scale = pytest.importorskip("benchmarks.scale", reason="benchmarks lie in the repository, not in the package")
    monkeypatch.setattr(scale, "load", webscale.load)
    size = scale.SMALL._replace(images=2000, validation=1000, d=webscale.D)
    assert scale.watched_of(size) == 500
    assert scale.watched_of(scale.FULL) == scale.watched_of(scale.MEDIUM) == scale.WATCHED
    X, y = small
    learner = OASIS(n_steps=40_000, pass_steps=20_000, pairs_per_query=32, click_cutoff=0.0, random_state=0)
    learner.fit(X[:2500], y[:2500], validation_rows=np.arange(2000, 2500))
    figures = scale.unwatched(learner, size)
    # By hand: the 500 rows after those that were watched, all of them queries.
    rest, clicked = X[2500:], (y[2500:] > 0).astype(int)
    scores = (rest @ rest.T).toarray()
    np.fill_diagonal(scores, -1)
    related = (clicked @ clicked.T).toarray() > 0
    some = related.sum(axis=1) > 1
    nearest = related[np.arange(500), scores.argmax(axis=1)]
    assert figures["cosine"]["1"] == pytest.approx(nearest[some].mean(), abs=0.005)
    assert figures["learned"]["10"] > figures["cosine"]["10"] > 0
