"""What the images look like at a glance: mean colours, and which images are copies of each other.

Both are read from the files once, in the background, and stored by the SHA-256 of the image.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from visterm.features import ImageError
from visterm.features.decoding import decode_picture
from visterm.pipeline.store.catalogue import Image

from .snapshot import Snapshot
from .thumbnails import ImageFileGone, read_original

_log = logging.getLogger(__name__)
GRID = 8  # cells per side that stand for an image
TOLERANCE = 4.0  # levels: largest root mean square difference of the cells of two copies
FINE = 32  # pixels per side of a small grey image, which fine textures of one mean colour differ in
CORRELATION = 0.9  # smallest one of the grey images of two copies
_FLAT = 2.0  # grey levels: standard deviation below which a correlation says nothing
_DIMENSIONS = 8  # of the projection in which candidates are searched
_BATCH = 64  # images per transaction
_SCHEMA = """
CREATE TABLE IF NOT EXISTS looks (sha256 TEXT PRIMARY KEY, color TEXT NOT NULL, cells BLOB NOT NULL, fine BLOB NOT NULL)
"""


class Looks:
    """Mean colours by SHA-256 (`colors`), and groups of copies: image id to the smallest id of its group (`groups`).

    Both grow while a thread reads the images of the collection; where the file cannot be written, they are read again
    by the next service.
    """

    def __init__(self, file: Path):
        self.colors: dict[str, str] = {}
        self.groups: dict[int, int] = {}
        self._cells: dict[str, bytes] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._db: sqlite3.Connection | None = None
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            self._db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(_SCHEMA)
            for sha256, color, cells in self._db.execute("SELECT sha256, color, cells FROM looks"):
                self.colors[sha256], self._cells[sha256] = color, cells
        except (OSError, sqlite3.Error) as error:
            self.close()
            _log.warning("%s: %s; mean colours are not stored", file, error)

    def follow(self, snapshot: Snapshot) -> None:
        """Read the images of a snapshot in the background; an earlier reading ends first."""
        self._end()
        self._stop.clear()
        self._thread = threading.Thread(target=self._read, args=(snapshot,), name="visterm-looks", daemon=True)
        self._thread.start()

    def _read(self, snapshot: Snapshot) -> None:
        searcher = snapshot.searcher
        try:
            present = {image.sha256 for image in searcher.images}
            self._forget(self._cells.keys() - present)
            if searcher.config.collection.vectors.file is None:
                self._group(snapshot)
                missing = [image for image in searcher.images if image.sha256 not in self._cells]
                for start in range(0, len(missing), _BATCH):
                    self._read_batch(searcher.root, missing[start : start + _BATCH])
                    if self._stop.is_set():
                        return
                if not missing:
                    return
            self._group(snapshot)
        except Exception:  # the page works without
            _log.exception("cannot read the looks of %s", searcher.root)

    def _read_batch(self, root: Path, images: Iterable[Image]) -> None:
        rows = []
        for image in images:
            if self._stop.is_set():  # each read may last for READ_SECONDS
                break
            with contextlib.suppress(ImageFileGone, ImageError):
                pixels = decode_picture(read_original(root, image), image.path, max_side=64).pixels
                red, green, blue = (round(value) for value in cv2.mean(pixels)[:3])
                cells = cv2.resize(pixels, (GRID, GRID), interpolation=cv2.INTER_AREA).tobytes()
                gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
                fine = cv2.resize(gray, (FINE, FINE), interpolation=cv2.INTER_AREA).tobytes()
                rows.append((image.sha256, f"#{red:02x}{green:02x}{blue:02x}", cells, fine))
        for sha256, color, cells, _ in rows:
            self.colors[sha256], self._cells[sha256] = color, cells
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):  # a full disk only costs time
                self._db.execute("BEGIN")
                self._db.executemany("INSERT OR IGNORE INTO looks VALUES (?, ?, ?, ?)", rows)
                self._db.execute("COMMIT")

    def _forget(self, gone: set[str]) -> None:
        for sha256 in gone:
            self.colors.pop(sha256, None)
            self._cells.pop(sha256, None)
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.executemany("DELETE FROM looks WHERE sha256 = ?", ((sha256,) for sha256 in gone))

    def _group(self, snapshot: Snapshot) -> None:
        known = [sha256 for sha256 in snapshot.rows_by_key if sha256 in self._cells]
        joined = b"".join(self._cells[sha256] for sha256 in known)
        cells = np.frombuffer(joined, np.uint8).reshape(len(known), GRID * GRID * 3)
        rows = [snapshot.rows_by_key[sha256] for sha256 in known]
        sizes = snapshot.sizes[rows].astype(np.float64).clip(1)
        pairs = find_pairs(cells, sizes[:, 0] / sizes[:, 1])
        fine = self._fine({known[place] for pair in pairs for place in pair[:2]})
        same = [(i, j) for i, j, turned in pairs if _agree(fine[known[i]], fine[known[j]], turned)]
        a, b = np.array(same, np.intp).reshape(-1, 2).T
        graph = coo_matrix((np.ones(len(a)), (a, b)), shape=(len(known), len(known)))
        numbers = dict(zip(known, connected_components(graph, directed=False)[1].tolist(), strict=True))
        members: dict[int | str, list[int]] = defaultdict(list)
        for image in snapshot.searcher.images:
            members[numbers.get(image.sha256, image.sha256)].append(image.id)
        self.groups = {id_: min(ids) for ids in members.values() if len(ids) > 1 for id_ in ids}

    def _fine(self, keys: set[str]) -> dict[str, np.ndarray]:
        """Read the small grey images; those that are not stored differ from all others."""
        images: dict[str, np.ndarray] = {}
        for key in keys:
            row = self._db and self._db.execute("SELECT fine FROM looks WHERE sha256 = ?", (key,)).fetchone()
            unlike = np.random.default_rng(len(images)).integers(256, size=FINE**2, dtype=np.uint8)
            values = np.frombuffer(row[0], np.uint8) if row else unlike
            images[key] = values.reshape(FINE, FINE).astype(np.float32)
        return images

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


def find_pairs(cells: np.ndarray, ratios: np.ndarray) -> list[tuple[int, int, bool]]:
    """Find pairs of images that may be copies: re-encoded, resized or mirrored.

    Parameters
    ----------
    cells : ndarray of uint8, (n, GRID * GRID * 3)
        Each image scaled down to GRID x GRID RGB pixels.
    ratios : ndarray of float, (n,)
        Width by height; copies agree to 3 %.

    Returns
    -------
    list of (int, int, bool)
        Two places, the first one smaller, and whether one is mirrored.

    Notes
    -----
    Distances in a projection are never larger than those of the cells, so no pair is missed.
    """
    n = len(cells)
    if n < 2:
        return []
    points = cells.astype(np.float32)
    mirrored = points.reshape(n, GRID, GRID, 3)[:, :, ::-1].reshape(n, -1)
    centred = points - points.mean(axis=0)
    basis = np.linalg.eigh(centred.T @ centred)[1][:, -_DIMENSIONS:]
    radius = TOLERANCE * np.sqrt(points.shape[1])
    tree = cKDTree(points @ basis)
    pairs: list[tuple[int, int, bool]] = []
    for other, vectors, turned in ((tree, points, False), (cKDTree(mirrored @ basis), mirrored, True)):
        found = tree.sparse_distance_matrix(other, radius, output_type="coo_matrix")
        i, j = found.row, found.col
        for start in range(0, len(i), 100_000):  # bounded memory
            a, b = i[start : start + 100_000], j[start : start + 100_000]
            near = (a < b) & (((points[a] - vectors[b]) ** 2).sum(axis=1) <= radius**2)
            near &= np.abs(np.log(ratios[a] / ratios[b])) < 0.03
            pairs += zip(a[near].tolist(), b[near].tolist(), [turned] * int(near.sum()), strict=True)
    return pairs


def _agree(one: np.ndarray, other: np.ndarray, turned: bool) -> bool:
    """Whether two small grey images show the same."""
    other = other[:, ::-1] if turned else other
    if one.std() < _FLAT and other.std() < _FLAT:
        return True
    a, b = one - one.mean(), other - other.mean()
    return float((a * b).sum()) >= CORRELATION * float(np.sqrt((a * a).sum() * (b * b).sum()))
