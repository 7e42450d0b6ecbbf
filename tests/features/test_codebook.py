import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError

from visterm.features.codebook import Codebook, OtherCenters, kmeans


def histograms(n, n_features=79, seed=0):
    """Random points that look like descriptors: square roots of sparse histograms."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(0.3, size=(n, n_features)) @ np.eye(n_features)
    weights *= rng.gamma(0.3, size=(8, n_features))[rng.integers(0, 8, n)] + 1e-3
    return np.sqrt(weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def distances(points, centers):
    """Squared, in double precision: (n, k)."""
    points, centers = points.astype(np.float64), centers.astype(np.float64)
    return np.array([np.square(centers - point).sum(axis=1) for point in points])


def assert_nearest(codebook, points):
    """Every answer is the nearest centre, but for ties in single precision."""
    exact = distances(points, codebook.centers_)
    chosen = exact[np.arange(len(points)), codebook.predict(points)]
    assert (chosen <= exact.min(axis=1) * (1 + 1e-5) + 1e-12).all()
    clear = np.sort(exact, axis=1)
    clear = clear[:, 1] > clear[:, 0] * (1 + 1e-4) + 1e-12 if exact.shape[1] > 1 else np.ones(len(exact), bool)
    np.testing.assert_array_equal(codebook.predict(points)[clear], exact.argmin(axis=1)[clear])


@pytest.mark.parametrize("n_features", [1, 15, 16, 17, 200])
def test_any_number_of_features_will_do(n_features):
    rng = np.random.default_rng(n_features)
    codebook = Codebook().set_centers(rng.normal(size=(400, n_features)))
    assert_nearest(codebook, rng.normal(size=(200, n_features)).astype(np.float32))


@given(st.integers(1, 600), st.integers(1, 90), st.floats(-6, 6), st.floats(0, 1000), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_the_nearest_centre_is_found_at_any_scale_and_far_from_the_origin(k, d, exponent, shift, seed):
    rng = np.random.default_rng(seed)
    scale = 10.0**exponent
    codebook = Codebook().set_centers((rng.normal(size=(k, d)) + shift) * scale)
    points = ((rng.normal(size=(50, d)) + shift) * scale).astype(np.float32)
    exact = distances(points, codebook.centers_)
    chosen = exact[np.arange(50), codebook.predict(points)]
    assert (chosen <= exact.min(axis=1) * (1 + 1e-5)).all()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_the_lowest_of_equally_near_centres_wins(seed):
    rng = np.random.default_rng(seed)
    centers = np.repeat(histograms(60, seed=seed % 1000), 5, axis=0)[rng.permutation(300)]
    codebook = Codebook().set_centers(centers)
    points = centers[rng.integers(0, 300, 40)]
    lowest = [np.flatnonzero((centers == point).all(axis=1))[0] for point in points]
    np.testing.assert_array_equal(codebook.predict(points), lowest)


@pytest.mark.parametrize("n_centers", [1, 2, 256, 257, 1500])
def test_the_nearest_centre_is_found_whatever_the_batch(n_centers):
    codebook = Codebook().set_centers(histograms(n_centers, seed=1))
    points = histograms(100, seed=2)
    assert_nearest(codebook, points)
    whole = codebook.predict(points)
    one_by_one = np.concatenate([codebook.predict(points[i : i + 1]) for i in range(len(points))])
    shuffled = np.random.default_rng(0).permutation(len(points))
    assert whole.tobytes() == one_by_one.tobytes()
    assert whole[shuffled].tobytes() == codebook.predict(points[shuffled]).tobytes()
    assert codebook.predict(points[:0]).shape == (0,)
    assert whole.dtype == codebook.predict(points[:0]).dtype == np.int32


def test_kmeans_is_lloyds_and_about_as_good_as_scikit_learns():
    points = histograms(1500)
    ours = kmeans(points, 50, random_state=0)
    theirs = KMeans(50, init="random", n_init=1, random_state=0).fit(points)
    assert distances(points, ours).min(axis=1).sum() <= theirs.inertia_ * 1.03
    points = histograms(1000)
    one, two = (kmeans(points, 7, max_iter=rounds, random_state=0) for rounds in (1, 2))
    labels = distances(points, one).argmin(axis=1)
    np.testing.assert_allclose(two, [points[labels == c].mean(axis=0) for c in range(7)], rtol=1e-5)
    points = histograms(300)
    weights = np.random.default_rng(3).integers(1, 5, 300)
    one, two = (kmeans(points, 5, weights=weights, max_iter=rounds, random_state=0) for rounds in (1, 2))
    labels = distances(points, one).argmin(axis=1)
    expected = [np.average(points[labels == c], axis=0, weights=weights[labels == c]) for c in range(5)]
    np.testing.assert_allclose(two, expected, rtol=1e-5)


def test_first_centres_are_spread_and_keep_a_point():
    rng = np.random.default_rng(0)
    points = (np.repeat(np.arange(20), 30)[:, None] * 100 + rng.normal(size=(600, 2))).astype(np.float32)
    first_centres = kmeans(points, 20, random_state=0, max_iter=1)
    np.testing.assert_array_equal(np.sort(first_centres[:, 0] / 100).round(), np.arange(20))
    rng = np.random.default_rng(0)
    points = np.concatenate([np.zeros((500, 3)), rng.normal(0, 10, (300, 3))]).astype(np.float32)
    centers = kmeans(points, 300, random_state=0, max_iter=100)
    labels = distances(points, centers).argmin(axis=1)
    assert len(np.unique(labels)) == 300
    points = np.repeat(histograms(30), 10, axis=0)
    codebook = Codebook(n_visterms=31).fit(points)
    assert len(codebook.centers_) == len(np.unique(codebook.predict(points))) == 30


def test_the_seed_decides_and_the_number_of_threads_does_not():
    points = histograms(1000)
    books = [Codebook(n_visterms=300, random_state=5, n_jobs=n).fit(points).centers_ for n in (1, 3, None)]
    assert len({book.tobytes() for book in books}) == 1


def test_what_is_refused_and_scikit_learn_conventions():
    codebook = Codebook().set_centers(histograms(5))
    for bad in (np.nan, np.inf, 1e20):
        points = histograms(5)
        points[2, 3] = bad
        for method in (codebook.predict, Codebook().set_centers):
            with pytest.raises(ValueError, match="finite"):
                method(points)
    with pytest.raises(ValueError, match="have 3 features, the codebook 79"):
        codebook.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="shape"):
        codebook.predict(np.zeros(79))
    codebook = Codebook(n_visterms=3, tol=0.1, random_state=2)
    assert clone(codebook).get_params() == codebook.get_params()
    with pytest.raises(NotFittedError):
        codebook.predict(histograms(3))
    with pytest.raises(ValueError, match="n_visterms"):
        Codebook(n_visterms=0).fit(histograms(3))


def test_the_search_is_made_at_first_use_and_copied_with_the_codebook():
    codebook = Codebook().set_centers([[0.0, 0.0], [9.0, 9.0]])
    assert "_search" not in vars(codebook)
    copy = pickle.loads(pickle.dumps(codebook))
    assert "_search" in vars(copy)
    assert copy.predict([[8.0, 8.0]]) == codebook.predict([[8.0, 8.0]]) == [1]
    assert codebook.set_centers([[9.0, 9.0], [0.0, 0.0]]).predict([[8.0, 8.0]]) == [0]


def test_centres_without_the_blocks_of_some_images():
    """Beside the slow way: each centre is the mean of the others' blocks, and is gone where they have none."""
    points, own = histograms(90), np.arange(30, 60)
    codebook = Codebook(n_visterms=25, random_state=0).fit(points)
    labels, others = codebook.predict(points), np.setdiff1d(np.arange(90), own)
    centers = np.full((25, 79), 1e6)
    for c in range(25):
        rows = others[labels[others] == c]
        if len(rows):
            centers[c] = points[rows].astype(float).mean(axis=0)
    assert (centers[labels[own]] > 1e5).any()  # some centres had blocks of these images alone
    expected = ((points[own, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    nearest = OtherCenters(codebook, points[others]).predict(points[own])
    assert nearest.dtype == np.int32
    np.testing.assert_array_equal(nearest, expected)
    assert (nearest != labels[own]).any()
