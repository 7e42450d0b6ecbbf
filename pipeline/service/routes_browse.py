"""Routes: what there is in the collection. Suggestions, albums, the map, groups that look alike, labels to check."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Query
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.pipeline.search.filters import covers
from visterm.pipeline.search.names import NameIndex

from . import schemas
from .handlers import RequestHandlers
from .responses import JsonResponse
from .snapshot import Snapshot

NO_LABEL = 2**16 - 1
_NOT_MADE = "the map is not drawn yet; POST /api/map draws it"
_GROUP = 60  # images of a group that are sent


def add_browse_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of suggestions, albums and the overview."""
    pool, maker = handlers.general_pool, handlers.overview

    @app.get("/api/suggest", response_model=schemas.Suggestions, tags=["collection"])
    async def suggest(
        q: Annotated[str, Query(max_length=300, description="The beginning or any part of a name, or an id")] = "",
        kind: Annotated[Literal["all", "label", "folder", "image"], Query()] = "all",
        limit: Annotated[int, Query(ge=1, le=50)] = 6,
    ) -> Response:
        """Find labels, folders and image files by name, and an image by its id, as somebody types."""
        return JsonResponse(await pool.run(_suggest, handlers, handlers.snapshot, q, kind, limit))

    @app.get("/api/albums", response_model=schemas.Albums, tags=["collection"])
    async def albums(
        kind: Annotated[Literal["label", "folder"], Query()] = "label",
        q: Annotated[str, Query(max_length=300)] = "",
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=100)] = 24,
    ) -> Response:
        """List the labels or the folders with their numbers of images, the largest first, with up to four covers."""
        snapshot = handlers.snapshot

        def listed() -> dict[str, Any]:
            made = snapshot.searcher.gallery.albums
            of_kind = made.labels if kind == "label" else made.folders
            names = list(of_kind)
            if q.strip():
                names = [names[i] for i in snapshot.searcher.gallery.name_index(kind).search(q, len(names))]
            return {
                "total": len(names),
                "same_as_labels": kind == "folder" and made.are_alike,
                "albums": [
                    {
                        "name": name,
                        "images": len(of_kind[name]),
                        "covers": [handlers.image_summary(snapshot, row) for row in covers(of_kind[name])],
                    }
                    for name in names[offset : offset + limit]
                ],
            }

        return JsonResponse(await pool.run(listed))

    def map_state(snapshot: Snapshot) -> dict[str, Any]:
        overview = maker.overview()
        place = snapshot.searcher.place
        alike = [] if overview is None else [group for group in overview.alike if _present(group["ids"], place)]
        check = [] if overview is None else [entry for entry in overview.check if entry["id"] in place]
        labels = list(snapshot.searcher.gallery.albums.labels.items())[: schemas.MAX_LISTED_LABELS]
        return maker.state(snapshot) | {
            "version": overview and overview.record["created"],
            "images": 0 if overview is None else len(overview.ids),
            "labels": [name for name, _ in labels],
            "n_alike": len(alike),
            "n_check": len(check),
        }

    @app.get("/api/map", response_model=schemas.MapState, tags=["collection"])
    async def get_map() -> Response:
        """Say whether the map of the collection is drawn, and how far a new one is."""
        return JsonResponse(await pool.run(map_state, handlers.snapshot))

    @app.post("/api/map", response_model=schemas.MapState, tags=["collection"])
    async def draw_map() -> Response:
        """Draw the map in the background, unless it is up to date."""
        snapshot = handlers.snapshot

        def start() -> dict[str, Any]:
            handlers.run_folder.check()
            maker.start(snapshot)
            return map_state(snapshot)

        return JsonResponse(await pool.run(start))

    @app.get("/api/map/points", response_class=Response, tags=["collection"])
    async def points() -> Response:
        """Return the places of the n images on the map, little-endian: n float64 ids, n pairs of uint16, n uint16.

        The pairs are x and y from 0 to 65,535; the last part is the number of each image's label in the list of GET
        /api/map, 65,535 without one.
        """
        snapshot = handlers.snapshot
        data = await pool.run(_points, handlers, snapshot)
        return Response(data, media_type="application/octet-stream")

    @app.get("/api/alike", response_model=schemas.AlikeGroups, tags=["collection"])
    async def alike(
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=50)] = 20
    ) -> Response:
        """List groups of images that look alike, the largest first."""
        snapshot = handlers.snapshot

        def groups() -> dict[str, Any]:
            overview, place = maker.overview(), snapshot.searcher.place
            if overview is None:
                raise HTTPException(409, _NOT_MADE)
            found = [(group, ids) for group in overview.alike if (ids := _present(group["ids"], place))]
            return {
                "total": len(found),
                "groups": [
                    {
                        "similarity": group["similarity"],
                        "n_images": len(ids),
                        "images": [handlers.image_summary(snapshot, place[number]) for number in ids[:_GROUP]],
                    }
                    for group, ids in found[offset : offset + limit]
                ],
            }

        return JsonResponse(await pool.run(groups))

    @app.get("/api/check", response_model=schemas.LabelsToCheck, tags=["collection"])
    async def check(
        label: Annotated[schemas.Name | None, Query(description="Only images with this label")] = None,
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 48,
    ) -> Response:
        """List images whose nearest images have other labels, the worst fit first."""
        snapshot = handlers.snapshot

        def entries() -> dict[str, Any]:
            overview, place = maker.overview(), snapshot.searcher.place
            if overview is None:
                raise HTTPException(409, _NOT_MADE)
            found = [
                entry for entry in overview.check if entry["id"] in place and (label is None or entry["label"] == label)
            ]
            return {
                "total": len(found),
                "entries": [
                    {name: value for name, value in entry.items() if name != "id"}
                    | {"image": handlers.image_summary(snapshot, place[entry["id"]])}
                    for entry in found[offset : offset + limit]
                ],
            }

        return JsonResponse(await pool.run(entries))


def _present(ids: list[int], place: dict[int, int]) -> list[int]:
    """Return the ids that are still in the collection; none if fewer than two are."""
    present = [number for number in ids if number in place]
    return present if len(present) > 1 else []


def _suggest(handlers: RequestHandlers, snapshot: Snapshot, text: str, kind: str, limit: int) -> dict[str, Any]:
    """Make `schemas.Suggestions`."""
    albums, images = snapshot.searcher.gallery.albums, snapshot.searcher.images
    wanted = ("label", "folder", "image") if kind == "all" else (kind,)
    text = text.strip()

    def names(of_kind: str) -> list[str]:
        listed = list(albums.labels if of_kind == "label" else albums.folders)
        index: NameIndex = snapshot.searcher.gallery.name_index(of_kind)
        return [listed[i] for i in index.search(text, limit)]

    rows: list[int] = []
    number = text.removeprefix("id:")
    if number.isascii() and number.isdecimal() and len(number) < 19 and int(number) in snapshot.searcher.place:
        rows.append(snapshot.searcher.place[int(number)])
    if text and "image" in wanted:
        rows += [row for row in snapshot.searcher.gallery.name_index("image").search(text, limit) if row not in rows]
    folders = [] if "folder" not in wanted or (kind == "all" and albums.are_alike) else names("folder")
    return {
        "labels": [
            {"name": name, "images": len(albums.labels[name])} for name in (names("label") if "label" in wanted else [])
        ],
        "folders": [{"name": name, "images": len(albums.folders[name])} for name in folders],
        "images": [handlers.image_summary(snapshot, row) for row in rows[:limit] if row < len(images)],
    }


def _points(handlers: RequestHandlers, snapshot: Snapshot) -> bytes:
    """Return the places of the images that are in both the map and the snapshot."""
    overview, place = handlers.overview.overview(), snapshot.searcher.place
    if overview is None:
        raise HTTPException(409, _NOT_MADE)
    kept = np.array([number in place for number in overview.ids.tolist()], bool)
    ids = overview.ids[kept]
    xy = np.clip(np.round(overview.points[kept] * 65535), 0, 65535).astype("<u2")
    names = list(snapshot.searcher.gallery.albums.labels)[: schemas.MAX_LISTED_LABELS]
    numbers = {name: i for i, name in enumerate(names)}
    labels = np.full(len(ids), NO_LABEL, "<u2")
    for i, number in enumerate(ids.tolist()):
        of_image = [numbers[name] for name in snapshot.searcher.images[place[number]].labels if name in numbers]
        if of_image:
            labels[i] = min(of_image)
    return ids.astype("<f8").tobytes() + xy.tobytes() + labels.tobytes()
