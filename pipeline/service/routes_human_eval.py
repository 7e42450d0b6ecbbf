"""Routes: the human evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.pipeline.human_eval.judgements import INSTRUCTIONS, Judgements

from . import schemas as api
from .handlers import RequestHandlers
from .responses import Json


def add_judging(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the human evaluation: what a judge is to look at, what he decides, and what came of it."""
    judgements = Judgements(handlers.run.judgements)

    def following(judge: str) -> dict[str, Any]:
        return judgements.next(judge) | {"instructions": INSTRUCTIONS}

    @app.get("/api/judge/next", response_model=api.NextTask, tags=["judging"])
    async def what_is_next(judge: Annotated[api.Judge, Query()]) -> Response:
        """What a judge is to look at next."""
        return Json(await handlers.others.run(following, judge))

    @app.post("/api/judge/decisions", response_model=api.NextTask, tags=["judging"])
    async def decide(asked: api.DecisionAsked) -> Response:
        """Keep a decision; it is on disk when this is answered, with what is next."""

        def decided() -> dict[str, Any]:
            judgements.decide(asked.judge, asked.task, asked.image, asked.decision, seconds=asked.seconds)
            return following(asked.judge)

        return Json(await handlers.others.run(decided))

    @app.post("/api/judge/undo", response_model=api.NextTask, tags=["judging"])
    async def undo_decision(asked: api.JudgeAsked) -> Response:
        """Take back a judge's last decision; it is asked for again."""

        def undone() -> dict[str, Any]:
            if judgements.undo(asked.judge) is None:
                raise HTTPException(409, "nothing to undo: this judge has decided nothing yet")
            return following(asked.judge)

        return Json(await handlers.others.run(undone))

    @app.get("/api/judge/results", response_model=api.Anything, tags=["judging"])
    async def judged() -> Response:
        """Precision at k of each judge and query, and the coherence of the judges."""
        return Json(await handlers.others.run(judgements.results))

    @app.get("/api/judge/export", response_class=Response, tags=["judging"])
    async def export_decisions(format: Annotated[Literal["json", "csv", "qrels"], Query()] = "json") -> Response:
        """Every decision that stands: JSON, CSV, or relevance as TREC tools read it."""
        headers = {"Content-Disposition": f'attachment; filename="judgements.{format}"'}
        if format == "json":
            return Json(await handlers.others.run(judgements.rows), headers=headers)
        text = await handlers.others.run(judgements.csv if format == "csv" else judgements.qrels)
        kind = "text/csv" if format == "csv" else "text/plain"
        return Response(text.encode("utf-8", "surrogateescape"), media_type=kind, headers=headers)
