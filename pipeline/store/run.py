"""A run folder: the paths of its artifacts, its configuration and its lock."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from visterm.pipeline.config.idle import set_settings
from visterm.pipeline.config.kept import Kept, file_of, read_kept, values_kept
from visterm.pipeline.errors import UserError

from .checksums import Record
from .files import locked, recover, write_text
from .records import read_record

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Config

_CURRENT = ".current"  # in the folder of runs: a name
_PATIENCE = 0.5  # seconds for who asks whether the run is free, or publishes what is ready
_READABLE = "search and info still work"


def runs_folder() -> Path:
    """Return the folder of all runs: runs/ in the working directory, or the environment variable VISTERM_RUNS."""
    return Path(os.path.expanduser(os.environ.get("VISTERM_RUNS") or "runs"))


def run_names() -> list[str]:
    """Return the names of all runs, sorted."""
    return sorted(path.parent.name for path in runs_folder().glob("*/config.yaml"))


def current_run() -> str | None:
    """Return the name of the run that this person last made or used, None if there is none yet, or no longer."""
    names = run_names()
    with contextlib.suppress(OSError, UnicodeDecodeError):
        file = runs_folder() / _CURRENT
        if file.stat().st_uid == os.getuid():  # else of another person, with whom the folder is shared
            name = file.read_text(encoding="utf-8").strip()
            return name if name in names else None
    return None


def run_at(name: str | os.PathLike[str]) -> Run:
    """Return a run by its name in the folder of runs, or by its path; UserError without one."""
    named = runs_folder() / name
    # The images of a run may lie in a folder of its name, which has a folder "collection", say.
    is_path = (Path(name) / "collection").is_dir() and not (named / "collection").is_dir()
    run = Run(Path(name) if is_path else named)
    if not run.collection.is_dir():
        if len(Path(name).parts) > 1:
            raise UserError(f"{name}: no collection here yet; run 'visterm features IMAGES' first")
        raise UserError(no_such_run(os.fspath(name)))
    return run


def no_such_run(name: str) -> str:
    """Return the line that says that there is no run of this name, and which one may be meant."""
    import difflib

    near = difflib.get_close_matches(name, run_names(), n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no run {name} in {runs_folder()}{meant}; run 'visterm features IMAGES --run {shlex.quote(name)}' first"


class Run:
    """The folder ``runs/<name>``, which may not exist yet."""

    is_served = False  # then large learners are mapped from copies that no other program can cut short

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = folder.name
        self.option = f"--run {shlex.quote(folder.name)}"  # of commands in messages
        self.collection = folder / "collection"  # catalogue and segments
        self.extractor = folder / "extractor"  # palette, codebook and idf, or what takes their place
        self.text_model = folder / "text_model"  # what makes vectors of texts, if the run has it
        self.marks = folder / "feedback.sqlite"  # relevance marks
        self.label_edits = folder / "label_edits.sqlite"  # labels that people added and removed
        self.concepts = folder / "concepts.json"  # labels that added images are offered for
        self.different = folder / "different.sqlite"  # duplicates that people said are different pictures
        self.added = folder / "added"  # photos given to the service
        self.judgements = folder / "judgements.sqlite"  # tasks and decisions of the human evaluation

    def learner(self, name: str) -> Path:
        """The folder of a trained learner."""
        return self.folder / "learners" / name

    def evaluation(self, name: str) -> Path:
        """The folder of a learner's metrics and report."""
        return self.folder / "evaluations" / name

    def feedback(self, name: str) -> Path:
        """The folder of a learner's versions updated from relevance feedback."""
        return self.folder / "feedback" / name

    def tuning(self, name: str) -> Path:
        """The folder of the trials that chose a learner's settings."""
        return self.folder / "tuning" / name

    def record(self, folder: Path) -> Record | None:
        """Read the record of an artifact: see `read_record`. An `OpenedRun` reads each once."""
        return read_record(folder)

    def learners(self) -> list[str]:
        """Names of the trained learners of this run."""
        folders = self.folder.glob("learners/[!.]*")
        # A damaged record, such as a link that leads nowhere, belongs to a learner too: using it says what is wrong.
        names = (folder.name for folder in folders if os.path.lexists(folder / "record.json"))
        return sorted(name for name in names if "." not in name)  # not checkpoints

    def configure(self, file: Path | None, settings: list[str]) -> Config:
        """Read the configuration: the given file, else the run's own, else the defaults; settings on top."""
        kept = self.folder / "config.yaml"

        def load() -> Config:
            from visterm.pipeline.config.loading import load_config

            of_run = file is None and kept.exists()
            return load_config(kept if of_run else file, settings, of_run=of_run)

        known = read_kept(kept) if file is None and not settings else None
        return load() if known is None else cast("Config", Kept(known["values"], load, known["changed"]))

    def save_config(self, config: Config) -> None:
        """Save the configuration that features or train last used, for later commands."""
        file, values = self.folder / "config.yaml", config.model_dump()
        if isinstance(config, Kept) and (known := read_kept(file)) is not None and known["values"] == values:
            return
        text, changed = config.to_yaml(), set_settings(config, *values)
        for path, content in ((file, text), (file_of(file), values_kept(text.encode(), values, changed))):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                if path.read_text(encoding="utf-8") == content:
                    continue
            write_text(path, content)

    def make_current(self) -> None:
        """Use this run for later commands that name none; nothing is kept where the folder cannot be written."""
        with contextlib.suppress(OSError):
            if self.name != current_run():
                write_text(self.folder.parent / _CURRENT, self.name)

    def check_exists(self) -> None:
        """Raise an error if the run has no folder: it may have been renamed, and writing must not make another one."""
        if not self.folder.is_dir():
            raise UserError(f"{self.folder}: no such run; run 'visterm features IMAGES {self.option}' to make one")

    @contextlib.contextmanager
    def locked(self, *, create: bool = False) -> Iterator[None]:
        """Keep other processes from writing to the run; UserError if one does, or if the folder cannot be written.

        With `create`, make the folder if there is none.
        """
        new = [folder for folder in (self.folder, self.folder.parent) if create and not folder.exists()]
        if not create:
            self.check_exists()
        advice = "name another folder of runs by VISTERM_RUNS" if new else _READABLE
        lock = locked(self.folder / ".lock", wait=_PATIENCE, advice=advice)
        with lock as free, self._removed_if_refused(new):
            if not free:
                raise UserError(f"{self.folder}: another visterm is at work in this run; wait for it to end")
            recover(self.folder, unlocked=("overview.*", "*.sqlite.*"))
            for name in ("collection", "learners", "evaluations", "tuning"):
                recover(self.folder / name)
            yield

    @contextlib.contextmanager
    def saving(self, kind: str) -> Iterator[None]:
        """Keep other processes from writing what is derived from the run, "index" or "neighbours"; else as `locked`.

        Each has a lock of its own: a training is not refused because a service or a search saves a graph.
        """
        self.check_exists()
        with locked(self.folder / f".{kind}.lock", wait=_PATIENCE, advice=_READABLE) as free:
            if not free:
                raise UserError(f"{self.folder / kind}: another visterm writes to it; wait for it to end")
            yield

    @contextlib.contextmanager
    def _removed_if_refused(self, new: list[Path]) -> Iterator[None]:
        """Remove new folders if their first command was refused before it did anything."""
        try:
            yield
        except UserError:
            if new and not any((self.folder / name).exists() for name in ("config.yaml", "skipped.txt")):
                shutil.rmtree(self.folder, ignore_errors=True)
                for folder in new[1:]:
                    with contextlib.suppress(OSError):
                        folder.rmdir()  # if this was the first run
            raise


def how_to_train(run: Run, name: str) -> str:
    """Return the command that trains a learner of a run."""
    return f"visterm train --learner {name} {run.option}"
