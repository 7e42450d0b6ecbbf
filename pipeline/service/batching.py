"""Bounded pools of threads, and searches answered together."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")


class Pool:
    """Threads for work that takes more than a millisecond, and a queue that ends.

    Parameters
    ----------
    workers : int
    waiting : int
        How many calls may wait beside those at work; the next is refused.
    """

    def __init__(self, workers: int, waiting: int):
        self._threads = ThreadPoolExecutor(workers)
        self._most = workers + waiting
        self._busy = 0  # of the event loop's thread alone

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function in a thread.

        Raises
        ------
        HTTPException
            429: the queue is full.
        """
        if self._busy >= self._most:
            raise too_busy()
        self._busy += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)
        finally:
            self._busy -= 1

    def close(self) -> None:
        """Drop what waits, and let what runs end."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class MicroBatcher:
    """A pool for calls that cost less together: a worker that is free takes all that wait, up to `most`.

    So a call alone is answered at once, and the more come, the less each costs.

    Parameters
    ----------
    function : callable (list of questions) -> list of answers
        An answer that is an exception is raised to whoever asked.
    workers, waiting : int
        As of `Pool`.
    most : int
        Questions of one call.
    """

    def __init__(self, function: Callable[[list[Any]], list[Any]], workers: int, waiting: int, most: int):
        self._function, self._threads = function, ThreadPoolExecutor(workers)
        self._workers, self._limit, self._most = workers, waiting, most
        self._waiting: list[tuple[Any, asyncio.Future]] = []
        self._working: set[asyncio.Task | None] = set()

    async def run(self, question: Any) -> Any:
        """Answer one question.

        Raises
        ------
        HTTPException
            429: the queue is full.
        """
        if len(self._waiting) >= self._limit:
            raise too_busy()
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if len(self._working) < self._workers:
            task = asyncio.create_task(self._work())
            self._working.add(task)
        return await future

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._answer(batch)
        finally:  # in the step that saw the queue empty: a question that comes next needs a new worker
            self._working.discard(asyncio.current_task())

    async def _answer(self, batch: list[tuple[Any, asyncio.Future]]) -> None:
        questions = [question for question, _ in batch]
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._threads, self._function, questions)
        except Exception as error:
            found = [error] * len(batch)
        for (_, future), answer in zip(batch, found, strict=True):
            if future.done():  # who asked is gone
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def close(self) -> None:
        """Let what runs end."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def too_busy() -> HTTPException:
    """The refusal of a full queue."""
    return HTTPException(429, "too many requests at once; try again in a second", {"Retry-After": "1"})


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
