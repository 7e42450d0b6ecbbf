"""A Dask cluster instead of this machine's processes: the same functions run on workers with shared storage.

Tasks carry their arguments, and large data lie on the shared storage: workers keep no state. So a worker that dies
costs only its running tasks, which the scheduler gives to another one.

A worker must have the same packages, and see the run's folder and the images under the same paths as this machine. All
workers are checked before the work begins, and again with each task, as workers may join later.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from visterm.extras import how_to_install
from visterm.pipeline.config.models import Config
from visterm.pipeline.errors import UserError, explain_system_error, system_reason
from visterm.pipeline.store.run import Run

CONNECT_SECONDS = 5  # to reach the scheduler, and again to wait for a first worker
NO_WORKER_SECONDS = 60  # during the work: workers that died may be restarted
TASKS_PER_THREAD = 4  # sent ahead, per thread of the workers
_TOKEN = ".worker-"
# Packages that send tasks (distributed requires its own version of Dask), and those that results depend on: decoders,
# arithmetic, compiled kernels.
_SENT_WITH = ("distributed", "cloudpickle")
_PACKAGES = ("visterm", *_SENT_WITH, "numpy", "scipy", "numba", "scikit-learn", "opencv-python-headless", "pillow")
_SAME = "install the same packages everywhere"
_RESUME = "finished work is kept; re-run the same command to resume"


class _Place(NamedTuple):
    """Files and versions that a worker must have; sent with every task."""

    token: Path  # in the run's folder, with a unique name: seen only on the same storage
    image: Path | None
    size: int  # of the image, in bytes
    versions: dict[str, str]


class Cluster:
    """The workers of a Dask scheduler; see `connected`."""

    def __init__(self, client: Any, address: str, place: _Place):
        self._client = client
        self._address = address
        self._place = place

    def map(self, function: Callable, tasks: Iterable[tuple]) -> Iterator[Any]:
        """Yield ``function(*task)`` of each task, in order; a bounded number of tasks is sent ahead.

        A task is repeated if its worker dies, so its result must not depend on where it runs. UserError as `connected`,
        or if the scheduler is lost, no worker is left, or a task kills each worker that runs it.
        """
        tasks, waiting = iter(tasks), deque[Any]()
        try:
            while True:
                room = TASKS_PER_THREAD * max(self._n_threads(), 1) - len(waiting)
                for task in itertools.islice(tasks, max(room, 0)):
                    # As one object: Dask would search all lists and tuples among arguments for tasks.
                    work = functools.partial(_work, self._place, function, task)
                    with self._connected():
                        waiting.append(self._client.submit(work, pure=False))
                if not waiting:
                    return
                yield self._result(waiting.popleft())
        finally:
            if waiting and self._client.status == "running":
                self._client.cancel(list(waiting))

    def _n_threads(self) -> int:
        """Return the number of threads of all workers."""
        with self._connected():
            return sum(self._client.nthreads().values())

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn errors of a client that has lost the scheduler, or has closed itself since, into one line."""
        try:
            yield
        except Exception as error:  # a closed client raises many types of errors, without a common one
            if isinstance(error, OSError) or self._is_closed():
                raise self._lost() from None
            raise

    def _is_closed(self) -> bool:
        """Return whether the client has given up waiting for the scheduler to come back."""
        return self._client.status in ("closing", "closed")

    def _lost(self) -> UserError:
        return UserError(f"{self._address}: the scheduler is lost; {_RESUME}")

    def _result(self, future: Any) -> Any:
        """Wait for a result while there are workers."""
        import distributed

        no_worker_since = None
        while not future.done():
            if self._is_closed():  # a task sent at that moment never ends
                raise self._lost()
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=1)
            now = time.monotonic()
            no_worker_since = None if self._client.status != "running" or self._n_threads() else no_worker_since or now
            if no_worker_since is not None and now - no_worker_since > NO_WORKER_SECONDS:
                raise UserError(f"{self._address}: no worker is left; start some; {_RESUME}")
        if future.cancelled():
            raise self._lost()
        try:
            return future.result()
        except distributed.KilledWorker as error:
            raise UserError(
                f"{self._address}: a task killed {error.allowed_failures + 1} workers, the last one "
                f"{error.last_worker.address}; if they ran out of memory, raise --memory-limit; {_RESUME}"
            ) from None


@contextlib.contextmanager
def connected(config: Config, run: Run, image: Path | None = None) -> Iterator[Cluster]:
    """Connect to the cluster of the configuration.

    The caller has locked the run. UserError if Dask is not installed, the scheduler cannot be reached or has no
    workers, or a worker has other versions of packages, does not see ``image`` or the run's folder, or cannot write
    there.
    """
    address = config.cluster.scheduler
    assert address is not None, "visterm.pipeline.workers connects only where there is one"
    try:
        import dask
        import distributed
    except ModuleNotFoundError as error:
        raise UserError(f"cluster.scheduler needs {error.name}: {how_to_install('dask')}") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # problems are reported as UserError
    folder = run.folder.absolute()
    _remove_tokens(folder)  # of a killed process
    token = folder / f"{_TOKEN}{uuid.uuid4().hex}"
    # The first tasks of a codebook are larger than Dask wants a graph to be; they are not a graph.
    settings = {"distributed.admin.large-graph-warning-threshold": "1GiB"}
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        try:
            asyncio.run(asyncio.wait_for(_shake_hands(address), CONNECT_SECONDS))
            client = stack.enter_context(_client(distributed.Client, address))
        except Exception as error:  # a server of another kind may send anything
            raise UserError(
                f"{address}: no Dask scheduler answers ({_first_line(error)}); start one with 'dask scheduler', "
                "or use --scheduler none to work on this machine only"
            ) from None
        stack.callback(_remove_tokens, folder)
        token.touch()
        size = 0 if image is None else _size(image) or 0
        place = _Place(token, image if size else None, size, _versions())
        _check_versions(client, address)
        reasons = client.run(_problem, place, on_error="return")
        for worker, reason in sorted(reasons.items()):
            if reason is not None:
                raise UserError(f"worker {worker} {reason}")
        yield Cluster(client, address, place)


def _remove_tokens(folder: Path) -> None:
    """Remove the files that show whether a worker sees the run's folder."""
    for file in folder.glob(f"{_TOKEN}*"):
        file.unlink(missing_ok=True)


async def _shake_hands(address: str) -> None:
    """Connect once with a timeout; a client would wait forever for a server that accepts and stays silent."""
    from distributed.core import connect
    from distributed.security import Security

    arguments = Security().get_connection_args("client")  # of Dask's own configuration
    communication = await connect(address, timeout=CONNECT_SECONDS, **arguments)
    await communication.close()


@contextlib.contextmanager
def _client(kind: Any, address: str) -> Iterator[Any]:
    with warnings.catch_warnings(action="ignore"):  # about versions, which are compared below
        client = kind(address, timeout=CONNECT_SECONDS, set_as_default=False)
    try:
        yield client
    finally:
        with contextlib.suppress(Exception):  # the scheduler may be lost
            client.close(timeout=CONNECT_SECONDS)


def _check_versions(client: Any, address: str) -> None:
    """Raise if there are no workers, or if workers or scheduler have other versions of packages."""
    deadline = time.monotonic() + CONNECT_SECONDS
    while not client.nthreads():
        if time.monotonic() > deadline:
            raise UserError(f"{address}: this scheduler has no workers; start some with 'dask worker {address}'")
        time.sleep(0.1)
    theirs = client.get_versions(packages=list(_PACKAGES))
    for worker, versions in sorted(theirs["workers"].items()):
        packages = {} if versions is None else versions["packages"]
        if reason := _other_version(packages, _versions()):
            raise UserError(f"worker {worker} {reason}")
    packages = theirs["scheduler"]["packages"]
    if reason := _other_version(packages, {name: _versions()[name] for name in ("python", "visterm", "distributed")}):
        raise UserError(f"scheduler {address} {reason}")  # it handles the pickled tasks


@functools.cache
def _versions() -> dict[str, str]:
    """Return the versions of the packages that must be the same, and the first two numbers of Python's."""
    import sys

    versions = {"python": "{}.{}".format(*sys.version_info)}
    for name in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def _other_version(theirs: dict[str, str | None], wanted: dict[str, str]) -> str | None:
    """Return why a worker with these versions may give other results, or None."""
    for name, own in wanted.items():
        other = theirs.get(name)
        if name == "python" and other is not None:
            other = ".".join(other.split(".")[:2])
        if other is None:
            return f"has no {name}; {_SAME}"
        if other != own:
            return f"has {name} {other}, this machine {own}; {_SAME}"
    return None


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def _problem(place: _Place) -> str | None:
    """Return why this process cannot work for a run, or None."""
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
        return f"cannot write to {folder} ({system_reason(error)})"
    if place.image is not None and _size(place.image) != place.size:
        return f"does not see the image {place.image}; the images must lie on storage that all workers share"
    return None


def _work(place: _Place, function: Callable, arguments: tuple) -> Any:
    """Run a task on a worker, after checking the worker."""
    import distributed

    here = f"worker {distributed.get_worker().address}"
    if reason := _problem(place):
        raise UserError(f"{here} {reason}; {_RESUME}")
    try:
        return function(*arguments)
    except OSError as error:
        raise UserError(f"{here}: {explain_system_error(error, advice=f'fix this; {_RESUME}')}") from error


def _first_line(error: Exception) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {CONNECT_SECONDS} s"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
