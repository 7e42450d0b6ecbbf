"""Whether visterms beside deep vectors pay.

Unit vectors of 1,000 visterms and unit vectors of the network side by side, ``[sqrt(w) v, sqrt(1 - w) d]``, so that
cosine is ``w`` times that of visterms and ``1 - w`` times that of the network; OASIS with its defaults learns from
them. Three splits of each set of benchmarks/photos.py. ``w`` is chosen on the training images of each split, two
thirds of which learn and one third of which query each other.
"""

from __future__ import annotations

import numpy as np

from benchmarks.photos import SETS, labelled, of_each_class, quality
from benchmarks.records import FIRST, compared, record
from visterm.features import VistermExtractor, deep_embedder
from visterm.learners import OASIS

WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.5)
N_TRAIN, N_TEST = 40, 20


def split(y: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of n of each class, and of the others."""
    some, others = of_each_class(y, np.random.default_rng(seed), n, None)
    return some, others


def learned(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, n_steps: int) -> float:
    """Mean average precision of OASIS on the images of `test`, among each other."""
    learner = OASIS(n_steps=n_steps, whiten=False, random_state=0, n_jobs=-1).fit(X[train], y[train])
    return quality(learner, X[test], y[test])


def compare(name: str, quick: bool) -> dict:
    paths, y = labelled(name)
    deep = deep_embedder(n_jobs=-1).fit_transform(paths)
    weights, n_steps = ((0.0, 0.2), 20_000) if quick else (WEIGHTS, 2_000_000)
    maps, chosen = [], []
    for seed in range(1 if quick else 3):
        train, others = split(y, N_TRAIN, seed)
        _, test = split(y[others], len(others) // len(np.unique(y)) - N_TEST, seed)
        test = others[test]
        extractor = VistermExtractor(n_visterms=1000, random_state=0, n_jobs=-1)
        visterms = np.zeros((len(y), 1000), np.float32)
        visterms[train] = extractor.fit_transform([paths[i] for i in train]).toarray()
        visterms[test] = extractor.transform([paths[i] for i in test]).toarray()
        X = {w: np.hstack([np.sqrt(w) * visterms, np.sqrt(1 - w) * deep]).astype(np.float32) for w in weights}
        inner, outer = (train[part] for part in split(y[train], N_TRAIN * 2 // 3, seed))
        w = max(weights, key=lambda w: learned(X[w], y, inner, outer, n_steps))
        chosen.append(w)
        maps.append([learned(X[w], y, train, test, n_steps) for w in (w, 0.0)])
    ours, peer = np.mean(maps, axis=0)
    return record(
        f"vectors-both-map-{name}",
        f"OASIS on visterms beside deep vectors: {SETS[name]}",
        "deep vectors alone",
        FIRST,
        compared(ours, peer, "mAP", len(maps), higher=True),
        measured=f"mean of {len(maps)} splits; weights of visterms, chosen on training images: "
        + ", ".join(f"{w:g}" for w in chosen),
        splits=maps,
    )


def run(quick: bool = False) -> list[dict]:
    return [compare(name, quick) for name in (["textures"] if quick else SETS)]
