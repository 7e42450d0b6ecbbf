"""A run folder: where its artifacts lie, what they were made from, and whether they still are fresh."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .config.loading import load_config
from .config.models import Config
from .errors import UserError

_log = logging.getLogger(__name__)

FORMAT = 1
# What decides whether an artifact is fresh. Versions and times are recorded beside it, for people.
_IDENTITY = ("format", "stage", "config", "inputs")


class Run:
    """The folder ``runs/<name>``.

    Parameters
    ----------
    folder : Path
        It need not exist yet.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def name(self) -> str:
        """The run's name."""
        return self.folder.name

    @property
    def collection(self) -> Path:
        """The catalogue and the counts."""
        return self.folder / "collection"

    @property
    def extractor(self) -> Path:
        """Palette, codebook and idf."""
        return self.folder / "extractor"

    def learner(self, name: str) -> Path:
        """The folder of a trained learner."""
        return self.folder / "learners" / name

    def evaluation(self, name: str) -> Path:
        """The folder of a learner's figures and report."""
        return self.folder / "evaluations" / name

    @property
    def marks(self) -> Path:
        """The marks that people gave to results."""
        return self.folder / "feedback.sqlite"

    def taught(self, name: str) -> Path:
        """The folder of what a learner became by marks, a version each."""
        return self.folder / "feedback" / name

    @property
    def judgements(self) -> Path:
        """The tasks and decisions of the human evaluation."""
        return self.folder / "judgements.sqlite"

    def learners(self) -> list[str]:
        """Names of the learners that were trained in this run."""
        found = (path.parent.name for path in self.folder.glob("learners/*/record.json"))
        return sorted(name for name in found if "." not in name)  # not checkpoints

    def configure(self, file: Path | None, settings: list[str]) -> Config:
        """Read the configuration: the given file, else the run's own, else the defaults; settings on top."""
        own = self.folder / "config.yaml"
        return load_config(file if file is not None or not own.exists() else own, settings)

    def save_config(self, config: Config) -> None:
        """Keep the configuration that features or train last used, for later commands."""
        write_text(self.folder / "config.yaml", config.to_yaml())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run at the same time.

        Raises
        ------
        UserError
            Another process is at work in this run.
        """
        new = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = open(self.folder / ".lock", "w")  # noqa: SIM115  # opened apart, so that errors of the work inside are not taken for its own; closed below
        except OSError as error:
            raise UserError(
                f"{self.folder}: cannot be written ({error.strerror}); search and info still work"
            ) from None
        with lock, self._removed_if_nothing_came_of_it(new):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UserError(f"{self.folder}: another visterm is at work in this run; wait for it to end") from None
            for place in (self.folder, self.folder / "learners", self.folder / "evaluations"):
                _recover(place)
            yield

    @contextlib.contextmanager
    def _removed_if_nothing_came_of_it(self, new: bool) -> Iterator[None]:
        """Remove a new folder when the work in it was refused before it began."""
        try:
            yield
        except UserError:
            if new and not any((self.folder / name).exists() for name in ("config.yaml", "skipped.txt")):
                shutil.rmtree(self.folder, ignore_errors=True)
                with contextlib.suppress(OSError):
                    self.folder.parent.rmdir()  # if this was the first run
            raise


def make_record(stage: str, config: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """What an artifact is made from: equal records mean an equal artifact.

    Parameters
    ----------
    stage : str
    config : dict
        The sections of the configuration that the stage reads.
    inputs : dict of str
        Fingerprints of what it reads besides.

    Returns
    -------
    dict
        Also with versions and the time, which do not count.
    """
    return {
        "format": FORMAT,
        "stage": stage,
        "config": config,
        "inputs": inputs,
        "versions": {name: version(name) for name in ("visterm", "numpy", "scipy", "numba", "opencv-python-headless")},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of an artifact, or None where there is none.

    Raises
    ------
    UserError
        The artifact was made by another version of visterm, or its record is damaged.
    """
    file = folder / "record.json"
    try:
        record = json.loads(file.read_text())
        found = record["format"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{file}: damaged record; remove {folder} and run the stage again") from None
    if found != FORMAT:
        raise UserError(
            f"{folder}: made by another version (format {found}, this visterm reads {FORMAT}); remove it and run the "
            f"stage again"
        )
    return record


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read metrics.json of an evaluation.

    Raises
    ------
    UserError
        It is missing or damaged.
    """
    file = folder / "metrics.json"
    try:
        found = json.loads(file.read_text())
        if all("map" in figures for figures in found["systems"].values()):
            return found
        reason = "figures are missing"
    except FileNotFoundError:
        reason = "no such file"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error)
    raise UserError(f"{file}: damaged figures ({reason}); run 'visterm evaluate --force' to make them again")


def is_fresh(folder: Path, record: dict[str, Any]) -> bool:
    """Whether the artifact in a folder was made from just this, and all its files have the size they were given."""
    found = read_record(folder)
    if found is None or any(found[key] != record[key] for key in _IDENTITY):
        return False
    for name, size in found.get("sizes", {}).items():
        file = folder / name
        if not file.exists() or file.stat().st_size != size:
            _log.warning("%s: missing or damaged; it must be made again", file)
            return False
    return True


def fingerprint(*parts: Any) -> str:
    """Sixteen hexadecimal digits that stand for JSON-able parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def write_text(file: Path, text: str) -> None:
    """Write a text file so that a kill leaves the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    os.replace(temporary, file)


def write_bytes(file: Path, data: bytes) -> None:
    """Write a file that a user named so that an error or a kill leaves the old one or the new one."""
    partial = file.with_name(f"{file.name}.partial")
    try:
        partial.write_bytes(data)
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def publish(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """Give a temporary folder to fill, then put it in the place of ``folder``, with its record.

    Parameters
    ----------
    folder : Path
        Replaced if it exists.
    record : dict
        Written last, as record.json; may still be added to while the folder is filled.

    Yields
    ------
    Path
        The temporary folder. The sizes of what is in it at the end are noted in the record.

    Notes
    -----
    A kill leaves the old artifact or the new one: the next run that locks the folder undoes the one moment in between,
    and sweeps up. An exception leaves the old one.
    """
    temporary, old = folder.with_name(f"{folder.name}.tmp"), folder.with_name(f"{folder.name}.old")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        files = sorted(path for path in temporary.rglob("*") if path.is_file())
        record["sizes"] = {os.fspath(path.relative_to(temporary)): path.stat().st_size for path in files}
        write_text(temporary / "record.json", json.dumps(record, indent=1))
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        temporary.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _recover(place: Path) -> None:
    """Put back what a kill left between two renames, and remove what it left half-written."""
    for old in place.glob("*.old"):
        if old.with_suffix("").exists():
            shutil.rmtree(old)
        else:
            old.rename(old.with_suffix(""))
    for temporary in place.glob("*.tmp"):
        shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()
