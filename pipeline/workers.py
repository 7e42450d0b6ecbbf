"""The workers of a command: processes of this machine, or those of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from .config.models import Config
from .plugins import load
from .store.run import Run


class Workers(Protocol):
    """Workers beyond this machine."""

    def map(self, function: Callable, tasks: Iterable[tuple]) -> Iterator[Any]:
        """Yield ``function(*task)`` of each task, in order."""


def connected(config: Config, run: Run, image: Path | None = None) -> AbstractContextManager[Workers | None]:
    """Connect to the cluster of the configuration; None if it has none. See `visterm.plugins.dask.dask_cluster`."""
    return nullcontext() if config.cluster.scheduler is None else load("Dask")(config, run, image)
