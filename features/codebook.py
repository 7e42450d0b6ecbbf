"""The codebook: k-means over block descriptors, and the exactly nearest of its centres for every descriptor.

A block becomes the number of its nearest centre, a *visterm* (Chechik et al., OASIS, JMLR 2010, §3). With 10,000
centres the search is what extraction costs, so most centres are ruled out by a lower bound. On 16 orthonormal axes
(the principal axes of the data) a point x, seen from their mean, has coordinates h_x and a remainder of length r_x,
and likewise a centre c; by Cauchy and Schwarz

    |x - c|^2 >= |h_x - h_c|^2 + (r_x - r_c)^2 = |x|^2 + |c|^2 - 2 (h_x . h_c + r_x r_c).

The right-hand side is an inner product of 17 numbers, evaluated for all centres; only centres whose bound, less a
margin for rounding, does not exceed the best distance so far are compared in full. The distances that decide are
summed in an order that depends on nothing but the two vectors, and the lowest number wins a tie, so an answer does not
depend on the batch, the number of threads, or the bounds.
"""

from __future__ import annotations

import joblib
import numba
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

N_AXES = 16  # written out in `_bound_tile`
TILE = 256  # centres whose bounds are evaluated together: 18 float32 each, so that a tile stays in the L1 cache
LANES = 32  # the bounds of a tile are summed up by 32 minima, each over 8 centres
ROWS = 16  # points that pass over a tile while it is in cache
REASSOC = {"reassoc", "contract", "nsz", "arcp"}

# ---------------------------------------------------------------------------------------------------------------
# Kernels


@numba.njit(cache=True, nogil=True, fastmath=REASSOC)
def _squared_distance(a, b):
    total = np.float32(0)
    for j in range(a.size):
        difference = a[j] - b[j]
        total += difference * difference
    return total


@numba.njit(cache=True, nogil=True)
def _project(points, mean, axes, padded, heads):
    """Fill `padded` (n, d rounded up) with the points and `heads` (n, 18) with their coordinates.

    A row of `heads`: coordinates on the 16 axes, length of the remainder, half the squared length. Evaluated in double
    precision, because the length of the remainder is a difference.
    """
    n_features = mean.size
    h = np.empty(N_AXES)
    for i in range(points.shape[0]):
        h[:] = 0
        norm = 0.0
        for j in range(n_features):
            value = points[i, j]
            padded[i, j] = value
            centred = value - mean[j]
            norm += centred * centred
            for a in range(N_AXES):
                h[a] += centred * axes[j, a]
        rest = norm
        for a in range(N_AXES):
            heads[i, a] = h[a]
            rest -= h[a] * h[a]
        heads[i, N_AXES] = np.sqrt(max(rest, 0.0))
        heads[i, N_AXES + 1] = norm / 2


@numba.njit(cache=True, nogil=True, fastmath=REASSOC)
def _bound_tile(x, tile, bounds):
    """Half the lower bound, less half of |x|^2, for the 256 centres of a tile (18, 256)."""
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    x8, x9, x10, x11, x12, x13, x14, x15, r = x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15], x[16]
    for j in range(TILE):
        bounds[j] = tile[17, j] - (
            x0 * tile[0, j] + x1 * tile[1, j] + x2 * tile[2, j] + x3 * tile[3, j]
            + x4 * tile[4, j] + x5 * tile[5, j] + x6 * tile[6, j] + x7 * tile[7, j]
            + x8 * tile[8, j] + x9 * tile[9, j] + x10 * tile[10, j] + x11 * tile[11, j]
            + x12 * tile[12, j] + x13 * tile[13, j] + x14 * tile[14, j] + x15 * tile[15, j]
            + r * tile[16, j]
        )  # fmt: skip


@numba.njit(cache=True, nogil=True, fastmath=REASSOC | {"nnan"})
def _lane_minima(bounds, minima):
    """minima[l] = smallest of bounds[l], bounds[l + 32], ..."""
    for l in range(LANES):  # noqa: E741
        a = min(min(bounds[l], bounds[l + 32]), min(bounds[l + 64], bounds[l + 96]))
        b = min(min(bounds[l + 128], bounds[l + 160]), min(bounds[l + 192], bounds[l + 224]))
        minima[l] = min(a, b)


@numba.njit(cache=True, nogil=True)
def _nearest(points, heads, centers, tiles, slack, out, distances):
    """Fill `out` with the number of the nearest centre of each point and `distances` with their squared distance.

    points : (n, d), heads : (n, 18), centers : (k, d), tiles : (n_tiles, 18, 256), slack : margin for rounding as a
    share of the squared lengths involved.
    """
    n_tiles = tiles.shape[0]
    bounds = np.empty((ROWS, n_tiles * TILE), dtype=np.float32)
    minima = np.empty((ROWS, n_tiles * LANES), dtype=np.float32)
    for start in range(0, points.shape[0], ROWS):
        stop = min(start + ROWS, points.shape[0])
        for t in range(n_tiles):
            tile = tiles[t]
            for i in range(start, stop):
                row = bounds[i - start, t * TILE : (t + 1) * TILE]
                _bound_tile(heads[i], tile, row)
                _lane_minima(row, minima[i - start, t * LANES : (t + 1) * LANES])
        for i in range(start, stop):
            out[i], distances[i] = _settle(
                points[i], heads[i, N_AXES + 1], centers, bounds[i - start], minima[i - start], slack
            )


@numba.njit(cache=True, nogil=True)
def _settle(x, half_norm, centers, bounds, minima, slack):
    """Nearest centre of a point and its squared distance, given the lower bounds."""
    # the centre with the lowest bound is usually among the nearest
    lowest = 0
    for m in range(1, minima.size):
        if minima[m] < minima[lowest]:
            lowest = m
    first = (lowest // LANES) * TILE + lowest % LANES
    for j in range(first, first + TILE, LANES):
        if bounds[j] < bounds[first]:
            first = j
    nearest = first
    best = _squared_distance(x, centers[first])
    limit = best * np.float32(0.5) * (1 + slack) - half_norm * (1 - slack) + slack
    for m in range(minima.size):
        if minima[m] <= limit:
            base = (m // LANES) * TILE + m % LANES
            for j in range(base, base + TILE, LANES):
                if bounds[j] <= limit and j != first:
                    distance = _squared_distance(x, centers[j])
                    if distance < best or (distance == best and j < nearest):
                        best = distance
                        nearest = j
                        limit = best * np.float32(0.5) * (1 + slack) - half_norm * (1 - slack) + slack
    return nearest, best


@numba.njit(cache=True, nogil=True)
def _means(points, weights, labels, n_features, sums, totals):
    """Add every point to the sum of its cluster, in the order of the points and in double precision."""
    sums[:] = 0
    totals[:] = 0
    for i in range(points.shape[0]):
        c = labels[i]
        w = weights[i]
        totals[c] += w
        for j in range(n_features):
            sums[c, j] += w * points[i, j]


# ---------------------------------------------------------------------------------------------------------------
# Search


def principal_axes(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (d,) and the 16 first principal axes (d, 16) of the points, in double precision.

    Where d < 16 the missing axes are zero, which leaves the bounds valid.
    """
    mean = points.mean(axis=0, dtype=np.float64)
    centred = points - mean
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes = np.zeros((points.shape[1], N_AXES))
    n_axes = min(N_AXES, points.shape[1])
    axes[:, :n_axes] = vectors[:, ::-1][:, :n_axes]
    return mean, axes


class NearestCenters:
    """Search for the exactly nearest of a set of centres.

    Parameters
    ----------
    centers : ndarray of float32, (k, d)
    mean, axes : ndarray of float64, (d,) and (d, 16), optional
        From `principal_axes`; those of the centres by default. They change the speed, never the answer.
    """

    def __init__(self, centers, mean=None, axes=None):
        if mean is None:
            mean, axes = principal_axes(centers)
        self.mean, self.axes = mean, axes
        self.n_centers = len(centers)
        self.centers, heads = self.project(centers)
        n_tiles = -(-len(heads) // TILE)
        # Centres that fill up the last tile lie so far away that their bounds never pass.
        tiles = np.zeros((n_tiles * TILE, N_AXES + 2), dtype=np.float32)
        tiles[:, N_AXES + 1] = 1e30
        tiles[: len(heads)] = heads
        self.tiles = np.ascontiguousarray(tiles.reshape(n_tiles, TILE, N_AXES + 2).transpose(0, 2, 1))
        self.largest = float(heads[:, N_AXES + 1].max())

    def project(self, points):
        """Return the points, padded with zeros to whole vectors of 16, and their heads (n, 18)."""
        padded = np.zeros((len(points), -(-points.shape[1] // 16) * 16), dtype=np.float32)
        heads = np.empty((len(points), N_AXES + 2), dtype=np.float32)
        _project(points, self.mean, self.axes, padded, heads)
        return padded, heads

    def search(self, padded, heads, n_jobs=None):
        """Return the numbers (int32) and squared distances (float32) of the nearest centres of projected points."""
        labels = np.empty(len(padded), dtype=np.int32)
        distances = np.empty(len(padded), dtype=np.float32)
        # Bounds sum up 18 products, distances some 80 squares: relative errors below 1e-5 of the lengths involved.
        largest = max(self.largest, float(heads[:, N_AXES + 1].max(initial=0.0)))
        slack = np.float32(1e-5 * max(largest, 1e-30))
        if n_jobs is None or n_jobs == 1 or len(padded) < 2 * ROWS:
            _nearest(padded, heads, self.centers, self.tiles, slack, labels, distances)
        else:
            n_jobs = joblib.effective_n_jobs(n_jobs)
            cuts = np.linspace(0, len(padded), 4 * n_jobs + 1).astype(int)
            joblib.Parallel(n_jobs=n_jobs, prefer="threads")(
                joblib.delayed(_nearest)(
                    padded[a:b], heads[a:b], self.centers, self.tiles, slack, labels[a:b], distances[a:b]
                )
                for a, b in zip(cuts[:-1], cuts[1:], strict=True)
            )
        return labels, distances


# ---------------------------------------------------------------------------------------------------------------
# k-means


def kmeans(points, n_clusters, *, weights=None, max_iter=25, tol=1e-3, random_state=None, n_jobs=None):
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
        Rounds at most.
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
    A cluster that has lost all its points starts again at the point that is farthest from its own centre.
    """
    points = np.ascontiguousarray(points, dtype=np.float32)
    n_points, n_features = points.shape
    weights = np.ones(n_points) if weights is None else np.asarray(weights, dtype=np.float64)
    rng = check_random_state(random_state)
    centers = points[np.sort(rng.choice(n_points, n_clusters, replace=False))]
    mean, axes = principal_axes(points)
    sums = np.empty((n_clusters, n_features))
    totals = np.empty(n_clusters)
    padded = heads = None
    before = np.inf
    for _ in range(max_iter):
        search = NearestCenters(centers, mean, axes)
        if padded is None:
            padded, heads = search.project(points)
        labels, distances = search.search(padded, heads, n_jobs)
        _means(points, weights, labels, n_features, sums, totals)
        empty = np.flatnonzero(totals == 0)
        centers = (sums / np.maximum(totals, 1e-30)[:, None]).astype(np.float32)
        if len(empty):
            centers[empty] = points[np.argsort(-distances, kind="stable")[: len(empty)]]
        inertia = float(weights @ distances)
        if not len(empty) and inertia >= before * (1 - tol):
            break
        before = inertia
    return centers


class Codebook(BaseEstimator):
    """k-means codebook of block descriptors.

    Parameters
    ----------
    n_visterms : int
        Number of centres; 1,000 and 10,000 in the papers.
    max_iter : int
        Rounds of k-means at most.
    tol : float
        Stop when a round lowers the sum of squared distances by less than this share.
    random_state : int, RandomState or None
        Chooses the first centres.
    n_jobs : int or None
        Threads of `fit`. The result does not depend on it.

    Attributes
    ----------
    centers_ : ndarray of float32, (n_visterms, n_features)

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

    def __init__(self, *, n_visterms=10_000, max_iter=25, tol=1e-3, random_state=None, n_jobs=None):
        self.n_visterms = n_visterms
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, descriptors, y=None):
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
            Fewer distinct descriptors than visterms.
        """
        descriptors = _as_points(descriptors)
        if self.n_visterms < 1:
            raise ValueError(f"n_visterms must be at least 1, not {self.n_visterms!r}")
        # Flat blocks repeat: each distinct descriptor is searched for once and weighs as often as it occurs.
        rows = descriptors.view(np.dtype((np.void, descriptors.itemsize * descriptors.shape[1]))).ravel()
        _, first, weights = np.unique(rows, return_index=True, return_counts=True)
        if len(first) < self.n_visterms:
            raise ValueError(
                f"{self.n_visterms} visterms need as many distinct descriptors, but the training images give "
                f"{len(first)}: lower n_visterms to at most that, or add images"
            )
        order = np.argsort(first)  # back to the order of the descriptors
        self.centers_ = kmeans(
            descriptors[first[order]], self.n_visterms, weights=weights[order], max_iter=self.max_iter,
            tol=self.tol, random_state=self.random_state, n_jobs=self.n_jobs,
        )  # fmt: skip
        self._search = NearestCenters(self.centers_)
        return self

    def set_centers(self, centers):
        """Take over given centres (n_visterms, n_features), e.g. stored or renumbered ones, and return itself."""
        self.centers_ = _as_points(centers)
        self._search = NearestCenters(self.centers_)
        return self

    def predict(self, descriptors):
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
            raise ValueError(
                f"descriptors have {descriptors.shape[1]} features, the codebook {self.centers_.shape[1]}"
            )
        return self._search.search(*self._search.project(descriptors))[0]


def _as_points(points):
    points = np.ascontiguousarray(points, dtype=np.float32)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"descriptors must be an array of shape (n, n_features), not {points.shape}")
    return points
