"""Labels in searches: the learners that rank them, and labels that no image has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.models import TRAINED
from visterm.pipeline.store.run import how_to_train

from .answers import LabelResult
from .filters import Filter, near_names
from .gallery import Gallery


class UnknownLabel(UserError):
    """A label that no image of the run has."""


def ranking_labels(names: Iterable[str] = TRAINED) -> list[str]:
    """Return those of some learners, by default of all, that rank labels."""
    from visterm.learners.saved import ANNOTATORS

    return [name for name in names if TRAINED[name] in ANNOTATORS]


def with_label_vectors() -> list[str]:
    """Names of the learners whose labels have vectors, trained or not."""
    from visterm.learners import LEARNERS

    return [name for name, kind in TRAINED.items() if LEARNERS[kind].labels_have_vectors]


def label_numbers(labels: Sequence[str], names: Sequence[str], learner: str, gallery: Gallery) -> list[int]:
    """Numbers of labels among the names of a learner's labels."""
    return [_label_number(label, names, learner, gallery) for label in labels]


def _label_number(label: str, names: Sequence[str], learner: str, gallery: Gallery) -> int:
    if label in names:
        return names.index(label)
    if any(label in image.labels for image in gallery.training_images):
        command = how_to_train(gallery.run, learner)
        raise UserError(f"{learner} was trained before label {label!r} was added; run '{command}' first")
    if label in gallery.albums.labels:
        raise UserError(f"{learner} cannot rank by label {label!r}, as no training image has it; --learner cosine can")
    raise _unknown(label, names, gallery)


def check_labels(labels: Iterable[str], gallery: Gallery) -> None:
    """Refuse labels that no image has."""
    for label in labels:
        if label not in gallery.albums.labels:
            raise _unknown(label, list(gallery.albums.labels), gallery)


def check_filter(condition: Filter, gallery: Gallery) -> None:
    """Refuse labels, fields and values of a filter that no image has."""
    for label in (*condition.label, *condition.not_label):
        if label not in gallery.albums.within:
            raise _unknown(label, list(gallery.albums.within), gallery)
    for on_field in condition.where:
        gallery.fields.passes(on_field)


def _unknown(label: str, names: Sequence[str], gallery: Gallery) -> UnknownLabel:
    label = one_line(label)[:200]
    near = near_names(label, names)
    hint = f"there are {', '.join(names[:5])}{', ...' * (len(names) > 5)}" if names else "its images have no labels"
    hint = f"did you mean {near[0]}?" if near else hint
    return UnknownLabel(f"run {gallery.run.name} has no label {label!r}; {hint}")


def label_results(names: Sequence[str], numbers: Iterable[int], scores: Iterable[float]) -> list[LabelResult]:
    """Rows of labels, best first."""
    return [
        {"rank": rank, "label": names[number], "score": round(float(score), 6)}
        for rank, (number, score) in enumerate(zip(numbers, scores, strict=True), start=1)
    ]
