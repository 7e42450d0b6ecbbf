"""The collection: the catalogue of a run's images, and their visterm counts, on disk.

``catalogue.sqlite`` has a row an image; ``segments/<n>/`` hold the counts and never change once they are written. A
segment counts only after the catalogue names it, in one transaction; a folder that the catalogue does not name was left
by a killed run and is removed by the next one. A changed or removed image leaves its old row behind as a tombstone.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import os
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .config import CollectionConfig, Config, SplitConfig, UserError

if TYPE_CHECKING:
    from scipy import sparse

FORMAT = "1"
SPLIT_FOLDERS = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
WAYS_TO_LABEL = (
    "sort the images into one folder a class, or give a table: --set collection.labels=labels.csv (columns path,label) "
    "or --set collection.clicks=clicks.csv (columns query,path,count)"
)

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL);
CREATE TABLE images (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL,         -- relative to the root, as the file system's bytes
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    sha256 TEXT,
    width INTEGER,
    height INTEGER,
    labels TEXT,                -- JSON {label: weight}; null: unlabelled
    split TEXT,                 -- train, test, validation; null: searchable, but neither trained on nor tested
    segment INTEGER,
    row INTEGER,
    status TEXT NOT NULL,       -- pending, ok, skipped, removed
    reason TEXT                 -- why it was skipped
);
CREATE UNIQUE INDEX live ON images (path) WHERE status != 'removed';
CREATE INDEX by_status ON images (status);
"""


class Image(NamedTuple):
    """One live image of the collection."""

    id: int
    path: str  # relative to the root, surrogateescape
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


@dataclass
class Changes:
    """What a scan of the root found, in numbers of images."""

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
        There is none, it was made by another version, or its catalogue is damaged.
    """

    def __init__(self, folder: Path, *, create: bool = False):
        self.folder = folder
        file = folder / "catalogue.sqlite"
        if not file.exists() and not create:
            raise UserError(f"{folder}: no collection here yet; run 'visterm features IMAGES' first")
        self.segments.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(file, isolation_level=None)
        try:
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables:
                with self._transaction():
                    for statement in _SCHEMA.split(";\n"):
                        self._db.execute(statement)
                    self["format"] = FORMAT
            found = self["format"]
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{file}: damaged catalogue ({error}); remove {folder} and run 'visterm features' again"
            ) from None
        if found != FORMAT:
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
        """
        from visterm.features import find_images

        refused: dict[str, str] = {}
        try:
            found = find_images(root, on_skip=lambda path, reason: refused.__setitem__(os.fspath(path), reason))
        except OSError as error:
            raise UserError(str(error)) from None
        prefix = len(os.path.join(root, ""))
        own = _folder_below(root, self.folder.parent.parent)  # images in runs/ are visterm's own, such as the demo's
        paths = [path for file in found if not (path := os.fspath(file)[prefix:]).startswith(own)]
        names = {path: reason for file, reason in refused.items() if not (path := file[prefix:]).startswith(own)}
        layout = _Layout(paths)
        changes = Changes()
        everything = {*paths, *names}
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
        labels, warning = _read_labels(config.collection, layout, paths, everything)
        changes.warnings = tuple(filter(None, (warning, _mistyped_split(paths, layout))))

        with self._transaction():
            last = self._db.execute("SELECT max(id) FROM images").fetchone()[0] or 0
            self._enter(root, paths, names, changes, replace)
            changes.relabelled = sum(id_ <= last for id_ in self._label(labels))
            self._assign_splits(config, layout)
            self._reconsider(config.collection.max_pixels)
            self["root"] = os.fsencode(root)
        return changes

    def _enter(self, root: Path, paths: list[str], names: dict[str, str], changes: Changes, replace: bool) -> None:
        known = {
            os.fsdecode(path): (id_, size, mtime, sha256, status, reason)
            for id_, path, size, mtime, sha256, status, reason in self._db.execute(
                "SELECT id, path, size, mtime_ns, sha256, status, reason FROM images WHERE status != 'removed'"
            )
        }
        new: list[tuple] = []
        gone = set(known)
        for path in paths:
            gone.discard(path)
            try:
                stat = os.stat(os.path.join(root, path))
                size, mtime = stat.st_size, stat.st_mtime_ns
            except OSError:
                size, mtime = 0, 0  # vanished, or a link into nowhere: the reader will say so
            old = known.get(path)
            if old is None:
                changes.added += 1
                new.append((os.fsencode(path), size, mtime, "pending", None))
            elif (size, mtime) == old[1:3]:
                changes.unchanged += 1
            elif old[3] is not None and old[3] == file_sha256(os.path.join(root, path)):
                changes.unchanged += 1
                self._db.execute("UPDATE images SET size = ?, mtime_ns = ? WHERE id = ?", (size, mtime, old[0]))
            else:
                changes.changed += 1
                self._bury([old[0]])
                new.append((os.fsencode(path), size, mtime, "pending", None))
        for path, reason in names.items():
            gone.discard(path)
            old = known.get(path)
            if old is None or old[4:] != ("skipped", reason):
                if old is not None:
                    self._bury([old[0]])
                new.append((os.fsencode(path), 0, 0, "skipped", reason))
        if self.root is not None and self.root != root and not replace and changes.unchanged < len(known) / 2:
            raise UserError(
                f"{self.folder.parent.name} is the run of the images in {self.root}, and {root} holds others; "
                f"give another --run, or --force to replace it"
            )
        changes.removed = sum(known[path][4] != "skipped" for path in gone)
        self._bury([known[path][0] for path in gone])
        self._db.executemany("INSERT INTO images (path, size, mtime_ns, status, reason) VALUES (?, ?, ?, ?, ?)", new)

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

    def _label(self, labels: dict[str, dict[str, float]]) -> list[int]:
        """Enter the labels; return the rows that had others."""
        stale = []
        for id_, path, old in self._db.execute("SELECT id, path, labels FROM images WHERE status != 'removed'"):
            found = labels.get(os.fsdecode(path))
            text = json.dumps(found, sort_keys=True) if found else None
            if text != old:
                stale.append((text, id_))
        self._db.executemany("UPDATE images SET labels = ? WHERE id = ?", stale)
        return [id_ for _, id_ in stale]

    def _assign_splits(self, config: Config, layout: _Layout) -> None:
        key = split_key(config) + layout.kind
        stale = "" if self["split"] != key else " AND labels IS NULL"
        self._db.execute(f"UPDATE images SET split = NULL WHERE status != 'removed' AND split IS NOT NULL{stale}")
        self["split"] = key
        rows = [
            (id_, os.fsdecode(path), json.loads(labels), split)
            for id_, path, labels, split in self._db.execute(
                # Unreadable ones too: they keep their places, or others would move up when they are found out.
                "SELECT id, path, labels, split FROM images WHERE status != 'removed' AND labels IS NOT NULL"
            )
        ]
        if layout.kind == "split":
            chosen = {id_: layout.split(path) for id_, path, _, _ in rows}
        else:
            pooled = config.collection.clicks is not None
            chosen = _draw_splits(
                [(id_, path, "" if pooled else min(labels), split) for id_, path, labels, split in rows], config.split
            )
        self._db.executemany("UPDATE images SET split = ? WHERE id = ?", [(s, i) for i, s in chosen.items()])

    # --- extraction -----------------------------------------------------------------------------------------------

    def clean(self) -> None:
        """Remove folders that a killed run left behind, and segments without a living row; miss those that are gone.

        A segment is gone if one of its files is, or has another size than it was written with.
        """
        alive = {str(n) for (n,) in self._db.execute("SELECT DISTINCT segment FROM images WHERE status = 'ok'")}
        present = {folder.name for folder in self.segments.iterdir()}
        for name in present - alive:
            shutil.rmtree(self.segments / name, ignore_errors=True)  # a worker of that run may still be writing
        for name in alive - {name for name in alive & present if _is_whole(self.segments / name)}:
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
        return [
            (id_, os.fsdecode(path))
            for id_, path in self._db.execute("SELECT id, path FROM images WHERE status = 'pending' ORDER BY path")
        ]

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

    # --- reading --------------------------------------------------------------------------------------------------

    def images(self, *splits: str, labelled: bool = False) -> list[Image]:
        """Return the living images, in the order of their paths; of the given splits if any are named."""
        where = "status = 'ok'"
        if splits:
            where += f" AND split IN ({','.join('?' * len(splits))})"
        if labelled:
            where += " AND labels IS NOT NULL"
        query = f"SELECT id, path, sha256, labels, split, segment, row FROM images WHERE {where} ORDER BY path"
        return [
            Image(id_, os.fsdecode(path), sha256, json.loads(labels) if labels else {}, split, segment, row)
            for id_, path, sha256, labels, split, segment, row in self._db.execute(query, splits)
        ]

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

    def counts(self, images: Sequence[Image]) -> sparse.csr_matrix:
        """Read the visterm counts of some images.

        Parameters
        ----------
        images : sequence of Image

        Returns
        -------
        csr_matrix of int32, (n_images, n_visterms)
            Rows in the order given.

        Raises
        ------
        UserError
            No images, or a damaged segment.
        """
        import numpy as np
        from scipy import sparse

        by_segment: dict[int, list[int]] = defaultdict(list)
        for place, image in enumerate(images):
            by_segment[image.segment].append(place)
        blocks, order = [], []
        for number, places in by_segment.items():
            blocks.append(read_segment(self.segments / str(number))[[images[p].row for p in places]])
            order += places
        if not blocks:
            raise UserError(f"{self.folder}: no images to read")
        back = np.empty(len(order), dtype=np.intp)
        back[order] = np.arange(len(order))
        return sparse.vstack(blocks, format="csr")[back]


class _Transaction:
    """BEGIN IMMEDIATE ... COMMIT, or ROLLBACK when anything is raised."""

    def __init__(self, db: sqlite3.Connection):
        self._db = db

    def __enter__(self):
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind, value, traceback):
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


class _Layout:
    """What the folders say: root/{train,test,validation}/<label>/..., root/<label>/..., or nothing."""

    def __init__(self, paths: Sequence[str]):
        parts = [path.split(os.sep) for path in paths]
        folders = {p[0].lower() for p in parts if len(p) > 1}
        if folders <= set(SPLIT_FOLDERS) and "train" in folders:  # images beside these folders have no class
            self.kind = "split"
        else:
            self.kind = "classes" if folders else "flat"

    def label(self, path: str) -> str | None:
        """The class that the folder of an image names."""
        depth = {"split": 1, "classes": 0}.get(self.kind)
        parts = path.split(os.sep)
        return parts[depth] if depth is not None and len(parts) > depth + 1 else None

    def split(self, path: str) -> str | None:
        """The split that the top folder of an image names."""
        return SPLIT_FOLDERS.get(path.split(os.sep)[0].lower())


def _read_labels(
    config: CollectionConfig, layout: _Layout, paths: Sequence[str], everything: set[str]
) -> tuple[dict[str, dict[str, float]], str | None]:
    """Labels of each path, and a warning if a table names what is no image."""
    if config.clicks is not None:
        return _read_table(Path(config.clicks), ("query", "path", "count"), set(paths), everything)
    if config.labels == "none":
        return {}, None
    if config.labels == "auto":
        return {path: {label: 1.0} for path in paths if (label := layout.label(path)) is not None}, None
    return _read_table(Path(config.labels), ("path", "label"), set(paths), everything)


def _read_table(
    file: Path, columns: tuple[str, ...], paths: set[str], everything: set[str]
) -> tuple[dict[str, dict[str, float]], str | None]:
    """Read labels.csv or clicks.csv: {path: {label or query: weight}}."""
    labels: dict[str, dict[str, float]] = defaultdict(dict)
    unknown: list[str] = []
    try:
        with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as stream:
            reader = csv.DictReader(stream)
            missing = [c for c in columns if c not in (reader.fieldnames or [])]
            if missing:
                raise UserError(f"{file}: no column {missing[0]}; the first line must be {','.join(columns)}")
            for row in reader:
                if any(not row[c] for c in columns):
                    raise UserError(f"{file}, line {reader.line_num}: an empty {[c for c in columns if not row[c]][0]}")
                path = os.path.normpath(row["path"])
                name = row["query"] if "query" in columns else row["label"]
                try:
                    weight = float(row["count"]) if "count" in columns else 1.0
                except ValueError:
                    weight = -1.0
                if not 0 < weight < float("inf"):
                    raise UserError(f"{file}, line {reader.line_num}: count {row['count']!r} is not a positive number")
                if path in paths:
                    labels[path][name] = labels[path].get(name, 0.0) + weight if "count" in columns else weight
                elif path not in everything:
                    unknown.append(row["path"])
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except csv.Error as error:
        raise UserError(f"{file}: not a CSV table ({error})") from None
    if not labels:
        raise UserError(
            f"{file}: none of its {len(unknown)} paths is an image of the collection"
            + (f", not even {unknown[0]}" if unknown else "")
            + "; paths are relative to its root"
        )
    if not unknown:
        return dict(labels), None
    rows = "1 row names" if len(unknown) == 1 else f"{len(unknown):,} rows name"
    return dict(labels), f"{file}: {rows} no image of the collection, such as {unknown[0]}; passed over"


def _mistyped_split(paths: Sequence[str], layout: _Layout) -> str | None:
    """Warn if folders look like root/{train,test}/<class>/..., but are taken for classes, as one has another name."""
    parts = [path.split(os.sep) for path in paths]
    tops = {p[0] for p in parts if len(p) > 2}
    splits = sorted(top for top in tops if top.lower() in SPLIT_FOLDERS)
    if layout.kind != "classes" or not splits:
        return None
    others = sorted({p[0] for p in parts if len(p) > 1} - set(splits))
    if not others:
        return f"there is no folder train beside {', '.join(splits)}, so these folders are taken for classes"
    near = difflib.get_close_matches(others[0].lower(), SPLIT_FOLDERS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return (
        f"folders {', '.join(splits)} look like a split, but {others[0]} beside them is none{hint}: all of them are "
        f"taken for classes; a split has only the folders train, test and validation"
    )


def _folder_below(root: Path, folder: Path) -> str:
    """How paths below root begin that lie in a folder; what no path begins with if it lies elsewhere."""
    inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    return "\0" if inside == os.curdir or inside.split(os.sep)[0] == os.pardir else os.path.join(inside, "")


def _draw_splits(rows: list[tuple[int, str, str, str | None]], config: SplitConfig) -> dict[int, str | None]:
    """Assign train and test to rows of (id, path, class, present split) that have no split.

    The order within a class is that of a hash of seed and path, so it depends on nothing else, and rows that have a
    split keep it.
    """
    members = defaultdict(list)
    for row in rows:
        members[row[2]].append(row)
    chosen: dict[int, str | None] = {}
    for label in members:
        target = {name: _share(getattr(config, name), len(members[label])) for name in ("train", "test")}
        target["test"] = min(target["test"], len(members[label]) - target["train"])
        for split in ("train", "test"):
            target[split] -= sum(row[3] == split for row in members[label])
        free = [row for row in members[label] if row[3] is None]
        free.sort(key=lambda row: hashlib.sha256(f"{config.seed}:".encode() + os.fsencode(row[1])).digest())
        for id_, *_ in free:
            for split in ("train", "test"):
                if target[split] > 0:
                    target[split] -= 1
                    chosen[id_] = split
                    break
    return chosen


def split_key(config: Config) -> str:
    """What decides which images may be learned from, besides the images themselves."""
    labels = config.collection.labels if config.collection.labels in ("auto", "none") else "table"
    kind = "clicks" if config.collection.clicks is not None else labels
    return json.dumps([config.split.model_dump(), config.collection.classes, kind])


def _share(wanted: int | float, n: int) -> int:
    return min(wanted, n) if isinstance(wanted, int) else min(n, int(wanted * n + 0.5))


def file_sha256(path: str | Path) -> str | None:
    """SHA-256 of a file's bytes in hexadecimal, or None where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def write_segment(folder: Path, counts: sparse.csr_matrix) -> None:
    """Write the counts of one segment, int32 CSR (n, n_visterms): to a temporary folder, then renamed."""
    import numpy as np

    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    arrays = {"indptr": counts.indptr, "indices": counts.indices, "counts": counts.data}
    for name, array in arrays.items():
        np.save(temporary / f"{name}.npy", array, allow_pickle=False)
    sizes = {name: (temporary / f"{name}.npy").stat().st_size for name in arrays}
    record = {"format": FORMAT, "stage": "segment", "shape": list(counts.shape), "sizes": sizes}
    (temporary / "record.json").write_text(json.dumps(record))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def _is_whole(folder: Path) -> bool:
    """Whether the files of a segment have the sizes that they were written with."""
    try:
        sizes = json.loads((folder / "record.json").read_text()).get("sizes", {})
        return all((folder / f"{name}.npy").stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def read_segment(folder: Path) -> sparse.csr_matrix:
    """Read a segment; its arrays are memory-mapped.

    Raises
    ------
    UserError
        A file is missing or damaged.
    """
    import numpy as np
    from scipy import sparse

    try:
        shape = json.loads((folder / "record.json").read_text())["shape"]
        data, indices, indptr = (
            np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("counts", "indices", "indptr")
        )
        return sparse.csr_matrix((data, indices, indptr), shape=tuple(shape), copy=False)
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder}: damaged segment ({error}); run 'visterm features' to extract its images again"
        ) from None
