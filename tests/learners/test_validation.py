import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import validation
from visterm.learners.validation import CAUTIOUS, SHARES, Worlds, mean_average_precision, precisions, split, unseen_rows


class TestMeanAveragePrecision:
    def test_by_hand(self):
        scores = np.array([[9.0, 3.0, 2.0, 1.0], [0.0, 9.0, 5.0, 6.0]])
        relevant = np.array([[True, True, False, True], [False, True, True, False]])
        own = np.array([0, 1])
        # Query 0 ranks 1, 2, 3: hits at ranks 1 and 3. Query 1 ranks 3, 2, 0: a hit at rank 2.
        expected = ((1 / 1 + 2 / 3) / 2 + 1 / 2) / 2
        assert mean_average_precision(scores, relevant, own) == pytest.approx(expected)
        assert precisions(scores, relevant, own)[:, 1].tolist() == [1, 0]  # at 1
        relevant = np.array([[False, False, True, False]])
        assert mean_average_precision(np.zeros((1, 4)), relevant, np.array([0])) == pytest.approx(1 / 2)
        # A duplicate of the query scores as high as the query itself and stays.
        scores = np.array([[1.0, 1.0, 0.5]])
        assert mean_average_precision(scores, np.array([[False, True, True]]), np.array([1])) == pytest.approx(1 / 2)
        scores = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        relevant = np.array([[True, True, False], [False, False, False]])
        assert mean_average_precision(scores, relevant, np.array([0, 1])) == 1.0
        assert mean_average_precision(scores, relevant & False, np.array([0, 1])) == 0.0
        scores = np.array([[9.0, np.nan, 1.0, 0.5]])
        assert mean_average_precision(scores, np.array([[False, True, False, False]]), np.array([0])) == 1 / 3

    @pytest.mark.parametrize("few", [0, 5, 500])  # by sorting, by both ways, by counting
    def test_it_is_that_of_the_ranking(self, few, monkeypatch):
        monkeypatch.setattr(validation, "_FEW_RELEVANT", few)
        rng = np.random.default_rng(few)
        scores = rng.integers(0, 9, (20, 60)).astype(np.float32)  # many ties
        relevant, own = rng.random((20, 60)) < rng.choice([0, 0.02, 0.1, 1], (20, 1)), rng.permutation(60)[:20]
        for row, query, hits, measured in zip(scores, own, relevant, precisions(scores, relevant, own), strict=True):
            ranked = hits[[image for image in np.argsort(-row, kind="stable") if image != query]]
            ranks = 1 + np.flatnonzero(ranked)
            expected = [sum((i + 1) / rank for i, rank in enumerate(ranks)) / max(1, len(ranks)), ranked[0]]
            assert measured.tolist() == (expected if len(ranks) else [np.nan] * 2) or np.isnan(measured).all()
            assert np.isnan(measured).any() == (len(ranks) == 0)

    @pytest.mark.parametrize("few", [0, 500])
    def test_a_query_that_is_not_among_the_images(self, few, monkeypatch):
        monkeypatch.setattr(validation, "_FEW_RELEVANT", few)
        scores, relevant = np.array([[1.0, 3.0, 2.0], [9.0, 1.0, 0.5]]), np.array([[1, 0, 1], [0, 0, 1]], bool)
        assert precisions(scores, relevant, np.array([-1, -1])).tolist() == [[(1 / 2 + 2 / 3) / 2, 0], [1 / 3, 0]]


class TestSplit:
    y = np.repeat(["a", "b", "c", "d"], [20, 5, 3, 1])

    def test_each_class_gives_its_share_and_two_of_it_stay(self):
        held_out = split(self.y, 0.2, 0)
        assert np.array_equal(held_out, np.unique(held_out))
        assert {c: int((self.y[held_out] == c).sum()) for c in "abcd"} == {"a": 4, "b": 2, "c": 0, "d": 0}
        held_out = split(self.y, 0.99, 0)
        assert {c: int((self.y[held_out] == c).sum()) for c in "abcd"} == {"a": 18, "b": 3, "c": 0, "d": 0}
        assert np.array_equal(split(self.y, 0.2, 5), split(self.y, 0.2, 5))
        assert not np.array_equal(split(self.y, 0.2, 5), split(self.y, 0.2, 6))
        assert len(split(sp.csr_array(np.ones((10, 2))), 0.3, 0)) == 3
        with pytest.raises(ValueError, match="no class has four"):
            split(np.array(["a", "a", "b"]), 0.2, 0)

    def test_caps(self, monkeypatch):
        monkeypatch.setattr(validation, "MAX_IMAGES", 6)
        monkeypatch.setattr(validation, "MAX_QUERIES", 3)
        assert len(split(np.repeat([0, 1], 20), 0.5, 0)) == 6
        assert len(validation.choose_queries(6, 0)) == 3


class TestUnseenRows:
    y = np.repeat(list("abcdefghij"), 4)

    def test_a_fifth_of_the_classes_as_a_whole(self):
        rows = unseen_rows(self.y, 0)
        assert np.array_equal(rows, np.unique(rows))
        classes = set(self.y[rows])
        assert len(classes) == 2
        assert len(rows) == 8
        drawn = [unseen_rows(self.y, seed).tolist() for seed in (3, 3, *range(10))]
        assert drawn[0] == drawn[1]
        assert len({tuple(rows) for rows in drawn}) > 3
        assert len(unseen_rows(np.array([*"aabbccdd", *"efghijk"]), 0)) == 0
        y = np.array([*"aabbccddee", *"fghijklmnopqrstuvw"])
        for seed in range(5):
            rows = unseen_rows(y, seed)
            assert len(rows) == 4
            assert set(y[rows]) <= set("abcde")
        assert len(unseen_rows(np.arange(40), 0)) == 0

    @pytest.mark.parametrize(("n_classes", "expected"), [(1, 0), (2, 0), (4, 0), (5, 2), (7, 2), (12, 2), (13, 3)])
    def test_two_classes_at_least_and_none_under_five(self, n_classes, expected):
        y = np.repeat(np.arange(n_classes), 3)
        rows = unseen_rows(y, 0)
        assert rows.dtype == np.int64
        assert len(np.unique(y[rows])) == expected
        assert len(rows) == 3 * expected

    def test_several_labels(self):
        """All images of the labels that are drawn, about a fifth of the images; the labels are in no other image."""
        rng = np.random.default_rng(0)
        labels = rng.random((200, 30)) < 0.05
        labels[:, 0] = rng.random(200) < 0.6  # too many images have it
        y = sp.csr_array(labels * 2.0)
        rows = unseen_rows(y, 0)
        assert 40 <= len(rows) < 60
        assert np.array_equal(rows, unseen_rows(y, 0))
        assert not np.array_equal(rows, unseen_rows(y, 1))
        rest = np.setdiff1d(np.arange(200), rows)
        gone = labels.any(axis=0) & ~labels[rest].any(axis=0)
        assert gone.sum() >= 2
        assert not gone[0]
        assert labels[rows][:, gone].any(axis=1).all()

    def test_labels_of_which_none_can_be_held_out(self):
        assert len(unseen_rows(sp.csr_array(np.ones((50, 3))), 0)) == 0
        assert len(unseen_rows(sp.csr_array(np.ones((50, 1))), 0)) == 0
        # What is left has one label, which all images have: no triplet could be drawn.
        labels = np.ones((40, 4))
        labels[:, :3] = 0
        labels[[0, 1], 0] = labels[[2, 3], 1] = labels[[4, 5], 2] = 1
        assert len(unseen_rows(sp.csr_array(labels), 0)) == 0
        labels = np.zeros((40, 3))
        labels[:8, 0] = labels[8:24, 1] = labels[24:, 2] = 1
        assert len(unseen_rows(sp.csr_array(labels), 0)) == 0

    def test_labels_of_one_image_and_explicit_zeros_do_not_count(self):
        assert len(unseen_rows(sp.csr_array(np.eye(40)), 0)) == 0
        of_ten = np.repeat(np.eye(10), 4, axis=0)
        for seed in range(3):
            rows = unseen_rows(sp.csr_array(np.hstack([of_ten, np.eye(40)])), seed)
            assert len(rows) == 8
            assert len(set(rows // 4)) == 2
        labels = np.repeat(np.eye(10), 4, axis=0)
        y = sp.csr_array(labels + 1)
        y.data -= 1
        assert y.nnz == 400
        for seed in range(3):
            assert np.array_equal(unseen_rows(y, seed), unseen_rows(sp.csr_array(labels), seed))


class TestWorlds:
    """Four groups of four images: two of classes that are trained on, two of others; each image is a query.

    A score is 1 for the images of the same class and 0 for others, or the other way around, so that the average
    precision of a query is 1, or far below.
    """

    y = np.repeat(np.arange(4), 4)
    unseen = y >= 2
    relevant = y[:, None] == y
    own = np.arange(16)
    good = relevant.astype(np.float32)

    def worlds(self, cosine, unseen=None):
        return Worlds(self.relevant, self.own, self.unseen if unseen is None else unseen, self.y, cosine)

    def wrong_for(self, images):
        """Scores that are right but for queries among some images."""
        scores = self.good.copy()
        scores[images] = 1 - scores[images]
        return scores

    def test_figures_by_hand(self):
        """Three relevant images of seven, behind four others: (1 / 5 + 2 / 6 + 3 / 7) / 3."""
        choice = self.worlds(1 - self.good).choose(self.good, self.wrong_for(self.unseen), "open", [1.0])
        low, lowest = (1 / 5 + 2 / 6 + 3 / 7) / 3, (1 / 13 + 2 / 14 + 3 / 15) / 3
        assert choice.figures["cosine"] == pytest.approx([low, low, lowest])
        assert choice.figures["learner"] == pytest.approx([1, low, (1 + lowest) / 2])
        assert choice.figures["curve"] == [choice.figures["learner"]]
        assert choice.figures["chance"] == pytest.approx([3 / 7, 3 / 7, 3 / 15])
        assert choice.figures["n_images"] == [8, 8, 16]
        assert choice.figures["shares"] == [1.0]
        assert (choice.learned_weight, choice.quality.map, choice.cosine.map) == pytest.approx(
            (1.0, (1 + lowest) / 2, lowest)
        )

    def test_a_fixed_share_is_taken_as_it_is(self):
        """However bad, and with what it mixes: two thirds of cosine outweigh what was learned."""
        worlds = self.worlds(self.good)
        bad, good = (worlds.choose(self.good, 1 - self.good, "open", [share]) for share in (0.7, 0.3))
        assert (bad.learned_weight, good.learned_weight) == (0.7, 0.3)
        assert bad.quality.map < 0.2 < good.quality.map == 1

    @pytest.mark.parametrize(("world", "place"), [("seen", 0), ("unseen", 1), ("open", 2)])
    def test_each_world_has_its_measure(self, world, place):
        choice = self.worlds(1 - self.good).choose(self.good, self.wrong_for(self.unseen), world, [1.0])
        assert choice.quality.map == choice.figures["learner"][place]
        assert choice.cosine.map == choice.figures["cosine"][place]

    @pytest.mark.parametrize(
        ("world", "expected"),
        [
            ("open", CAUTIOUS),  # all shares under a half have the same figures
            ("seen", 1.0),
            ("unseen", CAUTIOUS),
        ],
    )
    def test_where_nothing_is_clearly_better_the_usual_share_is_taken(self, world, expected):
        assert self.worlds(self.good).choose(self.good, self.good, world).learned_weight == expected

    def test_what_helps_counts_and_what_harms_unseen_classes_does_not(self):
        """Right from a share of a half: the first of those that are as good."""
        worlds = self.worlds(1 - self.good)
        for world in ("open", "unseen"):
            choice = worlds.choose(1 - self.good, self.good, world)
            assert (choice.learned_weight, choice.quality.map) == (0.7, 1.0)
        assert worlds.choose(1 - self.good, self.good, "seen").learned_weight == 1.0
        # Seen classes gain and unseen ones lose from a half: open and unseen stay below it, seen does not.
        look = self.wrong_for(~self.unseen)
        learned = self.wrong_for(self.unseen)
        worlds = self.worlds(look)
        assert worlds.choose(look, learned, "open").learned_weight <= 0.5
        assert worlds.choose(look, learned, "unseen").learned_weight == CAUTIOUS
        assert worlds.choose(look, learned, "seen").learned_weight == 1.0
        # A gain of one class of two, however large, is within two standard errors.
        learned = self.wrong_for(self.y != 2)
        worlds = self.worlds(1 - self.good)
        assert worlds.choose(1 - self.good, learned, "unseen").learned_weight == CAUTIOUS

    def test_where_every_share_is_below_cosine(self):
        """Learned scores are six times as large: a share of 0.2 is wrong for unseen classes, and 0.1 is not."""
        learned = 6 * self.wrong_for(self.unseen)
        choice = self.worlds(self.good).choose(self.good, learned, "open")
        assert choice.learned_weight == 0.1
        assert choice.figures["curve"][SHARES.index(CAUTIOUS)][1] < 1
        choice = self.worlds(self.good).choose(1 - self.good, 1 - self.good, "open")
        assert choice.learned_weight == CAUTIOUS

    @pytest.mark.parametrize(("world", "expected"), [("open", CAUTIOUS), ("unseen", CAUTIOUS), ("seen", 0.0)])
    def test_without_unseen_classes(self, world, expected):
        """Nothing is known of them: the share is the cautious one, unless seen classes are all that counts."""
        worlds = self.worlds(self.good, np.zeros(16, bool))
        choice = worlds.choose(self.good, -6 * self.good, world)
        assert choice.learned_weight == expected
        assert [len(choice.figures[key]) for key in ("cosine", "chance", "n_images", "learner")] == [1, 1, 1, 1]
        assert (choice.quality.map == 1) == (world == "seen")

    def test_some_images_are_queries_and_those_without_a_relevant_one_are_left_out(self):
        relevant = self.relevant.copy()
        relevant[0] = False
        relevant[0, 0] = True
        worlds = Worlds(relevant, self.own, self.unseen, self.y, self.good)
        choice = worlds.choose(self.good, self.good, "open", [1.0])
        assert choice.figures["learner"] == [1, 1, 1]
        assert choice.figures["chance"] == pytest.approx([3 / 7, 3 / 7, 3 / 15])
        # Each query is left out by the column that it has among the images of its part.
        own = np.array([1, 5, 9, 14])
        scores = self.good.copy()
        scores[own, own] = -5  # the query itself, which is no result
        worlds = Worlds(self.relevant[own], own, self.unseen, self.y[own], scores[own])
        assert worlds.choose(scores[own], scores[own], "open", [0.5]).figures["learner"] == [1, 1, 1]
        # Of images of unseen classes alone, and of one image.
        worlds = self.worlds(self.good, np.ones(16, bool))
        assert worlds.choose(self.good, self.good, "open", [1.0]).figures["n_images"] == [0, 16, 16]
        one = np.ones((1, 1), bool)
        choice = Worlds(one, np.zeros(1, int), ~one[0], np.zeros(1), one.astype(float)).choose(
            one * 1.0, one * 1.0, "open"
        )
        assert (choice.learned_weight, choice.quality.map, choice.figures["chance"]) == (CAUTIOUS, 0.0, [0.0])


class TestSmallClasses:
    """Classes of two or three images: none can give some of them, so whole classes validate."""

    y = np.repeat(np.arange(100), 2)

    def test_whole_classes_validate_alone_if_they_are_enough(self):
        rows, unseen = validation.hold_out(self.y, None, 0.2, 0, whole_classes=True)
        assert len(rows) == 40
        assert np.array_equal(rows, unseen)
        assert len(np.unique(self.y[rows])) == 20
        assert np.array_equal(rows, validation.split_by_class(self.y, 0))
        with pytest.raises(validation.TooFewImages):
            validation.hold_out(self.y[:40], None, 0.2, 0, whole_classes=True)
        assert not len(validation.split_by_class(self.y[:40], 0))
        with pytest.raises(validation.TooFewImages):
            validation.hold_out(self.y, None, 0.2, 0, whole_classes=False)

    @pytest.mark.parametrize(("gain", "share"), [(0.0, 0.0), (1.0, 0.7)])
    def test_nothing_learned_counts_unless_it_is_clearly_better(self, gain, share):
        """Not the cautious share: images of no class that was trained on show that it does no harm."""
        relevant = self.y[:, None] == self.y
        good = relevant.astype(np.float32)
        look = 1 - good if gain else good
        worlds = Worlds(relevant, np.arange(200), np.ones(200, bool), self.y, look)
        choice = worlds.choose(look, good, "open")
        assert choice.learned_weight == share
        assert choice.figures["n_images"] == [0, 200, 200]
        assert choice.figures["gain"][0] == pytest.approx(gain, abs=0.01)
        assert choice.figures["p1_gain"] == [gain, 0]
        assert choice.figures["clearly_below"] == [False, False, False]


def test_what_is_below_cosine_is_told_by_the_test_that_chooses():
    """Each class of the unseen ones is a little worse: clearly; one of them alone: not."""
    y = np.repeat(np.arange(8), 4)
    relevant = y[:, None] == y
    good = relevant.astype(np.float32)
    worlds = Worlds(relevant, np.arange(32), y >= 4, y, good)
    for worse, below in ((y >= 4, True), (y == 4, False)):
        learned = good.copy()
        learned[worse] = 1 - learned[worse]
        figures = worlds.choose(good, learned, "open", [1.0]).figures
        assert figures["clearly_below"][:2] == [False, below]
        assert figures["learner"][1] < figures["cosine"][1]
        mean, error = figures["gain"]
        assert mean < 0 < error
