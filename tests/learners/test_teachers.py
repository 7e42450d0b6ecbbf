"""The table of teachers gives the similarities of W, and names the images that taught them."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from visterm.learners import AROMA, OASIS, Blend, Teachers, load_learner
from visterm.learners.teachers import with_images, with_steps

SMALL = {"n_steps": 3000, "pass_steps": 1000, "pairs_per_query": 8, "record_teachers": True, "random_state": 0}
KINDS = {
    "plain": OASIS(**SMALL),
    "zero": OASIS(init="zero", **SMALL),
    "one-pair": OASIS(**SMALL | {"pairs_per_query": 1}),
    "many-pairs": OASIS(**SMALL | {"pairs_per_query": 500}),
    "whitened": OASIS(whiten=True, **SMALL),
    "symmetric": OASIS(variant="symmetric", **SMALL),
    "online-symmetric": OASIS(variant="online-symmetric", **SMALL),
    "rankers": OASIS(n_rankers=3, n_jobs=2, **SMALL),
    "mixing": OASIS(n_rankers=2, mix_every=1000, **SMALL),
    "refit": OASIS(validation_fraction=0.2, init="zero", **SMALL),
    "best": OASIS(validation_fraction=0.2, refit=False, init="zero", **SMALL),
    "threads": OASIS(n_jobs=2, **SMALL),
    "balanced": OASIS(balance="class", **SMALL),
}


def make_images(*, dense, n=60, d=40, seed=0):
    """Unit rows of six classes, sparse or dense."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 6
    X = rng.random((n, d)) * (rng.random((n, d)) < (1 if dense else 0.15))
    X[:, 0] += 0.1
    X[np.arange(n), 1 + 4 * y + rng.integers(0, 4, n)] += 1.0  # one of four columns of the class
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return (X if dense else sp.csr_array(X)), y


def assert_same_scores(learner, X, Q, G):
    """Table and W agree to 1e-4 of the largest score."""
    wanted = learner.similarity(Q, G)
    scores = Teachers(learner, X).similarity(Q, G)
    assert np.abs(scores - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", KINDS)
def test_the_table_gives_the_scores_of_W(name, dense):
    X, y = make_images(dense=dense)
    others, _ = make_images(dense=dense, n=12, seed=1)
    learner = clone(KINDS[name]).fit(X, y)
    assert learner.teachers_.dtype == np.float32
    assert learner.teachers_.nnz > 200
    assert_same_scores(learner, X, others, X)
    assert_same_scores(learner, X, X, others)


@settings(max_examples=25)
@given(
    n=st.integers(20, 50),
    C=st.sampled_from([0.01, 0.3, 10.0]),
    pairs=st.sampled_from([1, 3, 50]),
    dense=st.booleans(),
    whiten=st.booleans(),
    init=st.sampled_from(["identity", "zero"]),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 1000),
)
def test_every_setting_gives_the_scores_of_W(n, C, pairs, dense, whiten, init, share, seed):
    X, y = make_images(dense=dense, n=n, seed=seed)
    learner = OASIS(
        C=C, pairs_per_query=pairs, n_steps=400, pass_steps=200, whiten=whiten, init=init, record_teachers=True,
        random_state=seed,
    ).fit(X, y)  # fmt: skip
    mixed = Blend(learner, share, scale=1.0 if init == "identity" else 3.0)
    wanted = mixed.similarity(X, X)
    teachers = Teachers(mixed, X)
    assert np.abs(teachers.similarity(X, X) - wanted).max() <= 1e-4 * np.abs(wanted).max()
    of_pair = teachers.of_pair(X[:1], X[1:2], n=3)
    total = of_pair.unlearned + of_pair.common + of_pair.learned
    assert total == pytest.approx(float(wanted[0, 1]), abs=1e-4 * float(np.abs(wanted).max()))
    again = Teachers(learner, X).with_share(mixed).of_pair(X[:1], X[1:2], n=3)
    assert (again.unlearned, again.learned) == pytest.approx((of_pair.unlearned, of_pair.learned))


def test_the_table_is_the_steps_of_the_formula(images):
    """The sums of tau, step by step in double precision, and W from them."""
    X, y = images
    learner = OASIS(whiten=False, C=0.1, n_steps=300, pairs_per_query=1, pass_steps=300, record_teachers=True)
    learner.set_params(random_state=3).fit(X, y)
    T = learner.teachers_.toarray().astype(np.float64)
    np.testing.assert_allclose(np.eye(25) + X.T @ T @ X, learner.W_, atol=2e-5)
    np.testing.assert_allclose(T.sum(axis=1), 0, atol=1e-5)  # each step adds tau and takes it away
    assert (T[y[:, None] == y] >= 0).all()
    assert (T[y[:, None] != y] <= 0).all()


@pytest.mark.parametrize("name", ["plain", "whitened", "refit", "best", "mixing"])
def test_resuming_gives_the_same_table(name, checkpoint):
    X, y = make_images(dense=False)
    steps = []
    whole = clone(KINDS[name]).fit(X, y, callback=lambda learner: steps.append(learner.steps_done_))
    resumed = checkpoint(KINDS[name], X, y, steps.index(2000)).resume(X, y)
    assert abs(resumed.teachers_ - whole.teachers_).max() == 0
    assert_same_scores(resumed, X, X, X)


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_images_of_partial_fit_follow_in_the_table(dense):
    X, y = make_images(dense=dense)
    more, labels = make_images(dense=dense, n=24, seed=5)
    stack = np.vstack if dense else sp.vstack
    learner = OASIS(**SMALL).fit(X, y)
    before = learner.teachers_
    learner.partial_fit(more, labels)
    assert learner.teachers_.shape == (84, 84)
    assert abs(learner.teachers_[:60, :60] - before).max() == 0
    assert learner.teachers_[60:, 60:].nnz > 100
    assert_same_scores(learner, stack([X, more]), X, more)
    first = OASIS(**SMALL).partial_fit(X, y)
    assert_same_scores(first, X, X, X)


def test_teachers_are_not_recorded_unless_asked_for_nor_where_there_is_no_sum(images):
    X, y = images
    for parameters in (
        {"record_teachers": False}, {"variant": "psd"}, {"variant": "dissim", "whiten": False}, {"lock_free": True},
    ):  # fmt: skip
        learner = OASIS(**SMALL | parameters).fit(X, y)
        assert not learner.has_teachers
        learner.set_params(variant=None, lock_free=False, whiten=False, record_teachers=True).partial_fit(X, y)
        assert not learner.has_teachers
        with pytest.raises(ValueError, match="record_teachers=True"):
            Teachers(learner, X)
    with pytest.raises(ValueError, match="record_teachers=True"):
        Teachers(AROMA(n_steps=200).fit(X, y), X)


def test_teachers_of_a_pair_are_the_strongest_and_add_up_to_the_score():
    X, y = make_images(dense=False)
    learner = OASIS(**SMALL).fit(X, y)
    teachers, T = Teachers(learner, X), learner.teachers_.toarray().astype(np.float64)
    q, x = X[[0]], X[[6]]
    u, v = (X @ q.T).toarray()[:, 0], (X @ x.T).toarray()[:, 0]
    terms = u[:, None] * T * v
    pair = teachers.of_pair(q, x, n=4)
    np.testing.assert_allclose(pair.contributions[:4], np.sort(terms.ravel())[::-1][:4], rtol=1e-5)
    np.testing.assert_allclose(pair.contributions[4:], np.sort(terms.ravel())[:4], rtol=1e-5)
    np.testing.assert_allclose(terms[pair.queries, pair.images], pair.contributions, rtol=1e-5)
    assert pair.unlearned == pytest.approx(float((q @ x.T).toarray()[0, 0]))
    assert pair.common == 0
    assert pair.unlearned + pair.learned == pytest.approx(pair.score, rel=1e-5)
    assert pair.n_rest == np.count_nonzero(terms) - 8
    np.testing.assert_allclose(teachers.of_images(q, x), (terms.sum(axis=1) + terms.sum(axis=0)) / 2, atol=1e-6)


@pytest.mark.parametrize("name", ["plain", "whitened", "symmetric"])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_margins_and_parts_of_images_are_differences_of_scores(name, dense):
    X, y = make_images(dense=dense)
    others, _ = make_images(dense=dense, n=12, seed=1)
    learner = Blend(clone(KINDS[name]).fit(X, y), 0.6, scale=2.0)
    teachers = Teachers(learner, X)
    Q, better, worse = others[:3], others[3:6], others[6:9]

    def margin(one):
        return sum(
            one.similarity(Q[[i]], better[[i]])[0, 0] - one.similarity(Q[[i]], worse[[i]])[0, 0] for i in range(3)
        )

    terms = teachers.of_margins(Q, better, worse)
    assert terms.shape == (60, 60)
    nothing = Blend(teachers.without(np.arange(60)), 0.6, scale=2.0)
    assert terms.sum() == pytest.approx(margin(learner) - margin(nothing), abs=1e-4)
    before = learner.similarity(Q, others)
    for row, part in zip((3, 8), teachers.parts_of((3, 8), Q, others), strict=True):
        without = Blend(teachers.without([row]), 0.6, scale=2.0)
        np.testing.assert_allclose(before - part, without.similarity(Q, others), atol=1e-4)
        of_image = terms[[row]].sum() + terms[:, [row]].sum() - terms[row, row]
        assert of_image == pytest.approx(margin(learner) - margin(without), abs=1e-4)


@pytest.mark.parametrize("name", ["plain", "whitened", "symmetric"])
@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
def test_images_can_be_taken_out_of_W(name, dense):
    X, y = make_images(dense=dense)
    learner = clone(KINDS[name]).fit(X, y)
    before = learner.similarity(X, X)
    without = Teachers(learner, X).without([3, 7, 8])
    T = without.teachers_
    assert not T[[3, 7, 8]].nnz
    assert not T[:, [3, 7, 8]].nnz
    kept = np.setdiff1d(np.arange(60), [3, 7, 8])
    assert abs(T[kept][:, kept] - learner.teachers_[kept][:, kept]).max() == 0
    assert_same_scores(without, X, X, X)
    np.testing.assert_array_equal(learner.similarity(X, X), before)  # the learner itself is as it was
    nothing = Teachers(learner, X).without(np.arange(60))
    np.testing.assert_allclose(nothing.W_, np.eye(40), atol=1e-4)


def test_tables_survive_saving_and_damage_never_changes_a_score(tmp_path, caplog):
    X, y = make_images(dense=False)
    learner = OASIS(**SMALL).fit(X, y)
    learner.save(tmp_path / "oasis")
    learner.save(tmp_path / "oasis")  # over it: no file of the table is taken for a leftover
    loaded = load_learner(tmp_path / "oasis", mmap_mode="r")
    assert abs(loaded.teachers_ - learner.teachers_).max() == 0
    wanted = learner.similarity(X, X)
    for part, spoil in (
        ("data", lambda array: array[::-1]), ("indices", lambda array: array[::-1]),
        ("indices", lambda array: array + 1000), ("indptr", lambda array: array[:-1]),
    ):  # fmt: skip
        learner.save(tmp_path / "damaged")
        file = next((tmp_path / "damaged").glob(f"teachers_{part}-*.npy"))
        np.save(file, np.ascontiguousarray(spoil(np.load(file))))
        damaged = load_learner(tmp_path / "damaged", verify=False)
        np.testing.assert_array_equal(damaged.similarity(X, X), wanted)
        with pytest.raises(ValueError, match="table of teachers|record_teachers"):
            Teachers(damaged, X)
        caplog.clear()
        np.testing.assert_array_equal(load_learner(tmp_path / "damaged").similarity(X, X), wanted)
        assert "teachers_ is skipped" in caplog.text
        file.unlink()


def test_other_images_are_refused_and_steps_add_up():
    X, y = make_images(dense=False)
    learner = OASIS(**SMALL).fit(X, y)
    with pytest.raises(ValueError, match="of 60 images, got 50"):
        Teachers(learner, X[:50])
    with pytest.raises(ValueError, match="not the images of its training"):
        Teachers(learner, X[np.random.default_rng(0).permutation(60)])
    table = with_images(sp.csr_array((0, 0), dtype=np.float32), 3)
    triplets = np.array([[0, 1, 2], [0, 1, 2], [2, 1, 0]])
    table = with_steps(table, triplets, np.array([0.5, 0.25, 0.0], np.float32))
    table = with_steps(table, triplets[2:], np.array([1.0], np.float32))
    np.testing.assert_array_equal(table.toarray(), [[0, 0.75, -0.75], [0, 0, 0], [-1, 1, 0]])
    assert with_images(table, 2).toarray()[3:].sum() == 0
