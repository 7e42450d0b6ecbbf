"""SciPy's sparse arrays, imported where one is made: that takes twice as long as to import NumPy.

Until then nothing can be sparse.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_lock = threading.Lock()


def issparse(X: Any) -> bool:
    """Whether X is a sparse array or matrix."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and loaded.issparse(X)


def __getattr__(name: str) -> Any:
    if "scipy.sparse" not in sys.modules:
        _import_scipy()
    return getattr(import_module("scipy.sparse"), name)


def _import_scipy() -> None:
    with few_names_of_numpy("scipy._lib.array_api_compat.numpy"):
        import_module("scipy.sparse")


@contextmanager
def few_names_of_numpy(copy: str) -> Iterator[None]:
    """Let NumPy name only what it has imported, while a package is imported that copies its namespace.

    SciPy and scikit-learn do, and with it would import modules that nothing here uses (Fortran, tests, masked arrays):
    half of the time of SciPy's sparse arrays. They can be had from the module ``copy`` of the package, too, once
    something asks for them.
    """
    import numpy as np

    with _lock:
        hidden: dict[str, Any] = {name: vars(np)[name] for name in ("__all__", "__dir__") if name in vars(np)}
        loaded = [name for name in dir(np) if name in vars(np)]
        vars(np).update(__all__=[name for name in loaded if name in np.__all__], __dir__=lambda: loaded)
        try:
            yield
        finally:
            for name in ("__all__", "__dir__"):
                vars(np).pop(name)
            vars(np).update(hidden)
    if (copied := sys.modules.get(copy)) is not None:
        # Its names are given to this module, which mypy takes for a method of all modules.
        copied.__getattr__ = lambda name: getattr(np, name)  # type: ignore[method-assign]
