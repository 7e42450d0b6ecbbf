"""The images of a collection in columns, so that a million of them take a second to read and 150 MB to hold.

One object per image costs four times the time and memory. SQLite concatenates each column into one string, NumPy
splits it, and `Image` objects are created on access.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import operator
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from .database import Database, gc_paused
from .paths import decoded

if TYPE_CHECKING:
    import numpy as np
else:
    from visterm import numpy as np

_IDS_AT_ONCE = 100_000  # SQLite joins no more than a gigabyte
_CHANGED_SHARE = 0.1  # of the images; where more have changed, all are read again
_ROWS_AT_ONCE = 4096  # images made at a time where all are asked for
_NUMBERS = ("id", "segment", "row", "CAST(coalesce(width, 0) AS INTEGER)", "CAST(coalesce(height, 0) AS INTEGER)")
_TEXTS = ("CAST(path AS TEXT)", "sha256", "coalesce(labels, '')", "coalesce(split, '')")
_USUAL = "typeof(path) = 'blob' AND typeof(segment) = 'integer' AND typeof(row) = 'integer' AND typeof(sha256) = 'text'"


class Image(NamedTuple):
    """One live image of the collection."""

    id: int
    path: str  # relative to the root, or absolute if it lies outside; surrogateescape
    sha256: str
    labels: dict[str, float]
    split: str | None
    segment: int
    row: int


class _Texts(Sequence[bytes]):
    """Texts of bytes, none of them with a NUL, in one."""

    def __init__(self, joined: bytes) -> None:
        self.joined = joined
        ends = np.flatnonzero(np.frombuffer(joined, np.uint8) == 0)
        self._starts = np.concatenate([[0], ends + 1])
        self._ends = np.concatenate([ends, [len(joined)]])

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):  # of neighbours
            return text.split(b"\0") if (text := self.between(*place.indices(len(self))[:2])) is not None else []
        return self.joined[self._starts[place] : self._ends[place]]

    def between(self, first: int, last: int) -> bytes | None:
        """Return the texts from one place to another in one; None if there are none."""
        return self.joined[self._starts[first] : self._ends[last - 1]] if last > first else None


class _Coded(NamedTuple):
    """A column of few distinct texts: numbers among them, in the order of their first rows."""

    texts: list[bytes]
    numbers: np.ndarray  # int32 (n_images,)

    @classmethod
    def of(cls, texts: Sequence[bytes], known: Sequence[bytes] = ()) -> _Coded:
        """Number texts; the `known` ones come first."""
        names = list(dict.fromkeys(itertools.chain(known, texts)))
        numbers = {name: number for number, name in enumerate(names)}
        return cls(names, np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts)))

    def in_order(self) -> _Coded:
        """Number the texts by their first rows, without those of no row."""
        n = len(self.numbers)
        first = np.full(len(self.texts), n)
        first[self.numbers[::-1]] = np.arange(n)[::-1]  # the last assignment stands
        order = first.argsort()[: np.count_nonzero(first < n)]
        place = np.zeros(len(self.texts), np.int32)
        place[order] = np.arange(len(order))
        return _Coded([self.texts[number] for number in order.tolist()], place[self.numbers])


class RowOfId(Mapping[int, int]):
    """The row of each image by its id."""

    def __init__(self, ids: np.ndarray) -> None:
        self._rows = ids.argsort(kind="stable")
        self._ids = ids[self._rows]

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids.tolist())

    def __getitem__(self, number: int) -> int:
        place = bisect.bisect_left(self._ids, number)
        if place == len(self._ids) or self._ids[place] != number:
            raise KeyError(number)
        return int(self._rows[place])


class Images(Sequence[Image]):
    """Images sorted by their paths, with columns: `ids`, `segments` and `rows`, int64 (n_images,).

    `sizes` are widths and heights in pixels, int32 (n_images, 2), 0 of imported vectors; `place` is the row of each
    image by its id.
    """

    def __init__(
        self,
        numbers: np.ndarray,
        paths: _Texts,
        contents: _Texts,
        labels: _Coded,
        splits: _Coded,
        seen: tuple[int, int],
        parsed: Mapping[bytes, dict[str, float]],
    ) -> None:
        self._numbers, self._paths, self._contents = numbers, paths, contents
        self.ids, self.segments, self.rows = numbers[:3]
        self.sizes = numbers[3:].T.astype(np.int32)
        self._label_texts, self._labels_of = labels
        self._labels = [parsed[text] if text in parsed else _parsed(text) for text in labels.texts]
        self._split_texts, self._split_of = splits
        self._splits = [text.decode() or None for text in splits.texts]
        self._seen = seen
        self.place = RowOfId(self.ids)

    @classmethod
    def of(cls, numbers: np.ndarray, texts: Sequence[list[bytes]], seen: tuple[int, int]) -> Images:
        """Sort the images of these columns (`_NUMBERS`, `_TEXTS`) by path; `seen` is the last change in them."""
        paths = texts[0]
        order = sorted(range(len(paths)), key=paths.__getitem__)
        if order != list(range(len(order))):
            numbers = np.ascontiguousarray(numbers[:, order])
            texts = [[column[row] for row in order] for column in texts]
        paths, contents, labels, splits = texts
        joined = [_Texts(b"\0".join(column)) for column in (paths, contents)]
        return cls(numbers, joined[0], joined[1], _Coded.of(labels), _Coded.of(splits), seen, {})

    def changed(self, ids: Sequence[int], rows: Sequence[tuple[Any, ...]], seen: tuple[int, int]) -> Images:
        """Return these images with others in place of those with some ids: `rows` of `_NUMBERS` and `_TEXTS`."""
        gone = [self.place[number] for number in ids if number in self.place]
        kept = np.delete(np.arange(len(self)), gone)
        rows = sorted(rows, key=operator.itemgetter(len(_NUMBERS)))
        numbers = np.array([row[: len(_NUMBERS)] for row in rows], np.int64).reshape(-1, len(_NUMBERS)).T
        paths, contents, labels, splits = [list(column) for column in zip(*rows, strict=True)][len(_NUMBERS) :] or [
            []
        ] * 4
        kept_paths = _Chosen(self._paths, kept)
        at = [bisect.bisect_left(kept_paths, path) for path in paths]
        order = np.insert(kept, at, len(self) + np.arange(len(rows)))  # rows of these images, then of the new ones

        def coded(old: _Coded, new: list[bytes]) -> _Coded:
            names, added = _Coded.of(new, old.texts)
            return _Coded(names, np.concatenate([old.numbers, added])[order]).in_order()

        return Images(
            np.concatenate([self._numbers, numbers], axis=1)[:, order],
            _merged(self._paths, paths, order),
            _merged(self._contents, contents, order),
            coded(_Coded(self._label_texts, self._labels_of), labels),
            coded(_Coded(self._split_texts, self._split_of), splits),
            seen,
            dict(zip(self._label_texts, self._labels, strict=True)),
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, row: int) -> Image: ...
    @overload
    def __getitem__(self, row: slice) -> list[Image]: ...
    def __getitem__(self, row: int | slice) -> Image | list[Image]:
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        row = operator.index(row)
        return next(self._made(slice(row, row + 1 or None)))

    def __iter__(self) -> Iterator[Image]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield from self._made(slice(start, start + _ROWS_AT_ONCE))

    def _made(self, rows: slice) -> Iterator[Image]:
        columns = zip(
            self.ids[rows].tolist(),
            self._paths[rows],
            self._contents[rows],
            self._labels_of[rows].tolist(),
            self._split_of[rows].tolist(),
            self.segments[rows].tolist(),
            self.rows[rows].tolist(),
            strict=True,
        )
        if not len(self.ids[rows]):
            raise IndexError("the collection has fewer images")
        for id_, path, sha256, labels, split, segment, row in columns:
            yield Image(id_, decoded(path), sha256.decode(), self._labels[labels], self._splits[split], segment, row)

    def labelled(self, *splits: str) -> list[Image]:
        """Return the images of these splits that have labels."""
        has_labels = np.array([bool(labels) for labels in self._labels])
        in_splits = np.array([split in splits for split in self._splits])
        chosen = has_labels[self._labels_of] & in_splits[self._split_of]
        return list(itertools.compress(self, chosen.tolist())) if chosen.any() else []

    def row_of_path(self, path: str) -> int | None:
        """Return the row of the image with a path."""
        try:
            name = os.fsencode(path)
        except UnicodeEncodeError:
            return None
        row = bisect.bisect_left(self._paths, name)
        return row if row < len(self) and self._paths[row] == name else None

    def path(self, row: int) -> str:
        """Return the path of an image."""
        return decoded(self._paths[row])

    def paths(self) -> list[str]:
        """Return the path of each image."""
        return [decoded(path) for path in self._paths[:]]

    def folders(self) -> list[str]:
        """Return the folder that each image lies in; "" directly in the directory of images."""
        return [os.path.dirname(path) for path in self.paths()]

    def label_names(self) -> list[tuple[str, ...]]:
        """Return the names of the labels of each image."""
        names = [tuple(labels) for labels in self._labels]
        return [names[number] for number in self._labels_of.tolist()]

    def contents(self) -> list[str]:
        """Return the SHA-256 of each image."""
        return [content.decode() for content in self._contents[:]]

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of ids, contents, labels and splits."""
        digest = hashlib.sha256(self.ids.tobytes())
        digest.update(self._contents.joined)
        for names, numbers in ((self._label_texts, self._labels_of), (self._split_texts, self._split_of)):
            digest.update(repr(names).encode())
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    def count_labels(self) -> Counter[str]:
        """Count the images with each label."""
        counts: Counter[str] = Counter()
        for labels, n in zip(self._labels, np.bincount(self._labels_of).tolist(), strict=True):
            counts.update(dict.fromkeys(labels, n))
        return counts


class _Chosen(Sequence[bytes]):
    """Some of many texts."""

    def __init__(self, texts: _Texts, places: np.ndarray) -> None:
        self._texts, self._places = texts, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        return self._texts[self._places[place]]


def _merged(old: _Texts, new: list[bytes], order: np.ndarray) -> _Texts:
    """Return texts in an order: places among the old ones and then the new ones."""
    breaks = np.flatnonzero((np.diff(order) != 1) | (order[1:] == len(old))) + 1
    parts = []
    for run in np.split(order, breaks):
        first, last = int(run[0]), int(run[-1]) + 1
        parts += new[first - len(old) : last - len(old)] if first >= len(old) else [old.between(first, last) or b""]
    return _Texts(b"\0".join(parts))


def _parsed(labels: bytes) -> dict[str, float]:
    return json.loads(labels) if labels else {}


def read_images(db: Database, like: Images | None = None) -> Images:
    """Read the living images of a collection; only those that changed since `like` was read, if these are few.

    For use where nobody changes the catalogue meanwhile.
    """
    seen = db.last_change()
    if like is not None:
        ids = db.changed_since(like._seen)
        if ids is not None and len(ids) <= _CHANGED_SHARE * len(like):
            query = f"SELECT {', '.join((*_NUMBERS, *(f'CAST({text} AS BLOB)' for text in _TEXTS)))} FROM images "
            rows = db.execute(
                f"{query} WHERE status = 'ok' AND {_USUAL} AND id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
            images = like.changed(ids, rows.fetchall(), seen)
            if len(images) == db.execute("SELECT count(*) FROM images WHERE status = 'ok'").fetchone()[0]:
                return images
    return _read_all(db, seen)


def _read_all(db: Database, seen: tuple[int, int]) -> Images:
    columns = [f"group_concat({number})" for number in _NUMBERS]
    columns += [f"CAST(group_concat({text}, char(0)) AS BLOB)" for text in _TEXTS]
    query = (
        f"SELECT count(*), total({_USUAL}), {', '.join(columns)} FROM images NOT INDEXED "
        "WHERE status = 'ok' AND id >= ? AND id < ?"
    )
    numbers: list[np.ndarray] = []
    texts: list[list[bytes]] = [[] for _ in _TEXTS]
    with gc_paused():
        for first in range(0, db.last_id + 1, _IDS_AT_ONCE):
            n, usual, *joined = db.execute(query, (first, first + _IDS_AT_ONCE)).fetchone()
            if not n:
                continue
            parts = [text.split(b"\0") for text in joined[len(_NUMBERS) :] if usual == n]
            if not parts or any(len(part) != n for part in parts):
                raise db.damaged("it holds a row that no command writes")
            numbers.append(np.array([np.fromstring(text, np.int64, sep=",") for text in joined[: len(_NUMBERS)]]))
            for column, part in zip(texts, parts, strict=True):
                column += part
        return Images.of(np.concatenate(numbers, axis=1), texts, seen)
