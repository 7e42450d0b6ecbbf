"""A full disk during a command: a small file system in memory where root allows, else a limit of file sizes."""

import os
import random
import re
import resource
import shutil
import subprocess
from pathlib import Path

from tasks import TASKS, prepare, resumed, undisturbed
from world import World, call

_SAYS_SO = re.compile("No space left|full disk|File too large|not enough memory")


def attempt(world: World, seed: int) -> str | None:
    """Run a command without enough room, then with it."""
    chance = random.Random(seed)
    name = chance.choice(sorted(TASKS))
    undisturbed(world, name)
    place = world.folder / f"disk-{os.getpid()}"
    place.mkdir(exist_ok=True)
    mounted = _mount(place, "64m")
    try:
        folder = place / "work" if mounted else place
        shutil.copytree(world.base / "runs", folder / "runs")
        prepare(TASKS[name], folder)
        if mounted:
            used = _used(place)
            _mount(place, f"{(used + chance.randrange(0, 400_000)) // 4096 * 4}k", again=True)
            ended = call(*world.filled(TASKS[name].arguments), cwd=folder)
        else:
            most = chance.randrange(100, 60_000)

            def limit() -> None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

            ended = call(*world.filled(TASKS[name].arguments), cwd=folder, before=limit)
        if (problem := ended.problem()) is not None:
            return f"{name}: {problem}"
        if ended.code == 2 and not _SAYS_SO.search(ended.err):
            return f"{name}: does not say that the disk is full: {ended.err[-300:]}"
        if mounted:
            _mount(place, "64m", again=True)
        if (problem := resumed(world, name, folder)) is not None:
            return f"{name}: after {ended.err[-200:]!r} {problem}"
    finally:
        if mounted:
            subprocess.run(["umount", "-l", place], check=False)
        shutil.rmtree(place, ignore_errors=True)
    return None


def _mount(place: Path, size: str, *, again: bool = False) -> bool:
    if os.geteuid() != 0:
        return False
    how = (
        ["mount", "-o", f"remount,size={size}", place]
        if again
        else ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place]
    )
    return subprocess.run(how, check=False, capture_output=True).returncode == 0


def _used(place: Path) -> int:
    status = os.statvfs(place)
    return (status.f_blocks - status.f_bfree) * status.f_frsize
