"""Bounded queues of work for threads, and searches computed in batches."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException

T = TypeVar("T")


class Pool:
    """A number of threads, and a bounded queue of calls that wait for one; further calls are refused with status 429.

    When the service stops, waiting calls are dropped and running ones end before the process does.
    """

    def __init__(self, workers: int, max_waiting: int):
        self.max_pending = workers + max_waiting
        self.n_pending = 0  # counted here: the limiter counts a call only after it has yielded to others
        self._limiter = CapacityLimiter(workers)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread."""
        if self.n_pending >= self.max_pending:
            raise too_busy()
        self.n_pending += 1
        try:
            return await to_thread.run_sync(function, *arguments, limiter=self._limiter)
        finally:
            self.n_pending -= 1


class _Waiting(NamedTuple):
    request: Any
    response: asyncio.Future


class MicroBatcher:
    """Threads for requests that cost less in a batch: a free thread takes up to `batch_size` waiting requests.

    A single request is computed at once; the more requests arrive, the less each costs. If `function` returns an
    exception as a response, `run` raises it.
    """

    def __init__(self, function: Callable[[list[Any]], list[Any]], workers: int, max_waiting: int, batch_size: int):
        self.function, self.workers, self.max_waiting, self.batch_size = function, workers, max_waiting, batch_size
        self._limiter = CapacityLimiter(workers)
        self._waiting: list[_Waiting] = []
        self._tasks: set[asyncio.Task | None] = set()

    @property
    def n_waiting(self) -> int:
        """Requests that wait for a thread."""
        return len(self._waiting)

    async def run(self, request: Any) -> Any:
        """Compute the response to one request; refuse it with status 429 if the queue is full."""
        if len(self._waiting) >= self.max_waiting:
            raise too_busy()
        response = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(request, response))
        if len(self._tasks) < self.workers:
            self._tasks.add(asyncio.create_task(self._work()))
        return await response

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self.batch_size], self._waiting[self.batch_size :]
                await self._run_batch(batch)
        finally:  # in the step that saw the queue empty: the next request needs a new task
            self._tasks.discard(asyncio.current_task())

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
    """Make the error for a full queue."""
    return HTTPException(429, "too many requests at once; try again in a second", {"Retry-After": "1"})


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0))
