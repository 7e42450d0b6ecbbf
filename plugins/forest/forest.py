"""Codebook of random trees over Haar-like filters: each node is a visterm.

A block goes down every tree. An inner node compares the response of one Haar-like filter on one channel with a
threshold; each node on the way, the leaf too, counts once:

    response = n_dark * sum(light cells) - n_light * sum(dark cells),    left if response <= threshold

Half of the trees look at CIE-LUV colours, half at gradient magnitudes in 8 orientations. They are grown from the
labelled blocks of training images: of a few random filters with random thresholds a node takes the one that leaves the
least class entropy (Babenko, Branson & Belongie, MuSL, ICCV 2009, §3.1.1; Moosmann, Triggs & Jurie, NIPS 2007).

Blocks are those of `block_grid`; filters are those of `haar_filters`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import cv2
import numpy as np

from visterm.compiled import njit
from visterm.features.blocks import check_grid, pad_to_block, pyramid
from visterm.features.decoding import as_rgb
from visterm.features.parameters import Parameters, check_fitted, check_labels, check_random_state

from .haar import CELLS, N_CHANNELS, N_COLORS, haar_filters, respond, response, sum_cells

N_FILTERS = 500  # drawn for colours, and as many for gradients; the nodes choose among them

# ---------------------------------------------------------------------------------------------------------------
# Trees


@njit(cache=True, nogil=True, error_model="numpy")
def _walk(
    table: np.ndarray,
    ys: np.ndarray,
    xs: np.ndarray,
    filters: np.ndarray,
    nodes: np.ndarray,
    roots: np.ndarray,
    counts: np.ndarray,
    leaves: np.ndarray,
) -> None:
    """Let all blocks of a level go down all trees: add to `counts` (n_visterms,), fill `leaves` (n_blocks, n_trees)."""
    for i in range(ys.size):
        for j in range(xs.size):
            for t in range(roots.size):
                node = roots[t]
                counts[node] += 1
                while nodes[node, 0] >= 0:
                    if response(table, ys[i], xs[j], filters[nodes[node, 0]]) <= nodes[node, 1]:
                        node += 1
                    else:
                        node = nodes[node, 2]
                    counts[node] += 1
                leaves[i * xs.size + j, t] = node


# ---------------------------------------------------------------------------------------------------------------


def _preorder(tree: Any) -> np.ndarray:
    """Return the nodes of a grown tree so that each is followed by its left subtree: (n_nodes, 3) of int32.

    Filter, -1 in a leaf; threshold, rounded down, which decides the same for whole numbers; number of the right child.
    """
    order, waiting = [], [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if tree.children_left[node] >= 0:
            waiting += [tree.children_right[node], tree.children_left[node]]
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order))
    inner = tree.children_left >= 0
    nodes = np.full((len(order), 3), -1, dtype=np.int32)
    nodes[place[inner], 0] = tree.feature[inner]
    nodes[place[inner], 1] = np.floor(tree.threshold[inner])
    nodes[place[inner], 2] = place[tree.children_right[inner]]
    return nodes


class ForestCodebook(Parameters):
    """Random trees over Haar-like filters, each node of which is a visterm.

    Parameters
    ----------
    n_visterms : int
        Number of columns of the counts: at least 3 per tree. Each tree gets an equal share of them as nodes; the node
        that lowers the entropy of all blocks most is split next. Unused columns stay empty.
    n_trees : int
        The first half of them, and the middle one, look at colours, the others at gradients.
    n_candidates : int
        Filters that a node tries, each with one random threshold.
    min_samples_leaf : int
        Minimum number of training blocks per node.
    max_blocks : int
        Maximum number of blocks to grow the trees from, drawn evenly from the training images.
    block_size, stride, scale, min_blocks
        The block grid, see `level_shapes`.
    random_state : int, RandomState or None
        Makes `fit` reproducible.
    n_jobs : int or None
        Threads that grow trees. The result does not depend on it.

    Attributes
    ----------
    filters_ : ndarray of uint8, (n_filters, 13)
        See `haar_filters`.
    nodes_ : ndarray of int32, (n_nodes, 3)
        A row a visterm: its filter, -1 in a leaf; its threshold; the visterm on the right. The one on the left is the
        next row, so that each subtree is a range of visterms.
    roots_ : ndarray of int32, (n_trees,)
        Visterms of the roots, which every block has.

    Notes
    -----
    - Filters are drawn once, 500 for colours and 500 for gradients, and nodes draw their candidates among them, so that
      each training image is read once. The paper gives no number of candidates, trees or nodes.
    - A single rectangle counts as a Haar-like filter: flowers differ in colour itself.
    - Gradients are those of the grey image of the level; opposite directions are one orientation. Colours of coarser
      levels are the nearest pixels of the finest one, as in `describe`.
    - Growing takes, for each block, 4 KB for the responses, and twice that for a moment: 200 MB for 25,000 blocks.

    References
    ----------
    B. Babenko, S. Branson, S. Belongie: Similarity metrics for categorization: from monolithic to category specific.
    ICCV 2009, §3.1.1.
    F. Moosmann, B. Triggs, F. Jurie: Fast discriminative visual codebooks using randomized clustering forests.
    NIPS 19, 2007.

    Examples
    --------
    >>> dark = np.zeros((96, 128, 3), dtype=np.uint8)
    >>> forest = ForestCodebook(n_visterms=6, n_trees=2, min_samples_leaf=1, random_state=0)
    >>> forest.fit([dark, dark + 200], ["night", "day"]).count(dark)
    array([6, 6, 0, 6, 0, 0], dtype=int32)

    The first tree has a root, which all 6 blocks pass, and two leaves. To the second, which looks at gradients, both
    images are the same: it is a root alone.
    """

    def __init__(
        self,
        *,
        n_visterms: int = 10_000,
        n_trees: int = 10,
        n_candidates: int = 20,
        min_samples_leaf: int = 5,
        max_blocks: int = 25_000,
        block_size: int = 64,
        stride: int = 32,
        scale: float = 1.25,
        min_blocks: int = 10,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_visterms = n_visterms
        self.n_trees = n_trees
        self.n_candidates = n_candidates
        self.min_samples_leaf = min_samples_leaf
        self.max_blocks = max_blocks
        self.block_size = block_size
        self.stride = stride
        self.scale = scale
        self.min_blocks = min_blocks
        self.random_state = random_state
        self.n_jobs = n_jobs

    # -----------------------------------------------------------------------------------------------------------
    # Fit

    def fit(self, images: Any, y: Any) -> Self:
        """Grow the trees from labelled images.

        Parameters
        ----------
        images : sequence of ndarray of uint8, (H, W, 3) or (H, W)
            Training images.
        y : array-like, (n_images,)
            One label per image, shared by all of its blocks.

        Returns
        -------
        ForestCodebook
            Itself.

        Raises
        ------
        ValueError
            Labels are missing, several per image, or all the same; a setting is out of range; or no filter separates
            any blocks.
        """
        self.check()
        y = check_labels(y, len(images))
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2)
        self.draw_filters(seeds[0])
        quota = max(self.max_blocks // len(images), 1)
        rows = [self.sample(image, quota, (seeds[0], i)) for i, image in enumerate(images)]
        return self.grow(np.concatenate(rows), np.repeat(y, [len(part) for part in rows]), seeds[1])

    def check(self) -> None:
        """Raise ``ValueError`` if a setting is out of range."""
        check_grid(self.block_size, self.stride, self.scale, self.min_blocks)
        for name in ("n_trees", "n_candidates", "min_samples_leaf", "max_blocks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if self.n_visterms < 3 * self.n_trees:
            raise ValueError(
                f"n_visterms must be at least {3 * self.n_trees}, a root and two leaves for each of "
                f"{self.n_trees} trees, not {self.n_visterms!r}"
            )

    def draw_filters(self, random_state: Any) -> Self:
        """Draw the filters that nodes choose among, and return itself."""
        rng = check_random_state(random_state)
        colors, gradients = range(N_COLORS), range(N_COLORS, N_CHANNELS)
        self.filters_ = np.concatenate([haar_filters(N_FILTERS, channels, rng) for channels in (colors, gradients)])
        return self

    def sample(self, image: Any, n: int, seed: Any) -> np.ndarray:
        """Return the responses of at most n blocks of an image to all filters, (n, n_filters) of float32."""
        responses = self.responses(image)
        chosen = np.random.default_rng(seed).permutation(len(responses))[:n]
        return responses[np.sort(chosen)]

    def grow(self, responses: np.ndarray, labels: np.ndarray, random_state: Any) -> Self:
        """Grow the trees from sampled blocks.

        Parameters
        ----------
        responses : ndarray of float32, (n_blocks, n_filters)
        labels : ndarray, (n_blocks,)
        random_state : int, RandomState or None

        Returns
        -------
        ForestCodebook
            Itself.
        """
        classes, labels = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"the forest codebook needs images of two classes at least, not of {len(classes)}")
        seeds = check_random_state(random_state).randint(2**31 - 1, size=self.n_trees)
        n_leaves = (self.n_visterms // self.n_trees + 1) // 2  # a tree has one leaf more than inner nodes

        from sklearn.tree import ExtraTreeClassifier

        def grow_tree(t: int) -> np.ndarray:
            first = 0 if t < (self.n_trees + 1) // 2 else N_FILTERS
            tree = ExtraTreeClassifier(
                criterion="entropy", max_features=min(self.n_candidates, N_FILTERS), max_leaf_nodes=n_leaves,
                min_samples_leaf=self.min_samples_leaf, random_state=seeds[t],
            ).fit(responses[:, first : first + N_FILTERS], labels)  # fmt: skip
            nodes = _preorder(tree.tree_)
            nodes[nodes[:, 0] >= 0, 0] += first
            return nodes

        import joblib

        trees = joblib.Parallel(self.n_jobs, prefer="threads")(
            joblib.delayed(grow_tree)(t) for t in range(self.n_trees)
        )
        roots = np.cumsum([0, *map(len, trees)])[:-1]
        for nodes, root in zip(trees, roots, strict=True):
            nodes[nodes[:, 0] >= 0, 2] += root
        if max(map(len, trees)) == 1:
            raise ValueError(
                f"no filter splits the {len(responses)} training blocks into two parts of {self.min_samples_leaf} or "
                "more: add images, or lower min_samples_leaf"
            )
        return self.set_trees(self.filters_, np.concatenate(trees), roots)

    def set_trees(self, filters: Any, nodes: Any, roots: Any) -> Self:
        """Set the trees, e.g. stored ones, and return itself; ``ValueError`` if they form no forest."""
        filters = np.ascontiguousarray(filters, dtype=np.uint8)
        nodes = np.ascontiguousarray(nodes, dtype=np.int32)
        roots = np.ascontiguousarray(roots, dtype=np.int32)
        if filters.ndim != 2 or filters.shape[1] != 13 or nodes.ndim != 2 or nodes.shape[1] != 3 or roots.ndim != 1:
            raise ValueError(
                f"filters, nodes and roots must have the shapes (n, 13), (n, 3) and (n,), "
                f"not {filters.shape}, {nodes.shape} and {roots.shape}"
            )
        inner = nodes[nodes[:, 0] >= 0]
        after = np.flatnonzero(nodes[:, 0] >= 0) + 1
        # the walk must stay within the arrays, and go forward, so that it ends
        if not (
            np.all(filters[:, 0] < N_CHANNELS)
            and np.all(filters[:, 1:] <= CELLS)
            and np.all(inner[:, 0] < len(filters))
            and np.all((inner[:, 2] > after) & (inner[:, 2] < len(nodes)))
            and np.all((roots >= 0) & (roots < len(nodes)))
            and len(nodes) <= self.n_visterms
        ):
            raise ValueError("filters, nodes and roots are not those of a forest")
        self.filters_, self.nodes_, self.roots_ = filters, nodes, roots
        return self

    # -----------------------------------------------------------------------------------------------------------
    # Use

    def _levels(self, image: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the summed-area table of each level, and the first cells of its rows and of its columns of blocks."""
        grid = {"block_size": self.block_size, "stride": self.stride}
        image = np.ascontiguousarray(pad_to_block(as_rgb(image), self.block_size))
        luv, gray = cv2.cvtColor(image, cv2.COLOR_RGB2Luv), cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        for level in pyramid(gray, scale=self.scale, min_blocks=self.min_blocks, **grid):
            ys, xs = (
                np.arange(0, size - self.block_size + 1, self.stride) * CELLS // self.block_size for size in level.shape
            )
            table = np.empty((ys[-1] + CELLS + 1, xs[-1] + CELLS + 1, N_CHANNELS), dtype=np.int32)
            sum_cells(luv, level, self.block_size, table)
            yield table, ys, xs

    def responses(self, image: Any) -> np.ndarray:
        """Return the responses of all blocks of an image to all filters.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3) or (H, W)

        Returns
        -------
        ndarray of float32, (n_blocks, n_filters)
            Whole numbers. The rows are in the order of `block_grid`.
        """
        check_fitted(self, "filters_")
        levels = []
        for table, ys, xs in self._levels(image):
            levels.append(np.empty((len(ys) * len(xs), len(self.filters_)), dtype=np.float32))
            respond(table, ys, xs, self.filters_, levels[-1])
        return np.concatenate(levels)

    def _walk(self, image: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts of all visterms, and the leaves of all blocks."""
        check_fitted(self, "nodes_")
        counts, levels = np.zeros(self.n_visterms, dtype=np.int32), []
        for table, ys, xs in self._levels(image):
            levels.append(np.empty((len(ys) * len(xs), len(self.roots_)), dtype=np.int32))
            _walk(table, ys, xs, self.filters_, self.nodes_, self.roots_, counts, levels[-1])
        return counts, np.concatenate(levels)

    def predict(self, image: Any) -> np.ndarray:
        """Return the leaf that each block of an image reaches in each tree.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3) or (H, W)

        Returns
        -------
        ndarray of int32, (n_blocks, n_trees)
            Visterms. The rows are in the order of `block_grid`.
        """
        return self._walk(image)[1]

    def count(self, image: Any) -> np.ndarray:
        """Return how many blocks of an image pass each node.

        Parameters
        ----------
        image : ndarray of uint8, (H, W, 3) or (H, W)

        Returns
        -------
        ndarray of int32, (n_visterms,)
            A root has all blocks, and any inner node as many as its two children together.
        """
        return self._walk(image)[0]

    def passed(self, leaves: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the nodes that each block passes on its way to its leaves.

        Parameters
        ----------
        leaves : ndarray of int, (n_blocks, n_trees)
            As of `predict`.

        Returns
        -------
        blocks, nodes : ndarray of int, (n_passed,)
            Pairs of a block and a visterm.
        """
        inner = np.flatnonzero(self.nodes_[:, 0] >= 0)
        parents = np.full(len(self.nodes_), -1)
        parents[inner + 1] = parents[self.nodes_[inner, 2]] = inner  # the left child comes next, the right one is named
        blocks, at = np.repeat(np.arange(len(leaves)), leaves.shape[1]), leaves.ravel()
        steps = []
        while len(at):
            steps.append((blocks, at))
            above = parents[at]
            blocks, at = blocks[above >= 0], above[above >= 0]
        return tuple(np.concatenate(part) for part in zip(*steps, strict=True))
