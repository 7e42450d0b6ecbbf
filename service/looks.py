"""Mean colours of the images, and groups of copies of one picture, each compared with the one of most pixels.

Both are read from the files once, in the background, and stored by the SHA-256 of the image.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np

from visterm.features import ImageError
from visterm.features.decoding import decode_picture
from visterm.pipeline.store.images import Image
from visterm.teaching.duplicates import GRID, is_blank, small_copies, small_versions
from visterm.teaching.groups import stars_of, with_equal

from .snapshot import Snapshot
from .thumbnails import ImageFileGone, open_cache, read_original, size_of

_log = logging.getLogger(__name__)
_BATCH = 64  # images per transaction
_SCHEMA = """
CREATE TABLE IF NOT EXISTS looks (sha256 TEXT PRIMARY KEY, color TEXT NOT NULL, cells BLOB NOT NULL, fine BLOB NOT NULL)
"""


class Looks:
    """Mean colours by SHA-256 (`colors`), and groups of copies (`groups`): image id to that of its largest copy.

    Both grow while a thread reads the images of the collection; where the file cannot be written, they are read again
    by the next service.
    """

    def __init__(self, file: Path):
        self.colors: dict[str, str] = {}
        self.groups: dict[int, int] = {}
        self._cells: dict[str, bytes] = {}
        self._measured: np.ndarray | None = None  # sizes of pictures beside imported vectors, all read
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._db, stored = open_cache(file, _SCHEMA, "SELECT sha256, color, cells FROM looks", "mean colours")
        for sha256, color, cells in stored:
            self.colors[sha256], self._cells[sha256] = color, cells

    def follow(self, snapshot: Snapshot) -> None:
        """Read the images of a snapshot in the background; an earlier reading ends first."""
        self._end()
        self._stop.clear()
        thread = threading.Thread(target=self._read, args=(snapshot,), name="visterm-looks", daemon=True)
        thread.start()
        self._thread = thread  # only now: one that has not begun looks like one that has ended

    def _read(self, snapshot: Snapshot) -> None:
        searcher = snapshot.searcher
        try:
            present = set(searcher.images.contents())
            self._forget(self._cells.keys() - present)
            if not snapshot.is_imported:
                self._group(snapshot)
                missing = [image for image in searcher.images if image.sha256 not in self._cells]
                for start in range(0, len(missing), _BATCH):
                    self._read_batch(searcher.root, missing[start : start + _BATCH])
                    if self._stop.is_set():
                        return
                if not missing:
                    return
            self._group(snapshot)
            if snapshot.is_imported and snapshot.sizes is not self._measured:
                self._measure(snapshot)
        except Exception:  # the page works without
            _log.exception("cannot read the looks of %s", searcher.root)

    def _measure(self, snapshot: Snapshot) -> None:
        """Read the sizes of the pictures beside imported vectors, of which the catalogue has none."""
        root, sizes = snapshot.searcher.root, snapshot.sizes
        for row, image in enumerate(snapshot.searcher.images):
            if self._stop.is_set():
                return
            if not sizes[row].any():
                sizes[row] = size_of(os.path.join(root, image.path))
        self._measured = sizes

    def _read_batch(self, root: Path, images: Iterable[Image]) -> None:
        rows = []
        for image in images:
            if self._stop.is_set():  # each read may last for READ_SECONDS
                break
            with contextlib.suppress(ImageFileGone, ImageError):
                pixels = decode_picture(read_original(root, image), image.path, max_side=64).pixels
                red, green, blue = (round(value) for value in cv2.mean(pixels)[:3])
                rows.append((image.sha256, f"#{red:02x}{green:02x}{blue:02x}", *small_versions(pixels)))
        for sha256, color, cells, _ in rows:
            self.colors[sha256], self._cells[sha256] = color, cells
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error), self._db:  # a full disk only costs time
                self._db.execute("BEGIN")
                self._db.executemany("INSERT OR IGNORE INTO looks VALUES (?, ?, ?, ?)", rows)

    def _forget(self, gone: set[str]) -> None:
        for sha256 in gone:
            self.colors.pop(sha256, None)
            self._cells.pop(sha256, None)
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.executemany("DELETE FROM looks WHERE sha256 = ?", ((sha256,) for sha256 in gone))

    def _group(self, snapshot: Snapshot) -> None:
        first_rows = snapshot.searcher.gallery.rows_by_sha256
        known = [sha256 for sha256 in first_rows if sha256 in self._cells]
        sizes = snapshot.sizes[[first_rows[sha256] for sha256 in known]].astype(np.float64).clip(1)
        cells = [self._cells[sha256] for sha256 in known]
        pairs = small_copies(cells, sizes[:, 0] / sizes[:, 1], lambda places: self._fine(known, places))
        images = snapshot.searcher.images
        ids, equal = images.ids.tolist(), defaultdict[str, list[int]](list)
        for sha256, id_ in zip(images.contents(), ids, strict=True):
            equal[sha256].append(id_)
        flat = self._flat([sha256 for sha256, of_file in equal.items() if len(of_file) > 1])
        of_copies = with_equal(
            {(equal[known[i]][0], equal[known[j]][0]): value for (i, j), value in pairs.items()},
            {of_file[0]: of_file[1:] for sha256, of_file in equal.items() if sha256 not in flat},
        )
        pixels = dict(zip(ids, snapshot.sizes.astype(int).prod(axis=1).tolist(), strict=True))
        stars = stars_of(of_copies, {}, pixels)
        self.groups = {id_: kept for kept, others in stars.items() for id_ in (kept, *others)}

    def _flat(self, of_several: list[str]) -> set[str]:
        """Return those of some pictures that are of one colour."""
        known = [sha256 for sha256 in of_several if sha256 in self._cells]
        small = [np.frombuffer(self._cells[sha256], np.uint8).reshape(GRID, GRID, 3) for sha256 in known]
        places = {i for i, cells in enumerate(small) if is_blank(cells)}
        fine = self._fine(known, places)
        return {known[i] for i in places if i not in fine or is_blank(np.frombuffer(fine[i], np.uint8)[:, None, None])}

    def _fine(self, known: list[str], places: set[int]) -> dict[int, bytes]:
        """Read the small grey versions of some images, where they are stored."""
        query = "SELECT fine FROM looks WHERE sha256 = ?"
        stored = {i: self._db and self._db.execute(query, (known[i],)).fetchone() for i in places}
        return {i: row[0] for i, row in stored.items() if row}

    def _end(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stop reading and close the file."""
        self._end()
        if self._db is not None:
            self._db.close()
        self._db = None
