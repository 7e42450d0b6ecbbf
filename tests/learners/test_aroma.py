from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from visterm.learners import AROMA, Cosine, aroma
from visterm.learners.aroma import dense_diagonal_pass, dense_factored_pass, diagonal_pass, factored_pass, fold
from visterm.learners.draws import stream
from visterm.learners.rows import as_rows
from visterm.learners.triplets import TripletSampler
from visterm.learners.validation import CAUTIOUS, CAUTIOUS_SPARSE

FORMS = ["diagonal", "factored"]


def learn_diagonal(X, triplets, r, model=None):
    """W, Sigma, sum of losses, number of violations."""
    X = np.asarray(X, np.float32)
    if model is None:
        model = np.zeros((X.shape[1], X.shape[1], 2), np.float32)
        model[..., 1] = 1
    totals = diagonal_pass(
        as_rows(sp.csr_array(X)), np.asarray(triplets, np.int32), r, model.reshape(X.shape[1], 2 * X.shape[1])
    )
    return model[..., 0], model[..., 1], *totals


def learn_factored(X, triplets, r, n_pending=7, run=map):
    """W, Lambda, Omega, sum of losses, number of violations and of folds."""
    X, triplets = np.asarray(X, np.float32), np.asarray(triplets, np.int32)
    d = X.shape[1]
    state = np.zeros((d, d), np.float32), np.eye(d, dtype=np.float32), np.eye(d, dtype=np.float32)
    U, V = np.full((2, n_pending, d), np.nan, np.float32)
    weights = np.full(n_pending, np.nan, np.float32)
    losses, violating, folds = 0.0, 0, 0
    while len(triplets):
        seen, k, loss, n = factored_pass(as_rows(sp.csr_array(X)), triplets, r, state, (U, V, weights))
        fold(state, (U[:k], V[:k], weights[:k]), run)
        triplets, losses, violating, folds = triplets[seen:], losses + loss, violating + n, folds + 1
    return *state, losses, violating, folds


def learn_dense_diagonal(X, triplets, r, run=map):
    """W, Sigma, sum of losses, number of violations."""
    X, triplets = np.asarray(X, np.float32), np.asarray(triplets, np.int32)
    state = np.zeros((X.shape[1],) * 2, np.float32), np.ones((X.shape[1],) * 2, np.float32)
    return *state, *dense_diagonal_pass(X, triplets, r, *state, run)


def learn_dense_factored(X, triplets, r, run=map):
    """W, Lambda, Omega, sum of losses, number of violations."""
    X, triplets = np.asarray(X, np.float32), np.asarray(triplets, np.int32)
    state = np.zeros((X.shape[1],) * 2, np.float32), *np.tile(np.eye(X.shape[1], dtype=np.float32), (2, 1, 1))
    return *state, *dense_factored_pass(X, triplets, r, state, run)


def diagonal_reference(X, triplets, r, undecided=None):
    """Figure 1 in double precision, on dense arrays; `undecided` is called with each loss."""
    X = X.astype(float)
    W, Sigma = np.zeros((X.shape[1],) * 2), np.ones((X.shape[1],) * 2)
    losses = []
    for query, positive, negative in triplets:
        q, p = X[query], X[positive] - X[negative]
        loss = 1 - q @ W @ p
        if undecided:
            undecided(loss)
        if loss <= 0:
            continue
        losses.append(loss)
        G = np.outer(q, p)
        v = (Sigma * G * G).sum()
        W, Sigma = W + loss / (v + r) * Sigma * G, Sigma - (Sigma * G) ** 2 / (v + r)
    return W, Sigma, losses


def factored_reference(X, triplets, r, undecided=None):
    """Figure 2 in double precision, on dense arrays: three rank-1 updates for each violating triplet."""
    X = X.astype(float)
    d = X.shape[1]
    W, Lambda, Omega = np.zeros((d, d)), np.eye(d), np.eye(d)
    losses = []
    for query, positive, negative in triplets:
        q, p = X[query], X[positive] - X[negative]
        loss = 1 - q @ W @ p
        if undecided:
            undecided(loss)
        if loss <= 0:
            continue
        losses.append(loss)
        s, t = Lambda @ q, Omega @ p
        a, b = q @ s, p @ t
        W = W + loss / (r + a * b) * np.outer(s, t)
        Omega = Omega - a / (d * r + a * b) * np.outer(t, t)
        Lambda = Lambda - b / (d * r + a * b) * np.outer(s, s)
    return W, Lambda, Omega, losses


def draw(y, n=1500, seed=1):
    return TripletSampler(y).draw(stream(seed), n)


class TestHandWorkedUpdate:
    """Figures 1 and 2 by hand: q = (0.6, 0.8), p+ = (0, 1), p- = (0.8, 0.6), r = 0.2, from W = 0."""

    X = np.array([[0.6, 0.8], [0.0, 1.0], [0.8, 0.6]])
    # p = (-0.8, 0.4);  G = q p';  |q|^2 = 1;  |p|^2 = 0.64 + 0.16 = 0.8
    G = np.array([[-0.48, 0.24], [-0.64, 0.32]])

    def test_diagonal_once_and_twice(self):
        W, Sigma, losses, violating = learn_diagonal(self.X, [(0, 1, 2)], 0.2)
        assert (losses, violating) == (1.0, 1)
        np.testing.assert_allclose(W, self.G, rtol=1e-6)
        np.testing.assert_allclose(Sigma, [[1 - 0.2304, 1 - 0.0576], [1 - 0.4096, 1 - 0.1024]], rtol=1e-6)
        v = 0.7696 * 0.2304 + 0.9424 * 0.0576 + 0.5904 * 0.4096 + 0.8976 * 0.1024
        Sigma = np.array([[0.7696, 0.9424], [0.5904, 0.8976]])
        learned_W, learned_Sigma, losses, _ = learn_diagonal(self.X, [(0, 1, 2)] * 2, 0.2)
        assert losses == pytest.approx(1 + 0.2)
        np.testing.assert_allclose(learned_W, self.G + 0.2 / (v + 0.2) * Sigma * self.G, rtol=1e-5)
        np.testing.assert_allclose(learned_Sigma, Sigma - (Sigma * self.G) ** 2 / (v + 0.2), rtol=1e-5)

    def test_factored(self):
        # s = q;  t = p;  a = 1;  b = 0.8;  loss / (r + a b) = 1;  m = n = 2, so that d r + a b = 0.4 + 0.8
        W, Lambda, Omega, losses, violating, _ = learn_factored(self.X, [(0, 1, 2)], 0.2)
        assert (losses, violating) == (1.0, 1)
        np.testing.assert_allclose(W, self.G, rtol=1e-6)
        np.testing.assert_allclose(Omega, [[1 - 0.64 / 1.2, 0.32 / 1.2], [0.32 / 1.2, 1 - 0.16 / 1.2]], rtol=1e-6)
        np.testing.assert_allclose(
            Lambda, [[1 - 0.8 / 1.2 * 0.36, -0.8 / 1.2 * 0.48], [-0.8 / 1.2 * 0.48, 1 - 0.8 / 1.2 * 0.64]], rtol=1e-6
        )

    @pytest.mark.parametrize("n_pending", [1, 2], ids=["after a fold", "while the first waits"])
    def test_factored_twice(self, n_pending):
        # Lambda q = (1 - 2/3) q and Omega p = (1 - 0.8 / 1.2) p = p / 3: a = 1/3, b = 0.8/3, s t' = G / 9; loss = 0.2
        a, b = 1 / 3, 0.8 / 3
        W, Lambda, Omega, losses, _, _ = learn_factored(self.X, [(0, 1, 2)] * 2, 0.2, n_pending)
        assert losses == pytest.approx(1 + 0.2)
        np.testing.assert_allclose(W, self.G * (1 + 0.2 / (0.2 + a * b) / 9), rtol=1e-5)
        q, p = self.X[0], self.X[1] - self.X[2]
        first = np.eye(2) - np.outer(q, q) * 2 / 3, np.eye(2) - np.outer(p, p) / 1.2
        np.testing.assert_allclose(Lambda, first[0] - b / (0.4 + a * b) * np.outer(q, q) / 9, rtol=1e-4)
        np.testing.assert_allclose(Omega, first[1] - a / (0.4 + a * b) * np.outer(p, p) / 9, rtol=1e-4)

    @pytest.mark.parametrize("learn", [learn_diagonal, learn_factored])
    def test_satisfied_triplet_changes_nothing(self, learn):
        # With r this small the first update leaves no loss but for rounding, so that the second is of another triplet.
        X = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
        W, *covariance, _, violating = learn(X, [(0, 1, 2)], 1e-6)[:5]
        # The margin of (1, 1, 2) is twice that of (0, 1, 2), 1.
        again = learn(X, [(0, 1, 2), (1, 1, 2)], 1e-6)
        assert violating == again[len(covariance) + 2] == 1
        for one, other in zip((W, *covariance), again, strict=False):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("learn", [learn_diagonal, learn_factored])
    @pytest.mark.parametrize("zero", [0, 1])
    def test_vectors_of_zeros_change_nothing(self, learn, zero):
        X = np.array([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]])
        triplet = [(2, 0, 1)] if zero == 0 else [(0, 1, 1)]  # a query of zeros; a difference of zeros
        W, covariance, *_ = learn(X, triplet, 0.2)
        np.testing.assert_array_equal(W, np.zeros((2, 2)))
        np.testing.assert_array_equal(covariance, np.ones((2, 2)) if learn is learn_diagonal else np.eye(2))


class TestKernels:
    @pytest.mark.parametrize("r", [0.01, 1.0])
    def test_diagonal_is_the_reference(self, images, r):
        X, y = images
        triplets = draw(y)
        expected_W, expected_Sigma, expected_losses = diagonal_reference(X, triplets, r)
        W, Sigma, losses, violating = learn_diagonal(X, triplets, r)
        assert violating == len(expected_losses) < len(triplets)
        assert losses == pytest.approx(sum(expected_losses), rel=1e-4)
        np.testing.assert_allclose(W, expected_W, atol=1e-4 * np.abs(expected_W).max())
        np.testing.assert_allclose(Sigma, expected_Sigma, rtol=1e-3, atol=1e-5)

    @pytest.mark.parametrize("r", [0.01, 1.0])
    @pytest.mark.parametrize("n_pending", [1, 7, 192])
    def test_factored_is_the_direct_updates(self, images, r, n_pending, monkeypatch):
        monkeypatch.setattr(aroma, "_TILE", 8)  # of d = 25: whole tiles, and what is left at the edges
        X, y = images
        triplets = draw(y)
        *expected, expected_losses = factored_reference(X, triplets, r)
        *matrices, losses, violating, folds = learn_factored(X, triplets, r, n_pending)
        assert violating == len(expected_losses) < len(triplets)
        updates = violating - (triplets[:, 0] == 4).sum()  # queries of zeros violate, and teach nothing
        assert folds in (updates // n_pending, updates // n_pending + 1)
        assert losses == pytest.approx(sum(expected_losses), rel=1e-4)
        for matrix, reference in zip(matrices, expected, strict=True):
            np.testing.assert_allclose(matrix, reference, atol=2e-4 * np.abs(reference).max())

    def test_tiles_may_be_folded_at_once(self, images, monkeypatch):
        monkeypatch.setattr(aroma, "_TILE", 8)
        X, y = images
        with ThreadPoolExecutor(4) as pool:
            together = learn_factored(X, draw(y), 0.1, run=pool.map)
        for one, other in zip(learn_factored(X, draw(y), 0.1), together, strict=True):
            np.testing.assert_array_equal(one, other)


def dense_problem(d, seed=0, n_classes=4, per_class=8, spread=1.5):
    """Unit rows without zeros, of classes that overlap."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    X = rng.normal(size=(n_classes, d))[y] + spread * rng.normal(size=(len(y), d))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


DENSE = {"diagonal": (learn_dense_diagonal, diagonal_reference), "factored": (learn_dense_factored, factored_reference)}


class TestDenseKernels:
    @pytest.mark.parametrize("covariance", FORMS)
    @pytest.mark.parametrize("pairs", [1, 7, 300])
    @pytest.mark.parametrize("r", [0.01, 1.0])
    def test_are_the_reference(self, covariance, pairs, r, monkeypatch):
        """Blocks and sweeps that end in the middle of a query's pairs, and vectors of zeros."""
        monkeypatch.setattr(aroma, "_TILE", 8)
        X, y = dense_problem(37)
        X[3], X[20] = 0, X[21]
        triplets = TripletSampler(y).draw_pass((1,), 0, 1000, pairs_per_query=pairs)
        learn, reference = DENSE[covariance]
        *expected, expected_losses = reference(X, triplets, r)
        *matrices, losses, violating = learn(X, triplets, r)
        assert violating == len(expected_losses) < len(triplets)
        assert losses == pytest.approx(sum(expected_losses), rel=1e-5)
        for matrix, correct in zip(matrices, expected, strict=True):
            np.testing.assert_allclose(matrix, correct, atol=1e-5 * np.abs(correct).max())

    @pytest.mark.parametrize("covariance", FORMS)
    @given(
        d=st.integers(1, 40),
        density=st.sampled_from([0.3, 1.0]),
        pairs=st.integers(1, 40),
        n=st.integers(1, 400),
        r=st.floats(0.01, 10),
        spread=st.floats(0.3, 3),
        seed=st.integers(0, 1000),
    )
    @settings(max_examples=40)
    def test_equal_the_updates_one_by_one(self, covariance, d, density, pairs, n, r, spread, seed):
        if covariance == "factored":
            d += 10  # of few features hundreds of updates leave no variance but rounding, one by one as well
        X, y = dense_problem(d, seed, spread=spread)
        X *= np.random.default_rng(seed).random(X.shape) < density
        triplets = TripletSampler(y).draw_pass((seed,), 0, n, pairs_per_query=pairs)
        learn, reference = DENSE[covariance]
        # Where rounding decides whether a triplet violates, both ways are right.
        *expected, _ = reference(X, triplets, r, lambda loss: assume(abs(loss) > 1e-4))
        for matrix, correct in zip(learn(X, triplets, r), expected, strict=False):
            # Of few entries the updates may cancel: they are of the size of one.
            np.testing.assert_allclose(matrix, correct, rtol=0, atol=1e-5 * max(np.abs(correct).max(), 0.1))

    @pytest.mark.parametrize("large", [0.5, 0.9, 1.0])
    def test_large_shares_of_a_variance(self, large):
        """One entry of q and p takes nearly all of v, so that few updates may wait for each other, or none."""
        X, y = dense_problem(30)
        X *= np.sqrt(1 - large)
        X[:, 0] = np.sqrt(large) * np.where(y % 2, 1, -1)
        triplets = TripletSampler(y).draw_pass((1,), 0, 500, pairs_per_query=20)
        W, Sigma, *_ = learn_dense_diagonal(X, triplets, 1e-3)
        expected_W, expected_Sigma, _ = diagonal_reference(X, triplets, 1e-3)
        np.testing.assert_allclose(W, expected_W, atol=1e-5 * np.abs(expected_W).max())
        np.testing.assert_allclose(Sigma, expected_Sigma, rtol=1e-4)

    def test_the_error_of_waiting_is_a_cube(self, monkeypatch):
        """Seen where updates wait for longer than they should: then rounding does not hide it."""
        monkeypatch.setattr(aroma, "_SHARE", 2.0**-4)
        X, y = dense_problem(40)
        triplets = TripletSampler(y).draw_pass((0,), 0, 600, pairs_per_query=60)
        W, Sigma, *_ = learn_dense_diagonal(X, triplets, 0.1)
        expected_W, expected_Sigma, _ = diagonal_reference(X, triplets, 0.1)
        # 4.9e-5 and 1.9e-4, where 2^-12 is 2.4e-4; without the terms of y^3 or of c, W is off by 6.3e-5 and more.
        assert 1e-5 < np.abs(W - expected_W).max() / np.abs(expected_W).max() < 5.5e-5
        assert np.abs(Sigma / expected_Sigma - 1).max() < 2.0**-12

    def test_pairs_of_a_query_share_a_sweep(self):
        X, y = dense_problem(400)
        triplets = TripletSampler(y).draw_pass((1,), 0, 640, pairs_per_query=32)
        sweeps = []

        def run(function, *parts):
            sweeps.append(1)
            return map(function, *parts)

        *_, violating = learn_dense_diagonal(X, triplets, 10.0, run)
        assert violating > 100
        assert len(sweeps) <= 640 / 32 + 1

    @pytest.mark.parametrize("covariance", FORMS)
    def test_tasks_may_run_at_once(self, covariance, monkeypatch):
        monkeypatch.setattr(aroma, "_TILE", 8)
        X, y = dense_problem(50)
        triplets = TripletSampler(y).draw_pass((1,), 0, 500, pairs_per_query=2)
        learn, _ = DENSE[covariance]
        with ThreadPoolExecutor(4) as pool:
            together = learn(X, triplets, 0.1, pool.map)
        for one, other in zip(learn(X, triplets, 0.1), together, strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("d", [1, 40])
    @pytest.mark.parametrize("r", [1e-30, 1e-6, 1e30])
    def test_extreme_regularisers_are_harmless(self, r, d):
        X, y = dense_problem(d)
        triplets = TripletSampler(y).draw_pass((1,), 0, 4000, pairs_per_query=4)
        W, Sigma, *_ = learn_dense_diagonal(X, triplets, r)
        assert np.abs(W).max() < 1e4
        assert 0 < Sigma.min() <= Sigma.max() <= 1
        W, *factors, _, _ = learn_dense_factored(X, triplets, r)
        assert np.abs(W).max() < 1e4
        for matrix in factors:
            np.testing.assert_array_equal(matrix, matrix.T)
            eigenvalues = np.linalg.eigvalsh(matrix.astype(float))
            # Rounding: as much for triplets with one pair per query, 1e-5 to 7e-5 over seeds.
            assert -1e-4 < eigenvalues.min() <= eigenvalues.max() <= 1 + 1e-5

    @pytest.mark.parametrize("size", [1e-4, 1e3, 1e7])
    @pytest.mark.parametrize("covariance", FORMS)
    def test_numbers_of_any_size(self, covariance, size):
        X, y = dense_problem(40)
        triplets = TripletSampler(y).draw_pass((1,), 0, 500, pairs_per_query=10)
        learn, reference = DENSE[covariance]
        X *= np.float32(size)
        *expected, _ = reference(X, triplets, 0.1 * size**4)
        for matrix, correct in zip(learn(X, triplets, 0.1 * size**4), expected, strict=False):
            np.testing.assert_allclose(matrix, correct, atol=1e-5 * np.abs(correct).max())


class TestDenseLearner:
    @pytest.fixture(params=[(form, pairs) for form in FORMS for pairs in (1, 4)], ids=str)
    def dense(self, request):
        covariance, pairs = request.param
        return {
            **{"covariance": covariance, "pairs_per_query": pairs, "r": 0.3, "n_steps": 600, "pass_steps": 200},
            **{"whiten": False, "random_state": 5},
        }

    def test_fit_is_the_reference(self, dense):
        X, y = dense_problem(30)
        learner = AROMA(**dense).fit(X, y)
        sampler, pairs = TripletSampler(y), dense["pairs_per_query"]
        triplets = [sampler.draw_pass((5, 0), step, 200, pairs_per_query=pairs) for step in (0, 200, 400)]
        reference = DENSE[dense["covariance"]][1]
        *expected, losses = reference(X, np.concatenate(triplets), 0.3)
        covariance = learner.covariance_ if dense["covariance"] == "factored" else [learner.covariance_]
        for matrix, correct in zip([learner.W_, *covariance], expected, strict=True):
            np.testing.assert_allclose(matrix, correct, atol=1e-5 * np.abs(correct).max())
        assert np.mean([entry["violating"] for entry in learner.history_]) == pytest.approx(len(losses) / 600)

    def test_a_checkpoint_is_resumed_to_the_same_bytes(self, dense, checkpoint):
        X, y = dense_problem(30)
        whole = AROMA(**dense).fit(X, y)
        expected = whole.distribution_.tobytes()
        for stop in range(len(whole.history_) - 1):
            assert checkpoint(whole, X, y, stop).resume(X, y).distribution_.tobytes() == expected
        half = AROMA(**dense | {"n_steps": 200}).fit(X, y).set_params(n_steps=400).partial_fit(X, y)
        assert half.distribution_.tobytes() == expected

    def test_pairs_by_default(self):
        """32 of a query on dense vectors, 1 on sparse ones and of the factored form."""
        X, y = dense_problem(30)
        sparse = X * (np.random.default_rng(0).random(X.shape) < 0.1)
        for images, form, pairs in ((X, "diagonal", 32), (sparse, "diagonal", 1), (X, "factored", 1)):
            learner = AROMA(covariance=form, n_steps=200, random_state=5).fit(images, y)
            stated = AROMA(covariance=form, n_steps=200, random_state=5, pairs_per_query=pairs).fit(images, y)
            assert learner.distribution_.tobytes() == stated.distribution_.tobytes()

    def test_the_number_of_threads_does_not_matter(self, dense, monkeypatch):
        monkeypatch.setattr(aroma, "_TILE", 8)
        one, three = (AROMA(n_jobs=n, **dense).fit(*dense_problem(30)) for n in (1, 3))
        assert one.distribution_.tobytes() == three.distribution_.tobytes()

    def test_the_kernel_does_not_change_the_model(self, dense, monkeypatch):
        """A quarter of the entries or more decides which is used; both give the same but for rounding."""
        X, y = dense_problem(30)
        X[np.random.default_rng(0).random(X.shape) < 0.4] = 0
        one = AROMA(**dense).fit(X, y)
        monkeypatch.setattr(aroma, "dense_rows", lambda *_: None)
        monkeypatch.setattr(AROMA, "reads_rows", False)  # that kernel needs the columns of the entries
        other = AROMA(**dense).fit(X, y)
        assert one.distribution_.tobytes() != other.distribution_.tobytes()
        np.testing.assert_allclose(one.distribution_, other.distribution_, atol=1e-5 * one.distribution_.max())


class TestCovariance:
    @pytest.mark.parametrize("r", [1e-30, 1e-12, 1e-3, 1.0, 1e6])
    def test_variances_stay_above_zero_and_at_most_one(self, images, r):
        """Also where a triplet has one entry only, which takes all of v."""
        X, y = images
        X[10:12], X[20:22] = 0, 0
        X[10:12, 0] = X[20:22, 1] = 1.0
        triplets = np.r_[draw(y), np.tile([(10, 11, 4), (20, 21, 4)], (200, 1)), draw(y)]
        W, Sigma, *_ = learn_diagonal(X, triplets, r)
        assert np.isfinite(W).all()
        assert 0 < Sigma.min() < Sigma.max() <= 1

    def test_variances_stay_above_zero_and_never_grow(self, images):
        X, y = images
        model = np.zeros((25, 25, 2), np.float32)
        model[..., 1] = 1
        for k in range(5):
            before = model[..., 1].copy()
            learn_diagonal(X, draw(y, 200, seed=k), 0.1, model)
            assert (model[..., 1] <= before).all()
            assert (model[..., 1] < before).any()

    @pytest.mark.parametrize("r", [1e-30, 1e30])
    @pytest.mark.parametrize("learn", [learn_diagonal, learn_factored])
    def test_extreme_regularisers_are_harmless(self, images, learn, r):
        X, y = images
        for matrix in learn(X, draw(y, 4000), r)[:2]:
            assert np.abs(matrix).max() < 1e4

    @pytest.mark.parametrize("r", [1e-6, 1e-2, 1.0])
    def test_factors_stay_symmetric_and_positive(self, images, r):
        X, y = images
        _, Lambda, Omega, *_ = learn_factored(X, draw(y, 4000), r)
        for matrix in (Lambda, Omega):
            np.testing.assert_array_equal(matrix, matrix.T)
            eigenvalues = np.linalg.eigvalsh(matrix.astype(float))
            assert eigenvalues.min() > -1e-5
            assert eigenvalues.min() < 0.9
            assert eigenvalues.max() <= 1 + 1e-5

    @pytest.mark.parametrize("covariance", FORMS)
    def test_is_exposed_as_views(self, covariance, synonyms):
        learner = AROMA(covariance=covariance, n_steps=500, random_state=0).fit(*synonyms)
        d = synonyms[0].shape[1]
        parts = (learner.W_, learner.covariance_) if covariance == "diagonal" else (learner.W_, *learner.covariance_)
        for part in parts:
            assert part.shape == (d, d)
            assert part.dtype == np.float32
            assert np.shares_memory(part, learner.distribution_)
        assert len({part.ctypes.data for part in parts}) == len(parts)

    @pytest.mark.parametrize("d", [2, 3])
    @pytest.mark.parametrize("covariance", FORMS)
    def test_forms_are_told_apart_at_any_size(self, covariance, d):
        """(3, d, d) and (d, d, 2) look alike when d is 2 or 3."""
        X = np.eye(d, dtype=np.float32)[[0, 0, 1, 1]]
        learner = AROMA(covariance=covariance, whiten=False, n_steps=50, random_state=0).fit(X, [0, 0, 1, 1])
        assert learner.W_[0, 0] > 0 > learner.W_[0, 1]
        np.testing.assert_array_equal(learner.similarity(X[:1], X), X[:1] @ learner.W_ @ X.T)
        learner.partial_fit(X, [0, 0, 1, 1])

    def test_rare_pairs_stay_uncertain(self, X, y):
        """The variance of an entry falls with the number of times that it was learned from."""
        learner = AROMA(n_steps=2000, random_state=0).fit(X, y)
        assert (learner.covariance_[16:, 16:] < 1).all()  # visterms of all classes
        assert learner.covariance_[0, 0] < 1


class TestLearner:
    @pytest.mark.parametrize("covariance", FORMS)
    def test_fit_is_the_kernel(self, covariance, X, y):
        """Passes, and the folds at their ends, add up to the reference's many updates."""
        learner = AROMA(covariance=covariance, r=0.3, n_steps=1000, pass_steps=250, random_state=5).fit(X, y)
        sampler = TripletSampler(y)
        triplets = np.concatenate([sampler.draw(stream(5, 0, step), 250) for step in range(0, 1000, 250)])
        reference = diagonal_reference if covariance == "diagonal" else factored_reference
        *expected, losses = reference(X.toarray(), triplets, 0.3)
        matrices = [learner.W_, learner.covariance_] if covariance == "diagonal" else [learner.W_, *learner.covariance_]
        for matrix, correct in zip(matrices, expected, strict=True):
            np.testing.assert_allclose(matrix, correct, atol=2e-4 * np.abs(correct).max())
        assert np.mean([entry["violating"] for entry in learner.history_]) == pytest.approx(len(losses) / 1000)

    @pytest.mark.parametrize("covariance", FORMS)
    def test_init(self, covariance, X, y):
        params = {"covariance": covariance, "n_steps": 1, "r": 1e12, "random_state": 0}
        zero, identity = (AROMA(init=init, **params).fit(X, y) for init in ("zero", "identity"))
        np.testing.assert_allclose(zero.W_, 0, atol=1e-10)
        np.testing.assert_allclose(identity.W_, np.eye(X.shape[1]), atol=1e-10)
        np.testing.assert_allclose(identity.similarity(X, X), Cosine().fit(X).similarity(X, X), atol=1e-6)

    @pytest.mark.parametrize(("rows", "share"), [("sparse", CAUTIOUS_SPARSE), ("dense", CAUTIOUS)])
    def test_share_that_counts_where_no_class_can_be_held_out(self, rows, share, problem, dense_problem):
        X, y = problem if rows == "sparse" else dense_problem
        params = {"n_steps": 500, "pass_steps": 250, "validation_fraction": 0.2, "random_state": 0}
        assert AROMA(**params).fit(X, y, world="open", learned_weight=None).learned_weight_ == share

    def test_queries_do_not_copy_the_model(self, synonyms):
        """A product with the strided W_ would, whole, for every query."""
        import tracemalloc

        X = sp.csr_array(([1.0] * 4, ([0, 1, 2, 3], [0, 0, 1, 1])), (4, 1500), dtype=np.float32)
        learner = AROMA(n_steps=20, random_state=0).fit(X, [0, 0, 1, 1])
        expected = X.toarray() @ learner.W_
        learner.transform_query(X)  # compiles the product, which takes memory too
        tracemalloc.start()
        side = learner.transform_query(X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        np.testing.assert_allclose(side, expected, atol=1e-6)
        assert side.flags.c_contiguous
        assert peak < 0.1 * learner.W_.nbytes

    def test_partial_fit_in_another_form_is_refused(self, synonyms):
        learner = AROMA(n_steps=100, random_state=0).fit(*synonyms).set_params(covariance="factored")
        with pytest.raises(ValueError, match="fitted covariance is not 'factored'; use fit"):
            learner.partial_fit(*synonyms)
        # What was fitted still answers, and a new fit takes the new form.
        assert learner.similarity(synonyms[0][:1], synonyms[0]).any()
        assert len(learner.fit(*synonyms).covariance_) == 2
