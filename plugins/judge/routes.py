"""The human evaluation: tasks, decisions and results."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.service.parts import ServiceParts
from visterm.service.responses import JsonResponse
from visterm.service.schemas import Body, ImageId
from visterm.service.subject import Subject, Subjects, get, post

from .judgements import INSTRUCTIONS, Judgements, JudgingProgress, JudgingResults

JudgeName = Annotated[str, Field(min_length=1, max_length=60, description="Name of the judge")]


class JudgeRequest(Body):
    """A judge."""

    judge: JudgeName


class DecisionRequest(JudgeRequest):
    """A judge's decision on an image."""

    task: int = Field(ge=0, le=2**53 - 1)
    image: ImageId
    decision: Literal["relevant", "not", "unsure"]
    seconds: float | None = Field(default=None, description="Time that the judge took")


class NextTask(JudgingProgress):
    """A judge's progress and next image."""

    instructions: str


class JudgeSubject(Subject):
    """Judgements of people on results."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self._judgements = Judgements(service.run.judgements)

    @get("/api/judge/next", "judging")
    def get_next_task(self, judge: Annotated[JudgeName, Query()]) -> NextTask:
        """Return the next image to judge."""
        return {**self._judgements.next(judge), "instructions": INSTRUCTIONS}

    @post("/api/judge/decisions", "judging")
    def decide(self, request: DecisionRequest) -> NextTask:
        """Store a decision, and return the next image. The decision is on disk when the response is sent."""
        self._judgements.decide(request.judge, request.task, request.image, request.decision, seconds=request.seconds)
        return self.get_next_task(request.judge)

    @post("/api/judge/undo", "judging")
    def undo_decision(self, request: JudgeRequest) -> NextTask:
        """Undo a judge's last decision, and return its image to judge again."""
        if self._judgements.undo(request.judge) is None:
            raise HTTPException(409, "nothing to undo: this judge has not decided anything yet")
        return self.get_next_task(request.judge)

    @get("/api/judge/results", "judging")
    def results(self) -> JudgingResults:
        """Return precision at k per judge and query, and the coherence of the judges."""
        return self._judgements.results()

    @get("/api/judge/export", "judging")
    def export_decisions(self, format: Annotated[Literal["json", "csv", "qrels"], Query()] = "json") -> Response:
        """Export the decisions in force as JSON, CSV or TREC relevance judgements (qrels)."""
        headers = {"Content-Disposition": f'attachment; filename="judgements.{format}"'}
        if format == "json":
            return JsonResponse(self._judgements.rows(), headers=headers)
        text = self._judgements.csv() if format == "csv" else self._judgements.qrels()
        media_type = "text/csv" if format == "csv" else "text/plain"
        return Response(text.encode(), media_type=media_type, headers=headers)
