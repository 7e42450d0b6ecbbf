"""Compute the responses on label edits."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException

from visterm.pipeline.console import one_line
from visterm.pipeline.search.concepts import image_to_ask, score_concept, sure_images
from visterm.pipeline.stages.label import LabelEditor
from visterm.pipeline.store.label_edits import Decided, LabelEdit, LabelEdits, check_label

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
        searcher, label = snapshot.searcher, check_label(label)
        place = searcher.place
        yes = set(searcher.gallery.albums.labels.get(label, ()))
        if not yes:
            raise HTTPException(
                404, f"no photo has the label {one_line(label)}; select some that show it, and name them"
            )
        no = {place[number] for number, refused in self.decided().refused if refused == label and number in place} - yes
        scores = score_concept(searcher.X, yes, no)
        ask = image_to_ask(scores, yes | no | {place[number] for number in skipped if number in place})
        sure = sure_images(scores, yes | no).tolist()
        return {
            "label": label,
            "yes": len(yes),
            "no": len(no),
            "ask": None if ask is None else self.handlers.image_summary(snapshot, ask),
            "n_sure": len(sure),
            "sure": [searcher.images[row].id for row in sure[: schemas.MAX_SELECTED]],
            "surest": [self.handlers.image_summary(snapshot, row) for row in sure[: schemas.MAX_SUREST]],
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
