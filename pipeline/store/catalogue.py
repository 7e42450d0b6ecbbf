"""The collection: the catalogue of a run's images, and their visterm counts, on disk.

``catalogue.sqlite`` has a row an image; ``segments/<n>/`` hold the counts and never change once they are written. A
segment counts only after the catalogue names it, in one transaction; a folder that the catalogue does not name was left
by a killed run and is removed by the next one. A changed or removed image leaves its old row behind as a tombstone,
until `Collection.compact` merges the segments.

An image that was removed by hand stays as ``excluded``, so that no scan brings it back. One that was added by hand from
outside the root has its absolute path in place of a relative one; ``root / path`` is right for both.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import os
import shutil
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError

from .files import file_sha256
from .labels import Labels, read_labels
from .segments import FORMAT, is_whole, read_segment, read_segment_record, stacked, write_segment
from .splits import Layout, mistyped_split, share, split_key

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
_DAMAGE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)  # all else may pass: do not remove it
BUSY_SECONDS = 30  # to wait for a process that holds the catalogue: a scan of many images writes for some seconds
MERGED_BYTES = 64_000_000  # of a merged segment: counts of 180,000 photos; one of half as many is left alone
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL);
CREATE TABLE images (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,         -- relative to the root, or absolute if it lies outside; the file system's bytes
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    sha256 TEXT,
    width INTEGER,
    height INTEGER,
    labels TEXT,                -- JSON {label: weight}; null: unlabelled
    split TEXT,                 -- train, test, validation; null: searchable, but neither trained on nor tested
    segment INTEGER,
    row INTEGER,
    status TEXT NOT NULL,       -- pending, ok, skipped, excluded (removed by hand), removed
    reason TEXT                 -- why it was skipped
);
CREATE UNIQUE INDEX live ON images (path) WHERE status != 'removed';
CREATE INDEX by_status ON images (status);
"""
# Labels given by hand, which no folder and no table tells. Catalogues of earlier versions lack it until they are
# written to: reading needs it not.
_GIVEN = "CREATE TABLE IF NOT EXISTS given (path BLOB PRIMARY KEY, labels TEXT NOT NULL)"


class Image(NamedTuple):
    """One live image of the collection."""

    id: int
    path: str  # relative to the root, or absolute if it lies outside; surrogateescape
    sha256: str
    labels: dict[str, float]
    split: str | None
    segment: int
    row: int


class Outcome(NamedTuple):
    """What became of one image during extraction; ``row`` is None for a skipped one."""

    id: int
    sha256: str | None
    width: int | None
    height: int | None
    row: int | None
    reason: str | None


class _Known(NamedTuple):
    """What the catalogue has of a live path."""

    id: int
    size: int
    mtime_ns: int
    status: str
    reason: str | None
    labels: str | None


class Segment(NamedTuple):
    """One segment: its number, how many rows it has, how many of them are those of living images, and their bytes."""

    number: int
    rows: int
    living: int
    living_bytes: int


@dataclass
class Changes:
    """What a scan of the root, or adding by hand, found, in numbers of images."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    relabelled: int = 0  # of the images that were known before
    left_out: int = 0  # of other classes than the configuration takes
    warnings: tuple[str, ...] = ()  # what may not be as it was meant

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class Collection:
    """The images of one run.

    Parameters
    ----------
    folder : Path
        ``runs/<run>/collection``.
    create : bool
        Make an empty one where there is none.

    Raises
    ------
    UserError
        There is none, it was made by another version, its catalogue is damaged, or another process holds it for longer
        than BUSY_SECONDS.
    """

    def __init__(self, folder: Path, *, create: bool = False):
        self.folder = folder
        file = folder / "catalogue.sqlite"
        if not file.exists() and not create:
            raise UserError(f"{folder}: no collection here yet; run 'visterm features IMAGES' first")
        self.segments.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(file, isolation_level=None, timeout=BUSY_SECONDS)
        try:
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                with self._transaction():
                    for statement in _SCHEMA.split(";\n"):
                        self._db.execute(statement)
                    self["format"] = FORMAT
            found = self["format"]
        except sqlite3.DatabaseError as error:
            self._db.close()
            if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF not in _DAMAGE:
                raise UserError(
                    f"{file}: cannot be opened ({error}); if another visterm is at work in it, try again later"
                ) from None
            raise UserError(
                f"{file}: damaged catalogue ({error}); remove {folder} and run 'visterm features' again"
            ) from None
        if found != FORMAT:
            self._db.close()
            raise UserError(
                f"{folder}: a run folder of another version (format {found}, this visterm reads {FORMAT}); "
                f"use another --run, or remove it and run 'visterm features' again"
            )

    @property
    def segments(self) -> Path:
        """The folder of segment folders."""
        return self.folder / "segments"

    @property
    def root(self) -> Path | None:
        """The directory of images, as last scanned."""
        root = self["root"]
        return None if root is None else Path(os.fsdecode(root))

    def close(self) -> None:
        """Close the catalogue."""
        self._db.close()

    def __getitem__(self, key: str):
        found = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return found and found[0]

    def __setitem__(self, key: str, value) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _transaction(self):
        return _Transaction(self._db)

    # --- what is on disk ------------------------------------------------------------------------------------------

    def scan(self, root: Path, config: Config, *, replace: bool = False) -> Changes:
        """Compare the root with the catalogue and enter the differences, in one transaction.

        Parameters
        ----------
        root : Path
            May have moved since the last scan; other images are refused unless ``replace`` says so.
        config : Config
        replace : bool, default=False

        Raises
        ------
        UserError
            No such directory, other images than before, or a table of labels that does not fit.

        Notes
        -----
        An image whose size and modification time are those of the catalogue is taken as unchanged; otherwise its
        SHA-256 decides. Labels and splits are brought up to date. Images that have a split keep it, so that a new image
        never moves an old one from test to train; a change of the ``split`` section assigns all of them again.
        Excluded images stay excluded; images from outside the root stay until their files are gone.
        """
        with _nothing_is_garbage():
            return self._scan(root, config, replace)

    def _scan(self, root: Path, config: Config, replace: bool) -> Changes:
        from visterm.features.images import list_images

        refused: dict[str, str] = {}
        try:
            found = list_images(root, on_skip=refused.__setitem__)
        except OSError as error:
            raise UserError(str(error)) from None
        prefix = len(os.path.join(root, ""))
        own = _folder_below(root, self.folder.parent.parent)  # images in runs/ are visterm's own, such as the demo's
        paths = [path for file in found if not (path := file[prefix:]).startswith(own)]
        del found
        names = {path: reason for file, reason in refused.items() if not (path := file[prefix:]).startswith(own)}
        layout = Layout.of(paths)
        changes = Changes()
        tables = config.collection.clicks is not None or config.collection.labels not in ("auto", "none")
        everything = {*paths, *names} if tables else None
        if config.collection.classes is not None:
            wanted = set(config.collection.classes)
            missing = sorted(wanted - {layout.label(path) for path in paths})
            if missing:
                raise UserError(
                    f"collection.classes: {root} has no images in a folder {', '.join(missing[:5])}"
                    + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
                )
            before = len(paths)
            paths = [path for path in paths if layout.label(path) in wanted]
            names = {path: reason for path, reason in names.items() if layout.label(path) in wanted}
            changes.left_out = before - len(paths)
        with self._transaction():
            self._db.execute(_GIVEN)
            last = self.last_id
            self._take_in(root)
            known = self._known()
            outside = [path for path in known if path.startswith(os.sep) and os.path.lexists(path)]
            read, warning = read_labels(config.collection, layout, [*paths, *outside], everything)
            labels = (lambda path: None if path in names else read(path)) if names else read
            changes.warnings = tuple(filter(None, (warning, mistyped_split(paths, layout))))
            self._enter(root, paths, outside, names, known, changes, replace)
            changes.relabelled = sum(id_ <= last for id_ in self._label(labels, self._living(known, last)))
            self._assign_splits(config, layout)
            self._reconsider(config.collection.max_pixels)
            self["root"] = os.fsencode(root)
        return changes

    def take_vectors(
        self,
        root: Path,
        ids: Sequence[str],
        digests: Sequence[str],
        labels: Sequence[Sequence[str]] | None,
        config: Config,
        *,
        replace: bool = False,
    ) -> Changes:
        """Compare a table of vectors with the catalogue and enter the differences, in one transaction, as `scan` does.

        Parameters
        ----------
        root : Path
            Directory that ids are relative to where they are paths of images.
        ids : sequence of str
        digests : sequence of str
            SHA-256 of each vector: one that is that of the catalogue is taken as unchanged.
        labels : sequence of sequence of str, or None
            Those of the table, which count where the configuration names no others.
        config : Config
        replace : bool, default=False

        Raises
        ------
        UserError
            Other ids than before, or a table of labels that does not fit.
        """
        changes, layout = Changes(), Layout.of(ids)
        with self._transaction():
            self._db.execute(_GIVEN)
            last, known = self.last_id, self._known()
            entered = dict(self._db.execute("SELECT id, sha256 FROM images WHERE status != 'removed'"))
            if self.root is not None and not replace and len(known.keys() & set(ids)) < len(known) / 2:
                raise UserError(
                    f"{self.folder.parent.name} is a run of other images, as most of their ids are not in the table; "
                    "give another --run, or --force to replace it"
                )
            if labels is not None and config.collection.labels == "auto" and config.collection.clicks is None:
                found: Labels = {path: dict.fromkeys(own, 1.0) for path, own in zip(ids, labels, strict=True)}.get
            else:
                found, warning = read_labels(config.collection, layout, ids, set(ids))
                changes.warnings = tuple(filter(None, (warning, mistyped_split(ids, layout))))
            new = []
            for path, digest in zip(ids, digests, strict=True):
                old = known.pop(path, None)
                if old is not None and old.status == "excluded":
                    continue
                if old is not None and entered[old.id] == digest:
                    changes.unchanged += 1
                    continue
                if old is None:
                    changes.added += 1
                else:
                    changes.changed += 1
                    self._bury([old.id])
                new.append((os.fsencode(path), digest))
            gone = [old.id for old in known.values() if old.status != "excluded"]
            changes.removed = len(gone)
            self._bury(gone)
            self._db.executemany(
                "INSERT INTO images (path, size, mtime_ns, sha256, status) VALUES (?, 0, 0, ?, 'pending')", new
            )
            query = "SELECT id, path, labels FROM images WHERE status NOT IN ('removed', 'excluded')"
            rows = [(id_, _decoded(path), labels) for id_, path, labels in self._db.execute(query)]
            changes.relabelled = sum(id_ <= last for id_ in self._label(found, rows))
            self._assign_splits(config, layout)
            self["root"] = os.fsencode(root)
        return changes

    def _take_in(self, root: Path) -> None:
        """Give images from outside that a new root encloses the names by which it finds them."""
        first, last = _bounds(os.fsencode(root))
        query = "SELECT id, path FROM images WHERE status != 'removed' AND path >= ? AND path < ?"
        for id_, path in self._db.execute(query, (first, last)).fetchall():
            inside = path[len(first) :]
            self._db.execute("UPDATE OR REPLACE given SET path = ? WHERE path = ?", (inside, path))
            if not self._db.execute("UPDATE OR IGNORE images SET path = ? WHERE id = ?", (inside, id_)).rowcount:
                self._bury([id_])  # it is there under that name

    def _known(self, paths: Iterable[str] | None = None) -> dict[str, _Known]:
        """What the catalogue has of these paths, or of all."""
        query = "SELECT path, id, size, mtime_ns, status, reason, labels FROM images WHERE status != 'removed'"
        rows: Iterable[tuple]
        if paths is None:
            rows = self._db.execute(query)
        else:
            rows = [r for p in paths for r in self._db.execute(f"{query} AND path = ?", (os.fsencode(p),))]
        known = functools.partial(tuple.__new__, _Known)  # `_make` without its look at the length
        same: Any = {}.setdefault  # few texts in many rows: one object each
        return {
            _decoded(path): known((id_, size, mtime_ns, same(status, status), reason, same(labels, labels)))
            for path, id_, size, mtime_ns, status, reason, labels in rows
        }

    def _sha256(self, id_: int) -> str | None:
        return self._db.execute("SELECT sha256 FROM images WHERE id = ?", (id_,)).fetchone()[0]

    def _living(self, known: dict[str, _Known], last_id: int) -> Iterator[tuple[int, str, str | None]]:
        """Id, path and labels of the images that were known and are still there, and of those that came since."""
        gone = {id_ for (id_,) in self._db.execute("SELECT id FROM images WHERE status = 'removed'")}
        for path, old in known.items():
            if old.status != "excluded" and old.id not in gone:
                yield old.id, path, old.labels
        query = "SELECT id, path, labels FROM images WHERE status NOT IN ('removed', 'excluded') AND id > ?"
        for id_, path, labels in self._db.execute(query, (last_id,)):
            yield id_, _decoded(path), labels

    def _enter(
        self,
        root: Path,
        paths: list[str],
        outside: list[str],
        names: dict[str, str],
        known: dict[str, _Known],
        changes: Changes,
        replace: bool,
    ) -> None:
        """Enter what a scan found: images below the root and outside, and files that are none with the reason."""
        self._compare(root, paths, known, changes)
        if self.root is not None and self.root != root and not replace:
            n_inside = sum(old.status != "excluded" and not path.startswith(os.sep) for path, old in known.items())
            if changes.unchanged < n_inside / 2:
                raise UserError(
                    f"{self.folder.parent.name} is the run of the images in {self.root}, and {root} holds others; "
                    f"give another --run, or --force to replace it"
                )
        self._compare(root, outside, known, changes)
        new = []
        for path, reason in names.items():
            old = known.get(path)
            if old is None or (old.status != "excluded" and (old.status, old.reason) != ("skipped", reason)):
                if old is not None:
                    self._bury([old.id])
                new.append((os.fsencode(path), 0, 0, "skipped", reason))
        gone = []
        if changes.unchanged < len(known):  # else all of them are there
            there = {*paths, *outside, *names}
            gone = [old for path, old in known.items() if path not in there and old.status != "excluded"]
        changes.removed = sum(old.status != "skipped" for old in gone)
        self._bury([old.id for old in gone])
        self._insert(new)

    def _compare(
        self,
        root: Path,
        paths: Iterable[str],
        known: dict[str, _Known],
        changes: Changes,
        *,
        by_hand: bool = False,
    ) -> None:
        """Enter image files that are new or changed; those that were excluded only if they are added by hand."""
        new: list[tuple] = []
        unchanged = 0
        folder = None
        with contextlib.suppress(OSError):  # the root may be away, and images from outside may still be added
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)  # from here the system has a shorter way to each file
        try:
            for path in paths:
                old = known.get(path)
                if old is not None and old.status == "excluded" and not by_hand:
                    continue
                try:
                    stat = os.stat(os.path.join(root, path) if folder is None else path, dir_fd=folder)
                    size, mtime = stat.st_size, stat.st_mtime_ns
                except OSError:
                    size, mtime = 0, 0  # vanished, or a link into nowhere: the reader will say so
                if old is None:
                    changes.added += 1
                    new.append((os.fsencode(path), size, mtime, "pending", None))
                    continue
                same_time = (size, mtime) == (old.size, old.mtime_ns)
                if not same_time and (
                    (sha256 := self._sha256(old.id)) is None or sha256 != file_sha256(os.path.join(root, path))
                ):
                    changes.changed += 1
                    self._bury([old.id])
                    new.append((os.fsencode(path), size, mtime, "pending", None))
                    continue
                if not same_time:
                    self._db.execute("UPDATE images SET size = ?, mtime_ns = ? WHERE id = ?", (size, mtime, old.id))
                if old.status == "excluded":
                    changes.added += 1
                    self._db.execute("UPDATE images SET status = 'pending' WHERE id = ?", (old.id,))
                else:
                    unchanged += 1
        finally:
            if folder is not None:
                os.close(folder)
        changes.unchanged += unchanged
        self._insert(new)

    def _insert(self, rows: list[tuple]) -> None:
        self._db.executemany("INSERT INTO images (path, size, mtime_ns, status, reason) VALUES (?, ?, ?, ?, ?)", rows)

    def _reconsider(self, max_pixels: int) -> None:
        """Read again what may come out otherwise: files that could not be opened, images near a limit that moved."""
        again = "UPDATE images SET status = 'pending', segment = NULL, row = NULL, reason = NULL WHERE "
        self._db.execute(f"{again} status = 'skipped' AND sha256 = ''")
        if self["max_pixels"] != max_pixels:
            self._db.execute(f"{again} status = 'skipped' AND sha256 IS NOT NULL")
            self._db.execute(f"{again} status = 'ok' AND width * height > ?", (max_pixels,))
            self["max_pixels"] = max_pixels

    def _bury(self, ids: Iterable[int]) -> None:
        self._db.executemany("UPDATE images SET status = 'removed' WHERE id = ?", [(i,) for i in ids])

    def _label(self, labels: Labels, rows: Iterable[tuple]) -> list[int]:
        """Enter the labels of (id, path, labels so far); return the ids of those that had others."""
        given = {_decoded(path): text for path, text in self._db.execute("SELECT path, labels FROM given")}
        stale = []
        texts: dict[int, str] = {}  # images of one class share their labels
        for id_, path, old in rows:
            found, text = labels(path), given.get(path) if given else None
            if text is None and found:
                text = texts.get(id(found)) or texts.setdefault(id(found), json.dumps(found, sort_keys=True))
            if text != old:
                stale.append((text, id_))
        self._db.executemany("UPDATE images SET labels = ? WHERE id = ?", stale)
        return [id_ for _, id_ in stale]

    def _assign_splits(self, config: Config, layout: Layout) -> None:
        """Give every labelled image that has no split one; all of them if something else decides now."""
        key = split_key(config) + layout.kind
        stale = "" if self["split"] != key else " AND labels IS NULL"
        self._db.execute(f"UPDATE images SET split = NULL WHERE status != 'removed' AND split IS NOT NULL{stale}")
        self["split"] = key
        self._draw_splits(config, layout)

    def _draw_splits(self, config: Config, layout: Layout) -> None:
        """Assign train and test to labelled images that have no split.

        The order within a class is that of a hash of seed and path, so it depends on nothing else, and images that have
        a split keep it. What has to be known of those is counted by SQLite: they may be many.
        """
        # Unreadable ones too: they keep their places, or others would move up when they are found out.
        labelled = "status NOT IN ('removed', 'excluded') AND labels IS NOT NULL"
        free = self._db.execute(f"SELECT id, path, labels FROM images WHERE {labelled} AND split IS NULL").fetchall()
        if not free:
            return
        chosen: list[tuple[str | None, int]]
        if layout.kind == "split":
            chosen = [(layout.split(os.fsdecode(path)), id_) for id_, path, _ in free]
        else:
            counted = f"SELECT labels, split, count(*) FROM images WHERE {labelled} GROUP BY labels, split"
            pooled = config.collection.clicks is not None
            classes: dict[str, str] = {}  # of the texts of labels
            size: Counter[str] = Counter()
            taken: Counter[tuple[str, str]] = Counter()
            for text, split, n in self._db.execute(counted):
                label = classes.setdefault(text, "" if pooled else min(json.loads(text)))
                size[label] += n
                taken[label, split] += n
            room = {}
            for label, n in size.items():
                train, test = share(config.split.train, n), share(config.split.test, n)
                train, test = train - taken[label, "train"], min(test, n - train) - taken[label, "test"]
                if train > 0 or test > 0:
                    room[label] = ["train"] * train + ["test"] * test
            members = defaultdict(list)
            for id_, path, text in free:
                if classes[text] in room:
                    order = hashlib.sha256(f"{config.split.seed}:".encode() + path).digest()
                    members[classes[text]].append((order, id_))
            chosen = [
                (split, id_)
                for label in members
                for (_, id_), split in zip(sorted(members[label]), room[label], strict=False)
            ]
        self._db.executemany("UPDATE images SET split = ? WHERE id = ?", chosen)

    # --- by hand --------------------------------------------------------------------------------------------------

    def names(self, files: Iterable[str | Path]) -> list[str]:
        """What the catalogue calls files: relative to the root, or by their absolute paths if they lie outside.

        A file below the root that is given through a link to its folder has the name that a scan finds.
        """
        assert self.root is not None
        root, real_root = os.fspath(self.root), os.path.realpath(self.root)
        below: dict[str, str | None] = {}  # the name of each folder, None outside
        found = []
        for file in files:
            absolute = os.path.abspath(os.fsdecode(file))
            folder, name = os.path.split(absolute)
            if folder not in below:
                inside = (_relative(os.path.realpath(folder), real_root), _relative(folder, root))
                below[folder] = next((path for path in inside if path is not None), None)
            inside_root = below[folder]
            found.append(absolute if inside_root is None else os.path.join(inside_root, name))
        return found

    def unfit(self, paths: Iterable[str], config: Config) -> dict[str, str]:
        """Which of these paths cannot be added, with the reason: a scan would take them out again."""
        assert self.root is not None
        own, layout, classes = (
            _folder_below(self.root, self.folder.parent.parent),
            self._layout,
            config.collection.classes,
        )
        found = {}
        for path in paths:
            if os.path.isabs(path):
                continue
            if any(part.startswith(".") for part in path.split(os.sep)):
                found[path] = "hidden files are passed over"
            elif path.startswith(own):
                found[path] = "it belongs to a run of visterm"
            elif classes is not None and (label := layout.label(path)) not in classes:
                found[path] = f"of {label or 'no class'}, which collection.classes leaves out"
        return found

    @property
    def _layout(self) -> Layout:
        """What the folders said when they were last scanned."""
        return Layout(self["split"].rpartition("]")[2])

    def add(self, paths: Sequence[str], labels: Sequence[str], config: Config) -> Changes:
        """Enter images by hand, without a look at any others.

        Parameters
        ----------
        paths : sequence of str
            As `names` gives them.
        labels : sequence of str
            Of all of them, in place of what folders and tables say; none: what those say.
        config : Config
            That the root was scanned with.
        """
        assert self.root is not None
        changes = Changes()
        with self._transaction():
            self._db.execute(_GIVEN)
            last = self.last_id
            self._compare(self.root, paths, self._known(paths), changes, by_hand=True)
            if labels:
                text = json.dumps(dict.fromkeys(labels, 1.0), sort_keys=True)
                self._db.executemany(
                    "INSERT OR REPLACE INTO given VALUES (?, ?)", [(os.fsencode(path), text) for path in paths]
                )
            query = "SELECT id, path, labels FROM images WHERE path = ? AND status != 'removed'"
            encoded = [(path, os.fsencode(path)) for path in paths]
            rows = [(id_, path, old) for path, name in encoded for id_, _, old in self._db.execute(query, (name,))]
            found, _ = read_labels(config.collection, self._layout, paths, None)
            changes.relabelled = sum(id_ <= last for id_ in self._label(found, rows))
            self._draw_splits(config, self._layout)
        return changes

    def find(self, given: str) -> list[tuple[int, str, str]]:
        """Find rows of images, whether their files are there or not.

        Parameters
        ----------
        given : str
            ``id:12``, or a file or folder: a path from here, or one relative to the root, as search prints it.

        Returns
        -------
        list of (id, path, status)
            By path; excluded ones too; empty if there is none.

        Raises
        ------
        UserError
            Two images are meant, one by each reading.
        """
        if given.startswith("id:"):
            number = given.removeprefix("id:")
            if not (number.isascii() and number.isdigit() and int(number) < 1 << 63):
                return []
            return self._rows("id = ?", (int(number),))
        if not given:
            return []
        readings = self.names([given])
        inner = os.path.normpath(given)
        if not os.path.isabs(inner) and inner.split(os.sep)[0] not in (os.curdir, os.pardir):
            readings.append(inner)
        found = [rows for path in dict.fromkeys(readings) if (rows := self._at(path))]
        if len(found) > 1 and found[0] != found[1]:
            first, second = (rows[0] for rows in found)
            raise UserError(
                f"{given} is {first[1]} (id:{first[0]}) from here, and {second[1]} (id:{second[0]}) below the root; "
                "give its id or its absolute path"
            )
        return found[0] if found else []

    def _at(self, path: str) -> list[tuple[int, str, str]]:
        """The image at a path, or those below it."""
        assert self.root is not None
        name = os.fsencode(path)
        where, values = "(path = ? OR (path >= ? AND path < ?)", (name, *_bounds(name))
        if os.path.isabs(path) and _relative(os.path.realpath(self.root), os.path.realpath(path)) is not None:
            where += " OR substr(path, 1, 1) != x'2f'"  # the root itself, or a folder above it: all that is inside
        return self._rows(f"{where})", values)

    def labelled(self, label: str) -> list[tuple[int, str, str]]:
        """Return id, path and status of the images with a label, by path; excluded ones too."""
        text = json.dumps({label: 0})[1:-2]  # as it begins in the JSON; what only looks alike is told apart below
        ids = [
            id_
            for id_, labels in self._db.execute(
                "SELECT id, labels FROM images WHERE status != 'removed' AND instr(labels, ?)", (text,)
            )
            if label in json.loads(labels)
        ]
        return [row for id_ in ids for row in self._rows("id = ?", (id_,))]

    def _rows(self, where: str, values: tuple) -> list[tuple[int, str, str]]:
        query = f"SELECT id, path, status FROM images WHERE status != 'removed' AND {where} ORDER BY path"
        return [(id_, os.fsdecode(path), status) for id_, path, status in self._db.execute(query, values)]

    def exclude(self, ids: Iterable[int]) -> None:
        """Take images out of the collection until they are added again; labels given by hand are forgotten."""
        rows = [(id_,) for id_ in ids]
        with self._transaction():
            self._db.execute(_GIVEN)
            self._db.executemany("DELETE FROM given WHERE path = (SELECT path FROM images WHERE id = ?)", rows)
            self._db.executemany(
                "UPDATE images SET status = 'excluded', segment = NULL, row = NULL, reason = NULL WHERE id = ?", rows
            )

    # --- extraction -----------------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Remove folders that a killed run left behind, and segments without a living row; miss those that are gone.

        A segment is gone if one of its files is, or has another size than it was written with.
        """
        alive = {str(n) for (n,) in self._db.execute("SELECT DISTINCT segment FROM images WHERE status = 'ok'")}
        present = {folder.name for folder in self.segments.iterdir()}
        for name in present - alive:
            shutil.rmtree(self.segments / name, ignore_errors=True)  # a worker of that run may still be writing
        for name in alive - {name for name in alive & present if is_whole(self.segments / name)}:
            self._db.execute("UPDATE images SET status = 'pending' WHERE status = 'ok' AND segment = ?", (int(name),))

    def use_extractor(self, fingerprint: str) -> None:
        """Declare which extractor the counts are made with; counts of another one are forgotten."""
        if self["extractor"] == fingerprint:
            return
        with self._transaction():
            self._db.execute(
                "UPDATE images SET status = 'pending', segment = NULL, row = NULL, reason = NULL "
                "WHERE status = 'ok' OR (status = 'skipped' AND sha256 IS NOT NULL)"
            )
            self["extractor"] = fingerprint

    def pending(self) -> list[tuple[int, str]]:
        """Id and path of the images that wait for extraction, in the order of their paths."""
        return [(id_, path) for id_, path, _ in self._rows("status = 'pending'", ())]

    def reserve_segments(self, n: int) -> int:
        """Return the first of n numbers that no segment has had.

        They are never given again, so that a worker that outlives its killed run cannot write into a later one's.
        """
        with self._transaction():
            first = 1 + (self["last_segment"] or 0)
            self["last_segment"] = first + n - 1
        return first

    def enter_segment(self, number: int, outcomes: list[Outcome]) -> None:
        """Enter one finished segment into the catalogue: from here on it exists.

        Parameters
        ----------
        number : int
            As `reserve_segments` gave it.
        outcomes : list of Outcome
            Of all its images, the skipped ones too.
        """
        with self._transaction():
            self._db.executemany(
                "UPDATE images SET sha256 = ?, width = ?, height = ?, segment = ?, row = ?, status = ?, reason = ? "
                "WHERE id = ?",
                [
                    (o.sha256, o.width, o.height, number, o.row, "ok", None, o.id)
                    if o.row is not None
                    else (o.sha256, None, None, None, None, "skipped", o.reason, o.id)
                    for o in outcomes
                ],
            )

    def stored(self) -> list[Segment]:
        """All segments that the catalogue names, by number."""
        query = "SELECT segment, count(*) FROM images WHERE status = 'ok' GROUP BY segment ORDER BY segment"
        found = []
        for number, living in self._db.execute(query):
            record = read_segment_record(self.segments / str(number))
            rows = record["shape"][0]
            found.append(Segment(number, rows, living, sum(record.get("sizes", {}).values()) * living // rows))
        return found

    def mergeable(self) -> list[Segment]:
        """Segments that `compact` writes anew: small ones, if there are several, and those with many dead rows."""
        found = [s for s in self.stored() if s.living_bytes < MERGED_BYTES / 2 or s.rows - s.living > s.rows / 4]
        return found if len(found) > 1 or any(s.rows > s.living for s in found) else []

    def compact(self) -> dict[str, int]:
        """Merge small segments and those with many dead rows, and forget the tombstones.

        Returns
        -------
        dict of int
            ``segments_before``, ``segments``, ``dropped_rows`` (of counts), ``tombstones`` (rows of the catalogue).

        Notes
        -----
        Segments are never changed: the living rows of some are written to a new one, the catalogue names it in place of
        them in one transaction, and then they go. Killed at any moment, the catalogue names the old ones or the new
        one, and the next command that writes removes the rest. Who has an old one memory-mapped keeps it: its files
        are unlinked, not touched.
        """
        self.clean()
        before, old = self.stored(), self.mergeable()
        dropped = 0
        while old:
            group = [old.pop(0)]
            while old and sum(s.living_bytes for s in group) + old[0].living_bytes <= MERGED_BYTES:
                group.append(old.pop(0))
            blocks, ids = [], []
            for segment in group:
                query = "SELECT id, row FROM images WHERE status = 'ok' AND segment = ? ORDER BY row"
                living = self._db.execute(query, (segment.number,)).fetchall()
                blocks.append(read_segment(self.segments / str(segment.number))[[row for _, row in living]])
                ids += [id_ for id_, _ in living]
            number = self.reserve_segments(1)
            write_segment(self.segments / str(number), stacked(blocks))
            with self._transaction():
                self._db.executemany(
                    "UPDATE images SET segment = ?, row = ? WHERE id = ?",
                    [(number, row, i) for row, i in enumerate(ids)],
                )
            dropped += sum(s.rows - s.living for s in group)
            self.clean()
        with self._transaction():
            self._db.execute(_GIVEN)
            # The last id must stay taken: SQLite gives the next image the one after it.
            query = "DELETE FROM images WHERE status = 'removed' AND id < (SELECT max(id) FROM images)"
            tombstones = self._db.execute(query).rowcount
            self._db.execute("DELETE FROM given WHERE path NOT IN (SELECT path FROM images WHERE status != 'removed')")
        return {
            "segments_before": len(before),
            "segments": len(self.stored()),
            "dropped_rows": dropped,
            "tombstones": tombstones,
        }

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def last_id(self) -> int:
        """The last id that an image was given; 0 if there is none."""
        return self._db.execute("SELECT max(id) FROM images").fetchone()[0] or 0

    def n_since(self, last_id: int) -> int:
        """Return the number of living images that came, or changed, after the one with this id."""
        query = "SELECT count(*) FROM images WHERE status = 'ok' AND id > ?"
        return self._db.execute(query, (last_id,)).fetchone()[0]

    def ids(self, paths: Iterable[str]) -> list[int]:
        """Ids of the living images among some paths, in their order."""
        # The index of paths is used only where its condition is repeated.
        query = "SELECT id FROM images WHERE path = ? AND status != 'removed' AND status = 'ok'"
        return [id_ for path in paths for (id_,) in self._db.execute(query, (os.fsencode(path),))]

    def copies(self, ids: Iterable[int]) -> list[tuple[str, str]]:
        """Path of each of these images whose file another living image has too, byte for byte, and that one's."""
        these = set(ids)
        query = (
            "SELECT sha256, id, path FROM images WHERE status = 'ok' AND sha256 IN "
            "(SELECT sha256 FROM images WHERE id IN (SELECT value FROM json_each(?))) ORDER BY path"
        )
        holders = defaultdict(list)
        for digest, id_, path in self._db.execute(query, (json.dumps(sorted(these)),)):
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
        parsed = functools.cache(json.loads)  # of many images few differ in their labels
        with _nothing_is_garbage():
            return [
                Image(id_, _decoded(path), sha256, parsed(labels) if labels else {}, split, segment, row)
                for id_, path, sha256, labels, split, segment, row in self._db.execute(query, splits)
            ]

    def sizes(self) -> list[tuple[int, int, int]]:
        """Id, width and height in pixels of the living images; those of vectors made elsewhere have none."""
        query = "SELECT id, width, height FROM images WHERE status = 'ok' AND width IS NOT NULL"
        return self._db.execute(query).fetchall()

    def training_paths(self) -> list[str]:
        """Paths that visterms may be learned from: the training images, or all where none has a split."""
        query = "SELECT path FROM images WHERE status IN ('ok', 'pending') {} ORDER BY path"
        rows = self._db.execute(query.format("AND split = 'train'")).fetchall()
        if not rows and not self._db.execute("SELECT 1 FROM images WHERE split IS NOT NULL LIMIT 1").fetchone():
            rows = self._db.execute(query.format("")).fetchall()
        return [os.fsdecode(path) for (path,) in rows]

    def labels(self) -> dict[str, dict[str, float]]:
        """Labels and their weights of every labelled image, read or not yet, by its path."""
        rows = self._db.execute("SELECT path, labels FROM images WHERE status != 'removed' AND labels IS NOT NULL")
        return {os.fsdecode(path): json.loads(labels) for path, labels in rows}

    def skipped(self) -> list[tuple[str, str]]:
        """Path and reason of every file that was passed over."""
        return [
            (os.fsdecode(path), reason)
            for path, reason in self._db.execute(
                "SELECT path, reason FROM images WHERE status = 'skipped' ORDER BY path"
            )
        ]

    def counts_by(self, column: str) -> Counter:
        """Return the number of living rows by a column: ``status``, ``split`` or ``labels``."""
        assert column in ("status", "split", "labels")
        where = "status != 'removed'" if column == "status" else "status = 'ok'"
        return Counter(
            dict(self._db.execute(f"SELECT {column}, count(*) FROM images WHERE {where} GROUP BY {column}").fetchall())
        )

    def counts(self, images: Sequence[Image]) -> Any:
        """Read what is stored of some images: their visterm counts, or their vectors.

        Parameters
        ----------
        images : sequence of Image

        Returns
        -------
        csr_matrix of int32, (n_images, n_visterms)
            Rows in the order given. Vectors are float32, dense or CSR.

        Raises
        ------
        UserError
            No images, or a damaged segment.
        """
        import numpy as np

        by_segment: dict[int, list[int]] = defaultdict(list)
        for place, image in enumerate(images):
            by_segment[image.segment].append(place)
        blocks, order, dense = [], [], None
        for number, places in by_segment.items():
            part = read_segment(self.segments / str(number))[[images[p].row for p in places]]
            if isinstance(part, np.ndarray):  # put in its place at once: dense vectors may be most of the memory
                dense = np.empty((len(images), part.shape[1]), np.float32) if dense is None else dense
                dense[places] = part
            else:
                blocks.append(part)
            order += places
        if dense is not None:
            return dense
        if not blocks:
            raise UserError(f"{self.folder}: no images to read")
        back = np.empty(len(order), dtype=np.intp)
        back[order] = np.arange(len(order))
        return stacked(blocks)[back]


@contextlib.contextmanager
def _nothing_is_garbage() -> Iterator[None]:
    """Keep Python from looking for garbage among rows of a million images, again and again as they come."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, or ROLLBACK when anything is raised."""

    def __init__(self, db: sqlite3.Connection):
        self._db = db

    def __enter__(self):
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind, value, traceback):
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _decoded(path: bytes) -> str:
    """What os.fsdecode gives, in half the time."""
    return str(path, _ENCODING, _ERRORS)


def _folder_below(root: Path, folder: Path) -> str:
    """How paths below root begin that lie in a folder; what no path begins with if it lies elsewhere."""
    inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    return "\0" if inside == os.curdir or inside.split(os.sep)[0] == os.pardir else os.path.join(inside, "")


def _bounds(folder: bytes) -> tuple[bytes, bytes]:
    """What all paths below a folder lie between."""
    first = os.path.join(folder, b"")
    return first, first[:-1] + b"0"  # the byte after the separator


def _relative(path: str, folder: str) -> str | None:
    """Path of something in a folder relative to it, "" for itself; None if it lies elsewhere."""
    if path == folder:
        return ""
    prefix = os.path.join(folder, "")
    return path[len(prefix) :] if path.startswith(prefix) else None
