"""Slow down clients that guess tokens."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from time import monotonic

FREE_FAILURES = 10  # wrong tokens of a client without consequences
MAX_PAUSE = 60.0  # seconds
_FORGET_SECONDS = 600.0  # after the last wrong token
_MAX_CLIENTS = 10_000  # remembered; the one whose last wrong token is oldest is forgotten first


class FailedTokens:
    """Wrong tokens by client: beyond `FREE_FAILURES`, each one starts a pause, twice as long as the one before.

    Within a pause no token of the client is checked, not even the right one: an answer would tell them apart. A client
    is an IPv4 address or an IPv6 network of 64 bits, which usually has one owner.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # number and time of the last

    def pause(self, address: str) -> float:
        """Return the seconds for which tokens of a client are not checked."""
        n, last = self._failures.get(_client(address), (0, 0.0))
        return max(0.0, last + _pause_after(n) - monotonic())

    def add(self, address: str) -> None:
        """Count a wrong token of a client."""
        client, now = _client(address), monotonic()
        n, last = self._failures.pop(client, (0, 0.0))
        self._failures[client] = (n + 1 if now < last + _FORGET_SECONDS else 1), now
        if len(self._failures) > _MAX_CLIENTS:
            self._failures.popitem(last=False)

    def forget(self, address: str) -> None:
        """Forget the wrong tokens of a client that has sent the right one."""
        self._failures.pop(_client(address), None)


def _pause_after(n: int) -> float:
    return 0.0 if n < FREE_FAILURES else min(MAX_PAUSE, 2.0 ** min(n - FREE_FAILURES, 10))


def _client(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a socket of the file system, a name from a proxy
        return address[:64]
    if ip.version == 4:
        return str(ip)
    return str(ip.ipv4_mapped or ipaddress.ip_network((ip, 64), strict=False))
