"""Routes: labels that people add and remove."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query
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

    @app.get("/api/concept", response_model=schemas.ConceptState, tags=["labels"])
    async def concept(
        label: Annotated[schemas.Name, Query(description="A label of at least one image")],
        skip: Annotated[schemas.Ids | None, Query(description="Ids of images not to ask about now")] = None,
    ) -> Response:
        """Say which image to ask about next, to learn what a label means, and which others surely fit it.

        Answers are label edits: POST /api/labels with source=concept adds the label, or removes it, which counts as no.
        """
        skipped = {int(number) for number in skip.split(",")} if skip else set()
        return JsonResponse(await pool.run(labels.concept, labels.handlers.snapshot, label, skipped))

    @app.post("/api/labels", response_model=schemas.LabelEditResult, tags=["labels"])
    async def edit_labels(request: schemas.LabelEditRequest) -> Response:
        """Add labels to images and remove them, as one step; searches use them when the response is sent."""
        return JsonResponse(await pool.run(labels.edit, request))

    @app.post("/api/labels/undo", response_model=schemas.LabelEditResult, tags=["labels"])
    async def undo_labels() -> Response:
        """Undo the last step of label edits."""
        return JsonResponse(await pool.run(labels.undo))
