"""Many classes of few images, as of products, pairs and re-identification: ``python -m benchmarks small_classes``.

Classes are photos of $VISTERM_DATA, their images two or three cuts of each, of 45 to 70 % of its sides. Three fifths of
the classes are trained on, as `visterm features` draws them, and the others are measured. Then one labelled photo of
each class of three sets, the others without labels. All of it by deep vectors, and as `visterm train` has it: the
learner that is recommended, or cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.features import deep_embedder, read_image
from visterm.learners import OASIS, Cosine
from visterm.learners.blend import effective
from visterm.pipeline.store.recommendation import recommend
from visterm.retrieval import evaluate_test_test

from .photos import ALL_LABELS, files_of, labelled
from .records import FIRST, compared, record

SETS = ("caltech101", "flowers", "textures")
SEEDS = 3  # draws of the classes that are trained on


def run(quick: bool = False) -> list[dict]:
    embedder = deep_embedder(n_jobs=-1).fit()
    X, y = cuts(embedder, 400 if quick else 3000)
    n = len(X) // 3
    few = np.random.default_rng(0).integers(1, 4, n // 3)
    return [
        of_classes("small-classes-map-pairs", f"{n:,} classes of 2 images", X, y, np.full(n, 2), quick),
        of_classes("small-classes-map-few", f"{n // 3:,} classes of 1 to 3 images", X, y, few, quick),
        *(of_one_label(name, embedder, quick) for name in SETS[1 : 2 if quick else 3] + SETS[:1] * (not quick)),
    ]


def cuts(embedder: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of three cuts of each of n photos, and the number of the photo."""
    rng = np.random.default_rng(0)
    photos = files_of(*SETS)
    photos = [photos[i] for i in rng.permutation(len(photos))[:n]]
    vectors = []
    for start in range(0, n, 200):
        pixels = [read_image(path) for path in photos[start : start + 200]]
        vectors.append(embedder.transform([cut(image, rng) for image in pixels for _ in range(3)]))
    return np.concatenate(vectors), np.repeat(np.arange(n), 3)


def cut(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    sides = (np.array(pixels.shape[:2]) * rng.uniform(0.45, 0.7)).astype(int)
    top, left = (rng.integers(whole - side + 1) for whole, side in zip(pixels.shape, sides, strict=False))
    return np.ascontiguousarray(pixels[top : top + sides[0], left : left + sides[1]])


def of_classes(name: str, what: str, X: np.ndarray, y: np.ndarray, sizes: np.ndarray, quick: bool) -> dict:
    """A record of classes of these sizes: the first cuts of as many photos."""
    place = np.arange(len(y)) - np.searchsorted(y, y)
    kept = place < np.append(sizes, np.zeros(len(X) // 3 - len(sizes), int))[y]
    X, y = X[kept], y[kept]
    figures, weights, took = [], [], 0
    for seed in range(1 if quick else SEEDS):
        classes = np.unique(y)
        trained = np.isin(y, np.random.default_rng(seed).permutation(classes)[: round(0.6 * len(classes))])
        learner = OASIS(validation_fraction=0.2, random_state=seed)
        learner.fit(X[trained], y[trained], world="open", learned_weight=None)
        takes = _recommended(learner) == "oasis"
        took += takes
        weights.append(learner.learned_weight_)
        figures.append([_map(effective(learner) if takes else Cosine().fit(X), X[~trained], y[~trained])])
        figures[-1].append(_map(Cosine().fit(X), X[~trained], y[~trained]))
    ours, cosine = np.array(figures).T
    return record(
        name,
        f"mAP of other classes, deep vectors, {what}",
        "cosine",
        FIRST,
        compared(float(ours.mean()), float(cosine.mean()), "mAP", len(ours), higher=True),
        measured=f"mean of {len(ours)} draws of the classes; oasis recommended in {took}; differences "
        f"{_texts(ours - cosine)}, weights {_texts(weights)}",
    )


def of_one_label(name: str, embedder: Any, quick: bool) -> dict:
    """A record of a set of which one photo of each class has a label."""
    paths, labels = labelled(name)
    X = embedder.transform(paths[:: 4 if quick else 1])
    classes, y = np.unique(labels[:: 4 if quick else 1], return_inverse=True)
    differences, figures = [], []
    cosine = Cosine().fit(X)
    for seed in range(1 if quick else SEEDS):
        rng = np.random.default_rng(seed)
        rows = np.array([rng.choice(np.flatnonzero(y == c)) for c in range(len(classes))])
        one_each = sp.csr_array((np.ones(len(rows)), (rows, y[rows])), shape=(len(y), len(classes)))
        learner = OASIS(random_state=seed).fit(X, one_each, world="open", learned_weight=None)
        rest = np.setdiff1d(np.arange(len(y)), rows)
        figures.append((_map(effective(learner), X[rest], y[rest]), _map(cosine, X[rest], y[rest])))
        differences.append(figures[-1][0] - figures[-1][1])
    ours, theirs = np.mean(figures, axis=0)
    return record(
        f"small-classes-map-one-label-{name}",
        f"mAP of the photos without labels, deep vectors, one labelled photo of each class, {ALL_LABELS[name]}",
        "cosine",
        FIRST,
        compared(float(ours), float(theirs), "mAP", len(figures), higher=True),
        measured=f"mean of {len(figures)} draws of the labelled photos; differences {_texts(differences)}",
    )


def _recommended(learner: Any) -> str:
    result = {"validation_map": learner.validation_map_, "validation_p1": learner.validation_p1_}
    result |= {"cosine_map": learner.cosine_map_, "cosine_p1": learner.cosine_p1_}
    result |= {"n_validation": len(learner.held_out_), "worlds": {"for": "open"} | learner.worlds_}
    recommended = recommend({"oasis": result})
    assert recommended is not None
    return recommended["learner"]


def _map(learner: Any, X: np.ndarray, y: np.ndarray) -> float:
    return evaluate_test_test(learner, X, y, max_k=1).mean_average_precision


def _texts(values: Sequence[float] | np.ndarray) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
