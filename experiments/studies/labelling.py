"""Labels by yes and no, of simulated users.

A concept: half of the photos of a set are there, each class in turn is a concept, and a user gives three of its photos
and then answers yes or no to the photos that the page asks about, or to random ones. The average precision of the class
among the other half is compared with that of the same learner that knows all labels.

A similarity: of 500 photos without labels, 10 classes are named. A class costs 8 actions: three photos, their name,
three answers, and adding the label to the photos found. OASIS learns from these labels, as ``visterm train`` does.

Cleaning: a twentieth of the labels of three quarters of the photos are made wrong. The user goes through the queue of
"Check these labels", the most likely wrong first, for 1.2 times as many entries as there are wrong labels, and answers
truthfully; the queue is made once. Then OASIS learns again, and ranks the other photos.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.photos import images_of, quality
from benchmarks.records import FIRST, compared, kept_in, record
from benchmarks.vectors import CACHE
from visterm.learners import Cosine
from visterm.learners.blend import effective
from visterm.teaching.concepts import image_to_ask, score_concept, sure_images
from visterm.teaching.wrong_labels import BETTER, judge_labels

from .open import fitted
from .wrong_labels import TRAINING_SHARE, planted

SETS = ("flowers", "textures", "caltech101")
FOLDS = 3
GIVEN = 3  # photos that a concept begins with
SHOWN = (0, 5, 10, 20)  # answers after which it is measured
WRONG, QUEUE = 0.05, 1.2  # share of labels planted wrong; entries that are answered, per wrong label
CLASSES, PER_CLASS, ANSWERS = 10, 50, 3  # of the similarity: 10 * (3 photos + a name + 3 answers + adding) = 80 actions


def unsure_image(scores: np.ndarray, answered: set[int]) -> int:
    row = image_to_ask(scores, answered)
    assert row is not None
    return row


def average_precision(scores: np.ndarray, relevant: np.ndarray) -> float:
    hits = relevant[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def concept(X: Any, own: np.ndarray, n: int, rng: np.random.Generator, at_random: bool = False) -> Any:
    """Average precision among other photos after each number of answers; sure photos, and right ones, after 10.

    The first n rows are the photos that are there. `own` says which of all show the concept.
    """
    yes, no = set(rng.choice(np.flatnonzero(own[:n]), GIVEN, replace=False).tolist()), set[int]()
    precisions, sure = np.full(max(SHOWN) + 1, np.nan), np.zeros(0, np.int64)
    for answers in range(len(precisions)):
        if not at_random or answers in SHOWN:
            scores = score_concept(X[:n], yes, no, others=X)
            precisions[answers] = average_precision(scores[n:], own[n:])
        if answers == 10:
            sure = sure_images(scores[:n], yes | no)
        if at_random:
            row = int(rng.choice(np.setdiff1d(np.arange(n), [*yes, *no])))
        else:
            row = unsure_image(scores[:n], yes | no)
        (yes if own[row] else no).add(row)
    return precisions, len(sure), int(own[sure].sum())


def concepts(name: str, n_folds: int) -> list[dict]:
    """Records of each class of a set in turn."""
    _, X, y, _ = images_of(name, "deep")
    curves: dict[str, list] = {"ours": [], "random": [], "all": []}
    n_sure = n_right = 0
    for seed in range(n_folds):
        rows = np.random.default_rng(seed).permutation(len(y))
        n = len(rows) // 2
        for number, label in enumerate(np.unique(y)):
            own = y[rows] == label
            ours, sure, right = concept(X[rows], own, n, np.random.default_rng([seed, number]))
            random, _, _ = concept(X[rows], own, n, np.random.default_rng([seed, number]), at_random=True)
            n_sure, n_right = n_sure + sure, n_right + right
            known = score_concept(X[rows[:n]], np.flatnonzero(own[:n]), np.flatnonzero(~own[:n]), others=X[rows[n:]])
            curves["ours"].append(ours)
            curves["random"].append(random)
            curves["all"].append(average_precision(known, own[n:]))
    ours, random = np.mean(curves["ours"], axis=0), np.mean(curves["random"], axis=0)
    whole = float(np.mean(curves["all"]))
    shown = "; ".join(f"{n}: {ours[n]:.3f}, random {random[n]:.3f}" for n in SHOWN)
    reached = int((ours >= random[20]).argmax()) if (ours >= random[20]).any() else len(ours)
    n, how = len(curves["all"]), f"each class in turn, {n_folds} splits, deep vectors"
    return [
        record(
            f"concept-{name}",
            f"average precision of a class of {name} among other photos: 3 photos and 10 answers, by all labels",
            "0.85, asked for",
            FIRST,
            compared(float(ours[10]) / whole, 0.85, "of that with all labels", n, higher=True),
            measured=f"{how}; after so many answers {shown}; all labels {whole:.3f}",
        ),
        record(
            f"concept-answers-{name}",
            f"answers to the precision that 20 answers on random photos reach, {name}",
            "random photos",
            "half as many, asked for",
            compared(float(max(reached, 1)), 20.0, "answers", n),
            measured=how,
        ),
        record(
            f"concept-sure-{name}",
            f"share of the photos shown as found that show the concept, after 10 answers, {name}",
            "0.9, promised",
            "1.0: all of them",
            compared(n_right / max(1, n_sure), 0.9, "of the photos found", n_sure, higher=True),
            measured=f"{how}; {n_sure / n:.1f} photos found per class",
        ),
    ]


def similarity(name: str, n_folds: int) -> dict:
    """The record of a similarity from 80 actions."""
    config, X, y, names = images_of(name, "deep")
    measured = []
    for seed in range(n_folds):
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(np.unique(y))[:CLASSES]
        split = [np.split(rng.permutation(np.flatnonzero(y == label)), [PER_CLASS]) for label in chosen]
        pool, held = (np.concatenate(parts) for parts in zip(*split, strict=True))
        given = np.zeros((len(pool), len(chosen)), bool)
        for column, label in enumerate(chosen):
            own = y[pool] == label
            yes, no = set(rng.choice(np.flatnonzero(own), GIVEN, replace=False).tolist()), set[int]()
            for _ in range(ANSWERS):
                row = unsure_image(score_concept(X[pool], yes, no), yes | no)
                (yes if own[row] else no).add(row)
            given[[*yes, *sure_images(score_concept(X[pool], yes, no), yes | no)], column] = True
        some = given.any(axis=1)
        right = float((given & (y[pool][:, None] == chosen)).any(axis=1)[some].mean())
        ours, _ = fitted("oasis", config, X[pool][some], sp.csr_array(given[some].astype(np.float32)), chosen.tolist())
        whole, _ = fitted("oasis", config, X[pool], y[pool], names)
        systems = effective(ours), effective(whole), Cosine().fit(X)
        measured.append([quality(one, X[held], y[held]) for one in systems] + [some.mean(), right])
    ours, whole, cosine, labelled, right = (float(value) for value in np.mean(measured, axis=0))
    return record(
        f"actions-{name}",
        f"mAP of a similarity from 80 actions on 500 photos of 10 classes of {name} that have no labels",
        "0.9 of that with all labels, asked for",
        FIRST,
        compared(ours / whole, 0.9, "of that with all labels", n_folds, higher=True),
        measured=f"{n_folds} draws, deep vectors; mAP {ours:.3f}, all labels {whole:.3f}, cosine {cosine:.3f}; "
        f"{labelled:.0%} of the photos labelled, {right:.0%} of these right",
    )


def cleaned(name: str, seed: int) -> dict[str, float]:
    """Planted labels, those in the queue, those with the right suggestion, entries; mAP clean, wrong, and corrected."""
    config, X, y, names = images_of(name, "deep")
    rng = np.random.default_rng([seed, 5])
    pool, held = np.split(rng.permutation(len(y)), [round(TRAINING_SHARE * len(y))])
    classes, numbers = np.unique(y, return_inverse=True)
    labels = classes[planted(numbers[pool], WRONG, rng)]
    n_wrong = int((labels != y[pool]).sum())
    judged = judge_labels(X[pool], labels)
    clear = np.flatnonzero(judged.suggested_fit >= BETTER * judged.fit)
    queue = clear[np.argsort(-judged.score[clear], kind="stable")][: round(QUEUE * n_wrong)]
    rows, suggested = judged.images[queue], judged.names[judged.suggested[queue]]
    truth, corrected = y[pool][rows], labels.copy()
    wrong = labels[rows] != truth
    corrected[rows] = truth

    def precision(given: np.ndarray) -> float:
        learner, _ = fitted("oasis", config, X[pool], given, names)
        return quality(effective(learner), X[held], y[held])

    figures = {"planted": n_wrong, "entries": len(queue), "found": int(wrong.sum())}
    figures |= {"suggested": int((wrong & (suggested == truth)).sum())}
    return figures | {"clean": precision(y[pool]), "wrong": precision(labels), "corrected": precision(corrected)}


def cleaning(name: str, n_folds: int) -> list[dict]:
    """Records of what a truthful user finds in the queue, and of mAP after it."""
    draws = [
        kept_in(CACHE / "cleaning" / f"{name}-{seed}.json", partial(cleaned, name, seed)) for seed in range(n_folds)
    ]
    total = {key: sum(one[key] for one in draws) for key in draws[0]}
    clean, wrong, corrected = (total[key] / n_folds for key in ("clean", "wrong", "corrected"))
    how = f"{n_folds} draws, deep vectors"
    return [
        record(
            f"cleaning-queue-{name}",
            f"labels planted wrong (5 %) that the first 1.2 times as many entries of the queue suggest right, {name}",
            "0.9, asked for",
            "1.0: all of them, with the right label suggested",
            compared(total["suggested"] / total["planted"], 0.9, "of the wrong labels", total["planted"], higher=True),
            measured=f"{how}; {total['entries']} entries, {total['found']} of {total['planted']} wrong labels in them, "
            f"{total['suggested']} with the right suggestion",
        ),
        record(
            f"cleaning-map-{name}",
            f"held-out mAP after cleaning by the queue, {name}",
            "mAP of the clean set less 0.01, asked for",
            FIRST,
            compared(corrected, clean - 0.01, "mAP", n_folds, higher=True),
            measured=f"{how}; clean {clean:.4f}, 5 % wrong {wrong:.4f}, corrected {corrected:.4f}; "
            "of single draws " + ", ".join(f"{one['corrected'] - one['clean']:+.4f}" for one in draws),
        ),
    ]


def run(quick: bool = False) -> list[dict]:
    n_folds, sets = (1, SETS[:1]) if quick else (FOLDS, SETS)
    records = [one for name in sets for part in (concepts, cleaning) for one in part(name, n_folds)]
    return [*records, similarity("caltech101", n_folds)]
