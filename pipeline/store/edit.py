"""Adding and finding images by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError

from .database import Database
from .fields import enter_fields
from .label_edits import (
    LABEL_EDITS,
    LabelEdit,
    LabelEdits,
    catch_up,
    check_label,
    edits_of,
    enter_edits,
    standing_edits,
)
from .labels import enter_labels, read_labels
from .paths import bounds, decoded, folder_below, relative
from .scan import Changes, compare_files
from .splits import Layout, draw_splits


def names(db: Database, files: Iterable[str | Path]) -> list[str]:
    """Return the paths of files in the catalogue: relative to the root, or absolute if they lie outside.

    A file below the root that is named through a link to its folder has the path that a scan finds.
    """
    assert db.root is not None
    root, real_root = os.fspath(db.root), os.path.realpath(db.root)
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


def unfit(db: Database, paths: Iterable[str], config: Config) -> dict[str, str]:
    """Return the paths that cannot be added, with the reason: a scan would remove them again."""
    assert db.root is not None
    own, layout, classes = folder_below(db.root, db.folder.parent.parent), _layout(db), config.collection.classes
    reasons = {}
    for path in paths:
        if os.path.isabs(path):
            continue
        if any(part.startswith(".") for part in path.split(os.sep)):
            reasons[path] = "hidden files are skipped"
        elif path.startswith(own):
            reasons[path] = "it belongs to a run of visterm"
        elif classes is not None and (label := layout.label(path)) not in classes:
            reasons[path] = f"of {label or 'no class'}, which collection.classes does not include"
    return reasons


def _layout(db: Database) -> Layout:
    """The layout of the folders, as last scanned."""
    return Layout(db["split"].rpartition("]")[2])


def add(db: Database, paths: Sequence[str], labels: Sequence[str], config: Config) -> Changes:
    """Enter images by hand, without comparing any others: `Collection.add`."""
    assert db.root is not None
    changes = Changes()
    with db.transaction():
        catch_up(db)
        last = db.last_id
        compare_files(db, db.root, paths, db.known(paths), changes, by_hand=True)
        if labels:
            text = json.dumps(dict.fromkeys(labels, 1.0), sort_keys=True)
            db.executemany("INSERT OR REPLACE INTO given VALUES (?, ?)", [(os.fsencode(path), text) for path in paths])
        query = "SELECT id, path, labels FROM images WHERE path = ? AND status != 'removed'"
        encoded = [(path, os.fsencode(path)) for path in paths]
        rows = [(id_, path, old) for path, name in encoded for id_, _, old in db.execute(query, (name,))]
        read = read_labels(config.collection, _layout(db), db.root, paths, None)
        changes.relabelled = sum(id_ <= last for id_ in enter_labels(db, read.labels, rows))
        enter_fields(db, read.fields, [(id_, path) for id_, path, _ in rows])
        draw_splits(db, config, _layout(db))
    return changes


def edit_labels(
    db: Database, edits: Iterable[tuple[int, str, int]], config: Config, source: str, *, confirm: bool = False
) -> list[LabelEdit]:
    """Add and remove labels, as one step; return its rows: `Collection.edit_labels`."""
    with db.transaction():
        catch_up(db)
        rows: dict[tuple[int, str], dict[str, Any]] = {}
        query = "SELECT path, sha256, labels, status FROM images WHERE id = ? AND status != 'removed'"
        for id_, label, change in edits:
            entry = db.execute(query, (id_,)).fetchone()
            if entry is None or entry[3] == "excluded":
                name = f"id:{id_}" if entry is None else decoded(entry[0])
                raise UserError(f"image {name} was removed from the run; no label was changed")
            path, sha256, text, _ = entry
            if change == 1:
                label = check_label(label)
            weight = (json.loads(text) if text else {}).get(label)
            if confirm or (weight is None) == (change == 1):
                image = {"image": id_, "path": decoded(path), "sha256": sha256 or "", "label": label}
                rows[id_, label] = image | {"change": change, "weight": weight, "source": source}
        return _enter_step(db, list(rows.values()), config)


def undo_labels(db: Database, config: Config, source: str) -> list[LabelEdit]:
    """Undo the last step of label edits; return the added rows, none without one: `Collection.undo_labels`."""
    with db.transaction():
        catch_up(db)
        if (store := edits_of(db)) is None:
            return []
        rows = []
        for edit in store.last_step():
            image = {"image": edit.image, "path": edit.path, "sha256": edit.sha256, "label": edit.label}
            before = {"change": store.before(edit), "weight": edit.weight}
            rows.append(image | before | {"source": source, "undoes": edit.number})
        return _enter_step(db, rows, config)


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


def follow_moved(db: Database, config: Config) -> None:
    """Give the label edits of moved files to the images that extraction found to have their bytes."""
    if edits_of(db) is not None:
        with db.transaction():
            enter_edits(db, standing_edits(db))
            _split_again(db, config)


def _split_again(db: Database, config: Config) -> None:
    """Give images with their first label a split; take it from those with no label left."""
    db.execute("UPDATE images SET split = NULL WHERE status != 'removed' AND split IS NOT NULL AND labels IS NULL")
    draw_splits(db, config, _layout(db))


def find(db: Database, given: str) -> list[tuple[int, str, str]]:
    """Find the rows of images: `Collection.find`."""
    if given.startswith("id:"):
        number = given.removeprefix("id:")
        if not (number.isascii() and number.isdigit() and int(number) < 1 << 63):
            return []
        return db.rows("id = ?", (int(number),))
    if not given:
        return []
    readings = names(db, [given])
    inner = os.path.normpath(given)
    if not os.path.isabs(inner) and inner.split(os.sep)[0] not in (os.curdir, os.pardir):
        readings.append(inner)
    matches = [rows for path in dict.fromkeys(readings) if (rows := _at(db, path))]
    if len(matches) > 1 and matches[0] != matches[1]:
        first, second = (rows[0] for rows in matches)
        raise UserError(
            f"{given} is {first[1]} (id:{first[0]}) from here, and {second[1]} (id:{second[0]}) below the root; "
            "give its id or its absolute path"
        )
    return matches[0] if matches else []


def _at(db: Database, path: str) -> list[tuple[int, str, str]]:
    """The image at a path, or the images below it."""
    assert db.root is not None
    name = os.fsencode(path)
    where, values = "(path = ? OR (path >= ? AND path < ?)", (name, *bounds(name))
    if os.path.isabs(path) and relative(os.path.realpath(db.root), os.path.realpath(path)) is not None:
        where += " OR substr(path, 1, 1) != x'2f'"  # the root itself, or a folder above it: everything inside
    return db.rows(f"{where})", values)
