"""Routes: photos that are added to the collection."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, File, UploadFile
from starlette.responses import Response

from . import schemas
from .handlers import RequestHandlers
from .responses import JsonResponse


def add_add_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of photos that are added."""
    general, adder = handlers.general_pool, handlers.adder

    def changed(work: str) -> dict:
        handlers.run_folder.check()
        getattr(adder, work)()
        return adder.state()

    @app.post("/api/add/photo", response_model=schemas.KeptPhoto, tags=["collection"])
    async def keep_photo(file: Annotated[UploadFile, File(description="A photo")]) -> Response:
        """Keep a photo in runs/<run>/added, to be added by POST /api/add; not if the collection has the same file."""
        snapshot, data = handlers.snapshot, await file.read()

        def keep() -> dict:
            handlers.run_folder.check()
            return adder.keep(snapshot, file.filename or "", data, handlers.max_pixels(snapshot))

        return JsonResponse(await handlers.upload_pool.run(keep))

    @app.get("/api/add", response_model=schemas.AddState, tags=["collection"])
    async def add_state() -> Response:
        """Say how far adding the photos is, and what came of it."""
        return JsonResponse(await general.run(adder.state))

    @app.post("/api/add", response_model=schemas.AddState, tags=["collection"])
    async def add() -> Response:
        """Extract the photos that were kept and add them to the collection, in the background."""
        return JsonResponse(await general.run(changed, "start"))

    @app.delete("/api/add", response_model=schemas.AddState, tags=["collection"])
    async def cancel_adding() -> Response:
        """Cancel adding: what is added stays, other photos that were kept are deleted."""
        return JsonResponse(await general.run(changed, "cancel"))
