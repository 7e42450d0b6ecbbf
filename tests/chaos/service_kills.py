"""The service killed among uploads and marks: what it acknowledged is there, and it starts again."""

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
from world import World, start, state

_SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
_STARTS = 30.0  # seconds at most
_UNTOUCHED = ("catalogue", "vectors", "oasis", "ratings")


def attempt(world: World, seed: int) -> str | None:
    """Kill the service at a random moment; ask a new one for what the old one acknowledged."""
    chance = random.Random(seed)
    wanted = world.once("untouched", lambda: _state(world))
    with world.copy() as folder:
        uploads: list[str] = []
        marks: Counter[tuple] = Counter()
        service = start("serve", "--run", "fruit", "--port", "0", cwd=folder)
        if (address := listening(service)) is None:
            return f"does not start: {service.wait().err[-300:]}"
        work = [
            threading.Thread(target=_upload, args=(address, [seed, 0], uploads)),
            threading.Thread(target=_upload, args=(address, [seed, 1], uploads)),
            threading.Thread(target=_mark, args=(address, chance.random(), marks)),
        ]
        for thread in work:
            thread.start()
        time.sleep(chance.uniform(0, 1.0))
        number = chance.choice(_SIGNALS)
        os.kill(service.pid, number)
        ended = service.wait()
        for thread in work:
            thread.join()
        if number == signal.SIGKILL and ended.code != -number or number != signal.SIGKILL and ended.problem():
            return f"{signal.Signals(number).name}: {ended.problem() or ended.code}"
        again = start("serve", "--run", "fruit", "--port", "0", cwd=folder)
        if (address := listening(again)) is None:
            return f"does not start again: {again.wait().err[-300:]}"
        try:
            problem = _lost(address, uploads, marks) or _half_written(folder / "runs/fruit/service")
        finally:
            os.kill(again.pid, signal.SIGTERM)
            ended = again.wait()
        if problem or ended.problem():
            return problem or f"the new service: {ended.problem()}"
        now = {part: value for part, value in state(folder).items() if part in _UNTOUCHED}
        return (
            None if now == wanted else f"the run has changed: {[part for part in wanted if now[part] != wanted[part]]}"
        )


def _state(world: World) -> dict[str, Any]:
    with world.copy() as folder:
        return {part: value for part, value in state(folder).items() if part in _UNTOUCHED}


def listening(service: start) -> str | None:
    """Where it listens, once it does; None if it ends or says nothing in time."""
    end = time.monotonic() + _STARTS
    while time.monotonic() < end:
        text = service.files[0].read_text() if service.files[0].exists() else ""
        if text.startswith("http") and "\n" in text:
            return text.splitlines()[0].rstrip("/")
        if os.waitid(os.P_PID, service.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return None
        time.sleep(0.01)
    os.kill(service.pid, signal.SIGKILL)
    return None


def _upload(address: str, seed: list[int], acknowledged: list[str]) -> None:
    """Search with new pictures until the service is gone."""
    rng = np.random.default_rng(seed)
    with httpx.Client(base_url=address, timeout=30) as client:
        try:
            while True:
                pixels = cv2.resize(rng.integers(0, 256, (6, 8, 3), np.uint8), (400, 300))
                data = cv2.imencode(".jpg", pixels)[1].tobytes()
                response = client.post("/search", files={"file": ("a.jpg", data)}, data={"k": "1"})
                if response.status_code == 200 and response.json()[0].get("upload"):
                    acknowledged.append(response.json()[0]["upload"])
        except httpx.HTTPError:
            return


def _mark(address: str, share: float, acknowledged: Counter[tuple]) -> None:
    """Mark results until the service is gone."""
    chance = random.Random(share)
    with httpx.Client(base_url=address, timeout=30) as client:
        try:
            [answer] = client.get("/search", params={"id": 7, "k": 20}).json()
            while True:
                image = chance.choice(answer["results"])["id"]
                body = {"query": answer["key"], "image": image, "mark": chance.choice((1, -1)), "learner": "oasis"}
                if client.post("/marks", json=body).status_code == 200:
                    acknowledged[body["query"], body["image"], body["mark"]] += 1
        except httpx.HTTPError:
            return


def _lost(address: str, uploads: list[str], marks: Counter[tuple]) -> str | None:
    with httpx.Client(base_url=address, timeout=30) as client:
        gone = [key for key in uploads if client.get("/search", params={"upload": key, "k": 1}).status_code != 200]
        if gone:
            return f"{len(gone)} of {len(uploads)} acknowledged uploads are lost"
        kept = Counter((row["query"], row["image"], row["mark"]) for row in client.get("/feedback/export").json())
        lost = (marks - kept).total()
        return f"{lost} of {marks.total()} acknowledged marks are lost" if lost else None


def _half_written(folder: Path) -> str | None:
    for file in (folder / "uploads").glob("*.png"):
        if cv2.imread(str(file)) is None:
            return f"a picture is written by half: {file.name}"
    return None
