"""scikit-learn and compiled kernels, which learners alone need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from visterm import compiled, sparse

# scikit-learn imports them for a few functions that no learner calls; they are three quarters of its start.
_FOR_FEW_FUNCTIONS = ("scipy.stats", "pandas")


class _Later(ModuleType):
    """A module that is imported when something is read of it."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _without_notes() -> Iterator[None]:
    """Keep SciPy from parsing the docstrings of 200 functions, to append which libraries' arrays they take."""
    module: Any = sys.modules.get("scipy._lib._array_api")
    noted = getattr(module, "xp_capabilities", None)
    if noted is not None:  # else a version that does not
        module.xp_capabilities = lambda **_: lambda function: function
    try:
        yield
    finally:
        if noted is not None:
            module.xp_capabilities = noted


def import_estimators() -> None:
    """Import scikit-learn's base, and of what few of its functions need only what this process has imported before.

    Kernels have no plain form from here on: to learn loads Numba.
    """
    compiled.Kernel.spent = compiled.WORTH_COMPILING
    if "sklearn" in sys.modules:
        return
    sparse.csr_array  # noqa: B018  # SciPy's, before scikit-learn imports them with all that they touch
    names = [name for name in _FOR_FEW_FUNCTIONS if name not in sys.modules and find_spec(name.partition(".")[0])]
    for name in names:
        sys.modules[name] = _Later(name)
        sys.modules[name].__spec__ = ModuleSpec(name, None)
    try:
        with sparse.few_names_of_numpy("sklearn.externals.array_api_compat.numpy"), _without_notes():
            import_module("sklearn.utils.validation")
    finally:
        for name in names:
            if isinstance(sys.modules.get(name), _Later):
                del sys.modules[name]
