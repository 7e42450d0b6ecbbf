"""What search takes by default, against the best learner that is trained.

Learners are trained with the defaults of ``visterm train`` and with ``--for seen``, and the one that held-out training
images recommend (`recommend`) is compared with the best of them by mAP on test images. In the open world half of the
classes are trained on and all test images query one gallery, as in the study open; for seen classes all are trained
on. Two splits of each set; vectors as ``visterm features`` makes them.

What was measured is kept in build/bench/defaults, a file for each set, kind of vectors, world and learner, so that an
interrupted benchmark resumes; delete a file to measure it again. Writes the table of docs/comparison.md.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.page import DOCS, replace, table
from benchmarks.photos import images_of, to_dense
from benchmarks.records import compared, kept_in, record
from benchmarks.vectors import CACHE
from visterm.learners.blend import effective
from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.store.recommendation import recommend

from .open import NAMES, SETS, class_splits, fitted, measures, title_of

KINDS = ("deep", "visterms")
WORLDS = ("open", "seen")
SPLITS = 2
HEADER = ("", "searched by", "mAP", "best", "mAP", "of the best", "P@1", "cosine's")
Figures = dict[str, Any]


def measured(name: str, kind: str, world: str, learner: str, n_splits: int) -> list[Figures]:
    """Of each split, a learner's result as its record has it, and mAP and precision at 1 on all test images."""
    config, X, y, names = images_of(name, kind)
    config = with_settings(config, {"train.world": world})
    figures = []
    for split in class_splits(y, n_splits):
        training = split.training if world == "open" else np.setdiff1d(np.arange(X.shape[0]), split.test)
        model, seconds = fitted(learner, config, X[training], y[training], names)
        held_out = model.held_out_
        assert held_out is not None
        result = {
            **{f"validation_{measure}": getattr(model, f"validation_{measure}_") for measure in ("map", "p1")},
            **{f"cosine_{measure}": getattr(model, f"cosine_{measure}_") for measure in ("map", "p1")},
            "n_validation": len(held_out),
            "worlds": {"for": world},
        }
        test = X[split.test]
        of_test = measures(effective(model).similarity(test, test), split)[2]
        of_cosine = measures(to_dense(test @ test.T), split)[2]
        figures.append({"result": result, "test": of_test, "cosine": of_cosine, "seconds": seconds})
        print(f"    {name} {kind} {world} {learner}: test mAP {of_test[0]:.3f}, {seconds:.0f} s", flush=True)
    return figures


def compare(name: str, kind: str, world: str, by_learner: dict[str, list[Figures]]) -> tuple[dict, list[str]]:
    """The record, and the row of the table: means over the splits."""
    n_splits = len(next(iter(by_learner.values())))
    chosen, figures = [], []
    for split in range(n_splits):
        of_split = {learner: splits[split] for learner, splits in by_learner.items()}
        recommended = recommend({learner: own["result"] for learner, own in of_split.items()}, world)
        assert recommended is not None
        test = {learner: own["test"] for learner, own in of_split.items()}
        test["cosine"] = next(iter(of_split.values()))["cosine"]
        best = max(test, key=lambda learner: test[learner][0])
        chosen.append((recommended["learner"], best))
        figures.append([test[recommended["learner"]], test[best], test["cosine"]])
    (ours, p1), (peer, _), (_, cosine_p1) = np.mean(figures, axis=0)
    takes, best = (" and ".join(dict.fromkeys(names)) for names in zip(*chosen, strict=True))
    where = {"open": "images of any class", "seen": "trained classes"}[world]
    row = [f"{title_of(name)}, {kind}, {where}", takes, f"{ours:.3f}", best, f"{peer:.3f}", f"{ours / peer:.3f}"]
    row += [f"{p1:.3f}", f"{cosine_p1:.3f}"]
    one = record(
        f"defaults-{name}-{kind}-{world}",
        f"{SETS[name]}, {kind}, for {where}: mAP of the learner that search takes ({takes})",
        f"the best of {len(by_learner)} learners and cosine ({best})",
        "1: none is better",
        compared(ours, peer, "mAP", n_splits, higher=True),
        measured=f"means of {n_splits} splits",
    )
    return one, row


def run(quick: bool = False) -> list[dict]:
    """Measure what is not kept, and write the table."""
    cases = [("deep", "flowers", "open")] if quick else itertools.product(KINDS, SETS, WORLDS)
    records, rows = [], []
    for kind, name, world in cases:
        by_learner = {}
        for learner in NAMES[::3] if quick else NAMES:
            file = CACHE / "defaults" / f"{name}-{kind}-{world}-{learner}{'-quick' if quick else ''}.json"
            by_learner[learner] = kept_in(
                file,
                lambda case=(name, kind, world, learner): measured(*case, 1 if quick else SPLITS),
            )
        one, row = compare(name, kind, world, by_learner)
        records.append(one)
        rows.append(row)
        if not quick:  # also where the benchmark is interrupted later
            replace(DOCS / "comparison.md", "defaults", table(HEADER, rows))
    return records
