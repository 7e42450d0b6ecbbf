"""Made-up data and page lookups that the tests of several experiments share."""

import zlib

import numpy as np
import scipy.sparse as sp


def noise(*key):
    """A small number, the same for the same key."""
    return np.random.default_rng(zlib.crc32(repr(key).encode())).normal(0, 0.001)


def unit_rows(X):
    return sp.csr_array((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))


def finding(page, words):
    """The one finding of a page with these words."""
    (one,) = (finding for finding in page.findings if words in finding.paper)
    return one


def broken(page, length=20):
    """Beginnings of the findings that must hold and do not."""
    return [finding.paper[:length] for finding in page.findings if finding.must and not finding.agrees]


def synthetic_fold(classes, d, fold):
    """Four classes of 20 + 12 sparse unit rows."""
    rng = np.random.default_rng(fold)
    y = np.repeat(list("abcd"), 32)
    own = np.arange(40) // 10 == np.repeat(range(4), 32)[:, None]
    X = unit_rows(rng.random((len(y), 40)) * (rng.random((len(y), 40)) < np.where(own, 0.5, 0.25)))
    train = np.tile(np.arange(32) < 20, 4)
    return X[train], y[train], X[~train], y[~train]
