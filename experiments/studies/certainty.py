"""How certain a concept says it is of photos that are added, beside the share of them that shows it.

As in `labelling`, each class of a set in turn is a concept: half of the photos are there, a user gives three of its
photos and answers 20 questions. Then the other half is added. Of the added photos that surely fit, the certainty that
the page shows (`Concept.certainty`, from answers left out) is compared with the truth.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.photos import images_of
from benchmarks.records import compared, record
from visterm.pipeline.search.searcher import Searcher
from visterm.teaching.concepts import Concept, score_concept, sure_images

from .labelling import FOLDS, GIVEN, SETS, unsure_image

ANSWERS = 20
LEVELS = (0.0, 0.8, 0.9, 0.95, 1.01)  # of certainty, that the dialog of the page offers


def added(X: Any, own: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Certainty and truth of the added photos that surely fit, (n_sure, 2); none where too few answers are of a kind.

    The first n rows are the photos that are there. `own` says which of all show the concept.
    """
    yes, no = set(rng.choice(np.flatnonzero(own[:n]), GIVEN, replace=False).tolist()), set[int]()
    for _ in range(ANSWERS):
        row = unsure_image(score_concept(X[:n], yes, no), yes | no)
        (yes if own[row] else no).add(row)
    scores = score_concept(X, yes, no)
    concept = Concept(yes, no, None, sure_images(scores, yes | no), scores)
    certainty = concept.certainty(cast(Searcher, SimpleNamespace(X=X)))
    new = concept.sure >= n
    return np.zeros((0, 2)) if certainty is None else np.column_stack([certainty, own[concept.sure]])[new]


def measure(name: str, folds: int) -> dict[str, Any]:
    """One record of a set."""
    _, X, y, _ = images_of(name, "deep")
    of_concepts = []
    for fold in range(folds):
        rng = np.random.default_rng(fold)
        order = rng.permutation(len(y))
        of_concepts += [added(X[order], y[order] == label, len(y) // 2, rng) for label in np.unique(y)]
    pairs = np.concatenate(of_concepts)
    said, true = pairs.mean(axis=0).tolist()
    part = np.digitize(pairs[:, 0], LEVELS)
    apart = [abs(float(np.subtract(*of.mean(axis=0)))) for of in of_concepts if len(of)]
    levels = [
        f"{LEVELS[i - 1]:g} to {min(LEVELS[i], 1):g}: {pairs[part == i, 0].mean():.3f} said, "
        f"{pairs[part == i, 1].mean():.3f} right of {(part == i).sum():,}"
        for i in range(1, len(LEVELS))
        if (part == i).any()
    ]
    return record(
        f"concept-certainty-{name}",
        f"{name}: added photos that a concept surely fits after {ANSWERS} answers: the share that shows it",
        "the certainty that the page says",
        "1.0: all of them",
        compared(true, said, "of the photos", len(pairs), higher=True),
        measured=f"{len(apart)} of {len(of_concepts)} concepts, deep vectors, {folds} draws; of a concept, certainty "
        f"and truth are {np.mean(apart):.3f} apart in the mean; {'; '.join(levels)}",
    )


def run(quick: bool = False) -> list[dict]:
    """One record per set."""
    return [measure(name, 1 if quick else FOLDS) for name in SETS[: 1 if quick else None]]
