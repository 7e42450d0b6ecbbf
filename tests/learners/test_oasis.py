import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import OASIS, validation
from visterm.learners.draws import stream
from visterm.learners.oasis import dissim_pass, oasis_pass
from visterm.learners.rows import as_rows
from visterm.learners.triplets import TripletSampler


def learn(kernel, X, W, triplet, *options):
    """Update W by one triplet; loss before it, as the kernel found it."""
    rows = as_rows(sp.csr_array(np.asarray(X, np.float32)))
    taus = () if kernel is dissim_pass else (np.zeros(1, np.float32),)
    losses, _ = kernel(rows, np.array([triplet], np.int32), *options, W, *taus)
    return losses


class TestHandWorkedUpdate:
    """Section 2.1 by hand: q = (1, 0), p+ = (0, 1), p- = (0.6, 0.8), W = I."""

    X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    # delta = p+ - p- = (-0.6, 0.2);  q' I delta = -0.6;  loss = 1 + 0.6;  |q|^2 = 1;  |delta|^2 = 0.36 + 0.04
    loss = 1 + 0.6
    tau = (1 + 0.6) / (1 * (0.36 + 0.04))  # = 4

    def test_unclipped_and_clipped(self):
        W = np.eye(2, dtype=np.float32)
        assert learn(oasis_pass, self.X, W, (0, 1, 2), 10.0, False) == pytest.approx(self.loss)
        # W + 4 (1, 0)' (-0.6, 0.2)
        np.testing.assert_allclose(W, [[1 - 4 * 0.6, 4 * 0.2], [0, 1]], rtol=1e-6)
        # The triplet just seen is satisfied with the margin asked for, and not more.
        q, positive, negative = self.X
        assert q @ W @ positive - q @ W @ negative == pytest.approx(1.0)
        W = np.eye(2, dtype=np.float32)
        learn(oasis_pass, self.X, W, (0, 1, 2), 0.1, False)
        np.testing.assert_allclose(W, [[1 - 0.1 * 0.6, 0.1 * 0.2], [0, 1]], rtol=1e-6)
        W = np.array([[-2.0, 2.0], [0.0, 1.0]], np.float32)  # q' W delta = 1.2 + 0.4 > 1
        before = W.copy()
        assert learn(oasis_pass, self.X, W, (0, 1, 2), 10.0, False) == 0
        np.testing.assert_array_equal(W, before)
        W = np.eye(2, dtype=np.float32)
        learn(oasis_pass, self.X, W, (0, 1, 2), 10.0, True)
        learned = np.array([[1 - 4 * 0.6, 4 * 0.2], [0, 1]])
        np.testing.assert_allclose(W, (learned + learned.T) / 2, rtol=1e-6)

    def test_dissim(self):
        # u = q - p+ = (1, -1), v = q - p- = (0.4, -0.8), W = I: loss = 1 + |u|^2 - |v|^2 = 1 + 2 - 0.8
        W = np.eye(2, dtype=np.float32)
        assert learn(dissim_pass, self.X, W, (0, 1, 2), 0.1) == pytest.approx(1 + 2 - 0.8)
        # W + 0.1 (v v' - u u')
        expected = [[1 + 0.1 * (0.16 - 1), 0.1 * (-0.32 + 1)], [0.1 * (-0.32 + 1), 1 + 0.1 * (0.64 - 1)]]
        np.testing.assert_allclose(W, expected, rtol=1e-6)


def test_dissim_gradient_has_the_right_sign(images):
    """An unclipped step takes the loss of its own triplet to zero."""
    X, _ = images
    for query in (0, 1):
        for third in range(5, 12):
            triplet = X[[2, 12, third]]
            W = np.eye(25, dtype=np.float32)
            if learn(dissim_pass, triplet, W, (query, 1 - query, 2), 1e6) == 0:
                continue
            u, v = triplet[query] - triplet[1 - query], triplet[query] - triplet[2]
            assert 1 + u @ W @ u - v @ W @ v == pytest.approx(0, abs=2e-5)
            np.testing.assert_allclose(W, W.T, atol=1e-6)


@pytest.mark.parametrize("n_pairs", [1, 3])
@pytest.mark.parametrize("variant", [None, "online-symmetric", "dissim"])
def test_kernel_equals_slow_reference(images, variant, n_pairs):
    """The same triplets, learned in double precision by the formulas of the module's first lines."""
    X, y = images
    n_steps, C = 400, 0.1
    learner = OASIS(
        whiten=False, C=C, n_steps=n_steps, variant=variant, pairs_per_query=n_pairs, random_state=7, pass_steps=n_steps
    ).fit(X, y)

    W = np.eye(25)
    losses, violating = [], 0
    for query, positive, negative in TripletSampler(y).draw_pass((7, 0), 0, n_steps, pairs_per_query=n_pairs):
        q, a, b = X[query].astype(float), X[positive].astype(float), X[negative].astype(float)
        if variant == "dissim":
            u, v = q - a, q - b
            G = np.outer(v, v) - np.outer(u, u)
            loss = max(0.0, 1 + u @ W @ u - v @ W @ v)
        else:
            G = np.outer(q, a - b)
            loss = max(0.0, 1 - q @ W @ (a - b))
        losses.append(loss)
        violating += loss > 0
        if loss > 0 and (G**2).sum() > 0:
            W += min(C, loss / (G**2).sum()) * G
        if variant == "online-symmetric":
            W = (W + W.T) / 2
    np.testing.assert_allclose(learner.W_, W, rtol=1e-3, atol=2e-5)
    assert learner.history_[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert learner.history_[0]["violating"] == pytest.approx(violating / n_steps, abs=2 / n_steps)


class TestVariants:
    def test_symmetric_and_psd_project_once(self, synonyms):
        plain = OASIS(n_steps=500, random_state=0).fit(*synonyms)
        projected = OASIS(n_steps=500, random_state=0, variant="symmetric").fit(*synonyms)
        np.testing.assert_allclose(projected.W_, (plain.W_ + plain.W_.T) / 2, rtol=1e-6)
        assert projected.symmetry_index() == pytest.approx(1.0)
        assert plain.symmetry_index() < 1
        plain = OASIS(n_steps=500, random_state=0, init="zero").fit(*synonyms)
        projected = OASIS(n_steps=500, random_state=0, init="zero", variant="psd").fit(*synonyms)
        values, vectors = np.linalg.eigh((plain.W_.astype(float) + plain.W_.T) / 2)
        assert values.min() < -0.01
        expected = (vectors * np.maximum(values, 0)) @ vectors.T
        np.testing.assert_allclose(projected.W_, expected, atol=1e-5)
        once = OASIS(n_steps=1000, random_state=0, init="zero", variant="psd", pass_steps=250).fit(*synonyms)
        often = OASIS(n_steps=1000, random_state=0, init="zero", variant="psd", pass_steps=250, psd_every=250).fit(
            *synonyms
        )
        assert np.abs(once.W_ - often.W_).max() > 1e-3
        assert np.linalg.eigvalsh(often.W_.astype(float)).min() > -1e-5

    def test_embedding(self, X, y):
        learner = OASIS(n_steps=500, random_state=0, variant="psd").fit(X, y)
        A = learner.embedding()
        assert A.shape[1] == X.shape[1]
        np.testing.assert_allclose(A.T @ A, learner.W_, atol=1e-5)
        np.testing.assert_allclose((X @ A.T) @ (X @ A.T).T, learner.similarity(X, X), atol=1e-4)

    def test_rankers_are_averaged(self, X, y):
        averaged = OASIS(n_steps=300, n_rankers=3, random_state=5).fit(X, y)
        models = []

        def keep(learner):
            models.append(learner.ranker_W_.copy())

        OASIS(n_steps=301, pass_steps=300, n_rankers=3, random_state=5).fit(
            X, y, callback=lambda learner: models or keep(learner)
        )
        single = OASIS(n_steps=300, random_state=5).fit(X, y)
        np.testing.assert_array_equal(models[0][0], single.W_)
        assert not np.array_equal(models[0][0], models[0][1])
        np.testing.assert_array_equal(averaged.W_, models[0].mean(axis=0))

    def test_rankers_that_mix_go_on_from_their_mean(self, synonyms):
        kept = []
        OASIS(n_steps=601, pass_steps=100, n_rankers=3, mix_every=200, random_state=5).fit(
            *synonyms,
            callback=lambda learner: kept.append(
                hasattr(learner, "ranker_W_") and all(np.array_equal(W, learner.W_) for W in learner.ranker_W_)
            ),
        )
        assert kept == [False, True, False, True, False, True, False]

    def test_rankers_that_mix_have_queries_of_their_own(self, synonyms):
        sampler = TripletSampler(synonyms[1])
        shards = [set(sampler.draw_pass((0,), 0, 5000, shard=(k, 3))[:, 0]) for k in range(3)]
        assert set.union(*shards) == set(sampler.draw(stream(0), 5000)[:, 0])
        assert sum(map(len, shards)) == len(set.union(*shards))
        with pytest.raises(ValueError, match="60 query images are too few for 61 shards"):
            sampler.draw_pass((0,), 0, 10, shard=(60, 61))

    def test_one_or_two_threads_without_locks(self, synonyms):
        usual = OASIS(n_steps=1000, random_state=5).fit(*synonyms)
        unlocked = OASIS(n_steps=1000, random_state=5, lock_free=True, n_jobs=1).fit(*synonyms)
        np.testing.assert_array_equal(unlocked.W_, usual.W_)
        # Each from a stream of its own; what they learn is as good, though no two runs need to agree.
        unlocked = OASIS(n_steps=3001, random_state=5, lock_free=True, n_jobs=2).fit(*synonyms)
        usual = OASIS(n_steps=3001, random_state=5).fit(*synonyms)
        assert unlocked.n_steps_ == 3001
        assert 0 < unlocked.history_[-1]["violating"] <= 1
        assert unlocked.score(*synonyms) > 0.95 * usual.score(*synonyms)

    def test_symmetry_index_over_blocks(self):
        learner = OASIS(n_steps=1, init="zero", random_state=0).fit(np.eye(4), [0, 0, 1, 1])
        learner.W_ = np.array([[0, 3], [1, 2]], np.float32)
        # sym(W) = ((0, 2), (2, 2)): squared norm 4 + 4 + 4, of 9 + 1 + 4
        assert learner.symmetry_index() == pytest.approx(12 / 14)
        learner.W_ = np.array([[0, 3], [-3, 0]], np.float32)
        assert learner.symmetry_index() == 0
        rng = np.random.default_rng(0)
        learner.W_ = rng.standard_normal((2100, 2100)).astype(np.float32)
        sym = (learner.W_ + learner.W_.T) / 2
        assert learner.symmetry_index() == pytest.approx((sym**2).sum() / (learner.W_**2).sum(), rel=1e-4)
        learner.variant = "symmetric"
        learner._settle("end", None)
        np.testing.assert_array_equal(learner.W_, sym)


class TestEarlyStopping:
    params = {"C": 1.0, "pass_steps": 100, "random_state": 2}

    def test_patience_stops(self, synonyms):
        learner = OASIS(n_steps=2000, validation_fraction=0.3, **self.params)
        best = learner.fit(*synonyms).best_step_
        patient = learner.set_params(patience=2).fit(*synonyms)
        assert patient.history_[-1]["step"] <= best + 200
        assert patient.steps_done_ == patient.steps_total_ == patient.history_[-1]["step"]
        assert patient.best_step_ == patient.history_[-1]["step"] - 200

    def test_validation_images_are_not_learned_from(self, X, y):
        """Their rows may hold anything in columns of their own: W stays as it began there."""
        held_out = validation.split(y, 0.3, 1)
        marked = sp.lil_array((X.shape[0], X.shape[1] + 1), dtype=np.float32)
        marked[:, :-1] = X
        marked[held_out, -1] = 1.0
        learner = OASIS(n_steps=500, validation_fraction=0.3, random_state=1).fit(marked.tocsr(), y)
        expected = np.zeros(learner.n_features_in_)
        expected[-1] = 1.0
        np.testing.assert_array_equal(learner.W_[-1], expected)
        np.testing.assert_array_equal(learner.W_[:, -1], expected)

    def test_rows_that_validate_may_be_named(self, synonyms):
        """The rows that the share would draw give the same model, whether or not there is a share."""
        held_out = validation.split(synonyms[1], 0.3, self.params["random_state"])
        drawn = OASIS(n_steps=1000, validation_fraction=0.3, **self.params).fit(*synonyms)
        named = OASIS(n_steps=1000, **self.params).fit(*synonyms, validation_rows=held_out[::-1])
        np.testing.assert_array_equal(drawn.held_out_, held_out)
        assert named.history_ == drawn.history_
        np.testing.assert_array_equal(named.W_, drawn.W_)

    @pytest.mark.parametrize("rows", [[], [0.5], [[1, 2]], [-1, 3], [10_000]])
    def test_rows_that_are_none_are_refused(self, synonyms, rows):
        with pytest.raises(ValueError, match="validation_rows"):
            OASIS(n_steps=100).fit(*synonyms, validation_rows=rows)


def test_noisy_negatives_do_little_harm(synonyms, unseen_synonyms):
    learner = OASIS(n_steps=3000, random_state=0, check_negatives=False).fit(*synonyms)
    X, y = unseen_synonyms
    scores = learner.similarity(X, X)
    np.fill_diagonal(scores, -np.inf)
    assert (y[scores.argmax(axis=1)] == y).mean() > 0.8


def test_a_learner_that_was_only_started_ranks_as_the_inner_product_and_goes_on(X, y):
    parameters = {"whiten": False, "n_steps": 500, "record_teachers": True, "random_state": 0}
    learner = OASIS(**parameters).start(X.shape[1])
    np.testing.assert_allclose(learner.similarity(X[:3], X), (X[:3] @ X.T).toarray(), rtol=1e-6)
    assert (learner.n_steps_, learner.phase_) == (0, "done")
    whole = OASIS(**parameters).partial_fit(X, y)
    np.testing.assert_array_equal(learner.partial_fit(X, y).W_, whole.W_)
    assert (learner.teachers_ != whole.teachers_).nnz == 0
