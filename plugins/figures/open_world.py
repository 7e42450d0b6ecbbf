"""The protocol open: learners are trained on half of the classes and measured on both halves, for several splits.

Test images of seen classes query each other, those of unseen classes query each other, and all of them query one
gallery ("both"). Means and standard deviations over splits can be quoted: whole trainings are repeated.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.console import Console, count
from visterm.pipeline.errors import UserError
from visterm.pipeline.report.text import WORLDS
from visterm.pipeline.stages.fitting import LearnerRefused, held_out_rows, labels_for, new_learner, vectors_for
from visterm.pipeline.stages.train import train_record, world_settings
from visterm.pipeline.store.as_new import measure_as_new
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import TRAINED, load_trained
from visterm.pipeline.store.opened import OpenedRun
from visterm.pipeline.store.records import fingerprint
from visterm.pipeline.store.supervision import TrainingData

if TYPE_CHECKING:
    from visterm.retrieval import Evaluation

FEWEST_CLASSES = 4  # two are trained on: fewer make no triplet, or no irrelevant image
_NEEDS = f"evaluate.protocol=open needs {FEWEST_CLASSES} classes or more, with two training and two test images each"


class ClassSplit(NamedTuple):
    """Images of one split of the classes."""

    training: list[Image]  # all labels of which are trained on
    tested: list[Image]  # in a random order: many pairs of visterm vectors tie, and rank by place
    seen: list[bool]  # of the tested images, whether all labels are trained on


def check_classes(run: OpenedRun) -> None:
    """Raise if there are too few classes to be split."""
    n_classes = len({name for image in run.images("train", labelled=True) for name in image.labels})
    if n_classes < FEWEST_CLASSES:
        raise UserError(f"run {run.name}: {count(n_classes, 'class')} with training images; {_NEEDS}")


def trainings_of(run: OpenedRun, names: Sequence[str]) -> str:
    """Return the fingerprint of all that the trainings on half of the classes depend on."""
    training = TrainingData(run.images("train", "validation", labelled=True))
    records = [train_record(run, run.config, name, training) for name in names if name != "cosine"]
    return fingerprint(run.config.seed, [[record["config"], record["inputs"]] for record in records])


def split_classes(images: Sequence[Image], tested: Sequence[Image], seed: int, number: int) -> ClassSplit:
    """Draw half of the classes, rounded up, that training images have; an image with any other label is unseen."""
    import numpy as np

    rng = np.random.default_rng([seed, number])
    classes = sorted({name for image in images if image.split == "train" for name in image.labels})
    seen = {classes[i] for i in rng.permutation(len(classes))[: (len(classes) + 1) // 2]}
    shuffled = [tested[i] for i in rng.permutation(len(tested))]
    return ClassSplit(
        [image for image in images if seen.issuperset(image.labels)],
        shuffled,
        [seen.issuperset(image.labels) for image in shuffled],
    )


def measure_class_splits(run: OpenedRun, names: Sequence[str], console: Console) -> dict[str, Any]:
    """Train on half of the classes and measure on all, for each split; cosine is measured beside the learners.

    The answer has ``n_splits``, and by system (the learners, cosine, chance) and by name of `WORLDS` the means over
    splits ``map`` and ``p1``, precision at 1; of two splits or more also ``map_sd``, the standard deviation; where
    results are ranked by neighbours ``map_alone``, without these. UserError if a learner cannot be trained on half of
    the classes, or a half has no two test images of a class.
    """
    images = run.images("train", "validation", labelled=True)
    tested = run.images("test", labelled=True)
    systems = list(dict.fromkeys((*names, "cosine")))
    n_splits = run.config.evaluate.class_splits
    figures: dict[str, dict[str, list]] = {name: {world: [] for world in WORLDS} for name in (*systems, "chance")}
    title = f"measuring {count(n_splits, 'class split')}"
    with console.phase(title, n_splits * len(systems), "systems") as phase:
        done = 0
        for number in range(n_splits):
            split = split_classes(images, tested, run.config.seed, number)
            Q = run.vectors(split.tested)
            for name in systems:
                note = f"{name}, split {number + 1} of {n_splits}"
                tick = functools.partial(phase.advance_to, done, note=note)
                tick()
                try:
                    learner = _trained_on(run, name, split, tick)
                    measured = _measure(run, learner, Q, split)
                except (LearnerRefused, ValueError) as error:
                    raise UserError(f"run {run.name}, class split {number + 1}: {error}; {_NEEDS}") from None
                for world, (evaluation, alone) in measured.items():
                    maps = evaluation.mean_average_precision, alone.mean_average_precision
                    figures[name][world].append((maps[0], evaluation.precision_at(1), maps[1]))
                    if name == "cosine":
                        of_chance = evaluation.chance_mean_average_precision
                        chance = of_chance, evaluation.chance_precision, of_chance
                        figures["chance"][world].append(chance)
                done += 1
    return {"n_splits": n_splits, "systems": {name: _means(worlds) for name, worlds in figures.items()}}


def _trained_on(run: OpenedRun, name: str, split: ClassSplit, tick: Any) -> Any:
    """Train a learner as the stage train does, on the images of seen classes; ValueError if it refuses them."""
    from visterm.learners import LEARNERS

    if name == "cosine":
        return load_trained(run, name)
    kind: Any = LEARNERS[TRAINED[name]]
    images = [image for image in split.training if kind.validates or image.split == "train"]
    if not images:
        raise ValueError(f"{name}: every training image has a label that is not trained on")
    y, labels = labels_for(kind, run, name, images)
    learner = new_learner(kind, run.config, name, len(images), y, labels)
    X = vectors_for(learner, run, images)
    rows = held_out_rows(run, learner, images)
    measure_as_new(run, learner, images)
    options = world_settings(run.config, name)
    try:
        return learner.fit(X, y, validation_rows=rows, progress=lambda _: tick(), **options)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _measure(run: OpenedRun, learner: Any, Q: Any, split: ClassSplit) -> dict[str, tuple[Evaluation, Evaluation]]:
    """Return the evaluation of each of `WORLDS`, and that without neighbours.

    ValueError where no query has a relevant image.
    """
    import numpy as np

    from visterm.learners.blend import effective
    from visterm.pipeline.evaluation.held_out import ranking_index
    from visterm.retrieval import ExactIndex, evaluate_index
    from visterm.retrieval.stored import part

    y, _ = run.supervision(split.tested)
    seen = np.array(split.seen)
    rows = dict(zip(WORLDS, (seen, ~seen, np.ones(len(seen), bool)), strict=True))
    evaluations = {}
    for world, among in rows.items():
        X, labels, own = part(Q, among), y[among], np.arange(among.sum())
        measured: list[Evaluation] = []
        if len(own) > 1:
            exact = ExactIndex(effective(learner), X, n_jobs=run.config.compute.n_jobs)
            relevant = functools.partial(_relevant, labels)
            for index in dict.fromkeys((ranking_index(exact, X, run.config), exact)):
                measured.append(evaluate_index(index, X, relevant, exclude=own, max_k=1))
        if not measured or not measured[0].n_queries:
            raise ValueError(f"no two test images of {world} classes share a label")
        evaluations[world] = measured[0], measured[-1]
    return evaluations


def _relevant(labels: Any, start: int, stop: int) -> Any:
    """Which images share a label with each of some of them."""
    import numpy as np

    from visterm.retrieval import relevance_from_labels

    return relevance_from_labels(labels[start:stop], labels, exclude=np.arange(start, stop))


def _means(worlds: Mapping[str, Sequence[tuple[float, float, float]]]) -> dict[str, dict[str, float]]:
    import numpy as np

    means = {}
    for world, figures in worlds.items():
        maps, firsts, alone = np.array(figures).T
        means[world] = {"map": float(maps.mean())}
        if len(maps) > 1:
            means[world]["map_sd"] = float(maps.std(ddof=1))
        means[world]["p1"] = float(firsts.mean())
        if (alone != maps).any():
            means[world]["map_alone"] = float(alone.mean())
    return means
