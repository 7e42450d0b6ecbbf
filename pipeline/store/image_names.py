"""The images of a collection by the names that users' tables give them."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path

from .notes import Notes
from .tables import readable

_SEVERAL = ""  # in place of a path: several images have this name
_FORM = "in another Unicode form or encoding, or in other capitals"


class ImageNames:
    """Looks up images by name: by path, and where no image has it, by what other systems write in its place.

    The paths are those of the catalogue, below the directory of images, `root`. Names are relative to `folder`, a path
    below the root, too; only images inside it are found by less than their path, if there are any.
    """

    def __init__(self, paths: Collection[str], root: Path, folder: str = "") -> None:
        self._paths, self._root = paths, os.path.join(root, "")
        self._prefix = os.path.join(folder, "") if folder else ""
        self._tables: dict[Callable[[str], str], dict[str, str]] = {}

    def exact(self, name: str, folder: str = "") -> str | None:
        """Return the path of the image with this path; None if there is none."""
        if not folder and name in self._paths:  # as nearly all are
            return name
        path = os.path.normpath(os.path.join(folder, name))
        path = path.removeprefix(self._root) if os.path.isabs(name) else path
        return path if path in self._paths else None

    def near(self, name: str, notes: Notes, *, elsewhere: bool = False) -> str | None:
        """Return the path of the only image that a name can mean otherwise, and count how; None if there is none.

        In this order: relative to the folder, with backslashes, in another Unicode form or in other capitals, without
        its ending, by its base name alone. A name with folders that are no folders of the collection is found by its
        base name only if `elsewhere` is true: use it for tables of which no row names an image by its path.
        """
        plain = readable(name).strip().replace("\\", "/")
        plain = os.path.normpath(plain.removeprefix(self._root) if os.path.isabs(plain) else plain)
        inner = os.path.normpath(os.path.join(self._prefix, plain))
        for path in (plain, inner):
            if path in self._inside:
                how = "relative to the other folder, of images or of the table" if readable(name) == name else _FORM
                notes.add("name", "with backslashes" if "\\" in name else how, name, "")
                return path
        ways: list[tuple[Callable[[str], str], str, str]] = [(_same, path, _FORM) for path in (plain, inner)]
        ways += [(_stem, path, "without an ending") for path in (plain, inner)]
        parts = plain.split("/")
        if elsewhere:
            below = ["/".join(parts[i:]) for i in range(1, len(parts) - 1)]
            ways += [(_same, path, "below another folder") for path in below]
        if len(parts) == 1 or elsewhere:
            ways += [(_base, parts[-1], "by the base name"), (_base_stem, parts[-1], "by the base name without ending")]
        for key, path, how in ways:
            match = self._table(key).get(_same(path))
            if match == _SEVERAL:
                notes.add("name", "of several images", name)
                return None
            if match is not None:
                notes.add("name", how, name, "")
                return match
        return None

    @cached_property
    def _inside(self) -> Collection[str]:
        """The images that are found by less than their paths."""
        return {path for path in self._paths if path.startswith(self._prefix)} or self._paths

    def _table(self, key: Callable[[str], str]) -> dict[str, str]:
        """The images by a form of their paths."""
        if key not in self._tables:
            table = self._tables[key] = {}
            for path in self._inside:
                name = key(path)
                table[name] = _SEVERAL if name in table else path
        return self._tables[key]


def _same(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _stem(path: str) -> str:
    return _same(os.path.splitext(path)[0])


def _base(path: str) -> str:
    return _same(os.path.basename(path))


def _base_stem(path: str) -> str:
    return _same(os.path.splitext(os.path.basename(path))[0])
