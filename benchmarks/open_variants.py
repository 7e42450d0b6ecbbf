"""Other ways to learn for the open world, on deep vectors: ``python -m benchmarks.open_variants``.

OASIS with a number of steps that is the same for all variants, on class splits as in benchmarks/open.py; mAP of seen,
unseen and both with the cautious share of what was learned, and all of it. Writes the table of docs/open-world.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.learners import OASIS
from visterm.learners.validation import CAUTIOUS
from visterm.learners.whitening import _groups, within_scatter

from .open import PAGE, Split, class_splits, images_of, measures, replace

SETS = {"flowers": "flowers", "textures": "textures"}
STEPS, SPLITS, SHARES = 500_000, 3, (CAUTIOUS, 1.0)


class Space(NamedTuple):
    """Training and test images as they are compared: unit rows, and test images as a gallery."""

    training: np.ndarray
    test: np.ndarray
    gallery: np.ndarray


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


def learn(space: Space, y: Any, C: float = 0.1) -> np.ndarray:
    return OASIS(C=C, n_steps=STEPS, random_state=0, n_jobs=2).fit(space.training, y).W_


def of_rank(W: np.ndarray, rank: int) -> np.ndarray:
    left, values, right = np.linalg.svd(W - np.eye(len(W)), full_matrices=False)
    return (np.eye(len(W)) + (left[:, :rank] * values[:rank]) @ right[:rank]).astype(np.float32)


def figures(space: Space, W: np.ndarray, split: Split) -> list[list[float]]:
    """MAP of the three worlds, by share."""
    look, learned = space.test @ space.gallery.T, (space.test @ W) @ space.gallery.T
    return [
        [mean for mean, _ in measures((1 - share) * look + share * learned, split)] for share in map(np.float32, SHARES)
    ]


def variants(X: np.ndarray, y: Any, split: Split) -> dict[str, list[list[float]]]:
    """Figures of every variant on one split."""
    own = y[split.training]
    space = whitened(X, y, split)
    W = learn(space, own)
    plain = Space(X[split.training], X[split.test], X[split.test])
    one: dict[str, tuple[Space, Callable[[Space], np.ndarray]]] = {
        "as it is: whitened, C = 0.1": (space, lambda _: W),
        "not whitened": (plain, lambda space: learn(space, own)),
        "whitened by the scatter of all images": (whitened(X, y, split, total=True), lambda space: learn(space, own)),
        "shrinkage 0.3 %": (whitened(X, y, split, 0.003), lambda space: learn(space, own)),
        "shrinkage 3 %": (whitened(X, y, split, 0.03), lambda space: learn(space, own)),
        "gallery of unit length, too": (space._replace(gallery=space.test), lambda _: W),
        "C = 0.01": (space, lambda space: learn(space, own, 0.01)),
        "W - I of rank 8": (space, lambda _: of_rank(W, 8)),
        "W - I of rank 32": (space, lambda _: of_rank(W, 32)),
    }
    return {title: figures(where, make(where), split) for title, (where, make) in one.items()}


def main() -> None:
    """Measure all sets; replace the table of the page."""
    found: dict[str, dict[str, list]] = {}
    for name in SETS:
        _, X, y, _ = images_of(name, "deep")
        X = X.toarray() if sp.issparse(X) else np.asarray(X)
        for split in class_splits(y, SPLITS):
            for title, row in variants(X, y, split).items():
                found.setdefault(title, {}).setdefault(name, []).append(row)
            print(name, {title: np.round(sets[name][-1][0], 3).tolist() for title, sets in found.items()}, flush=True)
    titles = list(SETS.values())
    text = (
        f"| seen / unseen / both, share {CAUTIOUS:g} | {' | '.join(titles)} | mean of both | mean of both, share 1 |\n"
    )
    text += "|---" * (len(titles) + 3) + "|\n"
    for title, sets in found.items():
        rows = np.array([np.mean(sets[name], axis=0) for name in SETS])  # (sets, shares, worlds)
        cells = [" / ".join(f"{figure:.3f}" for figure in row) for row in rows[:, 0]]
        text += f"| {title} | {' | '.join(cells)} | {rows[:, 0, 2].mean():.3f} | {rows[:, 1, 2].mean():.3f} |\n"
    replace(PAGE, "variants", text)


if __name__ == "__main__":
    main()
