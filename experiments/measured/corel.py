"""Corel-5K: annotators and similarities, and the measures of photos for words, words for photos, photos for photos."""

from __future__ import annotations

import csv
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from benchmarks.vectors import CACHE, DATA, keep
from visterm.learners import AROMA, OASIS, PAMIR, WSABIE, Cosine, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.learners.annotation import AnnotatorMixin
from visterm.retrieval import average_precision, evaluate_test_test, precision_recall_per_label

from .grids import ROUNDS, Curve, Grid, Point, search
from .pamir_images import ImagePAMIR
from .protocol import ROOT, choose, chosen_settings, extracted
from .retrieval import EmbeddingWSABIE

COREL = DATA / "corel5k"
WORDS = 5  # that an image is annotated with
N_SEEDS = 2
HELD_OUT = 0.2  # of the training photos, which choose
KS = (1, 5, 10, 20)
QUICK_IMAGES = 500  # to learn from
# Photos of 192 x 128 pixels have few blocks of 64: smaller ones, and nine cells with visterms of their own.
VISTERMS: dict[str, Any] = {"tf": "sqrt", "n_visterms": 9000, "cells": (3,), "block_size": 32, "stride": 16}

COMMON = {"random_state": 0}
# Settings tried first: validation chooses, and grids grow.
NEIGHBORS = Grid(KNNAnnotator(), {"n_neighbors": (10, 20, 50, 100)}, {"n_neighbors": (1, 3000)})
ANNOTATORS: dict[str, dict[str, Grid]] = {
    "visterms": {
        "k-NN": NEIGHBORS,
        "one-vs-rest": Grid(OneVsRestPA(n_steps=80_000, pass_steps=10_000, **COMMON), {"C": (0.003, 0.01, 0.03)}),
        "PAMIR-IA": Grid(PAMIR(n_steps=1_600_000, pass_steps=200_000, **COMMON), {"C": (0.01, 0.03, 0.1)}),
        "linear WARP": Grid(
            LinearWARP(n_steps=320_000, pass_steps=40_000, **COMMON),
            {"learning_rate": (0.03, 0.1, 0.3), "max_norm": (10.0, 30.0)},
        ),
        "WSABIE": Grid(
            WSABIE(n_steps=640_000, pass_steps=80_000, **COMMON),
            {"learning_rate": (0.01, 0.02, 0.04), "max_norm": (1.0, 1.5)},
        ),
    },
    "deep": {
        "k-NN": NEIGHBORS,
        "one-vs-rest": Grid(OneVsRestPA(n_steps=80_000, pass_steps=10_000, **COMMON), {"C": (0.003, 0.01, 0.03)}),
        "PAMIR-IA": Grid(PAMIR(n_steps=800_000, pass_steps=100_000, **COMMON), {"C": (0.03, 0.1, 0.3)}),
        "linear WARP": Grid(
            LinearWARP(max_norm=30.0, n_steps=160_000, pass_steps=20_000, **COMMON),
            {"learning_rate": (0.03, 0.1, 0.3)},
        ),
        "WSABIE": Grid(
            WSABIE(whiten=False, n_steps=160_000, pass_steps=20_000, **COMMON),
            {"learning_rate": (0.01, 0.03), "max_norm": (0.3, 1.0)},
        ),
    },
}
# Of photos for words, where precision of the photos chooses.
RANKERS: dict[str, dict[str, Grid]] = {
    "visterms": {
        "PAMIR": Grid(ImagePAMIR(n_steps=800_000, pass_steps=100_000, **COMMON), {"C": (0.01, 0.03, 0.1)}),
        "PAMIR-IA": ANNOTATORS["visterms"]["PAMIR-IA"],
        "one-vs-rest": ANNOTATORS["visterms"]["one-vs-rest"],
    },
    "deep": {
        "PAMIR": Grid(ImagePAMIR(n_steps=200_000, pass_steps=25_000, **COMMON), {"C": (0.03, 0.1, 0.3)}),
        "PAMIR-IA": ANNOTATORS["deep"]["PAMIR-IA"],
        "one-vs-rest": ANNOTATORS["deep"]["one-vs-rest"],
    },
}
SIMILARITIES: dict[str, Grid] = {
    "cosine": Grid(Cosine(), {}),
    "OASIS": Grid(OASIS(n_steps=2_000_000, pass_steps=250_000, **COMMON), {"C": (0.03, 0.1, 0.3)}),
    "AROMA": Grid(AROMA(n_steps=200_000, pass_steps=25_000, **COMMON), {"r": (1.0, 10.0, 100.0)}),
    "WSABIE": Grid(
        EmbeddingWSABIE(n_steps=640_000, pass_steps=80_000, **COMMON),
        {"learning_rate": (0.01, 0.02), "max_norm": (1.0, 1.5)},
    ),
}
DEEP_SIMILARITIES: dict[str, Grid] = {
    "cosine": Grid(Cosine(), {}),
    "OASIS": Grid(OASIS(whiten=False, n_steps=400_000, pass_steps=50_000, **COMMON), {"C": (0.01, 0.03, 0.1)}),
    "AROMA": Grid(AROMA(whiten=False, n_steps=200_000, pass_steps=25_000, **COMMON), {"r": (1.0, 10.0, 100.0)}),
    "WSABIE": Grid(
        EmbeddingWSABIE(whiten=False, n_steps=160_000, pass_steps=20_000, **COMMON),
        {"learning_rate": (0.01, 0.03), "max_norm": (1.0, 1.5)},
    ),
}


def read_labels() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Paths of the photos, their words as bool (n, n_words), and which are training photos."""
    with (COREL / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["path"], row["label"]) for row in csv.DictReader(file)]
    paths, words = (sorted(set(column)) for column in zip(*rows, strict=True))
    place, number = ({name: i for i, name in enumerate(names)} for names in (paths, words))
    Y = np.zeros((len(paths), len(words)), bool)
    for path, word in rows:
        Y[place[path], number[word]] = True
    return paths, Y, np.array([path.startswith("train") for path in paths])


def load(vectors: str, quick: bool) -> tuple[Any, np.ndarray, Any, np.ndarray]:
    """X, words of the training photos; X, words of the test photos. Palette, codebook, idf are of the former."""
    paths, Y, train = read_labels()
    if quick:
        kept = np.concatenate([np.flatnonzero(train)[:: train.sum() // QUICK_IMAGES], np.flatnonzero(~train)])
        paths, Y, train = [paths[i] for i in kept], Y[kept], train[kept]
    files = [COREL / path for path in paths]
    X = extracted("corel5k", files, train, **VISTERMS) if vectors == "visterms" else load_deep(files)
    return X[train], Y[train], X[~train], Y[~train]


def load_deep(files: list[Path]) -> np.ndarray:
    from visterm.features import deep_embedder

    sources = b"".join(path.read_bytes() for path in sorted((ROOT / "features").glob("*.py")))
    made_from = zlib.crc32(sources + repr(files).encode())
    return np.load(
        keep(
            CACHE / f"corel5k-deep-{made_from:08x}.npy",
            lambda path: np.save(path, deep_embedder().fit(files[:1]).transform(files)),
        )
    )


def standardised(scores: np.ndarray, of_training: np.ndarray) -> np.ndarray:
    """Scores of each word less their mean, in units of their deviation, over training photos.

    What is left says how much better a photo fits a word than photos do in general: rare words are named as easily as
    frequent ones.
    """
    deviation = of_training.std(axis=0)
    return (scores - of_training.mean(axis=0)) / np.where(deviation > 0, deviation, 1)


def annotation_figures(scores: np.ndarray, words: np.ndarray) -> dict[str, float]:
    """Mean precision, recall over the words that the photos have, and how many of these are recalled at all."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :WORDS]
    precision, recall = precision_recall_per_label(best, sp.csr_array(words), WORDS)
    here = words.any(axis=0)
    p, r = float(precision[here].mean()), float(recall[here].mean())
    f1 = 2 * p * r / (p + r) if p + r else 0.0
    return {
        "precision": p,
        "recall": r,
        "f1": f1,
        "n_recalled": int((recall[here] > 0).sum()),
        "n_words": int(here.sum()),
    }


def query_maps(scores: np.ndarray, words: np.ndarray) -> dict[str, float]:
    """Mean average precision of queries of one word, and of two words that at least two photos have both.

    The score for two words is the mean of the scores for each, as in ``visterm search --label a --label b``.
    """
    together = words.T.astype(int) @ words
    pairs = zip(*np.nonzero(np.triu(together >= 2, 1)), strict=True)
    return {
        "map_one_word": float(np.mean(word_precisions(scores, words))),
        "map_two_words": float(np.mean([query_precision(scores, words, [*pair]) for pair in pairs])),
    }


def word_precisions(scores: np.ndarray, words: np.ndarray) -> list[float]:
    """Average precision of the photos ranked for each word that a photo has."""
    return [query_precision(scores, words, [word]) for word in np.flatnonzero(words.any(axis=0))]


def query_precision(scores: np.ndarray, words: np.ndarray, query: list[int]) -> float:
    order = np.argsort(-scores[:, query].mean(axis=1), kind="stable")
    relevant = words[:, query].all(axis=1)
    return float(average_precision(relevant[order][None], int(relevant.sum()))[0])


def image_figures(system: Any, X: Any, words: np.ndarray) -> dict[str, Any]:
    """Photos that query photos: relevant with a shared word; and graded, by the share of the words that two share."""
    found = evaluate_test_test(system, X, sp.csr_array(words.astype(float)))
    scores = system.similarity(X, X)
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, : KS[-1]]
    counts = words.sum(axis=1)
    shared = words.astype(int) @ words.T
    overlap = shared / np.maximum(counts[:, None] + counts - shared, 1)  # intersection over union
    graded = np.take_along_axis(overlap, order, axis=1)
    return {
        "map": found.mean_average_precision,
        "precision": {str(k): float(found.precision_curve[k - 1]) for k in KS},
        "overlap": {str(k): float(graded[:, :k].mean()) for k in KS},
    }


def measure(part: str, vectors: str, system: str, quick: bool) -> dict[str, Any]:
    """Settings, steps and the form of the scores chosen on held-out training photos; then all training photos."""
    X, Y, Q, T = load(vectors, quick)
    held_out = np.random.default_rng(0).random(len(Y)) < HELD_OUT
    measure_part = {"words": measure_words, "queries": measure_queries, "images": measure_images}[part]
    return measure_part(X, Y, Q, T, held_out, vectors, system, quick)


def quick_grid(grid: Grid) -> Grid:
    """A smaller grid, and two passes at most."""
    small = grid.small()
    if hasattr(small.learner, "n_steps"):
        return replace(small, learner=clone(small.learner).set_params(n_steps=2 * small.learner.pass_steps))
    return small


def measure_words(
    X: Any, Y: np.ndarray, Q: Any, T: np.ndarray, held_out: np.ndarray, vectors: str, system: str, quick: bool
) -> dict[str, Any]:
    """Annotation; settings, steps and the form of the scores by F1 on held-out photos."""
    grid = quick_grid(ANNOTATORS[vectors][system]) if quick else ANNOTATORS[vectors][system]
    forms: dict[float, str] = {}  # by F1

    def measure(point: Point) -> Curve:
        learner = grid.at(point)
        curve: dict[int | None, float] = {}

        def look(learned: AnnotatorMixin) -> None:
            scores, of_training = (learned.label_scores(X[rows]) for rows in (held_out, ~held_out))
            f1 = {
                "raw": annotation_figures(scores, Y[held_out])["f1"],
                "standardised": annotation_figures(standardised(scores, of_training), Y[held_out])["f1"],
            }
            form = max(f1, key=f1.__getitem__)
            curve[learned.n_steps_ or None] = f1[form]
            forms[f1[form]] = form

        y = sp.csr_array(Y[~held_out].astype(float))
        if hasattr(learner, "n_steps"):
            learner.fit(X[~held_out], y, callback=look)
        else:
            look(learner.fit(X[~held_out], y))
        return [*curve.items()]

    found = search(
        grid.points(),
        lambda points: [measure(point) for point in points],
        limits=grid.limits,
        rounds=0 if quick else ROUNDS,
    )
    form = forms[found.figure]
    results = []
    for seed in range(1 if quick or not hasattr(grid.learner, "n_steps") else N_SEEDS):
        learner = grid.at(found.point).set_params(random_state=seed)
        learner.fit(X, sp.csr_array(Y.astype(float)))
        raw = learner.label_scores(Q)
        forms_found = {
            "raw": annotation_figures(raw, T),
            "standardised": annotation_figures(standardised(raw, learner.label_scores(X)), T),
        }
        results.append(forms_found[form] | query_maps(raw, T) | {"forms": forms_found})
    return {
        "figures": results,
        "validation": found.figure,
        "form": form,
        "settings": found.point,
        "edges": found.edges,
    }


def measure_queries(
    X: Any, Y: np.ndarray, Q: Any, T: np.ndarray, held_out: np.ndarray, vectors: str, system: str, quick: bool
) -> dict[str, Any]:
    """Photos for words: average precision by word, mean of the seeds; settings by its mean on held-out photos."""
    grid = quick_grid(RANKERS[vectors][system]) if quick else RANKERS[vectors][system]

    def measure(point: Point) -> Curve:
        curve: dict[int | None, float] = {}

        def look(learned: AnnotatorMixin) -> None:
            scores = learned.label_scores(X[held_out])
            curve[learned.n_steps_] = float(np.mean(word_precisions(scores, Y[held_out])))

        grid.at(point).fit(X[~held_out], sp.csr_array(Y[~held_out].astype(float)), callback=look)
        return [*curve.items()]

    chosen = search(
        grid.points(),
        lambda points: [measure(point) for point in points],
        limits=grid.limits,
        rounds=0 if quick else ROUNDS,
    )
    precisions = []
    for seed in range(1 if quick else N_SEEDS):
        learner = grid.at(chosen.point).set_params(random_state=seed)
        learner.fit(X, sp.csr_array(Y.astype(float)))
        precisions.append(word_precisions(learner.label_scores(Q), T))
    return {
        "precisions": np.mean(precisions, axis=0).tolist(),
        "validation": chosen.figure,
        "settings": chosen.point,
        "edges": chosen.edges,
    }


def measure_images(
    X: Any, Y: np.ndarray, Q: Any, T: np.ndarray, held_out: np.ndarray, vectors: str, system: str, quick: bool
) -> dict[str, Any]:
    """Photos for photos; settings and steps by the mean average precision of held-out photos among each other."""
    grid = (SIMILARITIES if vectors == "visterms" else DEEP_SIMILARITIES)[system]
    if system == "cosine":
        return {"figures": [image_figures(grid.learner.fit(X), Q, T)], "settings": {}, "edges": []}
    if quick:
        middle = {name: values[1:2] for name, values in grid.axes.items()}
        grid = Grid(clone(grid.learner).set_params(n_steps=200_000, pass_steps=50_000), middle)
    y = sp.csr_array(Y.astype(float))
    split = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    chosen, edges = choose(grid, X, y, splits=[split], grows=not quick)
    results = []
    for seed in range(1 if quick else N_SEEDS):
        learner = clone(chosen).set_params(random_state=seed)
        results.append(image_figures(learner.fit(X, y), Q, T))
    return {"figures": results} | chosen_settings(chosen, grid, edges)
