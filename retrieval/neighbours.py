"""Ranking by the gallery's own neighbours: photos that are near to the same photos belong together.

A ranking by S(q, x) compares a query with each photo alone. A gallery knows more, without any label. Let N(x) be the k
photos nearest to x, and kth(x) the score of the last of them.

- q and x are *reciprocal* where x is in N(q) and S(q, x) >= kth(x): a query from outside needs nothing else.
- R(x) holds x and its reciprocal neighbours; and of each c in R(x), those of its k / 2 nearest that are reciprocal
  within k / 2, if more than two thirds of these are in R(x).
- v(x) has 1 / |R| for each photo in R, averaged over R of x and of its k / 3 - 1 nearest, and over the `SCALES` of k.
- Of a photo of the gallery, v(x) is then the mean of v of itself and its 20 nearest n, each weighted by J(x, n) ^ 1.5:
  in a large class many agree, in a small one few. Of a query likewise, with the weights of others times the gallery's
  *strength*.
- J(q, x) is the sum of the minima of v(q) and v(x) over the sum of their maxima.

Photos are ranked by (1 - lam) J(q, x) + lam (S(q, x) - m) / s: with m the mean score of two photos, and s how far above
it the nearest photo is, a score of 0 says "as any photo", one of 1 "as near as the nearest". Only photos that share an
entry with v(q) have J > 0, and inverted lists of the entries give them. The photo nearest to the query stays first: it
is raised just above all others.

In a class of hundreds few photos share neighbours with q. Of the others, those among its `HEAD` nearest have, in the
place of S, the mean of S over x and its reciprocal neighbours, taken `TIMES` times; by the strength, as above. In it a
photo counts at least as the last of the `HEAD`. All that follow are in the order of S.

The strength, 0 to 1, is a rule of the graph itself. A gallery is *tight* by the median, over its photos, of how far the
20th nearest lies above the mean score of photos that are no neighbours, as a part of how far the first does, times the
mean J of photos and their 20 nearest. Where groups hold fewer than 20 photos, the 20th is a stranger, or agrees little.
From 0.08 to 0.1 the strength rises from 0 to 1, and lam falls from 0.3 to 0.05.

A query that is in the gallery is ranked as one from outside: its own entry counts nowhere, and a photo that has it
among its k nearest has one neighbour more. A copy of a photo is ranked as the photo, which comes first.

This is the k-reciprocal encoding of Zhong, Zheng, Cao and Li (Re-ranking person re-identification with k-reciprocal
encoding, CVPR 2017), with their k = 20, k2 = k / 3 and lam = 0.3.

Notes
-----
Departures from the paper, by ``python -m experiments.studies neighbours``: k = 6 beside k = 20, since with fewer than k
photos of a class the graph links strangers (k = 20 alone is below S with three photos a class); equal weights in R, as
exp(-d) needs distances of one scale and gives the same mAP; the mean weighted by J, and the strength; the nearest photo
first; means of S where J is 0; v keeps its `ENTRIES` largest entries; scores in place of distances.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from visterm import sparse as sp
from visterm.compiled import njit

from . import plain
from .index import ExactIndex, best_first, blas, effective_n_jobs, in_threads, keep_candidates, score_rows
from .ranking import Ranking
from .stored import StoredVectors

SCALES = (6, 20)  # k
LISTED = SCALES[-1] + 1  # neighbours that are kept of each photo: one more, for queries from the gallery
ENTRIES = 32  # of v: 48 are as good
WEIGHT, STRONG = 0.3, 0.05  # lam, at strengths of 0 and 1
HEAD, TIMES = 1000, 3  # photos nearest to a query whose scores are averaged, and how often
TIGHT = 0.08, 0.1  # tightness of a gallery where its strength begins to rise, and where it is 1
SHARED = 2 / 3  # of the neighbours of a neighbour
FEWEST = 2 * SCALES[-1]  # photos of a gallery: of fewer, half are among the k nearest of each
AGREEMENT = 1.5  # power of J, by which v of the nearest count
FORMAT = 5  # changes with the constants above: a graph on disk is then made again
ROWS = 4096  # photos compared at a time
REACHED = 64  # photos nearest to a new one, in whose lists it may take a place
MANY = 20_000  # photos: of more, candidates are found in fewer dimensions
VERY_MANY = 200_000  # photos: of more, candidates are found among the photos of near cells
DIRECTIONS = 256
CANDIDATES = 160
PROBED = 24  # cells: with more, more neighbours are found, in more time
_SAMPLE = 10_000  # photos that give the directions
_PER_CELL = 32  # photos that give its centre
_ITERATIONS = 8  # of k-means
MOST_GONE = 2  # of the photos of a list
_COMPARED = 512  # photos that tell the scale
_ROUNDING = 1e-6  # of the mean score: a scale below is no scale
_ROOM = 1 + SCALES[-1] + (1 + SCALES[-1]) * (SCALES[-1] // 2)  # most members of an R
_GROUPS = sum(k // 3 for k in SCALES)  # R in a mean, at most


# ----------------------------------------------------------------------------------------------------
# Kernels


@njit(cache=True, nogil=True, plain=plain.link)
def _link(near: np.ndarray, k: int) -> np.ndarray:
    """(n, k): 1 if a photo and its neighbour are among each other's k nearest, 2 if among their k // 2; else 0."""
    links = np.zeros((len(near), min(k, near.shape[1])), np.uint8)
    for x in range(len(near)):
        for j in range(links.shape[1]):
            n = near[x, j]
            for i in range(links.shape[1] if n >= 0 else 0):
                if near[n, i] == x:
                    links[x, j] = 2 if max(i, j) < k // 2 else 1
                    break
    return links


@njit(cache=True, nogil=True)
def _spread(
    members: np.ndarray, n_members: int, near: np.ndarray, links: np.ndarray, half: int, stamp: np.ndarray, mark: int
) -> int:
    """Add to the first members of R, which bear the mark, what the neighbours of neighbours bring; returns |R|."""
    n = n_members
    for place in range(n_members):
        c = members[place]
        size, inside = 1, 1  # c itself
        for j in range(min(half, links.shape[1])):
            if links[c, j] == 2:
                size += 1
                inside += stamp[near[c, j]] == mark
        if inside > SHARED * size:
            for j in range(min(half, links.shape[1])):
                if links[c, j] == 2 and abs(stamp[near[c, j]]) != mark:
                    stamp[near[c, j]] = -mark  # a member that does not count for others
                    members[n] = near[c, j]
                    n += 1
    return n


@njit(cache=True, nogil=True)
def _add_group(
    members: np.ndarray, n: int, own: int, part: float, weights: np.ndarray, columns: np.ndarray, n_columns: int
) -> int:
    """Add a part of 1 / |R| to the weight of each member; ``columns`` lists the photos that have a weight."""
    size = n
    for i in range(n):
        size -= members[i] == own
    for i in range(n):
        column = members[i]
        if column != own:
            if weights[column] == 0:
                columns[n_columns] = column
                n_columns += 1
            weights[column] += np.float32(part / size)
    return n_columns


@njit(cache=True, nogil=True)
def _group(x: int, scale: tuple[np.ndarray, np.ndarray, int], scratch: tuple[np.ndarray, np.ndarray]) -> int:
    """Write R(x) of a photo of the gallery to the first of these arrays; returns |R|."""
    near, links, half = scale
    members, stamp = scratch
    members[0], stamp[x], n = x, 1, 1
    for j in range(links.shape[1]):
        if links[x, j] > 0:
            members[n], stamp[near[x, j]] = near[x, j], 1
            n += 1
    n = _spread(members, n, near, links, half, stamp, 1)
    for i in range(n):
        stamp[members[i]] = 0
    return n


@njit(cache=True, nogil=True)
def _groups(
    near: np.ndarray, links: np.ndarray, k: int, rows: np.ndarray, stamp: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """R of some photos: the size of each, and the members of all."""
    sizes, members, n = np.empty(len(rows), np.int64), np.empty(len(rows) * _ROOM, np.int32), 0
    for i in range(len(rows)):
        sizes[i] = _group(rows[i], (near, links, k // 2), (members[n:], stamp))
        n += sizes[i]
    return sizes, members[:n].copy()


@njit(cache=True, nogil=True, plain=lambda *of: plain.keep_largest(ENTRIES, *of))
def _keep(columns: np.ndarray, weights: np.ndarray, entries: np.ndarray, shares: np.ndarray) -> None:
    """Write the largest of some weights as one v, and zero them."""
    n = 0
    for column in columns:
        weight, weights[column] = weights[column], 0
        if n < ENTRIES or weight > shares[n - 1]:
            n = min(n + 1, ENTRIES)
            place = n - 1
            while place > 0 and shares[place - 1] < weight:
                entries[place], shares[place] = entries[place - 1], shares[place - 1]
                place -= 1
            entries[place], shares[place] = column, weight
    total = np.float32(0)
    for e in range(n):
        total += shares[e]
    for e in range(n):
        shares[e] /= total
    entries[n:] = -1


@njit(cache=True, nogil=True, plain=lambda *of: plain.encode((SCALES, SHARED, _keep.interpreted), *of))
def _encode(
    near: np.ndarray,
    links: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    entries: np.ndarray,
    shares: np.ndarray,
    scratch: tuple[np.ndarray, np.ndarray, np.ndarray],
    own: int,
) -> None:
    """Make v of some photos without `own`: its photos and their shares, (n_rows, ENTRIES), filled up with -1."""
    stamp, weights, _ = scratch
    members, columns = np.empty(_ROOM, np.int32), np.empty(_GROUPS * _ROOM, np.int32)
    for i in range(len(rows)):
        n = 0
        for s in range(2):
            k = SCALES[s]
            for j in range(-1, k // 3 - 1):
                x = rows[i] if j < 0 else near[rows[i], j]
                if x >= 0:
                    size = _group(x, (near, links[s], k // 2), (members, stamp))
                    n = _add_group(members, size, own, 1.0 / (k // 3), weights, columns, n)
        _keep(columns[:n], weights, entries[i], shares[i])


@njit(cache=True, nogil=True)
def _encode_all(
    near: np.ndarray,
    groups: tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    rows: np.ndarray,
    entries: np.ndarray,
    shares: np.ndarray,
    scratch: tuple[np.ndarray, np.ndarray, np.ndarray],
    _: int,
) -> None:
    """`_encode` with R of all photos: where the members of each start, and these."""
    columns = np.empty(_GROUPS * _ROOM, np.int32)
    for i in range(len(rows)):
        n = 0
        for s in range(2):
            starts, members = groups[s]
            for j in range(-1, SCALES[s] // 3 - 1):
                x = rows[i] if j < 0 else near[rows[i], j]
                if x >= 0:
                    R, part = members[starts[x] : starts[x + 1]], 1.0 / (SCALES[s] // 3)
                    n = _add_group(R, len(R), -1, part, scratch[1], columns, n)
        _keep(columns[:n], scratch[1], entries[i], shares[i])


@njit(cache=True, nogil=True)
def _agree(
    near: np.ndarray,
    codes: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    entries: np.ndarray,
    shares: np.ndarray,
    scratch: tuple[np.ndarray, np.ndarray, np.ndarray],
    agreed: np.ndarray,
) -> None:
    """Average v of some photos with those of their nearest; arrays as of `_encode`, and their mean J (n_rows,)."""
    columns = np.empty((1 + SCALES[-1]) * ENTRIES, np.int32)
    for i in range(len(rows)):
        x = rows[i]
        code = codes[0][x], codes[1][x]
        n, agreed[i] = _add_agreeing(code, codes, near[x, : SCALES[-1]], 1.0, scratch, columns)
        _keep(columns[:n], scratch[2], entries[i], shares[i])


@njit(cache=True, nogil=True)
def _add_agreeing(
    code: tuple[np.ndarray, np.ndarray],
    codes: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    strength: float,
    scratch: tuple[np.ndarray, np.ndarray, np.ndarray],
    columns: np.ndarray,
) -> tuple[int, float]:
    """Add v of others, weighted by their J, to v of a photo; returns the number of its ``columns``, and the mean J."""
    (held, part), (every, parts), (_, weights, total) = code, codes, scratch
    n, agreed = 0, np.float64(0)
    for e in range(len(held)):
        if held[e] >= 0:
            weights[held[e]] = total[held[e]] = part[e]
            columns[n] = held[e]
            n += 1
    n_own = n
    for x in rows:
        minima = np.float64(0)
        for e in range(ENTRIES if x >= 0 else 0):
            if every[x, e] >= 0:
                minima += min(weights[every[x, e]], parts[x, e])
        J = minima / (2 - minima)
        agreed += J
        factor = np.float32(strength * J**AGREEMENT)
        for e in range(ENTRIES if factor > 0 else 0):
            column = every[x, e]
            if column >= 0:
                if total[column] == 0:
                    columns[n] = column
                    n += 1
                total[column] += factor * parts[x, e]
    for i in range(n_own):
        weights[columns[i]] = 0
    return n, agreed / max(len(rows), 1)


@njit(cache=True, nogil=True, plain=True)
def _code_of_query(
    first: np.ndarray,
    scores: np.ndarray,
    own: int,
    bars: np.ndarray,
    graph: tuple[np.ndarray, np.ndarray, np.ndarray, float],
    scratch: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Make v of a query with these nearest photos: its photos and their shares; see `Neighbours.overlaps`."""
    near, small, large, strength = graph
    stamp, weights, sums = scratch
    members, columns, n = np.empty(_ROOM, np.int32), np.empty(_GROUPS * _ROOM, np.int32), 0
    for s in range(2):
        k, links = SCALES[s], small if s == 0 else large
        n_members = 0
        for j in range(min(k, len(first))):
            x = first[j]
            last = min(k, near.shape[1]) - 1
            if own >= 0:  # without the query, x has one neighbour more
                for i in range(min(k, near.shape[1] - 1)):
                    if near[x, i] == own:
                        last = k if k < near.shape[1] else last
            if scores[j] >= bars[j, last]:
                members[n_members], stamp[x] = x, 1
                n_members += 1
        n_members = _spread(members, n_members, near, links, k // 2, stamp, 1)
        for i in range(n_members):
            stamp[members[i]] = 0
        n = _add_group(members, n_members, own, 1.0 / (k // 3), weights, columns, n)
        for j in range(min(k // 3 - 1, len(first))):
            size = _group(first[j], (near, links, k // 2), (members, stamp))
            n = _add_group(members, size, own, 1.0 / (k // 3), weights, columns, n)
    total = np.float32(0)
    for i in range(n):
        total += weights[columns[i]]
    shares = np.empty(n, np.float32)
    for i in range(n):
        shares[i] = weights[columns[i]] / total
        weights[columns[i]] = 0
    if strength == 0:
        return columns[:n], shares
    codes = np.empty((len(first), ENTRIES), np.int32), np.zeros((len(first), ENTRIES), np.float32)
    _encode(near, (small, large), first, codes[0], codes[1], scratch, own)
    more = np.empty(n + len(first) * ENTRIES, np.int32)
    n, _ = _add_agreeing((columns[:n], shares), codes, np.arange(len(first)), strength, scratch, more)
    kept, parts = np.empty(min(n, ENTRIES), np.int32), np.empty(min(n, ENTRIES), np.float32)
    _keep(more[:n], sums, kept, parts)
    return kept, parts


@njit(cache=True, nogil=True, plain=True)
def _overlap(
    entries: np.ndarray,
    query: np.ndarray,
    own: int,
    lists: tuple[np.ndarray, np.ndarray, np.ndarray],
    place: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Photos that share an entry with a query's v, and J of each. ``place`` (n,) is zero, as it is again afterwards."""
    starts, photos, shares = lists
    most = 0
    for entry in entries:
        most += starts[entry + 1] - starts[entry]
    rows, minima, n = np.empty(most, np.int32), np.empty(most, np.float32), 0
    for i in range(len(entries)):
        for p in range(starts[entries[i]], starts[entries[i] + 1]):
            x = photos[p]
            if place[x] == 0:
                rows[n], minima[n] = x, 0
                n += 1
                place[x] = n
            minima[place[x] - 1] += min(query[i], np.float32(shares[p]) / np.float32(65535))
    sums = np.full(n, 2, np.float32)  # of v(q) and v(x); both are 1, but for the query's own entry
    if own >= 0:
        for p in range(starts[own], starts[own + 1]):
            if place[photos[p]] > 0:
                sums[place[photos[p]] - 1] -= np.float32(shares[p]) / np.float32(65535)
    for i in range(n):
        place[rows[i]] = 0
        minima[i] /= max(sums[i] - minima[i], np.float32(1e-6))
    return rows[:n], minima[:n]


@njit(cache=True, nogil=True, plain=lambda *of: plain.averaged(TIMES, *of))
def _averaged(
    rows: np.ndarray, scores: np.ndarray, near: np.ndarray, links: np.ndarray, own: int, values: np.ndarray
) -> np.ndarray:
    """Means of the scores of photos and their reciprocal neighbours but `own`, `TIMES` times; others count as 0."""
    means = scores.copy()
    for _ in range(TIMES):
        for i in range(len(rows)):
            values[rows[i]] = means[i]
        for i in range(len(rows)):
            total, n = np.float64(means[i]), 1
            for j in range(links.shape[1]):
                x = near[rows[i], j]
                if links[rows[i], j] > 0 and x != own:
                    total += values[x]
                    n += 1
            means[i] = total / n
    for i in range(len(rows)):
        values[rows[i]] = 0
    return means


# ----------------------------------------------------------------------------------------------------
# Public


class Neighbours:
    """The graph of a gallery's nearest neighbours, under one similarity.

    Parameters
    ----------
    near : int32 array of shape (n, at most LISTED)
        The nearest photos of each, best first, without itself; -1 where there are no more.
    scores : float array of shape (n, at most LISTED)
        Their scores.
    level, scale : float
        m and s; see `level_and_scale`.
    n_jobs : int or None, default=None
        Threads, as in joblib.

    Attributes
    ----------
    strength : float
        Of the gallery, 0 to 1.
    lists : tuple of arrays
        v of all photos, as inverted lists: where the list of each photo starts (n + 1,), the photos x with an entry for
        it, and the entries, as uint16 of 1 / 65535.

    Examples
    --------
    >>> import numpy as np
    >>> from visterm.learners import Cosine
    >>> from visterm.retrieval import ExactIndex
    >>> angles = np.linspace(0, 3, 40)
    >>> X = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    >>> index = ExactIndex(Cosine().fit(X), X)
    >>> NeighbourIndex(index, Neighbours.of(index, X), X).search(X[:1], k=3, exclude=[0]).indices
    array([[1, 2, 3]], dtype=int32)
    """

    def __init__(
        self, near: np.ndarray, scores: np.ndarray, level: float, scale: float, *, n_jobs: int | None = None
    ) -> None:
        self.near, self.scores = np.ascontiguousarray(near, np.int32), np.ascontiguousarray(scores, np.float32)
        self.level, self.scale = level, scale
        self._scratch = threading.local()
        self._link()
        rows = np.arange(len(self.near))
        parts = [part for part in np.array_split(rows, effective_n_jobs(n_jobs)) if len(part)]

        agreed = np.empty(len(rows))

        def encoded(kernel: Any, source: Any, last: Any) -> tuple[np.ndarray, np.ndarray]:
            codes = np.empty((len(rows), ENTRIES), np.int32), np.zeros((len(rows), ENTRIES), np.float32)

            def fill(part: np.ndarray) -> None:
                of_part = [a[part[0] : part[-1] + 1] if isinstance(a, np.ndarray) else a for a in (*codes, last)]
                kernel(self.near, source, part, *of_part[:2], self._space()[:3], of_part[2])

            in_threads(fill, [(part,) for part in parts], len(parts))
            return codes

        entries, shares = encoded(_agree, encoded(_encode_all, self._all_groups(parts), -1), agreed)
        self.strength = self._strength(float(agreed.mean()))
        held = entries >= 0
        codes = (
            np.round(shares[held] * 65535).astype(np.uint16),
            entries[held],
            np.append(0, np.cumsum(held.sum(axis=1))),
        )
        lists = sp.csr_array(codes, shape=(len(rows), len(rows))).tocsc()
        self.lists = lists.indptr.astype(np.int64), lists.indices.astype(np.int32), lists.data

    def _all_groups(self, parts: list[np.ndarray]) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """R of all photos, by scale: each is in the mean of several, and made once."""
        blocks = [block for part in parts for block in np.array_split(part, -(-len(part) // ROWS))]

        def made(block: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
            stamp = self._space()[0]
            return [_groups(self.near, links, k, block, stamp) for links, k in zip(self._links, SCALES, strict=True)]

        by_scale = zip(*in_threads(made, [(block,) for block in blocks], len(parts)), strict=True)
        joined = (tuple(map(np.concatenate, zip(*of_scale, strict=True))) for of_scale in by_scale)
        return tuple((np.append(0, np.cumsum(sizes)), members) for sizes, members in joined)

    def _strength(self, agreed: float) -> float:
        """Strength of a gallery, by the mean J of photos and their nearest."""
        held, n = self.near >= 0, len(self.near)
        n_others = max(n * (n - 1) - int(np.count_nonzero(held)), 1)
        others = (self.level * n * (n - 1) - float(self.scores[held].sum(dtype=float))) / n_others
        above = np.where(held, self.scores, others) - others
        last = above[:, min(SCALES[-1], above.shape[1]) - 1] / np.maximum(above[:, 0], _ROUNDING * self.scale)
        low, high = TIGHT
        return float(np.clip((float(np.median(last)) * agreed - low) / (high - low), 0, 1))

    @property
    def weight(self) -> float:
        """Weight of the similarity itself, lam."""
        return WEIGHT + self.strength * (STRONG - WEIGHT)

    def _link(self) -> None:
        self._links: Any = tuple(_link(self.near, k) for k in SCALES)

    @classmethod
    def of(cls, index: ExactIndex, X: Any) -> Self:
        """Find the neighbours of each photo of an index, whose vectors X are.

        ValueError for fewer photos than `FEWEST`.
        """
        n = index.n_gallery
        if n < FEWEST:
            raise ValueError(f"a graph of neighbours needs {FEWEST} photos, got {n}")
        near, scores = np.empty((n, LISTED), np.int32), np.empty((n, LISTED), np.float32)
        blocks: Iterable[np.ndarray] = (np.arange(start, min(start + ROWS, n)) for start in range(0, n, ROWS))
        if n > MANY and not sp.issparse(index.gallery_) and _compares_here(index):
            index = _Coarse(index, X)
            blocks = (rows for cell in index.cells for rows in np.array_split(cell, -(-len(cell) // ROWS) or 1))
        for rows in filter(len, blocks):
            ranking = index.search(X[rows], k=LISTED, exclude=rows)
            near[rows], scores[rows] = ranking.indices, ranking.scores
        return cls(near, scores, *level_and_scale(index, X, scores), n_jobs=index.n_jobs)

    def __len__(self) -> int:
        return len(self.near)

    def updated(self, index: ExactIndex, X: Any, rows: np.ndarray) -> Self:
        """Return the graph of the gallery as it is now; arguments as of `of`.

        Photos that were removed leave the lists of others, which are searched again where more than `MOST_GONE` are
        gone; photos that were added are searched, and take their places in the lists of the photos nearest to them.

        Parameters
        ----------
        index, X
        rows : int array of shape (n,)
            The row that each photo of this graph has now; -1 if it was removed.
        """
        n = index.n_gallery
        near, scores = np.full((n, LISTED), -1, np.int32), np.full((n, LISTED), -np.inf, np.float32)
        kept = rows >= 0
        held, kept_scores = np.where(self.near[kept] >= 0, rows[self.near[kept]], -1), self.scores[kept]
        order = np.argsort(held < 0, axis=1, kind="stable")  # what is left, in its order
        near[rows[kept]] = np.take_along_axis(held, order, axis=1)
        scores[rows[kept]] = np.where(near[rows[kept]] < 0, -np.inf, np.take_along_axis(kept_scores, order, axis=1))
        is_new = np.ones(n, bool)
        is_new[rows[kept]] = False
        again = np.flatnonzero(is_new | ((near < 0).sum(axis=1) > MOST_GONE))
        pairs = []
        for start in range(0, len(again), ROWS):
            some = again[start : start + ROWS]
            ranking = index.search(X[some], k=min(REACHED, n - 1), exclude=some)
            near[some], scores[some] = ranking.indices[:, :LISTED], ranking.scores[:, :LISTED]
            added = is_new[some]
            pairs.append(np.stack([ranking.indices[added].ravel(), np.repeat(some[added], ranking.k)]))
        reached, added = np.concatenate(pairs, axis=1) if pairs else np.empty((2, 0), int)
        order = np.argsort(reached, kind="stable")
        order = order[~np.isin(reached[order], again)]  # what was searched has them already
        reached, added = reached[order], added[order]
        photos, new = np.unique(reached), np.empty(len(reached), np.float32)
        for start in range(0, len(photos), ROWS):
            block = photos[start : start + ROWS]
            of_block = slice(*np.searchsorted(reached, (block[0], block[-1] + 1)))
            of = np.searchsorted(block, reached[of_block])
            new[of_block] = index.score_pairs(index.queries(X[block]), added[of_block], of)
        better = new > scores[reached, -1]
        reached, added, new = reached[better], added[better], new[better]
        photos = np.unique(reached)
        of = np.concatenate([np.repeat(photos, LISTED), reached])
        every = np.concatenate([scores[photos].ravel(), new])
        order = np.lexsort((-every, of))  # of equal scores, those that are there already first
        best = order[np.searchsorted(of[order], photos)[:, None] + np.arange(LISTED)]
        near[photos], scores[photos] = np.concatenate([near[photos].ravel(), added])[best], every[best]
        return type(self)(near, scores, self.level, self.scale, n_jobs=index.n_jobs)

    def arrays(self) -> dict[str, np.ndarray]:
        """What `restored` takes, to be written to disk."""
        starts, photos, shares = self.lists
        scale = np.array([FORMAT, self.level, self.scale, self.strength])
        return {"near": self.near, "scores": self.scores, "scale": scale} | {
            "starts": starts,
            "photos": photos,
            "shares": shares,
        }

    @classmethod
    def restored(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Make the graph of `arrays` again; ValueError where they are damaged, or of another version."""
        try:
            near, scores, (version, level, scale, *rest) = arrays["near"], arrays["scores"], arrays["scale"]
            starts, photos, shares = lists = arrays["starts"], arrays["photos"], arrays["shares"]
            n = len(near)
            whole = near.shape == scores.shape == (n, LISTED) and len(starts) == n + 1 and len(photos) == len(shares)
            whole &= near.min() >= -1 and near.max() < n and photos.min() >= 0 and photos.max() < n
            whole &= starts[0] == 0 and starts[-1] == len(photos) and bool((np.diff(starts) >= 0).all())
            whole &= [a.dtype.str[1:] for a in (near, scores, *lists)] == ["i4", "f4", "i8", "i4", "u2"]
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise ValueError(f"damaged ({error})") from None
        if version != FORMAT:
            raise ValueError(f"of version {version:g}, not {FORMAT}")
        if not (whole and scale > 0 and np.isfinite(level) and len(rest) == 1 and 0 <= rest[0] <= 1):
            raise ValueError("damaged")
        graph = cls.__new__(cls)
        graph.near, graph.scores, graph.lists = near, scores, lists
        graph.level, graph.scale, graph.strength = float(level), float(scale), float(rest[0])
        graph._scratch = threading.local()
        graph._link()
        return graph

    def overlaps(self, first: np.ndarray, scores: np.ndarray, own: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Photos whose neighbours are also a query's.

        Parameters
        ----------
        first : int array of shape (any,)
            The photos nearest to the query, best first: `SCALES`[-1] of them count; -1 is none.
        scores : float32 array of the same shape
        own : int
            Row of the query, if it is in the gallery; -1 otherwise.

        Returns
        -------
        int32 array and float32 array of shape (m,)
            The photos with J > 0, and J, at most 1.
        """
        entries, shares = self.code(first, scores, own)
        return _overlap(entries, shares, own, self.lists, self._space()[3])

    def averages(
        self, head: np.ndarray, scores: np.ndarray, shared: np.ndarray, own: int = -1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean scores of the photos that share no neighbours with a query.

        Parameters
        ----------
        head : int array of shape (n_head,)
            The photos nearest to the query.
        scores : float32 array of the same shape
            Their scores, which fall.
        shared : int array of shape (m,)
            Those that share neighbours, of any photos.
        own : int
            Row of the query, if it is in the gallery; -1 otherwise.

        Returns
        -------
        int32 array and float32 array of shape (n,)
            The others of ``head``, and their means.
        """
        place = self._space()[3]
        place[shared] = np.arange(1, len(shared) + 1)
        known = place[head]
        place[shared] = 0
        rows = np.append(shared, head[known == 0]).astype(np.int32)
        above = np.zeros(len(rows), np.float32)
        above[known[known > 0] - 1] = scores[known > 0] - scores[-1]
        above[len(shared) :] = scores[known == 0] - scores[-1]
        means = _averaged(rows, above, self.near, self._links[-1], own, self._space()[1])[len(shared) :] + scores[-1]
        strength = np.float32(self.strength)
        return rows[len(shared) :], strength * means + (1 - strength) * scores[known == 0]

    def code(self, first: np.ndarray, scores: np.ndarray, own: int = -1) -> tuple[np.ndarray, np.ndarray]:
        """Return v of a query, as photos and their shares, sum 1; arguments as of `overlaps`."""
        held = first >= 0
        nearest = first[held][: SCALES[-1]].astype(np.int32)
        graph, space = (self.near, *self._links, self.strength), self._space()[:3]
        return _code_of_query(nearest, scores[held][: len(nearest)], own, self.scores[nearest], graph, space)

    def _space(self) -> tuple[np.ndarray, ...]:
        """Zeros for the kernels, which leave them zero; of each thread."""
        if not hasattr(self._scratch, "space"):
            kinds = np.int8, np.float32, np.float32, np.int32
            self._scratch.space = tuple(np.zeros(len(self), kind) for kind in kinds)
        return self._scratch.space


def _compares_here(index: ExactIndex) -> bool:
    """Whether an index has the sides of its gallery, as one in Milvus has not."""
    from .two_stage import TwoStageIndex  # brings scipy.sparse

    return type(index) in (ExactIndex, TwoStageIndex)


class _Coarse(ExactIndex):
    """An index of dense sides for queries that are alike, as those of a cell are.

    It finds their candidates in the `DIRECTIONS` that count most in products of both sides: of each query, among the
    photos of the `PROBED` cells whose centres score highest for it.
    """

    def __init__(self, index: ExactIndex, X: Any) -> None:
        self.__dict__.update(index.__dict__)
        n = self.n_gallery
        sample = np.linspace(0, n - 1, min(_SAMPLE, n)).astype(int)
        self._of_queries, of_gallery = _directions(self.queries(X[sample]), self.gallery_[sample])
        narrow = np.concatenate([self.gallery_[i : i + ROWS] @ of_gallery for i in range(0, n, ROWS)])
        self._order, self._starts = np.arange(n, dtype=np.int32), np.array([0, n])  # photos by cell
        if n > VERY_MANY:
            from sklearn.cluster import KMeans

            n_cells = round(n**0.5)
            means = KMeans(n_cells, init="random", n_init=1, max_iter=_ITERATIONS, random_state=0)
            means.fit(narrow[:: n // (_PER_CELL * n_cells)])
            cell_of, self._centres = means.predict(narrow), means.cluster_centers_
            self._order = np.argsort(cell_of, kind="stable").astype(np.int32)
            self._starts = np.searchsorted(cell_of[self._order], np.arange(n_cells + 1))
            narrow = narrow[self._order]
        self.cells = np.split(self._order, self._starts[1:-1])
        self._place, self._near = np.argsort(self._order), ExactIndex(_Sides(), narrow, n_jobs=self.n_jobs)

    def _search_block(
        self, queries: np.ndarray, exclude: np.ndarray, top_scores: np.ndarray, top_indices: np.ndarray
    ) -> None:
        k, n_threads = top_scores.shape[1], effective_n_jobs(self.n_jobs)
        narrow, places = queries @ self._of_queries, np.where(exclude < 0, -1, self._place[exclude])
        if len(self.cells) == 1:
            candidates = self._near.search(narrow, min(CANDIDATES, self.n_gallery - 1), exclude=places).indices
        else:
            n_parts = min(n_threads, len(queries))
            parts = zip(np.array_split(narrow, n_parts), np.array_split(places, n_parts), strict=True)
            with blas().limit(limits=1, user_api="blas"):
                candidates = self._order[np.concatenate(in_threads(self._probed, parts, n_parts))]
        sides, places = self.gallery_, candidates
        if isinstance(sides, StoredVectors):  # queries have many of them in common: each is read once
            photos, places = np.unique(candidates, return_inverse=True)
            sides, places = sides[photos], places.reshape(candidates.shape)
        scores = np.stack(in_threads(score_rows, zip(itertools.repeat(sides), places, queries), n_threads))
        scores, candidates = best_first(scores, candidates)
        top_scores[:], top_indices[:] = scores[:, :k], candidates[:, :k]

    def _probed(self, narrow: np.ndarray, exclude: np.ndarray) -> np.ndarray:
        """Candidates of some queries, as places among the photos by cell."""
        nearest = np.argsort(-(narrow @ self._centres.T), axis=1)
        sizes = np.diff(self._starts)[nearest]
        probed = (np.arange(nearest.shape[1]) < PROBED) | (sizes.cumsum(axis=1) - sizes <= CANDIDATES)
        queries, _ = np.nonzero(probed)
        cells = nearest[probed]
        order = np.argsort(cells, kind="stable")
        cells, firsts = np.unique(cells[order], return_index=True)
        kept = np.full((len(narrow), CANDIDATES), -np.inf, np.float32)
        places = np.full(kept.shape, -1, np.int32)
        n_kept, bar = np.zeros(len(narrow), np.int64), np.full(len(narrow), -np.inf, np.float32)
        for cell, some in zip(cells, np.split(queries[order], firsts[1:]), strict=True):
            first, last = self._starts[cell : cell + 2]
            state = n_kept[some], bar[some], kept[some], places[some]
            keep_candidates(narrow[some] @ self._near.gallery_[first:last].T, first, exclude[some], *state)
            n_kept[some], bar[some], kept[some], places[some] = state
        return places


def _directions(queries: np.ndarray, gallery: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two maps to fewer dimensions, of query and of gallery sides, that keep most of their products' squares."""
    spread, turned = np.linalg.eigh(_products(queries))
    spread = np.sqrt(np.maximum(spread, _ROUNDING * spread[-1]))
    inner, outer = (turned / spread) @ turned.T, (turned * spread) @ turned.T
    squares, vectors = np.linalg.eigh(outer @ _products(gallery) @ outer)
    even = np.maximum(squares[-DIRECTIONS:], _ROUNDING * squares[-1]) ** 0.25  # both sides get the same lengths
    vectors = vectors[:, -DIRECTIONS:]
    return (inner @ vectors * even).astype(np.float32), (outer @ vectors / even).astype(np.float32)


def _products(sides: np.ndarray) -> np.ndarray:
    sides = np.asarray(sides, np.float64)
    return sides.T @ sides


class _Sides:
    """A learner whose sides are the vectors themselves."""

    def transform(self, X: Any, y: Any = None, /) -> Any:
        return X

    def transform_query(self, Q: Any) -> Any:
        return Q


def level_and_scale(index: ExactIndex, X: Any, scores: np.ndarray) -> tuple[float, float]:
    """Mean score of two photos, and the median, over photos, of how far above its own mean the nearest one is.

    Parameters
    ----------
    index : ExactIndex
    X : vectors of its gallery
    scores : float array of shape (n, any)
        Of the neighbours of each photo, best first.

    Returns
    -------
    float, float
        The second is 1 where no photo stands out.
    """
    rows = np.unique(np.linspace(0, index.n_gallery - 1, min(_COMPARED, index.n_gallery)).astype(int))
    compared = np.stack([index.score(side, rows) for side in index.queries(X[rows])])
    np.fill_diagonal(compared, 0)
    means = compared.sum(axis=1) / (len(rows) - 1)
    scale = float(np.median(scores[rows, 0] - means))
    level = float(means.mean())
    return level, scale if np.isfinite(scale) and scale > _ROUNDING * abs(level) else 1.0


class Shared(NamedTuple):
    """The score of a photo for a query: a part of the two alone, and parts of the photos that both are near to."""

    alone: float
    rows: np.ndarray  # of these photos, the largest part first
    parts: np.ndarray  # float32 (n_rows,)


class NeighbourIndex:
    """An index, ranked again by the neighbours of its gallery.

    Parameters
    ----------
    index : ExactIndex
        Or one of its kinds: in two stages, or in Milvus.
    graph : Neighbours
        Of its gallery, under its similarity.
    X : vectors of its gallery

    Notes
    -----
    Scores are those of the module's docstring. Photos that the index itself does not find are ranked, too, if they
    share neighbours with the query.
    """

    def __init__(self, index: ExactIndex, graph: Neighbours, X: Any) -> None:
        self.index, self.graph, self.X, self.weight = index, graph, X, graph.weight

    @property
    def n_gallery(self) -> int:
        """Number of gallery images."""
        return self.index.n_gallery

    @property
    def learner(self) -> Any:
        """Whose similarity it is."""
        return self.index.learner

    def search(
        self, Q: Any, k: int | None = None, *, exclude: Any = None, among: ExactIndex | None = None, rows: Any = None
    ) -> Ranking:
        """Rank the gallery for each query, as `ExactIndex.search` does.

        Parameters
        ----------
        Q, k
            As there.
        exclude : array of int, shape (n_queries,), optional
            Rows of the queries in the gallery, -1 for queries from outside.
        among : ExactIndex, optional
            Index of the images to be ranked, if not all: their neighbours are of the whole gallery all the same.
        rows : int array, optional
            Ascending rows of these in the gallery; by default the numbers are the same.

        Returns
        -------
        Ranking
            Of rows of `among`.
        """
        n_queries, part = Q.shape[0], self.index if among is None else among
        own = np.full(n_queries, -1) if exclude is None else np.asarray(exclude)
        excluded = own if rows is None else places_of(rows, own)
        many = min(HEAD + 1, part.n_gallery)
        # Where all of very many photos are scored, a second search takes longer than the means of the nearest.
        scored = VERY_MANY if part.scores_all else np.inf
        averaged = self.graph.strength > 0 and (k is None or k >= many or part.n_gallery > scored)
        nearest = HEAD + 1 if averaged else LISTED
        depth = part.n_gallery if k is None else max(k, min(nearest, part.n_gallery))
        plain = part.search(Q, depth, exclude=excluded)
        first = plain if part is self.index else self.index.search(Q, min(nearest, self.n_gallery), exclude=own)
        sides = functools.cache(lambda: part.queries(Q))  # for photos that the index itself does not find
        # One less for all queries only if each of them excludes something, as in `ExactIndex.search`.
        size = part.n_gallery - int(n_queries > 0 and (excluded >= 0).all()) if k is None else k
        indices, scores = np.full((n_queries, size), -1, np.int32), np.full((n_queries, size), -np.inf, np.float32)
        deeper = []
        for q in range(n_queries):
            query = Q[q : q + 1] if own[q] < 0 else None  # a row of a sparse array takes as long as the rest
            leading, shared, J, others, means = self._overlaps(query, first, q, int(own[q]), averaged)
            unlike = self.weight * (first.scores[q, len(leading) - 1] - self.graph.level) / self.graph.scale  # at most
            if rows is not None:
                leading, shared, others = (places_of(rows, some) for some in (leading, shared, others))
            keep = (shared >= 0) & (shared != excluded[q])
            ranking = plain.indices[q], plain.scores[q], int(np.count_nonzero(leading >= 0))
            side = functools.partial(lambda q: sides()[q], q)
            best = self._ranked(part, side, ranking, (shared[keep], J[keep]), (others, means), size)
            indices[q, : len(best[0])], scores[q, : len(best[0])] = best
            if self.graph.strength and not averaged and not (best[1][size - 1 :] > unlike).any():
                deeper.append(q)
        if deeper:  # some of their results may be photos that share no neighbours with them
            whole = self.search(Q[deeper], many, exclude=own[deeper], among=among, rows=rows)
            indices[deeper], scores[deeper] = whole.indices[:, :size], whole.scores[:, :size]
        return Ranking(indices, scores)

    def explain(self, Q: Any, row: int, *, own: int = -1) -> Shared:
        """Where the score of a photo comes from.

        Parameters
        ----------
        Q : CSR matrix or ndarray, shape (1, d)
            A query.
        row : int
            The photo.
        own : int
            Row of the query in the gallery; -1 of one from outside.

        Returns
        -------
        Shared
        """
        given, first, top = own, self.index.search(Q, LISTED, exclude=[own]), self.search(Q, 2, exclude=[own])
        rows, scores = first.indices[0], first.scores[0]
        if own < 0 and _equal(Q, self.X[int(rows[0]) : int(rows[0]) + 1]):
            own, rows, scores = int(rows[0]), rows[1:], scores[1:]
        entries, shares = self.graph.code(rows[: SCALES[-1]], scores[: SCALES[-1]], own)
        starts, photos, kept = self.graph.lists
        held = np.zeros(len(entries), np.float32)
        for i, entry in enumerate(entries):
            at = np.flatnonzero(photos[starts[entry] : starts[entry + 1]] == row)
            held[i] = kept[starts[entry] + at[0]] / np.float32(65535) if len(at) else 0
        minima = np.minimum(held, shares)
        places, overlaps = self.graph.overlaps(rows[: SCALES[-1]], scores[: SCALES[-1]], own)
        J = 1.0 if row == own else float(overlaps[places == row].sum())
        order = np.argsort(-minima, kind="stable")[: np.count_nonzero(minima)]
        parts = (1 - self.weight) * J * minima[order] / max(float(minima.sum()), 1e-9)
        if row not in top.indices[0]:  # it may be raised above all others
            one = ExactIndex(self.learner, self.X[row : row + 1])
            top = self.search(Q, 1, exclude=[given if given != row else -1], among=one, rows=np.array([row]))
            top.indices[0] = row
        alone = float(top.scores[0][top.indices[0] == row][0] - parts.sum())
        return Shared(alone, entries[order], parts)

    def _overlaps(self, Q: Any, nearest: Ranking, q: int, own: int, averaged: bool) -> tuple[np.ndarray, ...]:
        """The nearest, which stay first; overlaps of a query, with the photo that it is a copy of; averages."""
        held = nearest.indices[q] >= 0
        first, scores = nearest.indices[q][held][: HEAD + 1], nearest.scores[q][held][: HEAD + 1]
        copy = own < 0 and len(first) > 0 and _equal(Q, self.X[int(first[0]) : int(first[0]) + 1])
        leading, copied = first[: 1 + copy], first[:copy]
        if copy:
            own, first, scores = int(first[0]), first[1:], scores[1:]
        shared, J = self.graph.overlaps(first[: SCALES[-1]], scores[: SCALES[-1]], own)
        others, means = first[:0], scores[:0]
        if averaged and len(first):
            others, means = self.graph.averages(first[:HEAD], scores[:HEAD], shared, own)
        shared, J = shared[shared != own], J[shared != own]
        return leading, np.append(shared, copied), np.append(J, np.ones(len(copied), np.float32)), others, means

    def _ranked(
        self,
        part: ExactIndex,
        side: Callable[[], np.ndarray],
        ranking: tuple[np.ndarray, np.ndarray, int],
        overlaps: tuple[np.ndarray, np.ndarray],
        averages: tuple[np.ndarray, np.ndarray],
        size: int,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Best rows and scores of one query, from the plain ranking, and how many of it stay first, and `_overlaps`."""
        rows, scores, n_leading = ranking
        factor, level = np.float32(self.weight / self.graph.scale), np.float32(self.graph.level)
        ranked = rows >= 0
        rows, scores = rows[ranked], scores[ranked] - level
        last = scores[-1] if len(rows) else np.float32(0)
        order = np.argsort(rows)

        def places_in(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """Places in the plain ranking, and which of these photos are there."""
            places = np.minimum(np.searchsorted(rows, some, sorter=order), len(rows) - 1)
            places = order[places] if len(rows) else places
            return places, rows[places] == some if len(rows) else np.zeros(len(some), bool)

        places, known = places_in(averages[0])
        scores[places[known]] = averages[1][known] - level
        total = factor * scores
        shared, J = overlaps
        places, known = places_in(shared)
        total[places[known]] += (1 - self.weight) * J[known]
        beyond, J = shared[~known], J[~known]
        if len(beyond) and len(total) >= size:
            # None of these scores more than the last of the plain ranking.
            bar = np.partition(total, len(total) - size)[len(total) - size]
            near = (1 - self.weight) * J + factor * last >= bar
            beyond, J = beyond[near], J[near]
        if len(beyond):
            rows = np.concatenate([rows, beyond])
            total = np.concatenate([total, (1 - self.weight) * J + factor * (part.score(side(), beyond) - level)])
        for place in reversed(range(n_leading)):
            if (highest := total[place + 1 :].max(initial=-np.inf)) >= total[place]:
                total[place] = np.nextafter(highest, np.float32(np.inf))
        total, rows = best_first(total[None].astype(np.float32), rows[None].astype(np.int32))
        return rows[0, :size], total[0, :size]


def places_of(rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Places of some rows among ascending ones; -1 of those that are not there."""
    places = np.minimum(np.searchsorted(rows, chosen), len(rows) - 1)
    return np.where(rows[places] == chosen, places, -1)


def _equal(first: Any, second: Any) -> bool:
    """Whether two vectors (1, d) are the same, up to rounding to 16 bits."""
    difference = abs(first - second).max()
    return bool(difference <= 2.0**-10 * abs(second).max())


def with_neighbours(index: ExactIndex, X: Any) -> ExactIndex | NeighbourIndex:
    """Return an index that ranks by neighbours, too; the index itself where its gallery has too few.

    Parameters
    ----------
    index : ExactIndex
    X : vectors of its gallery
    """
    return index if index.n_gallery < FEWEST else NeighbourIndex(index, Neighbours.of(index, X), X)
