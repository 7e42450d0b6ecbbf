"""Routes: labels that people add and remove."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from . import schemas
from .label_handlers import LabelHandlers
from .responses import JsonResponse


def add_label_routes(app: FastAPI, labels: LabelHandlers) -> None:
    """Add the routes of label edits."""
    pool = labels.handlers.general_pool

    @app.get("/api/labels/last", response_model=schemas.LastLabelEdit, tags=["labels"])
    async def last_edit() -> Response:
        """Say what undoing would undo: the last step of edits of this page, another one, or the command."""
        return JsonResponse(await pool.run(labels.last))

    @app.post("/api/labels", response_model=schemas.LabelEditResult, tags=["labels"])
    async def edit_labels(request: schemas.LabelEditRequest) -> Response:
        """Add labels to images and remove them, as one step; searches use them when the response is sent."""
        return JsonResponse(await pool.run(labels.edit, request))

    @app.post("/api/labels/undo", response_model=schemas.LabelEditResult, tags=["labels"])
    async def undo_labels() -> Response:
        """Undo the last step of label edits."""
        return JsonResponse(await pool.run(labels.undo))
