"""Routes: several images at once, to download, remove or restore."""

from __future__ import annotations

import os
import secrets
import zipfile
from collections.abc import Iterator
from typing import Annotated, Any, cast

from fastapi import FastAPI, Form
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from visterm.pipeline.console import one_line
from visterm.pipeline.stages.edit import exclude, restore
from visterm.pipeline.store.catalogue import Excluded, Image

from . import schemas
from .handlers import RequestHandlers
from .responses import JsonResponse
from .snapshot import Snapshot
from .thumbnails import ImageFileGone

MAX_REMOVALS = 50  # that can be undone


def add_selection_routes(app: FastAPI, handlers: RequestHandlers) -> None:
    """Add the routes of selected images."""
    removals: dict[str, list[Excluded]] = {}  # by token, oldest first; forgotten when the service ends

    def changed(n: int, undo: str | None) -> dict[str, Any]:
        snapshot = handlers.reloader.refresh()
        problem = handlers.reloader.problem
        return {
            "n_images": len(snapshot.searcher.images),
            "changed": n,
            "undo": undo,
            "version": snapshot.searcher.version,
            "behind": problem and one_line(problem),
        }

    @app.post("/api/images/remove", response_model=schemas.RemovalResult, tags=["collection"])
    async def remove_images(request: schemas.SelectionRequest) -> Response:
        """Remove images from the collection; their files stay, and `visterm features` does not add them again."""
        snapshot = handlers.snapshot
        for number in request.ids:
            handlers.image(snapshot, number)
        if len(set(request.ids)) >= len(snapshot.searcher.images):
            raise HTTPException(409, "these are all images of the collection; keep at least one")

        def remove() -> dict[str, Any]:
            handlers.run_folder.check()
            before, token = exclude(handlers.run, request.ids), secrets.token_hex(8)
            removals[token] = before
            while len(removals) > MAX_REMOVALS:
                del removals[next(iter(removals))]
            return changed(len(before), token)

        return JsonResponse(await handlers.update_pool.run(remove))

    @app.post("/api/images/restore", response_model=schemas.RemovalResult, tags=["collection"])
    async def restore_images(request: schemas.RestoreRequest) -> Response:
        """Put removed images back, with their ids, vectors and labels."""

        def put_back() -> dict[str, Any]:
            handlers.run_folder.check()
            if (before := removals.get(request.undo)) is None:
                raise HTTPException(404, "this removal can no longer be undone; add the images with 'visterm add'")
            n = restore(handlers.run, before)
            del removals[request.undo]
            return changed(n, None)

        return JsonResponse(await handlers.update_pool.run(put_back))

    @app.post("/images/download", response_class=Response, tags=["collection"])
    async def download(ids: Annotated[schemas.Ids, Form(description="Ids of images, such as 1,2,3")]) -> Response:
        """Return the files of images as a ZIP archive, without metadata; missing.txt lists those that are gone."""
        snapshot = handlers.snapshot
        if snapshot.searcher.config.collection.vectors.file is not None:
            raise HTTPException(404, "this run was made from imported vectors and has no image files")
        images = [handlers.image(snapshot, number) for number in dict.fromkeys(map(int, ids.split(",")))]
        headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
        return StreamingResponse(_zip(handlers, snapshot, images), media_type="application/zip", headers=headers)


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


def _zip(handlers: RequestHandlers, snapshot: Snapshot, images: list[Image]) -> Iterator[bytes]:
    """Make an archive file by file, so that it never lies in memory as a whole."""
    chunks, missing = _Chunks(), []
    with zipfile.ZipFile(cast(Any, chunks), "w", zipfile.ZIP_STORED) as archive:  # photos are compressed already
        for image in images:
            name = os.fsencode(image.path).decode("utf-8", "replace")
            if os.path.isabs(name):  # added from elsewhere: no folders of this machine in the archive
                name = f"{image.id}-{os.path.basename(name)}"
            try:
                archive.writestr(name, handlers.original(snapshot, image))
            except ImageFileGone:
                missing.append(name)
            yield chunks.take()
        if missing:
            archive.writestr("missing.txt", "\n".join(missing) + "\n")
    yield chunks.take()
