"""MuSL: a few boosted similarity metrics, and which of them each category uses, learned together.

Babenko, Branson, Belongie: Similarity Metrics for Categorization: from Monolithic to Category Specific, ICCV 2009.

    H_k(a, b) = sum_{t <= T} |f_kt(a) - f_kt(b)|,    f_kt(x) = 1[x_j < theta]                     (equations 1 and 2)
    p = sigmoid(alpha (T / 2 - H)),    L_ck = sum_positive log p + sum_negative log(1 - p)        (equations 3 and 6)
    w = exp(r L_ck) / sum_l exp(r L_cl) |p - y|,    s(c) = argmax_k L_ck                         (equations 9 and 10)

A pair (a, b) belongs to the category c of b; it is positive, y = 1, where a is of c too. A stump calls a pair "same"
where it does not separate it; the one that minimises the weighted count of mistakes is added, for t = 1..T, k = 1..K.

The best of all stumps is found exactly. With A[i, j] the weights of the pairs of images i and j, those of negative
pairs negated, and D = diag(A 1), the mistakes of a stump f are a constant plus its cut

    f' (D - A) f = sum_{i: f_i = 1} (D_ii - sum_{l: f_l = 1} A[i, l])

so all stumps together are one product (D - A) F. The columns of F that belong to one feature are nested: sorted by the
feature's value, each has one image more than the one before. One addition of a row of A takes the product from a column
to the next, and images that lack the feature are never visited: n additions an image that has it, for all thresholds.
Pairs of images whose categories use other metrics have no weight: an image of theirs is added to images of k's alone.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from typing import Any, NoReturn, Self

import joblib
import numpy as np
import scipy.sparse as sp
from numba import njit
from scipy.special import expit, log_expit, softmax
from sklearn.cluster import KMeans
from sklearn.utils.validation import check_is_fitted

from .base import SimilarityLearner
from .checks import check_choice, check_integer, check_positive, plain_labels
from .draws import draw_seed
from .options import FitOptions
from .rows import FASTMATH, Float, Int, readonly
from .sides import Side, Sides
from .sums import product

_log = logging.getLogger(__name__)

_GROUPINGS = ("joint", "kmeans", "random")
_MIDPOINTS = ("final", "running")
_FEWEST_ENTRIES = 0.05  # non-zero share of k-means visterms from which thresholds split images
_MUCH_WORK = 5e8  # additions that a thread does at once: a fraction of a second
# Entries of the features, by feature and there by value, zeros left out: starts (d + 1,) int64, images (nnz,) int32 and
# values (nnz,) float32. A plain tuple: triplets.py says why.
Columns = tuple[np.ndarray, np.ndarray, np.ndarray]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def least_cut(
    columns: tuple[np.ndarray, ...], first: Int, last: Int, A: np.ndarray, degree: np.ndarray, n_active: Int
) -> tuple[float, int, Float, Float]:
    """Stump of features first..last-1 with the least cut: the cut, the feature, the values next to the threshold.

    Each feature's images are moved to one side of the threshold one after another: from the lowest value up to zero,
    and from the highest down to it. `sums` holds, for every image, its weight to those moved. Two images have a weight
    only if one of them is among the first `n_active`. The feature is -1 if none has two values.
    """
    starts, images, values = columns
    n, active = np.uint64(len(degree)), np.uint64(n_active)
    weights = A.reshape(A.size)  # read as in wsabie.py, which says why
    sums = np.empty(len(degree), np.float32)
    # Images moved whose weights are not in `sums` yet, by where their rows begin: four at a time are added, so that
    # `sums` is read and written a quarter as often. Those of images that are not active are added to active ones alone.
    waiting, others = np.empty(4, np.uint64), np.empty(4, np.uint64)
    best, feature, below, above = np.inf, -1, np.float32(0.0), np.float32(0.0)
    for j in range(first, last):
        start, end = starts[j], starts[j + 1]
        middle = start
        while middle < end and values[middle] < 0:
            middle += 1
        for side in range(2):
            origin, step, count = (start, 1, middle - start) if side == 0 else (end - 1, -1, end - middle)
            sums[:] = 0.0
            cut = 0.0
            n_waiting = n_others = 0
            for m in range(count):
                place = origin + step * m
                i = np.uint64(images[place])
                inside = sums[i]
                for k in range(n_waiting):
                    inside += weights[waiting[k] + i]
                if i < active:
                    for k in range(n_others):
                        inside += weights[others[k] + i]
                cut += degree[i] - 2.0 * inside
                if m + 1 < count:
                    beyond = values[place + step]
                elif end - start < len(degree):
                    beyond = np.float32(0.0)
                elif start < middle < end:
                    beyond = values[place + step]
                else:
                    break  # all images are on one side
                if cut < best and beyond != values[place]:
                    best, feature = cut, j
                    below, above = min(beyond, values[place]), max(beyond, values[place])
                if i < active:
                    waiting[n_waiting] = i * n
                    n_waiting += 1
                    if n_waiting == 4:
                        _add_rows(weights, waiting, n, sums)
                        n_waiting = 0
                else:
                    others[n_others] = i * n
                    n_others += 1
                    if n_others == 4:
                        _add_rows(weights, others, active, sums)
                        n_others = 0
    return best, feature, below, above


@njit(nogil=True, error_model="numpy", fastmath=FASTMATH, forceinline=True)
def _add_rows(weights: np.ndarray, begins: np.ndarray, width: Int, sums: np.ndarray) -> None:
    """Add the first `width` numbers of four rows."""
    a, b, c, d = begins[0], begins[1], begins[2], begins[3]
    for i in range(width):
        sums[i] += (weights[a + i] + weights[b + i]) + (weights[c + i] + weights[d + i])


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def weigh_pairs(
    order: np.ndarray,
    n_active: Int,
    pairs: np.ndarray,
    category: np.ndarray,
    H: np.ndarray,
    positive: np.ndarray,
    negative: np.ndarray,
    A: np.ndarray,
    degree: np.ndarray,
) -> None:
    """Write into A the weights of the pairs of every two images, those of negative pairs negated, and its row sums.

    Row and column i are of the image order[i]; those of two images that are both behind the first `n_active` stay as
    they are: they have no weight. `positive` and `negative`, (C, T + 1), hold the weight of a pair of a category at a
    distance.
    """
    for i in range(len(category)):
        total = 0.0
        image = order[i]
        own = category[image]
        width = len(category) if i < n_active else n_active
        for j in range(width):
            second = order[j]
            h, other = H[image, second], category[second]
            forth, back = np.float32(pairs[image, second] & 1), np.float32(pairs[image, second] >> 1)
            if own == other:
                A[i, j] = (forth + back) * positive[own, h]
            else:
                A[i, j] = -(forth * negative[other, h] + back * negative[own, h])
        for j in range(width):  # nothing is stored here: blocks.py says why
            total += A[i, j]
        degree[i] = total


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FASTMATH)
def separate(side: np.ndarray, pairs: np.ndarray, category: np.ndarray, H: np.ndarray, counts: np.ndarray) -> None:
    """Add a stump's distances to H; count the pairs of each category by kind (1: positive) and distance."""
    counts[:] = 0
    for i in range(len(side)):
        for j in range(len(side)):
            H[i, j] += side[i] != side[j]
            counts[category[j], np.int64(category[i] == category[j]), H[i, j]] += pairs[i, j] & 1


@njit(cache=True, nogil=True, error_model="numpy")
def hamming(a: np.ndarray, b: np.ndarray, distances: np.ndarray) -> None:
    """Write the number of bits in which codes a (m, words) and b (n, words) differ."""
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = np.uint64(0)
            for word in range(b.shape[1]):
                # Bits summed in pairs, fours and bytes, and the bytes by a product: LLVM makes it one instruction.
                x = a[i, word] ^ b[j, word]
                x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
                x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
                x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
                total += (x * np.uint64(0x0101010101010101)) >> np.uint64(56)
            distances[i, j] = total


@dataclass(kw_only=True, repr=False, eq=False)
class MuSL(SimilarityLearner):
    """Multiple Similarity Learning.

    Parameters
    ----------
    n_metrics : int, default=5
        K, from 1 (one monolithic metric) to the number of categories (one each).
    n_bits : int, default=32
        T, stumps per metric.
    alpha : float, default=0.5
        How fast a pair's probability changes with its distance.
    midpoint : {"final", "running"}, default="running"
        The distance at which a pair is as likely the same as not: T / 2 from the first round on, or t / 2 after t
        rounds.
    balanced : bool, default=True
        Weigh the positive pairs of each category as much as its negative ones, all together.
    r : float, default=500.0
        Sharpness of the grouping; r of equation 9 is this divided by the number (with `balanced`: weight) of pairs.
    negatives_per_example : int, default=1000
        Negative pairs drawn for each image, without repetition; all of them where there are not so many.
    grouping : {"joint", "kmeans", "random"}, default="joint"
        Which categories share a metric: learned with the metrics, k-means on the categories' mean images, or at random.
    retrain : bool, default=True
        With "joint", learn the metrics again for the categories found (section 2.3.2).
    n_starts : int, default=1
        With "joint", learn so many times, each time from other negative pairs, and keep the likeliest model: that with
        the least `loss` at the end. Starts differ only if an image has more negative pairs than
        `negatives_per_example`.
    max_images : int or None, default=5000
        Learn from at most so many images, drawn as evenly from the categories as they allow.
    random_state : int, RandomState or None, default=None
        The same int gives the same model.
    n_jobs : int, optional
        Threads among which the features are shared out. The model does not depend on it.

    Attributes
    ----------
    classes_ : array of shape (C,)
        The categories, sorted.
    metric_of_category_ : int32 array of shape (C,)
        s(c) of equation 10.
    stump_features_, stump_thresholds_ : int32 and float32 arrays of shape (K, T)
        Bit t of an image's code under metric k says whether its feature is below the threshold.
    likelihoods_ : float64 array of shape (C, K)
        L_ck of equation 6.
    history_ : list of dict
        One entry per round: `phase` ("group" or "train"), `step`, `validation` (None), the mean `loss` (negative log
        likelihood) of the pairs under their category's metric, and the fraction of pairs on the wrong side of the
        midpoint (`violating`).
    phase_ : str
        "group", "train" or "done".
    n_steps_ : int
        Rounds of the present phase.
    start_ : int
        The present start; at the end the one that was kept.
    start_losses_ : list of float
        `loss` at the end of each start so far. Each is a mean over the pairs that the start drew.
    steps_done_, steps_total_ : int
        Rounds of all phases.
    seed_ : int
        `random_state`, or the seed drawn when that is None.
    n_images_ : int

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range, more metrics than categories, or several labels per image.

    Notes
    -----
    The query side is the codes of +-1 under all metrics, end to end. The gallery side is the code under the metric of
    the image's category in that metric's block, and zeros elsewhere; images without a label, or with one that is not in
    `classes_`, have all codes, divided by K.

    `callback` of `fit` is called after every round, and `progress` within rounds; a checkpoint is of the round before.

    The similarity is the inner product of codes of +-1: T - 2 H. The query side holds the codes of all metrics end to
    end; the gallery side an image's code in the block of its category's metric, and zeros. A gallery image without a
    label, or with one that was never seen, has its codes of all metrics, divided by K.

    A round costs K n additions for every non-zero entry of X, n being the number of images; as soon as each category
    uses one metric alone ("train", or a large r), and the K metrics have as many images each, n (2 - 1 / K) in all.

    Peak memory, beside X: n^2 (5 + K) bytes for n images (float32 weights, and for each pair of images whether it was
    drawn and its distance under each metric; with T > 255 those take 2 bytes), and 28 bytes for every non-zero entry.

    Departures from the paper: `midpoint="running"`, `balanced` and `alpha=0.5` did best in the study of
    docs/learners.md; the paper has "final", False and 0.1. The paper divides r = 500 by the number of examples, here it
    is divided by the weight of all pairs, hundreds of times as much: the grouping is that much softer. `n_starts` and
    `max_images` are ours. In the first round of
    "joint" all weights are uniform, as the paper says, but for the leading factor of equation 9. A threshold lies in
    the middle between two neighbouring values. A metric that no category uses keeps its stumps when the others are
    learned again.

    References
    ----------
    B. Babenko, S. Branson, S. Belongie: Similarity Metrics for Categorization: from Monolithic to Category Specific.
    ICCV 2009.

    Examples
    --------
    >>> from visterm.learners import MuSL
    >>> X = [[1, 0, 5], [2, 0, 1], [8, 0, 5], [9, 0, 1], [0, 1, 5], [0, 2, 1], [0, 8, 5], [0, 9, 1]]
    >>> y = ["a", "a", "b", "b", "c", "c", "d", "d"]
    >>> learner = MuSL(n_metrics=2, n_bits=4, alpha=1.0, midpoint="running", random_state=0).fit(X, y)
    >>> learner.categorize([[7, 0, 3], [0, 1, 3]], X, y, n_neighbors=2).tolist()
    ['b', 'c']
    """

    one_label = True
    resumes = True
    by_category = True
    keeps_columns = False
    # What a start learns; that of the best one so far is kept.
    _learned = ("stump_features_", "stump_thresholds_", "likelihoods_", "metric_of_category_")
    classes_: np.ndarray = field(init=False)  # (C,)
    metric_of_category_: np.ndarray = field(init=False)  # (C,)
    stump_features_: np.ndarray = field(init=False)  # (K, T)
    stump_thresholds_: np.ndarray = field(init=False)  # (K, T)
    likelihoods_: np.ndarray = field(init=False)  # (C, K)
    history_: list[dict[str, Any]] = field(init=False)
    phase_: str = field(init=False)
    n_steps_: int = field(init=False)
    start_: int = field(init=False)
    start_losses_: list[float] = field(init=False)
    steps_done_: int = field(init=False)
    steps_total_: int = field(init=False)
    seed_: int = field(init=False)
    n_images_: int = field(init=False)

    n_metrics: int = 5
    n_bits: int = 32
    alpha: float = 0.5
    midpoint: str = "running"
    balanced: bool = True
    r: float = 500.0
    negatives_per_example: int = 1000
    grouping: str = "joint"
    retrain: bool = True
    n_starts: int = 1
    max_images: int | None = 5000
    random_state: Any = None
    n_jobs: int | None = None

    # -- learning ------------------------------------------------------------------------------------------------------

    def check(self, X: Any, y: Any, *, vectors: str | None = None) -> None:
        """Refuse k-means visterms of which images have few, and deep vectors: single ones split images badly there."""
        n_images, n_features = X.shape
        n_entries = X.nnz if sp.issparse(X) else X.size
        if vectors == "kmeans" and n_entries < _FEWEST_ENTRIES * n_images * n_features:
            raise ValueError(
                f"an image has {n_entries / n_images:.0f} of the {n_features:,} k-means visterms, too few to split "
                "images by counts of single ones; use the forest codebook"
            )
        if vectors == "deep":
            raise ValueError(
                "images are split by single numbers, which say little in deep vectors: it ranks worse than cosine; use "
                "another learner, or the forest codebook"
            )

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        X, y = self._check_supervised(X, y, reset=not options.resuming)
        y = plain_labels(y)
        if not options.resuming:
            self._begin(X, y)
        elif not self._check_checkpoint(X):
            return self
        return self._learn(X, y, options)

    def _begin(self, X: sp.csr_array, y: np.ndarray) -> None:
        """Set the state to what it is before the first round."""
        self._check_params()
        for name in set(self._state) - {"n_features_in_", "learned_weight_"}:
            self.__dict__.pop(name, None)
        self.seed_ = draw_seed(self.random_state)
        self.classes_ = np.unique(y)
        n_classes = len(self.classes_)
        if n_classes < 2:
            raise ValueError(f"labels must name at least two classes, got {n_classes} class")
        if self.n_metrics > n_classes:
            asked = f"n_metrics={self.n_metrics} is more than the {n_classes} categories there are"
            raise ValueError(f"{asked}; use n_metrics={n_classes}")
        self.n_images_ = X.shape[0]
        self.history_ = []
        self.stump_features_ = np.zeros((self.n_metrics, self.n_bits), np.int32)
        self.stump_thresholds_ = np.full((self.n_metrics, self.n_bits), -np.inf, np.float32)
        self.likelihoods_ = np.zeros((n_classes, self.n_metrics))
        self.metric_of_category_ = self._initial_grouping(X, y)
        grouped = self._is_joint()
        self.phase_, self.n_steps_ = "group" if grouped else "train", 0
        self.start_, self.start_losses_ = 0, []
        self.steps_done_, self.steps_total_ = 0, self.n_bits * (self.n_starts * (1 + self.retrain) if grouped else 1)

    # Of the fit; the parameters are those of the next one.
    @property
    def _n_metrics(self) -> int:
        return len(self.stump_features_)

    @property
    def _n_bits(self) -> int:
        return self.stump_features_.shape[1]

    @property
    def partial_fit(self) -> Any:
        """Not there: every stump is chosen by looking at all images."""
        raise AttributeError("MuSL learns from all images at once; use fit")

    def assign_categories(self, X: Any, y: Any) -> np.ndarray:
        """Assign the best metric to new categories (section 2.3.1), and store it.

        Parameters
        ----------
        X : CSR or dense of shape (n, d)
            Images of the new categories, and of others, new or known, to tell them from.
        y : array of shape (n,)
            One label per image, at least two in all. Metrics of categories that are known stay.

        Returns
        -------
        int32 array
            Metrics of the new categories, which are now in `classes_` and `metric_of_category_`, in sorted order.
        """
        check_is_fitted(self)
        if self.phase_ != "done":
            raise ValueError("MuSL is a checkpoint of an unfinished fit; call resume first")
        X, y = self._check_supervised(X, y, reset=False)
        y = plain_labels(y)
        if y.dtype.kind != self.classes_.dtype.kind:
            raise ValueError(f"labels must be of the fit's type, {self.classes_.dtype}, got {y.dtype}")
        labels, category = np.unique(y, return_inverse=True)
        if len(labels) < 2:
            raise ValueError("y names one category; images of others are needed to tell it from")
        category = category.astype(np.int32)
        kept = self._choose_images(category)
        X, category = X[kept], readonly(category[kept])
        new = self._places(labels) < 0
        pairs = self._draw_pairs(category, new)
        likelihoods = np.empty((len(labels), self._n_metrics))
        for k in range(self._n_metrics):
            _, counts = self._distances(X, category, pairs, len(labels), k, self._n_bits)
            likelihoods[:, k] = self._likelihoods(counts, self._n_bits)
        merged = np.concatenate([self.classes_, labels[new]])
        order = np.argsort(merged)
        metrics = likelihoods[new].argmax(axis=1).astype(np.int32)
        self.classes_ = merged[order]
        self.metric_of_category_ = np.concatenate([self.metric_of_category_, metrics])[order]
        self.likelihoods_ = np.concatenate([self.likelihoods_, likelihoods[new]])[order]
        return metrics

    def _learn(self, X: sp.csr_array, y: np.ndarray, options: FitOptions) -> Self:
        if not np.array_equal(np.unique(y), self.classes_):
            raise ValueError(f"the checkpoint was made with {len(self.classes_)} other categories; use fit")
        category = np.searchsorted(self.classes_, y).astype(np.int32)
        kept = self._choose_images(category)
        X, category = X[kept], readonly(category[kept])
        n, drawn = len(category), None
        if (
            self.phase_ == "group"
            and self.n_starts > 1
            and n - np.bincount(category).min() <= self.negatives_per_example
        ):
            _log.warning(
                "all %d starts draw the same pairs: negatives_per_example=%d", self.n_starts, self.negatives_per_example
            )
        A, degree = np.empty((n, n), np.float32), np.empty(n)
        columns = _as_columns(X)
        n_jobs = joblib.effective_n_jobs(self.n_jobs)
        # Features are shared out so that each thread has as many entries, a fraction of a second at a time.
        n_entries = columns[0][-1]
        n_rounds = max(1, math.ceil(n_entries * n / (_MUCH_WORK * n_jobs)))
        edges = np.searchsorted(columns[0], np.linspace(0, n_entries, n_rounds * n_jobs + 1)[1:-1])
        parts = list(zip([0, *edges], [*edges, X.shape[1]], strict=True))

        with joblib.Parallel(n_jobs, prefer="threads") as parallel:
            while self.phase_ != "done":
                phase, learned = self.phase_, self._metrics_to_learn()
                if drawn != self.start_:
                    pairs = self._draw_pairs(category, np.full(len(self.classes_), True))
                    drawn = self.start_
                H, counts = {}, {}
                for k in range(self._n_metrics):
                    t = self.n_steps_ if k in learned else self._n_bits
                    H[k], counts[k] = self._distances(X, category, pairs, len(self.classes_), k, t)
                    self.likelihoods_[:, k] = self._likelihoods(counts[k], t)
                for t in range(self.n_steps_, self._n_bits):
                    for k in learned:
                        positive, negative = self._pair_weights(k, counts[k])
                        # Once metrics have categories of their own, most pairs have no weight.
                        active = (positive.any(axis=1) | negative.any(axis=1))[category]  # type: ignore[index]  # rows: arrays
                        order, n_active = np.argsort(~active, kind="stable"), int(active.sum())
                        weigh_pairs(order, n_active, pairs, category, H[k], positive, negative, A, degree)
                        moved = columns if n_active == n else _renumbered(columns, order)
                        cuts = []
                        for start in range(0, len(parts), n_jobs):
                            cuts += parallel(
                                joblib.delayed(least_cut)(moved, first, last, A, degree, n_active)
                                for first, last in parts[start : start + n_jobs]
                            )
                            # What is learned of this round is not read, and learned again, after a resume.
                            if options.progress is not None:
                                options.progress(self)
                        _, feature, below, above = min(cuts)  # of equal cuts the first feature
                        if feature >= 0:
                            self.stump_features_[k, t] = feature
                            self.stump_thresholds_[k, t] = _between(below, above)
                        separate(self._below(X, k)[:, t], pairs, category, H[k], counts[k])
                        self.likelihoods_[:, k] = self._likelihoods(counts[k], t + 1)
                    self.n_steps_ += 1
                    self.steps_done_ += 1
                    if phase == "group":
                        self.metric_of_category_ = self.likelihoods_.argmax(axis=1).astype(np.int32)
                    self._record(counts)
                    if self.n_steps_ == self._n_bits:
                        self._end_phase()
                    if options.callback is not None:
                        options.callback(self)
        return self

    def _end_phase(self) -> None:
        """Begin the next phase: learning again, the next start, or the end."""
        if self.phase_ == "group" and self.retrain:
            self.phase_ = "train"
        else:
            self._keep_the_likeliest()
            if self._is_joint() and len(self.start_losses_) < self.n_starts:
                self.phase_ = "group"
                self.start_ += 1
            else:
                self.phase_ = "done"
                self._restore_best()
                self.start_ = int(np.argmin(self.start_losses_))
                return
        self.n_steps_ = 0
        for k in self._metrics_to_learn():
            self.stump_features_[k] = 0
            self.stump_thresholds_[k] = -np.inf

    def _keep_the_likeliest(self) -> None:
        loss = self.history_[-1]["loss"]
        if loss < min(self.start_losses_, default=np.inf):
            self._keep_best()
        self.start_losses_.append(loss)

    def _metrics_to_learn(self) -> list[int]:
        if self.phase_ == "group":
            return list(range(self._n_metrics))
        return np.unique(self.metric_of_category_).tolist()

    def _is_joint(self) -> bool:
        return self.grouping == "joint" and 1 < self._n_metrics < len(self.classes_)

    def _initial_grouping(self, X: sp.csr_array, y: np.ndarray) -> np.ndarray:
        """Metric of each category, (C,); with "joint" yet to be learned."""
        C, K = len(self.classes_), self._n_metrics
        if K == 1 or self._is_joint():
            return np.zeros(C, np.int32)
        if K == C:
            return np.arange(C, dtype=np.int32)
        if self.grouping == "random":
            return np.random.default_rng([self.seed_, 2]).permutation(np.arange(C) % K).astype(np.int32)
        means = np.stack([np.asarray(X[y == label].mean(axis=0)).ravel() for label in self.classes_])
        return KMeans(K, n_init=10, random_state=self.seed_).fit_predict(means).astype(np.int32)

    def _choose_images(self, category: np.ndarray) -> np.ndarray:
        """Rows to learn from, sorted: all, or of the largest categories as many as keep within `max_images`."""
        n = len(category)
        if self.max_images is None or n <= self.max_images:
            return np.arange(n)
        n_categories = len(np.unique(category))
        if self.max_images < 2 * n_categories:
            raise ValueError(f"max_images={self.max_images} is less than two for each of {n_categories} categories")
        order = np.random.default_rng([self.seed_, 1]).permutation(n)
        order = order[np.argsort(category[order], kind="stable")]  # by category, there at random
        sizes = np.bincount(category)
        turn = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # an image's place in its category
        _log.warning("metrics are learned from %d of %d images: max_images", self.max_images, n)
        return np.sort(order[np.argsort(turn, kind="stable")[: self.max_images]])

    def _draw_pairs(self, category: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Which pairs of images there are, uint8 (n, n): 1 for (i, j), 2 for (j, i), added.

        Those (i, j) whose j is of a category that is `chosen`: all positive ones, and negative ones drawn for each j.
        """
        rng = np.random.default_rng([self.seed_, 0, self.start_])
        n = len(category)
        pairs = np.zeros((n, n), np.uint8)
        for j in np.flatnonzero(chosen[category]):
            others = np.flatnonzero(category != category[j])
            if len(others) > self.negatives_per_example:
                others = rng.choice(others, self.negatives_per_example, replace=False)
            same = np.flatnonzero(category == category[j])
            firsts = np.concatenate([others, same[same != j]])
            pairs[firsts, j] += 1
            pairs[j, firsts] += 2
        return readonly(pairs)

    def _distances(self, X: Any, category: np.ndarray, pairs: np.ndarray, n_categories: int, k: int, t: int) -> Any:
        """Distances H of all pairs of images under the first t stumps of metric k, and what `separate` counts."""
        n = len(category)
        H = np.zeros((n, n), np.min_scalar_type(self._n_bits))
        counts = np.zeros((n_categories, 2, self._n_bits + 1), np.int64)
        sides = self._below(X, k)
        for side in (np.zeros(n, bool), *sides.T[:t]):
            separate(side, pairs, category, H, counts)
        return H, counts

    def _midpoint(self, t: int) -> float:
        return (self._n_bits if self.midpoint == "final" else t) / 2

    def _positive_weight(self, counts: np.ndarray) -> np.ndarray:
        """Weight of each category's positive pairs, (C,); a negative pair has weight 1."""
        n_negative, n_positive = counts.sum(axis=2).T
        return n_negative / np.maximum(n_positive, 1) if self.balanced else np.ones(len(counts))

    def _likelihoods(self, counts: np.ndarray, t: int) -> np.ndarray:
        """L_c of a metric of t stumps (equation 6), (C,)."""
        margin = self.alpha * (self._midpoint(t) - np.arange(self._n_bits + 1))
        return counts[:, 1] @ log_expit(margin) * self._positive_weight(counts) + counts[:, 0] @ log_expit(-margin)

    def _pair_weights(self, k: int, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights of a positive and of a negative pair of each category at each distance (equation 9)."""
        ratio = self._positive_weight(counts)
        if self.phase_ == "train":
            share = (self.metric_of_category_ == k).astype(float)
        else:
            total = (counts.sum(axis=2) * np.stack([np.ones(len(ratio)), ratio], axis=1)).sum()
            share = softmax(self.r / total * self.likelihoods_, axis=1)[:, k]
        t = self.n_steps_
        if t == 0:
            p = np.full(self._n_bits + 1, 0.5)
        else:
            p = expit(self.alpha * (self._midpoint(t) - np.arange(self._n_bits + 1)))
        positive, negative = np.outer(share * ratio, 1 - p), np.outer(share, p)
        return positive.astype(np.float32), negative.astype(np.float32)

    def _record(self, counts: dict[int, np.ndarray]) -> None:
        """Add a round to the history: how each category's pairs fare under its metric."""
        H, middle = np.arange(self._n_bits + 1), self._midpoint(self.n_steps_)
        loss = weight = wrong = 0.0
        for c, k in enumerate(self.metric_of_category_):
            negative, positive = counts[k][c]
            ratio = self._positive_weight(counts[k])[c]
            loss -= self.likelihoods_[c, k]
            weight += negative.sum() + ratio * positive.sum()
            wrong += negative[middle > H].sum() + ratio * positive[middle < H].sum()
        self.history_.append(
            {
                "phase": self.phase_,
                "step": self.n_steps_,
                "validation": None,
                "loss": float(loss / weight),
                "violating": float(wrong / weight),
            }
        )

    # -- the two sides -------------------------------------------------------------------------------------------------

    def _sides(self) -> Sides:
        """Codes and codes under the metrics of the images' categories: both float32 of shape (n, K T)."""

        def query(Q: Any) -> np.ndarray:
            return self._signs(Q).reshape(-1, self._n_metrics * self._n_bits)

        def gallery(X: Any, y: Any = None) -> np.ndarray:
            signs = self._signs(X)  # (n, K, T)
            metrics = self._metrics_of(y, len(signs))
            share = np.where(metrics[:, None] >= 0, np.arange(self._n_metrics) == metrics[:, None], 1 / self._n_metrics)
            signs *= share[:, :, None].astype(np.float32)
            return signs.reshape(-1, self._n_metrics * self._n_bits)

        def no_map() -> NoReturn:
            raise NotImplementedError(
                "MuSL compares by metrics that the label of each gallery image chooses: no export"
            )

        return Sides(Side(query, no_map), Side(gallery, no_map), space=query)

    def codes(self, X: Any) -> np.ndarray:
        """Codes of images under all metrics, bit t in bit t % 64 of word t // 64: uint64 of shape (n, K, words)."""
        check_is_fitted(self)
        X = self._check_images(X)
        words = -(-self._n_bits // 64)
        bits = np.zeros((X.shape[0], self._n_metrics, 64 * words), bool)
        for k in range(self._n_metrics):
            bits[:, k, : self._n_bits] = self._below(X, k)
        return np.packbits(bits, axis=2, bitorder="little").view("<u8")

    def distances(self, Q: Any, X: Any, y: Any = None) -> np.ndarray:
        """Hamming distance of every query to every gallery image under the metric of that image's category.

        The similarity is T - 2 times this. See `transform` for y.

        Returns
        -------
        float32 array of shape (n_queries, n)
        """
        queries, gallery = self.codes(Q), self.codes(X)
        metrics = self._metrics_of(y, len(gallery))
        out = np.zeros((len(queries), len(gallery)), np.float32)
        for k in range(self._n_metrics):
            for rows, weight in ((metrics == k, 1), (metrics < 0, 1 / self._n_metrics)):
                differing = np.empty((len(queries), np.count_nonzero(rows)), np.float32)
                hamming(np.ascontiguousarray(queries[:, k]), gallery[rows, k], differing)
                out[:, rows] += np.float32(weight) * differing
        return out

    def compare_bits(self, q: Any, x: Any, y: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Contribution of each bit to the similarity of a query and a gallery image: 1 where they agree, else -1.

        Parameters
        ----------
        q, x : CSR or dense of shape (1, n_features_in_)
        y : array of shape (1,), optional
            The gallery image's label; without it the bits of all metrics count, each 1 / K.

        Returns
        -------
        visterms : int32 array of shape (n,)
            The feature that each bit looks at; one may come several times.
        amounts : float32 array of shape (n,)
            They sum to the similarity.
        """
        amounts = (self.transform_query(q) * self._gallery_side(x, y))[0]
        compared = np.flatnonzero(amounts)
        return np.asarray(self.stump_features_).ravel()[compared], amounts[compared]

    def categorize(self, Q: Any, X: Any, y: Any, *, n_neighbors: int = 10) -> np.ndarray:
        """Category of each query by a vote of the nearest gallery images, whose labels y all count (section 3.2).

        Images as far away as the last of the `n_neighbors` share the remaining votes. Ties: the category that
        comes first in the sorted labels.

        Returns
        -------
        array of shape (n_queries,)
        """
        check_is_fitted(self)
        check_integer("n_neighbors", n_neighbors, minimum=1)
        labels, category = np.unique(plain_labels(y), return_inverse=True)
        n_neighbors = min(n_neighbors, len(category))
        distances = self.distances(Q, X, y)
        last = np.partition(distances, n_neighbors - 1, axis=1)[:, n_neighbors - 1, None]
        nearer, tied = distances < last, distances == last
        shares = (n_neighbors - nearer.sum(axis=1)) / tied.sum(axis=1)
        one_hot = sp.csr_array(category[:, None] == np.arange(len(labels)))
        votes = product(nearer + tied * shares[:, None], one_hot)
        return labels[votes.argmax(axis=1)]

    def _below(self, X: Any, k: int) -> np.ndarray:
        """Which images lie below each threshold of metric k: bool (n, T)."""
        columns = X[:, self.stump_features_[k]]
        columns = columns.toarray() if sp.issparse(columns) else columns
        return columns < self.stump_thresholds_[k]

    def _signs(self, X: Any) -> np.ndarray:
        """Codes of +-1, float32 (n, K, T)."""
        signs = np.empty((X.shape[0], self._n_metrics, self._n_bits), np.float32)
        for k in range(self._n_metrics):
            signs[:, k] = np.where(self._below(X, k), np.float32(1), np.float32(-1))
        return signs

    def _places(self, labels: np.ndarray) -> np.ndarray:
        """Places of labels in `classes_`, -1 for those not there."""
        place = {label: i for i, label in enumerate(self.classes_.tolist())}
        return np.array([place.get(label, -1) for label in labels.tolist()], np.int64)

    def _metrics_of(self, y: Any, n: int) -> np.ndarray:
        """Metric of each of n gallery images, -1 where its label says none."""
        if y is None:
            return np.full(n, -1)
        if sp.issparse(y):
            raise ValueError("MuSL takes one label per image, not a sparse array of several")
        y = plain_labels(y)
        if y.shape != (n,):
            raise ValueError(f"y must have shape ({n},), one label per gallery image, got {y.shape}")
        places = self._places(y)
        unseen = np.count_nonzero(places < 0)
        if unseen:
            _log.warning("%d of %d gallery images have labels not learned: all metrics compare them", unseen, n)
        return np.where(places < 0, -1, self.metric_of_category_[places])

    # -- input ---------------------------------------------------------------------------------------------------------

    def _check_params(self) -> None:
        check_integer("n_metrics", self.n_metrics, minimum=1)
        check_integer("n_bits", self.n_bits, minimum=1)
        check_integer("negatives_per_example", self.negatives_per_example, minimum=1)
        check_integer("n_starts", self.n_starts, minimum=1)
        if self.max_images is not None:
            check_integer("max_images", self.max_images, minimum=2)
        for name in ("alpha", "r"):
            check_positive(name, getattr(self, name))
        check_choice("grouping", self.grouping, _GROUPINGS)
        check_choice("midpoint", self.midpoint, _MIDPOINTS)


def _renumbered(columns: Columns, order: np.ndarray) -> Columns:
    """The same entries, with each image's place in `order` as its number."""
    starts, images, values = columns
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order))
    return starts, readonly(places[images]), values


def _as_columns(X: sp.csr_array) -> Columns:
    """Non-zero entries by feature, and of each feature by value."""
    X = sp.csc_array(X, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    feature = np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))
    order = np.lexsort((X.data, feature))
    columns = (X.indptr.astype(np.int64), X.indices[order].astype(np.int32), X.data[order])
    return readonly(columns[0]), readonly(columns[1]), readonly(columns[2])


def _between(below: float, above: float) -> np.float32:
    """Threshold that separates two values."""
    middle = np.float32((float(below) + float(above)) / 2)
    return middle if middle > below else np.float32(above)
