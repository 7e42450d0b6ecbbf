"""Routes: several images at once, to download, remove or restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Form
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from . import schemas
from .collection_handlers import CollectionHandlers
from .responses import JsonResponse


def add_selection_routes(app: FastAPI, collection: CollectionHandlers) -> None:
    """Add the routes of selected images."""
    handlers = collection.handlers

    @app.post("/api/images/remove", response_model=schemas.RemovalResult, tags=["collection"])
    async def remove_images(request: schemas.SelectionRequest) -> Response:
        """Remove images from the collection; their files stay, and `visterm features` does not add them again."""
        collection.check_removal(handlers.snapshot, request.ids)
        return JsonResponse(await handlers.update_pool.run(collection.remove, request.ids))

    @app.post("/api/images/restore", response_model=schemas.RemovalResult, tags=["collection"])
    async def restore_images(request: schemas.RestoreRequest) -> Response:
        """Put removed images back, with their ids, vectors and labels."""
        return JsonResponse(await handlers.update_pool.run(collection.restore, request.undo))

    @app.post("/images/download", response_class=Response, tags=["collection"])
    async def download(ids: Annotated[schemas.Ids, Form(description="Ids of images, such as 1,2,3")]) -> Response:
        """Return the files of images as a ZIP archive, without metadata; missing.txt lists those that are gone."""
        snapshot = handlers.snapshot
        if snapshot.searcher.config.collection.vectors.file is not None:
            raise HTTPException(404, "this run was made from imported vectors and has no image files")
        images = [handlers.image(snapshot, number) for number in dict.fromkeys(map(int, ids.split(",")))]
        headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
        return StreamingResponse(collection.archive(snapshot, images), media_type="application/zip", headers=headers)
