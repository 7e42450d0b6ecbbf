"""Measures of labels: accuracy of k-nearest-neighbour votes, and precision of the labels ranked for an image.

Babenko, Branson, Belongie: Similarity Metrics for Categorization, ICCV 2009, section 3 (k-NN categorisation). Weston,
Bengio, Usunier: Large Scale Image Annotation, ECML 2010, section 4 (sibling precision).
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from .ranking import Ranking

_ROWS = 1024  # queries whose k x k comparisons of labels are held at once


def knn_labels(ranking: Ranking, y_gallery: Any, k: int) -> np.ndarray:
    """Label that most of the k nearest images of each query have; ties go to the label of the nearest one.

    Parameters
    ----------
    ranking : Ranking, (n_queries, at least k)
    y_gallery : array of shape (n_gallery,)
        One label per image.
    k : int
        Neighbours that vote.

    Returns
    -------
    ndarray of shape (n_queries,)
        Of the type of y_gallery.

    Raises
    ------
    ValueError
        If the lists are shorter than k, a query has no neighbour at all, or the ranking names images beyond y_gallery.

    Examples
    --------
    >>> ranking = Ranking(np.array([[2, 0, 1, 3]]), np.array([[0.9, 0.8, 0.7, 0.6]]))
    >>> knn_labels(ranking, ["ant", "ant", "bee", "bee"], k=3)
    array(['ant'], dtype='<U3')
    >>> knn_labels(ranking, ["ant", "ant", "bee", "bee"], k=4)
    array(['bee'], dtype='<U3')
    """
    names, codes = np.unique(_as_plain(y_gallery, "y_gallery"), return_inverse=True)
    if not 1 <= k <= ranking.k:
        raise ValueError(f"a vote of {k} neighbours needs 1 <= k <= the number of ranked images, {ranking.k}")
    nearest = ranking.indices[:, :k]
    if nearest.size and nearest.max() >= len(codes):
        raise ValueError(f"the ranking names images beyond the {len(codes)} labels of y_gallery")
    if (nearest[:, 0] < 0).any():
        raise ValueError("a query has no neighbour that could vote")
    chosen = np.empty(len(nearest), np.intp)
    for start in range(0, len(nearest), _ROWS):
        part = nearest[start : start + _ROWS]
        labels = np.where(part >= 0, codes[part], -1)  # (n, k)
        votes = (labels[:, :, None] == labels[:, None, :]).sum(axis=2)  # (n, k): of the label at each rank
        votes[labels < 0] = 0
        first = votes.argmax(axis=1)  # the best rank among the labels with most votes
        chosen[start : start + _ROWS] = np.take_along_axis(labels, first[:, None], axis=1)[:, 0]
    return names[chosen]


def mean_recall(y_true: Any, y_found: Any) -> float:
    """Mean recall over the classes: the mean of the diagonal of the confusion matrix.

    Parameters
    ----------
    y_true, y_found : arrays of shape (n,)
        Labels; classes are those of y_true.

    Returns
    -------
    float
        NaN without images.

    Examples
    --------
    >>> mean_recall(["ant", "ant", "bee"], ["ant", "bee", "bee"])
    0.75
    """
    y_true, y_found = _as_plain(y_true, "y_true"), _as_plain(y_found, "y_found")
    if len(y_true) != len(y_found):
        raise ValueError(f"{len(y_true)} true labels, but {len(y_found)} found ones")
    if not len(y_true):
        return float("nan")
    _, codes = np.unique(y_true, return_inverse=True)
    return float(np.mean(np.bincount(codes, weights=y_true == y_found) / np.bincount(codes)))


def knn_accuracy(ranking: Ranking, y_query: Any, y_gallery: Any, k: int) -> float:
    """Categorisation accuracy of k nearest neighbours: `mean_recall` of `knn_labels`.

    Parameters
    ----------
    ranking : Ranking, (n_queries, at least k)
        Test images against training images.
    y_query, y_gallery : arrays of shape (n_queries,) and (n_gallery,)
        One label per image. A class without query does not count; one that the gallery does not have counts as 0.
    k : int
        Neighbours that vote; of labels with equally many votes that of the nearest neighbour among them wins.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As `knn_labels`, or if there are not as many labels as queries.
    """
    if len(y_query) != len(ranking):
        raise ValueError(f"{len(ranking)} ranked lists, but labels of {len(y_query)} queries")
    return mean_recall(y_query, knn_labels(ranking, y_gallery, k))


def siblings_from_parents(parents: Any) -> sp.csr_array:
    """Matrix S of section 4: labels are siblings if they share a parent; each is its own sibling.

    Parameters
    ----------
    parents : sparse or dense of shape (n_labels, n_parents)
        Above zero where the label is a kind of the parent. Several parents, or none, are allowed.

    Returns
    -------
    CSR array of bool, shape (n_labels, n_labels)
        Symmetric.

    Examples
    --------
    >>> siblings_from_parents([[1, 0], [1, 1], [0, 1]]).toarray().astype(int)
    array([[1, 1, 0],
           [1, 1, 1],
           [0, 1, 1]])
    """
    parents = sp.csr_array(sp.csr_array(parents) > 0).astype(np.int32)
    shared = parents @ parents.T + sp.eye_array(parents.shape[0], dtype=np.int32)
    return sp.csr_array(shared > 0)


def label_precision_at(ranked_labels: Any, true_labels: Any, k: int) -> np.ndarray:
    """Share of the k best labels of each image that are its own.

    Parameters
    ----------
    ranked_labels : array of int of shape (n, at least k)
        Places of labels, the best first.
    true_labels : array of int of shape (n,), or sparse of shape (n, n_labels)
        The image's own labels.
    k : int

    Returns
    -------
    ndarray of float64 of shape (n,)
        An image with one label reaches 1/k at most.

    Raises
    ------
    ValueError
        If the lists are shorter than k, or do not belong to as many images.
    """
    ranked_labels, truth = _as_ranked(ranked_labels, true_labels, k)
    return _entries(truth, ranked_labels).mean(axis=1)


def precision_recall_per_label(ranked_labels: Any, true_labels: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall of each label, where each image is annotated with its k best labels.

    The usual measure of Corel-5K: their means over the labels count a rare label as much as a frequent one.

    Parameters
    ----------
    ranked_labels, true_labels, k : as in `label_precision_at`

    Returns
    -------
    precision, recall : ndarray of float64 of shape (n_labels,)
        Share of the images annotated with a label that have it, 0 without such images; share of the images with a label
        that are annotated with it, NaN without such images.

    Raises
    ------
    ValueError
        As `label_precision_at`.

    Examples
    --------
    >>> precision, recall = precision_recall_per_label([[0, 1], [0, 2]], [0, 1], k=1)
    >>> precision.tolist(), recall.tolist()
    ([0.5, 0.0, 0.0], [1.0, 0.0, nan])
    """
    n_named = int(np.max(ranked_labels, initial=-1)) + 1  # also by labels beyond the first k
    ranked_labels, truth = _as_ranked(ranked_labels, true_labels, k, n_labels=n_named)
    n_labels = truth.shape[1]
    annotated = np.bincount(ranked_labels.ravel(), minlength=n_labels)
    right = np.bincount(ranked_labels[_entries(truth, ranked_labels)], minlength=n_labels)
    have = np.bincount(truth.indices, minlength=n_labels)
    recall = np.divide(right, have, out=np.full(n_labels, np.nan), where=have > 0)
    return right / np.maximum(annotated, 1), recall


def sibling_precision_at(ranked_labels: Any, true_labels: Any, siblings: Any, k: int) -> np.ndarray:
    """Share of the k best labels of each image that are its own or siblings of its own.

    ``p_sib@k = 1/k sum_{i<=k} S[y_i, y]``

    Parameters
    ----------
    ranked_labels, true_labels, k : as in `label_precision_at`
    siblings : sparse or dense of shape (n_labels, n_labels)
        S, from 0 (nothing in common) to 1 (equivalent), of type bool or float; see `siblings_from_parents`.

    Returns
    -------
    ndarray of float64 of shape (n,)

    Raises
    ------
    ValueError
        As `label_precision_at`, or if the shape of S does not match the labels.

    Notes
    -----
    The paper's images have one label y. With several labels per image, each ranked label counts with the largest
    S[y_i, y] of them. With S the identity this is `label_precision_at`.

    Examples
    --------
    Of the labels toad, frog and lamp, toad and frog are amphibians. The image shows a frog.

    >>> siblings = siblings_from_parents([[1, 0], [1, 0], [0, 1]])
    >>> sibling_precision_at([[0, 2]], [1], siblings, k=2)
    array([0.5])
    """
    siblings = sp.csr_array(siblings)
    ranked_labels, truth = _as_ranked(ranked_labels, true_labels, k, n_labels=siblings.shape[0])
    if siblings.shape != (truth.shape[1], truth.shape[1]):
        raise ValueError(f"siblings must be {(truth.shape[1], truth.shape[1])}, got {siblings.shape}")
    if siblings.dtype == bool:
        return _entries(sp.csr_array(truth @ siblings), ranked_labels).mean(axis=1)
    credit = np.zeros(ranked_labels.shape)
    columns = siblings.tocsc()
    for row in range(len(credit)):
        labels = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        if len(labels):
            credit[row] = columns[:, labels].max(axis=1).toarray().ravel()[ranked_labels[row]]
    return credit.mean(axis=1)


def _as_ranked(ranked_labels: Any, true_labels: Any, k: int, n_labels: int = 0) -> tuple[np.ndarray, sp.csr_array]:
    """The first k columns, and the true labels as bool CSR (n, n_labels)."""
    ranked_labels = np.asarray(ranked_labels)
    if ranked_labels.ndim != 2 or not 1 <= k <= ranked_labels.shape[1]:
        raise ValueError(f"precision at {k} needs 1 <= k <= the number of ranked labels, got {ranked_labels.shape}")
    n, ranked_labels = len(ranked_labels), ranked_labels[:, :k]
    if sp.issparse(true_labels):
        truth = sp.csr_array(true_labels > 0)
    else:
        true_labels = _as_plain(true_labels, "true_labels")
        n_labels = max([n_labels, *(int(labels.max()) + 1 for labels in (true_labels, ranked_labels) if labels.size)])
        places = (np.ones(len(true_labels), bool), true_labels, np.arange(len(true_labels) + 1))
        truth = sp.csr_array(places, shape=(len(true_labels), n_labels))
    if truth.shape[0] != n:
        raise ValueError(f"{n} ranked lists, but labels of {truth.shape[0]} images")
    if ranked_labels.size and (ranked_labels.min() < 0 or ranked_labels.max() >= truth.shape[1]):
        raise ValueError(f"the lists name labels beyond the {truth.shape[1]} there are")
    return ranked_labels, truth


def _entries(matrix: sp.csr_array, columns: np.ndarray) -> np.ndarray:
    """Whether each row holds something in these columns of its own: bool, of the shape of columns."""
    n, width = matrix.shape
    rows = np.arange(n)
    present = np.repeat(rows, np.diff(matrix.indptr)) * width + matrix.indices
    return np.isin(rows[:, None] * width + columns, present)


def _as_plain(y: Any, name: str) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1:
        raise ValueError(f"{name} must have one label per image, shape (n,), got {y.shape}")
    refuse_missing(y)
    return y


def refuse_missing(y: np.ndarray) -> None:
    """Refuse None and NaN: as a label of its own, it would make all images without a label alike."""
    for label in y.tolist() if y.dtype.kind in "fO" else ():
        if label is None or type(label).__name__ == "NAType" or label != label:  # NA of pandas
            raise ValueError(f"labels hold {label} in place of a label; remove these images")
