"""Routes: figures of evaluations, of trainings and of relevance feedback, for the page of figures."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from starlette.responses import Response

from visterm.learners.blend import effective
from visterm.pipeline.errors import UserError
from visterm.pipeline.evaluation.figures import read_figures
from visterm.pipeline.store.versions import LearnerVersions
from visterm.retrieval import ExactIndex

from . import schemas, schemas_figures
from .feedback_handlers import FeedbackHandlers
from .handlers import RequestHandlers
from .responses import JsonResponse
from .routes_run import evaluation_folder
from .snapshot import Snapshot

_EFFECT_QUERIES, _EFFECT_RESULTS = 6, 8


def add_figure_routes(app: FastAPI, feedback: FeedbackHandlers) -> None:
    """Add the routes of figures."""
    handlers = feedback.handlers
    pool = handlers.general_pool

    @app.get("/api/evaluations/{name}/figures", response_model=schemas_figures.EvaluationFigures, tags=["run"])
    async def figures(
        name: str,
        queries: Annotated[int, Query(ge=1, le=50, description="Best and worst queries to list")] = 8,
        confusions: Annotated[int, Query(ge=1, le=200)] = 20,
    ) -> Response:
        """Return the figures of each label, the best and the worst queries, and the labels that are confused."""
        snapshot = handlers.snapshot

        def read() -> dict[str, Any]:
            folder = evaluation_folder(handlers.run, name)
            figures = read_figures(folder, n_queries=queries, n_confusions=confusions)
            images = snapshot.searcher.images
            for query in (*figures["best"], *figures["worst"]):
                for shown in (query, *query["results"]):
                    row = images.row_of_path(shown["path"] if "path" in shown else shown["query"])
                    shown["image"] = None if row is None else handlers.image_summary(snapshot, row)
            return figures

        return JsonResponse(await pool.run(read))

    @app.get("/api/training", response_model=schemas_figures.TrainingCurves, tags=["run"])
    async def training() -> Response:
        """Return the validation figures of each learner along its training."""
        return JsonResponse(await pool.run(_training, handlers.snapshot))

    @app.get("/api/feedback/effect", response_model=schemas_figures.FeedbackEffect, tags=["feedback"])
    async def effect(learner: Annotated[schemas.Name, Query()] = "oasis") -> Response:
        """Compare the first results of marked queries by the trained learner and by its version in force."""
        return JsonResponse(await pool.run(_effect, feedback, handlers.snapshot, learner))


def _training(snapshot: Snapshot) -> dict[str, Any]:
    """Return ``{"learners": {name: {"measure", "baseline", "best_step", "points": [{"step", "value"}]}}}``."""
    learners = {}
    for name in snapshot.searcher.learners:
        try:
            learner: Any = snapshot.searcher.learner(name)
        except UserError:  # searches with it say why
            continue
        points = [
            {"step": int(entry["step"]), "value": float(entry["validation"])}
            for entry in getattr(learner, "history_", None) or []
            if entry.get("validation") is not None and math.isfinite(entry["validation"])
        ]
        if len(points) > 1:
            learners[name] = {
                "measure": getattr(learner, "validation_measure", "mAP"),
                "best_step": getattr(learner, "best_step_", None),
                "baseline": getattr(learner, "cosine_map_", None),
                "points": points,
            }
    return {"learners": learners}


def _effect(feedback: FeedbackHandlers, snapshot: Snapshot, learner: str) -> dict[str, Any]:
    handlers: RequestHandlers = feedback.handlers
    learner = handlers.learner(snapshot, learner)
    status = feedback.trainer.status()
    model = status["learners"].get(learner)
    answer: dict[str, Any] = {"learner": learner, "model": model, "marks": status["relevant"] + status["not"]}
    if model is None or not model["version"]:
        return answer | {"queries": []}
    searcher = snapshot.searcher
    model = effective(LearnerVersions(handlers.run).load(learner, 0))
    base = ExactIndex(model, searcher.X, n_jobs=searcher.config.compute.n_jobs)
    queries: list[dict[str, Any]] = []
    for key, marks in feedback.trainer.marks.standing().items():
        row = searcher.gallery.rows_by_sha256.get(key)
        if row is None or len(queries) == _EFFECT_QUERIES:
            continue  # an upload, whose picture may have expired
        relevant = {mark.image: mark.mark for mark in marks}
        k = min(_EFFECT_RESULTS, len(searcher.images) - 1)
        if k < 1:
            continue
        before, after = (
            index.search(searcher.X[row : row + 1], k=k, exclude=[row]) for index in (base, searcher.index(learner))
        )
        queries.append(
            {
                "image": handlers.image_summary(snapshot, row),
                "before": _images(handlers, snapshot, before.indices[0], relevant),
                "after": _images(handlers, snapshot, after.indices[0], relevant),
            }
        )
    return answer | {"queries": queries}


def _images(handlers: RequestHandlers, snapshot: Snapshot, rows: np.ndarray, marks: dict[int, int]) -> list[Any]:
    shown = [handlers.image_summary(snapshot, int(row)) for row in rows if row >= 0]
    return [image | {"mark": marks.get(image["id"], 0)} for image in shown]
