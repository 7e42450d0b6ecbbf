"""What is answered without Typer is what Typer answers."""

import json
import os
import subprocess
import sys
from unittest.mock import Mock

import pytest
from help_texts import FILE, help_text, names_of_commands
from running import visterm

from visterm.pipeline.cli import quick
from visterm.pipeline.cli.runs import Globals
from visterm.pipeline.plugins import COMMANDS

TERMINAL = """
import os, pty, subprocess, sys
master, slave = pty.openpty()
import fcntl, struct, termios
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
subprocess.run([sys.executable, "-m", "visterm", "export", "--help"], stdout=slave, check=True)
sys.stdout.write(os.read(master, 1 << 16).decode().replace("\\r", ""))
"""


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_help_texts_are_those_of_typer():
    written = FILE.read_text(encoding="utf-8").split("\f")
    names = list(names_of_commands())
    assert len(names) > 35
    assert written == [help_text(*words) for words in names], "options have changed: python tests/help_texts.py"


def test_each_help_text_is_found(wide, capsys):
    for words in names_of_commands():
        for call in ([*words, "--help"], [*words, "-h"], ["help", *words], ["-q", *words, "--help"]):
            assert quick.answer(call)
            assert capsys.readouterr().out == help_text(*words)


@pytest.mark.parametrize("words", [[], ["label"], ["no", "-h"], ["export", "--json", "-h"], ["export", "--", "-h"]])
def test_other_calls_take_typer(wide, words):
    assert not quick.answer(words)


def test_narrow_lines_are_broken_by_typer(monkeypatch):
    monkeypatch.setenv("COLUMNS", "79")
    assert not quick.answer(["export", "--help"])


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize("columns", [60, 79, 80, 200])
def test_the_columns_of_a_terminal(columns):
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-c", TERMINAL, f"{columns}"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (shown.stdout == help_text("export")) == (columns >= 80), shown.stderr


def test_commands_whose_room_is_not_installed_have_no_help(wide, monkeypatch):
    monkeypatch.setitem(COMMANDS, "Keep", {**COMMANDS["Keep"], "export": "plugins.nowhere.commands:export"})
    assert not quick.answer(["export", "--help"])
    assert not quick.answer(["--help"])
    assert quick.answer(["search", "--help"])


@pytest.mark.parametrize("name", ["label list", "info"])
@pytest.mark.parametrize("options", ["", "--run fruit", "--json --run fruit", "--run=fruit", "--json --quiet", "id:1"])
def test_plain_calls_answer_as_typer_does(mine, name, options):
    words = [*name.split(), *options.split()]

    def answered(module, arguments):
        program = f"from visterm.pipeline.cli.{module} import main; main({arguments})"
        ended = subprocess.run([sys.executable, "-c", program, *words], cwd=mine, capture_output=True, text=True)
        return ended.returncode, ended.stdout, ended.stderr

    answer = answered("start", "")
    assert answer == answered("app", "ends_process=True")
    code, printed, _ = answer
    assert code == (2 if options == "id:1" and name == "info" else 0)
    assert bool(printed) == (code == 0)
    if "--json" in options:
        told = json.loads(printed)
        assert (told["images"] if name == "info" else sum(entry["images"] for entry in told)) > 20


def test_a_plain_call(monkeypatch):
    monkeypatch.setattr("visterm.teaching.label_counts.list_counts", called := Mock())
    monkeypatch.setattr("visterm.plugins.repair.info.show_info", called)
    for name in ("debug", "quiet", "progress"):
        monkeypatch.setattr(Globals, name, getattr(Globals, name))
    monkeypatch.setenv("VISTERM_RUN", "theirs")
    for words, keywords in {
        "label list": {"run": "theirs", "as_json": False},
        "label -q list --run ours --json --no-progress": {"run": "ours", "as_json": True},
        "info": {"run": "theirs", "as_json": False, "skipped": False},
        "info --skipped --run ours --json -q": {"run": "ours", "as_json": True, "skipped": True},
    }.items():
        quick._plain_call(words.split())()
        called.assert_called_with(**keywords)
    assert (Globals.debug, Globals.quiet, Globals.progress) == (False, True, None)


def test_errors_of_a_plain_call_are_one_line(tmp_path):
    refused = visterm("label", "list", "--run", "none", cwd=tmp_path, check=2)
    assert refused.stderr.startswith("visterm: no run none in runs")
    assert len(refused.stderr.splitlines()) == 1
