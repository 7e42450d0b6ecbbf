"""Search for the exactly nearest of a set of centres; most centres are ruled out by a lower bound.

On 16 orthonormal axes (the principal axes of the data) a point x, seen from their mean, has coordinates h_x and a
remainder of length r_x, and likewise a centre c; by Cauchy and Schwarz

    |x - c|^2 >= |h_x - h_c|^2 + (r_x - r_c)^2 = |x|^2 + |c|^2 - 2 (h_x . h_c + r_x r_c).

The right-hand side is an inner product of 17 numbers, evaluated for all centres; only centres whose bound, less a
margin for rounding, does not exceed the best distance so far are compared in full.

Centres come in groups. In the space of these 17 coordinates, with x nearest to the middle a of a group and
s_m(y) = (|y - m|^2 - |y|^2) / 2, a centre c of the group with middle b satisfies, again by Cauchy and Schwarz,

    |x - c| |a - b| >= (x - c) . (a - b) = (s_b - s_a)(x) - (s_b - s_a)(c).

The smallest second term of a group is known beforehand, and the group is skipped if this is too far.

Distances in single precision, whose sums the compiler orders as suits the processor, rule out more centres, with a
margin; the few that remain are compared by squares summed in double precision, in a fixed order; the lowest number wins
a tie.
So an answer does not depend on the batch, the number of threads, the bounds, or the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from visterm.compiled import njit

from .parameters import effective_n_jobs

N_AXES = 16  # written out in `_lower_bounds`; a head has two numbers more
LANES = 16  # float32 numbers in a vector register; groups are filled up to whole ones
CENTERS_PER_GROUP = 100
REASSOC = {"reassoc", "contract", "nsz", "arcp"}
# A sum of d squares in single precision is off by less than (d + 2) 2**-24 of itself: for up to 500 features, and on
# both sides of a comparison, this is a safe margin.
MARGIN = 1.0001

# ---------------------------------------------------------------------------------------------------------------
# Kernels


@njit(cache=True, nogil=True)
def squared_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the squared Euclidean distance of two vectors, the same on every processor.

    Squares are in the precision of the vectors, as Numba's `float` is, and summed in double precision. Four sums, so
    that an addition need not wait for the one before it.
    """
    s0 = s1 = s2 = s3 = 0.0
    whole = a.size // 4 * 4
    for j in range(0, whole, 4):
        d0, d1 = float(a[j]) - float(b[j]), float(a[j + 1]) - float(b[j + 1])
        d2, d3 = float(a[j + 2]) - float(b[j + 2]), float(a[j + 3]) - float(b[j + 3])
        s0 += d0 * d0
        s1 += d1 * d1
        s2 += d2 * d2
        s3 += d3 * d3
    for j in range(whole, a.size):
        difference = float(a[j]) - float(b[j])
        s0 += difference * difference
    return (s0 + s1) + (s2 + s3)


@njit(cache=True, nogil=True, fastmath=REASSOC)
def _rough_distance(a: np.ndarray, b: np.ndarray) -> np.float32:
    """The squared distance in single precision, off by rounding that depends on the processor; see `MARGIN`."""
    total = np.float32(0)
    for j in range(a.size):
        difference = a[j] - b[j]
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def _project(points: np.ndarray, mean: np.ndarray, axes: np.ndarray, padded: np.ndarray, heads: np.ndarray) -> None:
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


@njit(cache=True, nogil=True, fastmath=REASSOC)
def _lower_bounds(x: np.ndarray, tables: np.ndarray, start: int, n: int, bounds: np.ndarray) -> None:
    """Half the lower bound, less half of |x|^2, for `n` centres whose table (18, n) begins at tables[18 * start].

    Written out, because only so do the 17 numbers of x stay in registers and the loop becomes one of vectors.
    """
    x0, x1, x2, x3, x4, x5, x6, x7 = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]
    x8, x9, x10, x11, x12, x13, x14, x15, r = x[8], x[9], x[10], x[11], x[12], x[13], x[14], x[15], x[16]
    t = tables[18 * start : 18 * (start + n)]
    t0, t1, t2, t3, t4, t5 = t[:n], t[n:], t[2 * n :], t[3 * n :], t[4 * n :], t[5 * n :]
    t6, t7, t8, t9, t10, t11 = t[6 * n :], t[7 * n :], t[8 * n :], t[9 * n :], t[10 * n :], t[11 * n :]
    t12, t13, t14, t15, t16, t17 = t[12 * n :], t[13 * n :], t[14 * n :], t[15 * n :], t[16 * n :], t[17 * n :]
    for j in range(n):
        bounds[j] = t17[j] - (
            x0 * t0[j] + x1 * t1[j] + x2 * t2[j] + x3 * t3[j] + x4 * t4[j] + x5 * t5[j] + x6 * t6[j] + x7 * t7[j]
            + x8 * t8[j] + x9 * t9[j] + x10 * t10[j] + x11 * t11[j] + x12 * t12[j] + x13 * t13[j] + x14 * t14[j]
            + x15 * t15[j] + r * t16[j]
        )  # fmt: skip


@njit(cache=True, nogil=True, fastmath=REASSOC | {"nnan"})
def _smallest(values: np.ndarray, n: int) -> np.float32:
    smallest = values[0]
    for j in range(n):
        smallest = min(smallest, values[j])
    return smallest


@njit(cache=True, nogil=True)
def _count_below(values: np.ndarray, n: int, limit: np.float32) -> np.int32:
    count = np.int32(0)
    for j in range(n):
        count += np.int32(values[j] <= limit)
    return count


@njit(cache=True, nogil=True)
def _nearest(
    points: np.ndarray,
    heads: np.ndarray,
    search: tuple,
    slack: np.float32,
    bounds: np.ndarray,
    to_groups: np.ndarray,
    labels: np.ndarray,
    distances: np.ndarray,
) -> None:
    """Fill `labels` with the nearest centre of each point and `distances` with the squared distances.

    points : (n, d), heads : (n, 18), search : the arrays of a `NearestCenters`, slack : margin for rounding,
    bounds : scratch for the largest group, to_groups : scratch for the bounds of all groups.
    """
    centers, numbers, tables, starts, group_tables, order, margins, gaps = search
    n_groups = starts.size - 1
    half = np.float32(0.5)
    for i in range(points.shape[0]):
        x, head = points[i], heads[i]
        half_norm = head[17]
        _lower_bounds(head, group_tables, 0, group_tables.size // 18, to_groups)
        home = 0
        for g in range(1, n_groups):
            if to_groups[g] < to_groups[home]:
                home = g
        order_here, margins_here, gaps_here, to_home = order[home], margins[home], gaps[home], to_groups[home]
        best, limit, reach = np.inf, np.float32(np.inf), np.float32(np.inf)
        nearest = 0
        for visit in range(n_groups):
            g = order_here[visit]
            if visit > 0 and to_groups[g] - to_home + margins_here[g] > reach * gaps_here[g] + slack:
                continue  # the whole group lies too far beyond a plane between the two
            start = starts[g]
            n = starts[g + 1] - start
            _lower_bounds(head, tables, start, n, bounds)
            if visit == 0:
                # begin with the centre that has the lowest bound: it is usually among the nearest
                lowest = _smallest(bounds, n)
                j = 0
                while bounds[j] != lowest:
                    j += 1
                best = squared_distance(x, centers[start + j])
                nearest = numbers[start + j]
                limit = half * np.float32(best) - half_norm + slack
            if _count_below(bounds, n, limit) > 0:
                for j in range(n):
                    if bounds[j] <= limit and _rough_distance(x, centers[start + j]) <= best * MARGIN:
                        distance = squared_distance(x, centers[start + j])
                        number = numbers[start + j]
                        if distance < best or (distance == best and number < nearest):
                            best = distance
                            nearest = number
                            limit = half * np.float32(best) - half_norm + slack
            reach = np.float32(np.sqrt(best)) * np.float32(1.00001)
        labels[i] = nearest
        distances[i] = best


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
    """Search for the exactly nearest of a set of centres, float32 (k, d).

    Principal axes are those of the points `axes_of`, by default of the centres. `like` is a search over similar centres
    whose axes and groups are used again: they change the speed, never the result.
    """

    def __init__(
        self, centers: np.ndarray, *, axes_of: np.ndarray | None = None, like: NearestCenters | None = None
    ) -> None:
        if like is None:
            self.mean, self.axes = principal_axes(centers if axes_of is None else axes_of)
        else:
            self.mean, self.axes = like.mean, like.axes
        padded, heads = self.project(centers)
        self.largest = float(heads[:, 17].max())

        # Groups of centres in the space of the 17 coordinates, which is no longer than the space of the points.
        coordinates = heads[:, :17].astype(np.float64)
        self.middles: np.ndarray = _middles(coordinates) if like is None else like.middles
        squares = _all_squares(coordinates, self.middles)  # (k, n_groups)
        occupied = np.unique(squares.argmin(axis=1))
        self.middles, squares = self.middles[occupied], squares[:, occupied]
        groups = squares.argmin(axis=1)
        sizes = np.bincount(groups)
        starts = np.concatenate([[0], np.cumsum(-(-sizes // LANES) * LANES)])
        members = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])

        # The padding of a group lies so far away that its bound never passes.
        total = starts[-1]
        centers = _aligned((total, padded.shape[1]))
        numbers = np.full(total, len(padded), dtype=np.int32)
        tables = _aligned(18 * total)
        margins = np.full((len(sizes), len(sizes)), 1e30, dtype=np.float32)
        centers[:] = 0
        for g in range(len(sizes)):
            start, stop, mine = starts[g], starts[g + 1], members[g]
            centers[start : start + sizes[g]] = padded[mine]
            numbers[start : start + sizes[g]] = mine
            table = tables[18 * start : 18 * stop].reshape(18, stop - start)
            table[:17] = 0
            table[17] = 1e30
            table[:, : sizes[g]] = heads[mine].T
            margins[:, g] = (squares[mine] - squares[mine, g, None]).min(axis=0) / 2
        between = _all_squares(self.middles, self.middles)
        np.fill_diagonal(between, -1)  # a point's own group comes first
        order = np.argsort(between, axis=1, kind="stable").astype(np.int32)
        gaps = np.sqrt(np.maximum(between, 0)).astype(np.float32)
        group_table = np.zeros((18, -(-len(sizes) // LANES) * LANES), dtype=np.float32)
        group_table[17] = 1e30
        group_table[:17, : len(sizes)] = self.middles.T
        group_table[17, : len(sizes)] = np.square(self.middles).sum(axis=1) / 2
        group_tables = _aligned(group_table.size)
        group_tables[:] = group_table.ravel()
        self.arrays: tuple = (centers, numbers, tables, starts, group_tables, order, margins, gaps)
        self.largest_group = int(np.diff(starts).max())

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpickled in a worker process, arrays lie anywhere: move them back to the beginning of a cache line.
        self.__dict__.update(state)
        self.arrays = tuple(_aligned(a.shape, copy=a) if a.dtype == np.float32 else a for a in self.arrays)

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the points, padded with zeros to whole vectors, and their heads (n, 18)."""
        padded = _aligned((len(points), -(-points.shape[1] // LANES) * LANES))
        padded[:, points.shape[1] :] = 0
        heads = np.empty((len(points), 18), dtype=np.float32)
        _project(points, self.mean, self.axes, padded, heads)
        return padded, heads

    def search(self, padded: np.ndarray, heads: np.ndarray, n_jobs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers (int32) and squared distances (float32) of the nearest centres of projected points."""
        largest = max(self.largest, float(heads[:, 17].max(initial=0.0)))
        labels = np.empty(len(padded), dtype=np.int32)
        distances = np.empty(len(padded), dtype=np.float32)
        # Bounds and distances are sums of 17 and some 80 terms in single precision: their errors are below 1e-5 of
        # the squared lengths involved, and four of them meet in one comparison.
        slack = np.float32(4e-5 * max(largest, 1e-30))

        def search_rows(a: int, b: int) -> None:
            bounds, to_groups = _aligned(self.largest_group), _aligned(self.arrays[4].size // 18)
            _nearest(padded[a:b], heads[a:b], self.arrays, slack, bounds, to_groups, labels[a:b], distances[a:b])

        n_jobs = 1 if n_jobs is None else effective_n_jobs(n_jobs)
        if n_jobs == 1:
            search_rows(0, len(padded))
        else:
            import joblib

            cuts = np.linspace(0, len(padded), 4 * n_jobs + 1).astype(int)
            joblib.Parallel(n_jobs=n_jobs, prefer="threads")(
                joblib.delayed(search_rows)(a, b) for a, b in zip(cuts[:-1], cuts[1:], strict=True)
            )
        return labels, distances


def _middles(coordinates: np.ndarray) -> np.ndarray:
    """Middles of groups of centres, (n_groups, 17), by a few rounds of k-means."""
    n_groups = -(-len(coordinates) // CENTERS_PER_GROUP)
    middles = coordinates[np.random.default_rng(0).choice(len(coordinates), n_groups, replace=False)]
    for _ in range(5):
        groups = _all_squares(coordinates, middles).argmin(axis=1)
        sizes = np.bincount(groups, minlength=len(middles))
        sums = np.stack([np.bincount(groups, column, minlength=len(middles)) for column in coordinates.T], axis=1)
        middles = sums[sizes > 0] / sizes[sizes > 0, None]
    return middles


def _aligned(shape: int | tuple[int, ...], copy: np.ndarray | None = None) -> np.ndarray:
    """Return an empty float32 array, or a copy, that begins at a cache line, so that no vector straddles two."""
    size = int(np.prod(shape))
    raw = np.empty(size + 16, dtype=np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    aligned = raw[skip : skip + size].reshape(shape)
    if copy is not None:
        aligned[:] = copy
    return aligned


def _all_squares(points: np.ndarray, middles: np.ndarray) -> np.ndarray:
    """Squared distances (n, n_middles) in double precision."""
    squares = np.square(points).sum(axis=1)[:, None] + np.square(middles).sum(axis=1) - 2 * points @ middles.T
    return np.maximum(squares, 0)
