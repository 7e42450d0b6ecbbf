"""LMNN, ITML and NCA of the metric-learn package, in an environment of their own.

Its version 0.7.0 does not run with scikit-learn 1.8 or later, so it gets an earlier one, and vectors as `.npz` files.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from .peers import run_in

REQUIREMENTS = ("metric-learn==0.7.0", "scikit-learn==1.7.2", "numpy==2.4.6", "scipy==1.17.1")

_SCRIPT = """
import json
import time
import warnings

import metric_learn
import numpy as np
import scipy.sparse as sp
from metric_learn import lmnn

warnings.simplefilter("ignore")  # that it was told to stop after so many iterations


def sum_outer_products(X, i, j, weights=None):
    W = sp.coo_array((np.ones(len(i)) if weights is None else weights, (i, j)), (len(X), len(X))).tocsr()
    both = X.T @ (W @ X)
    return X.T @ ((W.sum(axis=0) + W.sum(axis=1))[:, None] * X) - both - both.T


def count_edges(active, others_active, impostors, targets):
    nearer = np.hstack([impostors[0, active], impostors[1, others_active]])
    found, counts = np.unique(nearer, return_counts=True)
    return np.column_stack([found, targets[found]]), counts


if inputs["rewritten"]:
    lmnn._sum_outer_products, lmnn._count_edges = sum_outer_products, count_edges
kind = {"lmnn": metric_learn.LMNN, "itml": metric_learn.ITML_Supervised, "nca": metric_learn.NCA}
learner = kind[str(inputs["method"])](**json.loads(str(inputs["parameters"])))
start = time.process_time()
learner.fit(inputs["X"], inputs["y"])
outputs["seconds"] = time.process_time() - start
outputs["components"] = learner.components_
"""


class Linear:
    """Images mapped by a matrix, ranked by Euclidean distance."""

    def __init__(self, components: np.ndarray) -> None:
        self.components = components.astype(np.float32)

    def transform_query(self, Q: Any) -> np.ndarray:
        Z = np.asarray(Q @ self.components.T)
        return np.hstack([2 * Z, np.ones((len(Z), 1), np.float32)])

    def transform(self, X: Any, y: Any = None) -> np.ndarray:
        Z = np.asarray(X @ self.components.T)
        return np.hstack([Z, -(Z * Z).sum(axis=1, keepdims=True)])


def learn_metric(
    method: str,
    X: Any,
    y: np.ndarray,
    *,
    n_components: int | None = None,
    scale: float = 1.0,
    timeout: float = 600,
    threads: int = 2,
    rewritten: bool = False,
    **parameters: Any,
) -> tuple[np.ndarray, float]:
    """Linear map under which Euclidean distances are those of the metric learned.

    Parameters
    ----------
    method : {"lmnn", "itml", "nca"}
    X : dense or CSR of shape (n, d)
    y : array of shape (n,)
    n_components : int, optional
        Learn from so many principal components of X.
    scale : float
        Multiplies X: a margin or bound of the method counts for less.
    timeout : float
        Seconds; `benchmarks.peers.PeerError` beyond.
    threads : int
    rewritten : bool
        Compute the sums over pairs of LMNN by a sparse matrix: the same but for rounding, in half the time. Not where
        time is measured.
    **parameters
        Of the package's class.

    Returns
    -------
    components : float64 array of shape (n_components, d) or (d, d)
    seconds : float
        Of processor time that its `fit` took, all threads together.
    """
    dense = scale * np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float64)
    axes = np.eye(dense.shape[1])
    if n_components is not None:
        axes = PCA(n_components, random_state=0).fit(dense).components_
    inputs = {
        "method": np.array(method),
        "parameters": np.array(json.dumps(parameters)),
        "rewritten": np.array(rewritten),
        "X": dense @ axes.T,
        "y": np.unique(y, return_inverse=True)[1],
    }
    found = run_in("metric-learn", REQUIREMENTS, _SCRIPT, inputs, timeout=timeout, threads=threads)
    return found["components"] @ axes, float(found["seconds"])
