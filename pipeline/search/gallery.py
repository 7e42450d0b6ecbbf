"""The images of a run that can be searched, and their vectors."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import count
from visterm.pipeline.errors import NothingToSearch, UserError
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.fields import read_fields
from visterm.pipeline.store.files import image_sha256
from visterm.pipeline.store.hierarchy import read_hierarchy
from visterm.pipeline.store.images import Image, Images, RowOfId
from visterm.pipeline.store.pictures import read_retagged
from visterm.pipeline.store.records import fingerprint
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import check_ahead
from visterm.pipeline.store.vectors import extractor_content, extractor_of, searched_vectors

from .filters import AlbumRows, Fields, Filter
from .names import NameIndex
from .request import IMAGE_ID

if TYPE_CHECKING:
    import numpy as np


class Gallery:
    """The searchable images of a run, as they were when it was opened; attributes as of `Searcher`.

    `content` is the fingerprint of what the vectors are made with, `fingerprint` that of images, labels and splits.
    Unchanged images are shared with `like`, an older gallery of the run.
    """

    exif_fields = True  # whether camera and place are among the fields

    def __init__(self, run: Run, tell: Callable[[str], None], like: Gallery | None = None) -> None:
        self.run = run
        with Collection(run.collection) as collection:
            check_ahead(collection.segments)
            root = collection.root
            if root is None or not collection.counts_by("status")["ok"]:
                raise NothingToSearch(
                    f"run {run.name}: nothing to search yet; run 'visterm features IMAGES {run.option}' first"
                )
            self.content = extractor_content(run)
            fields_changes = collection["fields"]
            self.split_by: str | None = collection["split_by"]
            self._retagged = read_retagged(collection)
            self.root: Path = root
            self.images: Images = collection.living(None if like is None else like.images)
            if collection["extractor"] != self.content:  # read after the images, which have this extractor then, too
                raise UserError(
                    f"run {run.name}: the features are not finished; run 'visterm features {run.option}' first"
                )
            self.pending: set[int] = {number for number, _ in collection.pending()}
            if self.pending:
                tell(f"{count(len(self.pending), 'image')} not extracted yet, and not searchable until then")
            self.X: Any = searched_vectors(run, collection, self.images)
        self.place: RowOfId = self.images.place
        changes = "" if fields_changes is None else str(fields_changes)
        self.fingerprint = fingerprint(changes, self.images.fingerprint)
        self._name_indexes: dict[str, NameIndex] = {}

    @cached_property
    def extractor(self) -> Any:
        """What makes vectors of images; loaded at the first query that is no image of the run."""
        return extractor_of(self.run, self.content)

    @cached_property
    def training_images(self) -> list[Image]:
        """The images that a learner would be trained on."""
        return self.images.labelled("train", "validation")

    def row_named(self, name: str) -> int | None:
        """Row of the image that a query names by id (``"id:12"``) or path; None if it names another file."""
        if number := IMAGE_ID.fullmatch(name):
            return self.place.get(int(number[1]))
        return None if os.path.lexists(name) else self.images.row_of_path(os.path.normpath(name))

    def row_of_file(self, file: str) -> int:
        """Row of the image with this file, whatever path names it; -1 if the file is not in the collection."""
        if "\0" in file:  # no path of a file; from standard input, such as that of find -print0
            return -1
        real, root = os.path.realpath(file), os.path.realpath(self.root)
        folder, name = os.path.split(os.path.abspath(file))
        link = os.path.join(os.path.realpath(folder), name)  # perhaps to another image of the collection
        for path in (os.path.relpath(link, root), os.path.relpath(real, root), real):  # absolute outside the root
            if (row := self.images.row_of_path(path)) is not None:
                return row
        if not os.path.isfile(real):  # a pipe can be read only once
            return -1
        first = self.rows_by_sha256.get(image_sha256(real) or "")
        if first is None:
            return -1
        contents = self.images.contents()  # or the collection has a link to it
        same = (row for row in range(first, len(contents)) if contents[row] == contents[first])
        return next((row for row in same if os.path.realpath(self.root / self.images[row].path) == real), -1)

    def known_by(self, sha256: str) -> str:
        """Return the SHA-256 that a file is known by: another one if tags were written into it since it was entered."""
        id_ = self._retagged.get(sha256, -1)
        return self.images[self.place[id_]].sha256 if id_ in self.place else sha256

    @cached_property
    def rows_by_sha256(self) -> dict[str, int]:
        """The first row of each content, by the SHA-256 of the file, also of one with other tags than at first."""
        rows = {sha256: row for row, sha256 in reversed(list(enumerate(self.images.contents())))}
        return {sha256: self.place[id_] for sha256, id_ in self._retagged.items() if id_ in self.place} | rows

    @cached_property
    def albums(self) -> AlbumRows:
        """The images by label and by folder."""
        return AlbumRows(self.images, read_hierarchy(self.run.collection))

    def name_index(self, kind: str) -> NameIndex:
        """Return the index of the names of labels, also of those above ("within"), of folders, or of image files.

        The largest labels and folders come first.
        """
        if kind not in self._name_indexes:  # two threads may both make it, and one is kept
            albums = {"label": self.albums.labels, "within": self.albums.within, "folder": self.albums.folders}
            self._name_indexes[kind] = NameIndex(self.images.paths() if kind == "image" else list(albums[kind]))
        return self._name_indexes[kind]

    def rows_of(self, condition: Filter) -> np.ndarray:
        """Rows of the images that pass a filter, in order."""
        if condition == Filter(label=condition.label) and len(condition.label) == 1:
            return self.albums.rows_of_label(condition.label[0])
        return condition.rows(self.images, self.albums, self.fields if condition.where else None)

    @cached_property
    def fields(self) -> Fields:
        """The fields of the images: dates, the further columns of a manifest, and those of EXIF."""
        with Collection(self.run.collection) as collection:
            by_id = read_fields(collection)
        return Fields([by_id.get(number) for number in self.images.ids.tolist()], exif=self.exif_fields)

    def labels_for(self, learner: Any, name: str, warn: Callable[[str], None]) -> np.ndarray | None:
        """The label of each image, for a learner whose metrics depend on it (MuSL); None if not all have just one."""
        import numpy as np

        if not learner.by_category:
            return None
        if any(len(image.labels) != 1 for image in self.images):
            warn(f"{name} searches without image labels: not every image has exactly one")
            return None
        labels = np.array([next(iter(image.labels)) for image in self.images])
        unknown = ~np.isin(labels, learner.classes_)
        if unknown.any():
            n_labels = count(len(set(labels[unknown])), "label")
            warn(
                f"{name} did not learn {n_labels} of {count(int(unknown.sum()), 'image')}, such as {labels[unknown][0]}"
            )
        return labels
