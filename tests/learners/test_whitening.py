"""Whitening by the scatter within classes, and the learners that learn in whitened vectors."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from visterm.learners import AROMA, OASIS, WSABIE, Blend, Cosine, load_learner
from visterm.learners.base import SimilarityLearner
from visterm.learners.whitening import (
    MAX_FEATURES,
    WHITENING_STATE,
    _groups,
    asks_for_whitening,
    whitening,
    whitening_of,
    within_scatter,
)
from visterm.retrieval import explain

SHORT = {"n_steps": 600, "pass_steps": 200, "whiten": True, "random_state": 3}
LEARNERS = {
    "oasis": OASIS(pairs_per_query=8, **SHORT),
    "oasis-symmetric": OASIS(variant="symmetric", pairs_per_query=8, **SHORT),
    "aroma": AROMA(init=None, **SHORT),
    "aroma-factored": AROMA(init=None, covariance="factored", **SHORT),
    "wsabie": WSABIE(n_components=4, **SHORT),
}
SQUARE = [name for name in LEARNERS if name != "wsabie"]  # W is (d, d), and the gallery side is the vectors


def slow_scatter(X, memberships):
    """As the formula has it: an image counts in each of its groups."""
    total, n = np.zeros((X.shape[1], X.shape[1])), 0
    for members in memberships.T.astype(bool):
        rows = X[members].astype(float)
        if len(rows) >= 2:
            differences = rows - rows.mean(axis=0)
            total += sum(np.outer(row, row) for row in differences)
            n += len(rows)
    return total / n


def slow_whitening(X, memberships, shrinkage):
    C = slow_scatter(X, memberships)
    values, vectors = np.linalg.eigh(C + shrinkage * np.trace(C) * np.eye(len(C)))
    A = vectors @ np.diag(values**-0.5) @ vectors.T
    mean = X.astype(float).mean(axis=0)
    return mean, A / np.sqrt(np.square((X - mean) @ A).sum(axis=1).mean())


def model_of(learner):
    """Names of the arrays that were learned."""
    return [name for name in (*learner._learned, *WHITENING_STATE) if name in vars(learner)]


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def images():
    """Eighty dense unit rows of four classes, which differ most in a direction that says nothing of the class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 20)
    X = rng.normal(size=(4, 8))[y] + 0.4 * rng.normal(size=(80, 8))
    X[:, 0] += 3 * rng.normal(size=80)
    return unit(X + 0.5).astype(np.float32), y


@pytest.fixture(scope="module")
def X(images):
    return images[0]


@pytest.fixture(scope="module")
def y(images):
    return images[1]


@pytest.fixture(params=LEARNERS)
def learner(request, X, y):
    return clone(LEARNERS[request.param]).fit(X, y)


class TestScatter:
    def test_by_hand(self):
        """Two classes on lines: (0, 0), (2, 0) and (5, 1), (5, 5): squares of 1, 1 in x and of 2, 2 in y."""
        X = np.array([[0, 0], [2, 0], [5, 1], [5, 5], [9, 9]], np.float32)
        C, free = within_scatter(X, _groups(np.array(["a", "a", "b", "b", "c"])))
        np.testing.assert_allclose(C, [[2 / 4, 0], [0, 8 / 4]], atol=1e-12)
        assert free == 2
        X = np.array([[1.0, 0], [0, 1], [5, 5]], np.float32)
        both = sp.csr_array(np.array([[1, 0], [1, 0], [0, 1]]))
        np.testing.assert_allclose(within_scatter(X, _groups(both))[0], [[0.25, -0.25], [-0.25, 0.25]], atol=1e-7)

    @pytest.mark.parametrize("several", [False, True])
    def test_against_a_slow_reference(self, several):
        rng = np.random.default_rng(1)
        X = rng.normal(size=(5000, 5)).astype(np.float32)  # more than are taken at a time
        memberships = rng.random((5000, 7)) < 0.3
        y = memberships.argmax(axis=1)
        groups = _groups(sp.csr_array(memberships * 2.0) if several else y)
        memberships = memberships if several else y[:, None] == np.arange(7)
        C, free = within_scatter(X, groups)
        np.testing.assert_allclose(C, slow_scatter(X, memberships), rtol=1e-6, atol=1e-9)
        sizes = memberships.sum(axis=0)
        assert free == sizes.sum() - (sizes > 0).sum()


class TestMatrix:
    def test_by_hand(self):
        """A class that spreads in x alone: A shrinks x and hardly y."""
        X = np.array([[-1, 0], [1, 0], [-1, 1], [1, 1]] * 60, np.float32)
        mean, A = whitening(X, _groups(np.tile([0, 0, 1, 1], 60)))
        np.testing.assert_allclose(mean, [0, 0.5], atol=1e-6)
        x, y = 1.01**-0.5, 0.01**-0.5  # C = diag(1, 0), s = 0.01
        np.testing.assert_allclose(A, np.diag([x, y]) / np.sqrt(x**2 + y**2 / 4), rtol=1e-5, atol=1e-7)

    @pytest.mark.parametrize("several", [False, True])
    def test_against_a_slow_reference(self, X, y, several):
        memberships = y[:, None] == np.arange(4)
        if several:
            memberships |= np.random.default_rng(2).random(memberships.shape) < 0.3
        mean, A = whitening(X, _groups(sp.csr_array(memberships.astype(float)) if several else y))
        shrinkage = max(0.01, 1 / (memberships.sum() - 4))
        expected_mean, expected = slow_whitening(X, memberships, shrinkage)
        np.testing.assert_allclose(mean, expected_mean, atol=1e-6)
        np.testing.assert_allclose(A, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(A, A.T)
        assert A.dtype == mean.dtype == np.float32
        assert np.square((X - mean) @ A).sum(axis=1).mean() == pytest.approx(1, abs=1e-4)

    def test_without_two_images_of_a_class_or_of_equal_ones_no_direction_counts_less(self, X):
        A = whitening(X, _groups(np.arange(len(X))))[1]
        np.testing.assert_allclose(A, A[0, 0] * np.eye(8), atol=1e-7)
        assert A[0, 0] == pytest.approx(1 / np.sqrt(np.square(X - X.mean(axis=0)).sum(axis=1).mean()), rel=1e-4)
        X = np.full((6, 3), 0.5, np.float32)
        np.testing.assert_array_equal(whitening(X, _groups(np.repeat([0, 1], 3)))[1], np.eye(3))

    def test_few_images_shrink_more(self, X, y):
        """Three images say little of eight directions: A stays closer to the identity."""
        few = np.array([0, 1, 20, 21])
        conditions = [np.linalg.cond(whitening(X[rows], _groups(y[rows]))[1]) for rows in (few, np.arange(80))]
        assert conditions[0] < np.sqrt(1.5 / 0.5) + 1e-3  # s = 1 / 2
        assert conditions[1] > 1.5 * conditions[0]


class TestWhitenedVectors:
    def test_are_those_of_the_formula(self, learner, X):
        Z = learner.whitened(X)
        np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1, atol=1e-5)
        expected = unit((X - learner.mean_) @ learner.whitening_.astype(float))
        np.testing.assert_allclose(Z, expected, atol=1e-4)
        np.testing.assert_array_equal(learner.whitened(sp.csr_array(X)), Z)
        np.testing.assert_array_equal(learner.whitened(X[5:6]), Z[5:6])

    def test_are_the_vectors_where_nothing_is_whitened(self, X, y):
        plain = OASIS(whiten=False, n_steps=10, random_state=0).fit(X, y)
        assert not plain.is_whitened()
        np.testing.assert_array_equal(plain.whitened(X), X)
        assert plain.center() is None


class TestLearners:
    @pytest.mark.parametrize("name", SQUARE)
    def test_similarity_is_that_of_the_formula(self, name, X, y):
        """z' W A x, with the vectors themselves on the gallery side."""
        learner = clone(LEARNERS[name]).fit(X, y)
        Z = unit((X - learner.mean_) @ learner.whitening_.astype(float))
        scores = learner.similarity(X, X)
        np.testing.assert_allclose(scores, Z @ learner.W_ @ learner.whitening_ @ X.T, atol=2e-4)
        np.testing.assert_array_equal(learner.transform(X), X)
        assert learner.gallery_is_vectors
        # But for the lengths, the ranking is that of whitened vectors on both sides.
        lengths = np.linalg.norm((X - learner.mean_) @ learner.whitening_, axis=1)
        left_out = Z @ learner.W_ @ learner.whitening_ @ learner.mean_
        np.testing.assert_allclose((scores - left_out[:, None]) / lengths, Z @ learner.W_ @ Z.T, atol=1e-3)

    def test_embeddings_are_those_of_whitened_vectors(self, X, y):
        learner = clone(LEARNERS["wsabie"]).fit(X, y)
        Z = unit((X - learner.mean_) @ learner.whitening_.astype(float))
        np.testing.assert_allclose(learner.transform(X), Z @ learner.visterm_vectors_, atol=1e-4)
        np.testing.assert_array_equal(learner.transform_query(X), learner.transform(X))

    def test_whitened_is_a_better_start_and_the_same_as_whitened_vectors(self, X, y):
        """Most of what these vectors differ by says nothing of the class."""
        once = {"n_steps": 1, "random_state": 0, "C": 1e-9}
        plain, whitened = (OASIS(whiten=whiten, **once).fit(X, y).score(X, y) for whiten in (False, True))
        assert whitened > plain + 0.2
        # The same W as of a learner that is given the whitened vectors.
        learner = clone(LEARNERS["oasis"]).fit(X, y)
        given = clone(LEARNERS["oasis"]).set_params(whiten=False).fit(learner.whitened(X), y)
        np.testing.assert_array_equal(learner.W_, given.W_)

    def test_init_none_is_the_identity_where_vectors_are_whitened(self, X, y):
        for covariance in ("diagonal", "factored"):
            shared = {"covariance": covariance, "n_steps": 400, "random_state": 0}
            one, other = (AROMA(init=init, whiten=True, **shared).fit(X, y) for init in (None, "identity"))
            np.testing.assert_array_equal(one.distribution_, other.distribution_)
            one, other = (AROMA(init=init, whiten=False, **shared).fit(X, y) for init in (None, "zero"))
            np.testing.assert_array_equal(one.distribution_, other.distribution_)

    def test_auto_whitens_dense_vectors_alone(self, X, y, synonyms, tmp_path):
        for name, learner in LEARNERS.items():
            auto, on, off = (clone(learner).set_params(whiten=whiten) for whiten in ("auto", True, False))
            np.testing.assert_array_equal(auto.fit(X, y).similarity(X, X), on.fit(X, y).similarity(X, X), err_msg=name)
            auto.fit(*synonyms).save(tmp_path / name)
            off.fit(*synonyms)
            assert not auto.is_whitened()
            state = [{key: np.asarray(vars(one).get(key)).tolist() for key in one._state} for one in (auto, off)]
            assert state[0] == state[1]
            assert not any(
                name in str(path) for path in (tmp_path / name).iterdir() for name in ("mean_", "whitening_")
            )
        X = sp.csr_array(np.ones((2, MAX_FEATURES + 1), np.float32))
        assert not asks_for_whitening("auto", X)
        assert asks_for_whitening("auto", X[:, :MAX_FEATURES])

    @pytest.mark.parametrize("name", ["oasis", "aroma", "wsabie"])
    def test_what_cannot_be_whitened_is_one_clear_error(self, name, X, y):
        learner = clone(LEARNERS[name])
        for bad in ("x", None, 1, 0.5):
            with pytest.raises(ValueError, match=f"^whiten must be True, False or 'auto', got {bad!r}$"):
                clone(learner).set_params(whiten=bad).fit(X, y)
        wide = sp.csr_array(np.pad(X, ((0, 0), (0, MAX_FEATURES - 7))))
        with pytest.raises(ValueError, match="^whiten=True takes vectors of 4,096 numbers at most, got 4,097$"):
            clone(learner).fit(wide, y)

    def test_dissim_is_not_whitened(self, X, y):
        with pytest.raises(ValueError, match="^whiten=True does not go with variant='dissim', whose gallery side"):
            OASIS(whiten=True, variant="dissim").fit(X, y)
        learner = OASIS(whiten="auto", variant="dissim", n_steps=50, random_state=0).fit(X, y)
        plain = OASIS(variant="dissim", n_steps=50, random_state=0).fit(X, y)
        assert not learner.is_whitened()
        np.testing.assert_array_equal(learner.W_, plain.W_)
        whitened = OASIS(n_steps=50, random_state=0).fit(X, y)
        with pytest.raises(ValueError, match="fitted in whitened vectors, which variant='dissim' does not compare"):
            whitened.set_params(variant="dissim").partial_fit(X, y)

    def test_a_fit_forgets_the_whitening_of_the_one_before(self, synonyms, X, y):
        learner = clone(LEARNERS["oasis"]).fit(X, y)
        learner.set_params(whiten=False).fit(X, y)
        assert not learner.is_whitened()
        np.testing.assert_array_equal(learner.W_, clone(LEARNERS["oasis"]).set_params(whiten=False).fit(X, y).W_)

    @pytest.mark.parametrize("whiten", [False, True])
    def test_names_and_the_page_of_a_notebook(self, whiten, X, y):
        learner = clone(LEARNERS["oasis"]).set_params(whiten=whiten).fit(X, y)
        assert ("mean_" in dir(learner)) == whiten
        assert "OASIS" in learner._repr_html_()

    def test_rows_of_zeros_are_harmless(self, X, y):
        X = X.copy()
        X[[3, 20]] = 0
        for name, learner in LEARNERS.items():
            assert np.isfinite(clone(learner).fit(X, y).similarity(X, X)).all(), name

    def test_the_search_knows_no_held_out_image(self, X, y):
        """The whitening is that of the images that are learned from; a refit learns one from all."""
        searched = clone(LEARNERS["oasis"]).set_params(validation_fraction=0.3, refit=False).fit(X, y)
        training = np.setdiff1d(np.arange(80), searched.held_out_)
        np.testing.assert_array_equal(searched.mean_, whitening(X[training], _groups(y[training]))[0])
        refitted = clone(LEARNERS["oasis"]).set_params(validation_fraction=0.3, refit=True).fit(X, y)
        np.testing.assert_array_equal(refitted.whitening_, whitening(X, _groups(y))[1])

    @pytest.mark.parametrize("name", [name for name in LEARNERS if name != "oasis-symmetric"])  # it changes at the end
    def test_validation_measures_what_a_search_does(self, name, X, y):
        """The similarity to vectors as they are, not whitened ones."""
        learner = clone(LEARNERS[name]).set_params(validation_fraction=0.3, refit=False).fit(X, y)
        rows = learner.held_out_
        assert learner.validation_map_ == pytest.approx(SimilarityLearner.score(learner, X[rows], y[rows]))
        assert learner.best_validation_ == pytest.approx(learner.score(X[rows], y[rows]))
        assert learner.cosine_map_ == pytest.approx(
            OASIS(n_steps=1, C=1e-9, whiten=False).fit(X, y).score(X[rows], y[rows])
        )
        assert not {"learned_weight_", "scale_", "worlds_", "world_"} & set(vars(learner))


class TestState:
    def test_a_checkpoint_between_search_and_refit(self, X, y, tmp_path):
        """The refit learns its own whitening."""
        settings = clone(LEARNERS["oasis"]).set_params(validation_fraction=0.3, refit=True)
        saved = []

        def save(learner):
            if learner.phase_ == "refit" and not saved:
                saved.append(learner.is_whitened())
                learner.save(tmp_path / "checkpoint")

        expected = clone(settings).fit(X, y, callback=save)
        assert saved == [False]
        resumed = load_learner(tmp_path / "checkpoint").resume(X, y)
        np.testing.assert_array_equal(resumed.W_, expected.W_)
        np.testing.assert_array_equal(resumed.whitening_, expected.whitening_)

    def test_partial_fit_keeps_the_whitening(self, learner, X, y):
        before = {name: getattr(learner, name).copy() for name in WHITENING_STATE}
        similarity = learner.similarity(X, X)
        some = y < 3 if isinstance(learner, WSABIE) else y < 2
        learner.partial_fit(X[some], y[some])
        for name, array in before.items():
            np.testing.assert_array_equal(getattr(learner, name), array)
        assert not np.array_equal(learner.similarity(X, X), similarity)

    def test_partial_fit_whitens_nothing_that_was_learned_without(self, synonyms):
        """Dense images do not change the space of a W that was found to be best at its start."""
        X, y = synonyms
        learner = OASIS(n_steps=2, pass_steps=1, validation_fraction=0.3, whiten="auto", random_state=0)
        learner._validator = lambda X, y, held_out: iter([0.9, 0.1, 0.1]).__next__
        learner.fit(X, y)
        assert learner.n_steps_ == 0
        dense = X.toarray() + 0.1
        assert not learner.partial_fit(dense, y).is_whitened()

    def test_a_new_learner_whitens_in_partial_fit(self, learner, X, y):
        new = clone(learner).partial_fit(X, y)
        for name in model_of(learner):
            np.testing.assert_array_equal(getattr(new, name), getattr(learner, name))


class TestShares:
    @pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
    def test_a_blend_is_the_mixture_of_both(self, learner, X, share):
        """Cosine of whitened vectors, and what was learned in them."""
        Z = unit((X - learner.mean_) @ learner.whitening_.astype(float))
        look = Z @ learner.whitening_ @ X.T
        blend = Blend(learner, share, scale=0.7)
        expected = (1 - share) * look + share * 0.7 * learner.similarity(X, X)
        np.testing.assert_allclose(blend.similarity(X, X), expected, atol=5e-4)

    def test_at_the_start_all_shares_are_one(self, X, y):
        """Nothing is learned of W = I: cosine is the learner."""
        learner = OASIS(whiten=True, n_steps=1, C=1e-30, random_state=0).fit(X, y)
        for share in (0.0, 0.5):
            np.testing.assert_allclose(Blend(learner, share).similarity(X, X), learner.similarity(X, X), atol=1e-5)

    def test_explanations_sum_to_the_score(self, learner, X):
        rng = np.random.default_rng(1)
        query, result = (rng.dirichlet(np.ones(6), 8).T.astype(np.float32) * X[row] for row in (4, 60))
        for model in (learner, Blend(learner, 0.3)):
            explained = explain(model, query, result)
            score = model.similarity(X[[4]], X[[60]])[0, 0]
            assert explained.score == pytest.approx(score, abs=1e-4)
            for terms in (explained.query.sum(), explained.result.sum(), explained.positive + explained.negative):
                assert terms == pytest.approx(score, abs=1e-3)

    def test_queries_of_directions_are_differences_of_queries(self, X, y):
        """That of a difference of two images is the difference of theirs before they are scaled to unit length."""
        for name in SQUARE:
            learner = clone(LEARNERS[name]).fit(X, y)
            lengths = np.linalg.norm((X[:2] - learner.mean_) @ learner.whitening_, axis=1)[:, None]
            for model in (learner, Blend(learner, 0.3)):
                sides = model.transform_query(X[:2]) * lengths
                expected = (sides[0] - sides[1])[None]
                np.testing.assert_allclose(model.linear_query(X[:1] - X[1:2]), expected, atol=1e-3)
                np.testing.assert_array_equal(model.center(), learner.mean_)
        learner = OASIS(whiten=False, n_steps=200, random_state=0).fit(X, y)
        np.testing.assert_allclose(learner.linear_query(X[:3]), learner.transform_query(X[:3]), atol=1e-6)
        blend = Blend(learner, 0.3)
        np.testing.assert_allclose(blend.linear_query(X[:3]), blend.transform_query(X[:3]), atol=1e-6)
        assert blend.center() is None


def test_embedding_compares_vectors_less_their_mean(X, y):
    learner = OASIS(whiten=True, variant="psd", n_steps=400, random_state=0).fit(X, y)
    E = (X - learner.mean_) @ learner.embedding().T
    lengths = np.linalg.norm((X - learner.mean_) @ learner.whitening_, axis=1)
    scores = learner.similarity(X, X) * lengths[:, None]
    np.testing.assert_allclose((E @ E.T) - (E @ E.T)[:, :1], scores - scores[:, :1], atol=2e-3)


def nuisances(n_classes, per_class, seed=0, d=24):
    """Images of small classes: what tells them apart varies little, and four directions that say nothing a lot."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    X = rng.normal(size=(n_classes, d))[y] + 0.2 * rng.normal(size=(len(y), d))
    X[:, :4] += 6 * rng.normal(size=(len(y), 4))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def test_small_classes_are_whitened_with_less_added():
    X, y = nuisances(400, 2)
    _, A = whitening_of(X, y, np.arange(800))
    _, expected = whitening(X, _groups(y), shrinkage=1 / 400)  # one over the degrees of freedom is more than 0.001
    np.testing.assert_allclose(A, expected, rtol=1e-6)
    _, of_four = whitening_of(X[:800], np.repeat(np.arange(200), 4), np.arange(800))
    _, expected = whitening(X[:800], _groups(np.repeat(np.arange(200), 4)), shrinkage=0.01)
    np.testing.assert_array_equal(of_four, expected)


def test_without_two_images_of_a_class_neighbours_are_classes():
    """By hand: the images that are most similar to each, and itself."""
    X, _ = nuisances(30, 4)
    y = sp.csr_array(([1.0, 1.0], ([0, 5], [0, 1])), shape=(120, 2))
    _, A = whitening_of(X, y, np.arange(120))
    members = np.zeros((120, 120))
    for image in range(120):
        order = np.argsort(-(X @ X[image]), kind="stable")
        members[[image, *order[order != image][:5]], image] = 1
    _, expected = whitening(X, sp.csr_array(members))
    np.testing.assert_allclose(A, expected, rtol=1e-4, atol=1e-5)


def test_one_label_a_class_learns_the_whitening_of_the_gallery():
    X, y = nuisances(40, 5)
    labelled = np.arange(0, 200, 5)
    one_each = sp.csr_array((np.ones(40), (labelled, y[labelled])), shape=(200, 40))
    learner = OASIS(random_state=0).fit(X, one_each)
    assert (learner.n_steps_, learner.phase_) == (0, "done")
    np.testing.assert_array_equal(learner.W_, np.eye(24))
    assert learner.score(X, y) > Cosine().fit(X, y).score(X, y) + 0.05
    for refused, X_, y_ in ((OASIS(), X[labelled], y[labelled]), (OASIS(whiten=False), X, one_each)):
        with pytest.raises(ValueError, match="no triplet can be drawn"):
            refused.fit(X_, y_)
