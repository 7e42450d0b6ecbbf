"""Edits of labels that people made: kept beside the catalogue, over what folders and tables say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError

from .append_only import AppendOnlyStore, append_step
from .database import CATALOGUE, Database
from .paths import decoded

LABEL_EDITS = "label_edits.sqlite"  # beside the collection
LONGEST_LABEL = 200  # characters
_APPLIED = "label_edits"  # in the catalogue: the number of the last edit that its labels include
# With +, SQLite does not look among all rows that undo nothing, but among those of the image.
_IN_FORCE = "+undoes IS NULL AND NOT EXISTS (SELECT 1 FROM edits AS undo WHERE undo.undoes = edits.number)"
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


class LabelEdit(NamedTuple):
    """One row of the edits."""

    number: int
    time: str  # UTC, ISO 8601
    step: int  # number of the first row made with this one; a step is undone as a whole
    image: int  # id in the catalogue, at that time
    path: str
    sha256: str  # empty: not extracted yet
    label: str
    change: int  # 1 added, -1 removed, 0: folders and tables decide again
    weight: float | None  # of the label before the edit; in an undo, the weight that it has again; None: none
    source: str  # command, python, page, queue, or concept
    undoes: int | None = None  # the row that this one undoes


class Decided(NamedTuple):
    """Images, by id, and labels that people added or confirmed, and that they removed or said are wrong."""

    confirmed: set[tuple[int, str]]
    refused: set[tuple[int, str]]


class LabelEdits(AppendOnlyStore):
    """Labels added to images and removed from them; the last row of an image and a label stands.

    An image is named by its path, and by its SHA-256 where no image has that path any more: edits survive a new
    extraction, and follow a file that is moved.
    """

    what = "the label"

    schema = """
CREATE TABLE edits (
    number INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    step INTEGER NOT NULL,
    image INTEGER NOT NULL,
    path BLOB NOT NULL,         -- as the file system's bytes
    sha256 TEXT NOT NULL,
    label TEXT NOT NULL,
    change INTEGER NOT NULL CHECK (change IN (-1, 0, 1)),
    weight REAL,
    source TEXT NOT NULL,
    undoes INTEGER UNIQUE       -- the row that this one undoes
);

CREATE INDEX by_image ON edits (path, label);

CREATE TRIGGER no_update BEFORE UPDATE ON edits BEGIN SELECT RAISE(ABORT, 'edits are only added'); END;

CREATE TRIGGER no_delete BEFORE DELETE ON edits BEGIN SELECT RAISE(ABORT, 'edits are only added'); END
"""

    def is_expected(self) -> bool:
        """Whether the catalogue has labels from edits."""
        catalogue = (self.file.parent / "collection" / CATALOGUE).absolute()
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(f"{catalogue.as_uri()}?mode=ro", uri=True)) as db,
        ):
            return db.execute("SELECT 1 FROM meta WHERE key = ? AND value > 0", (_APPLIED,)).fetchone() is not None
        return False

    def append(self, edits: Sequence[dict[str, Any]]) -> None:
        """Save one step on disk: rows of image, path, sha256, label, change, weight, source and, of an undo, undoes."""
        with self._writing() as db:
            append_step(db, "edits", [_encoded(edit) for edit in edits])

    def last_step(self) -> list[LabelEdit]:
        """Rows of the last step that is not undone, in order; none if there is no such step."""
        with self._reading() as db:
            query = f"SELECT step FROM edits WHERE {_IN_FORCE} ORDER BY number DESC LIMIT 1"
            if db is None or (row := db.execute(query).fetchone()) is None:
                return []
            # A step is the number of its first row.
            return list(_rows(db, "WHERE number >= ? AND step = ? ORDER BY number", *row, *row))

    def before(self, edits: Iterable[LabelEdit]) -> list[int]:
        """State of the image and the label of each edit before it: 1, -1, or 0."""
        where = f"path = ? AND label = ? AND number < ? AND {_IN_FORCE}"
        query = f"SELECT change FROM edits WHERE {where} ORDER BY number DESC LIMIT 1"
        with self._reading() as db:
            values = ((os.fsencode(edit.path), edit.label, edit.number) for edit in edits)
            rows = [db and db.execute(query, value).fetchone() for value in values]
        return [row[0] if row else 0 for row in rows]

    def last(self) -> int:
        """Number of the last row, 0 without rows."""
        with self._reading() as db:
            return 0 if db is None else db.execute("SELECT max(number) FROM edits").fetchone()[0] or 0

    def since(self, number: int) -> list[LabelEdit]:
        """The rows after one, in order."""
        with self._reading() as db:
            return [] if db is None else list(_rows(db, "WHERE number > ? ORDER BY number", number))

    def standing(self) -> dict[str, dict[str, LabelEdit]]:
        """The edits that stand, by path and label."""
        last: dict[str, dict[str, LabelEdit]] = defaultdict(dict)
        with self._reading() as db:  # the last rows alone: a long history may have many times as many
            where = "WHERE number IN (SELECT max(number) FROM edits GROUP BY path, label) ORDER BY number"
            edits = [] if db is None else list(_rows(db, where))
        for edit in edits:  # in order, as labels may differ in their Unicode form
            last[edit.path].pop(edit.label, None)
            if edit.change:
                last[edit.path][edit.label] = edit
        return {path: edits for path, edits in last.items() if edits}

    def decided(self) -> Decided:
        """Edits in force, by the id that their image had."""
        of_change: dict[int, set[tuple[int, str]]] = {1: set(), -1: set()}
        for edits in self.standing().values():
            for edit in edits.values():
                of_change[edit.change].add((edit.image, edit.label))
        return Decided(of_change[1], of_change[-1])

    def export(self) -> list[dict[str, Any]]:
        """Every row ever added, in order: what `LabelEdit` lists."""
        return [edit._asdict() for edit in self.since(0)]


def _encoded(edit: dict[str, Any]) -> dict[str, Any]:
    return edit | {"path": os.fsencode(edit["path"])}


def _rows(db: sqlite3.Connection, where: str, *values: Any) -> Iterator[LabelEdit]:
    for row in db.execute(f"SELECT {', '.join(LabelEdit._fields)} FROM edits {where}", values):
        edit = LabelEdit(*row)
        yield edit._replace(path=os.fsdecode(edit.path), label=plain_label(edit.label))


def plain_label(label: str) -> str:
    """Return a label as it is kept: in NFC, and without spaces around it."""
    return unicodedata.normalize("NFC", label.strip())


def check_label(label: str, is_given: Callable[[str], object] = lambda label: False) -> str:
    """Return a label to add, as `plain_label` does; UserError if it cannot be one, and none of folders or tables.

    Few labels need `is_given`, which may read the catalogue.
    """
    label = plain_label(label)
    if not label:
        problem = "the label is empty"
    elif len(label) > LONGEST_LABEL:
        problem = f"a label of {len(label):,} characters, {label[:30]!r}...; at most {LONGEST_LABEL}"
    elif any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in label):
        problem = f"the label {one_line(label)!r} has control characters; leave them out"
    else:
        return label
    if is_given(label):
        return label
    raise UserError(problem)


def edits_of(db: Database) -> LabelEdits | None:
    """The edits of a collection's labels; None if nobody made any."""
    store = LabelEdits(db.folder.parent / LABEL_EDITS)
    made = os.path.lexists(store.file) or os.path.lexists(store.copy) or db[_APPLIED]
    return store if made else None


def changed(labels: dict[str, float], edits: Iterable[LabelEdit]) -> dict[str, float]:
    """Return labels as edits leave them."""
    labels = dict(labels)
    for edit in edits:
        if edit.change == 1:
            labels.setdefault(edit.label, 1.0)
        elif edit.change == 0 and edit.weight is not None:
            labels[edit.label] = edit.weight
        else:
            labels.pop(edit.label, None)
    return labels


def as_text(labels: dict[str, float]) -> str | None:
    """Labels as the catalogue has them."""
    return json.dumps(labels, sort_keys=True) if labels else None


def catch_up(db: Database) -> None:
    """Enter the edits that the catalogue lacks: a command may have been killed between the two files.

    For use in a transaction.
    """
    if (store := edits_of(db)) is None:
        return
    of_path: dict[str, list[LabelEdit]] = defaultdict(list)
    for edit in store.since(db[_APPLIED] or 0):
        of_path[edit.path].append(edit)
    enter_edits(db, _places(db, of_path))
    db[_APPLIED] = store.last()  # of a rebuilt file, it may be a smaller one


def enter_edits(db: Database, edits: dict[str, list[LabelEdit]]) -> None:
    """Change the labels of living images, by path, as edits say."""
    stale = []
    for path, own in edits.items():
        query = "SELECT id, labels FROM images WHERE path = ? AND status != 'removed'"
        for id_, text in db.execute(query, (os.fsencode(path),)):
            new = as_text(changed(json.loads(text) if text else {}, own))
            if new != text:
                stale.append((new, id_))
    db.executemany("UPDATE images SET labels = ? WHERE id = ?", stale)


def standing_edits(db: Database) -> dict[str, list[LabelEdit]]:
    """The edits that stand, by the path that their image has now."""
    store = edits_of(db)
    if store is None:
        return {}
    return _places(db, {path: list(edits.values()) for path, edits in store.standing().items()})


def _places(db: Database, edits: dict[str, list[LabelEdit]]) -> dict[str, list[LabelEdit]]:
    """Edits by path, those of a moved file by its new one."""
    query = "SELECT 1 FROM images WHERE path = ? AND status != 'removed'"
    gone = [path for path in edits if db.execute(query, (os.fsencode(path),)).fetchone() is None]
    if not gone:
        return edits
    moved = {edits[path][-1].sha256: edits[path] for path in gone if edits[path][-1].sha256}
    places = {path: own for path, own in edits.items() if path not in set(gone)}
    query = "SELECT sha256, id, path FROM images WHERE status = 'ok' AND sha256 IN (SELECT value FROM json_each(?))"
    for sha256, id_, path in db.execute(query, (json.dumps(list(moved)),)):
        if id_ > moved[sha256][-1].image:  # else a copy that was there before
            places.setdefault(decoded(path), moved[sha256])
    return places


def quoted(cell: str) -> str:
    """A cell of a CSV table that no spreadsheet takes for a formula: one more apostrophe before it."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unquoted(cell: str) -> str:
    """A cell without the apostrophe that `quoted` puts before it."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
