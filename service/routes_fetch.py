"""Route: an image at a web address as an upload."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response

from . import schemas
from .fetching import FetchError, fetch_image
from .handlers import UPLOAD_BYTES, RequestHandlers
from .responses import JsonResponse

_NOT_ALLOWED = (
    "this service does not fetch addresses; save the picture and drop it here, or start the service with --fetch-urls"
)


def add_fetch_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the route that fetches an image; it refuses unless the service was started with this allowed."""

    @app.post("/api/fetch", response_model=schemas.FetchedImage, tags=["search"])
    async def fetch(request: schemas.FetchRequest) -> Response:
        """Fetch an image from a public web address and store it as an upload."""
        if not handlers.fetch_urls:
            raise HTTPException(403, _NOT_ALLOWED)
        snapshot = handlers.snapshot
        try:  # a slow server must not hold a place among those that decode
            name, data = await handlers.general_pool.run(fetch_image, request.url, UPLOAD_BYTES)
        except FetchError as error:
            raise HTTPException(422, f"cannot fetch this address: {error}") from None

        def respond() -> dict[str, Any]:
            query, stored = handlers.read_upload(snapshot, name, data)
            if not stored:
                raise HTTPException(507, "the image cannot be stored")
            return {"upload": query.key, "name": name}

        return JsonResponse(await handlers.upload_pool.run(respond))
