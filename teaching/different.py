"""Pictures marked as different: kept beside the catalogue, so that duplicates never show them together."""

from __future__ import annotations

import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from visterm.pipeline.store.append_only import AppendOnlyStore, append_step
from visterm.pipeline.store.images import Image

Parts = dict[int, int]  # by step, the part of it that an image belongs to


class SaidDifferent(NamedTuple):
    """One row: an image of a step."""

    number: int
    time: str  # UTC, ISO 8601
    step: int  # number of the first row made with this one
    part: int  # images of different parts of a step show different pictures
    image: int  # id in the catalogue, at that time
    path: str
    sha256: str
    undoes: int | None = None  # the step that this row undoes; such a row has no image


class DifferentPictures(AppendOnlyStore):
    """Images that show different pictures, as people said, however alike they are.

    An image is named by its path, and by its SHA-256 where no image has that path any more, as in label edits.
    """

    what = "that these are different pictures"

    schema = """
CREATE TABLE different (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    step INTEGER NOT NULL,
    part INTEGER NOT NULL,
    image INTEGER NOT NULL,
    path BLOB NOT NULL,         -- as the file system's bytes
    sha256 TEXT NOT NULL,
    undoes INTEGER UNIQUE       -- the step that this row undoes
);

CREATE TRIGGER no_update BEFORE UPDATE ON different BEGIN SELECT RAISE(ABORT, 'rows are only added'); END;

CREATE TRIGGER no_delete BEFORE DELETE ON different BEGIN SELECT RAISE(ABORT, 'rows are only added'); END
"""

    def append(self, parts: Sequence[Sequence[tuple[int, str, str]]]) -> None:
        """Save one step on disk: images of different parts, each (id, path, sha256), show different pictures."""
        rows = [
            {"part": part, "image": id_, "path": os.fsencode(path), "sha256": sha256}
            for part, images in enumerate(parts)
            for id_, path, sha256 in images
        ]
        with self._writing() as db:
            append_step(db, "different", rows)

    def undo(self) -> list[SaidDifferent]:
        """Undo the last step that is not undone; return its rows, none if there is no such step."""
        if not self.standing():
            return []
        with self._writing() as db:
            last = _last(_standing(db))  # another process may have undone one meanwhile
            if last:
                undo = {"part": 0, "image": 0, "path": b"", "sha256": "", "undoes": last[0].step}
                append_step(db, "different", [undo])
        return last

    def last(self) -> int:
        """Number of the last row, 0 without rows."""
        with self._reading() as db:
            return 0 if db is None else db.execute("SELECT max(number) FROM different").fetchone()[0] or 0

    def standing(self) -> dict[int, list[SaidDifferent]]:
        """The rows of the steps that are not undone, by step."""
        with self._reading() as db:
            return {} if db is None else _standing(db)

    def last_step(self) -> list[SaidDifferent]:
        """Rows of the last step that is not undone, in order; none if there is no such step."""
        return _last(self.standing())

    def parts_of(self, images: Iterable[Image]) -> dict[int, Parts]:
        """The parts of these images, by id: images that have different ones in a step show different pictures."""
        steps = self.standing()
        if not steps:
            return {}
        of_path, of_sha256 = {}, defaultdict(list)
        for image in images:
            of_path[image.path] = image.id
            of_sha256[image.sha256].append(image.id)
        parts: dict[int, Parts] = defaultdict(dict)
        for step, rows in steps.items():
            for row in rows:
                moved = [id_ for id_ in of_sha256[row.sha256] if id_ > row.image]  # else a copy that was there before
                for id_ in [of_path[row.path]] if row.path in of_path else moved[:1]:
                    parts[id_][step] = row.part
        return dict(parts)


def _standing(db: sqlite3.Connection) -> dict[int, list[SaidDifferent]]:
    query = f"SELECT {', '.join(SaidDifferent._fields)} FROM different ORDER BY number"
    rows = [SaidDifferent(*row) for row in db.execute(query)]
    undone = {row.undoes for row in rows}
    steps: dict[int, list[SaidDifferent]] = defaultdict(list)
    for row in rows:
        if row.undoes is None and row.step not in undone:
            steps[row.step].append(row._replace(path=os.fsdecode(row.path)))
    return dict(steps)


def _last(steps: dict[int, list[SaidDifferent]]) -> list[SaidDifferent]:
    return steps[max(steps)] if steps else []
