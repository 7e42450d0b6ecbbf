"""Tables of images that users bring: path,label tables, metadata of Hugging Face datasets, COCO annotations.

Whatever they say of an image beside its labels is a field, which searches filter by.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError, system_errors_explained

from .fields import parse_date
from .label_edits import unquoted
from .tables import read_rows

_NAMES = ("path", "file_name")  # columns that name the image; the second one is that of Hugging Face and COCO
_LABELS = ("label", "labels")
_OWN_OF_COCO = ("id", "file_name", "width", "height")


class _Entry(NamedTuple):
    where: str  # in the file, for errors
    column: str  # that names the image
    name: str
    labels: list[str]
    fields: dict[str, Any]


class Manifest(NamedTuple):
    """Labels and fields of images, read from a table."""

    labels: dict[str, dict[str, float]] | None  # weights by path; None without labels, which the folders then have
    fields: dict[str, dict[str, str]]  # by path
    n_known: int  # images of the collection that the table names
    unknown: list[str]  # names in the table that are no files of the collection


def read_manifest(file: Path, root: Path, paths: Collection[str], everything: Collection[str] | None) -> Manifest:
    """Read a table of images: CSV, JSON lines or the JSON of COCO, by the ending of its name.

    A ``path`` is relative to `root`, the directory of the images; a ``file_name`` is relative to the folder of the
    manifest, if that lies in the directory. `paths` are the images of the collection, `everything` all files below the
    root; None: names of other files are not collected. UserError if the file cannot be read, names no images, gives an
    image two values of one field, or a date that is none.
    """
    labels: dict[str, dict[str, float]] = defaultdict(dict)
    fields: dict[str, dict[str, str]] = {}
    unknown: list[str] = []
    prefix = _prefix(file, root)
    has_labels, entries = _READERS.get(file.suffix.lower(), _read_csv)(file)
    for where, column, name, names_of_labels, values in entries:
        path = _path_of(name, prefix if column == "file_name" else "", root)
        own = {field: text for field, value in values.items() if (text := _text(value)) is not None}
        if "date" in own:
            own["date"] = _date(own["date"], where)
        if path in paths:
            labels[path] |= dict.fromkeys(names_of_labels, 1.0)
            if (before := fields.setdefault(path, own)) != own:
                field = next(field for field in before.keys() | own if before.get(field) != own.get(field))
                raise UserError(
                    f"{where}: {name} stands here for the second time, with another {field}: {own.get(field)!r} after "
                    f"{before.get(field)!r}; keep one of them"
                )
        elif everything is not None and path not in everything:
            unknown.append(name)
    return Manifest(dict(labels) if has_labels else None, fields, len(fields), unknown)


def _prefix(file: Path, root: Path) -> str:
    """The folder of a manifest, relative to the root; empty outside."""
    folder = os.path.relpath(os.path.realpath(file.parent), os.path.realpath(root))
    return "" if folder == os.curdir or folder.split(os.sep)[0] == os.pardir else folder


def _path_of(name: str, prefix: str, root: Path) -> str:
    """The path in the catalogue of an image that a table names."""
    if os.path.isabs(name):
        return os.path.normpath(name).removeprefix(os.path.join(root, ""))
    return os.path.normpath(os.path.join(prefix, name))


def _text(value: Any) -> str | None:
    """The value of a field as text; None for no value, and for lists and objects, which are no fields."""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return value if isinstance(value, str) and value else None


def _date(text: str, where: str) -> str:
    try:
        start, _ = parse_date(text)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    return start.isoformat()


# Each returns whether the table has labels, and its entries.


def _read_csv(file: Path) -> tuple[bool, Iterator[_Entry]]:
    columns: list[str] = []
    rows = read_rows(file, (), check=columns.extend)
    first = next(rows, None)
    name = _name_column(file, columns)
    has_labels = "label" in columns

    def entries() -> Iterator[_Entry]:
        for line, row in itertools.chain([] if first is None else [first], rows):
            where = f"{file}, line {line}"
            if None in row:  # DictReader's key of cells beyond the header
                raise UserError(f"{where}: more cells than the first line has columns")
            if not row[name]:
                raise UserError(f"{where}: an empty {name}")
            if len(columns) == 2 and has_labels and not row["label"]:
                raise UserError(f"{where}: an empty label")
            others = {
                column: unquoted(row[column] or "") for column in columns if column and column not in (name, "label")
            }
            own = [unquoted(row["label"])] if has_labels and row["label"] else []
            yield _Entry(where, name, row[name], own, others)

    return has_labels, entries()


def _name_column(file: Path | str, columns: list[str]) -> str:
    for name in _NAMES:
        if name in columns:
            return name
    near = [found for name in _NAMES for found in difflib.get_close_matches(name, columns, n=1)]
    hint = f"; is {near[0]} meant as file_name?" if near else f"; its columns are {', '.join(columns)[:200]}"
    raise UserError(f"{file}: no column path or file_name that names the images{hint}")


def _read_json_lines(file: Path) -> tuple[bool, Iterator[_Entry]]:
    with system_errors_explained(file, "cannot be read", ""), open(file, encoding="utf-8-sig") as stream:
        try:
            lines = [(number, json.loads(line)) for number, line in enumerate(stream, start=1) if line.strip()]
        except ValueError as error:
            raise UserError(f"{file}: not JSON lines ({error})") from None
    for number, row in lines:
        if not isinstance(row, dict):
            raise UserError(f"{file}, line {number}: not a JSON object")
    has_labels = any(name in row for _, row in lines for name in _LABELS)

    def entries() -> Iterator[_Entry]:
        for number, row in lines:
            where = f"{file}, line {number}"
            column = _name_column(where, list(row))
            if not isinstance(row[column], str) or not row[column]:
                raise UserError(f"{where}: {column} is not the name of a file")
            others = {name: value for name, value in row.items() if name not in (column, *_LABELS)}
            yield _Entry(where, column, row[column], _names_of(row.get("label", row.get("labels"))), others)

    return has_labels, entries()


def _names_of(given: Any) -> list[str]:
    """The names of labels: one, or a list."""
    return [text for value in (given if isinstance(given, list) else [given]) if (text := _text(value)) is not None]


def _read_coco(file: Path) -> tuple[bool, Iterator[_Entry]]:
    with system_errors_explained(file, "cannot be read", ""), open(file, encoding="utf-8-sig") as stream:
        try:
            content = json.load(stream)
        except ValueError as error:
            raise UserError(f"{file}: not JSON ({error})") from None
    try:
        images, categories = content["images"], {one["id"]: one["name"] for one in content.get("categories", [])}
        classes: dict[Any, dict[str, None]] = defaultdict(dict)  # of each image, in order
        for annotation in content.get("annotations", []):
            if "category_id" in annotation:  # captions have none
                classes[annotation["image_id"]][categories[annotation["category_id"]]] = None
        entries = [
            _Entry(
                f"{file}, image {image['id']}",
                "file_name",
                image["file_name"],
                list(classes.get(image["id"], ())),
                {name: value for name, value in image.items() if name not in _OWN_OF_COCO},
            )
            for image in images
        ]
        if not all(isinstance(name, str) and name for _, _, name, _, _ in entries):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f": {error} is missing" if isinstance(error, KeyError) else ""
        raise UserError(f"{file}: not COCO annotations (images, annotations, categories){missing}") from None
    return bool(classes), iter(entries)


_READERS = {".jsonl": _read_json_lines, ".ndjson": _read_json_lines, ".json": _read_coco}
