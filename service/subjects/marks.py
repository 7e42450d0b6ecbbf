"""Relevance marks, and the learners that are updated from them."""

from __future__ import annotations

import logging
from itertools import zip_longest
from typing import Annotated, Any, Literal, NotRequired

from fastapi import Query
from pydantic import Field, with_config
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from visterm import sparse
from visterm.pipeline.errors import UserError
from visterm.pipeline.search.queries import Queries
from visterm.pipeline.search.rank import rank
from visterm.pipeline.search.request import SearchRequest
from visterm.service.parts import ServiceParts
from visterm.service.responses import JsonResponse
from visterm.service.schemas import BEHIND, Body, ImageId, JsonObject, Name, Sha256
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, Subjects, get, post
from visterm.teaching.feedback import FeedbackReverted, FeedbackTrainer
from visterm.teaching.first import FIRST, can_start

_log = logging.getLogger(__name__)
N_COMPARED = 20  # results compared before and after an update


class FeedbackModel(TypedDict):
    """The feedback that a learner was updated with."""

    version: int
    marks: int


class MarkRequest(Body):
    """A relevance mark for a result of a query."""

    query: Sha256
    image: ImageId
    mark: Literal[1, -1, 0] = Field(description="1: relevant; -1: not relevant; 0: remove the mark")
    learner: Name | None = None


class MarkAnswer(TypedDict):
    """A relevance mark in force."""

    number: int
    time: str
    image: int
    path: str
    mark: Literal[1, -1]
    learner: str
    version: int


class QueryMarks(TypedDict):
    """The marks in force of one query, oldest first."""

    query: str
    marks: list[MarkAnswer]
    learned: Annotated[
        dict[str, list[int]], Field(description="Per learner, the images whose marks it has learned or set aside")
    ]


class UndoMarkRequest(Body):
    """The query whose last mark to undo."""

    query: Sha256


class UpdateRequest(Body):
    """The learner to update, and a query whose top results to compare before and after."""

    learner: Name = "oasis"
    query: Sha256 | None = None


class RevertRequest(Body):
    """The learner to revert."""

    learner: Name = "oasis"


class _InUse(TypedDict):
    version: str
    behind: str | None


@with_config(extra="allow")
class UpdateResult(TypedDict):
    """The outcome of an update."""

    learner: str
    accepted: bool
    reason: Annotated[str | None, Field(description="Why the update was rejected")]
    from_version: int
    to_version: int
    n_relevant: Annotated[int, Field(description="New marks of relevant images used by this update")]
    n_not: Annotated[int, Field(description="New marks of images that are not relevant used by this update")]
    map_before: Annotated[float | None, Field(description="Mean average precision on held-out images without marks")]
    map_after: float | None
    milliseconds: float
    changed_in_top: NotRequired[
        Annotated[int | None, Field(description="Positions among the first 20 whose image changed")]
    ]
    version: str
    behind: Annotated[str | None, Field(description=BEHIND)]


class RevertResult(FeedbackReverted):
    """The outcome of an undo or a reset."""

    version: str
    behind: Annotated[str | None, Field(description=BEHIND)]


class MarkSubject(Subject):
    """Relevance marks of a run, and updates of its learners."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self.trainer = FeedbackTrainer(service.run)

    def models(self) -> dict[str, FeedbackModel]:
        """Return the feedback of every learner that can be updated, or that marks can start."""
        try:
            learners = self.trainer.status()["learners"]
        except UserError as error:  # unreadable marks: the page shows everything else
            _log.warning("%s", error)
            return {}
        if not learners and can_start(self.service.run, FIRST):
            return {FIRST: {"version": 0, "marks": 0}}
        return {name: {"version": model["version"], "marks": model["marks"]} for name, model in learners.items()}

    @get("/marks", "marks")
    def query_marks(self, query: Annotated[Sha256, Query()]) -> QueryMarks:
        """List the marks of a query; search responses contain its key."""
        marks = self.trainer.marks.of(query)
        learned = {
            learner: [mark.image for mark in marks if mark.number in numbers]
            for learner, numbers in self.trainer.settled().items()
        }
        listed: list[Any] = [{name: getattr(mark, name) for name in MarkAnswer.__annotations__} for mark in marks]
        return {"query": query, "marks": listed, "learned": learned}

    @post("/marks", "marks")
    def mark(self, request: MarkRequest) -> QueryMarks:
        """Mark a result as relevant or not. The mark is on disk when the response is sent."""
        snapshot = self.service.snapshot
        image = self.service.image(snapshot, request.image)
        query = self._query(snapshot, request.query)
        learner = self.service.learner(snapshot, request.learner)
        self.trainer.marks.add(
            request.query,
            image,
            request.mark,
            learner=learner,
            version=self.trainer.version(learner),
            vector=sparse.csr_matrix(query.Q) if query.rows[0] < 0 else None,
            extractor=snapshot.extractor,
        )
        return self.query_marks(request.query)

    @post("/marks/undo", "marks")
    def undo_mark(self, request: UndoMarkRequest) -> QueryMarks:
        """Undo the last mark of a query."""
        if self.trainer.marks.undo(request.query) is None:
            raise HTTPException(409, "nothing to undo: this query has no marks")
        return self.query_marks(request.query)

    @post("/feedback/update", "marks", pool="update_pool")
    def update(self, request: UpdateRequest) -> UpdateResult:
        """Update a learner from the marks. An update that lowers held-out precision is rejected."""
        learner, key, old = request.learner, request.query, self.service.reloader.refresh()
        ranks_before = learner if learner in old.searcher.learners else "cosine"  # at which marks start it
        before = [] if key is None else self._top(old, ranks_before, key)
        result: Any = self.trainer.update(learner)
        new = self.service.reloader.refresh()
        if key is not None:
            after = self._top(new, learner, key)
            result["changed_in_top"] = sum(a != b for a, b in zip_longest(before, after))
        return result | self._version(new)

    @post("/feedback/undo", "marks", pool="update_pool")
    def undo_update(self, request: RevertRequest) -> RevertResult:
        """Undo the last update."""
        return {**self.trainer.undo(request.learner), **self._version(self.service.reloader.refresh())}

    @post("/feedback/reset", "marks", pool="update_pool")
    def reset(self, request: RevertRequest) -> RevertResult:
        """Reset to the trained learner."""
        return {**self.trainer.reset(request.learner), **self._version(self.service.reloader.refresh())}

    @get("/feedback/export", "marks")
    async def export_marks(self) -> list[JsonObject]:
        """Export all marks ever made, including removed ones, in order."""
        headers = {"Content-Disposition": 'attachment; filename="marks.json"'}
        marks: Any = JsonResponse(await self.service.general_pool.run(self.trainer.marks.export), headers=headers)
        return marks

    def _version(self, snapshot: Snapshot) -> _InUse:
        """Return the version in use, and why it is older than the run on disk."""
        return {"version": snapshot.searcher.version, "behind": self.service.problem}

    def _top(self, snapshot: Snapshot, learner: str, key: str) -> list[int]:
        """Return the ids of the first N_COMPARED results of a query."""
        learner = self.service.learner(snapshot, learner)
        query = self._query(snapshot, key)
        (ranked,) = rank(snapshot.searcher, query.Q, query.rows, SearchRequest(N_COMPARED, learner))
        return [snapshot.searcher.images[row].id for row, _ in ranked]

    def _query(self, snapshot: Snapshot, key: str) -> Queries:
        """Return the query with a key: an image of the collection, an upload, or a vector stored with its marks."""
        if (row := snapshot.searcher.gallery.rows_by_sha256.get(key)) is not None:
            return snapshot.image_queries([row])
        if self.service.uploads.read(key) is not None:
            return self.service.query(snapshot, None, key)
        Q = self.trainer.marks.vector(key, snapshot.extractor)
        if Q is None:
            raise HTTPException(404, "unknown query; search with it again, then mark")
        Q = Q if sparse.issparse(snapshot.searcher.X) else Q.toarray()
        return Queries(["upload"], Q, [0], [-1], {}, [None])
