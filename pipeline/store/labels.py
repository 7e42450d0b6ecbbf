"""Labels of images, from folders and tables."""

from __future__ import annotations

import csv
import functools
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from visterm.pipeline.config.models import CollectionConfig
from visterm.pipeline.errors import UserError

from .splits import Layout

WAYS_TO_LABEL = (
    "sort the images into one folder a class, or give a table: --set collection.labels=labels.csv (columns path,label) "
    "or --set collection.clicks=clicks.csv (columns query,path,count)"
)
Labels = Callable[[str], dict[str, float] | None]  # of a path


def read_labels(
    config: CollectionConfig, layout: Layout, paths: Sequence[str], everything: set[str] | None
) -> tuple[Labels, str | None]:
    """Where the labels of a path are found, and a warning if a table names what is no image.

    ``everything`` are the files below the root; None: a table is read for these paths, whatever else is in it.
    """
    if config.clicks is not None:
        table, warning = _read_table(Path(config.clicks), ("query", "path", "count"), set(paths), everything)
    elif config.labels not in ("auto", "none"):
        table, warning = _read_table(Path(config.labels), ("path", "label"), set(paths), everything)
    elif config.labels == "auto":

        @functools.cache  # one for all its images: they may be many
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
    try:
        with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
            reader = csv.DictReader(stream)
            missing = [c for c in columns if c not in (reader.fieldnames or [])]
            if missing:
                raise UserError(f"{file}: no column {missing[0]}; the first line must be {','.join(columns)}")
            for row in reader:
                if any(not row[c] for c in columns):
                    raise UserError(f"{file}, line {reader.line_num}: an empty {[c for c in columns if not row[c]][0]}")
                path = os.path.normpath(row["path"])
                name = row["query"] if "query" in columns else row["label"]
                try:
                    weight = float(row["count"]) if "count" in columns else 1.0
                except ValueError:
                    weight = -1.0
                if not 0 < weight < float("inf"):
                    raise UserError(f"{file}, line {reader.line_num}: count {row['count']!r} is not a positive number")
                if path in paths:
                    labels[path][name] = labels[path].get(name, 0.0) + weight if "count" in columns else weight
                elif everything is not None and path not in everything:
                    unknown.append(row["path"])
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except csv.Error as error:
        raise UserError(f"{file}: not a CSV table ({error})") from None
    if not labels and everything is not None:
        raise UserError(
            f"{file}: none of its {len(unknown)} paths is an image of the collection"
            + (f", not even {unknown[0]}" if unknown else "")
            + "; paths are relative to its root"
        )
    if not unknown:
        return dict(labels), None
    rows = "1 row names" if len(unknown) == 1 else f"{len(unknown):,} rows name"
    return dict(labels), f"{file}: {rows} no image of the collection, such as {unknown[0]}; passed over"
