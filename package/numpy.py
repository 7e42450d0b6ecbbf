"""NumPy, imported when something of it is first used: help and commands without arrays start sooner.

Modules import it in place of NumPy, which type checkers read.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("numpy"), name)
