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

    from visterm.teaching.feedback import FeedbackTrainer
    from visterm.teaching.harmful import find_harmful
    from visterm.teaching.labels import LabelEditor
    from visterm.teaching.overview import find_duplicates, make_overview
    from visterm.teaching.wrong_labels import find_wrong_labels, judge_labels

    from .search.explanation import explain_pair
    from .search.searcher import Searcher
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
    "FeedbackTrainer": "visterm.teaching.feedback",
    "LabelEditor": "visterm.teaching.labels",
    "Searcher": "visterm.pipeline.search.searcher",
    "explain_pair": "visterm.pipeline.search.explanation",
    "find_duplicates": "visterm.teaching.overview",
    "find_harmful": "visterm.teaching.harmful",
    "find_wrong_labels": "visterm.teaching.wrong_labels",
    "judge_labels": "visterm.teaching.wrong_labels",
    "make_overview": "visterm.teaching.overview",
    "open_run": "visterm.pipeline.store.opened",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use: the command line must start without them."""
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
