import logging

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from visterm.learners import KNNAnnotator, load_learner


def leaves_of(learner):
    """Rows of the training images in each leaf."""
    return np.split(learner.image_of_, learner.leaf_start_[1:-1])


@pytest.fixture(scope="module")
def many():
    """Sparse rows around thirty centres, as CSR and dense, to learn and to ask; labels are the centres."""
    rng = np.random.default_rng(0)
    centres = rng.random((30, 200)) * (rng.random((30, 200)) < 0.1)
    y = rng.integers(0, 30, 700)
    X = centres[y] + 0.5 * rng.random((700, 200)) * (rng.random((700, 200)) < 0.05)
    X = sp.csr_array(X.astype(np.float32))
    return X[:600], y[:600], X[600:], y[600:]


class TestByHand:
    """Three training images at 45 degrees from each other; the query (3, 4) has the length 5."""

    X = np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]])
    y = np.array(["a", "b", "a"])
    query = np.array([[3.0, 4.0]])
    # cosines: 3 / 5, (3 + 4) / (5 sqrt 2), 4 / 5
    cosines = np.array([3 / 5, 7 / 5 / np.sqrt(2), 4 / 5])

    def test_neighbours_and_their_votes(self):
        indices, similarities = KNNAnnotator(n_neighbors=2).fit(self.X, self.y).kneighbors(self.query)
        assert indices.tolist() == [[1, 2]]
        np.testing.assert_allclose(similarities, [self.cosines[[1, 2]]], rtol=1e-6)
        learner = KNNAnnotator(n_neighbors=2).fit(self.X, self.y)
        np.testing.assert_allclose(learner.label_scores(self.query), [self.cosines[[2, 1]]], rtol=1e-6)
        learner.set_params(n_neighbors=3)
        expected = [[self.cosines[0] + self.cosines[2], self.cosines[1]]]
        np.testing.assert_allclose(learner.label_scores(self.query), expected, rtol=1e-6)
        learner = KNNAnnotator(n_neighbors=3, weights="uniform").fit(self.X, self.y)
        assert learner.label_scores(self.query).tolist() == [[2, 1]]
        labels = sp.csr_array([[1.0, 0, 2], [0, 1, 1], [0, 0, 1]])
        scores = KNNAnnotator(n_neighbors=2).fit(self.X, labels).label_scores(self.query)
        np.testing.assert_allclose(scores, [[0, self.cosines[1], self.cosines[1] + self.cosines[2]]], rtol=1e-6)
        learner = KNNAnnotator(n_neighbors=5).fit(self.X, self.y)
        indices, similarities = learner.kneighbors([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
        # Orthogonal images are none.
        assert indices.tolist() == [[1, 2, 0, -1, -1], [0, 1, -1, -1, -1], [-1] * 5]
        assert (similarities[indices < 0] == 0).all()
        assert learner.label_scores([[0.0, 0.0]]).tolist() == [[0, 0]]


class TestExact:
    @pytest.mark.parametrize("k", [1, 7])
    def test_equals_scikit_learn(self, many, k):
        X, y, Q, _ = many
        indices, similarities = KNNAnnotator(n_neighbors=k).fit(X, y).kneighbors(Q)
        distances, expected = NearestNeighbors(n_neighbors=k, metric="cosine", algorithm="brute").fit(X).kneighbors(Q)
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_allclose(similarities, 1 - distances, atol=1e-6)

    def test_equal_similarities_go_to_the_first_image(self, many):
        X, y, Q, _ = many
        twice = sp.vstack([X, X])
        once, _ = KNNAnnotator(n_neighbors=2).fit(X, y).kneighbors(Q)
        indices, similarities = KNNAnnotator(n_neighbors=3).fit(twice, np.r_[y, y]).kneighbors(Q)
        np.testing.assert_array_equal(indices, np.c_[once[:, 0], once[:, 0] + 600, once[:, 1]])
        np.testing.assert_array_equal(similarities[:, 0], similarities[:, 1])
        # Vectors from elsewhere have signs.
        rng = np.random.default_rng(0)
        X = rng.normal(size=(50, 8)).astype(np.float32)
        indices, _ = KNNAnnotator(n_neighbors=4).fit(X, np.arange(50) % 3).kneighbors(X)
        expected = NearestNeighbors(n_neighbors=4, metric="cosine", algorithm="brute").fit(X).kneighbors(X)[1]
        np.testing.assert_array_equal(indices, expected)


class TestTree:
    def test_one_leaf_is_exact_search(self, many):
        X, y, Q, _ = many
        tree = KNNAnnotator(algorithm="tree", leaf_size=600, random_state=0).fit(X, y)
        assert len(tree.leaf_start_) == 2
        exact = KNNAnnotator().fit(X, y)
        for of_tree, expected in zip(tree.kneighbors(Q), exact.kneighbors(Q), strict=True):
            np.testing.assert_array_equal(of_tree, expected)

    @pytest.mark.parametrize(("n", "leaf_size", "depth"), [(600, 599, 1), (600, 100, 3), (77, 5, 4), (600, 1, 10)])
    def test_medians_split_evenly(self, many, n, leaf_size, depth):
        X, y, _, _ = many
        learner = KNNAnnotator(algorithm="tree", leaf_size=leaf_size, random_state=0).fit(X[:n], y[:n])
        sizes = np.diff(learner.leaf_start_)
        assert len(sizes) == 2**depth
        assert sizes.max() <= leaf_size
        # A half of a half of ..., each rounded up or down.
        assert set(sizes) <= {n // 2**depth, -(-n // 2**depth)}
        np.testing.assert_array_equal(np.sort(learner.image_of_), np.arange(n))
        assert learner.directions_.shape == (2**depth - 1, X.shape[1])

    def test_equals_slow_reference(self, many):
        """Down the tree in NumPy, node by node, then all cosines in the leaf."""
        X, y, Q, _ = many
        learner = KNNAnnotator(n_neighbors=5, algorithm="tree", leaf_size=80, random_state=1).fit(X, y)
        unit = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
        indices, similarities = learner.kneighbors(Q)
        reached = set()
        for query, neighbours, values in zip(Q.toarray(), indices, similarities, strict=True):
            node = 0
            while node < 7:
                left = query / np.linalg.norm(query) @ learner.directions_[node] <= learner.thresholds_[node]
                node = 2 * node + (1 if left else 2)
            members = leaves_of(learner)[node - 7]
            reached.add(node)
            cosines = unit[members] @ query / np.linalg.norm(query)
            best = np.argsort(-cosines, kind="stable")[:5]
            np.testing.assert_array_equal(neighbours, members[best])
            np.testing.assert_allclose(values, cosines[best], rtol=1e-5)
        assert len(reached) > 4

    def test_training_images_come_to_their_own_leaf_by_medians(self, many):
        X, y, _, _ = many
        learner = KNNAnnotator(n_neighbors=1, algorithm="tree", leaf_size=20, random_state=0).fit(X, y)
        np.testing.assert_array_equal(learner.kneighbors(X)[0][:, 0], np.arange(600))
        learner = KNNAnnotator(algorithm="tree", leaf_size=300, random_state=0).fit(X, y)
        unit = X.toarray() / np.linalg.norm(X.toarray(), axis=1, keepdims=True)
        assert learner.thresholds_[0] == pytest.approx(np.median(unit @ learner.directions_[0]), rel=1e-4)

    def test_larger_leaves_miss_less(self, many):
        X, y, Q, _ = many
        nearest = KNNAnnotator(n_neighbors=1).fit(X, y).kneighbors(Q)[0]
        recall = []
        for leaf_size in (10, 40, 160, 600):
            trees = [
                KNNAnnotator(n_neighbors=1, algorithm="tree", leaf_size=leaf_size, random_state=seed).fit(X, y)
                for seed in range(5)
            ]
            recall.append(np.mean([learner.kneighbors(Q)[0] == nearest for learner in trees]))
        assert recall == sorted(set(recall))
        assert recall[-1] == 1
        # A leaf of a sixteenth finds far more than a sixteenth.
        assert recall[1] > 0.2

    def test_images_that_cannot_be_told_apart_are_divided_all_the_same(self):
        X = np.vstack([np.tile([1.0, 2.0], (11, 1)), np.zeros((5, 2))])
        learner = KNNAnnotator(n_neighbors=2, algorithm="tree", leaf_size=4, random_state=0).fit(X, np.arange(16) % 2)
        assert np.diff(learner.leaf_start_).tolist() == [4, 4, 4, 4]
        assert np.isfinite(learner.label_scores(X)).all()


@pytest.mark.parametrize("algorithm", ["exact", "tree"])
def test_partial_fit_is_fit_of_all(many, algorithm):
    X, y, _, _ = many
    parts = KNNAnnotator(algorithm=algorithm, leaf_size=70, random_state=0).fit(X[:400], y[:400])
    parts.partial_fit(X[400:], y[400:])
    whole, other = (KNNAnnotator(algorithm=algorithm, leaf_size=70, random_state=seed).fit(X, y) for seed in (0, 4))
    assert np.array_equal(whole.image_of_, other.image_of_) == (algorithm == "exact")
    for name in whole._state:
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name), err_msg=name)


def test_images_without_labels_are_left_out_and_counted(many, caplog):
    X, y, Q, _ = many
    labels = np.eye(30)[y]
    labels[[3, 8]] = 0
    with caplog.at_level(logging.WARNING):
        learner = KNNAnnotator().fit(X, sp.csr_array(labels))
    assert "skipped 2 of 600 images without a label" in caplog.text
    expected = KNNAnnotator().fit(np.delete(X.toarray(), [3, 8], axis=0), np.delete(y, [3, 8]))
    np.testing.assert_array_equal(learner.label_scores(Q), expected.label_scores(Q))


def test_annotates_unseen_images(many):
    X, y, Q, classes = many
    words = np.array([f"word {i:02d}" for i in range(30)])
    learner = KNNAnnotator().fit(X, words[y])
    best, scores = learner.annotate(Q, 30)
    assert np.mean(learner.classes_[best[:, 0]] == words[classes]) > 0.95
    assert (np.diff(scores, axis=1) <= 0).all()


class TestBadInput:
    def test_labels(self, many):
        X, y, _, _ = many
        for labels, message in (
            (np.zeros(600), "at least two classes, got 1 class"),
            (sp.csr_array((600, 4)), "no image has a label"),
            (np.c_[y, y], "must be labels of shape"),
        ):
            with pytest.raises(ValueError, match=message):
                KNNAnnotator().fit(X, labels)
        with pytest.raises(ValueError, match="were not in the first fit"):
            KNNAnnotator().fit(X, y).partial_fit(X[:2], [0, 99])


def test_damage_that_only_shows_in_numbers_is_refused(synonyms, tmp_path):
    """Places are where a kernel reads and writes: none may lie beyond the images, checksums or not."""
    KNNAnnotator().fit(*synonyms).save(tmp_path / "knn")
    (file,) = (tmp_path / "knn").glob("list_places_*.npy")
    places = np.load(file)
    places[3] = 10**6
    np.save(file, places)
    with pytest.raises(ValueError, match="does not hold"):
        load_learner(tmp_path / "knn", verify=False)
