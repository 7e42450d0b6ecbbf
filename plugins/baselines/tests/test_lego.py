import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from visterm.learners import LEGO, TripletSampler
from visterm.learners.draws import stream
from visterm.plugins.baselines import lego
from visterm.plugins.baselines.lego import lego_pass

FORMS = {"sparse": sp.csr_array, "dense": np.asarray}


@pytest.fixture
def images(images):
    """Two of the images are equal."""
    images[0][7] = images[0][15]
    return images


def learn(X, A, triplet, eta, margin=1.0):
    """Update A by one triplet; loss before it, as the kernel found it."""
    X = sp.csr_array(np.asarray(X, np.float32))
    losses, _ = lego_pass(X, np.array([triplet], np.int32), eta, margin, A)
    return losses


class TestHandWorkedUpdate:
    def test_steps_by_hand(self):
        A = np.eye(2, dtype=np.float32)
        assert learn([[1, 1], [0, 1], [1, 0]], A, (0, 1, 2), 15 / 28) == pytest.approx(1)
        # A^-1 = I + t (u u' - v v') = diag(5/4, 3/4)
        np.testing.assert_allclose(A, [[4 / 5, 0], [0, 4 / 3]], rtol=1e-6)
        # Where p- is the query itself, the paper's step for a distance that is to be y = -margin.
        # z = q - p+ = (1, -1), A = I, eta = 0.1: d = 2, and ybar is the root of eta d ybar^2 + (1 - eta y d) ybar = d
        eta, y, z, d = 0.1, -1.0, np.array([1.0, -1.0]), 2.0
        ybar = (eta * y * d - 1 + np.sqrt((eta * y * d - 1) ** 2 + 4 * eta * d**2)) / (2 * eta * d)  # 1.3589
        s = eta * (ybar - y)
        A = np.eye(2, dtype=np.float32)
        assert learn([[1, 0], [0, 1]], A, (0, 1, 0), eta) == pytest.approx(1 + 2)
        np.testing.assert_allclose(A, np.eye(2) - s / (1 + s * d) * np.outer(z, z), rtol=1e-6)
        assert z @ A @ z == pytest.approx(ybar, rel=1e-6)
        assert ybar == pytest.approx(1.3589, abs=1e-4)
        A = np.eye(2, dtype=np.float32)
        # u = 0, v = (1, 1): 1 + 0 - 2 < 0
        assert learn([[1, 0], [1, 0], [0, -1]], A, (0, 1, 2), 1.0) == 0
        np.testing.assert_array_equal(A, np.eye(2))


def reference_step(A, u, v, eta, margin):
    """The same minimum from the inverse of A and a root finder, in double precision."""
    inverse, G = np.linalg.inv(A), np.outer(u, u) - np.outer(v, v)

    def loss(t):
        new = np.linalg.inv(inverse + t * G)
        return margin + u @ new @ u - v @ new @ v

    if loss(0) <= 0:
        return A, 0.0
    # A^-1 + t G is positive definite while -1 / t is below the eigenvalues of A G.
    largest = -1 / min(np.linalg.eigvals(A @ G).real.min(), -1e-9)
    end = min(largest * (1 - 1e-12), eta * loss(0) + 1e-9)
    t = scipy.optimize.brentq(lambda t: t - eta * loss(t), 0, end, xtol=1e-14)
    return np.linalg.inv(inverse + t * G), loss(0)


@pytest.mark.parametrize("eta", [0.02, 1.0])
def test_kernel_equals_slow_reference(images, eta):
    X, y = images
    n_steps = 300
    learner = LEGO(eta=eta, margin=0.5, n_steps=n_steps, pass_steps=n_steps, random_state=7).fit(X, y)
    A, losses = np.eye(25), []
    for triplet in TripletSampler(y).draw(stream(7, 0, 0), n_steps):
        q, positive, negative = X[triplet].astype(float)
        A, loss = reference_step(A, q - positive, q - negative, eta, 0.5)
        losses.append(loss)
    np.testing.assert_allclose(learner.A_, A, rtol=2e-3, atol=2e-4 * np.abs(A).max())
    assert learner.history_[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    assert learner.history_[0]["violating"] == pytest.approx(np.mean(np.greater(losses, 0)), abs=2 / n_steps)


def plain_pass(X, triplets, eta, margin, undecided=None):
    """One triplet after the other in double precision, in the two rank-one steps; `undecided` is called with losses."""
    A, losses = np.eye(X.shape[1]), []
    for query, positive, negative in triplets:
        u, v = X[query].astype(float) - X[positive], X[query].astype(float) - X[negative]
        a, b, c = u @ A @ u, v @ A @ v, u @ A @ v
        losses.append(max(margin + a - b, 0.0))
        if undecided:
            undecided(margin + a - b)
        if losses[-1] > 0:
            t, det = lego.lego_step(a, b, c, eta, margin)
            A -= t / (1 + t * a) * np.outer(A @ u, A @ u)
            A += t * (1 + t * a) / det * np.outer(A @ v, A @ v)
    return A, losses


def random_problem(d, seed, density, spread=1.0):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(4), 8)
    X = (rng.normal(size=(4, d))[y] + spread * rng.normal(size=(32, d))) * (rng.random((32, d)) < density)
    return (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)).astype(np.float32), y


@pytest.fixture(autouse=True, scope="module")
def small_tiles():
    """Whole tiles, and what is left at the edges."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lego, "_TILE", 16)
        yield


class TestBlocks:
    @pytest.mark.parametrize("form", FORMS)
    @given(
        d=st.integers(8, 40),
        density=st.sampled_from([0.2, 1.0]),
        n=st.integers(1, 400),
        eta=st.floats(0.01, 0.2),
        margin=st.floats(0.1, 2),
        spread=st.floats(0.3, 3),
        seed=st.integers(0, 1000),
    )
    @settings(max_examples=40)
    def test_equal_the_steps_one_by_one(self, form, d, density, n, eta, margin, spread, seed):
        X, y = random_problem(d, seed, density, spread)
        triplets = TripletSampler(y).draw(stream(seed), n)
        # Where rounding decides whether a triplet has a loss, both ways are right.
        expected, losses = plain_pass(X, triplets, eta, margin, lambda loss: assume(abs(loss) > 1e-4))
        A = np.eye(d, dtype=np.float32)
        loss, violating = lego_pass(FORMS[form](X), triplets, eta, margin, A)
        np.testing.assert_allclose(A, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        np.testing.assert_array_equal(A, A.T)
        assert loss == pytest.approx(sum(losses), rel=1e-4)
        assert violating == np.count_nonzero(losses)

    @pytest.mark.parametrize("density", [0.2, 1.0])
    def test_a_checkpoint_is_resumed_to_the_same_bytes(self, density, checkpoint):
        X, y = random_problem(30, 0, density)
        learner = LEGO(n_steps=600, pass_steps=200, random_state=5)
        whole = learner.fit(X, y).A_.tobytes()
        for stop in (0, 1):
            assert checkpoint(learner, X, y, stop).resume(X, y).A_.tobytes() == whole
        part = LEGO(n_steps=200, pass_steps=200, random_state=5).fit(X, y)
        assert part.set_params(n_steps=400).partial_fit(X, y).A_.tobytes() == whole


@pytest.mark.slow
@pytest.mark.parametrize("eta", [1e-3, 0.1, 10.0, 1e6])
def test_every_step_lowers_the_loss_of_its_triplet(images, eta):
    X, y = images
    A = np.eye(25, dtype=np.float32)
    for triplet in TripletSampler(y).draw(stream(1), 100):
        q, positive, negative = X[triplet].astype(float)
        u, v = q - positive, q - negative
        before = 1 + u @ A @ u - v @ A @ v
        learn(X, A, triplet, eta)
        after = 1 + u @ A @ u - v @ A @ v
        if before > 0 and not np.allclose(u, v):
            assert after < before
        # Never beyond what is asked for: the loss that is left is t / eta.
        if before > 0:
            assert after > -1e-3 * max(before, 1)


class TestPositiveDefinite:
    @pytest.mark.parametrize("eta", [0.02, 10.0, 1e6])
    def test_stays_so(self, images, eta):
        A = LEGO(eta=eta, n_steps=5000, random_state=0).fit(*images).A_
        np.testing.assert_array_equal(A, A.T)
        assert np.linalg.eigvalsh(A.astype(float)).min() > 0

    def test_vectors_as_long_as_counts(self, images):
        """Steps of distances of billions leave A below rounding, whose trace may be below 0; it was NaN."""
        X, y = images
        A = LEGO(loss="pairs", n_steps=1000, random_state=0).fit(1e5 * X, y).A_
        assert np.linalg.eigvalsh(A.astype(float)).min() > 0

    def test_equal_images(self):
        """p+ = p-, q = p+ and q = p-: finite, and where nothing can be learned nothing is."""
        X = np.array([[1, 0], [0, 1], [0, 1]])
        A = np.eye(2, dtype=np.float32)
        learn(X, A, (0, 1, 2), 1.0)
        np.testing.assert_allclose(A, np.eye(2), atol=1e-6)
        for triplet in ((1, 2, 0), (1, 0, 2), (1, 2, 2)):
            learn(X, A, triplet, 1e6, margin=10.0)
            assert np.isfinite(A).all()
            assert np.linalg.eigvalsh(A.astype(float)).min() > -1e-6


@pytest.mark.parametrize("block", [1, 3, 512])
def test_positive_definite_in_blocks(block, monkeypatch):
    monkeypatch.setattr(lego, "_COLUMNS", block)
    vectors = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 30)))[0]
    pauses = []
    for least, expected in ((0.01, True), (-0.01, False)):
        A = (vectors * np.linspace(least, 1, 30)) @ vectors.T
        assert lego._is_positive_definite(A.astype(np.float32), lambda: pauses.append(block)) == expected
    assert len(pauses) >= -(-30 // block)  # at least those of the first matrix


class TestPairs:
    """The loss of pairs: a class at most `near` apart, others at least `far`."""

    def test_hand_worked(self):
        # q = (0, 0), p+ = (1, 1), p- = (0, 1): d(q, p+) = 2 > near = 1; then d(q, p-) < far.
        X, A = sp.csr_array(np.array([[0, 0], [1, 1], [0, 1]], np.float32)), np.eye(2, dtype=np.float32)
        losses, violating = lego.lego_pairs_pass(X, np.array([[0, 1, 2]], np.int32), 0.1, 1.0, 2.0, A)
        # d = 2, y = 1, eta = 0.1: 0.2 ybar^2 + 0.8 ybar - 2 = 0, ybar = (-0.8 + sqrt(0.64 + 1.6)) / 0.4
        new = (np.sqrt(2.24) - 0.8) / 0.4
        s = 0.1 * (new - 1)
        expected = np.eye(2) - s / (1 + 2 * s) * np.ones((2, 2))
        assert np.ones(2) @ expected @ np.ones(2) == pytest.approx(new)
        z = np.array([0, 1.0])
        d = z @ expected @ z
        assert losses == pytest.approx((2 - 1) + (2 - d))
        assert violating == 2
        b = 1 - 0.1 * 2 * d
        new = (-b + np.sqrt(b * b + 0.4 * d * d)) / (0.2 * d)
        s = 0.1 * (new - 2)
        expected -= s / (1 + s * d) * np.outer(expected @ z, expected @ z)
        np.testing.assert_allclose(A, expected, rtol=1e-5)
        assert z @ A @ z == pytest.approx(new, rel=1e-5)

    @pytest.mark.parametrize("eta", [0.02, 0.32])
    def test_kernel_equals_slow_reference(self, images, eta):
        """The minimum from the inverse of A and a root finder, in double precision."""
        X, y = images
        learner = LEGO(loss="pairs", eta=eta, near=0.5, far=1.8, n_steps=200, pass_steps=200, random_state=7).fit(X, y)
        A, losses = np.eye(25), []
        for triplet in TripletSampler(y).draw(stream(7, 0, 0), 200):
            q, positive, negative = X[triplet].astype(float)
            for z, target, sign in ((q - positive, 0.5, 1), (q - negative, 1.8, -1)):
                d = z @ A @ z
                losses.append(max(0.0, sign * (d - target)))
                if losses[-1] > 0 and d > 0:
                    # A^-1 = A_t^-1 + s z z' with s = eta (ybar - y) and ybar = d / (1 + s d)
                    s = scipy.optimize.brentq(
                        lambda s, d=d, y=target: s - eta * (d / (1 + s * d) - y), 1e-9 - 1 / d, 1e3
                    )
                    A = np.linalg.inv(np.linalg.inv(A) + s * np.outer(z, z))
        np.testing.assert_allclose(learner.A_, A, rtol=2e-3, atol=2e-4 * np.abs(A).max())
        assert learner.history_[0]["loss"] == pytest.approx(np.mean(losses), rel=1e-3)
        assert learner.history_[0]["violating"] == pytest.approx(np.mean(np.greater(losses, 0)), abs=2 / 400)

    @pytest.mark.parametrize("eta", [0.02, 100.0])
    def test_stays_positive_definite(self, images, eta):
        A = LEGO(loss="pairs", eta=eta, n_steps=3000, random_state=0).fit(*images).A_
        np.testing.assert_array_equal(A, A.T)
        assert np.linalg.eigvalsh(A.astype(float)).min() > 0
