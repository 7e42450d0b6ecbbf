"""Bodies of requests, read within limits before the application sees the request."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from .batching import FairQueue

JSON_BYTES = 64 * 1024  # limit of a request body without upload
MAX_CONCURRENT_UPLOADS = 8  # held in memory
UPLOAD_TURN_SECONDS = 10.0  # waiting for one of those places
SECONDS_BETWEEN_BYTES = 10.0
SECONDS_FOR_BODY = 60.0
YIELD_SECONDS = 5.0  # the same while others wait for a place
_MAX_DISCARDED = 64 * 2**20  # bytes read after a refusal: a browser shows the response only once its body is read
_CHECK_SECONDS = 0.5


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


class UploadPlaces:
    """Places for uploads that are held in memory, which clients take in turns.

    While others wait, an upload that takes longer than `YIELD_SECONDS` to arrive loses its place: the longest of the
    client with most places, so that slow clients keep nobody out.
    """

    def __init__(self) -> None:
        self.queue = FairQueue(MAX_CONCURRENT_UPLOADS, UPLOAD_TURN_SECONDS)
        self._arriving: dict[object, tuple[str, float]] = {}  # client and start

    @asynccontextmanager
    async def place(self, client: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        async with self.queue.place(client):
            yield

    async def read(self, receive: Receive, headers: Headers, limit: int, client: str) -> deque[bytes]:
        """Read the body of an upload that has a place; see `read_body`."""
        upload = object()
        self._arriving[upload] = client, time.monotonic()
        try:
            return await read_body(receive, headers, limit, lambda: self._must_yield(upload))
        finally:
            del self._arriving[upload]

    def _must_yield(self, upload: object) -> bool:
        if not self.queue.n_waiting or time.monotonic() < self._arriving[upload][1] + YIELD_SECONDS:
            return False
        places = Counter(client for client, _ in self._arriving.values())
        return upload is min(self._arriving, key=lambda u: (-places[self._arriving[u][0]], self._arriving[u][1]))


async def read_body(
    receive: Receive, headers: Headers, limit: int, must_yield: Callable[[], bool] = lambda: False
) -> deque[bytes]:
    """Read a body up to a limit, in parts; its Content-Length may be wrong or missing."""
    too_large = HTTPException(413, f"too large: the limit of this request is {limit:,} bytes", {"Connection": "close"})
    claimed = claimed_length(headers) or 0
    parts: deque[bytes] = deque()
    size, refused = 0, claimed > limit
    if claimed > limit + _MAX_DISCARDED or (
        refused and headers.get("expect")
    ):  # the client waits for permission to send
        raise too_large
    started = heard = time.monotonic()
    while True:
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                message = await receive()
        except TimeoutError:
            message = None
        now = time.monotonic()
        if message is not None:
            heard = now
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            refused = refused or size > limit
            if not refused:
                parts.append(part)
            else:
                parts.clear()
                if size > limit + _MAX_DISCARDED:
                    raise too_large
            if not message.get("more_body", False):
                break
        if now > heard + SECONDS_BETWEEN_BYTES or now > started + SECONDS_FOR_BODY:
            text = f"the limits are {SECONDS_BETWEEN_BYTES:.0f} s without data and {SECONDS_FOR_BODY:.0f} s in all"
        elif must_yield():
            text = f"other uploads wait, and the limit is then {YIELD_SECONDS:.0f} s; try again"
        else:
            continue
        raise too_large if refused else HTTPException(408, f"too slow: {text}", {"Connection": "close"})
    if refused:
        raise too_large
    return parts


def claimed_length(headers: Headers) -> int | None:
    """Return the Content-Length; None without a valid one."""
    claimed = headers.get("content-length", "")
    return int(claimed) if claimed.isascii() and claimed.isdecimal() and len(claimed) < 20 else None


def replay(parts: deque[bytes], receive: Receive) -> Receive:
    """Make a `receive` that returns a body which was already read, and forgets its parts one by one."""
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()  # only a disconnect can follow
        part = parts.popleft() if parts else b""
        sent = not parts
        return {"type": "http.request", "body": part, "more_body": not sent}

    return replayed
