"""Triplets (query, related image, unrelated image) drawn from labels, several labels or clicks.

Chechik, Sharma, Shalit, Bengio: Large Scale Online Learning of Image Similarity through Ranking, JMLR 11, 2010,
section 2.3 (labels) and section 5.2 (clicks). With R the counts (images x queries) and N their sum,

    Pr(a, b) = sum_q Pr(a | q) Pr(b | q) Pr(q) = sum_q R[a, q] R[b, q] / (N sum_c R[c, q])

and two images are related where Pr(a, b) exceeds a cut-off theta, or belongs to the largest, as the top 1 % (Chechik,
Sharma, Shalit, Bengio, NIPS 22, 2009, section 4.1). The n x n matrix of Pr is never built: an image is
walked to its queries and from there to their images, and one merge of two short rows gives Pr(a, b) for one pair.

A learner has the triplets of a pass drawn by one compiled call and hands the array to its kernel, 12 bytes a triplet.
Drawn one by one inside the learning loop they would cost thirty times as much, in counting references to the tables.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit

from .draws import draw_below, draw_uniform, shuffled, stream
from .rows import Float, Int, readonly

# Draws by rejection before the exact, slower walk takes over. Both have the same distribution.
_TRIES = 64
_PAIRS = 1 << 24  # of images that share a query, whose Pr is held at once to find a share of the largest: 256 MB
_DEALS = 1  # makes the streams of deals others than those of pairs


_NONE_32, _NONE_64, _NO_WEIGHTS = (readonly(np.zeros(0, kind)) for kind in (np.int32, np.int64, np.float64))


class NoTriplets(ValueError):
    """No two images share a label, or all do."""


class TripletTables(NamedTuple):
    """Arguments of the draw functions, in this order; all arrays are read-only, so that a kernel is compiled once."""

    has_classes: bool  # one label per image: the first four arrays; otherwise the last six
    check_negatives: bool
    uniform: bool = True  # positives uniform over related images, else in proportion to Pr(a, b)
    cutoff: float = 0.0  # related means overlap > cutoff
    n_images: int = 0
    usable: np.ndarray = _NONE_32  # (n_usable,) int32, images that can be a query
    class_of: np.ndarray = _NONE_32  # (n_images,) int32
    class_start: np.ndarray = _NONE_64  # (n_classes + 1,) int64, where each class begins in by_class
    by_class: np.ndarray = _NONE_32  # (n_images,) int32, images sorted by class
    place: np.ndarray = _NONE_32  # (n_images,) int32, where each image is in by_class
    row_start: np.ndarray = _NONE_64  # (n_images + 1,) int64
    row_labels: np.ndarray = _NONE_32  # (nnz,) int32, sorted labels of each image
    row_weights: np.ndarray = (
        _NO_WEIGHTS  # (nnz,) float64, weights to walk from image to label, summed up along each image
    )
    affinities: np.ndarray = _NO_WEIGHTS  # (nnz,) float64, the overlap of two images is the inner product of these
    label_start: np.ndarray = _NONE_64  # (n_labels + 1,) int64
    label_images: np.ndarray = _NONE_32  # (nnz,) int32, images of each label
    label_weights: np.ndarray = (
        _NO_WEIGHTS  # (nnz,) float64, weights to walk from label to image, summed up along each label
    )


# Places of the fields of TripletTables. Kernels take plain tuples: Numba keeps compiled kernels on disk under the types
# of their arguments, and a class there could only be read back where this module is imported by the same name.
(
    HAS_CLASSES,
    CHECK_NEGATIVES,
    UNIFORM,
    CUTOFF,
    N_IMAGES,
    USABLE,
    CLASS_OF,
    CLASS_START,
    BY_CLASS,
    PLACE,
    ROW_START,
    ROW_LABELS,
    ROW_WEIGHTS,
    AFFINITIES,
    LABEL_START,
    LABEL_IMAGES,
    LABEL_WEIGHTS,
) = range(len(TripletTables._fields))


# -- draws -------------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True, error_model="numpy")
def _overlap(a: Int, b: Int, tables: tuple[Any, ...]) -> Float:
    """Inner product of the affinities of two images: shared labels, or Pr(a, b)."""
    i, j = tables[ROW_START][a], tables[ROW_START][b]
    end_i, end_j = tables[ROW_START][a + 1], tables[ROW_START][b + 1]
    total = 0.0
    while i < end_i and j < end_j:
        if tables[ROW_LABELS][i] < tables[ROW_LABELS][j]:
            i += 1
        elif tables[ROW_LABELS][i] > tables[ROW_LABELS][j]:
            j += 1
        else:
            total += tables[AFFINITIES][i] * tables[AFFINITIES][j]
            i += 1
            j += 1
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _pick(sums: np.ndarray, start: Int, end: Int, state: np.ndarray) -> Int:
    """Index in start..end-1, in proportion to the weights that `sums` adds up."""
    target = draw_uniform(state) * sums[end - 1]
    low, high = start, end - 1
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True, error_model="numpy")
def _acceptance(query: Int, image: Int, tables: tuple[Any, ...]) -> Float:
    """Share of the walks from `query` to `image` that count: makes the walk uniform, or cuts it off."""
    overlap = _overlap(query, image, tables)
    if image == query or overlap <= tables[CUTOFF]:
        return 0.0
    return 1.0 / overlap if tables[UNIFORM] else 1.0


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(query: Int, tables: tuple[Any, ...], state: np.ndarray) -> Int:
    """Related image by going through all walks from `query`, for queries where rejection is slow; -1 if none."""
    chosen, total = -1, 0.0
    for i in range(tables[ROW_START][query], tables[ROW_START][query + 1]):
        label = tables[ROW_LABELS][i]
        start, end = tables[LABEL_START][label], tables[LABEL_START][label + 1]
        row_weight = tables[ROW_WEIGHTS][i]
        if i > tables[ROW_START][query]:
            row_weight -= tables[ROW_WEIGHTS][i - 1]
        for j in range(start, end):
            weight = tables[LABEL_WEIGHTS][j] - (tables[LABEL_WEIGHTS][j - 1] if j > start else 0.0)
            weight *= row_weight / tables[LABEL_WEIGHTS][end - 1]
            weight *= _acceptance(query, tables[LABEL_IMAGES][j], tables)
            total += weight
            if weight > 0.0 and draw_uniform(state) * total < weight:
                chosen = tables[LABEL_IMAGES][j]
    return chosen


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_related(query: Int, tables: tuple[Any, ...], state: np.ndarray) -> Int:
    """Positive by walking from the query to one of its labels and from there to one of its images."""
    for _ in range(_TRIES):
        i = _pick(tables[ROW_WEIGHTS], tables[ROW_START][query], tables[ROW_START][query + 1], state)
        label = tables[ROW_LABELS][i]
        j = _pick(tables[LABEL_WEIGHTS], tables[LABEL_START][label], tables[LABEL_START][label + 1], state)
        acceptance = _acceptance(query, tables[LABEL_IMAGES][j], tables)
        if acceptance > 0.0 and draw_uniform(state) < acceptance:
            return tables[LABEL_IMAGES][j]
    return _walk(query, tables, state)


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_unrelated(query: Int, tables: tuple[Any, ...], state: np.ndarray) -> Int:
    """Negative by trying images, and in the end by counting the unrelated ones."""
    for _ in range(_TRIES):
        image = np.int32(draw_below(tables[N_IMAGES], state))
        if image != query and _overlap(query, image, tables) <= tables[CUTOFF]:
            return image
    chosen, seen = np.int32(-1), 0
    for i in range(tables[N_IMAGES]):
        if i != query and _overlap(query, i, tables) <= tables[CUTOFF]:
            seen += 1
            if draw_below(seen, state) == 0:
                chosen = np.int32(i)
    return chosen


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_by_class(tables: tuple[Any, ...], state: np.ndarray, queries: np.ndarray, triplets: np.ndarray) -> None:
    """Triplets from labels, of `queries` or, if these are none, of a query drawn for each: a few reads each."""
    class_of, class_start, by_class = tables[CLASS_OF], tables[CLASS_START], tables[BY_CLASS]
    usable, place, n_images = tables[USABLE], tables[PLACE], len(class_of)
    for step in range(len(triplets)):
        query = queries[step] if len(queries) else usable[draw_below(len(usable), state)]
        start = class_start[class_of[query]]
        size = class_start[class_of[query] + 1] - start
        # Uniform over the places of the class, with the query's place cut out ...
        i = start + draw_below(size - 1, state)
        positive = by_class[i + (i >= place[query])]
        if tables[CHECK_NEGATIVES]:
            # ... and over all places, with the query's class cut out.
            i = draw_below(n_images - size, state)
            negative = by_class[i + (size if i >= start else 0)]
        else:
            negative = np.int32(draw_below(n_images, state))
        triplets[step, 0], triplets[step, 1], triplets[step, 2] = query, positive, negative


@njit(cache=True, nogil=True, error_model="numpy")
def _draw_by_walking(tables: tuple[Any, ...], state: np.ndarray, queries: np.ndarray, triplets: np.ndarray) -> None:
    """Triplets from several labels or clicks; `queries` as above."""
    for step in range(len(triplets)):
        query = queries[step] if len(queries) else tables[USABLE][draw_below(len(tables[USABLE]), state)]
        triplets[step, 0] = query
        triplets[step, 1] = _draw_related(query, tables, state)
        if tables[CHECK_NEGATIVES]:
            triplets[step, 2] = _draw_unrelated(query, tables, state)
        else:
            triplets[step, 2] = draw_below(tables[N_IMAGES], state)


@njit(cache=True, nogil=True, error_model="numpy")
def _find_usable(tables: tuple[Any, ...], usable: np.ndarray) -> None:
    """Mark images with a related and an unrelated image; each search ends with the first one found."""
    for query in range(tables[N_IMAGES]):
        related = False
        for i in range(tables[ROW_START][query], tables[ROW_START][query + 1]):
            label = tables[ROW_LABELS][i]
            for j in range(tables[LABEL_START][label], tables[LABEL_START][label + 1]):
                if _acceptance(query, tables[LABEL_IMAGES][j], tables) > 0.0:
                    related = True
                    break
            if related:
                break
        unrelated = not tables[CHECK_NEGATIVES]
        for image in range(tables[N_IMAGES]):
            if unrelated or not related:
                break
            unrelated = image != query and _overlap(query, image, tables) <= tables[CUTOFF]
        usable[query] = related and unrelated


# -- the sampler -------------------------------------------------------------------------------------------------------


class TripletSampler:
    """Draws triplets (query, positive, negative) of image numbers.

    The query is uniform over the images that have a related and an unrelated one, unless `balance` says otherwise. With
    labels the positive is uniform over the other related images; with clicks it is drawn in proportion to Pr(a, b). The
    negative is uniform over the unrelated images, exactly.

    Parameters
    ----------
    y : array of shape (n,), or sparse array of shape (n, n_labels)
        One label per image, of any type that sorts; or several labels per image (related: a shared label; weights are
        not used); or, with `cutoff`, click counts (images x queries). Sparse entries must not be negative.
    cutoff : float or str, optional
        `y` holds clicks. A number, at least 0, is theta of section 5.2: images are related where Pr(a, b) > theta. A
        text such as "top 1 %" asks for this share of the pairs of images that any query joins, those of the largest
        Pr, and of the pairs that are as large as the last of them.
    check_negatives : bool, default=True
        False draws negatives from all images without looking, which the paper finds harmless with very many labels.
    subset : array of shape (m,), optional
        Draw from these images only; the numbers drawn are places in `subset`. Pr keeps the totals of all images.
    balance : {"image", "class"}, default="image"
        How queries are sampled: "image", all images equally often, as in the paper; "class", all labels equally often,
        and of each label its images in turn, so that small classes count as much as large ones.

    Attributes
    ----------
    n_skipped_ : int
        Images that cannot be a query: alone in their class, without a related image, or related to all others.

    Raises
    ------
    ValueError
        Fewer than two classes, no class of two images, no image with a related and an unrelated one, negative or
        missing values.

    Notes
    -----
    Section 5.2 samples a text query's images; here an image is the query throughout, as in section 2.3. Queries of many
    pairs are few, and drawn independently, as in the paper, some images would be queries twice before others were once:
    `draw_pass` deals them. `balance` is ours, and of `draw_pass` alone.

    Memory is proportional to the number of entries of `y`. Clicks and several labels are drawn by walking and
    rejecting; after 64 rejections all walks from the query are gone through once, which gives the same distribution.

    Examples
    --------
    >>> sampler = TripletSampler(["cat", "dog", "cat", "dog", "owl"])
    >>> sampler.n_skipped_
    1
    >>> queries, positives, negatives = sampler.sample(4, seed=0)
    >>> queries.shape
    (4,)
    """

    def __init__(
        self,
        y: Any,
        *,
        cutoff: float | str | None = None,
        check_negatives: bool = True,
        subset: np.ndarray | None = None,
        balance: str = "image",
    ) -> None:
        if balance not in ("image", "class"):
            raise ValueError(f"balance must be 'image' or 'class', got {balance!r}")
        if balance == "class" and cutoff is not None:
            raise ValueError("balance='class' needs labels, not clicks: use 'image'")
        if sp.issparse(y):
            tables = _tables_from_sparse(y, cutoff, check_negatives, subset)
            what = "image has both a related and an unrelated image"
            what += "" if cutoff is None else f" with the click cut-off {cutoff!r}"
        else:
            if cutoff is not None:
                raise ValueError("a click cut-off needs y as a sparse array of counts (images x queries)")
            tables = _tables_from_classes(y, check_negatives, subset)
            what = "class has two images"
        if len(tables.usable) == 0:
            raise NoTriplets(f"no triplet can be drawn: no {what}")
        self._tables = tables
        self._by_class = balance == "class"
        self._deals: dict[tuple, tuple] = {}  # of each seed: number, length and order of the last one
        self.n_skipped_ = int(tables.n_images - len(tables.usable))

    def draw(self, state: np.ndarray, n: int) -> np.ndarray:
        """Draw `n` triplets: int32 of shape (n, 3), columns query, positive, negative.

        `state`, made by `stream`, is advanced.
        """
        return self._draw(self._tables, state, np.empty(0, np.int32), n)

    def draw_pass(
        self,
        seed: tuple[int, ...],
        first: int,
        n: int,
        *,
        pairs_per_query: int = 1,
        shard: tuple[int, int] | None = None,
    ) -> np.ndarray:
        """Draw the triplets `first` to `first + n` of a training, as `draw`; a function of the arguments alone.

        With several `pairs_per_query` each query serves so many triplets in a row, and queries are dealt: all images
        have their turn, in random order, before one has its next. With `shard` (k, n_shards) the queries are of the
        k-th of so many parts of the images.
        """
        tables = self._tables
        if shard is not None:
            usable = readonly(tables.usable[shard[0] :: shard[1]])
            if not len(usable):
                raise ValueError(f"{len(tables.usable)} query images are too few for {shard[1]} shards")
            tables = tables._replace(usable=usable)
        queries = np.empty(0, np.int32)
        if self._by_class and n:
            turns = np.arange(first, first + n) // pairs_per_query
            queries = self._deal_by_class(tables, seed, turns)
        elif pairs_per_query > 1 and n:
            turns = np.arange(first, first + n) // pairs_per_query
            queries = self._shuffled_queries(tables.usable, seed, int(turns[0]), int(turns[-1]) + 1)[turns - turns[0]]
        return self._draw(tables, stream(*seed, first), queries, n)

    def _shuffled_queries(self, usable: np.ndarray, seed: tuple[int, ...], start: int, stop: int) -> np.ndarray:
        """Queries whose turns are `start` to `stop` - 1: (stop - start,) int32."""
        n, dealt = len(usable), []
        for deal in range(start // n, (stop - 1) // n + 1):
            # A training asks for one turn after the other, and a deal of millions of images takes a while.
            kept = self._deals.get(seed)
            if kept is None or kept[:2] != (deal, n):
                kept = self._deals[seed] = deal, n, shuffled(n, stream(*seed, deal, _DEALS))
            dealt.append(kept[2][max(0, start - deal * n) : stop - deal * n])
        return usable[np.concatenate(dealt)]

    def _deal_by_class(self, tables: TripletTables, seed: tuple[int, ...], turns: np.ndarray) -> np.ndarray:
        """Queries of some turns: the labels in a random order, again and again, and of each its images likewise."""
        kept = self._deals.get(seed)
        if kept is None or kept[0] is not tables.usable:
            kept = self._deals[seed] = tables.usable, *_images_by_label(tables, stream(*seed, 0, _DEALS))
        _, images, start = kept
        rounds, label = np.divmod(turns, len(start) - 1)
        return images[start[label] + rounds % np.diff(start)[label]]

    def _draw(self, tables: TripletTables, state: np.ndarray, queries: np.ndarray, n: int) -> np.ndarray:
        triplets = np.empty((n, 3), np.int32)
        draw = _draw_by_class if tables.has_classes else _draw_by_walking
        draw(tuple(tables), state, queries, triplets)
        return triplets

    def sample(self, n: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw `n` triplets: three int32 arrays of shape (n,), the same for the same seed."""
        queries, positives, negatives = self.draw(stream(seed), n).T
        return queries, positives, negatives


def _images_by_label(tables: TripletTables, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Usable images of each label that has some, labels and images in random order; where each label begins."""
    if tables.has_classes:
        images, labels = tables.by_class, np.repeat(np.arange(len(tables.class_start) - 1), np.diff(tables.class_start))
    else:
        labels = np.repeat(np.arange(len(tables.label_start) - 1), np.diff(tables.label_start))
        images = tables.label_images
    usable = np.isin(images, tables.usable)
    images, labels = images[usable], np.unique(labels[usable], return_inverse=True)[1]
    order = shuffled(len(images), state)
    order = order[np.argsort(shuffled(labels.max() + 1, state)[labels[order]], kind="stable")]
    edges = np.flatnonzero(np.diff(labels[order])) + 1
    return readonly(images[order]), np.concatenate([[0], edges, [len(order)]])


def related_images(y: Any, rows: np.ndarray, columns: np.ndarray, *, cutoff: float | str | None = None) -> np.ndarray:
    """Which images of `columns` are related to which of `rows`: bool of shape (n_rows, n_columns).

    `y` and `cutoff` as for `TripletSampler`; an image is related to itself where it has a label. Dense: for the few
    hundred images of a validation set.
    """
    if not sp.issparse(y):
        y = np.asarray(y)
        return y[rows, None] == y[None, columns]
    affinities, _, threshold = _affinities(y, cutoff)
    return (affinities[rows] @ affinities[columns].T).toarray() > threshold


def _tables_from_classes(y: Any, check_negatives: bool, subset: np.ndarray | None) -> TripletTables:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"labels must have shape (n,), not {y.shape}; give several labels per image as a sparse array")
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError("labels contain NaN")
    classes, class_of = np.unique(y if subset is None else y[subset], return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"labels must name at least two classes, got {len(classes)} class")
    sizes = np.bincount(class_of)
    by_class = np.argsort(class_of, kind="stable")
    place = np.empty(len(class_of), np.int32)
    place[by_class] = np.arange(len(class_of))
    return TripletTables(
        has_classes=True,
        check_negatives=bool(check_negatives),
        n_images=len(class_of),
        usable=readonly(np.flatnonzero(sizes[class_of] > 1).astype(np.int32)),
        class_of=readonly(class_of.astype(np.int32)),
        class_start=readonly(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)),
        by_class=readonly(by_class.astype(np.int32)),
        place=readonly(place),
    )


def _tables_from_sparse(
    y: Any, cutoff: float | str | None, check_negatives: bool, subset: np.ndarray | None
) -> TripletTables:
    affinities, weights, threshold = _affinities(y, cutoff)
    totals = np.asarray(weights.sum(axis=0)).ravel()  # (n_labels,)
    if subset is not None:
        affinities, weights = affinities[subset], weights[subset]
    n_images = affinities.shape[0]
    columns = weights.tocsc()
    here = np.asarray(weights.sum(axis=0)).ravel()
    if not here.any():
        raise ValueError("no triplet can be drawn: y has no positive entry")
    # From a label, walks go to its images by their weight. With labels, walks to a label go by its size, so that each
    # pair of a label and an image has the same chance; with clicks by R[a, q], less what the subset has not of q.
    row_weights = here[weights.indices]
    if cutoff is not None:
        row_weights *= weights.data / totals[weights.indices]
    tables = TripletTables(
        has_classes=False,
        check_negatives=bool(check_negatives),
        uniform=cutoff is None,
        cutoff=float(threshold),
        n_images=n_images,
        row_start=readonly(affinities.indptr.astype(np.int64)),
        row_labels=readonly(affinities.indices.astype(np.int32)),
        row_weights=readonly(_sums_by_row(row_weights, weights.indptr)),
        affinities=readonly(affinities.data),
        label_start=readonly(columns.indptr.astype(np.int64)),
        label_images=readonly(columns.indices.astype(np.int32)),
        label_weights=readonly(_sums_by_row(columns.data, columns.indptr)),
    )
    usable = np.zeros(n_images, bool)
    _find_usable(tuple(tables), usable)
    return tables._replace(usable=readonly(np.flatnonzero(usable).astype(np.int32)))


def _affinities(y: Any, cutoff: float | str | None) -> tuple[sp.csr_array, sp.csr_array, float]:
    """Affinities and walking weights, both (n, n_labels) with the same pattern, and the threshold of their overlap."""
    weights = sp.csr_array(y, dtype=np.float64, copy=True)
    weights.sum_duplicates()
    if not np.isfinite(weights.data).all() or (weights.data < 0).any():
        raise ValueError("y must not hold negative, infinite or missing entries")
    weights.eliminate_zeros()
    affinities = weights.copy()
    if cutoff is None:
        weights.data[:] = 1.0
        affinities.data[:] = 1.0
        return affinities, weights, 0.0
    share = share_of_cutoff(cutoff)
    totals = np.asarray(weights.sum(axis=0)).ravel()  # (n_queries,)
    affinities.data /= np.sqrt(totals[affinities.indices] * totals.sum())
    return affinities, weights, float(cutoff) if share is None else _threshold_of_share(affinities, share)


def share_of_cutoff(cutoff: float | str) -> float | None:
    """Share of the pairs that a click cut-off such as "top 1 %" asks for; None for a threshold.

    ValueError for neither a number of at least 0, nor a share above 0 % and up to 100 %.
    """
    if isinstance(cutoff, str):
        percent = re.fullmatch(r"top (\d+(?:\.\d+)?) ?%", cutoff.strip())
        if percent and 0 < float(percent[1]) <= 100:
            return float(percent[1]) / 100
    elif cutoff >= 0:
        return None
    raise ValueError(f"the click cut-off must be a number of at least 0, or a share such as 'top 1 %', got {cutoff!r}")


def _threshold_of_share(affinities: sp.csr_array, share: float) -> float:
    """Number that Pr exceeds for this share of the pairs of images that any query joins, or a little more.

    Where there are very many pairs, those of a part of the images, drawn by a fixed seed.
    """
    rows = np.random.default_rng(0).permutation(affinities.shape[0])
    pairs_of = np.diff(affinities.tocsc().indptr)  # images of each query
    bound = np.cumsum((affinities.astype(bool) @ pairs_of)[rows])  # at least as many pairs
    rows = np.sort(rows[: max(1, np.searchsorted(bound, _PAIRS, side="right"))])
    products = sp.coo_array(affinities[rows] @ affinities.T)
    values = products.data[rows[products.coords[0]] != products.coords[1]]
    if not len(values):
        return 0.0  # no two images share a query: nothing is related
    kept = max(1, round(share * len(values)))
    # A little less, as the kernel may add up the products in another order.
    return float(np.partition(values, len(values) - kept)[len(values) - kept]) * (1 - 1e-9)


def _sums_by_row(data: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Cumulative sums of a CSR or CSC array's entries, from zero in each row or column."""
    sums = np.empty(len(data), np.float64)
    for start, end in zip(indptr[:-1], indptr[1:], strict=True):
        np.cumsum(data[start:end], out=sums[start:end])
    return sums
