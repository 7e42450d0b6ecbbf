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
