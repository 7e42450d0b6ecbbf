"""The service under load: ``python -m benchmarks service [--quick]``.

``visterm serve`` serves a run of synthetic vectors, with as many non-zeros as photographs have; its extractor is a real
one, trained on crops of photos. A second process searches by id at a fixed rate. The times of its requests are set
beforehand: a request delayed by a slow one before it counts with its whole delay. Meanwhile ``visterm train`` publishes
another model and ``visterm add`` adds images, as separate processes on the same cores. Counted: latencies; errors; and
stale answers, those of an older version than GET /health had reported before the request was sent.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from pathlib import Path

import numpy as np

from .processes import RUN, own_process, serving, temporary_folder, visterm
from .records import compared, record

N_VISTERMS = 10_000
RATE = 200
AIM = 100.0  # ms, the 99th percentile to stay below
NEW = 100  # images added meanwhile
CONNECTIONS = 64
SEGMENT = 10_000


def make_run(folder: Path, n_images: int) -> Path:
    """Create a run of n synthetic images and some real ones; return the folder of images to add later."""
    from visterm.pipeline.store.catalogue import Collection
    from visterm.plugins.demo.demo_images import write_demo_images

    from .edit import fill

    photos, new, runs = folder / "photos", folder / "new", folder / "runs"
    write_demo_images(photos)
    new.mkdir()
    for i, file in enumerate(sorted(photos.rglob("*.jpg"))[::2][:NEW]):
        file.rename(new / f"{i}.jpg")
    visterm(runs, "features", photos, "--set", f"features.n_visterms={N_VISTERMS}")
    visterm(runs, "train", "--learner", "oasis", "--set", "oasis.n_steps=20000")
    with Collection(runs / RUN / "collection") as collection:
        fill(collection, n_images, SEGMENT)
        (photos / "made-up").mkdir()
        for image in collection.images():  # photos whose files are gone are no results
            (photos / image.path).touch()
    return new


# -- the client, a process of its own ----------------------------------------------------------------------------------


class Connection:
    """One kept-alive connection with a minimal HTTP client, which costs little."""

    def __init__(self, port: int):
        self.port, self.reader, self.writer = port, None, None

    async def get(self, path: str) -> tuple[int, bytes]:
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])
        return int(head[9:12]), await self.reader.readexactly(length)


async def ask(port: int, n_images: int, rate: float, seconds: float) -> dict:
    """Send requests for `seconds` at `rate`; all times count from the start."""
    rng = np.random.default_rng(1)
    ids = rng.integers(1, n_images, int(rate * seconds))
    free: asyncio.Queue = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(Connection(port))
    rows: list[tuple[float, float, int, str, str]] = []
    reported = [""]  # the version in force, as last reported
    versions: list[tuple[float, str]] = []
    health = Connection(port)
    started = time.perf_counter()

    async def one(number: int, due: float) -> None:
        connection = await free.get()
        known = reported[0]
        try:
            status, body = await connection.get(f"/search?id={number}&k=10")
            match = re.search(rb'"version":"(\w+)"', body)
            version = match[1].decode() if match else ""
        except (OSError, asyncio.IncompleteReadError) as error:
            status, version, connection = 0, type(error).__name__, Connection(port)
        rows.append((due, time.perf_counter() - started - due, status, version, known))
        free.put_nowait(connection)

    async def watch() -> None:
        while True:
            version = json.loads((await health.get("/health"))[1])["version"]
            if version != reported[0]:
                reported[0] = version
                versions.append((time.perf_counter() - started, version))
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.2)
    tasks = []
    begin = time.perf_counter() - started
    for i, number in enumerate(ids):
        due = begin + i / rate
        wait = due - (time.perf_counter() - started)
        if wait > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(int(number), due)))
    await asyncio.gather(*tasks)
    watching.cancel()
    order = [version for _, version in versions]
    latencies = np.array([row[1] for row in rows])
    return {
        "n": len(rows),
        "errors": [row[2:4] for row in rows if row[2] != 200],
        "stale": sum(row[2] == 200 and row[3] in order and order.index(row[3]) < order.index(row[4]) for row in rows),
        "milliseconds": {str(q): 1000 * float(np.quantile(latencies, q / 100)) for q in (50, 90, 99, 99.9, 100)},
        "versions": versions,
        "took": time.perf_counter() - started - begin,
        # When the slowest requests were sent, for debugging.
        "slowest": [(round(row[0], 1), round(1000 * row[1])) for row in sorted(rows, key=lambda r: -r[1])[:10]],
    }


# -- all of it ---------------------------------------------------------------------------------------------------------


def send_requests(port: int, n_images: int, rate: float, seconds: float) -> dict:
    return asyncio.run(ask(port, n_images, rate, seconds))


def measure(n_images: int, seconds: float, rate: float = RATE) -> dict:
    with temporary_folder() as folder:
        new, runs = make_run(folder, n_images), folder / "runs"
        with serving(runs) as (port, _), own_process() as client:
            asking = client.submit(send_requests, port, n_images, rate, seconds)
            time.sleep(seconds / 4)
            visterm(runs, "train", "--learner", "oasis", "--set", "oasis.n_steps=25000")
            time.sleep(seconds / 10)
            visterm(runs, "add", new)
            figures = asking.result(timeout=10 * seconds)
    assert len(figures["versions"]) == 3, f"not all changes were taken up: {figures['versions']}"
    return figures


def run(quick: bool = False) -> list[dict]:
    n_images, seconds = (5_000, 30) if quick else (100_000, 60)
    load = measure(n_images, seconds)
    print(json.dumps(load, indent=1), file=sys.stderr)
    times = load["milliseconds"]
    return [
        record(
            "service-p99",
            f"99 of 100 requests by id at {RATE}/s, {n_images:,} images, {N_VISTERMS:,} visterms, with a model "
            f"swap and {NEW} images added in the middle; {len(load['errors'])} errors, {load['stale']} stale answers",
            "what is aimed at",
            f"half took {times['50']:.1f} ms, the slowest of {load['n']:,} {times['100']:.0f} ms",
            compared(times["99"], AIM, "ms", load["n"]),
            measured=f"{seconds} s, 2 cores for service, client, training and extraction; from when it was due",
        )
    ]
