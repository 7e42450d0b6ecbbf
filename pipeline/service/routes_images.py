"""Routes: images and thumbnails."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.pipeline.store.catalogue import Image

from . import schemas as api
from .handlers import RequestHandlers, unknown_image
from .responses import Json
from .snapshot import Snapshot
from .thumbnails import make_thumbnail, media_type, read_original

_FOREVER = "private, max-age=31536000, immutable"
_PICTURE_POLICY = {"Content-Security-Policy": "default-src 'none'; sandbox"}  # for a file that is a picture and a page


def add_pictures(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of images and thumbnails."""

    @app.get("/api/images", response_model=list[api.Shown], tags=["collection"])
    async def images(
        sample: Annotated[int | None, Query(ge=1, le=200, description="Some at random")] = None,
        seed: Annotated[int, Query(description="The same seed, the same images")] = 0,
        label: Annotated[api.Name | None, Query()] = None,
        offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 48,
    ) -> Response:
        """Images of the collection, by path, or some at random."""
        snapshot = handlers.snapshot

        def listed() -> list[dict[str, Any]]:
            everything = snapshot.searcher.images
            rows: Any = range(len(everything))
            if label is not None:
                rows = [row for row in rows if label in everything[row].labels]
            if sample is not None:
                rows = random.Random(seed).sample(rows, min(sample, len(rows)))
            else:
                rows = rows[offset : offset + limit]
            return [handlers.shown(snapshot, row) for row in rows]

        return Json(await handlers.others.run(listed))

    @app.get("/api/images/{number}", response_model=api.ShownWithFile, tags=["collection"])
    async def image(number: int) -> Response:
        """One image, with what its file says."""
        snapshot, found = _found(handlers, number)

        def described() -> dict[str, Any]:
            facts: dict[str, Any] = {"bytes": None, "modified": None, "sha256": found.sha256, "split": found.split}
            with contextlib.suppress(OSError, ValueError):
                status = os.stat(os.path.join(snapshot.searcher.root, found.path))
                changed = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC)
                facts |= {"bytes": status.st_size, "modified": changed.isoformat(timespec="seconds")}
            return handlers.shown(snapshot, snapshot.searcher.place[number]) | facts

        return Json(await handlers.others.run(described))

    @app.get("/images/{number}/thumbnail", response_class=Response, tags=["collection"])
    async def thumbnail(
        request: Request,
        number: int,
        size: Annotated[int, Query(ge=1, le=1024)] = 256,
        v: Annotated[str, Query(description="Start of the image's SHA-256: the answer may be kept for ever")] = "",
    ) -> Response:
        """A small WebP."""
        snapshot, found = _with_picture(handlers, number)
        headers = _cached(found.sha256, f"-{size}", v)
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        limit = snapshot.searcher.config.collection.max_pixels
        made = await handlers.pictures.run(handlers.thumbnails.get, snapshot.searcher.root, found, size, limit)
        return Response(made, media_type="image/webp", headers=headers)

    @app.get("/images/{number}/original", response_class=Response, tags=["collection"])
    async def original(request: Request, number: int, v: str = "") -> Response:
        """The image's file, if it still is the one that the collection knows."""
        snapshot, found = _with_picture(handlers, number)
        headers = _cached(found.sha256, "", v)
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        data = await handlers.others.run(read_original, snapshot.searcher.root, found)
        name = quote(os.path.basename(os.fsencode(found.path)))
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{name}"
        return Response(data, media_type=media_type(data), headers=headers)

    @app.get("/uploads/{key}", response_class=Response, tags=["collection"])
    async def uploaded(
        key: api.Key, size: Annotated[int | None, Query(ge=1, le=1024, description="Longest side of a WebP")] = None
    ) -> Response:
        """An uploaded picture, as PNG: its pixels, and nothing else of the file."""
        if size is None:
            data, kind = await handlers.others.run(handlers.upload_bytes, key), "image/png"
        else:
            made = await handlers.pictures.run(lambda: make_thumbnail(handlers.upload_pixels(key), size))
            data, kind = made.webp, "image/webp"
        return Response(data, media_type=kind, headers={"Cache-Control": _FOREVER} | _PICTURE_POLICY)


def _found(handlers: RequestHandlers, number: int) -> tuple[Snapshot, Image]:
    """The snapshot, and an image of it."""
    snapshot = handlers.snapshot
    try:
        return snapshot, snapshot.image(number)
    except KeyError:
        raise unknown_image(number) from None


def _with_picture(handlers: RequestHandlers, number: int) -> tuple[Snapshot, Image]:
    """The same, of a run that has pictures."""
    snapshot, found = _found(handlers, number)
    if snapshot.searcher.config.collection.vectors.file is not None:
        raise HTTPException(404, "this run was made of vectors: it has no pictures")
    return snapshot, found


def _cached(sha256: str, variant: str, asked: str) -> dict[str, str]:
    """Headers of a picture. Ids start again in another run at the same address: for ever only with the hash."""
    headers = {"ETag": f'"{sha256[:32]}{variant}"', **_PICTURE_POLICY}
    if len(asked) >= 8 and sha256.startswith(asked):
        headers["Cache-Control"] = _FOREVER
    return headers
