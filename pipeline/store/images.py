"""The images of a collection in columns, so that a million of them take a second to read and 150 MB to hold.

An object per image takes four times as long and as much. So SQLite joins each column to one text, which NumPy takes
apart, and an `Image` is made when somebody asks for one.
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

_IDS_AT_ONCE = 100_000  # SQLite joins no more than a gigabyte
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

    def __init__(self, texts: list[bytes]) -> None:
        import numpy as np

        self.joined = b"\0".join(texts)
        ends = np.flatnonzero(np.frombuffer(self.joined, np.uint8) == 0)
        self._starts = np.concatenate([[0], ends + 1])
        self._ends = np.concatenate([ends, [len(self.joined)]])

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):  # of neighbours
            first, last, _ = place.indices(len(self))
            return self.joined[self._starts[first] : self._ends[last - 1]].split(b"\0") if last > first else []
        return self.joined[self._starts[place] : self._ends[place]]


class Places(Mapping[int, int]):
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
    """Images sorted by their paths.

    Attributes
    ----------
    ids, segments, rows : int64 array of shape (n_images,)
    sizes : int32 array of shape (n_images, 2)
        Widths and heights in pixels; 0 of imported vectors.
    place : Places
        The row of each image by its id.
    """

    def __init__(self, numbers: np.ndarray, texts: Sequence[list[bytes]]) -> None:
        import numpy as np

        paths, *others = texts
        order = sorted(range(len(paths)), key=paths.__getitem__)
        in_order = np.array(order)
        if (in_order[1:] < in_order[:-1]).any():
            numbers = numbers[:, in_order]
            paths, *others = ([column[row] for row in order] for column in texts)
        self.ids, self.segments, self.rows = numbers[:3]
        self.sizes = numbers[3:].T.astype(np.int32)
        self._paths, self._contents = _Texts(paths), _Texts(others[0])
        self._label_texts, self._labels_of = _coded(others[1])
        self._labels: list[dict[str, float]] = [json.loads(text) if text else {} for text in self._label_texts]
        names, self._split_of = _coded(others[2])
        self._splits = [name.decode() or None for name in names]
        self.place = Places(self.ids)

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

    def _made(self, some: slice) -> Iterator[Image]:
        columns = zip(
            self.ids[some].tolist(),
            self._paths[some],
            self._contents[some],
            self._labels_of[some].tolist(),
            self._split_of[some].tolist(),
            self.segments[some].tolist(),
            self.rows[some].tolist(),
            strict=True,
        )
        if not len(self.ids[some]):
            raise IndexError("the collection has fewer images")
        for id_, path, sha256, labels, split, segment, row in columns:
            yield Image(id_, decoded(path), sha256.decode(), self._labels[labels], self._splits[split], segment, row)

    def labelled(self, *splits: str) -> list[Image]:
        """Return the images of these splits that have labels."""
        import numpy as np

        has_labels = np.array([bool(labels) for labels in self._labels])
        in_splits = np.array([split in splits for split in self._splits])
        wanted = has_labels[self._labels_of] & in_splits[self._split_of]
        return list(itertools.compress(self, wanted.tolist())) if wanted.any() else []

    def row_of_path(self, path: str) -> int | None:
        """Return the row of the image with a path."""
        try:
            wanted = os.fsencode(path)
        except UnicodeEncodeError:
            return None
        row = bisect.bisect_left(self._paths, wanted)
        return row if row < len(self) and self._paths[row] == wanted else None

    def paths(self) -> list[str]:
        """Return the path of each image."""
        return [decoded(path) for path in self._paths[:]]

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of ids, contents, labels and splits."""
        digest = hashlib.sha256(self.ids.tobytes())
        digest.update(self._contents.joined)
        for names, numbers in ((self._label_texts, self._labels_of), (self._splits, self._split_of)):
            digest.update(repr(names).encode())
            digest.update(numbers.tobytes())
        return digest.hexdigest()

    def count_labels(self) -> Counter[str]:
        """Count the images with each label."""
        import numpy as np

        counts: Counter[str] = Counter()
        for labels, n in zip(self._labels, np.bincount(self._labels_of).tolist(), strict=True):
            counts.update(dict.fromkeys(labels, n))
        return counts


def read_images(db: Database) -> Images:
    """Read the living images of a collection.

    For use where nobody changes the catalogue meanwhile.
    """
    import numpy as np

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
            for own, part in zip(texts, parts, strict=True):
                own += part
        return Images(np.concatenate(numbers, axis=1), texts)


def _coded(texts: list[bytes]) -> tuple[list[bytes], np.ndarray]:
    """Return the distinct texts, in their order, and the number of each text among them: int32 (n,)."""
    import numpy as np

    names = list(dict.fromkeys(texts))
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.fromiter(map(numbers.__getitem__, texts), np.int32, len(texts))
