"""Routes of the service that people teach it by: marks, updates, and the judging of an evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from . import api
from .answers import Answers
from .guard import Json
from .human_eval.judgements import INSTRUCTIONS, Judgements


def add_marks(app: FastAPI, answers: Answers) -> None:
    """Add marks of results, and the learner that they move."""
    marks = answers.teacher.marks

    def standing(query: str) -> dict[str, Any]:
        rows = [mark._asdict() for mark in marks.of(query)]
        return {"query": query, "marks": [{key: row[key] for key in api.Marked.model_fields} for row in rows]}

    @app.get("/marks", response_model=api.MarksOfQuery, tags=["marks"])
    async def read(query: Annotated[api.Key, Query()]) -> Response:
        """Marks of a query; its key is in every answer."""
        return Json(await answers.others.run(standing, query))

    @app.post("/marks", response_model=api.MarksOfQuery, tags=["marks"])
    async def mark(asked: api.MarkAsked) -> Response:
        """Mark a result. The mark is on disk when this is answered."""
        snapshot = answers.snapshot

        def kept() -> dict[str, Any]:
            answers.mark(snapshot, asked)
            return standing(asked.query)

        return Json(await answers.others.run(kept))

    @app.post("/marks/undo", response_model=api.MarksOfQuery, tags=["marks"])
    async def undo(asked: api.QueryAsked) -> Response:
        """Take back the last mark of a query."""

        def undone() -> dict[str, Any]:
            if marks.undo(asked.query) is None:
                raise HTTPException(409, "nothing to undo: this query has no marks")
            return standing(asked.query)

        return Json(await answers.others.run(undone))

    @app.post("/feedback/update", response_model=api.Taught, tags=["marks"])
    async def update(asked: api.UpdateAsked) -> Response:
        """Teach a learner the marks that stand. A model that would get worse on held-out images is not taken."""
        return Json(await answers.lessons.run(answers.update, asked.learner, asked.query))

    @app.post("/feedback/{how}", response_model=api.TakenBack, tags=["marks"])
    async def take_back(how: Literal["undo", "reset"], asked: api.LearnerAsked) -> Response:
        """Undo the last update, or go back to the learner as it was trained."""
        return Json(await answers.lessons.run(answers.take_back, how, asked.learner))

    @app.get("/feedback/export", response_model=list[api.Anything], tags=["marks"])
    async def export() -> Response:
        """Every mark ever made, and every one taken back, in order."""
        headers = {"Content-Disposition": 'attachment; filename="marks.json"'}
        return Json(await answers.others.run(marks.export), headers=headers)


def add_judging(app: FastAPI, answers: Answers) -> None:
    """Add the human evaluation: what a judge is to look at, what he decides, and what came of it."""
    judgements = Judgements(answers.run.judgements)

    def following(judge: str) -> dict[str, Any]:
        return judgements.next(judge) | {"instructions": INSTRUCTIONS}

    @app.get("/api/judge/next", response_model=api.NextTask, tags=["judging"])
    async def what_is_next(judge: Annotated[api.Judge, Query()]) -> Response:
        """What a judge is to look at next."""
        return Json(await answers.others.run(following, judge))

    @app.post("/api/judge/decisions", response_model=api.NextTask, tags=["judging"])
    async def decide(asked: api.DecisionAsked) -> Response:
        """Keep a decision; it is on disk when this is answered, with what is next."""

        def decided() -> dict[str, Any]:
            judgements.decide(asked.judge, asked.task, asked.image, asked.decision, seconds=asked.seconds)
            return following(asked.judge)

        return Json(await answers.others.run(decided))

    @app.post("/api/judge/undo", response_model=api.NextTask, tags=["judging"])
    async def undo_decision(asked: api.JudgeAsked) -> Response:
        """Take back a judge's last decision; it is asked for again."""

        def undone() -> dict[str, Any]:
            if judgements.undo(asked.judge) is None:
                raise HTTPException(409, "nothing to undo: this judge has decided nothing yet")
            return following(asked.judge)

        return Json(await answers.others.run(undone))

    @app.get("/api/judge/results", response_model=api.Anything, tags=["judging"])
    async def judged() -> Response:
        """Precision at k of each judge and query, and the coherence of the judges."""
        return Json(await answers.others.run(judgements.results))

    @app.get("/api/judge/export", response_class=Response, tags=["judging"])
    async def export_decisions(format: Annotated[Literal["json", "csv", "qrels"], Query()] = "json") -> Response:
        """Every decision that stands: JSON, CSV, or relevance as TREC tools read it."""
        headers = {"Content-Disposition": f'attachment; filename="judgements.{format}"'}
        if format == "json":
            return Json(await answers.others.run(judgements.rows), headers=headers)
        text = await answers.others.run(judgements.csv if format == "csv" else judgements.qrels)
        kind = "text/csv" if format == "csv" else "text/plain"
        return Response(text.encode("utf-8", "surrogateescape"), media_type=kind, headers=headers)
