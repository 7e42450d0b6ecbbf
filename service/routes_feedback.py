"""Routes: relevance marks and updates of learners."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query
from starlette.responses import Response

from . import schemas
from .feedback_handlers import FeedbackHandlers
from .responses import JsonResponse


def add_feedback_routes(app: FastAPI, feedback: FeedbackHandlers) -> None:
    """Add the routes of relevance marks and of updates from them."""
    general, updates = feedback.handlers.general_pool, feedback.handlers.update_pool

    @app.get("/marks", response_model=schemas.QueryMarks, tags=["marks"])
    async def query_marks(query: Annotated[schemas.Sha256, Query()]) -> Response:
        """List the marks of a query; search responses contain its key."""
        return JsonResponse(await general.run(feedback.marks, query))

    @app.post("/marks", response_model=schemas.QueryMarks, tags=["marks"])
    async def mark(request: schemas.MarkRequest) -> Response:
        """Mark a result as relevant or not. The mark is on disk when the response is sent."""
        return JsonResponse(await general.run(feedback.mark, feedback.handlers.snapshot, request))

    @app.post("/marks/undo", response_model=schemas.QueryMarks, tags=["marks"])
    async def undo_mark(request: schemas.UndoMarkRequest) -> Response:
        """Undo the last mark of a query."""
        return JsonResponse(await general.run(feedback.undo_mark, request.query))

    @app.post("/feedback/update", response_model=schemas.UpdateResult, tags=["marks"])
    async def update(request: schemas.UpdateRequest) -> Response:
        """Update a learner from the marks. An update that lowers held-out precision is rejected."""
        return JsonResponse(await updates.run(feedback.update, request.learner, request.query))

    @app.post("/feedback/undo", response_model=schemas.RevertResult, tags=["marks"])
    async def undo_update(request: schemas.RevertRequest) -> Response:
        """Undo the last update."""
        return JsonResponse(await updates.run(feedback.revert, "undo", request.learner))

    @app.post("/feedback/reset", response_model=schemas.RevertResult, tags=["marks"])
    async def reset(request: schemas.RevertRequest) -> Response:
        """Reset to the trained learner."""
        return JsonResponse(await updates.run(feedback.revert, "reset", request.learner))

    @app.get("/feedback/export", response_model=list[schemas.JsonObject], tags=["marks"])
    async def export_marks() -> Response:
        """Export all marks ever made, including removed ones, in order."""
        headers = {"Content-Disposition": 'attachment; filename="marks.json"'}
        return JsonResponse(await general.run(feedback.trainer.marks.export), headers=headers)
