import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import WSABIE
from visterm.learners.draws import draw_below, stream
from visterm.learners.rows import as_rows, readonly
from visterm.learners.warp_loss import draw_pairs, draws_until, warp_weights
from visterm.learners.wsabie import owpc_pass, warp_pass
from visterm.plugins.annotators.warp import linear_warp_pass


def labels_of(*own):
    """Tables of labels as kernels take them: the sorted labels of each image."""
    start = np.concatenate([[0], np.cumsum([len(labels) for labels in own])])
    numbers = np.concatenate(own)
    usable = np.arange(len(own))
    return readonly(start.astype(np.int64)), readonly(numbers.astype(np.int32)), readonly(usable.astype(np.int32))


class TestHandWorkedUpdate:
    """Two labels, so that the only draw is the other one, two visterms, two components.

    z = V x = 1.0 (0.6, 0) + 0.5 (0, 0.8) = (0.6, 0.4), f_0 = 0.5 * 0.6 = 0.3, f_1 = 0.5 * 0.4 = 0.2: the margin is
    violated by 1 - 0.3 + 0.2 = 0.9.
    """

    x = np.array([[1.0, 0.5]], np.float32)
    rate = np.full(1, 0.1, np.float32)

    def model(self):
        return np.array([[0.6, 0.0], [0.0, 0.8]], np.float32), np.array([[0.5, 0.0], [0.0, 0.5]], np.float32)

    def learn(self, V, W, *, max_norm=10.0, x=x):
        rows, labels, pairs = as_rows(sp.csr_array(x)), labels_of([0]), np.array([[0, 0]], np.int32)
        weights = np.array([0, 1], np.float32)  # L(floor((2 - 1) / 1)) = L(1) = 1
        return warp_pass(rows, labels, pairs, stream(0), weights, self.rate, np.float32(max_norm), (0, 2, V, W))

    def test_warp(self):
        V, W = self.model()
        loss, violating = self.learn(V, W)
        assert loss == pytest.approx(0.9)
        assert violating == 1
        # W_0 + 0.1 z and W_1 - 0.1 z; V_j + 0.1 x_j (W_0 - W_1), with W as it was.
        np.testing.assert_allclose(W, [[0.5 + 0.06, 0.04], [-0.06, 0.5 - 0.04]], rtol=1e-6)
        np.testing.assert_allclose(V, [[0.6 + 0.05, -0.05], [0.025, 0.8 - 0.025]], rtol=1e-6)
        V, W = self.model()
        self.learn(V, W, max_norm=0.7)
        # Only the vector of the second visterm, (0.025, 0.775), is longer than 0.7.
        np.testing.assert_allclose(V[1], 0.7 * np.array([0.025, 0.775]) / np.hypot(0.025, 0.775), rtol=1e-6)
        np.testing.assert_allclose(V[0], [0.65, -0.05], rtol=1e-6)
        np.testing.assert_allclose(W, [[0.56, 0.04], [-0.06, 0.46]], rtol=1e-6)
        V, W = self.model()
        W *= 20  # f_0 = 6, f_1 = 4: the margin is 2
        before = V.copy(), W.copy()
        assert self.learn(V, W) == (0.0, 0)
        assert self.learn(V, W, x=np.zeros((1, 2), np.float32)) == (1.0, 1)  # all scores are 0: nothing to move
        np.testing.assert_array_equal(V, before[0])
        np.testing.assert_array_equal(W, before[1])


def test_auc_gives_every_violation_the_weight_one():
    """Of 11 labels the others violate: WARP weighs the first draw by L(10), AUC by 1."""
    X = np.ones((2, 1), np.float32)
    y = sp.csr_array((np.ones(2), ([0, 1], [0, 1])), (2, 11))
    losses = {}
    for loss in ("warp", "auc"):
        learner = WSABIE(n_components=4, n_steps=1, loss=loss, learning_rate=1e-9, random_state=0).fit(X, y)
        losses[loss] = learner.history_[0]["loss"]
    assert losses["warp"] / losses["auc"] == pytest.approx(sum(1 / j for j in range(1, 11)), rel=1e-5)


def test_owpc_worked_by_hand():
    """Three labels: with z = 1, f = (0.5, 0.25, -2), so label 1 violates by 0.75 and label 2 does not; then both do."""
    rows, labels, pairs = as_rows(sp.csr_array(np.ones((1, 1), np.float32))), labels_of([0]), np.zeros((1, 2), np.int32)
    harmonic, rate, max_norm = np.array([0, 1, 1.5], np.float32), np.full(1, 0.1, np.float32), np.float32(10)
    V, W = np.array([[1.0]], np.float32), np.array([[0.5], [0.25], [-2]], np.float32)
    assert owpc_pass(rows, labels, pairs, harmonic, rate, max_norm, (0, 1, V, W)) == (0.75, 1)
    np.testing.assert_allclose(W.ravel(), [0.6, 0.15, -2], rtol=1e-6)
    np.testing.assert_allclose(V, [[1 + 0.1 * (0.5 - 0.25)]], rtol=1e-6)

    # Rank 2: each has the weight L(2) / 2 = 0.75, label 0 moves by both.
    V, W = np.array([[1.0]], np.float32), np.array([[0.5], [0.25], [0.0]], np.float32)
    loss, _ = owpc_pass(rows, labels, pairs, harmonic, rate, max_norm, (0, 1, V, W))
    assert loss == pytest.approx(0.75 * (0.75 + 0.5))
    np.testing.assert_allclose(W.ravel(), [0.5 + 2 * 0.075, 0.25 - 0.075, -0.075], rtol=1e-6)
    np.testing.assert_allclose(V, [[1 + 0.075 * (0.25 + 0.5)]], rtol=1e-6)


def scaled_back(v, max_norm):
    return v * min(1, max_norm / np.linalg.norm(v))


def slow_reference(X, own, seed, V, W, *, loss, n_steps, rate, decay_steps, max_norm):
    """The module's first lines in double precision, with the same random numbers."""
    n_labels = len(W)
    L = np.concatenate([[0], np.cumsum(1 / np.arange(1, n_labels))])
    tables = labels_of(*own)
    state = stream(seed, 0, 0)
    pairs = np.empty((n_steps, 2), np.int32)
    draw_pairs(*tables, state, pairs)
    losses, violating = [], 0
    for step, (image, y) in enumerate(pairs):
        x = X[image].astype(float)
        f = W @ (V.T @ x)
        others = [i for i in range(n_labels) if i not in own[image]]
        if loss == "owpc":
            wrong = [i for i in others if 1 + f[i] > f[y]]
            weight = L[len(wrong)] / max(len(wrong), 1)
        else:
            wrong, n = [others[draw_below(len(others), state)]], 1
            if 1 + f[wrong[0]] <= f[y]:
                wrong = []
                above = [i for i in others if 1 + f[i] > f[y]]
                if above and loss == "warp":  # all labels are scored after the first draw
                    n += draws_until(len(above), len(others), state)
                    wrong = [above[draw_below(len(above), state)]] * (n < n_labels)
            weight = 1.0 if loss == "auc" else L[(n_labels - 1) // n]
        losses.append(weight * sum(1 - f[y] + f[i] for i in wrong))
        violating += bool(wrong)
        if not wrong:
            continue
        g = rate * weight / (1 + step / decay_steps)
        z, pull = V.T @ x, sum(W[y] - W[i] for i in wrong)
        W[y] = scaled_back(W[y] + g * len(wrong) * z, max_norm)
        for i in wrong:
            W[i] = scaled_back(W[i] - g * z, max_norm)
        for j in np.flatnonzero(x):
            V[j] = scaled_back(V[j] + g * x[j] * pull, max_norm)
    return np.mean(losses), violating / n_steps


@pytest.fixture
def images(images):
    """Thirty sparse unit rows, one of them all zero, with one to three of six labels each."""
    rng = np.random.default_rng(1)
    return images[0], [np.sort(rng.choice(6, rng.integers(1, 4), replace=False)) for _ in range(30)]


def indicator(own, n_labels):
    rows = np.repeat(np.arange(len(own)), [len(labels) for labels in own])
    return sp.csr_array((np.ones(len(rows)), (rows, np.concatenate(own))), (len(own), n_labels))


@pytest.mark.parametrize("n_components", [7, 41])  # 41: with whole vectors of the processor and a remainder
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("loss", ["warp", "auc", "owpc"])
def test_kernels_equal_the_slow_reference(images, loss, several, dense, n_components):
    X, own = images
    if dense:
        X = X + np.float32(0.1) * np.random.default_rng(2).random(X.shape, np.float32)
    if not several:
        own = [labels[:1] for labels in own]
    params = {"n_components": n_components, "max_norm": 0.9, "learning_rate": 0.05, "whiten": False, "random_state": 7}
    # The vectors that the steps begin at.
    start = WSABIE(**params | {"learning_rate": 1e-12}, n_steps=1).fit(X, indicator(own, 6))
    V, W = start.visterm_vectors_.astype(float), start.label_vectors_.astype(float)
    learner = WSABIE(loss=loss, n_steps=600, pass_steps=600, decay_steps=300, **params).fit(X, indicator(own, 6))
    reference = slow_reference(X, own, 7, V, W, loss=loss, n_steps=600, rate=0.05, decay_steps=300, max_norm=0.9)
    np.testing.assert_allclose(learner.visterm_vectors_, V, rtol=1e-3, atol=2e-5)
    np.testing.assert_allclose(learner.label_vectors_, W, rtol=1e-3, atol=2e-5)
    assert learner.history_[0]["loss"] == pytest.approx(reference[0], rel=1e-4)
    assert learner.history_[0]["violating"] == pytest.approx(reference[1], abs=2 / 600)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize(("n_others", "n_wrong"), [(9, 3), (79, 2)])
def test_rank_is_estimated_by_the_number_of_draws(n_others, n_wrong, linear):
    """A few of the other labels violate: the weights met are L(floor((Y - 1) / N)) of a geometric N.

    Each of them is as likely, and violates by another margin. Of 80 labels five are drawn before all are scored.
    """
    n_steps = 20_000
    rows, labels = as_rows(sp.csr_array(np.ones((1, 1), np.float32))), labels_of([0])
    scores = np.concatenate([[0], np.linspace(-0.9, -0.1, n_wrong), np.full(n_others - n_wrong, -5)])
    weights, pairs, rates = warp_weights(n_others), np.zeros((n_steps, 2), np.int32), np.zeros(n_steps, np.float32)
    V, W = np.ones((1, 1), np.float32), scores[:, None].astype(np.float32)
    common = rows, labels, pairs, stream(0), weights, rates, np.float32(9)
    loss, violating = linear_warp_pass(*common, False, W) if linear else warp_pass(*common, (0, 1, V, W))
    share = n_wrong / n_others
    n = np.arange(1, n_others + 1)
    chance = (1 - share) ** (n - 1) * share
    L = np.array([np.sum(1 / np.arange(1, rank + 1)) for rank in n_others // n])
    assert violating / n_steps == pytest.approx(chance.sum(), abs=0.01)
    assert loss / n_steps == pytest.approx(0.5 * (chance * L).sum(), rel=0.03)


class TestConstraints:
    @pytest.mark.parametrize("loss", ["warp", "auc", "owpc"])
    @pytest.mark.parametrize("max_norm", [0.1, 0.7])
    def test_no_vector_is_longer_than_max_norm(self, synonyms, loss, max_norm):
        def look(learner):
            for vectors in (learner.visterm_vectors_, learner.label_vectors_):
                for member in np.split(vectors, [8], axis=1):
                    longest.append(np.linalg.norm(member, axis=1).max())

        longest = []
        WSABIE(
            n_components=[8, 16],
            max_norm=max_norm,
            learning_rate=0.5,
            loss=loss,
            n_steps=900,
            pass_steps=100,
            random_state=0,
        ).fit(*synonyms, callback=look)
        assert max(longest) <= max_norm * (1 + 1e-5)
        assert max(longest) > max_norm * 0.999  # the bound was met

    def test_first_vectors(self, X, y):
        learner = WSABIE(n_components=400, max_norm=100, learning_rate=1e-12, n_steps=1, random_state=0).fit(X, y)
        assert learner.V_.shape == (400, 32)
        for vectors in (learner.visterm_vectors_, learner.label_vectors_):
            assert vectors.dtype == np.float32
            assert vectors.std() == pytest.approx(1 / np.sqrt(32), rel=0.05)
            assert vectors.mean() == pytest.approx(0, abs=0.02)


class TestSeveralLabels:
    def test_own_labels_never_violate(self, images):
        """Labels that only stand beside label 0 are never pushed away: nothing draws them against it."""
        X, _ = images
        y = sp.csr_array(np.tile([1.0, 1.0, 1.0, 0.0], (30, 1)))
        start = WSABIE(n_components=5, learning_rate=1e-12, n_steps=1, random_state=0).fit(X, y)
        for loss in ("warp", "auc", "owpc"):
            learner = WSABIE(n_components=5, learning_rate=1e-3, n_steps=2000, loss=loss, random_state=0).fit(X, y)
            moved = (learner.label_vectors_ - start.label_vectors_) @ learner.transform(X).mean(axis=0)
            assert (moved[:3] > 0).all()
            assert moved[3] < 0

    def test_pairs_are_images_and_their_labels(self):
        labels = labels_of([1], [0, 2, 3])
        pairs = np.empty((6000, 2), np.int32)
        draw_pairs(*labels, stream(0), pairs)
        counts = np.zeros((2, 4))
        np.add.at(counts, (pairs[:, 0], pairs[:, 1]), 1 / len(pairs))
        np.testing.assert_allclose(counts, [[0, 1 / 2, 0, 0], [1 / 6, 0, 1 / 6, 1 / 6]], atol=0.02)

    def test_weights_of_labels_and_duplicate_entries_do_not_matter(self, images):
        X, own = images
        y = indicator(own, 6)
        expected = WSABIE(n_components=5, n_steps=200, random_state=0).fit(X, y)
        coo = y.tocoo()
        doubled = sp.csr_array(
            (np.full(2 * y.nnz, 3.0), (np.r_[coo.coords[0], coo.coords[0]], np.r_[coo.coords[1], coo.coords[1]])),
            y.shape,
        )
        for other in (5 * y, doubled, y.astype(bool), y.tocsc()):
            learner = WSABIE(n_components=5, n_steps=200, random_state=0).fit(X, other)
            np.testing.assert_array_equal(learner.label_vectors_, expected.label_vectors_)


class TestFourUses:
    @pytest.fixture
    def learner(self, X, y):
        words = np.array(["ant", "bee", "cow", "dog"])
        return WSABIE(n_components=16, max_norm=1.2, learning_rate=0.1, n_steps=3000, random_state=0).fit(X, words[y])

    def test_labels_for_an_image_and_images_for_a_label(self, learner, unseen_synonyms):
        X, y = unseen_synonyms
        labels, scores = learner.annotate(X, 2)
        assert (labels[:, 0] == y).mean() > 0.85
        embedded, vectors = X @ learner.visterm_vectors_, learner.label_vectors_
        np.testing.assert_allclose(learner.label_scores(X), embedded @ vectors.T, atol=1e-5)
        np.testing.assert_allclose(scores[:, 0], (embedded @ vectors.T).max(axis=1), atol=1e-5)
        best = np.argsort(-learner.label_scores(X)[:, 2])[:10]
        assert (y[best] == 2).mean() > 0.8

    def test_labels_near_a_label(self, X, y):
        """Two labels of the same images are each other's nearest."""
        both = sp.csr_array(np.eye(4)[y][:, [0, 1, 2, 3, 0]])
        learner = WSABIE(n_components=16, max_norm=1.2, learning_rate=0.1, n_steps=3000, random_state=0).fit(X, both)
        labels, scores = learner.similar_labels([0, 4], 1)
        assert labels.ravel().tolist() == [4, 0]
        assert scores[0, 0] == pytest.approx(learner.label_vectors_[0] @ learner.label_vectors_[4], rel=1e-5)


class TestEnsembles:
    params = {"max_norm": 1.1, "learning_rate": 0.05, "n_steps": 600, "random_state": 5}

    def test_first_member_is_the_model_of_its_size(self, synonyms):
        ensemble = WSABIE(n_components=[8, 24, 8], **self.params).fit(*synonyms)
        single = WSABIE(n_components=8, **self.params).fit(*synonyms)
        np.testing.assert_array_equal(ensemble.visterm_vectors_[:, :8], single.visterm_vectors_)
        np.testing.assert_array_equal(ensemble.label_vectors_[:, :8], single.label_vectors_)
        assert not np.array_equal(ensemble.visterm_vectors_[:, 32:], single.visterm_vectors_)
        assert ensemble.V_.shape == (40, 32)
        assert ensemble.member_weights_.tolist() == [1, 1, 1]

    def test_members_start_and_draw_apart(self, synonyms, monkeypatch):
        drawn = []
        monkeypatch.setattr(
            "visterm.learners.wsabie.stream", lambda *numbers: drawn.append(numbers) or stream(*numbers)
        )
        params = self.params | {"learning_rate": 1e-12, "pass_steps": 300}
        ensemble = WSABIE(n_components=[8, 8], **params).fit(*synonyms)
        assert np.abs(ensemble.visterm_vectors_[:, :8] - ensemble.visterm_vectors_[:, 8:]).max() > 0.1
        assert drawn == [(5, 0, 0), (5, 1, 0), (5, 0, 300), (5, 1, 300)]

    def test_score_is_the_weighted_sum(self, synonyms):
        X, _ = synonyms
        learner = WSABIE(n_components=[8, 16], **self.params).fit(*synonyms)
        learner.member_weights_ = np.array([0.5, 2.0])
        V, W = learner.visterm_vectors_, learner.label_vectors_
        first, second = (X @ V[:, :8]) @ W[:, :8].T, (X @ V[:, 8:]) @ W[:, 8:].T
        np.testing.assert_allclose(learner.label_scores(X), 0.5 * first + 2 * second, rtol=1e-4, atol=1e-5)
        sides = learner.transform(X) @ learner.label_vectors().T
        np.testing.assert_allclose(sides, learner.label_scores(X), rtol=1e-4, atol=1e-5)

    def test_weights_are_chosen_on_held_out_images(self, X, y):
        """A member that knows the labels and one that has them wrong: the second gets no say."""
        learner = WSABIE(n_components=[4, 4], **self.params).fit(X, y)
        right = np.zeros((32, 4), np.float32)
        for c in range(4):
            right[4 * c : 4 * c + 4, c] = 1
        wrong = 30 * np.roll(right, 1, axis=1)
        learner.visterm_vectors_ = np.hstack([right, wrong])
        learner.label_vectors_ = np.hstack([np.eye(4), np.eye(4)]).astype(np.float32)
        labels = learner._labels(y)
        assert learner._choose_weights(X, labels).tolist() == [1, 0.0]
        learner.visterm_vectors_ = np.hstack([right, right])
        assert learner._choose_weights(X, labels).tolist() == [1, 1]

    @pytest.mark.parametrize("refit", [False, True])
    def test_weights_of_the_best_state_stay(self, synonyms, monkeypatch, refit):
        """Whatever weights other states had."""
        chosen = iter(np.array([[1, k] for k in np.linspace(0.1, 1, 40)]))
        seen = []

        def choose(self, images, labels):
            seen.append((self.n_steps_, next(chosen)))
            return seen[-1][1]

        monkeypatch.setattr(WSABIE, "_choose_weights", choose)
        params = self.params | {"n_steps": 2000}
        learner = WSABIE(n_components=[8, 16], validation_fraction=0.3, pass_steps=100, refit=refit, **params)
        learner.fit(*synonyms)
        assert 1 < len(seen) < 20
        np.testing.assert_array_equal(learner.member_weights_, dict(seen)[learner.best_step_])

    def test_early_stopping_watches_equal_weights(self, synonyms, monkeypatch):
        """Figures of weights chosen on the same images would flatter."""
        weights = []
        measured = WSABIE.annotate
        monkeypatch.setattr(
            WSABIE, "annotate", lambda self, *a: weights.append(self.member_weights_) or measured(self, *a)
        )
        monkeypatch.setattr(WSABIE, "_choose_weights", lambda self, images, labels: np.array([0.5, 2.0]))
        learner = WSABIE(n_components=[8, 16], validation_fraction=0.3, pass_steps=100, **self.params).fit(*synonyms)
        assert len(weights) == 7
        assert all(used.tolist() == [1, 1] for used in weights)
        assert learner.member_weights_.tolist() == [0.5, 2.0]


class TestLearningRate:
    def test_falls_to_a_half(self, synonyms, monkeypatch):
        rates = []

        def keep(self, rows, labels, rate, *member):
            rates.extend(rate)
            return 0.0, 0.0

        monkeypatch.setattr(WSABIE, "_member_pass", keep)
        learner = WSABIE(learning_rate=0.4, decay_steps=100, n_steps=201, pass_steps=50).fit(*synonyms)
        np.testing.assert_allclose([rates[0], rates[100], rates[200]], [0.4, 0.2, 0.4 / 3], rtol=1e-6)
        learner.partial_fit(*synonyms)
        assert rates[201] == pytest.approx(0.4 / (1 + 201 / 100))
        rates.clear()
        WSABIE(learning_rate=0.4, decay_steps=None, n_steps=100).fit(*synonyms)
        np.testing.assert_allclose(rates, 0.4, rtol=1e-6)


def test_label_that_only_held_out_images_have(X, y):
    """Counted as an error, and not in the way."""
    y = y.copy()
    y[[3, 20]] = 9
    learner = WSABIE(n_components=16, max_norm=1.1, n_steps=2000, random_state=0)
    learner.set_params(refit=False).fit(X, y, validation_rows=[0, 3, 20, 40])
    assert learner.classes_.tolist() == [0, 1, 2, 3, 9]
    assert learner.history_[-1]["validation"] <= 0.5


def test_partial_fit_refuses_another_size(synonyms):
    """The vectors keep the size of the fit: a kernel that believed the parameter would write beyond them."""
    learner = WSABIE(n_components=8, n_steps=100, pass_steps=100, random_state=0).fit(*synonyms)
    with pytest.raises(ValueError, match=r"fitted with n_components=\[8\], not \[4000\]; use fit"):
        learner.set_params(n_components=4000).partial_fit(*synonyms)
    assert learner.transform(synonyms[0]).shape == (60, 8)
