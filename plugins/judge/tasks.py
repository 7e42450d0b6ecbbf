"""Studies: sets of tasks that judges decide on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from visterm.pipeline.errors import UserError
from visterm.pipeline.store.images import Image

if TYPE_CHECKING:
    from visterm.pipeline.search.searcher import Searcher


N_QUERIES, K, N_RANDOM = 25, 10, 10  # of the paper
DECISIONS = {"relevant": 1.0, "not": 0.0, "unsure": np.nan}  # and their values


class Candidate(NamedTuple):
    """An image of a task."""

    id: int
    path: str
    sha256: str
    rank: int | None  # from 1; None of a random one


class Task(NamedTuple):
    """A query and what is to be judged, the ranked images first."""

    query: Candidate
    candidates: list[Candidate]


class Study(NamedTuple):
    """One set of tasks."""

    number: int
    time: str
    learner: str
    version: str  # of the model
    seed: int
    k: int
    tasks: list[Task]


def draw_tasks(
    searcher: Searcher, learner: str, *, n_queries: int = N_QUERIES, k: int = K, n_random: int = N_RANDOM, seed: int = 0
) -> list[Task]:
    """Draw queries at random, with their k nearest images and random ones.

    Labelled test images query each other, as in `evaluate`; without any, all images do. As in the paper, queries
    with copies among their nearest images are skipped, and the random images share no label with the query. Where the
    run has clicks, queries are those with the largest sum of relevance to other images, as the paper's: that is the
    number of their clicks, by which Pr(a, b) of `TripletSampler` sums over b; `seed` decides among equal ones.
    """
    from visterm.retrieval import ExactIndex
    from visterm.retrieval.stored import part

    images, X = searcher.images, searcher.X
    rows = [row for row, image in enumerate(images) if image.split == "test" and image.labels]
    if len(rows) <= k + 1:
        rows = list(range(len(images)))
    if len(rows) <= k + 1:
        raise UserError(f"run {searcher.run.name}: {len(rows)} images are too few to judge the {k} nearest of them")
    labels = searcher.labels_for(learner)
    index = ExactIndex(
        searcher.blend(learner),
        part(X, np.array(rows)),
        None if labels is None else labels[rows],
        n_jobs=searcher.config.compute.n_jobs,
    )
    by = searcher.by_neighbours(learner)
    rng = random.Random(seed)
    order = rng.sample(range(len(rows)), len(rows))
    if searcher.config.collection.clicks is not None:
        order.sort(key=lambda i: -sum(images[rows[i]].labels.values()))
    tasks: list[Task] = []
    for start in range(0, len(order), 4 * n_queries):
        some = order[start : start + 4 * n_queries]
        asked = [rows[i] for i in some]
        if by is None:
            ranking = index.search(X[asked], k=k, exclude=some)
        else:
            ranking = by.search(X[asked], k=k, exclude=asked, among=index, rows=np.array(rows))
        for i, nearest in zip(some, ranking.indices.tolist(), strict=True):
            results = [images[rows[j]] for j in nearest if j >= 0]
            query = images[rows[i]]
            if len(results) < k or len({query.sha256, *(image.sha256 for image in results)}) <= k:
                continue
            others = _unrelated(query, results, [images[row] for row in rows], n_random, rng)
            ranked = [_candidate(image, rank) for rank, image in enumerate(results, start=1)]
            tasks.append(Task(_candidate(query), ranked + [_candidate(image) for image in others]))
            if len(tasks) == n_queries:
                return tasks
    if not tasks:
        raise UserError(f"run {searcher.run.name}: no query without copies among its {k} nearest images")
    return tasks


def _candidate(image: Image, rank: int | None = None) -> Candidate:
    return Candidate(image.id, image.path, image.sha256, rank)


def _unrelated(
    query: Image, results: Sequence[Image], images: Sequence[Image], n: int, rng: random.Random
) -> list[Image]:
    """Random images that share no label with the query and are not among its results: n, or as many as there are."""
    seen = {query.sha256, *(image.sha256 for image in results)}
    chosen: list[Image] = []
    for row in rng.sample(range(len(images)), len(images)):
        image = images[row]
        if len(chosen) == n:
            break
        if image.sha256 not in seen and query.labels.keys().isdisjoint(image.labels):
            seen.add(image.sha256)
            chosen.append(image)
    return chosen
