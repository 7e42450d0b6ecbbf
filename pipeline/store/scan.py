"""Comparing the root, or a table of vectors, with the catalogue."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.console import count, one_line
from visterm.pipeline.errors import UserError

from .database import Database, Known, gc_paused
from .fields import enter_fields
from .hierarchy import enter_hierarchy
from .label_edits import catch_up
from .labels import ReadLabels, enter_labels, read_labels, table_files
from .manifests import has_value, read_columns
from .notes import Notes
from .paths import bounds, decoded, excluded_by, folder_below
from .pictures import Read, Touched, enter_same_pictures
from .splits import Layout, assign_splits, masks_among, mistyped_split
from .tables import readable

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config


@dataclass
class Changes:
    """Numbers of images that a scan of the root, or adding by hand, found changed."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    retagged: int = 0  # of the unchanged ones: other bytes, the same pixels
    relabelled: int = 0  # of the images known before
    left_out: int = 0  # of other classes than the configuration takes
    excluded: int = 0  # by the configuration's patterns
    system: tuple[str, ...] = ()  # folders of previews or deleted files
    hidden: tuple[str, ...] = ()  # folders, and files with the ending of an image
    raw: int = 0  # raw files beside their photos
    n_others: int = 0  # files that are not meant as images
    other: str = ""  # one of them
    tables: str = ""  # files and columns of precomputed vectors
    warnings: tuple[str, ...] = ()  # possible mistakes

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def not_used(self) -> list[str]:
        """Files and folders that are no images of the run, a text per kind."""
        kinds = (
            (self.left_out, "image", "of other classes skipped", ""),
            (self.excluded, "file", "skipped by collection.exclude", ""),
            (self.raw, "raw file", "beside their photos skipped", ""),
            (len(self.system), "folder", "of previews or deleted files skipped", "".join(self.system[:1])),
            (len(self.hidden), "hidden name", "skipped", "".join(self.hidden[:1])),
            (self.n_others, "other file", "ignored", self.other),
        )
        return [
            f"{count(n, noun)} {what}" + (f", such as {one_line(example)}" if example else "")
            for n, noun, what, example in kinds
            if n
        ]


_AWAY = "folder cannot be read"  # how the reason begins that `list_images` gives


class ScannedCatalogue(Database):
    """The catalogue of a collection, with what compares it with the root, or with a table of vectors."""

    @gc_paused()
    def scan(self, root: Path, config: Config, *, replace: bool = False, read_pixels: Read | None = None) -> Changes:
        """Compare the root with the catalogue and enter the differences, in one transaction.

        An image whose size and modification time equal those of the catalogue counts as unchanged; otherwise its
        SHA-256 decides, or else its pixels, as ``read_pixels`` returns them. Images keep their split, so that a new
        image never moves an old one from test to train, until the ``split`` section of the configuration changes.
        Excluded images stay excluded; images from outside the root stay until their files are gone.

        A root of other images raises UserError unless ``replace`` is true, as does a table of labels that does not fit.
        """
        from visterm.features.images import BESIDE_ITS_PHOTO, HIDDEN, NO_IMAGE_NAME, SYSTEM_FOLDER, list_images

        refused: dict[str, str] = {}
        try:
            files = list_images(root, on_skip=refused.__setitem__)
        except OSError as error:
            raise UserError(str(error)) from None
        prefix = len(os.path.join(root, ""))
        of_runs = folder_below(root, self.folder.parent.parent)  # images in runs/ belong to visterm, such as the demo's
        paths = [path for file in files if not (path := file[prefix:]).startswith(of_runs)]
        del files
        names = {path: reason for file, reason in refused.items() if not (path := file[prefix:]).startswith(of_runs)}
        matched: dict[str, str] = {}  # path to the pattern that excludes it
        if config.collection.exclude:
            pattern_of = excluded_by(config.collection.exclude)
            matched = {path: pattern for path in (*paths, *names) if (pattern := pattern_of(path)) is not None}
            paths = [path for path in paths if path not in matched]
            names = {path: reason for path, reason in names.items() if path not in matched}
        others = [path for path, reason in names.items() if reason.startswith(NO_IMAGE_NAME)]  # such as notes.txt
        layout = Layout.of(paths, config.collection.label_level)
        away = tuple(os.path.join(path, "") for path, reason in names.items() if reason.startswith(_AWAY))
        tables: list[str | Path] = [*table_files(config.collection), *filter(None, [config.collection.triplets])]
        real = [os.path.realpath(table) for table in tables]
        rest = [path for path in others if os.path.realpath(root / path) not in real]
        unused = sorted(set(config.collection.exclude) - set(matched.values()))
        changes = Changes(
            excluded=len(matched),
            system=tuple(path for path, reason in names.items() if reason == SYSTEM_FOLDER),
            hidden=tuple(path for path, reason in names.items() if reason == HIDDEN),
            warnings=tuple(f"collection.exclude: nothing matches {pattern!r}" for pattern in unused),
        )
        everything = {*paths, *names, *matched} if tables else set()
        of_photos = [path for path, reason in names.items() if reason == BESIDE_ITS_PHOTO]
        changes.raw = len(of_photos)
        for path in (*others, *changes.system, *changes.hidden, *of_photos):
            del names[path]
        if config.collection.classes is not None:
            classes = set(map(readable, config.collection.classes))
            missing = sorted(classes - {layout.label(path) for path in paths})
            if missing:
                raise UserError(
                    f"collection.classes: {root} has no images in a folder {', '.join(missing[:5])}"
                    + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
                )
            before = len(paths)
            paths = [path for path in paths if layout.label(path) in classes]
            names = {path: reason for path, reason in names.items() if layout.label(path) in classes}
            changes.left_out = before - len(paths)
        with self.transaction():
            catch_up(self)
            last = self.last_id
            _rename_enclosed(self, root)
            known = self.known()
            outside = [path for path in known if path.startswith(os.sep) and os.path.lexists(path)]
            kept = [path for path, old in known.items() if path.startswith(away) and old.status != "excluded"]
            if config.collection.classes is not None:
                kept = [path for path in kept if layout.label(path) in classes]
            changes.unchanged += len(kept)
            if kept:
                first = f"{count(len(kept), 'image')} in a folder that cannot be read"
                changes.warnings += (f"{first} stay as they are, such as {one_line(kept[0])}",)
            read = read_labels(config.collection, layout, root, [*paths, *outside, *kept], everything, self.folder)
            rest = [path for path in rest if path not in read.sidecars]
            changes.n_others, changes.other = len(rest), rest[0] if rest else ""
            labels = (lambda path: None if path in names else read.labels(path)) if names else read.labels
            self._note(root, read, layout, paths, rest, changes)
            compare_files(self, root, paths, known, changes, read_pixels=read_pixels)
            if self.root is not None and self.root != root and not replace:
                n_inside = sum(old.status != "excluded" and not path.startswith(os.sep) for path, old in known.items())
                if changes.unchanged < n_inside / 2:
                    raise UserError(
                        f"{self.folder.parent.name} is the run of the images in {self.root}, and {root} holds others; "
                        f"give another --run, or --force to replace it"
                    )
            compare_files(self, root, outside, known, changes, read_pixels=read_pixels)
            _enter_skipped(self, names, known)
            if changes.unchanged < len(known):  # else all of them exist
                existing = {*paths, *outside, *kept, *names}
                gone = [old for path, old in known.items() if path not in existing and old.status != "excluded"]
                changes.removed = sum(old.status != "skipped" for old in gone)
                self.bury([old.id for old in gone])
            changes.relabelled = sum(id_ <= last for id_ in enter_labels(self, labels, _living(self, known, last)))
            enter_hierarchy(self, read.parents)
            enter_fields(self, read.fields, ((id_, path) for id_, path, _ in _living(self, known, last)))
            assign_splits(self, config, layout, by_table=read.splits)
            _reconsider(self, config.collection.max_pixels)
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
        fields: Mapping[str, Sequence[Any]] = {},
        replace: bool = False,
    ) -> Changes:
        """Compare a table of vectors with the catalogue and enter the differences, in one transaction, as `scan` does.

        ``digests`` are the SHA-256 of the vectors, to recognize changed ones. ``labels`` are those of the table, used
        unless the configuration names others, and ``fields`` its further columns.
        """
        changes, layout = Changes(), Layout.of(ids, config.collection.label_level)
        notes = Notes(Path(config.collection.vectors.file or ""), skip_bad_rows=config.collection.skip_bad_rows)
        with self.transaction():
            catch_up(self)
            last, known = self.last_id, self.known()
            entered = dict(self.execute("SELECT id, sha256 FROM images WHERE status != 'removed'"))
            if self.root is not None and not replace and len(known.keys() & set(ids)) < len(known) / 2:
                raise UserError(
                    f"{self.folder.parent.name} is a run of other images, as most of their ids are not in the table; "
                    "give another --run, or --force to replace it"
                )
            if labels is not None and config.collection.labels == "auto" and config.collection.clicks is None:
                by_path = {
                    path: {plain: 1.0 for name in names if has_value(name) and (plain := readable(name).strip())}
                    for path, names in zip(ids, labels, strict=True)
                }
                if n_missing := sum(not has_value(name) for names in labels for name in names):
                    notes.add("label", "without a value", "nan", n=n_missing)
                notes.doubtful({label for own in by_path.values() for label in own})
                read = ReadLabels(by_path.get, {})
            else:
                read = read_labels(config.collection, layout, root, ids, set(ids), self.folder)
            if fields:
                own = read_columns(fields, ids, notes)
                own |= {path: own.get(path, {}) | values for path, values in read.fields.items()}
                read = read._replace(fields=own)
            read = read._replace(warnings=(*read.warnings, *notes.lines()))
            self._note(root, read, layout, ids, (), changes)
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
                    self.bury([old.id])
                new.append((os.fsencode(path), digest))
            gone = [old.id for old in known.values() if old.status != "excluded"]
            changes.removed = len(gone)
            self.bury(gone)
            self.executemany(
                "INSERT INTO images (path, size, mtime_ns, sha256, status) VALUES (?, 0, 0, ?, 'pending')", new
            )
            changes.relabelled = sum(id_ <= last for id_ in enter_labels(self, read.labels, _living(self, {}, 0)))
            enter_hierarchy(self, read.parents)
            enter_fields(self, read.fields, ((id_, path) for id_, path, _ in _living(self, {}, 0)))
            assign_splits(self, config, layout, by_table=read.splits)
            self["root"] = os.fsencode(root)
        return changes

    def _note(
        self,
        root: Path,
        read: ReadLabels,
        layout: Layout,
        paths: Sequence[str],
        others: Sequence[str],
        changes: Changes,
    ) -> None:
        """Keep where the labels come from, and what of folders and tables is not used, for `info` and reports."""
        lines = [*read.warnings]
        if read.source == "the folders":
            folders = {path.rpartition(os.sep)[0] for path in paths}
            misread = mistyped_split(folders, layout) or layout.repeated(folders)
            lines += filter(None, (misread, masks_among(paths, folders)))
            notes = Notes(root, skip_bad_rows=True)
            notes.doubtful({label for folder in folders if (label := layout.label(folder + os.sep))})
            lines += notes.lines()
            if layout.ignored:
                lines.append(
                    f"folders {', '.join(layout.ignored[:3])}{', ...' * (len(layout.ignored) > 3)} name no label: "
                    "dates, cameras, shards, or a folder that holds all others; --set collection.label_level=1 takes "
                    "the top folders, -1 the deepest"
                )
            tables = [path for path in others if _LIKELY_TABLE.fullmatch(os.path.basename(path))]
            if tables:
                setting = shlex.quote(f"collection.labels={_pattern(root, tables)}")
                lines.append(f"{tables[0]} is not read; --set {setting} takes its labels")
        changes.warnings += tuple(lines)
        self["label_source"] = json.dumps([read.source, [*lines, *changes.not_used()]])


_LIKELY_TABLE = re.compile(r"_?(annotations|classes|labels|metadata|instances|train).*\.(csv|tsv|jsonl?|parquet)", re.I)


def _pattern(root: Path, tables: Sequence[str]) -> str:
    """The path of one table, or a pattern of those with its name in several folders."""
    folder, name = os.path.split(tables[0])
    several = sum(os.path.basename(table) == name for table in tables) > 1
    return os.path.join(root, "*" if several else folder, name)


def _rename_enclosed(db: Database, root: Path) -> None:
    """Rename images from outside that lie below a new root to the paths that its scan finds."""
    first, last = bounds(os.fsencode(root))
    query = "SELECT id, path FROM images WHERE status != 'removed' AND path >= ? AND path < ?"
    for id_, path in db.execute(query, (first, last)).fetchall():
        inside = path[len(first) :]
        db.execute("UPDATE OR REPLACE given SET path = ? WHERE path = ?", (inside, path))
        if not db.execute("UPDATE OR IGNORE images SET path = ? WHERE id = ?", (inside, id_)).rowcount:
            db.bury([id_])  # the root has a row under that name already


def _living(db: Database, known: dict[str, Known], last_id: int) -> Iterator[tuple[int, str, str | None]]:
    """Id, path and labels of the known images that still exist, and of those added since."""
    gone = {id_ for (id_,) in db.execute("SELECT id FROM images WHERE status = 'removed'")}
    for path, old in known.items():
        if old.status != "excluded" and old.id not in gone:
            yield old.id, path, old.labels
    query = "SELECT id, path, labels FROM images WHERE status NOT IN ('removed', 'excluded') AND id > ?"
    for id_, path, labels in db.execute(query, (last_id,)):
        yield id_, decoded(path), labels


def _enter_skipped(db: Database, reasons: dict[str, str], known: dict[str, Known]) -> None:
    """Enter files that cannot be images by their names, with the reasons."""
    new = []
    for path, reason in reasons.items():
        old = known.get(path)
        if old is None or (old.status != "excluded" and (old.status, old.reason) != ("skipped", reason)):
            if old is not None:
                db.bury([old.id])
            new.append((os.fsencode(path), 0, 0, "skipped", reason))
    db.insert(new)


def compare_files(
    db: Database,
    root: Path,
    paths: Iterable[str],
    known: dict[str, Known],
    changes: Changes,
    *,
    by_hand: bool = False,
    read_pixels: Read | None = None,
) -> None:
    """Enter new and changed image files; excluded ones only if they are added by hand."""
    new: list[tuple | None] = []
    touched: list[Touched] = []
    again: list[tuple[int]] = []  # excluded ones
    unchanged = 0
    folder = None
    with contextlib.suppress(OSError):  # the root may be missing while images from outside are added
        flags = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)  # not on Windows
        folder = os.open(root, flags)  # paths relative to it are quicker to look up
    try:
        for path in paths:
            old = known.get(path)
            if old is not None and old.status == "excluded" and not by_hand:
                continue
            try:
                stat = os.stat(os.path.join(root, path) if folder is None else path, dir_fd=folder)
                size, mtime = stat.st_size, stat.st_mtime_ns
            except OSError as error:
                if old is not None and not isinstance(error, FileNotFoundError):
                    unchanged += 1  # out of reach for now
                    continue
                size, mtime = 0, 0  # vanished, or a dangling link: reading it will tell
            if old is None:
                changes.added += 1
                new.append((os.fsencode(path), size, mtime, "pending", None))
                continue
            if (size, mtime) != (old.size, old.mtime_ns):
                touched.append(Touched(len(new), path, old, size, mtime))
                new.append((os.fsencode(path), size, mtime, "pending", None))  # unless it shows the same picture
            elif old.status == "excluded":
                again.append((old.id,))
            else:
                unchanged += 1
    finally:
        if folder is not None:
            os.close(folder)
    verdicts = enter_same_pictures(db, root, touched, read_pixels) if touched else []
    changes.retagged += verdicts.count("retagged")
    for image, verdict in zip(touched, verdicts, strict=True):
        old = image.old
        if verdict == "changed":
            changes.changed += 1
            db.bury([old.id])
            continue
        new[image.place] = None
        db.execute("UPDATE images SET size = ?, mtime_ns = ? WHERE id = ?", (image.size, image.mtime_ns, old.id))
        if old.status == "excluded":
            again.append((old.id,))
        else:
            unchanged += 1
    db.executemany("UPDATE images SET status = 'pending' WHERE id = ?", again)
    changes.added += len(again)
    changes.unchanged += unchanged
    db.insert(row for row in new if row is not None)


def _reconsider(db: Database, max_pixels: int) -> None:
    """Mark as pending what may come out differently: files that could not be opened, images near a changed limit."""
    again = "UPDATE images SET status = 'pending', segment = NULL, row = NULL, reason = NULL WHERE "
    db.execute(f"{again} status = 'skipped' AND sha256 = ''")
    if db["max_pixels"] != max_pixels:
        db.execute(f"{again} status = 'skipped' AND sha256 IS NOT NULL")
        db.execute(f"{again} status = 'ok' AND width * height > ?", (max_pixels,))
        db["max_pixels"] = max_pixels
