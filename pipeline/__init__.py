"""Files, order and people: the stages, the collection on disk, searching, the command line, the report, the service.

``from visterm.pipeline import Searcher`` searches a run from Python, `explain_pair` explains a result, and `open_run`
reads the vectors and labels of a run.
"""

from __future__ import annotations

# As type checkers read it. Importing typing would take most of the time before the command handles signals.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .search.explanation import explain_pair
    from .search.searcher import Searcher
    from .store.opened import open_run

__all__ = ["Searcher", "explain_pair", "open_run"]


def __getattr__(name: str) -> Any:
    """Import public names on first use: the command line must start without them."""
    if name == "Searcher":
        from .search.searcher import Searcher

        return Searcher
    if name == "explain_pair":
        from .search.explanation import explain_pair

        return explain_pair
    if name == "open_run":
        from .store.opened import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
