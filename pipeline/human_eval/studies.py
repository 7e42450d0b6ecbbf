"""A study: what judges are asked."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .tasks import Task

DECISIONS = {"relevant": 1.0, "not": 0.0, "unsure": np.nan}  # and what they count as


class Study(NamedTuple):
    """One set of tasks."""

    number: int
    time: str
    learner: str
    version: str  # of the model, as `create` was told
    seed: int
    k: int
    tasks: list[Task]
