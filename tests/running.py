"""Running commands in tests, and copying finished runs."""

from __future__ import annotations

import os
import shutil

import pytest
from typer.testing import CliRunner

from visterm.features import decoding
from visterm.pipeline.cli.app import app


def visterm(*arguments, cwd, check=0):
    """Run the command in a folder, in this process; the exit code must be the one expected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(cwd)
        patch.setenv("VISTERM_RUN", "")
        patch.delenv("VISTERM_RUNS", raising=False)
        patch.setattr(decoding, "_silenced", True)  # pytest's own descriptors stay as they are
        result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="visterm")
    assert result.exit_code == check, result.stderr
    return result


def refused(*arguments, cwd):
    """Run a command that must be refused with one line; return the line."""
    result = visterm(*arguments, cwd=cwd, check=2)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return [line for line in result.stderr.splitlines() if line.startswith("visterm: ")][-1]


def copy_run(source, target):
    """Copy a folder of images and runs, by hard links of what no test changes in place: images and arrays."""

    def link(file, copy):
        (os.link if file.endswith((".jpg", ".npy")) else shutil.copy2)(file, copy)

    shutil.copytree(source, target, copy_function=link, dirs_exist_ok=True)
    return target
