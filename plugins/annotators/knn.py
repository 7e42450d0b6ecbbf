"""k-nearest-neighbour annotation, exact or in the leaf of a random-projection tree: the baseline that learns nothing.

Weston, Bengio, Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings, ECML 2010,
section 6.3: "a random projection at each node of the tree is chosen with a threshold to go left or right that is the
median of the projected training data to make the tree balanced. After traversing p nodes we arrive at a leaf node
containing t = n / 2^p of the original n training points from which we calculate the nearest neighbors."

    f_i(x) = sum over the k nearest training images a that have label i of cos(x, a)

The training images are kept as inverted lists: for each visterm, the images that have it. A query walks the lists of
its own visterms, and of each only the part that lies in its leaf, as images are numbered leaf by leaf. Exact search is
the tree of depth zero: one leaf that holds all.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numba import njit
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted

from visterm.learners.annotation import AnnotatorMixin
from visterm.learners.base import SimilarityLearner
from visterm.learners.checks import check_choice, check_integer
from visterm.learners.draws import draw_seed
from visterm.learners.options import FitOptions
from visterm.learners.rows import readonly
from visterm.learners.sides import UNIT_ROWS, Sides

_log = logging.getLogger(__name__)


@njit(cache=True, nogil=True, error_model="numpy")
def find_leaf(columns: np.ndarray, values: np.ndarray, directions: np.ndarray, thresholds: np.ndarray) -> int:
    """Leaf that a sparse vector arrives at. Node i has the children 2 i + 1 and 2 i + 2, leaves come last."""
    node = 0
    while node < len(thresholds):
        projection = np.float32(0.0)
        for k in range(len(columns)):
            projection += values[k] * directions[node, columns[k]]
        node = 2 * node + (1 if projection <= thresholds[node] else 2)
    return node - len(thresholds)


@njit(cache=True, nogil=True, error_model="numpy")
def first_at_least(places: np.ndarray, start: int, end: int, place: int) -> int:
    """First index in start..end-1 of the sorted `places` that holds `place` or more; `end` if none does."""
    while start < end:
        middle = (start + end) // 2
        if places[middle] < place:
            start = middle + 1
        else:
            end = middle
    return start


@njit(cache=True, nogil=True, error_model="numpy")
def search_pass(
    queries: tuple[np.ndarray, ...],
    lists: tuple[np.ndarray, ...],
    tree: tuple[np.ndarray, ...],
    nearest: np.ndarray,
    similarities: np.ndarray,
) -> None:
    """Fill in the k nearest places of every query, nearest first, of equal ones the smaller; -1 where none is left.

    Only images with a positive similarity are neighbours.
    """
    indptr, indices, data = queries
    list_start, list_places, list_values = lists
    directions, thresholds, leaf_start = tree
    k = nearest.shape[1]
    scores = np.empty(leaf_start[-1], np.float32)
    for query in range(len(indptr) - 1):
        columns = indices[indptr[query] : indptr[query + 1]]
        values = data[indptr[query] : indptr[query + 1]]
        leaf = find_leaf(columns, values, directions, thresholds)
        low, high = leaf_start[leaf], leaf_start[leaf + 1]
        scores[low:high] = np.float32(0.0)
        for i in range(len(columns)):
            start, end = list_start[columns[i]], list_start[columns[i] + 1]
            if len(thresholds):
                start = first_at_least(list_places, start, end, low)
                end = first_at_least(list_places, start, end, high)
            for j in range(start, end):
                scores[list_places[j]] += values[i] * list_values[j]

        n_found, last = 0, np.float32(0.0)  # `last` is what a place must exceed
        for place in range(low, high):
            if scores[place] > last:
                slot = min(n_found, k - 1)
                while slot > 0 and similarities[query, slot - 1] < scores[place]:
                    similarities[query, slot] = similarities[query, slot - 1]
                    nearest[query, slot] = nearest[query, slot - 1]
                    slot -= 1
                similarities[query, slot], nearest[query, slot] = scores[place], place
                n_found = min(n_found + 1, k)
                if n_found == k:
                    last = similarities[query, k - 1]
        for slot in range(n_found, k):
            similarities[query, slot], nearest[query, slot] = np.float32(0.0), -1


@dataclass(kw_only=True, repr=False, eq=False)
class KNNAnnotator(AnnotatorMixin, SimilarityLearner):
    """Labels of the most similar training images.

    Parameters
    ----------
    n_neighbors : int, default=30
        Training images that vote. There may be fewer: all that are similar at all.
    weights : {"similarity", "uniform"}, default="similarity"
        What a neighbour's vote counts: its cosine, or one.
    algorithm : {"exact", "tree"}, default="exact"
        "tree" looks only at the training images in one leaf of a random-projection tree.
    leaf_size : int, default=1000
        With "tree": the depth p is the smallest with n / 2^p <= leaf_size. Larger leaves are slower and miss less.
    random_state : int, RandomState or None, default=None
        Of the tree's projections. The same int gives the same model.

    Attributes
    ----------
    classes_ : array of shape (n_labels,)
    image_of_ : int32 array of shape (n,)
        Row of the training images that stands at each place: the numbering leaf by leaf.
    list_start_, list_places_, list_values_ : arrays
        Inverted lists: CSC of the unit training images, (n, d), in the order of `image_of_`.
    label_start_, labels_ : arrays
        Labels of the image at each place: indptr and indices of a CSR (n, n_labels).
    directions_ : float32 array of shape (2^p - 1, d)
        Projection of every node of the tree, level by level; none with "exact".
    thresholds_ : float32 array of shape (2^p - 1,)
        Median of the projected training images of every node; up to it a query goes left.
    leaf_start_ : int64 array of shape (2^p + 1,)
        Where in `image_of_` each leaf begins.
    n_images_ : int
    seed_ : int

    Raises
    ------
    ValueError
        From `fit`, for parameters out of range, fewer than two labels, or no image with a label.

    Notes
    -----
    A query takes time in proportion to the entries of the lists that it reads, nnz(x) n nnz / d in all or 1 / 2^p of
    them, and to the size of a leaf; with "tree", p nnz(x) more for the way down. On vectors with d >> nnz the lists
    make exact search cheap, and the tree pays only where n is large.

    Memory of the model: 8 bytes an entry of the training images, and with "tree" 4 d bytes a node. Peak memory of
    `fit`: three times the model.

    The paper does not say how neighbours' labels are ranked: the sum of their similarities is ours. Ties: the smaller
    label first. Images of similarity zero or less are no neighbours. Images without a label are skipped, and counted
    in a warning. The depth p follows from `leaf_size`. The projections are Gaussian. Images whose projections
    tie at the median are divided by their order, so that the two halves differ by one image at most. The similarity of
    images is their cosine: the inner product of rows scaled to unit norm, both sides alike.

    References
    ----------
    J. Weston, S. Bengio, N. Usunier: Large Scale Image Annotation: Learning to Rank with Joint Word-Image Embeddings.
    ECML 2010.

    Examples
    --------
    >>> from visterm.learners import KNNAnnotator
    >>> learner = KNNAnnotator(n_neighbors=2).fit([[1, 0], [1, 1], [0, 1]], ["sky", "sky", "sea"])
    >>> best, scores = learner.annotate([[3, 4]], k=2)
    >>> [str(learner.classes_[i]) for i in best[0]]
    ['sky', 'sea']
    """

    linear = True

    _points_into = {"list_places_": "n_images_", "labels_": "classes_"}  # nobody writes to it

    image_of_: np.ndarray = field(init=False)
    list_start_: np.ndarray = field(init=False)
    list_places_: np.ndarray = field(init=False)
    list_values_: np.ndarray = field(init=False)
    label_start_: np.ndarray = field(init=False)
    labels_: np.ndarray = field(init=False)
    directions_: np.ndarray = field(init=False)
    thresholds_: np.ndarray = field(init=False)
    leaf_start_: np.ndarray = field(init=False)
    n_images_: int = field(init=False)
    seed_: int = field(init=False)

    n_neighbors: int = 30
    weights: str = "similarity"
    algorithm: str = "exact"
    leaf_size: int = 1000
    random_state: Any = None

    def _fit(self, X: Any, y: Any, options: FitOptions) -> Self:
        X, labels = self._check_labelled(X, y, reset=True)
        self.seed_ = draw_seed(self.random_state)
        return self._keep(X, labels)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Add training images, of labels that were there before. The model is that of `fit` with all of them.

        `classes` names all labels in the first call, if y lacks some of them.
        """
        if "image_of_" not in vars(self):
            with self._naming(classes):
                return self.fit(X, y)
        X, labels = self._check_labelled(X, y, reset=False)
        place_of = np.argsort(self.image_of_)
        kept = sp.csc_array((self.list_values_, self.list_places_, self.list_start_), (self.n_images_, X.shape[1]))
        kept_labels = _label_rows(self.label_start_, self.labels_, len(self.classes_))
        return self._keep(sp.vstack([kept.tocsr()[place_of], X]), sp.vstack([kept_labels[place_of], labels]))

    def _sides(self) -> Sides:
        return Sides(gallery=UNIT_ROWS)

    def kneighbors(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Training images nearest to images.

        Returns
        -------
        indices : int32 array of shape (n, n_neighbors)
            Rows of the training images, without those that had no label; -1 where fewer are similar.
        similarities : float32 array of shape (n, n_neighbors)
            Their cosines, 0 where there is no image.
        """
        places, similarities = self._search(X)
        lacking = ((0, 0), (0, self.n_neighbors - places.shape[1]))
        indices = np.where(places >= 0, self.image_of_[places], np.int32(-1))
        return np.pad(indices, lacking, constant_values=-1), np.pad(similarities, lacking)

    def label_scores(self, X: Any) -> np.ndarray:
        """Votes of the nearest training images for every label: float32 of shape (n, n_labels)."""
        places, votes = self._search(X)
        is_near = places >= 0
        if self.weights == "uniform":
            votes = is_near.astype(np.float32)
        start = np.concatenate([[0], np.cumsum(is_near.sum(axis=1))])
        votes = sp.csr_array((votes[is_near], places[is_near], start), (len(places), self.n_images_))
        return (votes @ _label_rows(self.label_start_, self.labels_, len(self.classes_))).toarray()

    def _search(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Places of the nearest training images and their similarities, both (n, n_neighbors or all images)."""
        check_is_fitted(self)
        self._check_params()
        queries = _unit_rows(self._check_images(X))
        places = np.empty((queries.shape[0], min(self.n_neighbors, self.n_images_)), np.int32)
        similarities = np.empty(places.shape, np.float32)
        search_pass(
            _readonly(queries.indptr.astype(np.int64), queries.indices.astype(np.int32), queries.data),
            _readonly(self.list_start_, self.list_places_, self.list_values_),
            _readonly(self.directions_, self.thresholds_, self.leaf_start_),
            places,
            similarities,
        )
        return places, similarities

    def _keep(self, X: sp.csr_array, labels: sp.csr_array) -> Self:
        self.n_images_ = X.shape[0]
        order = self._grow(X)
        self.image_of_ = order.astype(np.int32)
        lists = X[order].tocsc()
        self.list_start_ = lists.indptr.astype(np.int64)
        self.list_places_ = lists.indices.astype(np.int32, copy=False)
        self.list_values_ = lists.data
        labels = labels[order]
        self.label_start_, self.labels_ = labels.indptr.astype(np.int64), labels.indices.astype(np.int32)
        return self

    def _grow(self, X: sp.csr_array) -> np.ndarray:
        """Make the tree; the images leaf by leaf, in a leaf in their own order."""
        n, d = X.shape
        depth = 0
        while self.algorithm == "tree" and n > self.leaf_size * 2**depth:
            depth += 1
        rng = np.random.default_rng([self.seed_, 3])
        self.directions_ = rng.standard_normal((2**depth - 1, d), np.float32)
        self.thresholds_ = np.empty(2**depth - 1, np.float32)
        nodes = [np.arange(n)]  # of one level, from left to right
        for level in range(depth):
            children = []
            for node, members in enumerate(nodes, start=2**level - 1):
                projections = X[members] @ self.directions_[node]
                order = np.argsort(projections, kind="stable")
                half = (len(members) + 1) // 2
                # Between the two middle images, where rounding cannot send one of them the other way.
                self.thresholds_[node] = projections[order[half - 1 : half + 1]].mean()
                children += [np.sort(members[order[:half]]), np.sort(members[order[half:]])]
            nodes = children
        self.leaf_start_ = np.concatenate([[0], np.cumsum([len(members) for members in nodes])])
        return np.concatenate(nodes)

    def _check_labelled(self, X: Any, y: Any, *, reset: bool) -> tuple[sp.csr_array, sp.csr_array]:
        """Unit rows of the images that have a label, and these labels."""
        self._check_params()
        X, y = self._check_supervised(X, y, reset=reset)
        labels = self._labels(y)
        labelled = np.flatnonzero(np.diff(labels.indptr))
        if not len(labelled):
            raise ValueError("no image has a label")
        if len(labelled) < X.shape[0]:
            _log.warning("skipped %d of %d images without a label", X.shape[0] - len(labelled), X.shape[0])
            X, labels = X[labelled], labels[labelled]
        return _unit_rows(X), labels

    def _check_params(self) -> None:
        check_integer("n_neighbors", self.n_neighbors, minimum=1)
        check_integer("leaf_size", self.leaf_size, minimum=1)
        check_choice("weights", self.weights, ("similarity", "uniform"))
        check_choice("algorithm", self.algorithm, ("exact", "tree"))


def _unit_rows(X: Any) -> sp.csr_array:
    """Rows scaled to unit norm, in one order of entries however they came."""
    X = sp.csr_array(X)
    index = np.int32 if X.nnz <= np.iinfo(np.int32).max else np.int64  # half the memory, where it does
    X = sp.csr_array((X.data.copy(), X.indices.astype(index), X.indptr.astype(index)), X.shape)
    X.sum_duplicates()
    X.eliminate_zeros()
    return normalize(X, copy=False)


def _readonly(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Arrays as the kernel takes them, also from a mapped model: it is compiled once."""
    return tuple(readonly(array) for array in arrays)


def _label_rows(start: np.ndarray, labels: np.ndarray, n_labels: int) -> sp.csr_array:
    """Labels as a matrix of ones, (n, n_labels)."""
    return sp.csr_array((np.ones(len(labels), np.float32), labels, start), (len(start) - 1, n_labels))
