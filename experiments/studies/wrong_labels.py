"""Finding labels that are wrong.

Some of a set's images get the label of another class, drawn at random. Every signal ranks the images, and its average
precision says how early the wrong ones come; of all images, those of OASIS's training, three in four, are ranked, since
the others are what harm is measured on. The labels of these may be wrong, too. cleanlab (AGPL, so no dependency) ranks
as its `CleanLearning` does, with a regression of its own, and by scores of visterm's probabilities; the best counts.

Every draw is kept in build/bench/labels, so that an interrupted benchmark resumes. Writes the table of docs/labels.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score

from benchmarks.page import DOCS, replace, table
from benchmarks.peers import PeerError, run_in
from benchmarks.photos import extracted, to_dense
from benchmarks.records import compared, kept_in, record
from benchmarks.vectors import CACHE
from visterm.learners import OASIS, Teachers
from visterm.learners.triplets import related_images
from visterm.pipeline.evaluation.held_out import MAX_QUERIES, HeldOutSet
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.vectors import vectors
from visterm.teaching.harmful import margin_terms
from visterm.teaching.wrong_labels import N_NEIGHBORS, cross_validated, judge_labels

SETS = {  # name and number of draws
    "flowers": ("flowers, 9 classes", 5),
    "textures": ("textures, 9 classes", 5),
    "caltech101": ("Caltech-101, 38 classes", 3),
    "corel5k": ("Corel, 50 CDs", 3),
}
KINDS = ("deep", "visterms")
SHARES = (0.05, 0.02)
MOST_OF_CLASS = 65  # images
TRAINING_SHARE = 0.75
STEPS = 100_000
SINGLE = ("neighbours", "neighbours by OASIS", "tau as a query", "harm", "regression")
CLEANLAB = ["cleanlab==2.7.1"]
CLEANLAB_SCRIPT = """
import numpy as np
import scipy.sparse as sp
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores

X = inputs["X"] if "X" in inputs else sp.csr_matrix(
    (inputs["data"], inputs["indices"], inputs["indptr"]), shape=tuple(inputs["shape"]))
labels, probabilities = inputs["labels"], inputs["probabilities"]
outputs["cleanlab, own regression"] = 1 - CleanLearning(seed=0).find_label_issues(X, labels)["label_quality"].to_numpy()
for method in ("self_confidence", "normalized_margin"):
    quality = get_label_quality_scores(labels, probabilities, method=method)
    outputs["cleanlab, " + method.replace("_", " ")] = 1 - quality
first = find_label_issues(labels, probabilities)
outputs["cleanlab, find_label_issues"] = first + outputs["cleanlab, self confidence"]
"""


def labelled_images(name: str, kind: str) -> tuple[Any, np.ndarray]:
    """Vectors and classes, the names of the folders, of at most MOST_OF_CLASS images per class."""
    run, _ = extracted(name, kind)
    with Collection(run.collection) as collection:
        images = collection.images("train", "validation", "test", labelled=True)
        classes = np.unique([Path(image.path).parent.name for image in images], return_inverse=True)[1]
        rng = np.random.default_rng(0)
        parts = [rng.permutation(np.flatnonzero(classes == one))[:MOST_OF_CLASS] for one in np.unique(classes)]
        rows = np.sort(np.concatenate(parts))
        return vectors(run, collection, [images[row] for row in rows]), classes[rows]


def planted(y: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return labels of which a share is wrong."""
    n_classes, labels = int(y.max()) + 1, y.copy()
    wrong = rng.permutation(len(y))[: round(share * len(y))]
    labels[wrong] = (labels[wrong] + rng.integers(1, n_classes, len(wrong))) % n_classes
    return labels


def neighbours_disagree(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Share of the nearest images that have another label."""
    np.fill_diagonal(scores, -np.inf)
    near = np.argpartition(-scores, N_NEIGHBORS, axis=1)[:, :N_NEIGHBORS]
    return (y[near] != y[:, None]).mean(axis=1)


def signals(X: Any, y: np.ndarray, training: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Every signal for the training images: the larger, the more likely is the label wrong."""
    learner = OASIS(n_steps=STEPS, record_teachers=True, random_state=seed).fit(X[training], y[training])
    teachers = Teachers(learner, X[training])
    cosine = X @ X.T
    others = np.setdiff1d(np.arange(len(y)), training)
    own = np.arange(min(len(others), MAX_QUERIES))
    relevant = related_images(y[others], own, np.arange(len(others)))
    terms = margin_terms(teachers, HeldOutSet(X[others], own, relevant, np.ones(len(others), bool), ""), X[others])
    judged = judge_labels(X, y)
    given = {
        "neighbours": neighbours_disagree(to_dense(cosine), y)[training],
        "neighbours by OASIS": neighbours_disagree(learner.similarity(X, X), y)[training],
        "tau as a query": teachers.table.maximum(0).sum(axis=1),
        "harm": -(terms.sum(axis=1) + terms.sum(axis=0)),
        "regression": -judged.probability[training],
    }
    ranks = [rankdata(values) for values in given.values()]
    return given | {"mean of ranks": np.mean(ranks, axis=0), "visterm": judged.score[training]}


def draw(X: Any, y: np.ndarray, share: float, seed: int) -> dict[str, float]:
    """Average precision of each way to find labels planted wrong."""
    rng = np.random.default_rng([seed, round(1000 * share)])
    labels = planted(y, share, rng)
    training = np.sort(rng.permutation(len(y))[: round(TRAINING_SHARE * len(y))])
    wrong = (labels != y)[training]
    given = signals(X, labels, training, seed)
    own = np.zeros((len(y), int(y.max()) + 1), bool)
    own[np.arange(len(y)), labels] = True
    images = {"X": X}
    if sp.issparse(X):
        images = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    known = {"labels": labels, "probabilities": cross_validated(X, own)}
    try:
        peer = run_in("cleanlab", CLEANLAB, CLEANLAB_SCRIPT, images | known, shared=True)
        given |= {name: values[training] for name, values in peer.items()}
    except PeerError as error:
        print(f"    left out: {error}", flush=True)
    return {name: float(average_precision_score(wrong, values)) for name, values in given.items()}


def measure(name: str, kind: str, share: float, quick: bool) -> dict[str, Any]:
    """The record of a set, a kind of vectors and a share of wrong labels."""
    title, n_draws = SETS[name]
    n_draws = 1 if quick else n_draws
    X, y = labelled_images(name, kind)
    percent = f"{100 * share:.0f}"

    def kept(seed: int) -> dict[str, float]:
        return kept_in(CACHE / "labels" / f"{name}-{kind}-{percent}-{seed}.json", lambda: draw(X, y, share, seed))

    draws = [kept(seed) for seed in range(n_draws)]
    ways = [way for way in draws[0] if all(way in one for one in draws)]  # cleanlab may be missing
    means = {way: float(np.mean([one[way] for one in draws])) for way in ways}
    peers = {way: value for way, value in means.items() if way in SINGLE or way.startswith("cleanlab")}
    best = max(peers, key=peers.__getitem__)
    wrong = round(TRAINING_SHARE * share * len(y))
    print(f"    {name} {kind} {percent} %: {means}", flush=True)
    return record(
        f"labels-quality-{name}-{kind}-{percent}",
        f"average precision of finding wrong labels, {percent} % planted, {title}, {kind}",
        f"{best}, the best of the single signals and cleanlab",
        "1.0: all wrong labels first",
        compared(means["visterm"], peers[best], "average precision", n_draws, higher=True),
        measured=f"mean of {n_draws} draws, each {len(y):,} images, some {wrong} wrong labels among those ranked",
        precisions=means,
    )


def rows(records: list[dict[str, Any]]) -> list[list[str]]:
    """Rows of the table: a set, a kind of vectors and a share of wrong labels each."""
    lines = []
    for one in records:
        _, _, name, kind, percent = one["name"].split("-")
        precisions = one["precisions"]
        peers = [value for way, value in precisions.items() if way.startswith("cleanlab")]
        cells = [precisions[way] for way in (*SINGLE, "mean of ranks")]
        cells += [max(peers, default=float("nan")), precisions["visterm"]]
        best = max(cells)
        words = [f"**{cell:.3f}**" if round(cell, 3) == round(best, 3) else f"{cell:.3f}" for cell in cells]
        lines.append([f"{SETS[name][0]}, {kind}, {percent} in 100 <!-- bench: {one['name']} -->", *words])
    return lines


def run(quick: bool = False) -> list[dict[str, Any]]:
    names = list(SETS)[: 1 if quick else None]
    records = [measure(name, kind, share, quick) for name in names for kind in KINDS for share in SHARES]
    if not quick:
        head = ("", *SINGLE, "mean of ranks", "cleanlab", "visterm")
        replace(DOCS / "labels.md", "wrong labels", table(head, rows(records)).rstrip("\n") + "\n")
    return records
