"""Image search that learns what "similar" means from your own images.

``from visterm import Searcher`` searches a run from Python. All public names of `visterm.pipeline` are here, and the
packages, such as ``visterm.learners``; each is imported on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see visterm.pipeline
if TYPE_CHECKING:
    from typing import Any

_ROOMS = ("features", "learners", "retrieval", "pipeline", "teaching", "service", "plugins")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return import_module("importlib.metadata").version("visterm")
    if name in _ROOMS:
        return import_module(f"visterm.{name}")
    if name == "__all__" or not name.startswith("_"):
        pipeline = import_module("visterm.pipeline")
        if name == "__all__" or name in pipeline.__all__:
            return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from visterm.pipeline import __all__

    return ["__version__", *_ROOMS, *__all__]
