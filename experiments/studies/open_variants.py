"""Other ways to learn for the open world, on deep vectors.

OASIS with a number of steps that is the same for all variants, on class splits as in the study open; mAP of seen,
unseen and both with the cautious share of what was learned, and all of it. Copies are random crops of half of the photo
or more, every second one mirrored. Writes the tables of docs/open-world.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import cv2
import numpy as np
import scipy.sparse as sp

from benchmarks.page import replace, table
from benchmarks.photos import extracted, images_of, to_dense
from benchmarks.vectors import CACHE, DATA
from visterm.learners import OASIS
from visterm.learners.validation import CAUTIOUS
from visterm.learners.whitening import _groups, within_scatter
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.vectors import extractor_of

from .open import PAGE, SETS, Split, class_splits, measures, title_of, triple

STEPS, SPLITS, SHARES = 500_000, 3, (CAUTIOUS, 1.0)
PASS = 50_000  # triplets of one kind, where two kinds take turns
KINDS_OF_THINGS = {  # a hierarchy of labels: groups of the classes of Caltech-101
    "animals": "Leopards butterfly cougar_face crab crayfish dalmatian dolphin dragonfly flamingo hawksbill ibis "
    "kangaroo llama scorpion starfish trilobite",
    "plants": "bonsai lotus sunflower",
    "vehicles": "Motorbikes airplanes car_side ferry helicopter ketch",
    "people": "Faces buddha",
}


class Space(NamedTuple):
    """Training and test images as they are compared: unit rows, and test images as a gallery."""

    training: np.ndarray
    test: np.ndarray
    gallery: np.ndarray


class HardestOfTen(OASIS):
    """For each pair the negative with the highest score, of ten of those that were drawn for its query.

    By the model at the beginning of a pass, which is short.
    """

    def _draw(self, sampler: Any, n_steps: int, ranker: int = 0, ahead: int = 0) -> np.ndarray:
        triplets = super()._draw(sampler, n_steps, ranker, ahead)
        rng = np.random.default_rng([self.seed_, self.n_steps_])
        for start in range(0, n_steps, self.pairs_per_query):
            some = triplets[start : start + self.pairs_per_query]
            scores = self.images[some[:, 2]] @ (self.images[some[0, 0]] @ self.W_)
            tried = rng.integers(len(some), size=(len(some), 10))
            some[:, 2] = some[tried[np.arange(len(some)), scores[tried].argmax(axis=1)], 2]
        return triplets


def unit(X: np.ndarray) -> np.ndarray:
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def whitened(X: np.ndarray, y: Any, split: Split, shrinkage: float = 0.01, *, total: bool = False) -> Space:
    """By the scatter within classes, or around the mean of all images; a gallery without unit length."""
    some = X[split.training]
    mean = some.mean(axis=0)
    C = np.cov(some.T, bias=True) if total else within_scatter(some, _groups(y)[split.training])[0]
    values, vectors = np.linalg.eigh(C)
    A = (vectors / np.sqrt(np.maximum(values, 0) + shrinkage * values.sum())) @ vectors.T
    length = np.sqrt(np.square((some - mean) @ A).sum(axis=1).mean())
    training, test = ((X[rows] - mean) @ A / length for rows in (split.training, split.test))
    return Space(unit(training), unit(test), test.astype(np.float32))


def learn(training: np.ndarray, y: Any, C: float = 0.1) -> np.ndarray:
    return OASIS(C=C, whiten=False, n_steps=STEPS, random_state=0, n_jobs=2).fit(training, y).W_


def learn_from_hardest(training: np.ndarray, y: Any) -> np.ndarray:
    learner = HardestOfTen(whiten=False, n_steps=STEPS, pass_steps=PASS, random_state=0, n_jobs=2)
    learner.images = training
    return learner.fit(training, y).W_


def learn_in_turns(training: np.ndarray, y: Any, others: Any) -> np.ndarray:
    """Every second pass from other labels."""
    learner = OASIS(whiten=False, n_steps=PASS, pass_steps=PASS, random_state=0, n_jobs=2)
    for k in range(STEPS // PASS):
        learner.partial_fit(training, y if k % 2 == 0 else others)
    return learner.W_


def copies_of(name: str) -> np.ndarray:
    """Vectors of a copy of each image of a set, in the order of `images_of`."""
    file = CACHE / "open" / f"{name}-copies.npy"
    if not file.exists():
        run, _ = extracted(name, "deep")
        with Collection(run.collection) as collection:
            paths = [
                os.fsdecode(image.path) for image in collection.images("train", "validation", "test", labelled=True)
            ]
        np.save(file, extractor_of(run).transform(_crops(name, paths)))
    return np.load(file)


def _crops(name: str, paths: list[str]) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for path in paths:
        pixels = cv2.cvtColor(cv2.imread(str(DATA / name / path)), cv2.COLOR_BGR2RGB)
        kept = np.sqrt(rng.uniform(0.5, 1))
        height, width = (int(kept * side) for side in pixels.shape[:2])
        top, left = (rng.integers(side - own + 1) for side, own in zip(pixels.shape[:2], (height, width), strict=True))
        part = pixels[top : top + height, left : left + width]
        yield np.ascontiguousarray(part[:, ::-1] if rng.random() < 0.5 else part)


def twice(y: Any) -> Any:
    return sp.vstack([y, y]).tocsr() if sp.issparse(y) else np.concatenate([y, y])


def of_rank(W: np.ndarray, rank: int) -> np.ndarray:
    left, values, right = np.linalg.svd(W - np.eye(len(W)), full_matrices=False)
    return (np.eye(len(W)) + (left[:, :rank] * values[:rank]) @ right[:rank]).astype(np.float32)


def figures(space: Space, W: np.ndarray, split: Split) -> list[list[float]]:
    """MAP of the three worlds, by share."""
    look, learned = space.test @ space.gallery.T, (space.test @ W) @ space.gallery.T
    return [
        [mean for mean, _ in measures((1 - share) * look + share * learned, split)] for share in map(np.float32, SHARES)
    ]


def variants(X: np.ndarray, copies: np.ndarray, y: Any, split: Split) -> dict[str, list]:
    """Figures of every variant on one split."""
    own, n = y[split.training], len(split.training)
    space, plain = whitened(X, y, split), Space(X[split.training], X[split.test], X[split.test])
    W = learn(space.training, own)
    models = {"as it is: whitened, C = 0.1": (space, W)}

    def other(title: str, space: Space) -> None:
        models[title] = space, learn(space.training, own)

    other("not whitened", plain)
    other("whitened by the scatter of all images", whitened(X, y, split, total=True))
    other("shrinkage 0.3 %", whitened(X, y, split, 0.003))
    other("shrinkage 3 %", whitened(X, y, split, 0.03))
    models["gallery of unit length, too"] = space._replace(gallery=space.test), W
    models["C = 0.01"] = space, learn(space.training, own, 0.01)
    models["W - I of rank 8"] = space, of_rank(W, 8)
    models["W - I of rank 32"] = space, of_rank(W, 32)
    models["the hardest of ten negatives"] = space, learn_from_hardest(space.training, own)

    # Test images go first, so that rows of copies are training images of their own.
    both = np.concatenate([X[split.test], X[split.training], copies[split.training]])
    labels = sp.vstack([y[split.test], twice(own)]).tocsr() if sp.issparse(y) else np.r_[y[split.test], own, own]
    with_copies = Split(np.arange(len(split.test), len(both)), np.arange(len(split.test)), split.seen, split.relevant)
    classes = _groups(labels)
    pairs = sp.vstack([sp.csr_array((len(split.test), n)), twice(sp.identity(n, format="csr"))])
    enlarged = whitened(both, labels, with_copies)
    models["copies as images of the class"] = enlarged, learn(enlarged.training, twice(own))
    paired = whitened(both, sp.hstack([classes, pairs]).tocsr(), with_copies)
    models["pairs of copies in the scatter"] = paired, learn(paired.training[:n], own)
    models["pairs of copies, every second pass"] = (
        enlarged,
        learn_in_turns(enlarged.training, twice(own), np.tile(np.arange(n), 2)),
    )
    group_of = {name: group for group, some in KINDS_OF_THINGS.items() for name in some.split()}
    if not sp.issparse(own) and group_of.keys() & set(own):
        groups = np.array([group_of.get(label, "things") for label in own])
        models["groups of classes, every second pass"] = space, learn_in_turns(space.training, own, groups)
    return {title: figures(*model, split) for title, model in models.items()}


def main(_: list[str]) -> None:
    """Measure all sets; replace the tables of the page."""
    maps: dict[str, dict[str, list]] = {}
    for name in SETS:
        _, X, y, _ = images_of(name, "deep")
        X = np.asarray(to_dense(X))
        for split in class_splits(y, SPLITS):
            for title, row in variants(X, copies_of(name), y, split).items():
                maps.setdefault(title, {}).setdefault(name, []).append(row)
            print(name, {title: np.round(sets[name][-1], 3).tolist() for title, sets in maps.items() if name in sets})
    parts = []
    for place, share in enumerate(SHARES):
        rows = []
        for title, sets in maps.items():
            figures = [np.mean(sets[name], axis=0)[place] if name in sets else [] for name in SETS]
            rows.append([title, *map(triple, figures)])
        parts.append(table((f"seen / unseen / both, share {share:g}", *map(title_of, SETS)), rows))
    replace(PAGE, "variants", "\n".join(parts))
