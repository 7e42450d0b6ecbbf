"""Images of the collection: lists of them, their files and thumbnails, uploads, removals and archives."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import random
import secrets
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import quote

from fastapi import Form, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from typing_extensions import TypedDict

from visterm.features import ImageError
from visterm.pipeline.console import count
from visterm.pipeline.report.thumbnail import make_thumbnail
from visterm.pipeline.search.filters import NO_FILTER
from visterm.pipeline.stages.edit import exclude, restore
from visterm.pipeline.store.catalogue import Excluded
from visterm.pipeline.store.files import write_text
from visterm.pipeline.store.images import Image
from visterm.service.parts import ServiceParts
from visterm.service.responses import JsonResponse, next_offset
from visterm.service.schemas import (
    BEHIND,
    MAX_COLUMNS,
    MAX_SELECTED,
    Body,
    FilterRequest,
    Ids,
    ImageId,
    ImagesRequest,
    ListRequest,
    Name,
    Sha256,
)
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, Subjects, get, post
from visterm.service.summaries import Columns, ImageSummary
from visterm.service.thumbnails import SIZES, ImageFileGone, media_type

IDS = "Ids of images, such as 1,2,3"
MAX_REMOVALS = 50  # that can be undone
_IMMUTABLE = "private, max-age=31536000, immutable"
_IMAGE_POLICY = {"Content-Security-Policy": "default-src 'none'; sandbox"}  # for a file that is both image and page


class ImageDetails(ImageSummary):
    """An image of the collection and its file."""

    bytes: Annotated[int | None, Field(description="File size; null if the file is gone")]
    modified: Annotated[str | None, Field(description="When the file was last changed, ISO 8601")]
    taken: Annotated[str | None, Field(description="When the picture was taken, ISO 8601; null: unknown")]
    sha256: str
    split: str | None
    fields: Annotated[dict[str, str], Field(description="Columns of the table of labels, such as camera")]


class SelectionRequest(Body):
    """Some images of the collection."""

    ids: list[ImageId] = Field(min_length=1, max_length=MAX_SELECTED)


class RestoreRequest(Body):
    """The removal to undo."""

    undo: Name


class RemovalResult(TypedDict):
    """Images removed from the collection or restored."""

    n_images: Annotated[int, Field(description="Images in the collection now")]
    changed: Annotated[int, Field(description="Images removed or restored")]
    undo: Annotated[str | None, Field(description="Token that restores the removed images; null after a restoration")]
    version: str
    behind: Annotated[str | None, Field(description=BEHIND)]


class LastRemoval(TypedDict):
    """The last removal that can be undone."""

    undo: Annotated[str, Field(description="Token for POST /api/images/restore")]
    images: int


class ImageSubject(Subject):
    """The images of the collection, and what is done with several at once."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self._removals_file = service.run.folder / "service" / "removals.json"
        self._removals = _read_removals(self._removals_file)  # by token, oldest first

    @get("/api/images", "collection")
    def images(self, http: Request, request: Annotated[ImagesRequest, Query()]) -> list[ImageSummary]:
        """List images in order of path or of addition, some random ones, or those with given ids.

        Of a list in order, the header X-Total-Count has the number of all, and Link the address of the next page.
        """
        snapshot = self.service.snapshot
        answer: Any = self.listed(snapshot, request)
        if request.ids is None and request.sample is None:
            total = len(_rows(snapshot, request))
            headers = {"X-Total-Count": str(total)}
            if (following := next_offset(request.offset, request.limit, total)) is not None:
                query = http.url.include_query_params(offset=following).query
                headers["Link"] = f'<?{query}>; rel="next"'
            answer = JsonResponse(answer, headers=headers)
        return answer

    def listed(self, snapshot: Snapshot, request: ImagesRequest) -> list[ImageSummary]:
        """List images of a snapshot; ids of removed ones are skipped."""
        rows: Sequence[int]
        if request.ids is not None:
            places = [snapshot.searcher.place.get(int(number)) for number in request.ids.split(",")]
            rows = [row for row in places if row is not None]
        else:
            rows = _rows(snapshot, request)
            if request.sample is not None:
                rows = random.Random(request.seed).sample(rows, min(request.sample, len(rows)))
            else:
                rows = rows[request.offset : request.offset + request.limit]
        return [self.service.image_summary(snapshot, row) for row in rows]

    @get("/api/images/columns", "collection")
    def image_columns(self, request: Annotated[ListRequest, Query()]) -> Columns:
        """List images of the collection in columns, in order of path or of addition."""
        snapshot = self.service.snapshot
        return self.service.columns(snapshot, [(row, 0.0) for row in _rows(snapshot, request)[:MAX_COLUMNS]])

    @get("/api/images/details", "collection")
    def images_details(self, ids: Annotated[Ids, Query(max_length=4000, description=IDS)]) -> list[ImageDetails]:
        """Describe some images and their files."""
        snapshot = self.service.snapshot
        return [self._details(snapshot, self.service.image(snapshot, int(number))) for number in ids.split(",")]

    @get("/api/images/{number}", "collection")
    def image_details(self, number: ImageId) -> ImageDetails:
        """Describe one image and its file."""
        snapshot = self.service.snapshot
        return self._details(snapshot, self.service.image(snapshot, number))

    def _details(self, snapshot: Snapshot, image: Image) -> ImageDetails:
        size, modified = None, None
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(os.path.join(snapshot.searcher.root, image.path))
            size = status.st_size
            modified = datetime.datetime.fromtimestamp(status.st_mtime, datetime.UTC).isoformat(timespec="seconds")
        row = snapshot.searcher.place[image.id]
        return {
            **self.service.image_summary(snapshot, row),
            "bytes": size,
            "modified": modified,
            "taken": snapshot.searcher.gallery.fields.date(row)[0] or None,
            "sha256": image.sha256,
            "split": image.split,
            "fields": snapshot.searcher.gallery.fields.of(row),
        }

    @get("/images/{number}/thumbnail", "collection")
    async def thumbnail(
        self,
        http: Request,
        number: ImageId,
        size: Annotated[int, Query(ge=1, le=SIZES[-1], description="Longer side in pixels")] = 256,
        v: Annotated[str, Query(description="Start of the image's SHA-256; makes the response cacheable forever")] = "",
    ) -> Response:
        """Return a small WebP of an image."""
        snapshot = self.service.snapshot
        image = await self._image_with_file(snapshot, number)
        headers = _cache_headers(image.sha256, f"-{size}", v)
        if _is_cached(http, headers):
            return Response(status_code=304, headers=headers)
        max_pixels = snapshot.searcher.config.collection.max_pixels
        webp = await self.service.thumbnail_pool.run(
            self.service.thumbnails.get, snapshot.searcher.root, image, size, max_pixels
        )
        return Response(webp, media_type="image/webp", headers=headers)

    @get("/images/{number}/original", "collection")
    async def original(self, http: Request, number: ImageId, v: str = "") -> Response:
        """Return the file of an image, if it has not changed since its features were extracted.

        Without metadata such as place and camera, unless the service was started with --keep-metadata; the pixels are
        untouched.
        """
        snapshot = self.service.snapshot
        image = await self._image_with_file(snapshot, number)
        headers = _cache_headers(image.sha256, "" if self.service.settings.keep_metadata else "-plain", v)
        if _is_cached(http, headers):
            return Response(status_code=304, headers=headers)
        data = await self.service.general_pool.run(self.service.original, snapshot, image)
        kind, name = media_type(data), quote(os.path.basename(os.fsencode(image.path)))
        if kind == "image/png" and not name.lower().endswith(".png"):  # of a format whose pixels cannot be copied
            name += ".png"
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{name}"
        return Response(data, media_type=kind, headers=headers)

    @get("/uploads/{key}", "collection")
    async def uploaded_image(
        self,
        key: Sha256,
        size: Annotated[int | None, Query(ge=1, le=SIZES[-1], description="Longer side; returns a WebP")] = None,
    ) -> Response:
        """Return the pixels of an uploaded image as PNG, without any other data of the file."""
        service = self.service
        if size is None:
            data, kind = await service.general_pool.run(service.upload_png, key), "image/png"
        else:
            made = await service.thumbnail_pool.run(lambda: make_thumbnail(service.upload_pixels(key), size))
            data, kind = made.webp, "image/webp"
        return Response(data, media_type=kind, headers={"Cache-Control": _IMMUTABLE} | _IMAGE_POLICY)

    @post("/api/images/remove", "collection", pool="update_pool")
    def remove_images(self, request: SelectionRequest) -> RemovalResult:
        """Remove images from the collection; their files stay, and `visterm features` does not add them again."""
        snapshot = self.service.snapshot
        for number in request.ids:
            self.service.image(snapshot, number)
        if len(set(request.ids)) >= len(snapshot.searcher.images):
            raise HTTPException(409, "these are all images of the collection; keep at least one")
        before, token = exclude(self.service.run, request.ids), secrets.token_hex(8)
        self._removals[token] = before
        while len(self._removals) > MAX_REMOVALS:
            del self._removals[next(iter(self._removals))]
        self._keep_removals()
        return self._changed(len(before), token)

    @post("/api/images/restore", "collection", pool="update_pool")
    def restore_images(self, request: RestoreRequest) -> RemovalResult:
        """Put removed images back, with their ids, vectors and labels."""
        if (before := self._removals.get(request.undo)) is None:
            raise HTTPException(404, "this removal can no longer be undone; add the images with 'visterm add'")
        n = restore(self.service.run, before)
        del self._removals[request.undo]
        self._keep_removals()
        result = self._changed(n, None)
        if lost := self.service.snapshot.searcher.pending.intersection(image.id for image in before):
            command = f"visterm features {self.service.run.option}"  # compacting dropped their vectors
            result["behind"] = f"{count(len(lost), 'image')} not extracted yet; run '{command}'"
        return result

    def last_removal(self) -> LastRemoval | None:
        """Return the last removal that can be undone, also one before the service was started."""
        for token, images in list(self._removals.items())[-1:]:  # a copy: another thread may undo it now
            return {"undo": token, "images": len(images)}
        return None

    def _keep_removals(self) -> None:
        with contextlib.suppress(OSError):  # of a full disk: they can be undone until the service ends
            self._removals_file.parent.mkdir(mode=0o700, exist_ok=True)
            write_text(self._removals_file, json.dumps(self._removals))

    def _changed(self, n: int, undo: str | None) -> RemovalResult:
        snapshot = self.service.reloader.refresh()
        return {
            "n_images": len(snapshot.searcher.images),
            "changed": n,
            "undo": undo,
            "version": snapshot.searcher.version,
            "behind": self.service.problem,
        }

    @post("/images/download", "collection", writes=False)
    def download(self, ids: Annotated[Ids, Form(description=IDS)]) -> Response:
        """Return the files of images as a ZIP archive, without metadata; missing.txt lists those that are gone."""
        snapshot = self.service.snapshot
        images = [self.service.image(snapshot, number) for number in dict.fromkeys(map(int, ids.split(",")))]
        headers = {"Content-Disposition": 'attachment; filename="photos.zip"'}
        return StreamingResponse(self._archive(snapshot, images), media_type="application/zip", headers=headers)

    def _archive(self, snapshot: Snapshot, images: Sequence[Image]) -> Iterator[bytes]:
        """Make a ZIP archive of image files one by one, so that it never lies in memory as a whole."""
        chunks, missing = _Chunks(), []
        with zipfile.ZipFile(cast(Any, chunks), "w", zipfile.ZIP_STORED) as archive:  # photos are compressed already
            for image in images:
                name = os.fsencode(image.path).decode("utf-8", "replace")
                if os.path.isabs(name):  # added from elsewhere: no folders of this machine in the archive
                    name = f"{image.id}-{os.path.basename(name)}"
                try:
                    file = self.service.image_with_file(snapshot, image.id)
                    archive.writestr(name, self.service.original(snapshot, file))
                except (ImageFileGone, ImageError):
                    missing.append(name)
                yield chunks.take()
            if missing:
                archive.writestr("missing.txt", "\n".join(missing) + "\n")
        yield chunks.take()

    async def _image_with_file(self, snapshot: Snapshot, number: int) -> Image:
        if not snapshot.is_imported:  # nothing to read
            return self.service.image(snapshot, number)
        return await self.service.thumbnail_pool.run(self.service.image_with_file, snapshot, number)


def _read_removals(file: Path) -> dict[str, list[Excluded]]:
    """Read the removals that can be undone; none of a file that is missing or damaged."""
    try:
        return {token: [Excluded(*image) for image in images] for token, images in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


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


def passing(snapshot: Snapshot, request: FilterRequest) -> Sequence[int]:
    """Return the rows of the images that pass a filter, in order of path."""
    condition, gallery = request.filter(), snapshot.searcher.gallery
    return range(len(gallery.images)) if condition == NO_FILTER else gallery.rows_of(condition).tolist()


def _rows(snapshot: Snapshot, request: ListRequest) -> Sequence[int]:
    """Return the rows of the images that pass a filter, in the order asked for; images without a date come last."""
    rows, gallery = passing(snapshot, request), snapshot.searcher.gallery
    if request.order == "recent":
        return sorted(rows, key=lambda row: -gallery.images[row].id)
    if request.order == "date":
        return sorted(rows, key=lambda row: gallery.fields.date(row)[0], reverse=True)
    return rows


def _is_cached(http: Request, headers: dict[str, str]) -> bool:
    """Whether a client has this version of an image; a proxy that compresses marks the tag as weak."""
    tags = http.headers.get("if-none-match", "").split(",")
    return any(tag.strip().removeprefix("W/") in (headers["ETag"], "*") for tag in tags)


def _cache_headers(sha256: str, variant: str, requested: str) -> dict[str, str]:
    """Make the headers of an image: immutable only with its hash, since another run at this URL may reuse the id."""
    headers = {"ETag": f'"{sha256[:32]}{variant}"', **_IMAGE_POLICY}
    if len(requested) >= 8 and sha256.startswith(requested):
        headers["Cache-Control"] = _IMMUTABLE
    return headers
