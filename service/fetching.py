"""Fetch an image from an address of the web, without letting a request reach this machine's own networks.

The address must be http or https at the usual port and must not name a user. Its host is resolved once, every address
that it resolves to must be a public one, and the connection goes to that very address: a name that resolves to another
one a moment later (DNS rebinding) gains nothing. Redirects are followed by hand, with the same checks. No proxy of the
environment is used, no cookie is sent, and time and size are bounded.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import ipaddress
import socket
import ssl
import time
from typing import Any, cast
from urllib.parse import SplitResult, urljoin, urlsplit

SECONDS = 15.0  # for all of it
MAX_REDIRECTS = 3
_PORTS = {"http": 80, "https": 443}
_CHUNK = 2**16


class FetchError(Exception):
    """An address that cannot or must not be fetched; the text says why."""


def fetch_image(address: str, max_bytes: int) -> tuple[str, bytes]:
    """Fetch the bytes at an address; return a name for them, too.

    FetchError if it is no public address, does not answer in time, answers with an error or with more than `max_bytes`.
    """
    deadline = time.monotonic() + SECONDS
    for _ in range(MAX_REDIRECTS + 1):
        parts = _check(address)
        connection = _connect(parts, deadline)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", target, headers={"Accept": "image/*", "User-Agent": "visterm"})
            with connection.getresponse() as response:
                location = response.getheader("Location")
                if response.status in (301, 302, 303, 307, 308) and location:
                    address = urljoin(address, location)
                    continue
                if response.status != 200:
                    raise FetchError(f"{parts.hostname} answered with status {response.status}")
                name = parts.path.rsplit("/", 1)[-1][-200:] or str(parts.hostname)
                return name, _read(response, max_bytes)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = "timed out" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            raise FetchError(f"{parts.hostname}: {reason}") from None
        finally:
            connection.close()
    raise FetchError(f"more than {MAX_REDIRECTS} redirects")


def _check(address: str) -> SplitResult:
    try:
        parts = urlsplit(address.strip())
        port = parts.port
    except ValueError:
        raise FetchError("not a web address") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise FetchError("not a web address: give one that begins with https:// or http://")
    if port not in (None, _PORTS[parts.scheme]) or parts.username is not None:
        raise FetchError("only addresses at the usual port and without a user name are fetched")
    if not parts.path.isascii() or not parts.query.isascii() or any(c <= " " for c in parts.path + parts.query):
        raise FetchError("not a web address: blanks and letters outside of ASCII must be percent-encoded")
    return parts


def _connect(parts: SplitResult, deadline: float) -> http.client.HTTPConnection:
    """Connect to a host at a public address, and to no other."""
    host, port = str(parts.hostname), _PORTS[parts.scheme]
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise FetchError(f"{host[:100]}: no such host") from None
    addresses = [entry[4][0] for entry in entries]
    if not addresses or not all(is_public(str(address)) for address in addresses):
        raise FetchError(f"{host[:100]} is not a public address; this service fetches from no other")
    seconds = max(deadline - time.monotonic(), 0.1)
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connected = socket.create_connection((str(addresses[0]), port), timeout=seconds)
        if parts.scheme == "https":
            with contextlib.ExitStack() as undo:  # a refused certificate must not leave the socket open
                undo.callback(connected.close)
                connected = ssl.create_default_context().wrap_socket(connected, server_hostname=host)
                undo.pop_all()
    except OSError as error:
        raise FetchError(f"{host[:100]}: cannot connect ({error})") from None
    connection.sock = connected
    connection.response_class = cast(
        "Any", lambda sock, **options: http.client.HTTPResponse(cast("Any", _Until(sock, deadline)), **options)
    )  # of a socket it needs nothing but a stream
    return connection


class _Until(io.RawIOBase):
    """What a socket receives, until a deadline: its own timeout begins again with each byte."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._connected, self._deadline = connected, deadline
        self._received = connected.makefile("rb", buffering=0)  # keeps the socket open

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the stream that a response reads, as of a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return whether it can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Receive some bytes; TimeoutError after the deadline."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._connected.settimeout(seconds)
        return self._received.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket."""
        self._received.close()
        super().close()


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, also inside of an IPv6 form of an IPv4 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is not None:
            ip = inner
        elif ip in ipaddress.ip_network("64:ff9b::/96"):  # NAT64
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.is_global and not ip.is_multicast and not ip.is_reserved and not ip.is_unspecified


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    too_large = FetchError(f"larger than the limit of {max_bytes // 2**20} MiB")
    length = response.getheader("Content-Length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise too_large
    parts: list[bytes] = []
    size = 0
    while part := response.read1(_CHUNK):
        size += len(part)
        if size > max_bytes:
            raise too_large
        parts.append(part)
    return b"".join(parts)
