"""Attacks on the availability of `visterm serve`: ``python -m tests.chaos.attacks --seconds 60``.

Each attack runs in a process of its own, on the same machine, while /health and a search by id are asked in turn, each
request on a connection of its own. Printed: the share of answers within 250 ms, failed ones included as slow, and the
memory of the service before, at most, and five seconds afterwards.
"""

import argparse
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .hostile_requests import flat_png
from .service_process import Service, made_run, parse, request, send, serving

LIMIT = 0.25  # seconds
AIM = 0.99
EVERY = 0.05
MEMORY_AIM = 100.0  # MiB more than before
UPLOADERS, HEADERS, CONNECTIONS = 6, 8, 750  # the service takes 800
REPOSITORY = Path(__file__).parents[2]


def _upload(side: int) -> bytes:
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    body = head + flat_png(side) + b"\r\n--x--\r\n"
    return request("POST", "/search", body, (("Content-Type", "multipart/form-data; boundary=x"),))


def _in_threads(n: int, work: Callable[[], None]) -> None:
    def loop() -> None:
        while True:
            with suppress(OSError):
                work()

    print("ready", flush=True)
    for _ in range(n):
        threading.Thread(target=loop, daemon=True).start()
    threading.Event().wait()


def flat_images(address: tuple[str, int]) -> None:
    """Six clients upload pictures of one colour in a loop, some too large and some just not."""
    pictures = [_upload(7000), _upload(5000)]
    service = Address(address)
    _in_threads(UPLOADERS, lambda: void(send(service, random.choice(pictures), 60)))


def endless_headers(address: tuple[str, int]) -> None:
    """Eight clients send headers without an end."""

    def work() -> None:
        with socket.create_connection(address, timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nA: ")
            for _ in range(1000):
                connection.sendall(b"x" * 65_536)

    _in_threads(HEADERS, work)


def idle_connections(address: tuple[str, int]) -> None:
    """750 connections send nothing, half a header or half a body, and are opened again where they are closed."""
    starts = (
        b"",
        b"GET /health HTTP/1.1\r\nHost: loc",
        b"POST /marks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    )
    held: list[socket.socket] = []
    print("ready", flush=True)
    while True:
        for connection in list(held):
            with suppress(BlockingIOError):
                try:
                    gone = connection.recv(1000) == b""
                except ConnectionError:
                    gone = True
                if gone:
                    connection.close()
                    held.remove(connection)
        while len(held) < CONNECTIONS:
            with suppress(OSError):
                connection = socket.create_connection(address, timeout=10)
                connection.sendall(random.choice(starts))
                connection.setblocking(False)
                held.append(connection)
        time.sleep(0.1)


ATTACKS = {attack.__name__: attack for attack in (flat_images, endless_headers, idle_connections)}


class Address:
    """What `send` needs of a service."""

    def __init__(self, address: tuple[str, int]):
        self.host, self.port = address


def void(_: object) -> None:
    """Drop a value."""


def measure(service: Service, name: str | None, seconds: float) -> dict[str, float]:
    """Attack for some seconds, or do nothing; return shares, quantiles in ms and memory."""
    asked = {path: request("GET", path) for path in ("/health", "/search?id=1&k=10")}
    for data in asked.values():
        send(service, data)
    before = peak = service.memory()
    busy = service.processor_seconds()
    attacker = None
    if name is not None:
        command = [sys.executable, "-m", "tests.chaos.attacks", "--attack", name, f"{service.host}:{service.port}"]
        attacker = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert attacker.stdout is not None
        attacker.stdout.readline()  # it has started
        time.sleep(1)
    latencies: dict[str, list[float]] = {path: [] for path in asked}
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for path, data in asked.items():
                started = time.monotonic()
                answer = parse(send(service, data, 10))
                took = time.monotonic() - started
                latencies[path].append(took if answer is not None and answer.status == 200 else float("inf"))
                time.sleep(max(0.0, EVERY - took))
            peak = max(peak, service.memory())
    finally:
        if attacker is not None:
            attacker.kill()
            attacker.wait()
    time.sleep(5)
    figures = {}
    for path, values in latencies.items():
        values.sort()
        figures[f"{path} within 250 ms"] = sum(value <= LIMIT for value in values) / len(values)
        for q in (0.5, 0.99, 1.0):
            figures[f"{path} p{100 * q:.0f} ms"] = round(1000 * values[min(len(values) - 1, int(q * len(values)))], 1)
        figures[f"{path} asked"] = len(values)
    figures["processor share"] = (service.processor_seconds() - busy) / seconds
    return figures | {"memory before": before, "memory at most": peak, "memory afterwards": service.memory()}


def main() -> int:
    """Attack a service of a small run in all ways, or be an attacker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "ADDRESS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        name, address = options.attack
        host, _, port = address.rpartition(":")
        ATTACKS[name]((host, int(port)))
    held = True
    with made_run() as folder:
        for name in (None, *ATTACKS):
            with serving(folder) as service:
                figures = measure(service, name, options.seconds)
                print(
                    name or "no attack", json.dumps({key: round(value, 3) for key, value in figures.items()}, indent=1)
                )
                good = all(value >= AIM for key, value in figures.items() if key.endswith("within 250 ms"))
                good &= figures["memory afterwards"] <= figures["memory before"] + MEMORY_AIM
                good &= service.alive() and not service.output()
                print("held" if good else f"did not hold {service.output()[-500:]}", flush=True)
                held &= good
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
