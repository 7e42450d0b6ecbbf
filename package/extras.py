"""How to install the packages of an extra, in words that work in a clone, from a wheel and from an index."""

from __future__ import annotations

import os
import re
import shlex
import sys


def how_to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra that are missing, all of them if none is.

    Examples
    --------
    >>> how_to_install("heic")  # doctest: +SKIP
    ".venv/bin/python -m pip install 'pi-heif>=1.0'"
    """
    needed = list(dict.fromkeys(_packages(extra)))
    missing = [package for package in needed if not _is_installed(package)]
    python = os.path.relpath(sys.executable) if sys.executable.startswith(os.getcwd() + os.sep) else sys.executable
    return shlex.join([python, "-m", "pip", "install", *(missing or needed)])


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra, and those of the extras that it names."""
    from importlib import metadata  # slow to import

    packages = []
    for line in metadata.requires("visterm") or []:
        requirement, _, marker = line.partition(";")
        if re.search(rf"extra == [\"']{extra}[\"']", marker):
            within = re.match(r"visterm\[(.*)\]", requirement)
            packages += [part for name in within[1].split(",") for part in _packages(name)] if within else [requirement]
    return [package.strip() for package in packages]


def _is_installed(requirement: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(re.split(r"[^\w.-]", requirement)[0])
    except metadata.PackageNotFoundError:
        return False
    return True
