"""Dense images that lie in files: the learners that read them by rows learn what they learn from a copy in memory."""

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import AROMA, OASIS
from visterm.learners.rows import blocks

N, D = 1150, 24
AT_ONCE = 512  # rows, in place of eight times as many, so that few images are enough
LEARNERS = {
    "oasis": OASIS(n_steps=6000, pass_steps=2000),
    "unwhitened": OASIS(n_steps=6000, pass_steps=2000, whiten=False),
    "without-refit": OASIS(n_steps=6000, pass_steps=2000, refit=False),
    "rankers": OASIS(n_steps=6000, pass_steps=2000, n_rankers=2),
    "diagonal": AROMA(n_steps=1000, pass_steps=500),
    "factored": AROMA(covariance="factored", n_steps=300, pass_steps=150),
}
FAST = ("oasis", "factored")


@pytest.fixture(autouse=True)
def _fewer_rows_at_once(monkeypatch):
    monkeypatch.setattr("visterm.learners.rows._DENSE_AT_ONCE", AT_ONCE)
    monkeypatch.setattr("visterm.learners.whitening._ROWS", AT_ONCE)


@pytest.fixture(scope="module")
def halves():
    """Float16 images of 30 classes, more than are read at a time."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 30
    X = rng.standard_normal((30, D))[y] + rng.standard_normal((N, D))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float16), y


class ByRows:
    """Images that give arrays of rows, and note how many at most."""

    by_rows = True

    def __init__(self, X, folder):
        self._X, self.shape, self.folder, self.most = X, X.shape, folder, 0

    def __getitem__(self, rows):
        part = self._X[rows]
        self.most = max(self.most, len(part))
        return part


def mapped(folder, X):
    np.save(folder / f"{X.dtype}.npy", X)
    return np.load(folder / f"{X.dtype}.npy", mmap_mode="r")


def fitted(learner, X, y, **options):
    from sklearn.base import clone

    return clone(learner).set_params(random_state=0, validation_fraction=0.2).fit(X, y, **options)


def state_of(learner):
    return {name: value for name, value in vars(learner).items() if name.endswith("_")}


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in LEARNERS]
)
def test_the_same_to_the_last_bit(name, halves, tmp_path):
    X, y = halves
    options = {"world": "open", "learned_weight": None}
    wanted = state_of(fitted(LEARNERS[name], X.astype(np.float32), y, **options))
    assert wanted["learned_weight_"] is not None
    double = mapped(tmp_path, X.astype(np.float64))
    for images in (mapped(tmp_path, X), ByRows(X, tmp_path), double, sp.csr_array(X.astype(np.float32))):
        state = state_of(fitted(LEARNERS[name], images, y, **options))
        assert state.keys() == wanted.keys()
        for key, value in wanted.items():
            np.testing.assert_array_equal(state[key], value, err_msg=key)


@pytest.mark.parametrize("name", ["oasis", "unwhitened", "diagonal"])
def test_few_rows_are_read_at_a_time_and_no_file_is_left(name, halves, tmp_path):
    images = ByRows(halves[0], tmp_path)
    fitted(LEARNERS[name], images, halves[1], world="open", learned_weight=None)
    assert images.most <= AT_ONCE
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_resumes(halves, tmp_path, checkpoint):
    X, y = ByRows(halves[0], tmp_path), halves[1]
    learner = OASIS(n_steps=6000, pass_steps=2000, validation_fraction=0.2, random_state=0).fit(X, y)
    for stop in (1, 3):  # in the search, and in the refit
        np.testing.assert_array_equal(checkpoint(learner, X, y, stop).resume(X, y).W_, learner.W_)


def test_few_entries_are_learned_as_sparse_images_and_blocks_are_rows_in_order(halves, tmp_path):
    X = np.where(np.random.default_rng(1).random((N, D)) < 0.1, halves[0], np.float16(0))
    wanted = OASIS(n_steps=2000, random_state=0).fit(sp.csr_array(X.astype(np.float32)), halves[1])
    np.testing.assert_array_equal(OASIS(n_steps=2000, random_state=0).fit(mapped(tmp_path, X), halves[1]).W_, wanted.W_)
    rows = np.random.default_rng(0).permutation(N)
    taken = np.concatenate([block for _, block in blocks(halves[0], rows)])
    np.testing.assert_array_equal(taken, halves[0][rows].astype(np.float32))


def test_triplets_and_more_steps(halves, tmp_path):
    X, images = halves[0].astype(np.float32), ByRows(halves[0], tmp_path)
    triplets = np.random.default_rng(0).permuted(np.tile(np.arange(60), (3, 1)), axis=1).T
    triplets = triplets[(np.diff(triplets, axis=1) != 0).all(axis=1) & (triplets[:, 0] != triplets[:, 2])]
    learners = [OASIS(random_state=0).fit_triplets(some, triplets) for some in (X, images)]
    np.testing.assert_array_equal(learners[0].W_, learners[1].W_)
    learners = [learner.set_params(n_steps=500).partial_fit(X, halves[1]) for learner in learners]
    np.testing.assert_array_equal(learners[0].W_, learners[1].W_)


@pytest.mark.parametrize("learner", [OASIS(), AROMA()])
def test_bad_images_are_refused_as_arrays_are(learner, halves, tmp_path):
    X, y = halves[0].copy(), halves[1]
    X[N // 2, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        learner.fit(ByRows(X, tmp_path), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        learner.fit(ByRows(halves[0], tmp_path), y[:-1])
    with pytest.raises(ValueError, match="contains NaN"):
        learner.fit(ByRows(halves[0], tmp_path), np.where(y == 3, np.nan, y))
    trained = learner.set_params(n_steps=64).fit(halves[0].astype(np.float32), y)
    with pytest.raises(ValueError, match=f"{D} features"):
        trained.partial_fit(ByRows(halves[0][:, 1:], tmp_path), y)
