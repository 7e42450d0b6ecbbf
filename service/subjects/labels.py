"""Labels that people add and remove, and labels that are learned from answers."""

from __future__ import annotations

import io
from typing import Annotated, Literal

from fastapi import Query
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from visterm.pipeline.store.label_edits import Decided, LabelEdit, LabelEdits
from visterm.service.parts import ServiceParts
from visterm.service.schemas import BEHIND, MAX_LABELS, MAX_SELECTED, Body, Ids, ImageId, Name
from visterm.service.subject import Subject, Subjects, get, post
from visterm.service.summaries import ImageSummary
from visterm.teaching.concepts import Growth, follow, followed, growth, learn_concept, offer
from visterm.teaching.labels import LabelEditor

MAX_SUREST = 60  # images of a concept that are described


class LabelChange(Body):
    """A label to add to an image, or to several, or to remove."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": 1, "label": "dog", "change": "add"}]})

    id: ImageId | None = None
    ids: list[ImageId] = Field(default=[], max_length=MAX_SELECTED, description="Or several images")
    label: Name
    change: Literal["add", "remove"]


class LabelEditRequest(Body):
    """Changes of labels, kept and undone together."""

    edits: list[LabelChange] = Field(min_length=1, max_length=MAX_SELECTED)
    source: Literal["page", "queue", "concept"] = Field(
        default="page",
        description="queue and concept: answers, kept where they change nothing, and not asked about again",
    )


class RenameRequest(Body):
    """Labels that become one."""

    labels: list[Name] = Field(min_length=1, max_length=MAX_LABELS)
    into: Name


class UndoLabelsRequest(Body):
    """What to undo."""

    step: int | None = Field(default=None, ge=1, description="Only this step; refused once another one is the last")


_LAST_STEP = UndoLabelsRequest()


class LookedRequest(Body):
    """A label whose images were looked through."""

    label: Name
    last: int | None = Field(default=None, ge=0, description="Only up to the image with this id; default: all images")


class OfferRequest(Body):
    """Whether images that are added are offered for a label."""

    label: Name
    offered: bool


class LabelStep(TypedDict):
    """A step of label edits."""

    step: int
    time: str
    added: list[str]
    removed: list[str]
    images: int


class LastLabelEdit(TypedDict):
    """The step that undoing undoes; null: none."""

    last: LabelStep | None


class LabelEditResult(LastLabelEdit):
    """What changed, with the images as they are now."""

    changed: Annotated[int, Field(description="Number of images")]
    images: list[ImageSummary]
    version: str
    behind: Annotated[str | None, Field(description=BEHIND)]


class ConceptState(TypedDict):
    """What is known of a label that is learned from answers."""

    label: str
    yes: Annotated[int, Field(description="Number of images with the label")]
    no: Annotated[int, Field(description="Number of images that people said do not have it")]
    ask: Annotated[ImageSummary | None, Field(description="The image to ask about next; null: none is left")]
    n_sure: Annotated[int, Field(description="Images without the label that surely fit it")]
    sure: Annotated[list[ImageId], Field(description=f"Their ids, the surest first, at most {MAX_SELECTED:,}")]
    surest: Annotated[list[ImageSummary], Field(description=f"The first {MAX_SUREST} of them")]
    offered: Annotated[
        bool | None, Field(description="Whether added images are offered; null: no answer was given yet")
    ]
    version: str


class Suggested(TypedDict):
    """Images without a label that surely fit it."""

    ids: Annotated[list[ImageId], Field(description=f"The surest first, at most {MAX_SELECTED:,}")]
    certainty: Annotated[
        list[float] | None,
        Field(description="Probability that each is right, as answers left out say; null: too few answers"),
    ]


class GrowingAlbum(TypedDict):
    """A label that was learned from answers, and what was added since somebody looked through it."""

    label: str
    images: int
    last: Annotated[int, Field(description="Id of the last image that was there then")]
    new: Annotated[list[ImageId], Field(description="Images without the label that surely fit it, the surest first")]
    certainty: Annotated[float | None, Field(description="Share of them that is right; null: too few answers")]


class LabelSubject(Subject):
    """Labels that people add and remove on the page."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self._edits = LabelEdits(service.run.label_edits)
        self._growing: tuple[tuple[str, int, float], list[Growth]] | None = None
        self._decided: tuple[int, Decided] = 0, Decided(set(), set())  # and the last edit that it includes

    def decided(self) -> Decided:
        """Return what people decided, read again after edits."""
        last = self._edits.last()
        if self._decided[0] != last:
            self._decided = last, self._edits.decided()
        return self._decided[1]

    @get("/api/labels/last", "labels")
    def last_edit(self) -> LastLabelEdit:
        """Say what undoing would undo: the last step of edits of this page, another one, or the command."""
        return {"last": self._last_step()}

    @get("/api/labels.csv", "labels")
    def export(self) -> Response:
        """Return all labels in effect, as edited, as the CSV table of `visterm label export`."""
        text = io.StringIO()
        LabelEditor(self.service.run).export(text)
        headers = {"Content-Disposition": 'attachment; filename="labels.csv"'}
        data = text.getvalue().encode("utf-8", "surrogateescape")
        return Response(data, media_type="text/csv; charset=utf-8", headers=headers)

    @get("/api/concept", "labels")
    def concept(
        self,
        label: Annotated[Name, Query(description="A label of at least one image")],
        skip: Annotated[Ids | None, Query(description="Ids of images not to ask about now")] = None,
    ) -> ConceptState:
        """Say which image to ask about next, to learn what a label means, and which others surely fit it.

        Answers are label edits: POST /api/labels with source=concept adds the label, or removes it, which counts as no.
        """
        snapshot, summary = self.service.snapshot, self.service.image_summary
        skipped = {int(number) for number in skip.split(",")} if skip else set()
        known = learn_concept(snapshot.searcher, label, self.decided().refused, skipped)
        return {
            "label": label,
            "yes": len(known.yes),
            "no": len(known.no),
            "ask": None if known.ask is None else summary(snapshot, known.ask),
            "n_sure": len(known.sure),
            "sure": [snapshot.searcher.images[row].id for row in known.sure[:MAX_SELECTED].tolist()],
            "surest": [summary(snapshot, row) for row in known.sure[:MAX_SUREST].tolist()],
            "offered": None if (last := followed(self.service.run).get(label)) is None else last >= 0,
            "version": snapshot.searcher.version,
        }

    @get("/api/concept/suggestions", "labels")
    def suggestions(self, label: Annotated[Name, Query(description="A label of at least one image")]) -> Suggested:
        """List the images that surely fit a label, with how certain each is."""
        searcher = self.service.snapshot.searcher
        known = learn_concept(searcher, label, self.decided().refused)
        certainty = known.certainty(searcher)
        return {
            "ids": searcher.images.ids[known.sure[:MAX_SELECTED]].tolist(),
            "certainty": None if certainty is None else certainty[:MAX_SELECTED].round(4).tolist(),
        }

    @get("/api/concepts", "labels")
    def concepts(self) -> list[GrowingAlbum]:
        """List the labels that were learned from answers, with the images that were added and surely fit them."""
        searcher, file = self.service.snapshot.searcher, self.service.run.concepts
        key = searcher.version, self._edits.last(), file.stat().st_mtime if file.exists() else 0.0
        if self._growing is None or self._growing[0] != key:
            self._growing = key, growth(searcher, self.decided().refused)
        return [
            {
                "label": one.label,
                "images": one.n_images,
                "last": one.last,
                "new": one.new[:MAX_SELECTED],
                "certainty": one.certainty,
            }
            for one in self._growing[1]
        ]

    @post("/api/concept/looked", "labels")
    def looked(self, request: LookedRequest) -> list[GrowingAlbum]:
        """Say that the images that are there now were looked through: none of them is new for this label."""
        follow(self.service.snapshot.searcher, [request.label], again=True, last=request.last)
        return self.concepts()

    @post("/api/concept/offer", "labels")
    def offer(self, request: OfferRequest) -> list[GrowingAlbum]:
        """Offer no more added images for a label, or offer them again, those that came meanwhile too."""
        offer(self.service.run, request.label, request.offered)
        return self.concepts()

    @post("/api/labels/rename", "labels")
    def rename_labels(self, request: RenameRequest) -> LabelEditResult:
        """Give the images of labels another label instead, as one step; a label that exists takes theirs in."""
        return self._result(LabelEditor(self.service.run).rename(request.labels, request.into, source="page"))

    @post("/api/labels", "labels")
    def edit_labels(self, request: LabelEditRequest) -> LabelEditResult:
        """Add labels to images and remove them, as one step; searches use them when the response is sent."""
        edits = [
            (number, edit.label, 1 if edit.change == "add" else -1)
            for edit in request.edits
            for number in (edit.ids if edit.id is None else [edit.id, *edit.ids])
        ]
        if any(edit.id is None and not edit.ids for edit in request.edits):
            raise HTTPException(422, "edits: each needs an id, or ids")
        if not 0 < len(edits) <= MAX_SELECTED:
            raise HTTPException(422, f"edits: give 1 to {MAX_SELECTED:,} images; there are {len(edits):,}")
        editor = LabelEditor(self.service.run)
        if request.source == "concept":
            follow(self.service.snapshot.searcher, {edit.label for edit in request.edits}, again=False)
        return self._result(editor.edit(edits, source=request.source, confirm=request.source != "page"))

    @post("/api/labels/undo", "labels")
    def undo_labels(self, request: UndoLabelsRequest = _LAST_STEP) -> LabelEditResult:
        """Undo the last step of label edits."""
        if not (made := LabelEditor(self.service.run).undo(source="page", step=request.step)):
            raise HTTPException(409, "there is no edit of labels to undo")
        return self._result(made)

    def _result(self, made: list[LabelEdit]) -> LabelEditResult:
        snapshot = self.service.reloader.refresh()
        place = snapshot.searcher.place
        rows = [place[number] for number in dict.fromkeys(edit.image for edit in made) if number in place]
        return {
            "changed": len(rows),
            "images": [self.service.image_summary(snapshot, row) for row in rows[:MAX_SELECTED]],
            "last": self._last_step(),
            "version": snapshot.searcher.version,
            "behind": self.service.problem,
        }

    def _last_step(self) -> LabelStep | None:
        edits = self._edits.last_step()
        if not edits:
            return None
        return {
            "step": edits[0].step,
            "time": edits[0].time,
            "added": sorted({edit.label for edit in edits if edit.change == 1})[:MAX_LABELS],
            "removed": sorted({edit.label for edit in edits if edit.change == -1})[:MAX_LABELS],
            "images": len({edit.image for edit in edits}),
        }
