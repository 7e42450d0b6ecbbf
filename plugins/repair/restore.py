"""A damaged catalogue is replaced by its last good copy, or else by what the segments note.

Each command that changes the catalogue leaves a copy of it: see `Database.close`. Where that is damaged, too, a segment
notes the id, the path and the SHA-256 of the image of each row: images keep their ids, but labels that were given by
hand and removals made by hand are lost.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
from pathlib import Path
from typing import Any

from visterm.pipeline.console import count
from visterm.pipeline.errors import UserError, is_disk_full
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.database import CATALOGUE, CHECKSUM, COPY, change_counter
from visterm.pipeline.store.files import discard, sync
from visterm.pipeline.store.paths import absolute
from visterm.pipeline.store.pictures import make_tables
from visterm.pipeline.store.run import Run
from visterm.pipeline.store.segments import is_whole, read_images, read_segment_record

_BY_HAND = "labels given and removals made by hand"


def damage_of(collection: Path) -> str | None:
    """Look through a catalogue; return what is wrong with it, in one line, or None."""
    try:
        with Collection(collection) as opened:
            return opened.damage()
    except UserError as error:
        if not any(os.path.lexists(collection / name) for name in (CATALOGUE, COPY, "segments")):
            raise
        return str(error)


def restore_catalogue(run: Run, root: Path | None) -> tuple[list[str], list[str]]:
    """Replace a damaged catalogue; return what is kept and what is lost, in words.

    The damaged file is kept as ``catalogue.sqlite.damaged``. `Collection.scan` must follow: it compares the catalogue
    with the images. ``root`` is where these are, in case that nothing else tells.
    """
    file, copy = run.collection / CATALOGUE, run.collection / COPY
    folder = run.collection / "restored.tmp"
    discard(folder)
    folder.mkdir()
    if _take_copy(run.collection, folder):
        made = datetime.datetime.fromtimestamp(copy.stat().st_mtime).isoformat(" ", "seconds")
        kept, lost = [f"the catalogue, as its last good copy has it, of {made}"], []
        if (counter := change_counter(file)) is not None and counter != change_counter(copy):
            lost.append(f"{_BY_HAND} since then, if there were any")
    else:
        kept, lost = _from_segments(run, root, folder)
        if os.path.lexists(copy):
            _set_aside(copy)
    sync(folder / CATALOGUE)
    for suffix in ("-journal", "-wal", "-shm"):  # of the damaged file: SQLite would apply them to the new one
        discard(file.with_name(file.name + suffix))
    if os.path.lexists(file):
        _set_aside(file)
    (folder / CATALOGUE).rename(file)
    sync(run.collection)
    discard(folder)
    return kept, lost


def _set_aside(file: Path) -> None:
    kept = file.with_name(f"{file.name}.damaged")
    discard(kept)
    file.rename(kept)


def _take_copy(collection: Path, folder: Path) -> bool:
    """Put the copy of the catalogue into a folder, with its checksum; return whether it is whole."""
    try:
        shutil.copyfile(collection / COPY, folder / CATALOGUE)
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            shutil.copyfile(collection / CHECKSUM, folder / CHECKSUM)
        with Collection(folder) as copied:
            return copied.damage() is None
    except UserError:
        return False
    except OSError as error:
        if is_disk_full(error):
            raise
        return False


def _from_segments(run: Run, root: Path | None, folder: Path) -> tuple[list[str], list[str]]:
    """Make a catalogue of the images that the segments note; those of a damaged segment are to be extracted again."""
    for name in os.listdir(folder):
        discard(folder / name)
    lost = [f"{_BY_HAND}, if there were any"]
    rows: list[tuple[Any, ...]] = []
    pictures: dict[int, str | None] = {}
    origin: dict[str, str] = {}
    segments = run.collection / "segments"
    numbers = sorted(int(name) for name in os.listdir(segments) if name.isdecimal()) if segments.is_dir() else []
    for number in numbers:
        whole = is_whole(segments / str(number))
        if not whole:
            lost.append(f"segment {number} is damaged: its images are extracted again")
        with contextlib.suppress(UserError):
            origin = read_segment_record(segments / str(number)).get("origin", {}) or origin
            for row, (id_, path, *content) in enumerate(read_images(segments / str(number))):
                place = (number, row, "ok") if whole else (None, None, "pending")
                rows.append((id_, os.fsencode(path), *content[:3], *place))
                pictures[id_] = content[3] if len(content) > 3 else None
    rows.sort(key=lambda row: row[0])
    with contextlib.suppress(UserError):
        record = run.record(run.collection) or {}
        origin = {"root": record.get("root", "")} | origin
    directory = origin.get("root", "") if root is None else os.fspath(absolute(root))
    if not directory:
        raise UserError(
            f"{run.collection / CATALOGUE}: nothing tells where the images are; "
            f"run 'visterm repair IMAGES {run.option}'"
        )
    with Collection(folder, create=True) as made, made.transaction():
        made["root"], made["extractor"] = os.fsencode(directory), origin.get("extractor", "")
        made["split"], made["last_segment"] = "", max(numbers, default=0)
        # The last of several rows of an id or path stands: later segments, and larger ids, are newer. No file
        # has this size and time, so that a scan compares the content.
        made.executemany(
            "INSERT OR REPLACE INTO images (size, mtime_ns, id, path, sha256, width, height, segment, row, status) "
            "VALUES (-1, -1, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        make_tables(made)
        known = [(id_, pixels) for id_, pixels in pictures.items() if pixels]
        made.executemany("INSERT INTO pictures VALUES (?, ?)", known)
        (n,) = made.execute("SELECT count(*) FROM images").fetchone()
    return [f"ids of {count(n, 'image')}, as the segments note them"], lost
