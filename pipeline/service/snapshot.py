"""One state of a run, which the service searches."""

from __future__ import annotations

import contextlib
import copy
import logging
import mmap
import threading
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.examples import Region, region_vector
from visterm.pipeline.search.filters import NO_FILTER, Albums, Filter
from visterm.pipeline.search.names import NameIndex
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.catalogue import Collection, Image
from visterm.pipeline.store.vectors import extractor_content
from visterm.retrieval import ExactIndex

_log = logging.getLogger(__name__)
_SAMPLE = 128  # images whose best scores tell what is usual
_UNLIKE_SHARE = 0.02  # of these best scores are low
_MAX_VECTORS = 256  # of uploads, for the next page, another learner and explanations


class QueryVector(NamedTuple):
    """A query and its vector."""

    name: str
    key: str  # SHA-256 of the image's bytes; "" for several images or a part of one, which take no marks
    Q: Any  # CSR or ndarray (1, n_features), as the gallery
    row: int  # of the collection; -1 for other images
    others: frozenset[int] = frozenset()  # rows of further examples, which are no results either


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
        self._names: dict[str, Any] = {}  # albums and indexes of names, made when they are first needed
        if like is not None and searcher.shares_images(like.searcher):
            self.labels, self.sizes, self.extractor = like.labels, like.sizes, like.extractor
            self._names = like._names
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
        self._indexes: dict[tuple[str, Filter, bool], tuple[Any, np.ndarray]] = {}  # of the images that pass a filter
        self._metrics: dict[str, dict[str, int]] = {}  # number of each label's metric (MuSL)
        self._low: dict[str, float] = {}  # score of each learner below which nothing is much like a query
        self._lock = threading.Lock()

    @cached_property
    def rows_by_key(self) -> dict[str, int]:
        """The first row of each image SHA-256."""
        return {image.sha256: row for row, image in reversed(list(enumerate(self.searcher.images)))}

    @cached_property
    def rows_by_path(self) -> dict[str, int]:
        """The row of each image by its path."""
        return {image.path: row for row, image in enumerate(self.searcher.images)}

    def albums(self) -> Albums:
        """Return the images by label and by folder."""
        return self._made("albums", lambda: Albums(self.searcher.images))

    def name_index(self, kind: str) -> NameIndex:
        """Return the index of the names of all labels or folders, the largest first, or of all image files."""

        def make() -> NameIndex:
            if kind == "image":
                return NameIndex([image.path for image in self.searcher.images])
            return NameIndex(list(self.albums().labels if kind == "label" else self.albums().folders))

        return self._made(kind, make)

    def _made(self, name: str, make: Any) -> Any:
        if name not in self._names:
            self._names[name] = make()  # two threads may both make it, and one is kept
        return self._names[name]

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

        def vector(image: np.ndarray) -> Any:
            queries = self.searcher.queries([image])
            if queries.errors:
                raise UserError(f"{name}: {queries.errors[0]}")
            return queries.Q

        return QueryVector(name, key, self._vector(key, lambda: vector(pixels())), -1)

    def region_query(self, query: QueryVector, region: Region, image: Any) -> QueryVector:
        """Return a part of an image as a query; `image` gives its file or pixels and is called unless it is cached."""
        Q = self._vector(f"{query.key} {region}", lambda: region_vector(self.searcher, image(), region))
        return query._replace(key="", Q=Q)

    def _vector(self, key: str, make: Callable[[], Any]) -> Any:
        """Return a vector by key, made unless it is among the last ones."""
        with self._lock:
            Q = self._vectors.get(key)
        if Q is None:
            Q = make()
            with self._lock:
                if len(self._vectors) >= _MAX_VECTORS:
                    del self._vectors[next(iter(self._vectors))]
                self._vectors[key] = Q
        return Q

    def rank(
        self,
        query: QueryVector,
        learner: str,
        k: int,
        offset: int = 0,
        *,
        wanted: Filter = NO_FILTER,
        exclude_duplicates: bool = False,
        learned: float | None = None,
    ) -> list[tuple[int, float]]:
        """Rank the collection for a query, whose images are excluded from its own results: (row, score), best first.

        Only images that pass the filter; without duplicates of the query or an earlier result, if excluded.
        """
        images = self.searcher.images
        index, rows, passes = self._index_of(learner, wanted, learned)
        excluded = query.row
        if rows is not None:
            place = int(np.searchsorted(rows, query.row))
            excluded = place if place < len(rows) and rows[place] == query.row else -1
        self.used.add(learner)
        n, n_wanted = len(images) if rows is None else len(rows), offset + k
        if n == 0:
            return []
        depth = n_wanted + len(query.others)
        while True:
            depth = min(depth, n)
            ranking = index.search(query.Q, k=depth, exclude=[excluded])
            results = [
                (place if rows is None else int(rows[place]), score)
                for place, score in zip(ranking.indices[0].tolist(), ranking.scores[0].tolist(), strict=True)
                if place >= 0
            ]
            if query.others or passes is not None:
                results = [
                    (row, score)
                    for row, score in results
                    if row not in query.others and (passes is None or passes[row])
                ]
            if exclude_duplicates:
                results = _without_duplicates(results, images, query.key)
            if len(results) >= n_wanted or depth == n:
                return results[offset:n_wanted]
            depth *= 8  # too few are left

    def _index_of(
        self, learner: str, wanted: Filter, learned: float | None
    ) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
        """Return an index to search for images that pass a filter.

        For few of them it is one of their own, with their rows, so that a rare label is searched fast. For most images
        it is the index of all, and whether each row passes.
        """
        if wanted == NO_FILTER:
            return self.searcher.index(learner, learned), None, None
        model: Any = self.searcher.blend(learner, learned)
        key = learner, wanted, self.searcher.share(learner, learned) == 1 or model.shares_gallery
        if (cached := self._indexes.get(key)) is not None:
            return _by(cached[0], model), cached[1], None
        searcher, rows = self.searcher, self.rows_of(wanted)
        if 2 * len(rows) > len(searcher.images):
            passes = np.zeros(len(searcher.images), bool)
            passes[rows] = True
            return searcher.index(learner, learned), None, passes
        labels = searcher.labels_for(learner)
        row_labels = None if labels is None else labels[rows]
        n_jobs = searcher.config.compute.n_jobs
        index = ExactIndex(model, searcher.X[rows], row_labels, n_jobs=n_jobs) if len(rows) else None
        with self._lock:
            self._indexes[key] = index, rows
            while sum(len(rows) for _, rows in self._indexes.values()) > len(searcher.images) > len(rows):
                del self._indexes[next(iter(self._indexes))]
        return index, rows, None

    def rows_of(self, wanted: Filter) -> np.ndarray:
        """Return the rows of the images that pass a filter, in order."""
        if not wanted.without and wanted.folder is None and len(wanted.labels) == 1:
            return np.array(self.albums().labels.get(wanted.labels[0], []), np.intp)
        return wanted.rows(self.searcher.images)

    def rank_rows(self, rows: list[int], learner: str, k: int) -> list[list[tuple[int, float]]]:
        """Rank the collection for several of its images at once, each without itself: lists of (row, score)."""
        self.used.add(learner)
        n = len(self.searcher.images)
        ranking = self.searcher.index(learner).search(self.searcher.X[rows], k=min(k, n), exclude=rows)
        return [
            [(row, score) for row, score in zip(found_rows, scores, strict=True) if row >= 0]
            for found_rows, scores in zip(ranking.indices.tolist(), ranking.scores.tolist(), strict=True)
        ]

    def is_unlike(self, learner: str, ranked: list[tuple[int, float]]) -> bool:
        """Whether the best score is lower than nearly all images of the collection get as queries.

        No fixed score says so: each learner has its own scale.
        """
        if not ranked or len(self.searcher.images) < _SAMPLE:
            return False
        if learner not in self._low:
            sample = np.random.default_rng(0).choice(len(self.searcher.images), _SAMPLE, replace=False)
            index, model = self.searcher.index(learner), self.searcher.learner(learner)
            best = []
            for row in sample.tolist():  # one by one: all of them together would map nearly all of W
                best.append(index.search(self.searcher.X[[row]], k=1, exclude=[row]).scores)
                release_pages(model)
            self._low[learner] = float(np.quantile(best, _UNLIKE_SHARE))
        return ranked[0][1] < self._low[learner]

    def has_metrics(self, learner: str) -> bool:
        """Whether a learner has several metrics."""
        return bool(self._metrics_of(learner))

    def metric(self, learner: str, row: int) -> dict[str, int]:
        """Return ``{"metric": number}``, the learner's metric that ranks an image; ``{}`` if it has one metric."""
        labels = self.searcher.images[row].labels
        number = self._metrics_of(learner).get(next(iter(labels), ""))
        return {} if number is None or len(labels) != 1 else {"metric": number}

    def _metrics_of(self, learner: str) -> dict[str, int]:
        if learner not in self._metrics:
            model: Any = self.searcher.learner(learner)
            metrics: dict[str, int] = {}
            if model.by_category:
                metrics = dict(zip(model.classes_.tolist(), model.metric_of_category_.tolist(), strict=True))
            self._metrics[learner] = metrics
        return self._metrics[learner]

    def load(self) -> None:
        """Load all learners now (memory-mapped): their files may be replaced later."""
        for name in self.searcher.learners:
            try:
                self.searcher.learner(name)
            except UserError as error:  # a search with it raises the same
                _log.warning("%s", error)

    def release(self) -> None:
        """Release the memory of mapped arrays of all learners; requests map again what they read."""
        for name in self.searcher.learners:
            with contextlib.suppress(UserError):
                release_pages(self.searcher.learner(name))

    def warm(self, learners: set[str]) -> None:
        """Make the indexes of learners and run a search with each, so that no request waits for it.

        This maps little of W at a time, and releases it: that of the snapshot which is still in use is in memory, too.
        """
        for name in learners & set(self.searcher.learners):
            with contextlib.suppress(UserError):  # a search with it raises the same
                self.used.add(name)
                index = self.searcher.index(name)
                self.is_unlike(name, [(0, 0.0)])
                for rows in ([0], [0] * 32):  # single and batched searches run different compiled code
                    index.search(self.searcher.X[rows], k=1)
                release_pages(self.searcher.learner(name))


def release_pages(learner: Any) -> None:
    """Release the memory of arrays that are mapped from files; the system keeps it as cache, and maps it again if read.

    Arrays mapped to be written to are skipped, as they hold what no file has: the block of a feedback version.
    """
    for array in vars(learner).values():
        if isinstance(array, np.memmap) and array.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
            mapped: Any = array
            mapped._mmap.madvise(mmap.MADV_DONTNEED)


def _by(index: Any, model: Any) -> Any:
    """The same gallery, ranked by another share of its learner."""
    if index is not None and index.learner is not model:
        index = copy.copy(index)
        index.learner = model
    return index


def _without_duplicates(results: list[tuple[int, float]], images: list[Image], key: str) -> list[tuple[int, float]]:
    """Keep the first result of each content other than the query's."""
    seen, kept = {key}, []
    for row, score in results:
        if images[row].sha256 not in seen:
            seen.add(images[row].sha256)
            kept.append((row, score))
    return kept
