"""Commands without enough memory: one line, however early it ends."""

import os
import resource
import subprocess
import sys
from unittest.mock import Mock

import pytest

from visterm.pipeline.cli.memory import START, check_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce RLIMIT_AS")

PROGRAM = """
import resource, sys
from visterm.pipeline.cli import start

def leave(megabytes):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), resource.RLIM_INFINITY))

sys.argv = ["visterm", "{command}", "--run", "fruit"]
{work}
start.main()
"""
IN_A_COMMAND = """
import types

def show_info(*_, **__):
    import threading, numpy
    leave(4)
    {work}

sys.modules["visterm.plugins.repair.info"] = types.SimpleNamespace(show_info=show_info)
"""


def line_of(work, folder, command="info"):
    """Run a program, which must end with exit code 2 and nothing but one line; return the line."""
    (folder / "runs/fruit").mkdir(parents=True)
    program = PROGRAM.format(work=work, command=command)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}  # it needs memory
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=folder, env=plain, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("megabytes", "needed"),
    [(0, None), (1, None), (3, None), (20, 64), (300, 1024)],  # without any memory it cannot say what it needs
)
def test_imports_without_memory(tmp_path, megabytes, needed):
    line = line_of(f"leave({megabytes})", tmp_path)
    reason = f" ({needed} MB of address space are not free)" if needed else ""
    assert line.startswith("visterm: out of memory" + reason)
    assert line.endswith("raise the limit (ulimit -v), then re-run the same command to resume")


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        ("numpy.ones(1 << 28)", "Unable to allocate 2.00 GiB for an array"),
        ("bytearray(1 << 30)", ""),
        ("threading.Thread(target=print).start()", "can't start new thread"),
        ("import cv2", "failed to map segment from shared object"),
    ],
)
def test_a_command_without_memory(tmp_path, work, reason):
    line = line_of(IN_A_COMMAND.format(work=work), tmp_path)
    assert line.startswith("visterm: out of memory" + (" (" if reason else ";"))
    assert reason in line


def test_a_missing_package_is_not_a_lack_of_memory(tmp_path):
    line = line_of("sys.modules['typer'] = None", tmp_path, "compact")
    assert line.startswith("visterm: the installation is damaged (import of typer halted")


def test_openblas_starts_no_threads_under_a_small_limit(monkeypatch):
    """It would wait for memory without an end."""
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    check_memory(START)
    assert os.environ == {}
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 29,) * 2)
    check_memory(START)
    assert os.environ == {"OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize("error", [OSError(12, "Cannot allocate memory", "sqlite3"), SyntaxError("expected ':'")])
def test_an_error_is_one_line_where_its_explanation_has_no_memory_either(monkeypatch, error):
    from visterm.pipeline.cli import start

    monkeypatch.setattr("visterm.pipeline.errors.explain_system_error", Mock(side_effect=error))
    assert start._explained(MemoryError()).startswith("out of memory")
