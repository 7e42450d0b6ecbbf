"""The overview of the collection: the map, images that look alike, labels to check."""

from __future__ import annotations

import math
import sys
import time
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
from fastapi import Query
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from typing_extensions import TypedDict

from visterm.service.jobs import Job
from visterm.service.parts import ServiceParts
from visterm.service.responses import next_offset
from visterm.service.schemas import MAX_LISTED_LABELS, MAX_SELECTED, Body, ImageId, Name
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, Subjects, get, post
from visterm.service.summaries import ImageSummary
from visterm.teaching.different import DifferentPictures
from visterm.teaching.groups import among
from visterm.teaching.not_same import say_different, undo_different
from visterm.teaching.overview import Overview, groups_of, overview_folder, overview_record, read_overview

from .images import ImageSubject, LastRemoval
from .labels import LabelSubject

NO_LABEL = 2**16 - 1
_GROUP = 60  # images of a group that are sent
_PATIENCE = 60.0  # seconds: in a very large collection, searches are made ready before the labels are judged


class MapState(TypedDict):
    """Whether the map of the collection is drawn."""

    ready: bool
    current: Annotated[bool, Field(description="false: images or the learner have changed since it was drawn")]
    making: Annotated[bool, Field(description="A new map is being drawn in the background")]
    phase: str | None
    share: Annotated[float, Field(description="Share of the work that is done")]
    problem: Annotated[str | None, Field(description="Why the last map could not be drawn")]
    version: str | None
    images: Annotated[int, Field(description="Images on the map")]
    labels: Annotated[list[str], Field(description="Names of labels by number, the largest first")]
    n_alike: Annotated[int | None, Field(description="Groups of duplicates; null until they are known")]
    n_check: Annotated[int | None, Field(description="Labels to check; null until they are known")]


class DifferentStep(TypedDict):
    """Images that somebody said show different pictures."""

    step: int
    time: Annotated[str, Field(description="UTC, ISO 8601")]
    images: int


class DifferentResult(TypedDict):
    """What undoing would undo."""

    last: DifferentStep | None


class DifferentRequest(Body):
    """Images of different parts show different pictures."""

    parts: list[Annotated[list[ImageId], Field(min_length=1, max_length=MAX_SELECTED)]] = Field(
        min_length=2, max_length=MAX_SELECTED, description="Of ids; nothing is said of the images of one part"
    )


class AlikeGroup(TypedDict):
    """Images of the same picture, pictures of the same scene, or pictures that look alike."""

    degree: Annotated[
        Literal["picture", "scene", "alike"],
        Field(
            description="picture: equal files, or copies re-encoded, resized, mirrored, cropped; scene: many details "
            "of one picture lie in another as a shift, turn and zoom would put them; alike: their vectors are nearly "
            "equal"
        ),
    ]
    same: Annotated[bool, Field(description="Whether the degree is picture")]
    splits: Annotated[list[str], Field(description="Splits of its images: copies in train and test are learned from")]
    similarity: Annotated[
        float,
        Field(
            description="Smallest one of the first image and another one: a correlation of pixels for pictures, else "
            "a cosine of vectors"
        ),
    ]
    n_images: int
    images: Annotated[
        list[ImageSummary], Field(description="The first is the one to keep; each of the others was compared with it")
    ]


class AlikeGroups(TypedDict):
    """Groups of images that look alike."""

    total: int
    next: Annotated[int | None, Field(description="Offset of the next page; null: this is the last one")]
    last: Annotated[DifferentStep | None, Field(description="What POST /api/alike/undo would undo")]
    removed: LastRemoval | None
    groups: list[AlikeGroup]
    n_blank: Annotated[int, Field(description="Images of one colour, which are in no group")]
    blank: Annotated[list[ImageSummary], Field(description="The first of them")]


class LabelToCheck(TypedDict):
    """An image that fits its label badly."""

    label: str
    probability: NotRequired[
        Annotated[float | None, Field(description="Of the label, as all other images say; null of very many images")]
    ]
    share: Annotated[float, Field(description="Share of the nearest images with this label")]
    suggested: str
    suggested_probability: NotRequired[float | None]
    suggested_share: float
    image: ImageSummary


class LabelsToCheck(TypedDict):
    """Images whose labels are probably wrong, the worst first."""

    total: int
    next: Annotated[int | None, Field(description="Offset of the next page; null: this is the last one")]
    entries: list[LabelToCheck]


class OverviewMaker(Job):
    """The overview of a run: made by the job, read when its file changes."""

    command = (sys.executable, "-m", "visterm.teaching.overview")
    work = "the map could not be drawn: the process"
    end_seconds = 5.0

    def __init__(self, service: ServiceParts):
        super().__init__(service.run)
        self._keeps_up = service.settings.overview
        self._begun = 0.0
        self._next: Snapshot | None = None  # what `start` was called with while a process ran
        self._kept: tuple[Any, Overview | None] = (None, None)

    def overview(self) -> Overview | None:
        """Return the overview that the run keeps, up to date or not; None if there is none."""
        try:
            status = (overview_folder(self.run) / "record.json").stat()
        except OSError:
            return None
        stamp = (status.st_ino, status.st_mtime_ns)
        with self.lock:
            if self._kept[0] != stamp:
                self._kept = (stamp, read_overview(self.run))
            return self._kept[1]

    def is_current(self, snapshot: Snapshot) -> bool:
        """Whether the overview is of the images and the learner of a snapshot."""
        overview = self.overview()
        if overview is None:
            return False
        record = overview_record(snapshot.searcher)
        return all(overview.record.get(key) == record[key] for key in ("config", "inputs"))

    def start(self, snapshot: Snapshot) -> None:
        """Start the process unless the overview is up to date; where one is running, after it."""
        with self.lock:
            if self.process is not None:  # it may replace an overview that is up to date by one that is not
                self._next = snapshot
                return
        if self.is_current(snapshot):
            return
        with self.lock:
            if self.process is not None:
                self._next = snapshot
            else:
                self.launch({"phase": "starting", "share": 0.0})
                self._begun = time.monotonic()

    def ended(self, succeeded: bool) -> None:
        """Start again for what `start` was called with meanwhile: the run may have changed after it was read."""
        with self.lock:
            snapshot, self._next = self._next, None
        if snapshot is not None and succeeded:
            self.start(snapshot)

    def images_changed(self, snapshot: Snapshot) -> None:
        """Draw the map again, if the service keeps it up to date."""
        if self._keeps_up:
            self.start(snapshot)

    def is_urgent(self) -> bool:
        """Whether there are no labels to check yet."""
        overview = self.overview()
        known = overview is not None and overview.check is not None
        return self.process is not None and not known and time.monotonic() < self._begun + _PATIENCE


class MapSubject(Subject):
    """The overview that a run keeps; only images of the snapshot are sent."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self.job = service.add_job(OverviewMaker(service))
        self._different = DifferentPictures(service.run.different)
        self._groups: tuple[Any, tuple[list[dict[str, Any]], list[int]]] = None, ([], [])  # and what they were made of

    @get("/api/map", "collection")
    def get_map(self) -> MapState:
        """Say whether the map of the collection is drawn, and how far a new one is."""
        return self.state(self.service.snapshot)

    def state(self, snapshot: Snapshot) -> MapState:
        """Return the state of the map for a snapshot."""
        job, overview = self.job, self.job.overview()
        with job.lock:
            making, progress, problem = job.process is not None, job.progress, job.problem
        return {
            "ready": overview is not None and overview.points is not None,
            "current": job.is_current(snapshot),
            "making": making,
            "phase": progress.get("phase"),
            "share": progress.get("share", 0.0),
            "problem": problem and self.service.public(problem),
            "version": overview and overview.record["created"],
            "images": 0 if overview is None else len(overview.ids),
            "labels": _label_names(snapshot),
            "n_alike": None if overview is None or overview.alike is None else len(self._duplicates(snapshot)[0]),
            "n_check": None if overview is None or overview.check is None else len(self._doubts(snapshot)),
        }

    @post("/api/map", "collection")
    def draw_map(self) -> MapState:
        """Draw the map in the background, unless it is up to date."""
        snapshot = self.service.snapshot
        self.job.start(snapshot)
        return self.state(snapshot)

    @get("/api/map/points", "collection")
    def points(
        self,
        most: Annotated[int | None, Query(ge=1, lt=2**31, description="At most so many images, spread evenly")] = None,
    ) -> Response:
        """Return the places of the n images on the map, little-endian: n float64 ids, n pairs of uint16, n uint16.

        The pairs are x and y from 0 to 65,535; the last part is the number of each image's label in the list of GET
        /api/map, 65,535 without one. Before the map is drawn, the images are in order of path, in rows.
        """
        overview, snapshot = self.job.overview(), self.service.snapshot
        place = snapshot.searcher.place
        ids = snapshot.searcher.images.ids if overview is None or overview.points is None else overview.ids
        kept = np.flatnonzero([number in place for number in ids.tolist()])
        if most is not None and most < len(kept):
            kept = kept[np.arange(most) * len(kept) // most]
        ids = ids[kept]
        points = _in_rows(len(kept)) if overview is None or overview.points is None else overview.points[kept]
        xy = np.clip(np.round(points * 65535), 0, 65535).astype("<u2")
        numbers = {name: i for i, name in enumerate(_label_names(snapshot))}
        labels = np.full(len(ids), NO_LABEL, "<u2")
        for i, number in enumerate(ids.tolist()):
            of_image = [numbers[name] for name in snapshot.searcher.images[place[number]].labels if name in numbers]
            if of_image:
                labels[i] = min(of_image)
        data = ids.astype("<f8").tobytes() + xy.tobytes() + labels.tobytes()
        return Response(data, media_type="application/octet-stream")

    @get("/api/alike", "collection")
    def alike(
        self, offset: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=50)] = 20
    ) -> AlikeGroups:
        """List groups of images that look alike, the largest first."""
        return self.groups(self.service.snapshot, offset, limit)

    def groups(self, snapshot: Snapshot, offset: int, limit: int) -> AlikeGroups:
        """List the groups of a snapshot."""
        searcher = snapshot.searcher
        groups, blank = self._duplicates(snapshot)

        def listed(ids: list[int]) -> list[ImageSummary]:
            return [self.service.image_summary(snapshot, searcher.place[number]) for number in ids[:_GROUP]]

        return {
            "total": len(groups),
            "next": next_offset(offset, limit, len(groups)),
            "last": self._last()["last"],
            "removed": self.subjects.of(ImageSubject).last_removal(),
            "groups": [
                {
                    "degree": group["degree"],
                    "same": group["same"],
                    "splits": sorted({searcher.images[searcher.place[id_]].split or "" for id_ in group["ids"]} - {""}),
                    "similarity": group["similarity"],
                    "n_images": len(group["ids"]),
                    "images": listed(group["ids"]),
                }
                for group in groups[offset : offset + limit]
            ],
            "n_blank": len(blank),
            "blank": listed(blank),
        }

    @post("/api/alike/different", "collection")
    def say_different(self, request: DifferentRequest) -> DifferentResult:
        """Say that images show different pictures: no group has images of two parts again."""
        say_different(self.service.run, request.parts)
        return self._last()

    @post("/api/alike/undo", "collection")
    def undo_different(self) -> DifferentResult:
        """Undo the last step in which images were said to show different pictures."""
        if undo_different(self.service.run)["step"] is None:
            raise HTTPException(409, "there is nothing to undo: no photos were said to be different pictures")
        return self._last()

    def _last(self) -> DifferentResult:
        rows = self._different.last_step()
        return {"last": {"step": rows[0].step, "time": rows[0].time, "images": len(rows)} if rows else None}

    def _duplicates(self, snapshot: Snapshot) -> tuple[list[dict[str, Any]], list[int]]:
        """Return the groups of the images that are still there, and those of one colour."""
        place, overview = snapshot.searcher.place, self._overview("alike")
        assert overview.alike is not None
        made_of = overview.record["created"], self._different.last(), snapshot.searcher.version
        kept = self._groups  # a request with another snapshot may replace it
        if kept[0] != made_of:
            pairs = among(overview.alike, place)
            kept = self._groups = made_of, (groups_of(snapshot.searcher, pairs), pairs["blank"])
        return kept[1]

    @get("/api/check", "collection")
    def check(
        self,
        label: Annotated[Name | None, Query(description="Only images with this label")] = None,
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 48,
    ) -> LabelsToCheck:
        """List images whose nearest images have other labels, the worst fit first."""
        return self.labels_to_check(self.service.snapshot, label, offset, limit)

    def labels_to_check(self, snapshot: Snapshot, label: str | None, offset: int, limit: int) -> LabelsToCheck:
        """List the labels to check of a snapshot."""
        doubts = self._doubts(snapshot)
        entries = [entry for entry in doubts if label is None or entry["label"] == label]
        shown: list[Any] = []
        for entry in entries[offset : offset + limit]:
            row = snapshot.searcher.place[entry["id"]]
            fields = {name: value for name, value in entry.items() if name != "id"}
            shown.append(fields | {"image": self.service.image_summary(snapshot, row)})
        return {"total": len(entries), "next": next_offset(offset, limit, len(entries)), "entries": shown}

    def _doubts(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        """Return the labels to check that images still have, and that nobody confirmed."""
        images, place = snapshot.searcher.images, snapshot.searcher.place
        confirmed = self.subjects.of(LabelSubject).decided().confirmed
        return [
            entry
            for entry in self._overview("check").check or ()
            if (row := place.get(entry["id"])) is not None
            and entry["label"] in images[row].labels
            and (entry["id"], entry["label"]) not in confirmed
        ]

    def _overview(self, part: Literal["alike", "check"]) -> Overview:
        overview = self.job.overview()
        if overview is None or getattr(overview, part) is None:
            raise HTTPException(409, "the collection has not been looked through yet; POST /api/map does it")
        return overview


def _in_rows(n: int) -> np.ndarray:
    """Places of images in rows from left to right, (n, 2)."""
    side, place = max(1, math.ceil(math.sqrt(n))), np.arange(n)
    return (np.column_stack([place % side, place // side]) + 0.5) / side


def _label_names(snapshot: Snapshot) -> list[str]:
    """Names of labels by number, the largest first."""
    return list(snapshot.searcher.gallery.albums.labels)[:MAX_LISTED_LABELS]
