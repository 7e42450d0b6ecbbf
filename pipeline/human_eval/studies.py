"""A study: the tasks that judges decide on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .tasks import Task

DECISIONS = {"relevant": 1.0, "not": 0.0, "unsure": np.nan}  # and their values


class Study(NamedTuple):
    """One set of tasks."""

    number: int
    time: str
    learner: str
    version: str  # of the model
    seed: int
    k: int
    tasks: list[Task]
