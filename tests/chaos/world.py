"""The run that the campaign damages, its commands, and running them in forked children of a process that is warm.

A command takes a second to import what it needs and some milliseconds to work: forked children of a process that has
imported everything make thousands of attempts affordable.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_HANDLED = (signal.SIGINT, signal.SIGTERM)
HANGS = 60.0  # seconds after which a command counts as hanging
CLASSES = ("apple", "pear", "plum", "fig")
SETTINGS = (
    "features.n_visterms=30", "compute.n_jobs=1", "compute.segment_size=16", "compute.checkpoint_seconds=0",
    "split.train=7", "split.test=4", "oasis.n_steps=6000", "oasis.pass_steps=2000", "aroma.n_steps=2000",
    "aroma.pass_steps=1000", "wsabie.n_steps=4000", "wsabie.pass_steps=2000",
)  # fmt: skip
NOISE = re.compile("Traceback|Warning:|internal error|Exception ignored|libpng|TIFF|OpenCV|Segmentation|Corrupt JPEG")
_OURS = re.compile("^(warning|visterm): .*$", re.MULTILINE)


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # negative: the signal that it died of
    out: str
    err: str
    seconds: float

    def noise(self) -> bool:
        """Whether it showed something that is not of its own: a traceback, a decoder's words."""
        return "internal error" in self.err or NOISE.search(_OURS.sub("", self.err)) is not None

    def problem(self) -> str | None:
        """What no command may do, whatever happens: die, hang, show an internal error or noise, say nothing."""
        if self.code == -signal.SIGALRM:
            return f"hung for {HANGS:.0f} s"
        if self.code < 0:
            return f"died of {signal.Signals(-self.code).name}: {self.err[-300:]}"
        if self.code not in (0, 1, 2):  # 1: some images could not be read
            return f"exit code {self.code}: {self.err[-300:]}"
        if self.noise():
            return f"noise: {self.err[-300:]}"
        lines = [line for line in self.err.splitlines() if line.startswith("visterm: ")]
        if self.code and not lines:
            return f"exit code {self.code} without a line: {self.err[-300:]}"
        return None


def write_images(folder: Path, names: Sequence[str], side: int = 96) -> None:
    """Write JPEGs that look like their class: the folder's name."""
    import cv2
    import numpy as np

    for name in names:
        style, own = (np.random.default_rng([*text.encode()]) for text in (Path(name).parent.name, name))
        size = int(style.integers(2, 7))
        noise = own.integers(0, 256, (side // size + 1, side // size + 1, 3)).astype(np.float32)
        pixels = cv2.resize(noise, (side, side), interpolation=cv2.INTER_CUBIC) * 0.5 + style.integers(0, 128, 3)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(cv2.imencode(".jpg", np.clip(pixels, 0, 255).astype(np.uint8))[1].tobytes())


def call(*arguments: str, cwd: Path, before: Callable[[], Any] | None = None, timeout: float = HANGS) -> Ended:
    """Run a command of visterm in a forked child; `before` is called in it first."""
    child = start(*arguments, cwd=cwd, before=before)
    return child.wait(timeout)


class start:
    """A command in a forked child that may be killed."""

    def __init__(self, *arguments: str, cwd: Path, before: Callable[[], Any] | None = None):
        place = Path(tempfile.gettempdir())  # not beside the run, where the disk may be full
        self.files = [place / f"chaos.{os.getpid()}.{id(self)}.{name}" for name in ("out", "err")]
        self.began = time.perf_counter()
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)  # until the child has the handlers of the command
        self.pid = os.fork()
        if not self.pid:
            _become(arguments, cwd, self.files, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)

    def wait(self, timeout: float = HANGS) -> Ended:
        """Wait for its end."""
        stopped = False
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() - self.began > timeout and not stopped:
                os.kill(self.pid, signal.SIGKILL)
                stopped = True
            time.sleep(0.002)
        seconds = time.perf_counter() - self.began
        texts = [file.read_text(errors="replace") if file.exists() else "" for file in self.files]
        for file in self.files:
            file.unlink(missing_ok=True)
        code = -signal.SIGALRM if stopped else os.waitstatus_to_exitcode(status)
        return Ended(code, texts[0], texts[1], seconds)


def _become(arguments: Sequence[str], cwd: Path, files: Sequence[Path], before: Callable[[], Any] | None) -> None:
    """Be the command, and never return."""
    code = 70
    try:
        from visterm.features import images
        from visterm.pipeline.cli import start
        from visterm.pipeline.cli.app import main

        for number, file in enumerate(files, start=1):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
        sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
        os.chdir(cwd)
        for handled in _HANDLED:
            signal.signal(handled, start._end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        images._silenced = False
        sys.argv = ["visterm", *arguments]
        if before is not None:
            before()
        try:
            main(ends_process=True)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def in_child(function: Callable[[], Any], timeout: float = HANGS) -> Any:
    """Call a function in a forked child; return what it returns, which must be JSON, or a text that says it failed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        try:
            answer = json.dumps(function())
        except BaseException as error:
            answer = json.dumps(f"{type(error).__name__}: {error}")
        with contextlib.suppress(BaseException):
            os.write(writing, answer.encode()) if len(answer) < 60_000 else _write_all(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, timeout)
    with os.fdopen(reading, "rb") as stream:
        text = stream.read()
    signal.setitimer(signal.ITIMER_REAL, 0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return json.loads(text) if text else f"ended with {status}"


def _write_all(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)


# Each command works in a folder with runs/fruit; {images} is the folder of its images, {more} has others.
READ = {
    "search": ("search", "id:7", "id:20", "--learner", "oasis", "--json"),
    "search path": ("search", "{images}/pear/3.jpg", "--learner", "cosine", "--format", "csv"),
    "search label": ("search", "--label", "plum", "--learner", "wsabie", "--json"),
    "annotate": ("annotate", "id:5", "--learner", "wsabie", "--json"),
    "explain": ("explain", "id:7", "id:20", "--learner", "oasis", "--json"),
    "info": ("info", "--json"),
    "feedback status": ("feedback", "status", "--json"),
    "feedback export": ("feedback", "export"),
    "judge results": ("judge", "results", "--json"),
    "judge export": ("judge", "export"),
}
WRITE = {
    "features": ("features", "--json"),
    "add": ("add", "{more}/fig", "--label", "fig", "--json"),
    "remove": ("remove", "id:9", "--json"),
    "compact": ("compact", "--json"),
    "train": ("train", "--learner", "oasis", "--json"),
    "train force": ("train", "--learner", "aroma", "--force", "--json"),
    "evaluate": ("evaluate", "--learner", "oasis", "--json"),
    "evaluate all": ("evaluate", "--learner", "all", "--json"),
    "evaluate force": ("evaluate", "--learner", "wsabie", "--force", "--json"),
    "index": ("index", "--learner", "oasis", "--json"),
    "feedback update": ("feedback", "update", "--json"),
    "feedback undo": ("feedback", "undo", "--json"),
    "feedback reset": ("feedback", "reset", "--json"),
    "repair": ("repair", "--json"),
}
_VOLATILE = re.compile(r'("(?:train_)?(?:seconds|milliseconds|time|created)": )[-0-9.e]+|\b\d+\.\d+ s\b')


class World:
    """A finished run with learners, evaluations, label edits, relevance marks and ratings, and copies of it."""

    def __init__(self, folder: Path, seed: int = 0):
        self.folder, self.seed = folder, seed
        self.base = folder / "base"
        self.images, self.more = self.base / "images", self.base / "more"
        self._n = 0
        self._made: dict[str, Any] = {}

    def build(self) -> None:
        """Make the run in this process, which is warm afterwards."""
        import cv2

        from visterm.features import images

        cv2.setNumThreads(1)
        images._silenced = True  # this process's own standard error stays
        write_images(self.images, [f"{label}/{i}.jpg" for label in CLASSES for i in range(12)])
        write_images(self.more, [f"fig/{i}.jpg" for i in range(20, 24)])
        (self.base / "other").mkdir()
        settings = [part for setting in SETTINGS for part in ("--set", setting)]
        for arguments in (
            ("features", str(self.images), "--run", "fruit", *settings),
            ("add", str(self.more / "fig/20.jpg"), "--label", "plum"),
            ("remove", "id:11"),
            ("train", "--learner", "oasis,aroma,wsabie"),
            ("evaluate", "--learner", "oasis,aroma"),
            ("evaluate", "--learner", "oasis"),
            ("evaluate", "--learner", "wsabie"),
        ):
            self._call_here(*arguments)
        self._people()
        self._call_here("feedback", "update")
        self._call_here("feedback", "undo")
        self._call_here("feedback", "update")
        for name, arguments in (READ | WRITE).items():  # warms this process
            if name not in ("remove", "add", "feedback undo", "feedback reset"):
                self._call_here(*self.filled(arguments))

    def _call_here(self, *arguments: str) -> None:
        from visterm.pipeline.cli.app import app

        before = os.getcwd()
        os.chdir(self.base)
        try:
            with open(os.devnull, "w") as null, contextlib.redirect_stdout(null), contextlib.redirect_stderr(null):
                code = app(args=["--quiet", *arguments], standalone_mode=False, prog_name="visterm")
        finally:
            os.chdir(before)
        assert not code, (arguments, code)

    def _people(self) -> None:
        """Mark results, rate some, and look at labels; those in effect stay, so that learners are up to date."""
        from visterm.pipeline.search.searcher import Searcher
        from visterm.plugins.judge.judgements import Judgements
        from visterm.plugins.judge.tasks import draw_tasks
        from visterm.teaching.labels import LabelEditor
        from visterm.teaching.marks import RelevanceMarks
        from visterm.teaching.not_same import say_different, undo_different

        searcher = Searcher(self.base / "runs/fruit")
        labels = LabelEditor(searcher.run)
        for image in searcher.images[:6]:
            labels.edit([(image.id, next(iter(image.labels)), 1)], confirm=True)
        labels.add("ripe", [image.id for image in searcher.images[3:9]])
        labels.undo()
        say_different(searcher.run, [[image.id] for image in searcher.images[:3]])
        say_different(searcher.run, [[image.id] for image in searcher.images[3:5]])
        undo_different(searcher.run)
        marks = RelevanceMarks(searcher.run.marks)
        for query, row, mark in ((0, 1, 1), (0, 20, -1), (14, 15, 1), (14, 2, -1), (30, 31, 1), (30, 5, -1)):
            marks.add(searcher.images[query].sha256, searcher.images[row], mark, learner="oasis")
        judgements = Judgements(searcher.run.judgements)
        judgements.create(
            draw_tasks(searcher, "oasis", n_queries=2, k=2, n_random=1), learner="oasis", version=searcher.version
        )
        while (task := judgements.next("ann")["task"]) is not None:
            judgements.decide("ann", task["task"], task["image"], "relevant", seconds=1)

    def filled(self, arguments: Sequence[str]) -> list[str]:
        """Put the folders of images into the arguments of a command."""
        return [part.format(images=self.images, more=self.more) for part in arguments]

    @contextlib.contextmanager
    def copy(self, source: Path | None = None) -> Iterator[Path]:
        """Yield a folder with a copy of a run, by hard links but for what is written in place."""
        self._n += 1
        folder = self.folder / f"{os.getpid()}-{self._n}"
        copy_tree((source or self.base) / "runs", folder / "runs")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def files(self) -> list[str]:
        """Every file of the run, relative to it."""
        place = self.base / "runs/fruit"
        return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())

    def reference(self, name: str) -> tuple[Ended, dict[str, Any]]:
        """What a command prints and leaves behind where nothing is damaged."""

        def make() -> Any:
            with self.copy() as folder:
                ended = call(*self.filled((READ | WRITE)[name]), cwd=folder)
                assert not ended.code, (name, ended)
                return [*ended], state(folder)

        ended, left = self.once(f"reference {name}", make)
        return Ended(*ended), left

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, which must be JSON; the processes of a campaign share it."""
        if key not in self._made:
            file = self.folder / f"{key}.json"
            if not file.exists():
                part = file.with_suffix(f".{os.getpid()}")
                part.write_text(json.dumps(make()))
                os.replace(part, file)
            self._made[key] = json.loads(file.read_text())
        return self._made[key]


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder by hard links; files that are written in place are copied."""
    target.mkdir(parents=True)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            copy_tree(Path(entry.path), target / entry.name)
        elif ".sqlite" in entry.name or entry.name in ("journal", ".lock"):
            shutil.copy2(entry.path, target / entry.name)
        else:
            os.link(entry.path, target / entry.name, follow_symlinks=False)


def steady(text: str) -> str:
    """Remove times from an output."""
    return _VOLATILE.sub(r"\1", text)


def state(folder: Path) -> dict[str, Any]:
    """Digest each part of a run, through visterm's own eyes; "UserError: ..." for a part that it calls damaged."""
    return in_child(lambda: {name: _part(part, folder) for name, part in _PARTS.items()})


def _part(part: Callable[[Any], Any], folder: Path) -> Any:
    from visterm.pipeline.errors import UserError
    from visterm.pipeline.store.run import Run

    try:
        os.chdir(folder)
        return json.loads(json.dumps(part(Run(Path("runs/fruit")))))
    except UserError as error:
        return f"UserError: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def _catalogue(run: Any) -> Any:
    from visterm.pipeline.store.catalogue import Collection

    with Collection(run.collection) as collection:
        query = "SELECT id, path, sha256, labels, split, status FROM images WHERE status != 'removed' ORDER BY path"
        return [[row[0], os.fsdecode(row[1]), *row[2:]] for row in collection.execute(query)]


def _vectors(run: Any) -> Any:
    from visterm.pipeline.store.catalogue import Collection
    from visterm.pipeline.store.vectors import vectors

    with Collection(run.collection) as collection:
        X = vectors(run, collection, collection.images())
        return hashlib.sha256(b"".join(part.tobytes() for part in (X.indptr, X.indices, X.data))).hexdigest()


def _learner(name: str) -> Callable[[Any], Any]:
    def part(run: Any) -> Any:
        from visterm.pipeline.store.models import load_trained, trained_record

        load_trained(run, name)
        record = trained_record(run, name)
        # Without the table of teachers, which no score needs, a learner is loaded, and says so.
        names = (path.name for path in (run.learner(name) / "files").glob("*.npy"))
        files = sorted(file for file in names if not file.startswith("teachers_"))
        result = {key: value for key, value in record["result"].items() if key != "seconds"}
        return [files, record["config"], record.get("labels"), result]

    return part


def _updated(run: Any) -> Any:
    from visterm.pipeline.store.versions import LearnerVersions

    versions = LearnerVersions(run)
    return [
        versions.in_force("oasis").version,
        hashlib.sha256(versions.load_in_force("oasis").W_.tobytes()).hexdigest(),
    ]


def _marks(run: Any) -> Any:
    from visterm.teaching.marks import RelevanceMarks

    return [[row[key] for key in ("query", "image", "path", "mark")] for row in RelevanceMarks(run.marks).export()]


def _ratings(run: Any) -> Any:
    from visterm.plugins.judge.judgements import Judgements

    return [[row[key] for key in ("query", "image", "decision", "judge")] for row in Judgements(run.judgements).rows()]


def _label_edits(run: Any) -> Any:
    from visterm.pipeline.store.label_edits import LabelEdits

    return [[row[key] for key in ("step", "image", "label", "change")] for row in LabelEdits(run.label_edits).export()]


def _different(run: Any) -> Any:
    from visterm.teaching.different import DifferentPictures

    steps = DifferentPictures(run.different).standing().values()
    return [[row.step, row.part, row.image, row.path] for rows in steps for row in rows]


_PARTS: dict[str, Callable[[Any], Any]] = {
    "catalogue": _catalogue,
    "vectors": _vectors,
    **{name: _learner(name) for name in ("oasis", "aroma", "wsabie")},
    "updated": _updated,
    "marks": _marks,
    "ratings": _ratings,
    "label edits": _label_edits,
    "different pictures": _different,
}
_OF_PEOPLE = ("marks", "ratings", "label edits", "different pictures")


def compared(now: Any, wanted: dict[str, Any], told: str = "") -> str | None:
    """Compare two states: every part is equal, or called damaged; `told` is what a command said was lost."""
    if not isinstance(now, dict):
        return f"the run cannot be read: {now}"
    for name, value in now.items():
        if value == wanted[name] or (isinstance(value, str) and value.startswith("UserError: ")):
            continue
        if name in ("catalogue", "vectors", *_OF_PEOPLE) and ("lost" in told or "damaged" in told):
            continue
        if name == "updated" and "has not learned from the relevance marks yet" in told:
            continue
        return f"{name} silently differs: {_difference(value, wanted[name])}"
    return None


def _difference(value: Any, wanted: Any) -> str:
    if isinstance(value, list) and isinstance(wanted, list):
        pairs = [(a, b) for a, b in zip(value, wanted, strict=False) if a != b]
        return f"{len(value)} of {len(wanted)} rows; {str(pairs[:1])[:300]}"
    return f"{str(value)[:150]} instead of {str(wanted)[:150]}"
