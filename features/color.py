"""A palette of typical colours: each pixel becomes the number of a palette colour near it.

The palette is k-means (k = 20) over RGB pixels sampled from training images (Chechik et al., OASIS, JMLR 2010, §3).
Pixels are looked up in a table of 32 x 32 x 32 cells of 8 levels a side, filled with the palette colour nearest to
each cell's middle.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from visterm.compiled import njit

from . import plain
from .codebook import kmeans
from .parameters import Parameters, check_fitted


@njit(cache=True, nogil=True, plain=plain.color_rows)
def color_rows(image: np.ndarray, table: np.ndarray, out: np.ndarray) -> None:
    """Fill `out` (H, W) with the table's entry for every pixel of `image` (H, W, 3), both uint8."""
    height, width, _ = image.shape
    for y in range(height):
        row = image[y]
        target = out[y]
        for x in range(width):
            # unsigned, so that no index needs a check for counting from the end
            r, g, b = np.uint32(row[x, 0]), np.uint32(row[x, 1]), np.uint32(row[x, 2])
            target[x] = table[np.uint32((r & 248) << 7 | (g & 248) << 2 | b >> 3)]


class Palette(Parameters):
    """Typical colours of the training images, and the palette colour of every pixel.

    Parameters
    ----------
    n_colors : int
        Number of colours, at most 256.
    max_iter : int
        Rounds of k-means at most.
    random_state : int, RandomState or None
        Seed of k-means' first centres.

    Attributes
    ----------
    colors_ : ndarray of float32, (n_colors, 3)
        RGB, 0 ... 255.
    table_ : ndarray of uint8, (32768,)
        Palette colour of every cell of 8 x 8 x 8 RGB levels.

    Notes
    -----
    The look-up table is a departure from the paper, with a bounded error: a pixel goes to a palette colour at most
    7 sqrt 3 < 12.13 levels farther than its nearest one. For a pixel p in a cell with middle m, |p - m| <= 3.5 sqrt 3;
    m's nearest colour c and p's nearest colour c* have |m - c| <= |m - c*|, so
    |p - c| <= |p - m| + |m - c*| <= 2 |p - m| + |p - c*|.

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large scale online learning of image similarity through ranking.
    JMLR 11, 2010, §3.

    Examples
    --------
    >>> palette = Palette(n_colors=2, random_state=0).fit([[0, 0, 0], [250, 250, 250], [255, 255, 255]])
    >>> palette.predict(np.array([[[9, 0, 3], [200, 220, 240]]], dtype=np.uint8)).tolist() in ([[0, 1]], [[1, 0]])
    True
    """

    def __init__(self, *, n_colors: int = 20, max_iter: int = 50, random_state: Any = None) -> None:
        self.n_colors = n_colors
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, pixels: Any, y: Any = None) -> Self:
        """Learn the palette.

        Parameters
        ----------
        pixels : array-like, (n, 3)
            RGB, 0 ... 255, sampled from training images.
        y : None
            Ignored.

        Returns
        -------
        Palette
            Itself.

        Raises
        ------
        ValueError
            There are no pixels, or `n_colors` is not within 1 ... 256.

        Notes
        -----
        Where there are fewer distinct colours than `n_colors` the last centre is repeated; the repetitions are never
        the answer, because the lowest number wins a tie.
        """
        pixels = np.ascontiguousarray(pixels, dtype=np.float32)
        if pixels.ndim != 2 or pixels.shape[1] != 3 or len(pixels) == 0:
            raise ValueError(f"pixels must be a non-empty array of shape (n, 3), not {pixels.shape}")
        if not 1 <= self.n_colors <= 256:
            raise ValueError(f"n_colors must be between 1 and 256, not {self.n_colors!r}")
        distinct, weights = np.unique(pixels, axis=0, return_counts=True)
        n_clusters = min(self.n_colors, len(distinct))
        centers = kmeans(distinct, n_clusters, weights=weights, max_iter=self.max_iter, random_state=self.random_state)
        missing = self.n_colors - n_clusters
        return self.set_colors(np.concatenate([centers, np.repeat(centers[-1:], missing, axis=0)]))

    def set_colors(self, colors: Any) -> Self:
        """Set the colours (n_colors, 3), e.g. stored ones, and return itself."""
        self.colors_ = np.ascontiguousarray(colors, dtype=np.float32)
        middle = np.arange(32, dtype=np.float32) * 8 + 3.5
        cells = np.stack(np.meshgrid(middle, middle, middle, indexing="ij"), axis=-1).reshape(-1, 1, 3)
        # (32768, n_colors): argmin takes the lowest number of a tie
        distances = np.square(cells - self.colors_).sum(axis=-1)
        self.table_ = distances.argmin(axis=1).astype(np.uint8)
        return self

    def predict(self, image: np.ndarray) -> np.ndarray:
        """Return the palette colour of every pixel.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3)
            RGB.

        Returns
        -------
        ndarray of uint8, (H, W)
            Numbers 0 ... n_colors - 1.

        Raises
        ------
        ValueError
            `image` is not RGB of 8 bits.
        """
        check_fitted(self, "colors_")
        image = np.asarray(image)
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
            raise ValueError(f"image must be uint8 RGB of shape (H, W, 3), not {image.dtype} {image.shape}")
        out = np.empty(image.shape[:2], dtype=np.uint8)
        color_rows(np.ascontiguousarray(image), self.table_, out)
        return out
