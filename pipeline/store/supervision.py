"""Training data of learners: labelled images; or triplets, of a table, or of marks where no image has a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm import sparse
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load

from .catalogue import Collection
from .image_names import ImageNames
from .images import Image
from .label_edits import LabelEdits
from .labels import WAYS_TO_LABEL
from .notes import Notes
from .run import Run
from .tables import read_rows

if TYPE_CHECKING:
    import numpy as np

    from visterm.pipeline.config.models import Config
else:
    from visterm import numpy as np

COLUMNS = ("query", "relevant", "irrelevant")


class TrainingData(NamedTuple):
    """Training images in the order of their paths, and triplets of them, if these are learned in place of labels."""

    images: Sequence[Image]
    triplets: np.ndarray | None = None  # int32 (n, 3): places of query, relevant and irrelevant image
    uploads: dict[str, Any] = {}  # vectors of queries outside of the run by SHA-256, which follow the images
    warnings: tuple[str, ...] = ()
    source: str = ""  # of the triplets, in words
    marks: tuple[int, ...] = ()  # numbers of the relevance marks that the triplets are of


def read_training_data(run: Run, config: Config, collection: Collection) -> TrainingData:
    """Return what the learners of a run learn from; UserError if a table of triplets cannot be used.

    That is the triplets of `collection.triplets`; else the labelled training and validation images; else triplets of
    relevance marks: of each query, every image marked as relevant with every one marked as not relevant. Where all
    labels are one, the images that people said do not have it are a second class.
    """
    if config.collection.triplets is not None:
        return _of_table(Path(config.collection.triplets), collection, config.collection.skip_bad_rows)
    images = collection.images("train", "validation", labelled=True)
    if not images and not collection.label_sizes() and (training := load("marks")(run, config, collection)) is not None:
        return training
    return TrainingData(with_refused(run, images, collection.images))


def with_refused(run: Run, images: Sequence[Image], every: Callable[[], Iterable[Image]]) -> Sequence[Image]:
    """Add the images of the run that people said do not have the label of these, if that is one and the same."""
    names: set[str] = set()
    for image in images:
        names |= image.labels.keys()
        if len(names) > 1:
            return images
    refused = {number for number, label in LabelEdits(run.label_edits).decided().refused if label in names}
    if not refused:
        return images
    label = {f"not {name}": 1.0 for name in names}
    others = [image for image in every() if image.id in refused and not image.labels]
    return sorted([*images, *(image._replace(labels=label, split="train") for image in others)], key=attrgetter("path"))


def check_training_data(run: Run, training: TrainingData) -> None:
    """Raise an error if there is nothing to learn from."""
    if training.triplets is None and not any(image.split == "train" for image in training.images):
        raise UserError(
            f"run {run.name} has no labelled training images: {WAYS_TO_LABEL}; or give triplets: --set "
            f"collection.triplets=triplets.csv (columns {','.join(COLUMNS)}); or mark results, relevant ones and "
            "others, on the page of visterm serve"
        )


def with_uploads(X: Any, training: TrainingData) -> Any:
    """Add the vectors of queries outside of the run to those of the images."""
    if not training.uploads:
        return X
    if sparse.issparse(X):
        return sparse.vstack([X, *training.uploads.values()], format="csr")
    return np.vstack([X, *(vector.toarray() for vector in training.uploads.values())])


def check_labels(config: Config, what: str) -> None:
    """Refuse work that learns from labels alone."""
    if config.collection.triplets is not None:
        raise UserError(
            f"{what} learns from labels, not from triplets; --set collection.triplets=null takes the labels"
        )


def _of_table(file: Path, collection: Collection, skip_bad_rows: bool) -> TrainingData:
    by_path = {image.path: image for image in collection.images()}
    names, notes = ImageNames(by_path, collection.root or Path()), Notes(file, skip_bad_rows=skip_bad_rows)
    rows = []
    for line, row in read_rows(file, COLUMNS, notes=notes):
        paths = [names.exact(row[column]) or names.near(row[column], notes) for column in COLUMNS]
        twice = [path for path in paths if path is not None and paths.count(path) > 1]
        if twice:
            notes.bad(f"line {line}: {twice[0][:100]} stands twice in a triplet; name three images")
            continue
        missing = [row[column] for column, path in zip(COLUMNS, paths, strict=True) if path is None]
        images = [by_path[path] for path in paths if path is not None]
        if missing:
            notes.add("row", "without an image of the run", missing[0])
        elif any(image.split == "test" for image in images):
            notes.add("triplet", "with a test image", f"line {line}")
        else:
            rows.append(images)
    warnings = notes.lines()
    if not rows:
        raise UserError(
            f"{file}: no triplet of training images{''.join(f'; {line}' for line in warnings)}; paths are relative to "
            f"{collection.root}"
        )
    return numbered(rows, {}, [f"{file}: {line}" for line in warnings], str(file))


def numbered(
    rows: Sequence[Sequence[Image | str]], uploads: dict[str, Any], warnings: Iterable[str], source: str
) -> TrainingData:
    """Number images and uploads of triplets."""
    images = {image.id: image for row in rows for image in row if isinstance(image, Image)}
    ordered = sorted(images.values(), key=lambda image: image.path)
    place: dict[Any, int] = {key: i for i, key in enumerate([*(image.id for image in ordered), *uploads])}
    triplets: Any = [[place[one.id if isinstance(one, Image) else one] for one in row] for row in rows]
    return TrainingData(ordered, np.array(triplets, np.int32), uploads, tuple(warnings), source)
