"""Relevance marks of search results."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.append_only import AppendOnlyStore, append_row, insert_row
from visterm.pipeline.store.images import Image
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.supervision import TrainingData, numbered
from visterm.pipeline.store.vectors import extractor_content

if TYPE_CHECKING:
    from scipy import sparse

    from visterm.pipeline.config.models import Config
    from visterm.pipeline.store.catalogue import Collection


class Mark(NamedTuple):
    """One row of the marks."""

    number: int
    time: str  # UTC, ISO 8601
    query: str  # SHA-256 of the query image's bytes
    image: int  # id in the catalogue, at that time
    path: str
    sha256: str
    mark: int  # 1 relevant, -1 not, 0 taken back
    learner: str  # that the result came from, and its version: 0 is the base
    version: int
    undoes: int | None = None  # the row that was undone; `mark` is then what it was before


class RelevanceMarks(AppendOnlyStore):
    """Marks of results: relevant (1), not relevant (-1), or taken back (0).

    The last row per query and image content stands. Images are identified by the SHA-256 of their bytes, so marks
    survive a new extraction, a new id and a new path.
    """

    what = "the mark"

    def is_expected(self) -> bool:
        """Whether a version of a learner has learned marks, or sets some aside."""
        for file in (self.file.parent / "feedback").glob("*/in_force.json"):
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                state = json.loads(file.read_text())
                if state["set_aside"] or (state["version"] and _has_marks(file.with_name(str(state["version"])))):
                    return True
        return False

    schema = """
CREATE TABLE marks (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    query TEXT NOT NULL,
    image INTEGER NOT NULL,
    path BLOB NOT NULL,         -- as the file system's bytes
    sha256 TEXT NOT NULL,
    mark INTEGER NOT NULL CHECK (mark IN (-1, 0, 1)),
    learner TEXT NOT NULL,
    version INTEGER NOT NULL,
    undoes INTEGER UNIQUE       -- the row that this one undoes
);

CREATE INDEX by_query ON marks (query);

CREATE TABLE queries (          -- vectors of queries that may not be in the collection
    key TEXT NOT NULL,
    extractor TEXT NOT NULL,    -- fingerprint of what they were made with
    n_visterms INTEGER NOT NULL,
    visterms BLOB NOT NULL,     -- int32, little-endian
    weights BLOB NOT NULL,      -- float32
    PRIMARY KEY (key, extractor)
);

CREATE TRIGGER no_update BEFORE UPDATE ON marks BEGIN SELECT RAISE(ABORT, 'marks are only added'); END;

CREATE TRIGGER no_delete BEFORE DELETE ON marks BEGIN SELECT RAISE(ABORT, 'marks are only added'); END
"""

    def add(
        self,
        query: str,
        image: Image,
        mark: int,
        *,
        learner: str,
        version: int = 0,
        vector: sparse.csr_matrix | None = None,
        extractor: str = "",
    ) -> int:
        """Save a mark on disk and return its number.

        `query` is the SHA-256 of the query image. A query outside of the collection comes with its `vector`, which is
        saved once, and the fingerprint of the `extractor` that made it.
        """
        _check_key(query)
        if mark not in (1, -1, 0) or isinstance(mark, bool):
            raise UserError(f"a mark is 1 (relevant), -1 (not relevant) or 0 (taken back), not {mark!r}")
        with self._writing() as db:
            if vector is not None:
                parts = {
                    "visterms": vector.indices.astype("<i4").tobytes(),
                    "weights": vector.data.astype("<f4").tobytes(),
                }
                row = {"key": query, "extractor": extractor, "n_visterms": vector.shape[1], **parts}
                insert_row(db, "queries", row, unless_known=True)
            shown = {"image": image.id, "path": os.fsencode(image.path), "sha256": image.sha256}
            row = {"query": query, **shown, "mark": int(mark), "learner": learner, "version": version}
            return append_row(db, "marks", row)

    def take_back(self, mark: Mark, *, version: int = 0) -> int:
        """Take a standing mark back; return the number of the added row."""
        with self._writing() as db:
            row = mark._asdict() | {"path": os.fsencode(mark.path), "mark": 0, "version": version, "undoes": None}
            del row["number"], row["time"]
            return append_row(db, "marks", row)

    def undo(self, query: str) -> Mark | None:
        """Undo the last mark of a query; return the added row with the mark that stands now, None without marks."""
        _check_key(query)
        with self._writing() as db:
            last, before = None, 0
            for mark in self._rows(
                db,
                "WHERE query = ? AND undoes IS NULL AND number NOT IN "
                "(SELECT undoes FROM marks WHERE undoes IS NOT NULL) ORDER BY number DESC",
                query,
            ):
                if last is None:
                    last = mark
                elif mark.sha256 == last.sha256:
                    before = mark.mark
                    break
            if last is None:
                return None
            row = last._asdict() | {"path": os.fsencode(last.path), "mark": before, "undoes": last.number}
            del row["number"], row["time"]
            return next(self._rows(db, "WHERE number = ?", append_row(db, "marks", row)))

    def of(self, query: str) -> list[Mark]:
        """Standing marks of a query, oldest first, without those taken back."""
        return self.standing(query).get(query, [])

    def standing(self, query: str | None = None) -> dict[str, list[Mark]]:
        """Standing marks by query, in the order of the queries' first marks."""
        where = "" if query is None else "WHERE query = ? "
        last: dict[str, dict[str, Mark]] = defaultdict(dict)
        with self._reading() as db:
            if db is not None:
                for row in self._rows(db, f"{where}ORDER BY number", *([] if query is None else [query])):
                    last[row.query].pop(row.sha256, None)  # keep the order of the rows
                    last[row.query][row.sha256] = row
        kept = {key: [mark for mark in marks.values() if mark.mark] for key, marks in last.items()}
        return {key: marks for key, marks in kept.items() if marks}

    def vector(self, query: str, extractor: str) -> sparse.csr_matrix | None:
        """Vector that was saved with a mark of a query, if made with this extractor: CSR float32 (1, V)."""
        import numpy as np
        from scipy import sparse

        with self._reading() as db:
            row = (
                db
                and db.execute(
                    "SELECT n_visterms, visterms, weights FROM queries WHERE key = ? AND extractor = ?",
                    (query, extractor),
                ).fetchone()
            )
        if not row:
            return None
        indices, data = np.frombuffer(row[1], "<i4"), np.frombuffer(row[2], "<f4")
        return sparse.csr_matrix((data, indices, [0, len(indices)]), shape=(1, row[0]), dtype=np.float32)

    def export(self) -> list[dict[str, Any]]:
        """Every row ever added, in order: what `Mark` lists."""
        with self._reading() as db:
            return [] if db is None else [row._asdict() for row in self._rows(db, "ORDER BY number")]

    @staticmethod
    def _rows(db: sqlite3.Connection, where: str, *values: Any) -> Iterator[Mark]:
        columns = ", ".join(Mark._fields)
        for row in db.execute(f"SELECT {columns} FROM marks {where}", values):
            mark = Mark(*row)
            yield mark._replace(path=os.fsdecode(mark.path))


def _has_marks(version: Path) -> bool:
    """Whether a version has learned marks, and not only forgotten images; so it is if its record cannot be read."""
    try:
        return bool(json.loads((version / "record.json").read_text())["marks"])
    except (OSError, ValueError, TypeError, KeyError):
        return True


def _check_key(query: str) -> None:
    if not isinstance(query, str) or not re.fullmatch(r"[0-9a-f]{64}", query):
        raise UserError("a query is named by the SHA-256 of its image: 64 hexadecimal digits")


def triplets_of_marks(run: Run, config: Config, collection: Collection) -> TrainingData | None:
    """Triplets of relevance marks, in a random order; None where no query has marks of both kinds."""
    import numpy as np

    by_content = {image.sha256: image for image in reversed(collection.images())}
    every, extractor = RelevanceMarks(run.marks), extractor_content(run)
    rows: list[list[Image | str]] = []
    uploads: dict[str, Any] = {}
    numbers: list[int] = []
    n_left_out = 0
    for key, marks in every.standing().items():
        here = [mark for mark in marks if mark.sha256 in by_content and mark.sha256 != key]
        relevant = [by_content[mark.sha256] for mark in here if mark.mark > 0]
        others = [by_content[mark.sha256] for mark in here if mark.mark < 0]
        query: Image | str = by_content.get(key, key)
        vector = None if key in by_content else every.vector(key, extractor)
        if not relevant or not others or (vector is None and query == key):
            n_left_out += len(marks)
            continue
        if vector is not None:
            uploads[key] = vector
        numbers += [mark.number for mark in here]
        n_left_out += len(marks) - len(here)
        rows += [[query, one, irrelevant] for one in relevant for irrelevant in others]
    if not rows:
        return None
    warnings = []
    if n_left_out:
        why = "their query or image is gone, or the query has marks of one kind only"
        warnings.append(f"{count(n_left_out, 'mark')} skipped: {why}")
    order = np.random.default_rng([config.seed, 7]).permutation(len(rows))
    training = numbered([rows[i] for i in order], uploads, warnings, count(len(numbers), "relevance mark"))
    return training._replace(marks=tuple(sorted(numbers)))
