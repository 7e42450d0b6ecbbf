"""Hand-written LLVM code against the plain loop that it replaces."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from visterm.retrieval.intrinsics import LANES, LINES, sum_row

WIDTH = LINES * LANES


@njit
def vector_sums(indptr, indices, data, queries, sums):
    for r in range(len(sums)):
        sum_row(indices, data, np.int64(indptr[r]), np.int64(indptr[r + 1]), queries, sums, r)


def plain_sums(indptr, indices, data, queries, sums):
    for r in range(len(sums)):
        sums[r] = 0
        for p in range(indptr[r], indptr[r + 1]):
            sums[r] += data[p] * queries[indices[p]]


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_the_plain_loop_gives_the_same_bytes(index_type):
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 200), density=0.1, rng=rng, dtype=np.float32, format="csr")
    queries = rng.standard_normal((200, WIDTH), np.float32)
    sums, expected = np.full((2, 50, WIDTH), np.nan, np.float32)
    arrays = X.indptr.astype(index_type), X.indices.astype(index_type), X.data, queries
    plain_sums(*arrays, expected)
    try:
        vector_sums(*arrays, sums)
    except Exception as error:
        pytest.fail(f"retrieval/intrinsics.py does not compile with Numba {numba.__version__}: {error}")
    assert sums.tobytes() == expected.tobytes(), f"retrieval/intrinsics.py adds wrongly with Numba {numba.__version__}"
