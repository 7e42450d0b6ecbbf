"""How an error of a command becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from .options import Globals

USAGE_ERROR: Any = typer.BadParameter.__base__  # of click, which some versions of Typer bundle


def command(function: Callable) -> Callable:
    """Turn an exception into one line on standard error and an exit code."""

    @wraps(function)
    def wrapped(*args, **kwargs):
        from visterm.pipeline.errors import UserError

        again = "re-run the same command"
        if kwargs.get("force") and function.__name__ == "train":  # --force ignores checkpoints
            again += " without --force"
        try:
            return function(*args, **kwargs)
        except UserError as error:
            if Globals.debug:
                raise
            from visterm.pipeline.console import one_line

            print(f"visterm: {one_line(str(error))}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt as interrupt:
            print(f"visterm: interrupted; {again} to resume", file=sys.stderr)
            raise typer.Exit(143 if isinstance(interrupt, Terminated) else 130) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
            raise typer.Exit(0) from None
        except typer.Exit:
            raise
        except Exception as error:
            if Globals.debug:
                raise
            if (line := _of_the_system(error)) is not None:
                print(f"visterm: {line}", file=sys.stderr)
                raise typer.Exit(2) from None
            text = " ".join(str(error).split())
            print(
                f"visterm: internal error: {type(error).__name__}: {text}; 'visterm --debug ...' shows where",
                file=sys.stderr,
            )
            raise typer.Exit(1) from None

    return wrapped


def _of_the_system(error: Exception) -> str | None:
    """One line about a disk that is full, a file that may not be read, and the like; None if it is something else."""
    import sqlite3

    from visterm.pipeline.console import one_line

    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    elif isinstance(error, sqlite3.OperationalError):
        reason, where = str(error), "catalogue.sqlite: "
    else:
        return None
    return one_line(f"{where}{reason}; mend this, then the same command goes on from here")


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled as Ctrl-C."""
