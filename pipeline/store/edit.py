"""Adding and finding images by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError

from .database import Database
from .fields import enter_fields
from .labels import enter_labels, read_labels
from .paths import bounds, folder_below, relative
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
