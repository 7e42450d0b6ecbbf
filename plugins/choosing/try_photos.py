"""The stage try: which vectors and which learner suit some photos, measured on a sample of them.

The sample is a run of its own in a temporary folder: links to the images, in folders train/ and validation/, and a
table of their labels. Images of validation/ grow no codebook and are learned from by no learner; all kinds of vectors
and all learners are measured on the same ones. Test images of the photos choose nothing: they are not in the sample.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.config.loading import with_settings
from visterm.pipeline.config.models import Config
from visterm.pipeline.console import Console, count, duration, told_of_compiling
from visterm.pipeline.errors import UserError
from visterm.pipeline.stages.features import features
from visterm.pipeline.stages.fitting import LearnerRefused
from visterm.pipeline.stages.train import Trained, train
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.labels import WAYS_TO_LABEL
from visterm.pipeline.store.recommendation import recommend
from visterm.pipeline.store.run import Run
from visterm.plugins.compiling.warm import extract

MOST_IMAGES = 600
MOST_CLASSES = 50  # with twelve images each: fewer say little of what a learner makes of a class
_EACH = 8  # images per class at least, where there are fewer than MOST_IMAGES
HELD_OUT = 0.2
LEARNERS = (
    "oasis",
    "hier",
)  # the best ones on images of any class and on classes that are trained on: docs/choosing.md
SPATIAL = {  # configs/spatial.yaml, which an installed visterm does not have
    "features.n_visterms": 10_000,
    "features.block_size": 24,
    "features.stride": 8,
    "features.cells": [3],
    "features.weighting.tf": "sqrt",
    "oasis.C": 0.3,
}
_SECONDS_EACH = 5.0  # that a training has at least, where the time is over
_PILOT = 30  # images whose vectors are made first, to know how long those of more take
_FEWEST = 120  # images, below which the slowest kind of vectors is not tried, so that the others can have more
_OF_TIMING = 0.3  # share of the time after which no further kind is timed
_OF_VECTORS = 0.5  # share of the time for vectors; learners have the rest
# Expected time per further image, relative to the pilot: half of that was start-up, but larger codebooks are slower.
_OF_PILOT = 0.65


class _Silent(Console):
    """Says nothing: what stages say of the sample is not about the photos, and `features` will say the rest."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def warn(self, text: str) -> None:
        pass


class _Sample(NamedTuple):
    """Images to try, by path, and what is known of all photos."""

    labels: dict[str, dict[str, float]]
    held_out: set[str]
    n_images: int  # all photos
    n_training: int  # those that are trained on


def try_photos(root: Path, config: Config, console: Console, *, budget: float = 90.0) -> dict[str, Any]:
    """Compare kinds of vectors and learners on a sample of labelled photos; nothing is kept.

    The configuration says where the labels are, and what the similarity is for. `budget` are seconds: vectors of a few
    images are made first, and from their time follow the number of images to try, and which kinds of vectors are
    skipped, if any; the first kind never is. Learners stop early, in five seconds each at least. UserError for no
    images, or labels from which nothing can be held out.

    The answer has ``n_images`` (all photos), ``n_tried``, ``for`` (the world), ``seconds``; ``tried``, a list of
    ``vectors``, ``learner``, ``map`` and ``p1`` on held-out images, and ``seconds_for_all``, an estimate for all
    photos; the chosen ``vectors`` and ``learner``, and the ``settings`` of these vectors; ``skipped``, other kinds and
    why.
    """
    started = time.perf_counter()
    kinds, skipped = _kinds(config)
    tried: list[dict[str, Any]] = []
    best: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="visterm-try-", ignore_cleanup_errors=True) as temporary:
        folder, silent = Path(temporary), _Silent()
        sample = _sample(root, config, folder)
        with told_of_compiling(console):
            extract()  # or photos would be timed with compiling, and hours be expected for all
        seconds = dict.fromkeys(kinds, 0.0)  # per image, for its vectors
        if len(sample.labels) > _PILOT:
            with console.phase("timing a few images", len(kinds), "kinds") as phase:
                few = _fewer(sample, config, _PILOT)
                timed = _link(few, root, config, folder / "few")
                for number, (kind, settings) in enumerate(list(kinds.items())):
                    phase.advance_to(number, note=kind)
                    if number and time.perf_counter() - started > _OF_TIMING * budget:
                        skipped[kind] = "the time was over"
                        del kinds[kind], seconds[kind]
                        continue
                    run, configuration = Run(folder / "few" / kind), with_settings(timed, settings)
                    spent = features(run, configuration, folder / "few" / "photos", silent)["seconds"]
                    seconds[kind] = _OF_PILOT * spent / len(few.labels)
            most = _plan(kinds, seconds, skipped, budget - (time.perf_counter() - started))
            if most < len(sample.labels):
                sample = _fewer(sample, config, most)
                console.say(f"{count(len(sample.labels), 'image')} are tried, as many as {budget:.0f} s allow")
        config = _link(sample, root, config, folder / "tried")
        title = f"trying {count(len(sample.labels), 'image')} of {sample.n_images:,}"
        with console.phase(title, len(kinds) * (1 + len(LEARNERS)), "steps") as phase:
            done = 0
            for number, (kind, settings) in enumerate(kinds.items()):
                if tried and time.perf_counter() - started > budget:
                    skipped[kind] = "the time was over"
                    continue
                run, configuration = Run(folder / kind), with_settings(config, settings)
                phase.advance_to(done, note=f"{kind}: vectors")
                vectors = _seconds_of_vectors(run, configuration, folder / "tried" / "photos", sample, silent)
                done += 1
                later = len(sample.labels) * sum(list(seconds.values())[number + 1 :])
                results: dict[str, Trained] = {}
                refusals = []
                for place, name in enumerate(LEARNERS):
                    phase.advance_to(done, note=f"{kind}: {name}")
                    seconds_left = budget - (time.perf_counter() - started) - later
                    limit = max(_SECONDS_EACH, seconds_left / ((len(kinds) - number) * len(LEARNERS) - place))
                    try:
                        results[name] = train(run, configuration, name, silent, time_limit=limit)
                    except LearnerRefused as error:
                        refusals.append(error)
                    done += 1
                recommended = recommend(results, configuration.train.world)
                if recommended is None:  # all of them were refused, as images are held out
                    raise refusals[0]
                shutil.rmtree(run.folder)  # a W of 10,000 visterms is a file of 400 MB
                rows = _rows(kind, recommended, results, vectors, sample)
                tried += rows
                chosen = next(row for row in rows if row["learner"] == recommended["learner"])
                if not best or _quality(chosen) > _quality(best):
                    best = chosen
    return {
        "n_images": sample.n_images,
        "n_tried": len(sample.labels),
        "for": config.train.world,
        "seconds": round(time.perf_counter() - started, 3),
        "tried": tried,
        "vectors": best["vectors"],
        "learner": best["learner"],
        "settings": kinds[best["vectors"]],
        "skipped": skipped,
    }


def _quality(row: Mapping[str, Any]) -> float:
    """Candidates that `recommend` compares."""
    return (row["map"] + row["p1"]) / 2


def _kinds(config: Config) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Settings of the kinds of vectors, the quickest first, and the kinds that cannot be made with the reason."""
    from visterm.plugins.vectors.efficientnet import cached_model

    kinds: dict[str, dict[str, Any]] = {}
    skipped = {}
    of_model: dict[str, Any] = {}
    if config.features.kind == "onnx":
        kinds["onnx"], of_model = {}, {"features.onnx.model": None}
    try:
        cached_model()
        kinds["deep"] = {"features.kind": "deep"} | of_model
    except (ImportError, ValueError) as error:
        skipped["deep"] = str(error)
    visterms = {"features.kind": "visterms"} | of_model
    return kinds | {"visterms": visterms, "spatial": visterms | SPATIAL}, skipped


def _plan(kinds: dict[str, dict[str, Any]], seconds: dict[str, float], skipped: dict[str, str], budget: float) -> int:
    """Return how many images can be tried in so many seconds; remove kinds without which there are enough.

    `seconds` are those of the vectors of one image. The first kind stays.
    """
    while True:
        most = int(_OF_VECTORS * budget / sum(seconds.values()))
        if most >= _FEWEST or len(kinds) == 1:
            return max(most, 2 * _PILOT)
        slowest = max(list(kinds)[1:], key=lambda kind: seconds[kind])
        skipped[slowest] = f"vectors of {_FEWEST} images would take {duration(_FEWEST * seconds[slowest])}"
        del kinds[slowest], seconds[slowest]


def _sample(root: Path, config: Config, folder: Path) -> _Sample:
    """Choose the images to try, and those of them that are held out, among the training images."""
    with Collection(folder / "all" / "collection", create=True) as collection:
        collection.scan(root.absolute(), config)
        labels = collection.labels()
        training = [path for path in collection.training_paths() if path in labels]
        n_images = collection.counts_by("status")["pending"]
    if not n_images:
        raise UserError(f"{root}: no images; give the folder that holds the images")
    if not training:
        raise UserError(f"{root}: no labels, and without them nothing can be compared: {WAYS_TO_LABEL}")
    sample = _draw({path: labels[path] for path in training}, config, MOST_IMAGES, n_images, len(training))
    if len(sample.held_out) < 2 or len(sample.labels) - len(sample.held_out) < 2:
        raise UserError(
            f"{root}: too few labelled images to hold some out; a class needs four training images, and two classes "
            "are needed"
        )
    return sample


def _fewer(sample: _Sample, config: Config, most: int) -> _Sample:
    """Choose among the images of a sample."""
    return _draw(sample.labels, config, most, sample.n_images, sample.n_training)


def _draw(labels: dict[str, dict[str, float]], config: Config, most: int, n_images: int, n_training: int) -> _Sample:
    """Draw at most so many of these images, and those of them that are held out, if there are enough."""
    import numpy as np

    rng = np.random.default_rng([config.seed, 6])
    if config.collection.clicks is not None or any(len(own) != 1 for own in labels.values()):
        drawn = list(labels)
        paths = [drawn[i] for i in rng.permutation(len(drawn))[:most]]
        held_out = set(paths[: round(HELD_OUT * len(paths))])
    else:
        label_of = {path: next(iter(own)) for path, own in labels.items()}
        paths, held_out = _of_classes(label_of, rng, config.seed, most)
    return _Sample({path: labels[path] for path in paths}, held_out, n_images, n_training)


def _of_classes(label_of: dict[str, str], rng: Any, seed: int, most: int) -> tuple[list[str], set[str]]:
    """Choose about as many images of each class, of at most MOST_CLASSES, and hold some of each class out."""
    import numpy as np

    from visterm.learners.validation import TooFewImages, split

    members: dict[str, list[str]] = {}
    for path, label in label_of.items():
        members.setdefault(label, []).append(path)
    able = sorted(label for label, paths in members.items() if len(paths) >= 4)
    if len(able) < 2:
        return [], set()
    n_classes = max(2, min(MOST_CLASSES, most // _EACH))
    chosen = [able[i] for i in rng.permutation(len(able))[:n_classes]]
    drawn = [[members[label][i] for i in rng.permutation(len(members[label]))] for label in chosen]
    each = 1  # the largest number of images per class with which they are `most`
    while each < most and sum(min(len(paths), each + 1) for paths in drawn) <= most:
        each += 1
    paths = sorted(path for some in drawn for path in some[:each])
    try:
        rows = split(np.array([label_of[path] for path in paths]), HELD_OUT, seed)
    except TooFewImages:
        return paths, set()
    return paths, {paths[row] for row in rows}


def _link(sample: _Sample, root: Path, config: Config, folder: Path) -> Config:
    """Make the directory of the sample and its table of labels; return the configuration of its runs."""
    photos, table = folder / "photos", folder / "labels.csv"
    folder.mkdir(exist_ok=True)
    clicks = config.collection.clicks is not None
    for split in ("train", "validation"):
        (photos / split).mkdir(parents=True)
    with open(table, "w", newline="", encoding="utf-8", errors="surrogateescape") as stream:
        writer = csv.writer(stream)
        writer.writerow(["query", "path", "count"] if clicks else ["path", "label"])
        for number, (path, labels) in enumerate(sorted(sample.labels.items())):
            split = "validation" if path in sample.held_out else "train"
            link = f"{split}/{number:04}{Path(path).suffix}"
            (photos / link).symlink_to(root.absolute() / path)
            writer.writerows([name, link, weight] if clicks else [link, name] for name, weight in labels.items())
    settings = {
        "collection.labels": "auto" if clicks else str(table),
        "collection.clicks": str(table) if clicks else None,
        "collection.label_separator": "none",
        **dict.fromkeys(("collection.label_column", "collection.name_column", "collection.label_level")),
        **dict.fromkeys(("collection.classes", "collection.triplets", "cluster.scheduler")),
        **dict.fromkeys(("collection.vectors.file", "collection.vectors.ids")),
    }
    return with_settings(config, settings)


def _seconds_of_vectors(run: Run, config: Config, photos: Path, sample: _Sample, console: Console) -> float:
    """Make the vectors of the sample; return the seconds that those of all photos take."""
    started = time.time()
    summary = features(run, config, photos, console)
    fitting = (run.extractor / "record.json").stat().st_mtime - started  # the rest reads and extracts all images
    most = min(sample.n_training, config.features.max_training_images) if config.features.kind == "visterms" else 0
    n_fitted = len(sample.labels) - len(sample.held_out)
    extracting = (summary["seconds"] - fitting) * sample.n_images / len(sample.labels)
    return extracting + fitting * max(1.0, most / n_fitted)


def _rows(
    kind: str, recommended: dict[str, Any], results: dict[str, Trained], vectors: float, sample: _Sample
) -> list[dict[str, Any]]:
    """Rows of the table for one kind of vectors: what `recommend` compares."""
    more = max(1.0, sample.n_training / len(sample.labels))  # steps of the learners: as many per image
    rows = []
    for name in ("cosine", *results):
        seconds = vectors + (results[name]["seconds"] * more if name in results else 0.0)
        rows.append(
            {
                "vectors": kind,
                "learner": name,
                "map": recommended["validation_map"][name],
                "p1": recommended["validation_p1"][name],
                "seconds_for_all": round(seconds, 1),
            }
        )
    return rows
