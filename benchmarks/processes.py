"""New processes: functions whose memory is measured, and the commands of visterm."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# No large import here: it would count as memory of the function or command that is measured.

VISTERM = Path(sys.executable).with_name("visterm")
RUN = "bench"  # the run of all commands


@contextmanager
def temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="visterm-bench-") as name:
        yield Path(name)


def own_process() -> ProcessPoolExecutor:
    """Return a pool of one new process, which shares no memory with this one."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in a new process; return its result."""
    with own_process() as process:
        return process.submit(function, *arguments).result()


def peak_memory() -> int:
    """Return the bytes of this process at its peak, since its start or `forget_peak`."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:  # not Linux, where ru_maxrss would count what the parent held when it forked
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def traced_memory(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int, int]:
    """Call a function; return its result, and the bytes of objects that it leaves and that it holds at its peak."""
    tracemalloc.start()
    try:
        result = function(*arguments)
        return result, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def command_peak(folder: Path, *arguments: str) -> int:
    """Run `visterm` in this process, which should be new; return the bytes of its peak."""
    from visterm.pipeline.cli.app import app

    os.chdir(folder)
    app(["--quiet", *arguments], standalone_mode=False)
    return peak_memory()


def peak_of_features(folder: Path, photos: Sequence[Path], n: int, *options: str) -> float:
    """Return the MiB of the peak of ``visterm features`` of n images: links to the photos, repeated."""
    link_images(folder / f"{n}", photos, n)
    return in_own_process(command_peak, folder, "features", f"{n}", *options) / 2**20


def link_images(folder: Path, photos: Sequence[Path], n: int) -> None:
    """Make n links to the photos, repeated, in ten folders."""
    for i in range(n):
        link = folder / str(i % 10) / f"{i}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(photos[i % len(photos)].resolve())


# -- commands ----------------------------------------------------------------------------------------------------------


def child_seconds() -> float:
    """Processor time of the processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment(runs: Path | str) -> dict[str, str]:
    compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # modules are compiled once, as in an installation
    return os.environ | compiled | {"VISTERM_RUNS": str(runs)}


def set_options(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def command(name: str, *rest: object) -> list[str]:
    """Return the arguments of a process that runs a command on the run `bench`."""
    return [str(VISTERM), "--quiet", name, "--run", RUN, *map(str, rest)]


def visterm(runs: Path | str, name: str, *rest: object) -> str:
    """Run a command as a user does, with its runs in a folder; return its output."""
    done = subprocess.run(command(name, *rest), env=environment(runs), check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def serving(runs: Path | str) -> Iterator[tuple[int, int]]:
    """Run ``visterm serve``; yield its port and its process id."""
    server = subprocess.Popen(command("serve", "--port", 0), env=environment(runs), stdout=subprocess.PIPE, text=True)
    try:
        yield int(server.stdout.readline().strip().rstrip("/").rpartition(":")[2]), server.pid
    finally:
        server.terminate()
        server.wait(60)
