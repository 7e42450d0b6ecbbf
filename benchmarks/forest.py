"""Speed of extraction with a forest as codebook, side by side with its peers.

    python -m benchmarks forest [--quick]

Peers: our own k-means codebook, and the obvious version of the forest in scikit-image and scikit-learn: channels as
images, integral images, the responses of all blocks to all filters, ``decision_path`` of extremely randomised trees.
Photos and the way of measuring are those of the module extraction.
"""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np
import skimage
from sklearn.ensemble import ExtraTreesClassifier

from benchmarks.extraction import SCALE, SHIPPED, in_turns, one_core, photos, record
from visterm.features import VistermExtractor, level_shapes

COMMAND = "python -m benchmarks forest"
N_VISTERMS, N_TREES, BLOCK, STRIDE, CELL = 1000, 10, 64, 32, 4


def labels_of(paths):
    """Labels: the folder of a Caltech-101 photo; for a crop, the photo it was cut from."""
    folders = [path.parent.name for path in paths]
    return folders if len(set(folders)) > 1 else [int(path.stem) % len(SHIPPED) for path in paths]


class PlainForest:
    """The same codebook in plain NumPy and scikit-learn."""

    def __init__(self, filters, paths, y):
        self.filters = filters.astype(int)
        responses = [self._responses(path) for path in paths]
        rows = np.repeat(y, [len(part) for part in responses])
        half, leaves = len(filters) // 2, (N_VISTERMS // N_TREES + 1) // 2
        self.forests = [
            ExtraTreesClassifier(
                N_TREES // 2, criterion="entropy", max_features=20, max_leaf_nodes=leaves, min_samples_leaf=5, n_jobs=1
            ).fit(np.concatenate(responses)[:, part], rows)
            for part in (slice(half), slice(half, None))
        ]

    def count(self, paths):
        return np.array([self._count(path) for path in paths])

    def _count(self, path):
        responses, half = self._responses(path), len(self.filters) // 2
        paths = [
            forest.decision_path(part)[0]
            for forest, part in zip(self.forests, (responses[:, :half], responses[:, half:]), strict=True)
        ]
        return np.concatenate([np.asarray(nodes.sum(axis=0)).ravel() for nodes in paths])

    def _responses(self, path):
        image = skimage.io.imread(path)
        if image.ndim == 2:
            image = skimage.color.gray2rgb(image)
        channel, *borders = self.filters.T
        rows = []
        for level, _ in enumerate(level_shapes(*image.shape[:2])):
            scaled = skimage.transform.rescale(image, SCALE**-level, channel_axis=2) if level else image / 255
            dy, dx = np.gradient(skimage.color.rgb2gray(scaled))
            orientation = (np.degrees(np.arctan2(dy, dx)) % 180 // 22.5).astype(int) % 8
            magnitude = np.hypot(dx, dy)
            gradients = [np.where(orientation == k, magnitude, 0) for k in range(8)]
            channels = [*np.moveaxis(skimage.color.rgb2luv(scaled), 2, 0), *gradients]
            tables = np.stack([np.pad(skimage.transform.integral_image(c), ((1, 0), (1, 0))) for c in channels])
            height, width = magnitude.shape
            for y in range(0, height - BLOCK + 1, STRIDE):
                for x in range(0, width - BLOCK + 1, STRIDE):

                    def boxes(top, left, bottom, right, y=y, x=x, tables=tables):
                        top, bottom, left, right = (
                            y + CELL * top, y + CELL * bottom, x + CELL * left, x + CELL * right
                        )  # fmt: skip
                        sums = tables[channel, bottom, right] - tables[channel, top, right]
                        sums += tables[channel, top, left] - tables[channel, bottom, left]
                        return sums, (bottom - top) * (right - left)

                    whole, n = boxes(*borders[:4])
                    (light, n_light), (second, n_second) = boxes(*borders[4:8]), boxes(*borders[8:])
                    light, n_light = light + second, n_light + n_second
                    rows.append(np.where(n == n_light, light, (n - n_light) * light - n_light * (whole - light)))
        return np.array(rows, dtype=np.float32)


def run(quick: bool = False) -> list[dict]:
    """Run the benchmarks of the forest; `quick` takes few images and rounds."""
    n_train, n_test, rounds = (200, 96, 3) if quick else (600, 640, 9)
    with tempfile.TemporaryDirectory() as folder:
        train, test = photos(n_train, n_test, pathlib.Path(folder))
        y = labels_of(train)
        settings = {"n_visterms": N_VISTERMS, "n_trees": N_TREES, "random_state": 0, "n_jobs": -1}
        forest = VistermExtractor(codebook="forest", **settings).fit(train, y).set_params(n_jobs=1)
        kmeans = VistermExtractor(max_iter=3 if quick else 10, **settings).fit(train).set_params(n_jobs=1)
        few = train[:: 4 if quick else 10]
        plain = PlainForest(forest.codebook_.filters_, few, y[:: 4 if quick else 10])
        for extractor in (forest, kmeans):
            extractor.count(test[:2])  # compiles
        with one_core():
            against_kmeans = in_turns(lambda: forest.count(test), lambda: kmeans.count(test), len(test), rounds)
            some, few_rounds = (test[:4], 1) if quick else (test[:24], 3)
            against_plain = in_turns(lambda: forest.count(some), lambda: plain.count(some), len(some), few_rounds)
    what = f"a photo, file to counts of {N_VISTERMS} nodes of a forest"
    names = (
        ("extract-forest", what, "scikit-image and scikit-learn, one core", against_plain, len(some), few_rounds),
        ("extract-forest-kmeans", "the same", "our k-means codebook, one core", against_kmeans, len(test), rounds),
    )
    limit = "decoding, as of extract-10000"
    return [
        record(
            name, what, ours, peer, peer_name, ratio, limit, "ms an image", n,
            f"{n} photos, median of {repeats} in turns, 1 core each, processor time",
        ) | {"command": COMMAND}
        for name, what, peer_name, (ours, peer, ratio), n, repeats in names
    ]  # fmt: skip
