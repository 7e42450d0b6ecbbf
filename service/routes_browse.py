"""Routes: what there is in the collection. Suggestions, albums, the map, groups that look alike, labels to check."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query
from starlette.responses import Response

from . import schemas
from .collection_handlers import CollectionHandlers
from .label_handlers import LabelHandlers
from .overview_handlers import OverviewHandlers
from .responses import JsonResponse
from .snapshot import Snapshot

# What the first page shows of each list.
_ALBUMS, _RECENT, _COVERS = 12, 14, 4


def add_browse_routes(app: FastAPI, collection: CollectionHandlers, labels: LabelHandlers) -> None:
    """Add the routes of suggestions, albums and the overview."""
    handlers, overview = collection.handlers, OverviewHandlers(collection.handlers, labels)
    pool = handlers.general_pool

    def first_page(snapshot: Snapshot) -> dict[str, Any]:
        state = overview.state(snapshot)
        return {
            "labels": collection.albums(snapshot, "label", "", 0, _ALBUMS),
            "folders": collection.albums(snapshot, "folder", "", 0, _ALBUMS),
            "recent": collection.images(snapshot, schemas.ImagesRequest(order="recent", limit=_RECENT)),
            "map": state,
            "alike": overview.alike(snapshot, 0, _COVERS) if state["ready"] else None,
            "check": overview.check(snapshot, None, 0, _COVERS) if state["ready"] else None,
        }

    @app.get("/api/home", response_model=schemas.Home, tags=["collection"])
    async def home() -> Response:
        """Return what the first page shows, in one response."""
        return JsonResponse(await pool.run(first_page, handlers.snapshot))

    @app.get("/api/suggest", response_model=schemas.Suggestions, tags=["collection"])
    async def suggest(
        q: Annotated[str, Query(max_length=300, description="The beginning or any part of a name, or an id")] = "",
        kind: Annotated[Literal["all", "label", "folder", "image"], Query()] = "all",
        limit: Annotated[int, Query(ge=1, le=50)] = 6,
    ) -> Response:
        """Find labels, folders and image files by name, and an image by its id, as somebody types."""
        return JsonResponse(await pool.run(collection.suggest, handlers.snapshot, q, kind, limit))

    @app.get("/api/albums", response_model=schemas.Albums, tags=["collection"])
    async def albums(
        kind: Annotated[Literal["label", "folder"], Query()] = "label",
        q: Annotated[str, Query(max_length=300)] = "",
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=100)] = 24,
    ) -> Response:
        """List the labels or the folders with their numbers of images, the largest first, with up to four covers."""
        return JsonResponse(await pool.run(collection.albums, handlers.snapshot, kind, q, offset, limit))

    @app.get("/api/dates", response_model=schemas.Dates, tags=["collection"])
    async def dates(request: Annotated[schemas.FilterRequest, Query()]) -> Response:
        """Count the images by the month in which they were taken."""
        return JsonResponse(await pool.run(collection.dates, handlers.snapshot, request))

    @app.get("/api/map", response_model=schemas.MapState, tags=["collection"])
    async def get_map() -> Response:
        """Say whether the map of the collection is drawn, and how far a new one is."""
        return JsonResponse(await pool.run(overview.state, handlers.snapshot))

    @app.post("/api/map", response_model=schemas.MapState, tags=["collection"])
    async def draw_map() -> Response:
        """Draw the map in the background, unless it is up to date."""
        return JsonResponse(await pool.run(overview.draw, handlers.snapshot))

    @app.get("/api/map/points", response_class=Response, tags=["collection"])
    async def points(
        most: Annotated[int | None, Query(ge=1, lt=2**31, description="At most so many images, spread evenly")] = None,
    ) -> Response:
        """Return the places of the n images on the map, little-endian: n float64 ids, n pairs of uint16, n uint16.

        The pairs are x and y from 0 to 65,535; the last part is the number of each image's label in the list of GET
        /api/map, 65,535 without one.
        """
        data = await pool.run(overview.points, handlers.snapshot, most)
        return Response(data, media_type="application/octet-stream")

    @app.get("/api/alike", response_model=schemas.AlikeGroups, tags=["collection"])
    async def alike(
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0, limit: Annotated[int, Query(ge=1, le=50)] = 20
    ) -> Response:
        """List groups of images that look alike, the largest first."""
        return JsonResponse(await pool.run(overview.alike, handlers.snapshot, offset, limit))

    @app.post("/api/alike/different", response_model=schemas.DifferentResult, tags=["collection"])
    async def say_different(request: schemas.DifferentRequest) -> Response:
        """Say that images show different pictures: no group has images of two parts again."""
        return JsonResponse(await pool.run(overview.say_different, request.parts))

    @app.post("/api/alike/undo", response_model=schemas.DifferentResult, tags=["collection"])
    async def undo_different() -> Response:
        """Undo the last step in which images were said to show different pictures."""
        return JsonResponse(await pool.run(overview.undo_different))

    @app.get("/api/check", response_model=schemas.LabelsToCheck, tags=["collection"])
    async def check(
        label: Annotated[schemas.Name | None, Query(description="Only images with this label")] = None,
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 48,
    ) -> Response:
        """List images whose nearest images have other labels, the worst fit first."""
        return JsonResponse(await pool.run(overview.check, handlers.snapshot, label, offset, limit))
