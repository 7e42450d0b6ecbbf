"""Options of a fit, beside images and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Callback = Callable[[Any], None]
Distribute = Callable[[Callable, Iterable[tuple]], Iterable[Any]]

MAX_QUERIES = 500  # of a validation: see `validation`


@dataclass(frozen=True)
class FitOptions:
    """The options of `SimilarityLearner.fit` as `_fit` gets them; `resuming` where it continues from a checkpoint."""

    validation_rows: Any = None
    world: str = "seen"
    learned_weight: float | None = 1.0
    callback: Callback | None = None
    progress: Callback | None = None
    distribute: Distribute | None = None
    resuming: bool = False
