"""scikit-learn, imported for the learners alone."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# scikit-learn imports them for a few functions that no learner calls; they are two thirds of its start.
_FOR_FEW_FUNCTIONS = ("scipy.stats", "pandas")


class _Later(ModuleType):
    """A module that is imported when something is read of it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def import_estimators() -> None:
    """Import scikit-learn's base, and of what few of its functions need only what this process has imported before."""
    if "sklearn" in sys.modules:
        return
    names = [name for name in _FOR_FEW_FUNCTIONS if name not in sys.modules and find_spec(name.partition(".")[0])]
    for name in names:
        sys.modules[name] = _Later(name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    try:
        import_module("sklearn.utils.validation")
    finally:
        for name in names:
            if isinstance(sys.modules.get(name), _Later):
                del sys.modules[name]
