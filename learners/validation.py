"""Held-out images of a learner: the split, the mean average precision that early stopping uses, and the open world.

Chechik, Sharma, Shalit, Bengio, JMLR 11, 2010, section 5.1 (the measure) and section 5.2.1 (the use). Learners know
nothing of `visterm.retrieval`, so the few lines of the measure stand here once more.

The papers test on classes that were trained on. Users meet others, too: so whole classes are held out beside single
images, and the weight of the learner is chosen by what both kinds of images need (`Worlds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.special import stdtrit

from .options import MAX_QUERIES
from .rows import Int, readonly

# Enough for a standard error of the mean well below 0.01; more would take longer than the training between validation
# checks.
MAX_IMAGES = 5000

WORLDS = ("seen", "open", "unseen")  # what a similarity is for: classes that it was trained on, any, others
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)  # weights of the learner, among which one is chosen
# Without evidence for another share: unseen classes lose next to nothing by these (docs/open-world.md). Most of what a
# class teaches of sparse vectors is about visterms that other classes do not have: more of it does no harm, where
# learning began at the vectors or W is of pairs of visterms.
CAUTIOUS, CAUTIOUS_SPARSE = 0.25, 0.4
_CLEARLY = 0.975  # quantile of Student's t
FEWEST_CLASSES = 5  # below, the classes that are left are too few to learn from
_FEW_RELEVANT = 500  # images, before each of which the others are counted
_FEWEST_ALONE = 20  # images of whole classes that validate without images of others
_UNSEEN = 0.2  # share of the classes, or of the images that have several labels, that no training image is of


def check_world(world: Any) -> None:
    """Refuse anything but one of `WORLDS`."""
    if world not in WORLDS:
        raise ValueError(f"world must be 'seen', 'open' or 'unseen', got {world!r}")


class TooFewImages(ValueError):
    """There are too few images to hold some out."""


def split(y: Any, fraction: float, seed: int) -> np.ndarray:
    """Images that validate, sorted; the same for the same seed; TooFewImages if there are none.

    `fraction` of each class is held out, but at least two images (one alone has no relevant image) and at most all but
    two; classes of fewer than four images stay in training. With several labels per image the split is uniform. At most
    `MAX_IMAGES` are held out. Where all classes are smaller, `split_by_class` holds out.
    """
    rng = np.random.default_rng([seed, 1])
    n = y.shape[0]
    held_out = np.zeros(n, bool)
    if sp.issparse(y):
        held_out[rng.permutation(n)[: min(round(fraction * n), n - 2)]] = True
    else:
        classes, class_of = np.unique(y, return_inverse=True)
        for c in range(len(classes)):
            members = rng.permutation(np.flatnonzero(class_of == c))
            if len(members) >= 4:
                held_out[members[: min(max(2, round(fraction * len(members))), len(members) - 2)]] = True
    validation = np.flatnonzero(held_out)
    if len(validation) > MAX_IMAGES:
        held_out[rng.permutation(validation)[MAX_IMAGES:]] = False
    if not held_out.any():
        why = "it is too small a share" if sp.issparse(y) else "no class has four"
        raise TooFewImages(f"validation_fraction={fraction} holds out no image, as {why}")
    return np.flatnonzero(held_out)


def unseen_rows(y: Any, seed: int) -> np.ndarray:
    """Images of whole classes to hold out, sorted; none where no class can be.

    A fifth of the classes, two at least, that have two images or more. With several labels per image, or clicks: the
    images that have one of the labels drawn, until they are a fifth of the images. The remaining images have two
    classes of two images, or labels that not all of them have.
    """
    rng = np.random.default_rng([seed, 4])
    if sp.issparse(y):
        has = sp.csc_array(y > 0)
        sizes = np.diff(has.indptr)
        unseen = np.zeros(y.shape[0], bool)
        drawn = 0
        for label in rng.permutation(np.flatnonzero((sizes >= 2) & (sizes <= _UNSEEN * y.shape[0]))):
            if drawn >= 2 and unseen.sum() >= _UNSEEN * y.shape[0]:
                break
            unseen[has.indices[has.indptr[label] : has.indptr[label + 1]]] = True
            drawn += 1
        images_of = np.asarray((y[~unseen] > 0).sum(axis=0)).ravel()
        enough = drawn >= 2 and ((images_of >= 2) & (images_of < (~unseen).sum())).sum() >= 2
        return np.flatnonzero(unseen) if enough else np.empty(0, np.int64)
    classes, class_of, sizes = np.unique(y, return_inverse=True, return_counts=True)
    able = np.flatnonzero(sizes >= 2)
    if len(able) < FEWEST_CLASSES:
        return np.empty(0, np.int64)
    drawn_classes = rng.permutation(able)[: max(2, round(_UNSEEN * len(able)))]
    return np.flatnonzero(np.isin(class_of, drawn_classes))


def split_by_class(y: Any, seed: int) -> np.ndarray:
    """Images of whole classes that validate alone, as no class can give some of its images: those of `unseen_rows`.

    None where they are too few to choose anything by.
    """
    unseen = unseen_rows(y, seed)
    return unseen if len(unseen) >= _FEWEST_ALONE else unseen[:0]


def hold_out(
    y: Any, rows: Any, fraction: float | None, seed: int, *, whole_classes: bool
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Images that validate, and those of whole classes among them and beside them, sorted; None without.

    `rows`, if given, validate in place of `fraction` of each class. With `whole_classes` classes are held out, too: at
    most `MAX_IMAGES` / 2 of their images validate. Where no class that is left has four images, only these validate:
    see `split_by_class`.
    """
    if rows is None and fraction is None:
        return None, None

    def images(of: np.ndarray | slice) -> np.ndarray:
        if rows is None and fraction is not None:
            return split(y[of], fraction, seed)
        return _checked_rows(rows, y.shape[0])

    if not whole_classes:
        return images(slice(None)), None
    unseen = unseen_rows(y, seed)
    rest = np.setdiff1d(np.arange(y.shape[0]), unseen)
    try:
        beside = np.intersect1d(images(rest), rest) if rows is not None else rest[images(rest)]
    except TooFewImages:  # at most the classes that are held out have four images
        beside = rest[:0]
    alone = rows is None and len(unseen) >= _FEWEST_ALONE
    if not len(beside) and not alone:  # no image of a class that is trained on would validate
        unseen, beside = unseen[:0], images(slice(None))
    most = MAX_IMAGES // 2
    validating = unseen if len(unseen) <= most else np.random.default_rng([seed, 5]).permutation(unseen)[:most]
    return np.union1d(beside, validating), unseen


def _checked_rows(validation_rows: Any, n: int) -> np.ndarray:
    rows = np.sort(np.asarray(validation_rows))
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError("validation_rows must be row numbers of X, at least one")
    if rows[0] < 0 or rows[-1] >= n:
        raise ValueError(f"validation_rows must lie between 0 and {n - 1}, got {rows[0]} to {rows[-1]}")
    return np.unique(rows)


def groups_of(y: Any) -> np.ndarray:
    """The class of each image, (n,); of several labels the rarest, -1 for an image without any."""
    if not sp.issparse(y):
        return np.asarray(y)
    has = sp.csr_array(y > 0)
    sizes = np.asarray(has.sum(axis=0)).ravel()
    rows = np.split(has.indices, has.indptr[1:-1])
    return np.array([row[sizes[row].argmin()] if len(row) else -1 for row in rows])


class Quality(NamedTuple):
    """How well held-out images query each other: means over the queries that have a relevant image, else 0."""

    map: float  # mean average precision
    p1: float  # precision at 1

    @classmethod
    def of(cls, precisions: np.ndarray) -> Quality:
        """Means of what `precisions` returns."""
        return cls(mean_of(precisions[:, 0]), mean_of(precisions[:, 1]))


class Choice(NamedTuple):
    """Result of `Worlds.choose`."""

    learned_weight: float  # the share
    quality: Quality  # of the world by whose mAP it was chosen
    cosine: Quality  # of the vectors themselves, by the same measure
    figures: dict[str, Any]  # for reports: see `OnlineLearner.worlds_`


class _Part(NamedTuple):
    """Queries and images of one world."""

    rows: np.ndarray  # (n_queries,) numbers of the queries
    columns: np.ndarray  # (n_images,) numbers of the images
    relevant: np.ndarray  # (n_queries, n_images)
    place: np.ndarray  # (n_queries,) place of each query among the images

    @classmethod
    def of(cls, relevant: np.ndarray, queries: np.ndarray, images: np.ndarray) -> _Part:
        rows, columns = np.flatnonzero(images[queries]), np.flatnonzero(images)
        return cls(rows, columns, relevant[np.ix_(rows, columns)], np.searchsorted(columns, queries[rows]))

    def chance(self) -> float:
        """Share of relevant images, for all queries that have any: about the mAP of a ranking at random."""
        others = self.relevant.sum(axis=1) - 1
        return float(others[others > 0].mean() / (len(self.columns) - 1)) if (others > 0).any() else 0.0

    def scores(self, scores: np.ndarray) -> np.ndarray:
        """Scores of these queries and images, of those of all."""
        return scores[np.ix_(self.rows, self.columns)]

    def precisions(self, scores: np.ndarray) -> np.ndarray:
        """Result of `precisions` for scores of these queries and images."""
        return precisions(scores, self.relevant, self.place)


class Worlds:
    """Held-out images of classes that are trained on ("seen") and of others ("unseen"), and measures of a similarity.

    Mean average precision of queries of seen classes among these images, of unseen ones among those, and of all among
    all ("both"), which is what users meet.

    `relevant` and `cosine`, inner products of the vectors themselves, are (n_queries, n_images); `queries` are the
    column of each query, `unseen` is said of each image. Queries of one of the `groups`, such as a class, are no
    independent evidence.
    """

    def __init__(
        self, relevant: np.ndarray, queries: np.ndarray, unseen: np.ndarray, groups: np.ndarray, cosine: np.ndarray
    ) -> None:
        self._parts = [_Part.of(relevant, queries, ~unseen)]
        if unseen.any():
            everything = np.ones(len(unseen), bool)
            self._parts += [_Part.of(relevant, queries, unseen), _Part.of(relevant, queries, everything)]
        self._groups = groups
        self._cosine = [part.precisions(part.scores(cosine)) for part in self._parts]
        self._figures: dict[str, list] = {
            "cosine": [mean_of(part[:, 0]) for part in self._cosine],
            "chance": [part.chance() for part in self._parts],
            "n_images": [len(part.columns) for part in self._parts],
        }

    def choose(
        self,
        cosine: np.ndarray,
        learned: np.ndarray,
        world: str,
        shares: Sequence[float] = SHARES,
        cautious: float = CAUTIOUS,
    ) -> Choice:
        """Choose the weight of the learner among `shares`.

        It is `cautious`, or 1 where only seen classes count, or 0 where only unseen ones validate, unless another share
        is clearly better, by a t-test over groups. A few classes say little, and the best of many shares on them is
        mostly chance.

        `cosine` and `learned`, (n_queries, n_images), are the scores before learning, and those of the learner, times
        its scale. `world` says by which mAP: on "seen" classes, on "unseen" ones, or with "open" on both in one
        gallery, among the shares with which neither seen nor unseen classes are clearly below cosine, where there are
        such.
        """
        parts = [(part.precisions, part.scores(cosine), part.scores(learned)) for part in self._parts]
        aps = [[measure((1 - a) * c + a * s) for measure, c, s in parts] for a in map(np.float32, shares)]
        best = 0
        place = {"seen": 0, "unseen": 1, "open": 2}[world] if len(self._parts) > 1 else 0
        if len(shares) > 1:
            best = shares.index(1.0 if world == "seen" else cautious if len(self._parts[0].columns) else 0.0)
            able = list(range(len(shares)))
            if world == "open":
                able = [
                    i for i in able if not any(self._is_above(self._cosine, aps[i], part) for part in (0, 1))
                ] or able
            if len(self._parts) > 1 or world == "seen":  # else nothing is known of unseen classes
                start = best if best in able else min(able, key=lambda i: abs(shares[i] - shares[best]))
                better = [i for i in able if self._is_above(aps[i], aps[start], place)]
                best = max(better, key=lambda i: mean_of(aps[i][place][:, 0]), default=start)
        curve = [[mean_of(part[:, 0]) for part in each] for each in aps]
        below = [self._is_above(self._cosine, aps[best], part) for part in range(len(self._parts))]
        (gain, error, _), (p1, p1_error, _) = (self._gain(aps[best], self._cosine, place, i) for i in (0, 1))
        figures = {"shares": list(shares), "curve": curve, "learner": curve[best]} | self._figures
        figures |= {"clearly_below": below, "gain": [gain, error], "p1_gain": [p1, p1_error]}
        return Choice(shares[best], Quality.of(aps[best][place]), Quality.of(self._cosine[place]), figures)

    def _is_above(self, first: list[np.ndarray], second: list[np.ndarray], place: int) -> bool:
        """Whether some average precisions of a part are clearly higher: by a t-test over the means of groups."""
        if place >= len(self._parts):
            return False
        mean, error, n = self._gain(first, second, place)
        return n > 1 and mean > float(stdtrit(n - 1, _CLEARLY)) * error

    def _gain(
        self, first: list[np.ndarray], second: list[np.ndarray], place: int, of: int = 0
    ) -> tuple[float, float, int]:
        """Mean over groups of the gain of a part in average precision, its standard error, and the number of groups.

        `of` 1: in precision at 1.
        """
        gains = first[place][:, of] - second[place][:, of]
        known = ~np.isnan(gains)
        _, group = np.unique(self._groups[self._parts[place].rows][known], return_inverse=True)
        means = np.bincount(group, gains[known]) / np.bincount(group)
        n = len(means)
        return float(means.mean()) if n else 0.0, float(means.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0, n


def choose_queries(n: int, seed: int) -> np.ndarray:
    """At most `MAX_QUERIES` of n validation images, sorted."""
    return np.sort(np.random.default_rng([seed, 2]).permutation(n)[:MAX_QUERIES])


@njit(cache=True, nogil=True, error_model="numpy")
def _n_before(scores: np.ndarray, place: Int) -> Int:
    """Images that rank before that of a place. No index counts from the end, as they are unsigned: for vector units."""
    n, one, value = np.uint32(0), np.uint32(1), scores[place]
    for i in range(np.uint32(place)):
        n += one - np.uint32(scores[i] < value)
    for i in range(np.uint32(place + 1), np.uint32(len(scores))):
        n += one - np.uint32(scores[i] <= value)
    return np.int64(n)


@njit(cache=True, nogil=True, error_model="numpy")
def _precisions(scores: np.ndarray, relevant: np.ndarray, queries: np.ndarray, most: Int, out: np.ndarray) -> None:
    """Average precision of each row of scores, and precision at 1, of rows with at most so many relevant images.

    The images before each relevant one are only counted: no ranking of all images is made.
    """
    for row in range(len(scores)):
        of_row, query, n, total = scores[row], queries[row], 0, 0.0
        for is_relevant in relevant[row]:
            n += is_relevant
        if query >= 0 and relevant[row, query]:
            n -= 1
        if n == 0 or n > most:
            continue
        own, hits = of_row[query], np.zeros(len(of_row), np.bool_)  # by rank
        for place in range(len(of_row)):
            if relevant[row, place] and place != query:
                value = of_row[place]
                first = query >= 0 and not (own < value or (own == value and query > place))
                hits[_n_before(of_row, place) - first] = True
        n = 0
        for rank in range(len(hits)):
            if hits[rank]:
                n += 1
                total += n / (rank + 1)
        out[row, 0], out[row, 1] = total / n, 1.0 if hits[0] else 0.0


def _precisions_by_sorting(scores: np.ndarray, relevant: np.ndarray, query: int) -> tuple[float, float]:
    """The same of one row, where many images are relevant."""
    order = np.argsort(-scores, kind="stable")
    ranks = 1 + np.flatnonzero(relevant[order[order != query]])
    n = len(ranks)
    return np.cumsum(np.arange(1, n + 1) / ranks)[-1] / n, float(ranks[0] == 1)  # in turn, as the kernel adds them


def mean_average_precision(scores: np.ndarray, relevant: np.ndarray, queries: np.ndarray) -> float:
    """Mean over queries of the mean precision at the rank of each relevant image.

    Queries without a relevant image are skipped; 0.0 if all are. `scores` and `relevant` are (n_queries, n_images):
    larger is closer, and of equal ones the image with the smaller number. `queries` are the queries' own columns, which
    are taken out of the rankings.
    """
    return mean_of(average_precisions(scores, relevant, queries))


def average_precisions(scores: np.ndarray, relevant: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Average precision of each query, arguments as above: (n_queries,), NaN where no image is relevant."""
    return precisions(scores, relevant, queries)[:, 0]


def precisions(scores: np.ndarray, relevant: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Average precision and precision at 1 of each query: (n_queries, 2), NaN where no image is relevant."""
    scores, relevant, queries = readonly(scores), readonly(relevant), readonly(queries)
    by_query = np.full((len(scores), 2), np.nan)
    _precisions(scores, relevant, queries, _FEW_RELEVANT, by_query)
    for row in np.flatnonzero(np.isnan(by_query[:, 0])):
        if relevant[row].sum() > (queries[row] >= 0 and relevant[row, queries[row]]):
            by_query[row] = _precisions_by_sorting(scores[row], relevant[row], queries[row])
    return by_query


def mean_of(precisions: np.ndarray) -> float:
    """Mean over the queries that have a relevant image; 0.0 if none has."""
    known = precisions[~np.isnan(precisions)]
    return float(known.mean()) if len(known) else 0.0
