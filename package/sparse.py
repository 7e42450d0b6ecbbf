"""SciPy's sparse arrays, imported where one is made: that takes twice as long as to import NumPy.

Until then nothing can be sparse.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import LazyLoader, find_spec, module_from_spec
from typing import Any

# SciPy copies the namespace of NumPy, and with it imports modules that nothing here uses: half of its time.
_UNUSED = ("numpy.f2py", "numpy.testing")


def issparse(X: Any) -> bool:
    """Whether X is a sparse array or matrix."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and loaded.issparse(X)


def __getattr__(name: str) -> Any:
    if "scipy.sparse" not in sys.modules:
        for unused in _UNUSED:
            _import_at_first_use(unused)
    return getattr(import_module("scipy.sparse"), name)


def _import_at_first_use(name: str) -> None:
    package, _, attribute = name.rpartition(".")
    parent = import_module(package)
    if name in sys.modules or (spec := find_spec(name)) is None or spec.loader is None:
        return
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(parent, attribute, module)
