"""Mean colours of the images, and groups of copies of one picture, each compared with the one of most pixels.

Both are read from the files once, in the background, and stored by the SHA-256 of the image. Small versions of two
drawings may be equal, and only one image of a group is shown: `same_at_all_sizes` decides, as for duplicates.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from visterm.features import ImageError
from visterm.features.decoding import decode_picture
from visterm.pipeline.store.images import Image
from visterm.teaching.duplicates import GRID, is_blank, small_copies, small_versions
from visterm.teaching.groups import stars_of, with_equal
from visterm.teaching.same_picture import WORKING_SIDE, is_drawing, same_at_all_sizes

from .snapshot import Snapshot
from .thumbnails import ImageFileGone, open_cache, read_original, size_of

_log = logging.getLogger(__name__)
_BATCH = 64  # images per transaction
_SCHEMA = """
CREATE TABLE IF NOT EXISTS looks (sha256 TEXT PRIMARY KEY, color TEXT NOT NULL, cells BLOB NOT NULL, fine BLOB NOT NULL)
"""
# Whether two images, the first one before the other by SHA-256, show one picture.
_COMPARED = """
CREATE TABLE IF NOT EXISTS compared (one TEXT, other TEXT, same INTEGER NOT NULL, PRIMARY KEY (one, other))
"""
_KEPT_PICTURES = 8  # that are compared with others next: at most 4 MB each
_Pair = tuple[str, str]  # SHA-256 of two images, in order


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
        self._same: dict[_Pair, bool] = {}  # of pairs that were compared
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute(_COMPARED)
                rows = self._db.execute("SELECT one, other, same FROM compared")
                self._same = {(one, other): bool(same) for one, other, same in rows}

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
            candidates = self._candidates(snapshot)
            self._group(snapshot, candidates)
            if not snapshot.is_imported:
                missing = [image for image in searcher.images if image.sha256 not in self._cells]
                for start in range(0, len(missing), _BATCH):
                    self._read_batch(searcher.root, missing[start : start + _BATCH])
                    if self._stop.is_set():
                        return
                self._compare(snapshot, self._candidates(snapshot) if missing else candidates)
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
                left = "NOT IN (SELECT sha256 FROM looks)"
                self._db.execute(f"DELETE FROM compared WHERE one {left} OR other {left}")

    def _candidates(self, snapshot: Snapshot) -> dict[_Pair, float]:
        """Pairs whose small versions agree, with their correlations."""
        first_rows = snapshot.searcher.gallery.rows_by_sha256
        known = [sha256 for sha256 in first_rows if sha256 in self._cells]
        sizes = snapshot.sizes[[first_rows[sha256] for sha256 in known]].astype(np.float64).clip(1)
        cells = [self._cells[sha256] for sha256 in known]
        pairs = small_copies(cells, sizes[:, 0] / sizes[:, 1], lambda places: self._fine(known, places))
        return {(min(known[i], known[j]), max(known[i], known[j])): value for (i, j), value in pairs.items()}

    def _compare(self, snapshot: Snapshot, candidates: dict[_Pair, float]) -> None:
        """Compare each picture with the one that it is a likely copy of, until all groups are of copies."""
        searcher, first_rows = snapshot.searcher, snapshot.searcher.gallery.rows_by_sha256

        @lru_cache(_KEPT_PICTURES)
        def read(sha256: str, side: int) -> np.ndarray:
            image = searcher.images[first_rows[sha256]]
            return decode_picture(read_original(searcher.root, image), image.path, max_side=side).pixels

        def same(one: str, other: str, *, mirrored: bool) -> bool:
            def both(side: int) -> tuple[np.ndarray, np.ndarray]:
                picture = read(other, side)
                return read(one, side), np.ascontiguousarray(picture[:, ::-1]) if mirrored else picture

            return same_at_all_sizes(both) > 0

        left = dict(candidates)
        while pairs := self._group(snapshot, left):
            for pair in pairs:
                if self._stop.is_set():  # each read may last for READ_SECONDS
                    return
                try:
                    verdict = same(*pair, mirrored=False)
                    if not verdict and not is_drawing(read(pair[0], WORKING_SIDE)):  # a mirrored arrow is another one
                        verdict = same(*pair, mirrored=True)
                except (ImageFileGone, ImageError):
                    del left[pair]
                    continue
                self._same[pair] = verdict
                if self._db is not None:
                    with contextlib.suppress(sqlite3.Error):
                        self._db.execute("INSERT OR REPLACE INTO compared VALUES (?, ?, ?)", (*pair, verdict))

    def _group(self, snapshot: Snapshot, candidates: dict[_Pair, float]) -> list[_Pair]:
        """Group the copies; the pairs of groups that were not compared yet, which are left out."""
        images = snapshot.searcher.images
        ids, equal, content = images.ids.tolist(), defaultdict[str, list[int]](list), dict[int, str]()
        for sha256, id_ in zip(images.contents(), ids, strict=True):
            equal[sha256].append(id_)
            content[id_] = sha256
        flat = self._flat([sha256 for sha256, of_file in equal.items() if len(of_file) > 1])
        of_copies = with_equal(
            {(equal[a][0], equal[b][0]): value for (a, b), value in candidates.items() if self._same.get((a, b), True)},
            {of_file[0]: of_file[1:] for sha256, of_file in equal.items() if sha256 not in flat},
        )
        pixels = dict(zip(ids, snapshot.sizes.astype(int).prod(axis=1).tolist(), strict=True))
        groups, new = dict[int, int](), dict[_Pair, None]()
        for kept, others in stars_of(of_copies, {}, pixels).items():
            for other in others:
                one, two = sorted((content[kept], content[other]))
                if one == two or self._same.get((one, two)):
                    groups |= {kept: kept, other: kept}
                else:
                    new[one, two] = None
        self.groups = groups
        return list(new)

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
