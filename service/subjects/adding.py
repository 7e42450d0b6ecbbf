"""Photos added to the collection, kept in runs/<run>/added and extracted in the background; images of web addresses."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from fastapi import File, UploadFile
from pydantic import Field
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

from visterm.features import ImageError
from visterm.features.decoding import decode_picture
from visterm.features.images import EXTENSIONS
from visterm.pipeline.console import one_line
from visterm.pipeline.store.files import write_bytes
from visterm.service.add_files import AddedPhotos, RefusedPhoto, discard_waiting
from visterm.service.fetching import FetchError, fetch_image
from visterm.service.jobs import Job
from visterm.service.parts import UPLOAD_BYTES, ServiceParts
from visterm.service.schemas import Body, Sha256
from visterm.service.snapshot import Snapshot
from visterm.service.subject import Subject, Subjects, delete, get, post

_LONGEST_NAME = 150  # characters
_NOT_ALLOWED = (
    "this service does not fetch addresses; save the picture and drop it here, or start the service with --fetch-urls"
)


class KeptPhoto(TypedDict):
    """A photo that was sent, to be added to the collection."""

    name: Annotated[str, Field(description="Under which it is kept")]
    copy_of: Annotated[
        str | None, Field(description="The image of the collection with the same bytes; then it is not kept")
    ]


class AddResult(TypedDict):
    """What came of adding photos."""

    added: int
    refused: list[RefusedPhoto]
    cancelled: Annotated[int, Field(description="Photos that were deleted because adding was cancelled")]


class AddState(TypedDict):
    """How far adding photos is."""

    running: bool
    done: int
    total: int
    result: Annotated[AddResult | None, Field(description="Of the last time since the service started")]
    problem: Annotated[
        str | None, Field(description="Why the last time failed; its photos are added with the next ones")
    ]


class KeptNames(Body):
    """Photos that were sent."""

    names: list[Annotated[str, Field(max_length=2 * _LONGEST_NAME)]] = Field(
        min_length=1, max_length=200, description="As POST /api/add/photo answered"
    )


class FetchRequest(Body):
    """The web address of an image."""

    url: Annotated[str, Field(max_length=4096)]


class FetchedImage(TypedDict):
    """An image that was fetched and stored as an upload."""

    upload: Sha256
    name: str


class PhotoAdder(Job):
    """The extraction of the photos that were kept."""

    command = (sys.executable, "-m", "visterm.service.add_files")
    work = "the process that adds photos"

    def __init__(self, service: ServiceParts):
        super().__init__(service.run)
        self._service = service
        self._given: set[str] = set()  # names of the photos that waited when the process was started

    def state(self) -> AddState:
        """Return the state of the job."""
        with self.lock:
            running = self.process is not None
            progress = self.progress if running else {"done": 0, "total": 0}
            return {
                "running": running,
                "done": progress["done"],
                "total": progress["total"],
                "result": self.result,
                "problem": self.problem and self._service.public(self.problem),
            }

    def start(self) -> None:
        """Add the photos that were kept; HTTPException or UserError if the run is at work."""
        with self.lock:
            if self.process is not None:
                raise HTTPException(409, "photos are being added; wait for that to end, or cancel it")
            with self.run.locked():  # else refused here, not in the process
                pass
            self._given = {file.name for file in self.run.added.iterdir()} if self.run.added.is_dir() else set()
            self.launch({"done": 0, "total": 0})

    def cancel_photos(self, names: Iterable[str]) -> None:
        """Delete photos that are not added yet; if the process adds them, this ends it."""
        if self._given.isdisjoint(names) or not self.cancel():
            discard_waiting(self.run, names)

    def finish(self, result: AddedPhotos | None) -> AddResult:
        """Let searches use the new images; delete photos of a cancelled job that are not added yet.

        Photos that came meanwhile stay: whoever sends them has yet to ask for adding.
        """
        self._service.reloader.refresh()
        n_cancelled = discard_waiting(self.run, self._given) if self.cancelled else 0
        return {**(result or {"added": 0, "refused": []}), "cancelled": n_cancelled}


class FolderWatcher(Job):
    """The process that adds what appears in the directory of images; started again if it ends."""

    command = (sys.executable, "-m", "visterm.service.watch_folder")
    work = "the process that watches the folder"

    def __init__(self, service: ServiceParts):
        super().__init__(service.run)
        self._service = service

    def watch_problem(self) -> str | None:
        """Return why images that appear are not added at the moment."""
        with self.lock:
            problem = self.progress.get("problem") if self.process is not None else self.problem
        return problem and self._service.public(problem)

    def images_changed(self, snapshot: Snapshot) -> None:
        """Start the process, if the service watches and it does not run."""
        with self.lock:
            if self._service.settings.watch and self.process is None:
                self.launch({})


class AddingSubject(Subject):
    """The photos given to the service."""

    def __init__(self, service: ServiceParts, subjects: Subjects):
        super().__init__(service, subjects)
        self.job = service.add_job(PhotoAdder(service))
        self.watcher = service.add_job(FolderWatcher(service))
        self._contents: tuple[str, dict[str, str]] = "", {}  # by version: paths by SHA-256
        self._waiting: dict[str, Path] = {}  # by SHA-256: photos that were kept and that nobody began to add
        self._naming = threading.Lock()  # two photos of one name, or one photo twice, may come at once

    @post("/api/add/photo", "collection", pool="upload_pool")
    def keep_photo(self, file: Annotated[UploadFile, File(description="A photo")]) -> KeptPhoto:
        """Keep a photo in runs/<run>/added, to be added by POST /api/add; not if the same file is there or waits."""
        snapshot, run = self.service.snapshot, self.service.run
        if snapshot.is_imported:
            raise HTTPException(409, "this run was made from imported vectors: photos cannot be added to it")
        data, name = file.file.read(), _file_name(file.filename or "")
        if os.path.splitext(name)[1].lower() not in EXTENSIONS:
            raise HTTPException(415, f"{name}: not the name of an image")
        sha256 = hashlib.sha256(data).hexdigest()
        if (path := self._paths(snapshot).get(sha256)) is not None:
            return {"name": name, "copy_of": os.path.basename(path) if os.path.isabs(path) else path}
        try:
            decode_picture(data, name, max_side=64, max_pixels=self.service.max_pixels(snapshot))
        except ImageError as error:
            status = 413 if error.reason.startswith("too large") else 415
            raise HTTPException(status, f"{name}: {error.reason}") from None
        run.added.mkdir(mode=0o700, exist_ok=True)
        with self._naming:
            if (same := self._waiting.get(sha256)) is not None and same.name != name and same.exists():
                return {"name": name, "copy_of": same.name}
            target = run.added / name
            if target.exists() and target.read_bytes() != data:
                target = target.with_name(f"{target.stem}-{sha256[:8]}{target.suffix}")
            write_bytes(target, data)
            self._waiting[sha256] = target
        return {"name": target.name, "copy_of": None}

    @get("/api/add", "collection")
    def add_state(self) -> AddState:
        """Say how far adding the photos is, and what came of it."""
        return self.job.state()

    @post("/api/add", "collection")
    def add(self) -> AddState:
        """Extract the photos that were kept and add them to the collection, in the background."""
        self.job.start()
        self._waiting.clear()
        return self.job.state()

    @delete("/api/add", "collection")
    def cancel_adding(self) -> AddState:
        """Cancel adding: what is added stays, what waited when it began is deleted; all, if it has not begun."""
        if not self.job.cancel():
            discard_waiting(self.service.run)
        self._waiting.clear()
        return self.job.state()

    @post("/api/add/cancel", "collection")
    def cancel_adding_photos(self, request: KeptNames) -> AddState:
        """Cancel adding these photos: those that are not added yet are deleted, with all that are added with them."""
        self.job.cancel_photos(request.names)
        return self.job.state()

    @post("/api/fetch", "search", writes=False)
    async def fetch(self, request: FetchRequest) -> FetchedImage:
        """Fetch an image from a public web address and store it as an upload."""
        service = self.service
        if not service.settings.fetch:
            raise HTTPException(403, _NOT_ALLOWED)
        snapshot = service.snapshot
        try:  # a slow server must not hold a place among those that decode
            name, data = await service.general_pool.run(fetch_image, request.url, UPLOAD_BYTES)
        except FetchError as error:
            raise HTTPException(422, f"cannot fetch this address: {error}") from None
        _, key = await service.upload_pool.run(service.read_upload, snapshot, name, data)
        if key is None:
            raise HTTPException(507, "the image cannot be stored")
        return {"upload": key, "name": name}

    def _paths(self, snapshot: Snapshot) -> dict[str, str]:
        kept = self._contents  # a request with another snapshot may replace it
        if kept[0] != snapshot.searcher.version:
            paths = {image.sha256: image.path for image in reversed(snapshot.searcher.images)}
            kept = self._contents = snapshot.searcher.version, paths
        return kept[1]


def _file_name(sent: str) -> str:
    """The name of a file for a name that a browser sent: without folders and what a file system may not take."""
    name = re.sub(r'[\x00-\x1f\x7f<>:"|?*]', "_", re.split(r"[/\\]", one_line(sent))[-1]).strip(" .")
    stem, suffix = os.path.splitext(name or "photo")
    while len(os.fsencode(stem + suffix)) > _LONGEST_NAME:
        stem = stem[:-1] or "_"
        suffix = suffix[:10]
    return stem + suffix
