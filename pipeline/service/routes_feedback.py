"""Routes: relevance marks and updates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from . import schemas as api
from .handlers import RequestHandlers
from .responses import Json


def add_marks(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add marks of results, and the learner that they move."""
    marks = handlers.teacher.marks

    def standing(query: str) -> dict[str, Any]:
        rows = [mark._asdict() for mark in marks.of(query)]
        return {"query": query, "marks": [{key: row[key] for key in api.Marked.model_fields} for row in rows]}

    @app.get("/marks", response_model=api.MarksOfQuery, tags=["marks"])
    async def read(query: Annotated[api.Key, Query()]) -> Response:
        """Marks of a query; its key is in every answer."""
        return Json(await handlers.others.run(standing, query))

    @app.post("/marks", response_model=api.MarksOfQuery, tags=["marks"])
    async def mark(asked: api.MarkAsked) -> Response:
        """Mark a result. The mark is on disk when this is answered."""
        snapshot = handlers.snapshot

        def kept() -> dict[str, Any]:
            handlers.mark(snapshot, asked)
            return standing(asked.query)

        return Json(await handlers.others.run(kept))

    @app.post("/marks/undo", response_model=api.MarksOfQuery, tags=["marks"])
    async def undo(asked: api.QueryAsked) -> Response:
        """Take back the last mark of a query."""

        def undone() -> dict[str, Any]:
            if marks.undo(asked.query) is None:
                raise HTTPException(409, "nothing to undo: this query has no marks")
            return standing(asked.query)

        return Json(await handlers.others.run(undone))

    @app.post("/feedback/update", response_model=api.Taught, tags=["marks"])
    async def update(asked: api.UpdateAsked) -> Response:
        """Teach a learner the marks that stand. A model that would get worse on held-out images is not taken."""
        return Json(await handlers.lessons.run(handlers.update, asked.learner, asked.query))

    @app.post("/feedback/{how}", response_model=api.TakenBack, tags=["marks"])
    async def take_back(how: Literal["undo", "reset"], asked: api.LearnerAsked) -> Response:
        """Undo the last update, or go back to the learner as it was trained."""
        return Json(await handlers.lessons.run(handlers.take_back, how, asked.learner))

    @app.get("/feedback/export", response_model=list[api.Anything], tags=["marks"])
    async def export() -> Response:
        """Every mark ever made, and every one taken back, in order."""
        headers = {"Content-Disposition": 'attachment; filename="marks.json"'}
        return Json(await handlers.others.run(marks.export), headers=headers)
