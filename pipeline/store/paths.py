"""Paths as the catalogue names them: the file system's bytes, relative to the root."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def decoded(path: bytes) -> str:
    """Decode as os.fsdecode does, in half the time."""
    return str(path, _ENCODING, _ERRORS)


def folder_below(root: Path, folder: Path) -> str:
    """Return the prefix of paths below the root that lie in a folder; one that no path has if it lies elsewhere."""
    inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(root))
    return "\0" if inside == os.curdir or inside.split(os.sep)[0] == os.pardir else os.path.join(inside, "")


def absolute(path: Path) -> Path:
    """Return an absolute path, without "..", which would be gone with the folder that it leads out of."""
    path = path.absolute()
    return Path(os.path.realpath(path)) if os.pardir in path.parts else path


def bounds(folder: bytes) -> tuple[bytes, bytes]:
    """Return two byte strings that all paths below a folder lie between."""
    first = os.path.join(folder, b"")
    return first, first[:-1] + b"0"  # the byte after the separator


def relative(path: str, folder: str) -> str | None:
    """Return a path relative to a folder, "" for the folder itself; None if it lies elsewhere."""
    if path == folder:
        return ""
    prefix = os.path.join(folder, "")
    return path[len(prefix) :] if path.startswith(prefix) else None


def excluded_by(patterns: Iterable[str]) -> Callable[[str], str | None]:
    """Return a function from a path, from the root, to the pattern of these that it matches; None if none."""
    rules = [(pattern, re.compile(fnmatch.translate(pattern.strip("/")), re.I)) for pattern in patterns]

    def matched(path: str) -> str | None:
        parts = path.split(os.sep)
        above = list(itertools.accumulate(parts, "{}/{}".format))  # each folder, and the file
        return next(
            (pattern for pattern, rule in rules if any(map(rule.match, above if "/" in rule.pattern else parts))), None
        )

    return matched
