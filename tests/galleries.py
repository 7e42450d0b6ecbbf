"""Similarities and galleries that tests of several indexes share."""

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import normalize

D = 1500


class Bilinear:
    """The identity and something learned, as OASIS has it; without W, the plainest similarity."""

    def __init__(self, W=None):
        self.W = W

    def transform(self, X):
        return X

    def transform_query(self, Q):
        return Q if self.W is None else np.asarray(Q @ self.W)


def bilinear():
    """An identity with a little learned beside it."""
    low = np.random.default_rng(0).standard_normal((2, D, 10)) / 20
    return Bilinear((np.eye(D) + low[0] @ low[1].T).astype(np.float32))


def photographs(rng, n):
    """CSR unit rows, some 20 entries each; some visterms are frequent."""
    columns = np.sort((D * rng.random((n, 20)) ** 2).astype(np.int32), axis=1)
    X = sp.csr_matrix((rng.random(20 * n, np.float32), columns.ravel(), np.arange(n + 1) * 20), shape=(n, D))
    X.sum_duplicates()
    return normalize(X)


def assert_same(ranking, expected):
    np.testing.assert_array_equal(ranking.indices, expected.indices)
    np.testing.assert_array_equal(ranking.scores, expected.scores)
