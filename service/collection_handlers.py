"""Compute the responses on the images of the collection: lists, suggestions, albums, removals, archives."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import secrets
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from starlette.exceptions import HTTPException

from visterm.pipeline.console import one_line
from visterm.pipeline.search.filters import NO_FILTER, Filter, covers
from visterm.pipeline.stages.edit import exclude, restore
from visterm.pipeline.store.catalogue import Excluded
from visterm.pipeline.store.images import Image

from . import schemas
from .handlers import RequestHandlers
from .snapshot import Snapshot
from .thumbnails import ImageFileGone

MAX_REMOVALS = 50  # that can be undone


class CollectionHandlers:
    """The images of the collection: lists of them, and what is done with several at once."""

    def __init__(self, handlers: RequestHandlers):
        self.handlers = handlers
        self._removals: dict[str, list[Excluded]] = {}  # by token, oldest first; forgotten when the service ends

    def images(self, snapshot: Snapshot, request: schemas.ImagesRequest) -> list[dict[str, Any]]:
        """Make `schemas.ImageSummary` of those with given ids, of some random ones, or of the list from `offset` on."""
        rows: Sequence[int]
        if request.ids is not None:  # removed ones are left out
            places = [snapshot.searcher.place.get(int(number)) for number in request.ids.split(",")]
            rows = [row for row in places if row is not None]
        else:
            rows = _rows(snapshot, request)
            if request.sample is not None:
                rows = random.Random(request.seed).sample(rows, min(request.sample, len(rows)))
            else:
                rows = rows[request.offset : request.offset + request.limit]
        return [self.handlers.image_summary(snapshot, row) for row in rows]

    def columns(self, snapshot: Snapshot, request: schemas.ListRequest) -> dict[str, Any]:
        """Make `schemas.Columns` of the images that pass a filter."""
        ranked = [(row, 0.0) for row in _rows(snapshot, request)[: schemas.MAX_COLUMNS]]
        return {"version": snapshot.searcher.version} | self.handlers.columns(snapshot, ranked)

    def dates(self, snapshot: Snapshot, request: schemas.FilterRequest) -> dict[str, Any]:
        """Make `schemas.Dates` of the images that pass a filter."""
        known = [snapshot.searcher.gallery.fields.date(row) for row in _passing(snapshot, request)]
        months = Counter(date[:7] for date, _ in known if date)
        return {
            "months": [{"month": month, "images": months[month]} for month in sorted(months, reverse=True)],
            "undated": sum(not date for date, _ in known),
            "from_files": sum(source == "file" for _, source in known),
        }

    def details(self, snapshot: Snapshot, image: Image) -> dict[str, Any]:
        """Make `schemas.ImageDetails`."""
        fields: dict[str, Any] = {"bytes": None, "modified": None, "sha256": image.sha256, "split": image.split}
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(os.path.join(snapshot.searcher.root, image.path))
            modified = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
            fields |= {"bytes": status.st_size, "modified": modified.isoformat(timespec="seconds")}
        return self.handlers.image_summary(snapshot, snapshot.searcher.place[image.id]) | fields

    def suggest(self, snapshot: Snapshot, text: str, kind: str, limit: int) -> dict[str, Any]:
        """Make `schemas.Suggestions`."""
        gallery, place = snapshot.searcher.gallery, snapshot.searcher.place
        albums, text = gallery.albums, text.strip()
        wanted = ("label", "folder", "image") if kind == "all" else (kind,)

        def names(of_kind: str) -> list[str]:
            listed = list(albums.labels if of_kind == "label" else albums.folders)
            return [listed[i] for i in gallery.name_index(of_kind).search(text, limit)]

        rows: list[int] = []
        number = text.removeprefix("id:")
        if number.isascii() and number.isdecimal() and len(number) < 19 and int(number) in place:
            rows.append(place[int(number)])
        if text and "image" in wanted:
            rows += [row for row in gallery.name_index("image").search(text, limit) if row not in rows]
        labels = names("label") if "label" in wanted else []
        folders = [] if "folder" not in wanted or (kind == "all" and albums.are_alike) else names("folder")
        return {
            "labels": [{"name": name, "images": len(albums.labels[name])} for name in labels],
            "folders": [{"name": name, "images": len(albums.folders[name])} for name in folders],
            "images": [self.handlers.image_summary(snapshot, row) for row in rows[:limit]],
        }

    def albums(self, snapshot: Snapshot, kind: str, text: str, offset: int, limit: int) -> dict[str, Any]:
        """Make `schemas.Albums`: those whose names contain a text."""
        gallery = snapshot.searcher.gallery
        rows_of = gallery.albums.labels if kind == "label" else gallery.albums.folders
        names = list(rows_of)
        if text.strip():
            names = [names[i] for i in gallery.name_index(kind).search(text, len(names))]
        return {
            "total": len(names),
            "same_as_labels": kind == "folder" and gallery.albums.are_alike,
            "albums": [
                {
                    "name": name,
                    "images": len(rows_of[name]),
                    "covers": [self.handlers.image_summary(snapshot, row) for row in covers(rows_of[name])],
                }
                for name in names[offset : offset + limit]
            ],
        }

    def check_removal(self, snapshot: Snapshot, ids: Sequence[int]) -> None:
        """Refuse to remove images that are not there, or all that are."""
        for number in ids:
            self.handlers.image(snapshot, number)
        if len(set(ids)) >= len(snapshot.searcher.images):
            raise HTTPException(409, "these are all images of the collection; keep at least one")

    def remove(self, ids: Sequence[int]) -> dict[str, Any]:
        """Remove images from the collection; make `schemas.RemovalResult`."""
        self.handlers.run_folder.check()
        before, token = exclude(self.handlers.run, ids), secrets.token_hex(8)
        self._removals[token] = before
        while len(self._removals) > MAX_REMOVALS:
            del self._removals[next(iter(self._removals))]
        return self._changed(len(before), token)

    def restore(self, token: str) -> dict[str, Any]:
        """Undo a removal; make `schemas.RemovalResult`."""
        self.handlers.run_folder.check()
        if (before := self._removals.get(token)) is None:
            raise HTTPException(404, "this removal can no longer be undone; add the images with 'visterm add'")
        n = restore(self.handlers.run, before)
        del self._removals[token]
        return self._changed(n, None)

    def _changed(self, n: int, undo: str | None) -> dict[str, Any]:
        snapshot, problem = self.handlers.reloader.refresh(), self.handlers.reloader.problem
        return {
            "n_images": len(snapshot.searcher.images),
            "changed": n,
            "undo": undo,
            "version": snapshot.searcher.version,
            "behind": problem and one_line(problem),
        }

    def archive(self, snapshot: Snapshot, images: Sequence[Image]) -> Iterator[bytes]:
        """Make a ZIP archive of image files one by one, so that it never lies in memory as a whole."""
        chunks, missing = _Chunks(), []
        with zipfile.ZipFile(cast(Any, chunks), "w", zipfile.ZIP_STORED) as archive:  # photos are compressed already
            for image in images:
                name = os.fsencode(image.path).decode("utf-8", "replace")
                if os.path.isabs(name):  # added from elsewhere: no folders of this machine in the archive
                    name = f"{image.id}-{os.path.basename(name)}"
                try:
                    archive.writestr(name, self.handlers.original(snapshot, image))
                except ImageFileGone:
                    missing.append(name)
                yield chunks.take()
            if missing:
                archive.writestr("missing.txt", "\n".join(missing) + "\n")
        yield chunks.take()


class _Chunks:
    """A file to write to, whose content is taken out in between."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data


def _rows(snapshot: Snapshot, request: schemas.ListRequest) -> Sequence[int]:
    """Return the rows of the images that pass a filter, in the order asked for; images without a date come last."""
    rows, gallery = _passing(snapshot, request), snapshot.searcher.gallery
    if request.order == "recent":
        return sorted(rows, key=lambda row: -gallery.images[row].id)
    if request.order == "date":
        return sorted(rows, key=lambda row: gallery.fields.date(row)[0], reverse=True)
    return rows


def _passing(snapshot: Snapshot, request: schemas.FilterRequest) -> Sequence[int]:
    """Return the rows of the images that pass a filter, in order of path."""
    wanted, gallery = Filter.of(**request.filter_options()), snapshot.searcher.gallery
    return range(len(gallery.images)) if wanted == NO_FILTER else gallery.rows_of(wanted).tolist()
