"""The public names of a room, each loaded when it is first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(room: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a room: the names that the stub beside its file imports.

    They may be those of a plug-in, which lazy_loader's stubs refuse.
    """
    imports = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    places = {
        alias.name: "." * node.level + str(node.module)
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        value = vars(sys.modules[room])[name] = getattr(import_module(places[name], room), name)
        return value

    return load, lambda: sorted(places), sorted(places)
