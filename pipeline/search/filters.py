"""Filters of images by label, folder, date and fields, with one grammar everywhere.

A condition on a field is a text, ``camera=X100``, with one of the operators = != < <= > >=; all conditions must hold.
"""

from __future__ import annotations

import bisect
import difflib
import math
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.pipeline.console import one_line
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.fields import FieldsRow, parse_date
from visterm.pipeline.store.hierarchy import above
from visterm.pipeline.store.images import Image

if TYPE_CHECKING:
    import numpy as np
else:
    from visterm import numpy as np

_CONDITION = re.compile(r"\s*([^=!<>]+?)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_LISTS = ("people",)  # fields with several values
_DATE = "date"  # the field that --after and --before are about


class InvalidFilter(UserError):
    """A condition that cannot be read, or on a field or a value that no image has."""


class Condition(NamedTuple):
    """A condition on a field."""

    field: str
    operator: str  # = != < <= > >=
    value: str

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read ``"camera=X100"``; InvalidFilter if it is not of this form, or compares the date with no date."""
        match = _CONDITION.fullmatch(text)
        if match is None or not match[3]:
            raise InvalidFilter(
                f"where: {one_line(text)[:100]!r} is no condition; give a field, one of = != < <= > >=, and a value: "
                "camera=X100"
            )
        condition = cls(*match.groups())
        if condition.field == _DATE:
            condition.period("where")
        return condition

    @classmethod
    def of_date(cls, name: str, operator: str, date: str) -> Condition:
        """Make the condition of an option that is a date; InvalidFilter where it is none."""
        condition = cls(_DATE, operator, date)
        condition.period(name)
        return condition

    def period(self, name: str) -> tuple[Any, Any]:
        """Return the first moment of the date in this condition, and the first one after it."""
        try:
            return parse_date(self.value)
        except ValueError as error:
            raise InvalidFilter(f"{name}: {error}") from None

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{self.value}"


class Filter(NamedTuple):
    """Conditions on images, as `SearchRequest` describes them; dates are among `where`. An empty filter keeps all."""

    label: tuple[str, ...] = ()
    not_label: tuple[str, ...] = ()
    folder: str | None = None
    where: tuple[Condition, ...] = ()

    def rows(self, images: Sequence[Image], albums: AlbumRows, fields: Fields | None = None) -> np.ndarray:
        """Rows of the images that pass, in order; `images` are sorted by path, `fields` are those of `where`."""
        passes = np.full(len(images), not self.label)
        for label in self.label:
            passes[albums.rows_of_label(label)] = True
        for label in self.not_label:
            passes[albums.rows_of_label(label)] = False
        if self.folder == ".":
            at_top = np.zeros(len(images), bool)
            at_top[albums.folders.get("", [])] = True
            passes &= at_top
        elif self.folder:
            start = os.fsencode(self.folder.rstrip("/") + "/")
            first = bisect.bisect_left(images, start, key=_encoded_path)
            end = bisect.bisect_left(images, start[:-1] + b"0", key=_encoded_path)  # "0" follows "/"
            passes[:first] = passes[end:] = False
        for condition in self.where:
            assert fields is not None
            passes &= fields.passes(condition)
        return np.flatnonzero(passes)


def _encoded_path(image: Image) -> bytes:
    return os.fsencode(image.path)


class Fields:
    """The fields of the images of a collection, in columns.

    `names` are those that an image has: ``date`` and ``date_source`` (``manifest``, ``exif``, or ``file``: when the
    file was last changed), the columns of a manifest, and, where no column has the name, ``camera``, ``lens``, ``iso``,
    ``focal_length``, ``latitude`` and ``longitude`` of EXIF, unless `exif` is false.
    """

    def __init__(self, rows: Sequence[FieldsRow | None], *, exif: bool = True) -> None:
        self._rows, self._exif = rows, exif
        columns = {name for row in rows if row is not None for name in (*row.given, *(row.exif if exif else ()))}
        dated = any(row is not None and row.date for row in rows)
        self.names = ([_DATE, "date_source"] if dated else []) + sorted(columns - {_DATE, "date_source"})
        self._columns: dict[str, _Column | _Several] = {}

    def date(self, row: int) -> tuple[str, str]:
        """Return when a picture was taken, ISO 8601, and the source of that date (see `names`); both empty: unknown."""
        fields = self._rows[row]
        return (fields.date, fields.date_source) if fields is not None else ("", "")

    def of(self, row: int) -> dict[str, str]:
        """Return the fields of an image."""
        fields = self._rows[row]
        if fields is None:
            return {}
        dates = {_DATE: fields.date, "date_source": fields.date_source} if fields.date else {}
        return {**(fields.exif if self._exif else {}), **fields.given, **dates}

    def passes(self, condition: Condition) -> np.ndarray:
        """Whether a condition holds of each image; never of an image that lacks the field.

        InvalidFilter if no image has the field or, with = and !=, the value.
        """
        if condition.field not in self.names:
            raise InvalidFilter(_unknown("field", condition.field, self.names))
        column = self._columns.get(condition.field)
        if column is None:  # two threads may both make it, and one is kept
            texts = [self.of(row).get(condition.field, "") for row in range(len(self._rows))]
            column = _Several(texts) if condition.field in _LISTS else _Column(texts)
            self._columns[condition.field] = column
        if condition.field == _DATE and isinstance(column, _Column):
            return column.passes_date(condition)
        return column.passes(condition)


class _Column:
    """The values of a field: number of each image's value among the distinct ones, in order; "" is no value."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.values = sorted({*texts, ""})
        numbers = {value: number for number, value in enumerate(self.values)}
        self.numbers = np.array([numbers[text] for text in texts], np.int32)
        self.levels = np.array([_number(value) for value in self.values])  # NaN: no number

    def passes(self, condition: Condition) -> np.ndarray:
        """Whether a condition holds of each image: of numbers as numbers, of other texts in alphabetical order."""
        _, operator, value = condition
        level = _number(value)
        if operator in ("=", "!="):
            same = self.levels == level
            place = bisect.bisect_left(self.values, value)
            if place < len(self.values) and self.values[place] == value:
                same[place] = True
            if not same.any():
                raise InvalidFilter(_unknown(f"{condition.field}", value, self.values[1:]))
            chosen = same if operator == "=" else ~same
        elif math.isnan(level):
            below = bisect.bisect_left if operator in ("<", ">=") else bisect.bisect_right
            chosen = np.arange(len(self.values)) < below(self.values, value)
            chosen = chosen if operator in ("<", "<=") else ~chosen
        else:
            compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[operator]
            chosen = compare(self.levels, level)
        chosen[0] = False  # the value ""
        return chosen[self.numbers]

    def passes_date(self, condition: Condition) -> np.ndarray:
        """Whether a condition on dates holds of each image; a date may be a whole year, month or day."""
        start, end = (bisect.bisect_left(self.values, moment.isoformat()) for moment in condition.period("where"))
        places = np.arange(len(self.values))
        chosen = {
            "=": (places >= start) & (places < end),
            "!=": (places < start) | (places >= end),
            "<": places < start,
            "<=": places < end,
            ">": places >= end,
            ">=": places >= start,
        }[condition.operator]
        chosen[0] = False
        return chosen[self.numbers]


class _Several:
    """The values of a field that has several of an image, with ``;`` between them."""

    def __init__(self, texts: Sequence[str]) -> None:
        parts = [(row, part) for row, text in enumerate(texts) for part in text.split("; ") if text]
        self._rows = np.array([row for row, _ in parts], np.intp)
        self._has_value = np.array(texts) != ""
        self._column = _Column([part for _, part in parts])

    def passes(self, condition: Condition) -> np.ndarray:
        """Whether a condition holds of a value of each image; != of none of them."""
        unequal = condition.operator == "!="
        chosen = self._column.passes(condition._replace(operator="=") if unequal else condition)
        result = np.zeros(len(self._has_value), bool)
        result[self._rows[chosen]] = True
        return self._has_value & ~result if unequal else result


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def near_names(name: str, known: Sequence[str]) -> list[str]:
    """The known name that is probably meant, if any: the same in other capitals, else the nearest one."""
    same = [one for one in known if one.casefold() == name.casefold()]
    return same[:1] or difflib.get_close_matches(name, known[:10_000], n=1)


_OF_LABELS = {("field", "label"), ("field", "labels")}


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    name = one_line(name)[:200]
    near = near_names(name, known)
    hint = f"there are {', '.join(known[:8])}{', ...' * (len(known) > 8)}" if known else "the images have none"
    hint = f"did you mean {near[0]}?" if near else hint
    hint = "--label NAME and --not-label NAME filter by labels" if (kind, name) in _OF_LABELS else hint
    return f"no image has the {kind} {name!r}; {hint}"


NO_FILTER = Filter()


class AlbumRows:
    """The rows of a collection's images by label (`labels`) and by folder (`folders`), the largest album first.

    Images directly in the image directory are in folder "". `within` are the rows of the labels and of what is above
    them in a hierarchy, whose `parents` are by label: "Europe" has the images of "Paris".
    """

    def __init__(self, images: Sequence[Image], parents: Mapping[str, Sequence[str]] | None = None) -> None:
        labels, folders = defaultdict(list), defaultdict(list)
        for row, image in enumerate(images):
            folders[os.path.dirname(image.path)].append(row)
            for label in image.labels:
                labels[label].append(row)
        self.labels = _largest_first(labels)
        self.folders = _largest_first(folders)
        self.within = self.labels
        if parents:
            within = defaultdict(set)
            for label, rows in labels.items():
                for name in above(label, parents):
                    within[name].update(rows)
            self.within = _largest_first({name: sorted(rows) for name, rows in within.items()})
        self._label_rows: dict[str, np.ndarray] = {}

    def rows_of_label(self, label: str) -> np.ndarray:
        """Rows of the images with a label, or one below it, in order."""
        if label not in self.within:
            return np.array([], np.intp)
        if label not in self._label_rows:
            self._label_rows[label] = np.array(self.within[label], np.intp)
        return self._label_rows[label]

    @cached_property
    def are_alike(self) -> bool:
        """Whether each folder holds exactly the images of one label, so that one of the two lists is enough."""
        return sorted(self.labels.values()) == sorted(self.folders.values())


def covers(rows: Sequence[int], n: int = 4) -> list[int]:
    """Choose some rows of an album, spread over it: the same ones every time."""
    return [rows[i * len(rows) // n] for i in range(n)] if len(rows) > n else list(rows)


def _largest_first(albums: dict[str, list[int]]) -> dict[str, list[int]]:
    return dict(sorted(albums.items(), key=lambda album: (-len(album[1]), album[0])))
