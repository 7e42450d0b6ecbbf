import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import validation
from visterm.learners.validation import mean_average_precision, split


class TestMeanAveragePrecision:
    def test_by_hand(self):
        scores = np.array([[9.0, 3.0, 2.0, 1.0], [0.0, 9.0, 5.0, 6.0]])
        relevant = np.array([[True, True, False, True], [False, True, True, False]])
        own = np.array([0, 1])
        # Query 0 ranks 1, 2, 3: hits at ranks 1 and 3. Query 1 ranks 3, 2, 0: a hit at rank 2.
        expected = ((1 / 1 + 2 / 3) / 2 + 1 / 2) / 2
        assert mean_average_precision(scores, relevant, own) == pytest.approx(expected)

    def test_ties_go_to_the_smaller_number(self):
        relevant = np.array([[False, False, True, False]])
        assert mean_average_precision(np.zeros((1, 4)), relevant, np.array([0])) == pytest.approx(1 / 2)

    def test_the_query_is_removed_by_identity(self):
        """A duplicate of the query scores as high as the query itself and stays."""
        scores = np.array([[1.0, 1.0, 0.5]])
        assert mean_average_precision(scores, np.array([[False, True, True]]), np.array([1])) == pytest.approx(1 / 2)

    def test_queries_without_relevant_images_are_left_out(self):
        scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        relevant = np.array([[True, True, False], [False, False, False]])
        assert mean_average_precision(scores, relevant, np.array([0, 1])) == 1.0
        assert mean_average_precision(scores, relevant & False, np.array([0, 1])) == 0.0


class TestSplit:
    y = np.repeat(["a", "b", "c", "d"], [20, 5, 3, 1])

    def test_each_class_gives_its_share(self):
        held_out = split(self.y, 0.2, 0)
        assert np.array_equal(held_out, np.unique(held_out))
        assert {c: int((self.y[held_out] == c).sum()) for c in "abcd"} == {"a": 4, "b": 2, "c": 0, "d": 0}

    def test_two_images_of_a_class_stay(self):
        held_out = split(self.y, 0.99, 0)
        assert {c: int((self.y[held_out] == c).sum()) for c in "abcd"} == {"a": 18, "b": 3, "c": 0, "d": 0}

    def test_seed(self):
        assert np.array_equal(split(self.y, 0.2, 5), split(self.y, 0.2, 5))
        assert not np.array_equal(split(self.y, 0.2, 5), split(self.y, 0.2, 6))

    def test_several_labels(self):
        assert len(split(sp.csr_array(np.ones((10, 2))), 0.3, 0)) == 3

    def test_caps(self, monkeypatch):
        monkeypatch.setattr(validation, "MAX_IMAGES", 6)
        monkeypatch.setattr(validation, "MAX_QUERIES", 3)
        assert len(split(np.repeat([0, 1], 20), 0.5, 0)) == 6
        assert len(validation.choose_queries(6, 0)) == 3

    def test_nothing_to_hold_out(self):
        with pytest.raises(ValueError, match="no class has four: use None"):
            split(np.array(["a", "a", "b"]), 0.2, 0)
