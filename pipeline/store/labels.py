"""Labels of images, from folders and tables."""

from __future__ import annotations

import functools
import glob
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visterm.pipeline.config.plain import has_tables, tags_of
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.plugins import load

from .database import Database
from .image_names import ImageNames
from .label_edits import as_text, changed, standing_edits, unquoted
from .manifests import read_manifest
from .notes import Notes
from .paths import decoded
from .splits import SPLIT_FIELD, Layout, split_named, split_within
from .tables import read_rows, readable

if TYPE_CHECKING:
    from visterm.pipeline.config.models import CollectionConfig

WAYS_TO_LABEL = (
    "sort the images into one folder per class, or give a table: --set collection.labels=labels.csv (columns "
    "path,label) or --set collection.clicks=clicks.csv (columns query,path,count)"
)
_MOST_CLICKS = 1e30  # sums of them are stored as float32
Labels = Callable[[str], dict[str, float] | None]  # from a path


class ReadLabels(NamedTuple):
    """Labels of images, from folders and tables."""

    labels: Labels
    fields: dict[str, dict[str, str]]  # of a table, by path
    source: str = "the table of vectors"
    warnings: tuple[str, ...] = ()  # of a table: a line per kind of what is not used
    parents: dict[str, list[str]] = {}  # labels right above a label, where labels have a hierarchy
    sidecars: frozenset[str] = frozenset()  # paths of the files beside images that labels come from

    @property
    def splits(self) -> bool:
        """Whether a table names the splits."""
        return any(split_named(values.get(SPLIT_FIELD, "")) for values in self.fields.values())


def table_files(config: CollectionConfig) -> list[Path]:
    """List the tables of images and of clicks that a configuration names; UserError for a pattern of no file."""
    files = [] if config.clicks is None else [Path(config.clicks)]
    labels = config.labels if isinstance(config.labels, list) else [config.labels]
    for name in labels if has_tables(config.labels) else ():
        matches = (
            [Path(name)] if os.path.lexists(name) or not glob.has_magic(name) else sorted(map(Path, glob.glob(name)))
        )
        if not matches:
            raise UserError(f"{name}: no file has a name like this")
        files += matches
    return files


def read_labels(
    config: CollectionConfig,
    layout: Layout,
    root: Path,
    paths: Sequence[str],
    everything: set[str],
    memory: Path,
    *,
    strict: bool = True,
) -> ReadLabels:
    """Read the labels and fields of images from their folders, from tables, or from tags of their files.

    ``everything`` holds the files below the root, ``memory`` is a folder that remembers the tags of files. UserError if
    a table names no image of the collection, unless ``strict`` is false: then ``paths`` are not all images.
    """
    if tags := tags_of(config.labels):
        return load("keywords")(tags, root, paths, memory, whole=strict)

    @functools.cache  # one dictionary per class: it may have many images
    def of_class(label: str | None) -> dict[str, float] | None:
        return None if label is None else {label: 1.0}

    def of_folder(path: str) -> dict[str, float] | None:
        return of_class(layout.label(path))

    files = table_files(config)
    if not files:
        source = "" if config.labels == "none" else "the folders"
        return ReadLabels(of_folder if source else lambda path: None, {}, source)
    known = set(paths)
    labels: dict[str, dict[str, float]] = {}
    fields: dict[str, dict[str, str]] = {}
    lines, sources = [], []
    splits = [_split_of(file) for file in files] if len(files) > 1 else [None]
    for file, split in zip(files, splits if all(splits) else [None] * len(files), strict=True):
        notes = Notes(file, skip_bad_rows=config.skip_bad_rows)
        if config.clicks is not None:
            labels, example = _read_clicks(file, ImageNames(known, root), everything, notes)
            source, n_known = "clicks", len(labels)
        else:
            manifest = read_manifest(file, root, known, everything, config, notes, split)
            example, source, n_known = manifest.example, manifest.column or "", len(manifest.fields)
            for path, weights in (manifest.labels or {}).items():
                labels[path] = labels.get(path, {}) | weights
            for path, values in manifest.fields.items():
                fields[path] = fields.get(path, {}) | values
        if strict and not n_known:
            raise UserError(
                f"{file}: none of its rows names an image of the collection"
                + (f", not even {one_line(example)[:200]}" if example is not None else "")
                + f"; paths are relative to {root}"
                + (f" ({source}; --set collection.name_column=NAME takes another)" if ", images by" in source else "")
            )
        lines += [f"{file}: {line}" for line in notes.lines()]
        if source and f"{file.name}, {source}" not in sources:
            sources.append(f"{file.name}, {source}")
    n_without = len(known) - len(fields if config.clicks is None else labels)
    if n_without and sources:
        path = next(path for path in paths if path not in (fields if config.clicks is None else labels))
        lines.append(f"{count(n_without, 'image')} in no row of {_listed(files)}, such as {one_line(path)}: no label")
    of_path = labels.get if sources else of_folder
    source = "; ".join(sources[:3]) + "; ..." * (len(sources) > 3) if sources else "the folders"
    return ReadLabels(of_path, fields, source, tuple(lines))


def _listed(files: Sequence[Path]) -> str:
    return files[0].name if len(files) == 1 else count(len(files), "table")


def _split_of(file: Path) -> str | None:
    """The split that the name of a table says, as in train.csv and instances_val2017.json, or that of its folder."""
    return split_within(file.name) or split_named(file.parent.name)


def _read_clicks(
    file: Path, names: ImageNames, everything: set[str], notes: Notes
) -> tuple[dict[str, dict[str, float]], str | None]:
    """Read clicks.csv: {path: {query: weight}}, and a name in it that no image has."""
    clicks: dict[str, dict[str, float]] = defaultdict(dict)
    example = None
    for line, row in read_rows(file, ("query", "path", "count"), notes=notes):
        query = unquoted(readable(row["query"], notes).strip())
        try:
            weight = float(row["count"])
        except ValueError:
            weight = -1.0
        if not 0 < weight <= _MOST_CLICKS:
            notes.bad(f"line {line}: count {row['count'][:40]!r} is not a positive number up to {_MOST_CLICKS:.0e}")
            continue
        path = names.exact(row["path"])
        if path is None and os.path.normpath(row["path"]) not in everything:
            path = names.near(row["path"], notes)
        if path is not None:
            clicks[path][query] = clicks[path].get(query, 0.0) + weight
        else:
            example = example or row["path"]
            if everything:
                notes.add("row", "without an image of the collection", row["path"])
    notes.doubtful({query for queries in clicks.values() for query in queries})
    return dict(clicks), example


def enter_labels(db: Database, labels: Labels, rows: Iterable[tuple[int, str, str | None]]) -> list[int]:
    """Enter the labels of (id, path, labels so far), as edited; return the ids of those whose labels changed."""
    edits = standing_edits(db)
    by_hand = {decoded(path): text for path, text in db.execute("SELECT path, labels FROM given")}
    stale = []
    texts: dict[int, str] = {}  # images of one class share their labels
    for id_, path, old in rows:
        new, text = labels(path), by_hand.get(path) if by_hand else None
        if text is None and new:
            text = texts.get(id(new)) or texts.setdefault(id(new), json.dumps(new, sort_keys=True))
        if edits and path in edits:
            text = as_text(changed(json.loads(text) if text else {}, edits[path]))
        if text != old:
            stale.append((text, id_))
    db.executemany("UPDATE images SET labels = ? WHERE id = ?", stale)
    return [id_ for _, id_ in stale]
