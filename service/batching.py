"""Queues of work for threads, which refuse what has waited for too long, and searches computed in batches."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException

T = TypeVar("T")
_NICENESS = 10  # of pictures: on a busy machine, the event loop, searches and the browser come first
_TRIM_SECONDS = 1.0  # after the last picture


class RequestPlaces:
    """A semaphore; a request that waits for it for longer than `max_seconds` is refused with status 429."""

    def __init__(self, places: int, max_seconds: float):
        self.places, self.max_seconds = places, max_seconds
        self.n_pending = 0  # requests that have a place or wait for one
        self._free = asyncio.Semaphore(places)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        self.n_pending += 1
        try:
            try:
                async with asyncio.timeout(self.max_seconds):
                    await self._free.acquire()
            except TimeoutError:
                raise too_busy() from None
            try:
                yield
            finally:
                self._free.release()
        finally:
            self.n_pending -= 1


class Pool(RequestPlaces):
    """A number of threads, and a queue of calls that wait for one.

    When the service stops, waiting calls are dropped and running ones end before the process does.
    """

    def __init__(self, workers: int, max_seconds: float):
        super().__init__(workers, max_seconds)
        self._limiter = CapacityLimiter(math.inf)  # the places limit

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread."""
        async with self.place():
            return await self._run(function, *arguments)

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await to_thread.run_sync(function, *arguments, limiter=self._limiter)


class NicePool(Pool):
    """Threads of low priority, for pictures; memory goes back to the system once none is left."""

    def __init__(self, workers: int, max_seconds: float):
        super().__init__(workers, max_seconds)
        self._threads = ThreadPoolExecutor(workers, "visterm-pictures", initializer=_be_nice)
        self._trim_timer: asyncio.TimerHandle | None = None

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, function, *arguments)
        finally:
            if self._trim_timer is not None:
                self._trim_timer.cancel()
            self._trim_timer = loop.call_later(_TRIM_SECONDS, self._threads.submit, _trim_memory)

    def close(self) -> None:
        """End the threads."""
        if self._trim_timer is not None:
            self._trim_timer.cancel()
        self._threads.shutdown(cancel_futures=True)


def _be_nice() -> None:
    with contextlib.suppress(OSError, AttributeError):  # on Linux, a thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _trim_memory() -> None:
    """Return freed memory to the system: the C library keeps that of decoded images for itself."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class _Waiting(NamedTuple):
    request: Any
    response: asyncio.Future
    since: float


class MicroBatcher:
    """Threads for requests that cost less in a batch: a free thread takes up to `batch_size` waiting requests.

    A single request is computed at once; the more requests arrive, the less each costs. If `function` returns an
    exception as a response, `run` raises it. Requests that wait for longer than `max_seconds` are refused with status
    429, new ones at once while one has waited for that long.
    """

    def __init__(self, function: Callable[[list[Any]], list[Any]], workers: int, max_seconds: float, batch_size: int):
        self.function, self.workers, self.max_seconds, self.batch_size = function, workers, max_seconds, batch_size
        self._limiter = CapacityLimiter(workers)
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task | None] = set()

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a thread."""
        return len(self._waiting)

    async def run(self, request: Any) -> Any:
        """Compute the response to one request."""
        now = time.monotonic()
        if self._waiting and now > self._waiting[0].since + self.max_seconds:
            raise too_busy()
        response = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request, response, now))
        if len(self._tasks) < self.workers:
            self._tasks.add(asyncio.create_task(self._work()))
        return await response

    async def _work(self) -> None:
        try:
            while self._waiting:
                if batch := self._next_batch():
                    await self._run_batch(batch)
        finally:  # in the step that saw the queue empty: the next request needs a new task
            self._tasks.discard(asyncio.current_task())

    def _next_batch(self) -> list[_Waiting]:
        """Take the oldest requests, and refuse those that are too old."""
        oldest = time.monotonic() - self.max_seconds
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < self.batch_size:
            waiting = self._waiting.popleft()
            if waiting.response.done():  # the client disconnected
                continue
            if waiting.since < oldest:
                waiting.response.set_exception(too_busy())
            else:
                batch.append(waiting)
        return batch

    async def _run_batch(self, batch: list[_Waiting]) -> None:
        requests = [waiting.request for waiting in batch]
        try:
            responses = await to_thread.run_sync(self.function, requests, limiter=self._limiter)
        except Exception as error:
            responses = [error] * len(batch)
        for waiting, response in zip(batch, responses, strict=True):
            if waiting.response.done():  # the client disconnected
                continue
            if isinstance(response, Exception):
                waiting.response.set_exception(response)
            else:
                waiting.response.set_result(response)


def too_busy() -> HTTPException:
    """Make the error for a request that has waited for too long."""
    return HTTPException(429, "too many requests at once; try again in a second", {"Retry-After": "1"})


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))
