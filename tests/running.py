"""Running commands in tests."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.testing

from visterm.pipeline.cli.app import app


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


def copy_run(source, target):
    """Copy a folder of images and runs; the times stay, so that nothing in it is out of date."""
    return shutil.copytree(source, target, dirs_exist_ok=True)


# What a process needs before it begins is done by its own program: with a `preexec_fn`, Python forks, and a fork of a
# process whose threads use gRPC (that of Milvus, in other tests) may end with SIGABRT before it begins.
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C, and so do children
from pkgutil import resolve_name
from visterm.pipeline.cli.app import main

number, where, name, call = sys.argv.pop(1).split()
where, left = resolve_name(where), int(call)
work = getattr(where, name)

def interrupted(*arguments, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), int(number))
    return work(*arguments, **options)

setattr(where, name, interrupted)
main(ends_process=True)
"""


def end_by_signal(number, moment, *arguments, cwd):
    """Run the command in a process that sends itself a signal; return what it writes to standard error.

    The moment is a call of a function, such as "numpy save 2": the second one. No test needs to race a process.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, f"{int(number)} {moment}", *arguments],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        lines = process.communicate(timeout=200)[1]  # ends when the last process that holds the pipe does
    finally:
        process.kill()
    assert process.returncode == (-number if number == signal.SIGKILL else 128 + number), lines
    return lines


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
