"""The segments that the catalogue names: numbers for new ones, cleaning up after a kill, merging."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from .database import Database
from .segments import is_whole, read_segment, read_segment_record, stacked, write_segment

MERGED_BYTES = 64_000_000  # of a merged segment: counts of 180,000 photos; one of half as many is not merged


class Segment(NamedTuple):
    """One segment: its number, its rows, the rows of living images, and the bytes of those."""

    number: int
    rows: int
    living: int
    living_bytes: int


def clean(db: Database) -> None:
    """Remove folders that a killed run left behind and segments without a living row; mark lost images as pending.

    A segment is lost if one of its files is missing, or has another size than it was written with.
    """
    alive = {str(n) for (n,) in db.execute("SELECT DISTINCT segment FROM images WHERE status = 'ok'")}
    present = {folder.name for folder in db.segments.iterdir()}
    for name in present - alive:
        shutil.rmtree(db.segments / name, ignore_errors=True)  # a worker of that run may still be writing
    for name in alive - {name for name in alive & present if is_whole(db.segments / name)}:
        db.execute("UPDATE images SET status = 'pending' WHERE status = 'ok' AND segment = ?", (int(name),))


def reserve_segments(db: Database, n: int) -> int:
    """Return the first of n new segment numbers.

    No number is reused, so that a worker that outlives its killed run cannot write into a segment of a later run.
    """
    with db.transaction():
        first = 1 + (db["last_segment"] or 0)
        db["last_segment"] = first + n - 1
    return first


def stored(db: Database) -> list[Segment]:
    """All segments that the catalogue names, by number."""
    query = "SELECT segment, count(*) FROM images WHERE status = 'ok' GROUP BY segment ORDER BY segment"
    found = []
    for number, living in db.execute(query):
        record = read_segment_record(db.segments / str(number))
        rows = record["shape"][0]
        found.append(Segment(number, rows, living, sum(record.get("sizes", {}).values()) * living // rows))
    return found


def mergeable(db: Database) -> list[Segment]:
    """Segments that `compact` writes anew: small ones, if there are several, and those with many dead rows."""
    found = [s for s in stored(db) if s.living_bytes < MERGED_BYTES / 2 or s.rows - s.living > s.rows / 4]
    return found if len(found) > 1 or any(s.rows > s.living for s in found) else []


def compact(db: Database) -> dict[str, int]:
    """Merge small segments and those with many dead rows: `Collection.compact`."""
    clean(db)
    before, old = stored(db), mergeable(db)
    dropped = 0
    while old:
        group = [old.pop(0)]
        while old and sum(s.living_bytes for s in group) + old[0].living_bytes <= MERGED_BYTES:
            group.append(old.pop(0))
        blocks, ids = [], []
        for segment in group:
            query = "SELECT id, row FROM images WHERE status = 'ok' AND segment = ? ORDER BY row"
            living = db.execute(query, (segment.number,)).fetchall()
            blocks.append(read_segment(db.segments / str(segment.number))[[row for _, row in living]])
            ids += [id_ for id_, _ in living]
        number = reserve_segments(db, 1)
        write_segment(db.segments / str(number), stacked(blocks))
        with db.transaction():
            db.executemany(
                "UPDATE images SET segment = ?, row = ? WHERE id = ?",
                [(number, row, i) for row, i in enumerate(ids)],
            )
        dropped += sum(s.rows - s.living for s in group)
        clean(db)
    with db.transaction():
        # The last id must stay taken: SQLite gives the next image the one after it.
        query = "DELETE FROM images WHERE status = 'removed' AND id < (SELECT max(id) FROM images)"
        tombstones = db.execute(query).rowcount
        db.execute("DELETE FROM given WHERE path NOT IN (SELECT path FROM images WHERE status != 'removed')")
    return {
        "segments_before": len(before),
        "segments": len(stored(db)),
        "dropped_rows": dropped,
        "tombstones": tombstones,
    }
