"""Labels of images, from folders and tables."""

from __future__ import annotations

import functools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from visterm.pipeline.config.models import CollectionConfig
from visterm.pipeline.errors import UserError

from .database import Database
from .label_edits import as_text, changed, standing_edits, unquoted
from .manifests import read_manifest
from .paths import decoded
from .splits import Layout
from .tables import read_rows

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
    warning: str | None = None  # of a table that names files that are not images


def read_labels(
    config: CollectionConfig, layout: Layout, root: Path, paths: Sequence[str], everything: set[str] | None
) -> ReadLabels:
    """Read the labels and fields of images from their folders, or from a table.

    ``everything`` holds the files below the root; with None, rows of other paths than these are ignored.
    """

    @functools.cache  # one dictionary per class: it may have many images
    def of_class(label: str | None) -> dict[str, float] | None:
        return None if label is None else {label: 1.0}

    def of_folder(path: str) -> dict[str, float] | None:
        return of_class(layout.label(path))

    if config.clicks is not None:
        labels, unknown = _read_clicks(Path(config.clicks), set(paths), everything)
        _check_names(Path(config.clicks), bool(labels), unknown, everything)
        return ReadLabels(labels.get, {}, _warning(config.clicks, unknown))
    if config.labels in ("auto", "none"):
        return ReadLabels(of_folder if config.labels == "auto" else lambda path: None, {})
    manifest = read_manifest(Path(config.labels), root, set(paths), everything)
    _check_names(Path(config.labels), manifest.n_known > 0, manifest.unknown, everything)
    of_path = of_folder if manifest.labels is None else manifest.labels.get
    return ReadLabels(of_path, manifest.fields, _warning(config.labels, manifest.unknown))


def _read_clicks(
    file: Path, paths: set[str], everything: set[str] | None
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """Read clicks.csv: {path: {query: weight}}, and the paths that are no files of the collection."""
    clicks: dict[str, dict[str, float]] = defaultdict(dict)
    unknown: list[str] = []
    for line, row in read_rows(file, ("query", "path", "count")):
        path, query = os.path.normpath(row["path"]), unquoted(row["query"])
        try:
            weight = float(row["count"])
        except ValueError:
            weight = -1.0
        if not 0 < weight <= _MOST_CLICKS:
            raise UserError(
                f"{file}, line {line}: count {row['count'][:40]!r} is not a positive number up to {_MOST_CLICKS:.0e}"
            )
        if path in paths:
            clicks[path][query] = clicks[path].get(query, 0.0) + weight
        elif everything is not None and path not in everything:
            unknown.append(row["path"])
    return dict(clicks), unknown


def _check_names(file: Path, any_known: bool, unknown: list[str], everything: set[str] | None) -> None:
    """Refuse a table that names no image of the collection."""
    if not any_known and everything is not None:
        raise UserError(
            f"{file}: none of its {len(unknown)} paths is an image of the collection"
            + (f", not even {unknown[0]}" if unknown else "")
            + "; paths are relative to its root"
        )


def _warning(file: str, unknown: list[str]) -> str | None:
    if not unknown:
        return None
    rows = "1 row names" if len(unknown) == 1 else f"{len(unknown):,} rows name"
    return f"{file}: {rows} no image of the collection, such as {unknown[0]}; skipped"


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
