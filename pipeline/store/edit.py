"""Adding and finding images by hand."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.errors import UserError

from .database import Database
from .fields import enter_fields
from .hierarchy import enter_hierarchy
from .label_edits import (
    LABEL_EDITS,
    LabelEdit,
    LabelEdits,
    catch_up,
    check_label,
    edits_of,
    enter_edits,
    plain_label,
    standing_edits,
)
from .labels import enter_labels, read_labels, table_files
from .paths import bounds, decoded, excluded_by, folder_below, relative
from .pictures import Read
from .scan import Changes, ScannedCatalogue, compare_files
from .splits import Layout, draw_splits

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config


class EditableCatalogue(ScannedCatalogue):
    """The catalogue of a collection, with what adds and finds images and edits labels by hand."""

    def names(self, files: Iterable[str | Path]) -> list[str]:
        """Return the paths of files in the catalogue: relative to the root, or absolute if they lie outside."""
        assert self.root is not None
        root, real_root = os.fspath(self.root), os.path.realpath(self.root)
        below: dict[str, str | None] = {}  # the path of each folder below the root, None outside
        paths = []
        for file in files:
            absolute = os.path.abspath(os.fsdecode(file))
            folder, name = os.path.split(absolute)
            if folder not in below:
                inside = (relative(os.path.realpath(folder), real_root), relative(folder, root))
                below[folder] = next((path for path in inside if path is not None), None)
            inside_root = below[folder]
            paths.append(absolute if inside_root is None else os.path.join(inside_root, name))
        return paths

    def unfit(self, paths: Iterable[str], config: Config) -> dict[str, str]:
        """Return the paths that cannot be added, with the reason."""
        assert self.root is not None
        of_runs = folder_below(self.root, self.folder.parent.parent)
        from visterm.features.images import SYSTEM_FOLDER, is_system_folder

        layout, classes, pattern_of = _layout(self), config.collection.classes, excluded_by(config.collection.exclude)
        reasons = {}
        for path in paths:
            if os.path.isabs(path):
                continue
            if any(part.startswith(".") for part in path.split(os.sep)):
                reasons[path] = "hidden files are skipped"
            elif any(map(is_system_folder, path.split(os.sep)[:-1])):
                reasons[path] = f"it lies in a {SYSTEM_FOLDER}"
            elif (pattern := pattern_of(path)) is not None:
                reasons[path] = f"collection.exclude skips {pattern!r}"
            elif path.startswith(of_runs):
                reasons[path] = "it belongs to a run of visterm"
            elif classes is not None and (label := layout.label(path)) not in classes:
                reasons[path] = f"of {label or 'no class'}, which collection.classes does not include"
        return reasons

    def add(
        self, paths: Sequence[str], labels: Sequence[str], config: Config, *, read_pixels: Read | None = None
    ) -> Changes:
        """Enter images by hand, without comparing any others; ``paths`` are as `names` returns them.

        ``read_pixels`` is as of `scan`. ``labels``, if any, replace the labels from folders and tables.
        """
        assert self.root is not None
        changes = Changes()
        with self.transaction():
            catch_up(self)
            last = self.last_id
            compare_files(self, self.root, paths, self.known(paths), changes, by_hand=True, read_pixels=read_pixels)
            if labels:
                text = json.dumps(dict.fromkeys(labels, 1.0), sort_keys=True)
                self.executemany(
                    "INSERT OR REPLACE INTO given VALUES (?, ?)", [(os.fsencode(path), text) for path in paths]
                )
            query = "SELECT id, path, labels FROM images WHERE path = ? AND status != 'removed'"
            encoded = [(path, os.fsencode(path)) for path in paths]
            rows = [(id_, path, old) for path, name in encoded for id_, _, old in self.execute(query, (name,))]
            named = list({*self.known(), *paths}) if table_files(config.collection) else paths
            read = read_labels(config.collection, _layout(self), self.root, named, set(), self.folder, strict=False)
            changes.relabelled = sum(id_ <= last for id_ in enter_labels(self, read.labels, rows))
            enter_hierarchy(self, read.parents)
            enter_fields(self, read.fields, [(id_, path) for id_, path, _ in rows])
            draw_splits(self, config, _layout(self))
        return changes

    def labelled(self, label: str) -> list[tuple[int, str, str]]:
        """Return id, path and status of the images with a label, by path; excluded ones too."""
        label = unicodedata.normalize("NFC", label)
        text = json.dumps({label: 0})[1:-2]  # as the JSON spells it; the parsed labels decide
        query = "SELECT id, labels FROM images WHERE status != 'removed' AND instr(labels, ?)"
        ids = [id_ for id_, labels in self.execute(query, (text,)) if label in json.loads(labels)]
        return [row for id_ in ids for row in self.rows("id = ?", (id_,))]

    def edit_labels(
        self,
        edits: Iterable[tuple[int, str, int]],
        config: Config,
        source: str,
        *,
        confirm: bool = False,
        excluded: bool = False,
    ) -> list[LabelEdit]:
        """Add (1) labels to images and remove (-1) them, by (id, label, change), as one step; return the rows made.

        An edit that changes nothing is not kept, unless ``confirm`` is true: then folders and tables that say something
        else later do not change the label. UserError for a removed image, unless ``excluded`` ones are allowed, or what
        cannot be a label: nothing is changed.
        """
        with self.transaction():
            catch_up(self)
            rows: dict[tuple[int, str], dict[str, Any]] = {}
            query = "SELECT path, sha256, labels, status FROM images WHERE id = ? AND status != 'removed'"
            for id_, label, change in edits:
                id_ = int(id_)  # SQLite knows no numbers of NumPy
                entry = self.execute(query, (id_,)).fetchone()
                if entry is None or (entry[3] == "excluded" and not excluded):
                    gone = f"image {decoded(entry[0])} was removed from the run" if entry else f"no image has id:{id_}"
                    raise UserError(f"{gone}; no label was changed")
                path, sha256, text, _ = entry
                label = check_label(label, self.labelled) if change == 1 else plain_label(label)
                weight = (json.loads(text) if text else {}).get(label)
                if confirm or (weight is None) == (change == 1):
                    image = {"image": id_, "path": decoded(path), "sha256": sha256 or "", "label": label}
                    rows[id_, label] = image | {"change": change, "weight": weight, "source": source}
            return _enter_step(self, list(rows.values()), config)

    def undo_labels(self, config: Config, source: str) -> list[LabelEdit]:
        """Undo the last step of label edits that is not undone; return the rows made."""
        with self.transaction():
            catch_up(self)
            if (store := edits_of(self)) is None:
                return []
            rows, step = [], store.last_step()
            for edit, change in zip(step, store.before(step), strict=True):
                image = {"image": edit.image, "path": edit.path, "sha256": edit.sha256, "label": edit.label}
                before = {"change": change, "weight": edit.weight}
                rows.append(image | before | {"source": source, "undoes": edit.number})
            return _enter_step(self, rows, config)

    def follow_moved(self, config: Config) -> None:
        """Give the label edits of moved files to the images with their bytes, which extraction has read."""
        if edits_of(self) is not None:
            with self.transaction():
                enter_edits(self, standing_edits(self))
                _split_again(self, config)

    def find(self, given: str) -> list[tuple[int, str, str]]:
        """Return id, path and status of matching rows by path, including excluded ones and images whose files are gone.

        ``given`` is ``id:12``, or a file or folder relative to the working directory or to the root; UserError if the
        two readings of a path name different images.
        """
        if given.startswith("id:"):
            number = given.removeprefix("id:")
            if not (number.isascii() and number.isdigit() and int(number) < 1 << 63):
                return []
            return self.rows("id = ?", (int(number),))
        if not given:
            return []
        readings = self.names([given])
        inner = os.path.normpath(given)
        if not os.path.isabs(inner) and inner.split(os.sep)[0] not in (os.curdir, os.pardir):
            readings.append(inner)
        matches = [rows for path in dict.fromkeys(readings) if (rows := _at(self, path))]
        if len(matches) > 1 and matches[0] != matches[1]:
            first, second = (rows[0] for rows in matches)
            raise UserError(
                f"{given} is {first[1]} (id:{first[0]}) from here, and {second[1]} (id:{second[0]}) below the root; "
                "give its id or its absolute path"
            )
        return matches[0] if matches else []


def _layout(db: Database) -> Layout:
    """The layout of the folders, as last scanned."""
    return Layout(db["split"].rpartition("]")[2])


def _enter_step(db: Database, rows: list[dict[str, Any]], config: Config) -> list[LabelEdit]:
    """Save a step of label edits, then bring the catalogue up to date."""
    if not rows:
        return []
    store = LabelEdits(db.folder.parent / LABEL_EDITS)
    store.append(rows)
    made = store.since(store.last() - len(rows))
    catch_up(db)
    _split_again(db, config)
    return made


def _split_again(db: Database, config: Config) -> None:
    """Give images with their first label a split; take it from those with no label left."""
    db.execute("UPDATE images SET split = NULL WHERE status != 'removed' AND split IS NOT NULL AND labels IS NULL")
    draw_splits(db, config, _layout(db))


def _at(db: Database, path: str) -> list[tuple[int, str, str]]:
    """The image at a path, or the images below it."""
    assert db.root is not None
    name = os.fsencode(path)
    where, values = "(path = ? OR (path >= ? AND path < ?)", (name, *bounds(name))
    if os.path.isabs(path) and relative(os.path.realpath(db.root), os.path.realpath(path)) is not None:
        where += " OR substr(path, 1, 1) != x'2f'"  # the root itself, or a folder above it: everything inside
    return db.rows(f"{where})", values)
