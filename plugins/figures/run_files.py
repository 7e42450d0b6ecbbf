"""Rankings and relevance in the formats of other evaluation programs: TREC's, and the dictionaries of ranx."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from visterm.learners.blend import effective
from visterm.pipeline.console import csv_text
from visterm.pipeline.evaluation.held_out import ranking_index
from visterm.pipeline.evaluation.measure import EvalTask
from visterm.retrieval import ExactIndex

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

_QUERIES = 256  # whose full rankings are held at a time


def write_run_files(folder: Path, learners: Mapping[str, Any], task: EvalTask, config: Config) -> None:
    """Write the full rankings of learners, and which images are relevant, into a new folder.

    It holds ``qrels.trec`` and ``qrels.json``, ``NAME.trec`` and ``NAME.json`` of each learner, and ``images.csv`` with
    the path of each id. Queries and images are named by their ids in the run, since paths may hold blanks. Queries
    without a relevant image are skipped, as in all means of an evaluation.
    """
    folder.mkdir()
    counted = np.flatnonzero(np.diff(task.relevance.indptr))  # rows of the queries with a relevant image
    ids = [str(image.id) for image in task.gallery]
    queries = [str(task.queries[row].id) for row in counted.tolist()]
    relevant = ({ids[i]: 1 for i in task.relevance[[row]].indices} for row in counted)
    judged = zip(queries, relevant, strict=True)
    _write(folder, "qrels", judged, lambda query, image, _, one: f"{query} 0 {image} {one}")
    for name, learner in learners.items():
        ranked = _rankings(learner, task, config, counted, ids)
        tag = f"visterm-{name}"
        _write(
            folder,
            name,
            zip(queries, ranked, strict=True),
            lambda query, image, rank, score, tag=tag: f"{query} Q0 {image} {rank} {score!r} {tag}",
        )
    images = {image.id: image.path for image in (*task.queries, *task.gallery)}
    (folder / "images.csv").write_text(csv_text(["id", "path"], sorted(images.items())), encoding="utf-8")


def _rankings(
    learner: Any, task: EvalTask, config: Config, counted: np.ndarray, ids: list[str]
) -> Iterator[dict[str, float]]:
    """Scores of all images of each query, the best first."""
    labels = None if task.own or task.classes is None else task.classes[1]
    exact = ExactIndex(effective(learner), task.X, labels, n_jobs=config.compute.n_jobs)
    index = ranking_index(exact, task.X, config)
    k = len(task.gallery) - task.own
    for start in range(0, len(counted), _QUERIES):
        rows = counted[start : start + _QUERIES]
        ranking = index.search(task.Q[rows], k=k, exclude=rows if task.own else np.full(len(rows), -1))
        for indices, scores in zip(ranking.indices, falling(ranking.scores), strict=True):
            yield {ids[i]: float(score) for i, score in zip(indices, scores, strict=True)}


def falling(scores: np.ndarray) -> np.ndarray:
    """Scores by rank, each below the one before by the smallest step of float32 at least.

    Other programs sort by score, and break ties in their own ways.
    """
    scores = scores.copy()
    for rank in range(1, scores.shape[1]):
        below = np.nextafter(scores[:, rank - 1], np.float32(-np.inf))
        np.minimum(scores[:, rank], below, out=scores[:, rank])
    return scores


def _write(folder: Path, name: str, queries: Iterable[tuple[str, dict[str, Any]]], line: Callable[..., str]) -> None:
    """Write one file of each format, query by query."""
    with (
        open(folder / f"{name}.trec", "w", encoding="utf-8") as trec,
        open(folder / f"{name}.json", "w", encoding="utf-8") as dictionaries,
    ):
        for number, (query, images) in enumerate(queries):
            dictionaries.write(f"{',' if number else '{'}\n{json.dumps(query)}: {json.dumps(images)}")
            ranked = enumerate(images.items(), start=1)
            trec.writelines(f"{line(query, image, rank, value)}\n" for rank, (image, value) in ranked)
        dictionaries.write("\n}\n")
