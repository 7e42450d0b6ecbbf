"""The state of a run that the service answers from, and its exchange for a newer one while requests go on."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.vectors import extractor_content
from visterm.retrieval import ExactIndex

_log = logging.getLogger(__name__)
_VECTORS_KEPT = 256  # of uploads: a learner switch, a next page, an explanation ask again


class QueryVector(NamedTuple):
    """One query that was found or read."""

    name: str
    key: str  # SHA-256 of the image's bytes
    Q: Any  # CSR or ndarray (1, n_features), as the gallery
    row: int  # of the collection, -1 for none


class Snapshot:
    """One state of a run. A request takes one and is answered from it throughout.

    Parameters
    ----------
    searcher : Searcher
    like : Snapshot, optional
        The one before: what has not changed is taken from it.

    Attributes
    ----------
    searcher : Searcher
    labels : Counter
        Images of each label.
    sizes : int32 array, (n_images, 2)
        Width and height in pixels; 0 where unknown.
    extractor : str
        Fingerprint of what vectors are made with.
    default_learner : str
    """

    def __init__(self, searcher: Searcher, like: Snapshot | None = None):
        self.searcher = searcher
        self._vectors: dict[str, Any] = {}
        self.labels: Counter[str]
        self.sizes: np.ndarray
        self.extractor: str
        if like is not None and searcher.shares_images(like.searcher):
            self.labels, self.sizes, self.extractor = like.labels, like.sizes, like.extractor
        else:
            self.labels = Counter(label for image in searcher.images for label in image.labels)
            self.sizes = _sizes(searcher)
            self.extractor = extractor_content(searcher.run)
        usual = searcher.default_learner()
        self.default_learner = usual if usual in searcher.learners else "cosine"  # nothing is trained yet
        self.used = {self.default_learner}  # learners whose indexes are made, and which a newer state should have, too
        self._indexes_of: dict[tuple[str, str], tuple[Any, np.ndarray]] = {}
        self._metrics_of: dict[str, dict[str, int]] = {}
        self._lock = threading.Lock()

    @cached_property
    def rows_by_key(self) -> dict[str, int]:
        """A row of the collection by the SHA-256 of its image."""
        return {image.sha256: row for row, image in reversed(list(enumerate(self.searcher.images)))}

    def image(self, number: int) -> Image:
        """Return an image by its id.

        Raises
        ------
        KeyError
            There is none of this id.
        """
        return self.searcher.images[self.searcher.place[number]]

    def ask_image(self, number: int) -> QueryVector:
        """Return an image of the collection as a query; KeyError as `image`."""
        row = self.searcher.place[number]
        image = self.searcher.images[row]
        return QueryVector(image.path, image.sha256, self.searcher.X[row : row + 1], row)

    def ask_pixels(self, name: str, key: str, pixels: Any) -> QueryVector:
        """Return a picture from outside as a query.

        Parameters
        ----------
        name, key : str
        pixels : function () -> RGB uint8 array (height, width, 3)
            Called only if the vector is not known yet.
        """
        with self._lock:
            Q = self._vectors.get(key)
        if Q is None:
            asked = self.searcher.queries([pixels()])
            if asked.errors:
                raise UserError(f"{name}: {asked.errors[0]}")
            Q = asked.Q
            with self._lock:
                if len(self._vectors) >= _VECTORS_KEPT:
                    del self._vectors[next(iter(self._vectors))]
                self._vectors[key] = Q
        return QueryVector(name, key, Q, -1)

    def rank(
        self,
        asked: QueryVector,
        learner: str,
        k: int,
        offset: int = 0,
        *,
        label: str | None = None,
        exclude_duplicates: bool = False,
    ) -> list[tuple[int, float]]:
        """Rank the collection for a query.

        Parameters
        ----------
        asked : QueryVector
            One of the collection is left out of its own results.
        learner : str
        k, offset : int
            How many, and how many to pass over.
        label : str, optional
            Only images of this label.
        exclude_duplicates : bool, default=False
            No image twice, and not the query itself under another name.

        Returns
        -------
        list of (row, score)
            Best first.
        """
        images = self.searcher.images
        if label is None:
            index: Any = self.searcher.index(learner)
            rows, own = None, asked.row
        else:
            index, rows = self._index_of(learner, label)
            own = int(np.searchsorted(rows, asked.row))
            own = own if own < len(rows) and rows[own] == asked.row else -1
        self.used.add(learner)
        n, wanted = len(images) if rows is None else len(rows), offset + k
        depth = wanted
        while True:
            depth = min(depth, n)
            ranking = index.search(asked.Q, k=depth, exclude=[own])
            found = [
                (place if rows is None else int(rows[place]), score)
                for place, score in zip(ranking.indices[0].tolist(), ranking.scores[0].tolist(), strict=True)
                if place >= 0
            ]
            if exclude_duplicates:
                found = _without_duplicates(found, images, asked.key)
            if len(found) >= wanted or depth == n:
                return found[offset:wanted]
            depth *= 8  # duplicates left too few

    def _index_of(self, learner: str, label: str) -> tuple[Any, np.ndarray]:
        """The index of the images of one label, and which rows these are: a rare label costs no pass over all."""
        if (found := self._indexes_of.get((learner, label))) is None:
            searcher, rows = self.searcher, self.rows_of(label)
            labels = searcher.labels_for(learner)
            some = None if labels is None else labels[rows]
            n_jobs = searcher.config.compute.n_jobs
            found = ExactIndex(searcher.learner(learner), searcher.X[rows], some, n_jobs=n_jobs), rows
            with self._lock:
                self._indexes_of[learner, label] = found
                while sum(len(rows) for _, rows in self._indexes_of.values()) > len(searcher.images) > len(rows):
                    del self._indexes_of[next(iter(self._indexes_of))]
        return found

    def rows_of(self, label: str) -> np.ndarray:
        """Rows of the images of a label, in order."""
        return np.array([row for row, image in enumerate(self.searcher.images) if label in image.labels], np.intp)

    def rank_rows(self, rows: list[int], learner: str, k: int) -> list[list[tuple[int, float]]]:
        """Rank the collection for some of its images at once, each without itself: lists of (row, score)."""
        self.used.add(learner)
        n = len(self.searcher.images)
        ranking = self.searcher.index(learner).search(self.searcher.X[rows], k=min(k, n), exclude=rows)
        return [
            [(row, score) for row, score in zip(some, scores, strict=True) if row >= 0]
            for some, scores in zip(ranking.indices.tolist(), ranking.scores.tolist(), strict=True)
        ]

    def metric(self, learner: str, row: int) -> dict[str, int]:
        """Which of a learner's metrics ranks an image, ``{"metric": number}``; of a learner with one metric ``{}``."""
        labels = self.searcher.images[row].labels
        number = self._metrics(learner).get(next(iter(labels), ""))
        return {} if number is None or len(labels) != 1 else {"metric": number}

    def _metrics(self, learner: str) -> dict[str, int]:
        """Number of the metric of each label (MuSL)."""
        if learner not in self._metrics_of:
            model: Any = self.searcher.learner(learner)
            metrics = getattr(model, "metric_of_category_", None)
            self._metrics_of[learner] = (
                {} if metrics is None else dict(zip(model.classes_.tolist(), map(int, metrics), strict=True))
            )
        return self._metrics_of[learner]

    def load(self) -> None:
        """Load all learners, which are mapped: later there may be others on disk."""
        for name in self.searcher.learners:
            try:
                self.searcher.learner(name)
            except UserError as error:  # who asks for it is told the same
                _log.warning("%s", error)

    def warm(self, learners: set[str]) -> None:
        """Load learners, make their indexes and touch what a search touches, so that no request waits for it."""
        for name in learners & set(self.searcher.learners):
            with contextlib.suppress(UserError):  # who asks for it is told
                self.used.add(name)
                index = self.searcher.index(name)
                for n in (1, 32):  # alone and together, which is other compiled code
                    index.search(self.searcher.X[:n], k=1)


def _without_duplicates(found: list[tuple[int, float]], images: list[Image], key: str) -> list[tuple[int, float]]:
    """The first of each content, and none of the query's."""
    seen, kept = {key}, []
    for row, score in found:
        if images[row].sha256 not in seen:
            seen.add(images[row].sha256)
            kept.append((row, score))
    return kept


def _sizes(searcher: Searcher) -> np.ndarray:
    """Width and height of every image, from the catalogue."""
    sizes = np.zeros((len(searcher.images), 2), np.int32)
    with contextlib.closing(Collection(searcher.run.collection)) as collection:
        for number, width, height in collection.sizes():
            if (row := searcher.place.get(number)) is not None:
                sizes[row] = width, height
    return sizes
