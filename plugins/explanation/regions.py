"""The regions of two images that contribute most to their score.

A score is a sum over all pairs of a cell of the query and a cell of the result: the sum of a matrix C. A set A of the
query's cells and a set B of the result's carry the sum of C over A x B. Cells are removed from either side, always the
one that costs least of the score per area, as long as A x B carries the required share. Cells of A that touch are a
region, and so are those of B; the pairs of regions, and the rest, sum to the score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_STEP = 0.1  # added to the required share while there are too many pairs of regions


class RegionMatch(NamedTuple):
    """A region of the query and one of the result, by number, and their contribution to the score."""

    query: int
    result: int
    contribution: float


class Regions(NamedTuple):
    """Regions of both images, numbered in the order of the pairs, and the strongest pairs first."""

    query: np.ndarray  # int64 (n_query_cells,): number of the cell's region, -1 for none
    result: np.ndarray
    pairs: list[RegionMatch]


def find_regions(
    contributions: np.ndarray,
    query_shape: tuple[int, int],
    result_shape: tuple[int, int],
    *,
    share: float = 0.5,
    n_pairs: int = 3,
) -> Regions:
    """Find a few small pairs of regions that carry a share of a score.

    Parameters
    ----------
    contributions : ndarray, (n_query_cells, n_result_cells)
        Contributions of the pairs of cells, which sum to the score; see `explain_matrix`.
    query_shape, result_shape : (int, int)
        Rows and columns of each image's cells, which are in the order of rows.
    share : float, default=0.5
        Least share of the score that the pairs carry together.
    n_pairs : int, default=3
        Most pairs.

    Returns
    -------
    Regions
        Empty for a score of 0. For a negative score, the regions that lower it.
    """
    matrix = np.asarray(contributions, dtype=np.float64)
    score = float(matrix.sum())
    if not score:
        return no_regions(*matrix.shape)
    gain = matrix / score
    for required in np.arange(share, 1.0, _STEP):
        rows, columns = _smallest(gain, required)
        query, result = _touching(rows, query_shape), _touching(columns, result_shape)
        of_query, of_result = (labels[:, None] == np.arange(labels.max() + 1) for labels in (query, result))
        carried = of_query.T @ gain @ of_result  # (n_query_regions, n_result_regions)
        best = np.argsort(-carried, axis=None, kind="stable")[:n_pairs]
        enough = np.cumsum(carried.ravel()[best]) >= share
        if enough.any():
            best = best[: enough.argmax() + 1]
            i, j = np.divmod(best, carried.shape[1])
            amounts = (score * carried.ravel()[best]).tolist()
            (query, of_pairs), (result, to) = _renumber(query, i), _renumber(result, j)
            return Regions(query, result, [RegionMatch(*pair) for pair in zip(of_pairs, to, amounts, strict=True)])
    n_query, n_result = matrix.shape
    return Regions(np.zeros(n_query, np.int64), np.zeros(n_result, np.int64), [RegionMatch(0, 0, score)])


def no_regions(n_query_cells: int, n_result_cells: int) -> Regions:
    """Return empty regions of images with these numbers of cells."""
    return Regions(np.full(n_query_cells, -1), np.full(n_result_cells, -1), [])


def _smallest(gain: np.ndarray, required: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a minimal set of rows and columns of a matrix with sum 1 that sums to `required`."""
    rows, columns = (np.ones(n, dtype=bool) for n in gain.shape)
    by_row, by_column, total = gain.sum(axis=1), gain.sum(axis=0), 1.0
    while True:
        # Cost of a removal per share of the image's area.
        row_costs = np.where(rows & (rows.sum() > 1), by_row * len(rows), np.inf)
        column_costs = np.where(columns & (columns.sum() > 1), by_column * len(columns), np.inf)
        row, column = int(row_costs.argmin()), int(column_costs.argmin())
        of_rows = row_costs[row] <= column_costs[column]
        least = by_row[row] if of_rows else by_column[column]
        if min(row_costs[row], column_costs[column]) == np.inf or total - least < required:
            return rows, columns
        total -= least
        if of_rows:
            rows[row] = False
            by_column = by_column - gain[row]
        else:
            columns[column] = False
            by_row = by_row - gain[:, column]


def _touching(chosen: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Number the groups of chosen cells that share edges; -1 for cells that are not chosen."""
    from scipy.ndimage import label

    return label(chosen.reshape(shape))[0].ravel().astype(np.int64) - 1


def _renumber(labels: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Number the regions in the order of their first use; -1 for those that are not used."""
    order = list(dict.fromkeys(used.tolist()))
    numbers = np.full(labels.max() + 2, -1)  # the last one for label -1
    numbers[order] = np.arange(len(order))
    return numbers[labels], [int(numbers[region]) for region in used]
