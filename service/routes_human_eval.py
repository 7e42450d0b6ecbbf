"""Routes: the human evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.plugins.judge.judgements import INSTRUCTIONS, Judgements

from . import schemas, schemas_figures
from .handlers import RequestHandlers
from .responses import JsonResponse


def add_human_eval_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of the human evaluation: tasks, decisions and results."""
    judgements, pool = Judgements(handlers.run.judgements), handlers.general_pool

    def next_task(judge: str) -> dict[str, Any]:
        return judgements.next(judge) | {"instructions": INSTRUCTIONS}

    @app.get("/api/judge/next", response_model=schemas.NextTask, tags=["judging"])
    async def get_next_task(judge: Annotated[schemas.JudgeName, Query()]) -> Response:
        """Return the next image to judge."""
        return JsonResponse(await pool.run(next_task, judge))

    @app.post("/api/judge/decisions", response_model=schemas.NextTask, tags=["judging"])
    async def decide(request: schemas.DecisionRequest) -> Response:
        """Store a decision, and return the next image. The decision is on disk when the response is sent."""

        def store() -> dict[str, Any]:
            handlers.run_folder.check()
            judgements.decide(request.judge, request.task, request.image, request.decision, seconds=request.seconds)
            return next_task(request.judge)

        return JsonResponse(await pool.run(store))

    @app.post("/api/judge/undo", response_model=schemas.NextTask, tags=["judging"])
    async def undo_decision(request: schemas.JudgeRequest) -> Response:
        """Undo a judge's last decision, and return its image to judge again."""

        def undo() -> dict[str, Any]:
            handlers.run_folder.check()
            if judgements.undo(request.judge) is None:
                raise HTTPException(409, "nothing to undo: this judge has not decided anything yet")
            return next_task(request.judge)

        return JsonResponse(await pool.run(undo))

    @app.get("/api/judge/results", response_model=schemas_figures.JudgingResults, tags=["judging"])
    async def results() -> Response:
        """Return precision at k per judge and query, and the coherence of the judges."""
        return JsonResponse(await pool.run(judgements.results))

    @app.get("/api/judge/export", response_class=Response, tags=["judging"])
    async def export_decisions(format: Annotated[Literal["json", "csv", "qrels"], Query()] = "json") -> Response:
        """Export the decisions in force as JSON, CSV or TREC relevance judgements (qrels)."""
        headers = {"Content-Disposition": f'attachment; filename="judgements.{format}"'}
        if format == "json":
            return JsonResponse(await pool.run(judgements.rows), headers=headers)
        text = await pool.run(judgements.csv if format == "csv" else judgements.qrels)
        media_type = "text/csv" if format == "csv" else "text/plain"
        return Response(text.encode(), media_type=media_type, headers=headers)
