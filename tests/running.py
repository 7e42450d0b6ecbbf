"""Running commands in tests."""

import contextlib
import functools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.testing

from visterm.pipeline.cli.app import app
from visterm.pipeline.store.catalogue import Collection
from visterm.pipeline.store.files import write_record


def set_all(**sections):
    """Options --set for the settings of sections, given as dicts."""
    return [
        part
        for name, section in sections.items()
        for key, value in section.items()
        for part in ("--set", f"{name}.{key}={value}")
    ]


# The same engine without the windows, menus and start pages of a desktop, which take most of the time of a short test.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
CLASSES = ("apple", "pear", "plum")  # of the run of most tests, ten images each
SMALL = set_all(
    features={"n_visterms": 40},
    oasis={"n_steps": 4000, "pass_steps": 1000},
    wsabie={"n_steps": 4000, "pass_steps": 1000},
    musl={"n_metrics": 2, "n_bits": 8},
    compute={"n_jobs": 1},
)


# Else Typer builds all commands again in each call.
typer.testing._get_command = functools.cache(typer.testing._get_command)


def visterm(*arguments, cwd, check=0):
    """Run the command in a folder, in this process; the exit code must be the one expected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("VISTERM_RUN", "")
        patch.delenv("VISTERM_RUNS", raising=False)
        result = typer.testing.CliRunner().invoke(app, list(map(str, arguments)), prog_name="visterm")
    assert result.exit_code == check, result.stderr
    return result


def json_of(*arguments, cwd, check=0):
    """What a command says with --json."""
    return json.loads(visterm(*arguments, "--json", cwd=cwd, check=check).stdout)


def refused(*arguments, cwd):
    """Run a command that must be refused with one line; return the line."""
    result = visterm(*arguments, cwd=cwd, check=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith("visterm: ")][-1]


def note(folder, name, **figures):
    """Write figures into the record of a trained learner."""
    file = folder / "runs/fruit/learners" / name / "record.json"
    record = json.loads(file.read_text())
    record["result"] |= figures
    write_record(file, record)


def paths_of(answer):
    """The paths of the results of a query, the nearest first."""
    return [result["path"] for result in answer["results"]]


def catalogue_rows(folder, columns="path, labels, split, status"):
    """Columns of the images of the run "fruit" that are not removed, by path."""
    with contextlib.closing(sqlite3.connect(folder / "runs/fruit/collection/catalogue.sqlite")) as db, db:
        query = f"SELECT {columns} FROM images WHERE status != 'removed' ORDER BY path"
        rows = db.execute(query).fetchall()
    return [tuple(os.fsdecode(value) if isinstance(value, bytes) else value for value in row) for row in rows]


def counts_by_path(folder):
    """Counts of each image of the run "fruit" that is not removed."""
    with Collection(folder / "runs/fruit/collection") as collection:
        images = collection.images()
        matrix = collection.counts(images).toarray()
    return {image.path: tuple(row) for image, row in zip(images, matrix, strict=True)}


def copy_run(source, target):
    """Copy a folder of images and runs; the times stay, so that nothing in it is out of date."""
    return shutil.copytree(source, target, dirs_exist_ok=True)


# What a process needs before it begins is done by its own program: with a `preexec_fn`, Python forks, and a fork of a
# process whose threads use gRPC (that of Milvus, in other tests) may end with SIGABRT before it begins. This program
# imports what commands need, which takes most of their time, and forks for each command that it reads.
NOT_EXCHANGED = "visterm.pipeline.store.files:exchanged"  # as on a file system that exchanges no folders
PROGRAM = """
import json, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C, and so do children
from pkgutil import resolve_name
import visterm.learners, visterm.pipeline.stages.features, visterm.pipeline.stages.train
from visterm.pipeline.cli.app import main

def begin(number, moment, folder, arguments):
    where, name, call, *failing = moment.split()
    where, left = resolve_name(where), int(call)
    for module, function in (place.split(":") for place in failing):
        setattr(resolve_name(module), function, lambda *_: False)
    work = getattr(where, name)

    def interrupted(*arguments, **options):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), number)
        return work(*arguments, **options)

    setattr(where, name, interrupted)
    os.chdir(folder)
    sys.argv[1:] = arguments
    main(ends_process=True)

while line := sys.stdin.readline():
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream, file in enumerate((nothing, nothing, writing)):
            os.dup2(file, stream)
        os.closerange(3, max(reading, writing, nothing) + 1)
        begin(*json.loads(line))
        sys.exit()
    os.close(writing)
    with os.fdopen(reading, errors="backslashreplace") as pipe:
        lines = pipe.read()  # ends when the last process that holds the pipe does
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), lines]), flush=True)
"""


@contextlib.contextmanager
def ended_by_signals():
    """Function (number, moment, *arguments, cwd): a command in a process of its own that sends itself a signal.

    The moment is a call of a function, such as "numpy save 2": the second one. No test needs to race a process. What
    follows in it are functions, "module:name", that cannot do their work here, and return False. The function returns
    what the process writes to standard error.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}

    def end(number, moment, *arguments, cwd):
        program.stdin.write(json.dumps([int(number), moment, str(cwd), arguments]) + "\n")
        program.stdin.flush()
        code, lines = json.loads(program.stdout.readline())
        assert code == (-number if number == signal.SIGKILL else 128 + number), lines
        return lines

    with subprocess.Popen([sys.executable, "-c", PROGRAM], **pipes, start_new_session=True) as program:
        try:
            yield end
        finally:
            os.killpg(program.pid, signal.SIGKILL)  # with the command, where the test was ended


def end_by_signal(number, moment, *arguments, cwd):
    """One command that is ended by a signal; see `ended_by_signals`."""
    with ended_by_signals() as end:
        return end(number, moment, *arguments, cwd=cwd)


def said_until_killed(program, *arguments, lines, seconds):
    """Numbers that a program printed before it was killed, some seconds after its first lines."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = [process.stdout.readline() for _ in range(lines)]
            time.sleep(seconds)
        finally:
            process.kill()  # SIGKILL
        said += process.stdout.readlines()
    assert process.returncode == -9
    return [int(line) for line in said if line.endswith("\n")]


SMALL_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""


def in_small_files(*arguments, cwd, most):
    """Run a command that can write no file of more bytes, as on a full disk; return the last line that it says.

    It is not measured by `make coverage`, whose data would not fit.
    """
    done = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, str(most), str(Path(sys.executable).with_name("visterm")), *arguments],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    return done.stderr.splitlines()[-1]
