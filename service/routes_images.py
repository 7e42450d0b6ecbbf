"""Routes: images, thumbnails and uploads."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from visterm.pipeline.report.thumbnail import make_thumbnail
from visterm.pipeline.store.images import Image

from . import schemas
from .collection_handlers import CollectionHandlers
from .handlers import RequestHandlers
from .responses import JsonResponse
from .snapshot import Snapshot
from .thumbnails import SIZES, media_type

_IMMUTABLE = "private, max-age=31536000, immutable"
_IMAGE_POLICY = {"Content-Security-Policy": "default-src 'none'; sandbox"}  # for a file that is both image and page


def add_image_routes(app: FastAPI, collection: CollectionHandlers) -> None:
    """Add the routes of images, thumbnails and uploads."""
    handlers = collection.handlers

    @app.get("/api/images", response_model=list[schemas.ImageSummary], tags=["collection"])
    async def images(request: Annotated[schemas.ImagesRequest, Query()]) -> Response:
        """List images in order of path or of addition, some random ones, or those with given ids."""
        return JsonResponse(await handlers.general_pool.run(collection.images, handlers.snapshot, request))

    @app.get("/api/images/columns", response_model=schemas.Columns, tags=["collection"])
    async def image_columns(request: Annotated[schemas.ListRequest, Query()]) -> Response:
        """List images of the collection in columns, in order of path or of addition."""
        return JsonResponse(await handlers.general_pool.run(collection.columns, handlers.snapshot, request))

    @app.get("/api/images/{number}", response_model=schemas.ImageDetails, tags=["collection"])
    async def image_details(number: schemas.ImageId) -> Response:
        """Describe one image and its file."""
        snapshot = handlers.snapshot
        image = handlers.image(snapshot, number)
        return JsonResponse(await handlers.general_pool.run(collection.details, snapshot, image))

    @app.get("/images/{number}/thumbnail", response_class=Response, tags=["collection"])
    async def thumbnail(
        http: Request,
        number: schemas.ImageId,
        size: Annotated[int, Query(ge=1, le=SIZES[-1], description="Longer side in pixels")] = 256,
        v: Annotated[str, Query(description="Start of the image's SHA-256; makes the response cacheable forever")] = "",
    ) -> Response:
        """Return a small WebP of an image."""
        snapshot = handlers.snapshot
        image = _image_with_file(handlers, snapshot, number)
        headers = _cache_headers(image.sha256, f"-{size}", v)
        if http.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        max_pixels = snapshot.searcher.config.collection.max_pixels
        webp = await handlers.thumbnail_pool.run(
            handlers.thumbnails.get, snapshot.searcher.root, image, size, max_pixels
        )
        return Response(webp, media_type="image/webp", headers=headers)

    @app.get("/images/{number}/original", response_class=Response, tags=["collection"])
    async def original(http: Request, number: schemas.ImageId, v: str = "") -> Response:
        """Return the file of an image, if it has not changed since its features were extracted.

        Without metadata such as place and camera, unless the service was started with --keep-metadata; the pixels are
        untouched.
        """
        snapshot = handlers.snapshot
        image = _image_with_file(handlers, snapshot, number)
        headers = _cache_headers(image.sha256, "" if handlers.keep_metadata else "-plain", v)
        if http.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        data = await handlers.general_pool.run(handlers.original, snapshot, image)
        kind, name = media_type(data), quote(os.path.basename(os.fsencode(image.path)))
        if kind == "image/png" and not name.lower().endswith(".png"):  # of a format whose pixels cannot be copied
            name += ".png"
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{name}"
        return Response(data, media_type=kind, headers=headers)

    @app.get("/uploads/{key}", response_class=Response, tags=["collection"])
    async def uploaded_image(
        key: schemas.Sha256,
        size: Annotated[int | None, Query(ge=1, le=SIZES[-1], description="Longer side; returns a WebP")] = None,
    ) -> Response:
        """Return the pixels of an uploaded image as PNG, without any other data of the file."""
        if size is None:
            data, kind = await handlers.general_pool.run(handlers.upload_png, key), "image/png"
        else:
            made = await handlers.thumbnail_pool.run(lambda: make_thumbnail(handlers.upload_pixels(key), size))
            data, kind = made.webp, "image/webp"
        return Response(data, media_type=kind, headers={"Cache-Control": _IMMUTABLE} | _IMAGE_POLICY)


def _image_with_file(handlers: RequestHandlers, snapshot: Snapshot, number: int) -> Image:
    image = handlers.image(snapshot, number)
    if snapshot.searcher.config.collection.vectors.file is not None:
        raise HTTPException(404, "this run was made from imported vectors and has no image files")
    return image


def _cache_headers(sha256: str, variant: str, requested: str) -> dict[str, str]:
    """Make the headers of an image: immutable only with its hash, since another run at this URL may reuse the id."""
    headers = {"ETag": f'"{sha256[:32]}{variant}"', **_IMAGE_POLICY}
    if len(requested) >= 8 and sha256.startswith(requested):
        headers["Cache-Control"] = _IMMUTABLE
    return headers
