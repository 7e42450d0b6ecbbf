"""Options of a search in one table: `SearchRequest`.

The keywords of `Searcher.search`, the options of ``visterm search``, the parameters of the API and the names in the
page's addresses come from it. A new option is a line in `SearchOptions` and one in `SearchRequest`. Nothing heavy is
imported here, as ``visterm --help`` reads the table.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from visterm.pipeline.errors import UserError

if TYPE_CHECKING:
    from datetime import date

    from .filters import Filter

RESULTS = 10  # per query, by default
MAX_WEIGHT = 10  # of an image of a query
IMAGE_ID = re.compile("id:([0-9]{1,18})")  # no longer than SQLite's numbers
_WEIGHTED = re.compile(r"(.+)@(-?[0-9]{1,2}(?:\.[0-9]{1,20})?)", re.DOTALL)


class InvalidQuery(UserError):
    """A region, an example or a number that makes no query."""


class Rectangle(NamedTuple):
    """A part of an image, in shares of its width and height: 0 to 1."""

    x: float
    y: float
    width: float
    height: float

    @classmethod
    def of(cls, numbers: str | Sequence[float]) -> Rectangle:
        """Check four numbers, or read ``"x,y,width,height"``; InvalidQuery if they are no part of the image."""
        values = numbers.split(",") if isinstance(numbers, str) else numbers
        region = None
        if len(values) == 4:
            with contextlib.suppress(ValueError):
                region = cls(*(float(value) for value in values))
        if (
            region is None
            or not all(value >= 0 for value in region)
            or not min(region.width, region.height) > 0
            or not max(region.x + region.width, region.y + region.height) <= 1.001
        ):
            raise InvalidQuery("region: give x, y, width and height in shares of the image, each from 0 to 1")
        return region


def parse_example(text: str) -> tuple[str, float]:
    """Read an image and its weight, ``id:12@-0.5``; 1 without a weight."""
    weighted = _WEIGHTED.fullmatch(text)
    return (weighted[1], float(weighted[2])) if weighted else (text, 1.0)


def _texts(texts: str | Sequence[str] | None) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts or ())


def in_nfc(labels: str | Sequence[str] | None) -> tuple[str, ...]:
    """Labels in the form in which a run keeps them: names of folders that a Mac wrote have another one."""
    return tuple(unicodedata.normalize("NFC", label) for label in _texts(labels))


def _examples(examples: str | Sequence[Any]) -> tuple[tuple[Any, float], ...]:
    is_one = isinstance(examples, str | bytes | bytearray) or not isinstance(examples, Iterable)
    is_one |= getattr(examples, "ndim", 1) > 1 or hasattr(examples, "read")  # pixels, an open file
    weighted = [parse_example(one) if isinstance(one, str) else one for one in ([examples] if is_one else examples)]
    return tuple(image if isinstance(image, tuple) else (image, 1.0) for image in weighted)


class FilterOptions(TypedDict, total=False):
    """Conditions on images, as callers give them."""

    label: str | Sequence[str] | None
    not_label: str | Sequence[str] | None
    folder: str | os.PathLike[str] | None
    after: str | date | None
    before: str | date | None
    where: str | Sequence[str] | None


class LabelSearchOptions(FilterOptions, total=False):
    """Options of a search by label."""

    offset: int
    exclude_duplicates: bool
    text_by: str | None


class SearchOptions(LabelSearchOptions, total=False):
    """Options of a search by image, besides `k` and `learner`: the fields of `SearchRequest`, as callers give them."""

    example: Any
    weight: float
    learned_weight: float | None
    region: str | Sequence[float] | None
    min_probability: float | None


class Option(NamedTuple):
    """How people give a field of `SearchRequest`."""

    kind: type  # of one value: str, int, float or bool
    help: str  # as the API describes it
    command: str = ""  # as the help of the command describes it, if not as the API does
    metavar: str | None = None
    several: bool = False  # a list of values
    least: float | None = None
    most: float | None = None
    served: int = 0  # the largest number, or the most values, that the service takes; 0: as many as fit
    pattern: str | None = None  # form of a text in the API and in addresses
    read: Callable[[Any], Any] | None = None  # makes the value of what a caller gives

    def check(self, name: str, value: float) -> None:
        """Refuse a number out of bounds, and what is none."""
        low, high = self.least, self.most
        if not isinstance(value, numbers.Integral if self.kind is int else numbers.Real):
            raise InvalidQuery(f"{name} {value!r}: give a {'whole ' * (self.kind is int)}number")
        if (low is None or value >= low) and (high is None or value <= high):
            return
        bounds = f"of at least {low:g}" if high is None else f"from {low:g} to {high:g}"
        raise InvalidQuery(f"{name} {value:g}: give a number {bounds}")


def _as_text(value: Any) -> str | None:
    """A folder given as a path, or a date as one of Python, or a year as a number."""
    if value is None or isinstance(value, str | int):
        return value if value is None else str(value)
    return value.isoformat() if hasattr(value, "isoformat") else os.fspath(value)


def _text_by(choice: str | None) -> str | None:
    if choice not in (None, "labels", "model"):
        raise InvalidQuery(f"text_by: give labels or model, not {choice!r}")
    return choice


def _option(default: Any, kind: type, help: str, command: str = "", **more: Any) -> Any:
    return field(default=default, metadata={"option": Option(kind, help, command, **more)})


def _text(help: str, command: str = "", **more: Any) -> Any:
    return _option(None, str, help, command, **more)


def _list(help: str, command: str = "", **more: Any) -> Any:
    return _option((), str, help, command, **{"several": True, "served": 50, "read": _texts, **more})


def _share(help: str, command: str) -> Any:
    return _option(None, float, help, command, metavar="SHARE", least=0, most=1)


@dataclass(frozen=True)
class SearchRequest:
    """Options of a search, besides its queries; `of` makes one of the keywords of `Searcher.search`.

    Parameters
    ----------
    k : int
        Results for each query, fewer if the collection is smaller.
    learner : str, optional
        One of ``searcher.learners``; by default ``searcher.default_learner()``.
    label, not_label : str or sequence of str, optional
        Only images with one of these labels; no images with one of these.
    folder : path, optional
        Only images in this folder or below it, relative to ``searcher.root``; ".": directly in it.
    after, before : str or date, optional
        Only images from this date on; only images before this date: ``"2024"``, ``"2024-05"``, ``"2024-05-31"`` or
        ``"2024-05-31T18:30"``. The date of an image is that of its manifest, else EXIF's, else that of its file.
    where : str or sequence of str, optional
        Only images for which these conditions on fields hold: ``"camera=X100"``, with = != < <= > or >=.
    offset : int
        Number of better results to skip.
    example : image, or sequence of image and (image, weight)
        Images to add to each query, as `Searcher.queries` takes them, one each: ``"b.jpg"``, ``"id:12@-0.5"``. A
        negative weight, down to -10, subtracts an image. Examples are no results themselves.
    weight : float
        Weight of the query image among the examples, from -10 to 10.
    learned_weight : float, optional
        Weight of the learned similarity: 0 is how images look, 1 the learner alone; by default chosen in training.
    region : str or sequence of float, optional
        Search with a part of each query image: x, y, width and height in shares of its size; only its blocks there
        count. With a region, examples or a weight, duplicates of the query are no longer excluded.
    exclude_duplicates : bool
        Skip images whose bytes equal those of the query or of an earlier result.
    text_by : str, optional
        Of a text as the query: "labels" that its words name, or "model", the run's text model; by default labels where
        a word names one, else the text model.
    min_probability : float, optional
        Only images that share a label with the query with at least this probability, from 0 to 1.

    Raises
    ------
    InvalidQuery
        A number is out of bounds, or the region does not lie within the image.
    """

    k: int = _option(RESULTS, int, "Number of results", "Results per query", least=1, served=1000)
    learner: str | None = _text("A learner of the run: oasis, cosine, ...")
    label: tuple[str, ...] = _list(
        "Only images with one of these labels",
        "Only images with one of these labels; may be repeated. Without images and --query-label: as --query-label",
        metavar="NAME",
        read=in_nfc,
    )
    not_label: tuple[str, ...] = _list("No images with one of these labels", metavar="NAME", read=in_nfc)
    folder: str | None = _text(
        "Only images in this folder or below it; .: in no folder",
        "Only images in this folder of the image directory or below it; .: directly in it",
        metavar="PATH",
        read=_as_text,
    )
    after: str | None = _text(
        "Only images from this date on: 2024, 2024-05 or 2024-05-31", metavar="DATE", read=_as_text
    )
    before: str | None = _text("Only images before this date", metavar="DATE", read=_as_text)
    where: tuple[str, ...] = _list(
        "Only images of which these conditions on fields hold: camera=X100; with = != < <= > or >=",
        "Only images with this value of a field; also != < <= > >=. May be repeated: all must hold",
        metavar="FIELD=VALUE",
    )
    offset: int = _option(0, int, "Number of results to skip, for paging", least=0, served=100_000)
    example: tuple[tuple[Any, float], ...] = _list(
        "Another image to add to the query with a weight, a negative one to subtract it: id:12, id:12@-0.5, "
        "upload:HASH@1",
        "Image to add to each query, with a weight; a negative weight subtracts the image. May be repeated",
        metavar="IMAGE[@WEIGHT]",
        served=20,
        pattern=r"^(id:[0-9]{1,16}|upload:[0-9a-f]{64})(@-?[0-9]{1,2}(\.[0-9]{1,20})?)?$",
        read=_examples,
    )
    weight: float = _option(
        1,
        float,
        "Weight of the first image",
        "Weight of the query image among the examples",
        least=-MAX_WEIGHT,
        most=MAX_WEIGHT,
    )
    learned_weight: float | None = _share(
        "Weight of the learned similarity: 0 is how images look, 1 the learner alone; default: chosen in training",
        "Weight of the learned similarity: 0 is how images look, 1 the learner alone (default: chosen in training)",
    )
    region: Rectangle | None = _text(
        "Search with a part of the first image: x,y,width,height, shares of its size",
        "Search with a part of each query image, in shares of its size",
        metavar="X,Y,WIDTH,HEIGHT",
        pattern=r"^[01](\.[0-9]{1,20})?(,[01](\.[0-9]{1,20})?){3}$",
        read=lambda region: None if region is None else Rectangle.of(region),
    )
    exclude_duplicates: bool = _option(
        False, bool, "Skip images whose bytes equal those of the query or of an earlier result"
    )
    text_by: str | None = _text(
        "What answers a text: labels that its words name, or model, the text model; default: labels, else model",
        "What answers --text: labels that its words name, or model, the text model (default: labels, else model)",
        metavar="labels|model",
        pattern="^(labels|model)$",
        read=_text_by,
    )
    min_probability: float | None = _share(
        "Only images that share a label with the query with at least this probability",
        "Only images that share a label with the query with this probability, as measured on held-out images",
    )

    @classmethod
    def of(cls, k: int = RESULTS, learner: str | None = None, **options: Unpack[SearchOptions]) -> SearchRequest:
        """Make a request of what callers give."""
        values: dict[str, Any] = {**options}
        for name, read in _READ:
            if name in values:
                values[name] = read(values[name])
        return cls(k, learner, **values)

    def __post_init__(self) -> None:
        for name, option in _BOUNDED:
            value = getattr(self, name)
            if value is not None or getattr(type(self), name) is not None:
                option.check(name, value)
        for _, weight in self.example:
            OPTIONS["weight"].check("weight", weight)

    @cached_property
    def filter(self) -> Filter:
        """The conditions on images; InvalidFilter where one cannot be read."""
        from .filters import Condition, Filter

        conditions = [Condition.of(text) for text in self.where]
        if self.after:
            conditions.append(Condition.of_date("after", ">=", self.after))
        if self.before:
            conditions.append(Condition.of_date("before", "<", self.before))
        return Filter(self.label, self.not_label, self.folder or None, tuple(conditions))

    @property
    def of_whole_images(self) -> bool:
        """Whether each query is one whole image."""
        return self.region is None and not self.example and self.weight == 1


OPTIONS: dict[str, Option] = {one.name: one.metadata["option"] for one in fields(SearchRequest)}
FILTERS = tuple(FilterOptions.__annotations__)
OF_IMAGES = tuple(name for name in SearchOptions.__annotations__ if name not in LabelSearchOptions.__annotations__)
_READ = [(name, option.read) for name, option in OPTIONS.items() if option.read is not None]
_BOUNDED = [(name, option) for name, option in OPTIONS.items() if option.least is not None]
