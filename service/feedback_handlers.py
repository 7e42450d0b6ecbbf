"""Compute the responses to relevance marks and to updates of learners."""

from __future__ import annotations

import logging
from itertools import zip_longest
from typing import Any, Literal

from scipy import sparse
from starlette.exceptions import HTTPException

from visterm.pipeline.errors import UserError
from visterm.pipeline.search.rank import rank
from visterm.teaching.feedback import FeedbackTrainer
from visterm.teaching.first import FIRST, can_start

from . import schemas
from .handlers import RequestHandlers
from .snapshot import QueryVector, Snapshot

_log = logging.getLogger(__name__)
N_COMPARED = 20  # results compared before and after an update


class FeedbackHandlers:
    """Relevance marks of a run, and the learners updated from them."""

    def __init__(self, handlers: RequestHandlers):
        self.handlers = handlers
        self.trainer = FeedbackTrainer(handlers.run)

    def models(self) -> dict[str, dict[str, int]]:
        """Make `schemas.FeedbackModel` of every learner that can be updated, or that marks can start."""
        try:
            learners = self.trainer.status()["learners"]
        except UserError as error:  # unreadable marks: the page shows everything else
            _log.warning("%s", error)
            return {}
        if not learners and can_start(self.handlers.run, FIRST):
            return {FIRST: {"version": 0, "marks": 0}}
        return {name: {"version": model["version"], "marks": model["marks"]} for name, model in learners.items()}

    def marks(self, key: str) -> dict[str, Any]:
        """Make `schemas.QueryMarks` of a query."""
        marks = [mark._asdict() for mark in self.trainer.marks.of(key)]
        learned = {
            learner: [mark["image"] for mark in marks if mark["number"] in numbers]
            for learner, numbers in self.trainer.settled().items()
        }
        fields = schemas.Mark.model_fields
        return {"query": key, "marks": [{name: mark[name] for name in fields} for mark in marks], "learned": learned}

    def mark(self, snapshot: Snapshot, request: schemas.MarkRequest) -> dict[str, Any]:
        """Store a mark on disk; return the marks of its query."""
        self.handlers.run_folder.check()
        image = self.handlers.image(snapshot, request.image)
        query = self._query(snapshot, request.query)
        learner = self.handlers.learner(snapshot, request.learner)
        self.trainer.marks.add(
            request.query,
            image,
            request.mark,
            learner=learner,
            version=self.trainer.version(learner),
            vector=sparse.csr_matrix(query.Q) if query.row < 0 else None,
            extractor=snapshot.extractor,
        )
        return self.marks(request.query)

    def undo_mark(self, key: str) -> dict[str, Any]:
        """Undo the last mark of a query; return those that remain."""
        self.handlers.run_folder.check()
        if self.trainer.marks.undo(key) is None:
            raise HTTPException(409, "nothing to undo: this query has no marks")
        return self.marks(key)

    def update(self, learner: str, key: str | None) -> dict[str, Any]:
        """Update a learner from the marks, and return once searches use it."""
        self.handlers.run_folder.check()
        old = self.handlers.snapshot
        ranks_before = learner if learner in old.searcher.learners else "cosine"  # at which marks start it
        before = [] if key is None else self._top(old, ranks_before, key)
        result = self.trainer.update(learner)
        new = self.handlers.reloader.refresh()
        changed = {}
        if key is not None:
            changed["changed_in_top"] = sum(a != b for a, b in zip_longest(before, self._top(new, learner, key)))
        return {**result, **changed, **self._version(new)}

    def revert(self, how: Literal["undo", "reset"], learner: str) -> dict[str, Any]:
        """Undo the last update or all of them, and return once searches use the result."""
        self.handlers.run_folder.check()
        result = self.trainer.undo(learner) if how == "undo" else self.trainer.reset(learner)
        return {**result, **self._version(self.handlers.reloader.refresh())}

    def _version(self, snapshot: Snapshot) -> dict[str, Any]:
        """Return the version in use, and why it is older than the run on disk."""
        problem = self.handlers.reloader.problem
        return {"version": snapshot.searcher.version, "behind": problem and self.handlers.public(problem)}

    def _top(self, snapshot: Snapshot, learner: str, key: str) -> list[int]:
        """Return the ids of the first N_COMPARED results of a query."""
        learner = self.handlers.learner(snapshot, learner)
        query = self._query(snapshot, key)
        (ranked,) = rank(snapshot.searcher, query.Q, [query.row], N_COMPARED, learner)
        return [snapshot.searcher.images[row].id for row, _ in ranked]

    def _query(self, snapshot: Snapshot, key: str) -> QueryVector:
        """Return the query with a key: an image of the collection, an upload, or a vector stored with its marks."""
        if (row := snapshot.searcher.gallery.rows_by_sha256.get(key)) is not None:
            return snapshot.image_query(snapshot.searcher.images[row].id)
        if self.handlers.uploads.read(key) is not None:
            return self.handlers.query(snapshot, None, key)
        Q = self.trainer.marks.vector(key, snapshot.extractor)
        if Q is None:
            raise HTTPException(404, "unknown query; search with it again, then mark")
        return QueryVector("upload", key, Q if sparse.issparse(snapshot.searcher.X) else Q.toarray(), -1)
