"""The codebook: k-means over block descriptors.

A block becomes the number of its nearest centre, a *visterm* (Chechik et al., OASIS, JMLR 2010, §3). With 10,000
centres this search takes most of the time of extraction; see `NearestCenters`.

The first centres are chosen by a hash of each point, not by its position: one point more or less changes at most one of
them, where draws by position would change all of them and with them the whole codebook.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np

from visterm.compiled import njit, while_it_pays

from . import plain
from .nearest import NearestCenters, squared_distance
from .parameters import Parameters, check_fitted, check_random_state

MOST_SPREAD = 256  # clusters whose first centres are chosen by k-means++, which costs a pass over the points each

# ---------------------------------------------------------------------------------------------------------------
# k-means


@njit(cache=True, nogil=True)
def _means(
    points: np.ndarray,
    weights: np.ndarray,
    labels: np.ndarray,
    distances: np.ndarray,
    n_features: int,
    sums: np.ndarray,
    totals: np.ndarray,
) -> float:
    """Add every point to the sum of its cluster; return the sum of all squared distances.

    In the order of the points and in double precision.
    """
    sums[:] = 0
    totals[:] = 0
    inertia = 0.0
    for i in range(points.shape[0]):
        c = labels[i]
        w = weights[i]
        totals[c] += w
        inertia += w * distances[i]
        for j in range(n_features):
            sums[c, j] += w * points[i, j]
    return inertia


@njit(cache=True, nogil=True)
def _mix(state: np.uint64) -> np.uint64:
    """Scramble 64 bits (the finalizer of SplitMix64)."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@njit(cache=True, nogil=True)
def _hashes(bits: np.ndarray, seed: np.uint64) -> np.ndarray:
    """Hash each row of `bits` (n, d) of uint32, with a seed."""
    result = np.empty(bits.shape[0], dtype=np.uint64)
    start = _mix(seed + np.uint64(0x9E3779B97F4A7C15))
    for i in range(bits.shape[0]):
        state = start
        for j in range(bits.shape[1]):
            state = _mix(state ^ np.uint64(bits[i, j])) + np.uint64(0x9E3779B97F4A7C15)
        result[i] = state
    return result


@njit(cache=True, nogil=True)
def _waiting_time(bits: np.uint64) -> float:
    """Turn random bits into -log u of a u in (0, 1), by operations that every processor rounds alike."""
    mantissa, exponent = float(bits >> np.uint64(11)) + 0.5, -53
    while mantissa > 1.0:
        mantissa *= 0.5
        exponent += 1
    # 2 atanh(s) = log((1 + s) / (1 - s)), for a mantissa in (1/2, 1].
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square, term, total = s * s, s, 0.0
    for k in range(1, 34, 2):
        total += term / k
        term *= square
    return -(2.0 * total + exponent * 0.6931471805599453)


@njit(cache=True, nogil=True)
def _spread(points: np.ndarray, weights: np.ndarray, hashes: np.ndarray, chosen: np.ndarray) -> None:
    """Choose first centres by k-means++: each at random in proportion to its squared distance from those before it.

    Each point waits for a time that its hash draws, shorter in proportion to its chance; the first one is chosen.
    hashes : (n,) of uint64; chosen : filled with the numbers of the points.
    """
    n = points.shape[0]
    distances = np.full(n, np.inf)
    for c in range(chosen.size):
        pick, shortest = 0, np.inf
        for i in range(n):
            mass = weights[i] * (distances[i] if c > 0 else 1.0)
            if mass > 0:
                wait = _waiting_time(_mix(hashes[i] + np.uint64(c) * np.uint64(0xD1B54A32D192ED03))) / mass
                if wait < shortest:
                    pick, shortest = i, wait
        chosen[c] = pick
        for i in range(n):
            distances[i] = min(distances[i], squared_distance(points[i], points[pick]))


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
    """Return the centres of k-means, float32, by Lloyd's algorithm with exact assignment: the same on every processor.

    `points`, float32 (n, d), are distinct, at least `n_clusters`; `weights` are how often each occurs, once by default.
    Other parameters are as in `Codebook`. An empty cluster restarts at the point that is farthest from its own centre.

    Up to 256 first centres are chosen by k-means++, more of them at random among the points, which is as good for a
    codebook and saves a pass over the points for each. The random order comes from a hash of each point: with more than
    256 first centres, one more point replaces at most one of them.
    """
    points = np.ascontiguousarray(points, dtype=np.float32)
    n_points, n_features = points.shape
    weights = np.ones(n_points) if weights is None else np.asarray(weights, dtype=np.float64)
    rng = check_random_state(random_state)
    hashes = _hashes(points.view(np.uint32), np.uint64(rng.randint(2**31 - 1)))
    chosen = np.argsort(hashes, kind="stable")[:n_clusters]
    if n_clusters <= MOST_SPREAD:
        _spread(points, weights, hashes, chosen)
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
        inertia = _means(points, weights, labels, distances, n_features, sums, totals)
        empty = np.flatnonzero(totals == 0)
        centers = (sums / np.maximum(totals, 1e-30)[:, None]).astype(np.float32)
        if len(empty):
            centers[empty] = points[np.argsort(-distances, kind="stable")[: len(empty)]]
        if not len(empty) and inertia >= before * (1 - tol):
            break
        before = inertia
    return centers


class Codebook(Parameters):
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
        """The search for the nearest centre, built at first use: training reads only the weights of an extractor."""
        return NearestCenters(self.centers_)

    def __getstate__(self) -> dict[str, Any]:
        if hasattr(self, "centers_"):
            self._search  # noqa: B018  # built once here, not by each worker that gets a copy
        return dict(vars(self))

    def predict(self, descriptors: Any) -> np.ndarray:
        """Return the number of the nearest centre of every descriptor.

        Parameters
        ----------
        descriptors : array-like of float, (n, n_features)

        Returns
        -------
        ndarray of int32, (n,)
            The exactly nearest centre by `squared_distance`; of equally near ones the lowest. The answer for a
            descriptor depends neither on the others nor on the processor.

        Raises
        ------
        ValueError
            Another number of features than the centres'.
        """
        check_fitted(self, "centers_")
        descriptors = _as_points(descriptors)
        if descriptors.shape[1] != self.centers_.shape[1]:
            raise ValueError(f"descriptors have {descriptors.shape[1]} features, the codebook {self.centers_.shape[1]}")
        numbers = while_it_pays(plain.nearest, self.centers_, descriptors)
        return self._search.search(*self._search.project(descriptors))[0] if numbers is NotImplemented else numbers


class OtherCenters:
    """The codebook without some training images, used to measure those images as if they were new.

    Half of 10,000 centres may hold blocks of one training image alone. Each centre moves to the mean of the other
    images' blocks, `descriptors` of shape (n, n_features), at least one; a centre without any is dropped.
    """

    def __init__(self, codebook: Codebook, descriptors: np.ndarray) -> None:
        self._numbers, labels, sizes = np.unique(codebook.predict(descriptors), return_inverse=True, return_counts=True)
        sums = np.zeros((len(sizes), descriptors.shape[1]))
        np.add.at(sums, labels, descriptors)
        self._codebook = Codebook().set_centers(sums / sizes[:, None])

    def predict(self, descriptors: np.ndarray) -> np.ndarray:
        """Return the number of the nearest of these centres, as the codebook numbers it; see `Codebook.predict`."""
        return self._numbers[self._codebook.predict(descriptors)].astype(np.int32)


def _as_points(points: Any) -> np.ndarray:
    points = np.ascontiguousarray(points, dtype=np.float32)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"descriptors must be an array of shape (n, n_features), not {points.shape}")
    if not np.abs(points).max(initial=0) < 1e12:  # also catches NaN; the kernels mark padding by 1e30
        raise ValueError("descriptors must be finite numbers of moderate size")
    return points
