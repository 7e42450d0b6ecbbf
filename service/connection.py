"""Limits of a connection, which hold before a request is complete and any token is checked.

uvicorn's own limits are not enough: its fast parser (httptools) accepts heads of any size, and no time limit holds
until a request is complete, so that connections that send nothing would stay forever.
"""

from __future__ import annotations

import asyncio
import time

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .responses import SECURITY_HEADERS, error_response

CONNECTIONS = 800  # including idle ones; below the usual limit of 1,024 open files
HEAD_BYTES = 64 * 1024  # request line and headers; also chunk headers and trailers between two parts of a body
MAX_HEADERS = 100
HEAD_SECONDS = 10.0  # from the connection to a complete head; from the first byte on for later requests
IDLE_SECONDS = 10  # between two requests of a connection
LINGER_SECONDS, LINGER_BYTES = 1.0, 2**20  # reading on after a refusal
_STEP = 16 * 1024  # bytes of a head that are parsed before the limits are checked


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's HTTP connection with limits of its head, of the time for it, and of the number of connections.

    The last one is not uvicorn's `limit_concurrency`, which keeps those open that it has no place for, and answers
    their requests in plain text.
    """

    # uvicorn narrows the type of the transport, too.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection; refuse it if there are too many."""
        super().connection_made(transport)
        self._unparsed = 0  # bytes since the parser last completed a head or passed on some body
        self._n_headers = 0
        self._in_head, self._in_body = False, False
        self._refused, self._discarded = False, 0
        self._received_at = time.monotonic()
        self._head_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > CONNECTIONS:
            self._refuse(503, f"all {CONNECTIONS} connections are in use; try again in a second", {"Retry-After": "1"})
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._cancel_head_timer()
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
        """Limit the time for the rest of the body, which nobody reads any more."""
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

    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    # ------------------------------------------------------------------------------------------------ refusing

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; called by uvicorn."""
        self._refuse(400, "invalid HTTP request")

    def _refuse(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
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
        response = error_response(status, text, {**SECURITY_HEADERS, "Connection": "close", **(headers or {})})
        lines = [b"%s: %s\r\n" % header for header in (*self.server_state.default_headers, *response.raw_headers)]
        self.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", bytes(response.body))))
        self.transport.write_eof()
        # Closed with unread data, the connection would be reset, and the error lost.
        self.loop.call_later(LINGER_SECONDS, self.transport.close)
