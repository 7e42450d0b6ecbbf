"""How a command finds its run. Nothing of Typer is imported here, for commands that are called without it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from visterm.pipeline.console import Console
from visterm.pipeline.errors import UserError

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config
    from visterm.pipeline.search.searcher import Searcher
    from visterm.pipeline.store.run import Run


class Globals:
    """Values of the options before the command."""

    debug = False
    quiet = False
    progress: bool | None = None
    run: Run | None = None  # of the command


def make_console() -> Console:
    """Make the console that the global options ask for."""
    return Console(quiet=Globals.quiet, progress=Globals.progress)


def run_named(name: str) -> Run:
    """Return the run of this name."""
    from visterm.pipeline.store.run import Run, runs_folder

    if not name or name in (".", "..") or "/" in name or name.startswith("-"):
        raise UserError(f"--run {name!r}: a run name is one plain word, such as photos")
    return Run(runs_folder() / name)


def open_run(
    name: str | None, file: Path | None, settings: list[str] | None, images: Path | None = None
) -> tuple[Run, Config]:
    """Find the run: by name, else the configuration's, else the images', else the only one, else the last used."""
    from visterm.pipeline.store.run import current_run, no_such_run, run_names, runs_folder

    if name is None and file is not None:
        name = file.stem
    if name is None and images is not None:
        name = images.resolve().name or "images"
    if name is None:
        names = run_names()
        name = names[0] if len(names) == 1 else current_run()
        if name is None:
            known = f"one of {', '.join(names)}" if names else f"{runs_folder()} is empty"
            first = "" if names else ", run 'visterm features IMAGES' first"
            raise UserError(f"no run given; use --run NAME: {known}{first}")
        if len(names) > 1:
            make_console().say(f"run {name}, the last one used; --run NAME selects another one")
    place = run_named(name)
    if place.folder.is_dir():
        place.make_current()
    elif images is None:
        raise UserError(no_such_run(name))
    Globals.run = place
    return place, place.configure(file, settings or [])


def run_of_moved(images: Path) -> Run | None:
    """Return a run whose directory of images is gone, and most of whose images lie in this one.

    There may be hundreds of runs. Of each catalogue its directory alone is read, without the checksum of the whole
    file; one that another process writes to is skipped.
    """
    import sqlite3

    from visterm.pipeline.store.database import CATALOGUE
    from visterm.pipeline.store.run import run_names

    for name in run_names():
        with contextlib.suppress(UserError, OSError, TypeError, ValueError, sqlite3.Error):
            place, n_there = run_named(name), 0
            address = f"{(place.collection / CATALOGUE).absolute().as_uri()}?mode=ro"
            with contextlib.closing(sqlite3.connect(address, uri=True, timeout=0)) as db:
                root = db.execute("SELECT value FROM meta WHERE key = 'root'").fetchone()
                if root is None or os.path.exists(os.fsdecode(root[0])):
                    continue
                known = db.execute("SELECT path, size FROM images WHERE status = 'ok' LIMIT 50").fetchall()
                for path, size in known:
                    with contextlib.suppress(OSError):
                        n_there += os.stat(images / os.fsdecode(path)).st_size == size
                if 2 * n_there > len(known):
                    return place
    return None


def open_searcher(name: str | None, *, reads_images: bool = True) -> tuple[Searcher, Console]:
    """Open a run for searching; keep decoders of images from writing to standard error, where images are read."""
    from visterm.pipeline.search.searcher import Searcher

    place, _ = open_run(name, None, None)
    if reads_images:
        from visterm.features import silence_decoders

        silence_decoders()
    console = make_console()
    return Searcher(place, console=console), console
