"""One state of a run, which the service searches."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.queries import KnownImage, Queries
from visterm.pipeline.search.searcher import Searcher
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.vectors import extractor_content

_log = logging.getLogger(__name__)
_SAMPLE = 128  # images whose best scores tell what is usual
_UNLIKE_SHARE = 0.02  # of these best scores are low


class RankingMetric(TypedDict, total=False):
    """The number of the metric that ranks an image, for a learner with several."""

    metric: int


class Snapshot:
    """One state of a run; a request uses the same snapshot throughout.

    Unchanged parts are shared with `like`, the previous snapshot. `labels` counts images per label; `sizes` are widths
    and heights, int32 (n_images, 2), 0 where unknown.
    """

    def __init__(self, searcher: Searcher, like: Snapshot | None = None):
        self.searcher = searcher
        self.labels: Counter[str]
        self.sizes: np.ndarray
        self.extractor: str
        if like is not None and searcher.shares_images(like.searcher):
            self.labels, self.sizes, self.extractor = like.labels, like.sizes, like.extractor
        else:
            self.labels = searcher.images.count_labels()
            self.sizes = searcher.images.sizes
            self.extractor = extractor_content(searcher.run)
        self.is_imported = searcher.config.collection.vectors.file is not None  # vectors made elsewhere
        self.default_learner = searcher.default_learner()
        self._metrics: dict[str, dict[str, int]] = {}  # number of each label's metric (MuSL)
        # Score of each learner below which nothing is much like a query: the same where labels alone have changed.
        self._low: dict[str, float] = {}
        if like is not None:
            self._low |= {name: low for name, low in like._low.copy().items() if self._ranks_as(like, name)}

    def image(self, number: int) -> Image:
        """Return an image by its id; raise KeyError if the collection has none."""
        return self.searcher.images[self.searcher.place[number]]

    def image_queries(self, rows: Sequence[int]) -> Queries:
        """Return images of the collection as queries."""
        searcher = self.searcher
        images = [searcher.images[row] for row in rows]
        known = [KnownImage(image.sha256, partial(os.path.join, searcher.root, image.path)) for image in images]
        names = [image.path for image in images]
        Q = searcher.X[rows] if len(rows) > 1 else searcher.X[rows[0] : rows[0] + 1]  # faster, where one is enough
        return Queries(names, Q, list(range(len(names))), list(rows), {}, known)

    def pixels_query(self, name: str, key: str, pixels: Callable[[], Any]) -> Queries:
        """Return an image from outside of the collection as a query; `pixels` is called unless the vector is cached."""

        def vector() -> Any:
            queries = self.searcher.queries([pixels()])
            if queries.errors:
                raise UserError(f"{name}: {queries.errors[0]}")
            return queries.Q

        return Queries([name], self.searcher.recent(key, vector), [0], [-1], {}, [KnownImage(key, pixels)])

    def is_unlike(self, learner: str, ranked: list[tuple[int, float]]) -> bool:
        """Whether the best score is lower than nearly all images of the collection get as queries.

        No fixed score says so: each learner has its own scale.
        """
        if not ranked or len(self.searcher.images) < _SAMPLE:
            return False
        if learner not in self._low:
            sample = np.random.default_rng(0).choice(len(self.searcher.images), _SAMPLE, replace=False)
            index, model = self.searcher.ranking_index(learner), self.searcher.learner(learner)
            best = []
            for row in sample.tolist():  # one by one: all of them together would map nearly all of W
                best.append(index.search(self.searcher.X[[row]], k=1, exclude=[row]).scores)
                release_pages(model)
            self._low[learner] = float(np.quantile(best, _UNLIKE_SHARE))
        return ranked[0][1] < self._low[learner]

    def _ranks_as(self, other: Snapshot, learner: str) -> bool:
        """Whether a learner gives images the scores that it gives them in another snapshot."""
        mine, theirs = self.searcher, other.searcher
        return mine.same_learner(theirs, learner) and mine.images.contents() == theirs.images.contents()

    def has_metrics(self, learner: str) -> bool:
        """Whether a learner has several metrics."""
        return bool(self._metrics_of(learner))

    def metric(self, learner: str, row: int) -> RankingMetric:
        """Return the learner's metric that ranks an image."""
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
        """Load all learners now: their files may be replaced later."""
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
                index = self.searcher.ranking_index(name)
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
