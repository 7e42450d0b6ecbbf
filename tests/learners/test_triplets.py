import logging

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chi2

from visterm.learners import OASIS, TripletSampler, triplets
from visterm.learners.checks import plain_supervision
from visterm.learners.draws import draw_below, stream
from visterm.learners.triplets import related_images

N_DRAWS = 60_000


def assert_distribution(drawn, expected):
    """Pearson's chi-square test of counts, at a level that a right sampler passes with any seed we would meet."""
    drawn, expected = np.asarray(drawn, float).ravel(), np.asarray(expected, float).ravel()
    assert drawn[expected == 0].sum() == 0
    drawn, expected = drawn[expected > 0], expected[expected > 0] * drawn.sum() / expected.sum()
    if len(expected) == 1:
        return
    statistic = ((drawn - expected) ** 2 / expected).sum()
    assert statistic < chi2.ppf(1 - 1e-6, len(expected) - 1)


def counts(sampler, n_images, n=N_DRAWS):
    """Counts of queries, and of positives and negatives by query."""
    queries, positives, negatives = sampler.sample(n, seed=1)
    with_positive, with_negative = np.zeros((n_images, n_images)), np.zeros((n_images, n_images))
    np.add.at(with_positive, (queries, positives), 1)
    np.add.at(with_negative, (queries, negatives), 1)
    return np.bincount(queries, minlength=n_images), with_positive, with_negative


def assert_triplets(sampler, usable, positive, negative):
    """Queries uniform over `usable`; positives and negatives of each query in proportion to its row."""
    n_images = len(usable)
    queries, with_positive, with_negative = counts(sampler, n_images)
    assert_distribution(queries, usable)
    for query in np.flatnonzero(usable):
        assert_distribution(with_positive[query], positive[query])
        assert_distribution(with_negative[query], negative[query])


@pytest.mark.parametrize("n", [2, 3, 7, 1000])
def test_draw_below_is_uniform(n):
    state = stream(5)
    assert_distribution(np.bincount([draw_below(n, state) for _ in range(20 * n + 2000)], minlength=n), np.ones(n))


class TestClasses:
    y = np.array(["b", "a", "b", "c", "a", "b", "d", "a"])  # c and d have one image each

    def test_distribution_whether_negatives_are_checked_or_not(self):
        same = self.y[:, None] == self.y
        usable = np.isin(self.y, ["a", "b"])
        assert_triplets(TripletSampler(self.y), usable, same & ~np.eye(8, dtype=bool), ~same)
        sampler = TripletSampler(self.y, check_negatives=False)
        assert sampler.n_skipped_ == 2
        assert_triplets(sampler, np.isin(self.y, ["a", "b"]), same & ~np.eye(8, dtype=bool), np.ones((8, 8)))
        subset = np.array([1, 2, 3, 4, 5])
        same = self.y[subset][:, None] == self.y[subset]
        sampler = TripletSampler(self.y, subset=subset)
        assert_triplets(sampler, np.array([1, 1, 0, 1, 1]), same & ~np.eye(5, dtype=bool), ~same)

    def test_the_learner_says_how_many_are_skipped(self, caplog):
        with caplog.at_level(logging.WARNING):
            OASIS(n_steps=10, random_state=0).fit(np.eye(8), self.y)
        assert [record.getMessage() for record in caplog.records] == [
            "2 of 8 images are never a query: they have no other image of their class"
        ]

    def test_pairs_share_their_query(self):
        triplets = TripletSampler(self.y).draw_pass((0,), 0, 3 * 20_000, pairs_per_query=3)
        queries, positives, negatives = triplets.reshape(-1, 3, 3).transpose(2, 0, 1)
        assert (queries == queries[:, :1]).all()
        same = self.y[:, None] == self.y
        assert_distribution(np.bincount(queries[:, 0], minlength=8), np.isin(self.y, ["a", "b"]))
        for pair in range(3):
            of_zero = queries[:, pair] == 0
            assert_distribution(np.bincount(positives[of_zero, pair], minlength=8), same[0] & (np.arange(8) != 0))
            assert_distribution(np.bincount(negatives[of_zero, pair], minlength=8), ~same[0])

    def test_images_take_turns_at_being_the_query_whatever_the_passes(self):
        whole = TripletSampler(self.y).draw_pass((3,), 0, 4 * 60, pairs_per_query=4)
        queries = whole[::4, 0].reshape(-1, 6)  # of six images that can be a query
        assert (np.sort(queries) == np.flatnonzero(np.isin(self.y, ["a", "b"]))).all()
        assert len(np.unique(queries, axis=0)) > 1
        sampler = TripletSampler(self.y)
        for first in (100, 7, 0):  # also where a deal or a query's turn is cut in two, and backwards
            assert np.array_equal(sampler.draw_pass((3,), first, 90, pairs_per_query=4)[:, 0], whole[first:, 0][:90])
        assert not np.array_equal(sampler.draw_pass((4,), 0, 240, pairs_per_query=4)[:, 0], whole[:, 0])
        assert np.array_equal(sampler.sample(50, seed=3), TripletSampler(self.y).sample(50, seed=3))
        assert not np.array_equal(sampler.sample(50, seed=3), sampler.sample(50, seed=4))


class TestSeveralLabels:
    # Image 3 shares both labels with image 0, image 4 is related to all, 5 has no label, 6 is alone with its label.
    labels = [[2, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 3, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 5, 0, 0]]
    y = sp.csr_array(np.array([*labels, [0] * 5, [0, 0, 0, 0, 1], [0, 0, 1, 1, 0], [0, 0, 0, 1, 0]]))

    def test_several_labels_distribution(self):
        labels = self.y.toarray() > 0
        related = (labels[:, None] & labels).any(axis=2)
        others = ~np.eye(9, dtype=bool)
        usable = (related & others).any(axis=1)
        assert usable.tolist() == [True] * 5 + [False] * 2 + [True] * 2
        sampler = TripletSampler(self.y)
        assert sampler.n_skipped_ == 2
        assert_triplets(sampler, usable, related & others, ~related & others)
        y = sp.csr_array(np.array([[1, 1], [1, 0], [0, 1], [0, 1]]))
        sampler = TripletSampler(y)
        assert sampler.n_skipped_ == 1
        assert set(sampler.sample(200)[0].tolist()) == {1, 2, 3}

    def test_walk_has_the_distribution_of_rejection(self):
        """Images 0 and 1 share 60 labels, so a walk between them counts once in 60, and rejection may give up."""
        labels = np.zeros((40, 60), int)
        labels[:2] = 1
        labels[2:4, 0] = 1
        expected = np.zeros((40, 40))
        expected[:4, :4] = 1 - np.eye(4)
        negative = np.ones((40, 40))
        negative[:4, :4] = 0
        assert_triplets(TripletSampler(sp.csr_array(labels)), np.arange(40) < 4, expected, negative)

    def test_scarce_negatives(self):
        """Nearly all images are related: negatives are found by looking at each."""
        labels = np.ones((300, 1), int)
        labels[-2:] = 0
        labels = np.hstack([labels, 1 - labels])
        _, _, with_negative = counts(TripletSampler(sp.csr_array(labels)), 300)
        assert_distribution(with_negative[:298].sum(axis=0), np.arange(300) >= 298)


class TestClicks:
    R = np.array([[5, 0, 0], [1, 2, 0], [0, 4, 0], [0, 1, 7], [0, 0, 2], [0, 0, 0], [3, 0, 1]])  # (images, queries)

    def probabilities(self):
        """Pr(a, b) as section 5.2 writes it."""
        joint = self.R / self.R.sum()
        of_query = joint.sum(axis=0)
        given = joint / of_query
        return np.einsum("aq,bq,q->ab", given, given, of_query)

    @pytest.mark.parametrize("cutoff", [0.0, 0.02])
    def test_distribution(self, cutoff):
        Pr = self.probabilities()
        others = ~np.eye(len(Pr), dtype=bool)
        related = (Pr > cutoff) & others
        assert 0 < related.sum() < (Pr > 0).sum() or cutoff == 0
        sampler = TripletSampler(sp.csr_array(self.R), cutoff=cutoff)
        assert_triplets(sampler, related.any(axis=1), Pr * related, ~related & others)

    def test_walk_has_the_distribution_of_rejection(self):
        """One popular image takes nearly all walks and is itself below no cut-off: rejection gives up."""
        R = np.zeros((6, 2), int)
        R[0, 0], R[1:4, 0] = 100_000, [1, 2, 3]
        R[4:, 1] = 10
        joint = R / R.sum()
        Pr = np.einsum("aq,bq,q->ab", joint / joint.sum(0), joint / joint.sum(0), joint.sum(0))
        others = ~np.eye(6, dtype=bool)
        assert_triplets(TripletSampler(sp.csr_array(R), cutoff=0.0), np.ones(6), Pr * others, (Pr == 0) & others)

    def test_subset_keeps_the_totals(self):
        subset = np.array([0, 1, 2, 4, 6])
        Pr = self.probabilities()[np.ix_(subset, subset)]
        others = ~np.eye(5, dtype=bool)
        related = (Pr > 0.02) & others
        sampler = TripletSampler(sp.csr_array(self.R), cutoff=0.02, subset=subset)
        assert_triplets(sampler, related.any(axis=1), Pr * related, ~related & others)
        rows, columns = np.array([1, 4]), np.array([0, 2, 3, 5, 6])
        related_part = related_images(sp.csr_array(self.R), rows, columns, cutoff=0.02)
        np.testing.assert_array_equal(related_part, self.probabilities()[np.ix_(rows, columns)] > 0.02)


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (["a", "a", "a"], {}, "at least two classes, got 1 class"),
        (["a", "b", "c"], {}, "no class has two images"),
        ([1.0, 1.0, np.nan], {}, "NaN"),
        (np.ones((3, 2)), {}, "sparse array"),
        (["a", "a", "b"], {"cutoff": 0.1}, "sparse array of counts"),
        *((sp.csr_array([[bad, 0], [1, 1]]), {}, "negative, infinite or missing") for bad in (-1.0, np.nan, np.inf)),
        (sp.csr_array((4, 2)), {}, "no triplet"),
        (sp.csr_array(TestClicks.R), {"cutoff": 1.0}, "no triplet"),
        (sp.csr_array(TestClicks.R), {"cutoff": -1.0}, "cut-off"),
    ],
)
def test_what_is_refused(y, options, message):
    with pytest.raises(ValueError, match=message):
        TripletSampler(y, **options)


class TestBalance:
    @pytest.mark.parametrize("several", [False, True])
    @pytest.mark.parametrize("pairs", [1, 4])
    def test_classes_and_their_images_take_turns(self, several, pairs):
        labels = np.repeat([0, 1, 2, 3], [60, 6, 3, 1])  # the last has no other image, and is never a query
        y = sp.csr_array((np.ones(70), (np.arange(70), labels))) if several else labels
        sampler = TripletSampler(y, balance="class")
        triplets = sampler.draw_pass((5,), 0, 720 * pairs, pairs_per_query=pairs)
        queries, positives, negatives = triplets.T
        assert np.bincount(labels[queries]).tolist() == [240 * pairs] * 3
        assert np.bincount(queries).tolist() == [4 * pairs] * 60 + [40 * pairs] * 6 + [80 * pairs] * 3
        assert (labels[positives] == labels[queries]).all()
        assert (labels[negatives] != labels[queries]).all()
        later = sampler.draw_pass((5,), 100 * pairs, 50 * pairs, pairs_per_query=pairs)
        assert (later[:, 0] == queries[100 * pairs : 150 * pairs]).all()  # a function of the arguments alone

    def test_other_words_and_clicks_are_refused(self):
        with pytest.raises(ValueError, match="balance must be 'image' or 'class', got 'label'"):
            TripletSampler([0, 0, 1, 1], balance="label")
        with pytest.raises(ValueError, match="needs labels, not clicks"):
            TripletSampler(sp.csr_array(np.eye(3)), cutoff=0.0, balance="class")


class TestPlainSupervision:
    def test_dense_zeros_and_ones_are_several_labels_and_labels_stay(self):
        y = np.array([[1, 0, 1], [0, 1, 0]])
        for given in (y, y.astype(bool), y.astype(float)):
            supervision = plain_supervision(given)
            assert sp.issparse(supervision)
            assert (supervision.toarray() == y).all()
        y = np.array(["b", "a"])
        assert plain_supervision(y) is y

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (["a", None], "holds None in place of a label"),
            (np.full((2, 2), 0.5), "must be labels of shape"),
            ([["a", "b"], ["b", "c"]], "must be labels of shape"),
            (np.zeros((2, 2, 2)), "must be labels of shape"),
        ],
    )
    def test_what_is_refused(self, y, message):
        with pytest.raises(ValueError, match=message):
            plain_supervision(y)


class TestCutoffByShare:
    """A click cut-off such as "top 1 %", in place of a threshold."""

    clicks = sp.csr_array(np.random.default_rng(0).poisson(0.4, (40, 12)).astype(float))

    def probabilities(self):
        R = self.clicks.toarray()
        R = R[:, R.sum(axis=0) > 0]
        P = np.einsum("aq,bq,q->ab", R, R, 1 / R.sum(axis=0)) / R.sum()
        np.fill_diagonal(P, 0)
        return P

    @pytest.mark.parametrize("percent", [0.5, 1, 10, 100])
    def test_relates_that_share_of_the_joined_pairs(self, percent):
        P = self.probabilities()
        values = np.sort(P[P > 0])
        expected = values[len(values) - max(1, round(percent / 100 * len(values)))] * (1 - 1e-12) <= P
        everything = np.arange(40)
        related = related_images(self.clicks, everything, everything, cutoff=f"top {percent} %")
        np.fill_diagonal(related, False)
        np.testing.assert_array_equal(related, expected & (P > 0))
        queries, positives, _ = TripletSampler(self.clicks, cutoff=f"top {percent}%").sample(300)
        assert related[queries, positives].all()

    def test_of_very_many_pairs_a_part_decides(self, monkeypatch):
        monkeypatch.setattr(triplets, "_PAIRS", 2000)
        everything = np.arange(40)
        related = related_images(self.clicks, everything, everything, cutoff="top 20 %")
        np.fill_diagonal(related, False)
        assert related.sum() / (self.probabilities() > 0).sum() == pytest.approx(0.2, abs=0.08)

    def test_bad_input(self):
        for bad in ("top 0 %", "top 101 %", "1 %", "top", -0.1):
            with pytest.raises(ValueError, match="click cut-off must be a number of at least 0, or a share such as"):
                TripletSampler(self.clicks, cutoff=bad)
        with pytest.raises(ValueError, match="no triplet can be drawn: no image.* click cut-off 1.0"):
            TripletSampler(self.clicks, cutoff=1.0)
        alone = sp.csr_array(np.eye(5))
        with pytest.raises(ValueError, match="no triplet can be drawn: no image.* click cut-off 'top 1 %'"):
            TripletSampler(alone, cutoff="top 1 %")
