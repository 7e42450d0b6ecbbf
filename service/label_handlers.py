"""Compute the responses on label edits."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException

from visterm.pipeline.console import one_line
from visterm.pipeline.store.label_edits import Decided, LabelEdit, LabelEdits
from visterm.teaching.concepts import learn_concept
from visterm.teaching.labels import LabelEditor

from . import schemas
from .handlers import RequestHandlers
from .snapshot import Snapshot


class LabelHandlers:
    """Labels that people add and remove on the page."""

    def __init__(self, handlers: RequestHandlers):
        self.handlers = handlers
        self._edits = LabelEdits(handlers.run.label_edits)
        self._decided: tuple[int, Decided] = 0, Decided(set(), set())  # and the last edit that it includes

    def edit(self, request: schemas.LabelEditRequest) -> dict[str, Any]:
        """Add and remove labels as one step; make `schemas.LabelEditResult`."""
        self.handlers.run_folder.check()
        edits = [(edit.id, edit.label, 1 if edit.change == "add" else -1) for edit in request.edits]
        made = LabelEditor(self.handlers.run).edit(edits, source=request.source, confirm=request.source != "page")
        return self._result(made)

    def undo(self) -> dict[str, Any]:
        """Undo the last step; make `schemas.LabelEditResult`."""
        self.handlers.run_folder.check()
        if not (made := LabelEditor(self.handlers.run).undo(source="page")):
            raise HTTPException(409, "there is no edit of labels to undo")
        return self._result(made)

    def last(self) -> dict[str, Any]:
        """Make `schemas.LastLabelEdit`."""
        return {"last": _step(self._edits.last_step())}

    def decided(self) -> Decided:
        """What people decided."""
        last = self._edits.last()
        if self._decided[0] != last:
            self._decided = last, self._edits.decided()
        return self._decided[1]

    def concept(self, snapshot: Snapshot, label: str, skipped: set[int]) -> dict[str, Any]:
        """Make `schemas.ConceptState`; `skipped`: ids of images not to ask about now."""
        searcher, summary = snapshot.searcher, self.handlers.image_summary
        known = learn_concept(searcher, label, self.decided().refused, skipped)
        return {
            "label": label,
            "yes": len(known.yes),
            "no": len(known.no),
            "ask": None if known.ask is None else summary(snapshot, known.ask),
            "n_sure": len(known.sure),
            "sure": [searcher.images[row].id for row in known.sure[: schemas.MAX_SELECTED].tolist()],
            "surest": [summary(snapshot, row) for row in known.sure[: schemas.MAX_SUREST].tolist()],
            "version": searcher.version,
        }

    def _result(self, made: list[LabelEdit]) -> dict[str, Any]:
        snapshot, problem = self.handlers.reloader.refresh(), self.handlers.reloader.problem
        place = snapshot.searcher.place
        rows = [place[number] for number in dict.fromkeys(edit.image for edit in made) if number in place]
        return {
            "changed": len(rows),
            "images": [self.handlers.image_summary(snapshot, row) for row in rows],
            "last": _step(self._edits.last_step()),
            "version": snapshot.searcher.version,
            "behind": problem and one_line(problem),
        }


def _step(edits: list[LabelEdit]) -> dict[str, Any] | None:
    """Make `schemas.LabelStep`; None without edits."""
    if not edits:
        return None
    first = edits[0]
    return {
        "step": first.step,
        "time": first.time,
        "added": sorted({edit.label for edit in edits if edit.change == 1})[: schemas.MAX_LABELS],
        "removed": sorted({edit.label for edit in edits if edit.change == -1})[: schemas.MAX_LABELS],
        "images": len({edit.image for edit in edits}),
    }
