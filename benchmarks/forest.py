"""Speed of extraction with a forest as codebook, side by side with its peers.

    python -m benchmarks forest [--quick]

Peers: our own k-means codebook, and the obvious version of the forest in scikit-image and scikit-learn: channels as
images, integral images, the responses of all blocks to all filters, ``decision_path`` of extremely randomised trees.
Photos and the way of measuring are those of the module extraction.
"""

from __future__ import annotations

import numpy as np
import skimage
from sklearn.ensemble import ExtraTreesClassifier

from visterm.features import VistermExtractor

from .extraction import corners_of_blocks, of_photos, one_core, scaled_levels
from .photos import SHIPPED, some_photos
from .processes import temporary_folder
from .records import record

N_VISTERMS, N_TREES, CELL = 1000, 10, 4


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
        channel, *borders = self.filters.T
        rows = []
        for scaled in scaled_levels(path):
            dy, dx = np.gradient(skimage.color.rgb2gray(scaled))
            orientation = (np.degrees(np.arctan2(dy, dx)) % 180 // 22.5).astype(int) % 8
            magnitude = np.hypot(dx, dy)
            gradients = [np.where(orientation == k, magnitude, 0) for k in range(8)]
            channels = [*np.moveaxis(skimage.color.rgb2luv(scaled), 2, 0), *gradients]
            tables = np.stack([np.pad(skimage.transform.integral_image(c), ((1, 0), (1, 0))) for c in channels])
            for y, x in corners_of_blocks(magnitude.shape):

                def boxes(top, left, bottom, right, y=y, x=x, tables=tables):
                    top, bottom, left, right = y + CELL * top, y + CELL * bottom, x + CELL * left, x + CELL * right
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
    with temporary_folder() as folder:
        train, test = some_photos(n_train, n_test, folder)
        y = labels_of(train)
        settings = {"n_visterms": N_VISTERMS, "n_trees": N_TREES, "random_state": 0, "n_jobs": -1}
        forest = VistermExtractor(codebook="forest", **settings).fit(train, y).set_params(n_jobs=1)
        kmeans = VistermExtractor(max_iter=3 if quick else 10, **settings).fit(train).set_params(n_jobs=1)
        few = train[:: 4 if quick else 10]
        plain = PlainForest(forest.codebook_.filters_, few, y[:: 4 if quick else 10])
        for extractor in (forest, kmeans):
            extractor.count(test[:2])  # compiles
        some, few_rounds = (test[:4], 1) if quick else (test[:24], 3)
        with one_core():
            against_plain = of_photos(lambda: forest.count(some), lambda: plain.count(some), len(some), few_rounds)
            against_kmeans = of_photos(lambda: forest.count(test), lambda: kmeans.count(test), len(test), rounds)
    what, limit = f"a photo, file to counts of {N_VISTERMS} nodes of a forest", "decoding, as of extract-10000"
    plain_name, kmeans_name = "scikit-image and scikit-learn, one core", "our k-means codebook, one core"
    return [
        record("extract-forest", what, plain_name, limit, against_plain),
        record("extract-forest-kmeans", "the same", kmeans_name, limit, against_kmeans),
    ]
