"""Images to sparse visterm vectors, as one scikit-learn transformer.

Fit, on training images only: sample pixels -> palette; sample block descriptors -> codebook; count visterms -> idf.
Transform: read -> describe blocks -> nearest centres -> counts -> tf-idf weights of unit length
(Chechik et al., OASIS, JMLR 2010, §3).

With ``codebook="forest"`` random trees take the place of palette, descriptors and centres (`ForestCodebook`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from .batches import Distribute, Failure, Limits, check_images, read_pixels, run_batch, run_batches
from .blocks import block_grid, check_grid
from .cells import WHOLE, block_cells, check_cells, n_cells
from .codebook import Codebook, OtherCenters
from .color import Palette
from .decoding import Picture, StrPath, decode_picture, enlarge_to_side, side_of
from .depth import LONGEST, RULES, Rules
from .descriptors import NORMALIZATIONS, describe
from .extractor_files import load_extractor, save_extractor
from .images import MAX_PIXELS, read_file
from .parameters import Transformer, check_fitted, check_labels, check_random_state
from .visterms import VistermWeighting, co_occurrence_order, count_visterms
from .weights import TERM_FREQUENCIES

Progress = Callable[[int, int], object]  # called with the number of images read, and of all

PIXELS_PER_IMAGE = 100  # sampled for the palette
BLOCKS_PER_IMAGE = 50  # sampled for the codebook, at least, before fewer images are read
FOREST_BLOCKS = 25_000  # sampled for a forest at most: they are larger than descriptors
MIN_SIDE = 64  # of max_side: one block of the default size
BLOCKS_PER_VISTERM = 4  # at least, to learn one from: fewer repeat single blocks, which no other image has

# ---------------------------------------------------------------------------------------------------------------
# Work on one image or batch (module level, so that worker processes can run it)


def _sample_pixels(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample pixels of an image, with replacement."""
    pixels = pixels.reshape(-1, 3)
    return pixels[rng.integers(0, len(pixels), PIXELS_PER_IMAGE)]


def _sample_rows(rows: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sample rows without replacement, in their order."""
    return rows if len(rows) <= n else rows[np.sort(rng.choice(len(rows), n, replace=False))]


def _count_batch(
    start: int,
    images: Iterable[Any],
    limits: Limits,
    layout: _Layout,
    palette: Palette,
    codebook: Codebook | OtherCenters,
    normalization: str,
) -> tuple[sp.csr_matrix, list[Failure]]:
    """Count the visterms of a batch of images."""

    def work(pixels: np.ndarray, _: int) -> tuple[np.ndarray, np.ndarray | None]:
        rows = describe(pixels, palette, **layout.grid, normalization=normalization)
        return rows, layout.cells_of(*pixels.shape[:2])

    results, failures = run_batch(work, start, images, *limits)
    n_columns = [0 if result is None else result[0].shape[0] * len(layout.cells) for result in results]
    read = _readable(results)
    if not read:
        return count_visterms([], n_columns, layout.n_visterms), failures
    ids = codebook.predict(np.concatenate([rows for rows, _ in read]))
    if layout.cells != WHOLE:
        ids = layout.columns(ids[:, None], np.concatenate([cells for _, cells in read])).ravel()
    return count_visterms(ids, n_columns, layout.n_visterms), failures


def _count_batch_by_trees(
    start: int, images: Iterable[Any], limits: Limits, layout: _Layout, forest: Any
) -> tuple[sp.csr_matrix, list[Failure]]:
    """Count the visterms of a batch of images, with a forest."""

    def count(pixels: np.ndarray, _: int) -> np.ndarray:
        cells = layout.cells_of(*pixels.shape[:2])
        if cells is None:
            return forest.count(pixels)
        blocks, nodes = forest.passed(forest.predict(pixels))
        columns = layout.columns(nodes[:, None], cells[blocks])
        return np.bincount(columns.ravel(), minlength=layout.n_visterms).astype(np.int32)

    rows, failures = run_batch(count, start, images, *limits)
    empty = np.zeros(layout.n_visterms, dtype=np.int32)
    return sp.csr_matrix(np.stack([empty if row is None else row for row in rows])), failures


class _Layout(NamedTuple):
    """Where blocks lie, and which columns their visterms have."""

    n_visterms: int  # of all cells
    cells: tuple[int, ...]
    grid: dict[str, Any]  # see `block_grid`

    @property
    def per_cell(self) -> int:
        """Visterms of each cell, the number of centres or nodes; up to n_cells - 1 last columns stay empty."""
        return self.n_visterms // n_cells(self.cells)

    def cells_of(self, height: int, width: int) -> np.ndarray | None:
        """Return the cells of all blocks of an image, (n_blocks, n_grids); None where the image is the only cell."""
        if self.cells == WHOLE:
            return None
        return block_cells(block_grid(height, width, **self.grid), height, width, self.cells)

    def columns(self, ids: np.ndarray, cells: np.ndarray | None) -> np.ndarray:
        """Return the columns of visterms (n, m) in cells (n, n_grids): (n, m * n_grids) of int32."""
        if cells is None:
            return ids
        return (cells[:, :, None] * np.int32(self.per_cell) + ids[:, None, :]).reshape(len(ids), -1)


# ---------------------------------------------------------------------------------------------------------------


class VistermExtractor(Transformer):
    """Turn images into sparse visterm vectors.

    Parameters
    ----------
    n_visterms : int
        Number of visterms, the width of the vectors; 10,000 and 1,000 in the papers. All `cells` share them evenly.
        k-means learns at most one from four blocks of the training images: with few or small images the others, which
        `fit` warns of, occur nowhere.
    codebook : {"kmeans", "forest"}
        "kmeans": centres of block descriptors. "forest": nodes of random trees, which learn from labels; ignores
        `n_colors`, `normalization`, `max_color_samples` and `max_iter`.
    n_trees, n_candidates, min_samples_leaf : int
        Of the forest, see `ForestCodebook`.
    n_colors : int
        Number of palette colours.
    max_side : int or None
        Longest side of the images that blocks are taken from, at least 64: larger images are scaled down by averaging
        areas, JPEGs partly while they are decoded. A panorama of more than 2.5:1 is scaled down to the area of one of
        2.5:1. None: no scaling, as in the paper.
    enlarge_to : int or None
        Longest side that smaller images are enlarged to, so that they have enough blocks to differ, or `max_side` if
        that is less. None: no enlarging, as in the paper.
    block_size, stride : int
        Side of a block and distance between neighbouring blocks, in pixels.
    scale : float
        Factor between the levels of the scale pyramid.
    min_blocks : int
        The first level with fewer blocks is the last one.
    cells : sequence of int
        Sides of the grids of cells whose visterms are counted separately: [3] for 3 x 3 cells, [1, 3] for the whole
        image besides. (1,): the whole image alone.
    normalization : {"hellinger", "l1"}
        Of block descriptors, see `describe`.
    tf : {"count", "sqrt"}
        Term frequency of the weights, see `VistermWeighting`.
    max_color_samples, max_descriptors : int
        Maximum number of pixels and block descriptors to learn palette and codebook from, drawn evenly from the
        training images. A forest is grown from at most 25,000 blocks.
    max_iter : int
        Maximum number of rounds of k-means, for the codebook.
    max_pixels : int
        Refuse larger image files, see `read_image`.
    reading : int
        Version of the rules by which files become pixels. 1, of extractors saved before version 0.4: `max_side` limits
        the longer side of panoramas, too, and of 16 bits only the high ones count. 2: a file of more than 8 bits whose
        brightest level is that of fewer bits than most of the collection has is dim.
    white : int
        Of files of more than 8 bits, the least level that is white, if they declare none; see `common_white`. 0: each
        by its own pixels.
    random_state : int, RandomState or None
        Makes `fit` reproducible. The result does not depend on `n_jobs`.
    n_jobs : int or None
        Threads; None means one, -1 all cores.
    on_error : {"raise", "skip"}
        How to handle a path that cannot be read. "skip" ignores it in `fit` and gives it an empty row in
        `transform` and `count`, with one warning at the end.

    Attributes
    ----------
    palette_ : Palette or None
        None with a forest.
    codebook_ : Codebook or ForestCodebook
        Numbered so that visterms that occur together are neighbours; with a `ForestCodebook`, subtree by subtree.
    weighting_ : VistermWeighting
    held_out_counts_ : list of csr_matrix of int32, (n_images_of_group, n_visterms)
        Set by ``fit(images, held_out=groups)``, not saved. Counts of each group of images with centres learned from the
        others alone. `count` would not treat training images like new photos: many centres may hold blocks of one
        training image alone.

    Notes
    -----
    - Only `fit` learns, so vectors depend on the training images alone.
    - The papers' images were of one size, about that of web pages. With `max_side` a photo has nearly the same vector
      at any resolution, and the number of its blocks is bounded.
    - With `cells`, the codebook has ``n_visterms // n_cells`` visterms, which all cells use: a column stands for a
      visterm in a cell. A block belongs to the cell of its centre, once per grid. Unlike in spatial pyramid matching,
      grids are not weighted: their idf is learned from images as that of all columns.

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio: Large scale online learning of image similarity through ranking.
    JMLR 11, 2010, §3.
    S. Lazebnik, C. Schmid, J. Ponce: Beyond bags of features: spatial pyramid matching for recognizing natural scene
    categories. CVPR 2006.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> images = [rng.integers(0, 256, (96, 128, 3), dtype=np.uint8) for _ in range(8)]
    >>> VistermExtractor(n_visterms=10, random_state=0).fit_transform(images).shape
    (8, 10)
    """

    palette_: Any  # Palette; None with a forest
    codebook_: Any  # Codebook or ForestCodebook

    def __init__(
        self,
        *,
        n_visterms: int = 10_000,
        codebook: str = "kmeans",
        n_trees: int = 10,
        n_candidates: int = 20,
        min_samples_leaf: int = 5,
        n_colors: int = 20,
        max_side: int | None = 500,
        enlarge_to: int | None = 192,
        block_size: int = 64,
        stride: int = 32,
        scale: float = 1.25,
        min_blocks: int = 10,
        cells: Sequence[int] = (1,),
        normalization: str = "hellinger",
        tf: str = "count",
        max_color_samples: int = 100_000,
        max_descriptors: int = 250_000,
        max_iter: int = 25,
        max_pixels: int = MAX_PIXELS,
        reading: int = RULES.version,
        white: int = RULES.white,
        random_state: Any = None,
        n_jobs: int | None = None,
        on_error: str = "raise",
    ) -> None:
        self.n_visterms = n_visterms
        self.codebook = codebook
        self.n_trees = n_trees
        self.n_candidates = n_candidates
        self.min_samples_leaf = min_samples_leaf
        self.n_colors = n_colors
        self.max_side = max_side
        self.enlarge_to = enlarge_to
        self.block_size = block_size
        self.stride = stride
        self.scale = scale
        self.min_blocks = min_blocks
        self.cells = cells
        self.normalization = normalization
        self.tf = tf
        self.max_color_samples = max_color_samples
        self.max_descriptors = max_descriptors
        self.max_iter = max_iter
        self.max_pixels = max_pixels
        self.reading = reading
        self.white = white
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.on_error = on_error

    # -----------------------------------------------------------------------------------------------------------
    # Fit

    def fit(
        self,
        images: Iterable[Any],
        y: Any = None,
        *,
        callback: Progress | None = None,
        distribute: Distribute | None = None,
        held_out: Sequence[Sequence[int]] = (),
    ) -> Self:
        """Learn palette, codebook and idf from training images.

        Parameters
        ----------
        images : sequence of path or ndarray
            Paths, RGB uint8 arrays (H, W, 3) and grey uint8 arrays (H, W), in any mixture. They are read three
            times, so a generator is converted to a list first.
        y : array-like, (n_images,), optional
            One label per image, for a forest; k-means ignores it.
        callback : callable, optional
            Called as ``callback(n_read, n_total)`` while images are read.
        distribute : callable, optional
            Called as ``distribute(function, tasks)``, must return ``function(*task)`` of each task, in order. The tasks
            read the images, for example on other machines, instead of `n_jobs` threads; the result is the same.
        held_out : sequence of sequences of int, optional
            Groups of images, by number, to count also as if they were new, into `held_out_counts_`: for early stopping
            and other measurements on training images. They change nothing else. Ignored by a forest.

        Returns
        -------
        VistermExtractor
            Itself.

        Raises
        ------
        ImageError
            A path cannot be read, unless `on_error` is "skip".
        ValueError
            A setting is out of range, or no image is left. With a forest also if labels are missing, several per image,
            or all the same.
        """
        self._fit_count(images, y, callback, distribute, held_out)
        return self

    def fit_transform(self, images: Iterable[Any], y: Any = None) -> sp.csr_matrix:
        """Fit, and return the vectors of the training images; see `fit` and `transform`.

        Parameters
        ----------
        images : sequence of path or ndarray
        y : array-like, (n_images,), optional
            As in `fit`.

        Returns
        -------
        csr_matrix of float32, (n_images, n_visterms)
        """
        counts = self._fit_count(images, y)
        return self.weighting_.transform(counts)

    def _fit_count(
        self,
        images: Iterable[Any],
        y: Any,
        callback: Progress | None = None,
        distribute: Distribute | None = None,
        held_out: Sequence[Sequence[int]] = (),
    ) -> sp.csr_matrix:
        """Fit, and return the counts of the training images."""
        images = self._checked(images)
        self.__dict__.pop("held_out_counts_", None)
        seeds = _seeds(self.random_state)
        if self.codebook == "forest":
            y = check_labels(y, len(images))
            counts, failures = self._fit_forest(images, y, seeds, callback, distribute)
        else:
            counts, failures = self._fit_kmeans(images, seeds, callback, distribute, held_out)
        _warn(failures, len(images))
        readable = np.setdiff1d(np.arange(len(images)), [index for index, *_ in failures])
        self.fit_weighting(counts[readable])
        return counts

    def _fit_kmeans(
        self,
        images: Sequence[Any],
        seeds: Sequence[int],
        callback: Progress | None,
        distribute: Distribute | None,
        held_out: Sequence[Sequence[int]],
    ) -> tuple[sp.csr_matrix, list[Failure]]:
        """Learn palette and centres; return the counts of the images and the unreadable ones."""
        of_pixels = self._choose(len(images), self.max_color_samples // PIXELS_PER_IMAGE, seeds[0])
        of_blocks = self._choose(len(images), self.max_descriptors // BLOCKS_PER_IMAGE, seeds[2])
        n_again = sum(map(len, held_out))
        tick = _ticker(callback, len(of_pixels) + len(of_blocks) + len(images) + n_again)
        pixels, _ = self._sample(
            images,
            of_pixels,
            lambda pixels, i: _sample_pixels(pixels, np.random.default_rng((seeds[0], i))),
            tick,
            distribute,
        )
        palette = Palette(n_colors=self.n_colors, random_state=seeds[1]).fit(pixels)
        rows, image_of = self._sample_blocks(images, of_blocks, palette, seeds[2], tick, distribute)
        layout = self._layout()
        self.palette_ = palette
        n, k = n_cells(layout.cells), layout.per_cell
        most = min(k, max(2, len(rows) // BLOCKS_PER_VISTERM))
        self.codebook_ = Codebook(
            n_visterms=most, max_iter=self.max_iter, random_state=seeds[3], n_jobs=self.n_jobs
        ).fit(rows)  # fmt: skip
        if not held_out:
            del rows
        n_centers = len(self.codebook_.centers_)
        if n_centers < k:
            warnings.warn(
                f"the training images have blocks for {n_centers} visterms, not {k}: the others occur in no image",
                stacklevel=4,
            )
        counts, failures = self._count(images, tick, distribute)
        by_cell = counts[:, : n * k].reshape(-1, k).tocsr()[:, :n_centers]  # a row per image and cell
        order = co_occurrence_order(by_cell, self.codebook_.centers_)
        self.codebook_.set_centers(self.codebook_.centers_[order])
        order = np.append(order, range(n_centers, k))
        counts = counts[:, np.append((np.arange(n)[:, None] * k + order).ravel(), range(n * k, self.n_visterms))]
        counts.sort_indices()
        if held_out:
            self.held_out_counts_ = self._count_groups(images, held_out, rows, image_of, tick, distribute)
        return counts, failures

    def _sample_blocks(
        self,
        images: Sequence[Any],
        chosen: Sequence[int] | np.ndarray,
        palette: Palette,
        seed: int,
        tick: Callable[[int], object],
        distribute: Distribute | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return block descriptors of the chosen images, and the image number of each."""
        quota, normalization = max(self.max_descriptors // len(chosen), 1), self.normalization
        grid = self._layout().grid

        def work(pixels: np.ndarray, i: int) -> np.ndarray:
            rows = describe(pixels, palette, **grid, normalization=normalization)
            return _sample_rows(rows, quota, np.random.default_rng((seed, i)))

        return self._sample(images, chosen, work, tick, distribute)

    def _count_groups(
        self,
        images: Sequence[Any],
        groups: Sequence[Sequence[int]],
        rows: np.ndarray,
        image_of: np.ndarray,
        tick: Callable[[int], object],
        distribute: Distribute | None,
    ) -> list[sp.csr_matrix]:
        """Return the counts of groups of images, with centres from the blocks of the other images."""
        counts = []
        for group in groups:
            centers = OtherCenters(self.codebook_, rows[~np.isin(image_of, group)])
            counts.append(self._count([images[i] for i in group], tick, distribute, centers)[0])
        return counts

    def count_as_new(
        self,
        images: Iterable[Any],
        groups: Sequence[Sequence[int]],
        *,
        callback: Progress | None = None,
        distribute: Distribute | None = None,
    ) -> list[sp.csr_matrix]:
        """Count groups of training images as if they were new, after the fit; as `held_out_counts_`.

        Parameters
        ----------
        images : sequence of path or ndarray
            All images of the fit, in their order; those that the centres were learned from are read again.
        groups : sequence of sequences of int
            Numbers of images.
        callback, distribute : callable, optional
            As in `fit`.

        Returns
        -------
        list of csr_matrix of int32, (n_images_of_group, n_visterms)

        Raises
        ------
        ImageError
            A path cannot be read, unless `on_error` is "skip".
        ValueError
            The codebook is a forest, or `random_state` is not an integer: the sampled blocks are unknown.
        """
        check_fitted(self, "weighting_")
        if self.palette_ is None or not isinstance(self.random_state, Integral):
            raise ValueError("counting training images as new needs a k-means codebook and an integer random_state")
        images = self._checked(images)
        seeds = _seeds(self.random_state)
        chosen = self._choose(len(images), self.max_descriptors // BLOCKS_PER_IMAGE, seeds[2])
        tick = _ticker(callback, len(chosen) + sum(map(len, groups)))
        rows, image_of = self._sample_blocks(images, chosen, self.palette_, seeds[2], tick, distribute)
        return self._count_groups(images, groups, rows, image_of, tick, distribute)

    def _fit_forest(
        self,
        images: Sequence[Any],
        y: np.ndarray,
        seeds: Sequence[int],
        callback: Progress | None,
        distribute: Distribute | None,
    ) -> tuple[sp.csr_matrix, list[Failure]]:
        """Grow the trees; return the counts of the images and the unreadable ones."""
        forest = self._forest().set_params(n_jobs=self.n_jobs)
        forest.check()
        chosen = self._choose(len(images), forest.max_blocks, seeds[0])
        tick = _ticker(callback, len(chosen) + len(images))
        quota = max(forest.max_blocks // len(chosen), 1)
        forest.draw_filters(seeds[1])
        rows, image_of = self._sample(
            images, chosen, lambda pixels, i: forest.sample(pixels, quota, (seeds[2], i)), tick, distribute
        )
        self.palette_, self.codebook_ = None, forest.grow(rows, y[image_of], seeds[3])
        del rows
        return self._count(images, tick, distribute)

    def _forest(self) -> Any:
        """Return a `ForestCodebook` that is not yet grown."""
        from . import ForestCodebook

        layout = self._layout()
        return ForestCodebook(
            n_visterms=layout.per_cell, n_trees=self.n_trees, n_candidates=self.n_candidates,
            min_samples_leaf=self.min_samples_leaf, max_blocks=min(self.max_descriptors, FOREST_BLOCKS), **layout.grid,
        )  # fmt: skip

    def fit_weighting(self, counts: Any) -> Self:
        """Learn the idf weights alone, from `count` of the training images.

        Parameters
        ----------
        counts : sparse matrix of int, (n_train, n_visterms)

        Returns
        -------
        VistermExtractor
            Itself.
        """
        self.weighting_ = VistermWeighting(tf=self.tf).fit(counts)
        return self

    def _checked(self, images: Iterable[Any]) -> Sequence[Any]:
        """Check settings and images; return the images as a list."""
        check_grid(self.block_size, self.stride, self.scale, self.min_blocks)
        check_cells(self.cells, self.n_visterms, 3 * self.n_trees if self.codebook == "forest" else 2)
        for name, side, least in (("max_side", self.max_side, MIN_SIDE), ("enlarge_to", self.enlarge_to, 1)):
            if side is not None and (int(side) != side or side < least):
                raise ValueError(f"{name} must be a whole number, at least {least}, or None, not {side!r}")
        choices = {"tf": TERM_FREQUENCIES, "normalization": NORMALIZATIONS, "codebook": ("forest", "kmeans")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {sorted(allowed)}, not {getattr(self, name)!r}")
        for name in ("n_visterms", "max_color_samples", "max_descriptors", "max_iter", "max_pixels"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if not 1 <= self.n_colors <= 256:
            raise ValueError(f"n_colors must be between 1 and 256, not {self.n_colors!r}")
        self._check_on_error()
        images = list(check_images(images))
        if not images:
            raise ValueError("there are no images to fit to")
        return images

    def _check_on_error(self) -> None:
        if self.on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', not {self.on_error!r}")

    def _layout(self) -> _Layout:
        names = ("block_size", "stride", "scale", "min_blocks")
        return _Layout(self.n_visterms, tuple(self.cells), {name: getattr(self, name) for name in names})

    def _limits(self) -> Limits:
        """Return the limits of `read_pixels`."""
        return self.max_pixels, self.max_side, self._smallest_side(), self.rules

    @property
    def rules(self) -> Rules:
        """How files become pixels."""
        return Rules(self.reading, self.white, LONGEST if self.reading > 1 else 0)

    def _smallest_side(self) -> int | None:
        """Return the longest side that small images are enlarged to: `enlarge_to`, within `max_side`."""
        if self.enlarge_to is None or self.max_side is None:
            return self.enlarge_to
        return min(self.enlarge_to, self.max_side)

    @staticmethod
    def _choose(n_images: int, n_chosen: int, seed: int) -> Sequence[int] | np.ndarray:
        """Choose images, in their order; all of them if they are few."""
        if n_images <= n_chosen:
            return range(n_images)
        return np.sort(np.random.default_rng(seed).choice(n_images, max(n_chosen, 1), replace=False))

    def _sample(
        self,
        images: Sequence[Any],
        chosen: Sequence[int] | np.ndarray,
        function: Callable[[np.ndarray, int], np.ndarray],
        tick: Callable[[int], object],
        distribute: Distribute | None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows that the function samples from the pixels of the chosen images, and the image of each row."""
        images = [images[i] for i in chosen]
        parts: list[np.ndarray | None] = []
        limits = self._limits()
        for results, failures in run_batches(
            lambda start, batch: run_batch(function, start, batch, *limits), images, self.n_jobs, distribute
        ):
            self._raise_first(failures)
            parts += results
            tick(len(results))
        if all(part is None for part in parts):
            raise ValueError(f"none of the {len(images)} images could be read")
        return np.concatenate(_readable(parts)), np.repeat(chosen, [0 if part is None else len(part) for part in parts])

    def _raise_first(self, failures: list[Failure]) -> None:
        if failures and self.on_error == "raise":
            raise failures[0][2]

    # -----------------------------------------------------------------------------------------------------------
    # Transform

    def transform(self, images: Iterable[Any]) -> sp.csr_matrix:
        """Return the weighted visterm vectors of images.

        Parameters
        ----------
        images : iterable of path or ndarray
            As in `count`.

        Returns
        -------
        csr_matrix of float32, (n_images, n_visterms)
            Rows of unit length. An image with only visterms of weight 0 has a row of zeros, as has an unreadable one
            with ``on_error="skip"``.

        Raises
        ------
        ImageError
            A path cannot be read, unless `on_error` is "skip".
        """
        check_fitted(self, "weighting_")
        return self.weighting_.transform(self.count(images))

    def count(self, images: Iterable[Any]) -> sp.csr_matrix:
        """Return how often each visterm occurs in each image.

        Parameters
        ----------
        images : iterable of path or ndarray
            Paths, RGB uint8 arrays (H, W, 3) and grey uint8 arrays (H, W). A generator is read batch by
            batch, and only the counts of an image are kept.

        Returns
        -------
        csr_matrix of int32, (n_images, n_visterms)

        Raises
        ------
        ImageError
            A path cannot be read, unless `on_error` is "skip".
        """
        check_fitted(self, "codebook_")
        self._check_on_error()
        counts, failures = self._count(check_images(images))
        _warn(failures, counts.shape[0])
        return counts

    def _count(
        self,
        images: Iterable[Any],
        tick: Callable[[int], object] = lambda n: None,
        distribute: Distribute | None = None,
        centers: OtherCenters | None = None,
    ) -> tuple[sp.csr_matrix, list[Failure]]:
        """Counts of all images, by the codebook's centres or others; the unreadable ones as (index, path, error)."""
        palette, codebook, normalization = self.palette_, centers or self.codebook_, self.normalization
        limits, layout = self._limits(), self._layout()

        def count_batch(start: int, batch: Iterable[Any]) -> tuple[sp.csr_matrix, list[Failure]]:
            if palette is None:
                return _count_batch_by_trees(start, batch, limits, layout, codebook)
            return _count_batch(start, batch, limits, layout, palette, codebook, normalization)

        parts, failures = [sp.csr_matrix((0, self.n_visterms), dtype=np.int32)], []
        for counts, failed in run_batches(count_batch, images, self.n_jobs, distribute):
            self._raise_first(failed)
            parts.append(counts)
            failures += failed
            tick(counts.shape[0])
        return sp.vstack(parts, format="csr", dtype=np.int32), failures

    def blocks(self, image: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the boxes of the blocks of an image and the visterm of each.

        Parameters
        ----------
        image : path, ndarray of uint8, or Picture of `read`

        Returns
        -------
        boxes : ndarray of float64, (n_blocks, 4)
            x, y, width, height in pixels of the image, however it is scaled down; see `block_grid`.
        visterms : ndarray of int32, (n_blocks,)
            Columns of the vectors. With several grids of cells (n_blocks, n_grids); with a forest
            (n_blocks, n_grids * n_trees), the leaf in each tree.
        """
        boxes, cells, ids = self._describe_blocks(image)
        columns = self._layout().columns(ids, cells)
        return boxes, columns if columns.shape[1] > 1 or self.palette_ is None else columns[:, 0]

    def _describe_blocks(self, image: Any) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return boxes, cells (n_blocks, n_grids) or None, and visterms in the codebook (n_blocks, 1 or n_trees)."""
        check_fitted(self, "codebook_")
        if isinstance(image, (str, os.PathLike)):
            image = self.read(image)
        if not isinstance(image, Picture):
            image = Picture(read_pixels(image, *self._limits()), *np.shape(image)[:2])
        pixels, *size = image
        layout, shape = self._layout(), pixels.shape[:2]
        if self.palette_ is None:
            ids = self.codebook_.predict(pixels)
        else:
            rows = describe(pixels, self.palette_, **layout.grid, normalization=self.normalization)
            ids = self.codebook_.predict(rows)[:, None]
        scale = size[1] / shape[1], size[0] / shape[0]
        return block_grid(*shape, **layout.grid) * (*scale, *scale), layout.cells_of(*shape), ids

    def read(self, path: StrPath, *, max_pixels: int | None = None, data: bytes | None = None) -> Picture:
        """Read an image file, or its `data`, as `transform` does, scaled to its sides; see `read_picture`."""
        data = read_file(path) if data is None else data
        max_pixels = max_pixels or self.max_pixels
        picture = decode_picture(data, path, max_side=self.max_side, max_pixels=max_pixels, rules=self.rules)
        side = side_of(picture.pixels.shape[:2], self._smallest_side(), self.rules)
        return picture._replace(pixels=enlarge_to_side(picture.pixels, side))

    def block_vectors(self, image: Any) -> tuple[np.ndarray, sp.csr_matrix]:
        """Return the share of each block in the vector of an image.

        Parameters
        ----------
        image : path, ndarray of uint8, or Picture of `read`
            The path and the pixels of a JPEG above `max_side` give slightly different vectors: the decoder scales too.

        Returns
        -------
        boxes : ndarray of float64, (n_blocks, 4)
            x, y, width, height in pixels of the image, however it is scaled down; see `block_grid`.
        vectors : csr_matrix of float32, (n_blocks, n_visterms)
            Rows that sum to the image's row of `transform`. A block has one visterm per grid of cells, or none if that
            has weight 0; with a forest, all nodes that it passes.

        Raises
        ------
        ImageError
            The path cannot be read.
        """
        boxes, cells, ids = self._describe_blocks(image)
        blocks = np.arange(len(boxes))
        if self.palette_ is None:
            blocks, nodes = self.codebook_.passed(ids)
            ids = nodes[:, None]
        columns = self._layout().columns(ids, None if cells is None else cells[blocks])
        counts = sp.csr_matrix(
            (np.ones(columns.size, dtype=np.int32), (np.repeat(blocks, columns.shape[1]), columns.ravel())),
            shape=(len(boxes), self.n_visterms),
        )
        return boxes, self.weighting_.transform_parts(counts)

    # -----------------------------------------------------------------------------------------------------------
    # On disk

    def save(self, folder: StrPath) -> None:
        """Write the fitted extractor into a folder, which is created if missing.

        Parameters
        ----------
        folder : path
            Gets ``palette.npy`` and ``codebook.npy``, or ``filters.npy``, ``nodes.npy`` and ``roots.npy`` of a forest;
            ``idf.npy``; and ``extractor.json`` (settings, format version and checksums), written last.
        """
        check_fitted(self, "weighting_")
        save_extractor(self, folder)

    @classmethod
    def load(cls, folder: StrPath) -> Self:
        """Read an extractor that `save` wrote.

        Parameters
        ----------
        folder : path

        Returns
        -------
        VistermExtractor
            Gives the same vectors as the saved one, byte for byte.

        Raises
        ------
        ValueError
            The folder holds no extractor, one of another format version, or a damaged one. Nothing in it is ever
            executed or unpickled.
        """
        return load_extractor(cls, folder)


def _warn(failures: list[Failure], n_images: int) -> None:
    """Warn once about skipped images."""
    if failures:
        warnings.warn(
            f"{len(failures)} of {n_images} images could not be read and have empty rows, the first: {failures[0][2]}",
            stacklevel=3,
        )


def _seeds(random_state: Any) -> list[int]:
    """Seeds of the parts of a fit."""
    return [int(seed) for seed in check_random_state(random_state).randint(2**31 - 1, size=4)]


def _ticker(callback: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function that adds the images of a batch and reports the total to the callback."""
    n_read = 0

    def tick(n: int) -> None:
        nonlocal n_read
        n_read += n
        if callback is not None:
            callback(n_read, total)

    return tick


def _readable(parts: list[Any]) -> list[Any]:
    """Drop the results of images that could not be read."""
    return [part for part in parts if part is not None]
