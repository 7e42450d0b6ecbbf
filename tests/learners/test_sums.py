"""Products whose rows do not depend on each other."""

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

from visterm.learners.sums import inner_products, one_thread, product, row_means, unit_rows


def numbers(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 33, 5), (101, 131, 700), (8, 64, 512), (5, 0, 3)])
def test_each_entry_is_summed_in_order(shape):
    n, depth, width = shape
    A, B = numbers(n, depth), numbers(depth, width)
    expected = np.zeros((n, width), np.float32)
    for k in range(depth):
        expected += A[:, k, None] * B[k]
    np.testing.assert_array_equal(product(A, B), expected)
    np.testing.assert_array_equal(product(A, np.asfortranarray(B)), expected)
    np.testing.assert_array_equal(product(A[::-1], B)[::-1], expected)


def test_rows_and_sparse_products_stay_what_they_were():
    A, B = sp.random_array((20, 30), density=0.2, rng=0, format="csr"), numbers(30, 4)
    np.testing.assert_array_equal(product(A, B), A @ B)
    np.testing.assert_array_equal(product(B.T, A.T), B.T @ A.T)
    assert sp.issparse(product(A, A.T))
    with pytest.raises(ValueError, match="match"):
        product(A.astype(np.float32), B[:29])
    X = numbers(9, 40)
    X[3] = 0
    exact = X.astype(np.float64)
    np.testing.assert_allclose(inner_products(X, X[::-1]), (exact * exact[::-1]).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(row_means(X), exact.mean(axis=1), atol=1e-7)
    lengths = np.linalg.norm(unit_rows(X), axis=1)
    np.testing.assert_allclose(lengths, np.arange(9) != 3, rtol=1e-6)
    np.testing.assert_allclose(unit_rows(sp.csr_array(X)).toarray(), unit_rows(X), rtol=1e-6)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_rows_are_summed_in_the_order_of_scipy(index):
    A, B = sp.random_array((20, 300), density=0.05, rng=0, format="csr", dtype=np.float32), numbers(300, 40)
    A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    expected = A @ B
    np.testing.assert_array_equal(product(A, B), expected)
    np.testing.assert_array_equal(product(A, np.asfortranarray(B)), expected)
    assert product(A[:0], B).shape == (0, 40)


def test_blas_takes_one_thread_for_a_time():
    def threads():
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        for _ in range(2):  # what is found out about the libraries is kept
            with one_thread():
                assert threads() == {1}
            assert threads() == {2}
