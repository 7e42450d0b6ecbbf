"""Learning from triplets that somebody gives, in place of triplets drawn from labels."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .options import Callback
from .rows import readonly

_PASSES = 10  # through the triplets, where `n_steps` is None


class GivenTriplets:
    """Triplets in the order given, again and again; draws as `TripletSampler` does.

    They are rows of X, of which there are `n_images`: query, relevant image, irrelevant image, int (n, 3). `groups`,
    int32 (n_images,), are equal for images that triplets join as query and relevant image, directly or through others:
    what stands for classes. ValueError for no triplets, or one that has no such rows or names an image twice.
    """

    def __init__(self, triplets: Any, n_images: int) -> None:
        triplets = np.asarray(triplets)
        if triplets.ndim != 2 or triplets.shape[1] != 3 or triplets.dtype.kind not in "iu":
            raise ValueError(
                "triplets must be integers of shape (n, 3): query, relevant, irrelevant; "
                f"got {triplets.dtype} of shape {triplets.shape}"
            )
        if not len(triplets):
            raise ValueError("triplets must hold at least one triplet")
        wrong = np.flatnonzero(((triplets < 0) | (triplets >= n_images)).any(axis=1))
        if len(wrong):
            raise ValueError(f"triplet {wrong[0]} is {triplets[wrong[0]].tolist()}; rows of X are 0 to {n_images - 1}")
        a, b, c = triplets.T
        same = (a == b) | (a == c) | (b == c)
        if same.any():
            first = int(np.argmax(same))
            raise ValueError(f"triplet {first} is {triplets[first].tolist()}: it names an image twice")
        self._triplets = readonly(triplets.astype(np.int32))
        joined = np.ones(len(triplets), bool), (a, b)
        graph = sp.coo_array(joined, shape=(n_images, n_images))
        self.groups: np.ndarray = connected_components(graph, directed=False)[1]

    def __len__(self) -> int:
        return len(self._triplets)

    def draw_pass(
        self,
        seed: tuple[int, ...],
        first: int,
        n: int,
        *,
        pairs_per_query: int = 1,
        shard: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Return the triplets `first` to `first + n` of a training, int32 of shape (n, 3).

        With `shard` (k, n_shards) they are of the k-th of so many parts of the triplets.
        """
        triplets = self._triplets if shard is None else self._triplets[shard[0] :: shard[1]]
        return triplets[np.arange(first, first + n) % len(triplets)]


class FitsTriplets:
    """Adds `fit_triplets` to a learner whose steps are triplets."""

    learns_triplets = True
    validation_fraction: float | None

    def fit_triplets(
        self, X: Any, triplets: Any, *, callback: Callback | None = None, progress: Callback | None = None
    ) -> Self:
        """Learn from scratch from triplets, without labels.

        Parameters
        ----------
        X : CSR or dense of shape (n, d)
        triplets : array of int, (n_triplets, 3)
            Rows of X: a query, an image that is relevant to it, and one that is not, or less so.
        callback, progress : callable, optional
            As of `fit`.

        Raises
        ------
        ValueError
            Parameters out of range; NaN or infinity; triplets that are no rows of X, or name an image twice; a
            `validation_fraction`, as triplets do not say which images to hold out.

        Notes
        -----
        Triplets are learned in the order given, and from the first again when all are learned: shuffle them if they are
        sorted. Where `n_steps` is None, as by default in OASIS, each is learned ten times. Given the triplets that
        `fit` draws, this gives the same W. Dense vectors are whitened as by `fit`; images that triplets join, as query
        and relevant image, stand for a class.
        """
        if self.validation_fraction is not None:
            raise ValueError("triplets do not say which images to hold out: use validation_fraction=None")
        y = GivenTriplets(triplets, X.shape[0] if hasattr(X, "shape") else len(X))
        return self.fit(X, y, callback=callback, progress=progress)  # type: ignore[attr-defined]  # of the learner that has this base


def steps_through(triplets: GivenTriplets) -> int:
    """Steps of a training by default."""
    return _PASSES * len(triplets)
