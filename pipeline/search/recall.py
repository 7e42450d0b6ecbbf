"""How many of the nearest images an approximate index finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from visterm.retrieval import ExactIndex

_K, _N_QUERIES = 10, 100


class Recall(TypedDict):
    """The share of the `k` nearest images that an index finds, over so many queries among so many images."""

    recall: float
    k: int
    queries: int
    images: int


def measure_recall(index: ExactIndex, exact: ExactIndex, X: Any) -> Recall:
    """Compare an index with the exact one, with rows of the gallery X as queries."""
    import numpy as np

    n_images = X.shape[0]
    queries = np.random.default_rng(0).choice(n_images, min(_N_QUERIES, n_images), replace=False)
    k = max(1, min(_K, n_images - 1))
    returned, nearest = (each.search(X[queries], k, exclude=queries).indices for each in (index, exact))
    n_common = sum(len(np.intersect1d(*both)) for both in zip(returned, nearest, strict=True))
    return {"recall": round(n_common / nearest.size, 4), "k": k, "queries": len(queries), "images": n_images}
