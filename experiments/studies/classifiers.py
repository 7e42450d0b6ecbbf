"""Classifiers of the labels as similarities, in the open world: beside OASIS, cosine and the whitening alone.

Class splits as in ``open``: test images of seen classes query each other, those of unseen ones too, and all of them one
gallery; by the similarity alone and with the gallery's neighbours. Of dense vectors all but cosine compare whitened
ones, of unit length on both sides but for OASIS and ridge regression, whose gallery stays as it is.

- *weight 0*: of OASIS, the whitening of the query alone. *whitening alone*: with unit length on both sides.
- *ridge*: `LabelRidge` at half weight. *kernel ridge*: the same with the kernel exp(2 (a'b - 1)) and 0.1 in place of 1.
- *proxies*: z -> M z / |M z|, M and a proxy of each class by the softmax of 16 cos(M z, p), a hundred steps of Adam.
- *posteriors*: one half each of kernel ridge and of the inner product of unit rows of what kernel ridge predicts: for
  classes that are trained on.

Writes the table of docs/open-world.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.page import replace, table
from benchmarks.photos import images_of, to_dense
from benchmarks.records import ELAPSED, FIRST, compared, kept_in, record, timed
from benchmarks.vectors import CACHE
from visterm.learners import LabelRidge
from visterm.learners.blend import effective
from visterm.learners.whitening import Whitening, _groups, whitening_of
from visterm.retrieval import ExactIndex, with_neighbours

from .open import PAGE, SETS, SPLITS, class_splits, fitted, measures, title_of, triple

PHOTOS, KINDS = ("caltech101", "flowers", "textures"), ("deep", "visterms")
SYSTEMS = ("cosine", "weight 0", "whitening alone", "oasis", "ridge", "kernel ridge", "proxies", "posteriors")
GAMMA, ALPHA = 2.0, 0.1  # of the kernel
TEMPERATURE, STEPS, RATE = 16.0, 100, 0.0003  # of the proxies

Side = Callable[[np.ndarray], np.ndarray]  # of vectors that are compared


class Inner:
    """A similarity that is the inner product of one side."""

    by_category = False

    def __init__(self, side: Side) -> None:
        self.side = side

    def transform(self, X: Any, y: Any = None, /) -> np.ndarray:
        return self.side(X).astype(np.float32)

    transform_query = transform


def units(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def kernel_ridge(Z: np.ndarray, Y: np.ndarray) -> Side:
    """One-hot labels by kernel ridge regression."""

    def kernel(rows: np.ndarray) -> np.ndarray:
        return np.exp(GAMMA * (rows @ Z.T - 1))

    weights = np.linalg.solve(kernel(Z) + ALPHA * np.eye(len(Z)), Y)
    return lambda rows: kernel(rows) @ weights


def proxies(Z: np.ndarray, Y: np.ndarray) -> Side:
    """Unit vectors of M z."""
    Z, weights = Z.astype(np.float32), [np.eye(Z.shape[1]), units((Y / Y.sum(axis=0)).T @ Z)]
    weights = [one.astype(np.float32) for one in weights]
    moments = [(np.zeros_like(one), np.zeros_like(one)) for one in weights]
    for step in range(1, STEPS + 1):
        M, P = weights
        U, V = units(Z @ M.T), units(P)
        shares = np.exp(TEMPERATURE * (U @ V.T - 1))
        loss = (TEMPERATURE / len(Z) * (shares / shares.sum(axis=1, keepdims=True) - Y)).astype(np.float32)
        of_images = along(loss @ V, U) / np.linalg.norm(Z @ M.T, axis=1, keepdims=True)
        gradients = of_images.T @ Z, along(loss.T @ U, V) / np.linalg.norm(P, axis=1, keepdims=True)
        for one, gradient, (mean, square) in zip(weights, gradients, moments, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            step_size = RATE * (1 - step / (STEPS + 1)) / (1 - 0.9**step)
            one -= step_size * mean / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return lambda rows: units(rows @ weights[0].T)


def along(gradient: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Gradient of rows that are scaled to unit length, times their lengths."""
    return gradient - (gradient * rows).sum(axis=1, keepdims=True) * rows


def beside(side: Side) -> Side:
    """The vectors and a side, at half weight each."""
    return lambda rows: np.hstack([rows, side(rows)])


def of_split(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Figures of one split by system: without and with neighbours; and seconds of training."""
    config, X, y, names = images_of(name, kind)
    *_, split = class_splits(y, seed + 1)
    T, training = X[split.test], split.training
    oasis, seconds = fitted("oasis", config, X[training], y[training], names)
    ridge, seconds_of_ridge = timed(
        lambda: LabelRidge().fit(X[training], y[training], learned_weight=0.5), clock=ELAPSED
    )
    whitening = Whitening(*whitening_of(X, y, training)) if kind == "deep" else None

    def space(rows: Any) -> np.ndarray:
        return units(to_dense(rows)) if whitening is None else whitening.of(rows)

    Z, Y = space(X[training]).astype(np.float64), _groups(y[training]).toarray()
    Y = Y[:, Y.any(axis=0)]
    kernel, seconds_of_kernel = timed(lambda: kernel_ridge(Z, Y), clock=ELAPSED)
    sides: dict[str, Side] = {"whitening alone": lambda rows: rows, "kernel ridge": beside(kernel)}
    sides["posteriors"] = lambda rows: np.hstack([rows, kernel(rows), np.sqrt(2) * units(kernel(rows))])
    times = {"oasis": seconds, "ridge": seconds_of_ridge, "kernel ridge": seconds_of_kernel}
    if kind == "deep":
        side, times["proxies"] = timed(lambda: proxies(Z, Y / Y.sum(axis=1, keepdims=True)), clock=ELAPSED)
        sides["proxies"] = side
    learners: dict[str, Any] = {"oasis": effective(oasis), "ridge": effective(ridge), "weight 0": effective(oasis, 0)}
    learners |= {system: Inner(lambda rows, side=side: side(space(rows))) for system, side in sides.items()}
    learners["cosine"] = Inner(lambda rows: units(to_dense(rows)))
    figures = {}
    for system in SYSTEMS:
        if system in learners and (kind == "deep" or system not in ("weight 0", "whitening alone")):
            index = ExactIndex(learners[system], T)
            figures[system] = [measures(scores_of(one, T), split) for one in (index, with_neighbours(index, T))]
    print(f"    {name} {kind} {seed}: {[(s, round(f[0][2][0], 3)) for s, f in figures.items()]}", flush=True)
    return {"figures": figures, "seconds": times}


def scores_of(index: Any, T: Any) -> np.ndarray:
    """Scores of all test images for each."""
    ranking = index.search(T, exclude=np.arange(T.shape[0]))
    scores = np.zeros((T.shape[0], T.shape[0]), np.float32)
    np.put_along_axis(scores, ranking.indices, ranking.scores, axis=1)
    return scores


def of_set(name: str, kind: str, n_splits: int) -> dict[str, Any]:
    """Means over splits."""
    files = [CACHE / "classifiers" / f"{name}-{kind}-{seed}.json" for seed in range(n_splits)]
    parts = [kept_in(file, lambda seed=seed: of_split(name, kind, seed)) for seed, file in enumerate(files)]
    return {
        key: {system: np.mean([part[key][system] for part in parts], axis=0) for system in parts[0][key]}
        for key in ("figures", "seconds")
    }


Results = dict[tuple[str, str], dict[str, Any]]


def page(results: Results) -> str:
    """MAP of the three worlds and precision at 1 of both, by set and system."""
    rows = []
    for (name, kind), of in results.items():
        for system, figures in of["figures"].items():
            cells = [f"{triple(one[:, 0])} ({one[2, 1]:.3f})" for one in figures]
            seconds = of["seconds"].get(system)
            rows.append([f"{title_of(name)}, {kind}", system, *cells, "" if seconds is None else f"{seconds:.2f}"])
    return table(("", "", "mAP, seen / unseen / both (P@1, both)", "with neighbours", "training, s"), rows)


def run(quick: bool = False) -> list[dict]:
    results: Results = {}
    for name, kind in [("flowers", "deep")] if quick else itertools.product(PHOTOS, KINDS):
        results[name, kind] = of_set(name, kind, 1 if quick else SPLITS)
    if not quick:
        replace(PAGE, "classifiers", page(results))
    records = []
    for (name, kind), of in results.items():
        ours, peer = (of["figures"][system][0][2, 0] for system in ("oasis", "kernel ridge"))
        records.append(
            record(
                f"classifiers-{name}-{kind}",
                f"oasis, {SETS[name]}, {kind}: mAP of all test images, half of the classes trained on",
                "kernel ridge regression of one-hot labels in the same vectors, at half weight",
                FIRST,
                compared(ours, peer, "mAP", SPLITS, higher=True),
                measured=f"means of {SPLITS} class splits",
            )
        )
    return records
