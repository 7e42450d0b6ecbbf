"""Files, order and people: the stages, the collection on disk, searching, the command line, the report.

``from visterm.pipeline import Searcher`` searches a run from Python, `explain_pair` explains a result, `open_run` reads
the vectors and labels of a run, `LabelEditor` adds and removes labels, `FeedbackTrainer` learns from relevance marks,
`make_overview` makes the map of the collection, `find_duplicates` finds images that look alike, `find_wrong_labels` and
`judge_labels` labels that are likely wrong, and `find_harmful` training images that harm the ranking.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take most of the time before the command handles signals
if TYPE_CHECKING:
    from typing import Any

_MODULES = {  # the types are in __init__.pyi
    "FeedbackTrainer": "teaching.feedback",
    "LabelEditor": "teaching.labels",
    "SearchRequest": "pipeline.search.request",
    "Searcher": "pipeline.search.searcher",
    "explain_pair": "plugins.explanation.explanation",
    "find_duplicates": "teaching.overview",
    "find_harmful": "teaching.harmful",
    "find_wrong_labels": "teaching.wrong_labels",
    "judge_labels": "teaching.wrong_labels",
    "make_overview": "teaching.overview",
    "open_run": "pipeline.store.opened",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Import public names on first use: the command line must start without them."""
    if name in _MODULES:
        from importlib import import_module

        import_module("visterm.pipeline.cli.caches").prepare_caches()
        return getattr(import_module(f"visterm.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
