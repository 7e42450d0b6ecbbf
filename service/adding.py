"""Photos added to the collection through the service: kept in runs/<run>/added, extracted in the background."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import sys
import threading
from typing import Any

from starlette.exceptions import HTTPException

from visterm.features import ImageError
from visterm.features.decoding import decode_picture
from visterm.features.images import EXTENSIONS
from visterm.pipeline.console import one_line
from visterm.pipeline.store.files import write_bytes
from visterm.pipeline.store.run import Run

from .add_files import discard_waiting
from .child_process import end_child, problem_of, said_by, start_child
from .reloader import SnapshotReloader
from .snapshot import Snapshot

_log = logging.getLogger(__name__)
COMMAND = (sys.executable, "-m", "visterm.service.add_files")
_END_SECONDS = 10.0
_LONGEST_NAME = 150  # characters
_IDLE: dict[str, Any] = {"done": 0, "total": 0}


class PhotoAdder:
    """The photos given to the service: one child process at a time extracts and adds them."""

    def __init__(self, run: Run, reloader: SnapshotReloader):
        self._run, self._reloader = run, reloader
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._cancelled = False
        self._progress = _IDLE
        self._result: dict[str, Any] | None = None
        self._problem: str | None = None
        self._contents: tuple[str, dict[str, str]] = "", {}  # by version: paths by SHA-256

    def keep(self, snapshot: Snapshot, name: str, data: bytes, max_pixels: int) -> dict[str, Any]:
        """Keep a photo until `start`, unless the collection has its bytes; make `schemas.KeptPhoto`."""
        if snapshot.searcher.config.collection.vectors.file is not None:
            raise HTTPException(409, "this run was made from imported vectors: photos cannot be added to it")
        name = _file_name(name)
        if os.path.splitext(name)[1].lower() not in EXTENSIONS:
            raise HTTPException(415, f"{name}: not the name of an image")
        sha256 = hashlib.sha256(data).hexdigest()
        if (path := self._paths(snapshot).get(sha256)) is not None:
            return {"name": name, "copy_of": os.path.basename(path) if os.path.isabs(path) else path}
        try:
            decode_picture(data, name, max_side=64, max_pixels=max_pixels)
        except ImageError as error:
            status = 413 if error.reason.startswith("too large") else 415
            raise HTTPException(status, f"{name}: {error.reason}") from None
        self._run.added.mkdir(mode=0o700, exist_ok=True)
        file = self._run.added / name
        if file.exists() and file.read_bytes() != data:
            file = file.with_name(f"{file.stem}-{sha256[:8]}{file.suffix}")
        write_bytes(file, data)
        return {"name": name, "copy_of": None}

    def state(self) -> dict[str, Any]:
        """Make `schemas.AddState`."""
        with self._lock:
            running = {"running": self._process is not None}
            return running | self._progress | {"result": self._result, "problem": self._problem}

    def start(self) -> None:
        """Add the photos that were kept; HTTPException or UserError if the run is at work."""
        with self._lock:
            if self._process is not None:
                raise HTTPException(409, "photos are being added; wait for that to end, or cancel it")
            with self._run.locked():  # else refused here, not in the process
                pass
            self._progress, self._result, self._problem, self._cancelled = _IDLE, None, None, False
            self._process = process = start_child(COMMAND, self._run)
        threading.Thread(target=self._follow, args=(process,), name="visterm-adding", daemon=True).start()

    def cancel(self) -> None:
        """End the process; photos that are not added yet are deleted."""
        with self._lock:
            if self._process is not None:
                self._cancelled = True
                self._process.terminate()
                return
        discard_waiting(self._run)

    def stop(self) -> None:
        """End the process."""
        with self._lock:
            process = self._process
        if process is not None:
            end_child(process, _END_SECONDS)

    def _follow(self, process: subprocess.Popen[str]) -> None:
        result: dict[str, Any] = {"added": 0, "refused": []}
        problem: str | None = None
        for said in said_by(process):
            result, problem = said.get("result", result), said.get("error", problem)
            if "total" in said:
                with self._lock:
                    self._progress = said
        if process.returncode and not self._cancelled:
            problem = problem_of(process, "the process that adds photos", problem)
            _log.warning("%s", one_line(problem))
        self._reloader.refresh()
        n_cancelled = discard_waiting(self._run) if self._cancelled else 0
        with self._lock:
            self._process, self._progress = None, _IDLE
            self._result, self._problem = result | {"cancelled": n_cancelled}, problem and one_line(problem)

    def _paths(self, snapshot: Snapshot) -> dict[str, str]:
        if self._contents[0] != snapshot.searcher.version:
            paths = {image.sha256: image.path for image in reversed(snapshot.searcher.images)}
            self._contents = snapshot.searcher.version, paths
        return self._contents[1]


def _file_name(given: str) -> str:
    """The name of a file for a name that a browser sent: without folders and what a file system may not take."""
    name = re.sub(r'[\x00-\x1f\x7f<>:"|?*]', "_", re.split(r"[/\\]", one_line(given))[-1]).strip(" .")
    stem, suffix = os.path.splitext(name or "photo")
    while len(os.fsencode(stem + suffix)) > _LONGEST_NAME:
        stem = stem[:-1] or "_"
        suffix = suffix[:10]
    return stem + suffix
