"""Files, order and people: the stages, the collection on disk, searching, the command line, the report, the service.

``from visterm.pipeline import Searcher`` searches a run from Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .search.searcher import Searcher

__all__ = ["Searcher"]


def __getattr__(name: str) -> Any:
    """Import Searcher when it is first asked for: the command line must start without."""
    if name == "Searcher":
        from .search.searcher import Searcher

        return Searcher
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
