"""Contributions of pairs of parts to a score.

The vectors of an image's parts (its blocks) sum to the image's vector. Where each side of a similarity is, for a given
image, a linear map of that vector, the score is a sum over all pairs of parts:

    score(q, x) = sum_i sum_j <side of part i of q, side of part j of x>

So the contribution of each pair, and of each part, is exact. A similarity of bits that each test one feature is a sum
over the bits; a bit belongs to the parts that have its feature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

_AT_ONCE = 2**24  # numbers held of a matrix of query parts: 64 MB
_TOLERANCE = 1e-4  # relative; float32 sums of thousands of numbers stay far below


class Pair(NamedTuple):
    """Parts of the query and of the result, and their contribution to the score.

    Parts with the same vector, such as blocks with the same visterm, are interchangeable: all of them are named, and
    have equal shares.
    """

    query_parts: np.ndarray  # int64, ascending; empty where a bit's feature is not in the query
    result_parts: np.ndarray
    contribution: float


class Contributions(NamedTuple):
    """Terms that sum to a score.

    ``query`` and ``result`` each sum to the score, as does ``positive + negative``, up to rounding in single precision.
    For a similarity of bits they lack the bits whose feature is not in the image.
    """

    score: float
    query: np.ndarray  # float32 (n_query_parts,)
    result: np.ndarray  # float32 (n_result_parts,)
    positive: float  # sum over the pairs that raise the score
    negative: float  # sum over the pairs that lower it
    pairs: list[Pair]  # the strongest first, whatever their sign; of bits all


def explain(learner: Any, query_parts: Any, result_parts: Any, y: Any = None, *, n_pairs: int = 1000) -> Contributions:
    """Compute the contribution of each part of a query and of a result to their similarity.

    Parameters
    ----------
    learner : SimilarityLearner
        Fitted, and `linear`; or with `compare_bits` (MuSL).
    query_parts, result_parts : CSR matrix of float, shape (n_parts, n_features)
        The parts of each image; their sum is its vector.
    y : array of shape (1,), optional
        Label of the result, for a learner that reads them.
    n_pairs : int, default=1000
        Length of the list of pairs, at most.

    Returns
    -------
    Contributions

    Raises
    ------
    ValueError
        One of the images has no features, or the similarity is neither a sum over parts nor over bits.

    Notes
    -----
    Equal parts are merged first: time grows with the numbers of distinct parts, memory with the smaller one.
    """
    query_parts, result_parts = (sp.csr_matrix(parts, dtype=np.float32) for parts in (query_parts, result_parts))
    q, x = (_sum(parts) for parts in (query_parts, result_parts))
    for name, vector in (("query", q), ("result", x)):
        if not vector.nnz:
            raise ValueError(f"the vector of the {name} is zero: there is nothing to explain")
    score = float(learner.similarity(q, x, y)[0, 0])
    if learner.linear:
        result = _of_pairs(learner, query_parts, result_parts, q, x, n_pairs, score)
        total, size = result.positive + result.negative, result.positive - result.negative
        if not abs(total - score) <= _TOLERANCE * (size + 1e-3):
            raise ValueError(
                f"the parts sum to {total:g} and the score is {score:g}: {_name(learner)} declares `linear` but is not"
            )
        return result
    if hasattr(learner, "compare_bits"):
        features, amounts = learner.compare_bits(q, x, y)
        return _of_bits(features, amounts, query_parts, result_parts, score)
    raise ValueError(f"the similarity of {_name(learner)} is not a sum over parts of images")


def explain_matrix(learner: Any, query_parts: Any, result_parts: Any) -> np.ndarray:
    """Compute the contribution of each pair of parts to a similarity, for few parts.

    Parameters
    ----------
    learner : SimilarityLearner
        Fitted, and `linear`.
    query_parts, result_parts : array or CSR matrix of float, shape (n_parts, n_features)
        The parts of each image; their sum is its vector.

    Returns
    -------
    ndarray of float64, (n_query_parts, n_result_parts)
        Its sum is the score. All of it is held in memory: `explain` has the sums over many parts.
    """
    query_parts, result_parts = (sp.csr_matrix(parts, dtype=np.float32) for parts in (query_parts, result_parts))
    q, x = (_sum(parts) for parts in (query_parts, result_parts))
    matrix = learner.transform_query_parts(query_parts, q) @ learner.transform_parts(result_parts, x).T
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix, dtype=np.float64)


def _sum(parts: sp.csr_matrix) -> sp.csr_matrix:
    """Vector of an image, summed in double precision: sums of thousands of equal numbers would drift."""
    return sp.csr_matrix(parts.astype(np.float64).sum(axis=0), dtype=np.float32)


def _name(learner: Any) -> str:
    """Class name of a learner, also within a `visterm.learners.Blend`."""
    return type(getattr(learner, "learner", learner)).__name__


def _of_pairs(
    learner: Any,
    query_parts: sp.csr_matrix,
    result_parts: sp.csr_matrix,
    q: sp.csr_matrix,
    x: sp.csr_matrix,
    n_pairs: int,
    score: float,
) -> Contributions:
    queries, query_group = _distinct(query_parts)
    results, result_group = _distinct(result_parts)
    gallery = learner.transform_parts(results, x)
    by_query = np.zeros(queries.shape[0])
    by_result = np.zeros(results.shape[0])
    positive = negative = 0.0
    strongest: list[tuple[float, int, int]] = []
    step = max(1, _AT_ONCE // max(gallery.shape))
    for start in range(0, queries.shape[0], step):
        matrix = learner.transform_query_parts(queries[start : start + step], q) @ gallery.T
        matrix = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)  # (step, n_results)
        by_query[start : start + step] = matrix.sum(axis=1, dtype=np.float64)
        by_result += matrix.sum(axis=0, dtype=np.float64)
        positive += float(matrix.sum(where=matrix > 0, dtype=np.float64))
        negative += float(matrix.sum(where=matrix < 0, dtype=np.float64))
        sizes = np.abs(matrix).ravel()
        best = np.argpartition(-sizes, n_pairs)[:n_pairs] if n_pairs < sizes.size else np.flatnonzero(sizes)
        rows, columns = np.divmod(best, matrix.shape[1])
        strong = zip(matrix[rows, columns].tolist(), (start + rows).tolist(), columns.tolist(), strict=True)
        strongest = sorted([*strongest, *strong], key=lambda pair: (-abs(pair[0]), *pair[1:]))[:n_pairs]
    of_query, of_result = _members(query_group), _members(result_group)
    pairs = [Pair(of_query[i], of_result[j], amount) for amount, i, j in strongest if amount]
    return Contributions(
        score, _split(by_query, query_group), _split(by_result, result_group), positive, negative, pairs
    )


def _of_bits(
    features: np.ndarray, amounts: np.ndarray, query_parts: sp.csr_matrix, result_parts: sp.csr_matrix, score: float
) -> Contributions:
    query_parts, result_parts = sp.csc_matrix(query_parts), sp.csc_matrix(result_parts)
    by_query = np.zeros(query_parts.shape[0])
    by_result = np.zeros(result_parts.shape[0])
    pairs = []
    for feature in np.unique(features):
        amount = float(amounts[features == feature].sum(dtype=np.float64))
        sides = []
        for parts, by_part in ((query_parts, by_query), (result_parts, by_result)):
            having = np.sort(parts.indices[parts.indptr[feature] : parts.indptr[feature + 1]]).astype(np.int64)
            by_part[having] += amount / max(len(having), 1)
            sides.append(having)
        pairs.append(Pair(sides[0], sides[1], amount))
    # Ties: first the pairs that can be shown in both images.
    pairs.sort(key=lambda pair: (-abs(pair.contribution), -min(1, len(pair[0])) - min(1, len(pair[1]))))
    positive = float(amounts.sum(where=amounts > 0, dtype=np.float64))
    negative = float(amounts.sum(where=amounts < 0, dtype=np.float64))
    return Contributions(score, by_query.astype(np.float32), by_result.astype(np.float32), positive, negative, pairs)


def _distinct(parts: sp.csr_matrix) -> tuple[sp.csr_matrix, np.ndarray]:
    """Sums of the parts with equal vectors, and for each part the number of its sum."""
    numbers: dict[bytes, int] = {}
    ends = zip(parts.indptr[:-1], parts.indptr[1:], strict=True)
    keys = [parts.indices[a:b].tobytes() + parts.data[a:b].tobytes() for a, b in ends]
    group = np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
    ones = np.ones(len(group))
    gather = sp.csr_matrix((ones, (group, np.arange(len(group)))), shape=(len(numbers), len(group)))
    return (gather @ parts).astype(np.float32), group


def _members(group: np.ndarray) -> list[np.ndarray]:
    """Parts of each group, ascending."""
    return np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group))[:-1])


def _split(sums: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Equal shares of the sums for the parts of each group: float32."""
    return (sums / np.bincount(group))[group].astype(np.float32)
