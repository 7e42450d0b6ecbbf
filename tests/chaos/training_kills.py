"""The service or its child process killed while it learns again or adds photos: old or new, and the next time works."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from service_kills import listening
from world import HANGS, World, start, state, write_images

_OF_PEOPLE = ("marks", "label edits")
_CHILD = {"train": "visterm.teaching.retrain", "add": "visterm.service.add_files"}
_LEARNERS = ("oasis", "aroma", "wsabie")
_EDITED = range(1, 7)  # images that get a label, which leaves all learners to be trained
_PHOTOS = 20  # added, in two parts
_WAITS = 300.0  # seconds at most for work to begin or to end


def attempt(world: World, seed: int) -> str | None:
    """Kill the service, its child or both at a random moment of the work; look at the run, and do the work again."""
    chance = random.Random(seed)
    work = chance.choice(("train", "add"))
    seconds, rows, old, new = world.once(f"{work} again", lambda: _undisturbed(world, work))
    victims = chance.choice((("service",), ("child",), ("service", "child")))
    from_start = chance.random() < 0.2  # else from when it has begun to learn, or to extract
    with world.copy() as folder, contextlib.ExitStack() as stack:
        service = stack.enter_context(_Service(folder))
        _prepare(service.client, folder, work)
        acknowledged: Counter[str] = Counter()
        people = threading.Thread(target=_people, args=(str(service.client.base_url), acknowledged))
        people.start()
        _post(service.client, work)
        if not from_start:
            _wait(lambda: service.has_begun(work))
        time.sleep(chance.uniform(0, 1.05 * seconds[0 if from_start else 1]))
        children = service.children(work)
        for pid in [
            *(children if "child" in victims else []),
            *([service.process.pid] if "service" in victims else []),
        ]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if "service" in victims:
            service.process.wait(_WAITS)
        _wait(lambda: not any(_lives(pid) for pid in children))  # without its service, a child ends by itself
        if "service" not in victims:
            _wait(lambda: not service.told(work)["running"])
            if (problem := service.stop()) is not None:
                return f"{work}, its process killed: the service: {problem}"
        people.join()
        now = state(folder)
        if (problem := _broken(now, old, new, Counter(rows) + acknowledged)) is not None:
            return f"{work}, {' and '.join(victims)} killed: {problem}"
        again = stack.enter_context(_Service(folder))
        again.finish(work)
        if (problem := again.stop()) is not None:
            return f"{work}, afterwards: {problem}"
        now = state(folder)
        different = [part for part in new if _compared(now, part) != new[part]]
        return f"{work}, {' and '.join(victims)} killed: ends otherwise: {different}" if different else None


def _undisturbed(world: World, work: str) -> Any:
    """Seconds of the work, and since it has begun; rows of people before it; what it changes, before and after."""
    with world.copy() as folder, _Service(folder) as service:
        _prepare(service.client, folder, work)
        parts = _LEARNERS if work == "train" else ("catalogue", "vectors")
        old = state(folder)
        started = time.perf_counter()
        _post(service.client, work)
        _wait(lambda: service.has_begun(work))
        begun = time.perf_counter()
        service.finish(work)
        ended = time.perf_counter()
        new = state(folder)
        before, after = ({part: _compared(one, part) for part in parts} for one in (old, new))
        assert all(before[part] != after[part] for part in parts), "the work changes nothing"
        return [ended - started, ended - begun], {part: len(old[part]) for part in _OF_PEOPLE}, before, after


class _Service:
    """The service of a copy of the run, and a client of it."""

    def __init__(self, folder: Path):
        self.process = start("serve", "--run", "fruit", "--port", "0", cwd=folder)
        address = listening(self.process)
        if address is None:
            raise RuntimeError(f"does not start: {self.process.wait().err[-300:]}")
        self.client = httpx.Client(base_url=address, timeout=_WAITS)
        self.ended = False

    def __enter__(self) -> _Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process.pid, 0)
            self.stop()

    def children(self, work: str) -> list[int]:
        """Return the processes that it has started for some work."""
        pids: list[int] = []
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids += [pid for pid in map(int, file.read_text().split()) if _CHILD[work] in _proc(pid, "cmdline")]
        return pids

    def told(self, work: str) -> dict[str, Any]:
        """Return what it says of some work, whose process does not wait for others on this machine."""
        for pid in self.children(work):
            with contextlib.suppress(OSError):  # only root may
                os.setpriority(os.PRIO_PROCESS, pid, 0)
        return self.client.get(f"/api/{work}").json()

    def has_begun(self, work: str) -> bool:
        """Whether the process has said how far it is; True as well once it has ended."""
        told = self.told(work)
        return not told["running"] or (told["phase"] != "starting" if work == "train" else told["total"] > 0)

    def finish(self, work: str) -> None:
        """Let the work end, or do what is left of it."""
        for _ in range(2):
            _wait(lambda: not self.told(work)["running"])
            told = self.told(work)
            assert not told["problem"], told["problem"]
            if work == "train" and not told["stale"] or work == "add" and told["result"]:
                return
            _post(self.client, work)
        _wait(lambda: not self.told(work)["running"])

    def stop(self) -> str | None:
        """End it; say what it did that no command may do."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(time.perf_counter() - self.process.began + HANGS).problem()


def _prepare(client: httpx.Client, folder: Path, work: str) -> None:
    """Leave something to learn, or photos to add."""
    if work == "train":
        edits = [{"id": number, "label": "ripe", "change": "add"} for number in _EDITED]
        client.post("/api/labels", json={"edits": edits}).raise_for_status()
        return
    write_images(folder / "given", [f"fig/new {i}.jpg" for i in range(_PHOTOS)])
    for file in sorted((folder / "given/fig").iterdir()):
        client.post("/api/add/photo", files={"file": (file.name, file.read_bytes())}).raise_for_status()


def _post(client: httpx.Client, work: str) -> None:
    client.post(f"/api/{work}").raise_for_status()


def _people(address: str, acknowledged: Counter[str]) -> None:
    """Confirm labels and mark results until the service is gone or idle."""
    with contextlib.suppress(httpx.HTTPError), httpx.Client(base_url=address, timeout=30) as client:
        [answer] = client.get("/search", params={"id": 7, "k": 20}).json()
        [image] = client.get("/api/images", params={"ids": "7"}).json()
        edit = {"edits": [{"id": 7, "label": image["labels"][0], "change": "add"}], "source": "queue"}
        for number in range(200):
            result = answer["results"][number % 20]["id"]
            body = {"query": answer["key"], "image": result, "mark": (-1, 1)[number % 2], "learner": "oasis"}
            acknowledged["marks"] += client.post("/marks", json=body).status_code == 200
            acknowledged["label edits"] += client.post("/api/labels", json=edit).status_code == 200
            time.sleep(0.05)


def _broken(now: Any, old: dict[str, Any], new: dict[str, Any], rows: Counter[str]) -> str | None:
    """What is neither as before the work nor as after it, or lost."""
    if not isinstance(now, dict):
        return f"the run cannot be read: {now}"
    for part, value in now.items():
        if isinstance(value, str) and "Error: " in value:
            return f"{part}: {value}"
    for part, n in rows.items():
        if len(now[part]) < n:
            return f"{n - len(now[part])} of {n} acknowledged {part} are lost"
    if "catalogue" in old:  # some parts of the photos may be there
        paths = {row[0] for row in _compared(now, "catalogue")}
        before, after = ({row[0] for row in one["catalogue"]} for one in (old, new))
        return None if before <= paths <= after else f"images: {sorted(before - paths or paths - after)[:3]}"
    for part in old:
        if now[part] not in (old[part], new[part]):
            return f"{part} is neither the old model nor the new one"
    return None


def _compared(whole: Any, part: str) -> Any:
    """Return a part of a run's state as far as it must be equal: ids depend on when photos were added."""
    value = whole[part] if isinstance(whole, dict) else whole
    if part != "catalogue" or isinstance(value, str):
        return value
    return sorted([os.path.basename(row[1]), *row[2:]] for row in value)


def _lives(pid: int) -> bool:
    return _proc(pid, "stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


def _proc(pid: int, file: str) -> str:
    """What the system says of a process; nothing once it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_text()
    return ""


def _wait(condition: Any) -> None:
    end = time.monotonic() + _WAITS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not so in {_WAITS:.0f} s")
        time.sleep(0.05)
