"""Recommend the trained learner with the best held-out mAP.

Search, explanation, annotation, the service and evaluate follow this one rule where no learner is named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from visterm.pipeline.console import reads_below
from visterm.pipeline.errors import UserError

from .models import TRAINED, trained_record
from .run import Run


def recommend(results: Mapping[str, Mapping[str, Any]], world: str | None = None) -> dict[str, Any] | None:
    """Return which of some learners did best on images held out of the training ones; None where none was validated.

    Test images choose nothing. What counts is mAP, which sees every relevant image, where precision at 1 is one bit of
    a query; but a learner is not taken whose precision at 1 is clearly below that of cosine, or whose mAP is below it,
    or not above it by one standard error of the gain, over classes, where the training noted that. Of classes that were
    trained on, the best learner is taken. For other classes a few held-out classes stand, which say little: there, of
    learners within one standard error of the best it is the first, in the order of TRAINED, which begins with learners
    that are not tied to a list of labels. "Clearly" is one standard error, too, and two where the noted gain in mAP is
    at least two of its own: the first results of a few queries do not outweigh the whole rankings. It is the largest
    that such means can have: numbers between 0 and 1 of mean m have a variance of at most m (1 - m). Where the training
    noted the gain in precision at 1, as a mean over classes, that counts: all images of a held-out class validate, but
    a fifth of those of the others, so that two of ten classes would be more than half of the queries.

    `results` are those of the learners' records; cosine is always compared. Only learners that were validated for the
    images of `world` are compared; without it, and where none was, those of the first. The answer has ``learner``,
    ``for`` (the world), ``validation_map`` and ``validation_p1`` by name, cosine last, ``gain_by_class``, the gains in
    both as means over classes where the training noted them, and ``not_validated``, the learners that could not be
    compared.
    """
    from visterm.learners.options import MAX_QUERIES

    worlds = {
        name: result.get("worlds", {}).get("for", "seen")
        for name, result in results.items()
        if "validation_map" in result
    }
    if not worlds:
        return None
    world = world if world in worlds.values() else next(iter(worlds.values()))
    names = [name for name in TRAINED if worlds.get(name) == world]
    compared = [results[name] for name in names]
    figures = {
        f"validation_{measure}": {
            **{name: results[name][f"validation_{measure}"] for name in names},
            "cosine": compared[0][f"cosine_{measure}"],
        }
        for measure in ("map", "p1")
    }
    n_queries = min(max(result.get("n_validation", 1) for result in compared), MAX_QUERIES)

    def lowest(figure: float) -> float:
        """The lowest figure within a standard error of this one."""
        return figure - math.sqrt(figure * (1 - figure) / n_queries)

    def is_above_cosine(name: str) -> bool:
        noted = results[name].get("worlds", {})
        gain, error = noted.get("gain", (quality[name] - quality["cosine"], 0.0))
        p1_gain, p1_error = noted.get("p1_gain", (p1[name] - p1["cosine"], 0.0))
        p1_error = max(p1_error, p1["cosine"] - lowest(p1["cosine"]))
        least_p1 = -(2 if 0 < 2 * error <= gain else 1) * p1_error
        return gain >= error and quality[name] >= quality["cosine"] and p1_gain >= least_p1

    p1, quality = figures["validation_p1"], figures["validation_map"]
    quality = {name: figure for name, figure in quality.items() if name == "cosine" or is_above_cosine(name)}
    best = max(quality.values())
    chosen = next(name for name in quality if quality[name] >= (best if world == "seen" else lowest(best)))
    unknown = [name for name in results if name != "cosine" and name not in names]
    noted = {name: results[name].get("worlds", {}) for name in names}
    by_class = {name: [its["gain"][0], its["p1_gain"][0]] for name, its in noted.items() if "p1_gain" in its}
    return {"learner": chosen, "for": world, **figures, "gain_by_class": by_class, "not_validated": unknown}


def default_learner(
    run: Run, trained: Sequence[str], say: Callable[[str], None], world: str, *, cosine: bool = True
) -> str:
    """Choose the learner of images where none is named; say which, unless there was nothing to choose.

    It is among those `trained`, and cosine if allowed, the one that `recommend` names for `world`, the images that the
    run is for. Without validation it is the first in the order of TRAINED; cosine where nothing is trained.
    """
    results = {}
    for name in (name for name in TRAINED if name in trained):
        try:
            results[name] = trained_record(run, name)["result"]
        except UserError:
            if not results:
                return name  # using it raises the error: no other learner takes the place of a damaged one
    if not results:
        say(f"by cosine: run {run.name} has no trained learner")
        return "cosine"
    recommended = recommend(results, world)
    chosen = next(iter(results)) if recommended is None else recommended["learner"]
    if recommended is not None and chosen == "cosine" and not cosine:
        figures = recommended["validation_map"]
        chosen = max((name for name in figures if name != "cosine"), key=lambda name: figures[name])
    if recommended is not None and (len(results) > 1 or chosen == "cosine"):
        say(f"by {chosen}, which held-out images recommend: {figures_of(recommended)}")
    elif chosen != "oasis":
        only = f"the only learner of run {run.name} that is trained" if len(results) == 1 else "oasis is not trained"
        say(f"by {chosen}, {only}")
    return chosen


def best_annotator(run: Run, annotators: Sequence[str], say: Callable[[str], None]) -> str:
    """Choose the learner of labels where none is named, as `default_learner` does that of images.

    It is the one that ranks the labels of held-out images best. If none is trained, it is wsabie all the same: using it
    raises an error that says how to train it.
    """
    results = {name: trained_record(run, name)["result"] for name in TRAINED if name in annotators}
    figures = {
        name: result["validation"]
        for name, result in results.items()
        if "validation" in result and result["validation_measure"] != "mAP"  # that of images says nothing of labels
    }
    if len(results) > 1 and figures:
        best = max(figures, key=lambda name: figures[name])
        say(f"by {best}, the best on held-out images")
        return best
    if not results or "wsabie" in results:
        return "wsabie"
    only = f", the only learner of run {run.name} that is trained for this" if len(results) == 1 else ""
    say(f"by {next(iter(results))}{only or '; wsabie is not trained'}")
    return next(iter(results))


def figures_of(recommended: dict[str, Any]) -> str:
    """Return the figures that chose a learner, as text: its own, then those of the others.

    Of a learner that is not below cosine by query and yet not taken, the gains by class stand there, which decided.
    """
    chosen, (map_of, p1_of) = recommended["learner"], (recommended[f"validation_{name}"] for name in ("map", "p1"))

    def of(name: str) -> str:
        text = f"mAP {map_of[name]:.3f}, P@1 {p1_of[name]:.3f}"
        gains = recommended.get("gain_by_class", {}).get(name)
        if chosen != "cosine" or gains is None or any(reads_below(f[name], f["cosine"]) for f in (map_of, p1_of)):
            return text
        return f"{text}, by class {gains[0]:+.3f} and {gains[1]:+.3f}, not clearly better than cosine"

    others = "; ".join(f"{name} {of(name)}" for name in map_of if name != chosen)
    return f"{of(chosen)} ({others})"
