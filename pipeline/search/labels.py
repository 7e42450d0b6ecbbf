"""Labels in searches: the learners that rank them, and how results name them."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.run import how_to_train

from .filters import NO_FILTER, Filter
from .gallery import Gallery
from .rank import rank

if TYPE_CHECKING:
    from .queries import Queries


class UnknownLabel(UserError):
    """A label that no image of the run has."""


def annotators() -> list[str]:
    """Names of the learners that rank labels, trained or not."""
    from visterm.learners import LEARNERS

    return [name for name, kind in TRAINED.items() if LEARNERS[kind].ranks_labels]


def with_label_vectors() -> list[str]:
    """Names of the learners whose labels have vectors, trained or not."""
    from visterm.learners import LEARNERS

    return [name for name, kind in TRAINED.items() if LEARNERS[kind].labels_have_vectors]


def label_numbers(labels: Sequence[str], names: Sequence[str], learner: str, gallery: Gallery) -> list[int]:
    """Numbers of some labels, given the names of a learner's labels in order."""
    return [_label_number(label, names, learner, gallery) for label in labels]


def _label_number(label: str, names: Sequence[str], learner: str, gallery: Gallery) -> int:
    if label in names:
        return names.index(label)
    if any(label in image.labels for image in gallery.training_images):
        command = how_to_train(gallery.run, learner)
        raise UserError(f"{learner} was trained before label {label!r} was added; run '{command}' first")
    raise _unknown(label, names, gallery)


def check_labels(labels: Iterable[str], gallery: Gallery) -> None:
    """Refuse labels of a filter that no image has."""
    for label in labels:
        if label not in gallery.albums.labels:
            raise _unknown(label, list(gallery.albums.labels), gallery)


def _unknown(label: str, names: Sequence[str], gallery: Gallery) -> UnknownLabel:
    label = one_line(label)[:200]
    near = difflib.get_close_matches(label, names, n=1)
    hint = f"there are {', '.join(names[:5])}{', ...' * (len(names) > 5)}" if names else "its images have no labels"
    hint = f"did you mean {near[0]}?" if near else hint
    return UnknownLabel(f"run {gallery.run.name} has no label {label!r}; {hint}")


def label_results(names: Sequence[str], numbers: Iterable[int], scores: Iterable[float]) -> list[dict[str, Any]]:
    """Result rows of some labels, best first, as `Searcher.annotate` returns them."""
    return [
        {"rank": rank, "label": names[number], "score": round(float(score), 6)}
        for rank, (number, score) in enumerate(zip(numbers, scores, strict=True), start=1)
    ]


def labels_of_nearest(searcher: Any, read: Queries, k: int) -> list[list[dict[str, Any]]]:
    """Rank the labels of the nearest labelled images for each query, as `KNNAnnotator` does.

    Nothing is trained: the index of cosine searches, and labels count as they are now. Labels that no neighbour has are
    left out.
    """
    settings = searcher.config.knn
    wanted = Filter(label=tuple(searcher.gallery.albums.labels))
    if len(searcher.gallery.rows_of(wanted)) == len(searcher.images):
        wanted = NO_FILTER
    answers = []
    for nearest in rank(searcher, read.Q, read.own, settings.n_neighbors, "cosine", wanted=wanted):
        votes: dict[str, float] = defaultdict(float)
        for row, similarity in nearest:
            for label in searcher.images[row].labels if similarity > 0 else ():
                votes[label] += similarity if settings.weights == "similarity" else 1
        names = sorted(votes, key=lambda label: (-votes[label], label))[:k]
        answers.append(label_results(names, range(len(names)), [votes[label] for label in names]))
    return answers
