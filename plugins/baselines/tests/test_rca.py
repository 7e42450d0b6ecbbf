import numpy as np
import pytest
import scipy.sparse as sp

from visterm.learners import RCA


def test_hand_worked():
    # Within the classes the first column differs by 1, the second by 3: C = diag(1, 9) / 4, A ~ diag(9, 1)
    X = np.array([[0, 0], [1, 0], [5, 5], [5, 8]], float)
    A = RCA(shrinkage=1e-9).fit(X, ["a", "a", "b", "b"]).A_
    np.testing.assert_allclose(A, np.diag([1.8, 0.2]), rtol=1e-5, atol=1e-6)


def test_classes_of_equal_images_leave_the_identity():
    for seed in range(20):
        X = np.repeat(np.random.default_rng(seed).random((3, 12)), 20, axis=0)
        np.testing.assert_array_equal(RCA().fit(X, np.repeat(list("abc"), 20)).A_, np.eye(12))


@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 1.0])
def test_equals_slow_reference(images, shrinkage):
    X, y = images
    C = sum(np.outer(x - X[y == c].mean(axis=0), x - X[y == c].mean(axis=0)) for x, c in zip(X, y, strict=True)) / 30
    C = (1 - shrinkage) * C + shrinkage * np.trace(C) / 25 * np.eye(25)
    A = np.linalg.inv(C)
    learned = RCA(shrinkage=shrinkage).fit(sp.csr_array(X), y).A_
    np.testing.assert_allclose(learned, A * 25 / np.trace(A), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(learned, learned.T)


def test_partial_fit_is_fit_of_all_and_bad_input_refused(images):
    X, y = images
    whole = RCA().fit(X, y)
    parts = RCA().fit(X[:20], y[:20]).partial_fit(X[20:], y[20:])  # the last brings a new class
    np.testing.assert_allclose(parts.A_, whole.A_, rtol=1e-3, atol=1e-5)
    assert parts.classes_.tolist() == [0, 1, 2]
    for bad in (0, -1, 1.5, "much", np.nan):
        with pytest.raises(ValueError, match="shrinkage must lie above 0"):
            RCA(shrinkage=bad).fit(X, y)
    with pytest.raises(ValueError, match="at least two classes, got 1 class"):
        RCA().fit(X, np.zeros(30))
    with pytest.raises(ValueError, match="one label per image"):
        RCA().fit(X, sp.csr_array(np.eye(3)[y]))
