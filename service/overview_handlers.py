"""Compute what the service tells of the overview: the map, images that look alike, labels to check."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.exceptions import HTTPException

from visterm.pipeline.store.not_same import DifferentPictures
from visterm.teaching.groups import group_pairs
from visterm.teaching.not_same import say_different, undo_different
from visterm.teaching.overview import Overview

from . import schemas
from .handlers import RequestHandlers
from .label_handlers import LabelHandlers
from .snapshot import Snapshot

NO_LABEL = 2**16 - 1
_GROUP = 60  # images of a group that are sent


class OverviewHandlers:
    """The overview that a run keeps, of which only images of the snapshot are told."""

    def __init__(self, handlers: RequestHandlers, labels: LabelHandlers):
        self.handlers = handlers
        self._labels = labels
        self._different = DifferentPictures(handlers.run.different)
        self._groups: tuple[Any, list[dict[str, Any]]] = None, []  # and what they were made of

    def state(self, snapshot: Snapshot) -> dict[str, Any]:
        """Make `schemas.MapState`."""
        overview = self.handlers.overview.overview()
        return self.handlers.overview.state(snapshot) | {
            "version": overview and overview.record["created"],
            "images": 0 if overview is None else len(overview.ids),
            "labels": _label_names(snapshot),
            "n_alike": 0 if overview is None else len(self._duplicates(overview, snapshot)),
            "n_check": 0 if overview is None else len(self._doubts(overview, snapshot)),
        }

    def draw(self, snapshot: Snapshot) -> dict[str, Any]:
        """Start to draw the map, unless it is up to date; return the state."""
        self.handlers.run_folder.check()
        self.handlers.overview.start(snapshot)
        return self.state(snapshot)

    def points(self, snapshot: Snapshot, most: int | None = None) -> bytes:
        """Return the places of the images that are in both the map and the snapshot, or of `most`, spread evenly."""
        overview, place = self._overview(), snapshot.searcher.place
        kept = np.flatnonzero([number in place for number in overview.ids.tolist()])
        if most is not None and most < len(kept):
            kept = kept[np.arange(most) * len(kept) // most]
        ids = overview.ids[kept]
        xy = np.clip(np.round(overview.points[kept] * 65535), 0, 65535).astype("<u2")
        numbers = {name: i for i, name in enumerate(_label_names(snapshot))}
        labels = np.full(len(ids), NO_LABEL, "<u2")
        for i, number in enumerate(ids.tolist()):
            of_image = [numbers[name] for name in snapshot.searcher.images[place[number]].labels if name in numbers]
            if of_image:
                labels[i] = min(of_image)
        return ids.astype("<f8").tobytes() + xy.tobytes() + labels.tobytes()

    def alike(self, snapshot: Snapshot, offset: int, limit: int) -> dict[str, Any]:
        """Make `schemas.AlikeGroups`."""
        groups, place = self._duplicates(self._overview(), snapshot), snapshot.searcher.place
        return {
            "total": len(groups),
            "last": self._last(),
            "groups": [
                {
                    "degree": group["degree"],
                    "same": group["same"],
                    "similarity": group["similarity"],
                    "n_images": len(group["ids"]),
                    "images": [
                        self.handlers.image_summary(snapshot, place[number]) for number in group["ids"][:_GROUP]
                    ],
                }
                for group in groups[offset : offset + limit]
            ],
        }

    def say_different(self, parts: list[list[int]]) -> dict[str, Any]:
        """Keep that images of different parts show different pictures; make `schemas.DifferentResult`."""
        self.handlers.run_folder.check()
        say_different(self.handlers.run, parts)
        return {"last": self._last()}

    def undo_different(self) -> dict[str, Any]:
        """Undo the last step of those; make `schemas.DifferentResult`."""
        self.handlers.run_folder.check()
        if undo_different(self.handlers.run)["step"] is None:
            raise HTTPException(409, "there is nothing to undo: no photos were said to be different pictures")
        return {"last": self._last()}

    def _last(self) -> dict[str, Any] | None:
        """Make `schemas.DifferentStep`; None if nobody said so."""
        rows = self._different.last_step()
        return {"step": rows[0].step, "time": rows[0].time, "images": len(rows)} if rows else None

    def _duplicates(self, overview: Overview, snapshot: Snapshot) -> list[dict[str, Any]]:
        """Return the groups of which at least two images are still there, with those."""
        place = snapshot.searcher.place
        made_of = overview.record["created"], self._different.last(), snapshot.searcher.version
        if self._groups[0] != made_of:
            parts = self._different.parts_of(snapshot.searcher.images)
            groups = group_pairs(overview.alike, parts)
            left = [group | {"ids": [number for number in group["ids"] if number in place]} for group in groups]
            self._groups = made_of, [group for group in left if len(group["ids"]) > 1]
        return self._groups[1]

    def check(self, snapshot: Snapshot, label: str | None, offset: int, limit: int) -> dict[str, Any]:
        """Make `schemas.LabelsToCheck`, of one label or of all."""
        entries = [
            entry for entry in self._doubts(self._overview(), snapshot) if label is None or entry["label"] == label
        ]
        place = snapshot.searcher.place
        return {
            "total": len(entries),
            "entries": [
                {name: value for name, value in entry.items() if name != "id"}
                | {"image": self.handlers.image_summary(snapshot, place[entry["id"]])}
                for entry in entries[offset : offset + limit]
            ],
        }

    def _doubts(self, overview: Overview, snapshot: Snapshot) -> list[dict[str, Any]]:
        """Return the labels to check that images still have, and that nobody confirmed."""
        images, place = snapshot.searcher.images, snapshot.searcher.place
        confirmed = self._labels.decided().confirmed
        return [
            entry
            for entry in overview.check
            if (row := place.get(entry["id"])) is not None
            and entry["label"] in images[row].labels
            and (entry["id"], entry["label"]) not in confirmed
        ]

    def _overview(self) -> Overview:
        overview = self.handlers.overview.overview()
        if overview is None:
            raise HTTPException(409, "the map is not drawn yet; POST /api/map draws it")
        return overview


def _label_names(snapshot: Snapshot) -> list[str]:
    """Names of labels by number, the largest first."""
    return list(snapshot.searcher.gallery.albums.labels)[: schemas.MAX_LISTED_LABELS]
