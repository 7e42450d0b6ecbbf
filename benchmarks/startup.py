"""Time and memory of commands from a cold start, in turns with an earlier build.

The earlier build is taken from this repository's history, and makes its own runs of the same photos. Counted are the
processor time and the peak memory of each process, as the system reports them. The service is timed until it answers.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .photos import caltech_or_demo
from .processes import RUN, VISTERM, environment, peak_memory, temporary_folder
from .records import ELAPSED, compared, in_turns, record
from .vectors import ROOT

EARLIER = "1d922fa"  # searched with estimators, and imported what learns
START = "from visterm.pipeline.cli.start import main; main()"
FIRST = "search-first"  # in a fresh container: neither bytecode nor kernels are compiled yet
N_FEW, FEW = 9, "visterms of nine classes"
LINES = 1000  # queries of `search -`
# By the end of the name of the record: the command, and the kind of run.
COMMANDS = {
    "search-id": ("visterms", "search", "id:5", "--learner", "oasis"),
    "search-id-deep": ("deep", "search", "id:5", "--learner", "oasis"),
    "search-photo": ("visterms", "search", "PHOTO", "--learner", "oasis"),
    "search-photo-deep": ("deep", "search", "PHOTO", "--learner", "oasis"),
    FIRST: ("visterms", "search", "PHOTO", "--learner", "oasis"),
    "info": ("visterms", "info"),
    "labels": ("visterms", "label", "list"),
    "export-help": ("visterms", "export", "--help"),
    "add": ("visterms", "add", "PHOTO"),
    "train": ("visterms", "train", "--learner", "oasis", "--force"),
    "train-few": (FEW, "train", "--learner", "oasis", "--force"),
}


class Build(NamedTuple):
    """A version of visterm: the code before its program, and the folder of its runs."""

    before: str
    runs: Path

    def call(self, kind: str, name: str, *rest: str, stdin: str = "", first: bool = False) -> tuple[float, float]:
        """Run a command on a run; its seconds of processor time, and its peak memory in MiB.

        The first command of a fresh container finds nothing compiled.
        """
        run = () if "--help" in rest else ("--run", RUN)
        words = [sys.executable, "-c", self.before + START, "--quiet", *name.split(), *rest, *run]
        variables = environment(self.runs / kind)
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        if first:
            with temporary_folder() as empty:
                compiled = {"PYTHONPYCACHEPREFIX": str(empty / "bytecode"), "NUMBA_CACHE_DIR": str(empty / "kernels")}
                return self._used(words, variables | compiled, stdin)
        return self._used(words, variables, stdin)

    def _used(self, words: Sequence[str], variables: Mapping[str, str], stdin: str) -> tuple[float, float]:
        with subprocess.Popen(words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            assert process.stdin is not None
            process.stdin.write(stdin.encode())
            process.stdin.close()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, words)
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024

    def answers(self, kind: str) -> float:
        """Seconds from the start of the service until it answers."""
        words = [sys.executable, "-c", self.before + START, "--quiet", "serve", "--port", "0", "--run", RUN]
        begun = time.perf_counter()
        with subprocess.Popen(words, env=environment(self.runs / kind), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1].rstrip("/")
            urllib.request.urlopen(f"{address}/health").read()
            elapsed = time.perf_counter() - begun
            process.terminate()
        return elapsed

    def make_runs(self, photos: Path) -> None:
        classes = json.dumps(sorted({path.parent.name for path in photos.rglob("*.[jp][pn]g")})[:N_FEW])
        few = ("--set", f"collection.classes={classes}")
        for kind, options in (("visterms", ()), ("deep", ("--deep",)), (FEW, few)):
            self.call(kind, "features", str(photos), *options)
            self.call(kind, "train", "--learner", "oasis")
            for _ in range(2):  # the first makes the graph of neighbours; kernels and bytecode are cached
                self.call(kind, "search", "id:5", "--learner", "oasis")


def earlier(folder: Path) -> Build:
    """Unpack the earlier build; its rooms are found before those of the installed one."""
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder / "code", filter="data")
    rooms = folder / "path/visterm"
    rooms.mkdir(parents=True)
    (rooms / "__init__.py").touch()
    for room in ("features", "learners", "retrieval", "pipeline", "teaching", "service", "plugins"):
        (rooms / room).symlink_to(folder / "code" / room)
    return Build(f"import sys; sys.path.insert(0, {str(rooms.parent)!r})\n", folder / "runs")


def run(quick: bool = False) -> list[dict]:
    n = 5 if quick else 20
    commands = [VISTERM, "--help"], [sys.executable, "-c", "import sklearn"], [sys.executable, "-c", "pass"]
    runs = [lambda _, call=call: subprocess.run(call, check=True, stdout=subprocess.DEVNULL) for call in commands]
    ours, peer, bare = np.median(in_turns(*runs, rounds=n, clock=ELAPSED), axis=0)
    first = record(
        "startup",
        "visterm --help",
        "python -c 'import sklearn'",
        f"an interpreter that does nothing takes {bare:.3f} s",
        compared(ours, peer, "s", n),
        measured=f"median of {n}, elapsed time",
    )
    with temporary_folder() as folder:
        try:
            builds = Build("", folder / "new"), earlier(folder / "earlier")
        except (OSError, subprocess.CalledProcessError):
            print(f"no git history with {EARLIER}: only --help is measured", file=sys.stderr)
            return [first]
        photos = caltech_or_demo(folder / "pictures", quick)
        for build in builds:
            build.make_runs(photos)
        return [first, *beside_earlier(builds, photos, 3 if quick else 9, bare)]


def beside_earlier(builds: Sequence[Build], photos: Path, turns: int, bare: float) -> list[dict]:
    """Return a record per command, and those of many queries and of the service."""
    n_photos = sum(len(files) for _, _, files in os.walk(photos))
    photo = str(next(file for file in sorted(photos.rglob("*.jpg")) if file.is_file()))
    records = []

    def add(
        key: str, what: str, calls: Sequence[Callable[[], tuple[float, float]]], how: str = "", turns: int = turns
    ) -> None:
        figures = np.median([[call() for call in calls] for _ in range(turns)], axis=0)
        (ours, memory), (peer, its_memory) = figures
        seen = memory > 1.05 * peak_memory() / 2**20  # Linux counts what this process held when it started another
        of_memory = f"; peak memory {memory:.0f} MB, then {its_memory:.0f} MB" if seen else ""
        records.append(
            record(
                f"startup-{key}",
                f"{what}; {n_photos:,} photos",
                f"the same by {EARLIER}",
                f"an interpreter that does nothing takes {bare:.3f} s",
                compared(ours, peer, "s", n_photos),
                measured=f"medians of {turns} in turns, {how or 'processor time'}{of_memory}",
            )
        )

    for key, (kind, *words) in COMMANDS.items():
        name, *rest = ["label list"] if words[0] == "label" else words
        rest = [photo if word == "PHOTO" else word for word in rest]
        what = f"visterm {' '.join(words)}".replace("PHOTO", "photo.jpg")
        if key == FIRST:
            what = f"{what}, with nothing compiled yet"
        calls = [lambda b=b, k=kind, n=name, r=rest, f=key == FIRST: b.call(k, n, *r, first=f) for b in builds]
        add(key, f"{what}, {kind}", calls)
    ids = "".join(f"id:{i % n_photos + 1}\n" for i in range(LINES))

    def many() -> tuple[float, float]:
        return builds[0].call("visterms", "search", "-", "--learner", "oasis", stdin=ids)

    def one() -> tuple[float, float]:
        return builds[1].call("visterms", "search", "id:5", "--learner", "oasis")

    add(
        "lines",
        f"a query by id of {LINES:,} that visterm search - answers, its start shared among them",
        [lambda: (many()[0] / LINES, 0.0), lambda: (one()[0], 0.0)],
    )

    def extract(build: Build, *options: str) -> tuple[float, float]:
        with temporary_folder() as runs:
            return Build(build.before, runs).call("new", "features", str(photos), *options)

    for key, options in (("features", ()), ("features-deep", ("--deep",))):
        calls = [lambda b=b, options=options: extract(b, *options) for b in builds]
        add(key, " ".join(("visterm features", *options)), calls, turns=min(turns, 3))
    add(
        "service",
        "visterm serve until it answers",
        [lambda b=b: (b.answers("visterms"), 0.0) for b in builds],
        "elapsed time",
    )
    return records
