"""Whether a file still shows the same picture after its bytes have changed, as by a comment or a rating in it.

An image keeps the SHA-256 that it was entered with, by which marks, label edits and links know it. Beside it the
catalogue has a hash of the decoded pixels, and the SHA-256 of a file whose bytes have changed since. An orientation
written into a file turns the picture: its pixels change, and with them its vector.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visterm.pipeline.errors import UserError

from .database import Database, Known

if TYPE_CHECKING:
    import numpy as np

Read = Callable[[str, bytes], "np.ndarray"]  # the pixels of a file, by its name and its bytes, as an extractor reads it
_TABLES = (  # not of the catalogue's first tables: an older run has none, and no hashes until it extracts again
    "CREATE TABLE IF NOT EXISTS pictures (id INTEGER PRIMARY KEY, pixels TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS by_pixels ON pictures (pixels)",
    "CREATE TABLE IF NOT EXISTS retagged (id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL)",  # of the file as it is now
)
_KNOWN = (
    "SELECT images.sha256, pixels, retagged.sha256 FROM images LEFT JOIN pictures USING (id) "
    "LEFT JOIN retagged USING (id) WHERE id = ?"
)


class Touched(NamedTuple):
    """A known image whose file has another size or time than the catalogue has."""

    place: int  # for the caller
    path: str
    old: Known
    size: int
    mtime_ns: int


class Outcome(NamedTuple):
    """The result of extracting one image; ``row`` is None for a skipped one."""

    id: int
    sha256: str | None
    width: int | None
    height: int | None
    row: int | None
    reason: str | None
    pixels: str | None = None  # see `pixels_hash`


def pixels_hash(pixels: np.ndarray) -> str:
    """Hash decoded pixels, as an extractor reads them: equal pixels have equal vectors."""
    digest = hashlib.blake2b(repr(pixels.shape).encode(), digest_size=16)
    digest.update(pixels.tobytes())
    return digest.hexdigest()


def make_tables(db: Database) -> None:
    """Make the tables of this module where an older version made the catalogue; for use in a transaction."""
    for statement in _TABLES:
        db.execute(statement)


def enter_same_pictures(db: Database, root: Path, touched: Sequence[Touched], read: Read | None) -> list[str]:
    """Find which files still show the pictures that the catalogue knows, and enter that; for use in a transaction.

    Returns per file "same" bytes, "retagged" for other bytes with the same pixels, or "changed".
    """
    from visterm.features.images import ImageError, read_file

    make_tables(db)
    known = [db.execute(_KNOWN, (image.old.id,)).fetchone() for image in touched]

    def compare(image: Touched, entered: tuple[str | None, str | None, str | None]) -> tuple[bool, str]:
        sha256, pixels, current = entered
        file = os.path.join(root, image.path)
        try:
            data = read_file(file)
            digest = hashlib.sha256(data).hexdigest()
            if digest in (sha256, current):
                return True, digest
            return bool(pixels and read and pixels_hash(read(file, data)) == pixels), digest
        except (ImageError, UserError):  # UserError: of an extractor that is missing or damaged
            return False, ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        compared = list(pool.map(compare, touched, known)) if touched else []
    verdicts = []
    for image, (sha256, _, current), (same, digest) in zip(touched, known, compared, strict=True):
        retagged = same and digest != (current or sha256)
        verdicts.append("retagged" if retagged else "same" if same else "changed")
        if retagged:
            _enter_retagged(db, image.old.id, digest, sha256 or "")
            db.execute("UPDATE fields SET taken = NULL WHERE id = ?", (image.old.id,))  # the date may have changed
    return verdicts


def enter_pictures(db: Database, outcomes: Iterable[Outcome]) -> dict[int, str]:
    """Enter what extraction has seen; return by id the SHA-256 that images are known by. For use in a transaction.

    That is the one that an image had if its file was known to show the same picture, or of a file that was moved and
    tagged at once: that of the removed image with its pixels.
    """
    make_tables(db)
    removed = (
        "SELECT sha256 FROM pictures JOIN images USING (id) WHERE pixels = ? AND status = 'removed' "
        "AND sha256 IS NOT NULL ORDER BY id DESC LIMIT 1"
    )
    known_by: dict[int, str] = {}
    for one in outcomes:
        if one.row is None or one.pixels is None or one.sha256 is None:
            continue
        before, pixels, current = db.execute(_KNOWN, (one.id,)).fetchone() or (None, None, None)
        identity = before if before and (one.sha256 == current or one.pixels == pixels) else None
        if not before and (moved := db.execute(removed, (one.pixels,)).fetchone()):
            identity = moved[0]
        known_by[one.id] = identity or one.sha256
        _enter_retagged(db, one.id, one.sha256, known_by[one.id])
        db.execute("INSERT OR REPLACE INTO pictures VALUES (?, ?)", (one.id, one.pixels))
    return known_by


def _enter_retagged(db: Database, id_: int, digest: str, sha256: str) -> None:
    if digest == sha256:
        db.execute("DELETE FROM retagged WHERE id = ?", (id_,))
    else:
        db.execute("INSERT OR REPLACE INTO retagged VALUES (?, ?)", (id_, digest))


def read_retagged(db: Database) -> dict[str, int]:
    """Ids of images by the SHA-256 of their files, where that is another than the one they are known by."""
    if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'retagged'").fetchone():
        return {}
    return dict(db.execute("SELECT sha256, id FROM retagged"))
