"""A Dask cluster in place of this machine's processes: the same functions run there, over shared storage.

Tasks carry their arguments with them, and what is large lies on the shared storage: nothing is kept on a worker that is
lost with it. So a worker that dies costs the tasks that it was at, which the scheduler gives to another one.

A worker must see the run's folder and the images under the paths that they have here, and have the same packages: this
is asked of all workers before the work begins, and of each one again with each task, as others may join later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import os
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError
from visterm.pipeline.store.run import Run

CONNECT_SECONDS = 5  # to reach the scheduler, and to wait for a first worker
ALONE_SECONDS = 60  # without any worker in the middle of the work: one that died may be started again
AHEAD = 4  # tasks that are sent or waited for, for each thread of the workers
_TOKEN = ".worker-"
# What work is sent with (of Dask, distributed wants its own version), and what decides about bytes: decoders,
# arithmetic, compiled kernels.
_SENT_WITH = ("distributed", "cloudpickle")
_PACKAGES = ("visterm", *_SENT_WITH, "numpy", "scipy", "numba", "scikit-learn", "opencv-python-headless", "pillow")
_SAME = "install the same packages everywhere"
_GO_ON = "what is finished is kept, and the same command goes on from here"


class _Place(NamedTuple):
    """What a worker must see and have; travels with every task."""

    token: Path  # in the run's folder, with a name that no other storage has
    image: Path | None
    size: int  # of the image, in bytes
    versions: dict[str, str]


class Cluster:
    """The workers of a Dask scheduler, as `connected` gives them."""

    def __init__(self, client: Any, address: str, place: _Place):
        self._client = client
        self._address = address
        self._place = place

    def map(self, function: Callable, tasks: Iterable[tuple]) -> Iterator[Any]:
        """Yield ``function(*task)`` of each task, in order; a bounded number of tasks is on its way at any moment.

        Parameters
        ----------
        function : callable
            What it gives must not depend on where it runs, nor on whether it ran before: a task whose worker dies is
            run again.
        tasks : iterable of tuple
            Drawn as the work goes on.

        Raises
        ------
        UserError
            As `connected`; or the scheduler is gone, no worker is left, or a task ends each worker that tries it.
        OSError, ValueError, ...
            What the function raised.
        """
        tasks, waiting = iter(tasks), deque[Any]()
        try:
            while True:
                room = AHEAD * max(self._n_threads(), 1) - len(waiting)
                for task in itertools.islice(tasks, max(room, 0)):
                    # As one object: of arguments Dask would look into each list and tuple for tasks.
                    work = functools.partial(_work, self._place, function, task)
                    with self._while_there():
                        waiting.append(self._client.submit(work, pure=False))
                if not waiting:
                    return
                yield self._result(waiting.popleft())
        finally:
            if waiting and self._client.status == "running":
                self._client.cancel(list(waiting))

    def _n_threads(self) -> int:
        """Threads of all workers."""
        with self._while_there():
            return sum(self._client.nthreads().values())

    @contextlib.contextmanager
    def _while_there(self) -> Iterator[None]:
        """Turn into one line what a client raises that has lost the scheduler, or has given it up and closed itself."""
        try:
            yield
        except Exception as error:  # a client that is closed has errors of many kinds, and no name for them
            if isinstance(error, OSError) or self._is_closed():
                raise self._gone() from None
            raise

    def _is_closed(self) -> bool:
        """Whether the client has waited in vain for the scheduler to come back."""
        return self._client.status in ("closing", "closed")

    def _gone(self) -> UserError:
        return UserError(f"{self._address}: the scheduler is gone; {_GO_ON}")

    def _result(self, future: Any) -> Any:
        """Wait for a result, as long as there is somebody to bring it."""
        import distributed

        alone_since = None
        while not future.done():
            if self._is_closed():  # a task that was sent just then stays without an end
                raise self._gone()
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=1)
            now = time.monotonic()
            alone_since = None if self._client.status != "running" or self._n_threads() else alone_since or now
            if alone_since is not None and now - alone_since > ALONE_SECONDS:
                raise UserError(f"{self._address}: no worker is left; start some, then {_GO_ON}")
        if future.cancelled():
            raise self._gone()
        try:
            return future.result()
        except distributed.KilledWorker as error:
            raise UserError(
                f"{self._address}: a task ended {error.allowed_failures + 1} workers, the last one being "
                f"{error.last_worker.address}; if they had too little memory, give them more (--memory-limit); {_GO_ON}"
            ) from None


@contextlib.contextmanager
def connected(config: Config, run: Run, image: Path | None = None) -> Iterator[Cluster | None]:
    """Connect to the cluster that the configuration names; None if it names none.

    Parameters
    ----------
    config : Config
    run : Run
        Locked by the caller; its folder must be there.
    image : Path or None
        One of the images that workers are to read.

    Raises
    ------
    UserError
        Dask is not installed, the scheduler cannot be reached or has no workers, one of them has other versions of
        packages, does not see the image or the run's folder, or cannot write there.
    """
    address = config.cluster.scheduler
    if address is None:
        yield None
        return
    try:
        import dask
        import distributed
    except ModuleNotFoundError as error:
        raise UserError(f"cluster.scheduler needs {error.name}: pip install 'visterm[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters becomes a line of ours
    folder = run.folder.absolute()
    _sweep(folder)  # after a process that was killed
    token = folder / f"{_TOKEN}{uuid.uuid4().hex}"
    # The first tasks of a codebook are larger than Dask likes to see in a graph, and are no graph.
    settings = {"distributed.admin.large-graph-warning-threshold": "1GiB"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        try:
            asyncio.run(asyncio.wait_for(_greet(address), CONNECT_SECONDS))
            client = stack.enter_context(_client(distributed.Client, address))
        except Exception as error:  # whatever it is that answers there may send anything
            raise UserError(
                f"{address}: no Dask scheduler answers ({_first_line(error)}); start one with 'dask scheduler', "
                "or give --scheduler none to work on this machine alone"
            ) from None
        stack.callback(_sweep, folder)
        token.touch()
        size = 0 if image is None else _size(image) or 0
        place = _Place(token, image if size else None, size, _versions())
        _check_versions(client, address)
        reasons = client.run(_unfit, place, on_error="return")
        for worker, reason in sorted(reasons.items()):
            if reason is not None:
                raise UserError(f"worker {worker} {reason}")
        yield Cluster(client, address, place)


def _sweep(folder: Path) -> None:
    """Remove the files by which workers are asked whether they see the run's folder."""
    for file in folder.glob(f"{_TOKEN}*"):
        file.unlink(missing_ok=True)


async def _greet(address: str) -> None:
    """Shake hands; a client would wait forever for one that takes the call and says nothing."""
    from distributed.core import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")  # of Dask's own configuration
    communication = await connect(address, timeout=CONNECT_SECONDS, **arguments)
    await communication.close()


@contextlib.contextmanager
def _client(kind: Any, address: str) -> Iterator[Any]:
    with warnings.catch_warnings(action="ignore"):  # of versions, which are compared below
        client = kind(address, timeout=CONNECT_SECONDS, set_as_default=False)
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be gone
            client.close(timeout=CONNECT_SECONDS)


def _check_versions(client: Any, address: str) -> None:
    """Refuse a scheduler without workers, and workers of other versions."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while not client.nthreads():
        if time.monotonic() > deadline:
            raise UserError(f"{address}: this scheduler has no workers; start some with 'dask worker {address}'")
        time.sleep(0.1)
    found = client.get_versions(packages=list(_PACKAGES))
    for worker, versions in sorted(found["workers"].items()):
        packages = {} if versions is None else versions["packages"]
        if reason := _other_version(packages, _versions()):
            raise UserError(f"worker {worker} {reason}")
    packages = found["scheduler"]["packages"]
    if reason := _other_version(packages, {name: _versions()[name] for name in ("python", "visterm", "distributed")}):
        raise UserError(f"scheduler {address} {reason}")  # it reads the names of what workers are to do


@functools.cache
def _versions() -> dict[str, str]:
    """Of Python, the first two numbers; and of the packages that must be the same."""
    import sys

    found = {"python": "{}.{}".format(*sys.version_info)}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _other_version(theirs: dict[str, str | None], wanted: dict[str, str]) -> str | None:
    """What keeps a worker with these versions from giving the same results."""
    for name, own in wanted.items():
        other = theirs.get(name)
        if name == "python" and other is not None:
            other = ".".join(other.split(".")[:2])
        if other is None:
            return f"has no {name}; {_SAME}"
        if other != own:
            return f"has {name} {other}, and here it is {own}; {_SAME}"
    return None


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _unfit(place: _Place) -> str | None:
    """What keeps this process from working for a run; None if nothing does."""
    if reason := _other_version(dict(_versions()), place.versions):
        return reason
    folder = place.token.parent
    if _size(place.token) is None:
        return f"does not see the run's folder {folder}; it must lie on storage that all workers share, at this path"
    probe = place.token.with_name(f"{place.token.name}.{uuid.uuid4().hex}")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        return f"cannot write to {folder} ({error.strerror})"
    if place.image is not None and _size(place.image) != place.size:
        return f"does not see the image {place.image}; the images must lie on storage that all workers share"
    return None


def _work(place: _Place, function: Callable, arguments: tuple) -> Any:
    """What a worker does."""
    import distributed

    here = f"worker {distributed.get_worker().address}"
    if reason := _unfit(place):
        raise UserError(f"{here} {reason}; {_GO_ON}")
    try:
        return function(*arguments)
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        raise UserError(f"{here}: {where}{error.strerror or error}; mend this: {_GO_ON}") from error


def _first_line(error: Exception) -> str:
    """What an error says, in one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {CONNECT_SECONDS} s"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
