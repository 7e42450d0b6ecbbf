"""One state of a run, which the service searches."""

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
_MAX_VECTORS = 256  # of uploads, for the next page, another learner and explanations


class QueryVector(NamedTuple):
    """A query and its vector."""

    name: str
    key: str  # SHA-256 of the image's bytes
    Q: Any  # CSR or ndarray (1, n_features), as the gallery
    row: int  # of the collection; -1 for other images


class Snapshot:
    """One state of a run; a request uses the same snapshot throughout.

    Unchanged parts are shared with `like`, the previous snapshot. `labels` counts images per label; `sizes` are widths
    and heights, int32 (n_images, 2), 0 where unknown; `used` names the learners with an index, which the next snapshot
    makes in advance.
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
            self.extractor = extractor_content(searcher.run)
            self.sizes = np.zeros((len(searcher.images), 2), np.int32)
            with Collection(searcher.run.collection) as collection:
                for number, width, height in collection.sizes():
                    if (row := searcher.place.get(number)) is not None:
                        self.sizes[row] = width, height
        default = searcher.default_learner()
        self.default_learner = default if default in searcher.learners else "cosine"  # nothing is trained yet
        self.used = {self.default_learner}
        self._label_indexes: dict[tuple[str, str], tuple[Any, np.ndarray]] = {}
        self._metrics: dict[str, dict[str, int]] = {}  # number of each label's metric (MuSL)
        self._lock = threading.Lock()

    @cached_property
    def rows_by_key(self) -> dict[str, int]:
        """The first row of each image SHA-256."""
        return {image.sha256: row for row, image in reversed(list(enumerate(self.searcher.images)))}

    def image(self, number: int) -> Image:
        """Return an image by its id; raise KeyError if the collection has none."""
        return self.searcher.images[self.searcher.place[number]]

    def image_query(self, number: int) -> QueryVector:
        """Return an image of the collection as a query; raise KeyError as `image` does."""
        row = self.searcher.place[number]
        image = self.searcher.images[row]
        return QueryVector(image.path, image.sha256, self.searcher.X[row : row + 1], row)

    def pixels_query(self, name: str, key: str, pixels: Any) -> QueryVector:
        """Return an image from outside of the collection as a query; `pixels` is called unless the vector is cached."""
        with self._lock:
            Q = self._vectors.get(key)
        if Q is None:
            queries = self.searcher.queries([pixels()])
            if queries.errors:
                raise UserError(f"{name}: {queries.errors[0]}")
            Q = queries.Q
            with self._lock:
                if len(self._vectors) >= _MAX_VECTORS:
                    del self._vectors[next(iter(self._vectors))]
                self._vectors[key] = Q
        return QueryVector(name, key, Q, -1)

    def rank(
        self,
        query: QueryVector,
        learner: str,
        k: int,
        offset: int = 0,
        *,
        label: str | None = None,
        exclude_duplicates: bool = False,
    ) -> list[tuple[int, float]]:
        """Rank the collection for a query, which is excluded from its own results: (row, score), best first.

        Only images with `label`, if given; without duplicates of the query or an earlier result, if excluded.
        """
        images = self.searcher.images
        if label is None:
            index: Any = self.searcher.index(learner)
            rows, excluded = None, query.row
        else:
            index, rows = self._label_index(learner, label)
            place = int(np.searchsorted(rows, query.row))
            excluded = place if place < len(rows) and rows[place] == query.row else -1
        self.used.add(learner)
        n, wanted = len(images) if rows is None else len(rows), offset + k
        depth = wanted
        while True:
            depth = min(depth, n)
            ranking = index.search(query.Q, k=depth, exclude=[excluded])
            results = [
                (place if rows is None else int(rows[place]), score)
                for place, score in zip(ranking.indices[0].tolist(), ranking.scores[0].tolist(), strict=True)
                if place >= 0
            ]
            if exclude_duplicates:
                results = _without_duplicates(results, images, query.key)
            if len(results) >= wanted or depth == n:
                return results[offset:wanted]
            depth *= 8  # too few without the duplicates

    def _label_index(self, learner: str, label: str) -> tuple[Any, np.ndarray]:
        """Return an index of the images with a label, and their rows, so that a rare label is searched fast."""
        if (cached := self._label_indexes.get((learner, label))) is None:
            searcher, rows = self.searcher, self.rows_of(label)
            labels = searcher.labels_for(learner)
            row_labels = None if labels is None else labels[rows]
            n_jobs = searcher.config.compute.n_jobs
            cached = ExactIndex(searcher.learner(learner), searcher.X[rows], row_labels, n_jobs=n_jobs), rows
            with self._lock:
                self._label_indexes[learner, label] = cached
                while sum(len(rows) for _, rows in self._label_indexes.values()) > len(searcher.images) > len(rows):
                    del self._label_indexes[next(iter(self._label_indexes))]
        return cached

    def rows_of(self, label: str) -> np.ndarray:
        """Return the rows of the images with a label, in order."""
        return np.array([row for row, image in enumerate(self.searcher.images) if label in image.labels], np.intp)

    def rank_rows(self, rows: list[int], learner: str, k: int) -> list[list[tuple[int, float]]]:
        """Rank the collection for several of its images at once, each without itself: lists of (row, score)."""
        self.used.add(learner)
        n = len(self.searcher.images)
        ranking = self.searcher.index(learner).search(self.searcher.X[rows], k=min(k, n), exclude=rows)
        return [
            [(row, score) for row, score in zip(found_rows, scores, strict=True) if row >= 0]
            for found_rows, scores in zip(ranking.indices.tolist(), ranking.scores.tolist(), strict=True)
        ]

    def metric(self, learner: str, row: int) -> dict[str, int]:
        """Return ``{"metric": number}``, the learner's metric that ranks an image; ``{}`` if it has one metric."""
        if learner not in self._metrics:
            model: Any = self.searcher.learner(learner)
            metrics: dict[str, int] = {}
            if hasattr(model, "metric_of_category_"):
                metrics = dict(zip(model.classes_.tolist(), model.metric_of_category_.tolist(), strict=True))
            self._metrics[learner] = metrics
        labels = self.searcher.images[row].labels
        number = self._metrics[learner].get(next(iter(labels), ""))
        return {} if number is None or len(labels) != 1 else {"metric": number}

    def load(self) -> None:
        """Load all learners now (memory-mapped): their files may be replaced later."""
        for name in self.searcher.learners:
            try:
                self.searcher.learner(name)
            except UserError as error:  # a search with it raises the same
                _log.warning("%s", error)

    def warm(self, learners: set[str]) -> None:
        """Make the indexes of learners and run a search with each, so that no request waits for it."""
        for name in learners & set(self.searcher.learners):
            with contextlib.suppress(UserError):  # a search with it raises the same
                self.used.add(name)
                index = self.searcher.index(name)
                for n in (1, 32):  # single and batched searches run different compiled code
                    index.search(self.searcher.X[:n], k=1)


def _without_duplicates(results: list[tuple[int, float]], images: list[Image], key: str) -> list[tuple[int, float]]:
    """Keep the first result of each content other than the query's."""
    seen, kept = {key}, []
    for row, score in results:
        if images[row].sha256 not in seen:
            seen.add(images[row].sha256)
            kept.append((row, score))
    return kept
