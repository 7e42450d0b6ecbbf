"""Signals before a command has begun, and after its work is done; handlers of a program that calls a command."""

import signal
import subprocess
import sys

import pytest

from visterm.pipeline.cli.app import main

NUMBERS = [signal.SIGINT, signal.SIGTERM]
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore Ctrl-C
from visterm.pipeline.cli import start

def send(*_):
    os.kill(os.getpid(), {number})

if {early}:
    sys.addaudithook(lambda event, names: send() if event == "import" and names[0] == "typer" else None)
else:
    import gc
    gc.freeze = send
sys.argv = ["visterm", "compact", "--run", "none"]
start.main()
"""


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
@pytest.mark.parametrize("early", [True, False])
def test_one_line_or_nothing(tmp_path, number, early):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(number=int(number), early=early)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    (line,) = done.stderr.splitlines()
    if early:
        assert (done.returncode, line) == (128 + number, "visterm: interrupted; nothing was done yet")
    else:
        assert done.returncode == 2
        assert line.startswith("visterm: no run none")


def test_a_program_that_calls_main_keeps_its_handlers(tmp_path, monkeypatch, capsys):
    received = []
    before = {number: signal.signal(number, lambda number, _: received.append(number)) for number in NUMBERS}
    try:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["visterm", "info", "--run", "none"])
        with pytest.raises(SystemExit, match="2"):
            main()
        assert capsys.readouterr().err.startswith("visterm: no run none")
        for number in NUMBERS:
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert received == NUMBERS


WAITING = """
import atexit, os, signal, sys, time
from visterm.pipeline.cli import errors, start
from visterm.pipeline.store import run

errors.END_SECONDS = 0.3
if {number}:
    def wait():
        try:
            os.kill(os.getpid(), {number})
            time.sleep(1)
        except KeyboardInterrupt:
            time.sleep(100)  # as for a worker that hangs in the kernel
    run.runs_folder = wait
else:
    atexit.register(time.sleep, 100)
sys.argv = ["visterm", "info"]
start.main()
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(0, marks=pytest.mark.slow)])
def test_nothing_is_waited_for_without_limit(tmp_path, number):
    """Neither after a signal nor after the last line of a command."""
    program = WAITING.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=40)
    (line,) = done.stderr.splitlines()
    if number:
        assert (done.returncode, line[:44]) == (143, "visterm: interrupted; a worker did not end, ")
    else:
        assert done.returncode == 2
        assert line.startswith("visterm: no run given")


LOST = """
import os, signal, sys
from visterm.pipeline.cli import start
from visterm.pipeline.store import run

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), {number})
        sum(range(1000))

def wait():
    dropped = Dropped()
    del dropped
    while True:
        sum(range(1000))

run.runs_folder = wait
sys.argv = ["visterm", "info"]
start.main()
"""


SLOW = """
import threading, time
begin = threading.Thread.start
def start_slowly(thread):
    begin(thread)
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        sum(range(100))
threading.Thread.start = start_slowly
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("before", ["", SLOW], ids=["at once", "on a busy machine"])
def test_a_signal_in_a_destructor_is_not_lost(tmp_path, before):
    """Python drops an exception there, and would print a traceback in place of ending."""
    program = before + LOST.format(number=int(signal.SIGTERM))
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=40)
    assert (done.returncode, done.stderr) == (143, "visterm: interrupted\n")
