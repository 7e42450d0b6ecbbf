"""Precision against seconds by pairs per query, C and images.

On the training images of benchmarks/pairs.py alone; draws docs/pairs.png. The defaults of `OASIS` were chosen from it.
"""

import itertools

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks import plots
from benchmarks.page import DOCS
from benchmarks.pairs import FOLDS, LOOKS, NEAR, VECTORS, curve, draw, seconds_to, vectors

FIGURE = DOCS / "pairs.png"
PAIRS = (1, 8, 32, 64, 128, 256)


def main(options: list[str]) -> None:
    """Print and draw what pairs, C and the number of images do, on training images alone."""
    quick = "--quick" in options
    folds = FOLDS[: 1 if quick else 2]
    figure, axes = plots.new_figure(3, n_rows=1)
    for axis, (name, (title, _)) in zip(axes, VECTORS.items(), strict=True):
        X, y, train = vectors(name)
        X, y = X[train], y[train]
        for place, pairs in enumerate(PAIRS):
            if name == "dense" and pairs < 8:
                continue
            steps = (20_000 if quick else 300_000) * max(1, min(pairs, 64) // 8)
            looks = np.mean([curve(X, y, *draw(y, 30, 10, f), pairs_per_query=pairs, n_steps=steps) for f in folds], 0)
            plots.series(axis, place, looks[:, 0], looks[:, 1], label=f"{pairs}")
            best = looks[:, 1].argmax()
            near = seconds_to(looks, NEAR * looks[best, 1])
            print(
                f"{title}, {pairs} pairs: best mAP {looks[best, 1]:.4f} after {(best + 1) * steps // LOOKS:,} triplets "
                f"and {looks[best, 0]:.2f} s, {NEAR:.1%} of it after {near:.2f} s",
                flush=True,
            )
        axis.set(title=title, xlabel="seconds of learning", xscale="log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("mAP of held-out training images")
    plots.legend(figure, axes[0], "pairs per query")
    plots.save(figure, FIGURE)
    X, y, train = vectors("photos")
    X, y = X[train], y[train]
    for n_train, C, pairs in itertools.product((10, 30), (0.03, 0.1, 0.3), (1, 128)):
        steps = 20_000 if quick else 300_000 * (1 if pairs == 1 else 4)
        looks = np.mean(
            [curve(X, y, *draw(y, n_train, 10, f), pairs_per_query=pairs, n_steps=steps, C=C) for f in folds], 0
        )
        best = looks[:, 1].argmax()
        print(
            f"{n_train} images a class, C = {C}, {pairs} pairs: best mAP {looks[best, 1]:.4f} after "
            f"{(best + 1) * steps // LOOKS:,} triplets and {looks[best, 0]:.2f} s",
            flush=True,
        )
