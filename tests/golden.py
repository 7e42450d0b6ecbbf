"""Keep what visterm makes and says, and compare it with what another checkout makes and says.

``python tests/golden.py record FILE`` with the code before a change, ``python tests/golden.py compare FILE`` with the
code after it: each must make the same artifacts, print the same words and answer the same JSON. What may differ is left
out: times, durations, versions of libraries, the folders of this machine, and fingerprints that depend on them. Digests
depend on the machine (BLAS, the decoder of JPEG), so FILE is worth something only where it was made.

The photos are those of `VISTERM_DATA` (default ../shared/data); nothing else is read, and nothing is written but FILE
and a temporary folder.
"""

import argparse
import contextlib
import datetime
import difflib
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings
import zipfile
from pathlib import Path

from golden_parts import PARTS, REPOSITORY

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "100", "TZ": "UTC", "VISTERM_RUN": ""}
PATIENCE = 300  # seconds for what goes on in the background
SHOWN = 60  # lines of a difference
SHORT = 200  # bytes that are kept as they are

# Keys of JSON whose values differ from run to run.
UNSTABLE = {"created", "seconds", "train_seconds", "milliseconds", "versions", "checksum", "upload_expires", "time"}
SIZES = {"sizes", "crc32"}  # of files: their names stay
OF_TIMES = {"base", "version", "learner", "learners", "undo"}  # where they are hexadecimal: of times, and random names
COLUMNS = {"time", "created", "seconds", "checksum"}  # of SQLite
LEARNER_VERSION = re.compile(r"((oasis|wsabie)'?, ?'?|\"undo\": \")[0-9a-f]{16}\b")
DURATION = re.compile(r"\b\d[\d,]*(\.\d+)? ?(ms|s|min|h|seconds?|minutes?)\b")
TODAY = {(datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=n)).date() for n in (-1, 0, 1)}
MOMENT = re.compile(rf"({'|'.join(map(str, TODAY))})([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?)?")
DATA_ADDRESS = re.compile(r"(data:[\w/+.-]+;base64,)([A-Za-z0-9+/=]{40,})")


def create_app(run):
    """Make the web application of the run in a folder; the only thing here that is no public name."""
    for name in ("visterm.service.app", "visterm.pipeline.service.app"):
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(name).create_app(
                importlib.import_module("visterm.pipeline.store.run").Run(run)
            )
    raise SystemExit("golden: there is no service")


def digest(data):
    """Shorten bytes to their digest."""
    return f"sha256:{hashlib.sha256(data).hexdigest()} of {len(data):,} bytes"


def short(value):
    """Shorten large bytes to their digest."""
    return digest(value) if isinstance(value, bytes) and len(value) > SHORT else value


def stable(value):
    """Leave out of JSON what may differ."""
    if isinstance(value, dict):
        return {
            key: "*"
            if key in UNSTABLE or (key in OF_TIMES and re.fullmatch("[0-9a-f]{8,}", str(item)))
            else sorted(item)
            if key in SIZES and isinstance(item, dict)
            else stable(item)
            for key, item in value.items()
        }
    return [stable(item) for item in value] if isinstance(value, list) else value


def words(text):
    """Leave out of JSON, or of what people read, what may differ."""
    try:
        return json.dumps(stable(json.loads(text)), indent=1)
    except ValueError:
        lines = [line for line in text.splitlines() if "compiling kernels" not in line]
        return DURATION.sub("#", "\n".join(lines))


class Golden:
    """What is kept: texts by names, and the folder that they tell of."""

    def __init__(self, work):
        self.work, self.texts = work, {}

    def keep(self, name, text):
        """Keep a text; the same name a second time gets a number."""
        name, text = (
            LEARNER_VERSION.sub(r"\1*", part.replace(str(self.work), "WORK").replace(str(REPOSITORY), "REPOSITORY"))
            for part in (name, text)
        )
        text = DATA_ADDRESS.sub(lambda match: match[1] + digest(match[2].encode()), MOMENT.sub("TIME", text))
        number = sum(key.partition(" #")[0] == f"{self.work.name}: {name}" for key in self.texts)
        self.texts[f"{self.work.name}: {name}" + (f" #{number + 1}" if number else "")] = text

    def run(self, line, stdin=""):
        """Run a command, and keep what it says."""
        command = [str(Path(sys.executable).parent / "visterm"), *shlex.split(line)]
        done = subprocess.run(command, cwd=self.work, input=stdin, capture_output=True, text=True, env=environment())
        self.keep(f"visterm {line}", f"{words(done.stdout)}\n-- exit {done.returncode}\n{words(done.stderr)}")
        return done.stdout

    def run_all(self, lines, more=""):
        """Run a command a line."""
        for line in lines:
            self.run(f"{line} {more}")

    def serve(self, line):
        """Start a command that serves, ask for its health, end it, and keep what it says."""
        command = [str(Path(sys.executable).parent / "visterm"), *shlex.split(line)]
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(command, cwd=self.work, text=True, env=environment(), **both) as process:
            said = ""
            while not (address := re.search(r"http://127\.0\.0\.1:\d+", said)) and (more := process.stdout.readline()):
                said += more
            if address:
                with urllib.request.urlopen(f"{address[0]}/health", timeout=PATIENCE) as answer:
                    self.keep(f"{line}: /health", words(answer.read().decode()))
            process.send_signal(signal.SIGINT)
            said += process.stdout.read()
        said = re.sub(r"(127\.0\.0\.1:)\d+", r"\1PORT", words(said))
        self.keep(f"visterm {line}", f"{said}\n-- exit {process.returncode}")

    def artifacts(self, folder):
        """Keep every file below a folder."""
        for file in sorted((self.work / folder).rglob("*")):
            if not file.is_file() or file.name.endswith(
                (".lock", "-wal", "-shm", ".checksum.json", "journal", "looks.sqlite")
            ):
                continue
            name = str(file.relative_to(self.work))
            if file.suffix in {".json", ".jsonl", ".csv", ".yaml", ".html", ".svg", ".txt"}:
                self.keep(name, words(file.read_text()))
            elif file.suffix == ".sqlite":
                self.keep(name, tables(file))
            else:
                self.keep(name, digest(file.read_bytes()))

    def photos(self, folder, classes, number, *, flat=False):
        """Copy photos, with the same times each time."""
        source = Path(os.environ.get("VISTERM_DATA", REPOSITORY.parent / "shared/data")) / "caltech101"
        for label in classes or sorted(os.listdir(source)):
            for i, file in enumerate(sorted((source / label).iterdir())[:number]):
                target = self.work / folder / (f"{label}_{file.name}" if flat else f"{label}/{file.name}")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                os.utime(target, (1_700_000_000 + i,) * 2)

    @contextlib.contextmanager
    def client(self, run):
        """Serve a run in this process; gives a function that asks, and keeps the answer."""
        warnings.simplefilter("ignore")  # of starlette, about its client
        from starlette.testclient import TestClient

        app = create_app(self.work / "runs" / run)
        with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False, client=("127.0.0.1", 1)) as client:

            def ask(line, *, until=None, **options):
                method, path = line.split(" ", 1)
                end = time.monotonic() + PATIENCE
                while True:
                    answer = client.request(method, path, **options)
                    if until is None or until(answer.json()) or time.monotonic() > end:
                        break
                    time.sleep(0.1)
                shown = json.dumps(options["json"]) if "json" in options else options.get("data", "")
                kind = answer.headers.get("content-type", "")
                if kind == "application/zip":  # whose entries have times
                    with zipfile.ZipFile(io.BytesIO(answer.content)) as entries:
                        text = "\n".join(f"{name} {digest(entries.read(name))}" for name in entries.namelist())
                else:
                    text = answer.text if kind.startswith(("application/json", "text/")) else digest(answer.content)
                self.keep(f"{line} {shown}", f"{answer.status_code} {kind}\n{words(text)}")
                return answer

            # Answers have the mean colours of images from some moment after the start.
            end = time.monotonic() + PATIENCE
            while '"color":null' in client.get("/api/images?limit=200").text and time.monotonic() < end:
                time.sleep(0.1)
            yield ask


def environment():
    """Return the variables of a command."""
    return {key: value for key, value in os.environ.items() if not key.startswith("VISTERM_")} | ENVIRONMENT


def cells(row, columns, kept):
    """Return what is kept of a row; the split of an image outside of the collection depends on its whole path."""
    outside = "split" in columns and row[columns.index("path")].startswith(b"/")
    return ["*" if outside and columns[i] == "split" else short(row[i]) for i in kept]


def tables(file):
    """Return the tables of an SQLite file, without times, as text."""
    lines = []
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        for name, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = db.execute(f'SELECT * FROM "{name}"')
            columns = [column for column, *_ in rows.description]
            left_out = COLUMNS | ({"number", "mark"} if name == "changes" else set())  # these are random
            kept = [i for i, column in enumerate(columns) if column not in left_out]
            lines += [f"-- {sql}", *sorted(repr(cells(row, columns, kept)) for row in rows)]
    return "\n".join(lines)


def make(names, work):
    """Make all parts; return the texts."""
    texts = {}
    for name in names:
        started = time.monotonic()
        golden = Golden(work / name)
        golden.work.mkdir()
        PARTS[name](golden)
        texts |= golden.texts
        print(f"{name}: {len(golden.texts)} texts, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return texts


def differences(before, after):
    """Yield lines about what is not the same."""
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old != new:
            yield f"=== {key}: {'new' if old is None else 'gone' if new is None else 'differs'}"
            lines = list(difflib.unified_diff((old or "").splitlines(), (new or "").splitlines(), lineterm="", n=1))[2:]
            yield from (line[:400] for line in lines[:SHOWN])
            if len(lines) > SHOWN:
                yield f"... and {len(lines) - SHOWN} more lines"


def read(file, names):
    """Read the texts of some parts."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    return {key: text for key, text in kept.items() if key.partition(":")[0] in names}


def main():
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts")
    parser.add_argument("--work", type=Path, help="make the runs in this folder, and keep it")
    parser.add_argument(
        "--with", type=Path, dest="other", metavar="FILE", help="compare with this record; make nothing"
    )
    parser.add_argument("--same", nargs="+", default=[], metavar="OLD=>NEW", help="a text that was renamed on purpose")
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)  # before NumPy is imported
    with contextlib.ExitStack() as stack:
        if arguments.other:
            texts = read(arguments.other, arguments.only)
        elif arguments.work:
            arguments.work.mkdir(parents=True)
            texts = make(arguments.only, arguments.work.resolve())
        else:
            texts = make(arguments.only, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-"))))
    before = read(arguments.file, arguments.only)
    if arguments.action == "record":  # the other parts stay
        others = read(arguments.file, PARTS.keys() - set(arguments.only))
        arguments.file.write_text(json.dumps(others | texts, indent=0))
        return 0
    for pair in arguments.same:
        old, new = pair.split("=>")
        before = {key.replace(old, new): text.replace(old, new) for key, text in before.items()}
    lines = list(differences(before, texts))
    print("\n".join(lines) or f"the same: {len(texts)} texts")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
