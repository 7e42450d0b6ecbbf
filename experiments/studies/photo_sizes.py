"""Settings of `max_side`.

Two-fold cross-validation of OASIS on training images of flowers and Caltech-101, as they come and enlarged. Test images
are never read.
"""

import numpy as np

from benchmarks.photos import folder_of, settings_of
from benchmarks.vectors import enlarged
from experiments.statistics import mean_and_error
from visterm.pipeline.config.loading import load_config

from .cross_validation import scores_of, training_images
from .spatial import CHOICE_FOLDS

STUDIED = ("flowers", None), ("flowers", 800), ("caltech101-20", 800)  # set of photos, and longest side if enlarged
SIDES = 320, 500, 800


def main(_: list[str]) -> None:
    """Print the mAP and the non-zeros of each setting of `max_side`, by set of photos."""
    print(f"{'photos':32}" + "".join(f"    max_side {side}, non-zeros" for side in SIDES))
    for name, longest in STUDIED:
        paths, y = training_images(folder_of(name), load_config(None, [*settings_of(name), "split.seed=0"]))
        if longest:
            paths = [enlarged(path, longest) for path in paths]
        line = f"{name}, " + (f"enlarged to {longest}" if longest else "as they come")
        print(f"{line:32}", end="", flush=True)
        for side in SIDES:
            scores = scores_of(paths, y, [f"features.max_side={side}"], (0.1,), CHOICE_FOLDS)
            mean, error = mean_and_error(np.ravel(scores["map"]))
            print(f"   {mean:.3f} +- {error:.3f}  {scores['nonzeros']:9.0f}", end="", flush=True)
        print()
