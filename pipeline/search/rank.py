"""Rank the images of a run for queries: all of them, or those that pass a filter."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from visterm.pipeline.store.images import Image

from .filters import NO_FILTER
from .request import SearchRequest

if TYPE_CHECKING:
    import numpy as np


Ranked = list[tuple[int, float]]  # rows of the gallery and scores, best first

_FEW = 10_000  # images that pass a filter: compared with a query in this process, though Milvus could choose
_ROUNDS = 5  # of looking for results whose files are there: where nearly all are gone, there are fewer results


def rank(
    searcher: Any,
    Q: Any,
    itself: Sequence[int],
    request: SearchRequest,
    *,
    skipped: AbstractSet[int] = frozenset(),
    contents: Sequence[str] | None = None,
    alone: bool = False,
) -> list[Ranked]:
    """Rank the images of a run for each query: rows and scores, best first, without photos whose files are gone.

    `itself` is the row of the image that each query is, which is excluded from its results; -1 for queries from
    elsewhere. Of the request its learner, `k`, `offset` and filter count. Rows that are `skipped` are no results. With
    `contents`, the SHA-256 of the file of each query, duplicates of the query and of earlier results are excluded. If
    ``alone``, neighbours do not count.
    """
    for _ in range(_ROUNDS):
        ranked = _ranked(searcher, Q, itself, request, skipped, contents, alone)
        gone = searcher.deleted({row for results in ranked for row, _ in results})
        if not gone:
            break
        skipped = skipped | gone
    return [[(row, score) for row, score in results if row not in skipped] for results in ranked]


def _ranked(
    searcher: Any,
    Q: Any,
    itself: Sequence[int],
    request: SearchRequest,
    skipped: AbstractSet[int],
    contents: Sequence[str] | None,
    alone: bool,
) -> list[Ranked]:
    """Rank as `rank` does, whether or not the files are there."""
    index, rows, passes = _index_of(searcher, request)
    images, offset, k = searcher.images, request.offset, request.k
    n = len(images) if rows is None else len(rows)
    ranked: list[Ranked] = [[] for _ in itself]
    if n == 0:
        return ranked
    by = (
        None if alone else searcher.by_neighbours(request.learner or searcher.default_learner(), request.learned_weight)
    )
    excluded = list(itself) if rows is None else [_place(rows, row) for row in itself]
    row_of = None if rows is None else rows.tolist()
    depth, unfinished = offset + k + len(skipped), list(range(len(ranked)))
    while unfinished:
        depth = min(depth, n)
        vectors = Q if len(unfinished) == len(ranked) else Q[unfinished]
        if by is None:
            ranking = index.search(vectors, k=depth, exclude=[excluded[i] for i in unfinished])
        else:
            ranking = by.search(vectors, k=depth, exclude=[itself[i] for i in unfinished], among=index, rows=rows)
        for i, places, scores in zip(unfinished, ranking.indices.tolist(), ranking.scores.tolist(), strict=True):
            results = [
                (place if row_of is None else row_of[place], score)
                for place, score in zip(places, scores, strict=True)
                if place >= 0
            ]
            if skipped or passes is not None:
                results = [
                    (row, score) for row, score in results if row not in skipped and (passes is None or passes[row])
                ]
            if contents is not None:
                results = without_duplicates(results, images, contents[i])
            ranked[i] = results[offset : offset + k]
        unfinished = [i for i in unfinished if len(ranked[i]) < k and depth < n]
        depth *= 8  # too few of these are results
    return ranked


def _place(rows: np.ndarray, row: int) -> int:
    """Place of a row among rows in order; -1 if it is not there."""
    place = int(rows.searchsorted(row))
    return place if place < len(rows) and rows[place] == row else -1


def _index_of(searcher: Any, request: SearchRequest) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
    """Return an index to search for images that pass the filter of a request.

    For few images it is an index of these alone, with their rows, so that a rare label is searched fast. For most
    images it is the index of all, and whether each row passes.
    """
    import numpy as np

    from visterm.retrieval import ExactIndex
    from visterm.retrieval.stored import part

    learner, learned, condition = request.learner or searcher.default_learner(), request.learned_weight, request.filter
    if condition == NO_FILTER:
        return searcher.index(learner, learned), None, None
    model: Any = searcher.blend(learner, learned)
    key = learner, condition, searcher.share(learner, learned) == 1 or model.shares_gallery
    if (cached := searcher.filtered.get(key)) is not None:
        return _by(cached[0], model), cached[1], None
    rows, n_images = searcher.gallery.rows_of(condition), len(searcher.images)
    in_milvus = searcher.config.index.kind == "milvus" and len(rows) > _FEW
    if in_milvus or 2 * len(rows) > n_images:
        passes = np.zeros(n_images, bool)  # Milvus has no dates and fields
        passes[rows] = True
        index: Any = searcher.index(learner, learned)
        if in_milvus and hasattr(index, "where"):  # else exact search stands in
            folder = "" if condition.folder == "." else condition.folder and condition.folder.rstrip("/")
            index = index.where(label=condition.label, not_label=condition.not_label, folder=folder)
        return index, None, passes
    labels = searcher.labels_for(learner)
    row_labels = None if labels is None else labels[rows]
    n_jobs = searcher.config.compute.n_jobs
    index = ExactIndex(model, part(searcher.X, rows), row_labels, n_jobs=n_jobs) if len(rows) else None
    searcher.filtered.add(key, (index, rows), max(len(rows), n_images // 256, 1))  # few filters, not only few images
    return index, rows, None


def _by(index: Any, model: Any) -> Any:
    """The same gallery, ranked with another weight of its learner."""
    if index is not None and index.learner is not model:
        index = copy.copy(index)
        index.learner = model
    return index


def without_duplicates(results: Iterable[tuple[int, float]], images: Sequence[Image], sha256: str) -> Ranked:
    """Keep the first result (row, score) of each file content other than the query's."""
    seen, kept = {sha256}, []
    for row, score in results:
        if images[row].sha256 not in seen:
            seen.add(images[row].sha256)
            kept.append((row, score))
    return kept
