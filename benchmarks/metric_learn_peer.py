"""LMNN, ITML and NCA of the metric-learn package, in an environment of their own.

Its version 0.7.0 does not run with scikit-learn 1.8 or later, so it gets an earlier one, and vectors as `.npz` files.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from .peers import run_in

REQUIREMENTS = ("metric-learn==0.7.0", "scikit-learn==1.7.2", "numpy==2.4.6", "scipy==1.17.1")


def lmnn_loss_grad(
    self: Any, X: np.ndarray, L: np.ndarray, dfG: np.ndarray, k: int, reg: float, targets: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, float, int]:
    """In place of LMNN's `_loss_grad`: gradient, objective and number of active triplets at the map L.

    The distances of all pairs at once, and one product for the sum of all outer products. `dfG` is the sum over the
    pairs of an image and one of its k `targets`, (n, k); `reg` weighs it against the impostors.
    """
    Z = X @ L.T
    squares = (Z * Z).sum(axis=1)
    distances = squares[:, None] + squares - 2 * Z @ Z.T
    distances[y[:, None] == y] = np.inf
    weights = np.zeros(distances.shape)  # of the outer products of the pairs' differences
    n_active = 0
    for target in targets.T:
        impostors = distances < 1 + ((Z - Z[target]) ** 2).sum(axis=1)[:, None]
        counts = impostors.sum(axis=1)
        n_active += counts.sum()
        weights -= impostors
        weights[np.arange(len(X)), target] += counts
    weights += weights.T.copy()
    df = X.T @ (weights.sum(axis=1)[:, None] * X - weights @ X)
    G = L @ (dfG * reg + df * (1 - reg))
    return 2 * G, n_active * (1 - reg) + (G * L).sum(), n_active


_SCRIPT = f"""
import json
import time
import warnings
from typing import Any

import metric_learn
import numpy as np

warnings.simplefilter("ignore")  # that it was told to stop after so many iterations


{inspect.getsource(lmnn_loss_grad)}

if inputs["rewritten"]:
    metric_learn.LMNN._loss_grad = lmnn_loss_grad
kind = {{"lmnn": metric_learn.LMNN, "itml": metric_learn.ITML_Supervised, "nca": metric_learn.NCA}}
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
    """Linear map under which Euclidean distances are those of the metric learned, and the seconds of its fit.

    The map is float64 (n_components, d) or (d, d); the seconds are of processor time, all threads together. `method` is
    "lmnn", "itml" or "nca", `n_components` learns from so many principal components of X, and `scale` multiplies X: a
    margin or bound of the method counts for less. After `timeout` seconds: `benchmarks.peers.PeerError`. `rewritten`
    takes `lmnn_loss_grad` in place of LMNN's own: the same but for rounding, and faster; not where time is measured.
    Other parameters are those of the package's class.
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
