"""The codebook: k-means over block descriptors.

A block becomes the number of its nearest centre, a *visterm* (Chechik et al., OASIS, JMLR 2010, §3). With 10,000
centres this search takes most of the time of extraction; see `NearestCenters`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numba
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .nearest import NearestCenters, squared_distance

MOST_SPREAD = 256  # clusters whose first centres are chosen by k-means++, which costs a pass over the points each

# ---------------------------------------------------------------------------------------------------------------
# k-means


@numba.njit(cache=True, nogil=True)
def _means(
    points: np.ndarray, weights: np.ndarray, labels: np.ndarray, n_features: int, sums: np.ndarray, totals: np.ndarray
) -> None:
    """Add every point to the sum of its cluster, in the order of the points and in double precision."""
    sums[:] = 0
    totals[:] = 0
    for i in range(points.shape[0]):
        c = labels[i]
        w = weights[i]
        totals[c] += w
        for j in range(n_features):
            sums[c, j] += w * points[i, j]


@numba.njit(cache=True, nogil=True)
def _spread(points: np.ndarray, weights: np.ndarray, shares: np.ndarray, chosen: np.ndarray) -> None:
    """Choose first centres by k-means++: each at random in proportion to its squared distance from those before it.

    shares : random numbers in [0, 1), one for each centre; chosen : filled with the numbers of the points.
    """
    n = points.shape[0]
    distances = np.full(n, np.float32(np.inf))
    total = weights.sum()
    for c in range(chosen.size):
        threshold = shares[c] * total
        running = 0.0
        pick = -1
        for i in range(n):
            mass = weights[i] * (distances[i] if c > 0 else 1.0)
            if mass > 0:
                running += mass
                pick = i
                if running > threshold:
                    break
        chosen[c] = pick
        total = 0.0
        for i in range(n):
            distances[i] = min(distances[i], squared_distance(points[i], points[pick]))
            total += weights[i] * distances[i]


def kmeans(
    points: np.ndarray,
    n_clusters: int,
    *,
    weights: Any = None,
    max_iter: int = 25,
    tol: float = 1e-3,
    random_state: Any = None,
    n_jobs: int | None = None,
) -> np.ndarray:
    """Return the centres of k-means by Lloyd's algorithm with exact assignment.

    Parameters
    ----------
    points : ndarray of float32, (n, d)
        Distinct rows.
    n_clusters : int
        At most n.
    weights : array-like of float, (n,), optional
        How often each point occurs; once by default.
    max_iter : int
        Maximum number of rounds.
    tol : float
        Stop when a round lowers the sum of squared distances by less than this share.
    random_state : int, RandomState or None
        Chooses the first centres among the points.
    n_jobs : int or None
        Threads. The result does not depend on it.

    Returns
    -------
    ndarray of float32, (n_clusters, d)

    Notes
    -----
    - Up to 256 first centres are chosen by k-means++, more of them at random among the points, which is as good for a
      codebook and saves a pass over the points for each.
    - An empty cluster restarts at the point that is farthest from its own centre.
    """
    points = np.ascontiguousarray(points, dtype=np.float32)
    n_points, n_features = points.shape
    weights = np.ones(n_points) if weights is None else np.asarray(weights, dtype=np.float64)
    rng = check_random_state(random_state)
    chosen = rng.choice(n_points, n_clusters, replace=False)
    if n_clusters <= MOST_SPREAD:
        _spread(points, weights, rng.uniform(size=n_clusters), chosen)
    centers = points[np.sort(chosen)]
    sums = np.empty((n_clusters, n_features))
    totals = np.empty(n_clusters)
    search: NearestCenters | None = None
    projected: tuple[np.ndarray, np.ndarray] | None = None
    before = np.inf
    for _ in range(max_iter):
        search = NearestCenters(centers, like=search, axes_of=points)
        if projected is None:
            projected = search.project(points)
        labels, distances = search.search(*projected, n_jobs)
        _means(points, weights, labels, n_features, sums, totals)
        empty = np.flatnonzero(totals == 0)
        centers = (sums / np.maximum(totals, 1e-30)[:, None]).astype(np.float32)
        if len(empty):
            centers[empty] = points[np.argsort(-distances, kind="stable")[: len(empty)]]
        inertia = float(np.sum(weights * distances))
        if not len(empty) and inertia >= before * (1 - tol):
            break
        before = inertia
    return centers


class Codebook(BaseEstimator):
    """k-means codebook of block descriptors.

    Parameters
    ----------
    n_visterms : int
        Number of centres; 1,000 and 10,000 in the papers. Fewer distinct descriptors give as many centres.
    max_iter : int
        Maximum number of rounds of k-means.
    tol : float
        Stop when a round lowers the sum of squared distances by less than this share.
    random_state : int, RandomState or None
        Chooses the first centres.
    n_jobs : int or None
        Threads of `fit`. The result does not depend on it.

    Attributes
    ----------
    centers_ : ndarray of float32, (n_centers, n_features)

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large scale online learning of image similarity through ranking.
    JMLR 11, 2010, §3.

    Examples
    --------
    >>> codebook = Codebook(n_visterms=2, random_state=0).fit([[0, 0], [0, 1], [9, 0], [9, 1]])
    >>> a, b, c = codebook.predict([[1, 1], [8, 0], [10, 1]])
    >>> bool(a != b), bool(b == c)
    (True, True)
    """

    def __init__(
        self,
        *,
        n_visterms: int = 10_000,
        max_iter: int = 25,
        tol: float = 1e-3,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_visterms = n_visterms
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, descriptors: Any, y: Any = None) -> Self:
        """Learn the centres.

        Parameters
        ----------
        descriptors : array-like of float, (n, n_features)
            Of blocks of training images.
        y : None
            Ignored.

        Returns
        -------
        Codebook
            Itself.

        Raises
        ------
        ValueError
            No descriptors, or none that are finite.
        """
        descriptors = _as_points(descriptors)
        if self.n_visterms < 1:
            raise ValueError(f"n_visterms must be at least 1, not {self.n_visterms!r}")
        # Flat blocks repeat: each distinct descriptor is searched for once and weighs as often as it occurs.
        rows = descriptors.view(np.dtype((np.void, descriptors.itemsize * descriptors.shape[1]))).ravel()
        _, first, weights = np.unique(rows, return_index=True, return_counts=True)
        order = np.argsort(first)  # back to the order of the descriptors
        centers = kmeans(
            descriptors[first[order]], min(self.n_visterms, len(first)), weights=weights[order], max_iter=self.max_iter,
            tol=self.tol, random_state=self.random_state, n_jobs=self.n_jobs,
        )  # fmt: skip
        return self.set_centers(centers)

    def set_centers(self, centers: Any) -> Self:
        """Set the centres (n_visterms, n_features), e.g. stored or renumbered ones, and return itself."""
        self.centers_ = _as_points(centers)
        self.__dict__.pop("_search", None)
        return self

    @cached_property
    def _search(self) -> NearestCenters:
        """The search for the nearest centre, at first use: training reads the weights of an extractor only."""
        return NearestCenters(self.centers_)

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "centers_"):
            self._search  # noqa: B018  # made once here, not by each worker that gets a copy
        return super().__getstate__()

    def predict(self, descriptors: Any) -> np.ndarray:
        """Return the number of the nearest centre of every descriptor.

        Parameters
        ----------
        descriptors : array-like of float, (n, n_features)

        Returns
        -------
        ndarray of int32, (n,)
            The exactly nearest centre by squared Euclidean distance in single precision; of equally near ones the
            lowest. The answer for a descriptor does not depend on the others.

        Raises
        ------
        ValueError
            Another number of features than the centres'.
        """
        check_is_fitted(self)
        descriptors = _as_points(descriptors)
        if descriptors.shape[1] != self.centers_.shape[1]:
            raise ValueError(f"descriptors have {descriptors.shape[1]} features, the codebook {self.centers_.shape[1]}")
        return self._search.search(*self._search.project(descriptors))[0]


def _as_points(points: Any) -> np.ndarray:
    points = np.ascontiguousarray(points, dtype=np.float32)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"descriptors must be an array of shape (n, n_features), not {points.shape}")
    if not np.abs(points).max(initial=0) < 1e12:  # also catches NaN; the kernels mark padding by 1e30
        raise ValueError("descriptors must be finite numbers of moderate size")
    return points
