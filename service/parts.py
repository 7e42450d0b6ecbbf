"""The parts of the service that its subjects share: the snapshot, pools of threads, files, and background jobs."""

from __future__ import annotations

import hashlib
import os
from typing import TypeVar

import numpy as np
from starlette.exceptions import HTTPException

from visterm.features import ImageError, decode_image, printable
from visterm.features.decoding import decode_picture
from visterm.features.depth import RULES
from visterm.pipeline.console import one_line
from visterm.pipeline.search.queries import Queries
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.models import LEARNER_NAMES
from visterm.pipeline.store.run import Run

from .batching import NicePool, Pool, available_cores
from .jobs import Job
from .looks import Looks
from .metadata import without_metadata
from .reloader import SnapshotReloader
from .responses import hide_folders
from .run_folder import RunFolder
from .settings import ServiceSettings
from .snapshot import Snapshot
from .summaries import Summaries
from .thumbnails import ImportedFiles, Thumbnails, read_original
from .uploads import Uploads

UPLOAD_BYTES = 64 * 2**20
UPLOAD_SIDE = 1024  # longer side of a decoded upload, unless images of the run are described at a larger size
MAX_UPLOAD_WORKERS = 4  # each may hold an image of ServiceSettings.upload_pixels
# Waiting for a thread
UPLOAD_SECONDS, UPDATE_SECONDS, OTHER_SECONDS = 10.0, 30.0, 10.0

J = TypeVar("J", bound=Job)


class ServiceParts:
    """The parts that requests share.

    A request takes the `snapshot` once and uses it throughout. Work of more than a millisecond runs in threads with one
    of five queues, so that short work never waits behind long work: searches by id, thumbnails, uploads, updates of
    learners (one after the other) and everything else. A request that waits for too long is refused.
    """

    def __init__(self, run: Run, settings: ServiceSettings):
        self.run, self.settings = run, settings
        self._jobs: list[Job] = []
        self.reloader = SnapshotReloader(run, exif_fields=settings.keep_metadata)
        self.run_folder = RunFolder(run)
        folder = run.folder / "service"
        self.uploads = Uploads(folder / "uploads")
        self.thumbnails = Thumbnails(folder / "thumbnails.sqlite")
        self._imported = ImportedFiles()
        self.looks = Looks(folder / "looks.sqlite")
        summaries = Summaries(self.looks, self.thumbnails)
        self.image_summary, self.columns = summaries.summary, summaries.columns
        self.thumbnail_pool = NicePool(available_cores(), OTHER_SECONDS)
        self.upload_pool = NicePool(min(MAX_UPLOAD_WORKERS, max(1, available_cores() // 2)), UPLOAD_SECONDS)
        self.update_pool = Pool(1, UPDATE_SECONDS)
        self.general_pool = Pool(available_cores(), OTHER_SECONDS)

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot in use; take it once per request."""
        return self.reloader.snapshot

    @property
    def problem(self) -> str | None:
        """Why searches still use the previous version; None if they use that on disk."""
        problem = self.reloader.problem
        return problem and self.public(problem)

    def add_job(self, job: J) -> J:
        """Let a job know when images change and when the service ends."""
        self._jobs.append(job)
        return job

    def image(self, snapshot: Snapshot, number: int) -> Image:
        """Return an image of the collection by id."""
        try:
            return snapshot.image(number)
        except KeyError:
            raise HTTPException(404, f"no image {number} in this collection; it may have been removed") from None

    def public(self, text: str) -> str:
        """Return the text of an error on one line, without the folders that paths in it lie in."""
        folders = self.run.folder.parent, self.snapshot.searcher.root
        return hide_folders(one_line(text), *folders)

    def max_pixels(self, snapshot: Snapshot) -> int:
        """Return the limit of an upload in pixels."""
        return min(self.settings.upload_pixels, snapshot.searcher.config.collection.max_pixels)

    def id_of(self, snapshot: Snapshot, path: str) -> int:
        """Return the id of an image of the collection by its path, or the id that imported vectors gave it."""
        searcher = snapshot.searcher
        row = searcher.images.row_of_path(os.path.normpath(path)) if path else None
        if row is None:
            raise HTTPException(404, f"no image {one_line(path)[:200]} in this collection; it may have been removed")
        return searcher.images[row].id

    def query(self, snapshot: Snapshot, number: int | None, upload: str | None) -> Queries:
        """Return the query for an image id or the hash of an upload."""
        if number is not None:
            self.image(snapshot, number)
            return snapshot.image_queries([snapshot.searcher.place[number]])
        assert upload is not None
        return snapshot.pixels_query("upload", upload, lambda: self.upload_pixels(upload))

    def read_upload(self, snapshot: Snapshot, name: str, data: bytes) -> tuple[Queries, str | None]:
        """Decode and store an uploaded image; return the query, and its hash if the image could be stored."""
        key = hashlib.sha256(data).hexdigest()
        side = getattr(snapshot.searcher.extractor, "max_side", UPLOAD_SIDE)  # None: images are not scaled down
        side = None if side is None else max(side, UPLOAD_SIDE)
        try:
            rules = getattr(snapshot.searcher.extractor, "rules", RULES)
            pixels = decode_picture(data, name, max_side=side, max_pixels=self.max_pixels(snapshot), rules=rules).pixels
        except ImageError as error:
            status = 413 if error.reason.startswith("too large") else 415
            named = printable(name) if name else "the upload"
            raise HTTPException(
                status,
                f"{named}: {error.reason}; upload a JPEG, PNG, WebP, GIF, AVIF, HEIC, BMP, TIFF or JPEG 2000 image",
            ) from None
        query = snapshot.pixels_query(name or "upload", key, lambda: pixels)
        return query, key if self.run_folder.is_in_place() and self.uploads.add(key, pixels) else None

    def image_with_file(self, snapshot: Snapshot, number: int) -> Image:
        """Return an image of the collection by id, with the SHA-256 of its file; of imported vectors, note its size."""
        image, searcher = self.image(snapshot, number), snapshot.searcher
        if not snapshot.is_imported:
            return image
        file, size = self._imported.read(searcher.root, image, searcher.config.collection.max_pixels)
        snapshot.sizes[searcher.place[number]] = size
        return file

    def original(self, snapshot: Snapshot, image: Image) -> bytes:
        """Return the file of an image, without its metadata unless they are kept."""
        data = read_original(snapshot.searcher.root, image)
        if self.settings.keep_metadata:
            return data
        return without_metadata(data, image.path, snapshot.searcher.config.collection.max_pixels)

    def upload_png(self, key: str) -> bytes:
        """Return the PNG of an upload."""
        data = self.uploads.read(key)
        if data is None:
            raise HTTPException(404, "this upload has expired or does not exist; upload the picture again")
        return data

    def upload_pixels(self, key: str) -> np.ndarray:
        """Return the RGB pixels of an upload."""
        return decode_image(self.upload_png(key), key)

    def learner(self, snapshot: Snapshot, name: str | None) -> str:
        """Return the learner of this name, or else the default one."""
        if name is None:
            return snapshot.default_learner
        available = f"this run has {listed(snapshot.searcher.learners)}"
        if name not in LEARNER_NAMES:
            raise HTTPException(404, f"unknown learner {one_line(name)}; {available}")
        if name not in snapshot.searcher.learners:
            raise HTTPException(409, f"{name} is not trained for the current images; {available}")
        return name

    def start(self) -> None:
        """Start checking the run for changes."""
        self.reloader.start(self._jobs, self.clean_up)

    def clean_up(self, snapshot: Snapshot) -> None:
        """Remove expired uploads and thumbnails of removed images; read the looks of new ones."""
        self.uploads.sweep()
        self.thumbnails.sweep(None if snapshot.is_imported else snapshot.searcher.images)
        self.looks.follow(snapshot)

    def close(self) -> None:
        """Stop checking the run and close the files."""
        self.reloader.stop()
        self.upload_pool.close()
        self.thumbnail_pool.close()
        self.looks.close()
        for job in self._jobs:
            job.stop()
        self.thumbnails.close()
        self.run_folder.close()


def listed(names: list[str]) -> str:
    """Return names in an error."""
    return ", ".join(names) or "none"
