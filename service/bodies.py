"""Bodies of requests, read within limits before the application sees the request."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

JSON_BYTES = 64 * 1024  # limit of a request body without upload
MAX_CONCURRENT_UPLOADS = 4  # held in memory
UPLOAD_TURN_SECONDS = 10.0  # waiting for one of those places
SECONDS_BETWEEN_BYTES = 10.0
SECONDS_FOR_BODY = 60.0
_MAX_DISCARDED = 64 * 2**20  # bytes read after a refusal: a browser shows the response only once its body is read


class Disconnected(Exception):
    """The client disconnected before its request was complete."""


async def read_body(receive: Receive, headers: Headers, limit: int) -> deque[bytes]:
    """Read a body up to a limit, in parts; its Content-Length may be wrong or missing."""
    too_large = HTTPException(413, f"too large: the limit of this request is {limit:,} bytes", {"Connection": "close"})
    claimed = claimed_length(headers) or 0
    refused = claimed > limit
    waits = refused and headers.get("expect")  # for permission to send
    if claimed > limit + _MAX_DISCARDED or waits:
        raise too_large
    parts: deque[bytes] = deque()
    size, more = 0, True
    try:
        async with asyncio.timeout(SECONDS_FOR_BODY):
            while more:
                async with asyncio.timeout(SECONDS_BETWEEN_BYTES):
                    message = await receive()
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
                more = message.get("more_body", False)
    except TimeoutError:
        if not refused:
            limits = f"{SECONDS_BETWEEN_BYTES:.0f} s without data and {SECONDS_FOR_BODY:.0f} s in all"
            raise HTTPException(408, f"too slow: the limits are {limits}", {"Connection": "close"}) from None
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
