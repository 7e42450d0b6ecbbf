"""Rebuilding a damaged catalogue from its segments, and from what can still be read of it.

A segment notes the id, the path and the SHA-256 of the image of each row. Labels and splits follow from the folders and
tables; what only the catalogue knew is taken from the rows that can still be read: labels given by hand, images removed
by hand, and the sides of images that were added later.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.errors import UserError

from .catalogue import Collection
from .files import discard, sync
from .records import read_record
from .run import Run
from .salvage import opened_copy, rows
from .segments import is_whole, read_images, read_segment_record

_COLUMNS = ("path", "sha256", "width", "height", "labels", "split", "segment", "row", "status", "reason")
_META = {"format": str, "root": bytes, "split": str, "extractor": str, "max_pixels": int, "last_segment": int}


class KnownImage(NamedTuple):
    """An image that a relevance mark names."""

    id: int
    path: str
    sha256: str


class _Noted(NamedTuple):
    """What a segment notes of an image; no segment and row if the segment is damaged otherwise."""

    segment: int | None
    row: int | None
    path: bytes
    sha256: str
    width: int | None
    height: int | None


@dataclass
class Rebuilt:
    """What became of the images of a catalogue."""

    from_catalogue: int = 0  # rows that could still be read
    from_segments: int = 0  # rows that the segments note
    from_marks: int = 0  # rows that relevance marks name
    by_hand: int = 0  # rows of the damaged catalogue that nothing else tells: added, removed or labelled by hand
    unreadable: int = 0  # rows between the first and the last id that are nowhere: what only they knew is lost
    lost: list[str] = field(default_factory=list)  # what else could not be read, in words


def damage_of(collection: Path) -> str | None:
    """Look through a catalogue; return what is wrong with it, in one line, or None."""
    try:
        with Collection(collection) as opened:
            return opened.damage()
    except UserError as error:
        if not (collection / "catalogue.sqlite").exists() and not (collection / "segments").is_dir():
            raise
        return str(error)


def rebuild_catalogue(run: Run, root: Path | None, marked: Iterable[KnownImage]) -> Rebuilt:
    """Write a new catalogue in place of a damaged one, which is kept as ``catalogue.sqlite.damaged``.

    Images keep their ids. `Collection.scan` must follow: it compares each file with the SHA-256 that is noted here.
    """
    file = run.collection / "catalogue.sqlite"
    kept = file.with_name(f"{file.name}.damaged")
    rebuilt, images = Rebuilt(), {}
    noted, origin, numbers = _from_segments(run.collection / "segments", rebuilt)
    known = {image.id: image for image in marked if 0 < image.id < 1 << 62}
    meta: dict[str, Any] = {}
    given: dict[bytes, str] = {}
    with opened_copy(file if os.path.lexists(file) else kept) as db:
        if db is not None:
            for _, key, value in _readable(db, "meta", ("key", "value"), 50):
                if isinstance(value, _META.get(key, ())):
                    meta[key] = value
            for id_, *values in _readable(db, "images", _COLUMNS, max([*noted, *known], default=0)):
                if (row := _checked(dict(zip(_COLUMNS, values, strict=True)))) is not None and 0 < id_ < 1 << 62:
                    images[id_] = row
            for _, path, labels in _readable(db, "given", ("path", "labels"), 0):
                if isinstance(path, bytes) and _is_labels(labels):
                    given[path] = labels
    rebuilt.from_catalogue = len(images)
    if root is not None or "root" not in meta:
        directory = os.fspath(root.absolute()) if root is not None else origin.get("root") or _root_of(run)
        if not directory:
            raise UserError(f"{file}: nothing tells where the images are; run 'visterm repair IMAGES --run {run.name}'")
        meta["root"] = os.fsencode(directory)
    plain = {name for name in numbers if not any(place.segment == name for place in noted.values())}
    for id_, row in images.items():
        _place(id_, row, noted, plain, meta["root"])
    rebuilt.by_hand = sum(
        row["path"] in given or row["status"] == "excluded" or row["path"].startswith(b"/") for row in images.values()
    )
    for id_, image in noted.items():
        if id_ not in images:
            images[id_] = dict.fromkeys(_COLUMNS) | image._asdict()
            images[id_]["status"] = "pending" if image.segment is None else "ok"
            rebuilt.from_segments += 1
    for id_, path, sha256 in known.values():
        if id_ not in images:
            row = {"path": os.fsencode(path), "sha256": sha256, "status": "pending"}
            images[id_] = dict.fromkeys(_COLUMNS) | row
            rebuilt.from_marks += 1
    rebuilt.unreadable = max(images, default=0) - len(images)
    _bury_older(images)
    extractor = _extractor_of(run)
    meta.setdefault("split", extractor.get("inputs", {}).get("split") or "")
    meta.setdefault("extractor", origin.get("extractor") or "")
    meta["last_segment"] = max(meta.get("last_segment") or 0, *numbers, 0)
    _write(run.collection, images, meta, given)
    if os.path.lexists(file):
        discard(kept)
        file.rename(kept)
    rebuilding = run.collection / "rebuilding.tmp"
    for name in ("catalogue.checksum.json", "catalogue.sqlite"):
        with contextlib.suppress(FileNotFoundError):
            discard(run.collection / name)
            (rebuilding / name).rename(run.collection / name)
    sync(run.collection)
    discard(rebuilding)
    return rebuilt


def _readable(db: Any, table: str, columns: tuple[str, ...], last: int) -> Iterable[tuple[Any, ...]]:
    """The rows that can be read; none if the table itself is gone."""
    import sqlite3

    with contextlib.suppress(sqlite3.Error):
        yield from rows(db, table, columns, last)


def _from_segments(segments: Path, rebuilt: Rebuilt) -> tuple[dict[int, _Noted], dict[str, str], list[int]]:
    """What the segments note of each image, by id; their origin; and the numbers of whole ones."""
    noted: dict[int, _Noted] = {}
    origin: dict[str, str] = {}
    numbers = []
    with contextlib.suppress(OSError):
        for number in sorted(int(name) for name in os.listdir(segments) if name.isdecimal()):
            folder = segments / str(number)
            if whole := is_whole(folder):
                numbers.append(number)
            else:
                rebuilt.lost.append(f"segment {number} is damaged: its images are extracted again")
            with contextlib.suppress(UserError):
                origin = read_segment_record(folder).get("origin", {}) or origin
                for row, (id_, path, sha256, width, height) in enumerate(read_images(folder)):
                    image = _Noted(number, row, os.fsencode(path), sha256, width, height)
                    noted[id_] = image if whole else image._replace(segment=None, row=None)  # a later segment is newer
    return noted, origin, numbers


def _place(id_: int, row: dict[str, Any], noted: dict[int, _Noted], plain: set[int], root: bytes) -> None:
    """Let a row that could be read name the segment that has its image; without one the image is extracted again."""
    place = noted.get(id_)
    if place is not None:
        # An id is of one content for ever; its path changes when the file moves.
        moved = row["sha256"] == place.sha256 and os.path.exists(os.path.join(root, row["path"]))
        if not moved:
            row["path"], row["sha256"] = place.path, place.sha256
        if row["status"] == "ok":
            row["segment"], row["row"] = place[:2]
            row["status"] = "pending" if place.segment is None else "ok"
    elif row["status"] == "ok" and row["segment"] not in plain:
        row["status"], row["segment"], row["row"] = "pending", None, None


def _bury_older(images: dict[int, dict[str, Any]]) -> None:
    """Of several rows of a path the one with the largest id is the image; the others are of what it was before."""
    latest: dict[bytes, int] = {}
    for id_ in sorted(images):
        if images[id_]["status"] != "removed":
            if (older := latest.get(images[id_]["path"])) is not None:
                images[older]["status"] = "removed"
            latest[images[id_]["path"]] = id_


def _checked(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row if it is one that visterm writes."""
    right = (
        isinstance(row["path"], bytes)
        and row["path"]
        and b"\0" not in row["path"]
        and row["status"] in ("pending", "ok", "skipped", "excluded", "removed")
        and (
            row["sha256"] is None or (isinstance(row["sha256"], str) and re.fullmatch("([0-9a-f]{64})?", row["sha256"]))
        )
        and all(row[key] is None or isinstance(row[key], int) for key in ("width", "height", "segment", "row"))
        and (row["labels"] is None or _is_labels(row["labels"]))
        and row["split"] in (None, "train", "test", "validation")
        and (row["reason"] is None or isinstance(row["reason"], str))
    )
    return row if right else None


def _is_labels(text: Any) -> bool:
    try:
        labels = json.loads(text)
    except (ValueError, TypeError):
        return False
    return isinstance(labels, dict) and all(
        isinstance(weight, int | float) and weight > 0 for weight in labels.values()
    )


def _extractor_of(run: Run) -> dict[str, Any]:
    with contextlib.suppress(UserError):
        return read_record(run.extractor) or {}
    return {}


def _root_of(run: Run) -> str:
    """The directory of images, as the last `features` recorded it."""
    with contextlib.suppress(UserError):
        return (read_record(run.collection) or {}).get("root", "")
    return ""


def _write(collection: Path, images: dict[int, dict[str, Any]], meta: dict[str, Any], given: dict[bytes, str]) -> None:
    """Write a catalogue into the folder rebuilding.tmp."""
    folder = collection / "rebuilding.tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with Collection(folder, create=True) as made, made.transaction():
        for key, value in meta.items():
            if key != "format":
                made[key] = value
        # A size and a time that no file has: a scan compares the content.
        query = (
            f"INSERT INTO images (id, size, mtime_ns, {', '.join(_COLUMNS)}) VALUES (?, -1, -1{', ?' * len(_COLUMNS)})"
        )
        made.executemany(query, [(id_, *(row[name] for name in _COLUMNS)) for id_, row in sorted(images.items())])
        made.executemany("INSERT INTO given VALUES (?, ?)", given.items())
    shutil.rmtree(folder / "segments")
