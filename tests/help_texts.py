"""Write the help texts that are printed without Typer: ``python tests/help_texts.py`` after a change of options."""

import contextlib
import functools
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from visterm.pipeline.cli import quick
from visterm.pipeline.cli.app import app

FILE = Path(quick.__file__).with_name(quick.HELP)


def names_of_commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and of each group, none for the whole."""
    whole: Any = typer.main.get_command(app)
    context = typer.Context(whole)
    yield ()
    for name in whole.list_commands(context):
        yield (name,)
        for below in getattr(whole.get_command(context, name), "commands", ()):
            yield name, below


@functools.cache
def help_text(*names: str) -> str:
    """Return the help of a command as Typer prints it on a wide terminal; its CliRunner has lines that are longer."""
    with patch.dict(os.environ, COLUMNS="200"), contextlib.redirect_stdout(io.StringIO()) as printed:
        app([*names, "--help"], prog_name="visterm", standalone_mode=False)
    return printed.getvalue()


if __name__ == "__main__":
    FILE.write_text("\f".join(help_text(*names) for names in names_of_commands()), encoding="utf-8")
