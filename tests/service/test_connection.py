"""Limits of connections, which hold before any token is checked, and errors that the application does not see."""

import json
import socket
from contextlib import ExitStack

import pytest

from visterm.service import connection, middleware
from visterm.service.responses import SECURITY_HEADERS


@pytest.fixture(scope="module")
def guarded(made, serving):
    """A service with a token."""
    headers = {"Authorization": "Bearer tell nobody", "Connection": "close"}
    with serving(made, token="tell nobody", headers=headers) as client:
        yield client


@pytest.fixture
def connect(guarded):
    """Function (bytes) that connects, and sends them."""
    with ExitStack() as stack:

        def connect(data=b""):
            url = guarded.base_url
            connected = stack.enter_context(socket.create_connection((url.host, url.port), timeout=120))
            connected.sendall(data)
            return connected

        yield connect


def read(connected):
    """Read until the service closes the connection."""
    parts = []
    while part := connected.recv(100_000):
        parts.append(part)
    return b"".join(parts)


def check_error(answer, status, *words):
    """An error is JSON on one line, with the headers of every response, and nothing behind it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert first.startswith(f"HTTP/1.1 {status} ")
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert {name.lower(): value for name, value in SECURITY_HEADERS.items()}.items() <= headers.items()
    error = json.loads(body)
    assert (error["ok"], error["status"]) == (False, status)
    for word in words:
        assert word in error["error"]


HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
TOKEN = b"Authorization: Bearer tell nobody\r\n"
CHUNKED = b"POST /marks HTTP/1.1\r\nHost: localhost\r\n" + TOKEN + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = b"x" * connection.HEAD_BYTES


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"A: " + LONG,
        HEAD + b"A" * 90_000,
        b"GET /" + LONG,
        HEAD + b"A: b\r\n" * connection.MAX_HEADERS + b"\r\n",
        HEAD + b"A: b\r\n" * 20_000,
        CHUNKED + b"1\r\n \r\n0\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        CHUNKED + b"1\r\n \r\n0\r\nA: " + LONG + LONG,
        CHUNKED + b"1;" + LONG + LONG,
    ],
    ids=["value", "name", "url", "number", "endless number", "trailers", "trailer", "extension of a chunk"],
)
def test_heads_that_are_too_large(connect, data):
    check_error(read(connect(data)), 431, "65,536 bytes and 100 headers")


def test_largest_heads_and_invalid_http(connect):
    token = TOKEN + b"Connection: close\r\n"
    for more in (b"A: " + b"x" * 60_000 + b"\r\n", b"A: b\r\n" * (connection.MAX_HEADERS - 3)):
        assert read(connect(HEAD + token + more + b"\r\n")).startswith(b"HTTP/1.1 200 ")
    for data in (
        b"nonsense\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02",
    ):
        check_error(read(connect(data)), 400, "invalid HTTP")


def test_time_of_a_head(connect, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)
    assert read(connect()) == b""
    check_error(read(connect(HEAD)), 408, "too slow")
    check_error(read(connect(b"\r\n\r\n" + HEAD)), 408, "too slow")
    # Later requests of a connection, and the rest of a body that nobody reads, have no more time.
    answer = read(connect(HEAD + b"\r\n" + HEAD))
    assert answer.startswith(b"HTTP/1.1 200 ")
    check_error(answer[answer.index(b"HTTP/1.1 408") :], 408)
    assert read(connect(HEAD + b"Content-Length: 9\r\n\r\nx")).startswith(b"HTTP/1.1 200 ")


def test_no_connection_left(connect, guarded, monkeypatch):
    """One too many is refused at once, before it sends anything, and the others go on."""
    guarded.wait_until(lambda: not guarded.connections)
    monkeypatch.setattr(connection, "CONNECTIONS", 1)
    first = connect(HEAD)
    guarded.wait_until(lambda: len(guarded.connections) == 1)
    answer = read(connect())
    check_error(answer, 503, "connections")
    assert b"retry-after: 1\r\n" in answer
    first.sendall(TOKEN + b"Connection: close\r\n\r\n")
    assert read(first).startswith(b"HTTP/1.1 200 ")


def test_request_that_waits_for_the_event_loop(guarded, monkeypatch):
    monkeypatch.setattr(middleware, "START_SECONDS", -1.0)
    answer = guarded.get("/search?id=1")
    guarded.check_error(answer, 429, "try again")
    assert answer.headers["retry-after"] == "1"
    assert guarded.get("/health").status_code == 200
