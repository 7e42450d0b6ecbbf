"""Duplicates: images whose files are equal, and copies of one picture, re-encoded, resized or mirrored.

Equal files have one SHA-256. A copy is known by two small versions of each picture: one of 8 x 8 coloured cells, by
which candidates are searched, and a grey one of 32 x 32 pixels, in which fine textures of one mean colour differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from visterm.pipeline.store.catalogue import Image

if TYPE_CHECKING:
    import numpy as np

GRID = 8  # cells per side
TOLERANCE = 4.0  # levels: largest root mean square difference of the cells of two copies
FINE = 32  # pixels per side of the grey version
CORRELATION = 0.9  # smallest one of the grey versions of two copies
_FLAT = 2.0  # grey levels: standard deviation below which a correlation says nothing
_DIMENSIONS = 8  # of the projection in which candidates are searched


def without_duplicates(
    results: Iterable[tuple[int, float]], images: Sequence[Image], sha256: str
) -> list[tuple[int, float]]:
    """Keep the first result (row, score) of each file content other than the query's."""
    seen, kept = {sha256}, []
    for row, score in results:
        if images[row].sha256 not in seen:
            seen.add(images[row].sha256)
            kept.append((row, score))
    return kept


class SmallVersions(NamedTuple):
    """Two small versions of a picture, as bytes: `cells` RGB (GRID, GRID, 3), `fine` grey (FINE, FINE)."""

    cells: bytes
    fine: bytes


def small_versions(pixels: np.ndarray) -> SmallVersions:
    """Scale a picture down to what tells whether another one is a copy; RGB uint8 (height, width, 3)."""
    import cv2

    cells = cv2.resize(pixels, (GRID, GRID), interpolation=cv2.INTER_AREA)
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    return SmallVersions(cells.tobytes(), cv2.resize(gray, (FINE, FINE), interpolation=cv2.INTER_AREA).tobytes())


def group_copies(
    cells: Sequence[bytes], ratios: np.ndarray, fine_of: Callable[[set[int]], dict[int, bytes]]
) -> list[int]:
    """Number pictures so that copies of one picture have one number.

    Parameters
    ----------
    cells : sequence of bytes
        Of each picture, as `small_versions` gives them.
    ratios : ndarray of float, (n,)
        Width by height.
    fine_of : callable
        Returns the grey versions of some places; one that it has not differs from all others. Few are asked for.

    Returns
    -------
    list of int
    """
    import numpy as np
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    n = len(cells)
    pairs = find_pairs(np.frombuffer(b"".join(cells), np.uint8).reshape(n, GRID * GRID * 3), ratios)
    fine = {
        place: np.frombuffer(version, np.uint8).reshape(FINE, FINE).astype(np.float32)
        for place, version in fine_of({place for pair in pairs for place in pair[:2]}).items()
    }
    same = [(i, j) for i, j, turned in pairs if i in fine and j in fine and _agree(fine[i], fine[j], turned)]
    a, b = np.array(same, np.intp).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(a)), (a, b)), shape=(n, n))
    return connected_components(graph, directed=False)[1].tolist()


def find_pairs(cells: np.ndarray, ratios: np.ndarray) -> list[tuple[int, int, bool]]:
    """Find pairs of pictures that may be copies.

    Parameters
    ----------
    cells : ndarray of uint8, (n, GRID * GRID * 3)
        Each picture scaled down to GRID x GRID RGB pixels.
    ratios : ndarray of float, (n,)
        Width by height; copies agree to 3 %.

    Returns
    -------
    list of (int, int, bool)
        Two places, the first one smaller, and whether one is mirrored.

    Notes
    -----
    Distances in a projection are never larger than those of the cells, so no pair is missed.
    """
    import numpy as np
    from scipy.spatial import cKDTree

    n = len(cells)
    if n < 2:
        return []
    points = cells.astype(np.float32)
    mirrored = points.reshape(n, GRID, GRID, 3)[:, :, ::-1].reshape(n, -1)
    centred = points - points.mean(axis=0)
    basis = np.linalg.eigh(centred.T @ centred)[1][:, -_DIMENSIONS:]
    radius = TOLERANCE * np.sqrt(points.shape[1])
    tree = cKDTree(points @ basis)
    pairs: list[tuple[int, int, bool]] = []
    for other, vectors, turned in ((tree, points, False), (cKDTree(mirrored @ basis), mirrored, True)):
        near_by = tree.sparse_distance_matrix(other, radius, output_type="coo_matrix")
        i, j = near_by.row, near_by.col
        for start in range(0, len(i), 100_000):  # bounded memory
            a, b = i[start : start + 100_000], j[start : start + 100_000]
            near = (a < b) & (((points[a] - vectors[b]) ** 2).sum(axis=1) <= radius**2)
            near &= np.abs(np.log(ratios[a] / ratios[b])) < 0.03
            pairs += zip(a[near].tolist(), b[near].tolist(), [turned] * int(near.sum()), strict=True)
    return pairs


def _agree(one: np.ndarray, other: np.ndarray, turned: bool) -> bool:
    """Whether two grey versions show the same."""
    import numpy as np

    other = other[:, ::-1] if turned else other
    if one.std() < _FLAT and other.std() < _FLAT:
        return True
    a, b = one - one.mean(), other - other.mean()
    return float((a * b).sum()) >= CORRELATION * float(np.sqrt((a * a).sum() * (b * b).sum()))
