"""SciPy's sparse arrays, imported where one is made: that takes twice as long as to import NumPy.

Until then nothing can be sparse.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def issparse(X: Any) -> bool:
    """Whether X is a sparse array or matrix."""
    loaded = sys.modules.get("scipy.sparse")
    return loaded is not None and loaded.issparse(X)


def __getattr__(name: str) -> Any:
    return getattr(import_module("scipy.sparse"), name)
