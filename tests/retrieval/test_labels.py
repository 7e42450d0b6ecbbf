import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier

from visterm.retrieval import (
    Ranking,
    knn_accuracy,
    knn_labels,
    label_precision_at,
    mean_recall,
    precision_recall_per_label,
    sibling_precision_at,
    siblings_from_parents,
)


def ranking_of(*rows):
    indices = np.array(rows, np.int32)
    return Ranking(indices, -np.cumsum(np.ones(indices.shape, np.float32), axis=1))


def test_vote_by_hand():
    gallery = np.array(["ant", "bee", "bee", "cow"])
    ranking = ranking_of([0, 1, 2, 3], [3, 0, 1, 2], [3, 0, 2, 1])
    assert knn_labels(ranking, gallery, 1).tolist() == ["ant", "cow", "cow"]
    assert knn_labels(ranking, gallery, 3).tolist() == ["bee", "cow", "cow"]  # 1, 1, 1: the nearest decides
    assert knn_labels(ranking, gallery, 4).tolist() == ["bee", "bee", "bee"]
    # Classes ant: both found, bee: 1 of 2, cow: not found; the accuracy counts classes, not images.
    ranking = ranking_of([0], [0], [1], [3], [0])
    expected = (2 / 2 + 1 / 2 + 0 / 1) / 3
    assert knn_accuracy(ranking, ["ant", "ant", "bee", "bee", "cow"], gallery, 1) == pytest.approx(expected)
    # A class that the gallery lacks counts as nothing found.
    assert knn_accuracy(ranking_of([0], [0]), ["ant", "dog"], ["ant"], 1) == 0.5
    assert knn_labels(ranking_of([2, 0, 1, 3]), ["ant", "ant", "bee", "bee"], 4).tolist() == ["bee"]
    assert knn_labels(ranking_of([0, 2, 3, 1]), ["ant", "ant", "bee", "bee"], 4).tolist() == ["ant"]
    assert knn_labels(ranking_of([1, -1, -1]), [7, 8], 3).tolist() == [8]
    with pytest.raises(ValueError, match="no neighbour"):
        knn_labels(ranking_of([-1, -1]), [7, 8], 1)


def test_what_does_not_fit():
    for call, message in (
        (lambda: knn_labels(ranking_of([0, 1]), [0, 1], 3), "a vote of 3 neighbours"),
        (lambda: knn_labels(ranking_of([0, 2]), [0, 1], 2), "beyond the 2 labels"),
        (lambda: knn_labels(ranking_of([0, 1]), sp.eye(2).toarray(), 2), "one label per image"),
        (lambda: knn_accuracy(ranking_of([0], [1]), [0], [0, 1], 1), "labels of 1 queries"),
        (lambda: mean_recall([0, 1], [0]), "2 true labels"),
        (lambda: label_precision_at([[0, 1]], [0], 3), "precision at 3"),
        (lambda: label_precision_at([[0, 1]], [0, 1], 1), "labels of 2 images"),
        (lambda: sibling_precision_at([[0, 1]], sp.csr_matrix([[1, 0, 0]]), np.eye(2), 1), "siblings must be"),
        (lambda: label_precision_at([[0, 5]], sp.csr_matrix([[1, 0]]), 2), "beyond the 2"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert np.isnan(mean_recall([], []))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000), k=st.sampled_from([1, 3, 7]), n_classes=st.integers(2, 6))
def test_votes_are_those_of_a_slow_count(seed, k, n_classes):
    rng = np.random.default_rng(seed)
    gallery = rng.integers(0, n_classes, 20)
    ranking = ranking_of(*(rng.permutation(20)[:9] for _ in range(5)))
    for winner, row in zip(knn_labels(ranking, gallery, k), ranking.indices, strict=True):
        votes = gallery[row[:k]].tolist()
        assert winner == max(votes, key=lambda label: (votes.count(label), -votes.index(label)))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_agrees_with_scikit_learn_where_nothing_ties(seed):
    rng = np.random.default_rng(seed)
    X, y, Q = rng.normal(size=(30, 3)), rng.integers(0, 2, 30), rng.normal(size=(12, 3))
    labels = np.arange(12) % 2  # queries of both: scikit-learn warns where a class is found that no query has
    order = np.argsort(((Q[:, None] - X) ** 2).sum(axis=2), axis=1)
    predicted = KNeighborsClassifier(5).fit(X, y).predict(Q)
    assert knn_labels(ranking_of(*order), y, 5).tolist() == predicted.tolist()
    assert knn_accuracy(ranking_of(*order), labels, y, 5) == pytest.approx(balanced_accuracy_score(labels, predicted))


# Places of toad, frog, newt, lamp, lizard.
PARENTS = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]])  # amphibian, with a tail, thing


def test_siblings_and_precisions_by_hand():
    expected = [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 1], [0, 0, 0, 1, 0], [0, 0, 1, 0, 1]]
    for parents in (PARENTS, sp.csr_matrix(PARENTS), PARENTS * 0.5):
        assert siblings_from_parents(parents).toarray().astype(int).tolist() == expected
    # Without a parent a label is a sibling of itself alone: the order of the conditions in the paper's S.
    assert siblings_from_parents(np.zeros((2, 1))).toarray().tolist() == [[True, False], [False, True]]
    siblings = siblings_from_parents(PARENTS)
    ranked = [[1, 0, 3, 2], [3, 2, 1, 0]]
    truth = [0, 4]  # a toad, a lizard
    assert label_precision_at(ranked, truth, 1).tolist() == [0, 0]
    assert label_precision_at(ranked, truth, 2).tolist() == [1 / 2, 0]
    assert sibling_precision_at(ranked, truth, siblings, 1).tolist() == [1, 0]
    assert sibling_precision_at(ranked, truth, siblings, 2).tolist() == [2 / 2, 1 / 2]
    np.testing.assert_allclose(sibling_precision_at(ranked, truth, siblings, 4), [3 / 4, 1 / 4])
    own = sp.csr_matrix(np.array([[1, 0, 0, 2, 0], [0, 0, 0, 0, 0]]))  # a toad beside a lamp; nothing known
    ranked = [[3, 1, 4], [0, 1, 2]]
    np.testing.assert_allclose(label_precision_at(ranked, own, 3), [1 / 3, 0])
    np.testing.assert_allclose(sibling_precision_at(ranked, own, siblings_from_parents(PARENTS), 3), [2 / 3, 0])
    similar = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.0], [0.2, 0.0, 1.0]])
    np.testing.assert_allclose(sibling_precision_at([[2, 1, 0]], [0], similar, 2), [(0.2 + 0.5) / 2])
    both = sp.csr_matrix([[1, 1, 0]])
    np.testing.assert_allclose(sibling_precision_at([[2, 1, 0]], both, similar, 2), [(0.2 + 1.0) / 2])


labellings = st.integers(0, 10_000).map(np.random.default_rng)


@settings(deadline=None, max_examples=30)
@given(rng=labellings, several=st.booleans())
def test_siblings_only_add(rng, several):
    n, n_labels = 6, 8
    ranked = np.array([rng.permutation(n_labels) for _ in range(n)])
    truth = sp.csr_matrix(rng.random((n, n_labels)) < 0.3) if several else rng.integers(0, n_labels, n)
    siblings = siblings_from_parents(rng.random((n_labels, 3)) < 0.4)
    assert (siblings != siblings.T).nnz == 0
    assert siblings.diagonal().all()
    for k in range(1, n_labels + 1):
        plain, related = label_precision_at(ranked, truth, k), sibling_precision_at(ranked, truth, siblings, k)
        assert ((plain >= 0) & (plain <= related) & (related <= 1)).all()
        np.testing.assert_allclose(sibling_precision_at(ranked, truth, np.eye(n_labels), k), plain)
        np.testing.assert_allclose(sibling_precision_at(ranked, truth, siblings.astype(float), k), related)
    if not several:
        np.testing.assert_allclose(label_precision_at(ranked, truth, n_labels), 1 / n_labels)


class TestPrecisionRecallPerLabel:
    def test_by_hand(self):
        true = sp.csr_array([[1, 1, 0, 0], [0, 1, 0, 0]])
        precision, recall = precision_recall_per_label([[0, 2, 1], [1, 0, 3]], true, 2)
        assert precision.tolist() == [1 / 2, 1 / 1, 0 / 1, 0]
        assert recall[:2].tolist() == [1 / 1, 1 / 2]
        assert np.isnan(recall[2:]).all()
        with pytest.raises(ValueError, match="precision at 3 needs"):
            precision_recall_per_label([[0, 1]], [0], 3)
