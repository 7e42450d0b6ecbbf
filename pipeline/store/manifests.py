"""Tables of images that users bring: path,label tables, metadata of Hugging Face datasets, COCO annotations.

Whatever they say of an image beside its labels is a field, which searches filter by. What is not used is counted.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.extras import how_to_install
from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError, system_errors_explained

from .fields import parse_date
from .image_names import ImageNames
from .label_edits import unquoted
from .notes import Notes, has_entity
from .splits import SPLIT_FIELD, split_named, split_within
from .tables import read_rows, readable

if TYPE_CHECKING:
    from visterm.pipeline.config.models import CollectionConfig

# Columns by their names without spaces, underscores, hyphens and capitals; the first ones first.
_NAMES = (
    *("path", "filename", "filepath", "imagepath", "imgpath", "imagename", "imgname", "image", "img", "file", "photo"),
    *("sourcefile", "picture", "imageid", "imgid", "photoid", "id", "key"),  # of ExifTool; the last one of img2dataset
)
_OF_ROOT = ("path", "filepath", "imagepath", "imgpath")  # relative to the directory of images, not to the table
_LABELS = ("label", "labels", "class", "classes", "category", "categories", "tag", "tags", "keyword", "keywords")
_LABEL_NAMES = ("labelname", "labelnames", "labeltext", "classname", "classnames", "categoryname")  # beside numbers
_MANY = 10  # labels that are probably captions or numbers, where nearly every image has another one
_SPLITS = ("split", "subset", "partition", "set")
_BOXES = {"xmin", "xmax", "bbox", "x1", "left", "box", "boxid", "annotationid", "objectid"}
_OF_OBJECTS = _BOXES | {"ymin", "ymax", "y1", "x2", "y2", "x", "y", "w", "h", "top", "right", "bottom", "area"}
_OF_OBJECTS |= {"confidence", "score", "iscrowd", "segmentation"}
_OWN_OF_COCO = ("id", "file_name", "width", "height")
_OF_ANNOTATIONS = ""  # in place of a column: the categories of the annotations of an image
_NO_VALUES = {"nan", "<na>", "nat", "null", "n/a", "#n/a"}  # what programs write for a missing value
_BIT = r"\s*(-?1|0)(\.0)?\s*|(?i:true|false)"
_TESTS, _YES_OR_NO = re.compile(r"test|val|dev", re.IGNORECASE), {"0", "1", "true", "false", "True", "False"}
_JOINED = re.compile(r"\s*[|;]\s*")
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_FILE_OF_IMAGE = re.compile(r"\.(jpe?g|png|tiff?|webp|bmp|gif|jp2|heic)$", re.IGNORECASE)
ONE_HOT = "0/1"  # in place of a column of labels: a column per label
_KEEPS_FOLDERS = "--set collection.label_column=none keeps the labels of the folders"


class _Entry(NamedTuple):
    where: str  # in the file: line 7
    name: str  # of the image
    labels: list[Any]  # as the file has them
    fields: dict[str, Any]
    is_cell: bool = False  # one cell has the labels, which may be joined


class _Table(NamedTuple):
    column: str | None  # of the labels, in words; None without labels
    of_root: bool  # names are relative to the directory of images, not to the table
    entries: Iterator[_Entry]


class _Roles(NamedTuple):
    name: str
    labels: list[str]  # the first one with a value counts; of ONE_HOT all that hold a 1
    unused: list[str]
    one_hot: bool = False

    def entry(self, where: str, name: str, row: Mapping[str, Any]) -> _Entry:
        taken = (self.name, *self.labels, *self.unused)
        rest = {column: value for column, value in row.items() if column and column not in taken}
        if self.one_hot:
            ones = [column for column in self.labels if str(row.get(column)).strip() in ("1", "1.0", "True", "true")]
            return _Entry(where, name, ones, rest)
        values = (_inside(row, column) for column in self.labels)
        value = next((value for value in values if value not in (None, "")), None)
        labels = value if isinstance(value, list) else [value]
        return _Entry(where, name, labels, rest, is_cell=labels is not value)


def _inside(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column; of ``objects.category`` that of the objects inside an object, or of a list of them."""
    outer, _, inner = column.partition(".")
    if column in row or not inner:
        return row.get(column)
    value = row.get(outer)
    if isinstance(value, str) and value.startswith(("{", "[")):
        value = _parsed(value)
    if isinstance(value, list):
        return [one.get(inner) for one in value if isinstance(one, dict)]
    return value.get(inner) if isinstance(value, dict) else None


class Manifest(NamedTuple):
    """Labels and fields of images, read from a table."""

    labels: dict[str, dict[str, float]] | None  # weights by path; None without labels, which the folders then have
    fields: dict[str, dict[str, str]]  # by path
    column: str | None  # of the labels, in words
    example: str | None  # a name in the table that no image has


def read_manifest(
    file: Path,
    root: Path,
    paths: Collection[str],
    everything: Collection[str],
    settings: CollectionConfig,
    notes: Notes,
    split: str | None = None,
) -> Manifest:
    """Read a table of images: CSV, JSON lines, a list in JSON, Parquet or COCO, by the ending of its name.

    A ``path`` is relative to `root`, the directory of the images; a ``file_name`` is relative to the folder of the
    manifest, if that lies in the directory. `paths` are the images of the collection, `everything` all files below the
    root. `notes` counts what is not used: rows, columns, and values. `split` is that of rows that do not say.

    UserError if the file cannot be read or names no images, if it has no labels and the settings do not say so, and
    for rows that make no sense unless the settings skip them.
    """
    table = _READERS.get(file.suffix.lower(), _read_csv)(file, settings, notes)
    names = ImageNames(paths, root, _prefix(file, root))
    folder = "" if table.of_root else _prefix(file, root)
    content = _Content(settings.label_separator, split, notes)
    unmatched = []
    for entry in table.entries:
        path = names.exact(entry.name, folder)
        if path is not None:
            content.enter(path, entry)
        elif everything and os.path.normpath(os.path.join(folder, entry.name)) in everything:
            notes.add("row", "of a file that is no image of the collection", entry.name)
        else:
            unmatched.append(entry)
    elsewhere = not content.fields
    example = None
    for entry in unmatched:
        if (path := names.near(entry.name, notes, elsewhere=elsewhere)) is not None:
            content.enter(path, entry)
        else:
            example = example or entry.name
            if everything:
                notes.add("row", "without an image of the collection", entry.name)
    return content.manifest(table, example, file)


def read_columns(columns: Mapping[str, Sequence[Any]], paths: Sequence[str], notes: Notes) -> dict[str, dict[str, str]]:
    """Return the fields of images, by path, of columns with a value for each path."""
    content = _Content("none", None, notes)
    for row, path in enumerate(paths):
        values = {name: column[row] for name, column in columns.items()}
        content.enter(path, _Entry(f"row {row} (from 0)", path, [], values))
    notes.garbled("value", {text for values in content.fields.values() for text in values.values()})
    return content.fields


class _Content:
    """What the rows of a table say of the images."""

    def __init__(self, separator: str, split: str | None, notes: Notes) -> None:
        self.labels: dict[str, dict[str, float]] = defaultdict(dict)
        self.fields: dict[str, dict[str, str]] = {}
        self._separator, self._split, self._notes = separator, split, notes
        self._of_objects: set[str] = set()  # columns that differ between the rows of an image
        self._lists: set[str] = set()
        self._wrong_date = ""

    def enter(self, path: str, entry: _Entry) -> None:
        """Enter a row of an image; UserError, or a note, if it makes no sense."""
        try:
            values = self._fields(entry)
            labels = self._labels(entry)
        except ValueError as error:
            return self._notes.bad(f"{entry.where}: {error}")
        for column in values:
            if _key(column) == "confidence" and _is_zero(values[column]):
                self._notes.add("row", "with a confidence of 0", entry.where, "its label is skipped")
                self._of_objects.add(column)
                labels = []
        before = self.fields.setdefault(path, values)
        if before != values and (name := self._contradiction(before, values)) is not None:
            return self._notes.bad(
                f"{entry.where}: {entry.name} is listed twice, with another {name}: "
                f"{values.get(name)!r} after {before.get(name)!r}; keep one of them"
            )
        self.labels[path] |= dict.fromkeys(labels, 1.0)
        return None

    def _contradiction(self, before: dict[str, str], values: dict[str, str]) -> str | None:
        """Return a field that two rows of an image contradict each other in; not one of the objects in it."""
        different = {name for name in before.keys() | values if before.get(name) != values.get(name)}
        has_boxes = any(_key(name) in _BOXES for name in values)
        self._of_objects |= {name for name in different if has_boxes or _key(name) in _OF_OBJECTS}
        return min(different - self._of_objects, default=None)

    def _fields(self, entry: _Entry) -> dict[str, str]:
        values = {}
        for name, value in entry.fields.items():
            if (text := _text(value)) is not None:
                values[_checked(name)] = _checked(text)
            elif isinstance(value, list | dict | bytes):
                self._lists.add(name)
        if "date" in values:
            try:
                values["date"] = parse_date(values["date"])[0].isoformat()
            except ValueError as error:
                self._wrong_date = self._wrong_date or f"{entry.where}: {error}"
                self._notes.add("date", "that cannot be read", f"{entry.where}, {values['date']!r}")
                del values["date"]
        if SPLIT_FIELD not in values:
            for name in [name for name in values if _key(name) in _SPLITS]:
                if (split := split_named(values[name])) is not None:
                    values[SPLIT_FIELD] = split
            if self._split is not None:
                values.setdefault(SPLIT_FIELD, self._split)
        return values

    def _labels(self, entry: _Entry) -> list[str]:
        labels = []
        for value in entry.labels:
            text = _text(value)
            if text is None:
                if value not in (None, ""):
                    self._notes.add("label", "without a value", f"{entry.where}, {value!r}")
                continue
            how = "of several"
            if self._separator != "auto":
                parts = [text] if self._separator == "none" else text.split(self._separator)
            elif entry.is_cell and (listed := _listed_in(text)) is not None:
                parts, how = listed, "written as a list"
            else:
                is_joined = entry.is_cell and not has_entity(text)  # K&auml;fer
                parts, how = _JOINED.split(text) if is_joined else [text], "joined by | or ;"
            if parts != [text]:
                keep = "taken apart; --set collection.label_separator=none keeps such labels whole"
                self._notes.add("label", how, text, keep)
            labels += [_checked(part) for part in map(str.strip, parts) if part]
        return labels

    def manifest(self, table: _Table, example: str | None, file: Path) -> Manifest:
        """Return what the rows said; UserError where a column says nothing."""
        if self._wrong_date and not any("date" in values for values in self.fields.values()):
            raise UserError(f"{file}, {self._wrong_date}")
        for what, columns in (("of objects, as rows of an image differ", self._of_objects), ("of lists", self._lists)):
            if columns:
                self._notes.add("column", what, ", ".join(sorted(columns)), "no fields of the images", n=len(columns))
        for values in self.fields.values() if self._of_objects else ():
            for name in self._of_objects:
                values.pop(name, None)
        unsplit = [path for path, values in self.fields.items() if not split_named(values.get(SPLIT_FIELD, ""))]
        if 0 < len(unsplit) < len(self.fields):
            what = "that the table puts neither into train, test nor validation"
            self._notes.add("image", what, unsplit[0], "neither trained on nor tested", n=len(unsplit))
        elif unsplit:
            named = {name: text for values in self.fields.values() for name, text in values.items()}
            for name in (name for name in named if _key(name) in _SPLITS):
                what = "that names neither train, test nor validation"
                self._notes.add("column", what, f"{name} ({named[name]})", "a field; the split is drawn")
            for name in (name for name in named if _key(name) not in _SPLITS):
                texts = {values[name] for values in self.fields.values() if name in values}
                of_values = "train" in map(split_named, texts) and any(map(_TESTS.search, texts))
                if len(texts) <= _MANY and (of_values or split_within(name) and texts <= _YES_OR_NO):
                    self._notes.add("column", "that may name the split", name, "a field; called split, it is taken")
        self._notes.garbled("value", {text for values in self.fields.values() for text in values.values()})
        if table.column is None:
            return Manifest(None, self.fields, None, example)
        self._note_doubtful(table.column, {label for labels in self.labels.values() for label in labels})
        n_without = sum(not self.labels.get(path) for path in self.fields)
        if self.fields and n_without == len(self.fields):
            raise UserError(f"{file}: gives no label to any image of the collection ({table.column}); {_KEEPS_FOLDERS}")
        if n_without:
            path = next(path for path in self.fields if not self.labels.get(path))
            self._notes.add("image", "that the table names without a label", path, "", n=n_without)
        labels = {path: self.labels.get(path, {}) for path in self.fields}
        return Manifest(labels, self.fields, table.column, example)

    def _note_doubtful(self, column: str, labels: set[str]) -> None:
        """Note `doubtful` labels, and those that are probably several, as their parts recur."""
        self._notes.doubtful(labels, "; an empty cell gives none")
        n_of = Counter(label for own in self.labels.values() for label in own)
        single = sorted(label for label, n in n_of.items() if n == 1)
        for doubtful, what in (
            (single if len(n_of) >= max(_MANY, 0.9 * len(self.labels)) else [], "of one image each"),
            (sorted(n_of) if all(map(split_named, n_of)) else [], "that name a split"),
            ([label for label in sorted(n_of) if re.fullmatch(r"\{.+\}", label)], "written as an object"),
        ):
            if doubtful:
                how = "kept; set collection.label_column" + ("=COLUMN.KEY" if what.endswith("object") else "")
                self._notes.add("label", what, doubtful[0], how, n=len(doubtful))
        for separator, what in {",": "with a comma", " ": "of several words"}.items():
            if separator == " " and not re.search(r"\b(labels|tags|keywords)\b", column, re.I):
                continue
            parts = {
                label: set(map(str.strip, label.split(separator))) for label in sorted(labels) if separator in label
            }
            n_in = Counter(part for several in parts.values() for part in several)
            if joined := [label for label in parts if any(n_in[part] > 1 for part in parts[label])]:
                how = f"kept whole; --set \"collection.label_separator='{separator}'\" takes them apart"
                self._notes.add("label", what, joined[0], how, n=len(joined))


def _listed_in(text: str) -> list[str] | None:
    """The labels of a list in JSON, Python or NumPy; None if a text is none."""
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        return [label for value in json.loads(text) if (label := _text(value)) is not None]
    except (ValueError, RecursionError):
        return [single or double for single, double in _QUOTED.findall(text)] or None


def _prefix(file: Path, root: Path) -> str:
    """The folder of a manifest, relative to the root; empty outside."""
    folder = os.path.relpath(os.path.realpath(file.parent), os.path.realpath(root))
    return "" if folder == os.curdir or folder.split(os.sep)[0] == os.pardir else folder


def has_value(text: str) -> bool:
    """Whether a text is neither empty nor what programs write for a missing value."""
    return bool(text) and text.strip().casefold() not in _NO_VALUES


def _text(value: Any) -> str | None:
    """The value of a cell as text; None for no value, and for lists and objects."""
    if isinstance(value, str):
        return value if has_value(value) else None
    if isinstance(value, bool | int | float):
        return None if value != value else json.dumps(value)  # NaN is no value
    return value.isoformat() if isinstance(value, datetime.date) else None


def _checked(text: str) -> str:
    """Return a text in NFC; ValueError if it holds half a character, which no program can write."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{ascii(text)[:100]} holds a lone surrogate, half of a character") from None
    return readable(text)


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0
    except ValueError:
        return False


@functools.lru_cache(1000)
def _key(column: str) -> str:
    """The name of a column as _NAMES and _LABELS have it."""
    return re.sub(r"^#|[\s_\-]+", "", column).casefold()


def _choose(
    file: Path | str, columns: Sequence[str], first: Mapping[str, Any], settings: CollectionConfig, notes: Notes
) -> _Roles:
    """Choose the columns of names and labels; UserError if the table has none, or several that could be meant."""
    name = _name_column(file, columns, settings.name_column)
    rest = [column for column in columns if column != name]
    if settings.label_column == "none":
        return _Roles(name, [], [])
    if settings.label_column == ONE_HOT:
        return _Roles(name, [column for column in rest if re.fullmatch(_BIT, str(first.get(column)))], [], one_hot=True)
    if settings.label_column is not None:
        return _Roles(name, [_asked(file, rest, "label_column", settings.label_column)], [])
    exact = [column for column in _LABELS[:2] if column in rest]
    near = [column for column in rest if _key(column) in _LABELS]
    texts = [column for column in rest if _key(column) in _LABEL_NAMES]
    numbers = exact or near
    if len(texts) == 1 and all(re.fullmatch(r"\d+", str(first.get(column, ""))) for column in numbers):
        if numbers:
            notes.add("column", f"of numbers beside the labels in {texts[0]}", ", ".join(numbers), n=len(numbers))
        return _Roles(name, texts, numbers)
    if exact[1:]:
        notes.add("column", "beside label", exact[1], "used where label is empty")
    if exact:
        return _Roles(name, exact, [])
    if len(near) == 1:
        return _Roles(name, near, [])
    if near:
        problem = f"which of the columns {_listed(near)} holds the labels is unclear; name one"
    else:
        problem = f"no column label among {_listed(columns)}; name the one of the labels"
    how = f"by --set collection.label_column=NAME ({ONE_HOT}: a column per label)"
    raise UserError(f"{file}: {problem} {how}, or {_KEEPS_FOLDERS}")


def _asked(file: Path | str, columns: Sequence[str], setting: str, column: str) -> str:
    if column not in columns and column.partition(".")[0] not in columns:
        names = _listed(columns)
        raise UserError(f"{file}: no column {column}, which collection.{setting} names; its columns are {names}")
    return column


def _listed(columns: Sequence[str]) -> str:
    return one_line(", ".join(columns))[:200]


def _name_column(file: Path | str, columns: Sequence[str], asked: str | None) -> str:
    if asked is not None:
        return _asked(file, columns, "name_column", asked)
    for name in ("path", "file_name"):
        if name in columns:
            return name
    for key in _NAMES:
        for column in columns:
            if _key(column) == key:
                return column
    if not any(columns):
        raise UserError(f"{file}: empty; give a table with the columns path and label")
    problem = "no column path or file_name that names the images"
    if any(map(_FILE_OF_IMAGE.search, columns)):
        raise UserError(f"{file}: {problem}; the first line must hold the names of the columns, such as path,label")
    if len(columns) == 1:
        raise UserError(f"{file}: {problem}; its first line has no comma, semicolon or tab, which separate cells")
    near = [match for name in ("path", "file_name") for match in difflib.get_close_matches(name, columns, n=1)]
    hint = f"is {_listed(near[:1])} meant?" if near else f"its columns are {_listed(columns)}:"
    name = _listed(near[:1]) if near else "NAME"
    raise UserError(f"{file}: {problem}; {hint} --set collection.name_column={name}")


# Readers of files. Each returns the columns in words, and the entries.


def _table(columns: _Roles, entries: Iterator[_Entry]) -> _Table:
    words = f"column {columns.labels[0]}" if columns.labels else None
    words = f"{count(len(columns.labels), 'column')} of 0 and 1" if columns.one_hot else words
    if words and columns.name not in ("path", "file_name"):
        words += f", images by the column {columns.name}"
    return _Table(words, _key(columns.name) in _OF_ROOT, entries)


def _read_csv(file: Path, settings: CollectionConfig, notes: Notes) -> _Table:
    names: list[str] = []
    rows = read_rows(file, (), check=names.extend, notes=notes)
    first = next(rows, None)
    columns = _choose(file, names, {} if first is None else first[1], settings, notes)

    def entries() -> Iterator[_Entry]:
        unnamed = False
        for line, row in itertools.chain([] if first is None else [first], rows):
            where = f"line {line}"
            if row.get("") and not unnamed:
                unnamed = True
                notes.add("column", "without a name", row[""])
            if not row[columns.name]:
                notes.bad(f"{where}: an empty {columns.name}")
                continue
            name = row[columns.name]
            yield columns.entry(where, name, {key: unquoted(readable(cell, notes)) for key, cell in row.items()})

    return _table(columns, entries())


def _read_json_lines(file: Path, settings: CollectionConfig, notes: Notes) -> _Table:
    rows = []
    with system_errors_explained(file, "cannot be read", ""), open(file, encoding="utf-8-sig") as stream:
        try:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    rows.append((f"line {number}", _parsed(line)))
        except ValueError as error:
            raise UserError(f"{file}: not JSON lines ({error})") from None
    return _of_objects(file, rows, settings, notes)


def _read_parquet(file: Path, settings: CollectionConfig, notes: Notes) -> _Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError(f"{file}: Parquet files need pyarrow: {how_to_install('parquet')}") from None
    from visterm.features.vector_files import features_of, named_class

    try:
        table = pq.read_table(file)
        features = features_of(table.schema)
        classes = [name for name in table.column_names if name in features]
        rows = table.to_pylist()
        for row in rows:
            row |= {name: named_class(row[name], features[name]) for name in classes}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{file}: no Parquet table can be read ({' '.join(str(error).split())[:200]})") from None
    return _of_objects(file, [(f"row {i} (from 0)", row) for i, row in enumerate(rows)], settings, notes)


def _parsed(text: str) -> Any:
    """Parse JSON; the text of the ValueError where it cannot be parsed."""
    try:
        return json.loads(text)
    except ValueError as error:
        return _Wrong(f"not JSON ({error})")
    except RecursionError:
        return _Wrong("nested too deeply")


class _Wrong(str):
    """Why a text is no JSON."""


def _of_objects(file: Path, rows: Sequence[tuple[str, Any]], settings: CollectionConfig, notes: Notes) -> _Table:
    """Return the table of rows that are dictionaries, each with its place."""
    whole = []
    for where, row in rows:
        if isinstance(row, dict):
            whole.append((where, row))
        else:
            notes.bad(f"{where}: {row if isinstance(row, _Wrong) else 'not a JSON object'}")
    names = list(dict.fromkeys(name for _, row in whole for name in row))
    first = {name: row[name] for _, row in reversed(whole) for name in row}
    columns = _choose(file, names, first, settings, notes)

    def entries() -> Iterator[_Entry]:
        for where, row in whole:
            name = row.get(columns.name)
            if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
                notes.bad(f"{where}: {columns.name} is not the name of a file")
                continue
            yield columns.entry(where, str(name), row)

    return _table(columns, entries())


def _read_coco(file: Path, settings: CollectionConfig, notes: Notes) -> _Table:
    with system_errors_explained(file, "cannot be read", ""), open(file, encoding="utf-8-sig") as stream:
        try:
            content = _parsed(stream.read())
        except ValueError as error:  # of bytes that are not UTF-8
            content = _Wrong(f"not JSON ({error})")
    if isinstance(content, _Wrong):
        raise UserError(f"{file}: {content}")
    if isinstance(content, list) and content:
        return _of_objects(file, [(f"row {i} (from 0)", row) for i, row in enumerate(content)], settings, notes)
    try:
        categories = _by_id("category", content.get("categories", []), notes)
        images = _by_id("image", content["images"], notes)
        in_categories, in_images = (
            {name for one in several.values() for name in one} for several in (categories, images)
        )
        columns = _coco_columns(file, in_images, in_categories, settings)
        if not all(isinstance(image[columns.name], str) and image[columns.name] for image in images.values()):
            raise ValueError
        told = settings.label_column if settings.label_column in in_categories - in_images else "name"
        names = {number: _text(one.get(told)) for number, one in categories.items()}
        classes: dict[str, dict[str, None]] = defaultdict(dict)  # of each image, in order
        for number, annotation in enumerate(content.get("annotations", [])):
            if "category_id" not in annotation or columns.labels != [_OF_ANNOTATIONS]:  # captions have none
                continue
            where = f"annotation {annotation.get('id', f'{number} (from 0)')}"
            image, category = _id(annotation["image_id"]), _id(annotation["category_id"])
            if image not in images:
                notes.add("annotation", "of no image in the file", f"{where}, image_id {image}")
            elif not names.get(category):
                why = f"has no {told}" if category in names else "is not among the categories"
                notes.bad(f"{where}: category {category} {why}")
            else:
                classes[image][names[category]] = None  # type: ignore[index]  # checked above
        entries = [
            columns.entry(f"image {number}", image[columns.name], {**image, _OF_ANNOTATIONS: list(classes[number])})
            for number, image in images.items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        missing = f": {error} is missing" if isinstance(error, KeyError) else ""
        raise UserError(f"{file}: not COCO annotations (images, annotations, categories){missing}") from None
    if columns.labels == [_OF_ANNOTATIONS]:
        words = "categories of the annotations" if told == "name" else f"{told} of the categories"
        return _Table(words, False, iter(entries))
    return _Table(f"{columns.labels[0]} of the images" if columns.labels else None, False, iter(entries))


def _by_id(noun: str, several: Any, notes: Notes) -> dict[str, dict[str, Any]]:
    by_id: dict[str, dict[str, Any]] = {}
    for one in several:
        if by_id.setdefault(number := _id(one["id"]), one) != one:
            notes.bad(f"{noun} {number}: is used twice, as files are joined; renumber them")
    return by_id


def _coco_columns(file: Path, in_images: set[str], in_categories: set[str], settings: CollectionConfig) -> _Roles:
    """What the images are named by and get their labels from: their annotations, unless another column is asked for."""
    asked, columns = settings.label_column, sorted(in_images | in_categories)
    name = "file_name"
    if settings.name_column is not None:
        name = _asked(file, sorted(in_images), "name_column", settings.name_column)
    unused = [*_OWN_OF_COCO, _OF_ANNOTATIONS]
    if asked == "none":
        return _Roles(name, [], unused)
    if asked == ONE_HOT:
        raise UserError(f"{file}: collection.label_column={ONE_HOT} is of tables with a column per label, not of COCO")
    if asked is None or (asked not in in_images and _key(asked) in (*_LABELS, *_LABEL_NAMES)):
        return _Roles(name, [_OF_ANNOTATIONS], unused)
    of_images = _asked(file, columns, "label_column", asked) in in_images
    return _Roles(name, [asked if of_images else _OF_ANNOTATIONS], unused)


def _refuse_spreadsheet(file: Path, settings: CollectionConfig, notes: Notes) -> _Table:
    raise UserError(f"{file}: spreadsheets are not read; save it as CSV")


def _id(value: Any) -> str:
    """An id of COCO as text, as programs write numbers as 7, 7.0 or "7"; TypeError if it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_READERS: dict[str, Callable[[Path, CollectionConfig, Notes], _Table]] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_coco,
    ".parquet": _read_parquet,
    **dict.fromkeys((".xlsx", ".xls", ".ods", ".numbers"), _refuse_spreadsheet),
}
