"""Fields of images in the catalogue: what a manifest says beside labels, and what EXIF says."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .database import Database
from .paths import decoded

_OFFSET = r"(?: ?[+-]\d\d(?::?\d\d)?)?"  # from UTC, ignored: the time of the place, as in EXIF
_TIME = rf"(\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?{_OFFSET}"
_PERIOD = re.compile(rf"(\d{{4}})(?:[-/:](\d\d?)(?:[-/:](\d\d?)(?:[T ]{_TIME})?)?)?Z?")


class FieldsRow(NamedTuple):
    """Fields of an image in the catalogue, beside its labels."""

    date: str  # ISO 8601, when the picture was taken, or the file changed
    date_source: str  # manifest, exif or file
    given: dict[str, str]  # of a manifest
    exif: Mapping[str, str] = {}  # other than the date


def parse_date(text: str) -> tuple[datetime.datetime, datetime.datetime]:
    """Read a year, a month, a day or a time, else ValueError; return its first moment, and the first one after it.

    Years come first, before hyphens, slashes or colons. An offset from UTC is ignored.
    """
    match = _PERIOD.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        parts = [int(part) for part in match.groups() if part is not None]
        start = datetime.datetime(*(parts + [1, 1])[: max(3, len(parts))])  # type: ignore[arg-type]
        if len(parts) == 1:
            return start, start.replace(year=start.year + 1)
        if len(parts) == 2:
            return start, (start + datetime.timedelta(days=31)).replace(day=1)
        step = {3: "days", 5: "minutes"}.get(len(parts), "seconds")
        return start, start + datetime.timedelta(**{step: 1})
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text[:40]!r} is not a date, such as 2024, 2024-05, 2024-05-31 or 2024-05-31T18:30"
        ) from None


def enter_fields(db: Database, fields: dict[str, dict[str, str]], rows: Iterable[tuple[int, str]]) -> None:
    """Enter what a manifest says of the images (id, path)."""
    before = dict(db.execute("SELECT id, given FROM fields WHERE given IS NOT NULL"))
    changed = []
    for id_, path in rows if fields or before else ():  # there may be millions
        values = fields.get(path)
        text = json.dumps(values, sort_keys=True) if values else None
        if text != before.get(id_):
            changed.append((id_, text))
    if changed:
        query = "INSERT INTO fields (id, given) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET given = excluded.given"
        db.executemany(query, changed)
        note_change(db)


def without_exif(db: Database) -> list[tuple[int, str]]:
    """Id and path of the living images whose EXIF was not read yet, or by a version that read the date alone."""
    query = (
        "SELECT id, path FROM images LEFT JOIN fields USING (id) "
        "WHERE status = 'ok' AND width IS NOT NULL AND (taken IS NULL OR taken NOT LIKE '{%') ORDER BY path"
    )
    return [(id_, decoded(path)) for id_, path in db.execute(query)]


def enter_exif(db: Database, fields: Iterable[tuple[int, dict[str, str]]]) -> None:
    """Enter what EXIF says of pictures, by id; empty for those whose files say nothing."""
    query = "INSERT INTO fields (id, taken) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET taken = excluded.taken"
    with db.transaction():
        db.executemany(query, [(id_, json.dumps(exif)) for id_, exif in fields])
        note_change(db)


def read_fields(db: Database) -> dict[int, FieldsRow]:
    """Read the fields of the living images, by id."""
    query = "SELECT id, mtime_ns, width, taken, given FROM images LEFT JOIN fields USING (id) WHERE status = 'ok'"
    rows = {}
    for id_, mtime_ns, width, taken, text in db.execute(query):
        given = json.loads(text) if text else {}
        is_json = (taken or "").startswith("{")  # else a date alone, of an earlier version
        exif = json.loads(taken) if is_json else {"date": taken}
        taken = exif.pop("date", None)
        date, source = "", ""
        if "date" in given:
            date, source = given["date"], "manifest"
        elif taken:
            date, source = taken, "exif"
        elif width is not None and mtime_ns > 0:
            seconds = mtime_ns // 1_000_000_000
            date, source = datetime.datetime.fromtimestamp(seconds).isoformat(), "file"
        rows[id_] = FieldsRow(date, source, given, exif)
    return rows


def note_change(db: Database) -> None:
    """Count the changes, so that a snapshot of the run knows of one."""
    db["fields"] = (db["fields"] or 0) + 1
