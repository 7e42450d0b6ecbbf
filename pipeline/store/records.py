"""Records: the inputs of an artifact, and whether it is up to date."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import logging
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.pipeline.errors import UserError

from .checksums import DamagedFile, Record, check_files, check_seal

if TYPE_CHECKING:
    from visterm.pipeline.config.models import Settings

_log = logging.getLogger(__name__)
FORMAT = 2  # of records, segments and the catalogue; raised whenever an older run could not be used as it is
# Whose versions records and reports name, for people.
LIBRARIES = ("numpy", "scipy", "numba", "opencv-python-headless")
# The keys that decide whether an artifact is up to date. Versions and times are for people.
LARGE = 100_000_000  # bytes of a file: a tenth of a second
_IDENTITY = ("format", "stage", "config", "inputs")


@functools.cache
def version(name: str) -> str:
    """Version of an installed package; of its description, which takes 10 ms to parse, that line alone is read."""
    from importlib import metadata

    text = metadata.distribution(name).read_text("METADATA") or ""
    line = re.search(r"^Version: *(\S+)", text, re.MULTILINE)
    return line[1] if line else metadata.version(name)


def versions() -> dict[str, str]:
    """Versions of visterm and of what its results depend on."""
    return {name: version(name) for name in ("visterm", *LIBRARIES)}


def make_record(stage: str, config: Settings, inputs: Settings) -> Record:
    """Make the record of an artifact from the sections of the configuration and the fingerprints that it depends on.

    Equal records mean an equal artifact. The time is for people, and tells two trainings of the same learner apart,
    which may lie within a second. Versions are added when the artifact is written: to find them takes longer than to
    compare two records.
    """
    return {
        "format": FORMAT,
        "stage": stage,
        "config": config,
        "inputs": inputs,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
    }


def read_record(folder: Path) -> Record | None:
    """Read the record of an artifact, None if there is none; UserError if it is damaged or of another version."""
    file = folder / "record.json"
    try:
        record = json.loads(file.read_text())
        version = record["format"]
        if version == FORMAT:
            check_seal(record)
            if not (isinstance(record["config"], dict) and isinstance(record["inputs"], dict)):
                raise ValueError("parts are missing")
    except (OSError, ValueError, KeyError, TypeError) as error:  # ValueError: no JSON, no UTF-8, another checksum
        if isinstance(error, FileNotFoundError) and not os.path.lexists(file):
            return None
        raise UserError(f"{file}: damaged record; {repair_hint(folder)}") from None
    if version != FORMAT:
        raise other_version(folder, version)
    return record


def other_version(folder: Path, version: object) -> UserError:
    """Return the error of a part of a run that another version made: its run must be built again."""
    return UserError(
        f"{folder}: made by another version (format {version}, this visterm reads {FORMAT}); build the run again: use "
        "another --run, or remove it and run 'visterm features IMAGES'"
    )


def read_metrics(folder: Path) -> dict[str, Any]:
    """Read metrics.json of an evaluation; UserError if it is missing or damaged."""
    file = folder / "metrics.json"
    try:
        metrics = json.loads(file.read_text())
        numbers = [metrics["n_queries"], *(figures["map"] for figures in metrics["systems"].values())]
        if metrics["systems"] and metrics["protocol"] and all(isinstance(number, int | float) for number in numbers):
            return metrics
        reason = "figures are missing"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except ValueError:
        reason = "no JSON"
    except (KeyError, TypeError, AttributeError):
        reason = "figures are missing"
    raise UserError(f"{file}: damaged figures ({reason}); {repair_hint(folder)}")


def is_up_to_date(folder: Path, record: Record, *, large: bool = True) -> bool:
    """Whether the artifact in a folder has this record and, as `damage` checks it, its files."""
    kept = read_record(folder)
    if kept is None or any(kept.get(key) != record[key] for key in _IDENTITY):
        return False
    if problem := damage(folder, kept, large=large):
        _log.warning("%s: missing or damaged (%s); it must be rebuilt", folder, problem)
    return not problem


def damage(folder: Path, record: Mapping[str, Any], *, large: bool = True) -> str | None:
    """Tell what is wrong with the files of an artifact, None if they have the sizes and checksums that it notes.

    Without ``large``, files of more than `LARGE` bytes are not read: their sizes tell.
    """
    for name, size in record.get("sizes", {}).items():
        try:
            if (folder / name).stat().st_size != size:
                return f"{name} has another size"
        except OSError as error:
            return f"{name}: {(error.strerror or str(error)).lower()}"
    try:
        sizes, crc32 = record.get("sizes", {}), record.get("crc32", {})
        check_files(folder, {file: known for file, known in crc32.items() if large or sizes.get(file, 0) <= LARGE})
    except DamagedFile as error:
        return str(error)
    return None


def repair_hint(folder: Path) -> str:
    """Return what to do about a damaged artifact or SQLite file: the command that makes it again, or restores it."""
    folder = folder.absolute()
    if folder.suffix == ".sqlite":
        run = folder.parents[1 if folder.parent.name == "collection" else 0].name
        return f"run 'visterm repair --run {shlex.quote(run)}' to restore it"
    if folder.parent.name == "segments":
        return f"run 'visterm features --run {shlex.quote(folder.parents[2].name)}' to extract its images again"
    kind, name = folder.parent.name, folder.name.partition(".")[0]
    run, learner = folder.parent.parent.name, f"--learner {name.replace('+', ',')}"
    if folder.name == "collection":
        return f"run 'visterm features --run {shlex.quote(kind)}' to write it again"
    if folder.name == "extractor":
        return f"run 'visterm features --force --run {shlex.quote(kind)}' to rebuild it"
    if folder.name.endswith(".checkpoint"):
        stage = "train" if kind == "learners" else "tune"
        return f"run 'visterm {stage} {learner} --force --run {shlex.quote(run)}' to start again"
    if kind in ("learners", "tuning", "evaluations"):
        stage = {"learners": "train", "tuning": "tune", "evaluations": "evaluate"}[kind]
        return f"run 'visterm {stage} {learner} --force --run {shlex.quote(run)}' to rebuild it"
    if folder.parent.parent.name == "feedback":  # a version of the learner `kind`
        run = folder.parent.parent.parent.name
        return f"run 'visterm feedback reset --learner {kind} --run {shlex.quote(run)}' to go back to the base"
    if kind == "index":
        learner = learner.removesuffix("_look")  # of its index for other shares than all
        if name == "vectors":  # of all learners that search the vectors themselves, as this one does
            learner = "--learner cosine"
        return f"run 'visterm index --rebuild {learner} --run {shlex.quote(run)}' to rebuild it"
    return f"remove {folder} and run the stage again"


def fingerprint(*parts: Any) -> str:
    """Hash JSON-able parts to sixteen hexadecimal digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
