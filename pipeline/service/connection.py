"""Limits of a connection, which hold before a request is complete and any token is checked.

uvicorn's own limits are not enough: its fast parser (httptools) accepts heads of any size, no time limit holds until a
request is complete, and at the limit of connections those that send nothing keep everybody else out.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .responses import SECURITY_HEADERS, error_response

CONNECTIONS = 800  # including idle ones; below the usual limit of 1,024 open files
HEAD_BYTES = 64 * 1024  # request line and headers; also chunk headers and trailers between two parts of a body
MAX_HEADERS = 100
HEAD_SECONDS = 10.0  # from the connection to a complete head; from the first byte on for later requests
IDLE_SECONDS = 10  # between two requests of a connection
STALL_SECONDS = 10.0  # without the client reading any of its response
LINGER_SECONDS, LINGER_BYTES = 1.0, 2**20  # reading on after a refusal
_STEP = 16 * 1024  # bytes of a head that are parsed before the limits are checked


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's HTTP connection with limits of its head, of time and of their number.

    Beyond `CONNECTIONS`, the connection that has waited for its client longest is closed: one without a request, or
    else one whose client is still sending its body or does not read the response. If there is none, the new connection
    is answered with status 503.
    """

    # uvicorn narrows the type of the transport, too.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; close another one if there are too many."""
        super().connection_made(transport)
        self._unparsed = 0  # bytes since the parser last completed a head or passed on some body
        self._n_headers = 0
        self._in_head, self._in_body = False, False
        self._refused, self._discarded = False, 0
        self._received_at = self._waiting_since = time.monotonic()
        self._stalled_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._expect_head()
        if len(self.connections) > CONNECTIONS and not self._close_another():
            self.app = _unavailable

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    # ------------------------------------------------------------------------------------------------ the head

    def data_received(self, data: bytes) -> None:
        """Parse data; refuse a head that is too large, and close the connection."""
        if self._refused:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:  # slows down a client that sends on and on
                self.transport.pause_reading()
            return
        self._received_at = time.monotonic()
        step = len(data) if self._in_body else _STEP
        for start in range(0, len(data), step):
            if self._refused or self.transport.is_closing():
                return
            part = data[start : start + step]
            self._unparsed += len(part)
            super().data_received(part)
            if self._unparsed > HEAD_BYTES or self._n_headers > MAX_HEADERS:
                text = f"the limits of a request's head are {HEAD_BYTES:,} bytes and {MAX_HEADERS} headers"
                self._refuse(431, text)
        if self._in_head or not (self._in_body or self._busy()):
            self._expect_head()

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._in_head, self._n_headers = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer of a body."""
        self._n_headers += 1
        if self._n_headers <= MAX_HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the response, unless the head is refused; the middleware refuses what has waited for too long."""
        if self._n_headers > MAX_HEADERS:
            return
        self._unparsed, self._in_head, self._in_body = 0, False, True
        self._cancel_head_timer()
        self.scope["state"]["received_at"] = self._received_at
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._unparsed = 0
        if self._n_headers <= MAX_HEADERS:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unparsed, self._in_body = 0, False
        self._cancel_head_timer()
        if self._n_headers <= MAX_HEADERS:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of this one, which nobody reads any more."""
        self._waiting_since = time.monotonic()
        super().on_response_complete()
        if self._in_body:
            self._expect_head()

    def _expect_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self._busy():  # with an earlier request of the same client
            self._expect_head()
        elif self._in_head:
            self._refuse(408, f"too slow: the limit of a request's head is {HEAD_SECONDS:.0f} s")
        else:
            self.transport.close()

    # ------------------------------------------------------------------------------------------------ refusing

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; called by uvicorn."""
        self._refuse(400, "invalid HTTP request")

    def _refuse(self, status: int, text: str) -> None:
        """Send an error, unless a response is under way, and close the connection."""
        if self._refused:
            return
        self._refused = True
        if self._busy():
            if self.cycle.response_started:
                self.transport.close()
                return
            self.cycle.disconnected = True  # for the application, which waits for the body
            self.cycle.message_event.set()
        headers = {**SECURITY_HEADERS, "Connection": "close"}
        response = error_response(status, text, headers)
        lines = [b"%s: %s\r\n" % header for header in (*self.server_state.default_headers, *response.raw_headers)]
        self.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", bytes(response.body))))
        self.transport.write_eof()
        # Closed with unread data, the connection would be reset, and the error lost.
        self.loop.call_later(LINGER_SECONDS, self.transport.close)

    # ------------------------------------------------------------------------------------ not reading, not sending

    def pause_writing(self) -> None:
        """Watch a client that does not read its response."""
        super().pause_writing()
        self._stalled_bytes = self.transport.get_write_buffer_size()
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(STALL_SECONDS, self._check_stall)

    def resume_writing(self) -> None:
        """Go on with the response."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _check_stall(self) -> None:
        self._stall_timer = None
        unsent = self.transport.get_write_buffer_size()
        if unsent >= self._stalled_bytes:
            self.transport.abort()
        else:
            self._stalled_bytes = unsent
            self._stall_timer = self.loop.call_later(STALL_SECONDS, self._check_stall)

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _rank(self) -> tuple[bool, float] | None:
        """Return how soon to close this connection in favour of a new one, smallest first; None: not at all."""
        unsent = self._stall_timer is not None
        if self._busy() and not self._in_body and not unsent:
            return None  # the service is working on it
        return self._busy() or unsent, self._waiting_since

    def _close_another(self) -> bool:
        others = cast("set[LimitedConnection]", self.connections) - {self}
        ranks = {other: rank for other in others if (rank := other._rank()) is not None}
        if not ranks:
            return False
        oldest = min(ranks, key=lambda other: ranks[other])
        self.connections.discard(oldest)  # now, so that the next new connection closes another one
        oldest.transport.abort()
        return True


async def _unavailable(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request for which there is no connection left."""
    text = f"all {CONNECTIONS} connections are in use; try again in a second"
    headers = {**SECURITY_HEADERS, "Connection": "close", "Retry-After": "1"}
    await error_response(503, text, headers)(scope, receive, send)
