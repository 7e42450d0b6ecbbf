"""How right the probabilities beside results are.

Half of the images of a set train OASIS, a quarter calibrates its scores as ``visterm train`` does
(`visterm.pipeline.evaluation.calibration`), and images of the last quarter are queries from elsewhere, in the gallery
of all others. *Seen*: all classes are trained on. *Open*: half of them are, and the images of the others that were to
train have no label, so that none of these is counted in calibrating; of Corel-5K, half of the words.

What people see are the first results. The error is the mean difference of probability and share of results with a
common label, in five parts of equally many results by their probability, over all folds: of first results, and of the
first ten. Right probabilities have an error by chance, at so many queries: it stands beside. A constant has no such
error, and tells nothing: so the mean squared error is given beside that of the best constant, the share itself. A
cut-off of 0.8 promises at most 20 % wrong.

How many queries could have three results there stands beside, by what nobody has: a function that learned from such
queries with their answers, by gradient boosting, which sees all first scores and how many of the first results share a
label with each. Each fifth of the queries is judged by the other four.

Writes the table of docs/searching.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold, cross_val_predict

from benchmarks.page import DOCS, replace, table
from benchmarks.photos import ALL_LABELS as SETS
from benchmarks.photos import images_of, relevance_of
from benchmarks.records import compared, kept_in, record
from benchmarks.vectors import CACHE
from visterm.learners.blend import effective
from visterm.pipeline.evaluation.calibration import BEST, MAX_QUERIES, calibrate
from visterm.retrieval import ExactIndex, with_neighbours

from .open import fitted

KINDS = ("deep", "visterms")
WORLDS = ("seen", "open")
FOLDS, QUERIES = 5, 500
PARTS = 5
CUT_OFF, FEW = 0.8, 3  # queries with so many results above the cut-off are counted
DEPTHS = (1, 10)
ASKED = 0.05


def error(likely: np.ndarray, relevant: np.ndarray) -> float:
    """Return the expected calibration error of some results, in parts of equally many."""
    order = np.argsort(likely, kind="stable")
    parts = np.array_split((likely - relevant)[order], PARTS)
    return float(sum(abs(part.sum()) for part in parts) / len(likely))


def by_chance(likely: np.ndarray) -> float:
    """Return the `error` that right probabilities would have, mean of ten draws, each result by itself."""
    rng = np.random.default_rng(0)
    return float(np.mean([error(likely, rng.random(len(likely)) < likely) for _ in range(10)]))


def informed(scores: np.ndarray, agreeing: np.ndarray, related: np.ndarray) -> np.ndarray:
    """Probabilities of the first results by a function that learned from other such queries, (n_queries, n_results)."""
    n, k = scores.shape
    of_query = np.column_stack([scores, agreeing.max(axis=1)])[:, None, :]
    of_result = np.dstack([scores, np.broadcast_to(np.arange(k), (n, k)), agreeing])
    features = np.concatenate([of_result, np.broadcast_to(of_query, (n, k, k + 1))], axis=2).reshape(n * k, -1)
    model = HistGradientBoostingClassifier(
        max_iter=80, learning_rate=0.06, max_leaf_nodes=8, min_samples_leaf=40, l2_regularization=5, random_state=0
    )
    queries = np.repeat(np.arange(n), k)
    shares = cross_val_predict(
        model, features, related.ravel(), groups=queries, cv=GroupKFold(5), method="predict_proba"
    )
    return shares[:, 1].reshape(n, k)


def known_classes(y: Any, rng: np.random.Generator) -> np.ndarray:
    """Images of one half of the classes; of several words, images that have words of one half alone."""
    if sp.issparse(y):
        others = np.isin(np.arange(y.shape[1]), rng.permutation(y.shape[1])[: y.shape[1] // 2])
        return np.asarray(y @ others.astype(float)).ravel() == 0
    classes = np.unique(y)
    return np.isin(y, rng.permutation(classes)[: (len(classes) + 1) // 2])


def fold(name: str, kind: str, world: str, seed: int) -> dict[str, Any]:
    """Train, calibrate and search once: probabilities and relevance of the first ten, and results by the cut-off."""
    config, X, y, names = images_of(name, kind)
    rng = np.random.default_rng(seed)
    training, calibrating, queries = np.split(rng.permutation(y.shape[0]), [y.shape[0] // 2, 3 * y.shape[0] // 4])
    known = np.ones(y.shape[0], bool) if world == "seen" else known_classes(y, rng)
    trained = training[known[training]]
    model, _ = fitted("oasis", config, X[trained], y[trained], names)
    gallery, relevant = np.concatenate([calibrating, training]), relevance_of(y)
    index = with_neighbours(ExactIndex(effective(model), X[gallery]), X[gallery])
    own = np.arange(min(len(calibrating), MAX_QUERIES))
    labelled = known[gallery] | (np.arange(len(gallery)) < len(calibrating))
    answers = relevant[np.ix_(gallery[own], gallery)]
    calibration = calibrate(index.search(X[gallery[own]], exclude=own), answers & labelled, labelled)
    if isinstance(calibration, str):
        raise SystemExit(calibration)
    queries = queries[:QUERIES]
    ranking = index.search(X[queries])
    likely = np.stack([calibration.of(scores, scores[:BEST]) for scores in ranking.scores])
    related = np.take_along_axis(relevant[np.ix_(queries, gallery)], ranking.indices, axis=1)
    certain = likely >= CUT_OFF
    shared = relevant[np.ix_(gallery, gallery)] & labelled & labelled[:, None]
    first = ranking.indices[:, : max(DEPTHS)]
    return {
        "likely": likely[:, : max(DEPTHS)].tolist(),
        "related": related[:, : max(DEPTHS)].tolist(),
        "scores": ranking.scores[:, : max(DEPTHS)].tolist(),
        "agreeing": [(shared[np.ix_(row, row)].sum(axis=1) - labelled[row]).tolist() for row in first],
        "with_few": (certain.sum(axis=1) >= FEW).tolist(),
        "certain": [int((certain & related).sum()), int(certain.sum())],
    }


def figures(name: str, kind: str, world: str, n_folds: int) -> dict[str, float]:
    """Figures of all folds together."""
    files = [CACHE / "probabilities" / f"{name}-{kind}-{world}-{seed}.json" for seed in range(n_folds)]
    folds = [kept_in(file, lambda seed=seed: fold(name, kind, world, seed)) for seed, file in enumerate(files)]
    keys = ("likely", "related", "scores", "agreeing")
    likely, related, scores, agreeing = (np.concatenate([one[key] for one in folds]) for key in keys)
    right, certain = np.sum([one["certain"] for one in folds], axis=0)
    measured = {
        "with_few": float(np.concatenate([one["with_few"] for one in folds]).mean()),
        "right": float(right / certain) if certain else np.nan,
        "informed": float(((informed(scores, agreeing, related) >= CUT_OFF).sum(axis=1) >= FEW).mean()),
        "n": len(likely),
    }
    for depth in DEPTHS:
        p, r = likely[:, :depth].ravel(), related[:, :depth].ravel().astype(float)
        measured |= {
            f"error{depth}": error(p, r),
            f"chance{depth}": by_chance(p),
            f"said{depth}": float(p.mean()),
            f"true{depth}": float(r.mean()),
            f"squared{depth}": float(((p - r) ** 2).mean()),
            f"constant{depth}": float(r.var()),
        }
    return measured


Results = dict[tuple[str, str, str], dict[str, float]]


def records_of(results: Results) -> Iterator[dict]:
    for (name, kind, world), of in results.items():
        worst = max(DEPTHS, key=lambda depth: of[f"error{depth}"])
        both = (
            f"first results: said {of['said1']:.2f}, true {of['true1']:.2f}; the first ten: {of['said10']:.2f}, "
            f"{of['true10']:.2f}; {of['with_few']:.0%} of queries have {FEW} results at {CUT_OFF} and more"
        )
        yield record(
            f"probabilities-{name}-{kind}-{world}",
            f"calibration error of results, first or first ten, the larger, {SETS[name]}, {kind}, {world}",
            f"{ASKED}, asked for",
            f"0: each probability is the share of results; by chance {of[f'chance{worst}']:.3f}",
            compared(of[f"error{worst}"], ASKED, "probability", of["n"], ratio=ASKED / max(of[f"error{worst}"], 0.001)),
            measured=both,
        )


def page(results: Results) -> str:
    rows = []
    for (name, kind, world), of in results.items():
        cells = [f"{of[f'error{d}']:.3f} ({of[f'chance{d}']:.3f})" for d in DEPTHS]
        cells += [f"{of['said10']:.2f}, {of['true10']:.2f}", f"{of['squared10']:.3f}, {of['constant10']:.3f}"]
        right = "" if np.isnan(of["right"]) else f", {of['right']:.2f} right"
        cells += [f"{of['with_few']:.0%}{right}", f"{of['informed']:.0%}"]
        rows.append([f"{SETS[name]}, {kind}, {world}", *cells])
    now, could = (np.mean([of[key] for of in results.values()]) for key in ("with_few", "informed"))
    rows.append(["mean", "", "", "", "", f"{now:.0%}", f"{could:.0%}"])
    heads = ("first: error (by chance)", "first ten: error", "said, true", "squared error, of a constant")
    return table(
        ("", *heads, f"queries with {FEW} results at {CUT_OFF}", "by one that learned from such queries"), rows
    )


def run(quick: bool = False) -> list[dict]:
    keys = [("flowers", "deep", "seen")] if quick else itertools.product(SETS, KINDS, WORLDS)
    results = {key: figures(*key, 2 if quick else FOLDS) for key in keys}
    if not quick:
        replace(DOCS / "searching.md", "probabilities", page(results))
    return list(records_of(results))
