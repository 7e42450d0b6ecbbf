"""Other uses of the gallery's neighbours, beside the default: ``python -m experiments.studies neighbours_variants``.

Deep vectors, three class splits as in ``neighbours``; test images query each other, and the nearest photo stays first
throughout. Strengths other than the one that the graph chooses are looked up on the images that they are measured on
("best strength"): what a choice by labels could gain at most.

- *diffusion*: (I - 0.8 D^-1/2 A D^-1/2)^-1 a(q), with A the scores of reciprocal neighbours, less m, to the power 3
  (Iscen et al., CVPR 2017, with 0.99, which is worse here: 0.8 is the best of five on the first splits that are
  measured), and a(q) those of the query; and with the overlap, one half each.
- *k by photo*: only neighbours at least half as far above m as the nearest one is.
- *unit length*: of OASIS, with whitened vectors of unit length on the gallery's side, too.
- *labels as edges*: with all photos in the gallery, two photos of different classes that are trained on are no
  neighbours. "all photos" is the same gallery without that.
- *a mark*: of ten results of the default, the last that is relevant is marked. Beside the search for both photos
  together, "mark as edge" averages v of the query with that of the photo, and their scores. The photo itself counts
  neither as a result nor as relevant.

The rule that gives the strength was chosen on training photos of Caltech-101 ("by_size"), without labels: galleries of
some of its classes, with so many photos of each.

Writes the tables of docs/neighbours.md. With folders as arguments, a folder a class below each, it prints mAP of their
photos by cosine instead: "alone", "auto", and "without means" of photos that share no neighbours with the query.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.page import replace, table
from benchmarks.photos import images_of, relevance_of, to_dense
from benchmarks.records import kept_in
from benchmarks.vectors import CACHE
from visterm.features import deep_embedder, find_images
from visterm.learners import Cosine
from visterm.learners.blend import effective
from visterm.learners.validation import mean_average_precision
from visterm.learners.whitening import Whitening
from visterm.retrieval import ExactIndex, Neighbours
from visterm.retrieval.neighbours import ENTRIES, FEWEST, HEAD, LISTED, SCALES, level_and_scale

from .neighbours import PAGE, SYSTEMS
from .open import SETS, Split, class_splits, fitted, title_of

SPLITS = 3
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
DEEPER = 3 * LISTED  # neighbours among which those of other classes are dropped
PAGE_OF = 10  # results
ALPHA = 0.8  # of the diffusion
UNIT = "unit length, alone", "unit length"
TITLES = ("alone", "auto", "without means", *(f"strength {strength:g}" for strength in STRENGTHS), "best strength") + (
    "diffusion",
    "diffusion and overlap",
    "k by photo",
    *UNIT,
)
CLASSES, SIZES = (4, 9, 19, 38), (3, 5, 10, 20, 1000)  # of galleries of training photos
LABELLED = "all photos", "labels as edges"
MARKED = "no mark", "both photos", "mark as edge"


class UnitGallery:
    """OASIS with unit length on both sides."""

    by_category = False

    def __init__(self, model: Any) -> None:
        self.of, share = Whitening(model.mean_, model.whitening_).of, model.learned_weight_
        self.mixed = ((1 - share) * np.eye(len(model.W_)) + share * model.W_).astype(np.float32)

    def transform(self, X: np.ndarray, y: Any = None, /) -> np.ndarray:
        return self.of(X)

    def transform_query(self, Q: np.ndarray) -> np.ndarray:
        return self.of(Q) @ self.mixed

    def similarity(self, Q: np.ndarray, X: np.ndarray) -> np.ndarray:
        return self.transform_query(Q) @ self.of(X).T


class Gallery:
    """Photos that query each other, their similarity and their graph."""

    def __init__(self, learner: Any, X: np.ndarray, relevant: np.ndarray) -> None:
        self.learner, self.X, self.relevant, self.own = learner, X, relevant, np.arange(X.shape[0])
        self.index = ExactIndex(learner, X)
        self.graph = Neighbours.of(self.index, X)
        self.S = np.asarray(to_dense(learner.similarity(X, X)), np.float32)

    def overlaps(self, graph: Neighbours) -> np.ndarray:
        """J of all pairs."""
        J = np.zeros_like(self.S)
        for q, (near, scores) in enumerate(zip(graph.near, graph.scores, strict=True)):
            shared, some = graph.overlaps(near[: SCALES[-1]], scores[: SCALES[-1]], q)
            J[q, shared] = some
        return J

    def scores(self, J: np.ndarray, weight: float, means: bool = True) -> np.ndarray:
        """Scores of all pairs, the nearest photo first."""
        S = [self.averaged(*of_query) for of_query in zip(self.own, J, self.S, strict=True)] if means else self.S
        scores = (1 - weight) * J + weight * (np.asarray(S) - self.graph.level) / self.graph.scale
        scores[self.own, self.graph.near[:, 0]] = scores.max() + 1
        return scores

    def averaged(self, q: int, J: np.ndarray, S: np.ndarray) -> np.ndarray:
        """S of a query, with the means of photos that share no neighbours with it."""
        if not self.graph.strength:
            return S
        nearest = np.argsort(-S, kind="stable")
        head = nearest[nearest != q][:HEAD]
        others, means = self.graph.averages(head, S[head], np.flatnonzero(J), q)
        S = S.copy()
        S[others] = means
        return S

    def quality(self, scores: np.ndarray, rows: np.ndarray | None = None) -> float:
        """MAP of these queries."""
        rows = self.own if rows is None else rows
        return mean_average_precision(scores[rows], self.relevant[rows], rows)

    def of_strength(self, strength: float) -> float:
        auto, self.graph.strength = self.graph.strength, strength
        quality = self.quality(self.scores(self.overlaps(self.graph), self.graph.weight))
        self.graph.strength = auto
        return quality

    def diffusion(self) -> np.ndarray:
        """What spreads from each photo over the graph, at most 1 of each."""
        n, near = len(self.X), self.graph.near[:, : SCALES[-1]]
        above = np.maximum(self.graph.scores[:, : SCALES[-1]] - self.graph.level, 0) ** 3
        of_query = np.zeros((n, n))
        of_query[self.own[:, None], near] = above
        A = np.minimum(of_query, of_query.T)  # zero unless reciprocal
        root = 1 / np.sqrt(np.maximum(A.sum(axis=1), 1e-9))
        spread = np.linalg.solve(np.eye(n) - ALPHA * root[:, None] * A * root, of_query.T).T
        return (spread / np.maximum(spread.max(axis=1, keepdims=True), 1e-9)).astype(np.float32)


def cut(graph: Neighbours) -> Neighbours:
    """The graph with fewer neighbours of photos whose nearest stands out."""
    above = graph.scores - graph.level
    far = (above < above[:, :1] / 2) & (np.arange(above.shape[1]) > 1)
    last = np.where(far, np.inf, graph.scores).min(axis=1, keepdims=True)
    return Neighbours(np.where(far, -1, graph.near), np.where(far, last, graph.scores), graph.level, graph.scale)


def variants(gallery: Gallery) -> dict[str, float]:
    """MAP of the variants that need nothing but the gallery."""
    graph = gallery.graph
    maps = {"alone": gallery.quality(gallery.S), "auto": gallery.of_strength(graph.strength)}
    maps["without means"] = gallery.quality(gallery.scores(gallery.overlaps(graph), graph.weight, means=False))
    maps |= {f"strength {strength:g}": gallery.of_strength(strength) for strength in STRENGTHS}
    maps["best strength"] = max(maps[f"strength {strength:g}"] for strength in STRENGTHS)
    spread, weight = gallery.diffusion(), graph.weight
    maps["diffusion"] = gallery.quality(gallery.scores(spread, weight))
    maps["diffusion and overlap"] = gallery.quality(gallery.scores((spread + gallery.overlaps(graph)) / 2, weight))
    few = cut(graph)
    maps["k by photo"] = gallery.quality(gallery.scores(gallery.overlaps(few), few.weight))
    return maps


def with_labels(learner: Any, X: np.ndarray, y: np.ndarray, split: Split) -> dict[str, float]:
    """MAP of test images in the gallery of all photos, those of classes that are trained on labelled, and without."""
    gallery = Gallery(learner, X, relevance_of(y))
    known = np.zeros(len(X), bool)
    known[split.training] = True
    ranking = gallery.index.search(X, k=DEEPER, exclude=gallery.own)
    near, scores = ranking.indices, ranking.scores
    another = known[:, None] & known[near] & (y[near] != y[:, None])
    order = np.argsort(another, axis=1, kind="stable")[:, :LISTED]
    near, scores = np.take_along_axis(near, order, axis=1), np.take_along_axis(scores, order, axis=1)
    told = Neighbours(near, scores, *level_and_scale(gallery.index, X, gallery.graph.scores))
    return {
        title: gallery.quality(gallery.scores(gallery.overlaps(graph), gallery.graph.weight), split.test)
        for title, graph in zip(LABELLED, (gallery.graph, told), strict=True)
    }


def with_mark(gallery: Gallery) -> dict[str, float]:
    """MAP without the photo that is marked, of queries that have one."""
    graph, maps = gallery.graph, {title: [] for title in MARKED}
    starts, rows, shares = graph.lists
    codes = sp.csc_array((shares / np.float32(65535), rows, starts), shape=gallery.S.shape).tocsr()
    default = gallery.scores(gallery.overlaps(graph), graph.weight)
    default[gallery.own, gallery.own] = -np.inf
    for q, of_query in enumerate(default):
        page = np.argsort(-of_query, kind="stable")[:PAGE_OF]
        marked = page[gallery.relevant[q, page]][-1:]
        if not len(marked):
            continue
        p = int(marked[0])
        both = gallery.X[[q]] + gallery.X[[p]]
        top = gallery.index.search(both, SCALES[-1], exclude=[q])
        joined = np.zeros((2, len(of_query)), np.float32)
        shared, J = graph.overlaps(top.indices[0], top.scores[0], q)
        joined[0, shared] = J
        entries, parts = graph.code(graph.near[q, : SCALES[-1]], graph.scores[q, : SCALES[-1]], q)
        v = codes[[p]].toarray()[0]
        v[entries] += parts
        largest = np.argsort(-v, kind="stable")[: 2 * ENTRIES]
        minima = np.minimum(codes[:, largest].toarray(), v[largest] / 2).sum(axis=1)
        joined[1] = minima / np.maximum(2 - minima, 1e-6)
        similarity = gallery.learner.similarity(both, gallery.X)[0], (gallery.S[q] + gallery.S[p]) / 2
        for title, ranked in zip(
            MARKED,
            (of_query, *(_mixed(gallery, q, J, S) for J, S in zip(joined, similarity, strict=True))),
            strict=True,
        ):
            rest = np.delete(gallery.own, p)
            relevant = gallery.relevant[q, rest][None]
            maps[title].append(mean_average_precision(ranked[rest][None], relevant, np.searchsorted(rest, [q])))
    return {title: float(np.mean(figures)) for title, figures in maps.items()}


def _mixed(gallery: Gallery, q: int, J: np.ndarray, S: np.ndarray) -> np.ndarray:
    weight = gallery.graph.weight
    return (1 - weight) * J + weight * (gallery.averaged(q, J, S) - gallery.graph.level) / gallery.graph.scale


def of_split(name: str, seed: int) -> dict[str, dict[str, float]]:
    """Figures of one split by system and cell."""
    config, X, y, names = images_of(name, "deep")
    split: Split
    *_, split = class_splits(y, seed + 1)
    model, _ = fitted("oasis", config, X[split.training], y[split.training], names)
    part = {}
    for system, learner in zip(SYSTEMS, (Cosine().fit(X), effective(model)), strict=True):
        for cell, kept in (("both", np.ones(len(split.test), bool)), ("unseen", ~split.seen)):
            gallery = Gallery(learner, X[split.test[kept]], split.relevant[np.ix_(kept, kept)])
            part[f"{system}, {cell}"] = variants(gallery) | (with_mark(gallery) if cell == "both" else {})
            if system == "oasis":
                unit = Gallery(UnitGallery(model), gallery.X, gallery.relevant)
                figures = unit.quality(unit.S), unit.of_strength(unit.graph.strength)
                part[f"{system}, {cell}"] |= dict(zip(UNIT, figures, strict=True))
        if not sp.issparse(y):
            part[f"{system}, both"] |= with_labels(learner, X, y, split)
    print(f"    {name} {seed}: {part}", flush=True)
    return part


def by_size(kind: str) -> list[list[str]]:
    """Rows of galleries of training photos, by cosine: the strength they choose, and mAP by strength."""
    _, X, y, _ = images_of("caltech101", kind)
    *_, split = class_splits(y, 1)
    pool, rng, rows = np.setdiff1d(np.arange(len(y)), split.test), np.random.default_rng(0), []
    classes, counts = np.unique(y[pool], return_counts=True)
    for n_classes, size in itertools.product(CLASSES, SIZES):
        chosen = rng.permutation(classes[counts >= min(size, 20)])[:n_classes]
        some = np.concatenate([rng.permutation(pool[y[pool] == one])[:size] for one in chosen])
        if len(chosen) == n_classes and len(some) >= FEWEST:
            some = rng.permutation(some)  # equal scores rank by place
            gallery = Gallery(Cosine().fit(X[some]), X[some], relevance_of(y[some]))
            figures = gallery.quality(gallery.S), *map(gallery.of_strength, (0, 0.5, 1))
            n_photos = "all" if size == SIZES[-1] else str(size)
            title = f"{kind}, {n_classes} classes, {n_photos}"
            rows.append([title, f"{gallery.graph.strength:.2f}", *(f"{figure:.3f}" for figure in figures)])
    return rows


def of_folder(folder: Path) -> str:
    """Figures of photos that are in a folder of their class, by cosine of centred deep vectors."""
    files = find_images(folder)
    X = deep_embedder(n_jobs=-1).fit_transform(files)
    X -= X.mean(axis=0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.array([file.relative_to(folder).parts[0] for file in files])
    gallery = Gallery(Cosine().fit(X), X, relevance_of(y))
    J, weight = gallery.overlaps(gallery.graph), gallery.graph.weight
    scores = gallery.S, gallery.scores(J, weight), gallery.scores(J, weight, means=False)
    figures = ", ".join(f"{one} {gallery.quality(of):.3f}" for one, of in zip(TITLES, scores, strict=False))
    return f"{folder}: {len(y)} photos of {len(set(y))} classes, strength {gallery.graph.strength:.2f}; {figures}"


def main(folders: list[str]) -> None:
    """Measure what is not kept, and write the tables: mAP of each set, and the mean change from the first of them."""
    if folders:
        for folder in folders:
            print(of_folder(Path(folder)))
        return
    means: dict[str, dict[str, dict[str, float]]] = {}
    for name in SETS:
        files = [CACHE / "neighbours" / f"{name}-variants-{seed}.json" for seed in range(SPLITS)]
        parts = [kept_in(file, lambda name=name, seed=seed: of_split(name, seed)) for seed, file in enumerate(files)]
        means[name] = {
            cell: {title: float(np.mean([part[cell][title] for part in parts])) for title in parts[0][cell]}
            for cell in parts[0]
        }
    texts = []
    for titles, first in ((TITLES, "auto"), (LABELLED, LABELLED[0]), (MARKED, MARKED[0])):
        rows = []
        for cell in next(iter(means.values())):
            for title in titles:
                sets = [means[name][cell].get(title) for name in SETS]
                if any(sets):
                    known = [name for name in SETS if title in means[name][cell]]
                    gains = [means[name][cell][title] / means[name][cell][first] - 1 for name in known]
                    cells = ["" if figure is None else f"{figure:.3f}" for figure in sets]
                    rows.append([f"{cell}: {title}", *cells, f"{np.mean(gains):+.1%}"])
        texts.append(table(("", *map(title_of, SETS), f"of {first}"), rows))
    chosen = [row for kind in ("deep", "spatial") for row in by_size(kind)]
    texts.append(table(("training photos", "strength", "alone", "strength 0", "strength 0.5", "strength 1"), chosen))
    replace(PAGE, "variants", "\n".join(texts))
