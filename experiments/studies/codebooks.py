"""Whether a codebook of other photos helps where few images are labelled.

Of 20 classes of Caltech-101 a few training images of each are labelled, and test images query each other, by cosine and
by an OASIS that the labelled images trained. Palette, codebook of 1,000 visterms and idf are learned from the labelled
images; from these and the other training images of the classes, which have no label (the photos that a user has, too);
or from 1,000 photos of Corel-5K, such as a codebook that is shipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.records import compared, record
from benchmarks.vectors import choose_images
from experiments.measured import corel
from experiments.measured.protocol import extracted, figures
from experiments.measured.seeds import CLASSES_OASIS
from visterm.learners import Cosine

LABELLED, FOLDS, D = (3, 10), 3, 1000
OTHERS = {"all": "all training images", "corel5k": "1,000 photos of Corel-5K"}
N_SHIPPED = 1000


def measure(labelled: int, fold: int) -> dict[str, list[float]]:
    """MAP by cosine and by OASIS, by what the codebook is learned from."""
    paths, y, train = choose_images("caltech101-20", fold=fold)
    place = np.concatenate([np.arange((y == one).sum()) for one in dict.fromkeys(y)])  # training images come first
    few, photos = train & (place < labelled), corel.read_labels()[0]
    shipped = [corel.COREL / photos[i] for i in np.random.default_rng(fold).permutation(len(photos))[:N_SHIPPED]]
    maps = {}
    for name, more, mask in (("own", [], few), ("all", [], train), ("corel5k", shipped, np.zeros(len(y), bool))):
        fitted = np.concatenate([np.ones(len(more), bool), mask])
        X: Any = extracted(f"codebooks-{name}", [*more, *paths], fitted, fold, n_visterms=D)[len(more) :]
        learners = (Cosine(), CLASSES_OASIS)
        maps[name] = [figures(one.fit(X[few], y[few]), X[~train], y[~train])["map"] for one in learners]
    print(labelled, fold, maps, flush=True)
    return maps


def run(quick: bool = False) -> list[dict]:
    """Two records for each number of labelled images."""
    records = []
    for labelled in LABELLED[:1] if quick else LABELLED:
        folds = [measure(labelled, fold) for fold in range(1 if quick else FOLDS)]
        means = {name: np.mean([one[name] for one in folds], axis=0) for name in folds[0]}
        for name, what in OTHERS.items():
            measured = f"means of {len(folds)} splits; cosine {means[name][0]:.3f}, own {means['own'][0]:.3f}"
            records.append(
                record(
                    f"codebooks-{labelled}-{name}",
                    f"OASIS, {labelled} labelled images of each of 20 classes of Caltech-101, codebook of {what}",
                    "codebook of the labelled images alone",
                    "1.0: every image of the query's class first",
                    compared(float(means[name][1]), float(means["own"][1]), "mAP", len(folds), higher=True),
                    measured=measured,
                )
            )
    return records
