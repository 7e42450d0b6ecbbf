"""Files, order and people: the stages, the collection on disk, searching, the command line, the report, the service.

``from visterm.pipeline import Searcher`` searches a run from Python, `explain_pair` explains a result, `open_run` reads
the vectors and labels of a run, `LabelEditor` adds and removes labels, `FeedbackTrainer` learns from relevance marks,
`make_overview` makes the map of the collection, `find_duplicates` finds images that look alike, `find_wrong_labels` and
`judge_labels` labels that are likely wrong, and `find_harmful` training images that harm the ranking.
"""

from __future__ import annotations

# As type checkers read it. Importing typing would take most of the time before the command handles signals.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .feedback.update import FeedbackTrainer
    from .search.explanation import explain_pair
    from .search.harmful import find_harmful
    from .search.overview import find_duplicates, make_overview
    from .search.searcher import Searcher
    from .search.wrong_labels import find_wrong_labels, judge_labels
    from .stages.label import LabelEditor
    from .store.opened import open_run

__all__ = [
    "FeedbackTrainer",
    "LabelEditor",
    "Searcher",
    "explain_pair",
    "find_duplicates",
    "find_harmful",
    "find_wrong_labels",
    "judge_labels",
    "make_overview",
    "open_run",
]

_MODULES = {
    "FeedbackTrainer": "feedback.update",
    "LabelEditor": "stages.label",
    "Searcher": "search.searcher",
    "explain_pair": "search.explanation",
    "find_duplicates": "search.overview",
    "find_harmful": "search.harmful",
    "find_wrong_labels": "search.wrong_labels",
    "judge_labels": "search.wrong_labels",
    "make_overview": "search.overview",
    "open_run": "store.opened",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: the command line must start without them."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
