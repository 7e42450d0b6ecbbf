"""Records: what an artifact was made from, and whether it is up to date."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

from visterm.pipeline.errors import UserError

_log = logging.getLogger(__name__)
FORMAT = 1
# What decides whether an artifact is fresh. Versions and times are recorded beside it, for people.
_IDENTITY = ("format", "stage", "config", "inputs")


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
