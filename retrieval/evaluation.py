"""Measures of rankings: per query, means, confidence intervals and paired comparisons."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit, stdtrit

from .index import ExactIndex, SupportsSimilarity
from .labels import refuse_missing
from .metrics import average_precision, chance_average_precision, chance_precision, map_at_r, ndcg_curve, r_precision
from .ranking import Ranking

Classes = tuple[np.ndarray, np.ndarray]  # of queries and gallery images, from 0; -1 for none


@dataclass(frozen=True)
class Evaluation:
    """The figures of one system, query by query and in the mean.

    All means are over the queries that have a relevant image in the gallery; the others are counted in
    `n_without_relevant`.

    Parameters
    ----------
    average_precision : ndarray of float64, shape (n_queries,)
        NaN for a query without relevant image.
    precision : ndarray of float64, shape (n_queries, max_k)
        Column k - 1 is precision at k.
    first_relevant : ndarray of int64, shape (n_queries,)
        Rank of the first relevant image, from 1; 0 if the list holds none.
    n_relevant : ndarray of int64, shape (n_queries,)
        Relevant gallery images, without the query itself.
    n_candidates : ndarray of int64, shape (n_queries,)
        Gallery images that were to be ranked, without the query itself.
    ndcg : ndarray of float64, shape (n_queries, max_k)
        Column k - 1 is nDCG at k; NaN for a query without relevant image, as in the two below.
    r_precision, map_at_r : ndarray of float64, shape (n_queries,)
    without_class : ndarray of float64, shape (2, n_classes), optional
        Sum and number of the average precisions of all queries of other classes, were the images of one class absent.
    """

    average_precision: np.ndarray
    precision: np.ndarray
    first_relevant: np.ndarray
    n_relevant: np.ndarray
    n_candidates: np.ndarray
    ndcg: np.ndarray
    r_precision: np.ndarray
    map_at_r: np.ndarray
    without_class: np.ndarray | None = None

    @property
    def counted(self) -> np.ndarray:
        """The queries that the means are over, bool (n_queries,)."""
        return self.n_relevant > 0

    @property
    def n_queries(self) -> int:
        """Number of queries in the means."""
        return int(self.counted.sum())

    @property
    def n_without_relevant(self) -> int:
        """Number of skipped queries, without a relevant gallery image."""
        return len(self.n_relevant) - self.n_queries

    @property
    def max_k(self) -> int:
        """Last k of the precision curve."""
        return self.precision.shape[1]

    @property
    def mean_average_precision(self) -> float:
        """mAP; NaN if no query is counted."""
        return _mean(self.average_precision[self.counted])

    @property
    def precision_curve(self) -> np.ndarray:
        """float64 (max_k,): mean precision at k = 1..max_k; NaN if no query is counted."""
        if self.n_queries == 0:
            return np.full(self.max_k, np.nan)
        return self.precision[self.counted].mean(axis=0)

    @property
    def chance_mean_average_precision(self) -> float:
        """Expected mAP of random orders, exactly."""
        return _mean(chance_average_precision(self.n_relevant, self.n_candidates)[self.counted])

    @property
    def chance_precision(self) -> float:
        """Expected precision of random orders, the same at every k."""
        return _mean(chance_precision(self.n_relevant, self.n_candidates)[self.counted])

    def precision_at(self, k: int) -> float:
        """Mean precision at k; ValueError if k is not in 1..max_k."""
        return _mean(self._precision_column(k)[self.counted])

    def recall_at(self, k: int) -> float:
        """Mean recall at k; ValueError if k is not in 1..max_k."""
        return _mean((k * self._precision_column(k)[self.counted]) / self.n_relevant[self.counted])

    def ndcg_at(self, k: int) -> float:
        """Mean nDCG at k; ValueError if k is not in 1..max_k."""
        self._precision_column(k)
        return _mean(self.ndcg[self.counted, k - 1])

    @property
    def mean_r_precision(self) -> float:
        """R-precision; NaN if no query is counted."""
        return _mean(self.r_precision[self.counted])

    @property
    def mean_map_at_r(self) -> float:
        """MAP@R; NaN if no query is counted."""
        return _mean(self.map_at_r[self.counted])

    def map_interval(
        self, *, of_classes: bool = False, confidence: float = 0.95, n_resamples: int = 2000, random_state: int = 0
    ) -> tuple[float, float]:
        """Interval of mAP, for other queries of the same classes, or for as many other classes.

        Parameters
        ----------
        of_classes : bool, default=False
            For other classes, else for other queries. Queries of one class are no independent evidence: of other
            classes, an interval over queries is several times too narrow.
        confidence : float, default=0.95
            Share of other mAPs inside.
        n_resamples : int, default=2000
        random_state : int, default=0

        Returns
        -------
        tuple of float
            Lower and upper bound; NaN if no query is counted, or with `of_classes` if `evaluate` got no classes or
            fewer than two. The interval covers other queries or classes with this trained learner, not the randomness
            of training.

        Notes
        -----
        Over queries, bootstrap: percentiles of the means of resampled queries. Over classes,

            logit(mAP) +- t s sqrt(2) / (mAP (1 - mAP)),
            s^2 = (n - 1) / n sum over classes c of (mAP without c - mean of these)^2

        with t the quantile of Student's t of n - 1 degrees of freedom, and n the number of classes with counted
        queries: the jackknife leaves out the images of one class after the other, as queries and from the lists of all
        others, as a class is both, and a bootstrap of few classes is too narrow. Half of the variance is for these
        classes, and half for the others. The logistic scale makes room where there is some: of classes near 1 those
        that are worse are far below. Of halves of sets of 9 and 38 classes, 93 % of such intervals held the mAP of the
        other half, 86 to 97.5 % by set and similarity: least where a few classes are far above all others, of which a
        half without them cannot know. Of sets drawn at random it is 95 % in the mean, and 90 to 97 % in two of three
        sets of 9 classes, and in nine of ten sets of 38: ``python -m experiments.studies intervals``.
        """
        if of_classes:
            return self._interval_of_classes(confidence)
        values = self.average_precision[self.counted]
        if len(values) == 0:
            return float("nan"), float("nan")
        rng = np.random.default_rng(random_state)
        means = [values[rng.integers(len(values), size=len(values))].mean() for _ in range(n_resamples)]
        low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
        return float(low), float(high)

    def _interval_of_classes(self, confidence: float) -> tuple[float, float]:
        """Interval of the mAP of as many other classes: see `map_interval`."""
        known = np.zeros((2, 0)) if self.without_class is None else self.without_class
        # Classes without counted queries are in the lists of others alone, and no evidence of other classes.
        sums, sizes = known[:, known[1] < self.n_queries]
        n, mean = len(sums), self.mean_average_precision
        if n < 2 or not (sizes > 0).all():
            return float("nan"), float("nan")
        if not 0 < mean < 1:
            return mean, mean
        error = np.sqrt((n - 1) * (sums / sizes).var())
        half = stdtrit(n - 1, (1 + confidence) / 2) * error * 2**0.5 / (mean * (1 - mean))
        low, high = expit(logit(mean) + np.array([-half, half]))
        return float(low), float(high)

    def _precision_column(self, k: int) -> np.ndarray:
        if not 1 <= k <= self.max_k:
            raise ValueError(f"this evaluation holds precision at 1 to {self.max_k}, not at {k}")
        return self.precision[:, k - 1]


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two systems on the same queries.

    Parameters
    ----------
    difference : float
        Mean of a minus mean of b.
    p_value : float
        Two-sided sign-flip permutation test: how often would relabelling the two systems at random, query by
        query, give a mean difference at least as large?
    wins, ties, losses : int
        Queries on which a is better than, equal to, worse than b.
    """

    difference: float
    p_value: float
    wins: int
    ties: int
    losses: int


def evaluate(
    ranking: Ranking, relevance: Any, *, max_k: int = 100, exclude: Any = None, classes: Classes | None = None
) -> Evaluation:
    """Measure a ranking.

    Parameters
    ----------
    ranking : Ranking, (n_queries, k)
        Give the full ranking for average precision as it is defined; of a list that was cut, the relevant
        images beyond the cut count as precision 0.
    relevance : sparse matrix, shape (n_queries, n_gallery)
        Above zero where the gallery image is relevant to the query; see `relevance_from_labels`. A query's
        own row of the gallery must be zero already.
    max_k : int, default=100
        Length of the precision curve; it ends earlier where the ranking does.
    exclude : array of int, shape (n_queries,), optional
        As in `ExactIndex.search`; not counted among the images to rank.
    classes : tuple of int arrays, shapes (n_queries,) and (n_gallery,), optional
        Class of each query and gallery image, from 0, for intervals; -1 for none.

    Returns
    -------
    Evaluation

    Raises
    ------
    ValueError
        If shapes differ, max_k is below 1, or a ranking names a row beyond the gallery or one row twice.
    """
    relevance = _as_relevance(relevance)
    n_queries, n_gallery = relevance.shape
    if len(ranking) != n_queries:
        raise ValueError(f"{len(ranking)} ranked lists, but relevance for {n_queries} queries")
    if max_k < 1:
        raise ValueError(f"max_k must be at least 1, got {max_k}")
    if classes is not None and [np.shape(numbers) for numbers in classes] != [(n_queries,), (n_gallery,)]:
        raise ValueError("classes must be the numbers of the queries' classes, and those of the gallery's")
    n_relevant = np.diff(relevance.indptr).astype(np.int64)
    relevant = _relevant_by_rank(ranking.indices, relevance)

    has_relevant = relevant.any(axis=1) if ranking.k else np.zeros(n_queries, bool)
    first = relevant.argmax(axis=1) + 1 if ranking.k else np.zeros(n_queries, np.int64)
    ks = np.arange(1, min(max_k, ranking.k) + 1)
    excluded = np.zeros(n_queries, np.int64) if exclude is None else (np.asarray(exclude) >= 0).astype(np.int64)
    return Evaluation(
        average_precision=average_precision(relevant, n_relevant),
        precision=np.cumsum(relevant[:, : len(ks)], axis=1) / ks,
        first_relevant=np.where(has_relevant, first, 0).astype(np.int64),
        n_relevant=n_relevant,
        n_candidates=n_gallery - excluded,
        ndcg=ndcg_curve(relevant[:, : len(ks)], n_relevant),
        r_precision=r_precision(relevant, n_relevant),
        map_at_r=map_at_r(relevant, n_relevant),
        without_class=None if classes is None else _without_each(ranking.indices, relevant, *classes),
    )


def evaluate_index(
    index: ExactIndex,
    Q: Any,
    relevance: Any,
    *,
    exclude: Any = None,
    max_k: int = 100,
    block_size: int = 256,
    classes: Classes | None = None,
) -> Evaluation:
    """Search and measure in blocks of queries, so that the full rankings are never held at once.

    Parameters
    ----------
    index : ExactIndex
    Q : CSR matrix or ndarray, shape (n_queries, n_features)
    relevance : sparse matrix (n_queries, n_gallery), or function (start, stop) -> its rows start to stop
        As in `evaluate`. The function keeps memory bounded where relevance itself is large.
    exclude : array of int, shape (n_queries,), optional
        As in `ExactIndex.search`.
    max_k : int, default=100
    block_size : int, default=256
        Queries whose full ranking is held at once. The result does not depend on it.
    classes : tuple of int arrays, optional
        As in `evaluate`.

    Returns
    -------
    Evaluation
    """
    if callable(relevance):
        rows: Callable[[int, int], Any] = relevance
    else:
        matrix = _as_relevance(relevance)
        if matrix.shape != (Q.shape[0], index.n_gallery):
            raise ValueError(f"relevance must be {(Q.shape[0], index.n_gallery)}, got {matrix.shape}")

        def rows(start: int, stop: int) -> Any:
            return matrix[start:stop]

    exclude = np.full(Q.shape[0], -1) if exclude is None else np.asarray(exclude)
    blocks = []
    for start in range(0, Q.shape[0], block_size):
        stop = min(start + block_size, Q.shape[0])
        # A fixed k: the default could differ between blocks, where only some queries exclude.
        ranking = index.search(Q[start:stop], k=index.n_gallery, exclude=exclude[start:stop])
        part = None if classes is None else (classes[0][start:stop], classes[1])
        blocks.append(evaluate(ranking, rows(start, stop), max_k=max_k, exclude=exclude[start:stop], classes=part))
    if not blocks:
        raise ValueError("there are no queries to evaluate")
    names = [f.name for f in fields(Evaluation) if f.name != "without_class"]
    columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}
    if classes is not None:
        columns["without_class"] = np.sum([np.asarray(block.without_class) for block in blocks], axis=0)
    # Precision beyond the last image that any query could rank means nothing: cut the filling off.
    for name in ("precision", "ndcg"):
        columns[name] = columns[name][:, : columns["n_candidates"].max()]
    return Evaluation(**columns)


def evaluate_test_test(
    learner: SupportsSimilarity, X: Any, y: Any, *, max_k: int = 100, n_jobs: int | None = None
) -> Evaluation:
    """Protocol "test images query test images": each image is a query, all other images are ranked.

    Parameters
    ----------
    learner : fitted learner
    X : CSR matrix or ndarray, shape (n, n_features)
        Test images.
    y : array (n,) of labels, or sparse (n, n_labels)
        Images are relevant to each other if they share a label.
    max_k : int, default=100
    n_jobs : int or None, default=None

    Returns
    -------
    Evaluation
    """
    index = ExactIndex(learner, X, n_jobs=n_jobs)
    y = _as_labels(y)
    rows = np.arange(index.n_gallery)

    def relevance(start: int, stop: int) -> Any:
        return relevance_from_labels(y[start:stop], y, exclude=rows[start:stop])

    classes = None if sp.issparse(y) else (np.unique(y, return_inverse=True)[1],) * 2
    return evaluate_index(index, X, relevance, exclude=rows, max_k=max_k, classes=classes)


def evaluate_query_gallery(
    learner: SupportsSimilarity,
    Q: Any,
    y_query: Any,
    X: Any,
    y_gallery: Any,
    *,
    max_k: int = 100,
    n_jobs: int | None = None,
) -> Evaluation:
    """Protocol "queries against a gallery": no query is in the gallery.

    Parameters
    ----------
    learner : fitted learner
    Q, X : CSR matrix or ndarray, shape (n_queries, n_features) and (n_gallery, n_features)
    y_query, y_gallery : labels of the two, as in `relevance_from_labels`
        Learners that read labels (MuSL) get those of the gallery.
    max_k : int, default=100
    n_jobs : int or None, default=None

    Returns
    -------
    Evaluation
    """
    y_query, y_gallery = _as_labels(y_query), _as_labels(y_gallery)
    reads_labels = not sp.issparse(y_gallery) and "y" in inspect.signature(learner.transform).parameters
    index = ExactIndex(learner, X, y_gallery if reads_labels else None, n_jobs=n_jobs)

    def relevance(start: int, stop: int) -> Any:
        return relevance_from_labels(y_query[start:stop], y_gallery)

    classes = None
    if not sp.issparse(y_query) and not sp.issparse(y_gallery) and len(y_query):
        names, of_queries = np.unique(y_query, return_inverse=True)
        place = np.searchsorted(names, y_gallery).clip(max=len(names) - 1)
        classes = of_queries, np.where(names[place] == y_gallery, place, -1)
    return evaluate_index(index, Q, relevance, max_k=max_k, classes=classes)


def relevance_from_labels(y_query: Any, y_gallery: Any, exclude: Any = None) -> sp.csr_matrix:
    """Mark the gallery images that share a label with each query.

    Parameters
    ----------
    y_query, y_gallery : arrays (n_queries,) and (n_gallery,) of labels, or sparse (n, n_labels)
        Of several labels per image has those with a weight above zero.
    exclude : array of int, shape (n_queries,), optional
        The query's own row of the gallery, never relevant; -1 for none.

    Returns
    -------
    CSR matrix of bool, shape (n_queries, n_gallery)

    Raises
    ------
    ValueError
        If one side has plain labels and the other a matrix, or their numbers of labels differ.
    """
    y_query, y_gallery = _as_labels(y_query), _as_labels(y_gallery)
    if sp.issparse(y_query) != sp.issparse(y_gallery):
        raise ValueError("queries and gallery must both have plain labels (n,), or both a matrix (n, n_labels)")
    if not sp.issparse(y_query):
        n_queries = len(y_query)
        names, ids = np.unique(np.concatenate([y_query, y_gallery]), return_inverse=True)
        y_query, y_gallery = _one_hot(ids[:n_queries], len(names)), _one_hot(ids[n_queries:], len(names))
    if y_query.shape[1] != y_gallery.shape[1]:
        raise ValueError(f"queries have {y_query.shape[1]} labels, the gallery has {y_gallery.shape[1]}")
    shared = sp.csr_matrix(y_query @ y_gallery.T)
    if exclude is not None:
        excluded = np.repeat(np.asarray(exclude), np.diff(shared.indptr))
        shared.data[shared.indices == excluded] = 0
    shared.eliminate_zeros()
    shared.sort_indices()
    return shared.astype(bool)


def compare(
    a: Evaluation,
    b: Evaluation,
    *,
    k: int | None = None,
    n_permutations: int = 10_000,
    random_state: int = 0,
    groups: Any = None,
) -> Comparison:
    """Test whether system a is better than system b on the same queries.

    Parameters
    ----------
    a, b : Evaluation
        Of the same queries in the same order.
    k : int or None, default=None
        Compare precision at k; None compares average precision.
    n_permutations : int, default=10_000
    random_state : int, default=0
    groups : array of shape (n_queries,), optional
        Class of each query: all queries of one are relabelled together, as they are no independent evidence. Below six
        classes no difference can have a p-value under 0.05.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        If the two are not of the same queries, or no query has a relevant image.

    Notes
    -----
    The p-value is ``(1 + #{permutations at least as extreme}) / (1 + n_permutations)``, so it is never 0.
    """
    if not np.array_equal(a.n_relevant, b.n_relevant):
        raise ValueError("the two evaluations are not of the same queries: their numbers of relevant images differ")
    if a.n_queries == 0:
        raise ValueError("no query has a relevant image: there is nothing to compare")
    if k is None:
        differences = (a.average_precision - b.average_precision)[a.counted]
    else:
        differences = (a._precision_column(k) - b._precision_column(k))[a.counted]
    tolerance = 1e-12  # rounding of the sums, not a difference
    observed = abs(differences.mean())
    flipped = differences if groups is None else _sums_by_class(differences, np.asarray(groups)[a.counted])[0]
    rng = np.random.default_rng(random_state)
    extreme = 0
    for start in range(0, n_permutations, 500):  # 500 rows of signs at once
        n_rows = min(500, n_permutations - start)
        signs = rng.integers(0, 2, size=(n_rows, len(flipped)), dtype=np.int8) * 2 - 1
        extreme += int((abs(signs @ flipped) / len(differences) >= observed - tolerance).sum())
    return Comparison(
        difference=float(differences.mean()),
        p_value=(1 + extreme) / (1 + n_permutations),
        wins=int((differences > tolerance).sum()),
        ties=int((abs(differences) <= tolerance).sum()),
        losses=int((differences < -tolerance).sum()),
    )


def _sums_by_class(values: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum of the values of each class, and how many they are."""
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return np.bincount(place, values), sizes


def _without_each(
    indices: np.ndarray, relevant: np.ndarray, of_queries: np.ndarray, of_gallery: np.ndarray
) -> np.ndarray:
    """Sum and number of the average precisions of other queries without the images of each class, (2, n_classes)."""
    n = int(max(of_queries.max(initial=-1), of_gallery.max(initial=-1))) + 1
    both = np.zeros((2, n))
    for own, row, hits in zip(of_queries, indices, relevant, strict=True):
        of_row = np.where(row >= 0, of_gallery[row], -1)
        ranks = np.flatnonzero(hits)
        # How many images of each class, and relevant ones of it, are up to each relevant image.
        images = np.zeros((len(ranks) + 1, n + 1), np.int64)
        np.add.at(images, (np.cumsum(hits) - hits, of_row), 1)  # -1 is the last column
        above = np.cumsum(images[: len(ranks), :n], axis=0)
        is_of = of_row[ranks, None] == np.arange(n)
        hits_left = np.arange(1, len(ranks) + 1)[:, None] - np.cumsum(is_of, axis=0)
        precisions = np.where(is_of, 0, hits_left / np.maximum(ranks[:, None] + 1 - above, 1))
        n_left = (~is_of).sum(axis=0)
        counts = (n_left > 0) & (np.arange(n) != own)
        both[0, counts] += (precisions.sum(axis=0) / np.maximum(n_left, 1))[counts]
        both[1] += counts
    return both


def _relevant_by_rank(indices: np.ndarray, relevance: sp.csr_matrix) -> np.ndarray:
    """Look up which ranks are relevant, bool (n_queries, k). Filling (-1) is not."""
    n_gallery = relevance.shape[1]
    if indices.size and (indices.min() < -1 or indices.max() >= n_gallery):
        raise ValueError(f"the ranking names images beyond the {n_gallery} of the gallery")
    relevant = np.zeros(indices.shape, bool)
    is_relevant = np.zeros(n_gallery + 1, bool)  # the last entry stands for -1
    is_ranked = np.zeros(n_gallery + 1, bool)
    for query, ranked in enumerate(indices):
        is_ranked[ranked] = True
        if is_ranked[:-1].sum() != (ranked >= 0).sum():
            raise ValueError(f"the ranking of query {query} names an image twice")
        is_ranked[ranked] = False
        rows = relevance.indices[relevance.indptr[query] : relevance.indptr[query + 1]]
        is_relevant[rows] = True
        relevant[query] = is_relevant[ranked]
        is_relevant[rows] = False
    return relevant


def _as_relevance(relevance: Any) -> sp.csr_matrix:
    """CSR with one stored entry for each relevant image, and no other."""
    if not sp.issparse(relevance):
        raise ValueError("relevance must be a sparse matrix (n_queries, n_gallery), see relevance_from_labels")
    relevant = sp.csr_matrix(relevance > 0)
    relevant.eliminate_zeros()
    return relevant


def _as_labels(y: Any) -> Any:
    """Labels as ndarray (n,), or as CSR of 0 and 1 (n, n_labels)."""
    if sp.issparse(y):
        return sp.csr_matrix(y > 0).astype(np.int32)
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"labels must be an array (n,) or a sparse matrix (n, n_labels), got shape {y.shape}")
    refuse_missing(y)
    return y


def _one_hot(ids: np.ndarray, n_labels: int) -> sp.csr_matrix:
    n = len(ids)
    return sp.csr_matrix((np.ones(n, np.int32), ids, np.arange(n + 1)), shape=(n, n_labels))


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
