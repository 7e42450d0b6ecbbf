"""Ranking by the gallery's neighbours: the formula, queries from inside and outside, parts, and changes."""

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import Cosine
from visterm.retrieval import ExactIndex, NeighbourIndex, Neighbours, TwoStageIndex, evaluate_index, with_neighbours
from visterm.retrieval import neighbours as module
from visterm.retrieval.evaluation import relevance_from_labels
from visterm.retrieval.neighbours import AGREEMENT, ENTRIES, FEWEST, LISTED, SCALES, TIMES


def photos(n=120, d=24, n_classes=8, spread=0.8, seed=0):
    """Unit vectors around the centre of their class, and the classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n_classes, d))[y] + spread * rng.normal(size=(n, d))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def ranked_by(X, **options):
    index = ExactIndex(Cosine().fit(X), X, **options)
    return NeighbourIndex(index, Neighbours.of(index, X), X)


# ---------------------------------------------------------------------------------------------------- the formula


def codes_of(near):
    """v of all photos, as the module's docstring has it, by sets."""
    n = len(near)
    v = np.zeros((n, n))
    for k in SCALES:

        def reciprocal(x, k):
            return {c for c in near[x][:k] if x in near[c][:k]}

        groups = []
        for x in range(n):
            R = {x} | reciprocal(x, k)
            more = set()
            for c in R:
                half = {c} | reciprocal(c, k // 2)
                if len(half & R) > 2 / 3 * len(half):
                    more |= half
            groups.append(R | more)
        for x in range(n):
            for c in [x, *near[x][: k // 3 - 1]]:
                for member in groups[c]:
                    v[x, member] += 1 / len(groups[c]) / (k // 3)
    v /= v.sum(axis=1, keepdims=True)
    assert (v > 0).sum(axis=1).max() <= ENTRIES  # of more, the cut among equal ones would differ
    return v, np.stack([mean_of(v[x], v[near[x][: SCALES[-1]]]) for x in range(n)])


def mean_of(code, others):
    """v of a photo and of others, averaged by J."""
    J = np.minimum(code, others).sum(axis=1) / np.maximum(code, others).sum(axis=1)
    mean = code + J**AGREEMENT @ others
    mean[np.argsort(-mean, kind="stable")[ENTRIES:]] = 0
    return mean / mean.sum()


def test_codes_are_those_of_the_formula():
    X, _ = photos(100, n_classes=4, spread=0.5, seed=1)
    by = ranked_by(X)
    graph = by.graph
    starts, rows, shares = graph.lists
    held = sp.csc_array((shares / 65535, rows, starts), shape=(len(X), len(X))).toarray()
    alone, expected = codes_of(graph.near.tolist())
    cut = np.where(expected > 0, expected, np.inf).min(axis=1)  # among equal entries, either may be kept
    clear = expected > cut[:, None] + 1e-9
    np.testing.assert_allclose(held[clear], expected[clear], atol=2e-5)
    np.testing.assert_allclose(held.sum(axis=1), 1, atol=1e-3)
    first = by.index.search(X[:1] + 0.1 * X[1:2], SCALES[-1])  # of a query from outside: the same, by the strength
    of_query = []
    for graph.strength in (0, 1):
        entries, shares = graph.code(first.indices[0], first.scores[0])
        of_query.append(np.bincount(entries, shares, len(X)))
    averaged = mean_of(of_query[0], alone[first.indices[0]])
    clear = averaged > averaged[averaged > 0].min() + 1e-6
    np.testing.assert_allclose(of_query[1][clear], averaged[clear], atol=1e-6)


@pytest.mark.parametrize(
    ("n", "n_classes", "spread", "strength", "weight"),
    # Of three classes, a third are no strangers.
    [(300, 8, 0.8, 1, 0.05), (300, 300, 2, 0, 0.3), (72, 3, 1.5, 1, 0.05)],
)
def test_queries_are_averaged_where_groups_are_large(n, n_classes, spread, strength, weight):
    graph = ranked_by(photos(n, n_classes=n_classes, spread=spread)[0]).graph
    assert graph.strength == strength
    assert graph.weight == pytest.approx(weight)
    assert Neighbours.restored(graph.arrays()).strength == strength


def test_the_nearest_photo_stays_first():
    X, y = photos(300, spread=1.6)
    by, rows = ranked_by(X), np.flatnonzero(y % 2)
    part = ExactIndex(by.learner, X[rows])
    for Q, own in ((X[:40], np.arange(40)), (X[:40] + 0.3 * X[40:80], np.full(40, -1))):
        nearest = by.index.search(Q, 1, exclude=own).indices[:, 0]
        assert (by.search(Q, 5, exclude=own).indices[:, 0] == nearest).all()
        filtered = rows[by.search(Q, 5, exclude=own, among=part, rows=rows).indices[:, 0]]
        assert (filtered == nearest)[np.isin(nearest, rows)].all()


def test_the_score_is_the_overlap_and_the_similarity():
    X, _ = photos()
    by = ranked_by(X)
    query = X[:1] + 0.05 * X[1:2]  # from outside, and no copy
    query /= np.linalg.norm(query)
    ranking = by.search(query, k=len(X))
    similarities = (query @ X.T)[0]
    first = np.argsort(-similarities, kind="stable")[:LISTED]
    entries, shares = by.graph.code(first, similarities[first])
    v = np.zeros(len(X))
    v[entries] = shares
    starts, rows, kept = by.graph.lists
    codes = sp.csc_array((kept / 65535, rows, starts), shape=(len(X), len(X))).toarray()
    J = np.minimum(codes, v).sum(axis=1) / np.maximum(codes, v).sum(axis=1)
    means = np.where(J > 0, similarities, means_of(by.graph.near, similarities))
    assert by.graph.strength == 1
    assert (J == 0).sum() > 10
    expected = (1 - by.weight) * J + by.weight * (means - by.graph.level) / by.graph.scale
    np.testing.assert_allclose(ranking.scores[0, 1:], expected[ranking.indices[0, 1:]], atol=2e-4)
    assert ranking.indices[0, 0] == first[0], "the nearest photo stays first"
    assert (np.diff(ranking.scores[0]) <= 0).all()


def means_of(near, similarities):
    """Means of photos and of their reciprocal neighbours, as often as the module's docstring has it."""
    groups = [{x} | {c for c in near[x][:20] if x in near[c][:20]} for x in range(len(near))]
    for _ in range(TIMES):
        similarities = np.array([np.mean(similarities[list(group)]) for group in groups])
    return similarities


def test_classes_of_hundreds_are_ranked_to_their_end(monkeypatch):
    X, y = photos(900, d=8, n_classes=3, spread=1.0)
    by, own = ranked_by(X), np.arange(len(X))
    relevance = relevance_from_labels(y, y, exclude=own)
    assert by.graph.strength == 1
    gains = []
    for head in (1000, 300, 20):
        monkeypatch.setattr(module, "HEAD", head)
        gains.append(evaluate_index(by, X, relevance, exclude=own).mean_average_precision)
        pages = by.search(X[:20], 50, exclude=own[:20]).indices
        assert (pages == by.search(X[:20], exclude=own[:20]).indices[:, :50]).all()
        with monkeypatch.context() as large:  # of very many photos, one search
            large.setattr(module, "VERY_MANY", 100)
            assert (by.search(X[:20], 50, exclude=own[:20]).indices == pages).all()
    assert gains[0] > gains[1] > gains[2] + 0.003


def test_queries_pass_the_learner_once_where_the_index_finds_all(monkeypatch):
    X, _ = photos(300)
    by, sizes = ranked_by(X), []
    monkeypatch.setattr(by.learner, "transform_query", lambda Q: sizes.append(len(Q)) or Q)
    by.search(X[:7], exclude=np.arange(7))
    assert sizes == [7]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("outside", [False, True])
def test_it_ranks_better_than_the_similarity_alone(sparse, outside):
    X, y = photos(300, spread=1.0)
    if sparse:
        X[X < 0.1] = 0
        X = sp.csr_matrix(X / np.linalg.norm(X, axis=1, keepdims=True))
    n = 200 if outside else 300
    gallery, queries = X[:n], X[n:] if outside else X
    exclude = np.full(100, -1) if outside else np.arange(300)
    relevance = relevance_from_labels(y[n:] if outside else y, y[:n], exclude=exclude)
    index = ExactIndex(Cosine().fit(gallery), gallery)
    plain, better = (
        evaluate_index(one, queries, relevance, exclude=exclude, max_k=1).mean_average_precision
        for one in (index, with_neighbours(index, gallery))
    )
    assert better > plain + 0.03


# ---------------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize(("strength", "least"), [(0, 0.95), (1, 0.92)])
def test_a_query_from_outside_is_ranked_as_if_it_were_in_the_gallery(strength, least, monkeypatch):
    alike = []
    monkeypatch.setattr(Neighbours, "_strength", lambda *_: strength)
    for seed in range(3):
        X, _ = photos(300, seed=seed)
        inside = ranked_by(X)
        for row in range(10):
            order = np.r_[:row, row + 1 : 300, row]
            there = ranked_by(X[order][:299])
            added = inside.search(X[row : row + 1], k=20, exclude=[row]).indices[0]
            alone = order[there.search(X[row : row + 1], k=20).indices[0]]
            alike.append(len(set(added) & set(alone)) / 20)
    assert len(there.graph) == 299
    assert np.mean(alike) > least


def test_a_copy_is_ranked_as_its_photo_which_comes_first():
    X, _ = photos()
    by = ranked_by(X)
    inside, copied = by.search(X[:30], k=40, exclude=np.arange(30)), by.search(X[:30], k=41)
    assert (copied.indices[:, 0] == np.arange(30)).all()
    assert (copied.indices[:, 1:] == inside.indices).all()
    assert (copied.scores[:, 1:] == inside.scores).all()


def test_pages_and_parts_are_cut_from_one_ranking():
    X, y = photos()
    by = ranked_by(X)
    own = np.arange(20)
    whole = by.search(X[:20], exclude=own)
    assert whole.indices.shape == (20, len(X) - 1)
    for k in (1, 5, 30, 100):
        assert (by.search(X[:20], k, exclude=own).indices == whole.indices[:, :k]).all()
    rows = np.flatnonzero(y < 3)
    part = ExactIndex(by.learner, X[rows])
    within_part = by.search(X[:20], len(rows), exclude=own, among=part, rows=rows)
    for q in range(20):
        expected = [row for row in whole.indices[q] if row in set(rows)]
        assert rows[within_part.indices[q][within_part.indices[q] >= 0]].tolist() == expected


def test_an_index_in_two_stages_gives_the_same_results():
    X, _ = photos(400)
    X[X < 0.05] = 0
    X = sp.csr_matrix(X)
    learner = Cosine().fit(X)
    exact, staged = ExactIndex(learner, X), TwoStageIndex(learner, X, n_candidates=390)
    graph = Neighbours.of(exact, X)
    results = [NeighbourIndex(one, graph, X).search(X[:50], 10, exclude=np.arange(50)) for one in (exact, staged)]
    assert (results[0].indices == results[1].indices).mean() > 0.98


def test_an_index_in_two_stages_is_asked_for_few_of_very_many_photos(monkeypatch):
    monkeypatch.setattr(module, "VERY_MANY", 100)
    X, _ = photos(900, d=8, n_classes=3, spread=1.0)
    exact, asked = ExactIndex(Cosine().fit(X), X), []
    graph = Neighbours.of(exact, X)
    assert graph.strength == 1
    for scores_all, depth in ((True, 900), (False, LISTED)):
        monkeypatch.setattr(exact, "scores_all", scores_all, raising=False)
        monkeypatch.setattr(
            exact, "search", lambda Q, k, **rest: asked.append(k) or ExactIndex.search(exact, Q, k, **rest)
        )
        NeighbourIndex(exact, graph, X).search(X[:1], 3, exclude=[0])
        assert asked.pop(0) == depth


def test_the_parts_of_a_score_sum_to_it():
    X, _ = photos()
    by = ranked_by(X)
    for own, query in ((3, X[3:4]), (-1, X[3:4] + 0.05 * X[4:5]), (-1, X[3:4])):
        ranking = by.search(query, 12, exclude=[own])
        for row, score in zip(ranking.indices[0].tolist(), ranking.scores[0], strict=True):
            shared = by.explain(query, row, own=own)
            if len(shared.rows):
                assert shared.alone + shared.parts.sum() == pytest.approx(score, abs=1e-4)
                assert (np.diff(shared.parts) <= 0).all()


# ---------------------------------------------------------------------------------------------------- galleries


def test_odd_galleries():
    X, _ = photos(FEWEST)
    assert ranked_by(X).search(X[:2], 5, exclude=[0, 1]).indices.shape == (2, 5)
    index = ExactIndex(Cosine().fit(X[:5]), X[:5])
    assert with_neighbours(index, X[:5]) is index
    with pytest.raises(ValueError, match=f"needs {FEWEST} photos, got 5"):
        Neighbours.of(index, X[:5])
    equal = np.tile(X[:1], (40, 1))
    by = ranked_by(equal)
    assert by.graph.scale == 1
    assert np.isfinite(by.search(equal[:3], exclude=[0, 1, 2]).scores).all()
    nothing = sp.csr_matrix((40, 7), dtype=np.float32)
    assert np.isfinite(ranked_by(nothing).search(nothing[:1], 5).scores).all()
    copies = np.concatenate([np.tile(X[:1], (30, 1)), X])
    assert set(ranked_by(copies).search(copies[:1], 29, exclude=[0]).indices[0].tolist()) == set(range(1, 30))


def test_photos_come_and_go():
    X, _ = photos(400)
    before = ranked_by(X[:380]).graph
    kept = np.delete(np.arange(380), [5, 77, 200])
    now = np.concatenate([X[kept], X[380:]])
    rows = np.full(380, -1)
    rows[kept] = np.arange(len(kept))
    index = ExactIndex(Cosine().fit(now), now)
    updated, remade = before.updated(index, now, rows), Neighbours.of(index, now)
    same = [len(set(a) & set(b)) / LISTED for a, b in zip(updated.near, remade.near, strict=True)]
    assert np.mean(same) > 0.99
    held, made = (
        sp.csc_array((lists[2], lists[1], lists[0]), shape=(len(now),) * 2).toarray() / 65535
        for lists in (updated.lists, remade.lists)
    )
    assert np.abs(held - made).sum(axis=1).mean() < 0.02


def test_a_photo_that_lost_neighbours_has_each_new_one_once():
    X, _ = photos(400)
    before = ranked_by(X[:380]).graph
    kept = np.setdiff1d(np.arange(380), before.near[0, :6])
    now = np.concatenate([X[kept], X[380:]])
    rows = np.full(380, -1)
    rows[kept] = np.arange(len(kept))
    index = ExactIndex(Cosine().fit(now), now)
    updated, remade = before.updated(index, now, rows), Neighbours.of(index, now)
    assert all(len(set(near[near >= 0])) == np.count_nonzero(near >= 0) for near in updated.near)
    np.testing.assert_array_equal(updated.near[0], remade.near[0])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_photo_that_comes_takes_its_place_by_the_similarity_of_the_others_to_it(sparse, monkeypatch):
    monkeypatch.setattr("visterm.retrieval.neighbours.REACHED", 400)
    X, _ = photos(400)
    X = sp.csr_array(np.maximum(X, 0)) if sparse else X
    learner = Bent().fit(X)
    before = Neighbours.of(ExactIndex(learner, X[:380]), X[:380])
    index = ExactIndex(learner, X)
    updated, remade = before.updated(index, X, np.arange(380)), Neighbours.of(index, X)
    np.testing.assert_array_equal(updated.near[:380], remade.near[:380])
    np.testing.assert_array_equal(updated.scores[:380], remade.scores[:380])


class Bent(Cosine):
    """Not symmetric: each photo has its own opinion of the others, though not a very different one."""

    def transform_query(self, Q):
        Q = Q.toarray() if sp.issparse(Q) else Q
        return (Q + 0.05 * np.roll(Q, 1, axis=1)).astype(np.float32)


class Stretched(Cosine):
    """Counts directions a hundred times more than others, as what was learned does, in which photos hardly differ."""

    def transform_query(self, Q):
        return (Q * np.geomspace(1e-2, 1, Q.shape[1])).astype(np.float32)


MANY_PHOTOS = dict(n=1500, d=300, n_classes=150)
VERY_MANY_PHOTOS = dict(n=3000, d=40, n_classes=300, spread=0.5)  # of 55 cells: probed by their mean, 24 hold 0.88


@pytest.mark.parametrize(
    ("learner", "many", "kind"),
    [
        (Cosine(), "MANY", MANY_PHOTOS),
        (Stretched(), "MANY", MANY_PHOTOS),
        (Cosine(), "VERY_MANY", VERY_MANY_PHOTOS),
        (Stretched(), "VERY_MANY", VERY_MANY_PHOTOS),
    ],
)
def test_of_many_dense_photos_nearly_all_neighbours_are_found(monkeypatch, learner, many, kind):
    X, _ = photos(**kind)
    if isinstance(learner, Stretched):
        X *= np.geomspace(1, 0.2, X.shape[1], dtype=np.float32)
    index = ExactIndex(learner.fit(X), X, n_jobs=2)
    exact = Neighbours.of(index, X)
    monkeypatch.setattr(module, "MANY", 1000)
    monkeypatch.setattr(module, many, 1000)
    monkeypatch.setattr(module, "PROBED", 24)
    neighbours = Neighbours.of(index, X)
    alone = module._Coarse(index, X).search(X[:1], LISTED, exclude=[0])  # as in a cell with one photo
    np.testing.assert_array_equal(alone.indices[0], neighbours.near[0])
    same = [len(set(a) & set(b)) / LISTED for a, b in zip(neighbours.near, exact.near, strict=True)]
    assert np.mean(same) > 0.97
    first = np.isclose(neighbours.scores[:, 0], exact.scores[:, 0], atol=1e-6)
    assert first.mean() >= {"MANY": 1, "VERY_MANY": 0.999}[many]


def test_a_graph_is_written_and_read_again():
    X, _ = photos()
    by = ranked_by(X)
    arrays = by.graph.arrays()
    assert sum(array.nbytes for array in arrays.values()) / len(X) < 400
    again = NeighbourIndex(by.index, Neighbours.restored(arrays), X)
    results = [one.search(X[:9], 9, exclude=np.arange(9)) for one in (by, again)]
    assert (results[0].scores == results[1].scores).all()


def damaged(name, change):
    def of(arrays):
        arrays = {key: array.copy() for key, array in arrays.items()}
        arrays[name] = change(arrays[name])
        return arrays

    return of


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (damaged("near", lambda a: a + 1000), "damaged"),
        (damaged("near", lambda a: a[:-1]), "damaged"),
        (damaged("photos", lambda a: a - 7), "damaged"),
        (damaged("photos", lambda a: a[:-3]), "damaged"),
        (damaged("starts", lambda a: a[::-1]), "damaged"),
        (damaged("shares", lambda a: a.astype(np.float32)), "damaged"),
        (damaged("scale", lambda a: a + [9, 0, 0, 0]), "of version 14, not 5"),
        (damaged("scale", lambda a: a * [1, 1, np.nan, 1]), "damaged"),
        (lambda arrays: {name: arrays[name] for name in ("near", "scores", "scale")}, "damaged"),
    ],
)
def test_a_damaged_graph_is_refused(change, reason):
    X, _ = photos()
    with pytest.raises(ValueError, match=reason):
        Neighbours.restored(change(ranked_by(X).graph.arrays()))
