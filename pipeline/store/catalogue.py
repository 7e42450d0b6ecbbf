"""The collection: the catalogue of a run's images, and their visterm counts or vectors.

``catalogue.sqlite`` has a row per image; ``segments/<n>/`` hold the counts and never change once written. A segment
counts only after the catalogue names it, in one transaction; a killed run leaves folders that the catalogue does not
name, and the next run removes them. A changed or removed image leaves its old row behind as a tombstone, until
`Collection.compact` merges the segments.

An image removed by hand stays as ``excluded``, so that no scan adds it again. One added by hand from outside the root
has its absolute path in place of a relative one; ``root / path`` is right for both.
"""

from __future__ import annotations

import functools
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from visterm.pipeline.errors import UserError

from .database import gc_paused
from .edit import EditableCatalogue
from .files import discard
from .images import Image, Images, read_images
from .paths import decoded
from .pictures import Outcome, enter_pictures, make_tables
from .segments import damaged, is_whole, read_segment, read_segment_record, row_of, stacked, write_segment
from .segments import read_images as read_descriptions

if TYPE_CHECKING:
    import numpy as np

    from visterm.retrieval import StoredVectors
else:
    from visterm import numpy as np

MERGED_BYTES = 64_000_000  # of a merged segment: counts of 180,000 photos; one of half as many is not merged


class Excluded(NamedTuple):
    """An image as it was before it was excluded; ``labels`` are those given by hand, JSON."""

    id: int
    status: str
    segment: int | None
    row: int | None
    reason: str | None
    labels: str | None


class Compacted(TypedDict):
    """Numbers of segments before and after `Collection.compact`, and of what it dropped."""

    segments_before: int
    segments: int
    dropped_rows: int  # of counts
    tombstones: int  # rows of the catalogue
    seconds: float


class Segment(NamedTuple):
    """One segment: its number, its rows, the rows of living images, and the bytes of those."""

    number: int
    rows: int
    living: int
    living_bytes: int


class Collection(EditableCatalogue):
    """The images of one run; see `Database` for the parameters."""

    def exclude(self, ids: Iterable[int]) -> list[Excluded]:
        """Remove living images from the collection until they are added again, with the labels given by hand.

        Returns what `restore` needs.
        """
        columns = "id, status, segment, row, reason, given.labels"
        query = f"SELECT {columns} FROM images LEFT JOIN given USING (path) WHERE id = ? "
        query += "AND status NOT IN ('removed', 'excluded')"  # the path of a removed one may be another's
        with self.transaction():
            before = [Excluded(*entry) for id_ in dict.fromkeys(ids) for entry in self.execute(query, (id_,))]
            rows = [(image.id,) for image in before]
            self.executemany("DELETE FROM given WHERE path = (SELECT path FROM images WHERE id = ?)", rows)
            self.executemany(
                "UPDATE images SET status = 'excluded', segment = NULL, row = NULL, reason = NULL WHERE id = ?", rows
            )
        return before

    def restore(self, before: Iterable[Excluded]) -> int:
        """Put excluded images back as they were; return how many. Those whose segment is gone become pending."""
        n = 0
        with self.transaction():
            for id_, status, segment, row, reason, labels in before:
                if segment is not None and not is_whole(self.segments / str(segment)):
                    status, segment, row = "pending", None, None
                query = "UPDATE images SET status = ?, segment = ?, row = ?, reason = ? "
                values = (status, segment, row, reason, id_)
                n += self.execute(f"{query} WHERE id = ? AND status = 'excluded'", values).rowcount
                if labels is not None:
                    query = "INSERT OR IGNORE INTO given SELECT path, ? FROM images WHERE id = ?"
                    self.execute(query, (labels, id_))
        return n

    def clean(self) -> None:
        """Remove folders that a killed run left behind, and segments without a living row."""
        alive = {str(number) for number in self._alive()}
        for folder in self.segments.iterdir():
            if folder.name not in alive:
                discard(folder)  # a worker of that run may still be writing

    def forget_damaged(self) -> list[tuple[int, int]]:
        """Mark the images of damaged segments as pending; return the number and the images of each such segment.

        A segment is damaged if one of its files is missing, or has another size or checksum than it was written with.
        """
        lost = []
        for number in self._alive():
            if not is_whole(self.segments / str(number)):
                query = "UPDATE images SET status = 'pending' WHERE status = 'ok' AND segment = ?"
                lost.append((number, self.execute(query, (number,)).rowcount))
        return lost

    def check_segments(self) -> None:
        """Raise UserError for a damaged segment."""
        for line in self.damaged_segments():
            raise UserError(line)

    def damaged_segments(self) -> Iterator[str]:
        """Tell which segments are damaged, why, and the command that extracts their images again: a line each."""
        for number in self._alive():
            folder = self.segments / str(number)
            if not is_whole(folder):
                try:
                    read_segment(folder)  # tells why
                    read_descriptions(folder)
                    raise damaged(folder, "a file is missing, or has another size")
                except UserError as error:
                    yield str(error)

    def _alive(self) -> list[int]:
        """Numbers of the segments with a living row."""
        query = "SELECT DISTINCT segment FROM images WHERE status = 'ok' ORDER BY segment"
        return [number for (number,) in self.execute(query)]

    def use_extractor(self, fingerprint: str) -> None:
        """Record the extractor of the counts; images with counts of another one become pending."""
        if self["extractor"] == fingerprint:
            return
        with self.transaction():
            self.execute(
                "UPDATE images SET status = 'pending', segment = NULL, row = NULL, reason = NULL "
                "WHERE status = 'ok' OR (status = 'skipped' AND sha256 IS NOT NULL)"
            )
            self["extractor"] = fingerprint

    def pending(self) -> list[tuple[int, str]]:
        """Id and path of the images to extract, by path."""
        return [(id_, path) for id_, path, _ in self.rows("status = 'pending'", ())]

    def enter_segment(self, number: int, outcomes: list[Outcome]) -> None:
        """Enter the outcomes of one finished segment, including skipped images: from now on it exists."""
        with self.transaction():
            known_by = enter_pictures(self, outcomes)
            self.executemany(
                "UPDATE images SET sha256 = ?, width = ?, height = ?, segment = ?, row = ?, status = ?, reason = ? "
                "WHERE id = ?",
                [
                    (known_by.get(o.id, o.sha256), o.width, o.height, number, o.row, "ok", None, o.id)
                    if o.row is not None
                    else (o.sha256, None, None, None, None, "skipped", o.reason, o.id)
                    for o in outcomes
                ],
            )

    def reserve_segments(self, n: int) -> int:
        """Return the first of n new segment numbers.

        No number is reused, so that a worker that outlives its killed run cannot write into a segment of a later run.
        """
        with self.transaction():
            first = 1 + (self["last_segment"] or 0)
            self["last_segment"] = first + n - 1
        return first

    def stored(self) -> list[Segment]:
        """All segments that the catalogue names, by number."""
        query = "SELECT segment, count(*) FROM images WHERE status = 'ok' GROUP BY segment ORDER BY segment"
        segments = []
        for number, living in self.execute(query):
            record = read_segment_record(self.segments / str(number))
            rows = record["shape"][0]
            segments.append(Segment(number, rows, living, sum(record.get("sizes", {}).values()) * living // rows))
        return segments

    def mergeable(self) -> list[Segment]:
        """Segments that `compact` rewrites: small ones, if there are several, and those with many dead rows."""
        segments = [s for s in self.stored() if s.living_bytes < MERGED_BYTES / 2 or s.rows - s.living > s.rows / 4]
        return segments if len(segments) > 1 or any(s.rows > s.living for s in segments) else []

    def compact(self) -> Compacted:
        """Merge small segments and those with many dead rows, delete the tombstones, and return the numbers of each.

        A damaged segment is a UserError, and stays as it is. The living rows of several segments are written to a new
        one, one transaction replaces them in the catalogue, and then their folders are removed: after a kill the
        catalogue names the old ones or the new one, and the next command that writes removes the rest. A process that
        has an old segment open keeps it, as its files are unlinked, not overwritten.
        """
        started = time.perf_counter()
        self.check_segments()
        with self.transaction():
            make_tables(self)
        self.clean()
        before, old = self.stored(), self.mergeable()
        dropped = 0
        while old:
            group = [old.pop(0)]
            while old and sum(s.living_bytes for s in group) + old[0].living_bytes <= MERGED_BYTES:
                group.append(old.pop(0))
            blocks, images = [], []
            for segment in group:
                query = (
                    "SELECT row, id, path, sha256, width, height, pixels FROM images LEFT JOIN pictures USING (id) "
                    "WHERE status = 'ok' AND segment = ? ORDER BY row"
                )
                living = self.execute(query, (segment.number,)).fetchall()
                blocks.append(self._rows_of(segment.number, [row for row, *_ in living]))
                images += [row_of(id_, os.fsdecode(path), *rest) for _, id_, path, *rest in living]
            number = self.reserve_segments(1)
            write_segment(self.segments / str(number), stacked(blocks), images, **self.origin())
            with self.transaction():
                self.executemany(
                    "UPDATE images SET segment = ?, row = ? WHERE id = ?",
                    [(number, row, image[0]) for row, image in enumerate(images)],
                )
            dropped += sum(s.rows - s.living for s in group)
            self.clean()
        with self.transaction():
            # The last id must stay taken: SQLite gives the next image the one after it.
            query = "DELETE FROM images WHERE status = 'removed' AND id < (SELECT max(id) FROM images)"
            tombstones = self.execute(query).rowcount
            for table in ("fields", "pictures", "retagged"):
                self.execute(f"DELETE FROM {table} WHERE id NOT IN (SELECT id FROM images WHERE status != 'removed')")
            self.execute("DELETE FROM given WHERE path NOT IN (SELECT path FROM images WHERE status != 'removed')")
        return {
            "segments_before": len(before),
            "segments": len(self.stored()),
            "dropped_rows": dropped,
            "tombstones": tombstones,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def origin(self) -> dict[str, str]:
        """Where the rows of a segment come from, as `write_segment` takes it: the root, and the extractor."""
        return {"root": os.fspath(self.root or ""), "extractor": self["extractor"] or ""}

    def _rows_of(self, number: int, rows: Any) -> Any:
        """Read rows of a segment."""
        try:
            return read_segment(self.segments / str(number))[rows]
        except IndexError:
            raise self.damaged(f"segment {number} has fewer rows than it names") from None

    def n_since(self, last_id: int) -> int:
        """Return the number of living images that were added or changed after the one with this id."""
        query = "SELECT count(*) FROM images WHERE status = 'ok' AND id > ?"
        return self.execute(query, (last_id,)).fetchone()[0]

    def ids(self, paths: Iterable[str]) -> list[int]:
        """Ids of the living images at these paths, in their order."""
        # SQLite uses the partial index of paths only if the query repeats its condition.
        query = "SELECT id FROM images WHERE path = ? AND status != 'removed' AND status = 'ok'"
        return [id_ for path in paths for (id_,) in self.execute(query, (os.fsencode(path),))]

    def copies(self, ids: Iterable[int]) -> list[tuple[str, str]]:
        """Path of each of these images that is a byte-for-byte copy of another living one, and that one's."""
        these = set(ids)
        query = (
            "SELECT sha256, id, path FROM images WHERE status = 'ok' AND sha256 IN "
            "(SELECT sha256 FROM images WHERE id IN (SELECT value FROM json_each(?))) ORDER BY path"
        )
        holders = defaultdict(list)
        for digest, id_, path in self.execute(query, (json.dumps(sorted(these)),)):
            holders[digest].append((id_, os.fsdecode(path)))
        return [
            (path, next(other for number, other in same if number != id_))
            for same in holders.values()
            if len(same) > 1
            for id_, path in same
            if id_ in these
        ]

    def images(self, *splits: str, labelled: bool = False) -> list[Image]:
        """Return the living images, in the order of their paths; of the given splits if any are named."""
        where = "status = 'ok'"
        if splits:
            where += f" AND split IN ({','.join('?' * len(splits))})"
        if labelled:
            where += " AND labels IS NOT NULL"
        query = f"SELECT id, path, sha256, labels, split, segment, row FROM images WHERE {where} ORDER BY path"
        parsed = functools.cache(json.loads)  # few distinct texts in many images
        with gc_paused():
            return [
                Image(id_, decoded(path), sha256, parsed(labels) if labels else {}, split, segment, row)
                for id_, path, sha256, labels, split, segment, row in self.execute(query, splits)
            ]

    def living(self, like: Images | None = None) -> Images:
        """Return the living images in columns, in the order of their paths: for a collection of a million.

        Only what has changed since `like` was returned is read.
        """
        with self._unchanging():
            return read_images(self, like)

    def training_paths(self) -> list[str]:
        """Paths to learn visterms from: the training images, or all images if none has a split."""
        query = "SELECT path FROM images WHERE status IN ('ok', 'pending') {} ORDER BY path"
        rows = self.execute(query.format("AND split = 'train'")).fetchall()
        if not rows and not self.execute("SELECT 1 FROM images WHERE split IS NOT NULL LIMIT 1").fetchone():
            rows = self.execute(query.format("")).fetchall()
        return [os.fsdecode(path) for (path,) in rows]

    def ids_of(self, paths: Sequence[str]) -> list[int]:
        """Return the numbers of images that are extracted or pending."""
        rows = self.execute("SELECT path, id FROM images WHERE status IN ('ok', 'pending')")
        id_of = {os.fsdecode(path): id_ for path, id_ in rows}
        return [id_of[path] for path in paths]

    def has_validation(self) -> bool:
        """Whether images that are extracted or pending are marked as validation images."""
        query = "SELECT 1 FROM images WHERE status IN ('ok', 'pending') AND split = 'validation' LIMIT 1"
        return self.execute(query).fetchone() is not None

    def labels(self) -> dict[str, dict[str, float]]:
        """Labels and their weights of every labelled image, by path; also of files that cannot be read for now."""
        where = "status NOT IN ('removed', 'excluded') AND labels IS NOT NULL"
        rows = self.execute(f"SELECT path, labels FROM images WHERE {where}")
        return {os.fsdecode(path): json.loads(labels) for path, labels in rows}

    def label_source(self) -> tuple[str, list[str]]:
        """Return where the labels come from, as last scanned, and a line for each kind of what is not used there."""
        source, lines = json.loads(self["label_source"] or '["", []]')
        return source, lines

    def label_sizes(self) -> Counter[str]:
        """Count the images of each label, extracted or pending."""
        query = "SELECT labels, count(*) FROM images WHERE status IN ('ok', 'pending') GROUP BY labels"
        sizes: Counter[str] = Counter()
        for text, n in self.execute(query):
            sizes.update(dict.fromkeys(json.loads(text) if text else (), n))
        return sizes

    def skipped(self) -> list[tuple[str, str]]:
        """Path and reason of every skipped file."""
        rows = self.execute("SELECT path, reason FROM images WHERE status = 'skipped' ORDER BY path")
        return [(os.fsdecode(path), reason) for path, reason in rows]

    def counts_by(self, column: str) -> Counter:
        """Return the number of living rows by a column: ``status``, ``split`` or ``labels``."""
        assert column in ("status", "split", "labels")
        where = "status != 'removed'" if column == "status" else "status = 'ok'"
        rows = self.execute(f"SELECT {column}, count(*) FROM images WHERE {where} GROUP BY {column}")
        return Counter(dict(rows.fetchall()))

    def counts(self, images: Sequence[Image]) -> Any:
        """Read the visterm counts (int32 CSR) or the vectors (float32, dense or CSR) of images, in the order given.

        Dense vectors that are stored as float16 come as float32.
        """
        if not images:
            raise UserError(f"{self.folder}: no images to read")
        numbers, rows = _places(images)
        order = numbers.argsort(kind="stable")
        blocks, dense = [], None
        for places in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            part = self._rows_of(int(numbers[places[0]]), rows[places])
            if isinstance(part, np.ndarray):  # placed at once: dense vectors may take most of the memory
                dense = np.empty((len(images), part.shape[1]), np.float32) if dense is None else dense
                dense[places] = part
            else:
                blocks.append(part)
        if dense is not None:
            return dense
        back = np.empty(len(order), dtype=np.intp)
        back[order] = np.arange(len(order))
        return stacked(blocks)[back]

    def dense_bytes(self, images: Sequence[Image], dtype: str | None = None) -> int:
        """Bytes that the vectors of images take as float32; 0 where they are sparse, or not stored as that dtype."""
        for image in images[:1]:
            folder = self.segments / str(image.segment)
            record = read_segment_record(folder)
            dense = record["kind"] == "dense" if "kind" in record else (folder / "vectors.npy").exists()
            if dense and dtype in (None, record.get("dtype", "float32")):
                return 4 * record["shape"][1] * len(images)
        return 0

    def in_place(self, images: Sequence[Image]) -> StoredVectors:
        """The dense vectors of images, left where they lie."""
        from visterm.retrieval import StoredVectors

        numbers, rows = _places(images)
        segments = np.flatnonzero(np.bincount(numbers))
        array_of = np.zeros(1 + segments[-1], np.int32)
        array_of[segments] = np.arange(len(segments))
        arrays = [read_segment(self.segments / str(number)) for number in segments.tolist()]
        if (rows >= np.array([len(array) for array in arrays])[array_of[numbers]]).any():
            raise self.damaged("a segment has fewer rows than it names")
        return StoredVectors(arrays, array_of[numbers], rows, self.folder)


def _places(images: Sequence[Image]) -> tuple[np.ndarray, np.ndarray]:
    """Segments of images and their rows there, int64 (n_images,)."""
    if isinstance(images, Images):
        return images.segments, images.rows
    pairs = [(image.segment, image.row) for image in images]
    numbers, rows = np.array(pairs, np.int64).reshape(-1, 2).T
    return numbers, rows
