"""The workers of a command: processes of this machine, or those of a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .errors import UserError
from .plugins import load
from .store.run import Run

if TYPE_CHECKING:
    from .config.models import Config


class Workers(Protocol):
    """Workers beyond this machine."""

    def map(self, function: Callable, tasks: Iterable[tuple]) -> Iterator[Any]:
        """Yield ``function(*task)`` of each task, in order."""


def connected(config: Config, run: Run, image: Path | None = None) -> AbstractContextManager[Workers | None]:
    """Connect to the cluster of the configuration; None if it has none. See `visterm.plugins.dask.dask_cluster`."""
    return nullcontext() if config.cluster.scheduler is None else load("Dask")(config, run, image)


def work_for_service(work: Callable[[Callable[[Any], None]], Any], *, niceness: int = 19) -> int:
    """Work in a process that the service started, at low priority; return its exit code.

    ``work`` gets a function for its progress. That, the result, unless None, and an error are lines of JSON. The
    process ends with the service, which may be killed without notice.
    """
    service = os.getppid()

    def watch() -> None:
        while os.getppid() == service:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()

    def tell(what: Any) -> None:
        print(json.dumps(what), flush=True)

    if hasattr(os, "nice"):
        os.nice(niceness)
    try:
        if (result := work(tell)) is not None:
            tell({"result": result})
    except (UserError, OSError) as error:
        with contextlib.suppress(OSError):  # the service that reads it has been killed
            tell({"error": str(error)})
        return 2
    return 0
