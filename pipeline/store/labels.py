"""Labels of images, from folders and tables."""

from __future__ import annotations

import functools
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from visterm.pipeline.config.models import CollectionConfig
from visterm.pipeline.errors import UserError

from .database import Database
from .paths import decoded
from .splits import Layout
from .tables import read_rows

WAYS_TO_LABEL = (
    "sort the images into one folder per class, or give a table: --set collection.labels=labels.csv (columns "
    "path,label) or --set collection.clicks=clicks.csv (columns query,path,count)"
)
_MOST_CLICKS = 1e30  # sums of them are stored as float32
Labels = Callable[[str], dict[str, float] | None]  # from a path


def read_labels(
    config: CollectionConfig, layout: Layout, paths: Sequence[str], everything: set[str] | None
) -> tuple[Labels, str | None]:
    """Return a function from a path to its labels, and a warning if a table names files that are not images.

    ``everything`` holds the files below the root; with None, rows of other paths than these are ignored.
    """
    if config.clicks is not None:
        table, warning = _read_table(Path(config.clicks), ("query", "path", "count"), set(paths), everything)
    elif config.labels not in ("auto", "none"):
        table, warning = _read_table(Path(config.labels), ("path", "label"), set(paths), everything)
    elif config.labels == "auto":

        @functools.cache  # one dictionary per class: it may have many images
        def of_class(label: str | None) -> dict[str, float] | None:
            return None if label is None else {label: 1.0}

        return lambda path: of_class(layout.label(path)), None
    else:
        table, warning = {}, None
    return table.get, warning


def _read_table(
    file: Path, columns: tuple[str, ...], paths: set[str], everything: set[str] | None
) -> tuple[dict[str, dict[str, float]], str | None]:
    """Read labels.csv or clicks.csv: {path: {label or query: weight}}."""
    labels: dict[str, dict[str, float]] = defaultdict(dict)
    unknown: list[str] = []
    for line, row in read_rows(file, columns):
        path, name = os.path.normpath(row["path"]), row["query" if "query" in columns else "label"]
        try:
            weight = float(row["count"]) if "count" in columns else 1.0
        except ValueError:
            weight = -1.0
        if not 0 < weight <= _MOST_CLICKS:
            raise UserError(
                f"{file}, line {line}: count {row['count'][:40]!r} is not a positive number up to {_MOST_CLICKS:.0e}"
            )
        if path in paths:
            labels[path][name] = labels[path].get(name, 0.0) + weight if "count" in columns else weight
        elif everything is not None and path not in everything:
            unknown.append(row["path"])
    if not labels and everything is not None:
        raise UserError(
            f"{file}: none of its {len(unknown)} paths is an image of the collection"
            + (f", not even {unknown[0]}" if unknown else "")
            + "; paths are relative to its root"
        )
    if not unknown:
        return dict(labels), None
    rows = "1 row names" if len(unknown) == 1 else f"{len(unknown):,} rows name"
    return dict(labels), f"{file}: {rows} no image of the collection, such as {unknown[0]}; skipped"


def enter_labels(db: Database, labels: Labels, rows: Iterable[tuple[int, str, str | None]]) -> list[int]:
    """Enter the labels of (id, path, labels so far); return the ids of those whose labels changed."""
    given = {decoded(path): text for path, text in db.execute("SELECT path, labels FROM given")}
    stale = []
    texts: dict[int, str] = {}  # images of one class share their labels
    for id_, path, old in rows:
        new, text = labels(path), given.get(path) if given else None
        if text is None and new:
            text = texts.get(id(new)) or texts.setdefault(id(new), json.dumps(new, sort_keys=True))
        if text != old:
            stale.append((text, id_))
    db.executemany("UPDATE images SET labels = ? WHERE id = ?", stale)
    return [id_ for _, id_ in stale]
