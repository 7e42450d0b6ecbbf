"""A power loss during a command: bytes that were not synced are gone, and names that were not synced may be.

Within the child that runs the command, Python's audit events tell which files are opened for writing, renamed and
removed, and `os.fsync` which are on the disk. At a random event the power fails: a file that was written and not synced
is empty or cut short, and renames whose folder was not synced are undone, last one first. SQLite's own files are left
as they are: it syncs them by itself, and the catalogue asks it to.
"""

import contextlib
import os
import random
import re
import stat
import sys
from pathlib import Path
from typing import Any

from tasks import TASKS, prepare, resumed, undisturbed
from world import World, call

from visterm.pipeline.store import files

_OF_SQLITE = re.compile(r"^(?!catalogue\.copy).*(\.sqlite|-journal|-wal|-shm)")  # that copy is an ordinary file
_EXCHANGED = ""  # in place of a link to what was there before
_events: dict[str, int] = {}


def attempt(world: World, seed: int) -> str | None:
    """Let the power fail at a random event of a command, then resume it."""
    chance = random.Random(seed)
    name = chance.choice(sorted(TASKS))
    undisturbed(world, name)
    if name not in _events:
        with world.copy() as folder:
            prepare(TASKS[name], folder)
            counted = folder / "events"
            call(
                *world.filled(TASKS[name].arguments),
                cwd=folder,
                before=lambda: _Disk(folder, -1, chance).watch(counted),
            )
            _events[name] = int(counted.read_text()) if counted.exists() else 0  # none of a command that only reads
    with world.copy() as folder:
        prepare(TASKS[name], folder)
        when = chance.randrange(_events[name] + 1)
        ended = call(
            *world.filled(TASKS[name].arguments), cwd=folder, before=lambda: _Disk(folder, when, chance).watch()
        )
        if ended.code not in (0, 99):
            return f"{name}: {ended.problem() or ended.err[-200:]}"
        if (problem := resumed(world, name, folder)) is not None:
            return f"{name}, event {when} of {_events[name]}: {problem}"
    return None


class _Disk:
    """What is on the disk for sure, in a process whose files are below a folder."""

    def __init__(self, folder: Path, when: int, chance: random.Random):
        self.folder, self.when, self.chance = os.fspath(folder), when, chance
        self.n = 0
        self.written: dict[int, str] = {}  # inode to path of files that are not synced
        self.renamed: list[tuple[str, str, str | None]] = []  # from, to, and a link to what was there before
        self.busy = False
        self.counted: Path | None = None

    def watch(self, counted: Path | None = None) -> None:
        """Begin; `counted` is written with the number of events."""
        self.counted = counted
        fsync = os.fsync

        def synced(descriptor: Any) -> None:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            status = os.fstat(number)
            self._event()
            if stat.S_ISDIR(status.st_mode):
                place = os.readlink(f"/proc/self/fd/{number}")
                self.renamed = [rename for rename in self.renamed if os.path.dirname(rename[1]) != place]
            else:
                self.written.pop(status.st_ino, None)

        os.fsync = synced  # type: ignore[assignment]  # nothing is lost: the page cache outlives the process
        self._fsync, self._exchange = fsync, files.exchanged
        exchange = self._exchange

        def exchanged(one: Path, other: Path) -> bool:  # of which Python knows no event
            self._event()
            done = exchange(one, other)
            if done:
                self.renamed.append((os.path.abspath(one), os.path.abspath(other), _EXCHANGED))
            return done

        files.exchanged = exchanged  # type: ignore[attr-defined]  # it is imported there
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.busy or event not in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link"):
            return
        try:
            paths = [
                os.path.abspath(os.fsdecode(path)) for path in arguments[:2] if isinstance(path, str | bytes | Path)
            ]
        except (TypeError, ValueError):
            return
        if not paths or not any(path.startswith(self.folder) for path in paths) or paths[0].endswith("events"):
            return
        if any(_OF_SQLITE.match(os.path.basename(path)) for path in paths):
            self._event()
            return
        if event == "open":
            mode, flags = arguments[1], arguments[2]
            if not (isinstance(mode, str) and set(mode) & set("wax+")) and not (flags or 0) & (os.O_WRONLY | os.O_RDWR):
                return
            self._event()
            with self._quietly():
                descriptor = os.open(paths[0], os.O_CREAT | os.O_WRONLY, 0o666)
                self.written[os.fstat(descriptor).st_ino] = paths[0]
                os.close(descriptor)
            return
        self._event()
        if event == "os.rename":
            with self._quietly():
                kept = None
                if os.path.isfile(paths[1]):
                    kept = f"{self.folder}/../kept-{os.getpid()}-{len(self.renamed)}"
                    os.link(paths[1], kept)
                self.renamed.append((paths[0], paths[1], kept))

    @contextlib.contextmanager
    def _quietly(self) -> Any:
        self.busy = True
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            self.busy = False

    def _event(self) -> None:
        self.n += 1
        if self.counted is not None:
            with self._quietly():
                self.counted.write_text(str(self.n))
        if self.n == self.when:
            self._fail()

    def _fail(self) -> None:
        """The power fails."""
        self.busy = True
        if self.chance.random() < 0.5:
            for before, after, kept in reversed(self.renamed[self.chance.randrange(len(self.renamed) + 1) :]):
                if kept == _EXCHANGED:
                    self._exchange(Path(before), Path(after))
                    continue
                with contextlib.suppress(OSError):
                    os.rename(after, before)
                    if kept is not None:
                        os.link(kept, after)
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(OSError):
                    status = os.stat(path)
                    if status.st_ino in self.written and not _OF_SQLITE.match(name):
                        with open(path, "r+b") as stream:
                            stream.truncate(self.chance.choice((0, 0, status.st_size // 2)))
        os._exit(99)
