import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from visterm.learners import Cosine, MuSL, load_learner
from visterm.learners.musl import _as_columns, _between, hamming, least_cut, separate, weigh_pairs
from visterm.learners.validation import mean_average_precision

PAPER = {"alpha": 0.1, "midpoint": "final", "balanced": False}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class TestHandWorkedRounds:
    """Two rounds of one metric by hand: images 0, 1 of category a, 2, 3 of category b, two features, T = 2.

    Pairs (first, second), of the category of the second: positive 0-1, 1-0, 2-3, 3-2, negative all eight between a and
    b, so that two images of one category have weight w + w, and two of different ones -(w + w).
    """

    #              0  1  2  3
    X = np.array([[1, 5, 5, 5], [0, 0, 3, 0]], np.float32).T
    y = np.array(["a", "a", "b", "b"])

    def fit(self, **options):
        return MuSL(n_metrics=1, n_bits=2, random_state=0, **(PAPER | options)).fit(self.X, self.y)

    # First round, all weights 1/2. x_0 < 3 separates 0 from 1, 2, 3: one positive pair each way (+1), two negative ones
    # each way (-2): -1. x_1 < 1.5 separates 2 from 0, 1, 3: the same. The first feature wins; the threshold lies in the
    # middle of 1 and 5. Then H is 1 where image 0 takes part, else 0.
    # Second round: p = sigmoid(0.1 (1 - H)), so sigmoid(0.1) = 0.525 at H = 0 and 0.5 at H = 1. Twice the weights:
    # positive 0-1: 0.5, 2-3: 0.475; negative 0-2, 0-3: 0.5, 1-2, 1-3: 0.525.
    # x_0 again: 0.5 - 2 * 0.5 = -0.5.  x_1 < 1.5 separates 2: 0.475 - (0.5 + 0.525) = -0.55, and wins.
    def test_rounds_and_likelihood(self):
        assert self.fit().stump_features_.tolist() == [[0, 1]]
        assert self.fit().stump_thresholds_.tolist() == [[3, 1.5]]
        # With both: H(0,1) = 1, H(2,3) = 1, H(0,2) = 2, H(0,3) = 1, H(1,2) = 1, H(1,3) = 0. Category a has the positive
        # pairs 1-0 and 0-1 and the negative ones of 0 with 2, 3 and of 1 with 2, 3; b the mirror of it.
        negative = np.log(1 - sigmoid(0.1 * (1 - np.array([2, 1, 1, 0])))).sum()
        expected = 2 * np.log(0.5) + negative
        np.testing.assert_allclose(self.fit().likelihoods_, [[expected], [expected]])
        # Twice as many negative as positive pairs in each category: with `balanced` a positive one has weight 2, and
        # both stumps separate as much of either: +2 - 2 = 0. Sides then count for the likelihood, too.
        learner = self.fit(balanced=True)
        assert learner.stump_features_.tolist() == [[0, 1]]
        np.testing.assert_allclose(learner.likelihoods_[:, 0], 2 * 2 * np.log(0.5) + negative)

    # After t rounds the midpoint is t / 2: in the second round p = sigmoid(0.1 (0.5 - H)).
    # Twice the weights, s = sigmoid(0.05) = 0.5125: positive 0-1: s, 2-3: 1 - s; negative 0-2, 0-3: 1 - s, 1-2, 1-3: s.
    # x_0: s - 2 (1 - s) = -0.4625, x_1: (1 - s) - (1 - s) - s = -0.5125.
    def test_running_midpoint(self):
        learner = self.fit(midpoint="running")
        assert learner.stump_features_.tolist() == [[0, 1]]
        losses = []
        MuSL(n_metrics=1, n_bits=2, random_state=0, **(PAPER | {"midpoint": "running"})).fit(
            self.X, self.y, callback=lambda learner: losses.append(-learner.likelihoods_.sum())
        )
        s = sigmoid(0.05)
        # After the first stump, H = 1 where image 0 takes part: 2 of 4 positive pairs and 4 of 8 negative ones.
        assert losses[0] == pytest.approx(-(2 * np.log(1 - s) + 2 * np.log(s) + 4 * np.log(s) + 4 * np.log(1 - s)))
        assert learner.history_[0]["loss"] == pytest.approx(losses[0] / 12)
        assert learner.history_[0]["violating"] == pytest.approx((2 + 4) / 12)


def train_slowly(learner, X, y):
    """What `fit` learns with all negative pairs, by the formulas of the module's first lines, one pair at a time."""
    labels, c = np.unique(y, return_inverse=True)
    n, C, K, T = len(y), len(labels), learner.n_metrics, learner.n_bits
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]  # of the category of j
    same = np.array([c[i] == c[j] for i, j in pairs])
    category = np.array([c[j] for _, j in pairs])
    scale = np.ones(len(pairs))
    if learner.balanced:
        for k in range(C):
            own = category == k
            scale[own & same] = (own & ~same).sum() / (own & same).sum()
    r = learner.r / scale.sum()
    stumps = [
        (j, _between(a, b))
        for j in range(X.shape[1])
        for a, b in zip(np.unique(X[:, j])[:-1], np.unique(X[:, j])[1:], strict=True)
    ]
    first, second = np.array(pairs).T
    separated = np.array([(X[first, j] < theta) != (X[second, j] < theta) for j, theta in stumps])

    def probability(H, t):
        return sigmoid(learner.alpha * ((T if learner.midpoint == "final" else t) / 2 - H))

    def likelihoods(H, t):
        p = probability(H, t)
        return np.bincount(category, scale * np.where(same, np.log(p), np.log(1 - p)), C)

    def boost(n_metrics, share):
        H = np.zeros((n_metrics, len(pairs)))
        L = np.stack([likelihoods(H[k], 0) for k in range(n_metrics)], axis=1)
        chosen = np.empty((n_metrics, T), int)
        for t in range(T):
            for k in range(n_metrics):
                p = probability(H[k], t) if t else 0.5
                w = scale * share(L)[category, k] * np.abs(p - same)
                mistakes = (w * (separated == same)).sum(axis=1)
                chosen[k, t] = mistakes.argmin()
                H[k] += separated[chosen[k, t]]
                L[:, k] = likelihoods(H[k], t + 1)
        return chosen, L

    def soft(L):
        e = np.exp(r * (L - L.max(axis=1, keepdims=True)))
        return e / e.sum(axis=1, keepdims=True)

    _, L = boost(K, soft)
    s = L.argmax(axis=1)
    chosen, L = boost(K, lambda L: np.eye(K)[s])
    return [[stumps[place] for place in row] for row in chosen], s, L


@pytest.mark.parametrize("seed", [1, 2, 4])
@pytest.mark.parametrize("options", [PAPER, {"midpoint": "running", "balanced": True, "alpha": 1.0}])
def test_training_equals_slow_reference(options, seed):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), 6)
    X = np.round(rng.normal(size=(24, 5)) + rng.normal(size=(4, 5))[y], 2).astype(np.float32)
    learner = MuSL(n_metrics=2, n_bits=5, random_state=0, **options).fit(X, y)
    stumps, s, L = train_slowly(learner, X, y)
    np.testing.assert_array_equal(learner.metric_of_category_, s)
    assert len(set(s)) == 2
    for k in range(2):
        learned = list(zip(learner.stump_features_[k].tolist(), learner.stump_thresholds_[k].tolist(), strict=True))
        assert learned == [(j, float(theta)) for j, theta in stumps[k]]
    np.testing.assert_allclose(learner.likelihoods_, L)


class TestBestStump:
    @settings(max_examples=60)
    @given(st.integers(2, 23), st.integers(0, 23), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32 - 1))
    def test_equals_brute_force(self, n, n_active, d, n_values, seed):
        """Every stump tried, its mistakes counted; values of few kinds, negative ones and zeros among them.

        Images behind the first `n_active` have no weights with each other, which are not read.
        """
        rng = np.random.default_rng(seed)
        X = rng.integers(-n_values, n_values + 1, (n, d)).astype(np.float32) * rng.integers(0, 2, (n, d))
        A = rng.normal(size=(n, n)).astype(np.float32)
        A = A + A.T
        np.fill_diagonal(A, 0)
        n_active = min(n_active, n)
        A[n_active:, n_active:] = 0

        def cut_of(side):
            return A[np.ix_(side, ~side)].sum(dtype=float)

        cuts = [cut_of(X[:, j] < v) for j in range(d) for v in np.unique(X[:, j])[1:]]
        columns, read = _as_columns(sp.csr_array(X)), A.copy()
        read[n_active:, n_active:] = np.nan
        cut, feature, below, above = least_cut(columns, 0, d, read, A.sum(axis=1, dtype=float), n_active)
        if not cuts:
            assert feature == -1
            return
        assert cut == pytest.approx(min(cuts), abs=1e-4)
        assert cut_of(X[:, feature] < _between(below, above)) == pytest.approx(min(cuts), abs=1e-4)
        assert {below, above} <= set(X[:, feature].tolist())

    def test_parts_of_the_features_and_thresholds_between_neighbouring_numbers(self):
        X = np.eye(9, dtype=np.float32)
        A = -np.ones((9, 9), np.float32)
        columns, degree = _as_columns(sp.csr_array(X)), A.sum(axis=1, dtype=float)
        assert least_cut(columns, 3, 6, A, degree, 9)[1] == 3
        assert least_cut(columns, 4, 4, A, degree, 9)[1] == -1
        a = np.float32(1)
        b = np.nextafter(a, np.float32(2))
        assert a < _between(a, b) <= b


def test_kernels_of_pairs_equal_slow_reference():
    rng = np.random.default_rng(0)
    n, C, T = 12, 3, 4
    c = rng.integers(0, C, n).astype(np.int32)
    drawn = rng.random((n, n)) < 0.6  # [i, j]: pair (i, j), of the category of j
    np.fill_diagonal(drawn, False)
    pairs = (drawn + 2 * drawn.T.astype(np.uint8)).astype(np.uint8)
    H, counts = np.zeros((n, n), np.uint8), np.zeros((C, 2, T + 1), np.int64)
    sides = rng.random((T, n)) < 0.5
    for side in sides:
        separate(side, pairs, c, H, counts)
    np.testing.assert_array_equal(H, (sides[:, :, None] != sides[:, None, :]).sum(axis=0))
    expected = np.zeros_like(counts)
    positive, negative = rng.random((2, C, T + 1)).astype(np.float32)
    positive[1], negative[1] = 0, 0  # another metric has category 1
    weights = np.zeros((n, n))
    for i, j in zip(*np.nonzero(drawn), strict=True):
        same = int(c[i] == c[j])
        expected[c[j], same, H[i, j]] += 1
        weights[i, j] += positive[c[j], H[i, j]] if same else -negative[c[j], H[i, j]]
    np.testing.assert_array_equal(counts, expected)
    weights = weights + weights.T
    for order, n_active in ((np.arange(n), n), (np.argsort(c == 1, kind="stable"), (c != 1).sum())):
        A, degree = np.full((n, n), -9, np.float32), np.empty(n)
        weigh_pairs(order, n_active, pairs, c, H, positive, negative, A, degree)
        np.testing.assert_array_equal(A[n_active:, n_active:], -9)
        A[n_active:, n_active:] = 0
        np.testing.assert_allclose(A, weights[np.ix_(order, order)], rtol=1e-6)
        np.testing.assert_allclose(degree, weights[order].sum(axis=1), rtol=1e-5)


def test_pairs_are_drawn_for_each_image():
    y = np.repeat(np.arange(3), [3, 5, 1])
    learner = MuSL(n_metrics=1, n_bits=1, negatives_per_example=4, random_state=0).fit(np.eye(9), y)
    pairs = learner._draw_pairs(y, np.array([True, True, False]))
    forth = pairs & 1  # [i, j]: pair (i, j), of the category of j
    np.testing.assert_array_equal(forth.T, pairs >> 1)
    same = y[:, None] == y
    np.testing.assert_array_equal((forth * same).sum(axis=0), [2] * 3 + [4] * 5 + [0])
    # Images of category 1 have only four of other categories; of category 2 no pairs were asked for.
    np.testing.assert_array_equal((forth * ~same).sum(axis=0), [4] * 3 + [4] * 5 + [0])


def make_groups(seed=0, per_class=12):
    """Six categories of two kinds: those of a kind differ in one pair of features, and all of the other kind have
    values there that say nothing. One more feature tells the kinds apart; four are noise, as large as all others."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(6), per_class)
    X = rng.random((len(y), 9)) * 6
    levels = np.array([[1, 1], [1, 5], [5, 5]])
    for kind, columns in ((0, [0, 1]), (1, [2, 3])):
        own = y // 3 == kind
        X[np.ix_(own, columns)] = levels[y[own] % 3] + 0.2 * rng.normal(size=(own.sum(), 2))
    X[:, 4] = np.where(y < 3, 1, 5) + 0.2 * rng.normal(size=len(y))
    return X.astype(np.float32), y


class TestLearning:
    OPTIONS = {"n_bits": 8, "midpoint": "running", "balanced": True, "alpha": 1.0, "random_state": 0}

    @pytest.mark.parametrize("seed", range(3))
    def test_finds_the_kinds_of_categories(self, seed):
        X, y = make_groups(seed)
        learner = MuSL(n_metrics=2, **self.OPTIONS).fit(X, y)
        s = learner.metric_of_category_
        assert s[0] == s[1] == s[2] != s[3] == s[4] == s[5]
        # Each metric looks at what tells its categories apart, and never at noise.
        for k, columns in ((s[0], {0, 1, 4}), (s[3], {2, 3, 4})):
            assert set(learner.stump_features_[k].tolist()) <= columns

    def test_beats_the_cosine_and_one_metric(self):
        """The four features of noise drown the cosine; one metric must look at what says nothing about half."""
        X, y = make_groups(0)
        Q, yq = make_groups(1)
        relevant, own = yq[:, None] == yq, np.arange(len(yq))
        scores = {}
        for n_metrics in (1, 2):
            learner = MuSL(n_metrics=n_metrics, **self.OPTIONS).fit(X, y)
            scores[n_metrics] = mean_average_precision(learner.similarity(Q, Q, yq), relevant, own)
            assert (learner.categorize(Q, X, y) == yq).mean() > 0.95
        cosine = mean_average_precision(Cosine().fit(X).similarity(Q, Q), relevant, own)
        assert cosine < 0.65
        assert scores[1] > cosine + 0.2
        assert scores[2] > scores[1]
        assert scores[2] > 0.95

    def test_novel_categories_take_the_metric_of_their_kind(self):
        X, y = make_groups(0)
        known = y % 3 != 1
        learner = MuSL(n_metrics=2, **self.OPTIONS).fit(X[known], y[known])
        s = dict(zip(learner.classes_.tolist(), learner.metric_of_category_.tolist(), strict=True))
        assert learner.assign_categories(X, y).tolist() == [s[0], s[3]]
        assert learner.classes_.tolist() == [0, 1, 2, 3, 4, 5]
        assert learner.metric_of_category_.tolist() == [s[0], s[0], s[2], s[3], s[3], s[5]]
        assert learner.likelihoods_.shape == (6, 2)
        Q, yq = make_groups(1)
        assert (learner.categorize(Q, X, y) == yq).mean() > 0.9
        assert learner.assign_categories(X, y).tolist() == []

    def test_groupings(self):
        X, y = make_groups(0)
        one = MuSL(n_metrics=1, **self.OPTIONS).fit(X, y)
        assert one.metric_of_category_.tolist() == [0] * 6
        assert {entry["phase"] for entry in one.history_} == {"train"}
        assert MuSL(n_metrics=6, **self.OPTIONS).fit(X, y).metric_of_category_.tolist() == [0, 1, 2, 3, 4, 5]
        random = MuSL(n_metrics=3, grouping="random", **self.OPTIONS).fit(X, y).metric_of_category_
        assert np.bincount(random).tolist() == [2, 2, 2]
        means = MuSL(n_metrics=2, grouping="kmeans", **self.OPTIONS).fit(X, y)
        assert len(means.history_) == 8
        joint = MuSL(n_metrics=2, **self.OPTIONS).fit(X, y)
        assert [entry["phase"] for entry in joint.history_] == ["group"] * 8 + ["train"] * 8
        assert (joint.steps_done_, joint.steps_total_, joint.phase_) == (16, 16, "done")
        assert len(MuSL(n_metrics=2, retrain=False, **self.OPTIONS).fit(X, y).history_) == 8

    def test_soft_grouping(self):
        """Equation 9 by hand: L = (-10, -20), r = 2 / 40, so the shares are e^0.5 : 1."""
        learner = MuSL(n_metrics=2, n_bits=2, r=2.0, **PAPER)
        learner.phase_, learner.n_steps_ = "group", 1
        learner.stump_features_ = np.zeros((2, 2), np.int32)
        learner.likelihoods_ = np.array([[-10.0, -20.0]])
        counts = np.zeros((1, 2, 3), np.int64)
        counts[0, 0, 0], counts[0, 1, 1] = 30, 10
        positive, negative = learner._pair_weights(0, counts)
        share = np.exp(0.5) / (np.exp(0.5) + 1)
        p = sigmoid(0.1 * (1 - np.arange(3)))
        np.testing.assert_allclose(positive[0], share * (1 - p), rtol=1e-6)
        np.testing.assert_allclose(negative[0], share * p, rtol=1e-6)

    def test_images_are_chosen_and_have_to_suffice(self, caplog):
        y = np.repeat(np.arange(3), [50, 4, 20])
        X = np.random.default_rng(0).random((74, 5))
        learner = MuSL(n_metrics=1, n_bits=2, max_images=24, random_state=0).fit(X, y)
        assert "metrics are learned from 24 of 74 images" in caplog.text
        assert np.bincount(y[learner._choose_images(y)]).tolist() == [10, 4, 10]
        X, y = np.random.default_rng(0).random((30, 5)), np.repeat(np.arange(10), 3)
        with pytest.raises(ValueError, match="max_images=19 is less than two for each of 10 categories"):
            MuSL(n_metrics=1, n_bits=2, max_images=19).fit(X, y)

    def test_parameters_changed_after_the_fit_change_nothing(self):
        X, y = make_groups(0)
        learner = MuSL(n_metrics=2, n_bits=8, random_state=0).fit(X, y)
        expected = learner.distances(X[:5], X, y)
        learner.set_params(n_metrics=3, n_bits=64)
        np.testing.assert_array_equal(learner.distances(X[:5], X, y), expected)
        assert learner.transform(X, y).shape == (len(y), 16)

    def test_labels_that_differ_from_those_of_the_fit(self):
        X, y = make_groups(0)
        stopped = []

        def stop(learner):
            stopped.append(learner)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            MuSL(n_metrics=2, n_bits=8, random_state=0).fit(X, y, callback=stop)
        other = np.array([*y])
        other[0] = other.max()
        other[y == y[0]] = other.max()
        with pytest.raises(ValueError, match="made with 6 other categories"):
            stopped[0].resume(X, other)
        learner = MuSL(n_metrics=2, n_bits=8, random_state=0).fit(X, y)
        with pytest.raises(ValueError, match="labels must be of the fit's type"):
            learner.assign_categories(X, y.astype(str))


class TestCheck:
    @pytest.mark.parametrize("vectors", ["forest", None])
    def test_fit_and_other_vectors_are_not_refused(self, vectors):
        X = sp.csr_array(np.eye(40, dtype=np.float32))
        MuSL(n_metrics=1, n_bits=1).check(X, np.arange(40) % 2, vectors=vectors)
        MuSL(n_metrics=1, n_bits=1).fit(X, np.arange(40) % 2)

    def test_vectors_that_musl_and_others_refuse(self):
        y = np.arange(40) % 2
        with pytest.raises(ValueError, match="an image has 1 of the 40 k-means visterms, .* use the forest codebook$"):
            MuSL().check(sp.csr_array(np.eye(40)), y, vectors="kmeans")
        MuSL().check(sp.csr_array(np.eye(20)), y[:20], vectors="kmeans")  # one in twenty is enough
        MuSL().check(np.ones((40, 40)), y, vectors="kmeans")
        with pytest.raises(ValueError, match="single numbers, which say little in deep vectors"):
            MuSL().check(np.ones((4, 4)), np.arange(4) % 2, vectors="deep")
        Cosine().check(np.ones((4, 4)), np.arange(4) % 2, vectors="deep")


class TestStarts:
    X, y = make_groups(0)
    OPTIONS = {
        "n_metrics": 2,
        "n_bits": 6,
        "alpha": 1.0,
        "midpoint": "running",
        "balanced": False,
        "negatives_per_example": 5,
        "random_state": 1,
    }

    def only(self, start, **options):
        """A fit of one start that draws the pairs of another."""
        learner = MuSL(**self.OPTIONS, **options)
        draw = learner._draw_pairs

        def draw_as(category, wanted):
            learner.start_ = start
            pairs = draw(category, wanted)
            learner.start_ = 0
            return pairs

        learner._draw_pairs = draw_as
        return learner.fit(self.X, self.y)

    @pytest.mark.parametrize("retrain", [True, False])
    def test_the_likeliest_is_kept(self, retrain):
        alone = [self.only(start, retrain=retrain) for start in range(4)]
        losses = [learner.history_[-1]["loss"] for learner in alone]
        best = int(np.argmin(losses))
        assert best == (2 if retrain else 3)
        assert len(set(losses)) == 4
        kept = MuSL(n_starts=4, retrain=retrain, **self.OPTIONS).fit(self.X, self.y)
        assert (kept.start_, kept.start_losses_) == (best, losses)
        for name in ("stump_features_", "stump_thresholds_", "metric_of_category_", "likelihoods_"):
            np.testing.assert_array_equal(getattr(kept, name), getattr(alone[best], name))
        assert kept.history_ == [entry for learner in alone for entry in learner.history_]
        assert not [name for name in vars(kept) if name.startswith("best_")]

    def test_phases(self):
        phases = []
        learner = MuSL(n_starts=3, **self.OPTIONS).fit(self.X, self.y, callback=lambda m: phases.append(m.phase_))
        one = ["group"] * 6 + ["train"] * 6
        assert [entry["phase"] for entry in learner.history_] == one * 3
        assert phases == [*(one * 3)[1:], "done"]
        assert (learner.steps_done_, learner.steps_total_) == (36, 36)
        for options in ({"grouping": "kmeans"}, {"n_metrics": 1}, {"n_metrics": 6}):
            learner = MuSL(n_starts=3, **(self.OPTIONS | options)).fit(self.X, self.y)
            assert (learner.steps_done_, learner.steps_total_, len(learner.start_losses_)) == (6, 6, 1)

    def test_starts_that_are_all_alike_are_said(self, caplog):
        MuSL(n_starts=2, **(self.OPTIONS | {"negatives_per_example": 60})).fit(self.X, self.y)
        assert "all 2 starts draw the same pairs: negatives_per_example=60" in caplog.text
        caplog.clear()
        MuSL(n_starts=2, **(self.OPTIONS | {"negatives_per_example": 59})).fit(self.X, self.y)
        assert not caplog.records


class TestSides:
    @pytest.fixture
    def fitted(self):
        X, y = make_groups(0)
        return MuSL(n_metrics=3, n_bits=70, random_state=0).fit(X, y), X, y

    def test_two_sided_form(self, fitted):
        learner, X, y = fitted
        query, gallery = learner.transform_query(X[:4]), learner.transform(X, y)
        assert query.dtype == gallery.dtype == np.float32
        assert query.shape == (4, 210)
        assert set(np.unique(query)) == {-1, 1}
        for i in (0, 30, 71):
            k = learner.metric_of_category_[y[i]]
            below = X[i, learner.stump_features_[k]] < learner.stump_thresholds_[k]
            expected = np.zeros((3, 70))
            expected[k] = np.where(below, 1, -1)
            np.testing.assert_array_equal(gallery[i].reshape(3, 70), expected)

    def test_codes_their_distances_and_popcounts(self, fitted):
        learner, X, y = fitted
        np.testing.assert_array_equal(learner.similarity(X[:9], X, y), 70 - 2 * learner.distances(X[:9], X, y))
        np.testing.assert_allclose(learner.similarity(X[:9], X), 70 - 2 * learner.distances(X[:9], X), atol=1e-4)
        learner, X, _ = fitted
        codes = learner.codes(X)
        assert codes.dtype == np.uint64
        assert codes.shape == (72, 3, 2)
        bit = X[:, learner.stump_features_[1, 66]] < learner.stump_thresholds_[1, 66]
        np.testing.assert_array_equal((codes[:, 1, 1] >> np.uint64(2)) & np.uint64(1), bit)
        rng = np.random.default_rng(0)
        a, b = rng.integers(0, 2**64, (5, 3), np.uint64), rng.integers(0, 2**64, (7, 3), np.uint64)
        b[0], a[0] = 0, 2**64 - 1
        distances = np.empty((5, 7), np.float32)
        hamming(a, b, distances)
        expected = [[sum((int(x) ^ int(z)).bit_count() for x, z in zip(p, q, strict=True)) for q in b] for p in a]
        np.testing.assert_array_equal(distances, expected)

    def test_unknown_labels_take_all_metrics(self, fitted, caplog):
        learner, X, y = fitted
        names = y.astype(object)
        names[3], names[5] = "never", None
        vectors = learner.transform(X, names)
        assert "2 of 72 gallery images have labels not learned" in caplog.text
        caplog.clear()
        everything = learner.transform(X)
        assert not caplog.records
        np.testing.assert_allclose(everything, learner.transform_query(X) / 3, rtol=1e-6)
        np.testing.assert_array_equal(vectors[[3, 5]], everything[[3, 5]])

    def test_vote_shares_ties(self):
        """Distances 0, 1, 1 for labels a, b, b: with two neighbours, the two b share one vote."""
        X = np.array([[0, 0], [0, 1], [0, 1], [9, 9]], np.float32)
        learner = MuSL(n_metrics=1, n_bits=2, random_state=0).fit(X, ["a", "b", "b", "c"])
        learner.stump_features_, learner.stump_thresholds_ = np.array([[0, 1]]), np.array([[5.0, 0.5]], np.float32)
        distances = learner.distances(X[:1], X[:3], ["a", "b", "b"])
        np.testing.assert_array_equal(distances, [[0, 1, 1]])
        for n_neighbors, expected in ((1, "a"), (2, "a"), (3, "b"), (99, "b")):
            assert learner.categorize(X[:1], X[:3], ["a", "b", "b"], n_neighbors=n_neighbors) == [expected]


class TestBadInput:
    X, y = make_groups(0, per_class=3)

    def test_labels_are_one_an_image_of_several_categories(self):
        labels = sp.csr_array(np.eye(6)[self.y])
        with pytest.raises(ValueError, match="MuSL takes one label per image, as an array"):
            MuSL().fit(self.X, labels)
        with pytest.raises(ValueError, match="MuSL takes one label per image, as an array of shape .n,., not several"):
            MuSL().fit(self.X, labels.toarray())
        learner = MuSL(n_metrics=2, n_bits=2).fit(self.X, self.y)
        with pytest.raises(ValueError, match="MuSL takes one label per image"):
            learner.transform(self.X, labels)
        with pytest.raises(ValueError, match="at least two classes, got 1 class"):
            MuSL(n_metrics=1).fit(self.X, np.zeros(18))
        learner = MuSL(n_metrics=2, n_bits=2).fit(self.X, self.y)
        with pytest.raises(ValueError, match="y names one category"):
            learner.assign_categories(self.X, np.full(18, 9))
        with pytest.raises(ValueError, match="y must have shape \\(18,\\)"):
            learner.transform(self.X, self.y[:-1])

    def test_images_that_are_all_alike_and_categories_of_one(self):
        learner = MuSL(n_metrics=2, n_bits=3, random_state=0).fit(np.zeros((18, 4)), self.y)
        assert (learner.distances(self.X[:, :4], self.X[:, :4], self.y) == 0).all()
        y = self.y.copy()
        y[0] = 17
        learner = MuSL(n_metrics=2, n_bits=4, balanced=True, random_state=0).fit(self.X, y)
        assert np.isfinite(learner.likelihoods_).all()

    def test_checkpoint_is_not_extended(self, tmp_path):
        def save(learner):
            learner.save(tmp_path / "checkpoint")

        MuSL(n_metrics=2, n_bits=1, random_state=0).fit(
            self.X, self.y, callback=lambda m: m.phase_ == "train" and save(m)
        )
        with pytest.raises(ValueError, match="call resume first"):
            load_learner(tmp_path / "checkpoint").assign_categories(self.X, self.y)


def test_memory_is_as_stated():
    """n^2 (5 + K) bytes for the pairs, and 24 bytes for every entry, within a fifth."""
    import tracemalloc

    rng = np.random.default_rng(0)
    X = sp.random_array((1500, 300), density=0.3, rng=rng, dtype=np.float32, format="csr")
    y = rng.integers(0, 5, 1500)
    MuSL(n_metrics=3, n_bits=1, random_state=0).fit(X[:50], y[:50])
    tracemalloc.start()
    MuSL(n_metrics=3, n_bits=2, random_state=0).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak == pytest.approx(1500**2 * (5 + 3) + 24 * X.nnz, rel=0.2)
